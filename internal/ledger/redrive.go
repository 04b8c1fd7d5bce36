package ledger

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
)

// Conditions of a redrive, a revocation and a discard.
var (
	// ErrOpened: the entry is open already by this same run, whose send was not confirmed. There is
	// nothing to write, and the message may be sent.
	ErrOpened = errors.New("entry is already opened by this run")
	// ErrDrift: the entry is not as the plan saw it.
	ErrDrift = errors.New("entry has changed since it was planned")
	// ErrOtherRun: the entry is not open by the run that is revoked.
	ErrOtherRun = errors.New("entry is not open by this run")
)

// What a redrive adds to an entry's events.
const (
	EventRedriven  EventKind = "redriven"
	EventDiscarded EventKind = "discarded"
)

// OutcomeDiscarded is the outcome of an entry that a discard made final.
const OutcomeDiscarded = "discarded"

// Redriving is what a run knows of a job when it sends it again.
type Redriving struct {
	// Run is the run's id.
	Run string
	// Generation is the entry's Redrives as the plan saw it; for a job without an entry, what its
	// message said.
	Generation int
	// Override lets the job pass the generation limit.
	Override bool
	// Digest is that of a mended payload, which was approved; empty leaves the entry's. It is written together
	// with the reopening.
	Digest string
	// Discarded lets the job reopen an entry that a discard made final: its effect never happened.
	Discarded bool
}

// Redrive opens an entry for a run that is about to send its job again: an isolated one is reopened
// and counts, one that is open by a send that was not confirmed only changes its run, and an absent
// one is created. Its errors are ErrFinal, ErrOpened, ErrDrift, NotYetError while a lease lives, and
// ErrUnresolved for a mended payload while the outcome of a call with the old one is not known.
func (r Rules) Redrive(e Entry, d job.Delivery, x Redriving, now time.Time) (Entry, error) {
	switch {
	case e.Version == 0:
		e = e.Open(d).renew(d, now)
		e.Redrives, e.Run = x.Generation+1, x.Run
		return r.keep(e.note(Event{At: now, What: EventRedriven}), now), nil
	case x.Discarded && e.Status == Terminal && e.Outcome == OutcomeDiscarded && e.Redrives == x.Generation:
		e.Status, e.Outcome, e.FinalAt = Isolated, "", time.Time{}
		return r.reopenFor(e, d, x, now)
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	case x.Digest != "" && e.Status == Isolated && e.Unresolved:
		return e, ErrUnresolved
	case x.Digest != "" && e.Status != Isolated && job.DigestsDiffer(e.Digest, x.Digest):
		return e, fmt.Errorf("%w: it is open with another payload", ErrDrift)
	case e.Status != Isolated && e.Run == x.Run && (e.Redrives == x.Generation+1 || e.Redrives == x.Generation):
		if e.Status == Pending && e.RetryAt.IsZero() && !e.Deadline.IsZero() && e.Deadline.Before(now.Add(e.TimeBudget)) {
			return r.keep(e.grant(now), now), nil // time has passed since, none of which was the job's
		}
		return e, ErrOpened
	case e.Redrives != x.Generation:
		return e, ErrDrift
	case e.Status != Isolated:
		e = e.release()
		e.Run = x.Run
		return r.keep(e.note(Event{At: now, What: EventRedriven}), now), nil
	case e.LastClass == job.Ambiguous && e.Decided != NotSent:
		return e, fmt.Errorf("%w: it is ambiguous and not decided", ErrDrift)
	case e.Redrives >= r.MaxRedrives && !x.Override:
		return e, fmt.Errorf("%w: it was redriven %d times", ErrDrift, e.Redrives)
	}
	return r.reopenFor(e, d, x, now)
}

// reopenFor reopens an isolated entry for a run.
func (r Rules) reopenFor(e Entry, d job.Delivery, x Redriving, now time.Time) (Entry, error) {
	if x.Digest != "" { // the old payload's end and deadline do not bind the mended one
		e.Digest, e.ExpiresAt, e.TimeBudget, e.Deadline = x.Digest, time.Time{}, 0, d.Envelope.Deadline
	}
	e, err := r.Reopen(e, d, now)
	if err != nil {
		return e, err
	}
	e.Run = x.Run
	return e, nil
}

// Revoke isolates a job that waits for a run that was revoked. A job that never ran gets its
// generation back. Its errors are ErrFinal, ErrOtherRun, and NotYetError while a lease lives.
func (r Rules) Revoke(e Entry, d job.Delivery, run string, now time.Time) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Version == 0: // the run could not open what it did not know; it is open by its message alone
		e = e.Open(d)
		e.Redrives, e.LastClass = max(d.Memory.Redrives-1, 0), job.Transient
		return r.isolate(e, d, job.CauseRevoked, now), nil
	case e.Run != run || e.Status == Isolated:
		return e, ErrOtherRun
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	}
	e = e.release()
	if e.Attempts == e.BudgetFrom && e.Redrives > 0 && !e.ranSinceOpened() {
		e.Redrives--
	}
	if e.LastClass == "" {
		e.LastClass = job.Transient // nothing failed
	}
	return r.isolate(e, d, job.CauseRevoked, now), nil
}

// ranSinceOpened says whether a claim was made since the entry was opened and never resolved.
func (e Entry) ranSinceOpened() bool { return e.ProviderKey != "" && e.Unresolved }

// Discard ends a job that is not wanted any more. An ambiguous one is ended by the decision to drop it, with the name
// and the reason of the given one. Its errors are ErrFinal, NotYetError while a lease lives, and those of Decide.
func (r Rules) Discard(e Entry, d job.Delivery, by Decision, now time.Time) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	case e.Status == Isolated && e.LastClass == job.Ambiguous && e.Decided != NotSent:
		by.What = Drop
		return r.Decide(e, by)
	}
	e = e.Open(d).release()
	e.Status, e.Outcome, e.RetryAt, e.FinalAt = Terminal, OutcomeDiscarded, time.Time{}, now
	e = r.keep(e, now)
	return e.note(Event{At: now, What: EventDiscarded}), nil
}
