package redrive_test

import (
	"encoding/json"
	"strings"
	"testing"

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
