package dynamo_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// isolate isolates the job with the key at the given time.
func (b *bench) isolate(key string, at time.Time) ledger.Entry {
	b.Helper()
	d := delivery("t1")
	d.Key = key
	e, err := b.store.Update(b.Context(), key, "t1", func(e ledger.Entry) (ledger.Entry, error) {
		return rules.Isolate(e, d, job.Rejected, job.CausePermanent, "order 17 is missing", at)
	})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// isolated returns the keys that the index holds in a span of time, and the number of pages.
func (b *bench) isolated(s *dynamo.Store, from, to time.Time) (keys []string, pages int) {
	b.Helper()
	err := s.Isolated(b.Context(), from, to, func(page []ledger.IsolatedJob) error {
		pages++
		for _, j := range page {
			keys = append(keys, j.Key)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return keys, pages
}

func testIsolated(b *bench) {
	midnight := now.Truncate(24 * time.Hour)
	var all []string
	for i, at := range []time.Time{
		midnight.Add(-time.Millisecond), midnight, midnight.Add(time.Hour), midnight.Add(25 * time.Hour), midnight.Add(25 * time.Hour),
	} {
		key := fmt.Sprintf("reservation.expire/s-%d/x", i)
		b.isolate(key, at)
		all = append(all, key)
	}
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	day := 24 * time.Hour

	got, _ := b.isolated(b.store, midnight.Add(-day), midnight.Add(2*day))
	// Two jobs with the same time come in either order.
	if len(got) != 5 || !reflect.DeepEqual(got[:3], all[:3]) {
		b.Errorf("over all days %v, want %v", got, all)
	}
	for name, c := range map[string]struct {
		from, to time.Time
		want     []string
	}{
		"one day":             {midnight, midnight.Add(day), all[1:3]},
		"the end is not in":   {midnight, midnight.Add(time.Hour), all[1:2]},
		"the start is in":     {midnight.Add(time.Hour), midnight.Add(2 * time.Hour), all[2:3]},
		"across a midnight":   {midnight.Add(-time.Second), midnight.Add(time.Second), all[:2]},
		"nothing":             {midnight.Add(-2 * day), midnight.Add(-day), nil},
		"in another zone":     {midnight.In(time.FixedZone("", 3600)), midnight.Add(time.Minute), all[1:2]},
		"the span is reverse": {midnight.Add(day), midnight, nil},
	} {
		if got, _ := b.isolated(b.store, c.from, c.to); !reflect.DeepEqual(got, c.want) {
			b.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}

	calls := 0
	paged := dynamo.New(limited{b.client, &calls}, b.names.LedgerTable, dynamo.Options{})
	for i := range 6 {
		b.isolate(fmt.Sprintf("reservation.expire/p-%d/x", i), midnight.Add(10*day))
	}
	if got, pages := b.isolated(paged, midnight.Add(10*day), midnight.Add(11*day)); len(got) != 6 || pages != 2 {
		b.Errorf("%d keys in %d pages of 3, want 6 in 2", len(got), pages)
	}

	var found ledger.IsolatedJob
	err := b.store.Isolated(b.Context(), midnight, midnight.Add(time.Minute), func(page []ledger.IsolatedJob) error {
		found = page[0]
		return nil
	})
	want := ledger.IsolatedJob{
		Key: all[1], Subject: "s-1", Kind: "reservation.expire", Class: job.Rejected, Cause: job.CausePermanent,
		Fingerprint: "order # is missing", At: midnight, MessageID: "m-t1",
	}
	if err != nil || found != want {
		b.Errorf("got %+v, %v, want %+v", found, err, want)
	}
	b.newerIsolated(midnight)
	stop := errors.New("enough")
	if err := b.store.Isolated(b.Context(), midnight, midnight.Add(time.Minute), func([]ledger.IsolatedJob) error { return stop }); !errors.Is(err, stop) {
		b.Errorf("got %v, want the caller's own error", err)
	}

	// A job that leaves isolation leaves the index.
	d := delivery("t2")
	d.Key = all[1]
	_, err = b.store.Update(b.Context(), all[1], "t2", func(e ledger.Entry) (ledger.Entry, error) { return rules.Reopen(e, d, now) })
	if err != nil {
		b.Fatal(err)
	}
	if got, _ := b.isolated(b.store, midnight, midnight.Add(time.Minute)); got != nil {
		b.Errorf("the index holds %v, which was reopened", got)
	}
}

// newerIsolated checks that an entry of a newer format is named in the index, with its key and its time alone, and
// that the others beside it are read.
func (b *bench) newerIsolated(midnight time.Time) {
	b.Helper()
	at := midnight.Add(20*24*time.Hour + 5*time.Millisecond)
	b.isolate(key, at)
	b.set("format", num("2"))
	b.set("kind", num("7")) // a newer version may write anything under the names that this one knows
	b.set("isolated_at", text("soon"))
	b.isolate("reservation.expire/r-2/x", at.Add(time.Second))
	var got []ledger.IsolatedJob
	err := b.store.Isolated(b.Context(), at, at.Add(time.Minute), func(page []ledger.IsolatedJob) error {
		got = append(got, page...)
		return nil
	})
	if err != nil {
		b.Errorf("a newer entry fails the others: %v", err)
	}
	if len(got) != 2 {
		b.Fatalf("%d jobs are read beside and with a newer entry, want 2", len(got))
	}
	if want := (ledger.IsolatedJob{Key: key, Subject: "r-1", At: at, Newer: 2}); got[0] != want {
		b.Errorf("the newer entry is read as %+v, want %+v", got[0], want)
	}
	if got[1].Newer != 0 {
		b.Errorf("an entry of this version has the newer format %d", got[1].Newer)
	}
}

// Only isolated entries have an index key, so the index holds no others.
func TestOnlyIsolatedEntriesHaveIndexKeys(t *testing.T) {
	t.Parallel()
	for _, status := range []ledger.Status{ledger.Pending, ledger.Running, ledger.Isolated, ledger.Done, ledger.Expired, ledger.Terminal} {
		e := full()
		e.Status = status
		it := dynamo.Marshal(e)
		for _, name := range []string{"isolated_day", "isolated_order"} {
			if _, has := it[name]; has != (status == ledger.Isolated) {
				t.Errorf("a %s entry has %s: %v", status, name, has)
			}
		}
	}
}

// newer stores an entry that a newer version of the program wrote.
func (b *bench) newer() {
	b.Helper()
	b.put(ledger.Entry{Kind: "k", Status: ledger.Pending})
	b.set("format", num("2"))
}

func (b *bench) wantNewer(what string, err error) {
	b.Helper()
	var newer *job.NewerError
	if !errors.As(err, &newer) {
		b.Errorf("%s: got %v, want a NewerError", what, err)
		return
	}
	if newer.Format != 2 || newer.Known != 1 {
		b.Errorf("%s: format %d and known %d, want 2 and 1", what, newer.Format, newer.Known)
	}
}

func testNewer(b *bench) {
	b.newer()
	_, err := b.store.Get(b.Context(), key)
	b.wantNewer("Get", err)
	_, err = b.store.BySubject(b.Context(), "r-1")
	b.wantNewer("BySubject", err)
	_, err = b.store.Update(b.Context(), key, "t1", failed("t1"))
	b.wantNewer("Update", err)
}

// The write's condition has to refuse, not only the check of the returned item: without it, a pending entry
// would take the write.
func testNewerClaim(b *bench) {
	b.newer()
	_, err := b.store.Claim(b.Context(), rules, delivery("t1"), lease)
	b.wantNewer("Claim", err)
	if got := b.rawEntry(key)["status"]; !reflect.DeepEqual(got, text("pending")) {
		b.Errorf("status is %v, want pending", got)
	}
}

func testNewerCommit(b *bench) {
	b.newer()
	b.wantNewer("Commit", b.store.Commit(b.Context(), complete("t1")))
	if got := b.rawEntry(key)["status"]; !reflect.DeepEqual(got, text("pending")) {
		b.Errorf("status is %v, want pending", got)
	}
}

// Without the condition, a pending entry of another payload would take the write. A copy with the same payload,
// or with a digest of another rule, passes.
func testCommitConflict(b *bench) {
	for name, c := range map[string]struct {
		stored, sent string
		conflict     bool
	}{
		"another payload":           {"1:aa", "1:bb", true},
		"the same payload":          {"1:aa", "1:aa", false},
		"a digest of another rule":  {"2:aa", "1:bb", false},
		"an entry without a digest": {"", "1:bb", false},
		"a delivery without one":    {"1:aa", "", false},
	} {
		old := b.put(ledger.Entry{Kind: "k", Status: ledger.Pending, Digest: c.stored})
		d := delivery("t1")
		d.Digest = c.sent
		err := b.store.Commit(b.Context(), rules.Complete(d, ledger.Done, "released", now))
		var conflict *ledger.ConflictError
		if errors.As(err, &conflict) != c.conflict || !c.conflict && err != nil {
			b.Errorf("%s: %v", name, err)
		}
		if got := b.get(); c.conflict && !reflect.DeepEqual(got, old) {
			b.Errorf("%s: the entry became %+v", name, got)
		}
	}
	// So it is when the job is done: the copy is no duplicate.
	b.put(ledger.Entry{Kind: "k", Status: ledger.Done, Digest: "1:aa"})
	d := delivery("t1")
	d.Digest = "1:bb"
	var conflict *ledger.ConflictError
	if err := b.store.Commit(b.Context(), rules.Complete(d, ledger.Done, "released", now)); !errors.As(err, &conflict) {
		b.Errorf("a final entry of another payload: %v, want a conflict", err)
	}
}
