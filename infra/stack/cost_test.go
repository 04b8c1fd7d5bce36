package stack

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"acklast/internal/telemetry"
)

// The page about costs counts what is deployed.
func TestCountsInTheCosts(t *testing.T) {
	tm := standardTemplate(t)
	metrics := 0
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		_, watched := tm.watched(tm.Resources[id].Properties)
		metrics += len(watched)
	}
	stack, kind, census := 0, 0, 0
	written, _ := emitted(t)
	for series := range written {
		name := series[strings.LastIndex(series, " ")+1:]
		switch dimensions := strings.TrimSuffix(strings.TrimPrefix(series, telemetry.Namespace+" "), " "+name); {
		case strings.HasPrefix(name, "Census"):
			census++
		case dimensions == "stack=acklast":
			stack++
		case dimensions == "kind=reservation.expire,stack=acklast":
			kind++
		}
	}
	doc, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(doc)), " ")
	for _, want := range []string{
		fmt.Sprintf("%d alarms look at %d metrics: %d × 0.10 = %.2f a month", len(tm.of("AWS::CloudWatch::Alarm")), metrics, metrics, float64(metrics)/10),
		fmt.Sprintf("Custom metrics are %d for the stack, %d for each kind", stack, kind),
		fmt.Sprintf("The census's %d are written once a day", census),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/deploy.md does not say %q", want)
		}
	}
}
