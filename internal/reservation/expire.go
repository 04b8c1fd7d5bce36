package reservation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Expirer runs expiry jobs. The key and the transition commit in one transaction, so no lease is
// needed: of any number of deliveries one commits and the others find the entry final.
type Expirer struct {
	store *Store
	rules ledger.Rules
	queue perResource
}

// NewExpirer returns an expirer on the store.
func NewExpirer(s *Store, rules ledger.Rules) *Expirer {
	return &Expirer{store: s, rules: rules}
}

// Kind is the kind of job that expires a hold. A late expiry still runs: the units are owed to
// somebody. x may be nil where jobs are only read.
func Kind(x *Expirer) job.Kind {
	return job.Kind{
		Name: KindName,
		Late: job.RunLate,
		Key: func(raw jsonValue) (key, subject string, err error) {
			p, err := readPayload(raw)
			if err != nil {
				return "", "", err
			}
			key, err = p.Key()
			return key, p.ReservationID, err
		},
		Run: x.run,
	}
}

// startOvers bounds how often a job looks again at a reservation that moved under its eyes; each
// time it moved one state further, and there are only two to move through.
const startOvers = 3

func (x *Expirer) run(ctx context.Context, d job.Delivery) job.Result {
	p, err := readPayload(d.Envelope.Payload)
	if err != nil {
		return job.Result{Err: err}
	}
	// Expiries of one resource in one batch take turns; side by side their transactions would
	// cancel each other.
	done, err := x.queue.enter(ctx, p.ResourceID)
	if err != nil {
		return job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("wait for resource %s: %w", p.ResourceID, err)}
	}
	defer done()

	for range startOvers {
		res, moved := x.release(ctx, d, p)
		if !moved {
			return res
		}
	}
	return job.Result{Verdict: job.Blocked, Err: fmt.Errorf("reservation %s kept moving: %w", p.ReservationID, ledger.ErrContended)}
}

// release ends the job in one transaction if the hold is stale. moved is true when the reservation
// changed between two looks and the caller has to look again.
func (x *Expirer) release(ctx context.Context, d job.Delivery, p Payload) (res job.Result, moved bool) {
	s := x.store
	err := s.ledger.Commit(ctx, x.complete(d, Released), s.change(p, Held, Expired), s.returnUnits(p))
	var refused *dynamo.ItemError
	if !errors.As(err, &refused) {
		return x.result(d, Released, err), false
	}
	if refused.Index == 1 {
		return rejected("resource %s of reservation %s does not exist", p.ResourceID, p.ReservationID), false
	}
	found, err := s.found(ctx, p.ReservationID, refused.Item)
	if errors.Is(err, ErrNotFound) {
		return rejected("reservation %s does not exist", p.ReservationID), false
	} else if err != nil {
		return x.result(d, "", err), false
	}
	switch {
	case found.Payload != p:
		return rejected("reservation %s is held by command %q for %d units of %q, the job says command %q for %d units of %q",
			p.ReservationID, found.CommandID, found.Units, found.ResourceID, p.CommandID, p.Units, p.ResourceID), false
	case found.State == Confirmed || found.State == Expired || found.State == Abandoned:
		// These states are never left under this command, so no condition is needed on them.
		return x.result(d, Superseded, s.ledger.Commit(ctx, x.complete(d, Superseded))), false
	case found.ExpiresAt.After(s.now()):
		return job.Result{Verdict: job.Blocked, Until: found.ExpiresAt,
			Err: fmt.Errorf("reservation %s is held until %s", p.ReservationID, found.ExpiresAt.Format(time.RFC3339))}, false
	case found.State == Placing:
		// Nobody took units yet. From here on nobody can: a late commit finds "abandoned".
		err := s.ledger.Commit(ctx, x.complete(d, Superseded), s.change(p, Placing, Abandoned))
		if errors.As(err, &refused) {
			return job.Result{}, true
		}
		return x.result(d, Superseded, err), false
	}
	return job.Result{}, true
}

func (x *Expirer) complete(d job.Delivery, outcome string) ledger.Completion {
	return x.rules.Complete(d, ledger.Done, outcome, x.store.now())
}

// result turns a commit's error into a result.
func (x *Expirer) result(d job.Delivery, outcome string, err error) job.Result {
	var refused *ledger.RefusedError
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: outcome}
	case errors.As(err, &refused):
		return refused.Entry.Refusal(d.Token, x.store.now())
	case errors.Is(err, ledger.ErrContended):
		return job.Result{Verdict: job.Blocked, Err: err}
	case errors.Is(err, ledger.ErrUnavailable):
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	return job.Result{Err: err}
}

func rejected(format string, args ...any) job.Result {
	return job.Result{Err: &job.Failure{Class: job.Rejected, Err: fmt.Errorf(format, args...)}}
}

// perResource lets one goroutine at a time work on a resource.
type perResource struct {
	mu     sync.Mutex
	queues map[string]*turn
}

type turn struct {
	taken   chan struct{}
	waiting int
}

func (q *perResource) enter(ctx context.Context, id string) (leave func(), err error) {
	q.mu.Lock()
	if q.queues == nil {
		q.queues = map[string]*turn{}
	}
	t := q.queues[id]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		q.queues[id] = t
	}
	t.waiting++
	q.mu.Unlock()

	forget := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(q.queues, id)
		}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
