package redrive_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

func TestAnApprovedPlanCanBeWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(3)
		b.Numbers.ApprovalAbove = 1
		plan := b.must(planOf(all)).Plan
		b.must(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "seen"})
		got := b.must(redrive.Request{Action: "revoke", Plan: plan.ID, By: "eve", Reason: "the wrong ones"}).Run
		if got.State != redrive.Revoked || got.RevokedBy != "eve" {
			t.Errorf("state %s by %q, want revoked by eve", got.State, got.RevokedBy)
		}
		if got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run; got.State != redrive.Revoked {
			t.Errorf("a withdrawn plan became a run that is %s", got.State)
		}
		if n := len(b.sentAt); n != 0 {
			t.Errorf("%d sent", n)
		}
		if listed := b.must(redrive.Request{Action: "status"}).Runs; len(listed) != 1 || listed[0].State != redrive.Revoked {
			t.Errorf("listed %+v", listed)
		}
	})
}

// Opened and never sent, a job is closed again by the revocation, with its generation given back.
func TestRevocationClosesWhatWasOpenedAndNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(3)
		b.sendErr = func(job.Message) error { return errOutage }
		for range 2 { // also of a second run
			plan := b.must(planOf(all)).Plan
			b.must(redrive.Request{Action: "run", Plan: plan.ID})
			if e := b.entry("j0000"); e.Status != ledger.Pending || e.Redrives != 1 {
				t.Fatalf("not opened: %+v", e)
			}
			b.must(redrive.Request{Action: "revoke", Run: plan.Run, By: "eve", Reason: "wrong"})
			rules := ledger.Rules{MaxRedrives: 3}
			for _, m := range b.queues[job.DLQ] {
				back := job.Delivery{Message: m.Message, Lane: job.Source, Key: keyOf(m.Message)}
				back.ID, back.SentAt = "back", time.Now().Add(time.Minute)
				if got := rules.Arrive(b.entries[back.Key], back); got != ledger.PutBack {
					t.Errorf("%s is put back by hand after the revocation, and the ledger takes it for arrival %d, want %d", back.Key, got, ledger.PutBack)
				}
			}
			for _, id := range []string{"j0000", "j0001", "j0002"} {
				e := b.entry(id)
				if e.Status != ledger.Isolated || e.Cause != job.CauseRevoked {
					t.Errorf("%s is %s, cause %s, want isolated and revoked", id, e.Status, e.Cause)
				}
				if e.Redrives != 0 {
					t.Errorf("%s spent %d generations, want 0", id, e.Redrives)
				}
			}
		}
		b.sendErr, b.run = nil, completes(map[string]int{})
		got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 3})
	})
}

// A revocation that comes while the last cohort is sent ends the run in order.
func TestRevocationDuringTheLastCohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(1)
		plan := b.must(planOf(all)).Plan
		b.onSend = func() {
			b.onSend = nil
			b.must(redrive.Request{Action: "revoke", Run: plan.Run, By: "eve", Reason: "wrong"})
		}
		got, err := b.try(t.Context(), redrive.Request{Action: "run", Plan: plan.ID})
		if err != nil {
			t.Fatalf("the function failed: %v", err)
		}
		if got.Run.State != redrive.Revoked || !strings.Contains(got.Run.Why, "wrong") {
			t.Errorf("run %s: %s, want revoked", got.Run.State, got.Run.Why)
		}
	})
}

// A job whose entry cannot be decoded keeps no other from being given back. The answer and the audit name it, and once its entry
// can be read, another revocation gives it back.
func TestRevocationNamesWhatItCannotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(10)
		b.sendErr = func(job.Message) error { return errOutage }
		plan := b.must(planOf(all)).Plan
		b.must(redrive.Request{Action: "run", Plan: plan.ID})
		var opened []string
		for k, e := range b.entries {
			if e.Status == ledger.Pending {
				opened = append(opened, k)
			}
		}
		if len(opened) < 2 {
			t.Fatalf("the run opened %v, want several", opened)
		}
		broken := slices.Min(opened)
		b.unreadable[broken] = true
		got := b.must(redrive.Request{Action: "revoke", Run: plan.Run, By: "eve", Reason: "wrong"}).Run
		contains(t, got.Why, "1 jobs that it may have opened are not given back, because their entries cannot be read, such as "+broken, "what the run says")
		for _, k := range opened {
			if e := b.entries[k]; k != broken && e.Status != ledger.Isolated {
				t.Errorf("%s is %s, want it isolated", k, e.Status)
			}
		}
		said := ""
		for _, line := range b.must(redrive.Request{Action: "audit", Job: broken}).Audit {
			said += line.Why + " "
		}
		contains(t, said, "not given back: its entry cannot be read", "the audit of the job")
		delete(b.unreadable, broken)
		time.Sleep(time.Second)
		got = b.must(redrive.Request{Action: "revoke", Run: plan.Run, By: "eve", Reason: "wrong"}).Run
		equal(t, got.Why, "revoked: wrong", "what the run says afterwards")
		equal(t, b.entries[broken].Status, ledger.Isolated, "the entry's status")
	})
}
