package ledger

import (
	"fmt"
	"time"

	"acklast/internal/job"
)

// Arrival is what a delivery is that finds its entry isolated.
type Arrival int

const (
	// PutBack: the job came back from the DLQ by other hands than ours; reopen and run it.
	PutBack Arrival = iota
	// Handover: this delivery isolated the job itself and the hand-over was not confirmed.
	Handover
	// Stray: a copy that was sent before the isolation, or a retry or deferral decided before it.
	Stray
	// Copy: a fresh copy, such as of a producer that sends again, or one whose attribute is not that of
	// this isolation. It lifts nothing.
	Copy
	// Undecided: the isolation is ambiguous and nobody decided.
	Undecided
	// Exhausted: the generation limit is reached.
	Exhausted
)

// Arrive says what a delivery is that finds its entry isolated. Every Arrival but PutBack goes to
// the DLQ.
func (r Rules) Arrive(e Entry, d job.Delivery) Arrival {
	switch {
	case d.ID == e.IsolatedMessageID:
		return Handover
	// Equal counts as before: nothing isolated in a millisecond was received from the DLQ in it.
	case !d.SentAt.After(e.IsolatedAt):
		return Stray
	// A retry or deferral, decided before the isolation and sent after it: the DLQ's messages tell a cause.
	case d.Memory.MessageID != "" && d.Memory.Cause == "":
		return Stray
	case !e.isolated(d):
		return Copy
	case e.LastClass == job.Ambiguous && e.Decided != NotSent:
		return Undecided
	case e.Redrives >= r.MaxRedrives:
		return Exhausted
	}
	return PutBack
}

// isolated says whether the delivery carries the message that was isolated. Its attribute says so; where
// that had no room, an equal payload does, but not for a job that kills the process.
func (e Entry) isolated(d job.Delivery) bool {
	m := d.Memory
	if e.Unmarked && m == (job.Memory{}) {
		return e.LastClass != job.Crashed && e.Digest != "" && e.Digest == d.Digest
	}
	return !m.Copy && m.MessageID == e.IsolatedFirstID &&
		m.At.Truncate(time.Millisecond).Equal(e.IsolatedAt.Truncate(time.Millisecond))
}

// Reopen makes an isolated entry pending again, with a fresh budget: attempts, throttles and contentions
// count from here, and the time allowed is as long as it was at first, from now on.
func (r Rules) Reopen(e Entry, d job.Delivery, now time.Time) (Entry, error) {
	if e.Status.Final() {
		return e, ErrFinal
	}
	if e.Status != Isolated {
		return e, fmt.Errorf("reopen a %s entry: %w", e.Status, ErrContended)
	}
	e.Status, e.Cause, e.Run = Pending, "", ""
	e.Redrives++
	if e.Decided != "" { // it stands in for one look-up, and is spent by this reopening
		e = e.resolve()
		e.Decided = ""
	}
	e.RetryAt, e.IsolatedAt, e.IsolatedMessageID, e.IsolatedFirstID, e.Unmarked = time.Time{}, time.Time{}, "", "", false
	return r.keep(e.renew(d, now).note(Event{At: now, What: EventReopened}), now), nil
}

// renew gives an entry that is opened again its whole budgets.
func (e Entry) renew(d job.Delivery, now time.Time) Entry {
	if e.TimeBudget == 0 && !d.Envelope.Deadline.IsZero() {
		e.TimeBudget = max(d.Envelope.Deadline.Sub(d.Due()), 0)
	}
	e.BudgetFrom = e.Attempts
	e.Contentions, e.ContendedFrom, e.Throttles, e.ThrottledFrom = 0, time.Time{}, 0, time.Time{}
	if e.TimeBudget > 0 || !e.Deadline.IsZero() {
		e = e.grant(now)
	}
	return e
}
