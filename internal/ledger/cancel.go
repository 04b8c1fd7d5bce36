package ledger

import (
	"errors"
	"slices"
	"time"

	"acklast/internal/job"
)

// Cancelled is the outcome of a job that its producer cancelled. Its status is Terminal.
const Cancelled = "cancelled"

// Cancel is the DecisionKind of a cancelled job.
const Cancel DecisionKind = "cancel"

// Cancellation returns the decision by which the entry's job was cancelled; ok is false if it was not.
func (e Entry) Cancellation() (d Decision, ok bool) {
	if e.Status != Terminal || e.Outcome != Cancelled {
		return Decision{}, false
	}
	for _, d := range slices.Backward(e.Decisions) {
		if d.What == Cancel {
			return d, true
		}
	}
	return Decision{}, false
}

// ErrUnresolved: an external call was begun for the job and its outcome is unknown, so the job is neither done
// nor cancelled.
var ErrUnresolved = errors.New("an external call of the job has no known outcome")

// Cancel ends a job that is not wanted any more, before or after its first delivery. Its errors are ErrFinal,
// NotYetError while a delivery holds a lease, and ErrUnresolved.
//
// d names the key, subject and kind. Its due time is used only for a job without an entry: a copy of the job
// may arrive as late as then, so the entry's retention starts at the due time, not now.
func (r Rules) Cancel(e Entry, d job.Delivery, decision Decision) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Running && !e.Free(decision.At):
		return e, &NotYetError{Until: e.LeaseUntil}
	case e.Status == Isolated && e.Decided == NotSent:
		// A person found out that the call had no effect.
	case e.Unresolved, e.Status == Isolated && e.LastClass == job.Ambiguous:
		return e, ErrUnresolved
	}
	e = e.Open(d).release(decision.At).resolve()
	e.Status, e.Outcome, e.RetryAt, e.Decided = Terminal, Cancelled, time.Time{}, ""
	e.FinalAt = decision.At
	e = r.keep(e, later(decision.At, d.Envelope.NotBefore))
	decision.What = Cancel
	e.Decisions = append(append(make([]Decision, 0, len(e.Decisions)+1), e.Decisions...), decision)
	return e, nil
}
