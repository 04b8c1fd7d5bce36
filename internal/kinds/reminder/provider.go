package reminder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"acklast/internal/job"
)

// Abilities are what a provider can do, as data. What is not sure is left out: with none of them a
// request whose answer is lost makes the job ambiguous, with a wrong one it may be sent twice.
type Abilities struct {
	// Deduplicates: of requests under one key the provider accepts the first and answers the others
	// with the first one's result.
	Deduplicates bool
	// LooksUp: it tells by the key whether it accepted a request.
	LooksUp bool
	// KeyWindow is for how long after a request it remembers the key, for both.
	KeyWindow time.Duration
}

// Provider delivers messages to people.
type Provider interface {
	Abilities() Abilities
	// Send makes exactly one request and returns the provider's own id of it once it is accepted. Its
	// error is
	//
	//	*RefusedError   the provider said no, for good
	//	*job.Failure    it was not accepted; or with Unresolved set, nobody knows
	//
	// Of any other error nobody knows whether the request was accepted.
	Send(ctx context.Context, m Message) (requestID string, err error)
	// Lookup tells what became of the request under the key: its id if it was accepted, ErrNotFound, a
	// *RefusedError, or a *job.Failure when that cannot be told now. It is called only on a provider that
	// LooksUp.
	Lookup(ctx context.Context, key string) (requestID string, err error)
}

// Message is what a provider is asked to deliver.
type Message struct {
	// Key is the idempotency key; every request for one reminder has the same.
	Key string
	Payload
}

// ErrNotFound: there is no such thing: no request under the key, or no subscription.
var ErrNotFound = errors.New("not found")

// RefusedError: the provider refuses the reminder for good, such as for its recipient. That is an
// answer, not a failure.
type RefusedError struct {
	// Outcome is what the entry ends with, such as InvalidRecipient.
	Outcome string
}

func (e *RefusedError) Error() string { return "provider refused: " + e.Outcome }

// unsent is a failure of a request that was certainly not accepted.
func unsent(class job.Class, format string, args ...any) *job.Failure {
	return &job.Failure{Class: class, Err: fmt.Errorf(format, args...)}
}

// unknown is a failure of a request that may have been accepted.
func unknown(format string, args ...any) *job.Failure {
	return &job.Failure{Class: job.Transient, Unresolved: true, Err: fmt.Errorf(format, args...)}
}

// failureOf says what an HTTP status other than success means that no adapter knows better.
func failureOf(status int, header http.Header, now time.Time) *job.Failure {
	switch {
	case status == http.StatusTooManyRequests:
		f := unsent(job.Throttled, "provider answered 429")
		f.RetryAfter = retryAfter(header.Get("Retry-After"), now)
		return f
	case status == http.StatusServiceUnavailable:
		f := unsent(job.Transient, "provider answered 503")
		f.RetryAfter = retryAfter(header.Get("Retry-After"), now)
		return f
	case status >= 500:
		// It may come from a gateway that lost the answer, or from a server that fell over after it had
		// accepted.
		return unknown("provider answered %d", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		return unsent(job.Transient, "provider answered %d", status)
	case status == http.StatusConflict:
		// Another request under the key is at work: it may be accepted yet.
		return unknown("provider answered 409")
	}
	return unsent(job.Rejected, "provider answered %d", status)
}

// maxRetryAfter bounds what a provider may ask for: longer waits are for people to decide.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads a Retry-After header: seconds or an HTTP date. One that is neither counts as none.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if s, err := strconv.ParseInt(v, 10, 64); err == nil {
		if s > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return max(time.Duration(s)*time.Second, 0)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
