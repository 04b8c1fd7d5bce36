package effect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

const (
	timeout = 5 * time.Second
	skew    = time.Minute
	budget  = 26 * time.Second // the time of an attempt in its invocation
	window  = time.Hour
	settle  = 3 * time.Minute
)

var rules = ledger.Rules{
	Retry:       retry.Policy{Base: 5 * time.Second, Cap: time.Minute, MaxAttempts: 10, AttemptTime: time.Second},
	MaxRedrives: 3, Retention: time.Hour,
}

// book is a ledger in memory, with the store's rules and without its races.
type book struct {
	mu      sync.Mutex
	entry   ledger.Entry
	now     func() time.Time
	calls   []string
	trouble error // the error of every call, if set
	lose    int   // how many calls from now on write and lose their answer
}

func (b *book) call(name string) error {
	b.calls = append(b.calls, name)
	return b.trouble
}

// answer is the error of a call that has written.
func (b *book) answer() error {
	if b.lose == 0 {
		return nil
	}
	b.lose--
	return fmt.Errorf("no answer: %w", ledger.ErrUnavailable)
}

func (b *book) Update(_ context.Context, _, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.call("Update"); err != nil {
		return ledger.Entry{}, err
	}
	next, err := change(b.entry)
	if err != nil {
		return b.entry, err
	}
	next.Owner, next.Version = token, b.entry.Version+1
	b.entry = next
	return next, b.answer()
}

func (b *book) UpdateFrom(ctx context.Context, _ ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return b.Update(ctx, "", token, change)
}

func (b *book) Claim(_ context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (ledger.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.call("Claim"); err != nil {
		return ledger.Entry{}, err
	}
	next, err := rules.Claim(b.entry, d, l, b.now())
	if err != nil {
		return b.entry, &ledger.RefusedError{Entry: b.entry}
	}
	next.Version = b.entry.Version + 1
	b.entry = next
	return next, b.answer()
}

func (b *book) Learn(_ context.Context, rules ledger.Rules, _ string, ev ledger.Evidence) (ledger.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.call("Learn"); err != nil {
		return ledger.Entry{}, err
	}
	next, err := rules.Learn(b.entry, ev)
	if err != nil {
		return b.entry, err
	}
	next.Version++
	b.entry = next
	return next, nil
}

func (b *book) setClock(now func() time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

func (b *book) get() ledger.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entry
}

// stub is a provider whose calls the test decides. It counts the requests that it accepted.
type stub struct {
	can    effect.Abilities
	send   func(ctx context.Context, s *stub) (string, error)
	lookup func(ctx context.Context, s *stub) (string, error)

	mu       sync.Mutex
	accepted int
	keys     []string
	lookups  int
}

func (s *stub) Send(ctx context.Context, key string) (string, error) {
	s.mu.Lock()
	s.keys = append(s.keys, key)
	s.mu.Unlock()
	if s.send != nil {
		return s.send(ctx, s)
	}
	return s.accept(), nil
}

func (s *stub) Lookup(ctx context.Context, _ string) (string, error) {
	s.mu.Lock()
	s.lookups++
	found := s.accepted > 0
	s.mu.Unlock()
	switch {
	case s.lookup != nil:
		return s.lookup(ctx, s)
	case found:
		return "req-1", nil
	}
	return "", effect.ErrNoRequest
}

// accept counts an acceptance, once if the provider deduplicates.
func (s *stub) accept() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted == 0 || !s.can.Deduplicates {
		s.accepted++
	}
	return fmt.Sprint("req-", s.accepted)
}

// desk is a runner on fakes, with the time of the bubble it runs in. Its kind sends notes.
type desk struct {
	*testing.T
	runner   *effect.Runner
	book     *book
	provider *stub
	timeout  time.Duration
	begun    time.Time
	ahead    time.Duration // by how much the runner's clock is ahead
	readings int           // of the runner's clock until it jumps over a minute; 0 is never

	expiresAt time.Time
	drop      string // the outcome of the plan
	planErr   error
	digest    string // of the delivered payload
	memory    job.Memory
}

func newDesk(t *testing.T, can effect.Abilities) *desk {
	d := &desk{T: t, provider: &stub{can: can}, timeout: timeout, begun: time.Now()}
	d.expiresAt = d.begun.Add(48 * time.Hour)
	d.book = &book{now: d.clock}
	d.start()
	return d
}

func (d *desk) clock() time.Time {
	if d.readings > 0 {
		if d.readings--; d.readings == 0 {
			d.ahead += time.Minute
		}
	}
	return time.Now().Add(d.ahead)
}

func (d *desk) start() {
	d.Helper()
	var err error
	d.runner, err = effect.New(effect.Options{
		Stack: "acklast", Ledger: d.book, Rules: rules, Abilities: d.provider.can, Timeout: d.timeout, AttemptLeft: budget,
		LeaseSkew: skew, Now: d.clock, Random: func() float64 { return 0.5 },
	})
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) call() effect.Call {
	return effect.Call{
		ExpiresAt: d.expiresAt, Plan: func(context.Context) (string, error) { return d.drop, d.planErr },
		Send: d.provider.Send, Lookup: d.provider.Lookup,
	}
}

func (d *desk) run(ctx context.Context, token string) job.Result {
	return d.runner.Run(ctx, d.delivery(token), d.call())
}

func (d *desk) delivery(token string) job.Delivery {
	return job.Delivery{
		Message: job.Message{ID: "m-" + token, SentAt: time.Now(), Memory: d.memory}, Envelope: job.Envelope{Kind: "note.send"},
		Key: "note.send/n-1", Subject: "n-1", Token: token, Digest: d.digest,
	}
}

// deliver runs one delivery as the worker does: an attempt, and its failure recorded.
func (d *desk) deliver(token string) job.Result {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), budget+d.ahead) // the deadline is by the same clock
	defer cancel()
	delivery := d.delivery(token)
	res := d.run(ctx, token)
	if res.Verdict == job.Failed && ctx.Err() == nil {
		if _, err := d.book.Update(ctx, "", token, func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Fail(e, delivery, job.AsFailure(res.Err), d.clock(), 0)
		}); err != nil {
			d.Fatalf("record the failure: %v", err)
		}
	}
	return res
}

func (d *desk) want(status ledger.Status, outcome string, accepted int) {
	d.Helper()
	if e := d.book.get(); e.Status != status || e.Outcome != outcome {
		d.Errorf("entry is %s %q, want %s %q: %+v", e.Status, e.Outcome, status, outcome, e)
	}
	if d.provider.accepted != accepted {
		d.Errorf("%d acceptances, want %d", d.provider.accepted, accepted)
	}
}

// lost accepts the request and loses the answer.
func lost(ctx context.Context, s *stub) (string, error) {
	s.accept()
	<-ctx.Done()
	return "", ctx.Err()
}

// stuck neither accepts nor answers.
func stuck(ctx context.Context, _ *stub) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func class(t *testing.T, res job.Result) job.Class {
	t.Helper()
	if res.Verdict != job.Failed {
		t.Fatalf("result %+v, want a failure", res)
	}
	return job.AsFailure(res.Err).Class
}

var (
	all     = effect.Abilities{Deduplicates: true, LooksUp: true, KeyWindow: window}
	settles = effect.Abilities{LooksUp: true, KeyWindow: window, SettleTime: settle}
)

func TestSendsAndIsDoneWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		if res := d.deliver("t1"); res.Verdict != job.Committed || res.Detail != effect.Sent {
			t.Fatalf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
		e := d.book.get()
		if e.Unresolved || len(e.Evidence) != 1 || e.Evidence[0].RequestID != "req-1" || e.ProviderKey == "" || !e.ExpiresAt.Equal(d.expiresAt) {
			t.Errorf("entry %+v", e)
		}
		if got := fmt.Sprint(d.book.calls); got != "[Claim Update]" {
			t.Errorf("ledger calls %s", got)
		}
		for _, token := range []string{"t2", "t3"} {
			if res := d.deliver(token); res.Verdict != job.Duplicate || res.Detail != effect.Sent {
				t.Errorf("a copy: %+v", res)
			}
		}
		if len(d.provider.keys) != 1 || d.provider.lookups != 0 {
			t.Errorf("a copy called the provider: %v", d.provider.keys)
		}
	})
}

func TestExpiredIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		time.Sleep(48 * time.Hour)
		if res := d.deliver("t1"); res.Verdict != job.Committed || res.Detail != effect.TooLate {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Expired, effect.TooLate, 0)
		if len(d.provider.keys) != 0 || d.book.get().Unresolved || d.book.get().ProviderKey != "" {
			t.Errorf("it was claimed or called: %+v", d.book.get())
		}
	})
}

// The clock may pass the expiry after the claim.
func TestExpiredRightBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.expiresAt = d.begun.Add(time.Second)
		d.book.now = func() time.Time { time.Sleep(2 * time.Second); return d.clock() } // the claim is slow
		if res := d.deliver("t1"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Expired, effect.TooLate, 0)
		if d.book.get().Unresolved {
			t.Error("unresolved, although nothing was called")
		}
	})
}

// A plan that drops the job ends it without a claim and without a call.
func TestAPlanDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.drop = "cancelled"
		if res := d.deliver("t1"); res.Verdict != job.Committed || res.Detail != "cancelled" {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Terminal, "cancelled", 0)
		if len(d.provider.keys) != 0 || d.book.get().ProviderKey != "" {
			t.Errorf("claimed or called: %+v", d.book.get())
		}
	})
}

// A delivery with another payload is not a copy of the job that the plan dropped. It would be lost as a duplicate.
func TestAPlanDropsOnlyItsOwnPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ended := range []ledger.Status{ledger.Terminal, ledger.Isolated, ledger.Pending} {
			d := newDesk(t, all)
			d.drop = "cancelled"
			d.book.entry = ledger.Entry{Version: 1, Status: ended, Digest: "1:another"}
			d.digest = "1:mine"
			res := d.run(d.Context(), "t1")
			var conflict *ledger.ConflictError
			if !errors.As(res.Err, &conflict) {
				t.Errorf("the entry is %s: %+v, want a conflict", ended, res)
			}
		}
	})
}

// A plan that fails costs an attempt, without a claim. A job that has ended before is a duplicate.
func TestAPlanFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.planErr = &job.Failure{Class: job.Rejected, Err: errors.New("no such subscription")}
		if got := class(t, d.deliver("t1")); got != job.Rejected {
			t.Errorf("class %s", got)
		}
		d.want(ledger.Isolated, "", 0)
		if d.book.get().Unresolved {
			t.Error("unresolved, although nothing was called")
		}
		d.book.entry = ledger.Entry{Version: 1, Status: ledger.Done, Outcome: effect.Sent}
		if res := d.deliver("t2"); res.Verdict != job.Duplicate {
			t.Errorf("a copy: %+v", res)
		}
	})
}

// The kind's own table is in trouble: no attempt is made, and nothing is written.
func TestAPlanThatSaysNothing(t *testing.T) {
	for err, want := range map[error]job.Verdict{
		fmt.Errorf("read: %w", ledger.ErrUnavailable): job.Unconfirmed,
		fmt.Errorf("read: %w", ledger.ErrContended):   job.Blocked,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, all)
			d.planErr = err
			if res := d.deliver("t1"); res.Verdict != want {
				t.Errorf("%v: %+v", err, res)
			}
			if len(d.book.calls) != 0 {
				t.Errorf("%v: ledger calls %v", err, d.book.calls)
			}
		})
	}
}

// A plan that fails leaves the mark of an earlier call, and the call is looked up first.
func TestAPlanFailsAfterALostAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		send   func(context.Context, *stub) (string, error)
		status ledger.Status
	}{
		"accepted": {lost, ledger.Done},
		"not":      {stuck, ledger.Isolated},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, all)
			d.provider.send = tt.send
			d.deliver("t1")
			d.planErr = &job.Failure{Class: job.Rejected, Err: errors.New("no such subscription")}
			time.Sleep(time.Minute)
			d.deliver("t2")
			if e := d.book.get(); e.Status != tt.status || e.Unresolved != (tt.status == ledger.Isolated) || len(d.provider.keys) != 1 {
				t.Errorf("%s: sends %v, entry %+v", name, d.provider.keys, e)
			}
		})
	}
}

func TestTheProvidersRefusalIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(context.Context, *stub) (string, error) {
			return "", &effect.DeclinedError{Outcome: "no such address"}
		}
		if res := d.deliver("t1"); res.Verdict != job.Committed || res.Detail != "no such address" {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Terminal, "no such address", 0)
	})
}

func TestThrottledWaitsAsLongAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(context.Context, *stub) (string, error) {
			return "", &effect.UnsentError{Err: &job.Failure{Class: job.Throttled, RetryAfter: 10 * time.Minute, Err: errors.New("slow down")}}
		}
		if got := class(t, d.deliver("t1")); got != job.Throttled {
			t.Errorf("class %s", got)
		}
		e := d.book.get()
		if e.Unresolved || e.RetryAt.Before(d.begun.Add(10*time.Minute)) {
			t.Errorf("entry %+v", e)
		}
		d.provider.send = nil
		if res := d.deliver("t2"); res.Verdict != job.Blocked || !res.Until.Equal(e.RetryAt) {
			t.Errorf("a copy before its time: %+v", res)
		}
		time.Sleep(10*time.Minute + time.Millisecond)
		d.deliver("t3")
		d.want(ledger.Done, effect.Sent, 1)
		if d.provider.keys[0] != d.provider.keys[1] {
			t.Errorf("keys %v", d.provider.keys)
		}
	})
}

// The answer is lost after the acceptance: what happens then depends on what the provider can do.
func TestALostAnswer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		can     effect.Abilities
		after   time.Duration
		status  ledger.Status
		lookups int
		sends   int
	}{
		{"looks up", effect.Abilities{LooksUp: true, KeyWindow: window}, time.Minute, ledger.Done, 1, 1},
		{"deduplicates", effect.Abilities{Deduplicates: true, KeyWindow: window}, time.Minute, ledger.Done, 0, 2},
		{"both", all, 10 * time.Minute, ledger.Done, 1, 1},
		{"neither", effect.Abilities{}, time.Minute, ledger.Isolated, 0, 1},
		{"deduplicates, within the window", effect.Abilities{Deduplicates: true, KeyWindow: window}, 10 * time.Minute, ledger.Done, 0, 2},
		{"deduplicates, past the window", effect.Abilities{Deduplicates: true, KeyWindow: window}, window, ledger.Isolated, 0, 1},
		// The request, its timeout and both clocks have to fit into the window.
		{"deduplicates, too near to its end", effect.Abilities{Deduplicates: true, KeyWindow: window}, window - skew - 2*timeout, ledger.Isolated, 0, 1},
		{"looks up past the window, and it is there", all, window, ledger.Done, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, tt.can)
				d.provider.send = lost
				if got := class(t, d.deliver("t1")); got != job.ClassUnknown || !d.book.get().Unresolved {
					t.Fatalf("class %s, entry %+v", got, d.book.get())
				}
				d.provider.send = nil
				time.Sleep(tt.after)
				res := d.deliver("t2")
				d.want(tt.status, map[ledger.Status]string{ledger.Done: effect.Sent}[tt.status], 1)
				if d.provider.lookups != tt.lookups || len(d.provider.keys) != tt.sends {
					t.Errorf("%d look-ups and %d sends, want %d and %d", d.provider.lookups, len(d.provider.keys), tt.lookups, tt.sends)
				}
				if tt.status == ledger.Isolated && class(t, res) != job.Ambiguous {
					t.Errorf("result %+v", res)
				}
			})
		})
	}
}

// The request never arrived: only a provider that deduplicates may be asked again.
func TestALostRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		can      effect.Abilities
		status   ledger.Status
		accepted int
	}{
		"looks up": {effect.Abilities{LooksUp: true, KeyWindow: window}, ledger.Isolated, 0},
		"both":     {all, ledger.Done, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, tt.can)
			d.provider.send = stuck
			d.deliver("t1")
			d.provider.send = nil
			time.Sleep(time.Minute)
			d.deliver("t2")
			if e := d.book.get(); e.Status != tt.status || d.provider.accepted != tt.accepted {
				t.Errorf("%s: %d acceptances, entry %+v", name, d.provider.accepted, e)
			}
		})
	}
}

func TestExpiredDuringReconciliation(t *testing.T) {
	for name, tt := range map[string]struct {
		can    effect.Abilities
		send   func(context.Context, *stub) (string, error)
		status ledger.Status
	}{
		"not found":        {all, stuck, ledger.Isolated},
		"settled":          {settles, stuck, ledger.Expired},
		"not settled yet":  {effect.Abilities{LooksUp: true, KeyWindow: window, SettleTime: 10 * time.Minute}, stuck, ledger.Pending},
		"accepted":         {all, lost, ledger.Done},
		"no look-up":       {effect.Abilities{Deduplicates: true, KeyWindow: window}, stuck, ledger.Isolated},
		"does not dedup":   {effect.Abilities{LooksUp: true, KeyWindow: window}, stuck, ledger.Isolated},
		"neither":          {effect.Abilities{}, stuck, ledger.Isolated},
		"window is so old": {effect.Abilities{LooksUp: true, KeyWindow: time.Minute}, stuck, ledger.Isolated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, tt.can)
				d.expiresAt = d.begun.Add(5 * time.Minute)
				d.provider.send = tt.send
				d.deliver("t1")
				sends := len(d.provider.keys)
				time.Sleep(time.Until(d.expiresAt) - time.Second)
				// The look-up itself lasts until after the expiry.
				d.provider.lookup = func(_ context.Context, s *stub) (string, error) {
					time.Sleep(2 * time.Second)
					if s.accepted > 0 {
						return "req-1", nil
					}
					return "", effect.ErrNoRequest
				}
				if !tt.can.LooksUp {
					time.Sleep(2 * time.Second)
				}
				d.deliver("t2")
				if e := d.book.get(); e.Status != tt.status || len(d.provider.keys) != sends {
					t.Errorf("%d more sends, entry %+v", len(d.provider.keys)-sends, e)
				}
			})
		})
	}
}

// An unwanted reminder with an earlier call of unknown outcome is not simply dropped.
func TestAnUnwantedReminderIsLookedUpFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		can     effect.Abilities
		send    func(context.Context, *stub) (string, error)
		status  ledger.Status
		outcome string
	}{
		"accepted":   {all, lost, ledger.Done, effect.Sent},
		"not found":  {all, stuck, ledger.Isolated, ""},
		"settled":    {settles, stuck, ledger.Terminal, "cancelled"},
		"no look-up": {effect.Abilities{Deduplicates: true, KeyWindow: window}, stuck, ledger.Isolated, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, tt.can)
			d.provider.send = tt.send
			d.deliver("t1")
			d.drop = "cancelled"
			time.Sleep(settle + skew)
			d.deliver("t2")
			if e := d.book.get(); e.Status != tt.status || e.Outcome != tt.outcome || len(d.provider.keys) != 1 {
				t.Errorf("%s: sends %v, entry %+v", name, d.provider.keys, e)
			}
		})
	}
}

// A request whose caller has given up may still be on its way, and no look-up finds it yet. Until it must have arrived, the
// job neither ends nor sends again where that could be a second effect.
func TestARequestThatArrivesLate(t *testing.T) {
	const yet = "the look-up is repeated"
	both := settles
	both.Deduplicates = true
	for _, tt := range []struct {
		name     string
		can      effect.Abilities
		arrives  bool
		wanted   bool
		first    ledger.Status // after the first look-up
		end      ledger.Status
		outcome  string
		accepted int
		sends    int
	}{
		{"unwanted, it arrives", settles, true, false, ledger.Pending, ledger.Done, effect.Sent, 1, 1},
		{"unwanted, it never arrives", settles, false, false, ledger.Pending, ledger.Terminal, "cancelled", 0, 1},
		{"unwanted, deduplicates, it arrives", both, true, false, ledger.Pending, ledger.Done, effect.Sent, 1, 1},
		{"unwanted, nobody knows when it is settled", all, true, false, ledger.Isolated, ledger.Isolated, "", 1, 1},
		{"wanted, it arrives", settles, true, true, ledger.Pending, ledger.Done, effect.Sent, 1, 1},
		{"wanted, it never arrives", settles, false, true, ledger.Pending, ledger.Done, effect.Sent, 1, 2},
		{"wanted, deduplicates, it arrives", both, true, true, ledger.Done, ledger.Done, effect.Sent, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, tt.can)
				d.provider.send = stuck
				d.deliver("t1")
				d.provider.send = nil
				over := time.Now()
				if !tt.wanted {
					d.drop = "cancelled"
				}
				time.Sleep(time.Minute)
				res := d.deliver("t2")
				e := d.book.get()
				if e.Status != tt.first {
					t.Fatalf("after the first look-up: %s, want %s: %+v", e.Status, tt.first, e)
				}
				if e.Status == ledger.Pending {
					if want := over.Add(settle + skew); res.Verdict != job.Blocked || !res.Until.Equal(want) || !e.RetryAt.Equal(want) {
						t.Errorf("it waits until %v (%v), want %v", res.Until, res, want)
					}
					if last := e.History[len(e.History)-1]; last.What != ledger.EventWaits || !strings.Contains(last.Error, yet) {
						t.Errorf("the history says %+v, want why it waits", last)
					}
					if e.Attempts != 1 {
						t.Errorf("%d attempts, want none for the wait", e.Attempts)
					}
					if res := d.deliver("t3"); res.Verdict != job.Blocked || d.provider.lookups != 1 {
						t.Errorf("a copy meanwhile: %+v after %d look-ups", res, d.provider.lookups)
					}
				}
				if tt.arrives {
					d.provider.accept()
				}
				time.Sleep(time.Until(over.Add(settle + skew)))
				d.deliver("t4")
				d.want(tt.end, tt.outcome, tt.accepted)
				if got := len(d.provider.keys); got != tt.sends {
					t.Errorf("%d sends, want %d", got, tt.sends)
				}
				if e := d.book.get(); e.Unresolved != (tt.end == ledger.Isolated) {
					t.Errorf("unresolved %v at the end", e.Unresolved)
				}
			})
		})
	}
}

// A claim whose process died may have made a call until its lease ended. What a claim without a call did meanwhile does
// not prolong the wait.
func TestTheSettleTimeCountsFromTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, settles)
		var over time.Time
		d.provider.send = func(context.Context, *stub) (string, error) {
			d.book.trouble = ledger.ErrUnavailable // nothing is written any more, as if the process were dead
			return "", errors.New("no answer")
		}
		d.run(t.Context(), "t1")
		d.book.trouble, d.provider.send, d.drop = nil, nil, "cancelled"
		over = d.book.get().LeaseUntil
		time.Sleep(time.Until(over))
		d.provider.lookup = func(context.Context, *stub) (string, error) { return "", errors.New("503") }
		d.deliver("t2")
		time.Sleep(time.Minute)
		d.provider.lookup = nil
		want := over.Add(settle + skew)
		if res := d.deliver("t3"); res.Verdict != job.Blocked || !res.Until.Equal(want) {
			t.Errorf("%+v, want it to wait until %v, which is the settle time after the lease's end", res, want)
		}
		time.Sleep(time.Until(want))
		d.deliver("t4")
		d.want(ledger.Terminal, "cancelled", 0)
	})
}

// The answer to the write that lets the job wait is lost: the delivery is left, and the next one waits too.
func TestALostAnswerToAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, settles)
		d.provider.send = stuck
		d.deliver("t1")
		d.drop = "cancelled"
		time.Sleep(time.Minute)
		d.provider.lookup = func(context.Context, *stub) (string, error) {
			d.book.lose = 1
			return "", effect.ErrNoRequest
		}
		if res := d.deliver("t2"); res.Verdict != job.Unconfirmed {
			t.Errorf("result %+v", res)
		}
		if res := d.deliver("t3"); res.Verdict != job.Blocked || d.provider.lookups != 1 {
			t.Errorf("the next: %+v after %d look-ups", res, d.provider.lookups)
		}
	})
}

// The clock may pass the expiry at any moment of an attempt: a job with an open call does not end as expired by it.
func TestTheExpiryPassesInTheMiddleOfAnAttempt(t *testing.T) {
	for _, can := range []effect.Abilities{{Deduplicates: true, KeyWindow: window}, all} {
		for readings := range 15 {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, can)
				d.provider.send = stuck
				d.expiresAt = d.begun.Add(90 * time.Second)
				d.deliver("t1")
				time.Sleep(time.Until(d.begun.Add(80 * time.Second)))
				d.readings = readings
				d.deliver("t2")
				if e := d.book.get(); e.Status.Final() || !e.Unresolved {
					t.Errorf("%+v, the expiry passes at reading %d of the clock: the job ends as %s", can, readings, e.Status)
				}
			})
		}
	}
}

// The answer to a retry proves nothing about an earlier call.
func TestAnEarlierCallStaysUnresolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.provider.send = stuck
		d.deliver("t1")
		for i, err := range []error{
			&effect.UnsentError{Err: &job.Failure{Class: job.Throttled, Err: errors.New("429")}}, errors.New("what nobody classified"),
		} {
			d.provider.send = func(context.Context, *stub) (string, error) { return "", err }
			time.Sleep(time.Minute)
			if d.deliver(fmt.Sprint("u", i)); !d.book.get().Unresolved {
				t.Errorf("after %v: %+v", err, d.book.get())
			}
		}
		d.provider.lookup = func(context.Context, *stub) (string, error) {
			return "", &job.Failure{Class: job.Transient, Err: errors.New("503")}
		}
		time.Sleep(2 * time.Minute)
		sends := len(d.provider.keys)
		if got := class(t, d.deliver("t3")); got != job.Transient || !d.book.get().Unresolved || len(d.provider.keys) != sends {
			t.Errorf("a failed look-up: %s, %+v", got, d.book.get())
		}
	})
}

// An error without a class may be an acceptance; an error with a class is not.
func TestAnUnclassifiedErrorIsUnresolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(context.Context, *stub) (string, error) { return "", errors.New("what?") }
		if got := class(t, d.deliver("t1")); got != job.ClassUnknown || !d.book.get().Unresolved {
			t.Errorf("class %s, %+v", got, d.book.get())
		}
	})
}

func TestALiveLeaseDefersUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		release := make(chan struct{})
		d.provider.send = func(_ context.Context, s *stub) (string, error) {
			<-release
			return s.accept(), nil
		}
		var first job.Result
		go func() { first = d.deliver("t1") }()
		synctest.Wait()
		until := d.begun.Add(budget + skew)
		if e := d.book.get(); !e.LeaseUntil.Equal(until) {
			t.Errorf("lease until %v, want what is left of the invocation and the skew: %v", e.LeaseUntil, until)
		}
		res := d.deliver("t2")
		if res.Verdict != job.Blocked || res.Until.Before(until) || res.Until.After(until.Add(2*time.Second)) {
			t.Errorf("result %+v, want it blocked until %v", res, until)
		}
		if e := d.book.get(); e.Attempts != 0 {
			t.Errorf("an attempt was spent: %+v", e)
		}
		close(release)
		synctest.Wait()
		if first.Verdict != job.Committed {
			t.Errorf("the owner: %+v", first)
		}
		// A running entry without a lease time is not free, ever.
		d.book.entry = ledger.Entry{Version: 1, Status: ledger.Running, Owner: "t1"}
		time.Sleep(24 * time.Hour)
		if res := d.deliver("t3"); res.Verdict != job.Blocked {
			t.Errorf("no lease time: %+v", res)
		}
	})
}

// A worker whose clock is 30 s ahead does not take over as long as the owner can still call.
func TestAClockThatIsAheadTakesOverOnlyAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{}) // no ability of the provider would help
		d.provider.send = stuck
		d.timeout = retry.LongestCall(budget)
		d.start()
		over := make(chan time.Duration, 1)
		go func() {
			d.deliver("t1")
			over <- time.Since(d.begun)
		}()
		synctest.Wait()
		other := *d
		other.ahead = 30 * time.Second
		other.start()
		d.book.setClock(other.clock)
		for {
			select {
			case took := <-over:
				if took != d.timeout {
					t.Errorf("the call took %v", took)
				}
				return
			default:
			}
			if res := other.deliver("t2"); res.Verdict != job.Blocked {
				t.Fatalf("%v after the claim: %+v", time.Since(d.begun), res)
			}
			time.Sleep(time.Second)
		}
	})
}

// The worker stands still after its claim and goes on when the lease is over: it does not call.
func TestAStoppedWorkerDoesNotCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		stopped := true
		d.book.now = func() time.Time {
			now := d.clock()
			if stopped {
				stopped = false
				time.Sleep(budget + skew)
			}
			return now
		}
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		res := d.run(ctx, "t1")
		if res.Verdict != job.Unconfirmed {
			t.Errorf("verdict %v, want an unconfirmed one: %v", res.Verdict, res.Err)
		}
		if len(d.provider.keys) != 0 {
			t.Errorf("sends %v", d.provider.keys)
		}
		if e := d.book.get(); e.Unresolved || e.Status != ledger.Pending {
			t.Errorf("no call was made, but the entry is %+v", e)
		}
	})
}

// The worker stands still in its look-up: it does not call, and the mark of the earlier call stays.
func TestAWorkerThatStoppedInItsLookupDoesNotCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.provider.send = stuck
		d.deliver("t1")
		time.Sleep(time.Minute)
		d.provider.lookup = func(context.Context, *stub) (string, error) {
			time.Sleep(budget + skew)
			return "", effect.ErrNoRequest
		}
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		if res := d.run(ctx, "t2"); res.Verdict != job.Unconfirmed || len(d.provider.keys) != 1 {
			t.Errorf("result %+v, sends %v", res, d.provider.keys)
		}
		if e := d.book.get(); !e.Unresolved || e.Status != ledger.Pending {
			t.Errorf("entry %+v", e)
		}
	})
}

// The owner outlives its lease, and another delivery takes over and completes. Then the answer to the first one
// arrives.
func TestADeliveryThatLostItsLeaseLeavesEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		release := make(chan struct{})
		d.provider.send = func(_ context.Context, s *stub) (string, error) {
			id := s.accept()
			<-release // stopped: it does not even notice its deadline
			return id + "-late", nil
		}
		var first job.Result
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			first = d.run(ctx, "t1")
		}()
		synctest.Wait()
		time.Sleep(budget + skew)
		d.provider.send = nil
		if res := d.deliver("t2"); res.Verdict != job.Committed {
			t.Fatalf("the second: %+v", res)
		}
		close(release)
		synctest.Wait()
		if first.Verdict != job.Unconfirmed || !errors.Is(first.Err, ledger.ErrFinal) {
			t.Errorf("the first: %+v", first)
		}
		d.want(ledger.Done, effect.Sent, 1)
		e := d.book.get()
		if len(e.Evidence) != 2 || e.Evidence[1].RequestID != "req-1-late" || e.Evidence[1].Token != "t1" || e.Owner != "t2" {
			t.Errorf("evidence %+v, owner %s", e.Evidence, e.Owner)
		}

		// The claim is taken over and not finished yet.
		d.book.entry = ledger.Entry{}
		release = make(chan struct{})
		d.provider.send = func(context.Context, *stub) (string, error) { <-release; return "req-9", nil }
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			first = d.run(ctx, "t3")
		}()
		synctest.Wait()
		d.book.mu.Lock()
		d.book.entry.Owner = "t4"
		d.book.mu.Unlock()
		close(release)
		synctest.Wait()
		if e := d.book.get(); !errors.Is(first.Err, ledger.ErrLeaseLost) || e.Status != ledger.Running || e.Owner != "t4" || e.Evidence[0].RequestID != "req-9" {
			t.Errorf("taken over: %+v, %+v", first, e)
		}
	})
}

// A known acceptance is recorded although the lease of its claim has expired.
func TestAnAcceptanceAfterTheLeaseStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(_ context.Context, s *stub) (string, error) {
			time.Sleep(budget + skew + time.Hour)
			return s.accept(), nil
		}
		if res := d.deliver("t1"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

func TestTheLedgersTroubleIsNotTheReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.book.trouble = ledger.ErrUnavailable
		if res := d.deliver("t1"); res.Verdict != job.Unconfirmed || len(d.provider.keys) != 0 {
			t.Errorf("unavailable: %+v", res)
		}
		d.book.trouble = ledger.ErrContended
		if res := d.deliver("t2"); res.Verdict != job.Blocked || len(d.provider.keys) != 0 {
			t.Errorf("contended: %+v", res)
		}
		d.book.trouble = nil
		// There is too little time to wait for the answer: nothing is claimed.
		ctx, cancel := context.WithTimeout(t.Context(), timeout-1)
		defer cancel()
		if res := d.run(ctx, "t3"); res.Verdict != job.Unconfirmed || d.book.get().Version != 0 {
			t.Errorf("no time: %+v, %+v", res, d.book.get())
		}
		// The acceptance is known, its completion failed. The delivery is left, and the next one looks the
		// request up.
		d.provider.send = func(_ context.Context, s *stub) (string, error) {
			d.book.trouble = ledger.ErrUnavailable
			return s.accept(), nil
		}
		if res := d.deliver("t4"); res.Verdict != job.Unconfirmed {
			t.Errorf("completion lost: %+v", res)
		}
		d.book.trouble, d.provider.send = nil, nil
		time.Sleep(budget + skew)
		if res := d.deliver("t5"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// A decision replaces the look-up, once.
func TestADecisionStandsInForTheLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = stuck
		d.deliver("t1")
		time.Sleep(time.Minute)
		if got := class(t, d.deliver("t2")); got != job.Ambiguous {
			t.Fatalf("class %s", got)
		}
		decide := func() {
			t.Helper()
			e, err := rules.Decide(d.book.get(), ledger.Decision{At: time.Now(), By: "ada", What: ledger.NotSent, Reason: "asked"})
			if err == nil {
				e, err = rules.Reopen(e, d.delivery("r"), time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
			d.book.entry = e
		}
		decide()
		d.provider.send = stuck
		if got := class(t, d.deliver("t3")); got != job.ClassUnknown {
			t.Errorf("after the decision it is sent, not looked up: %s", got)
		}
		time.Sleep(time.Minute)
		if got := class(t, d.deliver("t4")); got != job.Ambiguous {
			t.Errorf("the decision was good for one: %s", got)
		}
		decide()
		d.provider.send = nil
		d.deliver("t5")
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// The claim is written and its answer lost, before any call. The next delivery sends without a person's
// decision, also with a provider that has no abilities.
func TestALostAnswerToTheClaimIsNotAmbiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.book.lose = 1
		if res := d.deliver("t1"); res.Verdict != job.Unconfirmed || len(d.provider.keys) != 0 {
			t.Errorf("result %+v, sends %v", res, d.provider.keys)
		}
		if e := d.book.get(); e.Unresolved || e.Status != ledger.Pending {
			t.Errorf("no call was made, but the entry is %+v", e)
		}
		if res := d.deliver("t2"); res.Verdict != job.Committed {
			t.Errorf("the next delivery: %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// unused lets the delivery t1 claim the job. The answer is lost, and then the ledger fails, so that the claim cannot be
// taken back.
func (d *desk) unused() {
	d.Helper()
	d.book.lose = 1
	d.book.now = func() time.Time { now := d.clock(); d.book.trouble = ledger.ErrUnavailable; return now } // from the claim on
	if res := d.deliver("t1"); res.Verdict != job.Unconfirmed || !res.UnusedClaim {
		d.Errorf("result %+v, want an unconfirmed one with an unused claim", res)
	}
	d.book.trouble, d.book.now = nil, d.clock
	if e := d.book.get(); !e.Unresolved || e.Status != ledger.Running {
		d.Errorf("entry %+v, want a claim that stands", e)
	}
}

// The claim's answer is lost, and then the ledger fails. The hand-over names the claim, under which no call was made, and
// the next delivery sends, without a person's decision and before the lease is over.
func TestALostAnswerToTheClaimInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.unused()
		if res := d.deliver("a copy"); res.Verdict != job.Blocked {
			t.Errorf("a delivery that does not know, before the lease is over: %+v", res)
		}
		d.memory.UnusedClaim = "t1"
		d.book.trouble = ledger.ErrUnavailable
		if res := d.deliver("t2"); res.Verdict != job.Unconfirmed || res.UnusedClaim {
			t.Errorf("while the ledger fails: %+v, want an unconfirmed result without a claim", res)
		}
		d.book.trouble = nil
		if res := d.deliver("t3"); res.Verdict != job.Committed {
			t.Errorf("the next delivery: %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// A lost hand-over costs a decision: nothing proves that no call was made.
func TestAnUnusedClaimThatNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.unused()
		time.Sleep(budget + skew + time.Second)
		if got := class(t, d.deliver("t2")); got != job.Ambiguous {
			t.Errorf("after the lease: class %s, want %s", got, job.Ambiguous)
		}
	})
}

// A claim that is in use is not taken back: a hand-over frees the claim that it names, and no other.
func TestAnUnusedClaimFreesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.unused()
		d.memory.UnusedClaim = "t1"
		d.provider.send = func(_ context.Context, s *stub) (string, error) {
			d.provider.send = nil
			if res := d.deliver("t3"); res.Verdict != job.Blocked { // another copy of the hand-over
				t.Errorf("during the call of t2: %+v", res)
			}
			return s.accept(), nil
		}
		if res := d.deliver("t2"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// A look-up that proves that nothing was accepted, and leaves too little time for the call, ends the attempt before the
// call: a call that is cut short has an unknown outcome. The proof stays, so the next attempt sends at once.
func TestALookupThatLeavesTooLittleTimeForTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, settles)
		d.provider.send = stuck
		d.deliver("t1")
		d.provider.send = nil
		time.Sleep(settle + budget + 2*skew)
		d.provider.lookup = func(context.Context, *stub) (string, error) {
			time.Sleep(timeout - time.Second)
			return "", effect.ErrNoRequest
		}
		d.book.setClock(func() time.Time { time.Sleep(budget - 2*timeout + 2*time.Second); return d.clock() }) // the claim leaves less than two calls
		res := d.deliver("t2")
		d.book.setClock(d.clock)
		if got := class(t, res); got != job.Transient {
			t.Errorf("class %s, want %s", got, job.Transient)
		}
		if n := len(d.provider.keys); n != 1 {
			t.Errorf("%d sends, want the first one only", n)
		}
		if d.book.get().Unresolved {
			t.Error("the proof is lost: the entry is unresolved")
		}
		if got := d.book.get().Status; got != ledger.Pending {
			t.Errorf("status %s, want %s", got, ledger.Pending)
		}
		time.Sleep(time.Minute)
		if res := d.deliver("t3"); res.Verdict != job.Committed {
			t.Errorf("the next attempt: %+v", res)
		}
		if d.provider.lookups != 1 {
			t.Errorf("%d look-ups, want 1", d.provider.lookups)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// If the provider deduplicates and the look-up proves nothing, the call is made with what time is left: the outcome is
// unknown already, and a second request cannot have a second effect.
func TestALookupThatIsNoProofLeavesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.provider.send = stuck
		d.deliver("t1")
		d.provider.send = nil
		time.Sleep(time.Minute)
		d.provider.lookup = func(context.Context, *stub) (string, error) {
			time.Sleep(timeout - time.Second)
			return "", effect.ErrNoRequest
		}
		d.book.setClock(func() time.Time { time.Sleep(budget - 2*timeout + 2*time.Second); return d.clock() })
		if res := d.deliver("t2"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// Only a delivery that has taken the unused claim back says so, also if its job goes on to wait, or ends without a claim.
func TestAnUnusedClaimIsTakenBackOnce(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*desk)
		verdict job.Verdict
		calls   string
	}{
		"sent":            {func(*desk) {}, job.Committed, "[Update Claim Update]"},
		"no subscription": {func(d *desk) { d.planErr = errors.New("not found") }, job.Failed, "[Update Update Update]"},
		"no table":        {func(d *desk) { d.planErr = ledger.ErrUnavailable }, job.Unconfirmed, "[Update]"},
		"expired":         {func(d *desk) { d.expiresAt = d.begun }, job.Committed, "[Update Update]"},
		"throttled": {func(d *desk) {
			d.provider.send = func(context.Context, *stub) (string, error) {
				return "", &effect.UnsentError{Err: &job.Failure{Class: job.Throttled, Err: errors.New("429")}}
			}
		}, job.Failed, "[Update Claim Update]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, effect.Abilities{})
				d.unused()
				d.memory.UnusedClaim = "t1"
				d.book.calls = nil
				c.prepare(d)
				res := d.deliver("t2")
				if res.Verdict != c.verdict {
					t.Errorf("verdict %v, want %v: %v", res.Verdict, c.verdict, res.Err)
				}
				if !res.ClaimTakenBack {
					t.Error("it does not say that the claim no longer stands")
				}
				if got := fmt.Sprint(d.book.calls); got != c.calls {
					t.Errorf("ledger calls %s, want %s", got, c.calls)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.unused()
		d.memory.UnusedClaim = "t1"
		d.book.trouble = ledger.ErrUnavailable
		if d.deliver("t2").ClaimTakenBack {
			t.Error("the ledger failed, and the claim counts as taken back")
		}
		d.book.trouble, d.memory.UnusedClaim = nil, ""
		if d.deliver("t3").ClaimTakenBack {
			t.Error("a delivery without an unused claim says that one was taken back")
		}
	})
}

// A claim that left too little time for the call is taken back: a call that is cut short has an unknown outcome. That is
// the ledger's trouble: no attempt is spent, and the hand-over counts it.
func TestAClaimThatLeavesTooLittleTimeForItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.book.setClock(func() time.Time { time.Sleep(budget - timeout + time.Second); return d.clock() }) // the claim is slow
		res := d.deliver("t1")
		if res.Verdict != job.Unconfirmed {
			t.Errorf("verdict %v, want an unconfirmed one: %v", res.Verdict, res.Err)
		}
		if !errors.Is(res.Err, ledger.ErrUnavailable) {
			t.Errorf("%v, want it to be the ledger's trouble", res.Err)
		}
		if res.UnusedClaim {
			t.Error("the hand-over names a claim that was taken back")
		}
		if len(d.provider.keys) != 0 {
			t.Errorf("it was sent with too little time: %v", d.provider.keys)
		}
		if e := d.book.get(); e.Unresolved || e.Status != ledger.Pending || e.Attempts != 0 {
			t.Errorf("no call was made, but the entry is %+v", e)
		}
		d.book.setClock(d.clock)
		if res := d.deliver("t2"); res.Verdict != job.Committed {
			t.Errorf("the next delivery: %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// A claim that is taken back leaves the mark of an earlier call.
func TestALostAnswerToTheClaimAfterALostAnswerOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = lost
		d.deliver("t1")
		d.provider.send = nil
		time.Sleep(time.Minute)
		d.book.lose = 1
		if res := d.deliver("t2"); res.Verdict != job.Unconfirmed {
			t.Errorf("result %+v", res)
		}
		if got := class(t, d.deliver("t3")); got != job.Ambiguous {
			t.Errorf("class %s", got)
		}
		d.want(ledger.Isolated, "", 1)
	})
}

// The provider has to remember the key from the first call that may have been accepted.
func TestTheKeysWindowCountsFromTheFirstOpenCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{Deduplicates: true, KeyWindow: window})
		d.provider.send = func(context.Context, *stub) (string, error) {
			return "", &effect.UnsentError{Err: &job.Failure{Class: job.Throttled, RetryAfter: 50 * time.Minute, Err: errors.New("429")}}
		}
		d.deliver("t1")
		time.Sleep(50*time.Minute + time.Millisecond)
		d.provider.send = lost
		d.deliver("t2")
		d.provider.send = nil
		time.Sleep(window / 2) // more than the window since the first claim, less since the open call
		if res := d.deliver("t3"); res.Verdict != job.Committed {
			t.Errorf("result %+v", res)
		}
		d.want(ledger.Done, effect.Sent, 1)
	})
}

// A look-up without an id proves nothing, whatever else the kind returns.
func TestALookupWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, all)
		d.provider.send = stuck
		d.deliver("t1")
		d.provider.lookup = func(context.Context, *stub) (string, error) { return "", nil }
		time.Sleep(time.Minute)
		if got := class(t, d.deliver("t2")); got != job.Transient || !d.book.get().Unresolved {
			t.Errorf("class %s, entry %+v", got, d.book.get())
		}
	})
}

// An error with a class that is not an UnsentError counts as possibly accepted.
func TestOnlyUnsentIsUnsent(t *testing.T) {
	for _, class := range []job.Class{job.Transient, job.Throttled, job.Rejected} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, effect.Abilities{})
			d.provider.send = func(context.Context, *stub) (string, error) {
				return "", &job.Failure{Class: class, Err: errors.New("who knows")}
			}
			if d.deliver("t1"); !d.book.get().Unresolved {
				t.Errorf("%s: %+v", class, d.book.get())
			}
		})
	}
}

// A provider's id comes from outside: its length is bounded before it is stored.
func TestARequestIDIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(context.Context, *stub) (string, error) { return strings.Repeat("x\x00", 10_000), nil }
		if res := d.deliver("t1"); res.Verdict != job.Committed {
			t.Fatalf("result %+v", res)
		}
		if id := d.book.get().Evidence[0].RequestID; len(id) > 1024 || strings.Contains(id, "\x00") {
			t.Errorf("an id of %d bytes: %q", len(id), id[:20])
		}
	})
}

// Trouble with a table inside Send fails the attempt. The worker must not take it for the ledger's trouble,
// since the claim has to end.
func TestSendsOwnTroubleIsNotTheLedgers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, effect.Abilities{})
		d.provider.send = func(context.Context, *stub) (string, error) {
			return "", &effect.UnsentError{Err: fmt.Errorf("read the template: %w", ledger.ErrUnavailable)}
		}
		res := d.deliver("t1")
		if got := class(t, res); got != job.ClassUnknown {
			t.Errorf("class %s", got)
		}
		if errors.Is(res.Err, ledger.ErrUnavailable) {
			t.Errorf("%v counts as the ledger's trouble", res.Err)
		}
	})
}
