package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// pkPauses is the key of the document that names the paused kinds.
const pkPauses = "pauses"

// maxPaused bounds how many kinds may be paused.
const maxPaused = 100

// KindState is what operators see of a kind.
type KindState struct {
	Kind string `json:"kind"`
	// PerSecond is the kind's own bound on attempts a second; 0 when it has none.
	PerSecond float64 `json:"perSecond,omitempty"`
	// Masked are the payload's top-level fields that are never shown. It is absent for a kind that this version does
	// not know, and for an answer of an older version: then it is not known which fields may be shown.
	Masked []string `json:"masked,omitzero"`
	// Paused says who paused the kind, if anybody did.
	Paused *Pause `json:"paused,omitempty"`
}

// Pause is an operator's decision that no attempt at a kind's jobs starts.
type Pause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// pauses are the paused kinds. The document never expires: a pause lasts until somebody ends it.
type pauses struct {
	Kinds map[string]Pause `json:"kinds"`
}

func readPauses(ctx context.Context, table Table) (pauses, Record, error) {
	rec, err := table.Get(ctx, pkPauses, pkPauses)
	if err != nil || rec.Version == 0 {
		return pauses{Kinds: map[string]Pause{}}, rec, err
	}
	p, err := decode[pauses](rec)
	if p.Kinds == nil {
		p.Kinds = map[string]Pause{}
	}
	return p, rec, err
}

// kindsOf answers with the kinds that this version knows, and with all that are paused.
func (s *Service) kindsOf(ctx context.Context, _ Request) (Response, error) {
	p, _, err := readPauses(ctx, s.table)
	if err != nil {
		return Response{}, err
	}
	return Response{Kinds: s.kindStates(p)}, nil
}

func (s *Service) kindStates(p pauses) []KindState {
	states := []KindState{}
	known := map[string]bool{}
	paused := func(name string) *Pause {
		if one, ok := p.Kinds[name]; ok {
			return &one
		}
		return nil
	}
	for _, k := range s.kinds.Kinds() {
		known[k.Name] = true
		states = append(states, KindState{Kind: k.Name, PerSecond: k.PerSecond, Masked: append([]string{}, k.Masked...), Paused: paused(k.Name)})
	}
	for name := range p.Kinds {
		if !known[name] {
			states = append(states, KindState{Kind: name, Paused: paused(name)})
		}
	}
	slices.SortFunc(states, func(a, b KindState) int { return cmp.Compare(a.Kind, b.Kind) })
	return states
}

// pauseKind tells the worker to start no attempt at the kind's jobs.
func (s *Service) pauseKind(ctx context.Context, req Request) (Response, error) {
	return s.setPause(ctx, req, true)
}

// unpauseKind ends a pause.
func (s *Service) unpauseKind(ctx context.Context, req Request) (Response, error) {
	return s.setPause(ctx, req, false)
}

func (s *Service) setPause(ctx context.Context, req Request, on bool) (Response, error) {
	if req.Kind == "" {
		return Response{}, refuse("%s needs a kind, one of %s", req.Action, strings.Join(s.kinds.Names(), ", "))
	}
	for range tries {
		p, rec, err := readPauses(ctx, s.table)
		if err != nil {
			return Response{}, err
		}
		_, is := p.Kinds[req.Kind]
		what := auditUnpaused
		switch {
		case on && !s.kinds.Known(req.Kind):
			return Response{}, refuse("nobody knows the kind %q, want one of %s", req.Kind, strings.Join(s.kinds.Names(), ", "))
		case on && len(p.Kinds) >= maxPaused && !is:
			return Response{}, refuse("%d kinds are paused already", len(p.Kinds))
		case on:
			what = auditPaused
			p.Kinds[req.Kind] = Pause{By: req.By, Reason: req.Reason, At: s.now().UTC()}
		case !is:
			return Response{Kinds: s.kindStates(p)}, refuse("the kind %q is not paused", req.Kind)
		default:
			delete(p.Kinds, req.Kind)
		}
		if rec.Doc, err = encode(p); err != nil {
			return Response{}, fmt.Errorf("pause: %w", err)
		}
		if _, err := s.table.Put(ctx, rec); errors.Is(err, ErrChanged) {
			continue // somebody pauses another kind
		} else if err != nil {
			return Response{}, err
		}
		return Response{Kinds: s.kindStates(p)}, s.record(ctx, []AuditRecord{s.deed(req, req.Kind, what)})
	}
	return Response{}, ErrChanged
}
