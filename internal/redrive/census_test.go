package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/telemetry"
)

const day = 24 * time.Hour

// Isolated is the ledger's index.
func (w *world) Isolated(_ context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error {
	return w.call("ledger.isolated", func() error {
		for _, e := range w.entries {
			if e.Status != ledger.Isolated || e.IsolatedAt.Before(from) || !e.IsolatedAt.Before(to) {
				continue
			}
			one := ledger.IsolatedJob{Key: e.Key, Kind: e.Kind, Class: e.LastClass, Cause: e.Cause, At: e.IsolatedAt}
			if w.newerEntries[e.Key] {
				one = ledger.IsolatedJob{Key: e.Key, At: e.IsolatedAt, Newer: 2}
			}
			if err := each([]ledger.IsolatedJob{one}); err != nil {
				return err
			}
		}
		return nil
	})
}

// counted are the metrics of each census.
type counted []telemetry.Census

func (c *counted) Census(one telemetry.Census) { *c = append(*c, one) }

// isolatedFor is a job that was isolated so long ago, with its message while SQS keeps it.
func (b *bench) isolatedFor(id string, class job.Class, age time.Duration) {
	b.Helper()
	b.isolated(id, class)
	e := b.entries[key(id)]
	e.IsolatedAt = time.Now().Add(-age)
	b.entries[key(id)] = e
	if age >= b.DLQRetention {
		b.queues[job.DLQ] = b.queues[job.DLQ][:len(b.queues[job.DLQ])-1]
	}
}

func TestCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var metrics counted
		b.deps.Counts = &metrics
		b.isolatedFor("new", job.Transient, time.Minute)
		b.isolatedFor("week", job.Transient, 7*day)
		b.isolatedFor("last hours", job.Ambiguous, 14*day-time.Hour)
		b.isolatedFor("deleted last night", job.Crashed, 14*day+time.Hour)
		b.isolatedFor("deleted last week", job.Crashed, 20*day)
		for range 2 {
			b.malformed()
		}
		got := b.must(redrive.Request{Action: "census"}).Census
		now := time.Now().UTC()
		want := &redrive.Census{
			At: now, Jobs: 3, Classes: map[job.Class]int{job.Transient: 2, job.Ambiguous: 1},
			DaysLeft: map[int]int{13: 1, 7: 1, 0: 1}, OldestAt: now.Add(time.Hour - 14*day),
			Deleted: 2, DeletedLately: 1, Messages: 5, Unrecorded: 2,
		}
		if !got.OldestAt.Equal(want.OldestAt) {
			t.Errorf("the oldest was isolated at %v, want %v", got.OldestAt, want.OldestAt)
		}
		got.OldestAt = want.OldestAt
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if n := b.calls["receive"]; n != 0 {
			t.Errorf("the census received %d times", n)
		}
		wrote := telemetry.Census{Jobs: 3, Classes: want.Classes, DaysLeft: want.DaysLeft, OldestAge: 14*day - time.Hour, Deleted: 1, Unrecorded: 2}
		if len(metrics) != 1 || !reflect.DeepEqual(metrics[0], wrote) {
			t.Errorf("metrics %+v\nwant    %+v", metrics, wrote)
		}
	})
}

// A job whose entry a newer version wrote is counted, so that its message is not one without an entry. Its class is
// not known, and it is named.
func TestCensusNamesNewerEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.isolatedFor("known", job.Transient, time.Minute)
		b.isolatedFor("newer", job.Transient, time.Minute)
		b.newerEntries = map[string]bool{key("newer"): true}
		got := b.must(redrive.Request{Action: "census"}).Census
		if got.Jobs != 2 {
			t.Errorf("%d jobs are counted, want 2", got.Jobs)
		}
		if got.Unrecorded != 0 {
			t.Errorf("%d messages count as without an entry, want 0", got.Unrecorded)
		}
		if want := map[job.Class]int{job.Transient: 1}; !reflect.DeepEqual(got.Classes, want) {
			t.Errorf("classes %v, want %v", got.Classes, want)
		}
		if got.Newer != 1 {
			t.Errorf("%d jobs have a newer entry, want 1", got.Newer)
		}
		if want := key("newer") + " has format 2"; !strings.Contains(b.log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, b.log.String())
		}
	})
}

// A job without its message was taken off the DLQ by hand, or purged.
func TestCensusSeesMissingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 3 {
			b.isolated(fmt.Sprint(i), job.Transient)
		}
		b.queues[job.DLQ] = b.queues[job.DLQ][:1]
		got := b.must(redrive.Request{Action: "census"}).Census
		if got.Missing != 2 || got.Unrecorded != 0 {
			t.Errorf("%d missing and %d unrecorded, want 2 and 0", got.Missing, got.Unrecorded)
		}
	})
}

// What is isolated between the two counts is in one of them only.
func TestCensusWhileJobsAreIsolated(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.isolated("old", job.Transient)
			b.fault = func(call string) (error, error) {
				if call == "ledger.isolated" {
					b.fault = nil
					e := b.entries[key("old")]
					e.Key = key("fresh")
					if indexed {
						b.entries[e.Key] = e
					}
					b.put(job.DLQ, job.Message{Body: body("fresh")})
				}
				return nil, nil
			}
			got := b.must(redrive.Request{Action: "census"}).Census
			if got.Missing != 0 || got.Unrecorded != 0 {
				t.Errorf("the index has it: %v, %d missing, %d unrecorded, want none of either", indexed, got.Missing, got.Unrecorded)
			}
		})
	}
}

// A census that could not count fails as the function's error, which has an alarm.
func TestCensusThatCannotCount(t *testing.T) {
	for _, call := range []string{"ledger.isolated", "depth"} {
		b := newBench(t)
		var metrics counted
		b.deps.Counts = &metrics
		b.fault = func(name string) (error, error) {
			if name == call {
				return errOutage, nil
			}
			return nil, nil
		}
		if got, err := b.try(t.Context(), redrive.Request{Action: "census"}); !errors.Is(err, errOutage) || len(metrics) != 0 {
			t.Errorf("%s: %+v, %v, metrics %+v", call, got, err, metrics)
		}
	}
}
