package redrive

import (
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"context"
	"errors"
	"slices"
	"strings"
)

// maxDiscards is how many messages one request discards: each is read whole into the audit.
const maxDiscards = 500

func (s *Service) discard(ctx context.Context, req Request) (Response, error) {
	if err := s.free(ctx, ""); err != nil {
		return Response{}, err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(req.Messages)))
	if req.Select != nil {
		selected, err := s.selected(ctx, req)
		if err != nil {
			return Response{}, err
		}
		ids = selected
	} else if len(ids) == 0 || len(ids) > maxDiscards {
		return Response{}, refuse("discard takes 1 to %d message ids, not %d, or a selection with its count", maxDiscards, len(ids))
	}
	now := s.now().UTC()
	run := "d-" + now.Format("20060102-150405-") + short(s.newID())
	if err := s.create(ctx, pkIndex, "run#"+run, indexed{Run: run, At: now}); err != nil {
		return Response{}, err
	}
	if err := s.record(ctx, []AuditRecord{s.deed(req, run, auditDiscarded)}); err != nil {
		return Response{}, err
	}
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

// selected are the ids of what a discard's selection selects. Its count has to be confirmed.
func (s *Service) selected(ctx context.Context, req Request) ([]string, error) {
	if len(req.Messages) > 0 {
		return nil, refuse("discard takes message ids or a selection, not both")
	}
	if err := req.Select.check(); err != nil {
		return nil, err
	}
	items, sc, err := s.survey(ctx, *req.Select)
	switch {
	case err != nil:
		return nil, err
	case len(items) == 0 || len(items) != req.Count:
		return nil, refuse("the selection selects %d messages, and the request confirms %d; %d of about %d messages seen", len(items), req.Count, sc.Seen, sc.Holds)
	case len(items) > maxDiscards:
		return nil, refuse("the selection selects %d messages, more than %d: narrow it", len(items), maxDiscards)
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.id
	}
	return ids, nil
}

// discardOne ends one job: audit with the payload, then the entry, then the message.
func (s *Service) discardOne(ctx context.Context, req Request, run string, m lanes.Received) (Result, error) {
	c := s.joined(ctx, m)
	if c.lookErr != nil {
		return Result{Message: m.ID, Result: "unsure", Why: job.SafeText(c.lookErr.Error())}, nil
	}
	refused := func(why string) Result { return Result{Message: m.ID, Result: "refused", Why: why} }
	a, why, _ := c.decide(true, s.rules.MaxRedrives, s.now())
	if a == InProgress || a == NeedsDecision && c.entry.Version > 0 {
		return refused(why), nil
	}
	line := AuditRecord{
		Run: run, Message: m.ID, At: s.now().UTC(), What: auditIntent, Job: c.read.Key, Why: "discard", From: s.names.DLQ,
		Bytes: len(m.Body), By: req.By, Reason: req.Reason, Status: c.entry.Status, Generation: c.entry.Redrives,
	}
	if err := s.archive(ctx, line, m.Message); err != nil { // before anything is done
		return Result{Message: m.ID, Result: "unsure"}, err
	}
	// A message that conflicts with its entry says nothing about the entry's job.
	if c.read.Key != "" && !c.conflicts() {
		e, err := s.ledger.Update(ctx, c.read.Key, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
			return s.rules.Discard(e, delivery(m.Message, c, run), s.now())
		})
		var notYet *ledger.NotYetError
		switch {
		case err == nil, errors.Is(err, ledger.ErrFinal): // a final entry stays as it is
			line.Status, line.Generation = e.Status, e.Redrives
		case errors.As(err, &notYet), errors.Is(err, ledger.ErrUndecidable):
			return refused(err.Error()), nil
		default:
			return Result{Message: m.ID, Result: "unsure", Why: job.SafeText(err.Error())}, err
		}
	}
	if err := s.queues.Delete(ctx, job.DLQ, []job.Message{m.Message})[0]; err != nil {
		return Result{Message: m.ID, Result: "undeleted", Why: "its job is over, its message is still there: " + job.SafeText(err.Error())}, nil
	}
	line.What, line.At = auditDiscarded, s.now().UTC()
	return Result{Message: m.ID, Result: "discarded"}, s.record(ctx, []AuditRecord{line})
}

// decideJob records what somebody decided of an ambiguous job, on its entry and in the audit.
func (s *Service) decideJob(ctx context.Context, req Request) (Response, error) {
	if strings.TrimSpace(req.Job) == "" {
		return Response{}, refuse("decide needs a job: its key")
	}
	e, err := s.ledger.Update(ctx, req.Job, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
		return s.rules.Decide(e, ledger.Decision{At: s.now().UTC(), By: req.By, What: req.Decision, Reason: req.Reason})
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
	line := s.deed(req, req.Job, auditDecided)
	line.Job, line.Why, line.Status = req.Job, string(req.Decision), e.Status
	return Response{Entry: &e}, s.record(ctx, []AuditRecord{line})
}
