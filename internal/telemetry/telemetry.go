// Package telemetry writes what operators see of the worker: structured log lines and CloudWatch
// metrics, both as JSON lines on the function's output.
//
// Metrics use CloudWatch's embedded metric format (EMF): the function prints a line, CloudWatch
// makes metrics of it, and no call is spent. They are gathered for one invocation and written by
// Flush, one line for each set of dimension values. All are in the namespace "acklast":
//
//	dimensions               metrics                                           unit
//	stack, kind, lane, class Acknowledged Retried Deferred Isolated Left       Count
//	stack, class             Isolated                                          Count
//	stack, kind              TerminalLatency Lateness                          Milliseconds
//	stack                    Acknowledged Retried Deferred Isolated Left       Count
//	                         Duplicates LedgerConflicts BatchFailures AllLeft  Count
//	                         LedgerOutage ExpiredByOutage Copies Conflicts     Count
//	                         Paused                                            Count
//	                         TerminalLatency Lateness                          Milliseconds
//
// A kind may have metrics of its own, under stack and kind, with a name and a unit that it declares.
//
// TerminalLatency runs from when a job was due to when it became final; Lateness from its deadline,
// and only for jobs that became final after it, so that its sample count is their number. Both are
// rounded up to whole milliseconds. LedgerOutage counts deliveries that the ledger's trouble handed back,
// ExpiredByOutage jobs that expired after that, Copies deliveries of isolated jobs that lift nothing, and
// Conflicts deliveries whose payload is not their job's. Paused counts deliveries that wait because their kind is paused. AllLeft counts invocations of which every record was left. The
// class is "none" where nothing failed. The counts by stack alone are written as zero too, so that
// an alarm on one of them recovers as soon as there is traffic; the others only when they are not
// zero. An invocation of which nothing was observed writes nothing.
//
// A Tally reads the log lines back and counts outcomes by job, for demos, tests and benchmarks.
package telemetry

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/job"
)

// Namespace is the CloudWatch namespace of every metric.
const Namespace = "acklast"

// The metrics. Alarms and the dashboard rely on these names.
const (
	MetricAcknowledged    = "Acknowledged"
	MetricRetried         = "Retried"
	MetricDeferred        = "Deferred"
	MetricIsolated        = "Isolated"
	MetricLeft            = "Left"
	MetricDuplicates      = "Duplicates"
	MetricLedgerConflicts = "LedgerConflicts"
	MetricBatchFailures   = "BatchFailures"
	MetricAllLeft         = "AllLeft"
	MetricLedgerOutage    = "LedgerOutage"
	MetricExpiredByOutage = "ExpiredByOutage"
	MetricCopies          = "Copies"
	MetricConflicts       = "Conflicts"
	MetricPaused          = "Paused"
	MetricTerminalLatency = "TerminalLatency"
	MetricLateness        = "Lateness"
)

// The dimensions, and the values that stand for "there is none" and for a service's test message.
const (
	DimensionStack = "stack"
	DimensionKind  = "kind"
	DimensionLane  = "lane"
	DimensionClass = "class"

	ClassNone   = "none"
	KindUnknown = "unknown"
	KindProbe   = "probe"
)

// The units of the metrics above.
const (
	unitCount        = string(job.Count)
	unitMilliseconds = string(job.Milliseconds)
)

// maxValues is the most values EMF allows in the array of one metric. Its other limits, 100 metrics
// and 30 dimensions a line, lie far above what the table of this package has.
const maxValues = 100

// maxValue is the largest value that CloudWatch takes: 2 to the power of 360.
const maxValue = 0x1p360

// outcomes are the counts by outcome, in the order of their metrics.
var outcomes = [...]struct {
	outcome job.Outcome
	metric  string
}{
	{job.Acknowledged, MetricAcknowledged},
	{job.Retried, MetricRetried},
	{job.Deferred, MetricDeferred},
	{job.Isolated, MetricIsolated},
	{job.Left, MetricLeft},
}

type counts [len(outcomes)]int64

func (c *counts) add(o job.Outcome) {
	for i := range outcomes {
		if outcomes[i].outcome == o {
			c[i]++
		}
	}
}

// Observation is what became of one delivery.
type Observation struct {
	// Kind is the name of a registered kind. Whoever observes maps every other name to KindUnknown:
	// a sender must not be able to create metrics.
	Kind    string
	Lane    job.Queue
	Outcome job.Outcome
	// Class is empty when nothing failed.
	Class job.Class
	// Duplicate says that the job was found final.
	Duplicate bool
	// Outage says that the ledger's trouble handed the delivery back, ExpiredByOutage that the job expired
	// after it did.
	Outage, ExpiredByOutage bool
	// Copy says that the delivery is a copy of an isolated job, Conflict that its payload is not its job's.
	Copy, Conflict bool
	// Paused says that the delivery waits because its kind is paused.
	Paused bool

	// Final says that this delivery made the job final. Only then are the times below looked at.
	Final bool
	// TerminalLatency is how long after it was due the job became final. Clocks that differ may make
	// it negative, which counts as zero.
	TerminalLatency time.Duration
	// Lateness is how long after its deadline the job became final; zero or less when it was not
	// late or has no deadline.
	Lateness time.Duration
}

// Recorder gathers the metrics of one invocation after the other. It is safe for concurrent use.
type Recorder struct {
	w     io.Writer
	stack string
	now   func() time.Time

	mu sync.Mutex
	// Few distinct values each, so looking through a slice beats a map; all are reused.
	series  []series
	classes []classCount
	kinds   []kindTimes

	total     counts
	times     times
	duplicate int64
	conflicts int64
	failures  int64
	outages   int64
	expired   int64
	copies    int64
	payloads  int64
	paused    int64
	observed  int64
	owned     int64
	buf       []byte
}

type series struct {
	kind   string
	lane   job.Queue
	class  job.Class
	counts counts
}

type classCount struct {
	class    job.Class
	isolated int64
}

type kindTimes struct {
	kind  string
	times times
	// own are the metrics that the kind declared and used since the process began.
	own []values
}

// times are the values of the metrics that are not counts, in milliseconds.
type times struct{ latency, lateness []float64 }

func (t *times) add(latency, lateness time.Duration) {
	t.latency = append(t.latency, milliseconds(latency))
	if lateness > 0 {
		t.lateness = append(t.lateness, milliseconds(lateness))
	}
}

func (t *times) reset() { t.latency, t.lateness = t.latency[:0], t.lateness[:0] }

func milliseconds(d time.Duration) float64 {
	return float64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// NewRecorder returns a Recorder for a stack that writes to w.
func NewRecorder(w io.Writer, stack string, now func() time.Time) *Recorder {
	return &Recorder{w: w, stack: stack, now: now}
}

// Observe counts one delivery.
func (r *Recorder) Observe(o Observation) {
	// CloudWatch drops a metric whose dimension has an empty value.
	if o.Kind == "" {
		o.Kind = KindUnknown
	}
	if o.Lane == "" {
		o.Lane = job.Unknown
	}
	if o.Class == "" {
		o.Class = ClassNone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed++
	r.total.add(o.Outcome)
	r.seriesOf(o).counts.add(o.Outcome)
	if o.Outcome == job.Isolated {
		r.classOf(o.Class).isolated++
	}
	if o.Duplicate {
		r.duplicate++
	}
	countIf(&r.outages, o.Outage)
	countIf(&r.expired, o.ExpiredByOutage)
	countIf(&r.copies, o.Copy)
	countIf(&r.payloads, o.Conflict)
	countIf(&r.paused, o.Paused)
	if o.Final {
		r.times.add(o.TerminalLatency, o.Lateness)
		r.kindOf(o.Kind).times.add(o.TerminalLatency, o.Lateness)
	}
}

func countIf(n *int64, yes bool) {
	if yes {
		*n++
	}
}

func (r *Recorder) seriesOf(o Observation) *series {
	for i := range r.series {
		if s := &r.series[i]; s.kind == o.Kind && s.lane == o.Lane && s.class == o.Class {
			return s
		}
	}
	r.series = append(r.series, series{kind: o.Kind, lane: o.Lane, class: o.Class})
	return &r.series[len(r.series)-1]
}

func (r *Recorder) classOf(class job.Class) *classCount {
	for i := range r.classes {
		if r.classes[i].class == class {
			return &r.classes[i]
		}
	}
	r.classes = append(r.classes, classCount{class: class})
	return &r.classes[len(r.classes)-1]
}

func (r *Recorder) kindOf(kind string) *kindTimes {
	for i := range r.kinds {
		if r.kinds[i].kind == kind {
			return &r.kinds[i]
		}
	}
	r.kinds = append(r.kinds, kindTimes{kind: kind})
	return &r.kinds[len(r.kinds)-1]
}

// Own records a value of a metric that a kind declared. It drops a value that CloudWatch would not take,
// which is one that is no number or beyond its range, and then returns false.
func (r *Recorder) Own(kind string, m job.Metric, value float64) (recorded bool) {
	if !(math.Abs(value) <= maxValue) { // NaN fails every comparison
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owned++
	k := r.kindOf(kind)
	for i := range k.own {
		if k.own[i].metric == m.Name {
			k.own[i].numbers = append(k.own[i].numbers, value)
			return true
		}
	}
	k.own = append(k.own, values{m.Name, string(m.Unit), []float64{value}})
	return true
}

// Conflict counts a ledger write that lost against a conflicting one and was tried again or given up.
func (r *Recorder) Conflict() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conflicts++
}

// BatchFailures counts n records that the response reports as failed.
func (r *Recorder) BatchFailures(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures += int64(n)
}

// Flush writes what was gathered, in one call, and starts afresh. Metrics that could not be written
// are lost: writing them again could count them twice.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observed == 0 && r.conflicts == 0 && r.failures == 0 && r.owned == 0 {
		return nil
	}
	r.buf = r.buf[:0]
	r.compose(r.now())
	r.reset()
	if _, err := r.w.Write(r.buf); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (r *Recorder) reset() {
	// Series and classes start empty, since a Lambda instance may not see one again for days. Kinds
	// are bounded and own buffers worth keeping.
	r.series, r.classes = r.series[:0], r.classes[:0]
	for i := range r.kinds {
		r.kinds[i].times.reset()
		for j := range r.kinds[i].own {
			r.kinds[i].own[j].numbers = r.kinds[i].own[j].numbers[:0]
		}
	}
	r.times.reset()
	r.total = counts{}
	r.duplicate, r.conflicts, r.failures, r.observed, r.owned = 0, 0, 0, 0, 0
	r.outages, r.expired, r.copies, r.payloads, r.paused = 0, 0, 0, 0, 0
}

type (
	dimension struct{ key, value string }
	count     struct {
		metric string
		n      int64
	}
	values struct {
		metric, unit string
		numbers      []float64
	}
)

func (r *Recorder) compose(now time.Time) {
	stack := dimension{DimensionStack, r.stack}
	var list [len(outcomes) + 9]count
	for i := range r.series {
		s := &r.series[i]
		n := 0
		for j, c := range s.counts {
			if c != 0 {
				list[n] = count{outcomes[j].metric, c}
				n++
			}
		}
		r.lines(now, []dimension{stack, {DimensionKind, s.kind}, {DimensionLane, string(s.lane)}, {DimensionClass, string(s.class)}},
			list[:n], nil)
	}
	for _, c := range r.classes {
		r.lines(now, []dimension{stack, {DimensionClass, string(c.class)}}, []count{{MetricIsolated, c.isolated}}, nil)
	}
	for i := range r.kinds {
		k := &r.kinds[i]
		r.lines(now, []dimension{stack, {DimensionKind, k.kind}}, nil, append(k.times.values(), k.own...))
	}
	n := 0
	for j, c := range r.total {
		list[n] = count{outcomes[j].metric, c}
		n++
	}
	allLeft := int64(0)
	if left := r.left(); left > 0 && left == r.observed {
		allLeft = 1
	}
	n += copy(list[n:], []count{
		{MetricDuplicates, r.duplicate}, {MetricLedgerConflicts, r.conflicts},
		{MetricBatchFailures, r.failures}, {MetricAllLeft, allLeft},
		{MetricLedgerOutage, r.outages}, {MetricExpiredByOutage, r.expired},
		{MetricCopies, r.copies}, {MetricConflicts, r.payloads}, {MetricPaused, r.paused},
	})
	r.lines(now, []dimension{stack}, list[:n], r.times.values())
}

func (r *Recorder) left() int64 {
	for i := range outcomes {
		if outcomes[i].outcome == job.Left {
			return r.total[i]
		}
	}
	return 0
}

func (t *times) values() []values {
	return []values{{MetricTerminalLatency, unitMilliseconds, t.latency}, {MetricLateness, unitMilliseconds, t.lateness}}
}

// lines appends the lines of one set of dimension values: one, and further ones while a metric has
// more values than fit. The counts stand in the first only. Nothing to say makes no line.
func (r *Recorder) lines(now time.Time, dims []dimension, cs []count, vs []values) {
	for {
		more := false
		for _, v := range vs {
			more = more || len(v.numbers) > 0
		}
		if len(cs) == 0 && !more {
			return
		}
		r.line(now, dims, cs, vs)
		cs = nil
		for i := range vs {
			vs[i].numbers = vs[i].numbers[min(len(vs[i].numbers), maxValues):]
		}
	}
}

// line appends one EMF document.
//
// The level and the timestamp are not EMF's. With Lambda's JSON log format, a line without a valid
// level and a valid RFC 3339 timestamp counts as INFO, and a function whose application log level is
// WARN would lose its metrics, and so its alarms, without any sign. FATAL is the one level that no
// setting of the filter drops; it says nothing about the worker. Queries for fatal lines exclude
// those that have "_aws".
func (r *Recorder) line(now time.Time, dims []dimension, cs []count, vs []values) {
	b := r.buf
	b = append(b, `{"`+keyLevel+`":"FATAL","`+keyTimestamp+`":"`...)
	b = now.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","_aws":{"Timestamp":`...)
	b = strconv.AppendInt(b, now.UnixMilli(), 10)
	b = append(b, `,"CloudWatchMetrics":[{"Namespace":"`+Namespace+`","Dimensions":[[`...)
	for i, d := range dims {
		b = comma(b, i > 0)
		b = quote(b, d.key)
	}
	b = append(b, `]],"Metrics":[`...)
	n := 0
	define := func(metric, unit string) {
		b = comma(b, n > 0)
		b = append(b, `{"Name":`...)
		b = quote(b, metric)
		b = append(b, `,"Unit":`...)
		b = quote(b, unit)
		b = append(b, '}')
		n++
	}
	for _, c := range cs {
		define(c.metric, unitCount)
	}
	for _, v := range vs {
		if len(v.numbers) > 0 {
			define(v.metric, v.unit)
		}
	}
	b = append(b, `]}]}`...)
	for _, d := range dims {
		b = name(b, d.key)
		b = quote(b, d.value)
	}
	for _, c := range cs {
		b = name(b, c.metric)
		b = strconv.AppendInt(b, c.n, 10)
	}
	for _, v := range vs {
		if len(v.numbers) == 0 {
			continue
		}
		b = name(b, v.metric)
		b = append(b, '[')
		for i, n := range v.numbers[:min(len(v.numbers), maxValues)] {
			b = comma(b, i > 0)
			b = number(b, n)
		}
		b = append(b, ']')
	}
	b = append(b, '}', '\n')
	r.buf = b
}

// number appends a value, with an exponent only where its digits would fill the line.
func number(b []byte, n float64) []byte {
	if math.Abs(n) < 1e15 {
		return strconv.AppendFloat(b, n, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, n, 'e', -1, 64)
}

func comma(b []byte, yes bool) []byte {
	if yes {
		return append(b, ',')
	}
	return b
}

// name appends a further member's name.
func name(b []byte, key string) []byte {
	return append(quote(append(b, ','), key), ':')
}

func quote(b []byte, s string) []byte {
	// The only error is about bytes that are not UTF-8; they are replaced, which is good enough.
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
