package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

// seal ends the sending of the canary and begins the wait for its outcome.
func (d *drive) seal() {
	d.run.Canary, d.run.CanaryUntil = CanarySent, d.s.now().Add(d.s.numbers.CanaryWait).UTC()
	d.watch()
}

// nextStage goes on to the plan's next stage, or to the rest after the last one.
func (d *drive) nextStage() {
	d.run.Canary, d.run.Keyless = "", 0
	if d.run.Stage++; d.run.Stage >= len(d.plan.Stages) {
		d.run.Canary = CanaryPassed
	}
}

// awaitCanary waits until every job of the canary came to its end. One that did not succeed halts the
// run, as does one that does not end in time. A stage with jobs without a key is for people to judge.
func (d *drive) awaitCanary(ctx context.Context) error {
	var canary []*sentJob
	for _, j := range d.window {
		if j.Canary {
			canary = append(canary, j)
		}
	}
	for {
		if _, err := d.judge(ctx, canary); err != nil {
			return err
		}
		var open *sentJob
		for _, j := range canary {
			switch {
			case j.Ending.open():
				open = j
			case j.Ending.failed(), j.Ending == TakenOver: // a job that was taken over proves nothing
				return halt(HaltCanary, "the canary failed: %s: %s: %s", j.Job, j.Ending, j.Why)
			}
		}
		if err := d.judgeShare(); err != nil {
			return err
		}
		if open == nil {
			break
		}
		if past(d.run.CanaryUntil, d.s.now()) {
			return halt(HaltCanary, "the canary did not end within %v: %s %s", d.s.numbers.CanaryWait, open.Job, open.Why)
		}
		if err := d.rest(ctx); err != nil {
			return err
		}
	}
	if d.run.Keyless > 0 {
		d.run.Canary = CanaryPeople
		return halt(HaltPeople, "the canary is sent, and the ledger cannot judge jobs without a key, of which it has %d: look at the worker's errors and the DLQ, then run it again", d.run.Keyless)
	}
	d.nextStage()
	return d.save(ctx)
}

// judge asks the ledger about jobs, side by side. A call that failed leaves its job as it is; it is an error when all
// failed. An entry that cannot be decoded is of that job alone, and until it can be the job is not judged. It returns how
// many jobs were throttled.
func (d *drive) judge(ctx context.Context, list []*sentJob) (throttled int, err error) {
	var group errgroup.Group
	group.SetLimit(sideBySide)
	errs := make([]error, len(list))
	asked := 0
	for i, j := range list {
		if !j.Ending.open() {
			continue
		}
		asked++
		group.Go(func() error {
			e, err := d.s.ledger.Get(ctx, j.Job)
			switch {
			case errors.Is(err, ledger.ErrUndecodable):
				j.Ending, j.Why, j.throttled = Unjudged, cannotRead+err.Error(), false
			case err != nil:
				errs[i] = fmt.Errorf("job %s: %w", j.Job, err)
				return nil
			default:
				j.Ending, j.Why, j.throttled = judge(e, d.run.ID, j.Generation)
			}
			j.Why = job.SafeText(j.Why)
			return nil
		})
	}
	_ = group.Wait()
	failed := 0
	for i, j := range list {
		if errs[i] != nil {
			failed++
		} else if j.throttled {
			throttled++
		}
	}
	d.watch()
	d.count()
	if failed > 0 && failed == asked {
		return throttled, errors.Join(errs...)
	}
	return throttled, nil
}

// judgeEvery is how many polls lie between two looks at the window.
const judgeEvery = 3

// judgeWindow judges the run by the jobs that it sent last, as they come to their ends.
func (d *drive) judgeWindow(ctx context.Context) error {
	if d.s.now().Sub(d.judgedAt) >= judgeEvery*d.s.numbers.PollEvery {
		throttled, err := d.judge(ctx, d.sample())
		if err != nil {
			return err
		}
		d.judgedAt = d.s.now()
		d.adjust(throttled)
	}
	return d.judgeShare()
}

// sample are the jobs to ask about: those of the window that may change, and of the rest so many, evenly
// spread, as a look can afford.
func (d *drive) sample() []*sentJob {
	var open []*sentJob
	for _, j := range d.window {
		if j.Ending.open() {
			open = append(open, j)
		}
	}
	most := 2 * d.s.numbers.Window
	if len(open) <= most {
		return open
	}
	list := make([]*sentJob, most)
	for i := range list {
		list[i] = open[i*len(open)/most]
	}
	return list
}

// judgeShare halts the run when, of the jobs judged last, too many did not succeed, or when too many were
// final already.
func (d *drive) judgeShare() error {
	n := d.s.numbers
	judged, bad, why := 0, 0, ""
	for i := len(d.window) - 1; i >= 0 && judged < n.Window; i-- {
		j := d.window[i]
		if j.Ending == "" || j.Ending == TooLate || j.Ending == TakenOver {
			continue
		}
		judged++
		if j.Ending.failed() {
			bad++
			why = fmt.Sprintf("%s: %s: %s", j.Job, j.Ending, j.Why)
		}
	}
	if judged >= n.MinSample && bad*100 > n.MaxFailedPercent*judged {
		return halt(HaltFailures, "%d of the %d jobs judged last did not succeed, more than %d %%: %s", bad, judged, n.MaxFailedPercent, why)
	}
	// Removed by plan is not a surprise; removed beyond it is a job that somebody else ran.
	surprising := func(counts map[Step]int) int {
		return max(0, counts[auditRemoved]+counts[auditFinal]-d.plan.Actions[Remove])
	}
	final := surprising(d.run.Counts) - surprising(d.before)
	if d.pass != nil {
		final = d.surprises
	}
	sent := func(counts map[Step]int) int { return counts[auditSent] + counts[auditUndeleted] }
	all := final + sent(d.run.Counts) - sent(d.before)
	if final >= n.MinSample && final*100 > n.MaxDuplicatePercent*all {
		return halt(HaltFinal, "%d of %d jobs were final already, more than %d %%: somebody else brings them back", final, all, n.MaxDuplicatePercent)
	}
	return nil
}

// adjust halves the rate while jobs are throttled, and lets it grow again after that.
func (d *drive) adjust(throttled int) {
	full := d.plan.RatePerSecond
	if full < 0 {
		full = d.s.numbers.MaxRate
	}
	now := int(min(d.limiter.Limit(), rate.Limit(full)))
	switch {
	case throttled > 0:
		d.setRate(max(1, now/2))
		d.run.Why = fmt.Sprintf("slowed down to %.0f per second: %d jobs were throttled", float64(d.limiter.Limit()), throttled)
	case d.limiter.Limit() < rate.Limit(full):
		d.setRate(min(full, now*2))
	}
}

// watch shows in the run the canary and the window.
func (d *drive) watch() {
	d.run.Watched = d.run.Watched[:0]
	for i, j := range d.window {
		if j.Canary || i >= len(d.window)-d.s.numbers.Window {
			d.run.Watched = append(d.run.Watched, j.Watched)
		}
	}
}

// pause sleeps, unless the function's time would end in it.
func (d *drive) pause(ctx context.Context, t time.Duration) error {
	if err := d.inTime(ctx, t); err != nil {
		return err
	}
	return retry.Sleep(ctx, t)
}
