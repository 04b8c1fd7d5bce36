package ledger

import (
	"errors"
	"testing"
	"time"

	"acklast/internal/job"
)

var lease = Lease{Until: t0.Add(time.Minute), ProviderKey: "key-1", ExpiresAt: t0.Add(time.Hour)}

// claimed is an entry that delivery m1 holds, as a store would return it.
func claimed(t *testing.T) Entry {
	t.Helper()
	e, err := rules.Claim(Entry{}, delivery("m1", t0), lease, t0)
	if before := e.UnresolvedBefore(); err != nil || before || e.Status != Running || e.Owner != "token-m1" || !e.Unresolved || e.ProviderKey != "key-1" {
		t.Fatalf("Claim() = %+v, %v", e, err)
	}
	return stored(e)
}

func TestClaimIsExclusiveWhileItsLeaseLives(t *testing.T) {
	e := claimed(t)
	var held *NotYetError
	if _, err := rules.Claim(e, delivery("m2", t0), lease, lease.Until.Add(-1)); !errors.As(err, &held) || !held.Until.Equal(lease.Until) {
		t.Errorf("second claim: %v, want the end of the first lease", err)
	}
	later := Lease{Until: t0.Add(time.Hour), ProviderKey: "key-2"}
	taken, err := rules.Claim(e, delivery("m2", t0), later, lease.Until)
	if before := taken.UnresolvedBefore(); err != nil || !before || taken.Owner != "token-m2" || taken.ProviderKey != "key-1" || !taken.ExpiresAt.Equal(lease.ExpiresAt) {
		t.Errorf("take-over: %+v, %v", taken, err)
	}
	e.LeaseUntil = time.Time{}
	if _, err := rules.Claim(e, delivery("m2", t0), later, t0.Add(24*time.Hour)); !errors.As(err, &held) {
		t.Errorf("a running entry without a lease time was free: %v", err)
	}
}

func TestClaimRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		entry Entry
		want  error
	}{
		"final":    {Entry{Status: Done, Version: 1}, ErrFinal},
		"isolated": {Entry{Status: Isolated, Version: 1}, ErrIsolated},
	} {
		if _, err := rules.Claim(tt.entry, delivery("m2", t0), lease, t0); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var notYet *NotYetError
	if _, err := rules.Claim(Entry{Status: Pending, Version: 1, RetryAt: t0.Add(1)}, delivery("m2", t0), lease, t0); !errors.As(err, &notYet) {
		t.Errorf("a waiting retry was claimed: %v", err)
	}
}

func TestOnlyTheOwnerCompletes(t *testing.T) {
	e := claimed(t)
	if _, err := rules.CompleteClaim(e, delivery("m2", t0), Done, "accepted", "req-2", t0); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("another's completion: %v", err)
	}
	// Its own lease expired, and no other delivery took over: a known acceptance counts.
	done, err := rules.CompleteClaim(e, delivery("m1", t0), Done, "accepted", "req-1", lease.Until.Add(time.Hour))
	if err != nil || done.Status != Done || done.Unresolved || !done.LeaseUntil.IsZero() || done.Evidence[0].RequestID != "req-1" {
		t.Errorf("CompleteClaim() = %+v, %v", done, err)
	}
	if _, err := rules.CompleteClaim(stored(done), delivery("m1", t0), Done, "accepted", "", t0); !errors.Is(err, ErrFinal) {
		t.Errorf("completing twice: %v", err)
	}
	// The delivery that lost the claim appends its evidence.
	if e, err = rules.Learn(stored(done), Evidence{At: t0, Token: "token-m2", RequestID: "req-2"}); err != nil || len(e.Evidence) != 2 || e.Status != Done {
		t.Errorf("Learn() = %+v, %v", e, err)
	}
}

func TestFailureOfAClaim(t *testing.T) {
	e := claimed(t)
	var held *NotYetError
	if _, err := rules.Fail(e, delivery("m2", t0), boom, t0, 0); !errors.As(err, &held) || !held.Until.Equal(lease.Until) {
		t.Errorf("another's failure: %v, want it to wait for the end of the lease", err)
	}
	resolved, err := rules.Fail(e, delivery("m1", t0), boom, t0, 0)
	if err != nil || resolved.Status != Pending || resolved.Unresolved || !resolved.LeaseUntil.IsZero() {
		t.Errorf("a failure whose outcome is known: %+v, %v", resolved, err)
	}
	timeout := &job.Failure{Class: job.Transient, Unresolved: true, Err: errors.New("timeout")}
	unresolved, err := rules.Fail(e, delivery("m1", t0), timeout, t0, 0)
	if err != nil || !unresolved.Unresolved {
		t.Errorf("a timeout: %+v, %v", unresolved, err)
	}
	// The mark survives the retry's own claim, so that the retry looks up first.
	if next, err := rules.Claim(stored(unresolved), delivery("m3", t0), lease, unresolved.RetryAt); err != nil || !next.UnresolvedBefore() {
		t.Errorf("the next claim was not told: %+v, %v", next, err)
	}
}

func TestDecide(t *testing.T) {
	ambiguous := stored(Entry{Key: "k/1", Status: Isolated, LastClass: job.Ambiguous, Cause: job.CauseAmbiguous,
		IsolatedMessageID: "m1", IsolatedAt: t0, Unresolved: true, ProviderKey: "key-1", ExpiresAt: t0.Add(time.Hour)})
	by := func(what DecisionKind) Decision {
		return Decision{At: t0.Add(time.Minute), By: "ada", What: what, Reason: "asked the provider"}
	}
	for what, status := range map[DecisionKind]Status{Sent: Done, Drop: Terminal, NotSent: Isolated} {
		e, err := rules.Decide(ambiguous, by(what))
		if err != nil || e.Status != status || len(e.Decisions) != 1 || e.Decisions[0].By != "ada" || e.Status.Final() != !e.TTL.IsZero() {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}

	ambiguous.IsolatedFirstID = "m1"
	back := delivery("m2", t0.Add(time.Minute))
	back.Memory = job.Memory{MessageID: "m1", Cause: job.CauseAmbiguous, At: t0}
	if got := rules.Arrive(ambiguous, back); got != Undecided {
		t.Errorf("undecided: %v", got)
	}
	decided, _ := rules.Decide(ambiguous, by(NotSent))
	if got := rules.Arrive(decided, back); got != PutBack {
		t.Errorf("decided: %v", got)
	}
	open, err := rules.Reopen(stored(decided), back, t0.Add(2*time.Minute))
	if err != nil || open.Unresolved || open.Decided != "" || len(open.Decisions) != 1 {
		t.Errorf("the decision is spent by the reopening: %+v, %v", open, err)
	}

	refused := map[string]func(*Entry, *Decision){
		"not isolated":       func(e *Entry, _ *Decision) { e.Status = Pending },
		"not ambiguous":      func(e *Entry, _ *Decision) { e.LastClass = job.Rejected },
		"final":              func(e *Entry, _ *Decision) { e.Status = Done },
		"no name":            func(_ *Entry, d *Decision) { d.By = "" },
		"no reason":          func(_ *Entry, d *Decision) { d.Reason = "" },
		"unknown":            func(_ *Entry, d *Decision) { d.What = "maybe" },
		"evidence says sent": func(e *Entry, _ *Decision) { e.Evidence = []Evidence{{Token: "x"}, {RequestID: "req-1"}} },
		"past its expiry":    func(_ *Entry, d *Decision) { d.At = t0.Add(time.Hour) },
	}
	for name, spoil := range refused {
		e, d := ambiguous, by(NotSent)
		spoil(&e, &d)
		if got, err := rules.Decide(e, d); !errors.Is(err, ErrUndecidable) || len(got.Decisions) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestContentionCountsTheMoreOfBoth(t *testing.T) {
	d := delivery("m1", t0)
	for _, tt := range []struct{ ledger, message, want int }{{0, 0, 1}, {5, 0, 6}, {2, 9, 10}} {
		d.Memory.Contentions = tt.message
		e, err := rules.Contend(stored(Entry{Key: "k/1", Status: Pending, Contentions: tt.ledger}), d, t0)
		if err != nil || e.Contentions != tt.want {
			t.Errorf("%d in the ledger, %d in the message: %d, %v, want %d", tt.ledger, tt.message, e.Contentions, err, tt.want)
		}
	}
	running := claimed(t)
	if e, err := rules.Contend(running, delivery("m2", t0), t0); err != nil || e.Owner != running.Owner || e.Status != Running {
		t.Errorf("a contention touched a claim: %+v, %v", e, err)
	}
	if _, err := rules.Contend(Entry{Status: Done, Version: 1}, d, t0); !errors.Is(err, ErrFinal) {
		t.Error(err)
	}
}

// A claim that ended without an outcome is an attempt: a job that never comes back spends its budget.
func TestTheNextClaimCountsAnAttemptThatNeverEnded(t *testing.T) {
	e := claimed(t)
	for n := 1; n < rules.Retry.MaxAttempts; n++ {
		next, err := rules.Claim(e, delivery("m2", t0), lease, lease.Until)
		if err != nil {
			t.Fatalf("take-over %d: %v", n, err)
		}
		if next.Attempts != n {
			t.Errorf("take-over %d: %d attempts", n, next.Attempts)
		}
		if last := next.History[len(next.History)-1]; last.What != EventFailed || last.Attempt != n {
			t.Errorf("take-over %d: the history ends with %+v", n, last)
		}
		e = stored(next)
	}
	if _, err := rules.Claim(e, delivery("m2", t0), lease, lease.Until); !errors.Is(err, ErrSpent) {
		t.Fatalf("after the last attempt: %v, want ErrSpent", err)
	}
	// The worker turns the error into this failure.
	f := job.AsFailure(ResultOf(ErrSpent, "token-m2", t0).Err)
	e, err := rules.Fail(e, delivery("m2", t0), f, lease.Until, 0)
	if err != nil || e.Status != Isolated || e.Cause != job.CauseAttempts {
		t.Errorf("the failure: %s by cause %q, %v, want it isolated by attempts", e.Status, e.Cause, err)
	}
	if !e.Unresolved {
		t.Error("nobody knows what became of the calls, and the mark is gone")
	}
}

// Once a lease is over, any delivery may decide the job. The mark of the earlier call stays.
func TestADeadClaimStopsNobody(t *testing.T) {
	over := lease.Until
	other := delivery("m2", t0)
	if e, err := rules.Fail(claimed(t), other, boom, over, 0); err != nil || e.Status != Pending || !e.Unresolved {
		t.Errorf("Fail: %s, unresolved %v, %v", e.Status, e.Unresolved, err)
	}
	if e, err := rules.Isolate(claimed(t), other, job.Transient, job.CauseContention, "x", over); err != nil || e.Status != Isolated || !e.Unresolved {
		t.Errorf("Isolate: %s, unresolved %v, %v", e.Status, e.Unresolved, err)
	}
	if _, err := rules.Finish(claimed(t), other, Expired, "expired", over); !errors.Is(err, ErrUnresolved) {
		t.Errorf("Finish: %v, want ErrUnresolved", err)
	}
	settled := claimed(t).resolve()
	if e, err := rules.Finish(settled, other, Expired, "expired", over); err != nil || e.Status != Expired {
		t.Errorf("Finish without an open call: %s, %v", e.Status, err)
	}
	var held *NotYetError
	if _, err := rules.Isolate(claimed(t), other, job.Transient, job.CauseContention, "x", over.Add(-1)); !errors.As(err, &held) {
		t.Errorf("Isolate under a live lease: %v, want it to wait", err)
	}
}

// A claim that is released leaves no mark of its own, and keeps that of an earlier one.
func TestReleaseUndoesAClaim(t *testing.T) {
	e := claimed(t)
	if _, err := rules.Release(e, "token-m2"); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("by another delivery: %v", err)
	}
	released, err := rules.Release(e, "token-m1")
	if err != nil {
		t.Fatal(err)
	}
	if released.Status != Pending || !released.LeaseUntil.IsZero() {
		t.Errorf("released: %+v, want it pending without a lease", released)
	}
	if released.Unresolved || !released.CalledFrom.IsZero() {
		t.Errorf("released: %+v, want no mark of a call", released)
	}

	// The first claim's call has no known outcome.
	at := lease.Until
	taken, err := rules.Claim(e, delivery("m2", t0), Lease{Until: at.Add(time.Minute), ProviderKey: "key-1"}, at)
	if err != nil {
		t.Fatal(err)
	}
	released, err = rules.Release(stored(taken), "token-m2")
	if err != nil || !released.Unresolved || !released.CalledFrom.Equal(t0) {
		t.Errorf("after an earlier call: %+v, %v, want it unresolved since %v", released, err, t0)
	}
	again, err := rules.Claim(stored(released), delivery("m3", t0), lease, at)
	if err != nil || !again.UnresolvedBefore() {
		t.Errorf("the next claim: %+v, %v", again, err)
	}
	for status, want := range map[Status]error{Done: ErrFinal, Isolated: ErrLeaseLost, Pending: ErrLeaseLost} {
		if _, err := rules.Release(Entry{Version: 1, Status: status, Owner: "token-m1"}, "token-m1"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", status, err, want)
		}
	}
}

// The time from which a provider must remember a key is that of the first call whose outcome is open.
func TestCalledFromIsThatOfTheFirstOpenCall(t *testing.T) {
	e := claimed(t)
	if !e.CalledFrom.Equal(t0) {
		t.Errorf("called from %v, want %v", e.CalledFrom, t0)
	}
	unsent := &job.Failure{Class: job.Throttled, Err: errors.New("429")}
	failed, err := rules.Fail(e, delivery("m1", t0), unsent, t0, 0)
	if err != nil || !failed.CalledFrom.IsZero() {
		t.Errorf("after a call that was not accepted: called from %v, %v", failed.CalledFrom, err)
	}
	later := t0.Add(30 * time.Minute)
	e, err = rules.Claim(stored(failed), delivery("m2", t0), lease, later)
	if err != nil || !e.CalledFrom.Equal(later) || e.ProviderKey != "key-1" {
		t.Errorf("the next claim: called from %v with key %s, %v, want %v with the first key", e.CalledFrom, e.ProviderKey, err, later)
	}
	lost := &job.Failure{Class: job.Transient, Unresolved: true, Err: errors.New("no answer")}
	failed, err = rules.Fail(stored(e), delivery("m2", t0), lost, later, 0)
	if err != nil || !failed.CalledFrom.Equal(later) {
		t.Errorf("after a lost answer: called from %v, %v, want %v", failed.CalledFrom, err, later)
	}
}

// A look-up proves that there is no request only some time after the last call was over: when its failure was recorded, or
// its claim's lease had ended.
func TestCalledUntilIsTheEndOfTheLastOpenCall(t *testing.T) {
	lost := &job.Failure{Class: job.Transient, Unresolved: true, Err: errors.New("no answer")}
	e := claimed(t)
	if !e.CalledUntil.IsZero() {
		t.Errorf("of a claim that has not ended: %v", e.CalledUntil)
	}
	over := t0.Add(5 * time.Second)
	failed, err := rules.Fail(e, delivery("m1", t0), lost, over, 0)
	if err != nil || !failed.CalledUntil.Equal(over) {
		t.Errorf("after a failure: %v, %v, want %v", failed.CalledUntil, err, over)
	}

	// The next claim looks up, and makes no call.
	at := failed.RetryAt
	looking, err := rules.Claim(stored(failed), delivery("m2", t0), Lease{Until: at.Add(time.Minute), ProviderKey: "key-1"}, at)
	if err != nil || !looking.CalledUntil.Equal(over) {
		t.Errorf("the next claim: %v, %v, want %v", looking.CalledUntil, err, over)
	}
	noCall := &job.Failure{Class: job.Transient, Unresolved: true, NoCall: true, Err: errors.New("503")}
	if failed, err := rules.Fail(stored(looking), delivery("m2", t0), noCall, at.Add(time.Second), 0); err != nil || !failed.CalledUntil.Equal(over) || !failed.Unresolved {
		t.Errorf("after a look-up that failed: %v, unresolved %v, %v, want %v", failed.CalledUntil, failed.Unresolved, err, over)
	}
	if called, err := rules.Fail(stored(looking), delivery("m2", t0), lost, at.Add(time.Second), 0); err != nil || !called.CalledUntil.Equal(at.Add(time.Second)) {
		t.Errorf("after another call: %v, %v, want %v", called.CalledUntil, err, at.Add(time.Second))
	}
	waits, err := rules.Postpone(stored(looking), "token-m2", at.Add(time.Hour+1), "why", at)
	if err != nil || !waits.CalledUntil.Equal(over) || !waits.RetryAt.Equal(at.Add(time.Hour+time.Millisecond)) || waits.Attempts != failed.Attempts {
		t.Errorf("after a wait: called until %v, retry at %v, %d attempts, %v", waits.CalledUntil, waits.RetryAt, waits.Attempts, err)
	}
	if last := waits.History[len(waits.History)-1]; last.What != EventWaits || last.Error != "why" {
		t.Errorf("the history says %+v, want why it waits", last)
	}

	// The claim dies: its call may have been made until its lease ended.
	dead := looking.LeaseUntil
	taken, err := rules.Claim(stored(looking), delivery("m3", t0), Lease{Until: dead.Add(time.Hour), ProviderKey: "key-1"}, dead.Add(time.Minute))
	if err != nil || !taken.CalledUntil.Equal(dead) {
		t.Errorf("after a claim that died: %v, %v, want %v", taken.CalledUntil, err, dead)
	}
	if _, err := rules.Postpone(stored(looking), "token-m3", at, "why", at); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("a wait by another delivery: %v", err)
	}

	// An earlier version of the worker wrote the entry.
	old := stored(failed)
	old.CalledUntil = time.Time{}
	if e, err := rules.Claim(old, delivery("m4", t0), lease, at); err != nil || !e.CalledUntil.Equal(at) {
		t.Errorf("without the time of an earlier version: %v, %v, want that of the claim, %v", e.CalledUntil, err, at)
	}
	if done, err := rules.CompleteClaim(stored(taken), delivery("m3", t0), Done, "sent", "req", dead.Add(time.Minute)); err != nil || !done.CalledUntil.IsZero() {
		t.Errorf("at the end: %v, %v, want none", done.CalledUntil, err)
	}
}
