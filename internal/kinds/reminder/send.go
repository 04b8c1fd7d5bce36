package reminder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Ledger is what a Sender uses of the ledger's store.
type Ledger interface {
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
	// Claim claims the job in one conditional write and returns the entry as written.
	Claim(ctx context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (ledger.Entry, error)
	// UpdateFrom is Update without the read, for who knows the entry.
	UpdateFrom(ctx context.Context, found ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
	// Learn appends evidence, whoever owns the entry.
	Learn(ctx context.Context, rules ledger.Rules, key string, ev ledger.Evidence) (ledger.Entry, error)
}

// SubscriptionReader reads subscriptions; its error is ErrNotFound when there is none.
type SubscriptionReader interface {
	Get(ctx context.Context, id string) (Subscription, error)
}

// Options are what a Sender works with. All but Provider are required.
type Options struct {
	// Stack is the stack's name, which the provider's keys are made of.
	Stack         string
	Ledger        Ledger
	Subscriptions SubscriptionReader
	// Provider delivers; with nil every reminder is rejected.
	Provider Provider
	Rules    ledger.Rules
	// Timeout is how long one call to the provider may take.
	Timeout time.Duration
	// LeaseSkew is the clock difference between workers that leases and the key window tolerate.
	LeaseSkew time.Duration
	Now       func() time.Time
	// Random returns a number in [0,1), for jitter.
	Random func() float64
}

// Sender runs reminder jobs.
type Sender struct{ Options }

// NewSender returns a sender.
func NewSender(o Options) *Sender { return &Sender{o} }

const (
	// leaseJitter spreads the deliveries that wait for the end of one lease.
	leaseJitter = 2 * time.Second
	// completeGrace is how long the end of a claim may still be written when the attempt's time is over: a
	// known acceptance is worth it.
	completeGrace = time.Second
)

// plan is what is to become of a reminder whose calls, if there were any, are all accounted for. The
// zero plan is to send it.
type plan struct {
	status  ledger.Status
	outcome string
	failure *job.Failure
}

func (p plan) sends() bool { return p.status == "" && p.failure == nil }

var expired = plan{status: ledger.Expired, outcome: TooLate}

// errUnsettled: the entry is claimed, or has a call of unknown end. Only a claim may go on.
var errUnsettled = errors.New("entry is not settled")

// run makes one attempt. The subscription is read before the claim: between the claim and the call a
// crash costs a look-up, or a person's time, so nothing else happens there.
//
//	plan: expired? subscription?  ──ends here──▶ Finish, unless the entry is unsettled
//	claim                         ──refused────▶ duplicate, deferred, isolated
//	unresolved before? look up    ──accepted───▶ complete      ──nobody can tell──▶ ambiguous
//	call                          ──accepted───▶ complete      ──failed──▶ retried by the worker
func (x *Sender) run(ctx context.Context, d job.Delivery) job.Result {
	p, ok := d.Payload.(Payload)
	if !ok {
		return job.Result{Err: fmt.Errorf("the payload of %s is a %T", d.Key, d.Payload)}
	}
	todo, err := x.plan(ctx, p)
	if err != nil {
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	if !todo.sends() {
		if res, settled := x.settle(ctx, d, todo); settled {
			return res
		}
		if x.Provider == nil {
			return job.Result{Err: todo.failure} // it leaves an earlier claim's mark as it is
		}
	}
	until := x.Now().Add(2*x.Timeout + x.LeaseSkew)
	if deadline, ok := ctx.Deadline(); ok {
		// Cut short by the invocation's end, the call's outcome would be unknown for no good reason.
		if left := deadline.Sub(x.Now()); left < x.Timeout {
			return job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("not claimed: %v left, less than the provider's timeout of %v", left, x.Timeout)}
		}
		until = deadline.Add(x.LeaseSkew)
	}
	e, err := x.Ledger.Claim(ctx, x.Rules, d, ledger.Lease{Until: until, ProviderKey: providerKey(x.Stack, d.Key), ExpiresAt: p.ExpiresAt})
	if err != nil {
		return x.refused(d, err)
	}
	c := claim{Sender: x, d: d, p: p, e: e}
	return c.run(ctx, todo)
}

// plan says what is to become of the reminder by the clock and by its subscription. Its error is the
// table's own trouble.
func (x *Sender) plan(ctx context.Context, p Payload) (plan, error) {
	if x.Provider == nil {
		return plan{failure: unsent(job.Rejected, "no provider is configured: set %s", EnvProvider)}, nil
	}
	if !x.Now().Before(p.ExpiresAt) {
		return expired, nil
	}
	s, err := x.Subscriptions.Get(ctx, p.SubscriptionID)
	var failure *job.Failure
	switch {
	case errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrContended):
		return plan{}, err
	case errors.Is(err, ErrNotFound):
		return plan{failure: &job.Failure{Class: job.Rejected, Err: err}}, nil
	case errors.As(err, &failure):
		return plan{failure: failure}, nil
	case err != nil:
		return plan{failure: job.AsFailure(err)}, nil
	}
	if outcome := drop(p, s); outcome != "" {
		return plan{status: ledger.Terminal, outcome: outcome}, nil
	}
	return plan{}, nil
}

// settle ends a job that needs no call, without a claim: a claim whose answer got lost would leave
// behind that a call may have been made. It is not settled when the entry already says so.
func (x *Sender) settle(ctx context.Context, d job.Delivery, todo plan) (res job.Result, settled bool) {
	e, err := x.Ledger.Update(ctx, d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		switch {
		case e.Status.Final():
			return e, ledger.ErrFinal
		case e.Status == ledger.Isolated:
			return e, ledger.ErrIsolated
		case e.Status == ledger.Running || e.Unresolved:
			return e, errUnsettled
		case todo.failure != nil:
			return e, todo.failure
		}
		return x.Rules.Finish(e, d, todo.status, todo.outcome, x.Now())
	})
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: e.Outcome}, true
	case errors.Is(err, errUnsettled):
		return job.Result{}, false
	case errors.Is(err, ledger.ErrFinal) || errors.Is(err, ledger.ErrIsolated):
		return e.Refusal(d.Token, x.Now()), true
	case errors.Is(err, ledger.ErrContended):
		return job.Result{Verdict: job.Blocked, Err: err}, true
	case errors.Is(err, ledger.ErrUnavailable):
		return job.Result{Verdict: job.Unconfirmed, Err: err}, true
	}
	return job.Result{Err: err}, true
}

// refused says what a claim that was not granted means for its delivery.
func (x *Sender) refused(d job.Delivery, err error) job.Result {
	var refused *ledger.RefusedError
	switch {
	case errors.As(err, &refused):
		res := refused.Entry.Refusal(d.Token, x.Now())
		if refused.Entry.Status == ledger.Running && !res.Until.IsZero() {
			res.Until = res.Until.Add(time.Duration(x.Random() * float64(leaseJitter)))
		}
		return res
	case errors.Is(err, ledger.ErrContended):
		return job.Result{Verdict: job.Blocked, Err: err}
	case errors.Is(err, ledger.ErrUnavailable):
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	return job.Result{Err: err}
}

// claim is a delivery that holds its job.
type claim struct {
	*Sender
	d job.Delivery
	p Payload
	e ledger.Entry
}

func (c *claim) run(ctx context.Context, todo plan) job.Result {
	inherited := c.e.UnresolvedBefore()
	if inherited {
		if res, over := c.reconcile(ctx, todo); over {
			return res
		}
	}
	if todo.sends() && !c.Now().Before(c.p.ExpiresAt) {
		todo = expired
	}
	switch {
	case todo.failure != nil:
		return c.failed(todo.failure, inherited)
	case !todo.sends():
		return c.complete(ctx, todo.status, todo.outcome, "")
	case !c.Now().Before(c.e.LeaseUntil):
		// Stopped for so long that another may hold the job by now.
		return job.Result{Verdict: job.Unconfirmed, Err: errors.New("not sent: the lease ended before the call")}
	}
	call, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	id, err := c.Provider.Send(call, Message{Key: c.e.ProviderKey, Payload: c.p})
	var refused *RefusedError
	switch {
	case err == nil:
		return c.complete(ctx, ledger.Done, Sent, id)
	case errors.As(err, &refused):
		return c.complete(ctx, ledger.Terminal, refused.Outcome, "")
	}
	return c.failed(err, inherited)
}

// reconcile finds out what became of the call of an earlier claim. It is over unless a request, under
// the same key, cannot become a second reminder; or unless the reminder is not to be sent any more, and
// the provider says that it was not.
func (c *claim) reconcile(ctx context.Context, todo plan) (res job.Result, over bool) {
	can := c.Provider.Abilities()
	if can.LooksUp {
		call, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		id, err := c.Provider.Lookup(call, c.e.ProviderKey)
		var refused *RefusedError
		switch {
		case err == nil:
			return c.complete(ctx, ledger.Done, Sent, id), true
		case errors.As(err, &refused):
			return c.complete(ctx, ledger.Terminal, refused.Outcome, ""), true
		case !errors.Is(err, ErrNotFound):
			return c.failed(fmt.Errorf("look up an earlier request: %w", err), true), true
		}
	}
	// Past the window the provider may have forgotten the key, so neither its "not found" nor its
	// deduplication is worth anything. No request under it is older than CalledFrom.
	remembered := c.Now().Add(c.Timeout + c.LeaseSkew).Before(c.e.CalledFrom.Add(can.KeyWindow))
	switch {
	case !remembered:
		return c.ambiguous("the provider may have forgotten the key of an earlier request, whose outcome nobody recorded"), true
	case !todo.sends() || !c.Now().Before(c.p.ExpiresAt):
		if can.LooksUp {
			return job.Result{}, false
		}
		return c.ambiguous("the reminder is not wanted any more, and the provider cannot tell whether an earlier request was accepted"), true
	case !can.Deduplicates:
		// Also after a "not found": the earlier request may still be on its way.
		return c.ambiguous("the outcome of an earlier request is unknown, and the provider would take another one for a second reminder"), true
	}
	return job.Result{}, false
}

func (c *claim) ambiguous(why string) job.Result {
	return job.Result{Err: &job.Failure{Class: job.Ambiguous, Unresolved: true, Err: errors.New(why)}}
}

// failed is the result of a call that failed. What nobody classified may have been accepted; and what
// was unresolved before is so still, whatever became of this call.
func (c *claim) failed(err error, inherited bool) job.Result {
	var known *job.Failure
	f := job.AsFailure(err)
	f.Unresolved = f.Unresolved || inherited || !errors.As(err, &known)
	return job.Result{Err: f}
}

// complete ends the claim. Who lost it appends what it learned, and leaves its delivery to whoever has
// the job now.
func (c *claim) complete(ctx context.Context, status ledger.Status, outcome, requestID string) job.Result {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), 0)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left+completeGrace)
	defer cancel()
	found, err := c.Ledger.UpdateFrom(ctx, c.e, c.d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return c.Rules.CompleteClaim(e, c.d, status, outcome, requestID, c.Now())
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
		_, learning := c.Ledger.Learn(ctx, c.Rules, c.d.Key, ledger.Evidence{
			At: c.Now(), Token: c.d.Token, RequestID: requestID, Note: "accepted; the claim was lost meanwhile"})
		err = errors.Join(err, learning)
	}
	return job.Result{Verdict: job.Unconfirmed, Err: err}
}
