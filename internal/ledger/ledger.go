// Package ledger defines the entry that a job has in the ledger, and every change it may go
// through.
//
// The transitions are pure: each takes the entry as it is and returns the entry as it shall be, or
// an error that says why not. A store applies them under a conditional write; correctness rests on
// that condition, never on a clock or on clean-up.
//
//	            Fail (budget left)         Reopen (put back, redriven)
//	              ┌────────┐            ┌───────────────────────────┐
//	              ▼        │            ▼                           │
//	(absent) ──▶ pending ──┴────────────┬──────────────────────▶ isolated ──▶ (DLQ)
//	    │          │  ▲                 │                           │
//	    │    Claim ▼  │ Fail            │ Fail (permanent, spent)   │ Decide (sent, drop)
//	    │        running ───────────────┘                           │
//	    │          │  Complete (own token)                          │
//	    └──────────┴──▶ done │ expired │ terminal ◀─────────────────┘   final: nothing leaves,
//	                                          but for an approved redrive of what was only discarded
//
// Jobs with an effect inside the ledger's own database go from pending to done in one transaction.
// Those with an effect outside are claimed first: running, under an owner token and a lease.
package ledger

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/retry"
)

// Status is where an entry stands.
type Status string

// The statuses. Done, Expired and Terminal are final.
const (
	// Pending: the job may run; attempts may have failed.
	Pending Status = "pending"
	// Running: a delivery has claimed the job and holds its lease.
	Running Status = "running"
	// Isolated: recorded as isolated; its message is on the DLQ or on its way there.
	Isolated Status = "isolated"
	// Done: the effect happened, or turned out not to be wanted any more.
	Done Status = "done"
	// Expired: the job's time passed before it ran.
	Expired Status = "expired"
	// Terminal: the business said no, for good.
	Terminal Status = "terminal"
)

// Final says whether the status is never left again.
func (s Status) Final() bool { return s == Done || s == Expired || s == Terminal }

// Format is the form in which entries are stored. An entry of a newer one is for a newer version of this
// program to read: see job.NewerError.
const Format = 1

// MaxHistory is how many events an entry keeps; older ones make room.
const MaxHistory = 20

// EventKind is what an Event tells.
type EventKind string

// The kinds of events.
const (
	EventFailed   EventKind = "failed"
	EventIsolated EventKind = "isolated"
	EventReopened EventKind = "reopened"
)

// Event is one line of an entry's history.
type Event struct {
	At      time.Time `json:"at"`
	What    EventKind `json:"what"`
	Attempt int       `json:"attempt,omitzero"`
	Class   job.Class `json:"class,omitzero"`
	Cause   job.Cause `json:"cause,omitzero"`
	Error   string    `json:"error,omitzero"`
}

// Entry is what the ledger knows of one job. An entry with Version 0 does not exist yet.
type Entry struct {
	Key     string `json:"key"`
	Subject string `json:"subject"`
	Kind    string `json:"kind"`
	Status  Status `json:"status"`
	// Outcome is the business outcome of a final entry, such as "released".
	Outcome string `json:"outcome,omitzero"`

	// Attempts counts failed attempts over the entry's whole life; it only grows.
	Attempts int `json:"attempts"`
	// BudgetFrom is what Attempts was when the entry was last opened.
	BudgetFrom int `json:"budgetFrom,omitzero"`
	// Contentions counts the deferrals by conflicting writes that could not be counted in the message,
	// since the last opening; ContendedFrom is when the first was.
	Contentions   int       `json:"contentions,omitzero"`
	ContendedFrom time.Time `json:"contendedFrom,omitzero"`
	// Throttles counts the attempts that a dependency throttled since the last opening, ThrottledFrom is
	// when the first was. They spend time and no attempt.
	Throttles     int       `json:"throttles,omitzero"`
	ThrottledFrom time.Time `json:"throttledFrom,omitzero"`
	// Redrives is the generation: how often the entry was reopened.
	Redrives int    `json:"redrives,omitzero"`
	Run      string `json:"run,omitzero"`

	// Digest is that of the job's payload, see job.Digest. A delivery with another one is no delivery of
	// this job.
	Digest string `json:"digest,omitzero"`

	// Due is when the job was first meant to take effect, FirstSent when it was first sent.
	Due       time.Time `json:"due,omitzero"`
	FirstSent time.Time `json:"firstSent,omitzero"`
	// Deadline bounds the attempts; zero means no budget by time. It is the entry's own and outranks the
	// message's.
	Deadline time.Time `json:"deadline,omitzero"`
	// TimeBudget is the length of the budget by time, which every opening gives anew.
	TimeBudget time.Duration `json:"timeBudget,omitzero"`
	// RetryAt is the earliest time of the next attempt, zero when nothing failed yet.
	RetryAt time.Time `json:"retryAt,omitzero"`

	LastClass job.Class `json:"lastClass,omitzero"`
	LastError string    `json:"lastError,omitzero"`
	Cause     job.Cause `json:"cause,omitzero"`
	// Fingerprint is what LastError has in common with the same error of other jobs. It is set on
	// isolating.
	Fingerprint string  `json:"fingerprint,omitzero"`
	History     []Event `json:"history,omitzero"`

	// LeaseUntil is when the claim of a running entry ends. A running entry without it is not free.
	LeaseUntil time.Time `json:"leaseUntil,omitzero"`
	// ExpiresAt is the business's own end of the job, after which its effect is not wanted any more;
	// zero when the kind has none.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// ProviderKey is the idempotency key of the external call. It is stored before the first call and
	// never changes.
	ProviderKey string `json:"providerKey,omitzero"`
	// CalledFrom is when the oldest claim whose call may have been accepted was made; zero when no call's
	// outcome is open. No call that may have been accepted is older.
	CalledFrom time.Time `json:"calledFrom,omitzero"`
	// Unresolved says that an external call may have been made whose outcome nobody recorded. Every
	// claim sets it, a recorded outcome clears it, and a claim that finds it set looks first.
	Unresolved bool `json:"unresolved,omitzero"`
	// OpenClaims counts the claims since Unresolved was last clear. It tells a claim that finds itself
	// written, since its answer was lost, whether Unresolved was set before.
	OpenClaims int `json:"openClaims,omitzero"`
	// Evidence is what was learned of external calls, append-only.
	Evidence []Evidence `json:"evidence,omitzero"`
	// Decisions are what people decided of an ambiguous job, append-only. Decided is the one that is
	// still to be spent by a reopening.
	Decisions []Decision   `json:"decisions,omitzero"`
	Decided   DecisionKind `json:"decided,omitzero"`

	// IsolatedMessageID is the message whose delivery isolated the job, IsolatedAt when.
	IsolatedMessageID string    `json:"isolatedMessageId,omitzero"`
	IsolatedAt        time.Time `json:"isolatedAt,omitzero"`
	// IsolatedFirstID is the id of that message's first form, which its attribute carries. Unmarked says
	// that the message has no room for our attribute.
	IsolatedFirstID string `json:"isolatedFirstId,omitzero"`
	Unmarked        bool   `json:"unmarked,omitzero"`

	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	FinalAt   time.Time `json:"finalAt,omitzero"`
	// TTL is when DynamoDB may delete the entry. Every write moves it on. Conditions never read it.
	TTL time.Time `json:"ttl,omitzero"`

	// Owner is the token of the delivery that wrote last; Version counts the writes.
	Owner   string `json:"owner,omitzero"`
	Version int64  `json:"version"`
}

// Conditions of an entry and of the ledger.
var (
	// ErrFinal: the entry is final.
	ErrFinal = errors.New("entry is final")
	// ErrIsolated: the entry is isolated.
	ErrIsolated = errors.New("entry is isolated")
	// ErrLeaseLost: another delivery has taken the claim over.
	ErrLeaseLost = errors.New("lease is lost")
	// ErrContended: a conflicting write won every time; no write of ours is known.
	ErrContended = errors.New("ledger is contended")
	// ErrUnavailable: a call to the database failed as a whole; whether it wrote is unknown.
	ErrUnavailable = errors.New("ledger is unavailable")
	// ErrDenied: the database refused a call, because of a permission, a table or an encryption key.
	ErrDenied = errors.New("the database refused access")
	// ErrSpent: the claim that ended without an outcome was the last attempt of the budget.
	ErrSpent = errors.New("the last claim ended without an outcome, and it was the last attempt")
)

// ConflictError: the delivery's payload is not that of the job whose key it has.
type ConflictError struct {
	Key string
	// Entry and Delivery are the two digests.
	Entry, Delivery string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("job %s has a payload with digest %s, this delivery has one with digest %s", e.Key, e.Entry, e.Delivery)
}

// NotYetError: the entry's next attempt lies ahead.
type NotYetError struct{ Until time.Time }

func (e *NotYetError) Error() string {
	return "next attempt is not before " + e.Until.UTC().Format(time.RFC3339Nano)
}

// RefusedError: the entry's condition refused a completion. Entry is what was found.
type RefusedError struct{ Entry Entry }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("entry %s refused the write", e.Entry.Status)
}

// Rules are what the transitions need to know of the settings.
type Rules struct {
	Retry retry.Policy
	// MaxRedrives is the generation limit.
	MaxRedrives int
	// Retention is how long an entry is kept after its last write. It is longer than everything that can
	// bring the job back.
	Retention time.Duration
}

// For returns the rules for a kind's jobs: where the kind has numbers of its own, they replace the stack's.
func (r Rules) For(a job.Attempts) Rules {
	r.Retry = r.Retry.For(a)
	return r
}

// Open returns the entry as it is, or for a job that has none the entry it starts with.
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

// grant gives the whole budget by time, from the given time on.
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

// check refuses what the delivery may not touch. The claim of a delivery that is over is nobody's.
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

// resolve records that the outcome of every call is known.
func (e Entry) resolve() Entry {
	e.Unresolved, e.OpenClaims, e.CalledFrom = false, 0, time.Time{}
	return e
}

// keep moves the entry's TTL on. A copy of the job may come as late as its due time or its retry allow.
func (r Rules) keep(e Entry, now time.Time) Entry {
	e.TTL = later(later(now, e.RetryAt), e.Due).Add(r.Retention)
	return e
}

// release ends a claim.
func (e Entry) release() Entry {
	e.Status, e.LeaseUntil = Pending, time.Time{}
	return e
}

// Fail records a failed attempt. The returned entry is pending with the time of its next attempt,
// or isolated when the failure is permanent or a budget is spent. An attempt that failed while
// another delivery's failure is already waiting for its retry spends nothing: NotYetError. A throttled
// attempt spends time only.
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
	e = e.Open(d).release()
	if e.TimeBudget > 0 && e.Attempts == e.BudgetFrom && e.Throttles == 0 {
		// The budget by time starts when the job is due or first tried, whichever is later.
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
	// Up to the millisecond, which is what a store keeps: never earlier than Retry-After.
	e.RetryAt = now.Add(delay + time.Millisecond - 1).Truncate(time.Millisecond)
	return r.keep(e, now), nil
}

// Isolate records an isolation that is not a failed attempt, such as spent contentions.
func (r Rules) Isolate(e Entry, d job.Delivery, class job.Class, cause job.Cause, reason string, now time.Time) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	e = e.Open(d).release()
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

// Finish ends a job without running it, such as one that expired. While the outcome of a call is not
// known, its error is ErrUnresolved: the job may have had its effect.
func (r Rules) Finish(e Entry, d job.Delivery, status Status, outcome string, now time.Time) (Entry, error) {
	if err := e.check(d, now); err != nil {
		return e, err
	}
	if e.Unresolved {
		return e, ErrUnresolved
	}
	e = e.Open(d).release()
	e.Status, e.Outcome, e.FinalAt, e.RetryAt = status, outcome, now, time.Time{}
	return r.keep(e, now), nil
}

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

func (e Entry) note(ev Event) Entry {
	// A fresh slice: the caller's entry keeps its own history.
	h := append(append(make([]Event, 0, len(e.History)+1), e.History...), ev)
	e.History = h[max(0, len(h)-MaxHistory):]
	return e
}

// Completion makes an entry final in one write together with a kind's own items, without reading
// it first. Attempts and history of an existing entry stay.
type Completion struct {
	// Entry holds what a fresh entry starts with, already final.
	Entry Entry
	// Now is compared with the entry's RetryAt.
	Now time.Time
	// Token is the delivery's owner token.
	Token string
}

// Complete returns the completion of a delivery's job.
func (r Rules) Complete(d job.Delivery, status Status, outcome string, now time.Time) Completion {
	e, _ := r.Finish(Entry{}, d, status, outcome, now) // an absent entry refuses nothing
	return Completion{Entry: e, Now: now, Token: d.Token}
}

// Accepts says whether the entry would let a completion pass at now: neither final nor isolated,
// and no retry waiting. The store's condition is the same rule.
func (e Entry) Accepts(now time.Time) bool {
	return (e.Version == 0 || e.Status == Pending) && !e.RetryAt.After(now)
}

// Refusal says what a refused completion means for the delivery with the given token. An entry that
// carries the token was made final by a call of this same delivery whose answer was lost.
func (e Entry) Refusal(token string, now time.Time) job.Result {
	err := &RefusedError{Entry: e}
	switch {
	case e.Status.Final() && e.Owner == token:
		return job.Result{Verdict: job.Committed, Detail: e.Outcome}
	case e.Status.Final():
		return job.Result{Verdict: job.Duplicate, Detail: e.Outcome}
	case e.Status == Isolated:
		return job.Result{Verdict: job.FoundIsolated, Err: err}
	case e.RetryAt.After(now):
		return job.Result{Verdict: job.Blocked, Until: e.RetryAt, Err: err}
	case e.Status == Running:
		return job.Result{Verdict: job.Blocked, Until: e.LeaseUntil, Err: err}
	}
	return job.Result{Verdict: job.Blocked, Err: err}
}

// Memory is what a message on its way to the DLQ tells of the entry.
func (e Entry) Memory(m job.Memory) job.Memory {
	m.Attempt, m.Redrives, m.Run = e.Attempts, e.Redrives, e.Run
	m.Class, m.Cause, m.Error, m.At = e.LastClass, e.Cause, e.LastError, e.IsolatedAt
	m.Fingerprint = e.Fingerprint
	return m
}

// IsolatedJob is what an overview needs of an isolated entry.
type IsolatedJob struct {
	Key         string       `json:"key"`
	Subject     string       `json:"subject"`
	Kind        string       `json:"kind"`
	Class       job.Class    `json:"class"`
	Cause       job.Cause    `json:"cause"`
	Fingerprint string       `json:"fingerprint,omitzero"`
	At          time.Time    `json:"at"`
	MessageID   string       `json:"messageId"`
	Redrives    int          `json:"redrives,omitzero"`
	Decided     DecisionKind `json:"decided,omitzero"`
}

// NewerWait is how long a job waits whose entry a newer version of this program wrote: a roll-out lasts
// minutes.
const NewerWait = 15 * time.Minute

// ResultOf says what the error of a run means for its delivery. It is the one place that turns the
// ledger's errors into a result; an error that is none of them is a failed attempt.
func ResultOf(err error, token string, now time.Time) job.Result {
	var refused *RefusedError
	var notYet *NotYetError
	var newer *job.NewerError
	switch {
	case errors.As(err, &refused):
		return refused.Entry.Refusal(token, now)
	case errors.As(err, &newer):
		return job.Result{Verdict: job.Blocked, Until: now.Add(NewerWait), Err: err}
	case errors.As(err, &notYet):
		return job.Result{Verdict: job.Blocked, Until: notYet.Until, Err: err}
	case errors.Is(err, ErrContended):
		return job.Result{Verdict: job.Blocked, Err: err}
	case errors.Is(err, ErrUnavailable):
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	return job.Result{Err: err}
}
