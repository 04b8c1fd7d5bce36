package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// suspectFrom is the receive from which a delivery is a suspect: its earlier invocations died, ran out of time,
// or left it.
const suspectFrom = 3

// noDeadline is Lambda's longest invocation, for an invocation without a deadline.
const noDeadline = 15 * time.Minute

// A job that kills the process kills the deliveries of its whole batch, and at low traffic the same ten
// messages come back together. So suspects run one at a time, those with the fewest strikes first. Finished
// work is flushed before the next suspect starts, so that a death repeats nothing of the others. A delivery
// that arrives with two strikes is convicted: its kind's code does not run.
//
//	others ─▶ flush ─▶ read envelope ─▶ strike ─▶ read payload ─▶ name ─▶ run ─▶ clear ─▶ flush ─▶ next
//	                                      └── death: the strike stays, and counts once the invocation must be over
//
// A strike is cleared whatever the outcome of its message is. SQS may confirm a deletion and still keep the
// message, if it has delivered it again meanwhile. The clearing comes before the hand-over: a queue that answers
// late must not take the time for it, since the strike would count although no invocation died. Until the
// clearing is confirmed, no other suspect starts, because its death would leave this strike behind.
func (h *Handler) suspects(ctx context.Context, suspects []*step) {
	var group errgroup.Group
	group.SetLimit(h.config.Concurrency)
	for _, s := range suspects {
		group.Go(func() error {
			h.guarded(ctx, s, h.readStrikes)
			return nil
		})
	}
	_ = group.Wait() // an error is in its step
	slices.SortStableFunc(suspects, func(a, b *step) int { return cmp.Compare(len(a.strikes.Ends), len(b.strikes.Ends)) })
	blocked := false
	for _, s := range suspects {
		switch {
		case !s.examined: // its strikes could not be read
		case blocked, h.unsafe.Load():
			// Code that did not return may still end the process.
			h.defers(s, s.carried(), time.Second, errors.New("not started: an attempt before it did not come to its end"))
		default:
			h.guarded(ctx, s, h.suspect)
		}
		blocked = !h.clear(ctx, s) || blocked
		h.flush(ctx, []*step{s})
	}
}

func (h *Handler) readStrikes(ctx context.Context, s *step) {
	var err error
	if s.strikes, err = h.ledger.ReadStrikes(ctx, s.ID); err != nil {
		h.unread(s, fmt.Errorf("not started: %w", err))
		return
	}
	s.examined = true
}

// suspect convicts a delivery, or runs its job after a strike.
func (h *Handler) suspect(ctx context.Context, s *step) {
	if !h.readEnvelope(s) {
		return
	}
	if s.strikes.Counting(h.now(), h.config.LeaseSkew) >= ledger.ConvictAt {
		h.convict(ctx, s)
		return
	}
	if h.kinds.Known(s.Envelope.Kind) { // otherwise no kind's code runs
		end, ok := ctx.Deadline()
		if !ok {
			end = h.now().Add(noDeadline)
		}
		s.struck = true // also after an error: the write may have happened
		if err := h.ledger.Strike(ctx, s.ID, s.Token, s.Envelope.Kind, end.Add(h.config.HandoverMargin)); err != nil {
			h.unread(s, fmt.Errorf("not started: %w", err))
			return
		}
	}
	h.run(ctx, s)
}

// name keeps the job's key, subject and digest beside a suspect's strikes, before the kind's code runs. So a later
// conviction knows the job without reading its payload. It returns false when the step has its outcome.
func (h *Handler) name(ctx context.Context, s *step) bool {
	if !s.struck || s.strikes.Key != "" {
		return true
	}
	if err := h.ledger.NameSuspect(ctx, s.Delivery); err != nil {
		h.unread(s, fmt.Errorf("not started: %w", err))
		return false
	}
	return true
}

// errNotItsJob: the message of a convict names a job that is not its own.
var errNotItsJob = errors.New("the job is not open by the message's run, and not isolated as crashed")

// convict isolates a delivery whose job kills the process. None of the kind's code runs, since it may be the code that
// kills. The job's key is kept beside its strikes. If no delivery has got as far as reading the payload, the message may name
// the job: a run that sent it has written the name, or an earlier conviction has. Otherwise the message is the only record.
func (h *Handler) convict(ctx context.Context, s *step) {
	if h.kinds.Known(s.Envelope.Kind) { // a sender must not be able to name metrics
		s.read.Kind.Name = s.Envelope.Kind
	}
	f := &job.Failure{Class: job.Crashed, Err: fmt.Errorf("%d invocations died with this message", len(s.strikes.Ends))}
	s.Key, s.Subject, s.Digest = s.strikes.Key, s.strikes.Subject, s.strikes.Digest
	claimed := s.Key == ""
	if claimed {
		s.Key = s.Memory.Key
		s.Subject, _ = job.SubjectOf(s.Key)
	}
	if s.Subject == "" {
		s.Key = ""
		h.isolateAlone(s, f, "")
		return
	}
	ctx, cancel := h.recording(ctx)
	defer cancel()
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		opened := e.Run != "" && e.Run == s.Memory.Run && e.Redrives == s.Memory.Redrives
		if claimed && !opened && (e.Status != ledger.Isolated || e.LastClass != job.Crashed) {
			return e, errNotItsJob
		}
		return h.config.Rules.Isolate(e, s.Delivery, f.Class, job.CauseCrash, f.Error(), h.now())
	})
	var notYet *ledger.NotYetError
	var conflict *ledger.ConflictError
	switch {
	case err == nil:
		h.isolate(s, e, e.Cause)
		s.err = f
	case errors.Is(err, ledger.ErrIsolated):
		h.rejoin(s, e, f)
	case errors.As(err, &notYet), errors.As(err, &conflict):
		// Another delivery holds the entry's lease, and its own message still exists: the lease of this delivery ended
		// before its strike counted. Or the entry has another payload.
		h.isolateAlone(s, f, "")
	case errors.Is(err, errNotItsJob):
		s.Key, s.Subject = "", ""
		h.isolateAlone(s, f, "")
	default:
		h.refused(ctx, s, e, err)
	}
}

// rejoin sends a convict whose job is isolated already to the DLQ. It reopens nothing, unlike sort.
func (h *Handler) rejoin(s *step, e ledger.Entry, f *job.Failure) {
	s.copied = h.config.Rules.Arrive(e, s.Delivery) == ledger.Copy
	h.isolate(s, e, e.Cause)
	s.err = f
}

// clear removes the step's own strike. While that is not confirmed, clear also tries to hand over a message
// that is left, because that gives it a new id. It returns false when the time is over before the strike is
// cleared. The process's next invocation then clears it, or the process before it ends itself.
func (h *Handler) clear(ctx context.Context, s *step) bool {
	if !s.struck {
		return true
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-h.config.grace()))
		defer cancel()
	}
	for pause := h.config.grace() / 8; ; pause *= 2 {
		err := h.ledger.ClearStrike(ctx, s.ID, s.Token)
		if err == nil {
			s.struck = false
			return true
		}
		if s.outcome == job.Left {
			left := s.err
			h.unread(s, fmt.Errorf("%w: strike not cleared: %w", ledger.ErrUnavailable, err))
			s.err = errors.Join(left, s.err)
		}
		h.flush(ctx, []*step{s})
		if h.pause(ctx, min(pause, h.config.grace())) != nil {
			h.owe(strike{s.ID, s.Token})
			return false
		}
	}
}

// A strike is the strike of one delivery. It is kept under the message's id.
type strike struct{ messageID, token string }

// owe keeps a strike for clearOwed.
func (h *Handler) owe(s strike) {
	h.owedMu.Lock()
	defer h.owedMu.Unlock()
	h.owed = append(h.owed, s)
}

// clearOwed tries once to clear the strikes that the invocations of this process had no time to clear. Those
// invocations returned, so their strikes are no deaths.
func (h *Handler) clearOwed(ctx context.Context) {
	h.owedMu.Lock()
	owed := h.owed
	h.owed = nil
	h.owedMu.Unlock()
	for _, s := range owed {
		if err := h.ledger.ClearStrike(ctx, s.messageID, s.token); err != nil {
			h.owe(s)
		}
	}
}

// flush sends the steps' moves and deletes finished messages, so that a later death in this invocation repeats
// none of them.
func (h *Handler) flush(ctx context.Context, steps []*step) {
	h.handOver(ctx, steps)
	done := map[job.Queue][]*step{}
	for _, s := range steps {
		s.settled = true
		if s.outcome != job.Left && s.Lane != job.Unknown && s.ReceiptHandle != "" && !s.deleted {
			done[s.Lane] = append(done[s.Lane], s)
		}
	}
	for lane, gone := range done {
		messages := make([]job.Message, len(gone))
		for i, s := range gone {
			messages[i] = s.Message
		}
		for i, err := range h.lanes.Delete(ctx, lane, messages) {
			if gone[i].deleted = err == nil; err != nil {
				// If this fails, Lambda deletes the message at the end, or its redelivery finds the job final.
				h.log.Warn("not deleted ahead", telemetry.KeyMessageID, messages[i].ID, telemetry.KeyError, err.Error())
			}
		}
	}
}
