package dynamo_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"acklast/internal/ledger"
	"acklast/internal/local/faults"
)

func testStrikes(b *bench) {
	ctx, end := b.Context(), now.Add(30*time.Second)
	none, err := b.store.ReadStrikes(ctx, "m1")
	if err != nil || none.MessageID != "m1" || none.Version != 0 || len(none.Ends) != 0 {
		b.Fatalf("no strikes: %+v, %v", none, err)
	}
	one, err := b.store.Strike(ctx, none, end)
	if err != nil {
		b.Fatal(err)
	}
	named, err := b.store.NameStrikes(ctx, one, "k/1", "1", "k")
	if err != nil {
		b.Fatal(err)
	}
	found, err := b.store.ReadStrikes(ctx, "m1")
	if err != nil || len(found.Ends) != 1 || !found.Ends[0].Equal(end) || found.Key != "k/1" || found.Subject != "1" || found.Kind != "k" {
		b.Errorf("after a death: %+v, %v", found, err)
	}
	two, err := b.store.Strike(ctx, found, end.Add(time.Minute))
	if err != nil || two.Counting(end.Add(time.Second), 0) != 1 || two.Counting(end.Add(time.Hour), 0) != 2 {
		b.Errorf("second strike: %+v, %v", two, err)
	}
	if err := b.store.ClearStrikes(ctx, named); !errors.Is(err, ledger.ErrContended) {
		b.Errorf("clearing what has changed since: %v", err)
	}
	if err := b.store.ClearStrikes(ctx, two); err != nil {
		b.Fatal(err)
	}
	if found, err = b.store.ReadStrikes(ctx, "m1"); err != nil || len(found.Ends) != 0 {
		b.Errorf("after clearing: %+v, %v", found, err)
	}
	// A strike is not an entry: no job is found by its subject.
	if entries, err := b.store.BySubject(ctx, "1"); err != nil || len(entries) != 0 {
		b.Errorf("entries %v, %v", entries, err)
	}
}

// Deliveries of one message that begin together: one gets its strike, the others are told.
func testStrikesConcurrently(b *bench) {
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			switch _, err := b.store.Strike(b.Context(), ledger.Strikes{MessageID: "m1"}, now.Add(time.Duration(i)*time.Second)); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, ledger.ErrContended):
				lost.Add(1)
			default:
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 9 {
		b.Errorf("%d won, %d lost", won.Load(), lost.Load())
	}
	if s, err := b.store.ReadStrikes(b.Context(), "m1"); err != nil || len(s.Ends) != 1 || s.Version != 1 {
		b.Errorf("strikes %+v, %v", s, err)
	}
}

func testStrikesLostAnswer(b *bench) {
	b.proxy.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
	s, err := b.store.Strike(b.Context(), ledger.Strikes{MessageID: "m1"}, now)
	if err != nil || len(s.Ends) != 1 {
		b.Errorf("a strike whose answer was lost: %+v, %v", s, err)
	}
	b.proxy.Add(faults.Rule{Fault: faults.Error(400, "ThrottlingException", "slow down")})
	if _, err := b.store.Strike(b.Context(), s, now); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("throttled: %v", err)
	}
	if _, err := b.store.ReadStrikes(b.Context(), "m1"); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("throttled: %v", err)
	}
}

// Who adds to a running entry does not take its claim away.
func testUpdateLeavesAClaim(b *bench) {
	running := ledger.Entry{Status: ledger.Running, Owner: "owner", LeaseUntil: now.Add(time.Minute)}
	if _, err := b.store.Update(b.Context(), "k/1", "owner", func(ledger.Entry) (ledger.Entry, error) { return running, nil }); err != nil {
		b.Fatal(err)
	}
	e, err := b.store.Update(b.Context(), "k/1", "other", func(e ledger.Entry) (ledger.Entry, error) { e.Hops++; return e, nil })
	if err != nil || e.Owner != "owner" || e.Hops != 1 {
		b.Errorf("entry %+v, %v", e, err)
	}
	if e, err = b.store.Get(b.Context(), "k/1"); err != nil || e.Owner != "owner" || e.Hops != 1 {
		b.Errorf("stored %+v, %v", e, err)
	}
}
