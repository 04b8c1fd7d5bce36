package telemetry

import (
	"time"

	"acklast/internal/job"
)

// The metrics of a census, which counts the isolated jobs once a day.
const (
	// MetricCensusJobs counts isolated jobs: by stack, by stack and class, and by stack and days left.
	MetricCensusJobs = "CensusJobs"
	// MetricCensusOldestAge is the age of the oldest isolation, in seconds.
	MetricCensusOldestAge = "CensusOldestAge"
	// MetricCensusDeleted counts isolated jobs whose message SQS deleted in the last day.
	MetricCensusDeleted = "CensusDeleted"
	// MetricCensusUnrecorded counts messages on the DLQ beyond the number of isolated entries.
	MetricCensusUnrecorded = "CensusUnrecorded"
	// MetricCensusMissing counts isolated jobs without a message.
	MetricCensusMissing = "CensusMissing"

	// DimensionDaysLeft has one of the values of DaysLeft.
	DimensionDaysLeft = "daysLeft"

	unitSeconds = "Seconds"
)

// Census is the result of a census.
type Census struct {
	Jobs                         int
	Classes                      map[job.Class]int
	DaysLeft                     map[int]int // by whole days
	OldestAge                    time.Duration
	Deleted, Unrecorded, Missing int
}

// Classes are the failure classes, in the order in which people read them.
var Classes = []job.Class{
	job.Transient, job.Throttled, job.ClassUnknown, job.Invalid, job.Rejected, job.Ambiguous, job.Crashed,
}

// DaysLeft are the ranges of whole days until a message is deleted, each with its first day.
var DaysLeft = []struct {
	Name string
	From int
}{{"0", 0}, {"1-2", 1}, {"3-6", 3}, {"7+", 7}}

// Census writes the metrics of a census, also zeros: each metric is a state, not an event.
func (p *RedriveRecorder) Census(c Census) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r.buf = p.r.buf[:0]
	now, stack := p.r.now(), dimension{DimensionStack, p.r.stack}
	for _, class := range Classes {
		p.r.line(now, []dimension{stack, {DimensionClass, string(class)}},
			[]count{{MetricCensusJobs, int64(c.Classes[class])}}, nil)
	}
	for i, days := range DaysLeft {
		n := 0
		for left, jobs := range c.DaysLeft {
			if left >= days.From && (i+1 == len(DaysLeft) || left < DaysLeft[i+1].From) {
				n += jobs
			}
		}
		p.r.line(now, []dimension{stack, {DimensionDaysLeft, days.Name}}, []count{{MetricCensusJobs, int64(n)}}, nil)
	}
	p.r.line(now, []dimension{stack}, []count{
		{MetricCensusJobs, int64(c.Jobs)}, {MetricCensusDeleted, int64(c.Deleted)},
		{MetricCensusUnrecorded, int64(c.Unrecorded)}, {MetricCensusMissing, int64(c.Missing)},
	}, []values{{MetricCensusOldestAge, unitSeconds, []float64{c.OldestAge.Truncate(time.Second).Seconds()}}})
	_, _ = p.r.w.Write(p.r.buf)
}
