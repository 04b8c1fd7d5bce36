package redrive

import (
	"context"
	"errors"

	"acklast/internal/lanes"
)

// next returns up to n messages of the plan that are still to be moved, receiving as few as it can.
// It returns none when the plan is worked off or the queue shows nothing any more.
func (d *drive) next(ctx context.Context, n int) ([]lanes.Received, error) {
	d.enqueueWaiting()
	for len(d.queue) < n && d.wanting() {
		if err := d.inTime(ctx, 0); err != nil {
			return nil, err
		}
		want := n - len(d.queue)
		if d.pass == nil {
			want = min(want, d.unseen)
		}
		calls := min((want+batch-1)/batch, sideBySide)
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
	if d.pass != nil {
		return d.pick(n), nil
	}
	n = min(n, len(d.queue))
	cohort := d.queue[:n:n]
	d.queue = d.queue[n:]
	return cohort, nil
}

// wanting says whether the DLQ may still give messages that are to be moved.
func (d *drive) wanting() bool {
	if d.pass != nil {
		return !d.exhausted() && !d.pass.over(d.s.numbers.IdleReceives)
	}
	return d.unseen > 0 && d.empty < d.s.numbers.EmptyReceives && d.idle < d.s.numbers.IdleReceives
}

// receive makes so many calls side by side, and queues the plan's messages for the next cohorts. If the DLQ has more messages
// than may be hidden, it gives back those that it is not going to move.
func (d *drive) receive(ctx context.Context, calls int) error {
	if len(d.mine.byID)+calls*batch > d.s.numbers.MaxHidden {
		d.mine.releaseBut(ctx, func(id string) bool { _, ours := d.targets[id]; return ours })
		d.gaveBack = true
	}
	received, err := d.s.receive(ctx, calls)
	got := len(received)
	if d.pass != nil {
		for _, m := range received {
			d.mine.keep(m.Message)
		}
		return errors.Join(err, d.meet(ctx, received))
	}
	d.idle++
	for _, m := range received {
		known := d.mine.has(m.ID)
		d.mine.keep(m.Message)
		first := d.met.first(m.ID)
		if first {
			d.idle = 0
		}
		if first || d.sent[m.ID] && !known { // sent, and still there
			d.here++
		}
		if _, ours := d.targets[m.ID]; ours && !known {
			d.enqueue(m)
			d.idle = 0
			d.unseen--
		}
	}
	if err != nil {
		return err
	}
	if d.empty++; got > 0 {
		d.empty = 0
	}
	return nil
}

// enqueue queues a message of the plan, unless it is a copy of one that is still to be sent.
func (d *drive) enqueue(m lanes.Received) {
	t := d.targets[m.ID]
	acting := d.acting[t.Key]
	if _, open := d.targets[acting]; t.Action == Copy && open && !d.sent[acting] {
		d.waiting = append(d.waiting, m)
		return
	}
	d.queue = append(d.queue, m)
}

// enqueueWaiting queues the copies that need not wait any more.
func (d *drive) enqueueWaiting() {
	waiting := d.waiting
	d.waiting = nil
	for _, m := range waiting {
		d.enqueue(m)
	}
}

// leave notes that a message is not on the DLQ any more, as far as this run knows.
func (d *drive) leave(id string) {
	if d.mine.has(id) {
		d.here--
	}
	d.mine.drop(id)
}
