package redrive

import (
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"slices"
	"strings"
)

// maxDiscards is how many messages one request discards: each is read whole into the audit.
const maxDiscards = 100

// maxPayload is the longest compressed payload that fits an audit item's 400 KB, as base64.
const maxPayload = 280 << 10

func (s *Service) discard(ctx context.Context, req Request) (Response, error) {
	ids := slices.Compact(slices.Sorted(slices.Values(req.Messages)))
	if len(ids) == 0 || len(ids) > maxDiscards {
		return Response{}, refuse("discard takes 1 to %d message ids, not %d", maxDiscards, len(ids))
	}
	run := "d-" + s.now().UTC().Format("20060102-150405-") + short(s.newID())
	if err := s.free(ctx, ""); err != nil {
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

// discardOne ends one job: audit with the payload, then the entry, then the message.
func (s *Service) discardOne(ctx context.Context, req Request, run string, m lanes.Received) (Result, error) {
	c := s.joined(ctx, m)
	if c.lookErr != nil {
		return Result{Message: m.ID, Result: "unsure", Why: job.SafeText(c.lookErr.Error())}, nil
	}
	refused := func(why string) (Result, error) { return Result{Message: m.ID, Result: "refused", Why: why}, nil }
	if a, why, _ := c.decide(true, s.rules.MaxRedrives, s.now()); a == Foreign || a == InProgress || a == NeedsDecision {
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
		Run: run, Message: m.ID, At: s.now().UTC(), What: auditIntent, Job: c.read.Key, Why: "discard", From: s.names.DLQ,
		Bytes: len(m.Body), By: req.By, Reason: req.Reason, Payload: payload, Status: c.entry.Status, Generation: c.entry.Redrives,
	}
	if err := s.record(ctx, []AuditRecord{line}); err != nil {
		return Result{Message: m.ID, Result: "unsure"}, err
	}
	if c.read.Key != "" {
		e, err := s.ledger.Update(ctx, c.read.Key, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
			return s.rules.Discard(e, delivery(m.Message, c, run), s.now())
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
	if err := s.queues.Delete(ctx, job.DLQ, []job.Message{m.Message})[0]; err != nil {
		return Result{Message: m.ID, Result: "undeleted", Why: "its job is over, its message is still there: " + job.SafeText(err.Error())}, nil
	}
	line.What, line.At, line.Payload = auditDiscarded, s.now().UTC(), nil
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
	line := AuditRecord{Run: "decide", Message: req.Job, At: s.now().UTC(), What: Step(req.Decision), Job: req.Job, By: req.By, Reason: req.Reason, Status: e.Status}
	return Response{Entry: &e}, s.record(ctx, []AuditRecord{line})
}
