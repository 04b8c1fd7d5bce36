package redrive_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

const brokenBody = `{"kind":"test","payload":{"id":7}}`

// invalid puts a body on the DLQ whose payload cannot be read, as the worker isolates it.
func (b *bench) invalid(body string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(job.DLQ, job.Message{Body: body, Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: "blue"}, "bin": {Type: "Binary", Binary: []byte{0, 1}}}, Group: "g",
		Memory: job.Memory{Class: job.Invalid, Cause: job.CausePermanent, Error: "id is a number", At: time.Now().Add(-time.Hour)}})
}

func mendOf(message, body string) redrive.Request {
	return redrive.Request{Action: "mend", Message: message, Body: body, By: "ada", Reason: "the id is a text"}
}

// approved lets somebody else approve a plan.
func (b *bench) approved(plan *redrive.Plan) {
	b.Helper()
	b.must(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "seen"})
}

func TestMendAndRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		id := b.invalid(brokenBody)
		b.many(3)
		plan := b.must(mendOf(id, body("7"))).Plan
		for _, want := range []string{"-     \"id\": 7\n", "+     \"id\": \"7\"\n", "    \"kind\": \"test\""} {
			if !strings.Contains(plan.Replacement.Diff, want) {
				t.Errorf("%q is not in the diff:\n%s", want, plan.Replacement.Diff)
			}
		}
		if want := "its body has no key that can be read; mended, it is job test/7"; plan.Replacement.Note != want {
			t.Errorf("note %q, want %q", plan.Replacement.Note, want)
		}
		b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "needs an approval: a mended body")
		b.refused(redrive.Request{Action: "approve", Plan: plan.ID, By: "ada", Reason: "mine"}, "somebody else")
		if shown := b.must(redrive.Request{Action: "status", Plan: plan.ID}).Plan; shown.Replacement.Diff != plan.Replacement.Diff {
			t.Errorf("an approver is shown %q", shown.Replacement.Diff)
		}
		b.approved(plan)
		b.onSend = func() {
			sent := b.sentTo[0]
			equal(t, sent.Memory.Key, key("7"), "the job that the message names")
			if sent.Body != body("7") {
				t.Errorf("sent %s, want the mended body", sent.Body)
			}
			if sent.Group != "g" || sent.Attributes["tenant"].String != "blue" {
				t.Errorf("the sender's own was lost: group %q, attributes %v", sent.Group, sent.Attributes)
			}
		}
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if n := effects[key("7")]; n != 1 {
			t.Errorf("%d effects of the mended job, want 1", n)
		}
		if n := b.on(job.DLQ); n != 3 {
			t.Errorf("%d on the DLQ, want the 3 others", n)
		}
		// Both bodies and the diff stay in the audit.
		audit := b.must(redrive.Request{Action: "audit", Plan: plan.ID, WithBody: true})
		if audit.Plan.Replacement.Diff != plan.Replacement.Diff {
			t.Errorf("the audit's diff is %q", audit.Plan.Replacement.Diff)
		}
		said := map[redrive.Step]bool{}
		for _, line := range audit.Audit {
			said[line.What] = true
		}
		for _, what := range []redrive.Step{"original", "mended", "approved"} {
			equal(t, said[what], true, "whether the audit has %q", what)
		}
	})
}

// The approved digest is on the entry together with its reopening.
func TestMendingWritesTheApprovedDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.isolated("a", job.Rejected)
		digest := func(payload string) string {
			d, err := job.Digest([]byte(payload), nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		e := b.entries[key("a")]
		e.Digest = digest(`{"id":"a"}`)
		b.entries[key("a")] = e
		plan := b.must(mendOf(id, `{"kind":"test","payload":{"id":"a","room":2}}`)).Plan
		b.approved(plan)
		b.sendErr = func(job.Message) error { // after the reopening
			if e := b.entries[key("a")]; e.Status != ledger.Pending || e.Digest != digest(`{"id":"a","room":2}`) {
				t.Errorf("entry %s with digest %s before the send", e.Status, e.Digest)
			}
			return nil
		}
		b.run = completes(map[string]int{})
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if e := b.entry("a"); e.Redrives != 1 {
			t.Errorf("generation %d, want 1", e.Redrives)
		}
	})
}

func TestMendIsRefused(t *testing.T) {
	b := newBench(t)
	rejected := b.isolated("a", job.Rejected)
	transient := b.isolated("b", job.Transient)
	broken := b.invalid(brokenBody)
	done := b.isolated("done", job.Rejected)
	unresolved := b.isolated("u", job.Rejected)
	for id, change := range map[string]func(*ledger.Entry){
		"done": func(e *ledger.Entry) { e.Status = ledger.Done },
		"u":    func(e *ledger.Entry) { e.Unresolved = true },
	} {
		e := b.entries[key(id)]
		change(&e)
		b.entries[key(id)] = e
	}
	more := func(id string) string { return `{"kind":"test","payload":{"id":"` + id + `","more":1}}` }
	for why, r := range map[string]redrive.Request{
		"a new key is a new job":                      mendOf(rejected, more("x")),
		"only an invalid or a rejected job is mended": mendOf(transient, more("b")),
		"the mended body is not readable":             mendOf(broken, `{"kind":`),
		"is the one that the message has":             mendOf(rejected, body("a")),
		"it would not be sent: remove":                mendOf(done, more("done")),
		"an external call was made with the old body": mendOf(unresolved, more("u")),
		"was not seen on the DLQ":                     mendOf("m-x", more("a")),
		"needs a message or a job":                    {Action: "mend", Message: rejected, By: "a", Reason: "b"},
		"the mended body cannot be sent":              mendOf(rejected, strings.Repeat("x", 1<<20+1)),
		"needs a name":                                {Action: "mend", Message: rejected, Body: more("a")},
	} {
		b.refused(r, why)
	}
}

// A claim that was made between plan and run, and whose outcome nobody knows, keeps its payload.
func TestMendingStopsAtAnUnresolvedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.isolated("a", job.Rejected)
		plan := b.must(mendOf(id, `{"kind":"test","payload":{"id":"a","room":2}}`)).Plan
		b.approved(plan)
		e := b.entries[key("a")]
		e.Unresolved = true
		b.entries[key("a")] = e
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Skipped: 1})
		if e := b.entry("a"); e.Status != ledger.Isolated || e.Digest != "" {
			t.Errorf("it was reopened: %s, digest %s", e.Status, e.Digest)
		}
	})
}

// A conflict is mended by id: the message then has the payload that was approved for its job.
func TestMendingAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		b.isolated("a", job.Rejected)
		e := b.entries[key("a")]
		e.Digest = "1:of-another-payload"
		b.entries[key("a")] = e
		id := b.queues[job.DLQ][0].ID
		plan := b.must(mendOf(id, `{"kind":"test","payload":{"id":"a","room":2}}`)).Plan
		b.approved(plan)
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
	})
}

// A message that was to be sent with a mended body stays on the DLQ if its job ends with another payload meanwhile: nobody
// has run what it says.
func TestAMendedMessageStaysIfItsJobEndsWithAnotherPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Rejected)
		e := b.entries[key("a")]
		e.Digest = "1:of-another-payload"
		b.entries[key("a")] = e
		plan := b.must(mendOf(b.queues[job.DLQ][0].ID, `{"kind":"test","payload":{"id":"a","room":2}}`)).Plan
		b.approved(plan)
		e.Status, e.Outcome = ledger.Done, "released"
		b.entries[key("a")] = e
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Skipped: 1})
		equal(t, b.on(job.DLQ), 1, "the number of messages on the DLQ")
	})
}

// The entry is opened and the mended message is not sent, and then somebody takes the message from the DLQ, such as by putting it
// back by hand with its old body. The audit has the approved body, so the run sends that.
func TestAMendedMessageThatIsTakenAfterTheReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.invalid(brokenBody)
		plan := b.must(mendOf(id, body("7"))).Plan
		b.approved(plan)
		b.sendErr = func(job.Message) error { return lanes.ErrUnsent }
		b.wantHalt(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, redrive.HaltCall, "nothing of a cohort was confirmed")
		equal(t, b.entry("7").Status, ledger.Pending, "the entry's status")
		b.queues[job.DLQ], b.sendErr = nil, nil
		effects := map[string]int{}
		b.run = completes(effects)
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		equal(t, effects[key("7")], 1, "the number of effects")
	})
}

// Nobody sends another body than the one that was approved.
func TestAChangedBodyIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.invalid(brokenBody)
		one := b.must(mendOf(id, body("7"))).Plan
		time.Sleep(time.Second)
		two := b.must(mendOf(id, body("8"))).Plan
		b.approved(one)
		for k, r := range b.docs { // the other plan's bodies, under this plan's name
			if strings.HasPrefix(k[0], "audit#"+two.ID) {
				r.PK = strings.Replace(r.PK, two.ID, one.ID, 1)
				b.docs[[2]string{r.PK, r.SK}] = r
			}
		}
		b.wantHalt(b.must(redrive.Request{Action: "run", Plan: one.ID}).Run, redrive.HaltCall, "it was changed")
		if len(b.sentAt) != 0 {
			t.Error("it was sent")
		}
	})
}

// discards discards messages and returns the discard's id.
func (b *bench) discards(ids ...string) (run string) {
	b.Helper()
	b.must(redrive.Request{Action: "discard", Messages: ids, By: "ada", Reason: "not wanted"})
	for k, r := range b.docs {
		if k[0] == "index" && strings.HasPrefix(k[1], "run#d-") {
			run = strings.TrimPrefix(r.SK, "run#")
		}
	}
	return run
}

// What was discarded by mistake is sent again from the audit, approved, and is everything that its sender sent.
func TestResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		effects := map[string]int{}
		b.run = completes(effects)
		id := b.isolated("a", job.Rejected)
		m := b.queues[job.DLQ][0]
		m.Group, m.TraceHeader = "g", "Root=1"
		m.Attributes = map[string]job.Attribute{"b": {Type: "Binary", Binary: []byte{0, 1, 254}}}
		run := b.discards(id)
		if e := b.entry("a"); e.Status != ledger.Terminal {
			t.Fatalf("not discarded: %s", e.Status)
		}
		request := redrive.Request{Action: "resend", Run: run, Message: id, By: "ada", Reason: "it was wanted"}
		plan := b.must(request).Plan
		b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "needs an approval: a job that was discarded")
		if !strings.Contains(plan.Replacement.Diff, `"id": "a"`) {
			t.Errorf("an approver is shown %q, want the payload", plan.Replacement.Diff)
		}
		b.approved(plan)
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		sent := b.sentTo[0]
		if got, want := fmt.Sprint(sent.Body, sent.Group, sent.TraceHeader, sent.Attributes), fmt.Sprint(m.Body, m.Group, m.TraceHeader, m.Attributes); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if n := effects[key("a")]; n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
		b.refused(request, "remove") // the job is final now
		b.refused(redrive.Request{Action: "resend", Run: run, Message: "m-x", By: "a", Reason: "b"}, "has discarded no message m-x")
		b.refused(redrive.Request{Action: "resend", Run: "d-x", Message: id, By: "a", Reason: "b"}, "has discarded no message")
	})
}

// A job that was sent anew after its discard, and ended, is not brought back by the old message.
func TestResendDoesNotPassAFinalJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		id := b.isolated("a", job.Rejected)
		run := b.discards(id)
		plan := b.must(redrive.Request{Action: "resend", Run: run, Message: id, By: "ada", Reason: "r"}).Plan
		b.approved(plan)
		e := b.entries[key("a")]
		e.Status, e.Outcome = ledger.Done, "released"
		b.entries[key("a")] = e
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Removed: 1})
		if len(b.sentAt) != 0 {
			t.Error("it was sent")
		}
	})
}

// A send whose answer was lost is repeated by the next round, and counts one generation.
func TestResendAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.isolated("a", job.Rejected)
		run := b.discards(id)
		plan := b.must(redrive.Request{Action: "resend", Run: run, Message: id, By: "ada", Reason: "r"}).Plan
		b.approved(plan)
		b.half = func(string) (error, error) { return nil, errOutage }
		b.wantHalt(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, redrive.HaltCall, "nothing of a cohort was confirmed")
		effects := map[string]int{}
		b.half, b.run = nil, completes(effects)
		b.wantDone(b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run, map[redrive.Ending]int{redrive.Succeeded: 1})
		if e := b.entry("a"); e.Redrives != 1 || effects[key("a")] != 1 {
			t.Errorf("generation %d, %d effects, want one each", e.Redrives, effects[key("a")])
		}
	})
}
