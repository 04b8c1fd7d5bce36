package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// ended is how a run's loop ends. It is an error so that every step may end it.
type ended struct {
	state State
	why   string
}

func (e *ended) Error() string { return string(e.state) + ": " + e.why }

func end(state State, format string, args ...any) error {
	return &ended{state, fmt.Sprintf(format, args...)}
}

func (s *Service) run(ctx context.Context, req Request) (Response, error) {
	var response Response
	if req.Message != "" {
		if req.By == "" || req.Reason == "" {
			return Response{}, refuse("run with a message makes a plan, and needs a name (by) and a reason")
		}
		p, _, sc, err := s.makePlan(ctx, req, Filter{Messages: []string{req.Message}})
		if err != nil {
			return Response{Scan: &sc}, err
		}
		req.Plan, response.Plan = p.ID, &p
	}
	if req.Run == "" {
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return Response{}, err
		}
		existing, err := s.table.Get(ctx, pkRun(p.Run), skRun)
		if err != nil {
			return Response{}, err
		}
		if existing.Version > 0 { // a client that tries again, or another invocation was first
			return s.statusOf(ctx, p.Run, response)
		}
		response.Plan = &p
		switch {
		case past(p.ExpiresAt, s.now()):
			return response, refuse("the plan expired at %s: make a new one", stamp(p.ExpiresAt))
		case p.Approval != "" && p.ApprovedBy == "":
			return response, refuse("plan %s needs an approval: %s", p.ID, p.Approval)
		}
		if err := s.free(ctx, p.Run); err != nil {
			return response, err
		}
		run := Run{
			ID: p.Run, Plan: p.ID, State: Paused, Why: "not begun", By: cmp.Or(req.By, p.By), Reason: cmp.Or(req.Reason, p.Reason),
			Source: s.names.DLQ, Destination: s.names.RecoveryQueue, StartedAt: s.now().UTC(),
			Total: p.Actions[Redrive] + p.Actions[Remove], Counts: map[Step]int{}, RatePerSecond: p.RatePerSecond,
		}
		if err := s.create(ctx, pkRun(run.ID), skRun, run); errors.Is(err, ErrChanged) {
			return s.statusOf(ctx, run.ID, response)
		} else if err != nil {
			return response, err
		}
		req.Run = run.ID
	}
	view, err := s.proceed(ctx, req.Run)
	response.Run = view
	return response, err
}

// free refuses while another run is going on.
func (s *Service) free(ctx context.Context, run string) error {
	l, _, err := s.readLock(ctx)
	if err == nil && l.live(s.now()) && l.Run != run {
		err = refuse("run %s is going on: one run at a time", l.Run)
	}
	return err
}

// proceed takes the lock and works on a run until it ends or pauses. A run that somebody works on is
// only told.
func (s *Service) proceed(ctx context.Context, id string) (*RunView, error) {
	run, rec, err := s.readRun(ctx, id)
	if err != nil {
		return nil, err
	}
	switch run.State {
	case Done, Revoked, Aborted:
		return &RunView{Run: run}, nil
	}
	if err := s.free(ctx, id); err != nil {
		return &RunView{Run: run}, err
	}
	l, lrec, err := s.readLock(ctx)
	if err != nil {
		return nil, err
	}
	if l.live(s.now()) {
		return &RunView{Run: run}, nil
	}
	// Refused before anything is taken: a run against the switch would only stop at once.
	if sw, err := s.readSwitch(ctx); err != nil {
		return &RunView{Run: run}, refuse("the kill switch cannot be read, which counts as stopped: %v", err)
	} else if sw.On {
		return &RunView{Run: run}, refuse("the kill switch is on (%s: %s): resume first", sw.By, sw.Reason)
	}
	p, _, err := s.readPlan(ctx, run.Plan)
	if err != nil {
		return nil, err
	}
	d := &drive{s: s, run: run, rec: rec, plan: p, mine: s.hold()}
	d.lock = lock{Run: id, Owner: s.newID(), Fence: l.Fence + 1, Until: s.now().Add(s.numbers.LockLease)}
	if d.lrec, err = s.put(ctx, lrec, d.lock); errors.Is(err, ErrChanged) {
		return &RunView{Run: run}, nil // somebody else was first
	} else if err != nil {
		return nil, err
	}
	return d.work(ctx)
}
