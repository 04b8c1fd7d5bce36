// Package retry decides when a failed job is tried again, and when it is not.
//
// Two budgets bound the attempts: one by count and one by time. Both count from the entry's last
// opening. Every rule is pure: the time and the random number are given. Sleep is the one exception.
package retry

import (
	"cmp"
	"context"
	"math"
	"time"

	"acklast/internal/job"
)

// Policy is the backoff and the budget by count.
type Policy struct {
	// Base and Cap bound the delay after attempt n: min(Cap, Base·2^(n-1)).
	Base, Cap time.Duration
	// MaxAttempts is the budget by count.
	MaxAttempts int
	// AttemptTime is what one attempt may take; the budget by time keeps room for it.
	AttemptTime time.Duration
}

// For returns the policy with the numbers that a kind gives itself. A kind's base above the stack's cap
// raises the cap, so that the one is never above the other.
func (p Policy) For(a job.Attempts) Policy {
	p.MaxAttempts = cmp.Or(a.Most, p.MaxAttempts)
	p.Base = cmp.Or(a.BackoffBase, p.Base)
	p.Cap = max(cmp.Or(a.BackoffCap, p.Cap), p.Base)
	p.AttemptTime = cmp.Or(a.Time, p.AttemptTime)
	return p
}

// Backoff returns the delay after the attempt-th failure (the first is 1): doubled from Base up to
// Cap, then jittered down to at most half of it by random in [0,1), and never below retryAfter.
func (p Policy) Backoff(attempt int, retryAfter time.Duration, random float64) time.Duration {
	return max(jitter(doubled(p.Base, p.Cap, attempt), random), retryAfter)
}

// Next returns the time of the next attempt after the job's attempt-th failure, or the cause why there is none.
// A zero deadline means that there is no budget by time.
func (p Policy) Next(attempt int, now, deadline time.Time, retryAfter time.Duration, random float64) (time.Duration, job.Cause) {
	if attempt >= p.MaxAttempts {
		return 0, job.CauseAttempts
	}
	delay := p.Backoff(attempt, retryAfter, random)
	if !deadline.IsZero() && delay+p.AttemptTime > deadline.Sub(now) {
		return 0, job.CauseTime
	}
	return delay, ""
}

// Throttled attempts count against the time budget only. Without a deadline they may go on for MaxThrottled.
// The delay between them rises up to ThrottledCap.
const (
	MaxThrottled = 24 * time.Hour
	ThrottledCap = 15 * time.Minute
)

// NextThrottled is Next for an attempt that a dependency throttled, the n-th since the given time.
func (p Policy) NextThrottled(n int, now, since, deadline time.Time, retryAfter time.Duration, random float64) (time.Duration, job.Cause) {
	delay := max(jitter(doubled(p.Base, max(ThrottledCap, p.Base), n), random), retryAfter)
	if deadline.IsZero() {
		deadline = since.Add(MaxThrottled)
		if n == 1 { // the dependency's own answer about the time is worth one try
			deadline = deadline.Add(retryAfter + p.AttemptTime)
		}
	}
	if delay+p.AttemptTime > deadline.Sub(now) {
		return 0, job.CauseTime
	}
	return delay, ""
}

// The bounds of the delay after a job was deferred because conflicting writes won again and again.
const (
	contentionBase = 5 * time.Second
	contentionCap  = time.Minute
)

// Contention returns the delay after the n-th contention: up to 5 s, doubling up to 60 s. It is jittered down
// to a fifth, so that two deliveries in conflict do not meet again.
func Contention(n int, random float64) time.Duration {
	d := doubled(contentionBase, contentionCap, n)
	return d - time.Duration(random*0.8*float64(d))
}

// The bounds of the delay after a delivery was handed back because of the ledger's trouble.
const (
	outageBase = 30 * time.Second
	outageCap  = 15 * time.Minute
)

// Outage returns the delay after a delivery was handed back for the n-th time in a row.
func Outage(n int) time.Duration { return doubled(outageBase, outageCap, n) }

// LongestCall is the longest time that a call to a provider may take in an attempt of the given time. A tenth
// is kept for the claim before it. A call that could not end in time would never start.
func LongestCall(attempt time.Duration) time.Duration { return attempt * 9 / 10 }

// Left returns how long a delivery that was left stays invisible after its receiveCount-th receive.
// It is not jittered: deliveries of one batch were received together and may come back together.
func Left(base, ceiling time.Duration, receiveCount int) time.Duration {
	return doubled(base, ceiling, receiveCount)
}

// doubled returns min(ceiling, base·2^(n-1)) without overflowing.
func doubled(base, ceiling time.Duration, n int) time.Duration {
	d := float64(base) * math.Pow(2, float64(max(n, 1)-1))
	if d >= float64(ceiling) {
		return ceiling
	}
	return time.Duration(d)
}

// jitter takes up to half of d away.
func jitter(d time.Duration, random float64) time.Duration {
	return d - time.Duration(random*float64(d)/2)
}

// Sleep waits for d, or returns the context's error when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WholeSeconds rounds a delay up to whole seconds, as SQS needs it, within [0, ceiling].
func WholeSeconds(d, ceiling time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	if d >= ceiling {
		return ceiling
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
