package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/schedule"
	"acklast/internal/worker"
)

const year = 365 * 24 * time.Hour

// firing is a schedule that waits.
type firing struct {
	at      time.Time
	message schedule.Message
}

// scheduler keeps schedules in memory, one for each name.
type scheduler struct {
	mu      sync.Mutex
	waiting map[string]firing
	created int // schedules that were made
	asked   int
	fail    error  // what every call comes to, if set
	before  func() // runs before a schedule is made
	after   func() // runs after it
}

func (s *scheduler) Create(_ context.Context, name string, at, now time.Time, m schedule.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.before != nil {
		s.before()
	}
	if s.fail != nil {
		return s.fail
	}
	if f, found := s.waiting[name]; found {
		if f.at.After(now) {
			return nil
		}
		return schedule.ErrUnconfirmed
	}
	s.waiting[name] = firing{at, m}
	s.created++
	if s.after != nil {
		s.after()
	}
	return nil
}

// newSchedulingBench is a bench whose worker hands jobs over.
func newSchedulingBench(t testing.TB) (*bench, *scheduler) {
	b := newBench(t)
	s := &scheduler{waiting: map[string]firing{}}
	b.ScheduleRoleARN, b.DLQARN, b.Scheduler = "arn:aws:iam::1:role/acklast-scheduler", "arn:aws:sqs:us-east-1:1:acklast-dlq", s
	return b, s
}

// due is the body of a job that is due so long after t0.
func due(ahead time.Duration) string {
	return fmt.Sprintf(`{"kind":"test","notBefore":%q,"payload":{"ID":"1"}}`, t0.Add(ahead).Format(time.RFC3339))
}

// fired is a schedule's message as the recovery lane delivers it.
func (b *bench) fired(id string, f firing) events.SQSMessage {
	r := b.record(id, f.message.Body)
	r.EventSourceARN = recoveryARN
	r.Attributes["MessageGroupId"] = f.message.Group
	r.MessageAttributes = map[string]events.SQSMessageAttribute{}
	for name, a := range f.message.Attributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{DataType: a.Type, StringValue: &a.String}
	}
	return r
}

func (s *scheduler) only(t testing.TB) firing {
	t.Helper()
	if len(s.waiting) != 1 {
		t.Fatalf("%d schedules, want 1", len(s.waiting))
	}
	for _, f := range s.waiting {
		return f
	}
	panic("unreachable")
}

func (b *bench) moved() int {
	n := 0
	for _, moves := range b.wires.sent {
		n += len(moves)
	}
	return n
}

func TestAJobDueFarAheadIsHandedToTheScheduler(t *testing.T) {
	b, s := newSchedulingBench(t)
	s.before = func() {
		if e := b.ledger.entries["test/1"]; !e.ScheduledUntil.Equal(t0.Add(year)) {
			t.Errorf("a schedule is made while the entry is scheduled until %v", e.ScheduledUntil)
		}
	}
	r := b.record("m1", due(year))
	r.Attributes["MessageGroupId"], r.Attributes["AWSTraceHeader"] = "tenant-1", "Root=1-2-3"
	tenant := "blue"
	r.MessageAttributes = map[string]events.SQSMessageAttribute{"tenant": {DataType: "String", StringValue: &tenant}}
	b.one(r)
	f := s.only(t)
	for what, pair := range map[string][2]any{
		"fires":        {f.at, t0.Add(year - 2*time.Minute)},
		"body":         {f.message.Body, due(year)},
		"group":        {f.message.Group, "tenant-1"},
		"trace header": {f.message.TraceHeader, "Root=1-2-3"},
		"attribute":    {f.message.Attributes["tenant"].String, "blue"},
		"moves":        {b.moved(), 0},
		"runs":         {b.ran.Load(), int64(0)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	for _, want := range []string{`"outcome":"deferred"`, `"detail":"scheduled"`, `"Scheduled":1}`} {
		if !strings.Contains(b.out.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, b.out.String())
		}
	}
}

func TestWhatIsNotWorthASchedule(t *testing.T) {
	for name, tt := range map[string]struct {
		ahead  time.Duration
		change func(*worker.Config)
		to     job.Queue
	}{
		"below the break-even":   {4 * time.Hour, func(*worker.Config) {}, job.Recovery},
		"switched off":           {5 * time.Hour, func(c *worker.Config) { c.ScheduleFrom = 0 }, job.Recovery},
		"no role":                {5 * time.Hour, func(c *worker.Config) { c.ScheduleRoleARN = "" }, job.Recovery},
		"no DLQ":                 {5 * time.Hour, func(c *worker.Config) { c.DLQARN = "" }, job.Recovery},
		"too far":                {401 * 24 * time.Hour, func(*worker.Config) {}, job.DLQ},
		"a day and switched off": {25 * time.Hour, func(c *worker.Config) { c.ScheduleFrom = 0 }, job.DLQ},
	} {
		b, s := newSchedulingBench(t)
		tt.change(&b.Config)
		b.one(b.record("m1", due(tt.ahead)))
		if n := len(b.wires.sent[tt.to]); n != 1 {
			t.Errorf("%s: %d moves to %s, want 1\n%s", name, n, tt.to, b.out.String())
		}
		if s.asked != 0 {
			t.Errorf("%s: asked the scheduler", name)
		}
	}
}

func TestWhatTheSchedulerDoesNotTakeHopsAndTriesAgain(t *testing.T) {
	b, s := newSchedulingBench(t)
	s.fail = fmt.Errorf("throttled: %w", schedule.ErrUnconfirmed)
	b.one(b.record("m1", due(year)))
	hop := b.last(job.Recovery, 1)
	if hop.Delay != 15*time.Minute {
		t.Errorf("hops for %v, want 15m", hop.Delay)
	}
	b.now = b.now.Add(hop.Delay)
	s.fail = nil
	b.one(b.back("m2", hop))
	s.only(t)
	if n := b.moved(); n != 1 {
		t.Errorf("%d moves, want only the hop", n)
	}
}

// To wait in hops needs no ledger.
func TestTheLedgersTroubleDoesNotStopAWait(t *testing.T) {
	for name, err := range map[string]error{"outage": ledger.ErrUnavailable, "contention": ledger.ErrContended} {
		b, s := newSchedulingBench(t)
		b.ledger.fail = err
		b.one(b.record("m1", due(year)))
		if hop := b.last(job.Recovery, 1); hop.Message.Memory.Outages+hop.Message.Memory.Contentions != 0 {
			t.Errorf("%s: the wait counts as trouble", name)
		}
		if s.asked != 0 {
			t.Errorf("%s: a schedule was made without an entry", name)
		}
	}
}

func TestWhatNoScheduleCanCarryIsBoundByHops(t *testing.T) {
	for ahead, to := range map[time.Duration]job.Queue{5 * time.Hour: job.Recovery, 25 * time.Hour: job.DLQ} {
		b, s := newSchedulingBench(t)
		r := b.record("m1", due(ahead))
		r.MessageAttributes = map[string]events.SQSMessageAttribute{"image": {DataType: "Binary", BinaryValue: []byte{1}}}
		b.one(r)
		move := b.last(to, 1)
		if s.asked != 0 {
			t.Errorf("%v: asked the scheduler", ahead)
		}
		if text := move.Message.Memory.Error; to == job.DLQ && !strings.Contains(text, `attribute "image" is binary`) {
			t.Errorf("%v: isolated with %q, which does not say why", ahead, text)
		}
	}
}

func TestCopiesOfAJobMeetOneSchedule(t *testing.T) {
	b, s := newSchedulingBench(t)
	for batch := range 100 {
		var records []events.SQSMessage
		for i := range 10 {
			records = append(records, b.record(fmt.Sprint("m", batch, "-", i), due(year)))
		}
		b.all(records...)
	}
	s.only(t)
	if s.asked != 1000 {
		t.Errorf("%d copies asked for the schedule, want each of 1000 to confirm it", s.asked)
	}
	if v := b.ledger.entries["test/1"].Version; v != 1 {
		t.Errorf("the entry was written %d times, want once", v)
	}
	if n := b.moved(); n != 0 {
		t.Errorf("%d moves, want none", n)
	}
}

func TestAJobThatIsOverIsNotScheduled(t *testing.T) {
	b, s := newSchedulingBench(t)
	b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Terminal, Outcome: ledger.Cancelled, Version: 1}
	b.one(b.record("m1", due(year)))
	if s.asked != 0 {
		t.Error("a cancelled job was scheduled")
	}
	if !strings.Contains(b.out.String(), `"duplicate":true`) {
		t.Errorf("not a duplicate:\n%s", b.out.String())
	}
	if !strings.Contains(b.out.String(), `"Cancelled":1}`) {
		t.Errorf("not counted as cancelled:\n%s", b.out.String())
	}
}

// A copy with an earlier time has its effect at once; a cancellation ends the job before.
func TestALateFiringIsADuplicate(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"done by a copy": func(b *bench) { b.one(b.record("m2", body("1"))) },
		"cancelled": func(b *bench) {
			_, err := b.ledger.Update(b.Context(), "test/1", "c", func(e ledger.Entry) (ledger.Entry, error) {
				return b.Rules.Cancel(e, job.Delivery{Key: "test/1"}, ledger.Decision{At: b.now, By: "shop", Reason: "left"})
			})
			if err != nil {
				b.Fatal(err)
			}
		},
	} {
		b, s := newSchedulingBench(t)
		b.one(b.record("m1", due(300*24*time.Hour)))
		f := s.only(t)
		b.now = b.now.Add(24 * time.Hour)
		end(b)
		ran := b.ran.Load()
		if ttl := b.ledger.entries["test/1"].TTL; ttl.Before(f.at.Add(32 * 24 * time.Hour)) {
			t.Errorf("%s: the entry goes at %v, although its schedule fires at %v", name, ttl, f.at)
		}
		b.now = t0.Add(300 * 24 * time.Hour)
		b.one(b.fired("m3", f))
		if b.ledger.entries["test/1"].Status == ledger.Pending {
			t.Errorf("%s: the firing opened the entry again", name)
		}
		if n := b.ran.Load() - ran; n > 1 {
			t.Errorf("%s: the firing ran the job %d times", name, n)
		}
		contains(t, b.out.String(), `"duplicate":true`, "%s: the log of the firing", name)
	}
}

// A queue, a scheduler and a clock, all of them in memory, go through a year. A crash is a panic: the writes before it
// stay, and the message comes back.
func TestAJobAYearAhead(t *testing.T) {
	die := func() { panic("the process dies") }
	for name, crash := range map[string]func(b *bench, s *scheduler, times *int){
		"no crash": func(*bench, *scheduler, *int) {},
		"before the entry": func(b *bench, _ *scheduler, times *int) {
			b.Ledger = &dying{b.ledger, times, die, nil}
		},
		"after the entry": func(b *bench, _ *scheduler, times *int) {
			b.Ledger = &dying{b.ledger, times, nil, die}
		},
		"before the schedule": func(_ *bench, s *scheduler, times *int) {
			s.before = func() {
				if *times--; *times >= 0 {
					die()
				}
			}
		},
		"after the schedule": func(_ *bench, s *scheduler, times *int) {
			s.after = func() {
				if *times--; *times >= 0 {
					die()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := newSchedulingBench(t)
			times := 1
			crash(b, s, &times)
			var ranAt time.Time
			b.run = func(_ context.Context, d job.Delivery) job.Result {
				ranAt = b.now
				return b.ledger.commit(d, b.Rules, b.now)
			}
			deliveries := b.live(s, b.record("m0", due(year)))
			if ranAt.Before(t0.Add(year)) || ranAt.After(t0.Add(year+time.Second)) {
				t.Errorf("ran at %v, want %v", ranAt, t0.Add(year))
			}
			if n := b.ran.Load(); n != 1 {
				t.Errorf("ran %d times, want once", n)
			}
			if s.created != 1 {
				t.Errorf("%d schedules were made, want one", s.created)
			}
			// The first, the early firing, the run; and one more for the crash.
			most := 4
			if name == "no crash" {
				most = 3
			}
			if deliveries < 3 || deliveries > most {
				t.Errorf("%d deliveries, want 3 to %d", deliveries, most)
			}
		})
	}
}

// dying is a ledger whose process dies before or after an update.
type dying struct {
	*memory
	times         *int
	before, after func()
}

func (d *dying) Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	crash := func(die func()) {
		if die != nil && *d.times > 0 {
			*d.times--
			die()
		}
	}
	crash(d.before)
	e, err := d.memory.Update(ctx, key, token, change)
	crash(d.after)
	return e, err
}

// live delivers a message and all messages that follow from it, until none waits any more. It returns the number of
// deliveries.
func (b *bench) live(s *scheduler, first events.SQSMessage) int {
	b.Helper()
	const visibility = 3 * time.Minute
	deliveries, next := 0, first
	for {
		deliveries++
		if deliveries > 50 {
			b.Fatal("no end")
		}
		sent := len(b.wires.sent[job.Recovery])
		failed, err := b.handle(next)
		switch moves := b.wires.sent[job.Recovery][sent:]; {
		case len(failed) == 1: // the response does not matter: SQS delivers it again
			b.now = b.now.Add(visibility)
		case err != nil:
			b.Fatal(err)
		case len(moves) == 1:
			b.now = b.now.Add(moves[0].Delay)
			next = b.back(fmt.Sprint("m", deliveries), moves[0])
		default:
			name, f, ok := "", firing{}, false
			for name, f = range s.waiting {
				ok = true
			}
			if !ok {
				return deliveries
			}
			delete(s.waiting, name)
			b.now = f.at.Add(59 * time.Second) // Scheduler's precision is a minute
			next = b.fired(fmt.Sprint("m", deliveries), f)
		}
	}
}

// A job of a redrive's run keeps its run, and a job put back is another generation with a schedule of its own.
func TestAGenerationHasItsOwnSchedule(t *testing.T) {
	b, s := newSchedulingBench(t)
	b.one(b.record("m1", due(year)))
	e := b.ledger.entries["test/1"]
	e.Redrives = 1
	b.ledger.entries["test/1"] = e
	b.one(b.record("m2", due(year)))
	if len(s.waiting) != 2 {
		t.Errorf("%d schedules, want one for each generation", len(s.waiting))
	}
}

// People may put a schedule's dead letter back with the console, which moves the input and not the job.
func TestASchedulesDeadLetterThatIsPutBackRuns(t *testing.T) {
	b, s := newSchedulingBench(t)
	b.one(b.record("m1", due(year)))
	s.only(t)
	input, err := json.Marshal(job.ScheduledSend{QueueURL: "r", MessageBody: due(year)})
	if err != nil {
		t.Fatal(err)
	}
	b.now = t0.Add(year + 24*time.Hour)
	r := b.record("m2", string(input))
	r.MessageAttributes = map[string]events.SQSMessageAttribute{}
	for name, value := range map[string]string{
		"SCHEDULE_ARN": "arn:aws:scheduler:us-east-1:1:schedule/acklast-scheduled/x", "TARGET_ARN": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage",
		"ERROR_CODE": "AccessDenied", "ERROR_MESSAGE": "no",
	} {
		r.MessageAttributes[name] = events.SQSMessageAttribute{DataType: "String", StringValue: &value}
	}
	b.one(r)
	if e := b.ledger.entries["test/1"]; e.Status != ledger.Done {
		t.Errorf("the job is %s, want done\n%s", e.Status, b.out.String())
	}
}
