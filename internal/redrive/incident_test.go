package redrive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// retries is a worker of which every attempt fails, to be tried again later.
func retries(class job.Class) func(*world, job.Message) {
	return func(w *world, m job.Message) {
		e := w.entries[keyOf(m)]
		if e.Status != ledger.Pending {
			return
		}
		e.Version, e.LastClass, e.LastError = e.Version+1, class, "503"
		if class == job.Throttled { // which spends time, and not the count
			e.Throttles++
		} else {
			e.Attempts++
		}
		e.RetryAt = time.Now().Add(time.Hour)
		w.entries[e.Key] = e
	}
}

// dies makes the n-th job and all after it the broken worker's.
func dies(n int, well, broken func(*world, job.Message)) func(*world, job.Message) {
	seen := 0
	return func(w *world, m job.Message) {
		if seen++; seen < n {
			well(w, m)
		} else {
			broken(w, m)
		}
	}
}

func (b *bench) wantHalt(got *redrive.Run, code redrive.Code, why string) {
	b.Helper()
	if got.State != redrive.Halted {
		b.Errorf("state %s, want halted", got.State)
	}
	if got.Code != code {
		b.Errorf("code %q (%s), want %q", got.Code, got.Why, code)
	}
	if !strings.Contains(got.Why, why) {
		b.Errorf("why %q, want %q in it", got.Why, why)
	}
}

func (b *bench) wantDone(got *redrive.Run, endings map[redrive.Ending]int) {
	b.Helper()
	if got.State != redrive.Done {
		b.Errorf("state %s %s: %s, want done", got.State, got.Code, got.Why)
	}
	if fmt.Sprint(got.Endings) != fmt.Sprint(endings) {
		b.Errorf("endings %v, want %v", got.Endings, endings)
	}
}

func (b *bench) many(n int) {
	b.Helper()
	for i := range n {
		b.isolated(fmt.Sprintf("j%04d", i), job.Transient)
	}
	b.Numbers.ApprovalAbove = max(b.Numbers.ApprovalAbove, n)
}

// A dependency that dies in the middle of a run halts it, however many jobs were well before.
func TestADependencyThatDiesHaltsTheRun(t *testing.T) {
	thousands(t)
	for name, broken := range map[string]func(*world, job.Message){
		"and jobs are isolated again": isolatesAgain,
		"and attempts fail":           retries(job.Transient),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = dies(520, completes(map[string]int{}), broken)
				b.many(3000)
				got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
				b.wantHalt(got, redrive.HaltFailures, "did not succeed")
				if n := len(b.sentAt); n > 520+100 {
					t.Errorf("%d sent, of which %d failed: halted too late", n, n-519)
				}
			})
		})
	}
}

// The last jobs are judged as well: a run does not end while they are open.
func TestARunDoesNotEndBeforeItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var late []job.Message
		done := completes(map[string]int{})
		b.run = dies(8, done, func(_ *world, m job.Message) { late = append(late, m) })
		b.many(10)
		go func() {
			time.Sleep(3 * time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range late {
				done(b.world, m)
			}
		}()
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 10})
	})
}

// Jobs that nobody ran are no success and no failure: the run says so, and can be continued.
func TestJobsThatDoNotRunHaltTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		paused := true
		b.run = dies(8, done, func(w *world, m job.Message) {
			if paused {
				w.queues[job.Recovery] = append(w.queues[job.Recovery], &queued{Message: m})
			} else {
				done(w, m)
			}
		})
		b.many(10)
		plan := b.must(planOf(all)).Plan
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantHalt(got, redrive.HaltNotRun, "3 jobs were sent and have not run")
		paused = false
		b.settle()
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 10})
		if n := len(b.sentAt); n != 10 {
			t.Errorf("%d sent, want 10", n)
		}
	})
}

// A job that is still being retried at the end is told as that.
func TestAJobThatIsStillRetriedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = dies(10, completes(map[string]int{}), retries(job.Transient))
		b.many(10)
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 9, redrive.Retrying: 1})
		if names := got.Names[redrive.Retrying]; len(names) != 1 {
			t.Errorf("names %v, want the one job", names)
		}
		if got.EndedWell() {
			t.Error("told as well ended")
		}
	})
}

// A throttled job is asked for patience: it is no verdict, and the run becomes slower.
func TestThrottledJobsSlowTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		var waiting []job.Message
		b.run = dies(6, done, func(w *world, m job.Message) {
			retries(job.Throttled)(w, m)
			waiting = append(waiting, m)
		})
		b.many(400)
		go func() {
			time.Sleep(90 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range waiting {
				done(b.world, m)
			}
			b.run = done
		}()
		began := time.Now()
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 400})
		n := 0
		for _, at := range b.sentAt {
			if at.Sub(began) < 90*time.Second {
				n++
			}
		}
		if n > 200 {
			t.Errorf("%d sent in 90 s of throttling, want far fewer than the rate's 900", n)
		}
	})
}

// A run whose jobs are throttled goes on slowly, whatever its rate was: its lock does not lapse, its messages stay
// hidden, and it stops when it is told to.
func TestARunThatIsSlowedDownIsAlive(t *testing.T) {
	thousands(t)
	for _, perSecond := range []int{100, 500} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = dies(6, completes(map[string]int{}), retries(job.Throttled))
				b.many(3500)
				req := planOf(all)
				req.RatePerSecond = perSecond
				plan := b.must(req).Plan
				var got *redrive.Run
				var ended time.Time
				done := make(chan struct{})
				go func() {
					got, ended = b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, time.Now()
					close(done)
				}()
				time.Sleep(time.Second)
				for range 30 {
					time.Sleep(10 * time.Second)
					if now := b.must(redrive.Request{Action: "status", Run: plan.Run}).Run; now.State != redrive.Active {
						t.Fatalf("%d sent: a run that goes on is %s %s: %s", len(b.sentAt), now.State, now.Code, now.Why)
					}
				}
				for _, m := range b.queues[job.DLQ] {
					if m.ReceiveCount > 2 { // once by the plan
						t.Fatalf("%s was received %d times", m.ID, m.ReceiveCount)
					}
				}
				stopped := time.Now()
				b.must(redrive.Request{Action: "stop", By: "bob", Reason: "too slow"})
				<-done
				b.wantHalt(got, redrive.HaltSwitch, "bob: too slow")
				if took := ended.Sub(stopped); took > 5*time.Second {
					t.Errorf("stopped after %v, want at once", took)
				}
			})
		})
	}
}

// After the throttling a run without a limit becomes fast again.
func TestARunWithoutALimitRecoversFromThrottling(t *testing.T) {
	thousands(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		var waiting []job.Message
		b.run = dies(6, done, func(w *world, m job.Message) {
			retries(job.Throttled)(w, m)
			waiting = append(waiting, m)
		})
		b.many(5000)
		go func() {
			time.Sleep(30 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range waiting {
				done(b.world, m)
			}
			b.run = done
		}()
		req := planOf(all)
		req.RatePerSecond = -1
		plan := b.must(req).Plan
		began := time.Now()
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 5000})
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("done after %v, want the rate to grow again after 30 s", took)
		}
	})
}

// Jobs that are still throttled at the end have run: the run says what they wait for.
func TestJobsThatAreThrottledAtTheEndAreTold(t *testing.T) {
	each(t, func(b *bench, planned func(*bench) *redrive.Plan) {
		var waiting []job.Message
		done := b.run
		b.run = dies(8, done, func(w *world, m job.Message) {
			retries(job.Throttled)(w, m)
			waiting = append(waiting, m)
		})
		b.many(13)
		plan := planned(b)
		b.wantHalt(b.runs(plan), redrive.HaltThrottled, "6 jobs are still throttled after 10m0s, such as test/j00")
		for _, m := range waiting {
			done(b.world, m)
		}
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 13})
	})
}

// hidden hides what is on the DLQ, as another's look does.
func (b *bench) hidden(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.queues[job.DLQ] {
		m.visible = time.Now().Add(d)
	}
}

// Messages that others hide, counts that lag and SQS's in-flight limit are no proof that a message is gone.
func TestUnseenIsNotGone(t *testing.T) {
	for name, hide := range map[string]func(*bench){
		"hidden by another's look": func(b *bench) { b.hidden(time.Hour) },
		"hidden, and the counts lag": func(b *bench) {
			b.lag = time.Minute
			b.queues[job.DLQ] = nil // as the counts still say
			b.many(1)
			b.hidden(time.Hour)
		},
		"at the in-flight limit": func(b *bench) { b.limit = 1; b.hidden(time.Hour) },
		"hidden by one look after another": func(b *bench) {
			b.hidden(30 * time.Second)
			go func() {
				for range 40 {
					b.hidden(30 * time.Second)
					time.Sleep(20 * time.Second)
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = completes(map[string]int{})
				b.many(1)
				plan := b.must(planOf(all)).Plan
				saved := b.queues[job.DLQ]
				hide(b)
				b.mu.Lock()
				if len(b.queues[job.DLQ]) == 1 {
					b.queues[job.DLQ][0].Message = saved[0].Message
				}
				b.mu.Unlock()
				got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
				b.wantHalt(got, redrive.HaltNotSeen, "were not seen")
				if got.Unseen != 1 {
					t.Errorf("%d unseen, want 1", got.Unseen)
				}
				time.Sleep(2 * time.Hour)
				b.limit = 0
				got = b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
				b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 1})
			})
		})
	}
}

func TestGoneTakesALongCleanLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.must(planOf(all)).Plan
		b.queues[job.DLQ] = b.queues[job.DLQ][1:]
		began := time.Now()
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Gone: 1})
		if took := time.Since(began); took < b.Numbers.GoneAfter {
			t.Errorf("called gone after %v, want at least %v", took, b.Numbers.GoneAfter)
		}
		if names := fmt.Sprint(got.Names[redrive.Gone]); names != "[test/j0000]" {
			t.Errorf("gone: %s, want [test/j0000]", names)
		}
	})
}

// Every continuation after a halt sends a canary first, and is judged by what it sends itself.
func TestContinuationsStartWithAFreshCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = dies(100, completes(map[string]int{}), isolatesAgain)
		b.many(1000)
		plan := b.must(planOf(all)).Plan
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantHalt(got, redrive.HaltFailures, "did not succeed")
		for round := range 3 { // nothing is mended yet
			before := len(b.sentAt)
			got = b.must(redrive.Request{Action: "run", Run: plan.Run}).Run
			b.wantHalt(got, redrive.HaltCanary, "the canary failed")
			if n := len(b.sentAt) - before; n != b.Numbers.Canary {
				t.Errorf("round %d sent %d, want the canary's %d", round, n, b.Numbers.Canary)
			}
		}
		if n := len(got.Halts); n != 4 {
			t.Errorf("%d halts are kept as history, want 4", n)
		}
		b.run = completes(map[string]int{})
		again := 1000 - b.on(job.DLQ) // what failed is there anew, what succeeded is not
		got = b.must(redrive.Request{Action: "run", Run: plan.Run}).Run
		if got.State != redrive.Done {
			t.Errorf("mended: %s %s", got.Code, got.Why)
		}
		if got.Endings[redrive.Again] != b.on(job.DLQ) {
			t.Errorf("%d told as isolated again, the DLQ has %d", got.Endings[redrive.Again], b.on(job.DLQ))
		}
		if again != 99 {
			t.Errorf("%d succeeded before, want 99", again)
		}
	})
}

func TestTheSwitchIsReadBeforeARunExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.must(planOf(all)).Plan
		b.must(redrive.Request{Action: "stop", By: "bob", Reason: "incident"})
		b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "bob: incident")
		b.refused(redrive.Request{Action: "run", Plan: plan.ID, Begin: true}, "bob: incident")
		for _, r := range []redrive.Request{{Action: "status"}, {Action: "inspect"}, {Action: "status", Plan: plan.ID}, planOf(all)} {
			if got := b.ask(t.Context(), r); got.Switch == nil || !got.Switch.On || got.Switch.By != "bob" {
				t.Errorf("%s does not name the switch: %+v", r.Action, got.Switch)
			}
		}
		b.must(redrive.Request{Action: "resume", By: "bob", Reason: "over"})
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if got == nil || got.State != redrive.Done {
			t.Errorf("after that: %+v", got)
		}
	})
}

// Beginning a run says at once whether it may go on, and moves nothing.
func TestBeginningMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.must(planOf(all)).Plan
		begin := redrive.Request{Action: "run", Plan: plan.ID, Begin: true}
		for range 2 {
			b.wantHalt(b.must(begin).Run, redrive.HaltNotBegun, "")
		}
		if n := len(b.sentAt); n != 0 {
			t.Errorf("%d sent, want none", n)
		}
		other := b.must(planOf(all)).Plan
		b.latency = time.Second
		done := make(chan *redrive.Run)
		go func() { done <- b.must(redrive.Request{Action: "run", Run: plan.Run}).Run }()
		time.Sleep(10 * time.Second)
		b.refused(redrive.Request{Action: "run", Plan: other.ID, Begin: true}, "one run at a time")
		b.wantDone(<-done, map[redrive.Ending]int{redrive.Succeeded: 3})
		if got := b.must(redrive.Request{Action: "run", Run: plan.Run, Begin: true}).Run; got.State != redrive.Done {
			t.Errorf("a run that is done: %s", got.State)
		}
	})
}

// Jobs of a kind that this version does not know would bounce, unjudged.
func TestJobsOfAnUnknownKindAreNotRedriven(t *testing.T) {
	b := newBench(t)
	for i := range 90 {
		b.put(job.DLQ, job.Message{Body: fmt.Sprintf(`{"kind":"newer","payload":{"id":"%d"}}`, i),
			Memory: job.Memory{Class: job.Rejected, Cause: job.CausePermanent, Error: "kind is not known", At: time.Now()}})
	}
	b.refused(planOf(all), "90 never (its kind is not known to this version)")
}

// hiddenOn counts the messages of the DLQ that nobody can receive now.
func (b *bench) hiddenOn() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.queues[job.DLQ] {
		if m.visible.After(time.Now()) {
			n++
		}
	}
	return n
}

func TestALookHidesNothingAfterwards(t *testing.T) {
	thousands(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.latency = 30 * time.Millisecond
		for i := range 10_000 {
			b.put(job.DLQ, job.Message{Body: body(fmt.Sprint("j", i)), Memory: job.Memory{Class: job.Transient}})
		}
		b.must(redrive.Request{Action: "inspect"})
		if n := b.hiddenOn(); n != 0 {
			t.Errorf("%d messages are hidden after the look", n)
		}
		if b.longest > b.Numbers.Hide {
			t.Errorf("messages were hidden for %v, want at most %v", b.longest, b.Numbers.Hide)
		}
	})
}

// What a look holds stays hidden while it goes on, however long that takes.
func TestALongLookSeesEveryMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.ScanTime = time.Hour
		b.latency = time.Second // 100 receives with their joins: longer than messages are hidden at a time
		b.many(1000)
		got := b.must(redrive.Request{Action: "inspect"})
		if got.Scan.Seen != 1000 || got.Scan.Partial != "" {
			t.Errorf("saw %d of 1000, partial %q", got.Scan.Seen, got.Scan.Partial)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range b.queues[job.DLQ] {
			if m.ReceiveCount != 1 {
				t.Fatalf("%s was received %d times", m.ID, m.ReceiveCount)
			}
		}
	})
}

func TestOneUnreadableEntryIsNamedAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(20)
		b.unreadable[key("j0007")] = true
		resp := b.must(planOf(all))
		if n := resp.Plan.Actions[redrive.Unsure]; n != 1 {
			t.Errorf("actions %v, want one unsure", resp.Plan.Actions)
		}
		named := false
		for _, g := range resp.Groups {
			for _, s := range g.Samples {
				named = named || s.Action == redrive.Unsure && s.Job == key("j0007")
			}
		}
		if !named {
			t.Errorf("the job is not named in %+v", resp.Groups)
		}
		got := b.must(redrive.Request{Action: "run", Plan: resp.Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 19})
		results := b.must(redrive.Request{Action: "discard", Messages: []string{b.queues[job.DLQ][0].ID}, By: "a", Reason: "b"}).Results
		if len(results) != 1 || results[0].Result != "unsure" {
			t.Errorf("discard %+v, want unsure", results)
		}
	})
}

func TestALookDuringARunReceivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(50)
		req := planOf(all)
		req.RatePerSecond = 1
		plan := b.must(req).Plan
		done := make(chan *redrive.Run)
		go func() { done <- b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run }()
		time.Sleep(10 * time.Second)
		hidden := b.hiddenOn()
		got := b.must(redrive.Request{Action: "inspect"})
		if got.Run == nil || got.Run.ID != plan.Run {
			t.Errorf("answered with run %+v, want %s", got.Run, plan.Run)
		}
		if n := b.hiddenOn(); n > hidden {
			t.Errorf("the look hid %d messages", n-hidden)
		}
		b.refused(planOf(all), "is going on")
		b.refused(redrive.Request{Action: "discard", Messages: []string{"m"}, By: "a", Reason: "b"}, "is going on")
		b.wantDone(<-done, map[redrive.Ending]int{redrive.Succeeded: 50})
	})
}

func TestAThrottledKeyIsNotForbidden(t *testing.T) {
	for _, code := range []string{"KmsThrottled", "KMS.ThrottlingException"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.run = completes(map[string]int{})
			b.many(20)
			refusing := lanes.New(refusingSQS{code: code}, topology.QueueURLs{Recovery: "x"})
			b.sendErr = func(m job.Message) error {
				return refusing.Send(t.Context(), job.Recovery, []lanes.Move{{Message: m}})[0]
			}
			plan := b.must(planOf(all)).Plan
			b.wantHalt(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, redrive.HaltCall, "nothing of a cohort was confirmed")
			b.sendErr = nil
			b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 20})
		})
	}
}

// One job is one decision, however many messages it has on the DLQ.
func TestCopiesAreOneDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.many(10)
		for range 3 {
			for _, m := range slices.Clone(b.queues[job.DLQ])[:10] {
				b.put(job.DLQ, m.Message)
			}
		}
		plan := b.must(planOf(all)).Plan
		if plan.Actions[redrive.Redrive] != 10 || plan.Actions[redrive.Copy] != 30 {
			t.Errorf("actions %v, want 10 to redrive and 30 copies", plan.Actions)
		}
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 10, redrive.Copied: 30})
		if n := len(b.sentAt); n != 10 {
			t.Errorf("%d sent, want 10", n)
		}
		if n := b.on(job.DLQ); n != 0 {
			t.Errorf("%d left on the DLQ", n)
		}
	})
}

// Another payload under the same key is no copy: neither message is touched.
func TestAConflictIsNeverMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(2)
		b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"j0000","more":1}}`, Memory: b.queues[job.DLQ][0].Memory})
		plan := b.must(planOf(all)).Plan
		if plan.Actions[redrive.Conflict] != 2 {
			t.Errorf("actions %v, want 2 in conflict", plan.Actions)
		}
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if n := b.on(job.DLQ); n != 2 {
			t.Errorf("%d left on the DLQ, want the 2 in conflict", n)
		}
	})
}

// A copy whose payload is spelled otherwise is a copy all the same.
func TestACopyIsToldByItsPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(1)
		b.put(job.DLQ, job.Message{Body: `{ "payload": {"id" : "j0000"}, "kind":"test" }`, Memory: b.queues[job.DLQ][0].Memory})
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 1})
	})
}

// An approver sees what is approved: groups, samples, and what has changed since.
func TestAnApproverSeesThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(4)
		b.Unqualified, b.Numbers.ApprovalAbove = false, 1
		plan := b.ask(through(t.Context(), "operate"), planOf(all)).Plan
		change := func(id string, f func(*ledger.Entry)) {
			e := b.entries[key(id)]
			f(&e)
			b.entries[key(id)] = e
		}
		change("j0000", func(e *ledger.Entry) { e.Status = ledger.Done })
		change("j0001", func(e *ledger.Entry) { e.LastClass = job.Crashed })
		change("j0002", func(e *ledger.Entry) { e.Redrives = 1 })
		seen := b.ask(through(t.Context(), "approve"), redrive.Request{Action: "status", Plan: plan.ID}).Plan
		if seen == nil {
			t.Fatal("the plan cannot be read through the alias approve")
		}
		if len(seen.Groups) != 1 {
			t.Errorf("%d groups, want 1", len(seen.Groups))
		} else {
			equal(t, seen.Groups[0].Count, 4, "the group's count")
			equal(t, len(seen.Groups[0].Samples) == 0, false, "whether the group has no sample")
		}
		d := seen.Drift
		if d == nil {
			t.Fatal("the plan tells no drift")
		}
		equal(t, d.Final, 1, "the number of final jobs")
		equal(t, d.Guarded, 1, "the number of guarded jobs")
		equal(t, d.Redriven, 1, "the number of redriven jobs")
		equal(t, d.Unread, 0, "the number of unread jobs")
	})
}

// An approval covers what it showed.
func TestAJobThatBecameCrashedNeedsAnotherApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.must(planOf(all)).Plan
		e := b.entries[key("j0001")]
		e.LastClass = job.Crashed
		b.entries[key("j0001")] = e
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Skipped: 1})
		if e := b.entry("j0001"); e.Status != ledger.Isolated || e.Redrives != 0 {
			t.Errorf("it was redriven: %s, generation %d", e.Status, e.Redrives)
		}
	})
}

// While a run's canary is out, another run sends a copy of its job. Only the other run may say that it succeeded.
func TestAJobThatAnotherRunTookOverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		b.run = func(*world, job.Message) {} // the lane is paused
		b.many(1)
		twin := b.queues[job.DLQ][0].Message
		first := b.must(planOf(all)).Plan
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		b.wantHalt(b.ask(ctx, redrive.Request{Action: "run", Plan: first.ID}).Run, redrive.HaltTime, "")

		b.put(job.DLQ, twin)
		b.run = done
		second := b.must(planOf(all)).Plan
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: second.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})

		got := b.must(redrive.Request{Action: "run", Plan: first.ID}).Run
		b.wantHalt(got, redrive.HaltCanary, "taken over: by run "+second.Run)
		got = b.must(redrive.Request{Action: "run", Plan: first.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.TakenOver: 1})
		if got.EndedWell() {
			t.Error("told as well ended")
		}
	})
}

// A job that nobody wants any more is no failure of the run.
func TestExpiredJobsDoNotFailTheCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		soon := time.Now().Add(time.Minute)
		type payload struct {
			ID string `json:"id"`
		}
		b.kinds = job.NewCatalogue(job.Define(job.Definition[payload]{Name: "test",
			Key:       func(p payload) (string, []string) { return p.ID, nil },
			ExpiresAt: func(p payload) time.Time { return map[string]time.Time{"j0001": soon}[p.ID] }}))
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.must(planOf(all)).Plan
		time.Sleep(2 * time.Minute)
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Skipped: 1})
		b.refused(planOf(all), "1 expired")
	})
}

// Errors that differ in numbers and ids alone are one group, and one selector.
func TestGroupsByFingerprint(t *testing.T) {
	b := newBench(t)
	for i := range 6 {
		b.isolated(fmt.Sprint("j", i), job.Transient)
		m := b.queues[job.DLQ][i]
		m.Memory.Error = fmt.Sprintf("dial 10.0.0.%d: connection refused", i)
		if i >= 4 {
			m.Memory.Error = fmt.Sprintf("record %d is missing", i)
		}
		m.Memory.Fingerprint = job.Fingerprint(m.Memory.Error)
	}
	groups := b.must(redrive.Request{Action: "inspect"}).Groups
	if len(groups) != 2 {
		t.Fatalf("%d groups, want 2", len(groups))
	}
	equal(t, groups[0].Count, 4, "the first group's count")
	equal(t, groups[1].Count, 2, "the second group's count")
	if t.Failed() {
		t.FailNow()
	}
	for name, f := range map[string]*redrive.Filter{
		"by fingerprint": {Fingerprints: []string{groups[1].Fingerprint}},
		"by text":        {ErrorText: "IS MISSING"},
	} {
		if plan := b.must(planOf(f)).Plan; plan.Selected != 2 {
			t.Errorf("%s: %d selected, want 2", name, plan.Selected)
		}
	}
}

// The ramp's stages are judged one by one, like a canary.
func TestTheRamp(t *testing.T) {
	for stage, sent := range []int{1, 3, 8, 28} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.Numbers.Ramp = 1
			b.run = dies(sent, completes(map[string]int{}), isolatesAgain) // the last job of the stage fails
			b.many(200)
			got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
			b.wantHalt(got, redrive.HaltCanary, "the canary failed")
			if n := len(b.sentAt); n != sent {
				t.Errorf("stage %d: %d sent, want %d", stage, n, sent)
			}
		})
	}
}

// People judge the stages that have jobs without a key, and no other. Each stage waits for its judgement.
func TestPeopleJudgeTheStagesThatHaveJobsWithoutAKey(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("open ", open), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = completes(map[string]int{})
				b.Numbers.Ramp = 1
				for i := range 5 {
					b.isolated(fmt.Sprint("keyed", i), job.Crashed)
				}
				for i := range 60 {
					b.nameless(fmt.Sprint("j", i))
				}
				convicts := &redrive.Filter{Classes: []job.Class{job.Crashed}}
				var p *redrive.Plan
				if open {
					p = b.opened(convicts, 100)
				} else {
					p = b.must(planOf(convicts)).Plan
					b.approved(p)
				}
				for i, sent := range []int{8, 28} { // the first two stages have jobs with a key alone
					b.wantHalt(b.runs(p), redrive.HaltPeople, "the ledger cannot judge")
					if n := len(b.sentAt); n != sent {
						t.Errorf("round %d: %d sent, want %d", i, n, sent)
					}
				}
				got := b.runs(p)
				b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 5, redrive.Unjudged: 60})
			})
		})
	}
}

// The function's timeout comes while a stage is waited for. The next invocation still knows which stage it is, and that people
// have to judge it.
func TestAStageOutlivesItsInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.Ramp = 1
		done := completes(map[string]int{})
		var late []job.Message
		b.run = func(w *world, m job.Message) {
			if keyOf(m) == key("keyed3") {
				late = append(late, m)
			} else {
				done(w, m)
			}
		}
		for i := range 4 {
			b.isolated(fmt.Sprint("keyed", i), job.Crashed)
		}
		for i := range 60 {
			b.nameless(fmt.Sprint("j", i))
		}
		p := b.must(planOf(all)).Plan
		b.approved(p)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		b.wantHalt(b.ask(ctx, redrive.Request{Action: "run", Plan: p.ID}).Run, redrive.HaltTime, "")
		for _, m := range late {
			done(b.world, m)
		}
		for i, sent := range []int{8, 28} {
			b.wantHalt(b.runs(p), redrive.HaltPeople, "the ledger cannot judge")
			if n := len(b.sentAt); n != sent {
				t.Errorf("round %d: %d sent, want %d", i, n, sent)
			}
		}
		b.wantDone(b.runs(p), map[redrive.Ending]int{redrive.Succeeded: 4, redrive.Unjudged: 60})
	})
}

// A DLQ that has more messages than a run hides: it gives back what it does not want, goes on, and finds its own.
func TestAPlanHidesABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.MaxHidden = 150
		for i := range 1000 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.many(60)
		plan := b.must(planOf(transient)).Plan
		b.shuffle, b.most, b.limit = true, 0, 300 // SQS gives nothing above its own limit
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 60})
		if b.most > 150 {
			t.Errorf("%d messages were hidden at a time, want at most 150", b.most)
		}
		if n := b.hiddenOn(); n != 0 {
			t.Errorf("%d are hidden after the run", n)
		}
	})
}

// What such a run did not see may be among what it gave back. It says so, and calls nothing gone.
func TestAPlanOnATooLargeDLQNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.MaxHidden = 150
		for i := range 1000 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.many(10)
		plan := b.must(planOf(transient)).Plan
		b.queues[job.DLQ][1005].visible = time.Now().Add(time.Hour)
		b.shuffle = true
		began := time.Now()
		got := b.runs(plan)
		b.wantHalt(got, redrive.HaltNotSeen, "has more messages than the 150 that a run hides at a time")
		if got.Unseen != 1 || len(b.sentAt) != 9 {
			t.Errorf("%d unseen, %d sent, want 1 and 9", got.Unseen, len(b.sentAt))
		}
		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("halted after %v, want a search that ends", took)
		}
		time.Sleep(2 * time.Hour)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 10})
	})
}

// If such a run has seen everything that SQS counts, and others hide nothing, what it did not see is gone.
func TestAPlanOnATooLargeDLQTellsWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.MaxHidden = 150
		for i := range 1000 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.many(10)
		plan := b.must(planOf(transient)).Plan
		b.without(b.queues[job.DLQ][1005].ID)
		b.shuffle, b.lag = true, time.Minute
		time.Sleep(time.Minute)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 9, redrive.Gone: 1})
	})
}

// What others hide is not gone, also if messages that this run saw and gave back are deleted meanwhile.
func TestAPlanOnATooLargeDLQCallsNothingGoneThatOthersHide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.MaxHidden = 150
		for i := range 1000 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.many(10)
		plan := b.must(planOf(transient)).Plan
		b.queues[job.DLQ][1005].visible = time.Now().Add(time.Hour)
		b.shuffle = true
		go func() { // SQS deletes old messages
			time.Sleep(30 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.queues[job.DLQ] = b.queues[job.DLQ][5:]
		}()
		b.wantHalt(b.runs(plan), redrive.HaltNotSeen, "1 messages of the plan were not seen")
	})
}

// What SQS counts and does not give is not gone either, whether or not the run hides all that it saw.
func TestAMessageThatIsCountedAndNotGivenIsNotGone(t *testing.T) {
	for _, hidden := range []int{80_000, 150} {
		t.Run(fmt.Sprint("at most ", hidden, " hidden"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = completes(map[string]int{})
				b.Numbers.MaxHidden = hidden
				for i := range 1000 {
					b.isolated(fmt.Sprint("other", i), job.Rejected)
				}
				b.many(10)
				plan := b.must(planOf(transient)).Plan
				b.shuffle, b.withheld = true, b.queues[job.DLQ][1005].ID
				b.wantHalt(b.runs(plan), redrive.HaltNotSeen, "1 messages of the plan were not seen")
				b.withheld = ""
				b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 10})
			})
		})
	}
}

func TestACanaryIsBounded(t *testing.T) {
	b := newBench(t)
	b.many(3)
	req := planOf(all)
	req.Canary = 101
	b.refused(req, "canary is 101, want 1 to 100")
}

// A run does not go on for ever after its plan expired, but it still tells what became of its jobs.
func TestARunDoesNotOutliveItsPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = dies(6, completes(map[string]int{}), isolatesAgain)
		b.many(60)
		plan := b.must(planOf(all)).Plan
		b.wantHalt(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, redrive.HaltFailures, "")
		b.run = completes(map[string]int{})
		time.Sleep(b.Numbers.PlanExpiry)
		before := len(b.sentAt)
		b.wantHalt(b.must(redrive.Request{Action: "run", Run: plan.Run}).Run, redrive.HaltExpired, "the plan expired")
		if n := len(b.sentAt) - before; n != 0 {
			t.Errorf("%d sent after the plan expired", n)
		}
	})
}

// A run whose process died is not called active.
func TestADeadRunIsListedAsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(3)
		plan := b.must(planOf(all)).Plan
		b.onSend = func() { // and so the process ends
			b.mu.Lock()
			defer b.mu.Unlock()
			b.fault = func(string) (error, error) { return errOutage, nil }
		}
		_, _ = b.try(t.Context(), redrive.Request{Action: "run", Plan: plan.ID})
		b.onSend, b.fault = nil, nil
		time.Sleep(b.Numbers.LockLease)
		listed := b.must(redrive.Request{Action: "status"}).Runs
		if len(listed) != 1 {
			t.Fatalf("%d runs are listed, want 1", len(listed))
		}
		equal(t, listed[0].State, redrive.Halted, "the listed run's state")
		equal(t, listed[0].Code, redrive.HaltInterrupted, "the listed run's code")
		st, err := (redrive.Operators{Table: table{b.world}}).Standing(t.Context(), time.Now())
		if err != nil || st.Run == nil {
			t.Fatalf("standing run is %v, %v", st.Run, err)
		}
		equal(t, st.Run.ID, plan.Run, "the standing run")
		equal(t, st.Run.Code, redrive.HaltInterrupted, "the standing run's code")
	})
}

// A copy is not sent while its job has not run yet.
func TestCopiesOfASlowJobAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		var late []job.Message
		b.run = func(_ *world, m job.Message) { late = append(late, m) }
		b.many(1)
		for range 3 {
			b.put(job.DLQ, b.queues[job.DLQ][0].Message)
		}
		go func() {
			time.Sleep(30 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range late {
				done(b.world, m)
			}
		}()
		req := planOf(all)
		req.Canary = 4
		got := b.must(redrive.Request{Action: "run", Plan: b.must(req).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 3})
		if n := len(b.sentAt); n != 1 {
			t.Errorf("%d sent, want 1", n)
		}
	})
}

func TestAgesMayHaveDays(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Transient) // an hour ago
	for age, want := range map[string]int{"59m": 1, "0d30m": 1, "1d": 0, "1h30m": 0} {
		got := b.must(redrive.Request{Action: "inspect", Select: &redrive.Filter{OlderThan: age}})
		if n := len(got.Groups); n != want {
			t.Errorf("older than %s: %d groups, want %d", age, n, want)
		}
	}
}

func TestAnEmptyDLQAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.ReceiveWait = 2 * time.Second
		began := time.Now()
		got := b.must(redrive.Request{Action: "inspect"})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("an empty DLQ took %v, want 2 s at most", took)
		}
		if raw, err := json.Marshal(got); err != nil || !strings.Contains(string(raw), `"groups":[]`) {
			t.Errorf("answer %s, want an empty list of groups; %v", raw, err)
		}
	})
}

func TestSelectByAttributeAndPayload(t *testing.T) {
	b := newBench(t)
	send := func(id, more, tenant string) {
		b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"` + id + `",` + more + `}}`, Memory: job.Memory{Class: job.Transient},
			Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: tenant}}})
	}
	send("a", `"planId":"p-7","n":12345678901234567890`, "blue")
	send("b", `"planId":"p-8","at":{"room":"r-1"}`, "blue")
	send("c", `"planId":"p-7"`, "green")
	b.malformed()
	for name, test := range map[string]struct {
		f    redrive.Filter
		want int
	}{
		"payload":             {redrive.Filter{Payload: map[string]string{"planId": "p-7"}}, 2},
		"a large number":      {redrive.Filter{Payload: map[string]string{"n": "12345678901234567890"}}, 1},
		"a field of a field":  {redrive.Filter{Payload: map[string]string{"at.room": "r-1"}}, 1},
		"no such field":       {redrive.Filter{Payload: map[string]string{"at.floor": "1"}}, 0},
		"attribute":           {redrive.Filter{Attributes: map[string]string{"tenant": "blue"}}, 2},
		"attribute, payload":  {redrive.Filter{Attributes: map[string]string{"tenant": "green"}, Payload: map[string]string{"planId": "p-7"}}, 1},
		"another's attribute": {redrive.Filter{Attributes: map[string]string{"tenant": "red"}}, 0},
	} {
		n := 0
		for _, g := range b.must(redrive.Request{Action: "inspect", Select: &test.f}).Groups {
			n += g.Count
		}
		if n != test.want {
			t.Errorf("%s: %d messages, want %d", name, n, test.want)
		}
	}
}

// The ledger knows which payload is the job's: only the other message is in conflict.
func TestTheEntryTellsWhichMessageConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(1)
		digest, err := job.Digest([]byte(`{"id":"j0000"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		e := b.entries[key("j0000")]
		e.Digest = digest
		b.entries[key("j0000")] = e
		other := b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"j0000","more":1}}`, Memory: b.queues[job.DLQ][0].Memory})
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if left := b.queues[job.DLQ]; len(left) != 1 || left[0].ID != other {
			t.Errorf("left on the DLQ: %d messages, want the one in conflict", len(left))
		}
	})
}

// A convict whose message lost our attribute is told by its entry, and needs its approval.
func TestAConvictWithoutOurAttributeNeedsItsApproval(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Crashed)
	b.queues[job.DLQ][0].Memory = job.Memory{}
	plan := b.must(planOf(all)).Plan
	if !strings.Contains(plan.Approval, "crashed") {
		t.Errorf("approval %q, want one for the crashed job", plan.Approval)
	}
	b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "needs an approval")
}

// An isolated job is not foreign, whatever its message lost.
func TestAnIsolatedJobIsNotForeign(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Rejected)
	b.queues[job.DLQ][0].Memory = job.Memory{}
	groups := b.must(redrive.Request{Action: "inspect"}).Groups
	if len(groups) != 1 {
		t.Fatalf("%d groups, want 1", len(groups))
	}
	equal(t, groups[0].Class, job.Rejected, "the group's class")
	equal(t, groups[0].Actions[redrive.Redrive], 1, "the number to redrive")
}

// SQS moves a message without a word of why. Strikes under its id tell that it killed the worker: it is not decoded,
// and needs its approval.
func TestAConvictThatSQSMovedIsToldByItsStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.put(job.DLQ, job.Message{Body: body("killer")})
		b.put(job.DLQ, job.Message{Body: body("other")})
		b.strikes = map[string]ledger.Strikes{id: {Kind: "test", Ends: []time.Time{time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)}}}
		read := testKind("test", job.RunLate)
		b.kinds = job.NewCatalogue(job.Kind{Description: read.Description, Read: func(payload []byte) (job.Contents, error) {
			if strings.Contains(string(payload), "killer") {
				t.Error("the body of a convict was decoded")
			}
			return read.Read(payload)
		}})
		shown := b.must(redrive.Request{Action: "inspect", Message: id}).Message
		if shown.Class != job.Crashed || shown.Cause != job.CauseCrash {
			t.Errorf("class %s, cause %s, want crashed", shown.Class, shown.Cause)
		}
		plan := b.must(planOf(all)).Plan
		if plan.Actions[redrive.Redrive] != 2 || plan.Approval != "jobs of class crashed" {
			t.Errorf("actions %v, approval %q, want one for the crashed job", plan.Actions, plan.Approval)
		}
		b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "needs an approval")
		b.approved(plan)
		b.run = completes(map[string]int{})
		b.wantHalt(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, redrive.HaltPeople, "")
		if n := len(b.sentAt); n != 2 {
			t.Errorf("%d sent, want both", n)
		}
	})
}

// One strike convicts nobody, and strikes that cannot be read make the message unsure.
func TestStrikesThatConvictNobody(t *testing.T) {
	b := newBench(t)
	id := b.put(job.DLQ, job.Message{Body: body("a")})
	b.strikes = map[string]ledger.Strikes{id: {Kind: "test", Ends: []time.Time{time.Now()}}}
	if plan := b.must(planOf(all)).Plan; plan.Actions[redrive.Redrive] != 1 || plan.Approval != "" {
		t.Errorf("actions %v, approval %q, want it redriven without one", plan.Actions, plan.Approval)
	}
	b.fault = func(call string) (error, error) {
		if call == "ledger.strikes" {
			return errOutage, nil
		}
		return nil, nil
	}
	b.refused(planOf(all), "1 unsure (its entry cannot be read: its strikes: outage)")
}

// A full list of attributes has no room for our word of why a message is here. Where no isolated entry tells it either, the
// message may be a convict's.
func TestAMessageWithoutRoomAndEntryNeedsAnApproval(t *testing.T) {
	b := newBench(t)
	ten := map[string]job.Attribute{}
	for i := range 10 {
		ten[fmt.Sprint("a", i)] = job.Attribute{Type: "String", String: "x"}
	}
	b.put(job.DLQ, job.Message{Body: body("unknown"), Attributes: ten})
	plan := b.must(planOf(all)).Plan
	if !strings.Contains(plan.Approval, "no room for a record") {
		t.Errorf("approval %q, want one", plan.Approval)
	}
	b.queues[job.DLQ] = nil
	b.isolated("known", job.Transient)
	m := b.queues[job.DLQ][0]
	m.Memory, m.Attributes = job.Memory{}, ten
	if plan := b.must(planOf(all)).Plan; plan.Actions[redrive.Redrive] != 1 || plan.Approval != "" {
		t.Errorf("isolated by its entry: actions %v, approval %q, want none", plan.Actions, plan.Approval)
	}
}
