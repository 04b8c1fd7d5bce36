package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

// The ends of a step. A move's outcome stands only once handOver has it confirmed.

func (s *step) acknowledge(detail string, duplicate bool) {
	s.outcome, s.detail, s.duplicate, s.err = job.Acknowledged, detail, duplicate, nil
}

func (s *step) leave(err error) {
	s.outcome, s.err, s.moves = job.Left, err, false
}

func (s *step) hand(to job.Queue, outcome job.Outcome, memory job.Memory, delay time.Duration) {
	s.outcome, s.to, s.moves = outcome, to, true
	s.move = lanes.Move{Message: withMemory(s.Message, memory), Delay: delay}
}

func withMemory(m job.Message, memory job.Memory) job.Message {
	m.Memory = memory
	return m
}

// memory is what a move tells of the job: the message's own memory without the story of an earlier
// isolation.
func (s *step) memory() job.Memory {
	m := s.Memory
	m.FirstSent = s.FirstSent()
	if m.MessageID == "" {
		m.MessageID = s.ID
	}
	return m.Cleared()
}

// waitForNewer sends on what only a newer version of this program can read. Once the roll-out is over,
// a worker of that version gets it; no attempt is spent, and nothing is counted.
func (h *Handler) waitForNewer(s *step, err error) {
	s.err = err
	s.hand(job.Recovery, job.Deferred, s.memory(), h.config.HopDelay)
}

// unread says what becomes of a delivery when the ledger did not answer, or not in a way that this
// version understands.
func (h *Handler) unread(s *step, err error) {
	var newer *job.NewerError
	if errors.As(err, &newer) {
		h.waitForNewer(s, err)
		return
	}
	s.leave(err)
}

// readBody reads the body to its job. A body that cannot be read is on its way to the DLQ, a service's test
// message is through, and the answer is false.
func (h *Handler) readBody(s *step) bool {
	var err error
	s.read, err = h.kinds.Read(s.Body)
	s.Envelope, s.Key, s.Subject, s.Payload = s.read.Envelope, s.read.Key, s.read.Subject, s.read.Payload
	if errors.Is(err, job.ErrProbe) {
		s.probe = true
		s.acknowledge("probe", false)
		return false
	}
	if err != nil {
		h.isolateWithoutEntry(s, job.AsFailure(err))
		return false
	}
	return true
}

// decide takes a job to its outcome.
func (h *Handler) decide(ctx context.Context, s *step) {
	// A retry or deferral whose memory did not fit, or was tampered with: the ledger knows its hops.
	if s.Lane == job.Recovery && s.Memory == (job.Memory{}) && !h.remember(ctx, s) {
		return
	}
	if s.Memory.Run != "" && !h.checkRun(ctx, s) {
		return
	}
	// Only a message that was on the DLQ tells a cause. Its entry comes before its due time: its hops
	// are those of an earlier life.
	if s.Memory.Cause != "" && !h.arrive(ctx, s) {
		return
	}
	if now := h.now(); s.Envelope.NotBefore.After(now) {
		h.postpone(ctx, s, s.Envelope.NotBefore, nil)
		return
	}
	if s.read.Kind.Late == job.ExpireLate && !s.Envelope.Deadline.IsZero() && h.now().After(s.Envelope.Deadline) {
		h.expire(ctx, s)
		return
	}
	// Twice at most: a job that was put back runs after its entry is reopened.
	for range 2 {
		res := s.read.Kind.Run(ctx, s.Delivery)
		switch res.Verdict {
		case job.Committed, job.Duplicate:
			s.acknowledge(res.Detail, res.Verdict == job.Duplicate)
			return
		case job.Blocked:
			h.postpone(ctx, s, res.Until, res.Err)
			return
		case job.Unconfirmed:
			s.leave(res.Err)
			return
		case job.FoundIsolated:
			if !h.arrive(ctx, s) {
				return
			}
		default:
			h.fail(ctx, s, res.Err)
			return
		}
	}
	h.postpone(ctx, s, time.Time{}, fmt.Errorf("reopened twice: %w", ledger.ErrContended))
}

// fail records a failed attempt and sends the job to its next attempt or to the DLQ.
func (h *Handler) fail(ctx context.Context, s *step, err error) {
	if err == nil {
		err = errors.New("the attempt failed without an error")
	}
	f := job.AsFailure(err)
	s.class, s.err = f.Class, err
	switch {
	case errors.Is(err, ledger.ErrUnavailable):
		s.class = ""
		s.leave(err)
		return
	case ctx.Err() != nil:
		// The invocation ran out of time, which says nothing about the job.
		s.leave(fmt.Errorf("attempt cut short: %w", err))
		return
	}
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.For(s.read.Kind.Attempts).Fail(e, s.Delivery, f, h.now(), h.random())
	})
	switch {
	case err != nil:
		h.refused(ctx, s, e, err)
	case e.Status == ledger.Isolated:
		h.isolate(s, e, e.Cause)
	default:
		m := s.memory()
		m.Attempt, m.Redrives, m.Run = e.Attempts, e.Redrives, e.Run
		s.hand(job.Recovery, job.Retried, m, retry.WholeSeconds(e.RetryAt.Sub(h.now()), h.config.HopDelay))
	}
}

// postpone sends the job to the recovery lane until a time, or for a short while if there is none.
// It spends a hop; when there are none left the job is isolated.
func (h *Handler) postpone(ctx context.Context, s *step, until time.Time, why error) {
	s.err = why
	m := s.memory()
	m.Hops++
	if !lanes.Fits(withMemory(s.Message, m)) {
		e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) { return h.config.Rules.Hop(e, s.Delivery) })
		if err != nil {
			h.refused(ctx, s, e, err)
			return
		}
		m.Hops = e.Hops
	}
	if m.Hops > h.config.MaxHops {
		h.isolateFor(ctx, s, job.CauseHops, fmt.Sprintf("deferred %d times", h.config.MaxHops))
		return
	}
	var delay time.Duration
	if until.IsZero() {
		delay = h.config.Rules.Retry.Backoff(m.Hops, 0, h.random())
	} else {
		delay = until.Sub(h.now())
	}
	// Never zero: the message would come back before anything changed.
	s.hand(job.Recovery, job.Deferred, m, max(retry.WholeSeconds(delay, h.config.HopDelay), time.Second))
}

// expire ends a job that is too late to run.
func (h *Handler) expire(ctx context.Context, s *step) {
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.Finish(e, s.Delivery, ledger.Expired, "expired", h.now())
	})
	if err != nil {
		h.refused(ctx, s, e, err)
		return
	}
	s.acknowledge(e.Outcome, false)
}

// isolateFor isolates a job that did not fail an attempt now.
func (h *Handler) isolateFor(ctx context.Context, s *step, cause job.Cause, reason string) {
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		class := e.LastClass
		if class == "" {
			class = job.Transient // nothing failed but time
		}
		return h.config.Rules.Isolate(e, s.Delivery, class, cause, reason, h.now())
	})
	if err != nil {
		h.refused(ctx, s, e, err)
		return
	}
	h.isolate(s, e, cause)
}

// change applies a transition to the job's entry.
func (h *Handler) change(ctx context.Context, s *step, transition func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return h.ledger.Update(ctx, s.Key, s.Token, transition)
}

// refused says what becomes of a delivery whose transition was not written. e is the entry that was
// found.
func (h *Handler) refused(ctx context.Context, s *step, e ledger.Entry, err error) {
	var notYet *ledger.NotYetError
	switch {
	case errors.Is(err, ledger.ErrFinal):
		s.class = ""
		s.acknowledge(e.Outcome, true)
	case errors.Is(err, ledger.ErrIsolated):
		if h.sort(ctx, s, e) {
			// Put back, and reopened just now: the next delivery runs it, in time and with its budget.
			h.postpone(ctx, s, time.Time{}, nil)
		}
	case errors.As(err, &notYet):
		h.postpone(ctx, s, notYet.Until, err)
	case errors.Is(err, ledger.ErrContended):
		h.postpone(ctx, s, time.Time{}, err)
	default:
		h.unread(s, err)
	}
}

// arrive looks at the entry of a job that is isolated or was. It returns true when the job may run,
// else the step has its outcome.
func (h *Handler) arrive(ctx context.Context, s *step) bool {
	e, err := h.ledger.Get(ctx, s.Key)
	if err != nil {
		h.unread(s, err)
		return false
	}
	return h.sort(ctx, s, e)
}

// remember fills in from the entry what a message on the recovery lane should have told itself. It
// returns false when that was impossible, or when the entry has the job's outcome.
func (h *Handler) remember(ctx context.Context, s *step) bool {
	e, err := h.ledger.Get(ctx, s.Key)
	if err != nil {
		h.unread(s, err)
		return false
	}
	if e.Status.Final() || e.Status == ledger.Isolated {
		return h.sort(ctx, s, e)
	}
	s.Memory.Attempt, s.Memory.Hops, s.Memory.Redrives, s.Memory.Run, s.Memory.FirstSent = e.Attempts, e.Hops, e.Redrives, e.Run, e.FirstSent
	return true
}

// sort says by its entry what a delivery is, and reopens the entry if the job was put back.
func (h *Handler) sort(ctx context.Context, s *step, e ledger.Entry) bool {
	switch {
	case e.Status.Final():
		s.acknowledge(e.Outcome, true)
		return false
	case e.Status != ledger.Isolated:
		s.Memory.Hops = 0 // opened since: what the message counted belongs to an earlier life
		return true
	}
	switch h.config.Rules.Arrive(e, s.Delivery) {
	case ledger.PutBack:
	case ledger.Exhausted:
		h.isolate(s, e, job.CauseGeneration)
		return false
	default:
		h.isolate(s, e, e.Cause)
		return false
	}
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.Reopen(e, s.Delivery, h.now())
	})
	switch {
	case errors.Is(err, ledger.ErrFinal):
		s.acknowledge(e.Outcome, true)
		return false
	case errors.Is(err, ledger.ErrContended):
		h.postpone(ctx, s, time.Time{}, err)
		return false
	case err != nil:
		h.unread(s, err)
		return false
	}
	s.Memory.Hops, s.Memory.Attempt, s.Memory.Redrives = 0, e.Attempts, e.Redrives
	return true
}

// isolate sends the message to the DLQ with its entry's story.
func (h *Handler) isolate(s *step, e ledger.Entry, cause job.Cause) {
	m := e.Memory(s.memory())
	m.Cause = cause
	if m.Class == job.Crashed {
		m.Key = s.Key // nobody should read this body to find it
	}
	s.class, s.cause = m.Class, cause
	s.hand(job.DLQ, job.Isolated, m, 0)
}

// isolateWithoutEntry sends a body without a key to the DLQ. There is nothing to record it under: the
// message is the record.
func (h *Handler) isolateWithoutEntry(s *step, f *job.Failure) {
	m := s.memory()
	m.Class, m.Cause, m.Error, m.At = f.Class, job.CauseOf(f.Class), f.Error(), h.now().UTC()
	m.Fingerprint = job.Fingerprint(job.SafeText(m.Error))
	s.class, s.cause, s.err = m.Class, m.Cause, f
	s.hand(job.DLQ, job.Isolated, m, 0)
}
