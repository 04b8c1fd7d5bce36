package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// runs are the decisions of operators, in memory.
type runs struct {
	mu      sync.Mutex
	revoked []string
	asked   int
	fail    error
	// paused are the paused kinds, pausesAsked is how often they were read, and unreadable is the error of
	// reading them. hanging makes a read answer only when its context ends.
	paused      []string
	pausesAsked int
	unreadable  error
	hanging     bool
}

func (r *runs) Paused(ctx context.Context) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pausesAsked++
	if r.hanging {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r.paused, r.unreadable
}

func (r *runs) Revoked(_ context.Context, run string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return slices.Contains(r.revoked, run), r.fail
}

// redriven is a delivery that the run sent, and the entry as the run opened it.
func (b *bench) redriven(id, run string) events.SQSMessage {
	b.ledger.entries["test/"+id] = ledger.Entry{
		Key: "test/" + id, Kind: "test", Status: ledger.Pending, Attempts: 3, BudgetFrom: 3, Redrives: 1, Run: run,
		LastClass: job.Transient, Version: 4,
	}
	return b.back("m-"+id, lanes.Move{Message: job.Message{Body: body(id), Memory: job.Memory{Attempt: 3, Redrives: 1, Run: run}}})
}

func TestRevokedRun(t *testing.T) {
	b := newBench(t)
	b.runs.revoked = []string{"r-bad"}
	b.one(b.redriven("1", "r-bad"))
	m := b.last(job.DLQ, 1).Message.Memory
	e := b.ledger.entries["test/1"]
	equal(b, m.Cause, job.CauseRevoked, "the memory's cause")
	equal(b, m.Class, job.Transient, "the memory's class")
	equal(b, b.ran.Load(), 0, "the number of runs")
	equal(b, e.Status, ledger.Isolated, "the entry's status")
	equal(b, e.Redrives, 0, "the entry's generation")
	equal(b, e.IsolatedMessageID, "m-1", "the entry's isolated message")
	equal(b, e.Cause, job.CauseRevoked, "the entry's cause")
	// A job that has run keeps its generation.
	r := b.redriven("2", "r-bad")
	e = b.ledger.entries["test/2"]
	e.Attempts++
	b.ledger.entries["test/2"] = e
	b.one(r)
	e = b.ledger.entries["test/2"]
	equal(b, e.Status, ledger.Isolated, "the status of the entry that ran")
	equal(b, e.Redrives, 1, "the generation of the entry that ran")
}

func TestRevokedRunHoldsOnlyWhatIsItsOwn(t *testing.T) {
	b := newBench(t)
	b.runs.revoked = []string{"r-bad"}
	// The entry belongs to another run now. A message that names the revoked run, perhaps forged, runs.
	r := b.redriven("1", "r-bad")
	e := b.ledger.entries["test/1"]
	e.Run = "r-good"
	b.ledger.entries["test/1"] = e
	b.one(r)
	equal(t, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	// A final entry stays final.
	b.one(r)
	// A live delivery holds the claim: deferred.
	r = b.redriven("3", "r-bad")
	e = b.ledger.entries["test/3"]
	e.Status, e.LeaseUntil = ledger.Running, b.now.Add(time.Minute)
	b.ledger.entries["test/3"] = e
	b.one(r)
	b.last(job.Recovery, 1)
	equal(t, len(b.wires.sent[job.DLQ]), 0, "the number of moves to the DLQ")
}

// The entry's own job must not be acknowledged for, or isolated by, a message with another payload.
func TestARevokedRunsMessageWithAnotherPayloadIsIsolatedAlone(t *testing.T) {
	for _, status := range []ledger.Status{ledger.Pending, ledger.Expired} {
		b := newBench(t)
		b.runs.revoked = []string{"r-bad"}
		r := b.redriven("1", "r-bad")
		e := b.ledger.entries["test/1"]
		e.Status, e.Digest = status, "1:another"
		b.ledger.entries["test/1"] = e
		b.one(r)
		equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CauseConflict, "the cause when the entry is %s", status)
		equal(b, b.ledger.entries["test/1"].Status, status, "the entry's status afterwards")
	}
}

func TestUnreadableRunIsHandedBack(t *testing.T) {
	b := newBench(t)
	b.runs.fail = errors.New("table not found")
	b.all(b.redriven("1", "r-1"), b.record("fresh", body("2")))
	equal(b, b.ledger.entries["test/1"].Version, 4, "the entry's version")
	equal(b, b.ran.Load(), 1, "the number of runs")
	equal(b, b.last(job.Recovery, 1).Message.Memory.Run, "r-1", "the memory's run")
	equal(b, b.last(job.Recovery, 1).Message.Memory.Outages, 1, "the memory's number of outages")
}

func TestRunIsReadOncePerInvocation(t *testing.T) {
	b := newBench(t)
	var records []events.SQSMessage
	for _, id := range []string{"1", "2", "3", "4"} {
		records = append(records, b.redriven(id, "r-1"))
	}
	b.all(append(records, b.record("fresh", body("5")))...)
	if b.runs.asked != 1 {
		t.Errorf("asked %d times", b.runs.asked)
	}
	b.one(b.record("fresh2", body("6")))
	if b.runs.asked != 1 {
		t.Errorf("asked for a delivery that no run sent")
	}
	b.one(b.redriven("7", "r-1"))
	if b.runs.asked != 2 {
		t.Errorf("a later invocation asked %d times in all", b.runs.asked)
	}
}
