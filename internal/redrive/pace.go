package redrive

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"acklast/internal/job"
	"acklast/internal/retry"
)

// setRate sets the rate, and the cohort by it: a wait for the rate takes a second at most. So a slow run keeps its lock
// and its messages, and notices a stop as soon as a fast one.
func (d *drive) setRate(perSecond int) {
	d.cohort = max(min(batch, perSecond), perSecond/2)
	d.limiter.SetLimit(rate.Limit(perSecond))
	d.limiter.SetBurst(d.cohort) // a cohort must fit, but not more than that after a faster rate
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
	if d.s.now().Sub(d.backlogAt) < d.s.numbers.PollEvery && !d.backlogAt.IsZero() {
		return nil
	}
	for {
		lanes := []job.Queue{job.Source, job.Recovery}
		depths := make([]int, len(lanes))
		var group errgroup.Group
		for i, q := range lanes {
			group.Go(func() error {
				depth, err := d.s.queues.Depth(ctx, q)
				depths[i] = depth.Visible + depth.InFlight
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		work := depths[0] + depths[1]
		d.backlogAt = d.s.now()
		if work < d.s.numbers.BacklogLimit {
			d.run.Why = ""
			return nil
		}
		d.run.Why = fmt.Sprintf("waits: %d messages on the lanes, the limit is %d", work, d.s.numbers.BacklogLimit)
		if err := d.rest(ctx); err != nil {
			return err
		}
	}
}
