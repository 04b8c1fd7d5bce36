package redrive

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// maxDiscards is how many messages one request discards or decides: each discarded one is read whole into the audit.
const maxDiscards = 500

// maxDiscardBytes is how many bytes of bodies a discard keeps until the count of its selection is confirmed.
const maxDiscardBytes = 64 << 20

// discard ends jobs for good, by their messages' ids, by their keys, or by a selection with its count.
func (s *Service) discard(ctx context.Context, req Request) (Response, error) {
	if err := s.free(ctx, ""); err != nil {
		return Response{}, err
	}
	mine := s.hold()
	defer mine.release(ctx)
	if req.Select != nil {
		return s.discardSelected(ctx, mine, req)
	}
	wanted := map[string]bool{} // ids and keys that were not seen yet
	for _, id := range slices.Concat(req.Messages, req.Jobs) {
		wanted[id] = true
	}
	if len(wanted) == 0 || len(wanted) > maxDiscards {
		return Response{}, refuse("discard takes 1 to %d messages or jobs, not %d, or a selection with its count", maxDiscards, len(wanted))
	}
	resp, err := s.beginDiscard(ctx, req)
	if err != nil {
		return Response{}, err
	}
	byKey := len(req.Jobs) > 0 // then every message may be one of them, such as a copy
	sc, err := s.scanInto(ctx, mine, whole, func(fresh []lanes.Received) (bool, error) {
		for _, m := range fresh {
			key := ""
			if byKey {
				key = s.readBody(ctx, m).read.Key
			}
			named := key != "" && slices.Contains(req.Jobs, key)
			if !wanted[m.ID] && !named {
				continue
			}
			delete(wanted, m.ID)
			alone, err := s.discardInto(ctx, &resp, mine, req, m, named)
			if !alone {
				delete(wanted, key)
			}
			if err != nil {
				return false, err
			}
		}
		return byKey || len(wanted) > 0, nil
	})
	if len(wanted) == 0 && !byKey {
		sc.Partial = ""
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		r := Result{Message: id, Result: "not-seen", Why: cmp.Or(sc.Partial, "it is not on the DLQ, or in flight")}
		if slices.Contains(req.Jobs, id) && err == nil {
			r, err = s.discardEntry(ctx, req, resp.Discard, id, sc)
		}
		resp.Results = append(resp.Results, r)
	}
	resp.Scan = &sc
	return resp, err
}

// discardSelected discards the messages that one scan selected, as it received them: they stay hidden until then.
func (s *Service) discardSelected(ctx context.Context, mine *held, req Request) (Response, error) {
	var list []lanes.Received
	bytes := 0
	_, sc, err := s.selected(ctx, mine, req, func(m lanes.Received) error {
		if bytes += len(m.Body); bytes > maxDiscardBytes {
			return refuse("the selection has more than the %d MB of bodies that one request keeps until its count is confirmed: narrow it", maxDiscardBytes>>20)
		}
		list = append(list, m)
		return nil
	})
	if err != nil {
		return Response{}, err
	}
	resp, err := s.beginDiscard(ctx, req)
	if err != nil {
		return Response{}, err
	}
	resp.Scan = &sc
	for _, m := range list {
		mine.renew(ctx)
		m.ReceiptHandle = mine.byID[m.ID].receipt // it may have been received once more
		if _, err := s.discardInto(ctx, &resp, mine, req, m, false); err != nil {
			return resp, err
		}
	}
	return resp, nil
}

// beginDiscard writes who discards, and returns an answer with the discard's id.
func (s *Service) beginDiscard(ctx context.Context, req Request) (Response, error) {
	now := s.now().UTC()
	run := "d-" + now.Format("20060102-150405-") + short(s.newID())
	if err := s.create(ctx, pkIndex, "run#"+run, indexed{Run: run, At: now}); err != nil {
		return Response{}, err
	}
	return Response{Discard: run}, s.record(ctx, []AuditRecord{s.deed(req, run, auditDiscarded)})
}

// discardInto discards one message into an answer.
func (s *Service) discardInto(ctx context.Context, resp *Response, mine *held, req Request, m lanes.Received, named bool) (alone bool, err error) {
	r, alone, err := s.discardOne(ctx, req, resp.Discard, m, named)
	if r.Result == "discarded" {
		mine.drop(m.ID)
	}
	resp.Results = append(resp.Results, r)
	return alone, err
}

// discardEntry ends a job by its entry alone: its message is not on the DLQ any more, or waits in EventBridge
// Scheduler.
func (s *Service) discardEntry(ctx context.Context, req Request, run, key string, sc Scan) (Result, error) {
	if sc.Partial != "" { // its message may be there
		return Result{Job: key, Result: "not-seen", Why: sc.Partial}, nil
	}
	e, err := s.ledger.Update(ctx, key, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
		if e.Status != ledger.Isolated && !e.Scheduled(s.now()) {
			return e, errKept
		}
		return s.rules.Discard(e, job.Delivery{Key: key}, s.decision(req, ledger.Drop), s.now())
	})
	switch {
	case errors.Is(err, errKept):
		return Result{Job: key, Result: "not-seen", Why: "it has no message on the DLQ, no isolated entry and no schedule"}, nil
	case err != nil:
		return Result{Job: key, Result: "unsure", Why: job.SafeText(err.Error())}, err
	}
	s.unschedule(ctx, e)
	line := AuditRecord{Run: run, Message: key, At: s.now().UTC(), What: auditDiscarded, Job: key, By: req.By, Reason: req.Reason, Status: e.Status, Generation: e.Redrives,
		Why: "its entry alone: no message on the DLQ has its key"}
	return Result{Job: key, Result: "discarded", Why: line.Why}, s.record(ctx, []AuditRecord{line})
}

// unschedule deletes the schedule of a job that is over. If it stays, its firing finds the job over.
func (s *Service) unschedule(ctx context.Context, e ledger.Entry) {
	if e.ScheduleName == "" {
		return
	}
	if err := s.schedules.Delete(ctx, e.ScheduleName); err != nil {
		s.log.Warn("schedule not deleted", telemetry.KeyJob, e.Key, telemetry.KeyError, job.SafeText(err.Error()))
	}
}

// decision is what the request decides of a job.
func (s *Service) decision(req Request, what ledger.DecisionKind) ledger.Decision {
	return ledger.Decision{At: s.now().UTC(), By: req.By, What: what, Reason: req.Reason}
}

// selected are the messages that a selection selects. Its count has to be confirmed. They are given to keep, and mine hides
// them, so that the caller can act on them without another scan.
func (s *Service) selected(ctx context.Context, mine *held, req Request, keep func(lanes.Received) error) (items []item, sc Scan, err error) {
	if len(req.Messages)+len(req.Jobs) > 0 || req.Job != "" {
		return nil, sc, refuse("%s takes ids or a selection, not both", req.Action)
	}
	if err := req.Select.check(); err != nil {
		return nil, sc, err
	}
	n := 0
	sc, err = s.match(ctx, mine, bounded, *req.Select, func(it item, m lanes.Received) error {
		if n++; n > maxDiscards { // only counted: the request will be refused
			return nil
		}
		items = append(items, it)
		return keep(m)
	})
	switch {
	case err != nil:
		return nil, sc, err
	case n == 0 || n != req.Count:
		return nil, sc, refuse("the selection selects %d messages, and the request confirms %d; %s", n, req.Count, sc.says())
	case n > maxDiscards:
		return nil, sc, refuse("the selection selects %d messages, more than %d: narrow it", n, maxDiscards)
	}
	return items, sc, nil
}

// Why a discard deletes a message and leaves its job as it is.
const (
	aloneConflict = "its payload is not that of the job with its key: only the message is deleted"
	aloneCopy     = `it is a copy: only the message is deleted, and its job is left as it is. To end the job, discard it by its key. ` +
		`If the DLQ has no other message of the job, send this one again with "acklast redrive resend"`
)

// discardOne ends one job: audit with the payload, then the entry, then the message. named says that the job was named
// by its key. alone says that the message is not the job's to end it by: the message is deleted, and the entry stays.
func (s *Service) discardOne(ctx context.Context, req Request, run string, m lanes.Received, named bool) (r Result, alone bool, err error) {
	c := s.joined(ctx, m)
	result := func(what, why string) Result { return Result{Message: m.ID, Job: c.read.Key, Result: what, Why: why} }
	d := delivery(m.Message, c, run)
	// A copy may be forged or a mistake: it does not end the job that it imitates. A final entry stays as it is anyway.
	copied := func(e ledger.Entry) bool { return !named && !e.Status.Final() && e.IsCopy(d) }
	a, why, _ := c.decide(true, s.rules.MaxRedrives, s.now())
	switch {
	case a == Unsure:
		return result("unsure", why), false, nil
	case c.conflicts():
		alone, why = true, aloneConflict
	case c.read.Key != "" && copied(c.entry):
		alone, why = true, aloneCopy
	case a == InProgress:
		return result("refused", why), false, nil
	default:
		why = ""
	}
	line := AuditRecord{
		Run: run, Message: m.ID, At: s.now().UTC(), What: auditIntent, Job: c.read.Key, Why: cmp.Or(why, "discard"), From: s.names.DLQ,
		Bytes: len(m.Body), By: req.By, Reason: req.Reason, Status: c.entry.Status, Generation: c.entry.Redrives,
	}
	if err := s.archive(ctx, line, m.Message); err != nil { // before anything is done
		return result("unsure", ""), alone, err
	}
	if c.read.Key != "" && !alone {
		e, err := s.ledger.Update(ctx, c.read.Key, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
			if copied(e) { // by now
				return e, errKept
			}
			return s.rules.Discard(e, d, s.decision(req, ledger.Drop), s.now())
		})
		var notYet *ledger.NotYetError
		switch {
		case errors.Is(err, errKept):
			alone, why, line.Why = true, aloneCopy, aloneCopy
		case err == nil, errors.Is(err, ledger.ErrFinal): // a final entry stays as it is
			line.Status, line.Generation = e.Status, e.Redrives
			s.unschedule(ctx, e)
		case errors.As(err, &notYet), errors.Is(err, ledger.ErrUndecidable):
			return result("refused", err.Error()), false, nil
		default:
			return result("unsure", job.SafeText(err.Error())), false, err
		}
	}
	if err := s.queues.Delete(ctx, job.DLQ, []job.Message{m.Message})[0]; err != nil {
		done := "its job is over"
		if alone {
			done = "it does not count for its job"
		}
		return result("undeleted", done+", its message is still there: "+job.SafeText(err.Error())), alone, nil
	}
	line.What, line.At = auditDiscarded, s.now().UTC()
	return result("discarded", why), alone, s.record(ctx, []AuditRecord{line})
}
