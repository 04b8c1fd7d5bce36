package effect_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

var t0 = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// world runs deliveries of one job step by step, in any order. Each stops before and after every call that it
// makes. Then it goes on, dies, or gets the answer that the test chooses. The provider counts its acceptances.
type world struct {
	t     *rapid.T
	can   effect.Abilities
	now   time.Time
	entry ledger.Entry
	drop  bool // the effect is not wanted
	tasks []*task
	names int
	// unused are the claims that deliveries could not take back, as their hand-overs name them.
	unused []string

	// The requests that the provider has accepted, whether it has refused one for good, and those that are still on
	// their way although their sender gave up.
	accepted   int
	acceptedAt time.Time
	declinedAt time.Time
	travelling []request

	steps  map[string]int // what happened, so that the test can check that it covers enough
	broken string         // broken promises
}

// request is on its way. It arrives before its settle time is over, or never.
type request struct{ by time.Time }

// task is one delivery at work, in one invocation.
type task struct {
	w      *world
	id     string
	sentAt time.Time
	at     string        // where it stopped; "" when it has ended
	parked chan struct{} // it has stopped, or has ended
	resume chan int      // how it goes on
	ends   time.Time     // of its invocation
	unused string        // the claim that its message names
}

// How a stopped task goes on.
const (
	die = iota - 1
	goOn
	// At a call to the ledger.
	lostBefore // nothing was written, no answer
	lostAfter  // it was written, no answer
)

// At a call to the provider.
const (
	sendOK        = iota // accepted and answered
	sendLost             // accepted, no answer
	sendVanish           // never arrives, no answer
	sendTravel           // no answer, and it arrives later
	sendThrottled        // refused for now
	sendDeclined         // refused for good
	sendChoices
)

func (k *task) stop(at string) int {
	k.at = at
	k.parked <- struct{}{}
	choice := <-k.resume
	if choice == die {
		k.at = ""
		runtime.Goexit()
	}
	return choice
}

var errLost = fmt.Errorf("no answer: %w", ledger.ErrUnavailable)

// ledgerCall stops before and after a write.
func (k *task) ledgerCall(name string, write func()) error {
	if k.stop("before "+name) == lostBefore {
		return errLost
	}
	write()
	if k.stop("after "+name) == lostAfter {
		return errLost
	}
	return nil
}

func (k *task) Update(_ context.Context, _, token string, change func(ledger.Entry) (ledger.Entry, error)) (e ledger.Entry, err error) {
	if lost := k.ledgerCall("update", func() {
		e = k.w.entry
		var next ledger.Entry
		if next, err = change(e); err == nil {
			next.Owner, next.Version = token, e.Version+1
			e, k.w.entry = next, next
		}
	}); lost != nil {
		return ledger.Entry{}, lost
	}
	return e, err
}

func (k *task) UpdateFrom(ctx context.Context, _ ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return k.Update(ctx, "", token, change)
}

func (k *task) Claim(_ context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (e ledger.Entry, err error) {
	if lost := k.ledgerCall("claim", func() {
		next, refused := rules.Claim(k.w.entry, d, l, k.w.now)
		if refused != nil {
			err = &ledger.RefusedError{Entry: k.w.entry}
			if errors.Is(refused, ledger.ErrSpent) {
				err = refused
			}
			return
		}
		next.Version++
		e, k.w.entry = next, next
		if e.UnresolvedBefore() {
			k.w.steps["claimed unresolved"]++
		}
	}); lost != nil {
		return ledger.Entry{}, lost
	}
	return e, err
}

func (k *task) Learn(_ context.Context, rules ledger.Rules, _ string, ev ledger.Evidence) (e ledger.Entry, err error) {
	if lost := k.ledgerCall("learn", func() {
		if e, err = rules.Learn(k.w.entry, ev); err == nil {
			e.Version++
			k.w.entry = e
		}
	}); lost != nil {
		return ledger.Entry{}, lost
	}
	return e, err
}

func (k *task) plan(context.Context) (string, error) {
	if k.w.drop {
		return "cancelled", nil
	}
	return "", nil
}

func (k *task) Send(context.Context, string) (string, error) {
	noAnswer := &job.Failure{Class: job.Transient, Err: errors.New("no answer")}
	w := k.w
	switch k.stop("send") { // for as long as the test likes: the write may be under way when its time is over
	case sendOK:
		w.accept()
		refused := w.declined()
		k.stop("answered")
		if refused {
			return "", &effect.DeclinedError{Outcome: "declined"}
		}
		return "req", nil
	case sendLost:
		w.accept()
		w.steps["answer lost"]++
	case sendTravel:
		w.travelling = append(w.travelling, request{k.latest(w.now)})
	case sendDeclined:
		if w.can.Deduplicates && w.accepted > 0 && w.remembers() {
			w.steps["deduplicated"]++
			return "req", nil
		}
		w.declinedAt = w.now
		w.steps["declined"]++
		return "", &effect.DeclinedError{Outcome: "declined"}
	case sendThrottled:
		return "", &effect.UnsentError{Err: &job.Failure{Class: job.Throttled, Err: errors.New("429")}}
	}
	return "", noAnswer
}

func (k *task) Lookup(context.Context, string) (string, error) {
	if k.stop("look-up") != goOn {
		return "", &job.Failure{Class: job.Transient, Err: errors.New("no answer")}
	}
	w := k.w
	w.steps["look-up"]++
	switch {
	case w.accepted > 0 && w.remembers():
		return "req", nil
	case w.declined():
		return "", &effect.DeclinedError{Outcome: "declined"}
	}
	return "", effect.ErrNoRequest
}

// declined says whether the provider answers the next request with its refusal of an earlier one.
func (w *world) declined() bool {
	return w.can.Deduplicates && w.accepted == 0 && !w.declinedAt.IsZero() && w.now.Before(w.declinedAt.Add(w.can.KeyWindow))
}

func (w *world) remembers() bool { return w.now.Before(w.acceptedAt.Add(w.can.KeyWindow)) }

// accept is called for each request that reaches the provider. It counts the acceptances.
func (w *world) accept() {
	if w.can.Deduplicates && w.accepted > 0 && w.remembers() {
		w.steps["deduplicated"]++
		return
	}
	if w.declined() {
		w.steps["refused again"]++
		return
	}
	w.accepted++
	w.acceptedAt = w.now
	switch e := w.entry; {
	case w.accepted > 1:
		w.broken = fmt.Sprintf("accepted %d times; entry %+v", w.accepted, e) // set by the test
	case e.Status == ledger.Expired, e.Status == ledger.Terminal:
		w.broken = fmt.Sprintf("accepted although it ended as %s, %s: %+v", e.Status, e.Outcome, e)
	}
}

// arrive lets a request that was on its way arrive, or get lost.
func (w *world) arrive(i int, lost bool) {
	w.travelling = append(w.travelling[:i:i], w.travelling[i+1:]...)
	if !lost {
		w.accept()
		w.check()
	}
}

// invocation is a context that ends at a time of the world's clock.
type invocation struct {
	context.Context
	ends time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.ends, true }

// begin starts a delivery, which stops before its first call.
func (w *world) begin() {
	w.names++
	k := &task{w: w, id: fmt.Sprint("m", w.names), sentAt: w.now, parked: make(chan struct{}), resume: make(chan int), ends: w.now.Add(budget)}
	if len(w.unused) > 0 && rapid.Bool().Draw(w.t, "handed over") {
		k.unused = rapid.SampledFrom(w.unused).Draw(w.t, "unused claim")
		w.steps["handed over"]++
	}
	w.tasks = append(w.tasks, k)
	go func() {
		defer func() { k.at = ""; k.parked <- struct{}{} }()
		k.stop("beginning")
		k.work()
	}()
	<-k.parked
}

// work does with a delivery what the worker does.
func (k *task) work() {
	w := k.w
	d := job.Delivery{
		Message: job.Message{ID: k.id, SentAt: k.sentAt, Memory: job.Memory{UnusedClaim: k.unused}}, Envelope: job.Envelope{Kind: "note.send"}, // no deadline: the count alone bounds the attempts
		Key: "note.send/n-1", Subject: "n-1", Token: "token-" + k.id,
	}
	x, err := effect.New(effect.Options{
		Stack: "s", Ledger: k, Rules: rules, Abilities: w.can, Timeout: timeout, AttemptLeft: budget, LeaseSkew: skew,
		Now: func() time.Time { return w.now }, Random: func() float64 { return 0 },
	})
	if err != nil {
		panic(err)
	}
	call := effect.Call{ExpiresAt: t0.Add(3 * time.Hour), Plan: k.plan, Send: k.Send, Lookup: k.Lookup}
	ctx := invocation{context.Background(), k.ends}
	for range 2 {
		res := x.Run(ctx, d, call)
		w.steps[fmt.Sprint("verdict ", res.Verdict)]++
		if res.UnusedClaim {
			w.unused = append(w.unused, d.Token)
		}
		if h := w.entry.History; len(h) > 0 && h[len(h)-1].What == ledger.EventWaits {
			w.steps["waits"]++
		}
		switch res.Verdict {
		case job.Failed:
			f := job.AsFailure(res.Err)
			w.steps[string(f.Class)]++
			if !w.now.After(k.ends) {
				_, _ = k.Update(ctx, "", d.Token, func(e ledger.Entry) (ledger.Entry, error) { return rules.Fail(e, d, f, w.now, 0) })
			}
			return
		case job.FoundIsolated:
			// The message on the DLQ has this memory.
			d.Memory = job.Memory{UnusedClaim: k.unused, MessageID: w.entry.IsolatedFirstID, Cause: w.entry.Cause, At: w.entry.IsolatedAt}
			if rules.Arrive(w.entry, d) != ledger.PutBack {
				return
			}
			if _, err := k.Update(ctx, "", d.Token, func(e ledger.Entry) (ledger.Entry, error) { return rules.Reopen(e, d, w.now) }); err != nil {
				return
			}
			w.steps["put back"]++
		default:
			return
		}
	}
}

// step lets a task go on until it stops again.
func (w *world) step(k *task, choice int) {
	k.resume <- choice
	<-k.parked
	defer w.check()
	if k.at == "" {
		for i, other := range w.tasks {
			if other == k {
				w.tasks = append(w.tasks[:i:i], w.tasks[i+1:]...)
				break
			}
		}
	}
}

func (w *world) check() {
	if w.broken != "" {
		w.t.Fatal(w.broken)
	}
}

// uncertain says whether a request may still reach the provider.
func (w *world) uncertain() bool {
	for _, k := range w.tasks {
		if k.at == "send" {
			return true
		}
	}
	return len(w.travelling) > 0
}

// decide is the person on call, who asks the provider's support and gets the truth. People wait until no
// request can be under way any more; docs/reminders.md says how long.
func (w *world) decide(drop bool) {
	if w.uncertain() || w.entry.Status != ledger.Isolated || w.entry.LastClass != job.Ambiguous || w.entry.Decided != "" {
		return
	}
	what := ledger.NotSent
	switch {
	case w.accepted > 0:
		what = ledger.Sent
	case drop:
		what = ledger.Drop
	}
	e, err := rules.Decide(w.entry, ledger.Decision{At: w.now, By: "ada", What: what, Reason: "asked"})
	if err != nil {
		return
	}
	e.Version++
	w.entry = e
	w.steps["decided "+string(what)]++
}

// latest is the latest time at which a request can arrive whose call ends at the given time: one settle time later. A
// call ends with the task's invocation, even if the task stands still then.
func (k *task) latest(ended time.Time) time.Time {
	if end := k.ends.Add(skew); end.Before(ended) {
		ended = end
	}
	return ended.Add(k.w.can.SettleTime)
}

// pass lets time pass. No request travels, and no process stands still within one, for as long as a provider
// remembers a key. If the provider has a settle time, every request arrives within it or never. It counts from the end of
// the call, at the latest from that of its lease, at which its process ends.
func (w *world) pass(d time.Duration) {
	to := w.now.Add(d)
	if w.can.SettleTime == 0 {
		if d >= window/4 && w.uncertain() {
			to = w.now.Add(time.Minute)
		}
		w.now = to
		return
	}
	for {
		at, happens := to, func() {}
		for i, r := range w.travelling {
			if r.by.Before(at) {
				at, happens = r.by, func() { w.arrive(i, rapid.Bool().Draw(w.t, "lost")) }
			}
		}
		for _, k := range w.tasks {
			if by := k.latest(to); k.at == "send" && by.Before(at) {
				at, happens = by, func() {
					if rapid.Bool().Draw(w.t, "arrives") {
						w.accept()
					}
					w.step(k, die)
				}
			}
		}
		if w.now = at; !at.Before(to) {
			return
		}
		happens()
	}
}

// For any events in any order, there is at most one acceptance, and the entry says it, or the job is isolated as
// ambiguous.
func TestNeverTwice(t *testing.T) {
	t.Parallel()
	for _, can := range []effect.Abilities{
		{}, {Deduplicates: true, KeyWindow: window}, {LooksUp: true, KeyWindow: window}, {Deduplicates: true, LooksUp: true, KeyWindow: window},
		settles, {Deduplicates: true, LooksUp: true, KeyWindow: window, SettleTime: settle},
	} {
		t.Run(fmt.Sprintf("deduplicates %v, looks up %v, settles in %v", can.Deduplicates, can.LooksUp, can.SettleTime), func(t *testing.T) {
			t.Parallel()
			steps := map[string]int{}
			for range 5 { // a history takes a millisecond, and the rare ones matter
				rapid.Check(t, func(t *rapid.T) { history(t, can, steps) })
			}
			t.Logf("%v", steps)
			want := []string{"answer lost", "claimed unresolved", "put back", "throttled", "transient", "handed over"}
			if can.Deduplicates && !can.LooksUp {
				want = append(want, "deduplicated")
			}
			if can.LooksUp {
				want = append(want, "look-up")
			}
			if can.SettleTime > 0 {
				want = append(want, "waits")
			} else {
				want = append(want, "ambiguous", "decided sent", "decided not-sent")
			}
			for _, what := range want {
				if steps[what] == 0 {
					t.Errorf("never happened: %s", what)
				}
			}
		})
	}
}

func history(t *rapid.T, can effect.Abilities, steps map[string]int) {
	w := &world{t: t, can: can, now: t0, steps: steps}
	defer func() {
		w.broken = ""
		for len(w.tasks) > 0 {
			w.step(w.tasks[0], die)
		}
	}()
	w.begin()
	for range rapid.IntRange(5, 150).Draw(t, "steps") {
		switch act := rapid.IntRange(0, 19).Draw(t, "act"); {
		case act < 2:
			w.begin() // a copy, a redelivery and a redrive are the same to the job
		case act == 2:
			w.pass(time.Second)
		case act == 3:
			w.pass(2 * time.Minute) // past a lease
		case act == 4:
			w.pass(rapid.SampledFrom([]time.Duration{10 * time.Minute, window, 4 * time.Hour}).Draw(t, "long"))
		case act == 5:
			w.decide(rapid.Bool().Draw(t, "drop"))
		case act == 6 && len(w.travelling) > 0:
			w.arrive(rapid.IntRange(0, len(w.travelling)-1).Draw(t, "request"), false)
		case act == 7:
			w.drop = rapid.Bool().Draw(t, "drop")
		default:
			if len(w.tasks) == 0 {
				w.begin()
				continue
			}
			k := w.tasks[rapid.IntRange(0, len(w.tasks)-1).Draw(t, "task")]
			// Mostly it goes on. Otherwise most histories would end too soon.
			choice := goOn
			if n := rapid.IntRange(0, 9).Draw(t, "fate"); n == 0 {
				choice = die
			} else if k.at == "send" {
				choice = n % sendChoices
			} else if n > 7 {
				choice = n - 7
			}
			w.step(k, choice)
		}
	}

	// From here on nothing breaks, so that every delivery ends.
	for len(w.tasks) > 0 {
		w.step(w.tasks[0], goOn)
	}
	for len(w.travelling) > 0 {
		w.arrive(0, false)
	}
	for range 40 {
		if w.entry.Status.Final() || w.entry.Status == ledger.Isolated && w.entry.Redrives >= rules.MaxRedrives {
			break
		}
		w.decide(false)
		w.pass(2 * time.Minute)
		w.begin()
		for len(w.tasks) > 0 {
			w.step(w.tasks[0], goOn)
		}
	}
	e := w.entry
	switch {
	case e.Status == ledger.Done:
		if w.accepted != 1 {
			t.Fatalf("done with %d acceptances: %+v", w.accepted, e)
		}
	case e.Status.Final():
		if w.accepted != 0 {
			t.Fatalf("it ended as %s, %s, with %d acceptances: %+v", e.Status, e.Outcome, w.accepted, e)
		}
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous: // and a person has to decide
	case e.Status == ledger.Isolated && e.Redrives >= rules.MaxRedrives:
	default:
		t.Fatalf("it comes to no end: %+v", e)
	}
}
