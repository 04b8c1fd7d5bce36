package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// State is where a run stands.
type State string

// The states. A paused or stopped run can be continued; nothing continues the others.
const (
	Planned State = "planned" // no run yet
	Active  State = "active"
	Paused  State = "paused"
	// Stopped by a condition or by the kill switch.
	Stopped State = "stopped"
	Done    State = "done"
	// Aborted: it may not send at all.
	Aborted State = "aborted"
	Revoked State = "revoked"
)

// The states of a canary.
const (
	canarySent   = "sent"
	canaryPassed = "passed"
	canaryPeople = "for people to judge"
)

// Watched is a redriven job whose outcome a run looks at.
type Watched struct {
	Job        string `json:"job"`
	Generation int    `json:"generation"`
	Canary     bool   `json:"canary,omitempty"`
	// Verdict is empty until there is one, then succeeded or failed; Why is what the ledger said.
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Run is what is stored of a run. Every write is conditional on the version that was read, so that of
// two owners one finds out at its next cohort.
type Run struct {
	ID     string `json:"id"`
	Plan   string `json:"plan"`
	State  State  `json:"state"`
	Why    string `json:"why,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Source and Destination are the queues.
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	StartedAt   time.Time `json:"startedAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	// Total is how many messages there are to move or remove; Counts is what became of them.
	Total  int            `json:"total"`
	Counts map[string]int `json:"counts"`
	// Waiting messages were not seen while others hold messages of the DLQ.
	Waiting       int       `json:"waiting,omitempty"`
	RatePerSecond int       `json:"ratePerSecond"`
	Canary        string    `json:"canary,omitempty"`
	CanaryUntil   time.Time `json:"canaryUntil,omitzero"`
	Watched       []Watched `json:"watched,omitempty"`
	// Fence is the number of the lock it was last continued under.
	Fence     int64     `json:"fence"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// RunView is a run as it is answered.
type RunView struct {
	Run
	// OwnerGone says that the run is active and nobody works on it: run it again.
	OwnerGone bool `json:"ownerGone,omitempty"`
}

// gone is the count of messages that were planned and are not on the DLQ any more.
const countGone = "gone"

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
		existing, err := s.Table.Get(ctx, pkRun(p.Run), skRun)
		if err != nil {
			return Response{}, err
		}
		if existing.Version > 0 { // a client that tries again, or another invocation was first
			return s.statusOf(ctx, p.Run, response)
		}
		response.Plan = &p
		switch {
		case past(p.ExpiresAt, s.Now()):
			return response, refuse("the plan expired at %s: make a new one", stamp(p.ExpiresAt))
		case p.Approval != "" && p.ApprovedBy == "":
			return response, refuse("plan %s needs an approval: %s", p.ID, p.Approval)
		}
		if err := s.free(ctx, p.Run); err != nil {
			return response, err
		}
		run := Run{
			ID: p.Run, Plan: p.ID, State: Paused, Why: "not begun", By: cmp.Or(req.By, p.By), Reason: cmp.Or(req.Reason, p.Reason),
			Source: s.Names.DLQ, Destination: s.Names.RecoveryQueue, StartedAt: s.Now().UTC(),
			Total: p.Actions[Redrive] + p.Actions[Remove], Counts: map[string]int{}, RatePerSecond: p.RatePerSecond,
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

func (s *Service) readRun(ctx context.Context, id string) (Run, Record, error) {
	if id == "" {
		return Run{}, Record{}, refuse("the run is not named")
	}
	rec, err := s.Table.Get(ctx, pkRun(id), skRun)
	if err != nil {
		return Run{}, rec, err
	}
	if rec.Version == 0 {
		return Run{}, rec, refuse("there is no run %s", id)
	}
	run, err := decode[Run](rec)
	if run.Counts == nil {
		run.Counts = map[string]int{}
	}
	return run, rec, err
}

// lock is the document that one run at a time holds.
type lock struct {
	Run   string    `json:"run"`
	Owner string    `json:"owner"`
	Fence int64     `json:"fence"`
	Until time.Time `json:"until"`
}

func (l lock) live(now time.Time) bool { return l.Owner != "" && now.Before(l.Until) }

func (s *Service) readLock(ctx context.Context) (lock, Record, error) {
	rec, err := s.Table.Get(ctx, pkLock, pkLock)
	if err != nil || rec.Version == 0 {
		return lock{}, rec, err
	}
	l, err := decode[lock](rec)
	return l, rec, err
}

// free refuses while another run is going on.
func (s *Service) free(ctx context.Context, run string) error {
	l, _, err := s.readLock(ctx)
	if err == nil && l.live(s.Now()) && l.Run != run {
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
	if l.live(s.Now()) {
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
	d := &drive{Service: s, run: run, rec: rec, plan: p, mine: s.hold()}
	d.lock = lock{Run: id, Owner: s.ID(), Fence: l.Fence + 1, Until: s.Now().Add(s.Numbers.LockLease)}
	if d.lrec, err = s.put(ctx, lrec, d.lock); errors.Is(err, ErrChanged) {
		return &RunView{Run: run}, nil // somebody else was first
	} else if err != nil {
		return nil, err
	}
	return d.work(ctx)
}
