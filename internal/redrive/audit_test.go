package redrive_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// steps are the steps and names of an audit's lines, in order.
func steps(lines []redrive.AuditRecord) (list []string) {
	for _, line := range lines {
		list = append(list, fmt.Sprint(line.What, " ", line.By))
	}
	return list
}

func TestEveryActionIsALineOfTheAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.ApprovalAbove = 1
		b.run = isolatesAgain
		for i := range 3 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		step := func(r redrive.Request) redrive.Response {
			time.Sleep(time.Second)
			return b.must(r)
		}
		plan := step(redrive.Request{Action: "plan", Select: all, By: "ada", Reason: "r"}).Plan
		step(redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "r"})
		step(redrive.Request{Action: "run", Plan: plan.ID, By: "bob", Reason: "r"})
		step(redrive.Request{Action: "run", Run: plan.Run, By: "carl", Reason: "r"})
		step(redrive.Request{Action: "revoke", Run: plan.Run, By: "dora", Reason: "r"})
		got := steps(step(redrive.Request{Action: "audit", Plan: plan.ID}).Audit)
		if want := []string{"planned ada", "approved grace", "ran bob", "continued carl", "revoked dora"}; !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
		step(redrive.Request{Action: "stop", By: "eve", Reason: "incident"})
		step(redrive.Request{Action: "resume", By: "fay", Reason: "over"})
		lines := step(redrive.Request{Action: "audit", Job: "switch"}).Audit
		if want := []string{"stopped eve", "released fay"}; !slices.Equal(steps(lines), want) {
			t.Fatalf("audit of the switch %q, want %q", steps(lines), want)
		}
		if why := lines[1].Why; !strings.Contains(why, "eve") || !strings.Contains(why, "incident") {
			t.Errorf("the release says %q, want who had thrown it and why", why)
		}
	})
}

func TestTheAuditOfARunHasEveryLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(40)
		plan := b.must(planOf(all)).Plan
		b.must(redrive.Request{Action: "run", Plan: plan.ID})
		count := map[redrive.Step]int{}
		for page := 0; ; {
			got := b.must(redrive.Request{Action: "audit", Run: plan.Run, Page: page})
			for _, line := range got.Audit {
				count[line.What]++
			}
			if page = got.NextPage; page == 0 {
				break
			}
		}
		equal(t, count["intent"], 40, "the number of intents")
		equal(t, count["sent"], 40, "the number of sent messages")
		equal(t, count["ran"], 1, "the number of lines about who ran it")
	})
}

// auditOf are all lines of a run's audit.
func (b *bench) auditOf(run string) (lines []redrive.AuditRecord) {
	b.Helper()
	r := redrive.Request{Action: "audit", Run: run}
	for more := true; more; more = r.Page > 0 || r.After != "" {
		got := b.must(r)
		lines, r.Page, r.After = append(lines, got.Audit...), got.NextPage, got.Next
	}
	return lines
}

// endings are the jobs, or the messages without a key, that an audit names for each ending.
func endings(lines []redrive.AuditRecord) map[redrive.Ending][]string {
	names := map[redrive.Ending][]string{}
	for _, line := range lines {
		if line.Ending != "" {
			names[line.Ending] = append(names[line.Ending], cmp.Or(line.Job, line.Message))
		}
	}
	return names
}

// An ending selects the messages of a run that ended so, each by its last line, over all pages.
func TestTheAuditOfOneEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.MaxFailedPercent = 100
		b.many(60)
		done := completes(map[string]int{})
		b.run = func(w *world, m job.Message) {
			if keyOf(m) > key("j0039") {
				isolatesAgain(w, m)
			} else {
				done(w, m)
			}
		}
		plan := b.must(planOf(all)).Plan
		b.wantDone(b.runs(plan), map[redrive.Ending]int{redrive.Succeeded: 40, redrive.Again: 20})
		want := endings(b.auditOf(plan.Run))
		for _, ending := range []redrive.Ending{redrive.Again, redrive.Succeeded, redrive.Gone} {
			r := redrive.Request{Action: "audit", Run: plan.Run, Ending: ending}
			var lines []redrive.AuditRecord
			for more := true; more; more = r.Page > 0 || r.After != "" {
				got := b.must(r)
				lines, r.Page, r.After = append(lines, got.Audit...), got.NextPage, got.Next
			}
			got := endings(lines)
			equal(t, len(lines), len(want[ending]), "the number of lines of %s", ending)
			equal(t, fmt.Sprint(got[ending]), fmt.Sprint(want[ending]), "the jobs that are %s", ending)
		}
		b.refused(redrive.Request{Action: "audit", Run: plan.Run, Ending: "failed"}, `there is no ending "failed", want one of "succeeded", "isolated again"`)
		b.refused(redrive.Request{Action: "audit", Plan: plan.ID, Ending: redrive.Again}, "from the audit of a run")
		b.refused(redrive.Request{Action: "audit", Run: "r-2", Ending: redrive.Again}, "there is no run r-2")
	})
}

// A run names ten jobs of each ending. Its audit names all, and goes on doing that when other runs and people change them.
func TestTheAuditNamesEveryEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.MaxFailedPercent = 100
		b.many(90)
		b.malformed()
		done, again, slow := completes(map[string]int{}), map[string]bool{}, map[string]bool{}
		for i := range 60 {
			again[key(fmt.Sprintf("j%04d", 10+i))] = true
		}
		for i := range 12 {
			slow[key(fmt.Sprintf("j%04d", 70+i))] = true
		}
		b.run = func(w *world, m job.Message) {
			switch k := keyOf(m); {
			case again[k]:
				isolatesAgain(w, m)
			case slow[k]:
				e := w.entries[k]
				e.Attempts, e.LastClass, e.LastError = e.Attempts+1, job.Transient, "slow"
				w.entries[k] = e
			default:
				done(w, m)
			}
		}
		r := planOf(all)
		r.Canary = 5
		plan := b.must(r).Plan
		e := b.entries[key("j0089")] // ends before the run
		e.Status, e.Version = ledger.Done, e.Version+1
		b.entries[e.Key] = e
		want := map[redrive.Ending]int{redrive.Succeeded: 17, redrive.Again: 60, redrive.Retrying: 12, redrive.Removed: 1}
		run := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantDone(run, want)
		check := func(when string, want map[redrive.Ending]int) map[redrive.Ending][]string {
			names := endings(b.auditOf(run.ID))
			got := map[redrive.Ending]int{}
			for ending, list := range names {
				slices.Sort(list)
				got[ending] = len(slices.Compact(list))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: the audit names %v, want %v", when, got, want)
			}
			return names
		}
		names := check("at its end", want)
		if !slices.Equal(names[redrive.Again], slices.Sorted(maps.Keys(again))) {
			t.Errorf("isolated again are %q, want %q", names[redrive.Again], slices.Sorted(maps.Keys(again)))
		}
		for _, line := range b.auditOf(run.ID) {
			if line.Ending == redrive.Again && !strings.Contains(line.EndingWhy, "rejected") {
				t.Errorf("%s is isolated again and says %q, want its class", line.Job, line.EndingWhy)
			}
		}

		// Some of them are discarded, and others are brought back and succeed. Of this run it stays true that they were isolated again.
		b.must(redrive.Request{Action: "discard", Jobs: []string{key("j0010"), key("j0011")}, By: "ada", Reason: "r"})
		b.run = done
		if got := b.must(redrive.Request{Action: "run", Plan: b.must(planOf(&redrive.Filter{Keys: []string{key("j0012"), key("j0013")}})).Plan.ID}).Run; got.State != redrive.Done {
			t.Fatalf("the second run is %s: %s", got.State, got.Why)
		}
		check("after a discard and another run", want)
		// A retry that ends is told as it is now.
		for k := range slow {
			e := b.entries[k]
			e.Status, e.Version = ledger.Done, e.Version+1
			b.entries[k] = e
		}
		now := map[redrive.Ending]int{redrive.Succeeded: 29, redrive.Again: 60, redrive.Removed: 1}
		check("after the retries", now)
		if at := b.must(redrive.Request{Action: "audit", Run: run.ID}).EndingsAt; !at.Equal(time.Now()) {
			t.Errorf("the endings are as of %v, want %v", at, time.Now())
		}
		// An entry that cannot be read keeps nothing from being told.
		b.unreadable[key("j0014")] = true
		check("with an entry that cannot be read", map[redrive.Ending]int{redrive.Succeeded: 29, redrive.Again: 59, redrive.Removed: 1})
	})
}

func TestTheAuditOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.isolated("a", job.Ambiguous)
		b.isolated("b", job.Transient)
		b.must(redrive.Request{Action: "decide", Job: key("a"), Decision: ledger.NotSent, By: "ada", Reason: "r"})
		time.Sleep(time.Second)
		b.must(redrive.Request{Action: "run", Plan: b.must(planOf(&redrive.Filter{Subjects: []string{"b"}})).Plan.ID})
		if got := steps(b.must(redrive.Request{Action: "audit", Job: key("a")}).Audit); !slices.Equal(got, []string{"decided ada"}) {
			t.Errorf("audit of a: %q", got)
		}
		if got := steps(b.must(redrive.Request{Action: "audit", Job: key("b")}).Audit); !slices.Equal(got, []string{"intent ", "sent "}) {
			t.Errorf("audit of b: %q", got)
		}
	})
}

// The audit of a job reads on, page by page, however many plans and runs are newer.
func TestTheAuditOfAJobReadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.isolated("b", job.Transient)
		b.must(redrive.Request{Action: "run", Plan: b.must(planOf(all)).Plan.ID})
		b.isolated("other", job.Transient)
		for range 120 {
			time.Sleep(time.Minute)
			b.must(planOf(all))
		}
		r := redrive.Request{Action: "audit", Job: key("b")}
		var lines []redrive.AuditRecord
		answers := 1
		for ; ; answers++ {
			got := b.must(r)
			lines = append(lines, got.Audit...)
			if r.Page = got.NextPage; r.Page == 0 {
				break
			}
		}
		if got := steps(lines); !slices.Equal(got, []string{"intent ", "sent "}) {
			t.Errorf("audit of b: %q", got)
		}
		if answers != 3 {
			t.Errorf("121 plans and runs were read in %d answers, want 3", answers)
		}
	})
}

// A job's key stands for its message in a discard, too.
func TestAKeyStandsForADiscardedMessage(t *testing.T) {
	b := newBench(t)
	id := b.isolated("a", job.Transient)
	b.isolated("b", job.Transient)
	b.put(job.DLQ, b.queues[job.DLQ][1].Message)
	d := b.must(redrive.Request{Action: "discard", Jobs: []string{key("a"), key("b")}, By: "ada", Reason: "r"}).Discard
	got := b.must(redrive.Request{Action: "audit", Run: d, Job: key("a"), WithBody: true})
	if got.Body != body("a") {
		t.Errorf("the body is %q, want %q", got.Body, body("a"))
	}
	p := b.must(redrive.Request{Action: "resend", Run: d, Job: key("a"), By: "ada", Reason: "r"}).Plan
	if p.Replacement == nil || p.Replacement.Message != id {
		t.Errorf("the plan sends %+v, want message %s", p.Replacement, id)
	}
	b.refused(redrive.Request{Action: "resend", Run: d, Job: key("b"), By: "ada", Reason: "r"}, "2 messages of job "+key("b"))
	b.refused(redrive.Request{Action: "resend", Run: d, Job: key("c"), By: "ada", Reason: "r"}, "no message of job "+key("c"))
	b.refused(redrive.Request{Action: "audit", Run: d, Job: key("c"), WithBody: true}, "no message of job "+key("c"))
}

// A discard by selection takes the count that its author expects.
func TestDiscardBySelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 12 {
			b.malformed()
		}
		b.isolated("a", job.Transient)
		r := redrive.Request{Action: "discard", Select: &redrive.Filter{Classes: []job.Class{job.Invalid}}, Count: 11, By: "a", Reason: "b"}
		b.refused(r, "selects 12 messages, and the request confirms 11")
		if n := b.on(job.DLQ); n != 13 {
			t.Errorf("%d on the DLQ after a refusal, want 13", n)
		}
		r.Count = 12
		b.must(r)
		if n := b.on(job.DLQ); n != 1 {
			t.Errorf("%d left on the DLQ, want 1", n)
		}
	})
}

// What the ledger does not know any more, and what is in conflict, has a way out as well.
func TestEveryMessageHasAWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		forgotten := b.put(job.DLQ, job.Message{Body: body("gone"), Memory: job.Memory{Class: job.Ambiguous, Cause: job.CauseAmbiguous, At: time.Now()}})
		b.isolated("a", job.Transient)
		conflict := b.put(job.DLQ, job.Message{Body: `{"kind":"test","payload":{"id":"a","more":1}}`, Memory: job.Memory{Class: job.Rejected, Cause: "conflict", At: time.Now()}})
		moved := b.put(job.DLQ, job.Message{Body: body("m")}) // by SQS, without a word of ours
		got := b.must(redrive.Request{Action: "discard", Messages: []string{forgotten, conflict, moved}, By: "a", Reason: "b"})
		for _, r := range got.Results {
			if r.Result != "discarded" {
				t.Errorf("%s: %s, %s, want discarded", r.Message, r.Result, r.Why)
			}
		}
		if e := b.entry("a"); e.Status != ledger.Isolated || e.Version != 1 {
			t.Errorf("the entry of the job that the message conflicted with is %s, version %d", e.Status, e.Version)
		}
	})
}

// One run is stopped without stopping others, by anybody.
func TestStopOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(60)
		plan := b.must(planOf(all)).Plan
		cohorts := 0
		b.onSend = func() {
			if cohorts++; cohorts == 3 {
				b.must(redrive.Request{Action: "stop", Run: plan.Run, By: "bob", Reason: "wrong"})
			}
		}
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		b.wantHalt(got, redrive.HaltStopped, "stopped by bob: wrong")
		if cohorts != 3 {
			t.Errorf("%d cohorts, want 3", cohorts)
		}
		if sw := b.must(redrive.Request{Action: "status"}).Switch; sw != nil {
			t.Errorf("the switch was thrown: %+v", sw)
		}
		b.onSend = nil
		b.wantDone(b.must(redrive.Request{Action: "run", Run: plan.Run}).Run, map[redrive.Ending]int{redrive.Succeeded: 60})
	})
}

// A decision by selection takes the count that its author expects, and decides each job once.
func TestDecideBySelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 7 {
			b.isolated(fmt.Sprint("j", i), job.Ambiguous)
		}
		b.put(job.DLQ, b.queues[job.DLQ][0].Message) // a copy
		b.isolated("other", job.Transient)
		r := redrive.Request{Action: "decide", Decision: ledger.NotSent, Select: &redrive.Filter{Classes: []job.Class{job.Ambiguous}}, Count: 7, By: "ada", Reason: "the provider was down"}
		b.refused(r, "selects 8 messages, and the request confirms 7")
		if e := b.entry("j0"); e.Decided != "" {
			t.Errorf("decided %s although refused", e.Decided)
		}
		r.Count = 8
		for _, result := range b.must(r).Results {
			if result.Result != "decided" {
				t.Errorf("%s: %s, %s", result.Job, result.Result, result.Why)
			}
		}
		for i := range 7 {
			if e := b.entry(fmt.Sprint("j", i)); e.Decided != ledger.NotSent || len(e.Decisions) != 1 {
				t.Errorf("j%d: decided %q, %d decisions, want one", i, e.Decided, len(e.Decisions))
			}
		}
		if got := steps(b.must(redrive.Request{Action: "audit", Job: key("j3")}).Audit); !slices.Equal(got, []string{"decided ada"}) {
			t.Errorf("audit %q", got)
		}
		r.Job = key("j3")
		b.refused(r, "takes ids or a selection, not both")
	})
}

// A job's key stands for its message, wherever one is asked for.
func TestKeysStandForMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.many(20)
		id := b.queues[job.DLQ][7].ID
		if shown := b.must(redrive.Request{Action: "inspect", Job: key("j0007")}).Message; shown.ID != id {
			t.Errorf("shown %s, want %s", shown.ID, id)
		}
		got := b.must(redrive.Request{Action: "run", Job: key("j0007"), By: "ada", Reason: "r"}).Run
		b.wantDone(got, map[redrive.Ending]int{redrive.Succeeded: 1})
		b.put(job.DLQ, b.queues[job.DLQ][8].Message)
		results := b.must(redrive.Request{Action: "discard", Jobs: []string{keyOf(b.queues[job.DLQ][8].Message), key("never")}, By: "ada", Reason: "r"}).Results
		said := map[string]int{}
		for _, r := range results {
			said[r.Result]++
		}
		if said["discarded"] != 2 || said["not-seen"] != 1 {
			t.Errorf("results %+v, want both messages of the one job discarded, and the other not seen", results)
		}
	})
}

// An ambiguous job whose message is gone is ended by its entry.
func TestDiscardOfAJobWithoutAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolated("a", job.Ambiguous)
		saved := b.queues[job.DLQ][0]
		saved.visible = time.Now().Add(time.Hour) // somebody hides it
		r := redrive.Request{Action: "discard", Jobs: []string{key("a")}, By: "ada", Reason: "r"}
		if got := b.must(r).Results; got[0].Result != "not-seen" {
			t.Errorf("hidden: %+v, want not-seen", got)
		}
		b.queues[job.DLQ] = nil
		if got := b.must(r).Results; got[0].Result != "discarded" {
			t.Errorf("gone: %+v, want discarded", got)
		}
		if e := b.entry("a"); e.Status != ledger.Terminal {
			t.Errorf("entry %s, want terminal", e.Status)
		}
	})
}

// What an action does nothing with might have been meant to keep something from happening.
func TestUnusedFieldsAreRefused(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Transient)
	for why, r := range map[string]redrive.Request{
		"stop does nothing with plan":                  {Action: "stop", Plan: "p-1"},
		"plan does nothing with messages":              {Action: "plan", Select: all, Messages: []string{"m"}, By: "a", Reason: "b"},
		"approve does nothing with ratePerSecond":      {Action: "approve", Plan: "p", RatePerSecond: 1, By: "a", Reason: "b"},
		"discard does nothing with message, open":      {Action: "discard", Message: "m", Open: true, By: "a", Reason: "b"},
		"status does nothing with select":              {Action: "status", Select: all},
		"count belongs to an open plan":                {Action: "plan", Select: all, Count: 3, By: "a", Reason: "b"},
		"list names every message, withBody shows one": {Action: "inspect", WithBody: true},
		"one message, and takes no selection":          {Action: "inspect", Message: "m", Select: all},
	} {
		b.refused(r, why)
	}
	// What was to slow a run down, or to name another one.
	plan := b.must(planOf(all)).Plan
	for _, r := range []redrive.Request{
		{Plan: plan.ID, RatePerSecond: 1}, {Plan: plan.ID, Canary: 3}, {Plan: plan.ID, RatePerSecond: 1, Canary: 3, Begin: true},
		{Run: plan.Run, RatePerSecond: 1}, {Run: plan.Run, Canary: 3},
	} {
		r.Action = "run"
		b.refused(r, "run does nothing with ratePerSecond or canary unless it makes a plan")
	}
	id := b.queues[job.DLQ][0].ID
	for _, r := range []redrive.Request{
		{Plan: plan.ID, Run: plan.Run}, {Plan: plan.ID, Message: id}, {Run: plan.Run, Message: id}, {Run: plan.Run, Job: key("a")}, {Message: id, Job: key("a")},
		{Plan: plan.ID, Run: plan.Run, Message: id, Job: key("a")},
	} {
		r.Action, r.By, r.Reason = "run", "ada", "r"
		b.refused(r, "run takes one of plan, run, message and job")
	}
	if runs := b.must(redrive.Request{Action: "status"}).Runs; len(runs) != 1 || runs[0].State != redrive.Planned {
		t.Errorf("after refusals there are %+v, want the one plan, not run", runs)
	}
}

// The audit of a big run comes in parts that Lambda can answer, each line once.
func TestTheAuditOfABigRunFitsItsAnswers(t *testing.T) {
	thousands(t)
	b := newBench(t)
	const lines = 1500
	why := strings.Repeat("x", 7000)
	for i := range lines {
		sk := fmt.Sprintf("m-%05d#1", i)
		b.docs[[2]string{"audit#r-big#03", sk}] = redrive.Record{PK: "audit#r-big#03", SK: sk, Version: 1,
			Doc: []byte(fmt.Sprintf(`{"format":1,"doc":{"run":"r-big","message":"m-%05d","job":"test/%d","what":"sent","why":%q}}`, i, i, why))}
		b.entries[fmt.Sprint("test/", i)] = ledger.Entry{Key: fmt.Sprint("test/", i), Status: ledger.Isolated, Version: 1, LastClass: job.Rejected, LastError: strings.Repeat("\x01", 512)}
	}
	seen, answers := map[string]bool{}, 0
	for page, after := 0, ""; ; answers++ {
		got := b.must(redrive.Request{Action: "audit", Run: "r-big", Page: page, After: after})
		if raw, err := json.Marshal(got); err != nil || len(raw) > 6_000_000 {
			t.Errorf("an answer has %d bytes, more than Lambda answers; %v", len(raw), err)
		}
		for _, line := range got.Audit {
			if seen[line.Message] {
				t.Fatalf("%s is told twice", line.Message)
			}
			seen[line.Message] = true
		}
		if page, after = got.NextPage, got.Next; page == 0 && after == "" {
			break
		}
	}
	if len(seen) != lines {
		t.Errorf("%d lines in %d answers, want %d", len(seen), answers, lines)
	}
}
