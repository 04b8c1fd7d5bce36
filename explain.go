package acklast

import (
	"context"
	"fmt"
	"sync"

	"acklast/internal/job"
)

// Fact is one field of a kind's own records about a subject: a Name such as "state", and its Value.
type Fact = job.Fact

// Explainer is a Runner that can report its kind's own records. "acklast job" shows them beside the ledger's
// entry.
type Explainer interface {
	// Explain returns the facts of the kind's records about a subject, in the order in which people read them,
	// or nothing when there is no record. It only reads: the redrive function calls it and has no permission to
	// write. Never return a recipient or a secret.
	Explain(ctx context.Context, subject string) ([]Fact, error)
}

// starts builds runners in a function that runs no jobs, each when it is first needed. If a runner cannot be
// built there, because a variable is missing, only requests for its own kind fail.
type starts struct {
	kinds    []Kind
	services Services

	mu      sync.Mutex
	started map[string]job.Kind
}

func (s *starts) start(ctx context.Context, name string) (job.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.started[name]; ok {
		return k, nil
	}
	for _, k := range s.kinds {
		if k.kind.Name != name {
			continue
		}
		running, err := k.start(ctx, s.services)
		if err != nil {
			return job.Kind{}, err
		}
		if s.started == nil {
			s.started = map[string]job.Kind{}
		}
		s.started[name] = running
		return running, nil
	}
	return job.Kind{}, fmt.Errorf("kind %q is not known to this redrive function", name)
}
