package redrive_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/marks"
	"acklast/internal/redrive"
)

// Only a request that asks for a body gets one. No other answer, no line of the log and no line of the audit has a
// recipient or a body, and neither have the refusals.
func TestOnlyTheRequestForABodyGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		recipient, note := marks.New("recipient"), marks.New("body")
		private := func(id string) string {
			return `{"kind":"test","payload":{"id":"` + id + `","recipient":"` + recipient + `@example.test","note":"` + note + `"}}`
		}
		effects := map[string]int{}
		b.run = completes(effects)
		put := func(id string, class job.Class, body string) string {
			b.isolated(id, class)
			last := b.queues[job.DLQ][len(b.queues[job.DLQ])-1]
			last.Body = body
			return last.ID
		}
		kept := put("a", job.Transient, private("a"))
		put("b", job.Rejected, private("b"))
		put("ambiguous", job.Ambiguous, private("ambiguous"))
		dropped := put("c", job.Transient, private("c"))
		unreadable := b.invalid(strings.Replace(private("d"), `"id":"d"`, `"id":{"`+note+`":1}`, 1))
		twice := b.invalid(`{"kind":"test","payload":{"` + note + `":{"a":1,"a":2}}}`)
		nothing := b.invalid(note)

		search := func(name string, texts ...string) {
			t.Helper()
			for _, text := range append(texts, b.log.String()) {
				for _, mark := range []string{recipient, note} {
					if form := marks.In(text, mark); form != "" {
						t.Errorf("%s: has %s, %s:\n%s", name, mark, form, text)
					}
				}
			}
		}
		step := func(name string, r redrive.Request) redrive.Response {
			t.Helper()
			if r.By == "" && r.Action != "inspect" && r.Action != "status" && r.Action != "audit" && r.Action != "run" {
				r.By, r.Reason = "ada", "test"
			}
			resp, err := b.try(t.Context(), r)
			text := ""
			if err != nil {
				text = err.Error()
			}
			raw, _ := json.Marshal(resp)
			search(name, text, string(raw))
			return resp
		}
		step("groups", redrive.Request{Action: "inspect"})
		step("a list", redrive.Request{Action: "inspect", List: true})
		for _, id := range []string{kept, unreadable, twice, nothing} {
			if seen := step("one message", redrive.Request{Action: "inspect", Message: id}); len(seen.Messages)+len(seen.Groups) == 0 && seen.Message == nil {
				t.Errorf("nothing is shown of %s: %s", id, seen.Refused)
			}
		}
		plan := step("a plan", redrive.Request{Action: "plan", Select: all}).Plan
		run := step("a run", redrive.Request{Action: "run", Plan: plan.ID}).Run
		step("the status", redrive.Request{Action: "status", Run: run.ID})
		step("the audit", redrive.Request{Action: "audit", Run: run.ID})
		step("a discard", redrive.Request{Action: "discard", Messages: []string{dropped, unreadable}})
		step("a job's audit", redrive.Request{Action: "audit", Job: key("c")})
		step("a decision", redrive.Request{Action: "decide", Job: key("ambiguous"), Decision: ledger.NotSent})
		step("a mending that is refused", redrive.Request{Action: "mend", Message: twice, Body: `{"kind":"test","payload":{"` + note + `":{"a":1,"a":2}}}`})
		step("a mending that cannot be read", redrive.Request{Action: "mend", Message: twice, Body: note})
		if effects[key("a")] != 1 {
			t.Errorf("the run made %d effects of a job, want 1: nothing was searched", effects[key("a")])
		}

		// The search would find a body: here it is asked for.
		raw, _ := json.Marshal(b.must(redrive.Request{Action: "inspect", Message: nothing, WithBody: true}))
		if marks.In(string(raw), note) == "" {
			t.Errorf("a body that was asked for is missing: %s", raw)
		}
		search("the log after a body was asked for")
	})
}
