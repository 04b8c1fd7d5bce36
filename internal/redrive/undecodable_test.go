package redrive_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// plans makes a plan of each sort of the same 20 jobs.
var plans = map[string]func(*bench) *redrive.Plan{
	"closed": func(b *bench) *redrive.Plan { return b.must(planOf(all)).Plan },
	"open":   func(b *bench) *redrive.Plan { return b.opened(all, 1000) },
}

// each runs a test with a plan of each sort.
func each(t *testing.T, test func(b *bench, planned func(*bench) *redrive.Plan)) {
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = completes(map[string]int{})
				test(b, plan)
			})
		})
	}
}

// wantNamed checks that a run names exactly one job of an ending.
func (b *bench) wantNamed(got *redrive.Run, ending redrive.Ending, name string) {
	b.Helper()
	if names := fmt.Sprint(got.Names[ending]); names != "["+name+"]" {
		b.Errorf("%s: %s, want %s alone", ending, names, name)
	}
}

// undecodableFrom makes an entry undecodable with the n-th send, which sends the n-th job.
func (b *bench) undecodableFrom(n int, id string) {
	run, seen := b.run, 0
	b.run = func(w *world, m job.Message) {
		run(w, m)
		if seen++; seen == n {
			w.unreadable[key(id)] = true
		}
	}
}

// An entry that becomes undecodable after the plan stops nothing else: its message stays, and the run names it.
func TestAnEntryThatBecomesUndecodableIsSkipped(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(20)
		plan := planned(b)
		b.unreadable[key("j0019")] = true
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 19, redrive.Skipped: 1})
		b.wantNamed(got, redrive.Skipped, key("j0019"))
		if n := b.on(job.DLQ); n != 1 {
			b.Errorf("%d left on the DLQ, want the one message", n)
		}
	})
}

// Also if it is the only message that is left.
func TestAnEntryThatBecomesUndecodableAloneIsSkipped(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(1)
		plan := planned(b)
		b.unreadable[key("j0000")] = true
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Skipped: 1})
	})
}

// However many there are.
func TestManyUndecodableEntriesAreSkipped(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(40)
		plan := planned(b)
		for i := range 30 {
			b.unreadable[key(fmt.Sprintf("j%04d", i))] = true
		}
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 10, redrive.Skipped: 30})
	})
}

// The ledger cannot say what became of a job that was sent and whose entry became undecodable. The run waits for it as for any
// other job, and then says so.
func TestASentJobWhoseEntryBecomesUndecodableIsNotJudged(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(20)
		b.undecodableFrom(20, "j0019")
		plan := planned(b)
		began := time.Now()
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 19, redrive.Unjudged: 1})
		b.wantNamed(got, redrive.Unjudged, key("j0019"))
		if took := time.Since(began); took < b.Numbers.CanaryWait {
			b.Errorf("done after %v, want the entry to have %v to become readable", took, b.Numbers.CanaryWait)
		}
		if got.EndedWell() {
			b.Error("told as well ended")
		}
	})
}

// What is mended in time is judged.
func TestAnUndecodableEntryIsReadAgain(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(20)
		b.undecodableFrom(20, "j0019")
		plan := planned(b)
		go func() {
			time.Sleep(5 * time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			clear(b.unreadable)
		}()
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 20})
	})
}

// It proves nothing: a canary is halted for it, and by its name. The continuation goes on without it.
func TestAnUndecodableCanaryHaltsTheRun(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(20)
		b.undecodableFrom(1, "j0000")
		plan := planned(b)
		b.wantHalt(b.runs(plan), redrive.HaltCanary, key("j0000")+" its entry cannot be read: ")
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 19, redrive.Unjudged: 1})
	})
}

// Entries that become undecodable as soon as their jobs are sent are no success: the run does not go on.
func TestARunWhoseEntriesBecomeUndecodableHalts(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(1000)
		b.run = dies(100, b.run, func(w *world, m job.Message) { w.unreadable[keyOf(m)] = true })
		got := b.runs(planned(b))
		b.wantHalt(got, redrive.HaltFailures, "its entry cannot be read: ")
		if n := len(b.sentAt); n > 200 {
			b.Errorf("%d sent, of which %d cannot be judged: halted too late", n, n-99)
		}
	})
}

// A send or a deletion is not confirmed, and then the entry becomes undecodable: a continuation still ends, and sends nothing
// twice.
func TestAStepThatWasBegunBeforeItsEntryBecameUndecodable(t *testing.T) {
	for call, ending := range map[string]redrive.Ending{"send": redrive.Skipped, "delete": redrive.Unjudged} {
		for _, made := range []bool{false, true} {
			t.Run(fmt.Sprint(call, " made ", made), func(t *testing.T) {
				each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
					b.many(1)
					plan := planned(b)
					b.half = func(c string) (before, after error) {
						if c != call {
							return nil, nil
						}
						b.unreadable[key("j0000")] = true
						if made {
							return nil, errOutage
						}
						return errOutage, nil
					}
					got := b.runs(plan)
					b.half = nil
					for rounds := 0; got.State != redrive.Done && rounds < 3; rounds++ {
						time.Sleep(5 * time.Minute)
						got = b.runs(plan)
					}
					b.wantDone(got, map[redrive.Ending]int{ending: 1})
					if n := len(b.sentAt); n > 1 {
						b.Errorf("sent %d times", n)
					}
				})
			})
		}
	}
}

// A message that was begun with and is gone was taken by this run, as far as anybody can tell.
func TestAnUndecodableEntryOfAMessageThatIsGone(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(1)
		plan := planned(b)
		b.onSend = func() { // and the process ends before the deletion's answer is told
			b.mu.Lock()
			defer b.mu.Unlock()
			b.queues[job.DLQ] = nil
			b.fault = func(string) (error, error) { return errOutage, nil }
		}
		_, _ = b.try(b.Context(), redrive.Request{Action: "run", Plan: plan.ID})
		b.onSend, b.fault, b.unreadable[key("j0000")] = nil, nil, true
		time.Sleep(5 * time.Minute)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Unjudged: 1})
	})
}

// Strikes that cannot be decoded are of one message alone.
func TestStrikesThatBecomeUndecodable(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(2)
		id := b.put(job.DLQ, job.Message{Body: body("moved")})
		plan := planned(b)
		b.unreadable[id] = true
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Skipped: 1})
	})
}

// A ledger in trouble is another matter: the run halts, ends nothing, and a continuation finds everything.
func TestALedgerInTroubleEndsNothing(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		b.many(20)
		plan := planned(b)
		ledgerDown := func(call string) (error, error) {
			if strings.HasPrefix(call, "ledger.") {
				return errOutage, nil
			}
			return nil, nil
		}
		b.fault = ledgerDown
		b.wantHalt(b.runs(plan), redrive.HaltCall, "outage")
		b.fault = nil
		time.Sleep(5 * time.Minute)
		n := 0
		b.onSend = func() {
			if n++; n == 2 { // of the canary and of the rest
				b.fault = ledgerDown
			}
		}
		b.wantHalt(b.runs(plan), redrive.HaltCall, "outage")
		b.onSend, b.fault = nil, nil
		time.Sleep(5 * time.Minute)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 20})
	})
}
