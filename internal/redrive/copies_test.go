package redrive_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// marked says in an attribute of the sender which message one is, since a message that is sent has a new id.
func (b *bench) marked(id, mark string) {
	for _, m := range b.queues[job.DLQ] {
		if m.ID == id {
			m.Attributes = map[string]job.Attribute{"mark": {Type: "String", String: mark}}
		}
	}
}

// withCopies puts jobs on the DLQ of which each has copies that are received before the message that a plan sends of it, and
// returns those messages by their jobs' keys.
func (b *bench) withCopies(jobs, copies int) (acting map[string]string) {
	acting = map[string]string{}
	var originals []*queued
	for i := range jobs {
		id := fmt.Sprint("j", i)
		acting[key(id)] = b.isolated(id, job.Transient)
		b.marked(acting[key(id)], "original")
		last := len(b.queues[job.DLQ]) - 1
		originals, b.queues[job.DLQ] = append(originals, b.queues[job.DLQ][last]), b.queues[job.DLQ][:last]
		for range copies {
			b.marked(b.copyOf(id, "second"), "copy")
		}
	}
	b.queues[job.DLQ] = append(b.queues[job.DLQ], originals...)
	return acting
}

// without takes messages from the DLQ, as somebody else does.
func (b *bench) without(ids ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []*queued
	for _, m := range b.queues[job.DLQ] {
		taken := false
		for _, id := range ids {
			taken = taken || m.ID == id
		}
		if !taken {
			left = append(left, m)
		}
	}
	b.queues[job.DLQ] = left
}

// An approval covers which message of a job is sent. A copy that is received first waits for that message.
func TestARunSendsTheMessageThatItsPlanNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.withCopies(30, 2)
		plan := b.must(planOf(all)).Plan
		equal(t, fmt.Sprint(plan.Actions), "map[copy:60 redrive:30]", "what the plan does")
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 30, redrive.Copied: 60})
		for _, m := range b.sentTo {
			equal(t, m.Attributes["mark"].String, "original", "the message of %s that was sent", keyOf(m))
		}
		equal(t, len(b.sentTo), 30, "the number of messages that were sent")
		equal(t, len(effects), 30, "the number of effects")
		equal(t, b.on(job.DLQ), 0, "the number of messages on the DLQ")
	})
}

// If the message that the plan names is gone, its copies stay on the DLQ, the audit says why, and another plan sends one.
func TestCopiesOfAMessageThatIsGoneAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		acting := b.withCopies(2, 2)
		plan := b.must(planOf(all)).Plan
		b.without(acting[key("j0")])
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 2, redrive.Gone: 1, redrive.Skipped: 2})
		equal(t, effects[key("j0")], 0, "the number of effects of the job whose message is gone")
		kept := 0
		for page, more := 0, true; more; more = page > 0 {
			got := b.must(redrive.Request{Action: "audit", Run: plan.Run, Page: page})
			for _, line := range got.Audit {
				if line.What == "kept" {
					kept++
					contains(t, line.Why, "needs a new plan", "why %s is kept", line.Message)
				}
			}
			page = got.NextPage
		}
		equal(t, kept, 2, "the number of messages that are kept")
		b.wantDone(b.runs(b.must(planOf(all)).Plan), map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 1})
		equal(t, effects[key("j0")], 1, "the number of effects after the second run")
	})
}

// A message that was reopened and not sent, and that somebody took then, leaves the job open: its copy is sent in its place.
func TestACopyOfAJobThatWasOpenedAndNotSentIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		acting := b.withCopies(1, 1)
		plan := b.must(planOf(all)).Plan
		b.sendErr = func(job.Message) error { return errors.New("not now") }
		b.wantHalt(b.runs(plan), redrive.HaltCall, "nothing of a cohort was confirmed")
		b.sendErr = nil
		b.without(acting[key("j0")])
		time.Sleep(b.Numbers.LockLease + b.Numbers.Hide)
		got := b.runs(plan)
		equal(t, got.State, redrive.Done, "the run's state")
		equal(t, effects[key("j0")], 1, "the number of effects")
	})
}

// A message that the run keeps has its copies kept, too, if the ledger does not say otherwise.
func TestCopiesOfAMessageThatIsKeptAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.withCopies(2, 1)
		plan := b.must(planOf(all)).Plan
		e := b.entries[key("j0")]
		e.Redrives++ // by something else
		b.entries[e.Key] = e
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 1, redrive.Copied: 1, redrive.Skipped: 2})
		equal(t, len(b.sentTo), 1, "the number of messages that were sent")
	})
}

// A job that ended meanwhile leaves no message behind, whichever is received first.
func TestCopiesOfAJobThatEndedAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.withCopies(3, 1)
		plan := b.must(planOf(all)).Plan
		e := b.entries[key("j0")]
		e.Status, e.FinalAt = ledger.Done, time.Now()
		b.entries[e.Key] = e
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Copied: 2, redrive.Removed: 2})
		equal(t, b.on(job.DLQ), 0, "the number of messages on the DLQ")
	})
}
