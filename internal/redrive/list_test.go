package redrive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"

	"github.com/google/uuid"
)

// listed reads all pages of a list, and returns how often each message is in it, the number of pages, and the scan.
func listed(t *testing.T, s handler, r redrive.Request) (seen map[string]int, pages int, sc redrive.Scan) {
	t.Helper()
	seen = map[string]int{}
	for more := true; more; pages++ {
		got := request(t, s, r)
		for _, m := range got.Messages {
			seen[m.Message]++
			if left := time.Until(m.DeletedAt); !m.IsolatedAt.Before(time.Unix(2, 0)) && (left <= 13*24*time.Hour || left > 14*24*time.Hour) {
				t.Fatalf("%s is deleted in %v, want 14 days after it was sent", m.Message, left)
			}
		}
		if raw, err := json.Marshal(got); err != nil || len(raw) > 6_000_000 {
			t.Errorf("a page has %d bytes, more than Lambda answers; %v", len(raw), err)
		}
		if got.Scan != nil {
			sc = *got.Scan
		}
		r, more = redrive.Request{Action: "inspect", List: true, After: got.Next}, got.Next != ""
	}
	return seen, pages, sc
}

// once reports messages that a list does not name once.
func once(t *testing.T, seen map[string]int, want int) {
	t.Helper()
	if len(seen) != want {
		t.Errorf("%d messages listed, want %d", len(seen), want)
	}
	for id, n := range seen {
		if n != 1 {
			t.Fatalf("%s is listed %d times", id, n)
		}
	}
}

// A list names every message once, however many pages it has.
func TestListNamesEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(3000)
		seen, _, sc := listed(t, b, redrive.Request{Action: "inspect", List: true})
		once(t, seen, 3000)
		equal(t, sc.Partial, "", "why it is a part")
	})
}

// The same of a DLQ that has more messages than a plan may have and than may be hidden at a time, in a bounded number of receives.
func TestListNamesEveryMessageOfALargeDLQ(t *testing.T) {
	thousands(t)
	const n, hidden = 25_000, 8_000
	m := newMillion(n)
	c := redrive.Config{Names: topology.NamesOf("test"), Numbers: topology.DefaultRedrive(), Unqualified: true, Rules: ledger.Rules{MaxRedrives: 3, Retention: time.Hour}}
	c.Numbers.ReceiveWait, c.Numbers.MaxHidden = 0, hidden
	s := redrive.New(c, redrive.Dependencies{Ledger: m, Queues: m, Table: millionTable{table{m.small}, m}, Kinds: job.NewCatalogue(testKind("test", job.RunLate)),
		Log: slog.New(slog.DiscardHandler), Progress: redrive.NoProgress, Now: time.Now, ID: uuid.NewString})
	seen, pages, sc := listed(t, s, redrive.Request{Action: "inspect", List: true})
	once(t, seen, n)
	equal(t, sc.Partial, "", "why it is a part")
	if pages < 2 {
		t.Errorf("%d pages, want several: else this proves nothing", pages)
	}
	if m.most > hidden {
		t.Errorf("%d messages were hidden at a time, want at most %d", m.most, hidden)
	}
	if len(m.hidden) != 0 {
		t.Errorf("%d messages are hidden after the list", len(m.hidden))
	}
	if most := 2 * n / 10; m.calls["receive"] > most {
		t.Errorf("%d receives for %d pages, want at most %d: the messages are received for one page alone", m.calls["receive"], pages, most)
	}
	if m.calls["get"] > n {
		t.Errorf("%d reads of entries, want one for each of %d messages", m.calls["get"], n)
	}
}

// SQS gives messages in no order, so what was given back comes again before all has been seen.
func TestListNamesEveryMessageInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.shuffle = true
		b.Numbers.MaxHidden, b.Numbers.ScanMessages = 400, 100
		b.many(1000)
		seen, _, sc := listed(t, b, redrive.Request{Action: "inspect", List: true, Select: transient})
		once(t, seen, 1000)
		equal(t, sc.Partial, "", "why it is a part")
		if b.most > 400 {
			t.Errorf("%d messages were hidden at a time, want at most 400", b.most)
		}
		equal(t, b.hiddenOn(), 0, "the number of messages hidden after the list")
	})
}

// What others hide is not in the list, and the list says that it is a part. It ends also if what it gave back never stops coming.
func TestAListIsAPartWhileOthersHide(t *testing.T) {
	for _, hidden := range []int{80_000, 400} {
		t.Run(fmt.Sprint("at most ", hidden, " hidden"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.shuffle = true
				b.Numbers.MaxHidden = hidden
				b.many(1000)
				for _, m := range b.queues[job.DLQ][:7] {
					m.visible = time.Now().Add(time.Hour)
				}
				seen, _, sc := listed(t, b, redrive.Request{Action: "inspect", List: true})
				once(t, seen, 993)
				if !strings.Contains(sc.Partial, "saw 993 of about 1000: others hold the rest") {
					t.Errorf("partial %q, want that others hold 7", sc.Partial)
				}
			})
		})
	}
}

// A page is of the list that was made, also while a run holds the messages.
func TestAPageOfAList(t *testing.T) {
	thousands(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.many(8000)
		first := b.must(redrive.Request{Action: "inspect", List: true})
		plan := b.must(planOf(transient)).Plan
		b.approved(plan)
		ctx, cancel := context.WithCancel(t.Context())
		b.latency = time.Second
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.try(ctx, redrive.Request{Action: "run", Plan: plan.ID})
		}()
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		before := b.calls["receive"]
		b.latency = 0
		b.mu.Unlock()
		got := b.must(redrive.Request{Action: "inspect", List: true, After: first.Next})
		if n := len(first.Messages) + len(got.Messages); n != 8000 || got.Next != "" || got.Run != nil {
			t.Errorf("%d messages on two pages, then %q and run %v; want 8000", n, got.Next, got.Run)
		}
		equal(t, before > 0, true, "whether the run received")
		cancel()
		<-done
		b.refused(redrive.Request{Action: "inspect", List: true, After: "m-000007"}, "no list answered: list again")
		b.refused(redrive.Request{Action: "inspect", List: true, After: "other/"}, "not kept any more")
		b.refused(redrive.Request{Action: "inspect", List: true, After: first.Next, Select: all}, "takes list alone")
		b.refused(redrive.Request{Action: "inspect", After: first.Next}, "takes list alone")
	})
}

// A message is found by its id or its key however many others there are.
func TestAMessageOfALargeDLQIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Numbers.ScanMessages = 100
		b.many(300)
		last := b.queues[job.DLQ][299].ID
		if got := b.must(redrive.Request{Action: "inspect", Message: last}).Message; got == nil || got.ID != last {
			t.Errorf("found %+v, want %s", got, last)
		}
		got := b.must(redrive.Request{Action: "discard", Messages: []string{last}, By: "ada", Reason: "not wanted"})
		if len(got.Results) != 1 || got.Results[0].Result != "discarded" {
			t.Errorf("results %+v, want that it is discarded", got.Results)
		}
	})
}
