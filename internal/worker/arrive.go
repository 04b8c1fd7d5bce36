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

// arrive handles a delivery of a job that is or was isolated. It returns true when the job may run, else the
// step has its outcome.
func (h *Handler) arrive(ctx context.Context, s *step) bool {
	e, err := h.ledger.Get(ctx, s.Key)
	if err != nil {
		h.unread(s, err)
		return false
	}
	return h.sort(ctx, s, e)
}

// remember fills in the memory of a message on the recovery lane from the entry. It returns false when that was
// impossible, or when the entry has the job's outcome.
func (h *Handler) remember(ctx context.Context, s *step) bool {
	e, err := h.ledger.Get(ctx, s.Key)
	if err != nil {
		h.unread(s, err)
		return false
	}
	if e.Status.Final() || e.Status == ledger.Isolated {
		return h.sort(ctx, s, e)
	}
	s.Memory.Attempt, s.Memory.Redrives, s.Memory.Run, s.Memory.FirstSent = e.Attempts, e.Redrives, e.Run, e.FirstSent
	s.Memory.Contentions, s.Memory.ContendedFrom = e.Contentions, e.ContendedFrom
	return true
}

// sort compares a delivery with its entry. It reopens the entry if the job was put back.
func (h *Handler) sort(ctx context.Context, s *step, e ledger.Entry) bool {
	var conflict *ledger.ConflictError
	if errors.As(e.Conflict(s.Digest), &conflict) {
		h.isolateConflict(s, conflict)
		return false
	}
	switch {
	case e.Status.Final():
		s.class = ""
		s.acknowledge(e.Outcome, true)
		return false
	case e.Status != ledger.Isolated:
		s.opened(e) // since then: the message's counts are from an earlier opening
		return true
	}
	switch h.config.Rules.Arrive(e, s.Delivery) {
	case ledger.PutBack:
	case ledger.Exhausted:
		h.isolate(s, e, job.CauseGeneration)
		return false
	case ledger.Copy:
		s.copied = true
		h.isolate(s, e, e.Cause)
		return false
	default:
		h.isolate(s, e, e.Cause)
		return false
	}
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		// A copy may have reopened the entry meanwhile, and its job may be isolated again. This message was put
		// back after the isolation before, and opens no later one.
		if e.Status == ledger.Isolated && h.config.Rules.Arrive(e, s.Delivery) != ledger.PutBack {
			return e, ledger.ErrIsolated
		}
		return h.config.Rules.Reopen(e, s.Delivery, h.now())
	})
	switch {
	case errors.Is(err, ledger.ErrIsolated):
		return h.sort(ctx, s, e)
	case errors.Is(err, ledger.ErrFinal):
		s.acknowledge(e.Outcome, true)
		return false
	case errors.Is(err, ledger.ErrContended):
		h.contend(ctx, s, err)
		return false
	case err != nil:
		h.unread(s, err)
		return false
	}
	s.opened(e)
	s.Memory.Opened = h.now().UTC()
	return true
}

// isolate sends the message to the DLQ with the history of its entry.
func (h *Handler) isolate(s *step, e ledger.Entry, cause job.Cause) {
	m := e.Memory(s.memory())
	m.Cause, m.Copy, m.OutageFrom, m.UnusedClaim = cause, s.copied, time.Time{}, "" // an isolated entry has no claim
	s.class, s.cause = m.Class, cause
	s.hand(job.DLQ, job.Isolated, m, 0)
}

// isolateAlone sends a message to the DLQ without a record in the ledger: the message is the record. An empty
// cause means the cause of the class.
func (h *Handler) isolateAlone(s *step, f *job.Failure, cause job.Cause) {
	if cause == "" {
		cause = job.CauseOf(f.Class)
	}
	m := s.memory()
	m.Key, m.Class, m.Cause, m.Error, m.At = "", f.Class, cause, f.Error(), h.now().UTC()
	m.Fingerprint = job.Fingerprint(job.SafeText(m.Error))
	s.class, s.cause, s.err = m.Class, cause, f
	s.hand(job.DLQ, job.Isolated, m, 0)
}

// isolateConflict sends a delivery with a payload that is not its job's to the DLQ. The entry stays as it is: a
// forged or mistaken copy must not stop the real job.
func (h *Handler) isolateConflict(s *step, conflict *ledger.ConflictError) {
	s.copied = true
	h.isolateAlone(s, &job.Failure{Class: job.Rejected, Err: conflict}, job.CauseConflict)
}

// maxOutage is how long a message is handed back because of the ledger's trouble. After that it goes to the
// DLQ. It is longer than any outage, and shorter than the lanes' retention.
const maxOutage = 3 * 24 * time.Hour

// noRoomDelay is the delay of a message that has no room for its count of hand-backs.
const noRoomDelay = 5 * time.Minute

// unread handles a delivery when the ledger did not answer, or gave an answer that this version does not
// understand. The ledger's trouble is not the job's fault. So the message goes back to its lane, as a new
// message. No attempt and no receive is spent.
func (h *Handler) unread(s *step, err error) {
	var newer *job.NewerError
	if errors.As(err, &newer) {
		h.waitForNewer(s, err)
		return
	}
	if !errors.Is(err, ledger.ErrUnavailable) && !errors.Is(err, ledger.ErrDenied) {
		s.leave(err)
		return
	}
	m := s.carried()
	if m.Outages == 0 || m.OutageFrom.IsZero() {
		m.OutageFrom = h.now().UTC()
	}
	m.Outages++
	s.outage = true
	if h.now().Sub(m.OutageFrom) >= maxOutage {
		h.isolateAlone(s, &job.Failure{Class: job.Transient, Err: fmt.Errorf("the ledger has been in trouble since %s: %w",
			m.OutageFrom.Format(time.RFC3339), err)}, job.CauseTime)
		return
	}
	delay := retry.Outage(m.Outages)
	if !lanes.Fits(withMemory(s.Message, m)) {
		delay = noRoomDelay
	}
	to := job.Recovery
	if s.Lane == job.Source {
		to = job.Source
	}
	s.class, s.err = "", err
	s.hand(to, job.Deferred, m, retry.WholeSeconds(delay, h.config.HopDelay))
}
