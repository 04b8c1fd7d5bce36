package acklast

import (
	"context"
	"fmt"
	"sync"

	"acklast/internal/job"
)

// Fact is one thing that a kind's own records say about a subject: a Name such as "state", and its Value.
type Fact = job.Fact

// Explainer is a Runner that can say what its kind's own records hold. "acklast job" shows the facts
// beside what the ledger knows.
type Explainer interface {
	// Explain returns what the kind's records say about a subject, in the order in which people read it, or
	// nothing when there is no record. It only reads: the redrive function calls it, which may read the
	// kind's tables and may not write them. Never return a recipient or a secret.
	Explain(ctx context.Context, subject string) ([]Fact, error)
}

// starts builds runners in a function that runs no jobs, each when it is first asked for. A kind whose
// runner cannot be built there, for want of a variable, is in nobody's way until then.
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
