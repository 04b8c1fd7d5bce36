package redrive_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// deleting are schedules that record what is deleted.
type deleting struct {
	names []string
	err   error
}

func (d *deleting) Delete(_ context.Context, name string) error {
	d.names = append(d.names, name)
	return d.err
}

// A scheduled job has no message. It is discarded by its key, and its schedule goes with it. If that fails, the
// firing finds the job over.
func TestDiscardOfAScheduledJob(t *testing.T) {
	for name, err := range map[string]error{"deleted": nil, "not deleted": errors.New("throttled")} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			d := &deleting{err: err}
			b.deps.Schedules = d
			due := time.Now().Add(300 * 24 * time.Hour)
			_, failed := b.Update(b.Context(), key("a"), "t", func(e ledger.Entry) (ledger.Entry, error) {
				return b.Rules.Schedule(e, job.Delivery{Key: key("a"), Subject: "a", Envelope: job.Envelope{Kind: "test", NotBefore: due}}, "name", time.Now())
			})
			if failed != nil {
				t.Fatal(failed)
			}
			r := redrive.Request{Action: "discard", Jobs: []string{key("a")}, By: "ada", Reason: "r"}
			if got := b.must(r).Results; got[0].Result != "discarded" {
				t.Errorf("%s: %+v, want discarded", name, got)
			}
			e := b.entry("a")
			if e.Status != ledger.Terminal {
				t.Errorf("%s: the entry is %s, want terminal", name, e.Status)
			}
			if e.TTL.Before(due) {
				t.Errorf("%s: the entry goes at %v, before the schedule fires at %v", name, e.TTL, due)
			}
			if !slices.Equal(d.names, []string{"name"}) {
				t.Errorf("%s: deleted %q, want the schedule", name, d.names)
			}
		})
	}
}
