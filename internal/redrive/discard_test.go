package redrive_test

import (
	"cmp"
	"fmt"
	"maps"
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

// A selection is scanned once: what it selected is discarded as it was received, and stays hidden until then.
func TestDiscardOfASelectionReceivesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(300)
		e := b.entries[key("j0007")]
		e.Status, e.LeaseUntil = ledger.Running, time.Now().Add(time.Hour)
		b.entries[e.Key] = e
		b.isolated("other", job.Rejected)
		b.latency = time.Second // discarding takes longer than messages are hidden at a time
		// Whoever looks meanwhile must not receive what is about to be discarded.
		early, stop := 0, make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Second):
				}
				b.mu.Lock()
				for _, m := range b.queues[job.DLQ] {
					if m.ReceiveCount > 0 && !m.visible.After(time.Now()) {
						early++
					}
				}
				b.mu.Unlock()
			}
		}()
		resp := b.must(redrive.Request{Action: "discard", Select: transient, Count: 300, By: "ada", Reason: "not wanted"})
		close(stop)
		count := map[string]int{}
		for _, r := range resp.Results {
			count[r.Result]++
		}
		equal(t, fmt.Sprint(count), "map[discarded:299 refused:1]", "the results")
		equal(t, early, 0, "the number of messages that others could receive meanwhile")
		for _, m := range b.queues[job.DLQ] {
			equal(t, m.ReceiveCount, 1, "how often %s was received", m.ID)
		}
		equal(t, b.on(job.DLQ), 2, "the number of messages on the DLQ")
		equal(t, b.hiddenOn(), 0, "the number of hidden messages")
	})
}

// Until its count is confirmed, a discard keeps the bodies of what its selection selects, so they are bounded.
func TestDiscardOfASelectionOfLargeBodies(t *testing.T) {
	thousands(t)
	b := newBench(t)
	for range 70 {
		b.put(job.DLQ, job.Message{Body: strings.Repeat("x", 1<<20), Memory: job.Memory{Class: job.Invalid}})
	}
	r := redrive.Request{Action: "discard", Select: all, Count: 70, By: "ada", Reason: "not wanted"}
	b.refused(r, "more than the 64 MB of bodies")
	if n := b.on(job.DLQ); n != 70 {
		t.Fatalf("%d messages on the DLQ, want all 70", n)
	}
	equal(t, b.hiddenOn(), 0, "the number of hidden messages")
	b.queues[job.DLQ] = b.queues[job.DLQ][:20]
	r.Count = 20
	b.must(r)
	equal(t, b.on(job.DLQ), 0, "the number of messages on the DLQ")
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

// Of a job's messages a plan redrives the one that was isolated, else the newest copy.
func TestWhichMessageOfAJobIsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, id := range []string{"a", "b", "c"} {
			b.isolated(id, job.Rejected)
		}
		want := map[string]string{key("a"): b.queues[job.DLQ][0].ID}
		b.queues[job.DLQ] = b.queues[job.DLQ][:1]
		for range 3 {
			time.Sleep(time.Minute)
			b.copyOf("a", "second")
			want[key("b")], want[key("c")] = b.copyOf("b", "second"), b.copyOf("c", "second")
		}
		list := b.queues[job.DLQ] // b's newest is received last, c's first
		list[1], list[len(list)-1] = list[len(list)-1], list[1]
		b.must(planOf(all))
		got := map[string]string{}
		for k, r := range b.docs {
			if strings.HasPrefix(k[1], "part#") {
				var part struct{ Doc []map[string]any }
				if err := json.Unmarshal(r.Doc, &part, json.MatchCaseInsensitiveNames(true)); err != nil {
					t.Fatal(err)
				}
				for _, target := range part.Doc {
					if target["a"] == string(redrive.Redrive) {
						got[fmt.Sprint(target["k"])] = fmt.Sprint(target["i"])
					}
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("planned %v, want %v", got, want)
		}
	})
}

// A marked copy whose original is gone is redriven: its job has its effect.
func TestACopyWithoutItsOriginalIsRedriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.isolated("a", job.Rejected)
		b.copyOf("a", "second")
		b.queues[job.DLQ] = b.queues[job.DLQ][1:]
		got := b.must(redrive.Request{Action: "run", Job: key("a"), By: "ada", Reason: "r"}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 1})
		if effects[key("a")] != 1 {
			t.Errorf("%d effects, want 1", effects[key("a")])
		}
	})
}
