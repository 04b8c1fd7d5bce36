package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/schedule"
)

// early takes a job that is not due to its wait: a schedule if it is due far ahead, else a delay.
//
// A schedule is made in three steps. Each can be repeated after a crash, and copies of the job meet in each:
//
//	entry: scheduled until ─▶ schedule, its name known from the job ─▶ acknowledged
//
// The entry comes first, so that it outlives the schedule whatever becomes of the job before. If a step fails, the
// job hops, and each hop tries again: waiting needs nothing but a queue. Only a job that no schedule can carry is
// bound by what hops can wait.
func (h *Handler) early(ctx context.Context, s *step, ahead time.Duration) {
	most, limit := h.config.MaxAhead, ""
	var why error
	if h.config.Schedules() && ahead > h.config.ScheduleFrom {
		var done bool
		if done, why = h.schedule(ctx, s, ahead); done {
			return
		}
		var unfit *schedule.UnfitError
		if errors.As(why, &unfit) {
			limit = ", and " + unfit.Error()
		} else {
			most = h.config.ScheduleAhead
		}
	}
	if ahead > most {
		h.isolateFor(ctx, s, job.Rejected, job.CausePermanent,
			fmt.Sprintf("it is due in %v, more than the %v that a job can wait here%s", ahead.Round(time.Minute), most, limit))
		return
	}
	h.wait(s, s.Envelope.NotBefore, why)
}

// schedule hands a job to the scheduler. It returns true when the step has its outcome, else the reason why the
// job has to hop.
func (h *Handler) schedule(ctx context.Context, s *step, ahead time.Duration) (done bool, why error) {
	if ahead > h.config.ScheduleAhead {
		return false, nil
	}
	m := withMemory(s.Message, s.memory())
	message := schedule.Message{Body: m.Body, Attributes: lanes.Outgoing(m), Group: m.Group, TraceHeader: m.TraceHeader}
	if err := message.Fits(h.config.RecoveryURL); err != nil {
		return false, err
	}
	due, name := s.Envelope.NotBefore, ""
	e, err := h.change(ctx, s, func(e ledger.Entry) (ledger.Entry, error) {
		name = schedule.Name(s.Key, e.Redrives, due, s.Digest)
		return h.config.Rules.Schedule(e, s.Delivery, name, h.now())
	})
	var conflict *ledger.ConflictError
	switch {
	case err == nil, errors.Is(err, ledger.ErrScheduled):
	case errors.Is(err, ledger.ErrFinal), errors.Is(err, ledger.ErrIsolated), errors.As(err, &conflict):
		h.refused(ctx, s, e, err)
		return true, nil
	default:
		return false, err
	}
	if err := h.scheduler.Create(ctx, name, due.Add(-h.config.ScheduleEarly), h.now(), message); err != nil {
		return false, err
	}
	s.hold()
	return true, nil
}
