package telemetry

import (
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/job"
)

// maxValues is the most values EMF allows in the array of one metric. Its other limits, 100 metrics
// and 30 dimensions a line, lie far above what the table of this package has.
const maxValues = 100

// maxValue is the largest value that CloudWatch takes: 2 to the power of 360.
const maxValue = 0x1p360

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
	var list [len(outcomes) + 11]count
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
	for _, c := range [...]count{{MetricScheduled, r.scheduled}, {MetricCancelled, r.cancelled}} {
		if c.n != 0 {
			list[n] = c
			n++
		}
	}
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

// lines appends the lines of one set of dimension values: one line, and more if a metric has more values than
// fit. Only the first line has the counts. Without values there is no line.
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

// line appends one EMF document. It has no level, so Lambda's filter treats it as INFO. It passes that filter,
// since the stack sets the filter to INFO or below, and the logger itself drops lines below its level. A level
// such as FATAL would mislead: metrics are not errors.
func (r *Recorder) line(now time.Time, dims []dimension, cs []count, vs []values) {
	b := r.buf
	b = append(b, `{"_aws":{"Timestamp":`...)
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

// number appends a value. It uses an exponent only for values with very many digits.
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
	// The only possible error is about bytes that are not UTF-8; replacing them is good enough.
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
