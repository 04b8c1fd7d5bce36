package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
)

// suspectFrom is the receive from which on a delivery is a suspect: its earlier invocations died, ran
// out of time, or left it.
const suspectFrom = 3

// noDeadline is how long an invocation may last that has no deadline: Lambda's longest.
const noDeadline = 15 * time.Minute

// A job that kills the process takes its batch down with it, and at low traffic the same ten messages
// come back together. So suspects run one at a time, those with the fewest strikes first, and what is
// done is flushed before the next one starts: a death repeats nothing of the others'. Each runs between
// a strike and its clearing. Whoever arrives with two strikes is convicted, without being read.
//
//	others ─▶ flush ─▶ strike ─▶ read, run ─▶ clear ─▶ flush ─▶ strike ─▶ ...
//	                     └── death: the strike stays, and counts once the invocation must be over
func (h *Handler) suspects(ctx context.Context, suspects []*step) {
	for _, s := range suspects {
		s.strikes.MessageID = s.ID
		found, err := h.ledger.ReadStrikes(ctx, s.ID)
		if err != nil {
			s.leave(fmt.Errorf("not started: %w", err))
			s.settled = true
			continue
		}
		s.strikes = found
	}
	slices.SortStableFunc(suspects, func(a, b *step) int { return cmp.Compare(len(a.strikes.Ends), len(b.strikes.Ends)) })
	for _, s := range suspects {
		if s.settled {
			continue
		}
		h.guarded(ctx, s, h.suspect)
		h.flush(ctx, []*step{s})
	}
}

// suspect convicts a delivery or runs it between a strike and its clearing.
func (h *Handler) suspect(ctx context.Context, s *step) {
	if s.strikes.Counting(h.now(), h.config.LeaseSkew) >= ledger.ConvictAt {
		h.convict(ctx, s)
		return
	}
	end, ok := ctx.Deadline()
	if !ok {
		end = h.now().Add(noDeadline)
	}
	var err error
	if s.strikes, err = h.ledger.Strike(ctx, s.strikes, end.Add(h.config.HandoverMargin)); err != nil {
		s.leave(fmt.Errorf("not started: %w", err))
		return
	}
	// Also after a panic, which is a return too: what is cleared here is what a death leaves behind.
	defer h.clear(ctx, s)
	h.attempt(ctx, s)
}

// attempt runs the record between reading and deciding, naming the job with its strikes in between.
func (h *Handler) attempt(ctx context.Context, s *step) {
	defer s.recover(h.log)
	if !h.readBody(s) {
		return
	}
	named, err := h.ledger.NameStrikes(ctx, s.strikes, s.Key, s.Subject, s.Envelope.Kind)
	if err != nil {
		s.leave(fmt.Errorf("not started: %w", err))
		return
	}
	s.strikes = named
	h.decide(ctx, s)
}

// clear takes the strikes back. A delivery that is left would come back with a strike it does not
// deserve if that is not confirmed; it goes to the recovery lane instead, where it has a new id.
func (h *Handler) clear(ctx context.Context, s *step) {
	ctx = context.WithoutCancel(ctx) // the attempt's time may be over, the hand-over's is not
	ctx, cancel := context.WithTimeout(ctx, h.config.HandoverMargin/2)
	defer cancel()
	err := h.ledger.ClearStrikes(ctx, s.strikes)
	if err == nil || s.outcome != job.Left {
		return
	}
	left := s.err
	m := s.memory()
	m.Hops++
	if m.Hops > h.config.MaxHops {
		return // isolating it would need the ledger that just failed
	}
	delay := retry.Left(h.config.LeftBackoffBase, h.config.LeftBackoffCap, s.ReceiveCount)
	s.hand(job.Recovery, job.Deferred, m, retry.WholeSeconds(delay, h.config.HopDelay))
	s.err = fmt.Errorf("strikes not cleared (%w), left because: %w", err, left)
}

// convict isolates a delivery whose job kills the process, without reading its body.
func (h *Handler) convict(ctx context.Context, s *step) {
	reason := fmt.Sprintf("%d invocations died with this message", len(s.strikes.Ends))
	crashed := &job.Failure{Class: job.Crashed, Err: errors.New(reason)}
	s.class, s.err = job.Crashed, crashed
	s.Key, s.Subject, s.Envelope.Kind = s.strikes.Key, s.strikes.Subject, s.strikes.Kind
	s.read.Kind.Name = s.strikes.Kind
	if s.Key == "" {
		h.isolateWithoutEntry(s, crashed)
		return
	}
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		return h.config.Rules.Convict(e, s.Delivery, reason, h.now())
	})
	switch {
	case errors.Is(err, ledger.ErrIsolated) && h.config.Rules.Arrive(e, s.Delivery) == ledger.PutBack:
		// Put back since, and it kills again: it is not reopened.
		h.isolate(s, e, job.CauseCrash)
	case err != nil:
		h.refused(ctx, s, e, err)
	default:
		h.isolate(s, e, e.Cause)
	}
}

// flush sends the steps' moves and deletes what is done, so that a death later in this invocation
// repeats none of it.
func (h *Handler) flush(ctx context.Context, steps []*step) {
	h.handOver(ctx, steps)
	done := map[job.Queue][]job.Message{}
	for _, s := range steps {
		s.settled = true
		if s.outcome != job.Left && s.Lane != job.Unknown && s.ReceiptHandle != "" {
			done[s.Lane] = append(done[s.Lane], s.Message)
		}
	}
	for lane, messages := range done {
		for i, err := range h.lanes.Delete(ctx, lane, messages) {
			if err != nil {
				// Lambda deletes it at the end, or its redelivery finds the work done.
				h.log.Warn("not deleted ahead", telemetry.KeyMessageID, messages[i].ID, telemetry.KeyError, err.Error())
			}
		}
	}
}
