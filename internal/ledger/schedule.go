package ledger

import (
	"errors"
	"time"

	"acklast/internal/job"
)

// ErrScheduled: the entry says already what Schedule would write.
var ErrScheduled = errors.New("entry knows the schedule")

// Schedule records that a schedule of the name is about to be made for a delivery's job, before it is made. From
// then on the entry outlives the job's due time, so that the firing finds what was done before. The errors are
// ErrScheduled, ErrFinal, ErrIsolated, *ConflictError, and NotYetError while another delivery's lease lives.
func (r Rules) Schedule(e Entry, d job.Delivery, name string, now time.Time) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	until := later(e.ScheduledUntil, d.Due().Truncate(time.Millisecond)) // a store keeps milliseconds
	if e.ScheduleName == name && e.ScheduledUntil.Equal(until) {
		return e, ErrScheduled
	}
	e = e.Open(d)
	e.ScheduledUntil, e.ScheduleName = until, name
	return r.keep(e, now), nil
}

// Scheduled says whether the job may still wait in EventBridge Scheduler.
func (e Entry) Scheduled(now time.Time) bool {
	return e.Status == Pending && e.ScheduledUntil.After(now)
}
