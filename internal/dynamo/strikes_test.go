package dynamo_test

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
)

func (b *bench) strikes(id string) ledger.Strikes {
	b.Helper()
	s, err := b.store.ReadStrikes(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) strike(id, token string, end time.Time) {
	b.Helper()
	if err := b.store.Strike(b.Context(), id, token, "k", end); err != nil {
		b.Fatal(err)
	}
}

func testStrikes(b *bench) {
	end := now.Add(30 * time.Second)
	if got := b.strikes("m1"); got.Kind != "" || len(got.Ends) != 0 {
		b.Errorf("without a strike: %+v", got)
	}
	b.strike("m1", "t1", end)
	if got := b.strikes("m1"); got.Kind != "k" || len(got.Ends) != 1 || !got.Ends[0].Equal(end) {
		b.Errorf("after one strike: %+v", got)
	}
	b.strike("m1", "t2", end.Add(time.Minute))
	if got := b.strikes("m1"); got.Counting(end.Add(time.Second), 0) != 1 || got.Counting(end.Add(time.Hour), 0) != 2 {
		b.Errorf("after two strikes: %+v", got)
	}
	if err := b.store.ClearStrike(b.Context(), "m1", "t1"); err != nil {
		b.Fatal(err)
	}
	if got := b.strikes("m1"); len(got.Ends) != 1 || !got.Ends[0].Equal(end.Add(time.Minute)) {
		b.Errorf("after one was cleared: %+v, want the other's", got)
	}
	d := job.Delivery{Message: job.Message{ID: "m1"}, Key: "k/1", Subject: "1", Digest: "1:aa"}
	for range 2 { // the second changes nothing
		if err := b.store.NameSuspect(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
	got := b.strikes("m1")
	if got.Key != d.Key || got.Subject != d.Subject || got.Digest != d.Digest {
		b.Errorf("after it was named: %+v, want the job's key, subject and digest", got)
	}
	if got.Kind != "k" || len(got.Ends) != 1 {
		b.Errorf("after it was named: %+v, want its kind and its strike as before", got)
	}
	// A strike is not an entry: no job is found under its subject.
	if entries, err := b.store.BySubject(b.Context(), "m1"); err != nil || len(entries) != 0 {
		b.Errorf("entries %v, %v", entries, err)
	}
}

// Deliveries of one message that begin together do not disturb each other.
func testStrikesConcurrently(b *bench) {
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := b.store.Strike(b.Context(), "m1", fmt.Sprintf("t%02d", i), "k", now); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if got := b.strikes("m1"); len(got.Ends) != 10 {
		b.Errorf("%d strikes, want 10", len(got.Ends))
	}
}

func testStrikesLostAnswer(b *bench) {
	b.proxy.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
	b.strike("m1", "t1", now)
	if got := b.strikes("m1"); len(got.Ends) != 1 {
		b.Errorf("a strike whose answer was lost: %d strikes, want 1", len(got.Ends))
	}
	// Clearing a strike that may never have been written is no error.
	if err := b.store.ClearStrike(b.Context(), "m2", "t1"); err != nil {
		b.Error(err)
	}
	if got := b.strikes("m2"); len(got.Ends) != 0 {
		b.Errorf("cleared before it was struck: %+v", got)
	}
	b.proxy.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
	if err := b.store.NameSuspect(b.Context(), job.Delivery{Message: job.Message{ID: "m1"}, Key: "k/1", Subject: "1", Digest: "1:aa"}); err != nil {
		b.Fatal(err)
	}
	if got := b.strikes("m1"); got.Key != "k/1" {
		b.Errorf("a name whose answer was lost: %q, want k/1", got.Key)
	}
	b.proxy.Add(faults.Rule{Fault: faults.Error(400, "ThrottlingException", "slow down")})
	if err := b.store.Strike(b.Context(), "m1", "t2", "k", now); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("throttled: %v", err)
	}
	if _, err := b.store.ReadStrikes(b.Context(), "m1"); !errors.Is(err, ledger.ErrUnavailable) {
		b.Errorf("throttled: %v", err)
	}
}

// An addition to a running entry keeps its claim.
func testUpdateLeavesAClaim(b *bench) {
	running := ledger.Entry{Status: ledger.Running, Owner: "owner", LeaseUntil: now.Add(time.Minute)}
	if _, err := b.store.Update(b.Context(), "k/1", "owner", func(ledger.Entry) (ledger.Entry, error) { return running, nil }); err != nil {
		b.Fatal(err)
	}
	e, err := b.store.Update(b.Context(), "k/1", "other", func(e ledger.Entry) (ledger.Entry, error) { e.Contentions++; return e, nil })
	if err != nil || e.Owner != "owner" || e.Contentions != 1 {
		b.Errorf("entry %+v, %v", e, err)
	}
	if e, err = b.store.Get(b.Context(), "k/1"); err != nil || e.Owner != "owner" || e.Contentions != 1 {
		b.Errorf("stored %+v, %v", e, err)
	}
}
