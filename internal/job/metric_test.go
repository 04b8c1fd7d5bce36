package job_test

import (
	"fmt"
	"strings"
	"testing"

	"acklast/internal/job"
)

func TestDefineRefusesMetricsThatCloudWatchOrTheEngineCannotHave(t *testing.T) {
	many := make([]job.Metric, job.MaxMetrics+1)
	for i := range many {
		many[i] = job.Metric{Name: fmt.Sprint("M", i), Unit: job.Count}
	}
	for name, tt := range map[string]struct {
		metrics []job.Metric
		want    string // part of the panic; empty if the metrics are valid
	}{
		"none":         {nil, ""},
		"the most":     {many[1:], ""},
		"one too many": {many, "more than 20"},
		"no name":      {[]job.Metric{{Unit: job.Count}}, "a name is"},
		"lower case":   {[]job.Metric{{Name: "level", Unit: job.Count}}, "a name is"},
		"a dot":        {[]job.Metric{{Name: "A.B", Unit: job.Count}}, "a name is"},
		"too long":     {[]job.Metric{{Name: strings.Repeat("A", 65), Unit: job.Count}}, "a name is"},
		"twice":        {[]job.Metric{{Name: "A", Unit: job.Count}, {Name: "A", Unit: job.Bytes}}, "twice"},
		"the engine's": {[]job.Metric{{Name: "Lateness", Unit: job.Milliseconds}}, "engine"},
		"no unit":      {[]job.Metric{{Name: "A"}}, "unit"},
		"wrong unit":   {[]job.Metric{{Name: "A", Unit: "Parsecs"}}, "Parsecs"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				got := fmt.Sprint(recover())
				switch {
				case tt.want == "" && got != "<nil>":
					t.Errorf("Define() panics: %s", got)
				case tt.want != "" && !strings.Contains(got, tt.want):
					t.Errorf("Define() panics with %q, want %q", got, tt.want)
				}
			}()
			job.Define(job.Definition[struct{}]{Name: "k", Key: func(struct{}) (string, []string) { return "s", nil }, Metrics: tt.metrics})
		})
	}
}
