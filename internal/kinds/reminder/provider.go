package reminder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"acklast"
)

// Provider delivers messages to people. Send and Lookup keep the contract of acklast.Effect.
type Provider interface {
	Send(ctx context.Context, key string, p Payload) (requestID string, err error)
	Lookup(ctx context.Context, key string, p Payload) (requestID string, err error)
}

// ErrNotFound: there is no such subscription.
var ErrNotFound = errors.New("not found")

// failureOf says what an HTTP status other than success means that no adapter knows better.
func failureOf(status int, header http.Header, now time.Time) error {
	err := fmt.Errorf("provider answered %d", status)
	switch {
	case status == http.StatusTooManyRequests:
		return acklast.Unsent(acklast.Throttled(err, retryAfter(header.Get("Retry-After"), now)))
	case status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
		return acklast.Unsent(acklast.Throttled(err, retryAfter(header.Get("Retry-After"), now)))
	case status == http.StatusServiceUnavailable:
		return acklast.Unsent(acklast.Transient(err))
	case status >= 500:
		// It may come from a gateway that lost the answer, or from a server that fell over after it had
		// accepted.
		return acklast.Transient(err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		return acklast.Unsent(acklast.Transient(err))
	case status == http.StatusConflict:
		// Another request under the key is at work: it may be accepted yet.
		return acklast.Transient(err)
	}
	return acklast.Unsent(acklast.Rejected("%w", err))
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
