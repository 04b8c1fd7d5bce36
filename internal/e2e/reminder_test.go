package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/local/faults"
	"acklast/internal/marks"
)

// The abilities of the provider beside the worker.
var (
	able   = fakeprovider.Options{Deduplicates: true, LooksUp: true}
	looks  = fakeprovider.Options{LooksUp: true}
	unable = fakeprovider.Options{}
)

// reminders is a stack whose provider has the given abilities.
func reminders(t *testing.T, can fakeprovider.Options, more ...func(*local.Config)) *embedded {
	t.Helper()
	return newEmbedded(t, append([]func(*local.Config){func(c *local.Config) {
		c.Provider = can
		// A call may take the time between the margins. On a busy machine 0.3 s would be too short, without a
		// fault of the provider.
		c.Settings.StartMargin = 1300 * time.Millisecond
	}}, more...)...)
}

// recipientMark is in every recipient, so that the logs can be searched for it.
var recipientMark = marks.New("recipient")

// reminder describes a wanted reminder. Its recipient has its name, since the provider counts by the recipient.
func (e *embedded) reminder(name string) reminder.Payload {
	e.Helper()
	p := reminder.Payload{
		ReminderID: name + "-" + e.id, SubscriptionID: "sub-" + name + "-" + e.id, Channel: reminder.Email,
		Template: "renewal", TemplateVersion: "v3", Recipient: name + "-" + recipientMark + "@example.test", Plan: "pro",
		RenewsAt: time.Now().Add(72 * time.Hour).Truncate(time.Millisecond), ExpiresAt: time.Now().Add(time.Hour).Truncate(time.Millisecond),
	}
	e.subscribe(p, func(*reminder.Subscription) {})
	return p
}

func (e *embedded) subscribe(p reminder.Payload, change func(*reminder.Subscription)) {
	e.Helper()
	s := reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}
	change(&s)
	if err := reminder.NewSubscriptions(e.db, e.names.Table("subscriptions")).Put(e.Context(), s); err != nil {
		e.Fatal(err)
	}
}

// remind sends the job n times at once and returns its key.
func (e *embedded) remind(p reminder.Payload, n int) string {
	e.Helper()
	body, err := p.Job(time.Time{})
	if err != nil {
		e.Fatal(err)
	}
	key, err := p.Key()
	if err != nil {
		e.Fatal(err)
	}
	moves := make([]lanes.Move, n)
	for i := range moves {
		moves[i].Message.Body = body
	}
	for _, err := range e.queues.Send(e.Context(), job.Source, moves) {
		if err != nil {
			e.Fatal(err)
		}
	}
	return key
}

// comesTo waits until the entry has the status and returns it.
func (e *embedded) comesTo(key string, status ledger.Status) (got ledger.Entry) {
	e.Helper()
	e.until(fmt.Sprintf("%s is %s", key, status), func() bool { got = e.entry(key); return got.Status == status })
	return got
}

func (e *embedded) wantAccepted(p reminder.Payload, want int) []fakeprovider.Acceptance {
	e.Helper()
	got := e.env.Provider().Accepted(p.Recipient)
	if len(got) != want {
		e.Errorf("%s: %d acceptances, want %d: %+v", p.ReminderID, len(got), want, got)
	}
	return got
}

// busy returns the process that runs the only invocation.
func (e *embedded) busy() int {
	if at := e.env.Invoking(); len(at) == 1 {
		return at[0]
	}
	e.Errorf("processes %v are at work, want one", e.env.Invoking())
	return 0
}

// The calls of the happy path: two to the ledger and one read of the subscription.
func TestReminderTakesTwoLedgerCallsAndOneRead(t *testing.T) {
	e := reminders(t, unable)
	p := e.reminder("plain")
	key := e.remind(p, 1)
	got := e.comesTo(key, ledger.Done)
	e.dry()
	if calls := fmt.Sprint(e.calls()); calls != "map[GetItem:1 UpdateItem:2]" {
		t.Errorf("the worker's calls: %s", calls)
	}
	a := e.wantAccepted(p, 1)
	if got.Outcome != reminder.Sent || got.Attempts != 0 || got.Unresolved || got.Evidence[0].RequestID != a[0].RequestID || a[0].Key != got.ProviderKey {
		t.Errorf("entry %+v, acceptance %+v", got, a)
	}

	// A copy after the end makes no request to the provider.
	sends, lookups := e.env.Provider().Requests()
	e.remind(p, 1)
	e.until("the copy is handled", func() bool { return e.tally.Of(key)[local.Duplicate] == 1 })
	if s, l := e.env.Provider().Requests(); s != sends || l != lookups {
		t.Errorf("a copy made %d requests and %d look-ups", s-sends, l-lookups)
	}
	e.dry()
	e.wantDLQ(0)
}

// The worker is killed after the provider has accepted and before the completion is written.
func TestReminderKilledAfterTheAcceptance(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		can    fakeprovider.Options
		status ledger.Status
	}{
		"deduplicates and looks up": {able, ledger.Done},
		"looks up":                  {looks, ledger.Done},
		"deduplicates":              {fakeprovider.Options{Deduplicates: true}, ledger.Done},
		"neither":                   {unable, ledger.Isolated},
	} {
		t.Run(name, func(t *testing.T) {
			e := reminders(t, tt.can)
			killed := make(chan struct{})
			p := e.reminder("killed")
			e.env.Provider().Add(fakeprovider.Rule{Recipient: p.Recipient, Times: 1, Accepted: func() {
				e.env.Kill(e.busy())
				close(killed)
			}})
			key := e.remind(p, 1)
			<-killed
			if got := e.entry(key); got.Status != ledger.Running || !got.Unresolved || len(got.Evidence) != 0 {
				t.Errorf("after the kill: %+v", got)
			}
			got := e.comesTo(key, tt.status)
			e.dry()
			a := e.wantAccepted(p, 1)
			if tt.status == ledger.Isolated {
				if got.LastClass != job.Ambiguous || got.Cause != job.CauseAmbiguous || !got.Unresolved {
					t.Errorf("entry %+v", got)
				}
				e.wantDLQ(1)
				return
			}
			if got.Evidence[0].RequestID != a[0].RequestID {
				t.Errorf("entry %+v, acceptance %+v", got, a)
			}
			if n := e.tally.Effects(key); n != 1 {
				t.Errorf("%d deliveries took effect", n)
			}
			e.wantDLQ(0)
		})
	}
}

// A worker is stopped in the middle of its call and outlives its lease. Another one completes the job, and then
// the first one goes on.
func TestReminderOfAStoppedWorker(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		can   fakeprovider.Options
		after bool // stopped after the acceptance, not before
	}{
		"before the acceptance": {able, false},
		"after the acceptance":  {looks, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := reminders(t, tt.can)
			e.env.KillOnTimeout(false)
			stopped, wake := make(chan int, 1), make(chan struct{})
			stop := func() {
				process := e.busy()
				e.env.Suspend(process)
				stopped <- process
				<-wake
			}
			p := e.reminder("stopped")
			rule := fakeprovider.Rule{Recipient: p.Recipient, Times: 1, Arrived: stop}
			if tt.after {
				rule.Arrived, rule.Accepted = nil, stop
			}
			e.env.Provider().Add(rule)
			key := e.remind(p, 1)
			process := <-stopped
			first := e.entry(key)
			got := e.comesTo(key, ledger.Done)
			if got.Owner == first.Owner || got.FinalAt.Before(first.LeaseUntil) {
				t.Errorf("completed by %s at %v, the stopped %s had it until %v", got.Owner, got.FinalAt, first.Owner, first.LeaseUntil)
			}
			e.wantAccepted(p, 1)
			close(wake)
			e.env.Continue(process)
			// Its time is long over, so it leaves the message or hands it back: whichever it still manages.
			e.until("the first one is done with it too", func() bool {
				of := e.tally.Of(key)
				return of[string(job.Left)]+of[string(job.Deferred)] == 1
			})
			e.wantAccepted(p, 1)
			if again := e.entry(key); again.Status != ledger.Done || again.Owner != got.Owner || !again.FinalAt.Equal(got.FinalAt) {
				t.Errorf("the first one changed the end: %+v, was %+v", again, got)
			}
			e.dry()
			e.wantDLQ(0)
		})
	}
}

func TestFiftyConcurrentDeliveriesOfAReminder(t *testing.T) {
	e := reminders(t, unable) // only the ledger keeps them apart
	e.env.Pause(job.Source)
	p := e.reminder("copied")
	key := e.remind(p, 50)
	e.env.Resume(job.Source)
	e.comesTo(key, ledger.Done)
	e.until("all are acknowledged", func() bool {
		got := e.tally.Of(key)
		return got[string(job.Acknowledged)]+got[local.Duplicate] >= 50
	})
	e.dry()
	e.wantAccepted(p, 1)
	if sends, _ := e.env.Provider().Requests(); sends != 1 {
		t.Errorf("%d requests at the provider", sends)
	}
	if got := e.entry(key); got.Attempts != 0 {
		t.Errorf("waiting for a lease spent attempts: %+v", got)
	}
	e.wantDLQ(0)
}

func TestReminderAttemptsSurviveARestart(t *testing.T) {
	e := reminders(t, able)
	p := e.reminder("failing")
	e.env.Provider().Add(fakeprovider.Rule{Recipient: p.Recipient, Do: fakeprovider.Fail(503)})
	key := e.remind(p, 1)
	e.until("two attempts failed", func() bool { return e.entry(key).Attempts >= 2 })
	if err := e.env.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := e.comesTo(key, ledger.Isolated)
	if got.Attempts != e.settings.MaxAttempts || got.Cause != job.CauseAttempts || got.LastClass != job.Transient {
		t.Errorf("entry %+v", got)
	}
	if sends, _ := e.env.Provider().Requests(); sends != e.settings.MaxAttempts {
		t.Errorf("%d requests on the wire for %d attempts", sends, e.settings.MaxAttempts)
	}
	e.wantAccepted(p, 0)
	e.dry()
	e.wantDLQ(1)
}

func TestReminderWaitsForTheRateLimit(t *testing.T) {
	e := reminders(t, unable)
	p := e.reminder("limited")
	e.env.Provider().Add(fakeprovider.Rule{Recipient: p.Recipient, Times: 1, Do: fakeprovider.Throttle("4")})
	key := e.remind(p, 1)
	e.until("it was throttled", func() bool { return e.entry(key).Throttles == 1 })
	waits := e.entry(key)
	got := e.comesTo(key, ledger.Done)
	a := e.wantAccepted(p, 1)
	if waits.LastClass != job.Throttled || a[0].At.Before(waits.History[0].At.Add(4*time.Second)) {
		t.Errorf("throttled at %v, accepted at %v: %+v", waits.History[0].At, a[0].At, got)
	}
	e.dry()
	e.wantDLQ(0)
}

// A refusal by the business is an answer: it costs no attempt, and nothing is isolated.
func TestRemindersThatAreNotSent(t *testing.T) {
	e := reminders(t, unable)
	type refused struct {
		p       reminder.Payload
		status  ledger.Status
		outcome string
		keys    string
	}
	invalid := e.reminder("invalid")
	e.env.Provider().Add(fakeprovider.Rule{Recipient: invalid.Recipient, Do: fakeprovider.Refuse("invalid_recipient")})
	unsubscribed := e.reminder("unsubscribed")
	e.subscribe(unsubscribed, func(s *reminder.Subscription) { s.Unsubscribed = []reminder.Channel{reminder.Email} })
	changed := e.reminder("changed")
	e.subscribe(changed, func(s *reminder.Subscription) { s.Plan = "basic" })
	late := e.reminder("late")
	late.ExpiresAt = time.Now().Add(-time.Second)
	cases := []refused{
		{p: invalid, status: ledger.Terminal, outcome: reminder.InvalidRecipient},
		{p: unsubscribed, status: ledger.Terminal, outcome: reminder.Unsubscribed},
		{p: changed, status: ledger.Terminal, outcome: reminder.PlanChanged},
		{p: late, status: ledger.Expired, outcome: reminder.TooLate},
	}
	for i := range cases {
		cases[i].keys = e.remind(cases[i].p, 1)
	}
	for _, c := range cases {
		if got := e.comesTo(c.keys, c.status); got.Outcome != c.outcome || got.Attempts != 0 || got.Unresolved {
			t.Errorf("entry %+v, want outcome %s", got, c.outcome)
		}
		e.wantAccepted(c.p, 0)
	}
	if sends, _ := e.env.Provider().Requests(); sends != 1 { // the provider itself says that a recipient is invalid
		t.Errorf("%d requests at the provider", sends)
	}
	e.dry()
	e.wantDLQ(0)
}

// The provider never received the request. When that is proven, the reminder has expired.
func TestReminderExpiresDuringReconciliation(t *testing.T) {
	settles := able
	settles.SettleTime = 2 * time.Second
	e := reminders(t, settles)
	p := e.reminder("slow")
	p.ExpiresAt = time.Now().Add(6 * time.Second)
	silence := make(chan struct{})
	t.Cleanup(func() { close(silence) })
	e.env.Provider().Add(fakeprovider.Rule{Recipient: p.Recipient, Times: 1, Arrived: func() { <-silence }, Do: fakeprovider.Fail(503)})
	e.env.Pause(job.Recovery)
	key := e.remind(p, 1)
	e.until("the call timed out", func() bool { return e.entry(key).Attempts == 1 })
	if got := e.entry(key); !got.Unresolved || got.Status != ledger.Pending || got.LastClass != job.Transient {
		t.Errorf("after the timeout: %+v", got)
	}
	e.until("it expires", func() bool { return time.Now().After(p.ExpiresAt) })
	e.env.Resume(job.Recovery)
	if got := e.comesTo(key, ledger.Expired); got.Outcome != reminder.TooLate || got.Unresolved {
		t.Errorf("entry %+v", got)
	}
	// If the first look-up comes before the settle time is over, there is a second one.
	if sends, lookups := e.env.Provider().Requests(); sends != 1 || lookups < 1 || lookups > 2 {
		t.Errorf("%d sends and %d look-ups, want 1, and 1 or 2", sends, lookups)
	}
	e.wantAccepted(p, 0)
	e.dry()
	e.wantDLQ(0)
}

// The answer to the claim is lost after its commit. The SDK repeats the call, finds the claim and has to
// recognise its own write. It is neither another delivery's lease nor an earlier call of unknown outcome. With
// this provider, the latter would need a person's decision.
func TestReminderKnowsItsOwnClaim(t *testing.T) {
	e := reminders(t, unable, func(c *local.Config) {
		// A claim that takes long is taken back, so this one has seconds.
		c.Settings.WorkerTimeout, c.Settings.LaneVisibility = 20*time.Second, 2*time.Minute
		c.Settings.StartMargin, c.Settings.AttemptTime = 19*time.Second, 18*time.Second
	})
	p := e.reminder("lost")
	e.faults.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
	key := e.remind(p, 1)
	got := e.comesTo(key, ledger.Done)
	e.dry()
	e.wantAccepted(p, 1)
	if of := e.tally.Of(key); !maps.Equal(of, map[string]int{string(job.Acknowledged): 1}) || got.Attempts != 0 {
		t.Errorf("outcomes %v, entry %+v", of, got)
	}
	e.wantDLQ(0)
}

// Processes die at random moments, answers get lost: every reminder is accepted once.
func TestRemindersUnderRandomKills(t *testing.T) {
	e := reminders(t, able)
	e.env.Provider().Add(fakeprovider.Rule{Times: 8, Do: fakeprovider.Drop()})
	var sent []reminder.Payload
	var keys []string
	for i := range 30 {
		p := e.reminder(fmt.Sprint("chaos-", i))
		sent = append(sent, p)
		keys = append(keys, e.remind(p, 1+i%2))
	}
	var over atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; n < 12 && !over.Load(); n++ {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			e.env.Kill(rand.IntN(2))
		}
	}()
	for _, key := range keys {
		e.comesTo(key, ledger.Done)
	}
	over.Store(true)
	<-stopped
	e.dry()
	for i, p := range sent {
		a := e.wantAccepted(p, 1)
		got := e.entry(keys[i])
		if !slices.ContainsFunc(got.Evidence, func(ev ledger.Evidence) bool { return ev.RequestID == a[0].RequestID }) {
			t.Errorf("entry %+v does not name request %s", got, a[0].RequestID)
		}
	}
	e.wantDLQ(0)
}
