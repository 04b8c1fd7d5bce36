package cloudwatch

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// points writes one datapoint a minute: X breaches, 0 does not, - is missing.
func points(s Series, text string) *Metrics {
	m := NewMetrics(start)
	for i, one := range strings.Fields(text) {
		if one != "-" {
			m.Put(s, start.Add(time.Duration(i)*time.Minute), map[string]float64{"X": 1, "0": 0}[one], 1)
		}
	}
	return m
}

func alarmOf(t *testing.T, datapoints, periods int) Alarm {
	t.Helper()
	a, err := ParseAlarm(map[string]any{
		"AlarmName": "a", "ComparisonOperator": "GreaterThanOrEqualToThreshold", "TreatMissingData": "notBreaching",
		"Threshold": 1.0, "EvaluationPeriods": float64(periods), "DatapointsToAlarm": float64(datapoints),
		"Namespace": "n", "MetricName": "m", "Statistic": "Maximum", "Period": 60.0,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The examples of AWS's documentation, for missing data that is not breaching. Each range has five datapoints.
func TestMissingDataAsDocumented(t *testing.T) {
	for _, c := range []struct {
		datapoints int
		points     string
		on         bool
	}{
		{3, "0 - X - X", false},
		{3, "- - - - 0", false},
		{3, "- - - - -", false},
		{3, "0 X X - X", true},
		{3, "- - X - -", false},
		{2, "0 - X - X", true},
		{2, "0 0 X 0 X", true},
		{2, "0 - X - -", false},
		{2, "- - - - 0", false},
		{2, "- - - X -", false},
	} {
		a := alarmOf(t, c.datapoints, 3)
		if got := a.on(a.values(points("n  m", c.points)), 6); got != c.on {
			t.Errorf("%d of 3 over %s is on: %v, want %v", c.datapoints, c.points, got, c.on)
		}
	}
}

func TestSpans(t *testing.T) {
	a := alarmOf(t, 2, 3)
	got := a.Spans(points("n  m", "0 0 X X 0 0 0 X X X 0"), 12)
	// The fourth minute's datapoint is complete at 4 and seen at 5.
	if want := "5–7, 10–"; Describe(got, 0) != want {
		t.Errorf("on at %s, want %s", Describe(got, 0), want)
	}
}

func TestStatistics(t *testing.T) {
	m := NewMetrics(start)
	for i := range 4 {
		m.Put("s", start.Add(time.Duration(i)*time.Second), float64(i+1), 1)
	}
	m.Put("s", start.Add(time.Minute), 10, 6)
	m.Put("s", start.Add(-time.Second), 1000, 1) // before the start
	for statistic, want := range map[string][2]float64{
		"Sum": {10, 70}, "SampleCount": {4, 10}, "Minimum": {1, 1}, "Maximum": {4, 10}, "Average": {2.5, 7}, "p50": {2, 10}, "p99": {4, 10},
	} {
		for i, minutes := range []int{1, 2} {
			if got, ok := m.value("s", statistic, 0, minutes); !ok || math.Abs(got-want[i]) > 1e-9 {
				t.Errorf("%s over %d minutes is %v (%v), want %v", statistic, minutes, got, ok, want[i])
			}
		}
	}
	if v, ok := m.value("s", "Sum", 5, 1); ok {
		t.Errorf("a minute without samples has %v", v)
	}
	if v, ok := m.Without("s").value("s", "Sum", 0, 1); ok {
		t.Errorf("a series that nobody writes has %v", v)
	}
}

func TestExpressions(t *testing.T) {
	at := func(id string, period int) (float64, bool) {
		v, ok := map[string]float64{"a": 3, "b": 2, "zero": 0}[id]
		if id == "rising" {
			return float64(period * period), true
		}
		return v, ok
	}
	for text, want := range map[string]string{
		"a + b * 2": "7", "(a + b) * 2": "10", "a - b - 1": "0", "a / zero": "none", "missing + 1": "none",
		"FILL(missing, 0) + 1": "1", "FILL(a, 0)": "3", "IF(a > b, 5, 6)": "5", "IF(a <= b, 5, 6)": "6", "IF(missing > 0, 5, 6)": "none",
		"IF(a > b AND b == 2, 1, 0)": "1", "IF(zero > 0 OR a >= 3, 1, 0)": "1", "IF(a > b, 1, missing)": "1",
		"DIFF(rising)": "7", "a != b": "1", "a < b": "0", "100 * a / (a + b)": "60",
	} {
		e, _, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "none"
		if v, ok := e(at, 4); ok {
			got = fmt.Sprint(v)
		}
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "a +", "(a", "SEARCH(a, 1)", "a b", "IF(a, b)"} {
		if _, _, err := parse(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestLinesOfTheEmbeddedMetricFormat(t *testing.T) {
	m := NewMetrics(start)
	const lines = `{"level":"INFO","msg":"x"}
{"_aws":{"Timestamp":1796119230000,"CloudWatchMetrics":[{"Namespace":"n","Dimensions":[["b","a"]],"Metrics":[{"Name":"Count"},{"Name":"Time"}]}]},"a":"1","b":"2","Count":3,"Time":[5,7]}
`
	at := time.UnixMilli(1796119230000)
	m.start = at.Truncate(time.Minute)
	if err := m.ReadLines(strings.NewReader(lines), 10); err != nil {
		t.Fatal(err)
	}
	if v, _ := m.value(SeriesOf("n", "Count", "a=1", "b=2"), "Sum", 0, 1); v != 30 {
		t.Errorf("the count is %v, want 30: each job stands for ten", v)
	}
	if v, _ := m.value(SeriesOf("n", "Time", "b=2", "a=1"), "SampleCount", 0, 1); v != 20 {
		t.Errorf("%v times, want 20", v)
	}
	if err := m.ReadLines(strings.NewReader(`{"_aws":{}}`), 1); err == nil {
		t.Error("a document without a timestamp is read")
	}
}

func TestAlarmsThatAreNotModelledAreRefused(t *testing.T) {
	base := func() map[string]any {
		return map[string]any{
			"AlarmName": "a", "ComparisonOperator": "GreaterThanOrEqualToThreshold", "TreatMissingData": "notBreaching",
			"Threshold": 1.0, "EvaluationPeriods": 1.0, "Namespace": "n", "MetricName": "m", "Statistic": "Sum", "Period": 60.0,
		}
	}
	for name, change := range map[string]func(map[string]any){
		"another comparison":   func(p map[string]any) { p["ComparisonOperator"] = "LessThanThreshold" },
		"another missing data": func(p map[string]any) { p["TreatMissingData"] = "breaching" },
		"no period":            func(p map[string]any) { delete(p, "Period") },
		"more than a day":      func(p map[string]any) { p["EvaluationPeriods"] = 1441.0 },
		"an unknown id": func(p map[string]any) {
			delete(p, "MetricName")
			p["Metrics"] = []any{map[string]any{"Expression": "nobody + 1"}}
		},
	} {
		p := base()
		change(p)
		if _, err := ParseAlarm(p); err == nil {
			t.Errorf("%s: read", name)
		}
	}
	if _, err := ParseAlarm(base()); err != nil {
		t.Error(err)
	}
}
