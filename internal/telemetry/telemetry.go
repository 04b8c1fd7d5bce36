// Package telemetry writes the worker's output for operators: structured log lines and CloudWatch
// metrics, both as JSON lines on the function's output.
//
// Metrics use CloudWatch's embedded metric format (EMF): the function prints a line, CloudWatch
// makes metrics of it, and no call is needed. They are collected for one invocation and written by
// Flush, one line for each set of dimension values. All are in the namespace "acklast":
//
//	dimensions               metrics                                           unit
//	stack, kind, lane, class Acknowledged Retried Deferred Isolated Left       Count
//	stack, class             Isolated                                          Count
//	stack, kind              TerminalLatency Lateness                          Milliseconds
//	stack                    Acknowledged Retried Deferred Isolated Left       Count
//	                         Duplicates LedgerConflicts BatchFailures AllLeft  Count
//	                         LedgerOutage ExpiredByOutage Copies Conflicts     Count
//	                         Paused Scheduled Cancelled                        Count
//	                         TerminalLatency Lateness                          Milliseconds
//
// A kind may have metrics of its own, under stack and kind, with a name and a unit that it declares.
//
// TerminalLatency is the time from when a job was due until it became final. Lateness is the time from its
// deadline until then. It exists only for jobs that became final after their deadline, so its sample count is
// their number. Both are rounded up to whole milliseconds.
//
// LedgerOutage counts deliveries that were handed back because of the ledger's trouble, and ExpiredByOutage
// jobs that expired after that. Copies counts deliveries that are copies of isolated jobs, and Conflicts
// deliveries whose payload is not their job's. Paused counts deliveries that wait because their kind is paused.
// Scheduled counts deliveries that were handed to EventBridge Scheduler, copies too, and Cancelled deliveries that
// found their job cancelled.
// AllLeft counts invocations of which every record was left.
//
// The class is "none" if nothing failed. The counts by stack alone are written as zero too, so that an alarm on
// one of them recovers as soon as there is traffic. Scheduled and Cancelled have no alarm: they and the other counts
// are written only if they are not zero. An invocation without observations writes nothing.
//
// The Tally of internal/local reads the log lines back and counts outcomes by job.
package telemetry

import (
	"fmt"
	"io"
	"math"
	"sync"
	"time"

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
	MetricScheduled       = "Scheduled"
	MetricCancelled       = "Cancelled"
	MetricTerminalLatency = "TerminalLatency"
	MetricLateness        = "Lateness"
)

// TallyCode is the code of a message with which "acklast local" answers GetMetricData: the figures are its tally of
// the metric lines, also where there are none.
const TallyCode = "AcklastTally"

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

// Observation is the result of one delivery.
type Observation struct {
	// Kind is the name of a registered kind. The caller maps every other name to KindUnknown, because a sender
	// must not be able to create metrics.
	Kind    string
	Lane    job.Queue
	Outcome job.Outcome
	// Class is empty when nothing failed.
	Class job.Class
	// Duplicate says that the job was found final.
	Duplicate bool
	// Outage says that the delivery was handed back because of the ledger's trouble. ExpiredByOutage says that
	// the job expired after that.
	Outage, ExpiredByOutage bool
	// Copy says that the delivery is a copy of an isolated job. Conflict says that its payload is not its
	// job's.
	Copy, Conflict bool
	// Paused says that the delivery waits because its kind is paused.
	Paused bool
	// Scheduled says that the delivery was handed to EventBridge Scheduler. Cancelled says that it found its job
	// cancelled.
	Scheduled, Cancelled bool

	// Final says that this delivery made the job final. The times below are used only then.
	Final bool
	// TerminalLatency is the time from the job's due time until it became final. A negative value, from clocks
	// that differ, counts as zero.
	TerminalLatency time.Duration
	// Lateness is the time from the job's deadline until it became final; zero or less if it was not late or
	// has no deadline.
	Lateness time.Duration
}

// Recorder collects the metrics of one invocation after the other. It is safe for concurrent use.
type Recorder struct {
	w     io.Writer
	stack string
	now   func() time.Time

	mu sync.Mutex
	// There are few distinct values of each, so searching a slice is faster than a map. All slices are reused.
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
	scheduled int64
	cancelled int64
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
	// own are the metrics that kinds declare and have used since the process began.
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
	countIf(&r.scheduled, o.Scheduled)
	countIf(&r.cancelled, o.Cancelled)
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

// Own records a value of a metric that a kind declared. It drops a value that CloudWatch does not accept,
// because it is not a number or is out of range, and then returns false.
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

// Conflict counts a ledger write that lost to a conflicting one, whether it was tried again or given up.
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

// Flush writes the collected metrics in one call, and starts again. Metrics that cannot be written are lost:
// writing them again could count them twice.
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
	// Series and classes start empty, because a Lambda instance may not need the same ones again for days. The
	// number of kinds is bounded, and their buffers are worth keeping.
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
	r.outages, r.expired, r.copies, r.payloads, r.paused, r.scheduled, r.cancelled = 0, 0, 0, 0, 0, 0, 0
}
