// Package cloudwatch evaluates alarms as CloudWatch documents it, over series that a simulation made. Tests
// use it to say when an alarm fires, and until when.
//
// Where AWS documents no rule, the code assumes one, and a comment marks the assumption.
package cloudwatch

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Series names a metric by namespace, dimensions and name.
type Series string

// SeriesOf names a metric. Dimensions are written name=value.
func SeriesOf(namespace, name string, dimensions ...string) Series {
	dimensions = slices.Sorted(slices.Values(dimensions))
	return Series(namespace + " " + strings.Join(dimensions, ",") + " " + name)
}

// sample is a value and how many measurements it stands for.
type sample struct{ value, weight float64 }

// Metrics are the samples of every series, by the minute.
type Metrics struct {
	start time.Time
	// dropped are series that nobody wrote.
	dropped map[Series]bool
	minutes map[Series]map[int][]sample
}

// NewMetrics returns no metrics. Values before start are ignored.
func NewMetrics(start time.Time) *Metrics {
	return &Metrics{start: start, minutes: map[Series]map[int][]sample{}}
}

// Without returns the same metrics as if nobody had written some series.
func (m *Metrics) Without(series ...Series) *Metrics {
	less := *m
	less.dropped = map[Series]bool{}
	for _, s := range series {
		less.dropped[s] = true
	}
	return &less
}

// Put adds a value that stands for weight measurements.
func (m *Metrics) Put(s Series, at time.Time, value, weight float64) {
	minute := int(at.Sub(m.start) / time.Minute)
	if at.Before(m.start) {
		return
	}
	if m.minutes[s] == nil {
		m.minutes[s] = map[int][]sample{}
	}
	all := m.minutes[s][minute]
	// Equal values share a sample.
	if n := len(all); n > 0 && all[n-1].value == value {
		all[n-1].weight += weight
		return
	}
	m.minutes[s][minute] = append(all, sample{value, weight})
}

// Names are the series that have values.
func (m *Metrics) Names() []Series {
	var all []Series
	for s := range m.minutes {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// ReadLines adds what the lines of the embedded metric format say. A sum of counts and the weight of values are
// multiplied by the weight, for a simulation in which one job stands for several. Other lines are skipped.
func (m *Metrics) ReadLines(lines io.Reader, weight float64) error {
	for d := json.NewDecoder(lines); ; {
		var line map[string]any
		if err := d.Decode(&line); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if meta, ok := line["_aws"].(map[string]any); ok {
			if err := m.document(line, meta, weight); err != nil {
				return err
			}
		}
	}
}

func (m *Metrics) document(line, meta map[string]any, weight float64) error {
	stamp, ok := meta["Timestamp"].(float64)
	if !ok {
		return fmt.Errorf("a document without a timestamp: %v", line)
	}
	at := time.UnixMilli(int64(stamp))
	for _, one := range meta["CloudWatchMetrics"].([]any) {
		directive := one.(map[string]any)
		for _, set := range directive["Dimensions"].([]any) {
			var dimensions []string
			for _, name := range set.([]any) {
				dimensions = append(dimensions, fmt.Sprint(name, "=", line[name.(string)]))
			}
			for _, metric := range directive["Metrics"].([]any) {
				name := metric.(map[string]any)["Name"].(string)
				s := SeriesOf(directive["Namespace"].(string), name, dimensions...)
				switch v := line[name].(type) {
				case float64:
					m.Put(s, at, v*weight, 1)
				case []any:
					for _, n := range v {
						m.Put(s, at, n.(float64), weight)
					}
				default:
					return fmt.Errorf("metric %s has the value %v", s, line[name])
				}
			}
		}
	}
	return nil
}

// value is a statistic over the minutes from first on; absent when no minute has a sample.
func (m *Metrics) value(s Series, statistic string, first, minutes int) (float64, bool) {
	if m.dropped[s] {
		return 0, false
	}
	var all []sample
	for minute := first; minute < first+minutes; minute++ {
		all = append(all, m.minutes[s][minute]...)
	}
	if len(all) == 0 {
		return 0, false
	}
	total, count, low, high := 0.0, 0.0, math.Inf(1), math.Inf(-1)
	for _, one := range all {
		total += one.value * one.weight
		count += one.weight
		low, high = min(low, one.value), max(high, one.value)
	}
	switch statistic {
	case "Sum":
		return total, true
	case "SampleCount":
		return count, true
	case "Minimum":
		return low, true
	case "Maximum":
		return high, true
	case "Average":
		return total / count, true
	}
	return percentile(all, count, statistic), true
}

// percentile is the value below which the statistic's share of the samples lies.
func percentile(all []sample, count float64, statistic string) float64 {
	percent, err := strconv.ParseFloat(strings.TrimPrefix(statistic, "p"), 64)
	if err != nil {
		panic("statistic " + statistic + " is not modelled")
	}
	slices.SortFunc(all, func(a, b sample) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	seen := 0.0
	for _, one := range all {
		if seen += one.weight; seen >= count*percent/100 {
			return one.value
		}
	}
	return all[len(all)-1].value
}
