package effect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// completeGrace is how long the end of a claim may still be written after the attempt's time is over. A known
// acceptance, or the fact that no call was made, must not be lost.
const completeGrace = time.Second

// claim is a delivery that holds its job.
type claim struct {
	r *Runner
	d job.Delivery
	c Call
	e ledger.Entry
}

func (c *claim) run(ctx context.Context, todo plan) job.Result {
	inherited := c.e.UnresolvedBefore()
	if inherited {
		if res, over := c.reconcile(ctx, todo); over {
			return res
		}
	}
	if todo.sends() && c.r.late(c.c) {
		todo = expired
	}
	switch {
	case todo.failure != nil:
		return failed(todo.failure, inherited)
	case !todo.sends():
		return c.complete(ctx, todo.status, todo.outcome, "")
	case !c.r.o.Now().Before(c.e.LeaseUntil):
		// The process stood still for so long that another delivery may hold the job by now.
		err := errors.New("not sent: the lease ended before the call")
		return job.Result{Verdict: job.Unconfirmed, Err: errors.Join(err, c.r.release(ctx, c.d))}
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
	return failed(err, inherited || !errors.As(err, &unsent))
}

// reconcile looks up the call of an earlier claim. over is false in two cases: sending again under the same key
// cannot have a second effect, or the effect is not wanted any more and the provider says that it never
// received the request.
func (c *claim) reconcile(ctx context.Context, todo plan) (res job.Result, over bool) {
	can := c.r.o.Abilities
	if can.LooksUp {
		call, cancel := context.WithTimeout(ctx, c.r.o.Timeout)
		defer cancel()
		id, err := c.c.Lookup(call, c.e.ProviderKey)
		var declined *DeclinedError
		switch {
		case err == nil && id != "":
			return c.complete(ctx, ledger.Done, Sent, id), true
		case err == nil:
			return failed(&job.Failure{Class: job.Transient, Err: errors.New("look up an earlier request: the answer names no request")}, true), true
		case errors.As(err, &declined):
			return c.complete(ctx, ledger.Terminal, declined.Outcome, ""), true
		case !errors.Is(err, ErrNoRequest):
			return failed(fmt.Errorf("look up an earlier request: %w", err), true), true
		}
	}
	// After the window the provider may have forgotten the key. Then neither "no such request" nor its
	// deduplication can be trusted. No request under the key is older than CalledFrom.
	remembered := c.r.o.Now().Add(c.r.o.Timeout + c.r.o.LeaseSkew).Before(c.e.CalledFrom.Add(can.KeyWindow))
	switch {
	case !remembered:
		return ambiguous("the provider may have forgotten the key of an earlier request, whose outcome nobody recorded"), true
	case !todo.sends() || c.r.late(c.c):
		if can.LooksUp {
			return job.Result{}, false
		}
		return ambiguous("the effect is not wanted any more, and the provider cannot tell whether an earlier request was accepted"), true
	case !can.Deduplicates:
		// Also after "no such request": the earlier request may still be on its way.
		return ambiguous("the outcome of an earlier request is unknown, and the provider would take another one for a second"), true
	}
	return job.Result{}, false
}

func ambiguous(why string) job.Result {
	return failed(&job.Failure{Class: job.Ambiguous, Err: errors.New(why)}, true)
}

// failed is the result of an attempt that holds its claim and failed. unresolved says that a call may have been
// accepted. Only class and text of the kind's error are kept. If it wraps the ledger's trouble, such as from a
// read inside Send, the worker would not record the failure.
func failed(err error, unresolved bool) job.Result {
	f := job.AsFailure(err)
	f.Unresolved, f.Err = unresolved, errors.New(err.Error())
	return job.Result{Err: f}
}

// complete ends the claim. A delivery that lost its claim appends its evidence and leaves the job to the
// claim's new owner.
func (c *claim) complete(ctx context.Context, status ledger.Status, outcome, requestID string) job.Result {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), 0)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left+completeGrace)
	defer cancel()
	o := c.r.o
	requestID = job.SafeText(requestID) // another delivery wrote it
	found, err := o.Ledger.UpdateFrom(ctx, c.e, c.d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return o.Rules.CompleteClaim(e, c.d, status, outcome, requestID, o.Now())
	})
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: outcome}
	case errors.Is(err, ledger.ErrFinal) && found.Owner == c.d.Token:
		return job.Result{Verdict: job.Committed, Detail: found.Outcome} // by a write whose answer was lost
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
