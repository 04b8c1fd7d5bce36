package effect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// completeGrace is the time in which the end of a claim may still be written after the attempt's time is over. It must
// not be lost that the provider accepted the request, or that no call was made.
const completeGrace = time.Second

// claim is a delivery that holds its job.
type claim struct {
	r *Runner
	d job.Delivery
	c Call
	e ledger.Entry
}

func (c *claim) run(ctx context.Context, todo plan) job.Result {
	// open: the call of an earlier claim may have been accepted, or may still be.
	open, asked := c.e.UnresolvedBefore(), c.r.o.Now()
	if open && c.r.o.Abilities.LooksUp {
		if res, over := c.lookUp(ctx); over {
			return res
		}
	}
	// Do not check the expiry again after this: reconcile allows an end without a call for this plan only.
	if todo.sends() && c.r.late(c.c) {
		todo = expired
	}
	if open {
		res, proven, over := c.reconcile(ctx, todo, asked)
		if over {
			return res
		}
		open = !proven
	}
	switch {
	case todo.failure != nil:
		return notCalled(todo.failure, open)
	case !todo.sends():
		return c.complete(ctx, todo.status, todo.outcome, "")
	case !c.r.o.Now().Before(c.e.LeaseUntil):
		// The process stood still for so long that another delivery may hold the job by now.
		return c.r.giveBack(ctx, c.d, job.Result{Verdict: job.Unconfirmed, Err: errors.New("not sent: the lease ended before the call")})
	}
	if err := c.r.tooLate(ctx); err != nil && !open {
		// The look-up took long. It has proven that nothing was accepted, so the next attempt needs none. If a call is open,
		// the outcome is unknown anyway, and the provider deduplicates: a call that is cut short does no harm.
		return notCalled(&job.Failure{Class: job.Transient, Err: fmt.Errorf("not sent after a slow look-up: %w", err)}, false)
	}
	call, cancel := context.WithTimeout(ctx, c.r.o.Timeout)
	defer cancel()
	id, err := c.c.Send(call, c.e.ProviderKey)
	var declined *DeclinedError
	var unsent *UnsentError
	switch {
	case err == nil:
		return c.complete(ctx, ledger.Done, Sent, id)
	case errors.As(err, &declined):
		return c.complete(ctx, ledger.Terminal, declined.Outcome, "")
	}
	// An earlier call of unknown outcome stays unresolved, whatever the result of this call.
	return failed(err, open || !errors.As(err, &unsent))
}

// lookUp looks up the call of an earlier claim. over is false when the provider knows of no request.
func (c *claim) lookUp(ctx context.Context) (res job.Result, over bool) {
	call, cancel := context.WithTimeout(ctx, c.r.o.Timeout)
	defer cancel()
	id, err := c.c.Lookup(call, c.e.ProviderKey)
	var declined *DeclinedError
	switch {
	case err == nil && id != "":
		return c.complete(ctx, ledger.Done, Sent, id), true
	case err == nil:
		return notCalled(&job.Failure{Class: job.Transient, Err: errors.New("look up an earlier request: the answer names no request")}, true), true
	case errors.As(err, &declined):
		return c.complete(ctx, ledger.Terminal, declined.Outcome, ""), true
	case !errors.Is(err, ErrNoRequest):
		return notCalled(fmt.Errorf("look up an earlier request: %w", err), true), true
	}
	return job.Result{}, false
}

// reconcile decides how a job with an open call goes on. If the provider looks up, it has just said that it knows of
// no request. asked is the time just before the look-up. over is false in three cases: the earlier requests are proven not
// to be accepted, ever; the plan failed, which ends nothing; or sending again under the same key cannot have a second
// effect.
func (c *claim) reconcile(ctx context.Context, todo plan, asked time.Time) (res job.Result, proven, over bool) {
	can := c.r.o.Abilities
	// After the window the provider may have forgotten the key. Then neither "no such request" nor its
	// deduplication can be trusted. No request under the key is older than CalledFrom.
	remembered := c.r.o.Now().Add(c.r.o.Timeout + c.r.o.LeaseSkew).Before(c.e.CalledFrom.Add(can.KeyWindow))
	// Before this time an earlier request may still be on its way, so that the look-up does not find it yet.
	settled := c.e.CalledUntil.Add(can.SettleTime + c.r.o.LeaseSkew)
	switch {
	case !remembered:
		return ambiguous("the provider may have forgotten the key of an earlier request, whose outcome nobody recorded"), false, true
	case can.SettleTime > 0 && !asked.Before(settled):
		return job.Result{}, true, false
	case todo.failure != nil, todo.sends() && can.Deduplicates:
		return job.Result{}, false, false
	case can.SettleTime > 0:
		return c.wait(ctx, settled), false, true
	case !todo.sends():
		return ambiguous("the effect is not wanted any more, and nothing proves that an earlier request is not accepted"), false, true
	}
	return ambiguous("the outcome of an earlier request is unknown, and the provider would take another one for a second"), false, true
}

// wait ends the claim and lets the job wait until an earlier request is settled. That costs no attempt.
func (c *claim) wait(ctx context.Context, settled time.Time) job.Result {
	ctx, cancel := finishing(ctx)
	defer cancel()
	o := c.r.o
	why := errors.New("the provider knows of no earlier request yet, and it may still arrive: the look-up is repeated")
	e, err := o.Ledger.UpdateFrom(ctx, c.e, c.d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return o.Rules.Postpone(e, c.d.Token, settled, why.Error(), o.Now())
	})
	if err != nil {
		return job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("wait for an earlier request: %w", err)}
	}
	return job.Result{Verdict: job.Blocked, Until: e.RetryAt, Err: why}
}

func ambiguous(why string) job.Result {
	return notCalled(&job.Failure{Class: job.Ambiguous, Err: errors.New(why)}, true)
}

// notCalled is the result of an attempt that failed before its own call.
func notCalled(err error, unresolved bool) job.Result {
	f := asFailure(err)
	f.Unresolved, f.NoCall = unresolved, true
	return job.Result{Err: f}
}

// failed is the result of an attempt whose call failed. unresolved says that a call may have been accepted.
func failed(err error, unresolved bool) job.Result {
	f := asFailure(err)
	f.Unresolved = unresolved
	return job.Result{Err: f}
}

// asFailure keeps only class and text of the kind's error. If it wraps the ledger's trouble, such as from a read
// inside Send, the worker would not record the failure.
func asFailure(err error) *job.Failure {
	f := job.AsFailure(err)
	f.Err = errors.New(err.Error())
	return f
}

// finishing returns the context in which the end of a claim is written.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), 0)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left+completeGrace)
}

// complete ends the claim. A delivery that lost its claim appends its evidence and leaves the job to the
// claim's new owner.
func (c *claim) complete(ctx context.Context, status ledger.Status, outcome, requestID string) job.Result {
	ctx, cancel := finishing(ctx)
	defer cancel()
	o := c.r.o
	requestID = job.SafeText(requestID) // another delivery wrote it
	found, err := o.Ledger.UpdateFrom(ctx, c.e, c.d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return o.Rules.CompleteClaim(e, c.d, status, outcome, requestID, o.Now())
	})
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: outcome, Expired: status == ledger.Expired}
	case errors.Is(err, ledger.ErrFinal) && found.Owner == c.d.Token:
		return found.Refusal(c.d.Token, o.Now()) // by a write whose answer was lost
	case !errors.Is(err, ledger.ErrFinal) && !errors.Is(err, ledger.ErrLeaseLost):
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	err = fmt.Errorf("complete: %w", err)
	if status == ledger.Done {
		_, learning := o.Ledger.Learn(ctx, o.Rules, c.d.Key, ledger.Evidence{
			At: o.Now(), Token: c.d.Token, RequestID: requestID, Note: "accepted; the claim was lost meanwhile"})
		err = errors.Join(err, learning)
	}
	return job.Result{Verdict: job.Unconfirmed, Err: err}
}
