package redrive_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// What a run says at its end is what the ledger and the queues hold: with calls that fail, are half done or
// whose answers are lost, with people who look at the DLQ, hide its messages and take some away, counts that lag, the
// in-flight limit, latency and its spikes, copies, and jobs that fail again. The same for an open plan.
func TestWhatARunSaysIsTrue(t *testing.T) {
	for seed := range seeds(100) {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprint(seed, " open ", open), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { runOfChance(t, rand.New(rand.NewPCG(seed, 7)), open) })
			})
		}
	}
}

var seedsFlag = flag.Uint64("redrive.seeds", 0, "how many seeds each property is tried with; 0 is the usual number")

// seeds returns how many seeds a property is tried with. With the race detector a run takes six times as long, so
// it tries a tenth of them; make test runs all of them without it as well.
func seeds(n uint64) uint64 {
	if *seedsFlag > 0 {
		return *seedsFlag
	}
	if raceDetector {
		return n / 10
	}
	return n
}

// thousands skips a test of thousands of messages when the race detector is on.
func thousands(t *testing.T) {
	if raceDetector {
		t.Skip("thousands of messages take long with the race detector; make test runs this test without it as well")
	}
}

func runOfChance(t *testing.T, r *rand.Rand, open bool) {
	b := newBench(t)
	b.Numbers.CanaryWait, b.Numbers.Canary = time.Minute, 1+r.IntN(5)
	b.Numbers.PollEvery = 5 * time.Second // fewer looks for the same waits
	b.Numbers.MaxFailedPercent = 60
	effects := map[string]int{}
	done := completes(effects)
	b.run = func(w *world, m job.Message) {
		if r.Float64() < 0.1 {
			isolatesAgain(w, m)
		} else {
			done(w, m)
		}
	}
	b.many(10 + r.IntN(30))
	for range r.IntN(5) { // copies
		b.put(job.DLQ, b.queues[job.DLQ][r.IntN(len(b.queues[job.DLQ]))].Message)
	}
	b.malformed()
	var plan *redrive.Plan
	if open {
		plan = b.opened(all, 1000)
	} else {
		plan = b.must(planOf(all)).Plan
	}
	planned := map[string]string{}
	for _, m := range b.queues[job.DLQ] {
		if keyOf(m.Message) != "" {
			planned[m.ID] = keyOf(m.Message)
		}
	}
	if len(planned) != plan.Actions[redrive.Redrive]+plan.Actions[redrive.Copy] && !open {
		t.Fatalf("planned %v of %d messages", plan.Actions, len(planned))
	}
	taken := map[string]bool{}
	if r.Float64() < 0.5 { // somebody takes a message away
		id := b.queues[job.DLQ][0].ID
		b.queues[job.DLQ], taken[id] = b.queues[job.DLQ][1:], true
	}
	b.latency = time.Duration(r.IntN(50)) * time.Millisecond
	if r.Float64() < 0.5 {
		b.lag = time.Minute
	}
	if r.Float64() < 0.3 {
		b.limit = 30
	}
	share := 0.15 * r.Float64()
	b.fault = func(call string) (before, after error) {
		err := fmt.Errorf("%s: %w", call, ledger.ErrUnavailable)
		switch x := r.Float64(); {
		case x < share/2:
			return err, nil
		case x < share:
			return nil, err
		}
		return nil, nil
	}
	b.half = b.fault
	looking, stop := context.WithCancel(t.Context())
	var looks sync.WaitGroup
	defer looks.Wait()
	defer stop()
	other := rand.New(rand.NewPCG(r.Uint64(), 8))
	looks.Go(func() { // people look, and the calls become slow and fast again
		for looking.Err() == nil {
			time.Sleep(time.Duration(other.IntN(120)) * time.Second)
			b.mu.Lock()
			b.latency = time.Duration(other.IntN(50)) * time.Millisecond
			if other.Float64() < 0.1 {
				b.latency = 2 * time.Second
			}
			for _, m := range b.queues[job.DLQ] {
				if other.Float64() < 0.3 && !m.visible.After(time.Now()) {
					m.visible = time.Now().Add(time.Duration(other.IntN(180)) * time.Second)
				}
			}
			b.mu.Unlock()
		}
	})
	looks.Go(func() { // and one of them looks through the function, which may answer anything or fail
		for looking.Err() == nil {
			time.Sleep(time.Duration(60+len(planned)) * time.Second)
			_, _ = b.try(looking, redrive.Request{Action: "inspect"})
		}
	})
	var got *redrive.Run
	for round := 0; round < 200 && (got == nil || got.State != redrive.Done); round++ {
		if round == 40 { // the trouble ends
			stop()
			b.mu.Lock()
			b.fault, b.half, b.latency, b.limit = nil, nil, 0, 0
			b.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		if resp, err := b.try(ctx, redrive.Request{Action: "run", Plan: plan.ID}); err == nil && resp.Run != nil {
			got = resp.Run
		}
		cancel()
		time.Sleep(b.Numbers.LockLease + time.Minute)
	}
	stop()
	looks.Wait()
	b.fault, b.half = nil, nil
	if got == nil || got.State != redrive.Done {
		t.Fatalf("never done: %+v", got)
	}
	left := map[string]bool{}
	for _, m := range b.queues[job.DLQ] {
		left[m.ID] = true
	}
	want, acting := map[redrive.Ending]int{}, map[string]int{}
	for id, k := range planned {
		e := b.entries[k]
		switch {
		case left[id]:
			want[redrive.Skipped]++
		case taken[id]:
			want[redrive.Gone]++
		case acting[k] > 0:
			want[redrive.Copied]++
		case e.Status == ledger.Isolated:
			want[redrive.Again]++
		case e.Status == ledger.Done:
			want[redrive.Succeeded]++
		default:
			want[redrive.Ending("entry "+string(e.Status))]++
		}
		if !left[id] && !taken[id] {
			acting[k]++
		}
	}
	// A copy that was met when its job was final is told as removed: both are true.
	said := maps.Clone(got.Endings)
	if n := said[redrive.Removed]; n > 0 {
		delete(said, redrive.Removed)
		said[redrive.Copied] += n
	}
	if open {
		untouched := 0
		for id, k := range planned {
			if e := b.entries[k]; left[id] && e.Status == ledger.Isolated && e.Run != got.ID {
				untouched++
			}
		}
		if untouched > got.Endings[redrive.Skipped] {
			t.Errorf("%d jobs match and were left, the run says %v", untouched, got.Endings)
		}
		// An open plan has no messages of its own: what it never met has no ending.
		for _, ending := range []redrive.Ending{redrive.Skipped, redrive.Gone} {
			if said[ending] > want[ending] {
				t.Errorf("the run says %s of %d messages, there are %d", ending, said[ending], want[ending])
			}
			delete(said, ending)
			delete(want, ending)
		}
	}
	if !maps.Equal(said, want) {
		t.Errorf("the run says %v, the ledger and the queues %v", got.Endings, want)
	}
	total := 0
	for _, n := range got.Endings {
		total += n
	}
	if total != got.Total {
		t.Errorf("%d endings for %d messages", total, got.Total)
	}
	for k, n := range effects {
		if n != 1 {
			t.Errorf("%s took effect %d times", k, n)
		}
	}
}
