package redrive_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// newer makes a document one of a later version's.
func (b *bench) newer(pk, sk string) {
	b.Helper()
	k := [2]string{pk, sk}
	r := b.docs[k]
	doc := strings.Replace(string(r.Doc), `{"format":1,`, `{"format":2,`, 1)
	if doc == string(r.Doc) {
		b.Fatalf("%s carries no format: %s", pk, r.Doc)
	}
	r.Doc = []byte(doc)
	b.docs[k] = r
}

func TestANewerRequestIsRefusedByName(t *testing.T) {
	b := newBench(t)
	got, err := b.Handle(t.Context(), json.RawMessage(`{"format":2,"action":"plan","select":{"everything":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Refused, "the request has format 2") {
		t.Errorf("refused %q, want the format named", got.Refused)
	}
}

func TestANewerPlanIsRefusedByName(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Transient)
	plan := b.must(planOf(all)).Plan
	b.newer("plan#"+plan.ID, "plan")
	b.refused(redrive.Request{Action: "run", Plan: plan.ID}, "plan#"+plan.ID+" has format 2")
}

func TestANewerRunIsRefusedByName(t *testing.T) {
	b := newBench(t)
	b.isolated("a", job.Transient)
	b.run = completes(map[string]int{})
	plan := b.must(planOf(all)).Plan
	b.must(redrive.Request{Action: "run", Plan: plan.ID})
	b.newer("run#"+plan.Run, "run")
	b.refused(redrive.Request{Action: "run", Run: plan.Run}, "run#"+plan.Run+" has format 2")
	if _, err := (redrive.Operators{Table: table{b.world}}).Revoked(t.Context(), plan.Run); err == nil {
		t.Error("the worker took a run that it cannot read for one that was not revoked")
	}
}

func TestEveryAnswerNamesTheVersion(t *testing.T) {
	b := newBench(t)
	b.deps.Version = "1.2.3"
	if got := b.must(redrive.Request{Action: "status"}).Version; got != "1.2.3" {
		t.Errorf("version %q, want 1.2.3", got)
	}
}

// Lists are there when they are empty, in every answer that has a run.
func TestEmptyListsOfARunAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		b.isolated("a", job.Transient)
		plan := b.must(planOf(all)).Plan
		listed := func(name string, v any) {
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(raw, &fields); err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"watched", "halts"} {
				if len(fields[field]) == 0 || fields[field][0] != '[' {
					t.Errorf("%s: %s is %q, want a list", name, field, fields[field])
				}
			}
		}
		listed("planned", b.must(redrive.Request{Action: "status"}).Runs[0])
		listed("begun", b.must(redrive.Request{Action: "run", Plan: plan.ID, Begin: true}).Run)
		at := [2]string{"run#" + plan.Run, "run"} // as an earlier version wrote it
		r := b.docs[at]
		r.Doc = []byte(strings.Replace(strings.Replace(string(r.Doc), `"watched":[]`, `"watched":null`, 1), `,"halts":[]`, "", 1))
		b.docs[at] = r
		listed("of an earlier version", b.must(redrive.Request{Action: "status", Run: plan.Run}).Run)
		listed("done", b.runs(plan))
		listed("its status", b.must(redrive.Request{Action: "status", Run: plan.Run}).Run)
		listed("listed", b.must(redrive.Request{Action: "status"}).Runs[0])
		st, err := redrive.Operators{Table: table{b.world}}.Standing(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		listed("standing", st.Run)
		b.run = isolatesAgain
		b.isolated("b", job.Transient)
		got := b.runs(b.must(planOf(all)).Plan)
		listed("halted", got)
		halt, err := json.Marshal(redrive.Halt{Failed: []redrive.Watched{}})
		if err != nil || !strings.Contains(string(halt), `"failed":[]`) {
			t.Errorf("a halt without failures is %s, %v, want its list", halt, err)
		}
	})
}
