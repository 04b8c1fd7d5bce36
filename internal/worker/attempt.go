package worker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// errAttemptEnded: an attempt was ended because its time was over.
var errAttemptEnded = errors.New("the attempt took all of its time")

// errStuck: the kind's code did not return although its context has ended.
var errStuck = errors.New("the attempt did not return when its time was over")

// attempt runs the kind's code once for a job. A panic is a failed attempt. It keeps the mark of an external
// call without a known outcome.
func (h *Handler) attempt(ctx context.Context, s *step) job.Result {
	results, panicked := h.timed(ctx, []*step{s}, func(ctx context.Context) []job.Result {
		return []job.Result{s.read.Kind.Run(ctx, s.Delivery)}
	})
	if panicked != nil {
		return job.Result{Err: &job.Failure{Class: job.ClassUnknown, Unresolved: true, Err: panicked}}
	}
	return results[0]
}

// timed runs the kind's code for steps of one kind, for at most the attempt's time. It returns a result for
// each step, or the panic. An attempt that was ended by its time has failed, since a hanging dependency is a
// failing one. It keeps the mark of an external call without a known outcome.
//
// Go cannot stop code that ignores its context. The attempt waits briefly for such code and then goes on
// without it; its error is errStuck.
func (h *Handler) timed(ctx context.Context, steps []*step, run func(context.Context) []job.Result) ([]job.Result, error) {
	limit := h.config.Rules.For(steps[0].read.Kind.Attempts).Retry.AttemptTime
	end, short := h.now().Add(limit), false
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end, short = deadline, true // the code before the attempt took part of the time
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx = attemptContext{ctx, end}
	type outcome struct {
		results  []job.Result
		panicked error
	}
	returned := make(chan outcome, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				h.log.Error("panic", telemetry.KeyMessageID, steps[0].ID, telemetry.KeyStack, string(debug.Stack()))
				returned <- outcome{panicked: panicError(p)}
			}
		}()
		returned <- outcome{results: run(ctx)}
	}()
	var o outcome
	select {
	case o = <-returned:
	case <-ctx.Done():
		late := time.NewTimer(h.config.grace())
		defer late.Stop()
		select {
		case o = <-returned:
		case <-late.C:
			o.results = slices.Repeat([]job.Result{{Err: errStuck}}, len(steps))
			return o.results, nil
		}
	}
	for i := range o.results {
		for _, s := range steps { // a batch's error may quote any of its jobs
			o.results[i].Err = s.read.Kind.Hide(s.Envelope.Payload, o.results[i].Err)
		}
	}
	for i, result := range o.results {
		var classified *job.Failure
		switch {
		case result.Verdict != job.Failed || ctx.Err() == nil || errors.As(result.Err, &classified):
		case short: // this is no failure of the job
			o.results[i] = job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("attempt cut short: %w", result.Err)}
		default:
			o.results[i] = job.Result{Err: &job.Failure{Class: job.Transient, Unresolved: true, Err: fmt.Errorf("%w, %v: %w", errAttemptEnded, limit, result.Err)}}
		}
	}
	return o.results, o.panicked
}

// panicError says of which type a panic's value was and which function panicked. Its text may quote the payload, so
// only the runtime's own is kept. It must be called by a deferred function.
func panicError(p any) error {
	var own runtime.Error
	if err, ok := p.(error); ok && errors.As(err, &own) {
		return fmt.Errorf("panic: %w", own)
	}
	return fmt.Errorf("panic with a %T in %s; its text may quote the payload, so it is not kept", p, panicking())
}

// panicking names the function that panicked, and its line.
func panicking() string {
	var counters [64]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(1, counters[:])])
	panicked := false
	for {
		frame, more := frames.Next()
		switch {
		case panicked:
			return fmt.Sprintf("%s, line %d", path.Base(frame.Function), frame.Line)
		case frame.Function == "runtime.gopanic":
			panicked = true
		case !more:
			return "an unknown function"
		}
	}
}

// attemptContext takes its deadline from the handler's clock, which the kind's code uses too.
type attemptContext struct {
	context.Context
	deadline time.Time
}

func (c attemptContext) Deadline() (time.Time, bool) { return c.deadline, true }

// stuck handles a delivery whose code still runs. If that code holds the job's claim, it may still make its
// call. So no failure is written: the delivery waits for the end of the lease, and the next claim counts the
// attempt. Otherwise the attempt has failed. The process must end, so that the code does not go on in a later
// invocation.
func (h *Handler) stuck(ctx context.Context, s *step, err error) {
	h.unsafe.Store(true)
	ctx, cancel := h.recording(ctx)
	defer cancel()
	e, getErr := h.ledger.Get(ctx, s.Key)
	switch {
	case getErr != nil:
		h.unread(s, errors.Join(err, getErr))
	case e.Status == ledger.Running && e.Owner == s.Token:
		h.wait(s, e.LeaseUntil, err)
	default:
		h.record(ctx, s, &job.Failure{Class: job.Transient, Unresolved: true, Err: err})
	}
}

// recording returns a context for the writes after an attempt. The attempt's time may be over; a part of the
// hand-over's time is reserved for these writes.
func (h *Handler) recording(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(h.config.HandoverMargin/2))
}
