package dynamo_test

import (
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// schedule records that a schedule may bring the job with the key back until the given time.
func (b *bench) schedule(key string, until time.Time) {
	b.Helper()
	d := delivery("t-schedule")
	d.Key, d.Envelope.NotBefore = key, until
	d.Subject, _ = job.SubjectOf(key)
	_, err := b.store.Update(b.Context(), key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return rules.Schedule(e, d, "name", now)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// far is when a schedule fires, and kept when the entry may go.
var (
	far  = now.Truncate(time.Second).Add(300 * 24 * time.Hour)
	kept = far.Add(rules.Retention)
)

// A copy with an earlier time ends the job on day 2. The firing on day 300 has to find that.
func testCommitKeepsTheSchedulesTTL(b *bench) {
	b.schedule(key, far)
	b.proxy.Reset()
	if err := b.store.Commit(b.Context(), complete("t1"), b.count("room-7", "9")); err != nil {
		b.Fatal(err)
	}
	e := b.get()
	if e.Status != ledger.Done {
		b.Errorf("the entry is %s, want done", e.Status)
	}
	if !e.TTL.Equal(kept) {
		b.Errorf("the entry goes at %v, want %v", e.TTL, kept)
	}
	if got := b.counted("room-7"); got != "1" {
		b.Errorf("counted %s, want 1", got)
	}
	// The refusal, perhaps a read of the entry, and the commit.
	if n := b.proxy.Calls()["TransactWriteItems"]; n != 2 {
		b.Errorf("%d transactions, want 2", n)
	}
}

// The firing itself covers its own time: it costs no second transaction.
func testCommitOfAFiring(b *bench) {
	b.schedule(key, now.Truncate(time.Second))
	b.proxy.Reset()
	if err := b.store.Commit(b.Context(), complete("t1")); err != nil {
		b.Fatal(err)
	}
	if n := b.proxy.Calls()["TransactWriteItems"]; n != 1 {
		b.Errorf("%d transactions, want 1", n)
	}
}

func testTogetherKeepsTheSchedulesTTL(b *bench) {
	c := newCrowd(b, 4)
	for _, i := range []int{1, 2} {
		b.schedule(c.key(i), far)
	}
	c.wantErrors(c.commit("100"))
	c.wantCounted("4")
	for i := range 4 {
		e, err := b.store.Get(b.Context(), c.key(i))
		if err != nil {
			b.Fatal(err)
		}
		want := now.Add(rules.Retention).Truncate(time.Second)
		if i == 1 || i == 2 {
			want = kept
		}
		if !e.TTL.Equal(want) {
			b.Errorf("entry %d goes at %v, want %v", i, e.TTL, want)
		}
		if want := fmt.Sprint("t", i); e.Owner != want {
			b.Errorf("entry %d was written by %s, want %s", i, e.Owner, want)
		}
	}
}
