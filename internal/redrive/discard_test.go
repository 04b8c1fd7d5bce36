package redrive_test

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// copyOf puts a copy of an isolated job on the DLQ, as the worker does.
func (b *bench) copyOf(id, first string) string {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.entries[key(id)].Memory(job.Memory{FirstSent: time.Now(), MessageID: first})
	m.Copy = true
	return b.put(job.DLQ, job.Message{Body: body(id), Memory: m})
}

// digestOf is the digest of a test job's payload.
func digestOf(t *testing.T, body string) string {
	t.Helper()
	var e job.Envelope
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatal(err)
	}
	digest, err := job.Digest(e.Payload, nil)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// A forged or mistaken copy must not stop the job that it imitates: a discard ends a job by its key or by the message that
// was isolated, and of a copy it deletes the message alone.
func TestDiscardOfACopy(t *testing.T) {
	for name, tt := range map[string]struct {
		// letter puts the message on the DLQ that is discarded.
		letter func(b *bench) string
		// entry changes the entry afterwards.
		entry func(*ledger.Entry)
		byKey bool
		ends  bool // the entry ends as discarded
		why   string
	}{
		"the message that was isolated":   {letter: func(b *bench) string { return b.queues[job.DLQ][0].ID }, ends: true},
		"the same, by its key":            {letter: func(b *bench) string { return b.queues[job.DLQ][0].ID }, byKey: true, ends: true},
		"a copy":                          {letter: func(b *bench) string { return b.copyOf("a", "second") }, why: "it is a copy"},
		"a copy, by its job's key":        {letter: func(b *bench) string { return b.copyOf("a", "second") }, byKey: true, ends: true},
		"a copy that names the isolation": {letter: func(b *bench) string { return b.copyOf("a", "first") }, why: "it is a copy"},
		"a copy of a job that was opened": {letter: func(b *bench) string { return b.copyOf("a", "second") }, why: "it is a copy",
			entry: func(e *ledger.Entry) { e.Status, e.Run = ledger.Pending, "r-1" }},
		"a copy of a job that runs": {letter: func(b *bench) string { return b.copyOf("a", "second") }, why: "it is a copy",
			entry: func(e *ledger.Entry) { e.Status, e.LeaseUntil = ledger.Running, time.Now().Add(time.Hour) }},
		"a copy of an ambiguous job": {letter: func(b *bench) string { return b.copyOf("a", "second") }, why: "it is a copy",
			entry: func(e *ledger.Entry) { e.LastClass = job.Ambiguous }},
		"a copy of a job that is not known any more": {letter: func(b *bench) string { return b.copyOf("a", "second") }, why: "it is a copy",
			entry: func(e *ledger.Entry) { *e = ledger.Entry{} }},
		"a copy that SQS moved": {letter: func(b *bench) string { return b.put(job.DLQ, job.Message{Body: body("a")}) }, why: "it is a copy"},
		"a message of an isolation before": {letter: func(b *bench) string {
			m := b.queues[job.DLQ][0].Message
			m.Memory.At = m.Memory.At.Add(-time.Hour)
			return b.put(job.DLQ, m)
		}, why: "it is a copy"},
		"the message that was isolated, with no room for a record": {letter: func(b *bench) string { return b.put(job.DLQ, job.Message{Body: body("a")}) }, ends: true,
			entry: func(e *ledger.Entry) { e.Unmarked, e.Digest = true, digestOf(t, body("a")) }},
		"the message that was convicted, with no room for a record": {letter: func(b *bench) string { return b.put(job.DLQ, job.Message{Body: body("a")}) }, ends: true,
			entry: func(e *ledger.Entry) {
				e.Unmarked, e.Digest, e.LastClass, e.Cause = true, digestOf(t, body("a")), job.Crashed, job.CauseCrash
			}},
		"the message that was isolated, which SQS moved": {letter: func(b *bench) string { return b.put(job.DLQ, job.Message{Body: body("a")}) }, ends: true,
			entry: func(e *ledger.Entry) { e.IsolatedMessageID = "m-000002" }},
		"a message whose job was opened, and not sent": {letter: func(b *bench) string { return b.queues[job.DLQ][0].ID }, ends: true,
			entry: func(e *ledger.Entry) { e.Status, e.Run = ledger.Pending, "r-1" }},
		"another payload": {letter: func(b *bench) string {
			return b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"a","more":1}}`, Memory: job.Memory{Class: job.Rejected, Cause: job.CauseConflict, At: time.Now()}})
		}, why: "its payload is not that of the job"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.isolated("a", job.Rejected)
				id := tt.letter(b)
				e := b.entries[key("a")]
				if tt.entry != nil {
					tt.entry(&e)
				}
				b.entries[key("a")] = e
				for _, m := range b.queues[job.DLQ] { // the message is the only one that can be seen
					if m.ID != id {
						m.visible = time.Now().Add(time.Hour)
					}
				}
				r := redrive.Request{Action: "discard", Messages: []string{id}, By: "ada", Reason: "a producer sent it twice"}
				if tt.byKey {
					r.Messages, r.Jobs = nil, []string{key("a")}
				}
				resp := b.must(r)
				if got := resp.Results; len(got) != 1 || got[0].Result != "discarded" || !strings.HasPrefix(got[0].Why, tt.why) || tt.why == "" && got[0].Why != "" {
					t.Errorf("results %+v, want one that is discarded: %s", got, tt.why)
				}
				got := b.entry("a")
				if ended := got.Status == ledger.Terminal && got.Outcome == ledger.OutcomeDiscarded; ended != tt.ends {
					t.Errorf("the job is %s %s, want it to end: %v", got.Status, got.Outcome, tt.ends)
				}
				if !tt.ends && got.Version != e.Version {
					t.Errorf("the entry has version %d, want %d: it is not this message's to change", got.Version, e.Version)
				}
				for _, m := range b.queues[job.DLQ] {
					if m.ID == id {
						t.Error("the message is still on the DLQ")
					}
				}
				// The audit has the message, and says what it was.
				said := ""
				for _, line := range b.must(redrive.Request{Action: "audit", Run: resp.Discard, Message: id}).Audit {
					if line.What == "discarded" {
						said = line.Why
					}
				}
				if !strings.HasPrefix(said, cmp.Or(tt.why, "discard")) {
					t.Errorf("the audit says of the discarded message %q, want %q", said, cmp.Or(tt.why, "discard"))
				}
			})
		})
	}
}

// Copies that a selection selects go, and their job still has its effect.
func TestDiscardOfCopiesBySelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		original := b.isolated("a", job.Rejected)
		copies := []string{b.copyOf("a", "second"), b.copyOf("a", "third")}
		b.must(redrive.Request{Action: "discard", Select: &redrive.Filter{Messages: copies}, Count: 2, By: "ada", Reason: "a producer sent it again"})
		if left := b.queues[job.DLQ]; len(left) != 1 || left[0].ID != original {
			t.Fatalf("%d messages left, want the original", len(left))
		}
		plan := b.must(planOf(all)).Plan
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if effects[key("a")] != 1 {
			t.Errorf("%d effects, want 1", effects[key("a")])
		}
	})
}

// A selection with the original ends the job, whichever message comes first.
func TestDiscardOfAJobWithItsCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Rejected)
		b.copyOf("a", "second")
		b.queues[job.DLQ][0], b.queues[job.DLQ][1] = b.queues[job.DLQ][1], b.queues[job.DLQ][0]
		b.must(redrive.Request{Action: "discard", Select: all, Count: 2, By: "ada", Reason: "not wanted"})
		if e := b.entry("a"); e.Status != ledger.Terminal || b.on(job.DLQ) != 0 {
			t.Errorf("the job is %s with %d messages, want it to end, and none", e.Status, b.on(job.DLQ))
		}
	})
}

// The copy was the last message of its job. The job is still isolated, and the answer says how to go on: the audit has the
// message, and it can be sent again.
func TestDiscardOfTheLastCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.isolated("a", job.Rejected)
		id := b.copyOf("a", "second")
		b.queues[job.DLQ] = b.queues[job.DLQ][1:]
		resp := b.must(redrive.Request{Action: "discard", Messages: []string{id}, By: "ada", Reason: "a copy"})
		if why := resp.Results[0].Why; !strings.Contains(why, "redrive resend") || !strings.Contains(why, "discard it by its key") {
			t.Errorf("told %q, want how to send it again, and how to end the job", why)
		}
		plan := b.must(redrive.Request{Action: "resend", Run: resp.Discard, Message: id, By: "ada", Reason: "it was the last"}).Plan
		b.approved(plan)
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if effects[key("a")] != 1 {
			t.Errorf("%d effects, want 1", effects[key("a")])
		}
	})
}

// A job that is discarded by its key ends, also if the only message with the key has another payload.
func TestDiscardOfAJobBesideAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Rejected)
		b.queues[job.DLQ] = nil
		b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"a","more":1}}`, Memory: job.Memory{Class: job.Rejected, Cause: job.CauseConflict, At: time.Now()}})
		b.must(redrive.Request{Action: "discard", Jobs: []string{key("a")}, By: "ada", Reason: "not wanted"})
		if e := b.entry("a"); e.Status != ledger.Terminal {
			t.Errorf("the job is %s, want it to end", e.Status)
		}
	})
}
