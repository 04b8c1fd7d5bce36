package redrive

import (
	"acklast/internal/job"
	"acklast/internal/lanes"
	"context"
	"errors"
	"slices"
	"sync"
)

// next returns up to n messages of the plan that are still to be moved, receiving as few as it can.
// It returns none when the plan is worked off or the queue shows nothing any more.
func (d *drive) next(ctx context.Context, n int) ([]lanes.Received, error) {
	for len(d.queue) < n && d.unseen > 0 && d.empty < d.s.numbers.EmptyReceives {
		if err := d.inTime(ctx, 0); err != nil {
			return nil, err
		}
		calls := min((min(n-len(d.queue), d.unseen)+batch-1)/batch, sideBySide)
		if err := d.receive(ctx, calls); err != nil {
			return nil, err
		}
		// A long search for few messages must not lose the lock, nor outrun a stop.
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

// receive takes what so many calls side by side give, and keeps what is of the plan for the next cohorts.
func (d *drive) receive(ctx context.Context, calls int) error {
	answers, errs := make([][]lanes.Received, calls), make([]error, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			answers[i], errs[i] = d.s.queues.Receive(ctx, job.DLQ, batch, d.s.numbers.Hide, d.s.numbers.ReceiveWait)
		})
	}
	group.Wait()
	got := 0
	for _, m := range slices.Concat(answers...) {
		got++
		known := d.mine.has(m.ID)
		d.mine.keep(m.Message)
		if _, ours := d.targets[m.ID]; ours && !known {
			d.queue = append(d.queue, m)
			d.unseen--
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if d.empty++; got > 0 {
		d.empty = 0
	}
	return nil
}
