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

// What else an Event tells.
const (
	EventRedriven  = "redriven"
	EventDiscarded = "discarded"
)

// Redriving is what a run knows of a job when it sends it again.
type Redriving struct {
	// Run is the run's id.
	Run string
	// Generation is the entry's Redrives as the plan saw it; for a job without an entry, what its
	// message said.
	Generation int
	// Override lets the job pass the generation limit.
	Override bool
}

// Redrive opens an entry for a run that is about to send its job again: an isolated one is reopened
// and counts, one that is open by a send that was not confirmed only changes its run, and an absent
// one is created. Its errors are ErrFinal, ErrOpened, ErrDrift, and NotYetError while a lease lives.
func (r Rules) Redrive(e Entry, d job.Delivery, x Redriving, now time.Time) (Entry, error) {
	switch {
	case e.Version == 0:
		e = e.Open(d).renew(d, now)
		e.Redrives, e.Run = x.Generation+1, x.Run
		return r.keep(e.note(Event{At: now, What: EventRedriven}), now), nil
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
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

// Discard ends a job that is not wanted any more. Its errors are ErrFinal, NotYetError while a lease
// lives, and ErrUndecidable for an ambiguous job, which is for Decide to end.
func (r Rules) Discard(e Entry, d job.Delivery, now time.Time) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	case e.Status == Isolated && e.LastClass == job.Ambiguous && e.Decided != NotSent:
		return e, fmt.Errorf("%w: the job is ambiguous, decide it with --drop", ErrUndecidable)
	}
	e = e.Open(d).release()
	e.Status, e.Outcome, e.RetryAt, e.FinalAt = Terminal, "discarded", time.Time{}, now
	e = r.keep(e, now)
	return e.note(Event{At: now, What: EventDiscarded}), nil
}
