package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/retry"
)

// drive is one invocation's work on a run.
type drive struct {
	s    *Service
	run  Run
	rec  Record
	plan Plan
	lock lock
	lrec Record
	mine *held

	limiter *rate.Limiter
	burst   int
	// targets are what is still to be done; sent are those of which only the deletion is.
	targets map[string]target
	sent    map[string]bool
	queue   []lanes.Received
	empty   int
	judged  time.Time
	backlog time.Time
}

func (d *drive) work(ctx context.Context) (*RunView, error) {
	d.run.State, d.run.Why, d.run.Fence, d.run.Waiting = Active, "", d.lock.Fence, 0
	err := d.save(ctx)
	if err == nil {
		err = d.loop(ctx)
	}
	// What was received is given back also when everything else fails.
	d.mine.release(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	var e *ended
	switch {
	case errors.Is(err, errLost):
		run, _, err := d.s.readRun(ctx, d.run.ID)
		return &RunView{Run: run}, err // neither the run nor the lock is ours any more
	case errors.As(err, &e):
		d.run.State, d.run.Why = e.state, e.why
	case err != nil:
		d.run.State, d.run.Why = Paused, "a call failed: "+job.SafeText(err.Error())
	}
	if d.run.State == Stopped {
		d.s.progress.Redriven(0, 0, 1)
		if d.run.Canary == CanarySent {
			d.run.Canary = "" // continued, it begins with a new one
		}
	}
	view := &RunView{Run: d.run}
	if e == nil || e.state != Revoked { // which is written already, by who revoked it
		if err := d.save(ctx); err != nil && !errors.Is(err, errLost) {
			return view, err
		}
	}
	d.lock.Owner, d.lock.Until = "", time.Time{}
	if _, err := d.s.put(ctx, d.lrec, d.lock); err != nil && !errors.Is(err, ErrChanged) {
		return view, fmt.Errorf("release lock: %w", err)
	}
	return view, nil
}

// save writes the run, and tells a revocation and a new owner apart.
func (d *drive) save(ctx context.Context) error {
	d.run.UpdatedAt = d.s.now().UTC()
	rec, err := d.s.put(ctx, d.rec, d.run)
	if errors.Is(err, ErrChanged) {
		if now, _, err := d.s.readRun(ctx, d.run.ID); err != nil {
			return err
		} else if now.State == Revoked {
			d.run.State, d.run.RevokedBy, d.run.RevokedAt = Revoked, now.RevokedBy, now.RevokedAt
			return end(Revoked, "revoked by %s", now.RevokedBy)
		}
		return errLost
	}
	if err == nil {
		d.rec = rec
	}
	return err
}

// beat comes before every cohort, and while waiting: the kill switch, which fails closed; the run,
// which somebody may have revoked; the lock, which somebody may have taken.
func (d *drive) beat(ctx context.Context) error {
	sw, err := d.s.readSwitch(ctx)
	switch {
	case err != nil:
		return end(Stopped, "the kill switch cannot be read, which counts as stopped: %v", err)
	case sw.On:
		return end(Stopped, "kill switch, by %s: %s", sw.By, sw.Reason)
	}
	if err := d.save(ctx); err != nil {
		return err
	}
	if now := d.s.now(); d.lock.Until.Sub(now) < d.s.numbers.LockLease*2/3 {
		d.lock.Until = now.Add(d.s.numbers.LockLease)
		rec, err := d.s.put(ctx, d.lrec, d.lock)
		if errors.Is(err, ErrChanged) {
			return errLost
		} else if err != nil {
			return err
		}
		d.lrec = rec
	}
	return d.inTime(ctx, 0)
}

// inTime pauses the run when less than the margin and what is about to come is left.
func (d *drive) inTime(ctx context.Context, coming time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(d.s.now()) < d.s.numbers.PauseMargin+coming {
		return end(Paused, "near the function's timeout: run it again to continue")
	}
	return nil
}

func (d *drive) sleep(ctx context.Context) error {
	return retry.Sleep(ctx, d.s.numbers.PollEvery)
}

// prepare reads what there is to do, and from the audit what was done by earlier invocations.
func (d *drive) prepare(ctx context.Context) error {
	list, err := d.s.targets(ctx, d.plan)
	if err != nil {
		return err
	}
	d.targets, d.sent = make(map[string]target, len(list)), map[string]bool{}
	for _, t := range list {
		if t.Action.acts() {
			d.targets[t.ID] = t
		}
	}
	counts := map[Step]int{}
	err = d.s.lastLines(ctx, d.run.ID, func(line AuditRecord) {
		if line.What != auditIntent {
			counts[line.What]++
		}
		if line.settles() {
			delete(d.targets, line.Message)
		} else if line.What == auditUndeleted {
			d.sent[line.Message] = true
		}
	})
	d.run.Counts = counts
	d.burst = 10
	d.limiter = rate.NewLimiter(rate.Inf, d.burst)
	if r := d.plan.RatePerSecond; r > 0 {
		d.burst = min(10, max(1, r))
		d.limiter = rate.NewLimiter(rate.Limit(r), d.burst)
	}
	return err
}

func (d *drive) loop(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if d.run.Canary == CanaryPeople { // somebody looked, and ran it again
		d.run.Canary = CanaryPassed
	}
	left := 0 // of the canary
	if d.run.Canary == "" {
		left = d.plan.Canary
		d.run.Watched = nil
	}
	for {
		if d.run.Canary == CanarySent {
			if err := d.awaitCanary(ctx); err != nil {
				return err
			}
			left = 0
		}
		n := d.burst
		if d.run.Canary == "" {
			n = min(n, left)
		}
		cohort, err := d.next(ctx, n)
		if err != nil {
			return err
		}
		if len(cohort) == 0 {
			if d.run.Canary == "" && len(d.run.Watched) > 0 {
				if err := d.sealCanary(); err != nil {
					return err
				}
				continue
			}
			return d.finish(ctx)
		}
		if err := d.headroom(ctx); err != nil {
			return err
		}
		if err := d.pace(ctx, len(cohort)); err != nil {
			return err
		}
		if err := d.beat(ctx); err != nil {
			return err
		}
		redriven, err := d.move(ctx, cohort, d.run.Canary == "")
		if err != nil {
			return err
		}
		if d.run.Canary == "" {
			if left -= redriven; left <= 0 {
				if err := d.sealCanary(); err != nil {
					return err
				}
			}
		} else if err := d.judgeSamples(ctx); err != nil {
			return err
		}
	}
}

// pace waits for the rate.
func (d *drive) pace(ctx context.Context, n int) error {
	now := time.Now()
	r := d.limiter.ReserveN(now, n)
	wait := r.DelayFrom(now)
	if err := d.inTime(ctx, wait); err != nil {
		r.Cancel()
		return err
	}
	if wait <= 0 {
		return nil
	}
	return retry.Sleep(ctx, wait)
}

// headroom waits while the lanes have too much work. It asks at most once per poll.
func (d *drive) headroom(ctx context.Context) error {
	if d.s.now().Sub(d.backlog) < d.s.numbers.PollEvery && !d.backlog.IsZero() {
		return nil
	}
	for {
		work := 0
		for _, q := range []job.Queue{job.Source, job.Recovery} {
			depth, err := d.s.queues.Depth(ctx, q)
			if err != nil {
				return err
			}
			work += depth.Visible + depth.InFlight
		}
		d.backlog = d.s.now()
		if work < d.s.numbers.BacklogLimit {
			d.run.Why = ""
			return nil
		}
		d.run.Why = fmt.Sprintf("waits: %d messages on the lanes, the limit is %d", work, d.s.numbers.BacklogLimit)
		if err := d.beat(ctx); err != nil {
			return err
		}
		if err := d.sleep(ctx); err != nil {
			return err
		}
	}
}

// next returns up to n messages of the plan that are still to be moved, receiving as few as it can.
// It returns none when the plan is worked off or the queue shows nothing any more.
func (d *drive) next(ctx context.Context, n int) ([]lanes.Received, error) {
	for len(d.queue) == 0 && len(d.targets) > 0 && d.empty < d.s.numbers.EmptyReceives {
		if err := d.inTime(ctx, 0); err != nil {
			return nil, err
		}
		received, err := d.s.queues.Receive(ctx, job.DLQ, 10, d.s.visibility(ctx), d.s.numbers.ReceiveWait)
		if err != nil {
			return nil, err
		}
		if len(received) == 0 {
			d.empty++
			continue
		}
		d.empty = 0
		for _, m := range received {
			known := d.mine.has(m.ID)
			d.mine.keep(m.Message)
			if _, ours := d.targets[m.ID]; ours && !known {
				d.queue = append(d.queue, m)
			}
		}
		// A long scan for few messages must not lose the lock, nor outrun a stop.
		if d.lock.Until.Sub(d.s.now()) < d.s.numbers.LockLease*2/3 {
			if err := d.beat(ctx); err != nil {
				return nil, err
			}
		}
	}
	n = min(n, len(d.queue))
	cohort := d.queue[:n:n]
	d.queue = d.queue[n:]
	return cohort, nil
}

// finish ends a run that has nothing left to receive.
func (d *drive) finish(ctx context.Context) error {
	if len(d.targets) == 0 {
		return end(Done, "")
	}
	depth, err := d.s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return err
	}
	if others := depth.InFlight - len(d.mine.byID); others > 0 {
		d.run.Waiting = len(d.targets)
		return end(Paused, "%d planned messages were not seen, and %d on the DLQ are in flight: run it again when they are visible", len(d.targets), others)
	}
	open := 0
	for id := range d.targets {
		if d.mine.has(id) {
			open++ // seen, and not settled
		}
	}
	d.run.Counts[countGone] = len(d.targets) - open
	if open > 0 {
		return end(Paused, "%d messages are not settled: run it again", open)
	}
	return end(Done, "")
}
