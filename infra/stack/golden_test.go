package stack

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/template.txt anew")

// The summary shows a reviewer what a change does to the deployed system. It asserts nothing by itself:
// what must hold is asserted elsewhere. Write it anew with: go test ./infra/stack -run Summary -update
func TestSummary(t *testing.T) {
	const file = "testdata/template.txt"
	got := standardTemplate(t).summary(t)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		equal(t, file, strings.Split(got, "\n"), strings.Split(string(want), "\n"))
		t.Error("the template changed; if that is meant: go test ./infra/stack -run Summary -update")
	}
}

// A version's logical id ends in the hash of its function's properties.
var versionHash = regexp.MustCompile(`[0-9a-f]{32,}`)

// summary has a paragraph for each resource, with a line for each of its properties. What other
// tests list in full, or what changes with every build, is cut short.
func (tm template) summary(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, id := range slices.Sorted(maps.Keys(tm.Resources)) {
		r := tm.Resources[id]
		fmt.Fprintf(&out, "%s %s", strings.TrimPrefix(r.Type, "AWS::"), id)
		if r.DeletionPolicy != "" {
			fmt.Fprintf(&out, " (%s)", r.DeletionPolicy)
		}
		out.WriteString("\n")
		switch r.Type {
		case "AWS::CloudWatch::Alarm":
			line, _ := tm.watched(r.Properties)
			fmt.Fprintf(&out, "\t%s\n\t≥ %.0f in %v of %v minutes\n", line, r.Properties["Threshold"], r.Properties["DatapointsToAlarm"], r.Properties["EvaluationPeriods"])
			continue
		case "AWS::CloudWatch::Dashboard":
			for _, w := range tm.widgets(t) {
				fmt.Fprintf(&out, "\t%s: %d\n", w.title, len(w.series))
			}
			continue
		case "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy":
			may := tm.allowed(t, id)
			slices.Sort(may)
			fmt.Fprintf(&out, "\t%s\n", strings.Join(may, "\n\t"))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
			if name == "Code" {
				continue
			}
			value, err := json.Marshal(tm.resolve(r.Properties[name]))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "\t%s: %s\n", name, value)
		}
	}
	return versionHash.ReplaceAllString(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(out.String()), "…")
}
