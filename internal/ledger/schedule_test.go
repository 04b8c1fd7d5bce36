package ledger_test

import (
	"errors"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

var (
	begun = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	// fires is when the job is due that a schedule brings back.
	fires = begun.Add(300 * 24 * time.Hour)
	keeps = ledger.Rules{Retention: 45 * 24 * time.Hour, MaxRedrives: 3}
)

func farOff() job.Delivery {
	return job.Delivery{
		Message: job.Message{ID: "m1", SentAt: begun}, Key: "k/s", Subject: "s", Digest: "v1:aa", Token: "t1",
		Envelope: job.Envelope{Kind: "k", NotBefore: fires},
	}
}

// scheduled is the entry of a job that a schedule brings back.
func scheduled(t *testing.T) ledger.Entry {
	t.Helper()
	e, err := keeps.Schedule(ledger.Entry{}, farOff(), "name", begun)
	if err != nil {
		t.Fatal(err)
	}
	e.Version = 1
	return e
}

func TestScheduleOpensTheEntry(t *testing.T) {
	e := scheduled(t)
	for what, pair := range map[string][2]any{
		"status": {e.Status, ledger.Pending},
		"until":  {e.ScheduledUntil, fires},
		"name":   {e.ScheduleName, "name"},
		"due":    {e.Due, fires},
		"digest": {e.Digest, "v1:aa"},
		"TTL":    {e.TTL, fires.Add(keeps.Retention)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
}

func TestACopyFindsTheScheduleWritten(t *testing.T) {
	if _, err := keeps.Schedule(scheduled(t), farOff(), "name", begun.Add(time.Hour)); !errors.Is(err, ledger.ErrScheduled) {
		t.Errorf("got %v, want ErrScheduled", err)
	}
}

func TestAnEarlierScheduleDoesNotShortenALaterOne(t *testing.T) {
	d := farOff()
	d.Envelope.NotBefore = fires.Add(-time.Hour)
	e, err := keeps.Schedule(scheduled(t), d, "other", begun)
	if err != nil {
		t.Fatal(err)
	}
	if !e.ScheduledUntil.Equal(fires) {
		t.Errorf("scheduled until %v, want %v", e.ScheduledUntil, fires)
	}
	if e.ScheduleName != "other" {
		t.Errorf("the schedule is %q, want the one made last", e.ScheduleName)
	}
}

func TestScheduleIsRefused(t *testing.T) {
	open := scheduled(t)
	done, isolated, running, other := open, open, open, farOff()
	done.Status, isolated.Status = ledger.Done, ledger.Isolated
	running.Status, running.Owner, running.LeaseUntil = ledger.Running, "t2", begun.Add(time.Minute)
	other.Digest = "v1:bb"
	var notYet *ledger.NotYetError
	var conflict *ledger.ConflictError
	for name, tt := range map[string]struct {
		entry    ledger.Entry
		delivery job.Delivery
		is       func(error) bool
	}{
		"final":           {done, farOff(), func(err error) bool { return errors.Is(err, ledger.ErrFinal) }},
		"isolated":        {isolated, farOff(), func(err error) bool { return errors.Is(err, ledger.ErrIsolated) }},
		"running":         {running, farOff(), func(err error) bool { return errors.As(err, &notYet) }},
		"another payload": {open, other, func(err error) bool { return errors.As(err, &conflict) }},
	} {
		if _, err := keeps.Schedule(tt.entry, tt.delivery, "n2", begun); !tt.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever ends the job on day 2, the firing on day 300 finds it.
func TestEveryEndOutlivesTheSchedule(t *testing.T) {
	day2 := begun.Add(24 * time.Hour)
	// The entry began with a copy that was due at once.
	open := scheduled(t)
	open.Due = begun
	early := farOff()
	early.Envelope.NotBefore = time.Time{} // a copy with another time ran
	ambiguous := open
	ambiguous.Status, ambiguous.LastClass = ledger.Isolated, job.Ambiguous
	claimed := open
	claimed.Status, claimed.Owner, claimed.LeaseUntil = ledger.Running, "t1", day2.Add(time.Minute)
	decision := ledger.Decision{At: day2, By: "ann", What: ledger.Drop, Reason: "over"}
	for name, end := range map[string]func() (ledger.Entry, error){
		"finished": func() (ledger.Entry, error) { return keeps.Finish(open, early, ledger.Done, "ran", day2) },
		"completed": func() (ledger.Entry, error) {
			c, short := keeps.Complete(early, ledger.Done, "ran", day2).Keep(open)
			if !short {
				t.Error("a completion on day 2 is said to cover day 300")
			}
			return c.Entry, nil
		},
		"claim completed": func() (ledger.Entry, error) {
			return keeps.CompleteClaim(claimed, early, ledger.Done, "sent", "r1", day2)
		},
		"isolated": func() (ledger.Entry, error) {
			return keeps.Isolate(open, early, job.Rejected, job.CausePermanent, "no", day2)
		},
		"failed": func() (ledger.Entry, error) {
			return keeps.Fail(open, early, &job.Failure{Class: job.Rejected, Err: errors.New("no")}, day2, 0)
		},
		"discarded": func() (ledger.Entry, error) { return keeps.Discard(open, early, decision, day2) },
		"cancelled": func() (ledger.Entry, error) { return keeps.Cancel(open, early, decision) },
		"decided":   func() (ledger.Entry, error) { return keeps.Decide(ambiguous, decision) },
	} {
		e, err := end()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if want := fires.Add(keeps.Retention); e.TTL.Before(want) {
			t.Errorf("%s: the entry goes at %v, want %v", name, e.TTL, want)
		}
	}
}
