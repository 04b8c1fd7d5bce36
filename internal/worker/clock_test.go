package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
)

// The time that a job spent on the DLQ does not make the worker look slow or late.
func TestAJobThatIsPutBackIsMeasuredFromItsReopening(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Rejected, 0)
	b.one(b.record("m1", `{"kind":"test","deadline":"2026-12-01T10:15:00Z","payload":{"ID":"1"}}`))
	isolated := b.last(job.DLQ, 1)

	b.now = b.now.Add(24 * time.Hour)
	b.run = fails(job.Transient, 0) // reopened, it has to try twice
	b.one(b.back("m2", isolated))
	retried := b.last(job.Recovery, 1)
	b.now = b.now.Add(10 * time.Second)
	b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
	b.one(b.back("m3", retried))

	if out := b.out.String(); !strings.Contains(out, `"TerminalLatency":[10000]`) {
		t.Errorf("the latency is not that since the reopening, 10 s:\n%s", out)
	} else if strings.Contains(out, `"Lateness":[`) {
		t.Errorf("late, although ten seconds of fifteen minutes passed:\n%s", out)
	}
}

func TestAReopenedJobCanBeLate(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Rejected, 0)
	b.one(b.record("m1", `{"kind":"test","deadline":"2026-12-01T10:00:05Z","payload":{"ID":"1"}}`))
	isolated := b.last(job.DLQ, 1)
	b.now = b.now.Add(24 * time.Hour)
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		b.now = b.now.Add(7 * time.Second)
		return b.ledger.commit(d, b.Rules, b.now)
	}
	b.one(b.back("m2", isolated))
	if out := b.out.String(); !strings.Contains(out, `"Lateness":[2000]`) {
		t.Errorf("not counted as 2 s late:\n%s", out)
	}
}
