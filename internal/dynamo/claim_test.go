package dynamo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
)

var lease = ledger.Lease{Until: now.Add(90 * time.Second), ProviderKey: "acklast-1", ExpiresAt: now.Add(time.Hour)}

// claim claims the job under key for the delivery with the token.
func (b *bench) claim(token string) (ledger.Entry, error) {
	return b.store.Claim(b.Context(), rules, delivery(token), lease)
}

func (b *bench) mustClaim(token string) ledger.Entry {
	b.Helper()
	e, err := b.claim(token)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// completing is the transition that ends the claim of the delivery with the token.
func completing(token, requestID string, at time.Time) func(ledger.Entry) (ledger.Entry, error) {
	return func(e ledger.Entry) (ledger.Entry, error) {
		return rules.CompleteClaim(e, delivery(token), ledger.Done, "sent", requestID, at)
	}
}

func testClaimFresh(b *bench) {
	var body atomic.Value
	b.proxy.Add(faults.Rule{Operation: "UpdateItem", Match: func(sent []byte) bool {
		body.Store(string(sent))
		return false
	}})
	e := b.mustClaim("t1")
	d := delivery("t1")
	want := ledger.Entry{
		Key: key, Subject: "r-1", Kind: "reservation.expire", Status: ledger.Running,
		Due: d.Due(), FirstSent: d.FirstSent(), Deadline: d.Envelope.Deadline, TimeBudget: time.Hour + time.Second, UpdatedAt: now,
		TTL:        lease.Until.Add(rules.Retention).Truncate(time.Second),
		LeaseUntil: lease.Until, ExpiresAt: lease.ExpiresAt, ProviderKey: "acklast-1", CalledFrom: now,
		Unresolved: true, OpenClaims: 1, Owner: "t1", Version: 1,
	}
	if !reflect.DeepEqual(e, want) || e.UnresolvedBefore() {
		b.Errorf("got  %+v\nwant %+v", e, want)
	}
	if got := b.get(); !reflect.DeepEqual(got, want) {
		b.Errorf("stored %+v", got)
	}
	if got, want := b.calls(), "GetItem 1 UpdateItem 1 "; got != want { // this test's own read
		b.Errorf("calls: %s, want %s", got, want)
	}

	// Some engines replace placeholders as plain text.
	var in struct {
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]any
	}
	if err := json.Unmarshal([]byte(body.Load().(string)), &in); err != nil || len(in.ExpressionAttributeNames) < 10 {
		b.Fatalf("%d names, %v", len(in.ExpressionAttributeNames), err)
	}
	var placeholders []string
	for name := range in.ExpressionAttributeNames {
		placeholders = append(placeholders, name)
	}
	for name := range in.ExpressionAttributeValues {
		placeholders = append(placeholders, name)
	}
	for _, one := range placeholders {
		for _, other := range placeholders {
			if one != other && strings.HasPrefix(other, one) {
				b.Errorf("placeholder %s is a prefix of %s", one, other)
			}
		}
	}
}

// testClaimCondition checks the condition against its rule, and the written entry against the rule's result.
func testClaimCondition(b *bench) {
	times := []time.Time{{}, now.Add(-time.Hour), now, now.Add(time.Millisecond), now.Add(time.Hour)}
	for _, status := range []ledger.Status{ledger.Pending, ledger.Running, ledger.Isolated, ledger.Done, ledger.Expired, ledger.Terminal} {
		for _, retryAt := range times {
			for _, until := range times {
				if status != ledger.Running && !until.IsZero() {
					continue // only a claim has a lease
				}
				name := fmt.Sprintf("%s, retry at %v, lease until %v", status, retryAt, until)
				d := delivery("setup")
				old := b.put(ledger.Entry{
					Subject: d.Subject, Kind: d.Envelope.Kind, Due: d.Due(), FirstSent: d.FirstSent(), Deadline: d.Envelope.Deadline,
					Status: status, RetryAt: retryAt, LeaseUntil: until, Attempts: 3, Redrives: 1, BudgetFrom: 2,
					ProviderKey: "acklast-0", CalledFrom: now.Add(-2 * time.Hour), Unresolved: true, OpenClaims: 1,
					ExpiresAt: now.Add(2 * time.Hour), Evidence: []ledger.Evidence{{At: now, Token: "t0", Note: "n"}},
				})
				want, ruled := rules.Claim(old, delivery("t1"), lease, now)
				got, err := b.claim("t1")
				if ruled != nil {
					var refused *ledger.RefusedError
					if !errors.As(err, &refused) || !reflect.DeepEqual(refused.Entry, old) || !reflect.DeepEqual(b.get(), old) {
						b.Errorf("%s: %v, want it refused with the entry as it was (%v)", name, err, ruled)
					}
					continue
				}
				want.Version, want.UpdatedAt = 2, now
				want = dynamo.Stored(want)
				if err != nil || !reflect.DeepEqual(got, want) {
					b.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
				}
			}
		}
	}
}

func testClaimConcurrently(b *bench) {
	const n = 50
	var won, held atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			_, err := b.claim(fmt.Sprint("t", i))
			var refused *ledger.RefusedError
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &refused) && refused.Entry.Refusal(fmt.Sprint("t", i), now).Until.Equal(lease.Until):
				held.Add(1)
			default:
				b.Errorf("%v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if won.Load() != 1 || held.Load() != n-1 {
		b.Errorf("%d won, %d found it held; want 1 and %d", won.Load(), held.Load(), n-1)
	}
	if e := b.get(); e.OpenClaims != 1 || e.Version != 1 {
		b.Errorf("entry %+v", e)
	}
}

func testClaimTakesOver(b *bench) {
	first := b.mustClaim("t1")
	if first.UnresolvedBefore() {
		b.Error("the first claim was told of an earlier one")
	}
	b.put(ledger.Entry{Kind: "k", Status: ledger.Running, LeaseUntil: now, Unresolved: true, OpenClaims: 1, ProviderKey: "acklast-0", Owner: "t1"})
	e := b.mustClaim("t2")
	if !e.UnresolvedBefore() || e.Owner != "t2" || e.ProviderKey != "acklast-0" || !e.LeaseUntil.Equal(lease.Until) {
		b.Errorf("take-over: %+v", e)
	}
	// The first owner comes back.
	found, err := b.store.UpdateFrom(b.Context(), first, "t1", completing("t1", "req-1", now))
	if !errors.Is(err, ledger.ErrLeaseLost) || found.Owner != "t2" {
		b.Errorf("the first owner completed: %v, found %+v", err, found)
	}
	if got := b.get(); got.Status != ledger.Running || len(got.Evidence) != 0 {
		b.Errorf("it wrote: %+v", got)
	}
	if _, err := b.store.UpdateFrom(b.Context(), e, "t2", completing("t2", "req-2", now)); err != nil {
		b.Error(err)
	}
	if _, err := b.store.UpdateFrom(b.Context(), first, "t1", completing("t1", "req-1", now)); !errors.Is(err, ledger.ErrFinal) {
		b.Errorf("after the end: %v", err)
	}
}

// The SDK or the delivery repeats a claim whose answer was lost. The repeated claim recognises its own write,
// and still knows whether it was the first claim.
func testClaimLostAnswer(b *bench) {
	for _, before := range []bool{false, true} {
		b.proxy.Reset()
		old := ledger.Entry{Kind: "k", Status: ledger.Pending, Unresolved: before}
		if before {
			old.OpenClaims, old.ProviderKey = 1, "acklast-0"
		}
		b.put(old)
		b.proxy.Reset()
		b.fail("UpdateItem", 2, faults.DropAnswer())
		e, err := b.claim("t1")
		if err != nil || e.Owner != "t1" || e.UnresolvedBefore() != before {
			b.Errorf("unresolved before: %v: %+v, %v", before, e, err)
		}
		// The first write finds an entry. The second loses one answer.
		if n := b.proxy.Calls()["UpdateItem"]; n != 4 {
			b.Errorf("%d calls, want 4: two writes and two retries of the SDK", n)
		}
		if got := b.get(); got.Version != 2 || !reflect.DeepEqual(got, e) {
			b.Errorf("stored %+v, returned %+v", got, e)
		}
		var refused *ledger.RefusedError
		if _, err := b.claim("t2"); !errors.As(err, &refused) {
			b.Errorf("another delivery: %v", err)
		}
	}
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	b.fail("UpdateItem", sdkAttempts, faults.DropAnswer())
	if _, err := b.claim("t1"); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("every answer lost: %v", err)
	}
}

func testClaimConflict(b *bench) {
	conflict := faults.Error(400, "TransactionConflictException", "")
	b.fail("UpdateItem", 2, conflict)
	if _, err := b.claim("t1"); err != nil || b.conflicts.Load() != 2 {
		b.Errorf("two conflicts: %v, %d counted", err, b.conflicts.Load())
	}
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	b.fail("UpdateItem", storeTries+1, conflict)
	if _, err := b.claim("t1"); !errors.Is(err, ledger.ErrContended) {
		b.Errorf("three conflicts: %v", err)
	}
	for what, d := range map[string]job.Delivery{"no token": delivery(""), "no key": {Token: "t"}} {
		if _, err := b.store.Claim(b.Context(), rules, d, lease); err == nil || errors.Is(err, ledger.ErrUnavailable) {
			b.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.store.Claim(b.Context(), rules, delivery("t1"), ledger.Lease{ProviderKey: "k"}); err == nil {
		b.Error("a claim without a lease time")
	}
}

func testCompleteClaim(b *bench) {
	e := b.mustClaim("t1")
	b.proxy.Reset()
	// The lease ended long ago, and no other delivery has claimed the job.
	at := lease.Until.Add(time.Hour)
	done, err := b.store.UpdateFrom(b.Context(), e, "t1", completing("t1", "req-1", at))
	if err != nil || done.Status != ledger.Done || done.Unresolved || done.OpenClaims != 0 || done.Evidence[0].RequestID != "req-1" {
		b.Errorf("completed: %+v, %v", done, err)
	}
	if got, want := b.calls(), "UpdateItem 1 "; got != want {
		b.Errorf("calls: %s, want %s", got, want)
	}
	if got := b.get(); b.engine.removes && !reflect.DeepEqual(got, done) {
		b.Errorf("stored %+v, returned %+v", got, done)
	}
}

func testCompleteLostAnswer(b *bench) {
	if !b.engine.removes { // the store recognises its own write by the whole entry
		return
	}
	e := b.mustClaim("t1")
	b.fail("UpdateItem", 1, faults.DropAnswer())
	done, err := b.store.UpdateFrom(b.Context(), e, "t1", completing("t1", "req-1", now))
	if err != nil || done.Status != ledger.Done || len(done.Evidence) != 1 || b.get().Version != 2 {
		b.Errorf("a completion whose answer was lost: %+v, %v", done, err)
	}
}

func testLearn(b *bench) {
	if _, err := b.store.Learn(b.Context(), rules, key, ledger.Evidence{At: now, Token: "t1"}); !errors.Is(err, ledger.ErrLeaseLost) {
		b.Errorf("of a job without an entry: %v", err)
	}
	e := b.mustClaim("t1")
	if _, err := b.store.Learn(b.Context(), rules, key, ledger.Evidence{At: now, Token: "t0", RequestID: "req-0"}); err != nil {
		b.Fatal(err)
	}
	if got := b.get(); got.Owner != "t1" || got.Status != ledger.Running || len(got.Evidence) != 1 {
		b.Errorf("stored %+v", got)
	}
	// The owner completes from the entry that it knows, and loses nothing that others wrote.
	done, err := b.store.UpdateFrom(b.Context(), e, "t1", completing("t1", "req-1", now))
	if err != nil || done.Status != ledger.Done || len(done.Evidence) != 2 || done.Evidence[0].RequestID != "req-0" {
		b.Errorf("completed: %+v, %v", done, err)
	}
	if _, err := b.store.Learn(b.Context(), rules, key, ledger.Evidence{At: now, Token: "t2", RequestID: "req-2"}); err != nil {
		b.Fatal(err)
	}
	if got := b.get(); got.Status != ledger.Done || len(got.Evidence) != 3 || got.Owner != "t1" {
		b.Errorf("stored %+v", got)
	}
	if it := b.rawEntry(key)["evidence"]; len(it.(*types.AttributeValueMemberL).Value) != 3 {
		b.Errorf("evidence %v", it)
	}
}
