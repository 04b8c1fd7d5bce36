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

// Prices of us-east-1 in dollars, as the page states them; per million, but for logs, which are per GB.
const (
	priceSQS, priceRequest, priceRead, priceWrite, priceSchedule, priceLogs = 0.40, 0.20, 0.125, 0.625, 1.00, 0.50
	logsKB                                                                  = 1.4
)

// The table of what waiting costs, with hops and with schedules.
func TestWhatWaitingCosts(t *testing.T) {
	doc, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	delivery := func(batch float64) float64 { return (2*priceSQS + priceRequest + logsKB*priceLogs) / batch }
	hop := func(batch float64) float64 { return priceSQS/batch + delivery(batch) }
	scheduled := func(batch float64) float64 {
		return priceSchedule + priceSQS + priceRead + priceWrite + delivery(batch) + hop(batch)
	}
	for due, hours := range map[string]float64{"1 hour": 1, "4 hours": 4, "1 day": 24, "30 days": 30 * 24, "365 days": 365 * 24} {
		hops := 4 * hours
		want := fmt.Sprintf("| %s ahead | %s | %s | %.2f | %.2f |", due, dollars(hops*hop(1)), dollars(hops*hop(10)), scheduled(1), scheduled(10))
		if !strings.Contains(string(doc), want) {
			t.Errorf("docs/deploy.md does not say %q", want)
		}
	}
}

// dollars writes an amount with a comma after its thousands.
func dollars(amount float64) string {
	text := fmt.Sprintf("%.2f", amount)
	if n := len(text) - len(".00") - 3; n > 0 {
		text = text[:n] + "," + text[n:]
	}
	return text
}
