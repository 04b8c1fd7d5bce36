package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// conformance checks the promises of a Store on an engine.
func conformance(t *testing.T, e engine) {
	tests := []struct {
		name string
		test func(*bench)
	}{
		{"CreateTables", testCreateTables},
		{"GetAbsent", testGetAbsent},
		{"UpdateCreates", testUpdateCreates},
		{"UpdateWritesTheDifference", testUpdateDifference},
		{"UpdateReappliesAfterAConflict", testUpdateConflict},
		{"UpdateAfterATransactionConflict", testUpdateTransactionConflict},
		{"UpdateConcurrently", testUpdateConcurrently},
		{"UpdateKnowsItsOwnWrite", testUpdateLostAnswer},
		{"BySubject", testBySubject},
		{"NewerEntry", testNewer},
		{"NewerPendingEntryIsNotClaimed", testNewerClaim},
		{"RoundTrip", testRoundTrip},
		{"Unavailable", testUnavailable},
		{"WrongRequest", testWrongRequest},
		{"ContextEnded", testContext},
		{"UnreadableEntry", testUnreadable},
		{"LearnKeepsTheOwner", testLearn},
		{"CompletionKnowsItsOwnWrite", testCompleteLostAnswer},
		{"CompleteAClaim", testCompleteClaim},
		{"ClaimInConflict", testClaimConflict},
		{"ClaimKnowsItsOwnWrite", testClaimLostAnswer},
		{"ClaimTakesOver", testClaimTakesOver},
		{"ClaimConcurrently", testClaimConcurrently},
		{"ClaimConditionIsTheRule", testClaimCondition},
		{"ClaimFresh", testClaimFresh},
		{"UpdateLeavesAClaim", testUpdateLeavesAClaim},
		{"Strikes", testStrikes},
		{"StrikesConcurrently", testStrikesConcurrently},
		{"StrikesKnowTheirOwnWrite", testStrikesLostAnswer},
	}
	if e.transacts {
		tests = append(tests, []struct {
			name string
			test func(*bench)
		}{
			{"UpdateReturnsTheErrorOfChange", testUpdateChangeError},
			{"UpdateIsNotFooledByItsOwnToken", testUpdateForeignWriteSameToken},
			{"CommitFresh", testCommitFresh},
			{"CommitKeepsTheHistory", testCommitKeeps},
			{"CommitConditionIsAccepts", testCommitCondition},
			{"CommitConcurrently", testCommitConcurrently},
			{"CommitOwnItemRefuses", testCommitOwnItem},
			{"CommitReadsReasonsByPosition", testCommitReasons},
			{"CommitTakesTheEntryFromTheReason", testCommitReasonItem},
			{"CommitKnowsItsOwnWrite", testCommitLostAnswer},
			{"CommitOwnTokenProvesOnlyItsOwnOutcome", testCommitOwnToken},
			{"CommitRequestTokens", testCommitTokens},
			{"CommitKeepsTheSchedulesTTL", testCommitKeepsTheSchedulesTTL},
			{"CommitOfAFiring", testCommitOfAFiring},
			{"TogetherKeepsTheSchedulesTTL", testTogetherKeepsTheSchedulesTTL},
			{"Together", testTogether},
			{"TogetherTakesOutWhatIsRefused", testTogetherRefused},
			{"TogetherASharedItemRefuses", testTogetherSharedRefuses},
			{"TogetherKnowsItsOwnWrite", testTogetherLostAnswer},
			{"TogetherWithoutReasons", testTogetherWithoutReasons},
			{"TogetherInConflict", testTogetherConflict},
			{"TogetherUnavailable", testTogetherUnavailable},
			{"TogetherInSeveral", testTogetherInSeveral},
			{"TogetherAWrongPart", testTogetherWrongPart},
			{"Transact", testTransact},
			{"Runnable", testRunnable},
			{"NewerPendingEntryIsNotCompleted", testNewerCommit},
			{"AnotherPayloadIsNotCommitted", testCommitConflict},
		}...)
	}
	if e.indexesUpdates {
		tests = append(tests, struct {
			name string
			test func(*bench)
		}{"Isolated", testIsolated})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(newBench(t, e))
		})
	}
}

func testCreateTables(b *bench) {
	if err := dynamo.CreateTables(b.Context(), b.client, b.names, ownTables...); err != nil {
		b.Errorf("tables that exist: %v", err)
	}
	for _, want := range b.names.Tables() {
		out, err := b.client.DescribeTable(b.Context(), &dynamodb.DescribeTableInput{TableName: &want.Name})
		if err != nil {
			b.Fatal(err)
		}
		got := topology.Table{Name: aws.ToString(out.Table.TableName), TTL: want.TTL}
		got.PartitionKey, got.SortKey = keys(out.Table.KeySchema)
		for _, i := range out.Table.GlobalSecondaryIndexes {
			got.Index.Name = aws.ToString(i.IndexName)
			got.Index.PartitionKey, got.Index.SortKey = keys(i.KeySchema)
			if i.Projection.ProjectionType != types.ProjectionTypeInclude {
				b.Errorf("index %s projects %s", got.Index.Name, i.Projection.ProjectionType)
			}
			got.Index.Include = i.Projection.NonKeyAttributes
		}
		if b.engine.hasTTL {
			ttl, err := b.client.DescribeTimeToLive(b.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &want.Name})
			if err != nil {
				b.Fatal(err)
			}
			got.TTL = aws.ToString(ttl.TimeToLiveDescription.AttributeName)
		}
		if !reflect.DeepEqual(got, want) {
			b.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func keys(schema []types.KeySchemaElement) (partition, sort string) {
	for _, k := range schema {
		if k.KeyType == types.KeyTypeHash {
			partition = aws.ToString(k.AttributeName)
		} else {
			sort = aws.ToString(k.AttributeName)
		}
	}
	return partition, sort
}

func testGetAbsent(b *bench) {
	if e := b.get(); !reflect.DeepEqual(e, ledger.Entry{}) {
		b.Errorf("an absent entry is %+v", e)
	}
	b.proxy.Add(faults.Rule{
		Operation: "GetItem",
		Match:     func(body []byte) bool { return !strings.Contains(string(body), `"ConsistentRead":true`) },
		Fault:     faults.Error(400, "ValidationException", "not a consistent read"),
	})
	b.get()
}

// failed is the transition of a first failed attempt.
func failed(token string) func(ledger.Entry) (ledger.Entry, error) {
	return func(e ledger.Entry) (ledger.Entry, error) {
		f := &job.Failure{Class: job.Transient, Err: errors.New("provider timed out")}
		return rules.Fail(e, delivery(token), f, now, 0.5)
	}
}

func testUpdateCreates(b *bench) {
	e, err := b.store.Update(b.Context(), key, "t1", failed("t1"))
	if err != nil {
		b.Fatal(err)
	}
	if e.Version != 1 || e.Owner != "t1" || e.Status != ledger.Pending || e.Attempts != 1 || !e.UpdatedAt.Equal(now) || e.Key != key {
		b.Errorf("got %+v", e)
	}
	if got := b.get(); !reflect.DeepEqual(got, e) {
		b.Errorf("stored %+v, returned %+v", got, e)
	}
	if got, want := b.calls(), "GetItem 2 UpdateItem 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}

	other := "reminder.send/x%2Fy/v1"
	_, err = b.store.Update(b.Context(), other, "t1", func(ledger.Entry) (ledger.Entry, error) {
		return ledger.Entry{Kind: "reminder.send", Status: ledger.Pending}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	it := b.rawEntry(other)
	if got := it["subject"]; !reflect.DeepEqual(got, text("x/y")) {
		b.Errorf("subject is %v, want the key's own, x/y", got)
	}
	if n, ok := it["attempts"].(*types.AttributeValueMemberN); !ok || n.Value != "0" {
		b.Errorf("a fresh entry's attempts are %v, want 0", it["attempts"])
	}
}

func testUpdateDifference(b *bench) {
	first, err := b.store.Update(b.Context(), key, "t1", failed("t1"))
	if err != nil {
		b.Fatal(err)
	}
	novel := &types.AttributeValueMemberM{Value: item{"since": num("2")}}
	b.set("novel", novel)
	b.proxy.Reset()
	// The request would contain these if the whole entry had been written, or all of it removed and set.
	b.proxy.Add(faults.Rule{
		Operation: "UpdateItem",
		Match: func(body []byte) bool {
			return strings.Contains(string(body), `"#kind"`) || strings.Contains(string(body), `"#novel"`)
		},
		Fault: faults.Error(400, "ValidationException", "writes what did not change"),
	})
	e, err := b.store.Update(b.Context(), key, "t2", func(e ledger.Entry) (ledger.Entry, error) {
		e.Contentions, e.RetryAt = 3, time.Time{}
		return e, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	want := first
	want.Contentions, want.RetryAt, want.Owner, want.Version = 3, time.Time{}, "t2", 2
	if !reflect.DeepEqual(e, want) {
		b.Errorf("returned %+v\nwant %+v", e, want)
	}
	it := b.rawEntry(key)
	if _, ok := it["retry_at"]; ok && b.engine.removes {
		b.Error("retry_at is still there")
	}
	if !b.engine.removes {
		want.RetryAt = first.RetryAt
	}
	if got := b.get(); !reflect.DeepEqual(got, want) {
		b.Errorf("stored %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(it["novel"], types.AttributeValue(novel)) {
		b.Errorf("an attribute of a newer version became %v", it["novel"])
	}
	if !b.engine.transacts {
		return
	}
	// A commit keeps it too.
	c := complete("t3")
	c.Now = now.Add(time.Hour)
	if err := b.store.Commit(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	if it := b.rawEntry(key); !reflect.DeepEqual(it["novel"], types.AttributeValue(novel)) {
		b.Errorf("after a commit, an attribute of a newer version became %v", it["novel"])
	}
}

func testUpdateChangeError(b *bench) {
	if err := b.store.Commit(b.Context(), complete("t1")); err != nil {
		b.Fatal(err)
	}
	b.proxy.Reset()
	e, err := b.store.Update(b.Context(), key, "t2", failed("t2"))
	if err != ledger.ErrFinal { //nolint:errorlint // the error itself, not a wrapped one
		b.Errorf("got %v, want ErrFinal itself", err)
	}
	if e.Status != ledger.Done || e.Owner != "t1" {
		b.Errorf("the entry that was read is %+v", e)
	}
	if got, want := b.calls(), "GetItem 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
}

func testUpdateConflict(b *bench) {
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	// meddling makes a change while another write comes first, n times.
	meddling := func(n int, calls *int) func(ledger.Entry) (ledger.Entry, error) {
		return func(e ledger.Entry) (ledger.Entry, error) {
			*calls++
			if *calls <= n {
				_, err := b.store.Update(b.Context(), key, "other", func(o ledger.Entry) (ledger.Entry, error) {
					o.Contentions++
					return o, nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			e.Attempts++
			return e, nil
		}
	}
	var calls int
	e, err := b.store.Update(b.Context(), key, "t1", meddling(2, &calls))
	if err != nil || calls != 3 || e.Attempts != 1 || e.Contentions != 2 || b.conflicts.Load() != 2 {
		b.Errorf("two conflicts: %+v, %v after %d calls, %d conflicts counted", e, err, calls, b.conflicts.Load())
	}
	calls = 0
	_, err = b.store.Update(b.Context(), key, "t1", meddling(3, &calls))
	if !errors.Is(err, ledger.ErrContended) || errors.Is(err, ledger.ErrUnavailable) || calls != 3 || b.conflicts.Load() != 5 {
		b.Errorf("three conflicts: %v after %d calls, %d conflicts counted", err, calls, b.conflicts.Load())
	}
	if e := b.get(); e.Attempts != 1 || e.Contentions != 5 {
		b.Errorf("stored %+v", e)
	}

	// Two updates create the same entry: the second finds the entry of the first.
	calls = 0
	other := "k/other"
	e, err = b.store.Update(b.Context(), other, "t1", func(e ledger.Entry) (ledger.Entry, error) {
		if calls++; calls == 1 {
			if _, err := b.store.Update(b.Context(), other, "t2", func(e ledger.Entry) (ledger.Entry, error) {
				e.Contentions = 7
				return e, nil
			}); err != nil {
				b.Fatal(err)
			}
		}
		e.Attempts++
		return e, nil
	})
	if err != nil || e.Contentions != 7 || e.Attempts != 1 || e.Version != 2 {
		b.Errorf("created twice: %+v, %v", e, err)
	}
}

func testUpdateTransactionConflict(b *bench) {
	conflict := faults.Error(400, "TransactionConflictException", "")
	b.fail("UpdateItem", 2, conflict)
	if e, err := b.store.Update(b.Context(), key, "t1", failed("t1")); err != nil || e.Version != 1 {
		b.Errorf("two conflicts: %+v, %v", e, err)
	}
	if b.conflicts.Load() != 2 {
		b.Errorf("%d conflicts counted, want 2", b.conflicts.Load())
	}
	b.fail("UpdateItem", 3, conflict)
	if _, err := b.store.Update(b.Context(), key, "t2", func(e ledger.Entry) (ledger.Entry, error) { return e, nil }); !errors.Is(err, ledger.ErrContended) {
		b.Errorf("three conflicts: %v", err)
	}
}

func testUpdateConcurrently(b *bench) {
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				_, err := b.store.Update(b.Context(), key, fmt.Sprint("t", i), func(e ledger.Entry) (ledger.Entry, error) {
					e.Attempts++
					return e, nil
				})
				if errors.Is(err, ledger.ErrContended) {
					continue
				}
				if err != nil {
					b.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	if e := b.get(); e.Attempts != n || e.Version != n {
		b.Errorf("after %d updates: %d attempts, version %d", n, e.Attempts, e.Version)
	}
}

func testUpdateLostAnswer(b *bench) {
	for i, what := range []string{"create", "change"} {
		b.proxy.Reset()
		b.fail("UpdateItem", 1, faults.DropAnswer())
		calls := 0
		token := fmt.Sprint("t", i)
		e, err := b.store.Update(b.Context(), key, token, func(e ledger.Entry) (ledger.Entry, error) {
			calls++
			e.Attempts++
			return e, nil
		})
		if err != nil || calls != 1 || e.Attempts != i+1 || e.Version != int64(i+1) || e.Owner != token {
			b.Errorf("%s: %+v, %v after %d calls", what, e, err, calls)
		}
		if got := b.get(); !reflect.DeepEqual(got, e) {
			b.Errorf("%s: stored %+v, returned %+v", what, got, e)
		}
		if n := b.proxy.Calls()["UpdateItem"]; n != 2 {
			b.Errorf("%s: %d UpdateItem calls, want the lost one and the SDK's retry", what, n)
		}
	}
	if b.conflicts.Load() != 0 {
		b.Errorf("our own writes counted as %d conflicts", b.conflicts.Load())
	}
}

func testUpdateForeignWriteSameToken(b *bench) {
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	calls := 0
	e, err := b.store.Update(b.Context(), key, "t1", func(e ledger.Entry) (ledger.Entry, error) {
		if calls++; calls == 1 {
			// A commit of this delivery that was still on its way.
			if err := b.store.Commit(b.Context(), complete("t1")); err != nil {
				b.Fatal(err)
			}
		}
		return failed("t1")(e)
	})
	if !errors.Is(err, ledger.ErrFinal) || e.Status != ledger.Done {
		b.Errorf("got %+v, %v: a commit passed for the update", e, err)
	}
}

// limited makes the engine page.
type limited struct {
	dynamo.API
	pages *int
}

func (l limited) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	*l.pages++
	page := *in
	page.Limit = aws.Int32(3)
	return l.API.Query(ctx, &page, o...)
}

func testBySubject(b *bench) {
	var want []string
	for i := range 7 {
		for _, subject := range []string{"r-1", "r-10"} {
			k := fmt.Sprintf("k/%s/%d", subject, i)
			if subject == "r-1" {
				want = append(want, k)
			}
			e := ledger.Entry{Kind: "k", Status: ledger.Pending, Attempts: i}
			if _, err := b.store.Update(b.Context(), k, "t1", func(ledger.Entry) (ledger.Entry, error) { return e, nil }); err != nil {
				b.Fatal(err)
			}
		}
	}
	pages := 0
	paged := dynamo.New(limited{b.client, &pages}, b.names.LedgerTable, dynamo.Options{})
	for name, s := range map[string]*dynamo.Store{"one page": b.store, "pages": paged} {
		entries, err := s.BySubject(b.Context(), "r-1")
		if err != nil {
			b.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Key)
			if e.Subject != "r-1" || e.Attempts != len(got)-1 || e.Version != 1 {
				b.Errorf("%s: entry %+v", name, e)
			}
		}
		if !reflect.DeepEqual(got, want) {
			b.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if pages < 3 {
		b.Errorf("7 entries came in %d pages of 3", pages)
	}
	for _, subject := range []string{"r-2", ""} {
		if e, err := b.store.BySubject(b.Context(), subject); err != nil || len(e) != 0 {
			b.Errorf("subject %q: %v, %v", subject, e, err)
		}
	}
}

func testRoundTrip(b *bench) {
	for seed := range 5 {
		want := dynamo.Stored(entries.Example(seed))
		want.Version, want.Owner, want.UpdatedAt, want.Key, want.Subject = 1, "setup", now, key, "r-1"
		if got := b.put(want); !reflect.DeepEqual(got, want) {
			b.Errorf("returned %+v\nwant %+v", got, want)
		}
		if got := b.get(); !reflect.DeepEqual(got, want) {
			b.Errorf("stored %+v\nwant %+v", got, want)
		}
	}
}

func testCommitFresh(b *bench) {
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"), b.reserve("r-1")); err != nil {
		b.Fatal(err)
	}
	if got, want := b.calls(), "TransactWriteItems 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
	d := delivery("t1")
	want := ledger.Entry{
		Key: key, Subject: "r-1", Kind: "reservation.expire", Status: ledger.Done, Outcome: "released",
		Due: d.Due(), FirstSent: d.FirstSent(), Deadline: d.Envelope.Deadline, TimeBudget: time.Hour + time.Second, UpdatedAt: now, FinalAt: now,
		TTL: now.Add(rules.Retention).Truncate(time.Second), Owner: "t1", Version: 1,
	}
	if got := b.get(); !reflect.DeepEqual(got, want) {
		b.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n, ok := b.rawEntry(key)["attempts"].(*types.AttributeValueMemberN); !ok || n.Value != "0" {
		b.Error("attempts are not initialised")
	}
	if got := b.counted("room-7"); got != "1" {
		b.Errorf("counted %s, want 1", got)
	}
	if got := b.raw(b.reservations(), "reservation_id", "r-1"); len(got) == 0 {
		b.Error("no reservation")
	}
}

func testCommitKeeps(b *bench) {
	old := ledger.Entry{
		Subject: "old", Kind: "old", Status: ledger.Pending,
		Attempts: 4, BudgetFrom: 2, Contentions: 5, Redrives: 1, Run: "run-1",
		Due: now.Add(-3 * time.Hour), FirstSent: now.Add(-4 * time.Hour), Deadline: now.Add(-2 * time.Hour),
		RetryAt: now, LastClass: job.Transient, LastError: "timed out",
		History: []ledger.Event{{At: now.Add(-time.Hour), What: ledger.EventFailed, Attempt: 4, Class: job.Transient, Error: "timed out"}},
	}
	want := b.put(old)
	if err := b.store.Commit(b.Context(), complete("t1")); err != nil {
		b.Fatal(err)
	}
	want.Subject, want.Kind, want.Status, want.Outcome = "r-1", "reservation.expire", ledger.Done, "released"
	want.FinalAt, want.UpdatedAt, want.TimeBudget = now, now, time.Hour+time.Second
	if b.engine.removes {
		want.RetryAt = time.Time{}
	}
	want.TTL, want.Owner, want.Version = now.Add(rules.Retention).Truncate(time.Second), "t1", 2
	if got := b.get(); !reflect.DeepEqual(got, want) {
		b.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// testCommitCondition checks the condition against its rule.
func testCommitCondition(b *bench) {
	at := now.Add(400 * time.Microsecond) // a time between two milliseconds
	n := 0
	for _, status := range []ledger.Status{ledger.Pending, ledger.Isolated, ledger.Done, ledger.Expired, ledger.Terminal} {
		for _, retryAt := range []time.Time{{}, now.Add(-time.Hour), now, now.Add(time.Millisecond), now.Add(time.Hour)} {
			n++
			resource := fmt.Sprint("room-", n)
			e := b.put(ledger.Entry{Kind: "k", Status: status, RetryAt: retryAt})
			c := complete("t1")
			c.Now = at
			err := b.store.Commit(b.Context(), c, b.count(resource, "5"))
			var refused *ledger.RefusedError
			if e.Accepts(at) {
				if err != nil || b.get().Status != ledger.Done || b.counted(resource) != "1" {
					b.Errorf("%s, retry at %v: %v, want it accepted", status, retryAt, err)
				}
				continue
			}
			if !errors.As(err, &refused) || !reflect.DeepEqual(refused.Entry, e) {
				b.Errorf("%s, retry at %v: %v, want it refused with the entry", status, retryAt, err)
			}
			if !reflect.DeepEqual(b.get(), e) || b.counted(resource) != "0" {
				b.Errorf("%s, retry at %v: a refused commit wrote", status, retryAt)
			}
		}
	}
}

func testCommitConcurrently(b *bench) {
	const n = 50
	var won, duplicate atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			err := b.store.Commit(b.Context(), complete(fmt.Sprint("t", i)), b.count("room-7", "1000"))
			var refused *ledger.RefusedError
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &refused) && refused.Entry.Status == ledger.Done:
				duplicate.Add(1)
			default:
				b.Errorf("%v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if won.Load() != 1 || duplicate.Load() != n-1 || b.counted("room-7") != "1" {
		b.Errorf("%d won, %d found it final, the effect happened %s times; want 1, %d, 1",
			won.Load(), duplicate.Load(), b.counted("room-7"), n-1)
	}
}

func testCommitOwnItem(b *bench) {
	if err := b.store.Transact(b.Context(), b.reserve("r-1")); err != nil {
		b.Fatal(err)
	}
	b.proxy.Reset()
	err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"), b.reserve("r-1"))
	var own *dynamo.ItemError
	if !errors.As(err, &own) || own.Index != 1 {
		b.Fatalf("got %v, want an ItemError of own item 1", err)
	}
	if own.Item != nil && !reflect.DeepEqual(own.Item["state"], text("held")) {
		b.Errorf("the item is %v", own.Item)
	}
	if got, want := b.calls(), "TransactWriteItems 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
	if b.get().Version != 0 || b.counted("room-7") != "0" {
		b.Error("a refused commit wrote")
	}

	// Both refuse: the error is about the entry.
	b.put(ledger.Entry{Status: ledger.Expired})
	err = b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"), b.reserve("r-1"))
	var refused *ledger.RefusedError
	if !errors.As(err, &refused) || refused.Entry.Status != ledger.Expired {
		b.Errorf("both refuse: %v", err)
	}
}

// Short names for reason codes.
const (
	none       = "None"
	condition  = "ConditionalCheckFailed"
	conflict   = "TransactionConflict"
	throttling = "ThrottlingError"
	throughput = "ProvisionedThroughputExceeded"
	validation = "ValidationError"
)

func testCommitReasons(b *bench) {
	isolated := b.put(ledger.Entry{Status: ledger.Isolated, Kind: "k"})
	refused := func(err error) bool {
		var r *ledger.RefusedError
		return errors.As(err, &r) && reflect.DeepEqual(r.Entry, isolated)
	}
	item := func(index int) func(error) bool {
		return func(err error) bool {
			var i *dynamo.ItemError
			return errors.As(err, &i) && i.Index == index && i.Item == nil
		}
	}
	plain := func(parts ...string) func(error) bool {
		return func(err error) bool {
			ok := err != nil && !errors.Is(err, ledger.ErrContended) && !errors.Is(err, ledger.ErrUnavailable) &&
				!errors.As(err, new(*dynamo.ItemError)) && !errors.As(err, new(*ledger.RefusedError))
			for _, p := range parts {
				ok = ok && strings.Contains(err.Error(), p)
			}
			return ok
		}
	}
	contended := func(err error) bool {
		return errors.Is(err, ledger.ErrContended) && !errors.Is(err, ledger.ErrUnavailable)
	}
	unavailable := func(err error) bool {
		return errors.Is(err, ledger.ErrUnavailable) && !errors.Is(err, ledger.ErrContended)
	}
	denied := func(err error) bool { return errors.Is(err, ledger.ErrDenied) }
	for _, tt := range []struct {
		name    string
		reasons []string
		want    func(error) bool
		again   bool // tried again in place
	}{
		{"entry", []string{condition, none, none}, refused, false},
		{"entry, others said empty", []string{condition, "", ""}, refused, false},
		{"first own item", []string{none, condition, none}, item(0), false},
		{"second own item", []string{none, none, condition}, item(1), false},
		{"both own items", []string{none, condition, condition}, item(0), false},
		{"entry and own item", []string{condition, none, condition}, refused, false},
		{"all", []string{condition, condition, condition}, refused, false},
		{"entry, own item in conflict", []string{condition, conflict, none}, refused, false},
		{"entry, own item wrong", []string{condition, none, validation}, refused, false},
		{"own item, other in conflict", []string{none, conflict, condition}, item(1), false},
		{"entry in conflict", []string{conflict, none, none}, contended, true},
		{"entry in conflict, own item", []string{conflict, condition, none}, contended, true},
		{"own item in conflict", []string{none, none, conflict}, contended, true},
		{"throttled", []string{none, throttling, none}, unavailable, false},
		{"no throughput", []string{throughput, none, none}, unavailable, false},
		{"throttled, own item refused", []string{none, throttling, condition}, unavailable, false},
		{"throttled, entry in conflict", []string{conflict, throttling, none}, unavailable, false},
		{"entry refused, own item throttled", []string{condition, throttling, none}, refused, false},
		{"denied", []string{none, "AccessDenied", none}, denied, false},
		{"no list", nil, contended, true},
		{"short list", []string{none, condition}, contended, true},
		{"nobody's fault", []string{none, none, none}, contended, true},
		{"own item wrong", []string{none, none, validation}, plain("item 2", validation), false},
		{"own items wrong and refused", []string{none, condition, validation}, plain("item 2", validation), false},
		{"unheard of", []string{none, "ItemCollectionSizeLimitExceeded", none}, plain("item 1", "ItemCollectionSizeLimitExceeded"), false},
	} {
		// The fault applies to every try of the store. If it applied once, the engine's own answer to the
		// second try would hide it.
		b.proxy.Reset()
		b.conflicts.Store(0)
		b.fail("TransactWriteItems", 0, faults.CancelTransaction(tt.reasons...))
		err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"), b.count("room-8", "5"))
		if !tt.want(err) {
			b.Errorf("%s %v: got %v (%T)", tt.name, tt.reasons, err, errors.Unwrap(err))
		}
		calls, conflicts := 1, int64(0)
		if tt.again {
			calls, conflicts = storeTries, storeTries
		}
		if n := b.proxy.Calls()["TransactWriteItems"]; n != calls || b.conflicts.Load() != conflicts {
			b.Errorf("%s %v: %d calls and %d conflicts counted, want %d and %d", tt.name, tt.reasons, n, b.conflicts.Load(), calls, conflicts)
		}
	}

	// Two tries lose to other writes, the third one wins.
	b.proxy.Reset()
	b.put(ledger.Entry{Status: ledger.Pending})
	for _, f := range []faults.Fault{
		faults.CancelTransaction(conflict, none), faults.CancelTransaction(none, conflict),
	} {
		b.fail("TransactWriteItems", 1, f)
	}
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5")); err != nil || b.counted("room-7") != "1" {
		b.Errorf("twice in conflict, then not: %v, counted %s", err, b.counted("room-7"))
	}
}

func testCommitReasonItem(b *bench) {
	stored := b.put(ledger.Entry{Status: ledger.Expired, Kind: "k", Outcome: "late"})
	b.proxy.Reset()
	var refused *ledger.RefusedError
	if err := b.store.Commit(b.Context(), complete("t1")); !errors.As(err, &refused) || !reflect.DeepEqual(refused.Entry, stored) {
		b.Errorf("got %v, want it refused by %+v", err, stored)
	}
	want := "GetItem 1 TransactWriteItems 1 "
	if b.engine.returnsItems {
		want = "TransactWriteItems 1 "
	}
	if got := b.calls(); got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}

	// The answer is DynamoDB's, on every engine: it holds each item that refused, for all that were asked for.
	b.proxy.Reset()
	var asked atomic.Int64
	b.proxy.Add(faults.Rule{
		Operation: "TransactWriteItems",
		Match: func(body []byte) bool {
			asked.Store(int64(strings.Count(string(body), `"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`)))
			return true
		},
		Times: 1,
		Fault: faults.Reply(400, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled",
			"CancellationReasons":[{"Code":"ConditionalCheckFailed","Message":"The conditional request failed","Item":
			{"subject":{"S":"r-1"},"key":{"S":"k/r-1"},"version":{"N":"7"},"status":{"S":"isolated"},"attempts":{"N":"3"},"owner":{"S":"t1"}}},{"Code":"None"}]}`),
	})
	err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"))
	if !errors.As(err, &refused) || refused.Entry.Version != 7 || refused.Entry.Status != ledger.Isolated || refused.Entry.Attempts != 3 {
		b.Errorf("got %v with %+v", err, refused.Entry)
	}
	if got, want := b.calls(), "TransactWriteItems 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
	if asked.Load() != 2 {
		b.Errorf("%d of 2 items asked for the old item", asked.Load())
	}
	b.fail("TransactWriteItems", 1, faults.Reply(400, `{"__type":"TransactionCanceledException","CancellationReasons":
		[{"Code":"None"},{"Code":"ConditionalCheckFailed","Item":{"counted":{"N":"9"}}}]}`))
	err = b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5"))
	var own *dynamo.ItemError
	if !errors.As(err, &own) || !reflect.DeepEqual(own.Item, item{"counted": num("9")}) {
		b.Errorf("own item: %v", err)
	}
}

func testCommitLostAnswer(b *bench) {
	b.fail("TransactWriteItems", 1, faults.DropAnswer())
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5")); err != nil {
		b.Errorf("a committed write whose answer was lost: %v", err)
	}
	if n := b.proxy.Calls()["TransactWriteItems"]; n != 2 {
		b.Errorf("%d calls, want the lost one and the SDK's retry", n)
	}
	if e := b.get(); e.Version != 1 || e.Owner != "t1" || b.counted("room-7") != "1" {
		b.Errorf("entry %+v, counted %s", e, b.counted("room-7"))
	}
	var refused *ledger.RefusedError
	if err := b.store.Commit(b.Context(), complete("t2"), b.count("room-7", "5")); !errors.As(err, &refused) || refused.Entry.Owner != "t1" {
		b.Errorf("another delivery: %v, want it refused", err)
	}
}

func testCommitOwnToken(b *bench) {
	// Every answer is lost: the outcome is unknown until the same delivery asks again.
	b.fail("TransactWriteItems", sdkAttempts, faults.DropAnswer())
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5")); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("every answer lost: %v", err)
	}
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5")); err != nil {
		b.Errorf("asked again: %v", err)
	}
	if b.counted("room-7") != "1" {
		b.Errorf("counted %s", b.counted("room-7"))
	}
	// The same delivery has another outcome. It is refused, because the first outcome is committed.
	superseded := rules.Complete(delivery("t1"), ledger.Done, "superseded", now)
	var refused *ledger.RefusedError
	if err := b.store.Commit(b.Context(), superseded); !errors.As(err, &refused) || refused.Entry.Outcome != "released" {
		b.Fatalf("another outcome: %v", err)
	}
	if r := refused.Entry.Refusal("t1", now); r.Verdict != job.Committed || r.Detail != "released" {
		b.Errorf("its refusal means %+v", r)
	}
	// The same delivery has isolated the job: nothing is committed.
	for _, e := range []ledger.Entry{
		{Status: ledger.Isolated, Outcome: "released"}, {Status: ledger.Pending, RetryAt: now.Add(time.Hour), Outcome: "released"},
	} {
		if _, err := b.store.Update(b.Context(), key, "t1", func(ledger.Entry) (ledger.Entry, error) { return e, nil }); err != nil {
			b.Fatal(err)
		}
		if err := b.store.Commit(b.Context(), complete("t1")); !errors.As(err, &refused) || refused.Entry.Status != e.Status {
			b.Errorf("%s by the same token: %v, want it refused", e.Status, err)
		}
	}
}

func testCommitTokens(b *bench) {
	var mu sync.Mutex
	var tokens []string
	look := func(body []byte) bool {
		var in struct{ ClientRequestToken string }
		_ = json.Unmarshal(body, &in)
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, in.ClientRequestToken)
		return true
	}
	for _, f := range []faults.Fault{
		faults.Refuse(), // the SDK repeats the call under its token
		faults.Error(400, "IdempotentParameterMismatchException", ""), // the store tries again
		faults.Error(400, "IdempotentParameterMismatch", ""),          // the same error, under the name of its type
		{},
	} {
		b.proxy.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Match: look, Fault: f})
	}
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "5")); err != nil {
		b.Fatal(err)
	}
	if b.counted("room-7") != "1" || b.conflicts.Load() != 2 {
		b.Errorf("counted %s, %d conflicts", b.counted("room-7"), b.conflicts.Load())
	}
	// Every rule calls its Match, so one token may be seen several times.
	distinct := map[string]bool{}
	for _, k := range tokens {
		distinct[k] = true
	}
	if len(distinct) != 3 || distinct[""] || tokens[0] != tokens[1] {
		b.Errorf("tokens %q, want one for each of three tries, kept by the SDK's retry", tokens)
	}

	b.fail("TransactWriteItems", 0, faults.Error(400, "TransactionInProgressException", ""))
	if err := b.store.Commit(b.Context(), complete("t2")); !errors.Is(err, ledger.ErrContended) {
		b.Errorf("in progress: %v", err)
	}
}

func testTransact(b *bench) {
	items := []types.TransactWriteItem{b.count("room-7", "1"), b.reserve("r-1")}
	if err := b.store.Transact(b.Context(), items...); err != nil {
		b.Fatal(err)
	}
	if items[0].Update.ReturnValuesOnConditionCheckFailure != "" || items[1].Put.ReturnValuesOnConditionCheckFailure != "" {
		b.Error("the caller's items were changed")
	}
	err := b.store.Transact(b.Context(), b.count("room-8", "1"), b.count("room-7", "1"))
	var own *dynamo.ItemError
	if !errors.As(err, &own) || own.Index != 1 || b.counted("room-8") != "0" {
		b.Errorf("got %v, counted %s; want item 1 to refuse", err, b.counted("room-8"))
	}
	if b.engine.returnsItems && !reflect.DeepEqual(own.Item["counted"], num("1")) {
		b.Errorf("the item is %v", own.Item)
	}
	b.fail("TransactWriteItems", 2, faults.CancelTransaction(conflict))
	if err := b.store.Transact(b.Context(), b.count("room-9", "1")); err != nil {
		b.Errorf("twice in conflict: %v", err)
	}
	b.fail("TransactWriteItems", 3, faults.CancelTransaction(conflict))
	if err := b.store.Transact(b.Context(), b.count("room-10", "1")); !errors.Is(err, ledger.ErrContended) {
		b.Errorf("three times in conflict: %v", err)
	}
	other := types.TransactWriteItem{Delete: &types.Delete{
		TableName: aws.String(b.reservations()), Key: item{"reservation_id": text("r-1")},
		ConditionExpression: aws.String("#s = :s"), ExpressionAttributeNames: map[string]string{"#s": "state"},
		ExpressionAttributeValues: item{":s": text("expired")},
	}}
	if err := b.store.Transact(b.Context(), b.reserve("r-2"), other); !errors.As(err, &own) || own.Index != 1 {
		b.Errorf("a delete: %v", err)
	}
}

func testRunnable(b *bench) {
	for i, tt := range []struct {
		status ledger.Status // "": no entry
		ok     bool
	}{{"", true}, {ledger.Pending, true}, {ledger.Isolated, false}, {ledger.Done, false}, {ledger.Expired, false}, {ledger.Terminal, false}} {
		if tt.status != "" {
			b.put(ledger.Entry{Status: tt.status, RetryAt: now.Add(time.Hour)})
		}
		resource := fmt.Sprint("room-", i)
		err := b.store.Transact(b.Context(), b.count(resource, "1"), b.store.Runnable(key))
		var own *dynamo.ItemError
		if tt.ok != (err == nil) || !tt.ok && (!errors.As(err, &own) || own.Index != 1) {
			b.Errorf("status %q: %v", tt.status, err)
		}
		if got := b.counted(resource); (got == "1") != tt.ok {
			b.Errorf("status %q: counted %s", tt.status, got)
		}
	}
}

// each calls every method once, on a job without an entry.
func (b *bench) each(ctx context.Context, s *dynamo.Store) map[string]error {
	_, get := s.Get(ctx, key)
	_, by := s.BySubject(ctx, "r-1")
	_, update := s.Update(ctx, key, "t1", failed("t1"))
	_, claim := s.Claim(ctx, rules, delivery("t1"), lease)
	_, learn := s.Learn(ctx, rules, key, ledger.Evidence{At: now, Token: "t1"})
	return map[string]error{
		"Get": get, "BySubject": by, "Update": update, "Claim": claim, "Learn": learn,
		"Commit":   s.Commit(ctx, complete("t1"), b.count("room-7", "5")),
		"Transact": s.Transact(ctx, b.count("room-7", "5")),
	}
}

func testUnavailable(b *bench) {
	unavailable := func(what string, errs map[string]error) {
		b.Helper()
		for method, err := range errs {
			if !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrContended) {
				b.Errorf("%s: %s returned %v, want ErrUnavailable", what, method, err)
			}
		}
	}
	for what, f := range map[string]faults.Fault{
		"throttled":     faults.Error(400, "ThrottlingException", "Rate exceeded"),
		"no throughput": faults.Error(400, "ProvisionedThroughputExceededException", ""),
		"limit":         faults.Error(400, "RequestLimitExceeded", ""),
		"outage":        faults.Error(500, "InternalServerError", ""),
		"503":           faults.Reply(503, "<html>Service Unavailable</html>"),
		"no credential": faults.Error(400, "ExpiredTokenException", ""),
		"unheard of":    faults.Error(400, "SomethingNewException", ""),
		"reset":         faults.Refuse(),
		"lost":          faults.DropAnswer(),
		"nonsense":      faults.Reply(200, "{"),
	} {
		b.proxy.Reset()
		b.fail("", 0, f)
		unavailable(what, b.each(b.Context(), b.store))
	}
	b.proxy.Reset()
	if b.conflicts.Load() != 0 {
		b.Errorf("counted as %d conflicts", b.conflicts.Load())
	}
	missing := dynamo.New(b.client, "no-such-table", dynamo.Options{})
	errs := b.each(b.Context(), missing)
	delete(errs, "Transact") // of the kind's own table, which exists
	if !b.engine.transacts {
		delete(errs, "Commit") // the engine knows neither the operation nor the table
	}
	denied := func(what string, errs map[string]error) {
		for method, err := range errs {
			if !errors.Is(err, ledger.ErrDenied) || errors.Is(err, ledger.ErrUnavailable) {
				b.Errorf("%s: %s returned %v, want ErrDenied", what, method, err)
			}
		}
	}
	denied("missing table", errs)
	for _, code := range []string{"AccessDeniedException", "KMSDisabledException"} {
		b.proxy.Reset()
		b.fail("", 0, faults.Error(400, code, "no"))
		denied(code, b.each(b.Context(), b.store))
	}
	b.proxy.Reset()

	// Only the write fails: it leaves nothing.
	b.fail("UpdateItem", 0, faults.Error(400, "ThrottlingException", ""))
	_, err := b.store.Update(b.Context(), "k/other", "t1", failed("t1"))
	unavailable("update", map[string]error{"UpdateItem": err})
	// The entry refuses, and its read fails.
	b.proxy.Reset()
	b.put(ledger.Entry{Status: ledger.Done})
	b.fail("GetItem", 0, faults.Error(400, "ThrottlingException", ""))
	b.fail("TransactWriteItems", 0, faults.CancelTransaction(condition))
	unavailable("refused, unread", map[string]error{"Commit": b.store.Commit(b.Context(), complete("t9"))})
}

func testWrongRequest(b *bench) {
	wrong := func(what string, err error) {
		b.Helper()
		if err == nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrContended) {
			b.Errorf("%s: got %v, want an error that is none of the ledger's conditions", what, err)
		}
	}
	b.fail("", 0, faults.Error(400, "ValidationException", "Item size has exceeded the maximum allowed size"))
	for method, err := range b.each(b.Context(), b.store) {
		wrong(method, err)
	}
	b.proxy.Reset()
	change := func(e ledger.Entry) (ledger.Entry, error) { return e, nil }
	for what, k := range map[string]string{"empty": "", "long": "k/" + strings.Repeat("k", job.MaxKey), "without a subject": "k"} {
		_, err := b.store.Get(b.Context(), k)
		wrong("get "+what, err)
		_, err = b.store.Update(b.Context(), k, "t1", change)
		wrong("update "+what, err)
		c := complete("t1")
		c.Entry.Key = k
		wrong("commit "+what, b.store.Commit(b.Context(), c))
	}
	_, err := b.store.Update(b.Context(), key, "", change)
	wrong("update without a token", err)
	_, err = b.store.BySubject(b.Context(), strings.Repeat("s", 2049))
	wrong("query a long subject", err)
	c := complete("")
	wrong("commit without a token", b.store.Commit(b.Context(), c))
	c = complete("t1")
	c.Entry.Status = ledger.Pending
	wrong("commit of what is not final", b.store.Commit(b.Context(), c))
	if got, want := b.calls(), ""; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
	wrong("nil parameters", b.store.Transact(b.Context(), types.TransactWriteItem{Update: &types.Update{}}))
}

func testContext(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	for method, err := range b.each(ctx, b.store) {
		if !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			b.Errorf("%s: %v", method, err)
		}
	}
	if e := b.get(); e.Version != 0 {
		b.Errorf("stored %+v", e)
	}

	// In flight.
	b.fail("", 0, faults.Delay(time.Minute))
	ctx, cancel = context.WithTimeout(b.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.store.Commit(ctx, complete("t1")); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("in flight: %v", err)
	}
	b.proxy.Reset()

	// While the store waits for its next try, with the timer of production.
	b.fail("TransactWriteItems", 0, faults.CancelTransaction(conflict))
	b.fail("UpdateItem", 0, faults.Error(400, "TransactionConflictException", ""))
	ctx, cancel = context.WithCancel(b.Context())
	defer cancel()
	s := dynamo.New(b.client, b.names.LedgerTable, dynamo.Options{OnConflict: cancel})
	if err := s.Commit(ctx, complete("t1")); !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrContended) {
		b.Errorf("commit while waiting: %v", err)
	}
	ctx, cancel = context.WithCancel(b.Context())
	defer cancel()
	s = dynamo.New(b.client, b.names.LedgerTable, dynamo.Options{OnConflict: cancel})
	if _, err := s.Update(ctx, key, "t1", failed("t1")); !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrContended) {
		b.Errorf("update while waiting: %v", err)
	}
}

func testUnreadable(b *bench) {
	b.put(ledger.Entry{Status: ledger.Pending, Subject: "r-1"})
	b.set("attempts", text("many"))
	_, get := b.store.Get(b.Context(), key)
	_, by := b.store.BySubject(b.Context(), "r-1")
	for _, err := range []error{get, by} {
		if err == nil || !strings.Contains(err.Error(), "attempts") || !errors.Is(err, ledger.ErrUndecodable) || errors.Is(err, ledger.ErrUnavailable) {
			b.Errorf("got %v, want an error that says that the entry cannot be decoded and names the attribute", err)
		}
	}
}
