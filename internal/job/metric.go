package job

import "fmt"

// Metric is a metric of a kind's own: its runs record values under the name.
type Metric struct {
	// Name is 1 to 64 ASCII letters and digits and begins with a capital, such as "UnitsReleased".
	Name string `json:"name"`
	// Unit is the unit of its values.
	Unit Unit `json:"unit"`
	// Help says in one line what it measures.
	Help string `json:"help"`
}

// Unit is the unit of a metric's values, as CloudWatch names it.
type Unit string

// The units.
const (
	Count        Unit = "Count"
	Milliseconds Unit = "Milliseconds"
	Bytes        Unit = "Bytes"
	Percent      Unit = "Percent"
	// NoUnit is a plain number, such as an amount of money.
	NoUnit Unit = "None"
)

const (
	// MaxMetrics is how many metrics a kind may have. Every one of them is billed by CloudWatch.
	MaxMetrics = 20
	// maxMetricName bounds a metric's name, in bytes.
	maxMetricName = 64
)

// EngineMetrics are the names that the engine records under a kind's name itself.
var EngineMetrics = []string{"TerminalLatency", "Lateness"}

// checkMetrics says what is wrong with a kind's metrics.
func checkMetrics(metrics []Metric) error {
	if len(metrics) > MaxMetrics {
		return fmt.Errorf("%d metrics, more than %d", len(metrics), MaxMetrics)
	}
	names := map[string]bool{}
	for _, name := range EngineMetrics {
		names[name] = true
	}
	for _, m := range metrics {
		switch {
		case !metricName(m.Name):
			return fmt.Errorf("metric %q: a name is 1 to %d ASCII letters and digits and begins with a capital", m.Name, maxMetricName)
		case names[m.Name]:
			return fmt.Errorf("metric %s is declared twice, or is the engine's", m.Name)
		}
		names[m.Name] = true
		switch m.Unit {
		case Count, Milliseconds, Bytes, Percent, NoUnit:
		default:
			return fmt.Errorf("metric %s has unit %q, want one of %s, %s, %s, %s, %s", m.Name, m.Unit, Count, Milliseconds, Bytes, Percent, NoUnit)
		}
	}
	return nil
}

func metricName(s string) bool {
	if s == "" || len(s) > maxMetricName || s[0] < 'A' || s[0] > 'Z' {
		return false
	}
	for _, r := range s {
		if (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}
