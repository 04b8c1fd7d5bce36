package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"acklast/internal/job"
)

// gather lets the first attempts of a batch meet, so that jobs of one kind that share something run together.
// All records of the batch must be running at the same time.
type gather struct {
	complete chan struct{} // closed when every step has arrived

	mu      sync.Mutex
	missing int
	groups  map[shared]*group
}

// shared identifies a group: the kind, and the kind's name of the thing that its jobs share.
type shared struct{ kind, name string }

type group struct {
	members []*step
	ran     chan struct{}        // closed when the results are known
	results map[*step]job.Result // the results of the jobs that ran together
}

func newGather(steps int) *gather {
	return &gather{complete: make(chan struct{}), missing: steps, groups: map[shared]*group{}}
}

// arrive reports that the step is at its first attempt, or at its end. Only the first call counts. It returns
// the group of the steps with the same name, or nil if the name is empty.
func (g *gather) arrive(s *step, name string) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.arrived {
		return nil
	}
	s.arrived = true
	var of *group
	if name != "" {
		what := shared{s.read.Kind.Name, name}
		if of = g.groups[what]; of == nil {
			of = &group{ran: make(chan struct{})}
			g.groups[what] = of
		}
		of.members = append(of.members, s)
	}
	if g.missing--; g.missing == 0 {
		close(g.complete)
	}
	return of
}

// meet makes the first attempt at a step's job: together with the jobs of the batch that share something
// with it, if there are any.
func (h *Handler) meet(ctx context.Context, s *step) job.Result {
	if s.gather == nil {
		return h.attempt(ctx, s)
	}
	group := s.gather.arrive(s, s.shares)
	if group == nil {
		return h.attempt(ctx, s)
	}
	<-s.gather.complete
	if group.members[0] == s {
		h.together(ctx, group)
	}
	<-group.ran
	if result, ok := group.results[s]; ok {
		return result
	}
	return h.attempt(ctx, s)
}

// together runs the group's jobs in one attempt. If a job has several copies, only one takes part; the others
// run after it, alone. If the attempt panics, every job runs alone, so that only the one that panics fails.
func (h *Handler) together(ctx context.Context, g *group) {
	defer close(g.ran)
	steps := slices.Clone(g.members)
	slices.SortFunc(steps, func(a, b *step) int { return cmp.Compare(a.Key, b.Key) })
	steps = slices.CompactFunc(steps, func(a, b *step) bool { return a.Key == b.Key })
	if len(steps) < 2 {
		return
	}
	deliveries := make([]job.Delivery, len(steps))
	for i, s := range steps {
		deliveries[i] = s.Delivery
	}
	results, panicked := h.timed(ctx, steps, func(ctx context.Context) []job.Result {
		return steps[0].read.Kind.RunBatch(ctx, deliveries)
	})
	if panicked != nil {
		return
	}
	g.results = make(map[*step]job.Result, len(steps))
	for i, s := range steps {
		g.results[s] = results[i]
	}
}
