package ledger_test

import (
	"errors"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

func TestRedrive(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	r := ledger.Rules{MaxRedrives: 3, Retention: time.Hour}
	d := job.Delivery{Key: "k", Token: "t", Envelope: job.Envelope{Kind: "test", NotBefore: now.Add(-time.Hour), Deadline: now.Add(-30 * time.Minute)}}
	isolated := ledger.Entry{Key: "k", Status: ledger.Isolated, Version: 3, Attempts: 4, LastClass: job.Transient}
	with := func(f func(*ledger.Entry)) ledger.Entry { e := isolated; f(&e); return e }
	for name, c := range map[string]struct {
		e    ledger.Entry
		x    ledger.Redriving
		want error
		// of the entry afterwards
		redrives int
	}{
		"isolated":             {isolated, ledger.Redriving{Run: "r"}, nil, 1},
		"absent":               {ledger.Entry{}, ledger.Redriving{Run: "r"}, nil, 1},
		"absent, redriven":     {ledger.Entry{}, ledger.Redriving{Run: "r", Generation: 2}, nil, 3},
		"other generation":     {with(func(e *ledger.Entry) { e.Redrives = 1 }), ledger.Redriving{Run: "r"}, ledger.ErrDrift, 1},
		"opened by this run":   {with(func(e *ledger.Entry) { e.Status, e.Run, e.Redrives = ledger.Pending, "r", 1 }), ledger.Redriving{Run: "r"}, ledger.ErrOpened, 1},
		"opened by another":    {with(func(e *ledger.Entry) { e.Status, e.Run, e.Redrives = ledger.Pending, "q", 1 }), ledger.Redriving{Run: "r"}, ledger.ErrDrift, 1},
		"pending when planned": {with(func(e *ledger.Entry) { e.Status, e.Run, e.Redrives = ledger.Pending, "q", 1 }), ledger.Redriving{Run: "r", Generation: 1}, nil, 1},
		"final":                {with(func(e *ledger.Entry) { e.Status = ledger.Done }), ledger.Redriving{Run: "r"}, ledger.ErrFinal, 0},
		"at the limit":         {with(func(e *ledger.Entry) { e.Redrives = 3 }), ledger.Redriving{Run: "r", Generation: 3}, ledger.ErrDrift, 3},
		"limit overridden":     {with(func(e *ledger.Entry) { e.Redrives = 3 }), ledger.Redriving{Run: "r", Generation: 3, Override: true}, nil, 4},
		"ambiguous":            {with(func(e *ledger.Entry) { e.LastClass = job.Ambiguous }), ledger.Redriving{Run: "r"}, ledger.ErrDrift, 0},
		"decided":              {with(func(e *ledger.Entry) { e.LastClass, e.Decided = job.Ambiguous, ledger.NotSent }), ledger.Redriving{Run: "r"}, nil, 1},
	} {
		got, err := r.Redrive(c.e, d, c.x, now)
		if !errors.Is(err, c.want) || got.Redrives != c.redrives {
			t.Errorf("%s: redrives %d, %v", name, got.Redrives, err)
		}
		if err == nil && (got.Status != ledger.Pending || got.Run != "r") {
			t.Errorf("%s: %+v", name, got)
		}
		if err == nil && c.e.Status != ledger.Pending && !got.Deadline.Equal(now.Add(30*time.Minute)) {
			t.Errorf("%s: deadline %v, want the original length from now on", name, got.Deadline)
		}
		if err == nil && c.e.Status == ledger.Isolated && got.BudgetFrom != 4 {
			t.Errorf("%s: budget from %d", name, got.BudgetFrom)
		}
	}
	var notYet *ledger.NotYetError
	live := with(func(e *ledger.Entry) { e.Status, e.LeaseUntil = ledger.Running, now.Add(time.Second) })
	if _, err := r.Redrive(live, d, ledger.Redriving{Run: "r"}, now); !errors.As(err, &notYet) {
		t.Errorf("live lease: %v", err)
	}
}

// The digest of a mended payload is written by the same change that reopens the entry, and by no other.
func TestRedriveOfAMendedPayload(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	r := ledger.Rules{MaxRedrives: 3, Retention: time.Hour}
	d := job.Delivery{Key: "k", Token: "t", Digest: "1:new", Envelope: job.Envelope{Kind: "test", NotBefore: now, Deadline: now.Add(time.Hour)}}
	isolated := ledger.Entry{Key: "k", Status: ledger.Isolated, Version: 3, LastClass: job.Rejected, Digest: "1:old",
		TimeBudget: time.Minute, Deadline: now.Add(-time.Hour), ExpiresAt: now.Add(-time.Hour)}
	with := func(f func(*ledger.Entry)) ledger.Entry { e := isolated; f(&e); return e }
	x := ledger.Redriving{Run: "r", Digest: "1:new"}
	for name, c := range map[string]struct {
		e      ledger.Entry
		want   error
		digest string
	}{
		"isolated":   {isolated, nil, "1:new"},
		"absent":     {ledger.Entry{}, nil, "1:new"},
		"unresolved": {with(func(e *ledger.Entry) { e.Unresolved = true }), ledger.ErrUnresolved, "1:old"},
		"final":      {with(func(e *ledger.Entry) { e.Status = ledger.Done }), ledger.ErrFinal, "1:old"},
		"open":       {with(func(e *ledger.Entry) { e.Status = ledger.Pending }), ledger.ErrDrift, "1:old"},
		"opened by this run": {with(func(e *ledger.Entry) {
			e.Status, e.Run, e.Redrives, e.Digest, e.Deadline = ledger.Pending, "r", 1, "1:new", now.Add(time.Hour)
		}), ledger.ErrOpened, "1:new"},
	} {
		got, err := r.Redrive(c.e, d, x, now)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		if got.Digest != c.digest {
			t.Errorf("%s: digest %s, want %s", name, got.Digest, c.digest)
		}
	}
	got, _ := r.Redrive(isolated, d, x, now)
	if !got.Deadline.Equal(now.Add(time.Hour)) {
		t.Errorf("deadline %v, want the mended body's length from now on", got.Deadline)
	}
	if !got.ExpiresAt.IsZero() {
		t.Errorf("it keeps the old payload's end, %v", got.ExpiresAt)
	}
}

// A discard can be taken back, because the effect never happened. No other final entry reopens.
func TestRedriveOfADiscardedJob(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	r := ledger.Rules{MaxRedrives: 3, Retention: time.Hour}
	d := job.Delivery{Key: "k", Token: "t"}
	discarded := ledger.Entry{Key: "k", Status: ledger.Terminal, Outcome: ledger.OutcomeDiscarded, Version: 3, Redrives: 3, FinalAt: now, LastClass: job.Rejected}
	got, err := r.Redrive(discarded, d, ledger.Redriving{Run: "r", Generation: 3, Discarded: true}, now)
	if err != nil || got.Status != ledger.Pending || got.Outcome != "" || !got.FinalAt.IsZero() || got.Redrives != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	dropped := discarded
	dropped.Outcome = "dropped, decided by hand"
	for name, c := range map[string]struct {
		e ledger.Entry
		x ledger.Redriving
	}{
		"by an ordinary run": {discarded, ledger.Redriving{Run: "r", Generation: 3}},
		"done":               {ledger.Entry{Key: "k", Status: ledger.Done, Outcome: ledger.OutcomeDiscarded, Version: 3}, ledger.Redriving{Run: "r", Discarded: true}},
		"dropped":            {dropped, ledger.Redriving{Run: "r", Generation: 3, Discarded: true}},
		"another generation": {discarded, ledger.Redriving{Run: "r", Generation: 2, Discarded: true}},
	} {
		if got, err := r.Redrive(c.e, d, c.x, now); !errors.Is(err, ledger.ErrFinal) || got.Status != c.e.Status {
			t.Errorf("%s: %s, %v, want it to stay final", name, got.Status, err)
		}
	}
}

func TestDiscardAndRevoke(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	r := ledger.Rules{MaxRedrives: 3, Retention: time.Hour}
	d := job.Delivery{Message: job.Message{ID: "m"}, Key: "k", Envelope: job.Envelope{Kind: "test"}}
	by := ledger.Decision{At: now, By: "ada", Reason: "not wanted"}
	if e, err := r.Discard(ledger.Entry{}, d, by, now); err != nil || e.Status != ledger.Terminal || e.Key != "k" || !e.TTL.Equal(now.Add(time.Hour)) {
		t.Errorf("absent: %+v %v", e, err)
	}
	if e, err := r.Discard(ledger.Entry{Version: 1, Status: ledger.Done, Outcome: "sent"}, d, by, now); !errors.Is(err, ledger.ErrFinal) || e.Outcome != "sent" {
		t.Errorf("final: %+v %v", e, err)
	}
	if e, err := r.Discard(ledger.Entry{Version: 1, Status: ledger.Isolated, LastClass: job.Ambiguous, Unresolved: true}, d, by, now); err != nil ||
		e.Status != ledger.Terminal || len(e.Decisions) != 1 || e.Decisions[0].By != "ada" || e.Outcome == ledger.OutcomeDiscarded {
		t.Errorf("ambiguous: %v", err)
	}
	var notYet *ledger.NotYetError
	if _, err := r.Discard(ledger.Entry{Version: 1, Status: ledger.Running}, d, by, now); !errors.As(err, &notYet) {
		t.Errorf("running without a lease time: %v", err)
	}
	open := ledger.Entry{Version: 2, Status: ledger.Pending, Run: "r", Redrives: 2, Attempts: 5, BudgetFrom: 5}
	if e, err := r.Revoke(open, d, "r", now); err != nil || e.Redrives != 1 || e.Status != ledger.Isolated || e.IsolatedMessageID != "m" {
		t.Errorf("never ran: %+v %v", e, err)
	}
	open.Attempts = 6
	if e, err := r.Revoke(open, d, "r", now); err != nil || e.Redrives != 2 {
		t.Errorf("ran: %+v %v", e, err)
	}
	sent := d
	sent.Memory = job.Memory{Run: "r", Redrives: 2}
	absent, err := r.Revoke(ledger.Entry{}, sent, "r", now)
	if err != nil {
		t.Errorf("absent: %v", err)
	}
	if absent.Status != ledger.Isolated || absent.Cause != job.CauseRevoked {
		t.Errorf("absent: %s, cause %s, want isolated and revoked", absent.Status, absent.Cause)
	}
	if absent.Redrives != 1 {
		t.Errorf("absent: generation %d, want 1: it never ran", absent.Redrives)
	}
	for _, e := range []ledger.Entry{{Version: 1, Status: ledger.Pending, Run: "q"}, {Version: 1, Status: ledger.Isolated, Run: "r"}} {
		if _, err := r.Revoke(e, d, "r", now); !errors.Is(err, ledger.ErrOtherRun) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// Putting a job back by hand ends its connection to the run that sent it before.
func TestReopeningClearsTheRun(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	r := ledger.Rules{MaxRedrives: 3}
	d := job.Delivery{Message: job.Message{ID: "m"}, Key: "k", Envelope: job.Envelope{Kind: "test"}}
	e, err := r.Reopen(ledger.Entry{Version: 1, Status: ledger.Isolated, Run: "r-old"}, d, now)
	if err != nil {
		t.Fatal(err)
	}
	if e.Run != "" {
		t.Errorf("run %q, want none", e.Run)
	}
	if _, err := r.Revoke(e, d, "r-old", now); !errors.Is(err, ledger.ErrOtherRun) {
		t.Errorf("revoked by its former run: %v", err)
	}
}
