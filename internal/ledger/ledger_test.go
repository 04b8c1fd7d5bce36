package ledger

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"acklast/internal/job"
	"acklast/internal/retry"
)

var (
	t0    = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	rules = Rules{
		Retry:       retry.Policy{Base: 5 * time.Second, Cap: 300 * time.Second, MaxAttempts: 3, AttemptTime: 10 * time.Second},
		MaxRedrives: 2,
		Retention:   45 * 24 * time.Hour,
	}
	boom = &job.Failure{Class: job.Transient, Err: errors.New("boom")}
)

func delivery(id string, sent time.Time) job.Delivery {
	return job.Delivery{
		Message:  job.Message{ID: id, SentAt: sent},
		Envelope: job.Envelope{Kind: "k", NotBefore: t0, Deadline: t0.Add(15 * time.Minute)},
		Key:      "k/1", Subject: "1", Token: "token-" + id,
	}
}

// stored returns an entry as a store would return it.
func stored(e Entry) Entry { e.Version++; return e }

func TestFailSchedulesTheNextAttempt(t *testing.T) {
	d := delivery("m1", t0)
	e, err := rules.Fail(Entry{}, d, boom, t0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{
		TimeBudget: 15 * time.Minute, TTL: t0.Add(5*time.Second + rules.Retention),
		Key: "k/1", Subject: "1", Kind: "k", Status: Pending, Attempts: 1, Due: t0, FirstSent: t0,
		Deadline: t0.Add(15 * time.Minute), RetryAt: t0.Add(5 * time.Second),
		LastClass: job.Transient, LastError: "boom",
		History: []Event{{At: t0, What: EventFailed, Attempt: 1, Class: job.Transient, Error: "boom"}},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("Fail() = %+v\nwant %+v", e, want)
	}
}

func TestFailIsolates(t *testing.T) {
	begun := stored(Entry{Key: "k/1", Status: Pending, Deadline: t0.Add(15 * time.Minute)})
	spent := stored(Entry{Key: "k/1", Status: Pending, Attempts: 7, BudgetFrom: 5})
	tests := []struct {
		name  string
		entry Entry
		class job.Class
		at    time.Time
		cause job.Cause
	}{
		{"invalid at once", Entry{}, job.Invalid, t0, job.CausePermanent},
		{"rejected at once", Entry{}, job.Rejected, t0, job.CausePermanent},
		{"ambiguous at once", Entry{}, job.Ambiguous, t0, job.CauseAmbiguous},
		{"count is spent since the last opening", spent, job.Transient, t0, job.CauseAttempts},
		{"no time for another attempt", begun, job.ClassUnknown, t0.Add(15*time.Minute - 14*time.Second), job.CauseTime},
		{"late already", begun, job.Transient, t0.Add(time.Hour), job.CauseTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := rules.Fail(tt.entry, delivery("m1", t0), &job.Failure{Class: tt.class, Err: errors.New("no")}, tt.at, 0)
			if err != nil || e.Status != Isolated || e.Cause != tt.cause || e.IsolatedMessageID != "m1" || !e.IsolatedAt.Equal(tt.at) {
				t.Errorf("Fail() = %+v, %v, want isolated with cause %s", e, err, tt.cause)
			}
			if e.Attempts != tt.entry.Attempts+1 || !e.RetryAt.IsZero() {
				t.Errorf("attempts %d, retry at %v", e.Attempts, e.RetryAt)
			}
		})
	}
}

// A hundred deliveries of one job that fail together are one failed attempt.
func TestIsolatedEntriesHaveAFingerprint(t *testing.T) {
	t.Parallel()
	e, err := rules.Isolate(Entry{}, delivery("m1", t0), job.Rejected, job.CausePermanent, "order 17 is missing", t0)
	if err != nil {
		t.Fatal(err)
	}
	if e.Fingerprint != "order # is missing" {
		t.Errorf("fingerprint %q, want the masked error", e.Fingerprint)
	}
	if m := e.Memory(job.Memory{}); m.Fingerprint != e.Fingerprint {
		t.Errorf("the message tells %q, want %q", m.Fingerprint, e.Fingerprint)
	}
}

func TestFailSpendsNothingWhileARetryWaits(t *testing.T) {
	e, _ := rules.Fail(Entry{}, delivery("m1", t0), boom, t0, 0)
	again, err := rules.Fail(stored(e), delivery("m2", t0), boom, t0.Add(5*time.Second-1), 0)
	var notYet *NotYetError
	if !errors.As(err, &notYet) || !notYet.Until.Equal(t0.Add(5*time.Second)) || again.Attempts != 1 {
		t.Errorf("second failure: %+v, %v", again, err)
	}
	if again, err = rules.Fail(stored(e), delivery("m2", t0), boom, t0.Add(5*time.Second), 0); err != nil || again.Attempts != 2 {
		t.Errorf("failure of the next attempt: %+v, %v", again, err)
	}
}

func TestRetryAtIsNeverBelowRetryAfter(t *testing.T) {
	now := t0.Add(123456 * time.Nanosecond)
	f := &job.Failure{Class: job.Throttled, RetryAfter: 30 * time.Second, Err: errors.New("429")}
	e, _ := rules.Fail(Entry{}, delivery("m1", t0), f, now, 0.99)
	// A store keeps whole milliseconds.
	if kept := time.UnixMilli(e.RetryAt.UnixMilli()); kept.Before(now.Add(30 * time.Second)) {
		t.Errorf("retry at %v, before %v", kept, now.Add(30*time.Second))
	}
}

func TestReopenGivesAFreshBudget(t *testing.T) {
	e := Entry{}
	now := t0
	for range 3 {
		e, _ = rules.Fail(e, delivery("m1", t0), boom, now, 0)
		e, now = stored(e), now.Add(time.Minute)
	}
	if e.Status != Isolated || e.Attempts != 3 {
		t.Fatalf("after three failures: %+v", e)
	}
	later := t0.Add(48 * time.Hour)
	e, err := rules.Reopen(e, delivery("m2", later), later)
	if err != nil || e.Status != Pending || e.Redrives != 1 || e.Attempts != 3 || e.BudgetFrom != 3 || e.Cause != "" {
		t.Fatalf("Reopen() = %+v, %v", e, err)
	}
	if want := later.Add(15 * time.Minute); !e.Deadline.Equal(want) {
		t.Errorf("deadline %v, want the original length from now: %v", e.Deadline, want)
	}
	e, err = rules.Fail(stored(e), delivery("m2", later), boom, later.Add(time.Second), 0)
	if err != nil || e.Status != Pending || !e.RetryAt.Equal(later.Add(6*time.Second)) {
		t.Errorf("first failure of the new budget: %+v, %v", e, err)
	}
	if _, err := rules.Reopen(e, delivery("m3", later), later); !errors.Is(err, ErrContended) {
		t.Errorf("Reopen(pending) = %v", err)
	}
}

func TestReopenWithoutDeadlineCountsOnly(t *testing.T) {
	d := delivery("m2", t0)
	d.Envelope.Deadline = time.Time{}
	e, err := rules.Reopen(stored(Entry{Key: "k/1", Status: Isolated}), d, t0)
	if err != nil || !e.Deadline.IsZero() {
		t.Errorf("Reopen() = %+v, %v", e, err)
	}
}

func TestRefusal(t *testing.T) {
	tests := []struct {
		name  string
		entry Entry
		want  job.Verdict
	}{
		{"final", Entry{Status: Done, Owner: "other"}, job.Duplicate},
		{"final by a lost answer of our own", Entry{Status: Done, Owner: "mine"}, job.Committed},
		{"isolated", Entry{Status: Isolated}, job.FoundIsolated},
		{"waiting for its retry", Entry{Status: Pending, RetryAt: t0.Add(1)}, job.Blocked},
		{"changed since", Entry{Status: Pending, RetryAt: t0}, job.Blocked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.entry.Refusal("mine", t0).Verdict; got != tt.want {
				t.Errorf("Refusal() = %v, want %v", got, tt.want)
			}
		})
	}
}

// The rules of the state diagram hold for any transitions in any order.
func TestTransitionsKeepTheirInvariants(t *testing.T) {
	classes := []job.Class{job.Transient, job.Throttled, job.ClassUnknown, job.Invalid, job.Rejected, job.Ambiguous}
	rapid.Check(t, func(t *rapid.T) {
		e, now := Entry{}, t0
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(10*time.Minute)).Draw(t, "clock")))
			d := delivery(rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "message"), now.Add(-time.Second))
			before := e
			before.History = slices.Clone(e.History)

			var next Entry
			var err error
			switch what := rapid.SampledFrom([]string{"fail", "contention", "finish", "arrive"}).Draw(t, "what"); {
			case what == "fail":
				class := rapid.SampledFrom(classes).Draw(t, "class")
				next, err = rules.Fail(e, d, &job.Failure{Class: class, Err: errors.New("x")}, now, 0.5)
			case what == "contention":
				next, err = rules.Isolate(e, d, job.Transient, job.CauseContention, "waited", now)
			case what == "finish" && step > 20:
				next, err = rules.Finish(e, d, Expired, "expired", now)
			default:
				d.Memory = job.Memory{MessageID: e.IsolatedFirstID, Cause: e.Cause, At: e.IsolatedAt}
				if e.Status != Isolated || rules.Arrive(e, d) != PutBack {
					continue
				}
				next, err = rules.Reopen(e, d, now)
			}
			if !reflect.DeepEqual(e, before) {
				t.Fatalf("a transition changed the entry it was given")
			}
			if err != nil {
				continue
			}
			switch {
			case e.Status.Final():
				t.Fatalf("final entry left %s for %s", e.Status, next.Status)
			case next.Attempts < e.Attempts || next.Redrives < e.Redrives:
				t.Fatalf("a count went down: %+v → %+v", e, next)
			case next.Attempts-next.BudgetFrom > rules.Retry.MaxAttempts:
				t.Fatalf("%d attempts since the last opening", next.Attempts-next.BudgetFrom)
			case next.Redrives > rules.MaxRedrives:
				t.Fatalf("%d redrives", next.Redrives)
			case len(next.History) > MaxHistory:
				t.Fatalf("history of %d", len(next.History))
			case (next.Status == Isolated) != (next.IsolatedMessageID != "" && next.IsolatedFirstID != ""):
				t.Fatalf("isolated without saying by which message: %+v", next)
			case next.TTL.Before(now.Add(rules.Retention)):
				t.Fatalf("its TTL is %v, want at least the retention from the last write: %+v", next.TTL, next)
			}
			e = stored(next)
		}
	})
}

// A job that waited in a backlog until after its deadline still has its budget by time.
func TestTheBudgetByTimeStartsWithTheFirstTry(t *testing.T) {
	t.Parallel()
	late := t0.Add(time.Hour)
	e, err := rules.Fail(Entry{}, delivery("m1", t0), boom, late, 0)
	if err != nil || e.Status != Pending {
		t.Fatalf("first failure, late: %s, %v, want another attempt", e.Status, err)
	}
	if want := late.Add(15 * time.Minute); !e.Deadline.Equal(want) {
		t.Errorf("deadline %v, want %v", e.Deadline, want)
	}
	early := t0.Add(-time.Hour)
	if e, _ = rules.Fail(Entry{}, delivery("m1", t0), boom, early, 0); !e.Deadline.Equal(t0.Add(15 * time.Minute)) {
		t.Errorf("first try before it is due: deadline %v, want the message's", e.Deadline)
	}
}

func TestThrottledAttemptsSpendTimeOnly(t *testing.T) {
	t.Parallel()
	throttled := &job.Failure{Class: job.Throttled, Err: errors.New("429")}
	d := delivery("m1", t0)
	d.Envelope.Deadline = time.Time{}
	e, now := Entry{}, t0
	n := 0
	for e.Status != Isolated {
		var err error
		if e, err = rules.Fail(e, d, throttled, now, 0); err != nil {
			t.Fatal(err)
		}
		if e.Attempts != 0 {
			t.Fatalf("%d attempts after %d throttled ones, want none", e.Attempts, n+1)
		}
		e, n = stored(e), n+1
		if e.RetryAt.Sub(now) > 15*time.Minute {
			t.Fatalf("a delay of %v, above 15 minutes", e.RetryAt.Sub(now))
		}
		if e.Status == Pending {
			now = e.RetryAt
		}
	}
	if e.Cause != job.CauseTime || e.Throttles != n {
		t.Errorf("isolated by %q after %d throttles of %d", e.Cause, e.Throttles, n)
	}
	if spent := now.Sub(t0); spent < 23*time.Hour || spent > 24*time.Hour {
		t.Errorf("it went on for %v, want about 24 h", spent)
	}
}

func TestAThrottleOfADay(t *testing.T) {
	t.Parallel()
	day := &job.Failure{Class: job.Throttled, RetryAfter: 24 * time.Hour, Err: errors.New("429")}
	d := delivery("m1", t0)
	d.Envelope.Deadline = time.Time{}
	e, err := rules.Fail(Entry{}, d, day, t0, 0)
	if err != nil || !e.RetryAt.Equal(t0.Add(24*time.Hour)) {
		t.Errorf("retry at %v, %v, want a day later", e.RetryAt, err)
	}
}

func TestAnotherPayloadIsAConflict(t *testing.T) {
	t.Parallel()
	d := delivery("m1", t0)
	d.Digest = "1:aa"
	e, _ := rules.Fail(Entry{}, d, boom, t0, 0)
	if e.Digest != "1:aa" {
		t.Fatalf("digest %q, want it kept", e.Digest)
	}
	e = stored(e)
	other := delivery("m2", t0)
	other.Digest = "1:bb"
	at := e.RetryAt
	for name, err := range map[string]error{
		"Fail":    second(rules.Fail(e, other, boom, at, 0)),
		"Isolate": second(rules.Isolate(e, other, job.Transient, job.CauseContention, "x", at)),
		"Finish":  second(rules.Finish(e, other, Expired, "x", at)),
		"Claim":   second(rules.Claim(e, other, lease, at)),
		"Contend": second(rules.Contend(e, other, at)),
		"Revoke":  second(rules.Revoke(e, other, e.Run, at)),
	} {
		var conflict *ConflictError
		if !errors.As(err, &conflict) {
			t.Errorf("%s: %v, want a conflict", name, err)
			continue
		}
		if conflict.Entry != "1:aa" || conflict.Delivery != "1:bb" {
			t.Errorf("%s: it names %q and %q", name, conflict.Entry, conflict.Delivery)
		}
	}
	other.Digest = "2:bb"
	if _, err := rules.Fail(e, other, boom, at, 0); err != nil {
		t.Errorf("a digest of another rule: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// A redrive opened the job, halted, and now goes on. The time between does not count against the job.
func TestARedriveThatGoesOnGivesTheWholeTime(t *testing.T) {
	t.Parallel()
	d := delivery("m1", t0)
	e, _ := rules.Isolate(Entry{}, d, job.Transient, job.CauseAttempts, "x", t0)
	x := Redriving{Run: "r"}
	e, err := rules.Redrive(stored(e), d, x, t0.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	again := t0.Add(5 * time.Hour)
	e, err = rules.Redrive(stored(e), d, x, again)
	if err != nil || e.Redrives != 1 {
		t.Errorf("sent again: %d redrives, %v, want 1 still", e.Redrives, err)
	}
	if want := again.Add(15 * time.Minute); !e.Deadline.Equal(want) {
		t.Errorf("deadline %v, want %v", e.Deadline, want)
	}
}
