// Package effect makes effects outside the database happen once, such as an e-mail that a provider
// sends. No transaction covers the ledger and the provider.
//
// A provider's answer may get lost after it has accepted the request, and the worker may die or outlive its lease.
// So a job is claimed before the call, under a key for the provider that never changes. A claim that
// finds a call without a recorded outcome looks the request up before anything else.
//
// That the provider knows of no request proves nothing as long as an earlier request may still be on its way: until the
// provider's settle time is over, or for ever if that is not known. Until then no job ends as if nothing had been sent,
// and only a provider that deduplicates gets another request. The job waits for the settle time and looks up again.
// If no look-up can prove anything, the job ends as ambiguous: a person decides.
//
//	                       accepted, declined
//	(absent) ──▶ running ────────────────────▶ done │ terminal │ expired
//	   ▲  claim     │  ▲
//	   │            │  └── claimed again: look up, then complete, send under the same key, wait, or give up
//	   │ unsent     ▼                                                                  │
//	pending ◀── failed; or unresolved: the call's outcome is unknown                   ▼
//	   ▲                                                                    isolated as ambiguous
//	   └──────────────── decided "not sent", and put back ────────────────────────────┘
//
// The package knows no kind and no SDK: a kind supplies the calls, the ledger's store is an interface.
package effect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

// Outcomes of a finished job, as the ledger keeps them. A kind adds its own.
const (
	// Sent: the provider accepted the request.
	Sent = "sent"
	// TooLate: the job's expiry passed before anything was sent.
	TooLate = "expired"
)

// Abilities are what a provider can do. Leave a field false unless you are sure: a missing ability makes
// more jobs ambiguous, a wrong one may have the effect twice.
type Abilities struct {
	// Deduplicates: of several requests under one key the provider takes the first, and answers the others with
	// the first one's result, also if that is a refusal for good.
	Deduplicates bool
	// LooksUp: the provider can tell by the key whether it accepted a request.
	LooksUp bool
	// KeyWindow is how long the provider remembers a key after a request, for both abilities.
	KeyWindow time.Duration
	// SettleTime is the longest time from the end of a call, as its caller saw it, until the provider has accepted
	// its request and a look-up finds it, if it ever does. Zero: not known.
	SettleTime time.Duration
}

// Call is the effect of one job.
type Call struct {
	// ExpiresAt is the time from which the effect is not wanted; zero means never.
	ExpiresAt time.Time
	// Plan says whether the effect is still wanted: it returns "", or the outcome with which the job ends
	// without a call. Nil wants every effect.
	Plan func(ctx context.Context) (drop string, err error)
	// Send makes exactly one request under the key. Once the request is accepted, it returns the provider's id
	// of the request, if there is one. Its error is an *UnsentError when the request was certainly not
	// accepted, and a *DeclinedError when the provider said no for good. With any other error the request may
	// have been accepted.
	Send func(ctx context.Context, key string) (requestID string, err error)
	// Lookup returns the provider's id of the request under the key if the request was accepted. Its error is
	// ErrNoRequest when the provider knows of none by now, and a *DeclinedError when the provider said no for good.
	// Every other answer proves nothing, nor does an empty id. It is called only on a provider that LooksUp.
	Lookup func(ctx context.Context, key string) (requestID string, err error)
}

// ErrNoRequest is the error of a look-up: the provider has received no request under the key by now.
var ErrNoRequest = errors.New("the provider knows of no such request")

// UnsentError: the request was certainly not accepted. Err says why, and with its class whether another
// attempt may help.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return e.Err.Error() }

func (e *UnsentError) Unwrap() error { return e.Err }

// DeclinedError: the provider said no for good, such as for its recipient. That is an answer and no
// failure.
type DeclinedError struct {
	// Outcome is the outcome with which the job ends.
	Outcome string
}

func (e *DeclinedError) Error() string { return "the provider declined: " + e.Outcome }

// Ledger is the part of the ledger's store that a Runner uses.
type Ledger interface {
	// Claim claims the job in one conditional write and returns the entry as written.
	Claim(ctx context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (ledger.Entry, error)
	// Update reads the entry and changes it under optimistic concurrency.
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
	// UpdateFrom is Update for a caller that knows the entry already.
	UpdateFrom(ctx context.Context, found ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
	// Learn appends evidence, whatever the entry's owner.
	Learn(ctx context.Context, rules ledger.Rules, key string, ev ledger.Evidence) (ledger.Entry, error)
}

// Options are a Runner's dependencies and settings.
type Options struct {
	// Stack is the stack's name. It is part of the provider's keys.
	Stack     string
	Ledger    Ledger
	Rules     ledger.Rules
	Abilities Abilities
	// Timeout is how long one call to the provider may take.
	Timeout time.Duration
	// AttemptLeft is the least time that remains for an attempt when it starts. Timeout must fit into it, see
	// retry.LongestCall.
	AttemptLeft time.Duration
	// LeaseSkew is the clock difference between workers that leases and the key's window tolerate.
	LeaseSkew time.Duration
	Now       func() time.Time
	// Random returns a number in [0,1), for jitter.
	Random func() float64
}

// Runner runs the jobs of one kind. It may be used concurrently.
type Runner struct{ o Options }

// New returns a runner. Its error says which option is wrong.
func New(o Options) (*Runner, error) {
	switch can := o.Abilities; {
	case o.Timeout <= 0:
		return nil, errors.New("an effect needs a timeout for its calls")
	case o.Timeout > retry.LongestCall(o.AttemptLeft):
		return nil, fmt.Errorf("the timeout of a call is %v, but an attempt has only %v to make it: nine tenths of its %v",
			o.Timeout, retry.LongestCall(o.AttemptLeft), o.AttemptLeft)
	case (can.Deduplicates || can.LooksUp) && can.KeyWindow <= 0:
		return nil, errors.New("a provider that deduplicates or looks up needs a key window: no provider remembers a key for ever")
	case can.KeyWindow < 0:
		return nil, fmt.Errorf("the key window is %v, want a positive duration", can.KeyWindow)
	case can.SettleTime < 0:
		return nil, fmt.Errorf("the settle time is %v, want a positive duration, or none if it is not known", can.SettleTime)
	case can.SettleTime > 0 && !can.LooksUp:
		return nil, errors.New("a settle time is of use only with a provider that looks up")
	case can.SettleTime > 0 && can.KeyWindow <= o.AttemptLeft+can.SettleTime+o.Timeout+3*o.LeaseSkew:
		// An attempt, the skew of its lease, the settle time with its skew, and the margin before the window's end.
		return nil, fmt.Errorf("the key window of %v is too short for a settle time of %v: the provider forgets a key before a look-up can prove anything",
			can.KeyWindow, can.SettleTime)
	}
	return &Runner{o}, nil
}

// leaseJitter spreads the deliveries that wait for the end of one lease.
const leaseJitter = 2 * time.Second

// plan says how a job goes on if it has no call of unknown outcome. The zero plan is to send.
type plan struct {
	status  ledger.Status
	outcome string
	failure error
}

func (p plan) sends() bool { return p.status == "" && p.failure == nil }

var expired = plan{status: ledger.Expired, outcome: TooLate}

// errUnsettled: the entry is claimed, or has a call of unknown outcome. The job can go on only with a claim.
var errUnsettled = errors.New("entry is not settled")

// Run makes one attempt. The kind's plan is asked before the claim: between the claim and the call a
// crash costs a look-up, or a person's time, so nothing else happens there.
//
//	the memory's unused claim     ──taken back
//	plan: expired? wanted?        ──ends here──▶ Finish, unless the entry is unsettled
//	claim                         ──refused────▶ duplicate, deferred, isolated
//	unresolved before? look up    ──accepted───▶ complete      ──nobody can tell──▶ ambiguous
//	                              ──may still arrive──▶ waits  ──proven absent────▶ as if there were no earlier call
//	call                          ──accepted───▶ complete      ──failed──▶ retried by the worker
func (r *Runner) Run(ctx context.Context, d job.Delivery, c Call) job.Result {
	unused := d.Memory.UnusedClaim
	if unused != "" {
		// A forged token frees nothing: a sender cannot know the owner token of a claim that is in use.
		if err := r.release(ctx, d, unused); err != nil {
			return ledger.ResultOf(err, d.Token, r.o.Now())
		}
	}
	res := r.run(ctx, d, c)
	res.ClaimTakenBack = unused != ""
	return res
}

func (r *Runner) run(ctx context.Context, d job.Delivery, c Call) job.Result {
	todo, res, ok := r.plan(ctx, d, c)
	if !ok {
		return res
	}
	if !todo.sends() {
		if res, settled := r.settle(ctx, d, todo); settled {
			return res
		}
	}
	if err := r.tooLate(ctx); err != nil {
		return job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("not claimed: %w", err)}
	}
	until := r.o.Now().Add(2*r.o.Timeout + r.o.LeaseSkew)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline.Add(r.o.LeaseSkew)
	}
	e, err := r.o.Ledger.Claim(ctx, r.o.Rules, d, ledger.Lease{Until: until, ProviderKey: providerKey(r.o.Stack, d.Key), ExpiresAt: c.ExpiresAt})
	if err != nil {
		if errors.Is(err, ledger.ErrUnavailable) {
			// The claim may be written, and only the answer lost.
			return r.giveBack(ctx, d, r.refused(d, err))
		}
		return r.refused(d, err)
	}
	if err := r.tooLate(ctx); err != nil && todo.sends() {
		// The claim took long, such as by a dead connection. That is the ledger's trouble, so the hand-over counts it:
		// claims that are always slow must not defer the job for ever.
		return r.giveBack(ctx, d, job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("not sent after a slow claim: %w: %w", ledger.ErrUnavailable, err)})
	}
	claimed := claim{r: r, d: d, c: c, e: e}
	return claimed.run(ctx, todo)
}

// tooLate returns an error if less time is left than a call may take. If the invocation's end cut the call short, its
// outcome would be unknown without need.
func (r *Runner) tooLate(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if left := deadline.Sub(r.o.Now()); ok && left < r.o.Timeout {
		return fmt.Errorf("%v left, less than the call's timeout of %v", left, r.o.Timeout)
	}
	return nil
}

// plan decides by the clock and by the kind how the job goes on. ok is false if it cannot decide now, such as when the
// kind's own table does not answer. Then res is the result of the attempt.
func (r *Runner) plan(ctx context.Context, d job.Delivery, c Call) (todo plan, res job.Result, ok bool) {
	if r.late(c) {
		return expired, res, true
	}
	if c.Plan == nil {
		return plan{}, res, true
	}
	drop, err := c.Plan(ctx)
	switch {
	case err != nil:
		if res = ledger.ResultOf(err, d.Token, r.o.Now()); res.Verdict != job.Failed {
			return plan{}, res, false
		}
		return plan{failure: err}, res, true
	case drop != "":
		return plan{status: ledger.Terminal, outcome: drop}, res, true
	}
	return plan{}, res, true
}

func (r *Runner) late(c Call) bool { return !c.ExpiresAt.IsZero() && !r.o.Now().Before(c.ExpiresAt) }

// settle ends a job that needs no call, without a claim. If the answer to a claim were lost, the entry would
// say that a call may have been made. settle returns false when the entry already says so.
func (r *Runner) settle(ctx context.Context, d job.Delivery, todo plan) (res job.Result, settled bool) {
	e, err := r.o.Ledger.Update(ctx, d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		// If the final entry has another payload, another job has ended, and not this one.
		if err := e.Conflict(d.Digest); err != nil {
			return e, err
		}
		switch {
		case e.Status.Final() || e.Status == ledger.Isolated:
			return e, &ledger.RefusedError{Entry: e}
		case e.Status == ledger.Running || e.Unresolved:
			return e, errUnsettled
		case todo.failure != nil:
			return e, todo.failure
		}
		return r.o.Rules.Finish(e, d, todo.status, todo.outcome, r.o.Now())
	})
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: e.Outcome, Expired: e.Status == ledger.Expired}, true
	case errors.Is(err, errUnsettled):
		return job.Result{}, false
	}
	return ledger.ResultOf(err, d.Token, r.o.Now()), true
}

// giveBack ends a delivery that made no call, with its result if its claim can be taken back. Otherwise the delivery
// names its claim in its hand-over, and the next one takes it back.
func (r *Runner) giveBack(ctx context.Context, d job.Delivery, res job.Result) job.Result {
	if err := r.release(ctx, d, d.Token); err != nil {
		return job.Result{Verdict: job.Unconfirmed, UnusedClaim: true, Err: fmt.Errorf("%w; release: %w", res.Err, err)}
	}
	return res
}

// release takes back a claim under which no call was made and none will be. Otherwise the claim's mark would stand for a
// call of unknown outcome. If release fails, the mark stays, and nothing worse happens.
func (r *Runner) release(ctx context.Context, d job.Delivery, owner string) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	_, err := r.o.Ledger.Update(ctx, d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return r.o.Rules.Release(e, owner)
	})
	if errors.Is(err, ledger.ErrLeaseLost) || errors.Is(err, ledger.ErrFinal) {
		return nil // the claim was not written, or belongs to another delivery now
	}
	return err
}

// refused returns the result for a delivery whose claim was refused.
func (r *Runner) refused(d job.Delivery, err error) job.Result {
	res := ledger.ResultOf(err, d.Token, r.o.Now())
	var found *ledger.RefusedError
	if errors.As(err, &found) && found.Entry.Status == ledger.Running && !res.Until.IsZero() {
		res.Until = res.Until.Add(time.Duration(r.o.Random() * float64(leaseJitter)))
	}
	return res
}

// providerKey is the job's idempotency key at the provider. It depends only on the stack and the job's key. So
// it never changes, and two stacks that share an account have different keys. It is a hash, so the provider
// learns no id from it.
func providerKey(stack, jobKey string) string {
	sum := sha256.Sum256([]byte(stack + "\x00" + jobKey))
	return "acklast-" + hex.EncodeToString(sum[:16])
}
