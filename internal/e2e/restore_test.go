package e2e_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// The runbook's part about a ledger that was lost or restored, rehearsed: what it forgot comes again.

// lose takes an entry out of the ledger, as a backup from before it would, and returns it.
func (e *embedded) lose(key string) map[string]types.AttributeValue {
	e.Helper()
	subject, ok := job.SubjectOf(key)
	if !ok {
		e.Fatalf("%s has no subject", key)
	}
	out, err := e.db.DeleteItem(e.Context(), &dynamodb.DeleteItemInput{
		TableName:    &e.names.LedgerTable,
		Key:          map[string]types.AttributeValue{"subject": &types.AttributeValueMemberS{Value: subject}, "key": &types.AttributeValueMemberS{Value: key}},
		ReturnValues: types.ReturnValueAllOld,
	})
	if err != nil || len(out.Attributes) == 0 {
		e.Fatalf("lose %s: %v, %v", key, out, err)
	}
	return out.Attributes
}

// backUp copies the ledger to a table beside it, and returns that one's name.
func (e *embedded) backUp() string {
	e.Helper()
	beside := topology.NamesOf(e.names.Stack + "-restored")
	if err := dynamo.CreateTables(e.Context(), e.db, beside); err != nil {
		e.Fatal(err)
	}
	if _, err := dynamo.Restore(e.Context(), e.db, e.names.LedgerTable, beside.LedgerTable, true, time.Now(), func(dynamo.Restored) {}); err != nil {
		e.Fatal(err)
	}
	return beside.LedgerTable
}

// copyBack compares a backup with the ledger, copies what is missing if write is set, and checks the counts.
func (e *embedded) copyBack(backup string, write bool, want dynamo.Restored) {
	e.Helper()
	got, err := dynamo.Restore(e.Context(), e.db, backup, e.names.LedgerTable, write, time.Now(), func(dynamo.Restored) {})
	if err != nil {
		e.Fatal(err)
	}
	if got != want {
		e.Errorf("counts %+v, want %+v", got, want)
	}
}

// The reservation's own condition outlives the ledger: an expiry whose entry is lost changes nothing.
func TestAnExpiryThatTheLedgerForgotIsSuperseded(t *testing.T) {
	e := newEmbedded(t)
	h := e.place(e.hold("forgotten", 5, 0))
	e.ends(h, ledger.Done)
	e.wantAvailable(100)
	e.lose(e.key(h))

	e.send(e.body(h), nil)
	if got := e.ends(h, ledger.Done); got.Outcome != reservation.Superseded {
		t.Errorf("it ends as %q, want %q", got.Outcome, reservation.Superseded)
	}
	e.wantState(h, reservation.Expired)
	e.wantAvailable(100)
}

// An effect outside the database is made again, unless the provider knows the key: it follows from the job's.
func TestAReminderThatTheLedgerForgotIsSentAgain(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for name, c := range map[string]struct {
		deduplicates bool
		want         int
	}{"by a provider that knows no key": {false, 2}, "but not by one that does": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			can := unable
			if c.deduplicates {
				can = able
			}
			e := reminders(t, can)
			p := e.reminder("forgotten")
			key := e.remind(p, 1)
			e.comesTo(key, ledger.Done)
			e.lose(key)

			e.remind(p, 1)
			e.comesTo(key, ledger.Done)
			e.dry()
			e.wantAccepted(p, c.want)
		})
	}
}

// An entry that is copied back makes the next delivery a duplicate, and never replaces a newer one.
func TestAnEntryIsCopiedBackOnlyWhereItIsMissing(t *testing.T) {
	e := reminders(t, unable)
	p := e.reminder("restored")
	key := e.remind(p, 1)
	e.comesTo(key, ledger.Done)
	before := e.entry(key)
	backup := e.backUp()
	e.lose(key)
	e.copyBack(backup, true, dynamo.Restored{Read: 1, Missing: 1, Copied: 1})
	e.remind(p, 1)
	e.dry()
	e.wantAccepted(p, 1)
	if got := e.entry(key); got.Version != before.Version {
		t.Errorf("the entry has version %d, want %d", got.Version, before.Version)
	}
	e.copyBack(backup, true, dynamo.Restored{Read: 1, There: 1})
}

// The runbook's steps in their order. The backup is older than the loss: it has a job that was done, one that was isolated,
// and one that was isolated and is discarded since. A fourth job was isolated after it, so that no table has its entry.
func TestALedgerIsRestoredBetweenPauseAndResume(t *testing.T) {
	g := newGoverned(t, topology.ScaledRedrive())
	isolate := func(name string) reservation.Hold {
		h := g.hold(name, 2, 0)
		g.send(g.body(h), nil) // its record is missing
		g.ends(h, ledger.Isolated)
		return h
	}
	done := g.place(g.hold("done", 5, 0))
	g.ends(done, ledger.Done)
	kept, discarded := isolate("kept"), isolate("discarded")
	backup := g.backUp()
	forgotten := isolate("forgotten")
	g.dry()
	g.ask(redrive.Request{Action: "discard", Jobs: []string{g.key(discarded)}})
	if got := g.entry(g.key(discarded)); !got.Status.Final() {
		t.Fatalf("the discarded job is %s, want it final", got.Status)
	}
	before := g.entry(g.key(done))
	for _, h := range []reservation.Hold{done, kept, forgotten} {
		g.lose(g.key(h))
	}

	// 1: pause both lanes, throw the switch. Copies of jobs wait then.
	g.env.Pause(job.Source)
	g.env.Pause(job.Recovery)
	g.ask(redrive.Request{Action: "stop"})
	g.send(g.body(done), nil)
	g.send(g.body(discarded), nil)
	g.until("the copies wait", func() bool { return g.depth(job.Source) == lanes.Depth{Visible: 2} })

	// 3: compare, then copy. A second time, nothing is missing.
	g.copyBack(backup, false, dynamo.Restored{Read: 3, There: 1, Missing: 2})
	if got := g.entry(g.key(done)); got.Version != 0 {
		t.Errorf("the comparison wrote %+v", got)
	}
	g.copyBack(backup, true, dynamo.Restored{Read: 3, There: 1, Missing: 2, Copied: 2})
	g.copyBack(backup, true, dynamo.Restored{Read: 3, There: 3})
	if got := g.entry(g.key(discarded)); !got.Status.Final() {
		t.Errorf("the discarded job is %s again", got.Status)
	}

	// 4: resume the source lane. What the ledger knows again is a duplicate.
	g.env.Resume(job.Source)
	for _, h := range []reservation.Hold{done, discarded} {
		g.until("the copy is a duplicate", func() bool { return g.tally.Of(g.key(h))[local.Duplicate] == 1 })
	}
	if got := g.entry(g.key(done)); got.Version != before.Version || got.Status != ledger.Done {
		t.Errorf("the entry is %s with version %d, want %s with %d", got.Status, got.Version, ledger.Done, before.Version)
	}
	g.wantState(done, reservation.Expired)
	g.wantAvailable(100)

	// 5: resume the recovery lane. The job that no table knows is planned as one without an entry.
	g.env.Resume(job.Recovery)
	for _, c := range []struct {
		h     reservation.Hold
		known bool
	}{{kept, true}, {forgotten, false}} {
		view := g.ask(redrive.Request{Action: "inspect", Job: g.key(c.h)}).Message
		if view == nil || view.Action != redrive.Redrive || (view.Entry != nil) != c.known {
			t.Errorf("%s is seen as %+v, want a job to redrive, with an entry: %t", g.key(c.h), view, c.known)
		}
	}
	plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}).Plan
	if plan == nil || plan.Actions[redrive.Redrive] != 2 {
		t.Fatalf("plan %+v, want both isolated jobs redriven", plan)
	}
	if got := g.ask(redrive.Request{Action: "run", Plan: plan.ID}); got.Run != nil {
		t.Errorf("the plan began as %+v before the switch was released", got.Run)
	}
	g.ask(redrive.Request{Action: "resume"})
	g.supply(kept)
	g.supply(forgotten)
	resp := g.ask(redrive.Request{Action: "run", Plan: plan.ID})
	if resp.Run == nil || resp.Run.State != redrive.Done {
		t.Fatalf("run %+v, want it done", resp)
	}
	for _, h := range []reservation.Hold{kept, forgotten} {
		g.ends(h, ledger.Done)
		if got := g.entry(g.key(h)); got.Redrives != 1 {
			t.Errorf("%s was redriven %d times, want once", g.key(h), got.Redrives)
		}
	}
	g.wantDLQ(0)
}
