package reservation

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"acklast"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

//go:embed sample.json
var sample string

// Kind is the kind of job that expires a hold. A late expiry still runs: the units belong to the resource. The
// key and the transition commit in one transaction, so no lease is needed. Of any number of deliveries one
// commits, and the others find the entry final.
func Kind() acklast.Kind {
	return acklast.Define(acklast.Definition[Payload]{
		Name:  KindName,
		Key:   func(p Payload) (string, []string) { return p.ReservationID, []string{p.CommandID} },
		Check: Payload.Check,
		Late:  acklast.RunLate,
		Tables: []acklast.Table{
			{Name: reservations, PartitionKey: "reservation_id"},
			{Name: resources, PartitionKey: "resource_id"},
		},
		// An expiry changes an existing reservation and gives its units back.
		Grants: func(func(string) string) ([]acklast.Grant, error) {
			return []acklast.Grant{
				{Table: reservations, Actions: []string{"dynamodb:GetItem", "dynamodb:UpdateItem"}},
				{Table: resources, Actions: []string{"dynamodb:UpdateItem"}},
			}, nil
		},
		Samples: []acklast.Sample{{Name: "reservation-expire", Body: sample}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[Payload], error) {
		return &expirer{store: NewStore(s.DynamoDB, s.Table, s.Now)}, nil
	})
}

// expirer runs expiry jobs.
type expirer struct {
	store *Store
	queue perResource
}

// Explain returns the reservation's state.
func (x *expirer) Explain(ctx context.Context, reservationID string) ([]acklast.Fact, error) {
	r, err := x.store.Get(ctx, reservationID)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []acklast.Fact{
		{Name: "reservation", Value: r.ReservationID},
		{Name: "state", Value: string(r.State)},
		{Name: "command", Value: r.CommandID},
		{Name: "resource", Value: r.ResourceID},
		{Name: "units", Value: strconv.FormatInt(r.Units, 10)},
		{Name: "expires", Value: r.ExpiresAt.Format(time.RFC3339Nano)},
		{Name: "updated", Value: r.UpdatedAt.Format(time.RFC3339Nano)},
	}, nil
}

// startOvers bounds how often a job looks again at a reservation that changed during the attempt. Each change
// is a step to the next state, and there are only two such steps.
const startOvers = 3

// errMoved: the reservation changed between two looks.
var errMoved = errors.New("the reservation moved")

// Run makes one attempt.
func (x *expirer) Run(ctx context.Context, j *acklast.Job[Payload]) error {
	// Expiries of one resource in one process take turns; side by side their transactions would
	// cancel each other.
	done, err := x.queue.enter(ctx, j.Payload.ResourceID)
	if err != nil {
		return acklast.Contended("wait for the resource: " + err.Error())
	}
	defer done()
	return x.release(ctx, j)
}

// Together is the resource: every expiry changes its item.
func (x *expirer) Together(p Payload) string { return p.ResourceID }

// RunBatch expires holds on one resource in one transaction, which returns the units of all of them.
func (x *expirer) RunBatch(ctx context.Context, jobs []*acklast.Job[Payload]) []error {
	errs := make([]error, len(jobs))
	done, err := x.queue.enter(ctx, jobs[0].Payload.ResourceID)
	if err != nil {
		for i := range errs {
			errs[i] = acklast.Contended("wait for the resource: " + err.Error())
		}
		return errs
	}
	defer done()

	var group []*acklast.Job[Payload]
	var places []int
	taken := map[string]bool{}
	for i, j := range jobs {
		if id := j.Payload.ReservationID; !taken[id] { // another command's job would change the same item
			taken[id] = true
			group, places = append(group, j), append(places, i)
		} else {
			errs[i] = errMoved
		}
	}
	s := x.store
	for k, err := range acklast.CommitTogether(ctx, Released, group,
		func(j *acklast.Job[Payload]) []types.TransactWriteItem {
			return []types.TransactWriteItem{s.change(j.Payload, Held, Expired)}
		},
		func(jobs []*acklast.Job[Payload]) []types.TransactWriteItem {
			all := jobs[0].Payload
			for _, j := range jobs[1:] {
				all.Units += j.Payload.Units
			}
			return []types.TransactWriteItem{s.returnUnits(all)}
		}) {
		errs[places[k]] = x.settle(ctx, group[k], err)
	}
	for i, j := range jobs {
		if errors.Is(errs[i], errMoved) {
			errs[i] = x.release(ctx, j)
		}
	}
	return errs
}

// release ends the job in one transaction if the hold is stale. It looks again when the reservation changed
// between two looks.
func (x *expirer) release(ctx context.Context, j *acklast.Job[Payload]) error {
	s, p := x.store, j.Payload
	for range startOvers {
		err := x.settle(ctx, j, j.Commit(ctx, Released, s.change(p, Held, Expired), s.returnUnits(p)))
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	return acklast.Contended("the reservation kept moving")
}

// settle handles the error of a commit. When the reservation refused, it ends the job with another outcome. Its
// error is errMoved when the reservation changed between two looks.
func (x *expirer) settle(ctx context.Context, j *acklast.Job[Payload], err error) error {
	s, p := x.store, j.Payload
	var refused *acklast.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Index == 1 {
		return acklast.Rejected("resource %s of reservation %s does not exist", p.ResourceID, p.ReservationID)
	}
	found, err := s.found(ctx, p.ReservationID, refused.Item)
	if errors.Is(err, ErrNotFound) {
		return acklast.Rejected("reservation %s does not exist", p.ReservationID)
	} else if err != nil {
		return err
	}
	switch {
	case found.Payload != p:
		return acklast.Rejected("reservation %s is held by command %q for %d units of %q, the job says command %q for %d units of %q",
			p.ReservationID, found.CommandID, found.Units, found.ResourceID, p.CommandID, p.Units, p.ResourceID)
	case found.State == Confirmed || found.State == Expired || found.State == Abandoned:
		// A reservation never leaves these states under this command, so no condition on them is needed.
		return j.Commit(ctx, Superseded)
	case found.ExpiresAt.After(s.now()):
		return acklast.NotBefore(found.ExpiresAt, fmt.Sprintf("reservation %s is held", p.ReservationID))
	case found.State == Placing:
		// No units are taken yet. After this commit none can be: a late commit of the producer finds
		// "abandoned".
		if err := j.Commit(ctx, Superseded, s.change(p, Placing, Abandoned)); !errors.As(err, &refused) {
			return err
		}
	}
	return errMoved
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
