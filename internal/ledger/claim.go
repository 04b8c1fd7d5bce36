package ledger

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
)

// Evidence is what one delivery learnt about an external call.
type Evidence struct {
	At time.Time `json:"at"`
	// Token is the delivery's owner token.
	Token string `json:"token"`
	// RequestID is the provider's own id of the accepted request, if there is one.
	RequestID string `json:"requestId,omitzero"`
	Note      string `json:"note,omitzero"`
}

// DecisionKind is a person's decision about an ambiguous job.
type DecisionKind string

// The decisions.
const (
	// Sent: the call took effect; the entry becomes done.
	Sent DecisionKind = "sent"
	// NotSent: the call did not take effect; the job may be redriven once.
	NotSent DecisionKind = "not-sent"
	// Drop: the job ends whether the call took effect or not; the entry becomes terminal.
	Drop DecisionKind = "drop"
)

// Decision records who decided what, and why.
type Decision struct {
	At     time.Time    `json:"at"`
	By     string       `json:"by"`
	What   DecisionKind `json:"what"`
	Reason string       `json:"reason"`
}

// ErrUndecidable: the decision contradicts the entry.
var ErrUndecidable = errors.New("decision refused")

// Lease is what a claim sets on the entry.
type Lease struct {
	// Until is when the claim ends unless it is completed, released or renewed before.
	Until time.Time
	// ProviderKey is stored by the first claim; later claims keep the first claim's key.
	ProviderKey string
	// ExpiresAt is the time from which the business does not want the effect; zero for never.
	ExpiresAt time.Time
}

// Claim gives the delivery the right to make the external call. The returned entry is marked unresolved,
// because a call may be made from here on. UnresolvedBefore says whether the mark was set before; then look up
// that call's outcome before anything else. An earlier claim that ended without an outcome counts as an
// attempt. The errors are ErrFinal, ErrIsolated, *ConflictError, NotYetError while a retry waits or another
// delivery holds a lease, and ErrSpent when that attempt was the last.
func (r Rules) Claim(e Entry, d job.Delivery, l Lease, now time.Time) (Entry, error) {
	if err := e.Conflict(d.Digest); err != nil {
		return e, err
	}
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Isolated:
		return e, ErrIsolated
	case e.RetryAt.After(now):
		return e, &NotYetError{Until: e.RetryAt}
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	case e.Status == Running && e.Attempts+1-e.BudgetFrom >= r.Retry.MaxAttempts:
		return e, ErrSpent
	}
	if e.Unresolved {
		// An earlier version of this program did not write CalledUntil. All earlier calls are over by now.
		if e.CalledUntil = later(e.CalledUntil, e.LeaseUntil); e.CalledUntil.IsZero() {
			e.CalledUntil = now
		}
	}
	if e.Status == Running {
		e.Attempts++
		e.LastClass, e.LastError = job.ClassUnknown, "the claim ended without an outcome"
		e = e.note(Event{At: now, What: EventFailed, Attempt: e.Attempts, Class: e.LastClass, Error: e.LastError})
	}
	e = e.Open(d)
	e.Status, e.Owner, e.LeaseUntil, e.Unresolved = Running, d.Token, l.Until, true
	e.OpenClaims++
	e.RetryAt = time.Time{}
	if e.ProviderKey == "" {
		e.ProviderKey = l.ProviderKey
	}
	if e.CalledFrom.IsZero() {
		e.CalledFrom = now
	}
	if e.ExpiresAt.IsZero() {
		e.ExpiresAt = l.ExpiresAt
	}
	return r.keep(e, later(now, l.Until)), nil
}

// UnresolvedBefore says, for an entry that was just claimed, whether a call of an earlier claim has no known
// outcome.
func (e Entry) UnresolvedBefore() bool { return e.OpenClaims > 1 }

// Release ends a claim under which no call was made. The entry is as it was before the claim: an earlier
// claim's call without a known outcome keeps its mark.
func (r Rules) Release(e Entry, token string) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status != Running || e.Owner != token:
		return e, ErrLeaseLost
	}
	if e.UnresolvedBefore() {
		e.OpenClaims--
	} else {
		e = e.resolve()
	}
	return e.idle(), nil
}

// Postpone ends a claim under which no call was made, like Release, and lets the job wait until a time. why is kept
// in the history.
func (r Rules) Postpone(e Entry, token string, until time.Time, why string, now time.Time) (Entry, error) {
	e, err := r.Release(e, token)
	if err != nil {
		return e, err
	}
	e.RetryAt = roundUp(until)
	return r.keep(e.note(Event{At: now, What: EventWaits, Attempt: e.Attempts, Error: why}), now), nil
}

// Free says whether a running entry's lease has ended. An entry without a lease time is not free.
func (e Entry) Free(now time.Time) bool {
	return !e.LeaseUntil.IsZero() && !e.LeaseUntil.After(now)
}

// CompleteClaim ends a claimed job with its outcome. Only the claim's owner may do so. An expired lease does
// not matter unless another delivery has taken the claim over: a known acceptance is never thrown away.
func (r Rules) CompleteClaim(e Entry, d job.Delivery, status Status, outcome, requestID string, now time.Time) (Entry, error) {
	if e.Status.Final() {
		return e, ErrFinal
	}
	if e.Status != Running || e.Owner != d.Token {
		return e, ErrLeaseLost
	}
	if requestID != "" {
		e = e.learn(Evidence{At: now, Token: d.Token, RequestID: requestID})
	}
	return r.Finish(e.resolve(), d, status, outcome, now)
}

// Learn appends evidence to an entry, whatever its owner and its status.
func (r Rules) Learn(e Entry, ev Evidence) (Entry, error) {
	if e.Version == 0 {
		return e, fmt.Errorf("learn of a job without an entry: %w", ErrLeaseLost)
	}
	return e.learn(ev), nil
}

func (e Entry) learn(ev Evidence) Entry {
	ev.Note = job.SafeText(ev.Note)
	all := append(append(make([]Evidence, 0, len(e.Evidence)+1), e.Evidence...), ev)
	// Keep the oldest: it is the first call's.
	if len(all) > MaxHistory {
		all = append(all[:1], all[2:]...)
	}
	e.Evidence = all
	return e
}

// Decide records a person's decision about an ambiguous job: Sent and Drop end it, NotSent lets it be redriven
// once. Its error wraps ErrUndecidable and says why: the job is not isolated as ambiguous, or NotSent
// contradicts a request id that the provider gave, or comes after the job's expiry.
func (r Rules) Decide(e Entry, decision Decision) (Entry, error) {
	refuse := func(format string, args ...any) (Entry, error) {
		return e, fmt.Errorf("%w: %s", ErrUndecidable, fmt.Sprintf(format, args...))
	}
	if e.Status != Isolated || e.LastClass != job.Ambiguous {
		return refuse("the job is %s with class %q, only an isolated ambiguous job is decided", e.Status, e.LastClass)
	}
	if decision.By == "" || decision.Reason == "" {
		return refuse("a decision needs a name and a reason")
	}
	switch decision.What {
	case NotSent:
		for _, ev := range e.Evidence {
			if ev.RequestID != "" {
				return refuse("the provider accepted request %s", ev.RequestID)
			}
		}
		if !e.ExpiresAt.IsZero() && !decision.At.Before(e.ExpiresAt) {
			return refuse("the job expired at %s: drop it", e.ExpiresAt.UTC().Format(time.RFC3339))
		}
		e.Decided = NotSent
	case Sent, Drop:
		e.Status, e.Outcome = Done, "sent, decided by hand"
		if decision.What == Drop {
			e.Status, e.Outcome = Terminal, "dropped, decided by hand"
		}
		e = e.resolve()
		e.FinalAt, e.Decided = decision.At, ""
		e = r.keep(e, decision.At)
	default:
		return refuse("%q is none of %s, %s, %s", decision.What, Sent, NotSent, Drop)
	}
	e.Decisions = append(append(make([]Decision, 0, len(e.Decisions)+1), e.Decisions...), decision)
	return e, nil
}
