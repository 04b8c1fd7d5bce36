package ledger

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
)

// ConflictError: the delivery has the job's key, but another payload.
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

// RefusedError: the entry's condition refused a completion. Entry is the entry as found.
type RefusedError struct{ Entry Entry }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("entry %s refused the write", e.Entry.Status)
}

// Refusal returns the result for the delivery with the given token after a refused completion. If the entry
// carries the token, a call of this same delivery made it final, and the answer was lost.
func (e Entry) Refusal(token string, now time.Time) job.Result {
	err := &RefusedError{Entry: e}
	switch {
	case e.Status.Final() && e.Owner == token:
		return job.Result{Verdict: job.Committed, Detail: e.Outcome, Expired: e.Status == Expired}
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

// NewerWait is how long a job waits if a newer version of this program wrote its entry. A roll-out lasts
// minutes.
const NewerWait = 15 * time.Minute

// ResultOf turns the error of a run into a result for its delivery. It is the one place that knows the ledger's
// errors. Any other error is a failed attempt.
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
