package redrive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// fault decides about one call: before is returned instead of making it, after although it was made.
type fault func(call string) (before, after error)

// world is what a redrive works on, in memory. Its clock is time.Now, so that synctest can turn it.
type world struct {
	mu    sync.Mutex
	fault fault
	// half decides about one entry of a batch as fault does about a call: the others are as they would be.
	half    fault
	calls   map[string]int
	entries map[string]ledger.Entry
	docs    map[[2]string]redrive.Record
	queues  map[job.Queue][]*queued
	handles int
	// sentAt are the times of every message that was sent to the recovery lane.
	sentAt []time.Time
	// sentTo are those messages.
	sentTo []job.Message
	// strikes are those of messages, by their ids.
	strikes map[string]ledger.Strikes
	// run is what becomes of a job that arrives on the recovery lane; nil leaves it there.
	run func(w *world, m job.Message)
	// longest is the longest visibility that a receive asked for.
	longest time.Duration
	// latency is what every call takes.
	latency time.Duration
	// unreadable are the keys of entries, and the ids of messages whose strikes, hold what cannot be decoded.
	unreadable map[string]bool
	// newerEntries are the keys of entries that a newer version wrote.
	newerEntries map[string]bool
	// onSend is called, unlocked, after a send.
	onSend func()
	// lag is how old the counts are that a queue tells; past are its counts so far.
	lag  time.Duration
	past map[job.Queue][]count
	// limit is the in-flight limit, at which a receive answers with nothing; 0 is none.
	limit int
	// shuffle has a queue give its messages in no order, as SQS does. most is how many of the DLQ were hidden at a time.
	shuffle bool
	most    int
	// withheld is a message that no receive gives, although it is visible.
	withheld string
	// sendErr is what every entry of a send gets.
	sendErr func(job.Message) error
}

// count is what a queue held at a time.
type count struct {
	at time.Time
	d  lanes.Depth
}

type queued struct {
	job.Message
	visible time.Time
}

func newWorld() *world {
	return &world{calls: map[string]int{}, unreadable: map[string]bool{}, entries: map[string]ledger.Entry{}, docs: map[[2]string]redrive.Record{}, queues: map[job.Queue][]*queued{}}
}

// call makes a call under the fault, if there is one.
func (w *world) call(name string, do func() error) error {
	w.mu.Lock()
	latency := w.latency
	w.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[name]++
	w.remember()
	var before, after error
	if w.fault != nil {
		before, after = w.fault(name)
	}
	if before != nil {
		return before
	}
	if err := do(); err != nil {
		return err
	}
	return after
}

// oneOf makes one entry of a batch; locked.
func (w *world) oneOf(name string) (before, after error) {
	if w.half == nil {
		return nil, nil
	}
	return w.half(name)
}

// The ledger.

func (w *world) Get(_ context.Context, key string) (e ledger.Entry, err error) {
	err = w.call("ledger.get", func() error {
		if w.unreadable[key] {
			return errUndecodable
		}
		e = w.entries[key]
		return nil
	})
	return e, err
}

func (w *world) ReadStrikes(_ context.Context, message string) (s ledger.Strikes, err error) {
	err = w.call("ledger.strikes", func() error {
		if w.unreadable[message] {
			return errUndecodable
		}
		s = w.strikes[message]
		return nil
	})
	return s, err
}

func (w *world) Update(_ context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (e ledger.Entry, err error) {
	err = w.call("ledger.update", func() error {
		if w.unreadable[key] {
			return errUndecodable
		}
		found := w.entries[key]
		e = found
		next, err := change(found)
		if err != nil {
			return err
		}
		next.Key, next.Version, next.Owner = key, found.Version+1, token
		w.entries[key], e = next, next
		return nil
	})
	return e, err
}

// The table.

type table struct{ *world }

func (t table) Get(_ context.Context, pk, sk string) (r redrive.Record, err error) {
	err = t.call("table.get "+pk, func() error {
		r = t.docs[[2]string{pk, sk}]
		r.PK, r.SK = pk, sk
		return nil
	})
	return r, err
}

func (t table) Put(_ context.Context, r redrive.Record) (redrive.Record, error) {
	err := t.call("table.put "+r.PK, func() error {
		if t.docs[[2]string{r.PK, r.SK}].Version != r.Version {
			return redrive.ErrChanged
		}
		r.Version++
		r.Doc = bytes.Clone(r.Doc)
		t.docs[[2]string{r.PK, r.SK}] = r
		return nil
	})
	return r, err
}

func (t table) Append(_ context.Context, records []redrive.Record) error {
	return t.call("table.append", func() error {
		for _, r := range records {
			if t.docs[[2]string{r.PK, r.SK}].Version != 0 {
				return fmt.Errorf("audit line %s %s is written twice", r.PK, r.SK)
			}
			r.Version = 1
			t.docs[[2]string{r.PK, r.SK}] = r
		}
		return nil
	})
}

func (t table) Query(ctx context.Context, pk, prefix string, each func(redrive.Record) error) error {
	return t.query(ctx, pk, func(sk string) bool { return strings.HasPrefix(sk, prefix) }, each)
}

func (t table) QueryAfter(ctx context.Context, pk, after string, each func(redrive.Record) error) error {
	return t.query(ctx, pk, func(sk string) bool { return sk > after }, each)
}

func (t table) query(_ context.Context, pk string, fits func(string) bool, each func(redrive.Record) error) error {
	var found []redrive.Record
	err := t.call("table.query", func() error {
		for k, r := range t.docs {
			if k[0] == pk && fits(k[1]) {
				found = append(found, r)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b redrive.Record) int { return strings.Compare(a.SK, b.SK) })
	for _, r := range found {
		if err == nil {
			err = each(r)
		}
	}
	return err
}

// The queues.

type queues struct{ *world }

func (q queues) Receive(_ context.Context, from job.Queue, n int, visibility, wait time.Duration) (list []lanes.Received, err error) {
	err = q.call("receive", func() error {
		now := time.Now()
		q.longest = max(q.longest, visibility)
		if q.limit > 0 && q.depth(from).InFlight >= q.limit {
			return nil
		}
		start := 0
		if size := len(q.queues[from]); q.shuffle && size > 0 {
			start = q.handles * 7919 % size
		}
		for i := range q.queues[from] {
			m := q.queues[from][(start+i)%len(q.queues[from])]
			if len(list) == n {
				break
			}
			if m.visible.After(now) || m.ID == q.withheld {
				continue
			}
			m.visible = now.Add(visibility)
			q.handles++
			m.ReceiptHandle = fmt.Sprint(m.ID, "/", q.handles)
			m.ReceiveCount++
			list = append(list, lanes.Received{Message: m.Message})
		}
		if from == job.DLQ && q.shuffle {
			q.most = max(q.most, q.depth(from).InFlight)
		}
		return nil
	})
	if err == nil && len(list) == 0 && wait > 0 {
		time.Sleep(wait)
	}
	return list, err
}

func (q queues) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	errs := make([]error, len(moves))
	err := q.call("send", func() error {
		for i, m := range moves {
			if q.sendErr != nil {
				if errs[i] = q.sendErr(m.Message); errs[i] != nil {
					continue
				}
			}
			before, after := q.oneOf("send")
			if errs[i] = before; before != nil {
				continue
			}
			q.put(to, m.Message)
			q.sentAt, q.sentTo = append(q.sentAt, time.Now()), append(q.sentTo, m.Message)
			errs[i] = after
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	q.settle()
	if q.onSend != nil {
		q.onSend()
	}
	return errs
}

// put puts a message on a queue under a new id; locked.
func (w *world) put(to job.Queue, m job.Message) string {
	w.handles++
	m.ID = fmt.Sprintf("m-%06d", w.handles)
	m.SentAt, m.ReceiptHandle = time.Now(), ""
	w.queues[to] = append(w.queues[to], &queued{Message: m})
	return m.ID
}

// settle lets the worker run what is on the recovery lane.
func (w *world) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		return
	}
	list := w.queues[job.Recovery]
	w.queues[job.Recovery] = nil
	for _, m := range list {
		w.run(w, m.Message)
	}
}

func (q queues) Delete(_ context.Context, from job.Queue, messages []job.Message) []error {
	errs := make([]error, len(messages))
	err := q.call("delete", func() error {
		gone := map[string]bool{}
		for i, m := range messages {
			before, after := q.oneOf("delete")
			if errs[i] = before; before != nil {
				continue
			}
			gone[m.ReceiptHandle] = true
			errs[i] = after
		}
		q.queues[from] = slices.DeleteFunc(q.queues[from], func(s *queued) bool { return gone[s.ReceiptHandle] })
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (q queues) Release(ctx context.Context, from job.Queue, messages []job.Message) error {
	return q.Hide(ctx, from, messages, 0)
}

func (q queues) Hide(_ context.Context, from job.Queue, messages []job.Message, d time.Duration) error {
	name := "release"
	if d > 0 {
		name = "hide"
	}
	return q.call(name, func() error {
		held := map[string]bool{}
		for _, m := range messages {
			held[m.ReceiptHandle] = true
		}
		for _, s := range q.queues[from] {
			if held[s.ReceiptHandle] {
				s.visible = time.Now().Add(d)
			}
		}
		return nil
	})
}

func (q queues) Depth(_ context.Context, of job.Queue) (d lanes.Depth, err error) {
	err = q.call("depth", func() error {
		d = q.depth(of)
		if q.lag == 0 {
			return nil
		}
		// What was true a lag ago, by the last count before.
		for _, c := range q.past[of] {
			if time.Since(c.at) >= q.lag {
				d = c.d
			}
		}
		return nil
	})
	return d, err
}

// depth is what a queue holds now; locked.
func (w *world) depth(of job.Queue) (d lanes.Depth) {
	now := time.Now()
	for _, m := range w.queues[of] {
		if m.visible.After(now) {
			d.InFlight++
		} else {
			d.Visible++
		}
	}
	return d
}

// remember keeps what the queues held, for counts that lag; locked.
func (w *world) remember() {
	if w.lag == 0 {
		return
	}
	if w.past == nil {
		w.past = map[job.Queue][]count{}
	}
	for _, q := range []job.Queue{job.Source, job.Recovery, job.DLQ} {
		w.past[q] = append(w.past[q], count{time.Now(), w.depth(q)})
	}
}

// bench is a service on a world.
type bench struct {
	*testing.T
	*world
	// Config and kinds are what the next request's service is made with.
	redrive.Config
	kinds job.Catalogue
	deps  redrive.Dependencies
	ids   int
	// log is what the function wrote, metrics included.
	log *bytes.Buffer
}

const limitedKind = "limited"

func newBench(t *testing.T) *bench {
	t.Helper()
	var log bytes.Buffer
	b := &bench{T: t, world: newWorld(), log: &log}
	var mu sync.Mutex
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
	n := topology.DefaultRedrive()
	n.ReceiveWait, n.Ramp = 0, 0
	b.Config = redrive.Config{
		Names: topology.NamesOf("test"), Numbers: n, Unqualified: true, DLQRetention: 14 * 24 * time.Hour,
		Rules:   ledger.Rules{Retry: retry.Policy{Base: time.Second, Cap: time.Minute, MaxAttempts: 3, AttemptTime: time.Second}, MaxRedrives: 3, Retention: 45 * 24 * time.Hour},
		Guarded: []job.Class{job.Crashed, job.Ambiguous},
	}
	b.kinds = job.NewCatalogue(testKind("test", job.RunLate), testKind(limitedKind, job.ExpireLate))
	b.deps = redrive.Dependencies{
		Start:  func(context.Context, string) (job.Kind, error) { return job.Kind{}, nil },
		Ledger: b.world, Queues: queues{b.world}, Table: table{b.world}, Index: b.world, Counts: telemetry.NewRedriveRecorder(&lockedWriter{&mu, &log}, "test", time.Now),
		Log: slog.New(slog.NewTextHandler(&lockedWriter{&mu, &log}, nil)), Progress: redrive.NoProgress, Now: time.Now,
		ID: func() string {
			mu.Lock()
			defer mu.Unlock()
			b.ids++
			return fmt.Sprintf("%08d", b.ids)
		},
	}
	return b
}

// Handle answers one request as a fresh process does.
func (b *bench) Handle(ctx context.Context, raw json.RawMessage) (redrive.Response, error) {
	d := b.deps
	d.Kinds = b.kinds
	return redrive.New(b.Config, d).Handle(ctx, raw)
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func testKind(name string, late job.LatePolicy) job.Kind {
	type payload struct {
		ID string `json:"id"`
	}
	return job.Define(job.Definition[payload]{Name: name, Late: late, Masked: []string{"recipient"}, Key: func(p payload) (string, []string) { return p.ID, nil }})
}

func body(id string) string { return `{"kind":"test","payload":{"id":"` + id + `"}}` }
func key(id string) string  { return "test/" + id }

// isolated puts a job on the DLQ that failed with the class, and returns its message's id.
func (b *bench) isolated(id string, class job.Class) string {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := ledger.Entry{
		Key: key(id), Subject: id, Kind: "test", Status: ledger.Isolated, Attempts: 3, Version: 1,
		LastClass: class, LastError: "it failed", Cause: job.CauseOf(class), IsolatedAt: time.Now().Add(-time.Hour), IsolatedMessageID: "gone", IsolatedFirstID: "first",
	}
	e.History = []ledger.Event{{At: e.IsolatedAt, What: ledger.EventIsolated, Class: class, Cause: e.Cause}}
	b.entries[e.Key] = e
	return b.put(job.DLQ, job.Message{Body: body(id), Memory: e.Memory(job.Memory{FirstSent: e.IsolatedAt, MessageID: "first"})})
}

// malformed puts a body on the DLQ that nobody can read, as the worker does.
func (b *bench) malformed() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(job.DLQ, job.Message{Body: `{"kind":`, Memory: job.Memory{Class: job.Invalid, Cause: job.CausePermanent, Error: "not JSON", At: time.Now().Add(-time.Hour)}})
}

// completes is a worker that does every job's effect once.
func completes(effects map[string]int) func(*world, job.Message) {
	return func(w *world, m job.Message) {
		var p struct{ Payload struct{ ID string } }
		if err := json.Unmarshal([]byte(m.Body), &p); err != nil {
			return
		}
		e := w.entries[key(p.Payload.ID)]
		if e.Status != ledger.Pending {
			return // a duplicate, or isolated
		}
		e.Status, e.Version = ledger.Done, e.Version+1
		w.entries[e.Key] = e
		effects[e.Key]++
	}
}

// isolatesAgain is a worker of which every attempt fails for good.
func isolatesAgain(w *world, m job.Message) {
	var p struct{ Payload struct{ ID string } }
	if json.Unmarshal([]byte(m.Body), &p) != nil {
		return
	}
	e := w.entries[key(p.Payload.ID)]
	if e.Status != ledger.Pending {
		return
	}
	e.Status, e.Version, e.Attempts, e.LastClass, e.Cause = ledger.Isolated, e.Version+1, e.Attempts+1, job.Rejected, job.CausePermanent
	e.IsolatedAt, e.IsolatedMessageID = time.Now(), m.ID
	w.entries[e.Key] = e
	m.Memory = e.Memory(m.Memory)
	w.put(job.DLQ, m)
}

// ask makes a request, which may be refused but must not fail.
func (b *bench) ask(ctx context.Context, r redrive.Request) redrive.Response {
	b.Helper()
	resp, err := b.try(ctx, r)
	if err != nil {
		b.Fatalf("%s: %v", r.Action, err)
	}
	return resp
}

func (b *bench) try(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	b.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	return b.Handle(ctx, raw)
}

// must makes a request that is not refused.
func (b *bench) must(r redrive.Request) redrive.Response {
	b.Helper()
	resp := b.ask(b.Context(), r)
	if resp.Refused != "" {
		b.Fatalf("%s refused: %s", r.Action, resp.Refused)
	}
	return resp
}

func (b *bench) refused(r redrive.Request, why string) redrive.Response {
	b.Helper()
	resp := b.ask(b.Context(), r)
	if !strings.Contains(resp.Refused, why) {
		b.Errorf("%s: refused %q, want %q", r.Action, resp.Refused, why)
	}
	return resp
}

var all = &redrive.Filter{All: true}

func planOf(f *redrive.Filter) redrive.Request {
	return redrive.Request{Action: "plan", Select: f, By: "ada", Reason: "dependency is back"}
}

func (b *bench) on(q job.Queue) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues[q])
}

func (b *bench) entry(id string) ledger.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key(id)]
}

// through invokes by an alias.
func through(ctx context.Context, alias string) context.Context {
	arn := "arn:aws:lambda:eu-central-1:123456789012:function:test-redrive"
	if alias != "" {
		arn += ":" + alias
	}
	return lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{InvokedFunctionArn: arn})
}

// errOutage is a call that failed as a whole, as the ledger's store tells it.
var errOutage error = outage{}

type outage struct{}

func (outage) Error() string        { return "outage" }
func (outage) Is(target error) bool { return target == ledger.ErrUnavailable }

// errUndecodable is what the ledger's store says of one item that is not as this program writes it.
var errUndecodable = fmt.Errorf("read entry: %w: attribute attempts is not a number", ledger.ErrUndecodable)

// keyOf is the key of a test job's message.
func keyOf(m job.Message) string {
	var p struct{ Payload struct{ ID string } }
	if json.Unmarshal([]byte(m.Body), &p) != nil {
		return ""
	}
	return key(p.Payload.ID)
}
