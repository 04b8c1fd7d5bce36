package redrive

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// Switch is the kill switch. While it is on, nothing is redriven.
type Switch struct {
	On     bool      `json:"on"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

func (s *Service) readSwitch(ctx context.Context) (Switch, error) {
	rec, err := s.Table.Get(ctx, pkSwitch, pkSwitch)
	if err != nil || rec.Version == 0 {
		return Switch{}, err
	}
	return decode[Switch](rec)
}

// tries is how often a small document is written against a run that writes it too.
const tries = 20

// flip sets the switch. Of two that set it at once, both do; what counts is that it is set.
func (s *Service) flip(ctx context.Context, on bool, req Request) (Response, error) {
	for range tries {
		rec, err := s.Table.Get(ctx, pkSwitch, pkSwitch)
		if err != nil {
			return Response{}, err
		}
		sw := Switch{On: on, By: req.By, Reason: req.Reason, At: s.Now().UTC()}
		if _, err = s.put(ctx, rec, sw); errors.Is(err, ErrChanged) {
			continue
		} else if err != nil {
			return Response{}, err
		}
		what := "resume"
		if on {
			what = "stop"
		}
		line := AuditRecord{Run: "switch", Message: what, At: sw.At, What: what, By: req.By, Reason: req.Reason}
		return Response{Switch: &sw}, s.record(ctx, []AuditRecord{line})
	}
	return Response{}, ErrChanged
}

func (s *Service) stop(ctx context.Context, req Request) (Response, error) {
	return s.flip(ctx, true, req)
}

// resume only clears the switch; nothing continues by itself.
func (s *Service) resume(ctx context.Context, req Request) (Response, error) {
	return s.flip(ctx, false, req)
}

func (s *Service) revoke(ctx context.Context, req Request) (Response, error) {
	for range tries {
		run, rec, err := s.readRun(ctx, req.Run)
		if err != nil {
			return Response{}, err
		}
		if run.State == Revoked {
			return Response{Run: &RunView{Run: run}}, nil
		}
		run.State, run.Why = Revoked, "revoked: "+req.Reason
		run.RevokedBy, run.RevokedAt, run.UpdatedAt = req.By, s.Now().UTC(), s.Now().UTC()
		if _, err := s.put(ctx, rec, run); errors.Is(err, ErrChanged) {
			continue // the run wrote its progress meanwhile
		} else if err != nil {
			return Response{}, err
		}
		return Response{Run: &RunView{Run: run}}, nil
	}
	return Response{}, ErrChanged
}

func (s *Service) status(ctx context.Context, req Request) (Response, error) {
	if req.Run == "" && req.Plan != "" {
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return Response{}, err
		}
		if rec, err := s.Table.Get(ctx, pkRun(p.Run), skRun); err != nil {
			return Response{}, err
		} else if rec.Version == 0 {
			return Response{Plan: &p}, nil
		}
		return s.statusOf(ctx, p.Run, Response{Plan: &p})
	}
	resp, err := s.statusOf(ctx, req.Run, Response{})
	if err != nil || resp.Run == nil {
		return resp, err
	}
	if req.Message != "" {
		return resp, s.Table.Query(ctx, pkAudit(resp.Run.ID, req.Message), req.Message+"#", func(r Record) error {
			line, err := decode[AuditRecord](r)
			resp.Audit = append(resp.Audit, line)
			return err
		})
	}
	return resp, nil
}

// statusOf adds a run to a response. The counts of a run that nobody works on come from its audit,
// which knows the last cohort of an owner that died.
func (s *Service) statusOf(ctx context.Context, id string, resp Response) (Response, error) {
	run, _, err := s.readRun(ctx, id)
	if err != nil {
		return resp, err
	}
	l, _, err := s.readLock(ctx)
	if err != nil {
		return resp, err
	}
	sw, err := s.readSwitch(ctx)
	if err != nil {
		return resp, err
	}
	working := l.live(s.Now()) && l.Run == id
	if !working {
		gone := run.Counts[countGone]
		run.Counts = map[string]int{}
		if gone > 0 {
			run.Counts[countGone] = gone
		}
		if err := s.lastLines(ctx, id, func(line AuditRecord) { run.Counts[line.What]++ }); err != nil {
			return resp, err
		}
	}
	resp.Run = &RunView{Run: run, OwnerGone: run.State == Active && !working}
	resp.Switch = &sw
	return resp, nil
}

// maxListed is how many runs are listed, newest first.
const maxListed = 50

func (s *Service) list(ctx context.Context, _ Request) (Response, error) {
	var all []indexed
	err := s.Table.Query(ctx, pkIndex, "run#", func(r Record) error {
		line, err := decode[indexed](r)
		all = append(all, line)
		return err
	})
	if err != nil {
		return Response{}, err
	}
	slices.SortFunc(all, func(a, b indexed) int { return b.At.Compare(a.At) })
	resp := Response{Runs: []RunView{}}
	for _, line := range all[:min(len(all), maxListed)] {
		rec, err := s.Table.Get(ctx, pkRun(line.Run), skRun)
		if err != nil {
			return resp, err
		}
		run := Run{ID: line.Run, Plan: line.Plan, State: Planned, StartedAt: line.At}
		if rec.Version > 0 {
			if run, err = decode[Run](rec); err != nil {
				return resp, err
			}
		}
		run.Watched = nil // a list is short
		resp.Runs = append(resp.Runs, RunView{Run: run})
	}
	sw, err := s.readSwitch(ctx)
	resp.Switch = &sw
	return resp, err
}

// maxDiscards is how many messages one request discards: each is read whole into the audit.
const maxDiscards = 100

// maxPayload is the longest compressed payload that fits an audit item's 400 KB, as base64.
const maxPayload = 280 << 10

func (s *Service) discard(ctx context.Context, req Request) (Response, error) {
	ids := slices.Compact(slices.Sorted(slices.Values(req.Messages)))
	if len(ids) == 0 || len(ids) > maxDiscards {
		return Response{}, refuse("discard takes 1 to %d message ids, not %d", maxDiscards, len(ids))
	}
	run := "d-" + s.Now().UTC().Format("20060102-150405-") + short(s.ID())
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	resp := Response{}
	sc, err := s.scan(ctx, func(m lanes.Received) (bool, error) {
		if missing[m.ID] {
			delete(missing, m.ID)
			r, err := s.discardOne(ctx, req, run, m)
			resp.Results = append(resp.Results, r)
			if err != nil {
				return false, err
			}
		}
		return len(missing) > 0, nil
	})
	if len(missing) == 0 {
		sc.Partial = ""
	}
	for _, id := range ids {
		if missing[id] {
			resp.Results = append(resp.Results, Result{Message: id, Result: "not-seen", Why: sc.Partial})
		}
	}
	resp.Scan = &sc
	return resp, err
}

// discardOne ends one job: audit with the payload, then the entry, then the message.
func (s *Service) discardOne(ctx context.Context, req Request, run string, m lanes.Received) (Result, error) {
	c, err := s.joined(ctx, m)
	if err != nil {
		return Result{Message: m.ID, Result: "unsure", Why: job.SafeText(err.Error())}, err
	}
	refused := func(why string) (Result, error) { return Result{Message: m.ID, Result: "refused", Why: why}, nil }
	if a, why, _ := c.decide(true, s.Rules.MaxRedrives, s.Now()); a == Foreign || a == InProgress || a == NeedsDecision {
		return refused(why)
	}
	payload, err := pack(m.Body)
	if err != nil {
		return Result{Message: m.ID, Result: "unsure"}, err
	}
	if len(payload) > maxPayload {
		return refused("its payload does not fit the audit, also compressed: keep it elsewhere first, or let its retention end")
	}
	line := AuditRecord{
		Run: run, Message: m.ID, At: s.Now().UTC(), What: auditIntent, Job: c.read.Key, Why: "discard", From: s.Names.DLQ,
		Bytes: len(m.Body), By: req.By, Reason: req.Reason, Payload: payload, Status: c.entry.Status, Generation: c.entry.Redrives,
	}
	if err := s.record(ctx, []AuditRecord{line}); err != nil {
		return Result{Message: m.ID, Result: "unsure"}, err
	}
	if c.read.Key != "" {
		e, err := s.Ledger.Update(ctx, c.read.Key, s.ID(), func(e ledger.Entry) (ledger.Entry, error) {
			return s.Rules.Discard(e, delivery(m.Message, c, run), s.Now())
		})
		var notYet *ledger.NotYetError
		switch {
		case err == nil, errors.Is(err, ledger.ErrFinal): // a final entry stays as it is
			line.Status, line.Generation = e.Status, e.Redrives
		case errors.As(err, &notYet), errors.Is(err, ledger.ErrUndecidable):
			return refused(err.Error())
		default:
			return Result{Message: m.ID, Result: "unsure", Why: job.SafeText(err.Error())}, err
		}
	}
	if err := s.Queues.Delete(ctx, job.DLQ, []job.Message{m.Message})[0]; err != nil {
		return Result{Message: m.ID, Result: "undeleted", Why: "its job is over, its message is still there: " + job.SafeText(err.Error())}, nil
	}
	line.What, line.At, line.Payload = auditDiscarded, s.Now().UTC(), nil
	return Result{Message: m.ID, Result: "discarded"}, s.record(ctx, []AuditRecord{line})
}

func pack(body string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(body)); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decideJob records what somebody decided of an ambiguous job, on its entry and in the audit.
func (s *Service) decideJob(ctx context.Context, req Request) (Response, error) {
	if strings.TrimSpace(req.Job) == "" {
		return Response{}, refuse("decide needs a job: its key")
	}
	e, err := s.Ledger.Update(ctx, req.Job, s.ID(), func(e ledger.Entry) (ledger.Entry, error) {
		return s.Rules.Decide(e, ledger.Decision{At: s.Now().UTC(), By: req.By, What: req.Decision, Reason: req.Reason})
	})
	if errors.Is(err, ledger.ErrUndecidable) {
		if e.Version == 0 {
			return Response{}, refuse("there is no job %s", req.Job)
		}
		return Response{Entry: &e}, refuse("%v", err)
	}
	if err != nil {
		return Response{}, err
	}
	line := AuditRecord{Run: "decide", Message: req.Job, At: s.Now().UTC(), What: string(req.Decision), Job: req.Job, By: req.By, Reason: req.Reason, Status: e.Status}
	return Response{Entry: &e}, s.record(ctx, []AuditRecord{line})
}
