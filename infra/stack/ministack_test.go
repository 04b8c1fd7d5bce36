package stack

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// MiniStack knows no alarms on metric math. Its script leaves them out by name, and so has to name each of them.
func TestMiniStackLeavesOutMetricMathByName(t *testing.T) {
	script, err := os.ReadFile("../../scripts/ministack-template.mjs")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^const leftOut = (\[.*\]);$`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/ministack-template.mjs has no list leftOut")
	}
	var leftOut []string
	if err := json.Unmarshal(list[1], &leftOut); err != nil {
		t.Fatal(err)
	}
	tm := standardTemplate(t)
	var math []string
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		if p := tm.Resources[id].Properties; p["Metrics"] != nil {
			math = append(math, strings.TrimPrefix(tm.text(p["AlarmName"]), testStack+"-"))
		}
	}
	slices.Sort(math)
	slices.Sort(leftOut)
	equal(t, "alarms that scripts/ministack-template.mjs leaves out", leftOut, math)
}
