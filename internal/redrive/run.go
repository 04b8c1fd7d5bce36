package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ended is how a round of a run ends. It is an error so that every step may end it.
type ended struct {
	state State
	code  Code
	why   string
}

func (e *ended) Error() string { return string(e.state) + ": " + e.why }

func halt(code Code, format string, args ...any) error {
	return &ended{Halted, code, fmt.Sprintf(format, args...)}
}

// run creates the run of a plan or continues it. A run that somebody works on, or that has ended, is only
// told, so that a client that tries again does no harm.
func (s *Service) run(ctx context.Context, req Request) (Response, error) {
	var response Response
	one := req.Message != "" || req.Job != ""
	named := 0
	for _, id := range []string{req.Plan, req.Run, req.Message, req.Job} {
		if id != "" {
			named++
		}
	}
	switch {
	case named > 1:
		return Response{}, refuse("run takes one of plan, run, message and job")
	case !one && (req.RatePerSecond != 0 || req.Canary != 0):
		return Response{}, refuse("run does nothing with ratePerSecond or canary unless it makes a plan of a message or a job: a plan has its own")
	case one && (req.By == "" || req.Reason == ""):
		return Response{}, refuse("run with a message or a job makes a plan, and needs a name (by) and a reason")
	}
	// Before anything exists: a run against the switch would only halt at once.
	if err := s.switchedOff(ctx); err != nil {
		return response, err
	}
	if one {
		f := Filter{Keys: []string{req.Job}}
		if req.Message != "" {
			f = Filter{Messages: []string{req.Message}}
		}
		p, _, sc, err := s.makePlan(ctx, req, f)
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
		if existing.Version == 0 {
			response.Plan = &p
			if err := s.begin(ctx, req, p); err != nil {
				return response, err
			}
		}
		req.Run = p.Run
	}
	if req.Begin {
		run, _, err := s.readRun(ctx, req.Run)
		if err == nil && run.State != Done && run.State != Revoked {
			err = s.free(ctx, run.ID)
		}
		response.Run = &run
		return response, err
	}
	run, err := s.proceed(ctx, req)
	response.Run = run
	return response, err
}

// begin creates a plan's run. When somebody else was first, theirs is as good.
func (s *Service) begin(ctx context.Context, req Request, p Plan) error {
	switch {
	case past(p.ExpiresAt, s.now()):
		return refuse("the plan expired at %s: make a new one", stamp(p.ExpiresAt))
	case p.Approval != "" && p.ApprovedBy == "":
		return refuse("plan %s needs an approval: %s", p.ID, p.Approval)
	}
	if err := s.free(ctx, p.Run); err != nil {
		return err
	}
	run := s.newRun(req, p)
	if err := s.create(ctx, pkRun(run.ID), skRun, run); !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}

func (s *Service) newRun(req Request, p Plan) Run {
	return Run{
		ID: p.Run, Plan: p.ID, State: Halted, Code: HaltNotBegun, By: cmp.Or(req.By, p.By), Reason: cmp.Or(req.Reason, p.Reason),
		Source: s.names.DLQ, Destination: s.names.RecoveryQueue, StartedAt: s.now().UTC(),
		Total: p.most(), Counts: map[Step]int{}, Endings: map[Ending]int{}, RatePerSecond: p.RatePerSecond,
	}
}

// switchedOff refuses while the kill switch is on.
func (s *Service) switchedOff(ctx context.Context) error {
	sw, err := s.readSwitch(ctx)
	switch {
	case err != nil:
		return refuse("the kill switch cannot be read, which counts as on: %v", err)
	case sw.On:
		return refuse("the kill switch is on (%s: %s): resume first", sw.By, sw.Reason)
	}
	return nil
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
func (s *Service) proceed(ctx context.Context, req Request) (*Run, error) {
	id := req.Run
	run, rec, err := s.readRun(ctx, id)
	if err != nil {
		return nil, err
	}
	if run.State == Done || run.State == Revoked {
		return &run, nil
	}
	if err := s.free(ctx, id); err != nil {
		return &run, err
	}
	l, lrec, err := s.readLock(ctx)
	if err != nil {
		return nil, err
	}
	if l.live(s.now()) {
		return &run, nil
	}
	p, _, err := s.readPlan(ctx, run.Plan)
	if err != nil {
		return nil, err
	}
	d := &drive{s: s, run: run, rec: rec, plan: p, mine: s.hold()}
	d.lock = lock{Run: id, Owner: s.newID(), Fence: l.Fence + 1, Until: s.now().Add(s.numbers.LockLease)}
	if d.lrec, err = s.put(ctx, lrec, d.lock); errors.Is(err, ErrChanged) {
		return &run, nil // somebody else was first
	} else if err != nil {
		return nil, err
	}
	what := auditContinued
	if run.Rounds == 0 {
		what = auditRan
	}
	if err := s.record(ctx, []AuditRecord{s.deed(req, id, what)}); err != nil {
		d.lock.Owner, d.lock.Until = "", time.Time{}
		_, _ = s.put(ctx, d.lrec, d.lock) // else it ends by itself
		return &run, err
	}
	return d.work(ctx)
}
