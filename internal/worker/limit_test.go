package worker_test

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
	"acklast/internal/worker"
)

// warm is one warm process: it keeps its handler from one batch to the next.
func (b *bench) warm() func(...events.SQSMessage) {
	h := worker.New(b.Config, b.Dependencies)
	return func(records ...events.SQSMessage) {
		b.Helper()
		b.out.Reset()
		r, err := h.Handle(b.Context(), events.SQSEvent{Records: records})
		if err != nil {
			b.Fatalf("%v\n%s", err, b.out.String())
		}
		if len(r.BatchItemFailures) > 0 {
			b.Fatalf("left %v\n%s", r.BatchItemFailures, b.out.String())
		}
	}
}

func other(id string) string { return fmt.Sprintf(`{"kind":"expiring","payload":{"ID":%q}}`, id) }

// The jobs of a paused kind wait, without an attempt and without an entry. The other kinds run.
func TestAPausedKindWaits(t *testing.T) {
	b := newBench(t)
	b.runs.paused = []string{"test"}
	handle := b.warm()
	handle(b.record("m1", body("1")), b.record("m2", other("2")))
	equal(b, b.ran.Load(), 1, "the number of runs")
	equal(b, b.ledger.entries["expiring/2"].Status, ledger.Done, "the status of the other kind's entry")
	if _, is := b.ledger.entries["test/1"]; is {
		t.Error("the paused job has an entry")
	}
	m := b.last(job.Recovery, 1)
	equal(b, m.Delay, 5*time.Minute, "the move's delay")
	equal(b, m.Message.Memory.Attempt, 0, "the memory's attempt")
	equal(b, m.Message.Memory.Contentions, 0, "the memory's number of contentions")

	// The list of paused kinds is read once in fifteen seconds.
	handle(b.record("m3", body("3")))
	if b.runs.pausesAsked != 1 {
		t.Errorf("asked %d times", b.runs.pausesAsked)
	}
	b.runs.paused = nil
	b.now = b.now.Add(15 * time.Second)
	handle(b.back("m4", m))
	equal(b, b.runs.pausesAsked, 2, "the number of reads of the paused kinds")
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
}

func TestUnreadablePausesPauseNothing(t *testing.T) {
	b := newBench(t)
	b.runs.paused, b.runs.unreadable = []string{"test"}, errors.New("throttled")
	b.warm()(b.record("m1", body("1")))
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
}

// The list of paused kinds is read before a batch begins, so a read without an answer holds the batch up for a
// second at most.
func TestAHangingReadOfThePausesCostsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.runs.hanging = true
		began := time.Now()
		b.warm()(b.record("m1", body("1")), b.record("m2", other("2")))
		equal(b, time.Since(began), time.Second, "the time of the batch")
		equal(b, b.ran.Load(), 2, "the number of runs")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	})
}

// throttledBy refuses the jobs of kind test with the Retry-After that refused returns, unless it is accepted.
func (b *bench) throttledBy(refused func() time.Duration) {
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		if d.Envelope.Kind == "test" {
			if after := refused(); after >= 0 {
				return job.Result{Err: &job.Failure{Class: job.Throttled, RetryAfter: after, Err: errors.New("429")}}
			}
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
}

const accepted = time.Duration(-1)

// After a refusal nothing of the kind starts during the time that the dependency asked for. Then one attempt
// tries, and the other jobs wait for its result.
func TestAThrottledKindWaitsBeforeItsAttempt(t *testing.T) {
	b := newBench(t)
	answer := 20 * time.Second
	b.throttledBy(func() time.Duration { return answer })
	handle := b.warm()
	handle(b.record("m1", body("1")))
	handle(b.record("m2", body("2")), b.record("m3", body("3")), b.record("m4", other("4")))
	if b.ran.Load() != 2 {
		t.Errorf("%d ran, want the first and the one of another kind", b.ran.Load())
	}
	for i, m := range b.wires.sent[job.Recovery][1:] {
		equal(b, m.Message.Memory.Attempt, 0, "job %d: the memory's attempt", i)
		equal(b, m.Message.Memory.Contentions, 0, "job %d: the memory's number of contentions", i)
		// One a second is the pace after the first refusal.
		if want := answer + time.Duration(i+1)*time.Second; m.Delay != want {
			t.Errorf("job %d is deferred for %v, want %v", i, m.Delay, want)
		}
	}

	b.now, answer = b.now.Add(answer), accepted
	handle(b.record("m5", body("5")), b.record("m6", body("6")))
	if b.ran.Load() != 3 {
		t.Errorf("%d ran, want one more, which finds out", b.ran.Load())
	}
	// After ten minutes without a refusal nothing is held back.
	b.now = b.now.Add(10*time.Minute + time.Second)
	var many []events.SQSMessage
	for i := range 10 {
		many = append(many, b.record(fmt.Sprint("n", i), body(fmt.Sprint("n", i))))
	}
	handle(many...)
	if b.ran.Load() != 13 {
		t.Errorf("%d ran, want all", b.ran.Load())
	}
}

// A dependency that refuses everything is asked less and less often, down to once a minute.
func TestADeadQuotaIsAskedRarely(t *testing.T) {
	b := newBench(t)
	b.throttledBy(func() time.Duration { return 0 })
	handle := b.warm()
	for i := range 3600 {
		handle(b.record("m", body(fmt.Sprint(i))))
		b.now = b.now.Add(time.Second)
	}
	if n := b.ran.Load(); n < 60 || n > 70 {
		t.Errorf("%d attempts in an hour, want 60 and the few that slowed it down", n)
	}
}

// A Retry-After of a day must not stop the kind for a day: it may be about one recipient only.
func TestAProbeGoesWithinAHop(t *testing.T) {
	b := newBench(t)
	answer := 24 * time.Hour
	b.throttledBy(func() time.Duration { return answer })
	handle := b.warm()
	handle(b.record("m1", body("1")))
	answer, b.now = accepted, b.now.Add(retry.ThrottledCap)
	handle(b.record("m2", body("2")))
	if b.ran.Load() != 2 {
		t.Errorf("%d ran", b.ran.Load())
	}
}

// Slow refusals must not take the whole batch's time: at most half of its records are of a throttled kind.
func TestAThrottledKindGetsHalfOfABatch(t *testing.T) {
	b := newBench(t)
	answer := time.Duration(0)
	b.throttledBy(func() time.Duration { return answer })
	handle := b.warm()
	for range 300 { // fast enough that its pace would allow a whole batch
		answer = accepted
		handle(b.record("f", body(fmt.Sprint("f", b.ran.Load()))))
	}
	answer = 0
	handle(b.record("m1", body("1")))
	answer, b.now = accepted, b.now.Add(30*time.Second)
	before := b.ran.Load()
	var records []events.SQSMessage
	for i := range 8 {
		records = append(records, b.record(fmt.Sprint("n", i), body(fmt.Sprint("n", i))))
	}
	handle(append(records, b.record("o1", other("o1")), b.record("o2", other("o2")))...)
	if ran := b.ran.Load() - before; ran != 5+2 {
		t.Errorf("%d ran, want half of ten, and the two of the other kind", ran)
	}
}

// PerSecond is shared by the processes that the lanes' caps allow.
func TestAKindsOwnRate(t *testing.T) {
	b := newBench(t)
	k := b.kind("test", job.RunLate)
	k.PerSecond = 20
	b.Kinds = job.NewCatalogue(k)
	b.Processes = 10
	handle := b.warm()
	ran := func(d time.Duration) int64 {
		b.now = b.now.Add(d)
		before := b.ran.Load()
		var records []events.SQSMessage
		for i := range 10 {
			id := fmt.Sprint(b.now.UnixNano(), "-", i)
			records = append(records, b.record(id, body(id)))
		}
		handle(records...)
		return b.ran.Load() - before
	}
	if n := ran(0); n != 1 {
		t.Errorf("%d ran at once", n)
	}
	if n := ran(time.Second); n != 2 {
		t.Errorf("%d ran after a second, want 20 / 10", n)
	}
	if n := ran(time.Hour); n != 2 {
		t.Errorf("%d ran after an hour: what was not used is not saved up", n)
	}
}

// provider accepts a number of requests a second, and saves up unused ones to a limit.
type provider struct {
	perSecond, tokens float64
	at, last          time.Time
	calls, sent       int
}

func (p *provider) send(now time.Time) bool {
	p.calls++
	p.tokens, p.at = min(p.tokens+now.Sub(p.at).Seconds()*p.perSecond, p.perSecond), now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	p.sent++
	p.last = now
	return true
}

// arrivals are messages that become visible, in order of time.
type arrivals []arrival
type arrival struct {
	at   time.Time
	n    int
	lane job.Queue
	move lanes.Move
}

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return cmp.Or(a[i].at.Compare(a[j].at), a[i].n-a[j].n) < 0 }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// Many reminders meet a provider that takes 14 a second: all are sent, and few calls are refused. make bench
// does this with 50,000.
func TestManyAgainstASmallQuota(t *testing.T) {
	if raceDetector {
		t.Skip("the simulation is one goroutine; make test runs this test without the race detector as well")
	}
	for _, after := range []time.Duration{0, time.Second} {
		b := newBench(t)
		d := b.drain(3_000, 14, after)
		t.Logf("Retry-After %v: %s", after, d)
		if d.sent != 3_000 {
			t.Errorf("%d were sent", d.sent)
		}
		if d.calls > 5*d.sent {
			t.Errorf("%d calls for %d sends", d.calls, d.sent)
		}
	}
}

func BenchmarkFiftyThousandAgainstASmallQuota(b *testing.B) {
	for _, after := range []time.Duration{0, time.Second} {
		b.Run(fmt.Sprint("RetryAfter=", after), func(b *testing.B) {
			for b.Loop() {
				d := newBench(b).drain(50_000, 14, after)
				if d.sent != 50_000 {
					b.Fatalf("%d were sent", d.sent)
				}
				if d.took > 48*time.Hour {
					b.Fatalf("it took %v", d.took)
				}
				b.ReportMetric(float64(d.calls)/float64(d.sent), "calls/send")
				b.ReportMetric(float64(d.waits)/float64(d.sent), "waits/send")
				b.ReportMetric(d.took.Hours(), "h")
			}
		})
	}
}

// drained is the result of drain.
type drained struct {
	calls, sent, waits int
	took               time.Duration
}

func (d drained) String() string {
	return fmt.Sprintf("%d sent after %v; %.2f calls and %.1f waits for each", d.sent, d.took.Round(time.Second),
		float64(d.calls)/float64(d.sent), float64(d.waits)/float64(d.sent))
}

// drain simulates a backlog of reminders that are due within 48 hours and a provider with a limit a second.
// Pollers of both lanes work side by side, each with its own process. No job may be isolated.
func (b *bench) drain(reminders int, perSecond float64, after time.Duration) drained {
	const takes = 100 * time.Millisecond // a batch
	b.Metrics = telemetry.NewRecorder(io.Discard, "acklast", func() time.Time { return b.now })
	b.Dependencies.Log = telemetry.NewLogger(io.Discard, 100)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a simulation
	b.Random = random.Float64
	p := &provider{perSecond: perSecond, tokens: perSecond, at: b.now}
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		b.ledger.mu.Lock() // the batch's records run side by side
		ok := p.send(b.now)
		b.ledger.mu.Unlock()
		if !ok {
			return job.Result{Err: &job.Failure{Class: job.Throttled, RetryAfter: after, Err: errors.New("429")}}
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	b.Concurrency = 1 // side by side a batch would read the clock of one moment anyway
	var waiting arrivals
	n := 0
	push := func(at time.Time, lane job.Queue, m lanes.Move) {
		n++
		heap.Push(&waiting, arrival{at, n, lane, m})
	}
	deadline := b.now.Add(48 * time.Hour)
	for i := range reminders {
		push(b.now, job.Source, lanes.Move{Message: job.Message{
			Body: fmt.Sprintf(`{"kind":"test","deadline":%q,"payload":{"ID":"%d"}}`, deadline.Format(time.RFC3339), i)}})
	}
	type poller struct {
		lane job.Queue
		free time.Time
		h    *worker.Handler
	}
	var pollers []*poller
	for i := range 55 {
		lane := job.Source
		if i < 5 {
			lane = job.Recovery
		}
		pollers = append(pollers, &poller{lane, b.now, worker.New(b.Config, b.Dependencies)})
	}
	queues := map[job.Queue][]arrival{}
	began, deferrals := b.now, 0
	for waiting.Len() > 0 || len(queues[job.Source])+len(queues[job.Recovery]) > 0 {
		for waiting.Len() > 0 && !waiting[0].at.After(b.now) {
			one := heap.Pop(&waiting).(arrival)
			queues[one.lane] = append(queues[one.lane], one)
		}
		next := b.now.Add(time.Hour)
		if waiting.Len() > 0 {
			next = waiting[0].at
		}
		for _, po := range pollers {
			q := queues[po.lane]
			if len(q) == 0 {
				continue
			}
			if po.free.After(b.now) {
				if po.free.Before(next) {
					next = po.free
				}
				continue
			}
			batch := q[:min(10, len(q))]
			queues[po.lane] = q[len(batch):]
			var event events.SQSEvent
			for _, one := range batch {
				r := b.record(fmt.Sprint("m", one.n), one.move.Message.Body)
				if one.lane == job.Recovery {
					r = b.back(fmt.Sprint("m", one.n), one.move)
				}
				event.Records = append(event.Records, r)
			}
			r, err := po.h.Handle(b.Context(), event)
			if err != nil {
				b.Fatal(err)
			}
			if len(r.BatchItemFailures) > 0 {
				b.Fatalf("left %v", r.BatchItemFailures)
			}
			po.free = b.now.Add(takes)
			for lane, moves := range b.wires.sent {
				for _, m := range moves {
					if lane == job.DLQ {
						b.Fatalf("isolated after %v with cause %q", b.now.Sub(began), m.Message.Memory.Cause)
					}
					deferrals++
					push(b.now.Add(m.Delay), lane, m)
				}
			}
			clear(b.wires.sent)
			if len(queues[po.lane]) > 0 && po.free.Before(next) {
				next = po.free
			}
		}
		b.now = next
	}
	return drained{p.calls, p.sent, deferrals, p.last.Sub(began)}
}

// The call before the first message is the one that the first message would make.
func TestPrepareMakesTheFirstMessagesCall(t *testing.T) {
	for name, tt := range map[string]struct {
		unreadable error
		hanging    bool
		asked      int // by the call and the first message
	}{
		"readable":   {nil, false, 1},
		"unreadable": {errors.New("no table"), false, 2},
		"hanging":    {nil, true, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.runs.paused, b.runs.unreadable, b.runs.hanging = []string{"test"}, tt.unreadable, tt.hanging
			h := worker.New(b.Config, b.Dependencies)
			begun := time.Now()
			h.Prepare(t.Context())
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s: it takes %v", name, took)
			}
			b.runs.unreadable, b.runs.hanging = nil, false
			if _, err := h.Handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{b.record("m1", body("1"))}}); err != nil {
				t.Fatal(err)
			}
			if b.runs.pausesAsked != tt.asked {
				t.Errorf("%s: the paused kinds were read %d times, want %d", name, b.runs.pausesAsked, tt.asked)
			}
			if ran := b.ran.Load(); ran != 0 {
				t.Errorf("%s: a paused job ran %d times", name, ran)
			}
		})
	}
}
