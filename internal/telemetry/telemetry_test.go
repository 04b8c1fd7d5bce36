package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

var clock = time.Date(2026, 12, 1, 10, 0, 0, 123_456_789, time.FixedZone("CET", 3600))

func now() time.Time { return clock }

// document is one EMF line, checked against the published structure.
type document struct {
	raw  map[string]any
	dims map[string]string
	// counts holds the metrics that are one number, values those that are an array.
	counts map[string]float64
	values map[string][]float64
	units  map[string]string
}

// series names a document's dimension values, sorted by key.
func (d document) series() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(d.dims)) {
		parts = append(parts, k+"="+d.dims[k])
	}
	return strings.Join(parts, ",")
}

var units = []string{"Count", "Milliseconds", "Seconds", "Bytes", "Percent", "None"}

// parseEMF fails unless the line is a document that CloudWatch takes: the metadata object and its
// millisecond timestamp, at most 100 metrics in a directive, at most 30 keys in a dimension set, each
// a string at the root, and each metric a number or an array of at most 100 numbers at the root.
func parseEMF(line string) (document, error) {
	d := document{dims: map[string]string{}, counts: map[string]float64{}, values: map[string][]float64{}, units: map[string]string{}}
	dec := json.NewDecoder(strings.NewReader(line))
	if err := dec.Decode(&d.raw); err != nil {
		return d, err
	}
	if dec.More() {
		return d, errors.New("data after the document")
	}
	var meta struct {
		AWS struct {
			Timestamp         json.Number
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		} `json:"_aws"`
	}
	strict := json.NewDecoder(strings.NewReader(line))
	strict.UseNumber()
	if err := strict.Decode(&meta); err != nil {
		return d, err
	}
	ms, err := meta.AWS.Timestamp.Int64()
	if err != nil || ms != clock.UnixMilli() {
		return d, fmt.Errorf("timestamp is %q, want %d", meta.AWS.Timestamp, clock.UnixMilli())
	}
	if len(meta.AWS.CloudWatchMetrics) != 1 {
		return d, fmt.Errorf("%d directives, want 1", len(meta.AWS.CloudWatchMetrics))
	}
	directive := meta.AWS.CloudWatchMetrics[0]
	if directive.Namespace != "acklast" {
		return d, fmt.Errorf("namespace is %q", directive.Namespace)
	}
	if len(directive.Dimensions) != 1 || len(directive.Dimensions[0]) == 0 || len(directive.Dimensions[0]) > 30 {
		return d, fmt.Errorf("dimension sets are %v", directive.Dimensions)
	}
	for _, key := range directive.Dimensions[0] {
		v, ok := d.raw[key].(string)
		if !ok || strings.TrimSpace(v) == "" {
			return d, fmt.Errorf("dimension %s is %v at the root", key, d.raw[key])
		}
		d.dims[key] = v
	}
	if n := len(directive.Metrics); n == 0 || n > 100 {
		return d, fmt.Errorf("%d metrics in a directive", n)
	}
	for _, m := range directive.Metrics {
		if _, twice := d.units[m.Name]; twice {
			return d, fmt.Errorf("metric %s stands twice", m.Name)
		}
		if !slices.Contains(units, m.Unit) {
			return d, fmt.Errorf("metric %s has unit %q", m.Name, m.Unit)
		}
		d.units[m.Name] = m.Unit
		switch v := d.raw[m.Name].(type) {
		case float64:
			d.counts[m.Name] = v
		case []any:
			if len(v) == 0 || len(v) > 100 {
				return d, fmt.Errorf("metric %s has %d values", m.Name, len(v))
			}
			for _, x := range v {
				f, ok := x.(float64)
				if !ok {
					return d, fmt.Errorf("metric %s has value %v", m.Name, x)
				}
				d.values[m.Name] = append(d.values[m.Name], f)
			}
		default:
			return d, fmt.Errorf("metric %s is %v at the root", m.Name, v)
		}
	}
	// A field at the root that is neither would never reach CloudWatch.
	for key := range d.raw {
		_, dim := d.dims[key]
		_, metric := d.units[key]
		if !dim && !metric && key != "_aws" && key != "level" && key != "timestamp" {
			return d, fmt.Errorf("root member %s is in no directive", key)
		}
	}
	return d, nil
}

func documents(t *testing.T, out string) []document {
	t.Helper()
	if out == "" {
		return nil
	}
	if !strings.HasSuffix(out, "\n") {
		t.Fatal("the last line is not ended")
	}
	var ds []document
	for line := range strings.Lines(out) {
		d, err := parseEMF(line)
		if err != nil {
			t.Fatalf("not EMF: %v\n%s", err, line)
		}
		ds = append(ds, d)
	}
	return ds
}

func flush(t *testing.T, r *telemetry.Recorder, out *bytes.Buffer) []document {
	t.Helper()
	out.Reset()
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	return documents(t, out.String())
}

// lambdaKeeps models Lambda's application log level filter for the JSON log format: a line whose
// level is missing or invalid, or whose timestamp is missing or not RFC 3339, counts as INFO.
func lambdaKeeps(line, filter string) bool {
	ranks := map[string]int{"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERROR": 4, "FATAL": 5}
	rank := ranks["INFO"]
	var l map[string]any
	if json.Unmarshal([]byte(line), &l) == nil {
		level, _ := l["level"].(string)
		timestamp, _ := l["timestamp"].(string)
		_, err := time.Parse(time.RFC3339, timestamp)
		if r, ok := ranks[strings.ToUpper(level)]; ok && err == nil {
			rank = r
		}
	}
	return rank >= ranks[filter]
}

// Alarms in infra and the dashboard contain these names as text.
func TestNamesAreFixed(t *testing.T) {
	for got, want := range map[string]string{
		telemetry.Namespace:             "acklast",
		telemetry.MetricAcknowledged:    "Acknowledged",
		telemetry.MetricRetried:         "Retried",
		telemetry.MetricDeferred:        "Deferred",
		telemetry.MetricIsolated:        "Isolated",
		telemetry.MetricLeft:            "Left",
		telemetry.MetricDuplicates:      "Duplicates",
		telemetry.MetricLedgerConflicts: "LedgerConflicts",
		telemetry.MetricBatchFailures:   "BatchFailures",
		telemetry.MetricAllLeft:         "AllLeft",
		telemetry.MetricTerminalLatency: "TerminalLatency",
		telemetry.MetricLateness:        "Lateness",
		telemetry.DimensionStack:        "stack",
		telemetry.DimensionKind:         "kind",
		telemetry.DimensionLane:         "lane",
		telemetry.DimensionClass:        "class",
		telemetry.ClassNone:             "none",
		telemetry.KindUnknown:           "unknown",
	} {
		if got != want {
			t.Errorf("a name is %q, want %q", got, want)
		}
	}
}

func TestFlushWritesTheDocumentedSeries(t *testing.T) {
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "shop", now)
	r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: job.Acknowledged,
		Final: true, TerminalLatency: 1500 * time.Microsecond})
	r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: job.Acknowledged, Duplicate: true})
	r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Recovery, Outcome: job.Acknowledged,
		Final: true, TerminalLatency: 20 * time.Minute, Lateness: 5 * time.Minute})
	r.Observe(telemetry.Observation{Kind: "reminder.send", Lane: job.Source, Outcome: job.Retried, Class: job.Throttled})
	r.Observe(telemetry.Observation{Kind: "reminder.send", Lane: job.Source, Outcome: job.Isolated, Class: job.Invalid})
	r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: job.Isolated, Class: job.Invalid})
	r.Observe(telemetry.Observation{Kind: "reminder.send", Lane: job.Source, Outcome: job.Deferred, Scheduled: true})
	r.Observe(telemetry.Observation{Outcome: job.Left})
	r.Conflict()
	r.Conflict()
	r.BatchFailures(1)

	type figures map[string]any
	want := map[string]figures{
		"class=none,kind=reservation.expire,lane=source,stack=shop":    {"Acknowledged": 2.0},
		"class=none,kind=reservation.expire,lane=recovery,stack=shop":  {"Acknowledged": 1.0},
		"class=throttled,kind=reminder.send,lane=source,stack=shop":    {"Retried": 1.0},
		"class=invalid,kind=reminder.send,lane=source,stack=shop":      {"Isolated": 1.0},
		"class=invalid,kind=reservation.expire,lane=source,stack=shop": {"Isolated": 1.0},
		"class=none,kind=reminder.send,lane=source,stack=shop":         {"Deferred": 1.0},
		"class=none,kind=unknown,lane=unknown,stack=shop":              {"Left": 1.0},
		"class=invalid,stack=shop":                                     {"Isolated": 2.0},
		"kind=reservation.expire,stack=shop":                           {"TerminalLatency": "[2 1.2e+06]", "Lateness": "[300000]"},
		"stack=shop": {"Acknowledged": 3.0, "Retried": 1.0, "Deferred": 1.0, "Isolated": 2.0, "Left": 1.0,
			"Duplicates": 1.0, "LedgerConflicts": 2.0, "BatchFailures": 1.0, "AllLeft": 0.0,
			"LedgerOutage": 0.0, "ExpiredByOutage": 0.0, "Copies": 0.0, "Conflicts": 0.0, "Paused": 0.0, "Scheduled": 1.0,
			"TerminalLatency": "[2 1.2e+06]", "Lateness": "[300000]"},
	}
	ds := flush(t, r, &out)
	for _, d := range ds {
		got := figures{}
		for name, n := range d.counts {
			got[name] = n
			if d.units[name] != "Count" {
				t.Errorf("%s has unit %s", name, d.units[name])
			}
		}
		for name, v := range d.values {
			got[name] = fmt.Sprint(v)
			if d.units[name] != "Milliseconds" {
				t.Errorf("%s has unit %s", name, d.units[name])
			}
		}
		if !maps.Equal(got, want[d.series()]) {
			t.Errorf("%s: got %v, want %v", d.series(), got, want[d.series()])
		}
		delete(want, d.series())
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if ds := flush(t, r, &out); ds != nil {
		t.Errorf("a second flush wrote %v", ds)
	}
	r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: job.Deferred})
	if ds := flush(t, r, &out); len(ds) != 2 || len(ds[0].values)+len(ds[1].values) > 0 {
		t.Errorf("the next invocation has the last one's times: %v", ds)
	}
}

// The table in the package comment lists every metric and dimension set that is ever written.
func TestThePackageCommentListsEverySeries(t *testing.T) {
	source, err := os.ReadFile("telemetry.go")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	row := regexp.MustCompile(`^//\t((?:stack|kind|lane|class)(?:, (?:stack|kind|lane|class))*)? +((?:[A-Z]\w+ )+) *(Count|Milliseconds)$`)
	last := ""
	for line := range strings.Lines(string(source)) {
		m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		if m[1] != "" {
			keys := strings.Split(m[1], ", ")
			slices.Sort(keys)
			last = strings.Join(keys, ",")
		}
		for _, name := range strings.Fields(m[2]) {
			table[last] = append(table[last], name+" "+m[3])
		}
	}
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "s", now)
	for _, o := range []job.Outcome{job.Acknowledged, job.Retried, job.Deferred, job.Isolated, job.Left} {
		r.Observe(telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: o, Final: true, Lateness: 1, Scheduled: true, Cancelled: true})
	}
	written := map[string][]string{}
	for _, d := range flush(t, r, &out) {
		keys := strings.Join(slices.Sorted(maps.Keys(d.dims)), ",")
		for name, unit := range d.units {
			written[keys] = append(written[keys], name+" "+unit)
		}
	}
	for _, m := range []map[string][]string{table, written} {
		for k := range m {
			slices.Sort(m[k])
		}
	}
	if !maps.EqualFunc(table, written, slices.Equal) {
		t.Errorf("the table says\n%v\nbut what is written is\n%v", table, written)
	}
}

// A metric is not an error, and passes Lambda's default filter.
func TestMetricsPassTheDefaultFilter(t *testing.T) {
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "shop", now)
	for range 250 {
		r.Observe(telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: job.Isolated, Class: job.Invalid, Final: true})
	}
	ds := flush(t, r, &out)
	if len(ds) < 4 {
		t.Fatalf("only %d lines", len(ds))
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, `"level"`) {
			t.Errorf("a metric has a level: %s", line)
		}
		for _, filter := range []string{"TRACE", "DEBUG", "INFO"} {
			if !lambdaKeeps(line, filter) {
				t.Errorf("the filter %s drops %s", filter, line)
			}
		}
	}
	// The model itself drops the lines that AWS documents as dropped.
	for _, line := range []string{
		`{"_aws":{}}`,
		`{"level":"FATAL"}`,
		`{"level":"FATAL","timestamp":1764579600123}`,
		`{"level":"FATAL","timestamp":"2026-12-01 10:00:00"}`,
		`{"level":"METRIC","timestamp":"2026-12-01T10:00:00Z"}`,
		`{"timestamp":"2026-12-01T10:00:00Z"}`,
		`plain text`,
	} {
		if lambdaKeeps(line, "WARN") || !lambdaKeeps(line, "INFO") {
			t.Errorf("the model does not take %s for INFO", line)
		}
	}
}

func TestManyValuesAreSplit(t *testing.T) {
	for _, n := range []int{1, 99, 100, 101, 200, 1001} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var out bytes.Buffer
			r := telemetry.NewRecorder(&out, "shop", now)
			for i := range n {
				o := telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: job.Acknowledged, Final: true,
					TerminalLatency: time.Duration(i) * time.Millisecond}
				if i%2 == 0 {
					o.Lateness = time.Duration(i+1) * time.Millisecond
				}
				r.Observe(o)
			}
			latency, lateness, acknowledged := map[string][]float64{}, map[string][]float64{}, map[string]float64{}
			for _, d := range flush(t, r, &out) {
				latency[d.series()] = append(latency[d.series()], d.values["TerminalLatency"]...)
				lateness[d.series()] = append(lateness[d.series()], d.values["Lateness"]...)
				acknowledged[d.series()] += d.counts["Acknowledged"]
			}
			for _, series := range []string{"stack=shop", "kind=k,stack=shop"} {
				if len(latency[series]) != n || len(lateness[series]) != (n+1)/2 {
					t.Fatalf("%s has %d latencies and %d latenesses", series, len(latency[series]), len(lateness[series]))
				}
				for i, v := range latency[series] {
					if v != float64(i) {
						t.Fatalf("value %d is %v", i, v)
					}
				}
			}
			if acknowledged["stack=shop"] != float64(n) {
				t.Errorf("%v acknowledged, want %d", acknowledged["stack=shop"], n)
			}
		})
	}
}

func TestTimesThatDoNotApply(t *testing.T) {
	for _, c := range []struct {
		name              string
		o                 telemetry.Observation
		latency, lateness []float64
	}{
		{"not final", telemetry.Observation{TerminalLatency: time.Second, Lateness: time.Second}, nil, nil},
		{"final at once", telemetry.Observation{Final: true}, []float64{0}, nil},
		{"clocks differ", telemetry.Observation{Final: true, TerminalLatency: -time.Second, Lateness: -time.Minute}, []float64{0}, nil},
		{"a nanosecond late", telemetry.Observation{Final: true, TerminalLatency: 1, Lateness: 1}, []float64{1}, []float64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := telemetry.NewRecorder(&out, "shop", now)
			c.o.Kind, c.o.Lane, c.o.Outcome = "k", job.Source, job.Acknowledged
			r.Observe(c.o)
			for _, d := range flush(t, r, &out) {
				if len(d.dims) > 2 {
					continue // the counts
				}
				if !slices.Equal(d.values["TerminalLatency"], c.latency) || !slices.Equal(d.values["Lateness"], c.lateness) {
					t.Errorf("%s: latency %v, lateness %v", d.series(), d.values["TerminalLatency"], d.values["Lateness"])
				}
			}
		})
	}
}

func TestAllLeft(t *testing.T) {
	for _, c := range []struct {
		name     string
		outcomes []job.Outcome
		want     float64
	}{
		{"all", []job.Outcome{job.Left, job.Left}, 1},
		{"some", []job.Outcome{job.Left, job.Acknowledged}, 0},
		{"none", []job.Outcome{job.Deferred}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := telemetry.NewRecorder(&out, "shop", now)
			for range 2 { // the second invocation counts by itself
				for _, o := range c.outcomes {
					r.Observe(telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: o})
				}
				ds := flush(t, r, &out)
				if got, ok := ds[len(ds)-1].counts["AllLeft"]; !ok || got != c.want {
					t.Errorf("AllLeft is %v, want %v", got, c.want)
				}
			}
			r.Conflict() // an invocation without observations has not left everything
			ds := flush(t, r, &out)
			if ds[0].counts["AllLeft"] != 0 || ds[0].counts["LedgerConflicts"] != 1 {
				t.Errorf("counts are %v", ds[0].counts)
			}
		})
	}
}

type failing struct{ calls int }

func (f *failing) Write([]byte) (int, error) { f.calls++; return 0, io.ErrClosedPipe }

func TestFlushReportsAFailedWriteAndCountsNothingTwice(t *testing.T) {
	f := &failing{}
	r := telemetry.NewRecorder(f, "shop", now)
	r.Observe(telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: job.Left})
	if err := r.Flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("error is %v", err)
	}
	if err := r.Flush(); err != nil || f.calls != 1 {
		t.Errorf("second flush: %v after %d writes", err, f.calls)
	}
}

func TestNamesOfOthersCannotBreakALine(t *testing.T) {
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, `st"a\ck`, now)
	r.Observe(telemetry.Observation{Kind: "k\n\"\\\x00\xff", Lane: "l\u2028", Outcome: job.Left, Class: "</c>"})
	for _, d := range flush(t, r, &out) {
		if d.dims["stack"] != `st"a\ck` {
			t.Errorf("stack is %q", d.dims["stack"])
		}
	}
}

func TestRecorderIsSafeForConcurrentUse(t *testing.T) {
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "shop", now)
	const workers, each = 8, 500
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				r.Observe(telemetry.Observation{Kind: fmt.Sprint("k", w%3), Lane: job.Source, Outcome: job.Acknowledged, Duplicate: true, Final: true})
				r.Conflict()
				r.BatchFailures(2)
				if i%50 == 0 {
					if err := r.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	// The two goroutines do nothing else, so that no lock of another call orders them.
	for range 2 {
		wg.Go(func() {
			for range each {
				r.Conflict()
			}
		})
	}
	wg.Wait()
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	sum := map[string]float64{}
	for _, d := range documents(t, out.String()) {
		if d.series() == "stack=shop" {
			for name, n := range d.counts {
				sum[name] += n
			}
			sum["final"] += float64(len(d.values["TerminalLatency"]))
		}
	}
	for name, want := range map[string]float64{"Acknowledged": workers * each, "Duplicates": workers * each,
		"LedgerConflicts": (workers + 2) * each, "BatchFailures": 2 * workers * each, "final": workers * each} {
		if sum[name] != want {
			t.Errorf("%s is %v, want %v", name, sum[name], want)
		}
	}
}

// One invocation of ten records, as in the common case.
func invocation(r *telemetry.Recorder) error {
	for i := range 10 {
		r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: job.Acknowledged,
			Final: true, TerminalLatency: time.Duration(i) * time.Millisecond})
	}
	return r.Flush()
}

func TestAnInvocationAllocatesAlmostNothing(t *testing.T) {
	r := telemetry.NewRecorder(io.Discard, "shop", now)
	allocs := testing.AllocsPerRun(100, func() {
		if err := invocation(r); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 10 {
		t.Errorf("%v allocations for ten records, want at most one a record", allocs)
	}
}

func BenchmarkInvocationOfTen(b *testing.B) {
	r := telemetry.NewRecorder(io.Discard, "shop", now)
	b.ReportAllocs()
	for b.Loop() {
		if err := invocation(r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAKindsOwnMetrics(t *testing.T) {
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "s", now)
	released, size := job.Metric{Name: "UnitsReleased", Unit: job.Count}, job.Metric{Name: "Size", Unit: job.Bytes}
	for _, v := range []float64{3, 0, -0.5, 1 << 53} {
		if !r.Own("k", released, v) {
			t.Errorf("%v is not recorded", v)
		}
	}
	r.Own("other", released, 7)
	r.Own("k", size, 0x1p360)
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Nextafter(0x1p360, math.Inf(1)), -0x1p361} {
		if r.Own("k", released, v) {
			t.Errorf("%v is recorded, but CloudWatch does not take it", v)
		}
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, d := range documents(t, out.String()) {
		for name, values := range d.values {
			got[d.series()+" "+name+" "+d.units[name]] = values
		}
	}
	if want := map[string][]float64{
		"kind=k,stack=s UnitsReleased Count":     {3, 0, -0.5, 1 << 53},
		"kind=k,stack=s Size Bytes":              {0x1p360},
		"kind=other,stack=s UnitsReleased Count": {7},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}

	t.Run("are written once", func(t *testing.T) {
		out.Reset()
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 0 {
			t.Errorf("written again: %s", out.String())
		}
	})
}

func TestAKindCannotDeclareTheEnginesMetrics(t *testing.T) {
	for _, name := range []string{telemetry.MetricTerminalLatency, telemetry.MetricLateness} {
		if !slices.Contains(job.EngineMetrics, name) {
			t.Errorf("%s is recorded under a kind's name and is not reserved", name)
		}
	}
}
