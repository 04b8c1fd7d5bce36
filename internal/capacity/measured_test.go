package capacity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"acklast/internal/capacity"
)

// toldStack is a stack of which everything is known.
func toldStack() capacity.Measured {
	from := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	return capacity.Measured{
		Source: "CloudWatch", From: from, To: from.Add(time.Hour), Fresh: 72_000, Retried: 8_000, Ended: 72_000,
		P50: 100 * time.Millisecond, P95: 400 * time.Millisecond, Batch: 10, SourceCap: 50, RecoveryCap: 5, Backlog: 3000, Left: 12 * time.Hour,
	}
}

func TestAStackFillsInWhatIsNotGiven(t *testing.T) {
	var in capacity.Input
	sources, missing := toldStack().Fill(&in, func(string) bool { return false })
	want := capacity.Input{Arrivals: 20, Failing: 0.1, P50: 100 * time.Millisecond, P95: 400 * time.Millisecond,
		Batch: 10, SourceCap: 50, RecoveryCap: 5, Backlog: 3000, Within: 12 * time.Hour}
	if in != want {
		t.Errorf("input %+v, want %+v", in, want)
	}
	if len(missing) > 0 {
		t.Errorf("missing %q", missing)
	}
	for _, flag := range []string{"arrivals", "failing", "p50", "p95", "batch", "source-concurrency", "recovery-concurrency", "backlog", "within"} {
		if sources[flag] == "" {
			t.Errorf("the answer does not say where %s is from", flag)
		}
	}
}

func TestAGivenNumberOutranksTheStack(t *testing.T) {
	in := capacity.Input{Arrivals: 7, Failing: 0.2, P50: 1, P95: 2, Batch: 3, SourceCap: 4, RecoveryCap: 5, Backlog: 6, Within: 7}
	before := in
	sources, missing := toldStack().Fill(&in, func(string) bool { return true })
	if in != before {
		t.Errorf("input %+v, want %+v", in, before)
	}
	if len(sources)+len(missing) > 0 {
		t.Errorf("sources %q, missing %q", sources, missing)
	}
}

func TestWhatAStackDoesNotTellIsNamed(t *testing.T) {
	m := capacity.Measured{NoHistory: "no history here", NoDuration: "no duration here", NoMappings: "denied"}
	_, missing := m.Fill(&capacity.Input{}, func(string) bool { return false })
	text := fmt.Sprint(missing)
	for _, want := range []string{"arrivals no history", "failing no history", "p50 no duration", "p95 no duration", "batch Lambda does not tell it: denied",
		"source-concurrency Lambda", "recovery-concurrency Lambda"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}
