// Package ledger defines a job's entry in the ledger, and every change that an entry may undergo.
//
// The transitions are pure: each takes an entry and returns the changed entry, or an error that says why
// the change is refused. A store applies them under a conditional write. Correctness rests on that
// condition, never on a clock or on clean-up.
//
//	            Fail (budget left)         Reopen (put back, redriven)
//	              ┌────────┐            ┌───────────────────────────┐
//	              ▼        │            ▼                           │
//	(absent) ──▶ pending ──┴────────────┬──────────────────────▶ isolated ──▶ (DLQ)
//	    │          │  ▲                 │                           │
//	    │    Claim ▼  │ Fail            │ Fail (permanent, spent)   │ Decide (sent, drop)
//	    │        running ───────────────┘                           │
//	    │          │  Complete (own token)                          │
//	    └──────────┴──▶ done │ expired │ terminal ◀─────────────────┘   final: never left, except
//	                                          by an approved redrive of a discarded job
//
// Jobs with an effect inside the ledger's own database go from pending to done in one transaction.
// Those with an effect outside are claimed first: running, under an owner token and a lease.
package ledger

import (
	"errors"
	"time"

	"acklast/internal/job"
	"acklast/internal/retry"
)

// Conditions of an entry and of the ledger.
var (
	// ErrFinal: the entry is final.
	ErrFinal = errors.New("entry is final")
	// ErrIsolated: the entry is isolated.
	ErrIsolated = errors.New("entry is isolated")
	// ErrLeaseLost: another delivery has taken over the claim.
	ErrLeaseLost = errors.New("lease is lost")
	// ErrContended: a conflicting write won every time, and none of our writes is known to have succeeded.
	ErrContended = errors.New("ledger is contended")
	// ErrUnavailable: a call to the database failed as a whole; whether it wrote is unknown.
	ErrUnavailable = errors.New("ledger is unavailable")
	// ErrUndecodable: what is stored is not as any version of this program writes it. Another read says the same, and it says
	// nothing about any other entry.
	ErrUndecodable = errors.New("what is stored cannot be decoded")
	// ErrDenied: the database refused a call, because of a permission, a table or an encryption key.
	ErrDenied = errors.New("the database refused access")
	// ErrSpent: the claim that ended without an outcome was the last attempt of the budget.
	ErrSpent = errors.New("the last claim ended without an outcome, and it was the last attempt")
)

// Rules are the settings that the transitions use.
type Rules struct {
	Retry retry.Policy
	// MaxRedrives is the generation limit.
	MaxRedrives int
	// Retention is how long an entry is kept after its last write. It is longer than the time in which a job
	// can come back in any way.
	Retention time.Duration
}

// For returns the rules for a kind's jobs: a kind's own numbers replace the stack's.
func (r Rules) For(a job.Attempts) Rules {
	r.Retry = r.Retry.For(a)
	return r
}

// Open returns the entry unchanged, or the first entry of a job that has none.
func (e Entry) Open(d job.Delivery) Entry {
	if e.Version > 0 {
		if e.Digest == "" {
			e.Digest = d.Digest
		}
		return e
	}
	e = Entry{
		Key: d.Key, Subject: d.Subject, Kind: d.Envelope.Kind, Status: Pending,
		Due: d.Due(), FirstSent: d.FirstSent(), Digest: d.Digest,
	}
	if e.Deadline = d.Envelope.Deadline; !e.Deadline.IsZero() {
		e.TimeBudget = max(e.Deadline.Sub(e.Due), 0)
	}
	return e
}

// grant starts the budget by time at the given time, with its full length.
func (e Entry) grant(from time.Time) Entry {
	e.Deadline = from.Add(e.TimeBudget)
	return e
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Conflict returns a *ConflictError when the delivery's payload is not the entry's.
func (e Entry) Conflict(digest string) error {
	if job.DigestsDiffer(e.Digest, digest) {
		return &ConflictError{Key: e.Key, Entry: e.Digest, Delivery: digest}
	}
	return nil
}

// check refuses an entry that the delivery may not change. A claim whose lease has ended does not stop another
// delivery.
func (e Entry) check(d job.Delivery, now time.Time) error {
	if err := e.Conflict(d.Digest); err != nil {
		return err
	}
	switch {
	case e.Status.Final():
		return ErrFinal
	case e.Status == Isolated:
		return ErrIsolated
	case e.Status == Running && e.Owner != d.Token && !e.Free(now):
		return &NotYetError{Until: e.LeaseUntil}
	}
	return nil
}

// resolve records that no call has an unknown outcome any more.
func (e Entry) resolve() Entry {
	e.Unresolved, e.OpenClaims, e.CalledFrom, e.CalledUntil = false, 0, time.Time{}, time.Time{}
	return e
}

// keep moves the entry's TTL on. A copy of the job may come as late as its due time, its retry or a schedule.
func (r Rules) keep(e Entry, now time.Time) Entry {
	e.TTL = later(later(now, e.RetryAt), later(e.Due, e.ScheduledUntil)).Add(r.Retention)
	return e
}

// release ends a claim at the time now: it belongs to the caller, or its lease has ended. So its call is over for its
// caller.
func (e Entry) release(now time.Time) Entry {
	if e.Status == Running && e.Unresolved {
		e.CalledUntil = later(e.CalledUntil, now)
	}
	return e.idle()
}

// idle ends a claim under which no call was made.
func (e Entry) idle() Entry {
	e.Status, e.LeaseUntil = Pending, time.Time{}
	return e
}

// Fail records a failed attempt. The returned entry is pending with the time of its next attempt, or isolated
// if the failure is permanent or a budget is used up. If another delivery's failure already waits for its
// retry, this one counts nothing and the error is NotYetError. A throttled attempt counts against the time
// budget only.
func (r Rules) Fail(e Entry, d job.Delivery, f *job.Failure, now time.Time, random float64) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	if e.RetryAt.After(now) {
		return e, &NotYetError{Until: e.RetryAt}
	}
	// Only the owner of the claim knows how its call ended. Every other failure leaves the mark as it is.
	if e.Status == Running && e.Owner == d.Token && !f.Unresolved {
		e = e.resolve()
	}
	if e.Status == Running && e.Owner == d.Token && f.NoCall {
		e = e.idle()
	}
	e = e.Open(d).release(now)
	if e.TimeBudget > 0 && e.Attempts == e.BudgetFrom && e.Throttles == 0 {
		// The budget by time starts when the job is due or when it is first tried, whichever is later.
		e = e.grant(later(e.Due, now))
	}
	e.LastClass, e.LastError = f.Class, job.SafeText(f.Error())
	var delay time.Duration
	var cause job.Cause
	if f.Class == job.Throttled {
		e.Throttles++
		if e.ThrottledFrom.IsZero() {
			e.ThrottledFrom = now
		}
		delay, cause = r.Retry.NextThrottled(e.Throttles, now, e.ThrottledFrom, e.Deadline, f.RetryAfter, random)
	} else {
		e.Attempts++
		delay, cause = r.Retry.Next(e.Attempts-e.BudgetFrom, now, e.Deadline, f.RetryAfter, random)
	}
	e = e.note(Event{At: now, What: EventFailed, Attempt: e.Attempts, Class: f.Class, Error: e.LastError})
	if !f.Class.Retryable() {
		cause = job.CauseOf(f.Class)
	}
	if cause != "" {
		return r.isolate(e, d, cause, now), nil
	}
	e.RetryAt = roundUp(now.Add(delay)) // never earlier than Retry-After
	return r.keep(e, now), nil
}

// roundUp rounds up to the millisecond, which is what a store keeps.
func roundUp(t time.Time) time.Time { return t.Add(time.Millisecond - 1).Truncate(time.Millisecond) }

// Isolate records an isolation that is not a failed attempt, such as after too many contentions.
func (r Rules) Isolate(e Entry, d job.Delivery, class job.Class, cause job.Cause, reason string, now time.Time) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	e = e.Open(d).release(now)
	e.LastClass, e.LastError = class, job.SafeText(reason)
	return r.isolate(e, d, cause, now), nil
}

func (r Rules) isolate(e Entry, d job.Delivery, cause job.Cause, now time.Time) Entry {
	e.Status, e.Cause, e.RetryAt = Isolated, cause, time.Time{}
	e.IsolatedMessageID, e.IsolatedFirstID, e.IsolatedAt, e.Unmarked = d.ID, d.OriginalID(), now, d.NoRoom
	e = r.keep(e, now)
	e.Fingerprint = job.Fingerprint(e.LastError)
	return e.note(Event{At: now, What: EventIsolated, Class: e.LastClass, Cause: cause})
}

// Finish ends a job without running it, such as one that expired. If a call's outcome is not known, the error
// is ErrUnresolved: the job may have had its effect.
func (r Rules) Finish(e Entry, d job.Delivery, status Status, outcome string, now time.Time) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	if e.Unresolved {
		return e, ErrUnresolved
	}
	e = e.Open(d).release(now)
	e.Status, e.Outcome, e.FinalAt, e.RetryAt = status, outcome, now, time.Time{}
	return r.keep(e, now), nil
}

// Completion makes an entry final in one write together with a kind's own items, without reading it first. An
// existing entry keeps its attempts and history.
type Completion struct {
	// Entry is the entry for a job that has none yet, already final.
	Entry Entry
	// Now is compared with the entry's RetryAt.
	Now time.Time
	// Token is the delivery's owner token.
	Token string
	// Covers is the time from which the retention in the entry's TTL counts. An entry that is scheduled until a
	// later time refuses the completion: see Keep.
	Covers time.Time
}

// Complete returns the completion of a delivery's job.
func (r Rules) Complete(d job.Delivery, status Status, outcome string, now time.Time) Completion {
	e, _ := r.Finish(Entry{}, d, status, outcome, now) // an absent entry never refuses
	return Completion{Entry: e, Now: now, Token: d.Token, Covers: later(now, e.Due)}
}

// Keep returns the completion with a TTL that outlives what the found entry is scheduled until. short is false if
// it did already.
func (c Completion) Keep(found Entry) (kept Completion, short bool) {
	if !found.ScheduledUntil.After(c.Covers) {
		return c, false
	}
	c.Entry.TTL = c.Entry.TTL.Add(found.ScheduledUntil.Sub(c.Covers))
	c.Covers = found.ScheduledUntil
	return c, true
}

// Accepts says whether the entry allows a completion at now: it is neither final nor isolated, and no retry
// waits. The store's condition is the same rule.
func (e Entry) Accepts(now time.Time) bool {
	return (e.Version == 0 || e.Status == Pending) && !e.RetryAt.After(now)
}
