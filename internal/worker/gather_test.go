package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// together is a kind whose jobs share the part of their id before the hyphen. It records what ran.
type together struct {
	mu     sync.Mutex
	alone  []string
	groups [][]string
	batch  func(ctx context.Context, ds []job.Delivery) []job.Result
}

func newTogether(t *testing.T) (*bench, *together) {
	b := newBench(t)
	tg := &together{}
	k := b.kind("test", job.RunLate)
	run := k.Run
	k.Run = func(ctx context.Context, d job.Delivery) job.Result {
		tg.mu.Lock()
		tg.alone = append(tg.alone, d.Subject)
		tg.mu.Unlock()
		return run(ctx, d)
	}
	tg.batch = func(_ context.Context, ds []job.Delivery) []job.Result {
		results := make([]job.Result, len(ds))
		for i, d := range ds {
			results[i] = b.ledger.commit(d, b.Rules, b.now)
		}
		return results
	}
	k.Together = func(d job.Delivery) string {
		if strings.HasPrefix(d.Subject, "panic") {
			panic("no name")
		}
		name, _, found := strings.Cut(d.Subject, "-")
		if !found {
			return ""
		}
		return name
	}
	k.RunBatch = func(ctx context.Context, ds []job.Delivery) []job.Result {
		var ids []string
		for _, d := range ds {
			ids = append(ids, d.Subject)
		}
		tg.mu.Lock()
		tg.groups = append(tg.groups, ids)
		tg.mu.Unlock()
		return tg.batch(ctx, ds)
	}
	twin := k
	twin.Name = "twin"
	b.Kinds = job.NewCatalogue(k, twin, b.kind("other", job.RunLate))
	return b, tg
}

func (tg *together) want(t *testing.T, alone string, groups ...string) {
	t.Helper()
	slices.Sort(tg.alone)
	if got := strings.Join(tg.alone, " "); got != alone {
		t.Errorf("alone ran %q, want %q", got, alone)
	}
	var got []string
	for _, g := range tg.groups {
		got = append(got, strings.Join(g, " "))
	}
	slices.Sort(got)
	if !slices.Equal(got, groups) {
		t.Errorf("together ran %q, want %q", got, groups)
	}
}

func TestJobsThatShareSomethingRunTogether(t *testing.T) {
	b, tg := newTogether(t)
	b.all(b.record("m1", body("a-1")), b.record("m2", body("b-1")), b.record("m3", body("a-2")), b.record("m4", body("lone")),
		b.record("m5", `{"kind":"other","payload":{"ID":"a-3"}}`), b.record("m6", body("b-2")), b.record("m7", body("c-1")))
	tg.want(t, "c-1 lone", "a-1 a-2", "b-1 b-2")
	for _, key := range []string{"test/a-1", "test/a-2", "test/b-1", "test/b-2", "test/c-1", "test/lone", "other/a-3"} {
		if e := b.ledger.entries[key]; e.Status != ledger.Done {
			t.Errorf("%s is %q", key, e.Status)
		}
	}
}

func TestJobsOfTwoKindsShareNothing(t *testing.T) {
	b, tg := newTogether(t)
	b.all(b.record("m1", body("a-1")), b.record("m2", `{"kind":"twin","payload":{"ID":"a-2"}}`))
	tg.want(t, "a-1 a-2")
}

// DynamoDB would refuse two copies of a job in one transaction.
func TestCopiesOfAJobAreNotInOneGroup(t *testing.T) {
	b, tg := newTogether(t)
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-1")), b.record("m3", body("a-2")))
	tg.want(t, "a-1", "a-1 a-2")

	b, tg = newTogether(t)
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-1")))
	tg.want(t, "a-1 a-1")
}

// Each job of a group has its own outcome.
func TestAGroupsJobsEndEachForItself(t *testing.T) {
	b, tg := newTogether(t)
	tg.batch = func(_ context.Context, ds []job.Delivery) []job.Result {
		return []job.Result{
			b.ledger.commit(ds[0], b.Rules, b.now),
			{Err: &job.Failure{Class: job.Rejected, Err: errors.New("not a hold")}},
			{Err: &job.Failure{Class: job.Transient, Err: errors.New("down")}},
			{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable},
		}
	}
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-2")), b.record("m3", body("a-3")), b.record("m4", body("a-4")))
	tg.want(t, "", "a-1 a-2 a-3 a-4")
	if e := b.ledger.entries["test/a-1"]; e.Status != ledger.Done {
		t.Errorf("a-1 is %q", e.Status)
	}
	isolated, retried, back := b.last(job.DLQ, 1).Message, b.last(job.Recovery, 1).Message, b.last(job.Source, 1).Message
	equal(b, isolated.ID, "m2", "the isolated message")
	equal(b, isolated.Memory.Class, job.Rejected, "the isolated message's class")
	equal(b, retried.ID, "m3", "the retried message")
	equal(b, retried.Memory.Attempt, 1, "the retried message's attempt")
	equal(b, back.ID, "m4", "the message that is handed back")
	equal(b, back.Memory.Outages, 1, "the number of outages of the message that is handed back")
}

// A panic of the batch form fails only the job that causes it.
func TestAPanicOfAGroupIsNotEverybodys(t *testing.T) {
	b, tg := newTogether(t)
	tg.batch = func(context.Context, []job.Delivery) []job.Result { panic("one of them") }
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		if d.Subject == "a-2" {
			panic("this one")
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-2")), b.record("m3", body("a-3")))
	tg.want(t, "a-1 a-2 a-3", "a-1 a-2 a-3")
	retried := b.last(job.Recovery, 1).Message
	equal(b, retried.ID, "m2", "the retried message")
	equal(b, retried.Memory.Attempt, 1, "the retried message's attempt")
}

func TestAPanicWhileNamingIsIsolatedAtOnce(t *testing.T) {
	b, _ := newTogether(t)
	b.all(b.record("m1", body("a-1")), b.record("m2", body("panic")), b.record("m3", body("a-2")))
	m := b.last(job.DLQ, 1).Message.Memory
	equal(b, m.Class, job.ClassUnknown, "the memory's class")
	contains(b, m.Error, "panic with a string in worker_test.newTogether", "the memory's error")
}

// A group's attempt has an end, like any other. If it hangs, each of its jobs has a failed attempt.
func TestAGroupsAttemptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tg := newTogether(t)
		tg.batch = func(ctx context.Context, ds []job.Delivery) []job.Result {
			<-ctx.Done()
			return slices.Repeat([]job.Result{{Err: ctx.Err()}}, len(ds))
		}
		began := time.Now()
		b.all(b.record("m1", body("a-1")), b.record("m2", body("a-2")))
		if took := time.Since(began); took != b.Rules.Retry.AttemptTime {
			t.Errorf("it took %v, want %v", took, b.Rules.Retry.AttemptTime)
		}
		for i := range 2 {
			equal(t, b.wires.sent[job.Recovery][i].Message.Memory.Attempt, 1, "the attempt of job %d", i)
		}
	})
}

// Suspects run one at a time. A job that was put back runs alone after its entry is reopened.
func TestSuspectsAndReopenedJobsRunAlone(t *testing.T) {
	b, tg := newTogether(t)
	suspect := b.record("m1", body("a-1"))
	suspect.Attributes["ApproximateReceiveCount"] = fmt.Sprint(3)
	second := suspect
	second.MessageId, second.Body = "m2", body("a-2")
	b.all(suspect, second)
	tg.want(t, "a-1 a-2")

	b, tg = newTogether(t)
	tg.batch = func(_ context.Context, ds []job.Delivery) []job.Result {
		return slices.Repeat([]job.Result{{Verdict: job.FoundIsolated}}, len(ds))
	}
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-2")))
	tg.want(t, "a-1 a-2", "a-1 a-2")
}

// With less concurrency than records, some would wait for others that cannot start.
func TestNobodyWaitsForWhatCannotStart(t *testing.T) {
	b, tg := newTogether(t)
	b.Concurrency = 1
	b.all(b.record("m1", body("a-1")), b.record("m2", body("a-2")))
	tg.want(t, "a-1 a-2")
}
