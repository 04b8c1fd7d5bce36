package stack

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/ledger"
)

// After four hours without the ledger, at 100 jobs a second, every displaced job ends within a stated time, and fresh
// jobs do not wait for them. docs/benchmarks.md has the figures.
func TestAfterAnOutageOfFourHours(t *testing.T) {
	for _, c := range []struct {
		name string
		// takes is how long an attempt takes during the outage.
		takes time.Duration
		// ends is when the last displaced job has ended, after the outage. fresh is the longest time from the sending of
		// a fresh job to its end, and soon the same from calm on.
		ends, fresh, calm, soon time.Duration
	}{
		{name: "calls are refused at once", takes: usual, ends: 15*time.Minute + 30*time.Second, fresh: 2 * time.Second, soon: 2 * time.Second},
		{
			name: "calls hang until the attempt ends", takes: DefaultNumbers().AttemptTime,
			ends: 15*time.Minute + 30*time.Second, fresh: 3 * time.Minute, calm: 3 * time.Minute, soon: 2 * time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 5*time.Second, 500)
				var began, over time.Time
				ends := map[string]int{}
				displaced := 0
				var last, fresh, soon time.Duration
				w.ended = func(e ledger.Entry) {
					now := time.Now()
					switch ends[e.Key]++; {
					case began.IsZero() || e.FirstSent.Before(began):
					case over.IsZero() || e.FirstSent.Before(over):
						displaced++
						last = now.Sub(over)
					default:
						fresh = max(fresh, now.Sub(e.FirstSent))
						if e.FirstSent.After(over.Add(c.calm)) {
							soon = max(soon, now.Sub(e.FirstSent))
						}
					}
				}
				done := make(chan struct{})
				go w.live(done)
				time.Sleep(warm - time.Second/2)
				w.mu.Lock()
				began = time.Now()
				before := w.sent
				w.fault = faults{ledger: fmt.Errorf("%w: down", ledger.ErrUnavailable), takes: c.takes}
				w.mu.Unlock()
				time.Sleep(4 * time.Hour)
				w.mu.Lock()
				over = time.Now()
				sent := w.sent - before
				w.fault = faults{}
				w.mu.Unlock()
				time.Sleep(time.Hour)
				w.mu.Lock()
				w.stop = true
				w.mu.Unlock()
				<-done

				t.Logf("%d displaced jobs stand for %v; the last ended after %v; a fresh job took up to %v, from %v on up to %v",
					displaced, float64(displaced)*w.weight, last, fresh, c.calm, soon)
				if displaced != sent {
					t.Errorf("%d of %d displaced jobs ended", displaced, sent)
				}
				for key, n := range ends {
					if n != 1 {
						t.Errorf("%s ended %d times", key, n)
					}
				}
				if last > c.ends {
					t.Errorf("the last displaced job ended %v after the outage, want %v at most", last, c.ends)
				}
				if fresh > c.fresh {
					t.Errorf("a fresh job took %v, want %v at most", fresh, c.fresh)
				}
				if soon > c.soon {
					t.Errorf("a fresh job that was sent %v after the outage or later took %v, want %v at most", c.calm, soon, c.soon)
				}
			})
		})
	}
}
