package ledger

import (
	"fmt"
	"time"

	"acklast/internal/job"
)

// Arrival classifies a delivery that finds its entry isolated.
type Arrival int

const (
	// PutBack: the message came back from the DLQ, by hand or by the console's redrive. Reopen the entry and
	// run the job.
	PutBack Arrival = iota
	// Handover: this delivery isolated the job itself, and its hand-over was not confirmed.
	Handover
	// Stray: a copy that was sent before the isolation, or a retry or deferral decided before it.
	Stray
	// Copy: a fresh copy, such as from a producer that sends again, or a delivery whose attribute does not name
	// this isolation. It does not reopen the entry.
	Copy
	// Undecided: the isolation is ambiguous and no decision is recorded.
	Undecided
	// Exhausted: the generation limit is reached.
	Exhausted
)

// Arrive classifies a delivery that finds its entry isolated. Every Arrival but PutBack goes to the DLQ.
func (r Rules) Arrive(e Entry, d job.Delivery) Arrival {
	switch {
	case d.ID == e.IsolatedMessageID:
		return Handover
	// An equal time counts as before: no message is isolated and received from the DLQ within one millisecond.
	case !d.SentAt.After(e.IsolatedAt):
		return Stray
	// This is a retry or deferral that was decided before the isolation and sent after it. Messages from the
	// DLQ carry a cause.
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

// isolated says whether the delivery carries the message that was isolated. Its attribute proves it. If the
// message had no room for the attribute, an equal payload is enough, but not for a job that kills the process.
func (e Entry) isolated(d job.Delivery) bool {
	m := d.Memory
	if e.Unmarked && m == (job.Memory{}) {
		return e.LastClass != job.Crashed && e.Digest != "" && e.Digest == d.Digest
	}
	return !m.Copy && m.MessageID == e.IsolatedFirstID &&
		m.At.Truncate(time.Millisecond).Equal(e.IsolatedAt.Truncate(time.Millisecond))
}

// IsCopy says whether a message on the DLQ is a copy of its job: it is marked as one, or it is not the message that was
// isolated. While a job is not isolated, only the mark tells. If the message that was isolated had no room for its
// attribute, a message without one is no copy unless its payload is another.
func (e Entry) IsCopy(d job.Delivery) bool {
	switch {
	case d.Memory.Copy:
		return true
	case e.Status != Isolated || d.ID == e.IsolatedMessageID:
		return false
	case e.Unmarked && d.Memory == (job.Memory{}):
		return job.DigestsDiffer(e.Digest, d.Digest)
	}
	return !e.isolated(d)
}

// Reopen makes an isolated entry pending again, with a fresh budget: attempts, throttles and contentions count
// from here, and the budget by time has its original length, from now on.
func (r Rules) Reopen(e Entry, d job.Delivery, now time.Time) (Entry, error) {
	if e.Status.Final() {
		return e, ErrFinal
	}
	if e.Status != Isolated {
		return e, fmt.Errorf("reopen a %s entry: %w", e.Status, ErrContended)
	}
	e.Status, e.Cause, e.Run = Pending, "", ""
	e.Redrives++
	if e.Decided != "" { // the decision replaces one look-up, and this reopening uses it up
		e = e.resolve()
		e.Decided = ""
	}
	e.RetryAt, e.IsolatedAt, e.IsolatedMessageID, e.IsolatedFirstID, e.Unmarked = time.Time{}, time.Time{}, "", "", false
	return r.keep(e.renew(d, now).note(Event{At: now, What: EventReopened}), now), nil
}

// renew gives an entry that is opened again its full budgets.
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
