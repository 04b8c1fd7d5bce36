package redrive_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

var transient = &redrive.Filter{Classes: []job.Class{job.Transient}}

// opened makes an open plan, which somebody else approves.
func (b *bench) opened(f *redrive.Filter, count int) *redrive.Plan {
	b.Helper()
	time.Sleep(time.Second) // what is on the DLQ was isolated before
	plan := b.must(redrive.Request{Action: "plan", Open: true, Select: f, Count: count, By: "ada", Reason: "the provider is back"}).Plan
	b.approved(plan)
	return plan
}

func (b *bench) runs(plan *redrive.Plan) *redrive.Run {
	b.Helper()
	return b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
}

func TestAnOpenPlanTakesWhatMatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.many(300)
		for i := range 200 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.malformed()
		got := b.runs(b.opened(transient, 1000))
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 300})
		if got.Total != 300 {
			t.Errorf("total %d, want the 300 that there were", got.Total)
		}
		if len(effects) != 300 {
			t.Errorf("%d effects, want 300", len(effects))
		}
		if n := b.on(job.DLQ); n != 201 {
			t.Errorf("%d left on the DLQ, want the 201 others", n)
		}
		if n := b.hiddenOn(); n != 0 {
			t.Errorf("%d are hidden after the run", n)
		}
	})
}

func TestAnOpenPlanIsRefused(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Rejected)
	open := redrive.Request{Action: "plan", Open: true, Select: transient, Count: 10, By: "a", Reason: "b"}
	with := func(change func(*redrive.Request)) redrive.Request { r := open; change(&r); return r }
	for why, r := range map[string]redrive.Request{
		"an open plan needs a count":      with(func(r *redrive.Request) { r.Count = 0 }),
		"not by messages":                 with(func(r *redrive.Request) { r.Select = &redrive.Filter{Messages: []string{"m"}} }),
		"the selection is empty":          with(func(r *redrive.Request) { r.Select = &redrive.Filter{} }),
		"ratePerSecond is 501":            with(func(r *redrive.Request) { r.RatePerSecond = 501 }),
		"of 0 messages none would be red": open,
	} {
		b.refused(r, why)
	}
	open.Select = &redrive.Filter{Classes: []job.Class{job.Rejected}}
	plan := b.must(open).Plan
	b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "needs an approval: an open plan: up to 10 messages that its selection matches")
}

// An approval covers the count and the rate.
func TestAChangedOpenPlanDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(20)
		plan := b.opened(transient, 3)
		at := [2]string{"plan#" + plan.ID, "plan"}
		r := b.docs[at]
		r.Doc = []byte(strings.Replace(string(r.Doc), `"count":3,`, `"count":9,`, 1))
		b.docs[at] = r
		b.wantHalt(b.runs(plan), redrive.HaltCall, "does not match its digest")
	})
}

func TestAnOpenPlanStopsAtItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(300)
		plan := b.opened(transient, 120)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 120})
		if n := b.on(job.DLQ); n != 180 {
			t.Errorf("%d left on the DLQ, want 180", n)
		}
		b.runs(plan) // a run that is done is only told
		if n := len(b.sentAt); n != 120 {
			t.Errorf("%d sent, want 120", n)
		}
	})
}

// What is isolated after the plan was made is another incident's.
func TestAnOpenPlanCoversOnlyIsolationsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(20)
		plan := b.opened(transient, 1000)
		time.Sleep(time.Minute)
		for i := range 5 {
			id := fmt.Sprint("new", i)
			b.isolated(id, job.Transient)
			e := b.entries[key(id)]
			e.IsolatedAt = time.Now()
			b.entries[key(id)] = e
		}
		b.put(job.DLQ, job.Message{Body: body("moved"), Memory: job.Memory{Class: job.Transient}}) // without an entry, by its own time
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 20})
		if n := b.on(job.DLQ); n != 6 {
			t.Errorf("%d left on the DLQ, want the 6 that came after the plan", n)
		}
	})
}

// What fails again comes back to the DLQ, and the run does not take it a second time.
func TestAnOpenPlanDoesNotEatItsOwnTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.MaxFailedPercent = 60
		done, n := completes(map[string]int{}), 0
		b.run = func(w *world, m job.Message) {
			if n++; n > b.Numbers.Canary && n%4 == 0 {
				isolatesAgain(w, m)
				if e := w.entries[keyOf(m)]; n%8 == 0 { // by a clock that is behind
					e.IsolatedAt = e.IsolatedAt.Add(-time.Hour)
					w.entries[e.Key] = e
				}
			} else {
				done(w, m)
			}
		}
		b.many(100)
		got := b.runs(b.opened(all, 1000))
		again := got.Endings[redrive.Again]
		equal(t, got.State, redrive.Done, "the run's state")
		equal(t, again == 0, false, "whether no job is isolated again")
		equal(t, got.Endings[redrive.Succeeded], 100-again, "the number that succeeded")
		if n := len(b.sentAt); n != 100 {
			t.Errorf("%d sent, want each of the 100 once", n)
		}
		if n := b.on(job.DLQ); n != again {
			t.Errorf("%d on the DLQ, %d told as isolated again", n, again)
		}
	})
}

func TestAnOpenPlanHaltsWhenItsJobsFail(t *testing.T) {
	thousands(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = dies(520, completes(map[string]int{}), isolatesAgain)
		b.many(3000)
		plan := b.opened(transient, 3000)
		b.wantHalt(b.runs(plan), redrive.HaltFailures, "did not succeed")
		if n := len(b.sentAt); n > 520+100 {
			t.Errorf("%d sent: halted too late", n)
		}
		b.run = completes(map[string]int{})
		got := b.runs(plan)
		if got.State != redrive.Done || got.Endings[redrive.Again] != b.on(job.DLQ) {
			t.Errorf("mended: %s %s, endings %v, %d on the DLQ", got.State, got.Why, got.Endings, b.on(job.DLQ))
		}
	})
}

// Messages that others hide are not gone: the run says so, and can be continued.
func TestAnOpenPlanSaysWhatItDidNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(50)
		plan := b.opened(transient, 1000)
		for _, m := range b.queues[job.DLQ][:7] {
			m.visible = time.Now().Add(time.Hour)
		}
		got := b.runs(plan)
		b.wantHalt(got, redrive.HaltNotSeen, "about 7 messages that were not seen")
		if got.Unseen != 7 {
			t.Errorf("%d unseen, want 7", got.Unseen)
		}
		if n := len(b.sentAt); n != 43 {
			t.Errorf("%d sent, want the 43 that were there", n)
		}
		time.Sleep(2 * time.Hour)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 50})
	})
}

// Counts that lag are no reason to halt a run that has seen everything.
func TestAnOpenPlanOutlivesCountsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run, b.lag = completes(map[string]int{}), time.Minute
		b.many(200)
		req := redrive.Request{Action: "plan", Open: true, Select: transient, Count: 1000, RatePerSecond: -1, By: "ada", Reason: "r"}
		time.Sleep(2 * time.Minute)
		plan := b.must(req).Plan
		b.approved(plan)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 200})
	})
}

func TestAnOpenPlanHidesABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.MaxHidden = 150
		for i := range 1000 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		b.many(60)
		b.shuffle = true
		plan := b.opened(transient, 1000)
		b.most = 0
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 60})
		if b.most > 150 {
			t.Errorf("%d messages were hidden at a time, want at most 150", b.most)
		}
		if b.most < 100 {
			t.Errorf("%d messages were hidden at a time: the bound was not met", b.most)
		}
	})
}

// Jobs of a class that always needs an approval go only where the selection names that class.
func TestAnOpenPlanTakesGuardedClassesByNameAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(5)
		b.isolated("killer", job.Crashed)
		b.wantDone(b.runs(b.opened(all, 100)), map[redrive.Ending]int{redrive.Succeeded: 5})
		if e := b.entry("killer"); e.Redrives != 0 {
			t.Errorf("generation %d of the job that nobody approved by name", e.Redrives)
		}
		b.wantDone(b.runs(b.opened(&redrive.Filter{Classes: []job.Class{job.Crashed}}, 100)), map[redrive.Ending]int{redrive.Succeeded: 1})
	})
}

func TestAnOpenPlanRemovesCopiesAndFinalJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.many(10)
		e := b.entries[key("j0003")]
		e.Status = ledger.Done
		b.entries[key("j0003")] = e
		b.put(job.DLQ, b.queues[job.DLQ][7].Message)
		b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"j0008","more":1}}`, Memory: job.Memory{Class: job.Rejected, Cause: job.CauseConflict, At: time.Now()}})
		got := b.runs(b.opened(all, 100))
		equal(t, got.State, redrive.Done, "the run's state")
		equal(t, got.Endings[redrive.Succeeded], 9, "the number that succeeded")
		equal(t, got.Endings[redrive.Removed]+got.Endings[redrive.Copied], 2, "the number of removed copies")
		if n := b.on(job.DLQ); n != 1 {
			t.Errorf("%d left on the DLQ, want the one in conflict", n)
		}
	})
}

// A message without a key is sent at most once: its line in the audit is read first.
func TestAnOpenPlanSendsWhatHasNoKeyAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 3 { // convicted, and nobody knows their keys
			b.put(job.DLQ, job.Message{Body: body(fmt.Sprint("j", i)), Memory: job.Memory{Class: job.Crashed, Cause: job.CauseCrash, At: time.Now()}})
		}
		plan := b.opened(&redrive.Filter{Classes: []job.Class{job.Crashed}}, 100)
		b.half = func(call string) (error, error) { // sent, and the answer is lost
			if call == "send" {
				return nil, errOutage
			}
			return nil, nil
		}
		b.wantHalt(b.runs(plan), redrive.HaltCall, "nothing of a cohort was confirmed")
		sent := len(b.sentAt)
		b.half = nil
		time.Sleep(5 * time.Minute)
		got := b.runs(plan)
		if len(b.sentAt) != sent || sent != 3 {
			t.Errorf("%d sent, then %d more, want each of the 3 once", sent, len(b.sentAt)-sent)
		}
		b.wantDone(got, map[redrive.Ending]int{redrive.Skipped: 3})
	})
}

// A run whose plan expired tells what became of its jobs, and takes no more.
func TestAnOpenPlanExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = dies(6, completes(map[string]int{}), isolatesAgain)
		b.many(60)
		plan := b.opened(transient, 1000)
		b.wantHalt(b.runs(plan), redrive.HaltFailures, "")
		sent := len(b.sentAt)
		time.Sleep(b.Numbers.PlanExpiry)
		got := b.runs(plan)
		b.wantHalt(got, redrive.HaltExpired, "the plan expired")
		if len(b.sentAt) != sent {
			t.Errorf("%d sent after the plan expired", len(b.sentAt)-sent)
		}
		if n := got.Endings[redrive.Succeeded] + got.Endings[redrive.Again]; n != sent {
			t.Errorf("endings %v, want one for each of the %d that were sent", got.Endings, sent)
		}
	})
}

// The endings of all jobs are told, although a run keeps only its newest in memory.
func TestTheSweepTellsEveryEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done, n := completes(map[string]int{}), 0
		b.run = func(w *world, m job.Message) {
			if n++; n == 50 { // long before the newest
				isolatesAgain(w, m)
			} else {
				done(w, m)
			}
		}
		const jobs = 600
		b.many(jobs)
		b.Numbers.BacklogLimit = 100 // it keeps 250 jobs
		b.Numbers.ScanMessages = 100
		plan := b.must(redrive.Request{Action: "plan", Open: true, Select: transient, Count: 20_000, RatePerSecond: -1, By: "ada", Reason: "r"}).Plan
		b.approved(plan)
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: jobs - 1, redrive.Again: 1})
		if len(got.Names[redrive.Again]) != 1 {
			t.Errorf("names %v, want that of the job that was isolated again", got.Names[redrive.Again])
		}
	})
}

// A copy whose job was sent by this run and has not run yet is removed, not sent.
func TestAnOpenPlanRemovesACopyOfASlowJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		var late []job.Message
		b.run = func(_ *world, m job.Message) { late = append(late, m) }
		b.many(1)
		b.put(job.DLQ, b.queues[job.DLQ][0].Message)
		go func() {
			time.Sleep(30 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range late {
				done(b.world, m)
			}
		}()
		time.Sleep(time.Second)
		plan := b.must(redrive.Request{Action: "plan", Open: true, Select: all, Count: 10, Canary: 2, By: "ada", Reason: "r"}).Plan
		b.approved(plan)
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 1})
		if n := len(b.sentAt); n != 1 {
			t.Errorf("%d sent, want 1", n)
		}
	})
}

// The sweep waits for the jobs that have not ended.
func TestTheSweepWaitsForOpenJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		done := completes(map[string]int{})
		n, late := 0, []job.Message(nil)
		b.run = func(w *world, m job.Message) {
			switch n++; {
			case n <= 8:
				done(w, m)
			case n == 9:
				retries(job.Transient)(w, m)
			default:
				late = append(late, m)
			}
		}
		b.many(12)
		go func() {
			time.Sleep(3 * time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range late {
				done(b.world, m)
			}
		}()
		b.wantDone(b.runs(b.opened(transient, 100)), map[redrive.Ending]int{redrive.Succeeded: 11, redrive.Retrying: 1})
	})
}

// A count that was too small when a pass began, or zero, ends no run: receives bring more, and another pass finds the rest.
func TestAnOpenPlanDoesNotBelieveACountThatIsTooSmall(t *testing.T) {
	for _, before := range []int{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.run, b.lag = completes(map[string]int{}), 10*time.Minute
			b.many(before)
			time.Sleep(11 * time.Minute)
			b.must(redrive.Request{Action: "status"}) // a call, at which the queues' counts are noted
			time.Sleep(time.Second)
			for i := range 100 {
				b.isolated(fmt.Sprint("more", i), job.Transient)
			}
			b.Numbers.GoneAfter = 11 * time.Minute
			b.wantDone(b.runs(b.opened(transient, 1000)), map[redrive.Ending]int{redrive.Succeeded: 100 + before})
		})
	}
}

// Jobs that are final when the run meets them are no surprise; those that become final under its hands are.
func TestAnOpenPlanTellsFinalJobsFromDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(60)
		for i := range 40 {
			e := b.entries[key(fmt.Sprintf("j%04d", i))]
			e.Status = ledger.Done
			b.entries[e.Key] = e
		}
		b.Numbers.ScanMessages = 10 // the plan saw a part
		b.wantDone(b.runs(b.opened(all, 100)), map[redrive.Ending]int{redrive.Succeeded: 20, redrive.Removed: 40})

		b.many(100) // and then somebody else brings the same jobs back
		plan := b.opened(all, 100)
		b.onSend = func() {
			b.onSend = nil
			b.mu.Lock()
			defer b.mu.Unlock()
			for k, e := range b.entries {
				e.Status, e.Version, e.FinalAt = ledger.Done, e.Version+1, time.Now()
				b.entries[k] = e
			}
		}
		b.wantHalt(b.runs(plan), redrive.HaltFinal, "final already")
	})
}

// An entry that cannot be read stops nothing else, and is named at the end; when none can be read, the run halts.
func TestAnOpenPlanNamesWhatItCouldNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(30)
		plan := b.opened(transient, 100)
		b.fault = func(call string) (error, error) {
			if call == "ledger.get" {
				return errOutage, nil
			}
			return nil, nil
		}
		b.wantHalt(b.runs(plan), redrive.HaltCall, "entries could not be read")
		b.fault, b.unreadable[key("j0007")] = nil, true
		got := b.runs(plan)
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 29, redrive.Skipped: 1})
		if names := fmt.Sprint(got.Names[redrive.Skipped]); names != "["+key("j0007")+"]" {
			t.Errorf("skipped %s, want the job whose entry cannot be read", names)
		}
	})
}

// An entry that could not be read for a moment is read again.
func TestAnOpenPlanReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(3)
		plan := b.opened(transient, 100)
		failed := false
		b.fault = func(call string) (before, after error) {
			if call == "ledger.get" && !failed {
				failed = true
				return errOutage, nil
			}
			return nil, nil
		}
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 3})
	})
}

// The send was made and its answer was lost, so its message stays and the run begins with it again. By then the job is
// isolated again: to send it once more would be a second try that nobody planned.
func TestAnOpenPlanSendsAJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = isolatesAgain
		b.isolated("a", job.Transient)
		plan := b.opened(transient, 10)
		b.half = func(call string) (before, after error) {
			if call == "send" {
				after = errOutage
			}
			return nil, after
		}
		if got := b.runs(plan); got.State != redrive.Halted {
			t.Fatalf("the run is %s, want it halted: nothing of its cohort was confirmed", got.State)
		}
		b.half = nil
		for range 3 {
			time.Sleep(b.Numbers.LockLease + time.Minute)
			b.runs(plan)
		}
		if n := len(b.sentTo); n != 1 {
			t.Errorf("the job was sent %d times by one run, want once", n)
		}
		if e := b.entries[key("a")]; e.Redrives != 1 {
			t.Errorf("the job was redriven %d times by one run, want once", e.Redrives)
		}
		if n := b.on(job.DLQ); n != 2 {
			t.Errorf("%d messages on the DLQ, want that of the plan and that of the failure", n)
		}
	})
}
