package worker_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"go.uber.org/goleak"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func TestMain(m *testing.M) {
	if raceDetector { // a story takes six times as long with it; make test runs all of them without it as well
		if err := flag.Set("rapid.checks", "10"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

var t0 = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// memory is a ledger in memory. It has the store's rules without its races.
type memory struct {
	mu      sync.Mutex
	entries map[string]ledger.Entry
	strikes map[string]map[string]time.Time // by message and token
	named   map[string]job.Delivery         // by message
	log     []string                        // what was done with strikes, runs and deletes, in order
	fail    error                           // the error of every call, if set
	// unstruck, unnamed and unclear are the errors of strikes, of their jobs' names and of their clearing, if set.
	unstruck, unnamed, unclear error
}

func (m *memory) ReadStrikes(_ context.Context, id string) (ledger.Strikes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.named[id]
	st := ledger.Strikes{Kind: "test", Key: of.Key, Subject: of.Subject, Digest: of.Digest}
	for _, token := range slices.Sorted(maps.Keys(m.strikes[id])) {
		st.Ends = append(st.Ends, m.strikes[id][token])
	}
	return st, m.fail
}

func (m *memory) Strike(_ context.Context, id, token, _ string, end time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.fail, m.unstruck); err != nil {
		return err
	}
	if m.strikes[id] == nil {
		m.strikes[id] = map[string]time.Time{}
	}
	m.strikes[id][token] = end
	m.log = append(m.log, "strike "+id)
	return nil
}

func (m *memory) ClearStrike(_ context.Context, id, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.fail, m.unclear); err != nil {
		return err
	}
	delete(m.strikes[id], token)
	m.log = append(m.log, "clear "+id)
	return nil
}

func (m *memory) NameSuspect(_ context.Context, d job.Delivery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.fail, m.unnamed); err != nil {
		return err
	}
	m.named[d.ID] = d
	m.log = append(m.log, "name "+d.ID)
	return nil
}

func (m *memory) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, what)
}

func (m *memory) Get(_ context.Context, key string) (ledger.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key], m.fail
}

func (m *memory) Update(_ context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return ledger.Entry{}, m.fail
	}
	e := m.entries[key]
	next, err := change(e)
	if err != nil {
		return e, err
	}
	next.Owner, next.Version = token, e.Version+1
	m.entries[key] = next
	return next, nil
}

// commit makes the delivery's entry final, like a kind's own transaction.
func (m *memory) commit(d job.Delivery, rules ledger.Rules, now time.Time) job.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[d.Key]
	if !e.Accepts(now) {
		return e.Refusal(d.Token, now)
	}
	next, err := rules.Finish(e, d, ledger.Done, "ran", now)
	if err != nil {
		return job.Result{Err: err}
	}
	next.Owner, next.Version = d.Token, e.Version+1
	m.entries[d.Key] = next
	return job.Result{Verdict: job.Committed, Detail: "ran"}
}

// between is a ledger in which something happens once, after an entry was read.
type between struct {
	*memory
	meanwhile func()
}

func (b *between) Get(ctx context.Context, key string) (ledger.Entry, error) {
	e, err := b.memory.Get(ctx, key)
	if do := b.meanwhile; do != nil {
		b.meanwhile = nil
		do()
	}
	return e, err
}

// wires are queues that record the messages they were sent.
type wires struct {
	mu      sync.Mutex
	sent    map[job.Queue][]lanes.Move
	calls   int
	backoff []lanes.Backoff
	refuse  func(to job.Queue, m lanes.Move) error
	deny    error // the error of Backoff
	deleted func(id string)
}

func (w *wires) Delete(_ context.Context, _ job.Queue, messages []job.Message) []error {
	for _, m := range messages {
		w.deleted(m.ID)
	}
	return make([]error, len(messages))
}

func (w *wires) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	errs := make([]error, len(moves))
	for i, m := range moves {
		if w.refuse != nil {
			errs[i] = w.refuse(to, m)
		}
		if errs[i] == nil {
			w.sent[to] = append(w.sent[to], m)
		}
	}
	return errs
}

func (w *wires) Backoff(_ context.Context, _ job.Queue, items []lanes.Backoff) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backoff = append(w.backoff, items...)
	return w.deny
}

// bench is a handler with a ledger and queues in memory, its own clock and one kind, "test". The test chooses
// how a job of it runs.
type bench struct {
	testing.TB
	worker.Config
	worker.Dependencies
	ledger *memory
	wires  *wires
	runs   *runs
	now    time.Time
	out    bytes.Buffer
	run    func(ctx context.Context, d job.Delivery) job.Result
	ran    atomic.Int64
}

func newBench(t testing.TB) *bench {
	b := &bench{
		TB: t, now: t0, runs: &runs{},
		ledger: &memory{entries: map[string]ledger.Entry{}, strikes: map[string]map[string]time.Time{}, named: map[string]job.Delivery{}},
		wires:  &wires{sent: map[job.Queue][]lanes.Move{}},
	}
	b.wires.deleted = func(id string) { b.ledger.note("delete " + id) }
	env := worker.Environment("acklast", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	var tokens atomic.Int64
	clock := func() time.Time { return b.now }
	b.Config = config
	b.Dependencies = worker.Dependencies{
		Ledger: b.ledger, Lanes: b.wires, Operators: b.runs, Now: clock,
		Kinds:   job.NewCatalogue(b.kind("test", job.RunLate), b.kind("expiring", job.ExpireLate)),
		Metrics: telemetry.NewRecorder(&b.out, "acklast", clock),
		Log:     telemetry.NewLogger(&b.out, 0),
		Random:  func() float64 { return 0 },
		Token:   func() string { return fmt.Sprint("token-", tokens.Add(1)) },
	}
	b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
	return b
}

// Handle is one invocation of a fresh process.
func (b *bench) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	return worker.New(b.Config, b.Dependencies).Handle(ctx, event)
}

func (b *bench) kind(name string, late job.LatePolicy) job.Kind {
	type payload struct{ ID string }
	k := job.Define(job.Definition[payload]{
		Name: name, Late: late, Key: func(p payload) (string, []string) { return p.ID, nil },
	})
	k.Run = func(ctx context.Context, d job.Delivery) job.Result {
		b.ran.Add(1)
		return b.run(ctx, d)
	}
	return k
}

func fails(class job.Class, after time.Duration) func(context.Context, job.Delivery) job.Result {
	return func(context.Context, job.Delivery) job.Result {
		return job.Result{Err: &job.Failure{Class: class, RetryAfter: after, Err: errors.New("dependency down")}}
	}
}

// leaves is a run of unknown result: another delivery has the job by now.
func leaves(context.Context, job.Delivery) job.Result {
	return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrLeaseLost}
}

const sourceARN, recoveryARN = "arn:aws:sqs:us-east-1:000000000000:acklast-source", "arn:aws:sqs:us-east-1:000000000000:acklast-recovery"

func body(id string) string { return fmt.Sprintf(`{"kind":"test","payload":{"ID":%q}}`, id) }

// record is a message as it comes from the source lane, sent just now.
func (b *bench) record(id, body string) events.SQSMessage {
	return events.SQSMessage{
		MessageId: id, ReceiptHandle: "receipt-" + id, Body: body, EventSourceARN: sourceARN,
		Attributes: map[string]string{"SentTimestamp": fmt.Sprint(b.now.UnixMilli()), "ApproximateReceiveCount": "1"},
	}
}

// back is a moved message as its queue delivers it: with a new id.
func (b *bench) back(id string, m lanes.Move) events.SQSMessage {
	r := b.record(id, m.Message.Body)
	r.EventSourceARN = recoveryARN
	r.MessageAttributes = map[string]events.SQSMessageAttribute{}
	for name, a := range m.Message.Attributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{DataType: a.Type, StringValue: &a.String, BinaryValue: a.Binary}
	}
	own, err := m.Message.Memory.Encode()
	if err != nil {
		b.Fatal(err)
	}
	r.MessageAttributes[job.MemoryAttribute] = events.SQSMessageAttribute{DataType: own.Type, StringValue: &own.String}
	return r
}

func (b *bench) handle(records ...events.SQSMessage) ([]string, error) {
	b.Helper()
	b.out.Reset()
	response, err := b.Handle(b.Context(), events.SQSEvent{Records: records})
	if response.BatchItemFailures == nil {
		b.Error("the response has no list")
	}
	var failed []string
	for _, f := range response.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	return failed, err
}

// all handles records, none of which may be left.
func (b *bench) all(records ...events.SQSMessage) {
	b.Helper()
	failed, err := b.handle(records...)
	if err != nil {
		b.Fatalf("the batch failed: %v\n%s", err, b.out.String())
	}
	if len(failed) != 0 {
		b.Fatalf("left %v\n%s", failed, b.out.String())
	}
}

// one handles one record that must not be left.
func (b *bench) one(r events.SQSMessage) {
	b.Helper()
	b.all(r)
}

// last returns the last move to the queue; n is the expected number of moves.
func (b *bench) last(to job.Queue, n int) lanes.Move {
	b.Helper()
	if len(b.wires.sent[to]) != n {
		b.Fatalf("%d moves to %s, want %d", len(b.wires.sent[to]), to, n)
	}
	return b.wires.sent[to][n-1]
}

// reporter is the part of a *testing.T, and of a *bench, that a check needs.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// equal checks one fact, such as "the entry's status".
func equal[V comparable](t reporter, got, want V, fact string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", fmt.Sprintf(fact, args...), got, want)
	}
}

// sameTime is equal for times.
func sameTime(t reporter, got, want time.Time, fact string, args ...any) {
	t.Helper()
	if !got.Equal(want) {
		t.Errorf("%s is %v, want %v", fmt.Sprintf(fact, args...), got, want)
	}
}

// contains checks that a text has a part.
func contains(t reporter, got, part, fact string, args ...any) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s is %q, want it to contain %q", fmt.Sprintf(fact, args...), got, part)
	}
}

func TestOneBadRecordFailsAlone(t *testing.T) {
	b := newBench(t)
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		if d.Subject == "2" {
			return leaves(ctx, d)
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	failed, err := b.handle(b.record("m1", body("1")), b.record("m2", body("2")), b.record("m3", body("3")))
	equal(b, err, nil, "the error")
	equal(b, fmt.Sprint(failed), "[m2]", "the list of failures")
}

func TestUnreadableBodiesAreIsolatedBesideAGoodRecord(t *testing.T) {
	bodies := []string{
		`{"a":`, `null`, `[]`, ``, `plain text`, "\x07", "😀", body("x") + "{}",
		`{"kind":"test","kind":"test","payload":{"ID":"1"}}`, `{"kind":"test","payload":{"ID":"1","ID":"2"}}`,
		`{"kind":"test","payload":{"ID":9007199254740993}}`, `{"kind":"test","payload":{"ID":" "}}`,
		`{"kind":"test","payload":{"ID":"` + strings.Repeat("x", 3000) + `"}}`, `{"kind":"test","payload":{}}`,
	}
	b := newBench(t)
	records := []events.SQSMessage{b.record("good", body("good"))}
	for i, body := range bodies {
		records = append(records, b.record(fmt.Sprint("bad-", i), body))
	}
	unknown := b.record("unknown", `{"kind":"nobody","payload":{}}`)
	unknown.EventSourceARN = recoveryARN
	records = append(records, unknown)
	b.all(records...)
	if b.ran.Load() != 1 {
		t.Errorf("%d jobs ran", b.ran.Load())
	}
	sent := b.wires.sent[job.DLQ]
	if len(sent) != len(bodies)+1 {
		t.Fatalf("%d on the DLQ, want %d", len(sent), len(bodies)+1)
	}
	for i, m := range sent {
		want := job.Invalid
		if i == len(bodies) {
			want = job.Rejected
		} else if m.Message.Body != bodies[i] {
			t.Errorf("body %q became %q", bodies[i], m.Message.Body)
		}
		got := m.Message.Memory
		equal(b, got.Class, want, "body %.40q: the memory's class", m.Message.Body)
		equal(b, got.Cause, job.CausePermanent, "body %.40q: the memory's cause", m.Message.Body)
		sameTime(b, got.At, t0, "body %.40q: the memory's time of the isolation", m.Message.Body)
		if got.Error == "" {
			t.Errorf("body %.40q: the memory has no error", m.Message.Body)
		}
	}
	if len(b.ledger.entries) != 1 {
		t.Errorf("%d entries: a body without a key has none", len(b.ledger.entries))
	}
}

// Ids with delimiters, and neighbouring integers above 2^53, stay different jobs.
func TestKeysStayApart(t *testing.T) {
	b := newBench(t)
	ids := []string{"a/b", "a%2Fb", "a", "9007199254740993", "9007199254740992"}
	var records []events.SQSMessage
	for i, id := range ids {
		records = append(records, b.record(fmt.Sprint("m", i), body(id)))
	}
	b.all(records...)
	if len(b.ledger.entries) != len(ids) {
		t.Errorf("entries %v, want %d", maps.Keys(b.ledger.entries), len(ids))
	}
}

func TestAPanicIsAFailedAttempt(t *testing.T) {
	b := newBench(t)
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		if d.Subject == "2" {
			panic("poison")
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	b.all(b.record("m1", body("1")), b.record("m2", body("2")))
	equal(b, b.ledger.entries["test/2"].Attempts, 1, "the entry's number of attempts")
	equal(b, b.ledger.entries["test/2"].LastClass, job.ClassUnknown, "the entry's last class")
	contains(b, b.ledger.entries["test/2"].LastError, "panic with a string in worker_test.TestAPanicIsAFailedAttempt", "the entry's last error")
	if e := b.ledger.entries["test/1"]; e.Status != ledger.Done {
		t.Errorf("the other record is %s", e.Status)
	}
}

// A panic proves nothing about the call that it interrupted.
func TestAPanicKeepsTheUnresolvedMark(t *testing.T) {
	b := newBench(t)
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		_, err := b.ledger.Update(ctx, d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
			return b.Rules.Claim(e, d, ledger.Lease{Until: b.now.Add(time.Minute), ProviderKey: "p"}, b.now)
		})
		if err != nil {
			t.Error(err)
		}
		panic("after the call")
	}
	b.one(b.record("m1", body("1")))
	equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Unresolved, true, "the entry's mark unresolved")
}

// The kind's own code that reads a payload panics on the same bytes each time, and there is no key yet to count
// attempts under.
func TestAPanicWhileReadingIsIsolatedAtOnce(t *testing.T) {
	b := newBench(t)
	k := b.kind("test", job.RunLate)
	k.Read = func([]byte) (job.Contents, error) { panic("bad check") }
	b.Kinds = job.NewCatalogue(k)
	b.one(b.record("m1", body("1")))
	equal(b, b.last(job.DLQ, 1).Message.Memory.Class, job.ClassUnknown, "the memory's class")
	contains(b, b.last(job.DLQ, 1).Message.Memory.Error, "panic with a string in worker_test.TestAPanicWhileReading", "the memory's error")
}

func TestNothingStartsWithTooLittleTime(t *testing.T) {
	for _, left := range []time.Duration{topology.Default().StartMargin - time.Millisecond, 0, -time.Second} {
		b := newBench(t)
		// The handler's clock decides, so the context itself need not end.
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
		deadline, _ := ctx.Deadline()
		b.now = deadline.Add(-left)
		response, err := b.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{b.record("m1", body("1"))}})
		cancel()
		equal(b, b.ran.Load(), 0, "with %v left, the number of runs", left)
		equal(b, len(response.BatchItemFailures), 1, "with %v left, the number of failures", left)
		if err == nil {
			t.Errorf("with %v left, the batch did not fail", left)
		}
	}
}

func TestResponses(t *testing.T) {
	left := func(ctx context.Context, d job.Delivery) job.Result {
		if d.Subject == "ok" {
			return job.Result{Verdict: job.Committed}
		}
		return leaves(ctx, d)
	}
	tests := []struct {
		name   string
		ids    [][2]string // message id, job
		failed string
		fails  string // part of the error
	}{
		{"empty batch", nil, "[]", ""},
		{"one of two", [][2]string{{"m1", "bad"}, {"m2", "ok"}}, "[m1]", ""},
		{"one id twice", [][2]string{{"m1", "bad"}, {"m1", "bad"}, {"m2", "ok"}}, "[m1]", ""},
		{"everything", [][2]string{{"m1", "bad"}, {"m2", "bad"}}, "[m1 m2]", "every record"},
		{"without an id", [][2]string{{"", "bad"}, {"m2", "ok"}}, "[]", "no message id"},
		{"without an id, but well", [][2]string{{"", "ok"}, {"m2", "bad"}}, "[m2]", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.run = left
			var records []events.SQSMessage
			for _, id := range tt.ids {
				records = append(records, b.record(id[0], body(id[1])))
			}
			failed, err := b.handle(records...)
			if fmt.Sprint(failed) != tt.failed {
				t.Errorf("failed %v, want %s", failed, tt.failed)
			}
			if tt.fails == "" {
				equal(t, err, nil, "the error")
			} else if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("the error is %v, want one that contains %q", err, tt.fails)
			}
		})
	}
}

func TestLeftDeliveriesBackOff(t *testing.T) {
	b := newBench(t)
	b.run = leaves
	b.wires.deny = errors.New("no permission") // best effort: a failure here does not fail the record
	second := b.record("m2", body("2"))
	second.Attributes["ApproximateReceiveCount"] = "2"
	third := b.record("m3", body("3"))
	third.Attributes["ApproximateReceiveCount"] = "3"
	late := b.record("m4", body("4"))
	late.Attributes["ApproximateReceiveCount"] = "900"
	unreadable := b.record("m5", `{}`) // isolated, so the batch has a success too
	failed, err := b.handle(b.record("m1", body("1")), second, third, late, unreadable)
	equal(b, err, nil, "the error")
	equal(b, fmt.Sprint(failed), "[m1 m2 m3 m4]", "the list of failures")
	want := map[string]time.Duration{"m1": 30 * time.Second, "m2": time.Minute, "m3": 2 * time.Minute, "m4": 15 * time.Minute}
	got := map[string]time.Duration{}
	for _, item := range b.wires.backoff {
		got[item.MessageID] = item.For
		if item.ReceiptHandle != "receipt-"+item.MessageID {
			t.Errorf("%s has receipt handle %q", item.MessageID, item.ReceiptHandle)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("back off %v, want %v", got, want)
	}
}

func TestRetry(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	r := b.record("m1", body("1"))
	text := "x"
	r.MessageAttributes = map[string]events.SQSMessageAttribute{"trace": {DataType: "String", StringValue: &text}}
	r.Attributes["MessageGroupId"] = "tenant-1"
	b.one(r)
	m := b.last(job.Recovery, 1)
	equal(b, m.Delay, 5*time.Second, "the move's delay")
	equal(b, m.Message.Body, r.Body, "the move's body")
	equal(b, m.Message.Attributes["trace"].String, "x", "the move's attribute trace")
	equal(b, m.Message.Group, "tenant-1", "the move's group")
	equal(b, m.Message.Memory.Attempt, 1, "the memory's attempt")
	equal(b, m.Message.Memory.MessageID, "m1", "the memory's message id")
	sameTime(b, m.Message.Memory.FirstSent, t0, "the memory's time of the first sending")
	equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
	// The retry claims cleanly.
	b.now = t0.Add(6 * time.Second)
	b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
	b.one(b.back("m2", m))
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
}

func TestRetryAfterIsALowerBound(t *testing.T) {
	for after, delay := range map[time.Duration]time.Duration{
		time.Second: 5 * time.Second, 31500 * time.Millisecond: 32 * time.Second, time.Hour: 900 * time.Second,
	} {
		b := newBench(t)
		b.run = fails(job.Throttled, after)
		b.one(b.record("m1", body("1")))
		if m := b.last(job.Recovery, 1); m.Delay != delay {
			t.Errorf("Retry-After %v: delay %v, want %v", after, m.Delay, delay)
		}
		// An early copy does not run before that time either.
		b.now = t0.Add(after / 2)
		b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
		b.one(b.back("m2", b.last(job.Recovery, 1)))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "Retry-After %v: after the early copy, the entry's status", after)
		if after > 5*time.Second {
			equal(b, len(b.wires.sent[job.Recovery]), 2, "Retry-After %v: the number of moves to recovery", after)
		}
	}
}

func TestCountBudgetIsolates(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	r := b.record("m0", body("1"))
	for i := 1; i < b.Rules.Retry.MaxAttempts; i++ {
		b.one(r)
		m := b.last(job.Recovery, i)
		b.now = b.now.Add(m.Delay)
		r = b.back(fmt.Sprint("m", i), m)
	}
	b.one(r)
	m := b.last(job.DLQ, 1)
	memory := m.Message.Memory
	equal(b, memory.Class, job.Transient, "the memory's class")
	equal(b, memory.Cause, job.CauseAttempts, "the memory's cause")
	equal(b, memory.Attempt, 10, "the memory's attempt")
	equal(b, memory.Error, "dependency down", "the memory's error")
	equal(b, memory.MessageID, "m0", "the memory's message id")
	if m.Message.Body != body("1") {
		t.Errorf("body %s", m.Message.Body)
	}
	equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Attempts, 10, "the entry's number of attempts")
}

func TestTimeBudgetIsolates(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	b.one(b.record("m1", `{"kind":"test","deadline":"2026-12-01T10:00:10Z","payload":{"ID":"1"}}`))
	equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CauseTime, "the memory's cause")
	equal(b, b.last(job.DLQ, 1).Message.Memory.Attempt, 1, "the memory's attempt")
}

func TestLatePolicies(t *testing.T) {
	const late = `{"kind":%q,"deadline":"2026-12-01T09:59:00Z","payload":{"ID":"1"}}`
	b := newBench(t)
	b.one(b.record("m1", fmt.Sprintf(late, "test")))
	equal(b, b.ran.Load(), 1, "the number of runs")
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	if !strings.Contains(b.out.String(), `"Lateness":[60000]`) {
		t.Errorf("not counted as late:\n%s", b.out.String())
	}
	b.one(b.record("m2", fmt.Sprintf(late, "expiring")))
	equal(b, b.ran.Load(), 1, "the number of runs")
	equal(b, b.ledger.entries["expiring/1"].Status, ledger.Expired, "the entry's status")
	b.one(b.record("m3", fmt.Sprintf(late, "expiring")))
	if !strings.Contains(b.out.String(), `"duplicate":true`) {
		t.Errorf("a copy of an expired job is a duplicate:\n%s", b.out.String())
	}
}

func TestNotDueIsDeferred(t *testing.T) {
	b := newBench(t)
	r := b.record("m0", `{"kind":"test","notBefore":"2026-12-01T10:40:00.5Z","payload":{"ID":"1"}}`)
	for i, want := range []time.Duration{900 * time.Second, 900 * time.Second, 601 * time.Second} {
		b.one(r)
		m := b.last(job.Recovery, i+1)
		if m.Delay != want {
			t.Errorf("wait %d: delay %v, want %v", i+1, m.Delay, want)
		}
		equal(t, m.Message.Memory.Contentions, 0, "the number of contentions after wait %d", i+1)
		b.now = b.now.Add(m.Delay)
		r = b.back(fmt.Sprint("m", i+1), m)
	}
	equal(b, b.ran.Load(), 0, "the number of runs")
	equal(b, len(b.ledger.entries), 0, "the number of entries")
	b.one(r)
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	sameTime(b, b.ledger.entries["test/1"].Due, t0.Add(2400500*time.Millisecond), "the entry's due time")
}

func TestADeferralIsNeverWithoutDelay(t *testing.T) {
	b := newBench(t)
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Until: b.now.Add(-time.Second), Err: ledger.ErrContended}
	}
	b.one(b.record("m1", body("1")))
	if m := b.last(job.Recovery, 1); m.Delay != time.Second {
		t.Errorf("delay %v: the message would come back before anything changed", m.Delay)
	}
}

func TestContention(t *testing.T) {
	b := newBench(t)
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Err: ledger.ErrContended}
	}
	r := b.record("m0", body("1"))
	for n, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		b.one(r)
		m := b.last(job.Recovery, n+1)
		if m.Delay != want {
			t.Errorf("contention %d: delay %v, want %v", n+1, m.Delay, want)
		}
		equal(b, m.Message.Memory.Contentions, n+1, "contention %d: the memory's number of contentions", n+1)
		sameTime(b, m.Message.Memory.ContendedFrom, t0, "contention %d: the memory's first contention", n+1)
		b.now = b.now.Add(m.Delay)
		r = b.back(fmt.Sprint("m", n+1), m)
	}
	if len(b.ledger.entries) != 0 {
		t.Errorf("entries %v, want none", b.ledger.entries)
	}
}

func TestContentionIsolatesWhenCountAndTimeAreSpent(t *testing.T) {
	for _, c := range []struct {
		count int
		since time.Duration
		want  job.Queue
	}{
		{120, time.Hour, job.DLQ}, {119, 48 * time.Hour, job.Recovery}, {120, time.Hour - time.Second, job.Recovery},
	} {
		b := newBench(t)
		b.run = func(context.Context, job.Delivery) job.Result {
			return job.Result{Verdict: job.Blocked, Err: ledger.ErrContended}
		}
		memory := job.Memory{MessageID: "m0", Contentions: c.count, ContendedFrom: b.now.Add(-c.since)}
		b.one(b.back("m2", lanes.Move{Message: job.Message{Body: body("1"), Memory: memory}}))
		m := b.last(c.want, 1).Message.Memory
		e := b.ledger.entries["test/1"]
		equal(b, e.Status == ledger.Isolated, c.want == job.DLQ, "%d since %v: that the entry is isolated", c.count, c.since)
		equal(b, e.Attempts, 0, "%d since %v: the entry's number of attempts", c.count, c.since)
		if c.want == job.DLQ && m.Cause != job.CauseContention {
			t.Errorf("cause %q, want %q", m.Cause, job.CauseContention)
		}
	}
}

// A wait for a known time is not counted as contention, however often it happens.
func TestWaitingIsNotContention(t *testing.T) {
	b := newBench(t)
	memory := job.Memory{MessageID: "m0", Contentions: 500, ContendedFrom: t0.Add(-100 * time.Hour)}
	b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Pending, RetryAt: t0.Add(24 * time.Hour), Version: 1}
	b.one(b.back("m2", lanes.Move{Message: job.Message{Body: body("1"), Memory: memory}}))
	equal(b, b.last(job.Recovery, 1).Delay, 15*time.Minute, "the move's delay")
	equal(b, b.last(job.Recovery, 1).Message.Memory.Contentions, 500, "the memory's number of contentions")
}

func TestTooFarAheadIsRefusedAtOnce(t *testing.T) {
	b := newBench(t)
	far := `{"kind":"test","notBefore":"2026-12-02T10:00:01Z","payload":{"ID":"1"}}`
	b.one(b.record("m1", far))
	equal(b, b.last(job.DLQ, 1).Message.Memory.Class, job.Rejected, "the memory's class")
	equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CausePermanent, "the memory's cause")
	equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Attempts, 0, "the entry's number of attempts")
	b.now = b.now.Add(time.Second)
	b.one(b.record("m2", strings.Replace(far, `"1"`, `"2"`, 1)))
	b.last(job.Recovery, 1)
}

// A message carries the count of hand-backs. Without room for it, the message waits in steps of five minutes.
func TestTheLedgersTroubleHandsBack(t *testing.T) {
	for lane, arn := range map[job.Queue]string{job.Source: sourceARN, job.Recovery: recoveryARN} {
		b := newBench(t)
		b.run = func(context.Context, job.Delivery) job.Result {
			return job.Result{Verdict: job.Unconfirmed, Err: fmt.Errorf("commit: %w", ledger.ErrUnavailable)}
		}
		r := b.record("m0", body("1"))
		r.EventSourceARN = arn
		if lane == job.Recovery {
			r = b.back("m0", lanes.Move{Message: job.Message{Body: body("1"), Memory: job.Memory{MessageID: "first"}}})
		}
		for n, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
			b.one(again(r, 3*(n%2)+1))
			m := b.last(lane, n+1)
			if m.Delay != want {
				t.Errorf("%s, outage %d: delay %v, want %v", lane, n+1, m.Delay, want)
			}
			equal(b, m.Message.Memory.Outages, n+1, "%s, outage %d: the memory's number of outages", lane, n+1)
			sameTime(b, m.Message.Memory.OutageFrom, t0, "%s, outage %d: the memory's first outage", lane, n+1)
			equal(b, m.Message.Memory.Attempt, 0, "%s, outage %d: the memory's attempt", lane, n+1)
			equal(b, m.Message.Memory.Contentions, 0, "%s, outage %d: the memory's number of contentions", lane, n+1)
			b.now = b.now.Add(m.Delay)
			r = b.back(fmt.Sprint("m", n+1), m)
			r.EventSourceARN = arn
		}
		if !strings.Contains(b.out.String(), `"LedgerOutage":1`) {
			t.Errorf("%s: no metric names the outage:\n%s", lane, b.out.String())
		}
		// The outage is over, and its count is gone. Its time stays, for a job that expires.
		b.run = fails(job.Transient, 0)
		b.one(r)
		sent := b.wires.sent[job.Recovery]
		equal(b, sent[len(sent)-1].Message.Memory.Outages, 0, "%s, after the outage: the memory's number of outages", lane)
		sameTime(b, sent[len(sent)-1].Message.Memory.OutageFrom, t0, "%s, after the outage: the memory's first outage", lane)
		equal(b, sent[len(sent)-1].Message.Memory.Attempt, 1, "%s, after the outage: the memory's attempt", lane)
		// Another outage begins with a time of its own.
		b.run = func(context.Context, job.Delivery) job.Result {
			return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}
		}
		b.now = b.now.Add(4 * 24 * time.Hour)
		again := b.back("m9", sent[len(sent)-1])
		again.EventSourceARN = arn
		b.one(again)
		sent = b.wires.sent[lane]
		equal(b, sent[len(sent)-1].Message.Memory.Outages, 1, "%s, in the next outage: the memory's number of outages", lane)
		sameTime(b, sent[len(sent)-1].Message.Memory.OutageFrom, b.now, "%s, in the next outage: the memory's first outage", lane)
	}
}

// A delivery that could not take its claim back names it in its hand-over. Later moves of the message keep it, until the
// job is isolated: no claim stands then.
func TestAHandOverNamesAnUnusedClaim(t *testing.T) {
	b := newBench(t)
	owner := ""
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		owner = d.Token
		return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable, UnusedClaim: true}
	}
	b.one(b.record("m0", body("1")))
	first := b.last(job.Source, 1)
	equal(b, first.Message.Memory.UnusedClaim, owner, "the unused claim in the hand-over")
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Until: b.now.Add(time.Minute), Err: errors.New("later")}
	}
	b.one(b.back("m1", first))
	equal(b, b.last(job.Recovery, 1).Message.Memory.UnusedClaim, owner, "the unused claim after a wait")
	b.run = fails(job.Rejected, 0)
	b.one(b.back("m2", b.last(job.Recovery, 1)))
	equal(b, b.last(job.DLQ, 1).Message.Memory.UnusedClaim, "", "the unused claim after the isolation")
}

// A hand-over forgets the claim that an attempt has taken back: to take it back again would cost each later delivery a
// call. If the attempt leaves a claim of its own, the hand-over names that one.
func TestAHandOverForgetsAClaimThatWasTakenBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		result job.Result
		want   string
	}{
		{"a wait", job.Result{Verdict: job.Blocked, Until: t0.Add(time.Hour), Err: errors.New("later")}, ""},
		{"a failed attempt", job.Result{Err: &job.Failure{Class: job.Transient, Err: errors.New("no")}}, ""},
		{"an outage", job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}, ""},
		{"another unused claim", job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable, UnusedClaim: true}, "second"},
	} {
		b := newBench(t)
		own := ""
		b.run = func(_ context.Context, d job.Delivery) job.Result {
			own = d.Token
			c.result.ClaimTakenBack = true
			return c.result
		}
		b.one(b.back("m1", lanes.Move{Message: job.Message{Body: body("1"), Memory: job.Memory{MessageID: "m0", UnusedClaim: "first"}}}))
		want := c.want
		if want != "" {
			want = own
		}
		equal(b, b.last(job.Recovery, 1).Message.Memory.UnusedClaim, want, "%s: the unused claim in the hand-over", c.name)
	}
}

func TestAnOutageOfThreeDays(t *testing.T) {
	for age, want := range map[time.Duration]job.Queue{72*time.Hour - time.Second: job.Recovery, 72 * time.Hour: job.DLQ} {
		b := newBench(t)
		b.ledger.fail = ledger.ErrUnavailable
		b.run = fails(job.Transient, 0)
		memory := job.Memory{MessageID: "m0", Outages: 300, OutageFrom: t0.Add(-age)}
		b.one(b.back("m1", lanes.Move{Message: job.Message{Body: body("1"), Memory: memory}}))
		if m := b.last(want, 1).Message.Memory; want == job.DLQ {
			equal(b, m.Cause, job.CauseTime, "after %v: the memory's cause", age)
			equal(b, m.Class, job.Transient, "after %v: the memory's class", age)
		}
	}
}

func TestAnOutageOfAFullMessage(t *testing.T) {
	b := newBench(t)
	b.ledger.fail = ledger.ErrUnavailable
	b.run = fails(job.Transient, 0)
	r := b.record("m1", body("1"))
	r.MessageAttributes = map[string]events.SQSMessageAttribute{}
	for i := range 10 {
		text := "x"
		r.MessageAttributes[fmt.Sprint("a", i)] = events.SQSMessageAttribute{DataType: "String", StringValue: &text}
	}
	b.one(r)
	if m := b.last(job.Source, 1); m.Delay != 5*time.Minute {
		t.Errorf("delay %v, want 5 min", m.Delay)
	}
}

// The database refuses the kind's own table but accepts the ledger's write: the attempt failed.
func TestADeniedTableOfTheKindIsAFailedAttempt(t *testing.T) {
	b := newBench(t)
	b.run = func(_ context.Context, d job.Delivery) job.Result {
		return ledger.ResultOf(fmt.Errorf("read voucher: %w", ledger.ErrDenied), d.Token, b.now)
	}
	b.one(b.record("m1", body("1")))
	b.last(job.Recovery, 1)
	equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
	equal(b, b.ledger.entries["test/1"].LastClass, job.ClassUnknown, "the entry's last class")
	// It refuses the ledger's own table as well: the ledger is in trouble.
	b.ledger.fail = ledger.ErrDenied
	b.one(b.record("m2", body("2")))
	b.last(job.Source, 1)
}

func TestAJobThatExpiresAfterAnOutageIsCountedApart(t *testing.T) {
	const late = `{"kind":"expiring","deadline":"2026-12-01T09:59:00Z","payload":{"ID":"1"}}`
	for _, c := range []struct {
		name   string
		memory job.Memory
		want   string
	}{
		{"no outage", job.Memory{MessageID: "m0"}, `"ExpiredByOutage":0`},
		{"handed back before", job.Memory{MessageID: "m0", Outages: 3, OutageFrom: t0}, `"ExpiredByOutage":1`},
		{"deferred after the outage", job.Memory{MessageID: "m0", OutageFrom: t0}, `"ExpiredByOutage":1`},
	} {
		b := newBench(t)
		b.one(b.back("m1", lanes.Move{Message: job.Message{Body: late, Memory: c.memory}}))
		if !strings.Contains(b.out.String(), c.want) {
			t.Errorf("%s: no %s in\n%s", c.name, c.want, b.out.String())
		}
	}
}

// A call of unknown outcome outranks the deadline: the kind looks it up.
func TestALateJobWithAnOpenCallRuns(t *testing.T) {
	const late = `{"kind":"expiring","deadline":"2026-12-01T09:59:00Z","payload":{"ID":"1"}}`
	b := newBench(t)
	b.ledger.entries["expiring/1"] = ledger.Entry{Key: "expiring/1", Status: ledger.Pending, Unresolved: true, Version: 1}
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Committed, Detail: "found sent"}
	}
	b.one(b.record("m1", late))
	if b.ran.Load() != 1 {
		t.Errorf("it ran %d times, want once", b.ran.Load())
	}
	if e := b.ledger.entries["expiring/1"]; e.Status == ledger.Expired {
		t.Error("it is expired, although its effect may have happened")
	}
}

func TestAnUnknownKindWaitsForARollout(t *testing.T) {
	b := newBench(t)
	b.one(b.record("m1", `{"kind":"novel","payload":{"ID":"1"}}`))
	m := b.last(job.Recovery, 1)
	equal(b, m.Delay, 15*time.Minute, "the move's delay")
	equal(b, m.Message.Memory.Contentions, 0, "the memory's number of contentions")
	b.one(b.back("m2", m))
	equal(b, b.last(job.DLQ, 1).Message.Memory.Class, job.Rejected, "the memory's class")
	equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CausePermanent, "the memory's cause")
}

func TestAnotherPayloadUnderAKeyIsIsolatedAlone(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	b.one(b.record("m1", `{"kind":"test","payload":{"ID":"1","to":"ada"}}`))
	before := b.ledger.entries["test/1"]
	b.now = b.now.Add(time.Minute)
	b.one(b.record("m2", `{"kind":"test","payload":{"ID":"1","to":"bob"}}`))
	m := b.last(job.DLQ, 1).Message.Memory
	equal(b, m.Class, job.Rejected, "the memory's class")
	equal(b, m.Cause, job.CauseConflict, "the memory's cause")
	contains(b, m.Error, before.Digest, "the memory's error")
	equal(b, strings.Count(m.Error, "digest 1:"), 2, "the number of digests in the memory's error")
	equal(b, b.ledger.entries["test/1"].Version, before.Version, "the entry's version")
	if !strings.Contains(b.out.String(), `"Conflicts":1`) {
		t.Errorf("not counted:\n%s", b.out.String())
	}
	b.one(b.record("m3", `{"payload":{"to":"ada","ID":"1"},"kind":"test"}`))
	if e := b.ledger.entries["test/1"]; e.Attempts != 2 {
		t.Errorf("%d attempts, want 2: the same payload in another order", e.Attempts)
	}
}

// isolated returns a bench whose job "1" was isolated by message m1 at t0.
func isolated(t *testing.T, class job.Class) (*bench, lanes.Move) {
	b := newBench(t)
	b.run = fails(class, 0)
	b.Rules.Retry.MaxAttempts = 1
	b.one(b.record("m1", body("1")))
	m := b.last(job.DLQ, 1)
	equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
	equal(b, b.ledger.entries["test/1"].IsolatedMessageID, "m1", "the entry's isolated message")
	b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
	b.now = b.now.Add(time.Minute)
	return b, m
}

func TestIsolatedRules(t *testing.T) {
	t.Run("an unconfirmed hand-over is repeated", func(t *testing.T) {
		b := newBench(t)
		b.run = fails(job.Rejected, 0)
		b.wires.refuse = func(job.Queue, lanes.Move) error { return lanes.ErrUnsent }
		failed, err := b.handle(b.record("m1", body("1")), b.record("m2", "also unsent"))
		if err == nil {
			t.Error("the batch did not fail, although nothing was confirmed")
		}
		equal(b, fmt.Sprint(failed), "[m1 m2]", "the list of failures")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status before the send")
		b.wires.refuse = nil
		r := b.record("m1", body("1")) // SQS delivers the same message again
		b.now = b.now.Add(time.Minute)
		b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
		b.one(r)
		equal(b, b.last(job.DLQ, 1).Message.Memory.Class, job.Rejected, "the memory's class")
		equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CausePermanent, "the memory's cause")
		equal(b, b.last(job.DLQ, 1).Message.Memory.Attempt, 1, "the memory's attempt")
		sameTime(b, b.last(job.DLQ, 1).Message.Memory.At, t0, "the memory's time of the isolation")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
	})
	t.Run("a stray copy goes to the DLQ", func(t *testing.T) {
		b, _ := isolated(t, job.Transient)
		r := b.record("m2", body("1"))
		r.Attributes["SentTimestamp"] = fmt.Sprint(t0.Add(-time.Second).UnixMilli())
		b.one(r)
		equal(b, b.last(job.DLQ, 2).Message.Memory.Cause, job.CauseAttempts, "the memory's cause")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 0, "the entry's generation")
	})
	t.Run("an ambiguous one goes back undecided", func(t *testing.T) {
		b, m := isolated(t, job.Ambiguous)
		b.one(b.back("m2", m))
		equal(b, b.last(job.DLQ, 2).Message.Memory.Class, job.Ambiguous, "the memory's class")
		equal(b, b.last(job.DLQ, 2).Message.Memory.Cause, job.CauseAmbiguous, "the memory's cause")
	})
	t.Run("put back, it is reopened and runs", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		b.one(b.back("m2", m))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
		equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
	})
	t.Run("a fresh copy goes to the DLQ as a copy", func(t *testing.T) {
		b, _ := isolated(t, job.Transient)
		b.one(b.record("m2", body("1")))
		copied := b.last(job.DLQ, 2)
		equal(b, copied.Message.Memory.Copy, true, "the memory's mark as a copy")
		equal(b, copied.Message.Memory.Cause, job.CauseAttempts, "the memory's cause")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 0, "the entry's generation")
		if !strings.Contains(b.out.String(), `"Copies":1`) {
			t.Errorf("not counted:\n%s", b.out.String())
		}
		// Put back by hand, it does not reopen the entry either.
		b.now = b.now.Add(time.Minute)
		b.one(b.back("m3", copied))
		equal(b, b.last(job.DLQ, 3).Message.Memory.Copy, true, "the memory's mark as a copy, after it was put back,")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 0, "the entry's generation")
	})
	t.Run("put back where our attribute had no room, it runs", func(t *testing.T) {
		b := newBench(t)
		b.run = fails(job.Rejected, 0)
		full := func(id string) events.SQSMessage {
			r := b.record(id, body("1"))
			r.MessageAttributes = map[string]events.SQSMessageAttribute{}
			for i := range 10 {
				text := "x"
				r.MessageAttributes[fmt.Sprint("a", i)] = events.SQSMessageAttribute{DataType: "String", StringValue: &text}
			}
			return r
		}
		b.one(full("m1"))
		b.last(job.DLQ, 1)
		equal(b, b.ledger.entries["test/1"].Unmarked, true, "the entry's word that the message is unmarked")
		b.now = b.now.Add(time.Minute)
		b.run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
		b.one(full("m2"))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
	})
	t.Run("put back, its contentions begin anew", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		m.Message.Memory.Contentions = b.MaxContentions
		m.Message.Body = `{"kind":"test","notBefore":"2026-12-01T11:00:00Z","payload":{"ID":"1"}}`
		b.one(b.back("m2", m))
		got := b.last(job.Recovery, 1).Message.Memory
		equal(b, got.Contentions, 0, "the memory's number of contentions")
		equal(b, got.Redrives, 1, "the memory's generation")
		equal(b, got.Cause, "", "the memory's cause")
		equal(b, got.Class, "", "the memory's class")
	})
	t.Run("put back before it is due, it is sorted at once", func(t *testing.T) {
		const later = `{"kind":"test","notBefore":"2026-12-01T11:00:00Z","payload":{"ID":"1"}}`
		b, m := isolated(t, job.Ambiguous)
		m.Message.Body = later
		b.one(b.back("m2", m))
		b.last(job.DLQ, 2)
		b, m = isolated(t, job.Transient)
		m.Message.Body = later
		b.one(b.back("m2", m))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
		// A second copy from the DLQ finds the entry open. Its count is from the earlier opening too.
		m.Message.Memory.Contentions = b.MaxContentions
		b.one(b.back("m3", m))
		equal(b, b.last(job.Recovery, 2).Message.Memory.Contentions, 0, "the memory's number of contentions")
	})
	t.Run("put back and failing again, it has a fresh budget", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		b.Rules.Retry.MaxAttempts = 2
		b.run = func(ctx context.Context, d job.Delivery) job.Result {
			if res := b.ledger.entries[d.Key]; !res.Accepts(b.now) {
				return res.Refusal(d.Token, b.now)
			}
			return fails(job.Transient, 0)(ctx, d)
		}
		b.one(b.back("m2", m))
		equal(b, b.last(job.Recovery, 1).Message.Memory.Attempt, 2, "the memory's attempt")
		equal(b, b.last(job.Recovery, 1).Message.Memory.Redrives, 1, "the memory's generation")
	})
	t.Run("put back twice, the second copy opens no later isolation", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		b.run = fails(job.Rejected, 0)
		// The copy reopens the entry and fails between the two calls of the other.
		b.Ledger = &between{memory: b.ledger, meanwhile: func() {
			b.now = b.now.Add(time.Second)
			b.one(b.back("m2", m))
		}}
		b.one(b.back("m3", m))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
		b.last(job.DLQ, 3)
	})
	t.Run("past the generation limit it goes back", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		e := b.ledger.entries["test/1"]
		e.Redrives = b.Rules.MaxRedrives
		b.ledger.entries["test/1"] = e
		b.one(b.back("m2", m))
		equal(b, b.last(job.DLQ, 2).Message.Memory.Cause, job.CauseGeneration, "the memory's cause")
		equal(b, b.last(job.DLQ, 2).Message.Memory.Redrives, 3, "the memory's generation")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 3, "the entry's generation")
	})
	t.Run("the ledger's trouble hands it back with its story", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		b.ledger.fail = ledger.ErrUnavailable
		b.one(b.back("m2", m))
		back := b.last(job.Recovery, 1)
		b.ledger.fail = nil
		b.now = b.now.Add(back.Delay)
		b.one(b.back("m3", back))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
	})
	t.Run("final meanwhile, it is a duplicate", func(t *testing.T) {
		b, m := isolated(t, job.Transient)
		b.one(b.back("m2", m))
		b.one(b.back("m3", m))
		equal(b, b.ledger.entries["test/1"].Redrives, 1, "the entry's generation")
		contains(b, b.out.String(), `"duplicate":true`, "the log")
	})
}

// The failure of the first copy counts for all: the others wait for its retry.
func TestCopiesThatFailTogetherAreOneAttempt(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	var records []events.SQSMessage
	for i := range 10 {
		records = append(records, b.record(fmt.Sprint("m", i), body("1")))
	}
	b.all(records...)
	if e := b.ledger.entries["test/1"]; e.Attempts != 1 {
		t.Errorf("%d attempts", e.Attempts)
	}
	equal(b, len(b.wires.sent[job.Recovery]), 10, "the number of moves to %s", job.Recovery)
	equal(b, b.wires.calls, 1, "the number of calls")
}

func TestFailureOfAFinalJobIsADuplicate(t *testing.T) {
	b := newBench(t)
	b.one(b.record("m1", body("1")))
	b.run = fails(job.Transient, 0)
	b.one(b.record("m2", body("1")))
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Attempts, 0, "the entry's number of attempts")
}

func TestRecordsRunSideBySideWithinTheBound(t *testing.T) {
	b := newBench(t)
	b.Concurrency = 4
	var running, most atomic.Int64
	arrived := make(chan struct{}, 12)
	release := make(chan struct{})
	b.run = func(context.Context, job.Delivery) job.Result {
		n := running.Add(1)
		for {
			if seen := most.Load(); n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}
		arrived <- struct{}{}
		<-release
		running.Add(-1)
		return job.Result{Verdict: job.Committed}
	}
	var records []events.SQSMessage
	for i := range 12 {
		records = append(records, b.record(fmt.Sprint("m", i), body(fmt.Sprint(i))))
	}
	done := make(chan error)
	go func() {
		_, err := b.handle(records...)
		done <- err
	}()
	for range 4 { // the test hangs unless all four places are taken at once
		<-arrived
	}
	close(release)
	equal(b, <-done, nil, "the error")
	equal(b, most.Load(), 4, "the most at once")
}

// Every delivery is counted once, and neither log nor metrics show a body.
func TestOneOutcomeIsObservedForEachDelivery(t *testing.T) {
	b := newBench(t)
	const secret = "hunter2"
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		switch d.Subject {
		case "retry":
			return fails(job.Throttled, 0)(ctx, d)
		case "left":
			return leaves(ctx, d)
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	records := []events.SQSMessage{
		b.record("m1", body("ok")), b.record("m2", body("retry")), b.record("m3", body("left")),
		b.record("m4", `{"kind":"test","notBefore":"2026-12-01T11:00:00Z","payload":{"ID":"wait"}}`), b.record("m5", secret),
		b.record("m6", fmt.Sprintf(`{"kind":%q,"payload":{}}`, secret)),
	}
	records[5].EventSourceARN = recoveryARN
	if _, err := b.handle(records...); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	totals := map[string]float64{}
	for line := range strings.Lines(b.out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if id, ok := fields["message_id"].(string); ok && fields["outcome"] != nil {
			if outcomes[id] != "" {
				t.Errorf("%s has two outcomes", id)
			}
			outcomes[id] = fields["outcome"].(string)
		}
		if _, byKind := fields["kind"]; fields["_aws"] != nil && !byKind && fields["class"] == nil {
			for _, name := range []string{"Acknowledged", "Retried", "Deferred", "Isolated", "Left"} {
				if n, ok := fields[name].(float64); ok {
					totals[name] += n
				}
			}
		}
	}
	want := map[string]string{"m1": "acknowledged", "m2": "retried", "m3": "left", "m4": "deferred", "m5": "isolated", "m6": "isolated"}
	if !maps.Equal(outcomes, want) {
		t.Errorf("outcomes %v, want %v", outcomes, want)
	}
	if want := (map[string]float64{"Acknowledged": 1, "Retried": 1, "Deferred": 1, "Isolated": 2, "Left": 1}); !maps.Equal(totals, want) {
		t.Errorf("metrics %v, want %v\n%s", totals, want, b.out.String())
	}
	if strings.Contains(strings.ReplaceAll(b.out.String(), `kind \"hunter2\"`, ""), secret) {
		t.Errorf("a body was logged:\n%s", b.out.String())
	}
}

// Data of a newer version waits for a worker of that version.
func TestNewerFormatsAreDeferred(t *testing.T) {
	t.Parallel()
	const newerAttribute = `{"v":2,"tries":[1,2]}`
	for name, prepare := range map[string]func(b *bench, r *events.SQSMessage){
		"attribute": func(_ *bench, r *events.SQSMessage) {
			text := newerAttribute
			r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &text}}
		},
		"attribute of a suspect": func(_ *bench, r *events.SQSMessage) {
			text := newerAttribute
			r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &text}}
			r.Attributes["ApproximateReceiveCount"] = "9"
		},
		"entry found by a run": func(b *bench, _ *events.SQSMessage) {
			b.run = func(_ context.Context, d job.Delivery) job.Result {
				return ledger.ResultOf(fmt.Errorf("claim: %w", &job.NewerError{What: "entry", Format: 2, Known: 1}), d.Token, b.now)
			}
		},
		"entry found by a failure": func(b *bench, _ *events.SQSMessage) {
			b.run = fails(job.Transient, 0)
			b.ledger.fail = &job.NewerError{What: "entry", Format: 2, Known: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.record("m1", body("1"))
			prepare(b, &r)
			b.handle(r)
			sent := b.wires.sent[job.Recovery]
			if len(sent) != 1 {
				t.Fatalf("%d messages on the recovery lane, want 1", len(sent))
			}
			if sent[0].Delay != b.HopDelay {
				t.Errorf("delay %v, want %v", sent[0].Delay, b.HopDelay)
			}
			if e := b.ledger.entries["test/1"]; e.Attempts != 0 {
				t.Errorf("%d attempts, want none", e.Attempts)
			}
			if len(b.ledger.strikes) != 0 {
				t.Errorf("strikes %v, want none", b.ledger.strikes)
			}
			if strings.HasPrefix(name, "attribute") {
				a, err := sent[0].Message.Memory.Encode()
				equal(b, err, nil, "the error of the attribute")
				equal(b, a.String, newerAttribute, "the attribute that travels on")
			}
		})
	}
}

func TestAKindHasAttemptsOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.kind("test", job.RunLate)
	k.Attempts = job.Attempts{Most: 2, BackoffBase: 40 * time.Second}
	b.Kinds = job.NewCatalogue(k)
	b.run = fails(job.Transient, 0)
	b.one(b.record("m1", body("1")))
	m := b.last(job.Recovery, 1)
	if m.Delay != 40*time.Second {
		t.Errorf("the delay is %v, want the kind's own of 40 s", m.Delay)
	}
	b.now = b.now.Add(m.Delay)
	b.one(b.back("m2", m))
	if cause := b.last(job.DLQ, 1).Message.Memory.Cause; cause != job.CauseAttempts {
		t.Errorf("cause %q, want %q after the kind's own 2 attempts", cause, job.CauseAttempts)
	}
}
