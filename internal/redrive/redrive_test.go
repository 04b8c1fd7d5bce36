package redrive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

func TestRunMovesWhatWasPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		for i := range 30 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		bad := b.malformed()
		plan := b.must(planOf(all)).Plan
		equal(t, plan.Selected, 31, "the number of selected messages")
		equal(t, plan.Actions[redrive.Redrive], 30, "the number to redrive")
		equal(t, plan.Actions[redrive.Never], 1, "the number never to redrive")
		equal(t, plan.Approval, "", "the plan's approval")
		if t.Failed() {
			t.FailNow()
		}
		if b.on(job.DLQ) != 31 || b.on(job.Recovery) != 0 {
			t.Error("a plan moved something")
		}
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if got.State != redrive.Done || got.Counts["sent"] != 30 {
			t.Fatalf("run %+v", got)
		}
		for i := range 30 {
			e := b.entry(fmt.Sprint("j", i))
			equal(t, e.Status, ledger.Done, "the status of %s", e.Key)
			equal(t, e.Redrives, 1, "the generation of %s", e.Key)
			equal(t, e.Run, got.ID, "the run of %s", e.Key)
			equal(t, effects[e.Key], 1, "the number of effects of %s", e.Key)
		}
		if left := b.queues[job.DLQ]; len(left) != 1 {
			t.Errorf("%d messages are left on the DLQ, want 1", len(left))
		} else {
			equal(t, left[0].ID, bad, "the message on the DLQ")
			equal(t, left[0].visible.After(time.Now()), false, "whether it is hidden")
		}
		// A plan becomes one run: the second is told of the first.
		again := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, again.ID, got.ID, "the plan's second run")
		equal(t, again.State, redrive.Done, "its state")
		equal(t, len(b.sentAt), 30, "the number of sent messages")
		// A fresh process computes the status from the audit.
		status := b.must(redrive.Request{Action: "status", Run: got.ID}).Run
		if status.Counts["sent"] != 30 || len(status.Counts) != 1 {
			t.Errorf("status %+v", status.Counts)
		}
	})
}

func TestMovedMessageIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.isolated("a", job.Transient)
		m := b.queues[job.DLQ][0]
		m.Attributes = map[string]job.Attribute{"s": {Type: "String", String: "x"}, "b": {Type: "Binary.custom", Binary: []byte{0, 1}}, "n": {Type: "Number", String: "1"}}
		m.Group, m.TraceHeader = "g", "Root=1"
		m.Memory.Fingerprint, m.Memory.Copy = "dependency down", true
		want := m.Message
		b.run = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the canary has nobody to run it
		defer cancel()
		got := b.ask(ctx, redrive.Request{Action: "run", Message: id, By: "ada", Reason: "x"})
		if got.Run.State != redrive.Halted {
			t.Errorf("%+v", got.Run)
		}
		sent := b.queues[job.Recovery][0].Message
		equal(t, sent.Body, want.Body, "the body")
		equal(t, sent.Group, want.Group, "the group")
		equal(t, sent.TraceHeader, want.TraceHeader, "the trace header")
		equal(t, fmt.Sprint(sent.Attributes), fmt.Sprint(want.Attributes), "the attributes")
		mem := sent.Memory
		equal(t, mem.Redrives, 1, "the generation")
		equal(t, mem.Run, got.Run.ID, "the run")
		equal(t, mem.Cause, "", "the cause")
		equal(t, mem.Class, "", "the class")
		equal(t, mem.Fingerprint, "", "the fingerprint")
		equal(t, mem.Copy, false, "whether it is marked as a copy")
		equal(t, mem.Attempt, 3, "the number of attempts")
		equal(t, mem.FirstSent.UTC(), want.Memory.FirstSent.UTC(), "the time of the first sending")
		equal(t, mem.MessageID, "first", "the first message's id")
		equal(t, mem.Opened.IsZero(), false, "whether the time of the opening is missing")
	})
}

func TestOneByIDLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		id := b.isolated("wanted", job.Rejected)
		for i := range 200 {
			b.isolated(fmt.Sprint("other", i), job.Rejected)
		}
		got := b.must(redrive.Request{Action: "run", Message: id, By: "ada", Reason: "record supplied"})
		equal(t, got.Run.State, redrive.Done, "the run's state")
		equal(t, b.on(job.DLQ), 200, "the number of messages on the DLQ")
		equal(t, len(b.sentAt), 1, "the number of sent messages")
		equal(t, b.entry("wanted").Status, ledger.Done, "the job's status")
		if t.Failed() {
			t.FailNow()
		}
		for _, m := range b.queues[job.DLQ] {
			if m.visible.After(time.Now()) {
				t.Fatalf("%s is hidden", m.ID)
			}
		}
		for i := range 200 {
			if e := b.entry(fmt.Sprint("other", i)); e.Redrives != 0 || e.Version != 1 {
				t.Fatalf("touched %+v", e)
			}
		}
	})
}

func TestFailingCanaryStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = isolatesAgain
		for i := range 40 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		plan := b.must(planOf(all)).Plan
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if got.State != redrive.Halted || !strings.Contains(got.Why, "canary failed") {
			t.Fatalf("run %+v", got)
		}
		if len(b.sentAt) != b.Numbers.Canary {
			t.Errorf("%d sent, want the canary's %d", len(b.sentAt), b.Numbers.Canary)
		}
		untouched := 0
		for i := range 40 {
			if b.entry(fmt.Sprint("j", i)).Redrives == 0 {
				untouched++
			}
		}
		if untouched != 40-b.Numbers.Canary || b.on(job.DLQ) != 40 {
			t.Errorf("%d untouched, %d on the DLQ", untouched, b.on(job.DLQ))
		}
		// Mended, the same run goes on, with a fresh canary.
		effects := map[string]int{}
		b.run = completes(effects)
		got = b.must(redrive.Request{Action: "run", Run: got.ID}).Run
		if got.State != redrive.Done || len(effects) != 35 {
			t.Errorf("continued: %+v, %d effects", got, len(effects))
		}
	})
}

func TestCanaryThatNeverEndsStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Transient)
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		if got.State != redrive.Halted || !strings.Contains(got.Why, "did not end within") {
			t.Errorf("run %+v", got)
		}
	})
}

func TestSamplesStopTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		n := 0
		done := completes(map[string]int{})
		b.run = func(w *world, m job.Message) { // the dependency goes down again after 100
			if n++; n <= 100 {
				done(w, m)
			} else {
				isolatesAgain(w, m)
			}
		}
		for i := range 1000 {
			b.isolated(fmt.Sprintf("j%03d", i), job.Transient)
		}
		b.Numbers.ApprovalAbove = 1000
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		equal(t, got.State, redrive.Halted, "the run's state")
		contains(t, got.Why, "did not succeed", "the reason")
		within(t, len(b.sentAt), 0, 400, "the number of sent messages")
	})
}

func TestKillSwitch(t *testing.T) {
	for name, throw := range map[string]func(*bench){
		"thrown": func(b *bench) {
			b.must(redrive.Request{Action: "stop", By: "bob", Reason: "looks wrong"})
		},
		"unreadable": func(b *bench) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.fault = func(call string) (error, error) {
				if call == "table.get switch" {
					return errOutage, nil
				}
				return nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run = completes(map[string]int{})
				for i := range 60 {
					b.isolated(fmt.Sprint("j", i), job.Transient)
				}
				plan := b.must(planOf(all)).Plan
				cohorts := 0
				b.onSend = func() {
					if cohorts++; cohorts == 3 {
						throw(b)
					}
				}
				got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
				equal(t, got.State, redrive.Halted, "the run's state")
				contains(t, got.Why, "kill switch", "the reason")
				equal(t, cohorts, 3, "the number of cohorts")
				if t.Failed() {
					t.FailNow()
				}
				sent := len(b.sentAt)
				b.refused(redrive.Request{Action: "run", Run: got.ID}, "kill switch")
				if len(b.sentAt) != sent {
					t.Error("ran against the switch")
				}
				b.onSend, b.fault = nil, nil
				b.must(redrive.Request{Action: "resume", By: "bob", Reason: "was fine"})
				if len(b.sentAt) != sent {
					t.Error("resume continued something")
				}
				if got = b.must(redrive.Request{Action: "run", Run: got.ID}).Run; got.State != redrive.Done || len(b.sentAt) != 60 {
					t.Errorf("%d sent, run %+v", len(b.sentAt), got)
				}
			})
		})
	}
}

// Over 30 seconds within 10 % of the rate, and in no window of a second more than the rate and a burst.
func TestRate(t *testing.T) {
	for _, test := range []struct {
		rate    int
		latency time.Duration
	}{
		{1, time.Millisecond}, {3, time.Millisecond}, {10, 50 * time.Millisecond}, {25, 20 * time.Millisecond},
		{100, 50 * time.Millisecond}, {500, 5 * time.Millisecond}, {500, 20 * time.Millisecond}, {500, 50 * time.Millisecond},
	} {
		rate := test.rate
		t.Run(fmt.Sprint(rate, " at ", test.latency), func(t *testing.T) {
			if rate > 25 {
				thousands(t)
			}
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.latency = test.latency
				b.run = completes(map[string]int{})
				seconds := 30
				if rate > 100 {
					seconds = 3
				}
				total := rate*(seconds+2) + b.Numbers.Canary
				for i := range total {
					b.isolated(fmt.Sprint("j", i), job.Transient)
				}
				b.Numbers.ApprovalAbove = total
				req := planOf(all)
				req.RatePerSecond = rate
				plan := b.must(req).Plan
				if got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run; got.State != redrive.Done {
					t.Fatalf("run %+v", got)
				}
				burst := max(min(10, rate), rate/2)
				for i, at := range b.sentAt {
					n := 0
					for _, other := range b.sentAt[i:] {
						if other.Sub(at) >= time.Second {
							break
						}
						n++
					}
					if n > rate+burst {
						t.Fatalf("%d in one second from %v", n, at)
					}
				}
				// Counted from the end of the canary.
				from := b.sentAt[b.Numbers.Canary]
				n := 0
				for _, at := range b.sentAt[b.Numbers.Canary:] {
					if at.Sub(from) < time.Duration(seconds)*time.Second {
						n++
					}
				}
				if rate >= 10 && (n < seconds*rate*9/10 || n > seconds*rate+burst) {
					t.Errorf("%d in %d s, want %d", n, seconds, seconds*rate)
				}
				if n > seconds*rate+burst {
					t.Errorf("%d in %d s, above the rate of %d", n, seconds, rate)
				}
			})
		})
	}
}

func TestBacklogWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Numbers.BacklogLimit = 5
		b.isolated("a", job.Transient)
		for range 9 {
			b.put(job.Source, job.Message{Body: "x"})
		}
		plan := b.must(planOf(all)).Plan
		done := make(chan *redrive.Run)
		go func() { done <- b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run }()
		time.Sleep(time.Minute)
		if len(b.sentAt) != 0 {
			t.Error("sent into a backlog")
		}
		if got := b.must(redrive.Request{Action: "status", Run: plan.Run}).Run; got.State != redrive.Active || !strings.Contains(got.Why, "waits") {
			t.Errorf("status %+v", got)
		}
		b.mu.Lock()
		b.queues[job.Source] = nil
		b.mu.Unlock()
		if got := <-done; got.State != redrive.Done || len(b.sentAt) != 1 {
			t.Errorf("run %+v", got)
		}
	})
}

func TestPausesBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		for i := range 100 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		req := planOf(all)
		req.RatePerSecond = 1
		id := b.must(req).Plan.ID
		invocation := func(r redrive.Request) *redrive.Run {
			ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
			defer cancel()
			got := b.ask(ctx, r).Run
			if ctx.Err() != nil {
				t.Fatal("ran into its timeout")
			}
			return got
		}
		got := invocation(redrive.Request{Action: "run", Plan: id})
		equal(t, got.State, redrive.Halted, "the run's state")
		within(t, got.Counts["sent"], 30, 50, "the number of sent messages")
		if t.Failed() {
			t.FailNow()
		}
		for _, m := range b.queues[job.DLQ] {
			if m.visible.After(time.Now()) {
				t.Fatalf("%s is hidden after the pause", m.ID)
			}
		}
		rounds := 1
		for ; got.State == redrive.Halted && rounds < 10; rounds++ {
			got = invocation(redrive.Request{Action: "run", Run: got.ID})
		}
		equal(t, got.State, redrive.Done, "the run's state after %d rounds", rounds)
		equal(t, got.Counts["sent"], 100, "the run's count of sent messages")
		equal(t, len(b.sentAt), 100, "the number of sent messages")
	})
}

func TestSecondRunOfAnActiveRunIsOnlyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		for i := range 50 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		other := b.must(planOf(&redrive.Filter{Subjects: []string{"j1"}})).Plan
		req := planOf(all)
		req.RatePerSecond = 1
		plan := b.must(req).Plan
		done := make(chan *redrive.Run)
		go func() { done <- b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run }()
		time.Sleep(10 * time.Second)
		for _, r := range []redrive.Request{{Action: "run", Plan: plan.ID}, {Action: "run", Run: plan.Run}} {
			began := time.Now()
			got := b.must(r).Run
			equal(t, got.State, redrive.Active, "the run's state")
			equal(t, got.ID, plan.Run, "the run")
			equal(t, time.Since(began) > time.Second, false, "whether the answer took more than a second")
		}
		b.refused(redrive.Request{Action: "run", Plan: other.ID}, "one run at a time")
		if got := <-done; got.State != redrive.Done || len(b.sentAt) != 50 {
			t.Errorf("%d sent, %+v", len(b.sentAt), got)
		}
	})
}

// A run whose owner died is taken over once its lock has ended, and a woken owner writes nothing over.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		for i := range 60 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		plan := b.must(planOf(all)).Plan
		stall := make(chan struct{})
		var cohorts atomic.Int32 // of both owners
		b.onSend = func() {
			if cohorts.Add(1) == 3 {
				<-stall
			}
		}
		first := make(chan *redrive.Run)
		go func() { first <- b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run }()
		time.Sleep(30 * time.Second)
		if got := b.must(redrive.Request{Action: "run", Run: plan.Run}).Run; got.State != redrive.Active {
			t.Errorf("before the lock ended: %+v", got)
		}
		time.Sleep(b.Numbers.LockLease)
		if got := b.must(redrive.Request{Action: "status", Run: plan.Run}).Run; got.Code != redrive.HaltInterrupted {
			t.Errorf("status says %s %s, want interrupted", got.State, got.Code)
		}
		// The dead owner's messages come back within the time that it hid them for.
		second := b.must(redrive.Request{Action: "run", Run: plan.Run}).Run
		if second.State != redrive.Done {
			t.Errorf("second owner: %s, %s", second.State, second.Why)
		}
		if second.Rounds != 2 {
			t.Errorf("%d rounds, want 2", second.Rounds)
		}
		if second.Endings[redrive.Succeeded] != 60 {
			t.Errorf("endings %v, want 60 succeeded", second.Endings)
		}
		sent := len(b.sentAt)
		close(stall) // it deletes what it had sent, and finds out before its next cohort
		<-first
		if len(b.sentAt) != sent {
			t.Errorf("the woken owner sent %d more", len(b.sentAt)-sent)
		}
		if len(effects) != 60 {
			t.Errorf("%d effects, want 60", len(effects))
		}
		if n := b.on(job.DLQ); n != 0 {
			t.Errorf("%d messages left on the DLQ", n)
		}
		for k, n := range effects {
			if n != 1 {
				t.Errorf("%s took effect %d times", k, n)
			}
		}
	})
}

func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 40 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		b.run = completes(map[string]int{})
		plan := b.must(planOf(all)).Plan
		cohorts := 0
		b.onSend = func() {
			if cohorts++; cohorts == 3 {
				b.must(redrive.Request{Action: "revoke", Run: plan.Run, By: "eve", Reason: "wrong ones"})
			}
		}
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if got.State != redrive.Revoked || cohorts != 3 {
			t.Fatalf("%d cohorts, run %+v", cohorts, got)
		}
		b.onSend = nil
		sent := len(b.sentAt)
		if got = b.must(redrive.Request{Action: "run", Run: plan.Run}).Run; got.State != redrive.Revoked || len(b.sentAt) != sent {
			t.Errorf("continued a revoked run: %+v", got)
		}
		runs := redrive.Operators{Table: table{b.world}}
		if yes, err := runs.Revoked(t.Context(), plan.Run); !yes || err != nil {
			t.Errorf("the worker is told %v, %v", yes, err)
		}
		if yes, err := runs.Revoked(t.Context(), "r-unknown"); yes || err != nil {
			t.Errorf("of an unknown run: %v, %v", yes, err)
		}
		b.fault = func(string) (error, error) { return errOutage, nil }
		if _, err := runs.Revoked(t.Context(), plan.Run); err == nil {
			t.Error("an unreadable run is not told")
		}
	})
}

func TestApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.Unqualified = false
		b.Numbers.ApprovalAbove = 2
		for i := range 3 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		operate, approve := through(t.Context(), "operate"), through(t.Context(), "approve")
		plan := b.ask(operate, planOf(all)).Plan
		if !strings.Contains(plan.Approval, "3 jobs") {
			t.Fatalf("plan %+v", plan)
		}
		run := redrive.Request{Action: "run", Plan: plan.ID}
		if got := b.ask(operate, run); !strings.Contains(got.Refused, "needs an approval") {
			t.Errorf("ran without: %+v", got)
		}
		for _, by := range []string{"ada", " ADA "} {
			if got := b.ask(approve, redrive.Request{Action: "approve", Plan: plan.ID, By: by, Reason: "x"}); !strings.Contains(got.Refused, "somebody else") {
				t.Errorf("%q approved their own plan: %+v", by, got)
			}
		}
		if got := b.ask(approve, redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "seen"}); got.Plan.ApprovedBy != "grace" {
			t.Errorf("%+v", got)
		}
		if got := b.ask(operate, run); got.Run == nil || got.Run.State != redrive.Done {
			t.Errorf("%+v", got)
		}
	})
}

func TestAliases(t *testing.T) {
	b := newBench(t)
	approver := map[string]bool{"approve": true, "discard": true, "decide": true}
	reads := map[string]bool{"audit": true, "explain": true, "inspect": true, "status": true, "census": true, "kinds": true}
	if len(redrive.Actions()) != 18 {
		t.Errorf("actions %q", redrive.Actions())
	}
	for _, action := range redrive.Actions() {
		for _, alias := range []string{"", "operate", "approve", "$LATEST", "7"} {
			for _, unqualified := range []bool{false, true} {
				b.Unqualified = unqualified
				got := b.ask(through(t.Context(), alias), redrive.Request{Action: action, By: "x", Reason: "y", Select: all, Run: "r", Plan: "p", Message: "m", Messages: []string{"m"}, Job: "j"})
				want := alias == "operate" && !approver[action] || alias == "approve" && (approver[action] || reads[action]) || alias == "" && unqualified
				if admitted := !strings.Contains(got.Refused, "through the alias"); admitted != want {
					t.Errorf("%s through %q, unqualified allowed %v: admitted %v (%s)", action, alias, unqualified, admitted, got.Refused)
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	for why, r := range map[string]redrive.Request{
		"the selection is empty":         {Action: "plan", By: "a", Reason: "b", Select: &redrive.Filter{}},
		"choose one":                     {Action: "plan", By: "a", Reason: "b", Select: &redrive.Filter{All: true, Kinds: []string{"x"}}},
		"there is no class \"transent\"": {Action: "plan", By: "a", Reason: "b", Select: &redrive.Filter{Classes: []job.Class{"transent"}}},
		"want an age":                    {Action: "plan", By: "a", Reason: "b", Select: &redrive.Filter{OlderThan: "yesterday"}},
		"ratePerSecond":                  {Action: "plan", By: "a", Reason: "b", Select: all, RatePerSecond: 1e6},
		"nothing on the DLQ":             {Action: "plan", By: "a", Reason: "b", Select: all},
		"needs a name":                   {Action: "plan", Reason: "b", Select: all},
		"there is no plan":               {Action: "run", Plan: "p-x"},
		"there is no run":                {Action: "run", Run: "r-x"},
		"is none of":                     {Action: "purge"},
		"was not seen on the DLQ":        {Action: "inspect", Message: "m-x"},
		"discard takes":                  {Action: "discard", By: "a", Reason: "b"},
		"there is no job":                {Action: "decide", By: "a", Reason: "b", Job: "test/x", Decision: ledger.Sent},
		"more than 100 bytes":            {Action: "status", Run: strings.Repeat("x", 101)},
	} {
		b.refused(r, why)
	}
	for _, raw := range []string{`{"action":"plan","selekt":{"all":true}}`, `{"action":"status"} {}`, `[]`, ``, `{"action":"status","by":7}`} {
		if got, err := b.Handle(t.Context(), json.RawMessage(raw)); err != nil || got.Refused == "" {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

func TestExpiredPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Transient)
		plan := b.must(planOf(all)).Plan
		time.Sleep(b.Numbers.PlanExpiry)
		b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "expired")
		b.refused(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "x"}, "expired")
	})
}

// What changed between plan and run is told and left alone.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		for _, id := range []string{"same", "done", "gone", "again", "claimed"} {
			b.isolated(id, job.Transient)
		}
		plan := b.must(planOf(all)).Plan
		change := func(id string, f func(*ledger.Entry)) {
			e := b.entries[key(id)]
			f(&e)
			e.Version++
			b.entries[key(id)] = e
		}
		change("done", func(e *ledger.Entry) { e.Status = ledger.Done })
		change("again", func(e *ledger.Entry) { e.Redrives = 2 })
		change("claimed", func(e *ledger.Entry) { e.Status, e.LeaseUntil = ledger.Running, time.Now().Add(time.Hour) })
		var kept []*queued
		for _, m := range b.queues[job.DLQ] {
			if m.Body != body("gone") {
				kept = append(kept, m)
			}
		}
		b.queues[job.DLQ] = kept
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		want := map[string]int{"sent": 1, "removed": 1, "kept": 2, "gone": 1}
		if got.State != redrive.Done || fmt.Sprint(got.Counts) != fmt.Sprint(want) {
			t.Errorf("run %+v, want counts %v", got, want)
		}
		equal(t, len(effects), 1, "the number of effects")
		equal(t, b.on(job.DLQ), 2, "the number of messages on the DLQ")
		equal(t, b.entry("again").Redrives, 2, "the generation")
	})
}

func TestGenerationLimitAndOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = isolatesAgain
		b.isolated("a", job.Transient)
		for g := 1; g <= b.Rules.MaxRedrives; g++ {
			got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
			if got.State != redrive.Halted || b.entry("a").Redrives != g {
				t.Fatalf("generation %d: %+v %+v", g, got, b.entry("a"))
			}
		}
		b.refused(planOf(all), "1 generation-limit (it was redriven 3 times)")
		id := b.queues[job.DLQ][0].ID
		got := b.refused(redrive.Request{Action: "run", Message: id, By: "ada", Reason: "once more"}, "needs an approval")
		b.must(redrive.Request{Action: "approve", Plan: got.Plan.ID, By: "grace", Reason: "yes"})
		effects := map[string]int{}
		b.run = completes(effects)
		if run := b.must(redrive.Request{Action: "run", Plan: got.Plan.ID}).Run; run.State != redrive.Done || effects[key("a")] != 1 {
			t.Errorf("override: %+v", run)
		}
	})
}

func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		bad, plain, ambiguous := b.malformed(), b.isolated("a", job.Rejected), b.isolated("b", job.Ambiguous)
		claimed := b.isolated("c", job.Transient)
		e := b.entries[key("c")]
		e.Status, e.LeaseUntil = ledger.Running, time.Now().Add(time.Hour)
		b.entries[key("c")] = e
		foreign := b.put(job.DLQ, job.Message{Body: "what is this"})
		noise := make([]byte, 400<<10)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range noise {
			noise[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[r.IntN(64)]
		}
		big := b.put(job.DLQ, job.Message{Body: string(noise), Memory: job.Memory{Class: job.Invalid}})
		got := b.must(redrive.Request{Action: "discard", Messages: []string{bad, plain, ambiguous, claimed, foreign, big, "m-x"}, By: "ada", Reason: "not wanted"})
		results := map[string]string{}
		for _, r := range got.Results {
			results[r.Message] = r.Result
		}
		want := map[string]string{bad: "discarded", plain: "discarded", ambiguous: "discarded", claimed: "refused", foreign: "discarded", big: "discarded", "m-x": "not-seen"}
		if fmt.Sprint(results) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", results, want)
		}
		discarded := b.entry("a")
		equal(t, discarded.Status, ledger.Terminal, "the status of a")
		equal(t, discarded.Outcome, "discarded", "the outcome of a")
		equal(t, discarded.TTL.IsZero(), false, "whether the TTL of a is missing")
		decided := b.entry("b")
		equal(t, decided.Status, ledger.Terminal, "the status of b")
		if len(decided.Decisions) != 1 {
			t.Errorf("%d decisions on b, want 1", len(decided.Decisions))
		} else {
			equal(t, decided.Decisions[0].What, ledger.Drop, "the decision on b")
			equal(t, decided.Decisions[0].By, "ada", "the person who decided b")
		}
		if b.on(job.DLQ) != 1 {
			t.Errorf("%d left", b.on(job.DLQ))
		}
		// The audit gives back every byte, also of what did not fit one item.
		run := ""
		for k, r := range b.docs {
			if k[0] == "index" && strings.HasPrefix(k[1], "run#d-") {
				run = strings.TrimPrefix(r.SK, "run#")
			}
		}
		if shown := b.must(redrive.Request{Action: "audit", Run: run, Message: big, WithBody: true}); shown.Body != string(noise) {
			t.Errorf("the audit gives back %d bytes that are not the %d that were discarded", len(shown.Body), len(noise))
		}
		if shown := b.must(redrive.Request{Action: "audit", Run: run, Message: foreign, WithBody: true}); shown.Body != "what is this" {
			t.Errorf("the audit gives back %q", shown.Body)
		}
		// A second copy of the discarded job does not run, and is removed by a redrive.
		b.put(job.DLQ, job.Message{Body: body("a")})
		plan := b.must(planOf(&redrive.Filter{Subjects: []string{"a"}})).Plan
		if run := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run; run.Counts["removed"] != 1 || len(effects) != 0 {
			t.Errorf("run %+v, effects %v", run, effects)
		}
	})
}

func TestDecide(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Ambiguous)
	b.refused(planOf(all), "1 needs-decision")
	decide := redrive.Request{Action: "decide", Job: key("a"), Decision: ledger.NotSent, By: "ada", Reason: "provider says no"}
	if got := b.must(decide); got.Entry.Decided != ledger.NotSent {
		t.Errorf("%+v", got.Entry)
	}
	if plan := b.must(planOf(all)).Plan; plan.Actions[redrive.Redrive] != 1 || !strings.Contains(plan.Approval, "ambiguous") {
		t.Errorf("decided: %+v", plan)
	}
	decide.Decision = ledger.Sent
	if got := b.must(decide); got.Entry.Status != ledger.Done || len(got.Entry.Decisions) != 2 {
		t.Errorf("%+v", got.Entry)
	}
	b.refused(decide, "only an isolated ambiguous job is decided")
	for _, what := range []ledger.DecisionKind{"perhaps", "", ledger.Drop} {
		decide.Decision = what
		b.refused(decide, "discard ends a job that is not wanted any more")
	}
}

// refusingSQS refuses every entry of a batch.
type refusingSQS struct {
	lanes.API
	code string
}

func (r refusingSQS) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	out := &sqs.SendMessageBatchOutput{}
	for _, e := range in.Entries {
		out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: &r.code, SenderFault: true})
	}
	return out, nil
}

func TestForbiddenSendAborts(t *testing.T) {
	for code, says := range map[string]string{
		"AccessDenied": "sqs:SendMessage on test-recovery", "KMS.AccessDeniedException": "kms:GenerateDataKey",
		"AWS.SimpleQueueService.NonExistentQueue": "no queue test-recovery",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			for i := range 20 {
				b.isolated(fmt.Sprint("j", i), job.Transient)
			}
			refusing := lanes.New(refusingSQS{code: code}, topology.QueueURLs{Recovery: "x"})
			b.sendErr = func(m job.Message) error {
				return refusing.Send(t.Context(), job.Recovery, []lanes.Move{{Message: m}})[0]
			}
			got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
			equal(t, got.State, redrive.Halted, "%s: the run's state", code)
			contains(t, got.Why, says, "%s: the reason", code)
			equal(t, b.on(job.DLQ), 20, "%s: the number of messages on the DLQ", code)
			// Allowed now, a new plan finds the entries open and does not count them again.
			b.sendErr, b.run = nil, completes(map[string]int{})
			run := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
			if run.State != redrive.Done || b.on(job.DLQ) != 0 {
				t.Errorf("after that: %+v", run)
			}
			for i := range 20 {
				if e := b.entry(fmt.Sprint("j", i)); e.Redrives != 1 || e.Status != ledger.Done {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// Random failures of each call, failed, half failed, or done with the answer lost: run again until it is
// done, nothing is lost and every effect happens once.
func TestRandomFailures(t *testing.T) {
	for seed := range seeds(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomFailures(t, seed) })
		})
	}
}

func randomFailures(t *testing.T, seed uint64) {
	b := newBench(t)
	b.Numbers.PollEvery = 5 * time.Second // fewer looks for the same waits
	effects := map[string]int{}
	b.run = completes(effects)
	b.Numbers.CanaryWait = time.Minute
	const jobs = 25
	for i := range jobs {
		b.isolated(fmt.Sprint("j", i), job.Transient)
	}
	bad := b.malformed()
	plan := b.must(planOf(all)).Plan
	r := rand.New(rand.NewPCG(seed, 1))
	share := 0.02 + 0.2*r.Float64()
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
	var got *redrive.Run
	for round := range 300 {
		if round == 40 {
			b.fault, b.half = nil, nil // the outage ends
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		resp, err := b.try(ctx, redrive.Request{Action: "run", Plan: plan.ID})
		if err == nil && resp.Run != nil && resp.Run.State != redrive.Done {
			resp, err = b.try(ctx, redrive.Request{Action: "run", Run: plan.Run})
		}
		cancel()
		if err == nil && resp.Run != nil && resp.Run.State == redrive.Done {
			got = resp.Run
			break
		}
		time.Sleep(b.Numbers.LockLease + time.Minute)
	}
	if got == nil {
		t.Fatalf("seed %d: never done: %+v", seed, b.ask(t.Context(), redrive.Request{Action: "status", Run: plan.Run}).Run)
	}
	b.fault, b.half = nil, nil
	for i := range jobs {
		e := b.entry(fmt.Sprint("j", i))
		equal(t, e.Status, ledger.Done, "seed %d: the status of %s", seed, e.Key)
		equal(t, effects[e.Key], 1, "seed %d: the number of effects of %s", seed, e.Key)
		equal(t, e.Redrives, 1, "seed %d: the generation of %s", seed, e.Key)
	}
	// What is left are the malformed one, and copies of what is final.
	found := false
	for _, m := range b.queues[job.DLQ] {
		found = found || m.ID == bad
	}
	if !found {
		t.Errorf("seed %d: the malformed one is lost", seed)
	}
}

func TestSamplesInEvents(t *testing.T) {
	seen := map[string]bool{}
	files, err := filepath.Glob("../../events/redrive/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		req, err := redrive.DecodeRequest(raw)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		seen[req.Action] = true
		b := newBench(t)
		b.isolated("a", job.Ambiguous)
		got, err := b.Handle(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		equal(t, got.Action, req.Action, "%s: the action of the answer", file)
		for _, refusal := range []string{"none of", "not readable", "needs a name"} {
			if strings.Contains(got.Refused, refusal) {
				t.Errorf("%s is refused: %s", file, got.Refused)
			}
		}
	}
	for _, action := range redrive.Actions() {
		if !seen[action] {
			t.Errorf("no sample of %s", action)
		}
	}
}

// Somebody else brings the same jobs back: the run finds more and more of them final, and stops.
func TestDuplicatesStopTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		const n = 100
		for i := range n {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		plan := b.must(planOf(all)).Plan
		b.onSend = func() { // with the canary, all others
			b.onSend = nil
			b.mu.Lock()
			defer b.mu.Unlock()
			for k, e := range b.entries {
				e.Status, e.Version = ledger.Done, e.Version+1
				b.entries[k] = e
			}
		}
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, got.State, redrive.Halted, "the run's state")
		contains(t, got.Why, "final already", "the reason")
		within(t, got.Counts["removed"], 0, 30, "the number of removed messages")
		// Whoever continues it knows that. What was found before is no reason to halt again, so the run comes to its end.
		for got.State == redrive.Halted {
			removed := got.Counts["removed"]
			if got = b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run; got.State == redrive.Halted && got.Counts["removed"] == removed {
				t.Fatalf("a continuation got no further: %+v", got)
			}
		}
		if got.State != redrive.Done {
			t.Errorf("run %+v", got)
		}
	})
}

func TestChangedPlanDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Transient)
		plan := b.must(planOf(all)).Plan
		part := [2]string{"plan#" + plan.ID, "part#0000"}
		r := b.docs[part]
		r.Doc = []byte(strings.Replace(string(r.Doc), `"a":"redrive"`, `"a":"remove"`, 1))
		if string(r.Doc) == string(b.docs[part].Doc) {
			t.Fatalf("nothing to change in %s", r.Doc)
		}
		b.docs[part] = r
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, got.State, redrive.Halted, "the run's state")
		contains(t, got.Why, "digest", "the reason")
		equal(t, len(b.sentAt), 0, "the number of sent messages")
		equal(t, b.on(job.DLQ), 1, "the number of messages on the DLQ")
	})
}

// nameless puts a job on the DLQ that was convicted before anybody knew its key.
func (b *bench) nameless(id string) {
	b.put(job.DLQ, job.Message{Body: body(id), Memory: job.Memory{
		Class: job.Crashed, Cause: job.CauseCrash, Error: "2 invocations died with this message", At: time.Now(), FirstSent: time.Now(), MessageID: "first",
	}})
}

// A convict's key travels beside its body, so its entry is reopened and judged like any other's.
func TestConvictedJobsAreJoinedByTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 8 {
			b.isolated(fmt.Sprint("j", i), job.Crashed)
		}
		effects := map[string]int{}
		b.run = completes(effects)
		b.kinds = job.NewCatalogue(job.Kind{Description: job.Description{Name: "test"}, Read: func([]byte) (job.Contents, error) {
			t.Error("the body of a convicted job was decoded")
			return job.Contents{}, nil
		}})
		plan := b.must(planOf(&redrive.Filter{Kinds: []string{"test"}})).Plan
		if plan.Actions[redrive.Redrive] != 8 {
			t.Fatalf("plan %+v", plan)
		}
		b.must(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "the new worker survives it"})
		run := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if run.State != redrive.Done || len(effects) != 8 {
			t.Fatalf("%d effects, run %+v", len(effects), run)
		}
		for i := range 8 {
			e := b.entries[key(fmt.Sprint("j", i))]
			equal(t, e.Redrives, 1, "the generation of %s", e.Key)
			equal(t, e.Run, plan.Run, "the run of %s", e.Key)
			equal(t, e.Status, ledger.Done, "the status of %s", e.Key)
		}
	})
}

// A key that is forged into a convict's message opens nobody else's entry.
func TestAForgedKeyOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("victim", job.Rejected)
		b.mu.Lock()
		b.put(job.DLQ, job.Message{Body: body("other"), Memory: job.Memory{Class: job.Crashed, Cause: job.CauseCrash, Key: key("victim"), At: time.Now().Add(-time.Hour)}})
		b.mu.Unlock()
		plan := b.must(planOf(&redrive.Filter{Classes: []job.Class{job.Crashed}})).Plan
		b.must(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "trying"})
		b.must(redrive.Request{Action: "run", Plan: plan.ID})
		victim := b.entries[key("victim")]
		equal(t, victim.Status, ledger.Isolated, "the victim's status")
		equal(t, victim.Redrives, 0, "the victim's generation")
		equal(t, victim.Version, 1, "the victim's version")
		if len(b.sentAt) != 1 {
			t.Errorf("%d sent, want the message itself, without an entry", len(b.sentAt))
		}
	})
}

// Convicted before anybody knew its key, a job cannot be judged by the ledger: people judge its canary.
func TestConvictedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 8 {
			b.nameless(fmt.Sprint("j", i))
		}
		b.kinds = job.NewCatalogue(job.Kind{Description: job.Description{Name: "test"}, Read: func([]byte) (job.Contents, error) {
			t.Error("the body of a convicted job was decoded")
			return job.Contents{}, nil
		}})
		plan := b.must(planOf(&redrive.Filter{Classes: []job.Class{job.Crashed}})).Plan
		if plan.Actions[redrive.Redrive] != 8 || !strings.Contains(plan.Approval, "crashed") {
			t.Fatalf("plan %+v", plan)
		}
		b.must(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "the new worker survives it"})
		first := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, first.State, redrive.Halted, "the first run's state")
		contains(t, first.Why, "look at the worker's errors", "the reason")
		equal(t, len(b.sentAt), b.Numbers.Canary, "the number of sent messages")
		if t.Failed() {
			t.FailNow()
		}
		second := b.must(redrive.Request{Action: "run", Run: plan.Run}).Run
		if second.State != redrive.Done || len(b.sentAt) != 8 {
			t.Errorf("%d sent, run %+v", len(b.sentAt), second)
		}
	})
}

// A run that ends, or begins, between two reads of a status is not told as interrupted.
func TestAStatusDoesNotTakeAnEndForAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.isolated("a", job.Transient)
		plan := b.must(planOf(all)).Plan
		b.must(redrive.Request{Action: "run", Plan: plan.ID})
		at := [2]string{"run#" + plan.Run, "run"}
		ended := b.docs[at]
		active := ended
		active.Doc = bytes.Replace(ended.Doc, []byte(`"state":"done"`), []byte(`"state":"active"`), 1)
		if bytes.Equal(active.Doc, ended.Doc) {
			t.Fatalf("no state in %s", ended.Doc)
		}
		for reads := range 4 {
			b.docs[at] = active
			n := 0
			b.fault = func(call string) (before, after error) {
				if strings.HasPrefix(call, "table.get") {
					if n++; n > reads+1 {
						b.docs[at] = ended
					}
				}
				return nil, nil
			}
			got := b.must(redrive.Request{Action: "status", Run: plan.Run}).Run
			if reads < 3 && got.State == redrive.Halted {
				t.Errorf("it ends after %d reads, and the status says %s, %s", reads+1, got.State, got.Why)
			}
			if reads == 3 && got.Code != redrive.HaltInterrupted { // its owner is gone in every read
				t.Errorf("nobody works on it, and the status says %s %s", got.State, got.Code)
			}
		}
	})
}
