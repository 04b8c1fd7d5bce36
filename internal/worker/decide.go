package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
)

// readEnvelope decodes the part of the body that needs no kind's code. It returns false when the step has its
// outcome: the body cannot be read, or is a service's test message.
func (h *Handler) readEnvelope(s *step) bool {
	envelope, err := job.Decode([]byte(s.Body))
	if errors.Is(err, job.ErrProbe) {
		s.probe = true
		s.acknowledge("probe", false)
		return false
	}
	if err != nil {
		h.isolateAlone(s, job.AsFailure(err), "")
		return false
	}
	s.Envelope = envelope
	return true
}

// readPayload reads the job with its kind's own code. It returns false when the step has its outcome: the kind
// is not known, or cannot read its payload.
func (h *Handler) readPayload(s *step) (ok bool) {
	// Isolate after a panic: the same bytes would panic again, and without a key no attempts can be counted.
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("panic", telemetry.KeyMessageID, s.ID, telemetry.KeyStack, string(debug.Stack()))
			h.isolateAlone(s, &job.Failure{Class: job.ClassUnknown, Err: fmt.Errorf("while the payload was read: %w", panicError(p))}, "")
			ok = false
		}
	}()
	read, err := h.kinds.ReadPayload(s.Envelope)
	if errors.Is(err, job.ErrUnknownKind) && s.Lane == job.Source {
		// During a roll-out an older worker may get a newer producer's job. Wait until a newer worker gets it.
		h.defers(s, s.carried(), h.config.RolloutWait, err)
		return false
	}
	if err == nil {
		s.Digest, err = job.Digest(s.Envelope.Payload, read.Kind.Volatile)
	}
	s.read, s.Key, s.Subject, s.Payload = read, read.Key, read.Subject, read.Payload
	if err != nil {
		h.isolateAlone(s, job.AsFailure(err), "")
		return false
	}
	if read.Kind.RunBatch != nil {
		s.shares = read.Kind.Together(s.Delivery)
	}
	return true
}

// decide runs a job and gives its step an outcome.
func (h *Handler) decide(ctx context.Context, s *step) {
	if s.forgot() && !h.remember(ctx, s) {
		return
	}
	if s.Memory.Run != "" && !h.checkRun(ctx, s) {
		return
	}
	// Only messages that have been on the DLQ carry a cause. Read the entry before checking NotBefore: the
	// counts are from an earlier opening.
	if s.Memory.Cause != "" && !h.arrive(ctx, s) {
		return
	}
	if ahead := s.Envelope.NotBefore.Sub(h.now()); ahead > 0 {
		h.early(ctx, s, ahead)
		return
	}
	if h.late(s) && h.expire(ctx, s) {
		return
	}
	if !s.admitted && !h.admit(ctx, s) {
		return
	}
	// There are two rounds at most: a job that was put back runs after its entry is reopened.
	for opening := range 2 {
		attempt := h.attempt
		if opening == 0 {
			attempt = h.meet
		}
		res := attempt(ctx, s)
		h.learn(s, res)
		switch { // in each hand-over from here on
		case res.UnusedClaim:
			s.Memory.UnusedClaim = s.Token
		case res.ClaimTakenBack:
			s.Memory.UnusedClaim = ""
		}
		switch res.Verdict {
		case job.Committed, job.Duplicate:
			s.expired = res.Expired
			s.acknowledge(res.Detail, res.Verdict == job.Duplicate)
			return
		case job.Blocked:
			h.postpone(ctx, s, res.Until, res.Err)
			return
		case job.Unconfirmed:
			h.unread(s, res.Err)
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
	h.contend(ctx, s, fmt.Errorf("reopened twice: %w", ledger.ErrContended))
}

// forgot says that the message was handled before but lacks its memory: it did not fit, or was tampered with.
// The ledger has its counts.
func (s *step) forgot() bool { return s.Lane == job.Recovery && s.Memory == (job.Memory{}) }

// late says that the job expires instead of running.
func (h *Handler) late(s *step) bool {
	return s.read.Kind.Late == job.ExpireLate && !s.Envelope.Deadline.IsZero() && h.now().After(s.Envelope.Deadline)
}

// ready says that the job's attempt may start without a look-up or a wait.
func (h *Handler) ready(s *step) bool {
	return !s.forgot() && s.Memory.Run == "" && s.Memory.Cause == "" && !s.Envelope.NotBefore.After(h.now()) && !h.late(s)
}

// fail schedules the job's next attempt after a failed one, or isolates the job.
func (h *Handler) fail(ctx context.Context, s *step, err error) {
	if err == nil {
		err = errors.New("the attempt failed without an error")
	}
	var conflict *ledger.ConflictError
	switch {
	case errors.Is(err, errStuck):
		h.stuck(ctx, s, err)
	case errors.Is(err, ledger.ErrUnavailable):
		h.unread(s, err)
	case errors.As(err, &conflict):
		h.isolateConflict(s, conflict)
	default:
		ctx, cancel := h.recording(ctx)
		defer cancel()
		h.record(ctx, s, job.AsFailure(err))
	}
}

// record writes a failed attempt.
func (h *Handler) record(ctx context.Context, s *step, f *job.Failure) {
	s.class, s.err = f.Class, f
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

// postpone defers a job without an attempt: until a time, or because of contention if the time is zero.
func (h *Handler) postpone(ctx context.Context, s *step, until time.Time, why error) {
	var newer *job.NewerError
	switch {
	case errors.As(why, &newer):
		h.waitForNewer(s, why)
	case until.IsZero():
		h.contend(ctx, s, why)
	default:
		h.wait(s, until, why)
	}
}

// wait defers the job until a time. It changes no count.
func (h *Handler) wait(s *step, until time.Time, why error) {
	h.defers(s, s.memory(), until.Sub(h.now()), why)
}

// waitForNewer defers a job that only a newer version of this program can read. A worker of that version gets
// it after the roll-out.
func (h *Handler) waitForNewer(s *step, err error) {
	h.defers(s, s.carried(), h.config.HopDelay, err)
}

// defers sends the message to the recovery lane. The delay is never zero: otherwise the message would come back
// before anything has changed.
func (h *Handler) defers(s *step, m job.Memory, delay time.Duration, why error) {
	s.class, s.err = "", why
	s.hand(job.Recovery, job.Deferred, m, max(retry.WholeSeconds(delay, h.config.HopDelay), time.Second))
}

// contend defers a job after conflicting writes, and counts that. It isolates the job when the count is used up
// and enough time has passed since the first conflict.
func (h *Handler) contend(ctx context.Context, s *step, why error) {
	m := s.memory()
	m.Contentions++
	if m.ContendedFrom.IsZero() {
		m.ContendedFrom = h.now()
	}
	if !lanes.Fits(withMemory(s.Message, m)) {
		ctx, cancel := h.recording(ctx)
		defer cancel()
		e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) { return h.config.Rules.Contend(e, s.Delivery, h.now()) })
		if err != nil && !errors.Is(err, ledger.ErrContended) {
			h.refused(ctx, s, e, err)
			return
		}
		m.Contentions, m.ContendedFrom = max(e.Contentions, 1), e.ContendedFrom
	}
	if m.Contentions > h.config.MaxContentions && h.now().Sub(m.ContendedFrom) >= h.config.ContentionTime {
		h.isolateFor(ctx, s, "", job.CauseContention, fmt.Sprintf("deferred %d times by conflicting writes, since %s",
			m.Contentions-1, m.ContendedFrom.UTC().Format(time.RFC3339)))
		return
	}
	h.defers(s, m, retry.Contention(m.Contentions, h.random()), why)
}

// expire ends a job that is too late to run. It returns false when a call of the job has no known outcome: then
// its kind looks that up.
func (h *Handler) expire(ctx context.Context, s *step) bool {
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.Finish(e, s.Delivery, ledger.Expired, "expired", h.now())
	})
	switch {
	case errors.Is(err, ledger.ErrUnresolved):
		return false
	case err != nil:
		h.refused(ctx, s, e, err)
	default:
		s.expired = true
		s.acknowledge(e.Outcome, false)
	}
	return true
}

// isolateFor isolates a job for a reason other than an attempt that failed now. An empty class means that of
// the last failure.
func (h *Handler) isolateFor(ctx context.Context, s *step, class job.Class, cause job.Cause, reason string) {
	ctx, cancel := h.recording(ctx)
	defer cancel()
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		of := class
		if of == "" {
			of = e.LastClass
		}
		if of == "" {
			of = job.Transient // nothing failed, the time is over
		}
		return h.config.Rules.Isolate(e, s.Delivery, of, cause, reason, h.now())
	})
	if err != nil {
		if errors.Is(err, ledger.ErrContended) {
			// Do not call contend: it would count again and come back here.
			h.defers(s, s.memory(), retry.Contention(h.config.MaxContentions, h.random()), err)
			return
		}
		h.refused(ctx, s, e, err)
		return
	}
	h.isolate(s, e, cause)
}

// change applies a transition to the job's entry.
func (h *Handler) change(ctx context.Context, s *step, transition func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return h.ledger.Update(ctx, s.Key, s.Token, transition)
}

// refused handles a delivery whose transition was not written. e is the entry as found.
func (h *Handler) refused(ctx context.Context, s *step, e ledger.Entry, err error) {
	var notYet *ledger.NotYetError
	var conflict *ledger.ConflictError
	switch {
	case errors.Is(err, ledger.ErrFinal):
		s.class = ""
		s.acknowledge(e.Outcome, true)
	case errors.Is(err, ledger.ErrIsolated):
		if h.sort(ctx, s, e) {
			// The job was put back and is reopened now. The next delivery runs it, with its whole time and
			// budget.
			h.wait(s, h.now(), nil)
		}
	case errors.As(err, &conflict):
		h.isolateConflict(s, conflict)
	case errors.As(err, &notYet):
		h.postpone(ctx, s, notYet.Until, err)
	case errors.Is(err, ledger.ErrContended):
		h.contend(ctx, s, err)
	default:
		h.unread(s, err)
	}
}
