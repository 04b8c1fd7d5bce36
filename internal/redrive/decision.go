package redrive

import (
	"context"
	"errors"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// decideJobs records what somebody decided of an ambiguous job, or of all that a selection selects, on the entries and
// in the audit.
func (s *Service) decideJobs(ctx context.Context, req Request) (Response, error) {
	if req.Decision != ledger.Sent && req.Decision != ledger.NotSent {
		return Response{}, refuse("decision %q is none of %s and %s; discard ends a job that is not wanted any more", req.Decision, ledger.Sent, ledger.NotSent)
	}
	if req.Select == nil {
		if req.Job == "" {
			return Response{}, refuse("decide needs a job: its key; or a selection with its count")
		}
		e, err := s.decideJob(ctx, req, req.Job)
		if errors.Is(err, ledger.ErrUndecidable) {
			if e.Version == 0 {
				return Response{}, refuse("there is no job %s", req.Job)
			}
			return Response{Entry: &e}, refuse("%v", err)
		}
		return Response{Entry: &e}, err
	}
	if err := s.free(ctx, ""); err != nil {
		return Response{}, err
	}
	mine := s.hold()
	items, _, err := s.selected(ctx, mine, req, func(lanes.Received) error { return nil })
	mine.release(ctx) // a decision is about entries
	if err != nil {
		return Response{}, err
	}
	resp := Response{Results: []Result{}}
	decided := map[string]bool{}
	for _, it := range items {
		r := Result{Message: it.id, Job: it.key, Result: "decided"}
		switch {
		case it.key == "":
			r.Result, r.Why = "refused", "it has no key, so the ledger has no entry of it"
		case decided[it.key]: // a copy of one before
		default:
			_, err = s.decideJob(ctx, req, it.key)
			if errors.Is(err, ledger.ErrUndecidable) {
				r.Result, r.Why, err = "refused", err.Error(), nil
			} else if err != nil {
				r.Result, r.Why = "unsure", job.SafeText(err.Error())
			}
			decided[it.key] = r.Result == "decided"
		}
		resp.Results = append(resp.Results, r)
		if err != nil {
			return resp, err
		}
	}
	return resp, nil
}

func (s *Service) decideJob(ctx context.Context, req Request, key string) (ledger.Entry, error) {
	e, err := s.ledger.Update(ctx, key, s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
		return s.rules.Decide(e, s.decision(req, req.Decision))
	})
	if err != nil {
		return e, err
	}
	line := s.deed(req, key, auditDecided)
	line.Job, line.Why, line.Status = key, string(req.Decision), e.Status
	return e, s.record(ctx, []AuditRecord{line})
}
