package redrive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// needsMended is the reason why a plan with a mended body needs an approval, needsResent why one with a discarded body does.
const (
	needsMended = "a mended body"
	needsResent = "a job that was discarded"
)

// mend plans to send a message of the DLQ with another body. It changes nothing before somebody else approved
// that body and the plan's run reopens the entry.
func (s *Service) mend(ctx context.Context, req Request) (Response, error) {
	if (req.Message == "") == (req.Job == "") || req.Body == "" {
		return Response{}, refuse("mend needs a message or a job, and its new body")
	}
	if err := s.free(ctx, ""); err != nil {
		return Response{}, err
	}
	m, sc, err := s.find(ctx, req.Message, req.Job)
	if err != nil {
		return Response{Scan: &sc}, err
	}
	old := s.joined(ctx, m)
	c, note, err := s.mended(ctx, req, m, old)
	if err != nil {
		return Response{Scan: &sc}, err
	}
	p := Plan{Select: Filter{Messages: []string{m.ID}}, Replacement: &Replacement{Message: m.ID, Job: c.read.Key, SHA256: sum(req.Body), Note: note}}
	return s.planBody(ctx, req, p, c, m, func(p Plan) error {
		line := s.deed(req, m.ID, auditOriginal)
		line.Run, line.Job = p.ID, c.read.Key
		if err := s.archive(ctx, line, m.Message); err != nil {
			return err
		}
		mended := m.Message
		mended.Body, line.What = req.Body, auditMended
		return s.archive(ctx, line, mended)
	})
}

// mended is the message with its new body, joined with the entry of its job, and what an approver has to know.
func (s *Service) mended(ctx context.Context, req Request, m lanes.Received, old candidate) (c candidate, note string, err error) {
	c = candidate{memory: m.Memory, replaced: true}
	if err := lanes.CheckNew(job.Message{Body: req.Body}); err != nil {
		return c, "", refuse("the mended body cannot be sent: %v", err)
	}
	if c.read, err = s.kinds.Read(req.Body); err != nil {
		return c, "", refuse("the mended body is not readable: %s", job.SafeText(err.Error()))
	}
	was, is := old.read.Key, c.read.Key
	switch {
	case old.lookErr != nil:
		return c, "", fmt.Errorf("read the entry of %s: %w", was, old.lookErr)
	case m.Body == req.Body:
		return c, "", refuse("the mended body is the one that the message has")
	case !slices.Contains([]job.Class{job.Invalid, job.Rejected}, old.class()) && (old.readErr == nil || old.memory == (job.Memory{}) || old.memory.Class == job.Crashed):
		return c, "", refuse("message %s is of class %s: only an invalid or a rejected job is mended", m.ID, old.class())
	case was != "" && was != is:
		return c, "", refuse("the mended body is job %s, and the message is job %s: a new key is a new job. Send that one, and discard this message", is, was)
	case was == "":
		note = "its body has no key that can be read; mended, it is job " + is
	}
	c.entry, err = s.ledger.Get(ctx, is)
	return c, note, err
}

// resend plans to send a message again that a discard took from the DLQ, as the audit has it.
func (s *Service) resend(ctx context.Context, req Request) (Response, error) {
	if req.Run == "" || req.Message == "" && req.Job == "" {
		return Response{}, refuse("resend needs a discard (run) and one of its messages (message or job)")
	}
	if req.Job != "" {
		var err error
		if req.Message, err = s.messageOf(ctx, req); err != nil {
			return Response{}, err
		}
	}
	lines, err := s.lines(ctx, req.Run, req.Message)
	if err != nil {
		return Response{}, err
	}
	if len(step(lines, auditDiscarded)) == 0 {
		return Response{}, refuse("%s has discarded no message %s", req.Run, req.Message)
	}
	kept, err := unarchive(lines)
	if err != nil {
		return Response{}, err
	}
	m := kept.message(req.Message)
	c := s.joined(ctx, m)
	if c.discarded() {
		c.entry.Status = ledger.Isolated
	}
	p := Plan{Select: Filter{Messages: []string{m.ID}}, Replacement: &Replacement{Message: m.ID, Job: c.read.Key, Discard: req.Run, SHA256: sum(m.Body)}}
	return s.planBody(ctx, req, p, c, m, func(Plan) error { return nil })
}

// planBody stores a plan of one message that is sent with a given body, after its bodies are in the audit.
func (s *Service) planBody(ctx context.Context, req Request, p Plan, c candidate, m lanes.Received, keep func(Plan) error) (Response, error) {
	if err := s.checkPace(req); err != nil {
		return Response{}, err
	}
	it := itemOf(c, m, p.Select)
	it.guard = needsMended
	if p.Replacement.Discard != "" {
		it.guard = needsResent
	}
	var why string
	if it.action, why, _ = c.decide(true, s.rules.MaxRedrives, s.now()); it.action != Redrive {
		return Response{}, refuse("it would not be sent: %s (%s)", it.action, why)
	}
	it.why = "with the body that is approved"
	p = s.name(req, p)
	if err := keep(p); err != nil {
		return Response{}, err
	}
	p, err := s.freeze(ctx, req, p, []item{it})
	if err == nil {
		err = s.showBody(ctx, &p)
	}
	return Response{Plan: &p, Groups: p.Groups}, err
}

// bodyOf reads the message that a plan's run sends in place of the one on the DLQ. It is the approved one, or an
// error.
func (s *Service) bodyOf(ctx context.Context, p Plan) (archived, error) {
	from, what := p.ID, auditMended
	if p.Replacement.Discard != "" {
		from, what = p.Replacement.Discard, auditIntent
	}
	lines, err := s.lines(ctx, from, p.Replacement.Message)
	if err != nil {
		return archived{}, err
	}
	m, err := unarchive(step(lines, what))
	if err == nil && sum(m.Body) != p.Replacement.SHA256 {
		err = fmt.Errorf("the body in the audit of %s is not the one that plan %s was made for: it was changed", from, p.ID)
	}
	return m, err
}

// showBody adds to a plan for an answer what its body changes.
func (s *Service) showBody(ctx context.Context, p *Plan) error {
	if p.Replacement == nil {
		return nil
	}
	m, err := s.bodyOf(ctx, *p)
	if err != nil {
		return err
	}
	var before archived
	if p.Replacement.Discard == "" {
		lines, err := s.lines(ctx, p.ID, p.Replacement.Message)
		if err != nil {
			return err
		}
		if before, err = unarchive(step(lines, auditOriginal)); err != nil {
			return err
		}
	}
	p.Replacement.Diff = diff(before.Body, m.Body)
	return nil
}

func sum(body string) string {
	hash := sha256.Sum256([]byte(body))
	return hex.EncodeToString(hash[:])
}
