package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// tries is how often a small document is written against a run that writes it too.
const tries = 20

// flip sets the switch. Concurrent calls both succeed; the last write wins.
func (s *Service) flip(ctx context.Context, on bool, req Request) (Response, error) {
	for range tries {
		rec, err := s.table.Get(ctx, pkSwitch, pkSwitch)
		if err != nil {
			return Response{}, err
		}
		var before Switch
		if rec.Version > 0 {
			before, _ = decode[Switch](rec) // one that cannot be read counts as on, and is released like any other
		}
		sw := Switch{On: on, By: req.By, Reason: req.Reason, At: s.now().UTC()}
		if _, err = s.put(ctx, rec, sw); errors.Is(err, ErrChanged) {
			continue
		} else if err != nil {
			return Response{}, err
		}
		line := s.deed(req, pkSwitch, auditReleased)
		switch {
		case on:
			line.What = auditStopped
		case before.On: // a person who threw it directly may not have written a line
			line.Why = fmt.Sprintf("%s had thrown it at %s: %s", before.By, stamp(before.At), before.Reason)
		}
		return Response{Switch: &sw}, s.record(ctx, []AuditRecord{line})
	}
	return Response{}, ErrChanged
}

// stop throws the kill switch, or stops one run if one is named. Neither waits for a name or a reason.
func (s *Service) stop(ctx context.Context, req Request) (Response, error) {
	if req.Run == "" {
		return s.flip(ctx, true, req)
	}
	for range tries {
		run, rec, err := s.readRun(ctx, req.Run)
		if err != nil {
			return Response{}, err
		}
		if run.State != Active {
			return Response{Run: &run}, refuse("run %s is %s already", run.ID, run.State)
		}
		run.State, run.Code, run.Why = Halted, HaltStopped, fmt.Sprintf("stopped by %s: %s", req.By, req.Reason)
		if _, err := s.put(ctx, rec, run); errors.Is(err, ErrChanged) {
			continue // the run wrote its progress meanwhile
		} else if err != nil {
			return Response{}, err
		}
		return Response{Run: &run}, s.record(ctx, []AuditRecord{s.deed(req, run.ID, auditStopped)})
	}
	return Response{}, ErrChanged
}

// resume only clears the switch; nothing continues by itself.
func (s *Service) resume(ctx context.Context, req Request) (Response, error) {
	return s.flip(ctx, false, req)
}

// revoke ends a run for good, or a plan before it becomes one. The worker isolates those of the run's jobs that still wait on
// the lanes when it receives them; giveBack isolates those that the run opened and never sent.
func (s *Service) revoke(ctx context.Context, req Request) (Response, error) {
	id := req.Run
	if id == "" {
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return Response{}, err
		}
		id = p.Run
		run := s.newRun(req, p)
		run.revoke(req, s.now())
		// A run that exists already is revoked as a run.
		if err := s.create(ctx, pkRun(id), skRun, run); err == nil {
			return Response{Run: &run}, s.record(ctx, []AuditRecord{s.deed(req, id, auditRevoked)})
		} else if !errors.Is(err, ErrChanged) {
			return Response{}, err
		}
	}
	for range tries {
		run, rec, err := s.readRun(ctx, id)
		if err != nil {
			return Response{}, err
		}
		if run.State != Revoked {
			run.revoke(req, s.now())
			if _, err := s.put(ctx, rec, run); errors.Is(err, ErrChanged) {
				continue // the run wrote its progress meanwhile
			} else if err != nil {
				return Response{}, err
			}
			if err := s.record(ctx, []AuditRecord{s.deed(req, id, auditRevoked)}); err != nil {
				return Response{Run: &run}, err
			}
		}
		l, _, err := s.readLock(ctx)
		if err != nil {
			return Response{Run: &run}, err
		}
		if l.live(s.now()) && l.Run == id {
			return Response{Run: &run}, nil // the invocation that works on the run gives back
		}
		err = s.giveBack(ctx, &run)
		return Response{Run: &run}, err
	}
	return Response{}, ErrChanged
}

func (r *Run) revoke(req Request, now time.Time) {
	r.State, r.Code, r.Why = Revoked, "", "revoked: "+req.Reason
	r.RevokedBy, r.RevokedAt, r.UpdatedAt = req.By, now.UTC(), now.UTC()
}

// giveBack isolates the jobs that a revoked run opened and did not send, so that they are not open for
// ever. A job that never ran gets its generation back. The answer's run and the audit name jobs whose entry cannot be decoded.
func (s *Service) giveBack(ctx context.Context, run *Run) error {
	var open []AuditRecord
	err := s.lastLines(ctx, run.ID, func(line AuditRecord) {
		switch line.What {
		case auditIntent, auditUnsent, auditUnsure:
			if line.Job != "" {
				open = append(open, line)
			}
		}
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var unread []AuditRecord
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, line := range open {
		group.Go(func() error {
			d := job.Delivery{Message: job.Message{ID: line.Message}, Lane: job.DLQ, Key: line.Job}
			_, err := s.ledger.Update(ctx, line.Job, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
				if e.Version == 0 { // nothing was opened
					return e, ledger.ErrOtherRun
				}
				return s.rules.GiveBack(e, d, run.ID, s.now())
			})
			var notYet *ledger.NotYetError
			switch {
			case errors.Is(err, ledger.ErrOtherRun), errors.Is(err, ledger.ErrFinal), errors.As(err, &notYet):
				return nil
			case errors.Is(err, ledger.ErrUndecodable):
				mu.Lock()
				defer mu.Unlock()
				unread = append(unread, AuditRecord{Run: run.ID, Message: line.Message, At: s.now().UTC(), What: auditUnsure, Job: line.Job, Action: Unsure,
					Why: "not given back: " + cannotRead + job.SafeText(err.Error())})
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	if len(unread) > 0 {
		slices.SortFunc(unread, func(a, b AuditRecord) int { return strings.Compare(a.Job, b.Job) })
		var names []string
		for _, line := range unread[:min(len(unread), maxNames)] {
			names = append(names, line.Job)
		}
		run.Why += fmt.Sprintf("; %d jobs that it may have opened are not given back, because their entries cannot be read, such as %s: revoke it again when they can be",
			len(unread), strings.Join(names, ", "))
		err = errors.Join(err, s.record(ctx, unread))
	}
	if err != nil {
		return fmt.Errorf("give back what run %s opened: %w; revoke it again", run.ID, err)
	}
	return nil
}

// status tells how far a plan or a run is; of none, it lists all.
func (s *Service) status(ctx context.Context, req Request) (Response, error) {
	if req.Run == "" && req.Plan == "" {
		return s.list(ctx)
	}
	if req.Run == "" && req.Plan != "" {
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return Response{}, err
		}
		if rec, err := s.table.Get(ctx, pkRun(p.Run), skRun); err != nil {
			return Response{}, err
		} else if rec.Version == 0 {
			if p.Drift, err = s.driftOf(ctx, p); err == nil {
				err = s.showBody(ctx, &p)
			}
			return Response{Plan: &p}, err
		}
		return s.statusOf(ctx, p.Run, Response{Plan: &p})
	}
	resp, err := s.statusOf(ctx, req.Run, Response{})
	if err != nil || resp.Run == nil {
		return resp, err
	}
	return resp, nil
}

// statusOf adds a run to a response. The counts of a run whose owner died come from its audit, which knows its last
// cohort.
func (s *Service) statusOf(ctx context.Context, id string, resp Response) (Response, error) {
	var run Run
	gone := true
	for range 2 { // the first lock may have been read before the run began
		// The lock first: a run writes its end before it gives the lock back.
		l, _, err := s.readLock(ctx)
		if err != nil {
			return resp, err
		}
		if run, _, err = s.readRun(ctx, id); err != nil {
			return resp, err
		}
		if gone = run.State == Active && (!l.live(s.now()) || l.Run != id); !gone {
			break
		}
	}
	if gone {
		run.interrupted()
		run.Counts = map[Step]int{}
		if err := s.lastLines(ctx, id, func(line AuditRecord) { run.Counts[line.What]++ }); err != nil {
			return resp, err
		}
	}
	resp.Run = &run
	return resp, nil
}

// index are all plans with their runs and all discards, newest first.
func (s *Service) index(ctx context.Context) ([]indexed, error) {
	var all []indexed
	err := s.table.Query(ctx, pkIndex, "run#", func(r Record) error {
		line, err := decode[indexed](r)
		all = append(all, line)
		return err
	})
	slices.SortFunc(all, func(a, b indexed) int { return b.At.Compare(a.At) })
	return all, err
}

// maxListed is how many runs are listed, newest first.
const maxListed = 50

func (s *Service) list(ctx context.Context) (Response, error) {
	all, err := s.index(ctx)
	if err != nil {
		return Response{}, err
	}
	l, _, err := s.readLock(ctx)
	if err != nil {
		return Response{}, err
	}
	resp := Response{Runs: []Run{}}
	for _, line := range all {
		if line.Plan == "" || len(resp.Runs) == maxListed { // a discard is no run
			continue
		}
		rec, err := s.table.Get(ctx, pkRun(line.Run), skRun)
		if err != nil {
			return resp, err
		}
		run := Run{ID: line.Run, Plan: line.Plan, State: Planned, StartedAt: line.At}
		if rec.Version > 0 {
			if run, err = decodeRun(rec); err != nil {
				return resp, err
			}
		}
		if run.ID != l.Run || !l.live(s.now()) {
			run.interrupted()
		}
		run.Watched, run.Names, run.Halts = nil, nil, nil // a list is short
		run.fill()
		resp.Runs = append(resp.Runs, run)
	}
	return resp, nil
}

func (s *Service) approve(ctx context.Context, req Request) (Response, error) {
	p, rec, err := s.readPlan(ctx, req.Plan)
	if err != nil {
		return Response{}, err
	}
	switch {
	case sameName(p.By, req.By):
		return Response{Plan: &p}, refuse("%s made this plan: somebody else has to approve it", p.By)
	case p.ApprovedBy != "":
		return Response{Plan: &p}, nil
	case past(p.ExpiresAt, s.now()):
		return Response{Plan: &p}, refuse("the plan expired at %s", stamp(p.ExpiresAt))
	}
	p.ApprovedBy, p.ApprovedAt, p.ApprovalReason = req.By, s.now().UTC(), req.Reason
	if _, err := s.put(ctx, rec, p); err != nil {
		return Response{}, err
	}
	return Response{Plan: &p}, s.record(ctx, []AuditRecord{s.deed(req, p.ID, auditApproved)})
}

// sameName compares names as far as names can tell.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}
