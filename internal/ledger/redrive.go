package ledger

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
)

// Conditions of a redrive, a revocation and a discard.
var (
	// ErrOpened: this same run has already opened the entry, and its send was not confirmed. Nothing needs to
	// be written, and the message may be sent.
	ErrOpened = errors.New("entry is already opened by this run")
	// ErrDrift: the entry has changed since the plan.
	ErrDrift = errors.New("entry has changed since it was planned")
	// ErrOtherRun: the entry is not open by the run that is revoked.
	ErrOtherRun = errors.New("entry is not open by this run")
)

// The events that a redrive adds to an entry.
const (
	EventRedriven  EventKind = "redriven"
	EventDiscarded EventKind = "discarded"
)

// OutcomeDiscarded is the outcome of an entry that a discard made final.
const OutcomeDiscarded = "discarded"

// Redriving says how a run sends a job again.
type Redriving struct {
	// Run is the run's id.
	Run string
	// Generation is the entry's Redrives in the plan; for a job without an entry, the generation in its
	// message.
	Generation int
	// Override lets the job pass the generation limit.
	Override bool
	// Digest is the digest of a mended and approved payload; empty keeps the entry's. It is written together
	// with the reopening.
	Digest string
	// Discarded lets the job reopen an entry that a discard made final: its effect never happened.
	Discarded bool
}

// Redrive opens an entry for a run that is about to send its job again. An isolated entry is reopened and its
// generation counts up. An entry that was opened by an unconfirmed send only changes its run. An absent entry
// is created. The errors are ErrFinal, ErrOpened, ErrDrift and NotYetError while a delivery holds a lease. For
// a mended payload the error is ErrUnresolved while a call with the old payload has no known outcome.
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
			return r.keep(e.grant(now), now), nil // the time since then does not count against the job
		}
		return e, ErrOpened
	case e.Redrives != x.Generation:
		return e, ErrDrift
	case e.Status != Isolated:
		e = e.release(now)
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
	if x.Digest != "" { // the expiry and the deadline of the old payload do not bind the mended one
		e.Digest, e.ExpiresAt, e.TimeBudget, e.Deadline = x.Digest, time.Time{}, 0, d.Envelope.Deadline
	}
	first, at := e.IsolatedFirstID, e.IsolatedAt
	e, err := r.Reopen(e, d, now)
	if err != nil {
		return e, err
	}
	e.Run = x.Run
	e.IsolatedFirstID, e.IsolatedAt = first, at // GiveBack needs them
	return e, nil
}

// Revoke isolates a job that waits for a run that was revoked. A job that has not run gets its generation back.
// Its errors are those of Conflict, ErrFinal, ErrOtherRun, and NotYetError while a delivery holds a lease.
func (r Rules) Revoke(e Entry, d job.Delivery, run string, now time.Time) (Entry, error) {
	if err := e.Conflict(d.Digest); err != nil {
		return e, err
	}
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Version == 0: // the job had no entry for the run to open; only its message names the run
		e = e.Open(d)
		e.Redrives, e.LastClass = max(d.Memory.Redrives-1, 0), job.Transient
		return r.isolate(e, d, job.CauseRevoked, now), nil
	case e.Run != run || e.Status == Isolated:
		return e, ErrOtherRun
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	}
	e = e.release(now)
	if e.Attempts == e.BudgetFrom && e.Redrives > 0 && !e.ranSinceOpened() {
		e.Redrives--
	}
	if e.LastClass == "" {
		e.LastClass = job.Transient // nothing failed
	}
	return r.isolate(e, d, job.CauseRevoked, now), nil
}

// GiveBack revokes a job whose message is still on the DLQ. The entry names the isolation by which the message came there,
// so that somebody can put the message back by hand.
func (r Rules) GiveBack(e Entry, d job.Delivery, run string, now time.Time) (Entry, error) {
	first, at := e.IsolatedFirstID, e.IsolatedAt
	e, err := r.Revoke(e, d, run, now)
	if err == nil && first != "" && !at.IsZero() { // an earlier version of this program did not keep them
		e.IsolatedFirstID, e.IsolatedAt = first, at
	}
	return e, err
}

// ranSinceOpened says whether a claim was made since the entry was opened and was never resolved.
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
	e = e.Open(d).release(now)
	e.Status, e.Outcome, e.RetryAt, e.FinalAt = Terminal, OutcomeDiscarded, time.Time{}, now
	e = r.keep(e, now)
	return e.note(Event{At: now, What: EventDiscarded}), nil
}
