package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Operators reads the decisions of operators.
type Operators interface {
	// Revoked says whether a redrive's run was revoked. An unknown run was not.
	Revoked(ctx context.Context, run string) (bool, error)
	// Paused returns the kinds that are paused.
	Paused(ctx context.Context) ([]string, error)
}

// runs remembers the answer about each run for one invocation, so that each run is read once.
type runs struct {
	ask   Operators
	mu    sync.Mutex
	known map[string]*reading
}

// reading is the answer about a run, known when done is closed.
type reading struct {
	done    chan struct{}
	revoked bool
	err     error
}

func newRuns(ask Operators) *runs { return &runs{ask: ask, known: map[string]*reading{}} }

func (r *runs) revoked(ctx context.Context, run string) (bool, error) {
	r.mu.Lock()
	one, asked := r.known[run]
	if !asked {
		one = &reading{done: make(chan struct{}), err: errNotRead}
		r.known[run] = one
	}
	r.mu.Unlock()
	if asked {
		<-one.done // the record that reads it has as much time as this one
		return one.revoked, one.err
	}
	defer close(one.done)
	one.revoked, one.err = r.ask.Revoked(ctx, run)
	return one.revoked, one.err
}

// errNotRead stays if reading a run panics.
var errNotRead = errors.New("it was not read")

// checkRun sends a delivery of a revoked run back to the DLQ, if the entry still belongs to that run. So a
// forged run name has no effect. It returns true when the job may run, else the step has its outcome.
func (h *Handler) checkRun(ctx context.Context, s *step) bool {
	revoked, err := s.runs.revoked(ctx, s.Memory.Run)
	if err != nil {
		// Any failure counts as the ledger's trouble, because the runs are kept in the same database.
		h.unread(s, fmt.Errorf("whether run %s is revoked: %w: %w", job.SafeText(s.Memory.Run), ledger.ErrUnavailable, err))
		return false
	}
	if !revoked {
		return true
	}
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.Revoke(e, s.Delivery, s.Memory.Run, h.now())
	})
	switch {
	case errors.Is(err, ledger.ErrOtherRun):
		return true
	case err != nil:
		h.refused(ctx, s, e, err)
	default:
		h.isolate(s, e, job.CauseRevoked)
	}
	return false
}
