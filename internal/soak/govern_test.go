package soak

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// settleAtMost is how many plans are run to their end after the load. The others are revoked.
const settleAtMost = 10

// governance is what the operators share.
type governance struct {
	mu sync.Mutex
	// open are the plans whose run has not said yet that it is at its end.
	open []string
	// working are the redrives at work.
	working map[*redriving]bool
	// flipping is held while one operator has the kill switch.
	flipping sync.Mutex
}

type redriving struct{ done chan struct{} }

// govern plans, approves and runs redrives until ctx ends. Some of them it stops and continues, or revokes, and now
// and then it throws the kill switch. by is its name. The two others approve.
func (r *run) govern(ctx context.Context, random *rand.Rand, by, first, second string) {
	pause := func(least, spread time.Duration) {
		select {
		case <-time.After(least + time.Duration(random.Int64N(int64(spread)))):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(r.size.planning*2/3, r.size.planning)
		answer, err := r.ask(ctx, redrive.Request{Action: "plan", By: by, Select: &redrive.Filter{Classes: []job.Class{job.Transient, job.Throttled, job.ClassUnknown, job.Rejected}}})
		if err != nil || answer.Plan == nil || answer.Refused != "" {
			continue
		}
		plan := answer.Plan
		r.mu.Lock()
		r.open = append(r.open, plan.ID)
		r.mu.Unlock()
		var both sync.WaitGroup
		for _, name := range []string{first, second} { // at the same time
			both.Go(func() { r.approve(ctx, plan.ID, name) })
		}
		both.Wait()
		switch kind := random.IntN(8); kind {
		case 0: // revoke a plan that never ran
			_, _ = r.ask(ctx, redrive.Request{Action: "revoke", By: by, Plan: plan.ID})
		case 1, 2, 3: // meanwhile, stop and continue, revoke or throw the switch
			both.Go(func() { r.complete(ctx, by, plan.ID) })
			both.Go(func() {
				pause(100*time.Millisecond, 2*time.Second)
				switch kind {
				case 1:
					_, _ = r.ask(ctx, redrive.Request{Action: "stop", By: first, Run: plan.Run})
				case 2:
					_, _ = r.ask(ctx, redrive.Request{Action: "revoke", By: first, Run: plan.Run})
				case 3:
					r.throw(ctx, first, plan.ID)
				}
			})
			both.Wait()
			r.complete(ctx, by, plan.ID)
		case 4: // two operators run it at the same time
			both.Go(func() { r.complete(ctx, first, plan.ID) })
			r.complete(ctx, by, plan.ID)
			both.Wait()
		default:
			r.complete(ctx, by, plan.ID)
		}
	}
}

// approve approves a plan, and records who its approver is.
func (r *run) approve(ctx context.Context, plan, by string) {
	answer, err := r.ask(ctx, redrive.Request{Action: "approve", By: by, Plan: plan})
	if err == nil && answer.Plan != nil && answer.Plan.ApprovedBy != "" {
		r.record.mu.Lock()
		r.record.Approvals[plan] = append(r.record.Approvals[plan], answer.Plan.ApprovedBy)
		r.record.mu.Unlock()
	}
}

// throw throws the kill switch, waits until no redrive is at work that began before, tries to run the plan, and
// releases the switch.
func (r *run) throw(ctx context.Context, by, plan string) {
	r.flipping.Lock()
	defer r.flipping.Unlock()
	defer r.release(by)
	answer, err := r.ask(ctx, redrive.Request{Action: "stop", By: by})
	if err != nil || answer.Switch == nil || !answer.Switch.On {
		return
	}
	r.mu.Lock()
	var before []*redriving
	for w := range r.working {
		before = append(before, w)
	}
	r.mu.Unlock()
	for _, w := range before {
		select {
		case <-w.done:
		case <-ctx.Done():
			return
		}
	}
	from := r.record.now()
	_, _ = r.ask(ctx, redrive.Request{Action: "run", By: by, Plan: plan})
	until := r.record.now()
	r.record.mu.Lock()
	r.record.Thrown = append(r.record.Thrown, Window{From: from, Until: until})
	r.record.mu.Unlock()
}

// release releases the kill switch. Faults may refuse it for a while.
func (r *run) release(by string) {
	for r.Context().Err() == nil {
		if answer, err := r.ask(r.Context(), redrive.Request{Action: "resume", By: by}); err == nil && answer.Switch != nil && !answer.Switch.On {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask invokes the redrive function.
func (r *run) ask(ctx context.Context, q redrive.Request) (redrive.Response, error) {
	q.Reason = "soak"
	raw, err := json.Marshal(q)
	must(err)
	if ctx.Err() != nil {
		return redrive.Response{}, ctx.Err()
	}
	work := &redriving{done: make(chan struct{})}
	r.mu.Lock()
	if r.working == nil {
		r.working = map[*redriving]bool{}
	}
	if q.Action == "run" {
		r.working[work] = true
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.working, work)
		r.mu.Unlock()
		close(work.done)
	}()
	var answer redrive.Response
	// The function goes on without its client, so the end of the load does not end the call.
	out, err := r.env.Invoke(r.Context(), r.redriver, raw)
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	return answer, err
}

// complete runs a plan until its run is at its end, and records what the run says.
func (r *run) complete(ctx context.Context, by, plan string) {
	for range 3 {
		answer, err := r.ask(ctx, redrive.Request{Action: "run", By: by, Plan: plan})
		if err != nil || answer.Run == nil {
			continue
		}
		run := *answer.Run
		if run.State != redrive.Done && run.State != redrive.Revoked {
			continue
		}
		r.mu.Lock()
		first := false
		for i, id := range r.open {
			if id == plan {
				r.open, first = append(r.open[:i:i], r.open[i+1:]...), true
				break
			}
		}
		r.mu.Unlock()
		if !first {
			return
		}
		said := Run{
			ID: run.ID, Succeeded: run.Endings[redrive.Succeeded], Named: run.Names[redrive.Succeeded], Gone: run.Names[redrive.Gone],
			Done: run.State == redrive.Done, Total: run.Total,
		}
		for _, n := range run.Endings {
			said.Endings += n
		}
		r.record.mu.Lock()
		r.record.Runs = append(r.record.Runs, said)
		r.record.mu.Unlock()
		return
	}
}

// settle brings the plans that are left to an end.
func (r *run) settle() {
	for i, plan := range append([]string(nil), r.open...) {
		if i >= settleAtMost {
			_, _ = r.ask(r.Context(), redrive.Request{Action: "revoke", By: "ada", Plan: plan})
		}
		r.complete(r.Context(), "ada", plan)
	}
}
