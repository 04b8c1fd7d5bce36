package stack

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast/infra/cloudwatch"
	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// world is a deployed system in virtual time: the real worker, redrive function, rules and telemetry on queues,
// tables and a Lambda that are modelled. It runs in a synctest bubble, with time.Now as its clock.
//
// One job stands for weight jobs, so that heavy traffic can be simulated: the sums of its metrics are multiplied.
type world struct {
	t       *testing.T
	weight  float64
	every   time.Duration // between two jobs of the simulation
	numbers Numbers
	metrics *cloudwatch.Metrics
	config  worker.Config
	redrive *redrive.Service
	began   time.Time
	rule    string // the census's schedule
	version string // the worker's, which a deployment tries

	mu      sync.Mutex
	queues  map[job.Queue]*simQueue
	entries map[string]ledger.Entry
	strikes map[string]map[string]time.Time
	named   map[string]job.Delivery
	docs    map[[2]string]redrive.Record
	emf     bytes.Buffer
	ids     int
	sent    int       // jobs
	next    time.Time // when the next job is sent
	census  time.Time // when the schedule asks for the next census
	// credit is how many deliveries each lane's cap has room for, busy what invocations took in this minute.
	credit map[job.Queue]float64
	busy   time.Duration
	fault  faults
	stop   bool
}

// faults are what is wrong in the world.
type faults struct {
	ledger      error                                          // what every call to the ledger comes to
	fails       func(kind string, d job.Delivery) *job.Failure // what an attempt comes to
	crashes     func(d job.Delivery) bool                      // kills the process
	refuse      func(to job.Queue) error                       // what a send comes to
	cannotStart bool
	throttled   bool
	paused      map[job.Queue]bool
	pausedKinds []string
	silent      bool          // no job is sent
	takes       time.Duration // how long one job takes; 50 ms if zero
}

// The two kinds of job: one commits its effect with its entry and runs late, the other is an effect outside the database
// that expires.
const (
	plainKind    = "plain"
	reminderKind = "reminding"
)

// budget is how long a job has until its deadline.
const budget = 15 * time.Minute

func simKind(name string, run func(context.Context, job.Delivery) job.Result) job.Kind {
	type payload struct{ ID string }
	k := job.Define(job.Definition[payload]{Name: name, Key: func(p payload) (string, []string) { return p.ID, nil }})
	k.Run = run
	return k
}

// newWorld starts an idle world. It must be called in a synctest bubble.
func newWorld(t *testing.T, every time.Duration, weight float64) *world {
	w := &world{
		t: t, weight: weight, every: every, began: time.Now(), numbers: DefaultNumbers(),
		queues: map[job.Queue]*simQueue{}, entries: map[string]ledger.Entry{}, strikes: map[string]map[string]time.Time{}, named: map[string]job.Delivery{},
		docs: map[[2]string]redrive.Record{}, credit: map[job.Queue]float64{},
	}
	w.metrics = cloudwatch.NewMetrics(w.began)
	w.next = w.began.Add(time.Second)
	// The schedule's time of the day.
	w.census = w.began.Truncate(24 * time.Hour).Add(5*time.Hour + 17*time.Minute)
	names := topology.NamesOf("acklast")
	for q, name := range map[job.Queue]string{job.Source: names.SourceQueue, job.Recovery: names.RecoveryQueue, job.DLQ: names.DLQ} {
		w.queues[q] = &simQueue{name: name, byID: map[string]*simMessage{}}
	}
	urls := topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}
	env := worker.Environment("acklast", urls, w.numbers)
	var err error
	if w.config, err = worker.ParseConfig(func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	numbers := DefaultRedriveNumbers(DefaultInfra().RedriveTimeout)
	numbers.Rate = max(1, numbers.Rate/int(weight))
	env = redrive.LocalEnvironment("acklast", urls, w.numbers, numbers)
	config, err := redrive.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	s := &session{world: w}
	recorder := telemetry.NewRedriveRecorder(w, "acklast", time.Now)
	w.redrive = redrive.New(config, redrive.Dependencies{
		Ledger: s, Index: s, Queues: s, Table: simTable{w}, Kinds: w.kinds(s), Log: slog.New(slog.DiscardHandler),
		Progress: recorder, Counts: recorder, Now: time.Now, ID: w.id, Version: "test",
	})
	return w
}

func (w *world) kinds(s *session) job.Catalogue {
	runner, err := effect.New(effect.Options{
		Stack: "acklast", Ledger: s, Rules: w.config.Rules, Timeout: 5 * time.Second, AttemptLeft: w.config.AttemptLeft(), LeaseSkew: w.config.LeaseSkew,
		Now: time.Now, Random: func() float64 { return 0.5 },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return job.NewCatalogue(
		simKind(plainKind, func(_ context.Context, d job.Delivery) job.Result {
			if err := w.dependency(s, plainKind, d); err != nil {
				return job.Result{Err: err}
			}
			return w.commit(s, d)
		}),
		simKind(reminderKind, func(ctx context.Context, d job.Delivery) job.Result {
			return runner.Run(ctx, d, effect.Call{
				ExpiresAt: d.Envelope.Deadline,
				Plan:      func(context.Context) (string, error) { return "", w.dependency(s, reminderKind, d) },
				Send:      func(context.Context, string) (string, error) { return "request", nil },
			})
		}))
}

// set changes what is wrong.
func (w *world) set(change func(f *faults)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.fault)
}

func (w *world) id() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newID()
}

func (w *world) newID() string { // locked
	w.ids++
	return fmt.Sprintf("%08d", w.ids)
}

// Write takes the lines that the functions print.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.emf.Write(p)
}

// session is an invocation's view of the world. Once its process is dead, nothing of it reaches the world.
type session struct {
	*world
	dead bool
}

var errDead = fmt.Errorf("%w: the process is dead", ledger.ErrUnavailable)

// call makes a call to the ledger.
func (s *session) call(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead:
		return errDead
	case s.fault.ledger != nil:
		return s.fault.ledger
	}
	return do()
}

func (s *session) Get(_ context.Context, key string) (e ledger.Entry, err error) {
	err = s.call(func() error { e = s.entries[key]; return nil })
	return e, err
}

func (s *session) Update(_ context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (e ledger.Entry, err error) {
	err = s.call(func() error {
		e = s.entries[key]
		next, err := change(e)
		if err != nil {
			return err
		}
		next.Owner = token
		e = s.keep(key, next)
		return nil
	})
	return e, err
}

// keep writes an entry; locked. Of a final one only its fate is kept: there are many.
func (w *world) keep(key string, e ledger.Entry) ledger.Entry {
	e.Key, e.Version = key, w.entries[key].Version+1
	w.entries[key] = e
	if e.Status.Final() {
		w.entries[key] = ledger.Entry{Key: key, Status: e.Status, Redrives: e.Redrives, Run: e.Run, Digest: e.Digest, Version: e.Version}
	}
	return e
}

func (s *session) UpdateFrom(ctx context.Context, found ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return s.Update(ctx, found.Key, token, change)
}

func (s *session) Claim(_ context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (e ledger.Entry, err error) {
	err = s.call(func() error {
		e = s.entries[d.Key]
		next, err := rules.Claim(e, d, l, time.Now())
		if err != nil {
			return &ledger.RefusedError{Entry: e}
		}
		e = s.keep(d.Key, next)
		return nil
	})
	return e, err
}

func (s *session) Learn(ctx context.Context, rules ledger.Rules, key string, ev ledger.Evidence) (ledger.Entry, error) {
	return s.Update(ctx, key, s.entries[key].Owner, func(e ledger.Entry) (ledger.Entry, error) { return rules.Learn(e, ev) })
}

func (s *session) ReadStrikes(_ context.Context, id string) (st ledger.Strikes, err error) {
	err = s.call(func() error {
		of := s.named[id]
		st.Key, st.Subject, st.Digest = of.Key, of.Subject, of.Digest
		for _, token := range slices.Sorted(maps.Keys(s.strikes[id])) {
			st.Ends = append(st.Ends, s.strikes[id][token])
		}
		return nil
	})
	return st, err
}

func (s *session) Strike(_ context.Context, id, token, _ string, end time.Time) error {
	return s.call(func() error {
		if s.strikes[id] == nil {
			s.strikes[id] = map[string]time.Time{}
		}
		s.strikes[id][token] = end
		return nil
	})
}

func (s *session) NameSuspect(_ context.Context, d job.Delivery) error {
	return s.call(func() error { s.named[d.ID] = d; return nil })
}

func (s *session) ClearStrike(_ context.Context, id, token string) error {
	return s.call(func() error { delete(s.strikes[id], token); return nil })
}

func (s *session) Isolated(_ context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error {
	var found []ledger.IsolatedJob
	err := s.call(func() error {
		for _, e := range s.entries {
			if e.Status == ledger.Isolated && !e.IsolatedAt.Before(from) && e.IsolatedAt.Before(to) {
				found = append(found, ledger.IsolatedJob{Key: e.Key, Class: e.LastClass, At: e.IsolatedAt})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(found)
}

// dependency is a kind's own dependency. It fails, kills the process, or answers.
func (w *world) dependency(s *session, kind string, d job.Delivery) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fault
	if f.crashes != nil && f.crashes(d) {
		s.dead = true
		return errDead
	}
	if f.fails != nil {
		if failure := f.fails(kind, d); failure != nil {
			return failure
		}
	}
	return nil
}

// commit commits the job's effect with its entry.
func (w *world) commit(s *session, d job.Delivery) (result job.Result) {
	err := s.call(func() error {
		e := w.entries[d.Key]
		if !e.Accepts(time.Now()) {
			result = e.Refusal(d.Token, time.Now())
			return nil
		}
		next, err := w.config.Rules.Finish(e, d, ledger.Done, "ran", time.Now())
		if err != nil {
			return err
		}
		w.keep(d.Key, next)
		result = job.Result{Verdict: job.Committed, Detail: "ran"}
		return nil
	})
	if err != nil {
		return job.Result{Err: err}
	}
	return result
}

// Revoked: no run is.
func (s *session) Revoked(context.Context, string) (bool, error) { return false, nil }

// Paused are the kinds that operators paused.
func (s *session) Paused(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault.pausedKinds, nil
}

// The queues.

// simQueue is an SQS queue.
type simQueue struct {
	name string
	heap messages
	byID map[string]*simMessage
	// activeUntil is when SQS stops reporting, reportsFrom when it began.
	activeUntil, reportsFrom time.Time
}

type simMessage struct {
	job.Message
	visible time.Time
	// held says that the message was received since it was last visible.
	held bool
	gone bool
}

type messages []*simMessage

func (m messages) Len() int           { return len(m) }
func (m messages) Less(i, j int) bool { return m[i].visible.Before(m[j].visible) }
func (m messages) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *messages) Push(x any)        { *m = append(*m, x.(*simMessage)) }
func (m *messages) Pop() any {
	old := *m
	last := old[len(old)-1]
	*m = old[:len(old)-1]
	return last
}

// use notes an action on the queue. SQS reports a queue's metrics for six hours after the last one, and takes up
// to 15 minutes to begin again.
func (q *simQueue) use(now time.Time) {
	if now.After(q.activeUntil) {
		q.reportsFrom = now
		if !q.activeUntil.IsZero() {
			q.reportsFrom = now.Add(15 * time.Minute)
		}
	}
	q.activeUntil = now.Add(6 * time.Hour)
}

// put adds a message under a new id; locked.
func (w *world) put(to job.Queue, m job.Message, delay time.Duration) *simMessage {
	q := w.queues[to]
	now := time.Now()
	q.use(now)
	m.ID, m.SentAt, m.ReceiveCount, m.ReceiptHandle = w.newID(), now, 0, ""
	one := &simMessage{Message: m, visible: now.Add(delay)}
	q.byID[m.ID] = one
	heap.Push(&q.heap, one)
	return one
}

// receive takes ready messages, at most so many, and hides them; locked. What was received too often SQS moves
// to the DLQ itself.
func (w *world) receive(from job.Queue, most int, visibility time.Duration) []job.Message {
	q := w.queues[from]
	now := time.Now()
	q.use(now)
	var list []job.Message
	for len(list) < most && len(q.heap) > 0 && !q.heap[0].visible.After(now) {
		m := q.heap[0]
		if m.gone {
			heap.Pop(&q.heap)
			continue
		}
		if from != job.DLQ && m.ReceiveCount >= w.numbers.MaxReceiveCount {
			heap.Pop(&q.heap)
			delete(q.byID, m.ID)
			moved := &simMessage{Message: m.Message, visible: now} // it keeps its id and its clock
			d := w.queues[job.DLQ]
			d.use(now)
			d.byID[m.ID] = moved
			heap.Push(&d.heap, moved)
			continue
		}
		m.ReceiveCount++
		m.ReceiptHandle = fmt.Sprint(m.ID, "/", m.ReceiveCount)
		m.visible, m.held = now.Add(visibility), true
		heap.Fix(&q.heap, 0)
		list = append(list, m.Message)
	}
	return list
}

// remove deletes messages; locked.
func (w *world) remove(from job.Queue, list []job.Message) {
	q := w.queues[from]
	for _, m := range list {
		if one := q.byID[m.ID]; one != nil {
			one.gone = true
			delete(q.byID, m.ID)
			w.metrics.Put(w.queueSeries(q, sqsDeleted), time.Now(), 1, w.weight)
		}
	}
}

func (w *world) queueSeries(q *simQueue, metric string) cloudwatch.Series {
	return cloudwatch.SeriesOf("AWS/SQS", metric, "QueueName="+q.name)
}

// depth counts the messages; locked.
func (q *simQueue) depth() (d lanes.Depth, oldest time.Duration) {
	now := time.Now()
	for _, m := range q.byID {
		switch {
		case !m.visible.After(now):
			d.Visible++
		case m.held:
			d.InFlight++
		default:
			d.Delayed++
		}
		// What was received three times is left out of the age.
		if m.ReceiveCount < 3 {
			oldest = max(oldest, now.Sub(m.SentAt))
		}
	}
	return d, oldest
}

func (s *session) Receive(_ context.Context, from job.Queue, most int, visibility, wait time.Duration) ([]lanes.Received, error) {
	s.mu.Lock()
	found := s.receive(from, most, visibility)
	s.mu.Unlock()
	if len(found) == 0 {
		time.Sleep(wait)
	}
	list := make([]lanes.Received, len(found))
	for i := range found {
		list[i].Message = found[i]
	}
	return list, nil
}

func (s *session) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(moves))
	for i, m := range moves {
		switch {
		case s.dead:
			errs[i] = errDead
		case s.fault.refuse != nil && s.fault.refuse(to) != nil:
			errs[i] = s.fault.refuse(to)
		default:
			s.put(to, m.Message, m.Delay)
		}
	}
	return errs
}

func (s *session) Delete(_ context.Context, from job.Queue, list []job.Message) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(list))
	if s.dead {
		for i := range errs {
			errs[i] = errDead
		}
		return errs
	}
	s.remove(from, list)
	return errs
}

func (s *session) Backoff(_ context.Context, lane job.Queue, items []lanes.Backoff) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errDead
	}
	for _, item := range items {
		s.hide(lane, item.MessageID, item.For)
	}
	return nil
}

// hide changes a message's visibility; locked.
func (w *world) hide(on job.Queue, id string, d time.Duration) {
	q := w.queues[on]
	if m := q.byID[id]; m != nil {
		m.visible = time.Now().Add(d)
		heap.Init(&q.heap)
	}
}

func (s *session) Hide(_ context.Context, on job.Queue, list []job.Message, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		s.hide(on, m.ID, d)
	}
	return nil
}

func (s *session) Release(ctx context.Context, on job.Queue, list []job.Message) error {
	return s.Hide(ctx, on, list, 0)
}

func (s *session) Depth(_ context.Context, of job.Queue) (lanes.Depth, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[of].use(time.Now())
	d, _ := s.queues[of].depth()
	return d, nil
}

// simTable is the operations table.
type simTable struct{ *world }

func (t simTable) Get(_ context.Context, pk, sk string) (redrive.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.docs[[2]string{pk, sk}]
	r.PK, r.SK = pk, sk
	return r, nil
}

func (t simTable) Put(_ context.Context, r redrive.Record) (redrive.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.docs[[2]string{r.PK, r.SK}].Version != r.Version {
		return r, redrive.ErrChanged
	}
	r.Version++
	t.docs[[2]string{r.PK, r.SK}] = r
	return r, nil
}

func (t simTable) Append(_ context.Context, records []redrive.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		r.Version = 1
		t.docs[[2]string{r.PK, r.SK}] = r
	}
	return nil
}

func (t simTable) Query(_ context.Context, pk, prefix string, each func(redrive.Record) error) error {
	return t.query(pk, func(sk string) bool { return strings.HasPrefix(sk, prefix) }, each)
}

func (t simTable) QueryAfter(_ context.Context, pk, after string, each func(redrive.Record) error) error {
	return t.query(pk, func(sk string) bool { return sk > after }, each)
}

func (t simTable) query(pk string, wanted func(sk string) bool, each func(redrive.Record) error) error {
	t.mu.Lock()
	var found []redrive.Record
	for k, r := range t.docs {
		if k[0] == pk && wanted(k[1]) {
			found = append(found, r)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(found, func(a, b redrive.Record) int { return strings.Compare(a.SK, b.SK) })
	for _, r := range found {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

var errDown = errors.New("down")
