package worker_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"pgregory.net/rapid"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// TestConsumer simulates the whole consumer in memory: queues with SQS's semantics, a ledger with the store's,
// worker processes that die, and calls that fail in every way. After some simulated hours nothing fails any
// more, and the lanes run dry. DESIGN's promises must hold at every call and at the end.
//
// The numbers that rapid draws determine one story. A failure prints the flag (-rapid.seed=…) that replays it,
// and rapid makes it as small as it can. A story has to be the same each time, so no call's fate may depend on
// the order of others. It is a hash of the story's seed, the call and how often the call was made. Each call
// also takes a different time, so that no two end in the same nanosecond.
func TestConsumer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawStory(rt)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = s.play() })
		if len(wrong) > 0 {
			rt.Fatalf("%d broken promises, the first of them:\n%s\n\nthe story:\n%s",
				len(wrong), strings.Join(wrong[:min(5, len(wrong))], "\n"), strings.Join(s.told, "\n"))
		}
	})
}

// The same numbers give the same story. Otherwise a seed would replay nothing.
func TestAStoryRepeats(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes nothing of a story but its time; make test runs this test without it as well")
	}
	for i := range 15 {
		s := rapid.Custom(drawStory).Example(i)
		synctest.Test(t, func(*testing.T) { s.play() })
		first := s.told
		s.clear()
		synctest.Test(t, func(*testing.T) { s.play() })
		for i := range max(len(first), len(s.told)) {
			if i >= len(first) || i >= len(s.told) || first[i] != s.told[i] {
				t.Fatalf("from line %d on:\n%s\nand then\n%s", i,
					strings.Join(first[min(i, len(first)):min(i+5, len(first))], "\n"), strings.Join(s.told[min(i, len(s.told)):min(i+5, len(s.told))], "\n"))
			}
		}
	}
}

// temper says how a job's attempts go.
type temper int

const (
	good      temper = iota
	shaky            // fails at times, until the calm
	hopeless         // fails always
	forbidden        // is rejected
	panicky          // panics at times, until the calm
	hanging          // takes all the time there is, at times, until the calm
	killer           // kills the process, for ever
	broken           // has an unreadable body
	tempers
)

type simJob struct {
	name   string
	body   string
	key    string // empty for a broken one
	temper temper
	copies int
}

// story is one run of the simulation.
type story struct {
	seed                   uint64
	jobs                   []simJob
	processes, concurrency int
	fail, lose, die, again int // of a hundred calls, messages received

	config worker.Config
	storm  time.Time // its end
	began  time.Time

	mu      sync.Mutex
	said    map[string]int // how many fates were drawn for each call
	queues  map[job.Queue]map[string]*simMessage
	moved   map[string]bool // messages that were sent on as a new one
	entries map[string]ledger.Entry
	effects map[string]int
	putBack map[string]int
	strikes map[string]map[string]time.Time // by message and token
	named   map[string]job.Delivery         // by message
	deaths  map[string]int                  // invocations that had struck a message
	bodies  map[string]string               // by message
	serial  int
	home    bool // the operator
	wrong   []string
	told    []string
}

type simMessage struct {
	job.Message
	visible time.Time
}

func drawStory(rt *rapid.T) *story {
	s := &story{
		seed:      rapid.Uint64().Draw(rt, "story"),
		processes: rapid.IntRange(1, 3).Draw(rt, "processes"),
		// With concurrency 10, receive puts no two copies of a job into one batch, because a replay needs a
		// fixed order.
		concurrency: rapid.SampledFrom([]int{1, 10}).Draw(rt, "concurrency"),
		fail:        rapid.IntRange(0, 30).Draw(rt, "fail"),
		lose:        rapid.IntRange(0, 20).Draw(rt, "lose"),
		die:         rapid.IntRange(0, 40).Draw(rt, "die"),
		again:       rapid.IntRange(0, 40).Draw(rt, "again"),
	}
	s.clear()
	for i := range rapid.IntRange(1, 12).Draw(rt, "jobs") {
		j := simJob{
			name: fmt.Sprint("job-", i), copies: rapid.IntRange(1, 3).Draw(rt, "copies"),
			temper: temper(rapid.IntRange(0, int(tempers)-1).Draw(rt, "temper")),
		}
		due := rapid.IntRange(0, 120).Draw(rt, "due") // minutes
		allowed := rapid.SampledFrom([]int{0, 1, 30}).Draw(rt, "allowed")
		j.key = "sim/" + j.name
		j.body = fmt.Sprintf(`{"kind":"sim","payload":{"ID":%q},"notBefore":"%s"`, j.name, minutes(due))
		if allowed > 0 {
			j.body += fmt.Sprintf(`,"deadline":"%s"`, minutes(due+allowed))
		}
		j.body += "}"
		if j.temper == broken {
			j.key, j.body = "", j.body[:len(j.body)-1]
		}
		s.jobs = append(s.jobs, j)
	}
	env := worker.Environment("acklast", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		rt.Fatal(err)
	}
	config.Concurrency = s.concurrency
	s.config = config
	return s
}

func (s *story) clear() {
	s.serial, s.home, s.wrong, s.told = 0, false, nil, nil
	s.said, s.moved, s.entries, s.effects = map[string]int{}, map[string]bool{}, map[string]ledger.Entry{}, map[string]int{}
	s.named, s.bodies = map[string]job.Delivery{}, map[string]string{}
	s.putBack, s.strikes, s.deaths = map[string]int{}, map[string]map[string]time.Time{}, map[string]int{}
	s.queues = map[job.Queue]map[string]*simMessage{job.Source: {}, job.Recovery: {}, job.DLQ: {}}
}

// bubbleStart is when time begins in a synctest bubble.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func minutes(n int) string {
	return bubbleStart.Add(time.Duration(n) * time.Minute).Format(time.RFC3339)
}

const (
	visibility = 3 * time.Minute
	stormy     = 3 * time.Hour
	limit      = 72 * time.Hour
	maxSkew    = 5 * time.Second
	crowd      = 400 // messages
)

func (s *story) play() []string {
	s.began = time.Now()
	s.storm = s.began.Add(stormy)
	for _, j := range s.jobs {
		for range j.copies {
			s.put(job.Source, job.Message{Body: j.body, Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: j.name}}, Group: j.name}, 0)
		}
	}
	var running sync.WaitGroup
	for n := range s.processes {
		running.Go(func() { s.process(n) })
	}
	running.Go(s.operator)
	running.Wait()
	s.judge()
	return s.wrong
}

// number draws the next number from 0 to n-1 for the given thing.
func (s *story) number(n int, about ...any) int {
	what := fmt.Sprintln(about...)
	s.mu.Lock()
	s.said[what]++
	times := s.said[what]
	s.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprintln(h, s.seed, what, times)
	x := h.Sum64() // FNV leaves the high bits of short texts alike
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % uint64(n))
}

// calm says whether nothing fails from here on: after some hours, or when there are so many copies that more of
// them would show nothing more.
func (s *story) calm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.storm) || s.serial > crowd
}

type fate int

const (
	done fate = iota
	undone
	unanswered // done, but its answer is lost
)

func (s *story) fateOf(about ...any) fate {
	switch n := s.number(100, about...); {
	case s.calm():
		return done
	case n < s.fail:
		return undone
	case n < s.fail+s.lose:
		return unanswered
	}
	return done
}

// take makes a call last some milliseconds, and a fraction of its own.
func (s *story) take(about ...any) {
	time.Sleep(time.Millisecond + time.Duration(s.number(20_000_000, "time", fmt.Sprint(about...))))
}

func (s *story) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%12v  ", time.Since(s.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// breaks records a broken promise. The caller holds the lock.
func (s *story) breaks(format string, args ...any) {
	s.tell("WRONG: "+format, args...)
	s.wrong = append(s.wrong, s.told[len(s.told)-1])
}

// SQS.

// put adds a message to a queue. Its id is new.
func (s *story) put(q job.Queue, m job.Message, delay time.Duration) {
	s.serial++
	m.ID, m.SentAt, m.ReceiveCount, m.ReceiptHandle = fmt.Sprint("m", s.serial), time.Now().UTC(), 0, ""
	s.bodies[m.ID] = m.Body
	s.queues[q][m.ID] = &simMessage{Message: m, visible: time.Now().Add(delay)}
	s.tell("%s gets %s: %.60s", q, m.ID, m.Body)
}

// receive takes up to ten messages. If there is none, it returns when to ask again.
func (s *story) receive(q job.Queue) (batch []job.Message, next time.Time) {
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.queues[q]))
	s.mu.Unlock()
	next = time.Now().Add(time.Minute)
	start := 0
	if len(ids) > 0 {
		start = s.number(len(ids), "order", q)
	}
	for i := range ids {
		id := ids[(start+i)%len(ids)]
		twice := s.number(100, "again", id) < s.again && !s.calm()
		s.mu.Lock()
		m := s.queues[q][id]
		switch {
		case m == nil:
		case m.visible.After(time.Now()):
			if m.visible.Before(next) {
				next = m.visible
			}
		case m.ReceiveCount >= topology.Default().MaxReceiveCount:
			delete(s.queues[q], id)
			s.queues[job.DLQ][id] = m
			s.moved[id] = true
			s.tell("SQS moves %s", id)
		case s.concurrency > 1 && slices.ContainsFunc(batch, func(b job.Message) bool { return b.Body == m.Body }):
			next = time.Now()
		case len(batch) < 10:
			m.ReceiveCount++
			m.ReceiptHandle = fmt.Sprint(id, "#", m.ReceiveCount)
			m.visible = time.Now().Add(visibility)
			if twice {
				m.visible = time.Now()
			}
			batch = append(batch, m.Message)
		}
		s.mu.Unlock()
	}
	return batch, next
}

// acknowledge deletes a message that the worker has acknowledged.
func (s *story) acknowledge(q job.Queue, m job.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobOf(m); !s.moved[m.ID] && (j.key == "" || !s.entries[j.key].Status.Final()) {
		s.breaks("%s of %s is acknowledged, with entry %q and no successor", m.ID, j.name, s.entries[j.key].Status)
	}
	if now := s.queues[q][m.ID]; now != nil && now.ReceiptHandle == m.ReceiptHandle {
		delete(s.queues[q], m.ID)
		s.tell("%s is acknowledged", m.ID)
	}
}

func (s *story) jobOf(m job.Message) simJob {
	for _, j := range s.jobs {
		if j.body == m.Body {
			return j
		}
	}
	s.breaks("%s has a body that nobody sent: %s", m.ID, m.Body)
	return simJob{}
}

// life is one invocation of one process. It may end at any call, before the call or after it.
type life struct {
	*story
	name  string
	left  int // calls until death; -1 is none
	after bool
	dead  bool
	open  map[string]bool // messages whose strike is not cleared
}

// end ends the process. The caller holds the lock.
func (l *life) end(where ...any) {
	if !l.dead {
		l.dead = true
		l.tell("%s dies at %v", l.name, where)
		for id := range l.open {
			l.deaths[id]++
		}
	}
}

// call begins a call and returns its fate.
func (l *life) call(about ...any) fate {
	l.take(append(about, l.name)...)
	f := l.fateOf(append(about, "fate")...)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
		return undone
	case l.left == 0:
		l.end(about...)
		if l.after {
			return unanswered
		}
		return undone
	}
	l.left--
	return f
}

func (l *life) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	errs := make([]error, len(moves))
	whole := l.call("send", to, moves[0].Message.ReceiptHandle)
	for i, m := range moves {
		f := whole
		if f == done { // then each entry has its own fate
			f = l.fateOf("entry", to, m.Message.ReceiptHandle)
		}
		if f != undone {
			l.mu.Lock()
			l.move(to, m)
			l.mu.Unlock()
		}
		if f != done {
			errs[i] = lanes.ErrUnsent
		}
	}
	return errs
}

func (l *life) move(to job.Queue, m lanes.Move) {
	j := l.jobOf(m.Message)
	if n := len(m.Message.Attributes); n != 1 {
		l.breaks("%s travels with %d attributes of its sender, want 1", m.Message.ID, n)
	}
	if got := m.Message.Attributes["tenant"].String; got != j.name {
		l.breaks("%s travels with the tenant %q, want %q", m.Message.ID, got, j.name)
	}
	if got := m.Message.Group; got != j.name {
		l.breaks("%s travels with the group %q, want %q", m.Message.ID, got, j.name)
	}
	if m.Delay < 0 || m.Delay > topology.MaxDelay {
		l.breaks("%s is delayed by %v", m.Message.ID, m.Delay)
	}
	if to == job.DLQ && m.Message.Memory.Cause == job.CauseCrash && l.deaths[m.Message.ID] < ledger.ConvictAt {
		if e := l.entries[m.Message.Memory.Key]; !l.deadly(m.Message.Body) || e.LastClass != job.Crashed && e.Redrives == 0 {
			l.breaks("%s is convicted, and fewer than two invocations died with it, or with a message of its job that was isolated for that", m.Message.ID)
		}
	}
	if m.Message.Memory.MessageID == "" {
		l.breaks("%s travels to %s without the id of its job's first message", m.Message.ID, to)
	}
	if to == job.DLQ && m.Message.Memory.Cause == "" {
		l.breaks("%s travels to the DLQ without a cause", m.Message.ID)
	}
	l.moved[m.Message.ID] = true
	l.put(to, m.Message, m.Delay)
}

// deadly says whether so many invocations died with one message of this body that its job may be convicted. The job's
// other messages then find it isolated.
func (s *story) deadly(body string) bool {
	for id, n := range s.deaths {
		if n >= ledger.ConvictAt && s.bodies[id] == body {
			return true
		}
	}
	return false
}

func (l *life) Backoff(_ context.Context, lane job.Queue, items []lanes.Backoff) error {
	f := l.call("back off", items[0].ReceiptHandle)
	if f != undone {
		l.mu.Lock()
		for _, i := range items {
			if m := l.queues[lane][i.MessageID]; m != nil && m.ReceiptHandle == i.ReceiptHandle {
				m.visible = time.Now().Add(i.For)
			}
		}
		l.mu.Unlock()
	}
	if f != done {
		return lanes.ErrNotBackedOff
	}
	return nil
}

func (l *life) Delete(_ context.Context, from job.Queue, messages []job.Message) []error {
	errs := make([]error, len(messages))
	whole := l.call("delete", from, messages[0].ReceiptHandle)
	for i, m := range messages {
		f := whole
		if f == done {
			f = l.fateOf("delete one", m.ReceiptHandle)
		}
		if f != undone {
			l.acknowledge(from, m)
		}
		if f != done {
			errs[i] = lanes.ErrUndeleted
		}
	}
	return errs
}

// The ledger.

func (l *life) ReadStrikes(_ context.Context, id string) (ledger.Strikes, error) {
	if l.call("read strikes", id) != done {
		return ledger.Strikes{}, ledger.ErrUnavailable
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.named[id]
	st := ledger.Strikes{Kind: "sim", Key: of.Key, Subject: of.Subject, Digest: of.Digest}
	for _, token := range slices.Sorted(maps.Keys(l.strikes[id])) {
		st.Ends = append(st.Ends, l.strikes[id][token])
	}
	return st, nil
}

func (l *life) Strike(_ context.Context, id, token, _ string, end time.Time) error {
	f := l.call("strike", id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f != undone {
		if l.strikes[id] == nil {
			l.strikes[id] = map[string]time.Time{}
		}
		l.strikes[id][token] = end
		if l.dead {
			l.deaths[id]++ // at this very call
		}
		l.open[id] = true
		l.tell("%s: struck by %s, %d strikes", id, token, len(l.strikes[id]))
	}
	if f != done {
		return ledger.ErrUnavailable
	}
	return nil
}

func (l *life) NameSuspect(_ context.Context, d job.Delivery) error {
	f := l.call("name", d.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f != undone {
		l.named[d.ID] = d
	}
	if f != done {
		return ledger.ErrUnavailable
	}
	return nil
}

func (l *life) ClearStrike(_ context.Context, id, token string) error {
	f := l.call("clear", id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f != undone {
		delete(l.strikes[id], token)
		delete(l.open, id)
		l.tell("%s: cleared, %d strikes", id, len(l.strikes[id]))
	}
	if f != done {
		return ledger.ErrUnavailable
	}
	return nil
}

func (l *life) Get(_ context.Context, key string) (ledger.Entry, error) {
	if l.call("get", key) != done {
		return ledger.Entry{}, ledger.ErrUnavailable
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[key], nil
}

// Update behaves as the store's: it reads, changes, and writes if no other write came first, in three tries.
func (l *life) Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	for range 3 {
		found, err := l.Get(ctx, key)
		if err != nil {
			return ledger.Entry{}, err
		}
		next, err := change(found)
		if err != nil {
			return found, err
		}
		next.Owner, next.Version = token, found.Version+1
		f := l.call("update", key, token)
		l.mu.Lock()
		fits := l.entries[key].Version == found.Version
		if fits && f != undone {
			l.write(key, next)
		}
		l.mu.Unlock()
		if f != done {
			return found, ledger.ErrUnavailable
		}
		if fits {
			return next, nil
		}
	}
	return ledger.Entry{}, ledger.ErrContended
}

// write stores an entry. The caller holds the lock.
func (s *story) write(key string, e ledger.Entry) {
	old := s.entries[key]
	switch {
	case old.Status.Final() && !reflect.DeepEqual(old, e):
		s.breaks("%s was final and is written", key)
	case e.Attempts < old.Attempts:
		s.breaks("%s goes from %d attempts to %d", key, old.Attempts, e.Attempts)
	case e.Redrives < old.Redrives:
		s.breaks("%s goes from generation %d to %d", key, old.Redrives, e.Redrives)
	case e.Version != old.Version+1:
		s.breaks("%s goes from version %d to %d", key, old.Version, e.Version)
	case !lastFailure(e).Equal(lastFailure(old)) && e.Attempts+e.Throttles != old.Attempts+old.Throttles+1:
		s.breaks("%s failed and goes from %d attempts and %d throttles to %d and %d", key, old.Attempts, old.Throttles, e.Attempts, e.Throttles)
	case e.Attempts-e.BudgetFrom > s.config.Rules.Retry.MaxAttempts,
		e.Status == ledger.Isolated && e.Cause == job.CauseAttempts && e.Attempts-e.BudgetFrom < s.config.Rules.Retry.MaxAttempts:
		s.breaks("%s is %s by cause %q with %d attempts since it was opened", key, e.Status, e.Cause, e.Attempts-e.BudgetFrom)
	case e.Redrives > s.putBack[key]:
		s.breaks("%s was reopened %d times and put back %d times", key, e.Redrives, s.putBack[key])
	}
	s.entries[key] = e
	s.tell("%s is %s, %d attempts, %d redrives, cause %q", key, e.Status, e.Attempts, e.Redrives, e.Cause)
}

// lastFailure is the time of the last failed attempt in the history.
func lastFailure(e ledger.Entry) (last time.Time) {
	for _, ev := range e.History {
		if ev.What == ledger.EventFailed {
			last = ev.At
		}
	}
	return last
}

// commit is the kind's transaction: entry and effect, or neither.
func (l *life) commit(d job.Delivery, now time.Time) job.Result {
	f := l.call("commit", d.ReceiptHandle)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[d.Key]
	if f == undone {
		return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}
	}
	if !e.Accepts(now) {
		if f == unanswered {
			return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}
		}
		return e.Refusal(d.Token, now)
	}
	next, err := l.config.Rules.Finish(e, d, ledger.Done, "ran", now)
	if err != nil {
		l.breaks("%s accepts a completion and cannot finish: %v", d.Key, err)
	}
	next.Owner, next.Version = d.Token, e.Version+1
	l.write(d.Key, next)
	l.effects[d.Key]++
	if due := d.Envelope.NotBefore; time.Now().Before(due.Add(-maxSkew)) {
		l.breaks("%s takes effect at %v, due at %v", d.Key, time.Now(), due)
	}
	if f == unanswered {
		return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}
	}
	return job.Result{Verdict: job.Committed, Detail: "ran"}
}

var errDependency = errors.New("dependency down")

// run is one attempt at a job.
func (l *life) run(ctx context.Context, d job.Delivery, now func() time.Time) job.Result {
	mood := l.number(100, "mood", d.ReceiptHandle)
	angry := mood < 60 && !l.calm()
	t := l.jobs[slices.IndexFunc(l.jobs, func(j simJob) bool { return j.key == d.Key })].temper
	switch {
	case t == killer:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(d.ID)
		return job.Result{Err: errDependency}
	case t == hopeless, t == shaky && angry:
		class := []job.Class{job.Transient, job.Throttled, job.ClassUnknown}[mood%3]
		return job.Result{Err: &job.Failure{Class: class, RetryAfter: time.Duration(mood) * time.Second, Err: errDependency}}
	case t == forbidden:
		return job.Result{Err: &job.Failure{Class: job.Rejected, Err: errDependency}}
	case t == panicky && angry:
		panic("panicky")
	case t == hanging && angry:
		<-ctx.Done()
		return job.Result{Err: ctx.Err()}
	}
	return l.commit(d, now())
}

// process receives and works until the lanes are dry.
func (s *story) process(n int) {
	name := fmt.Sprint("process-", n)
	for turn := 0; ; turn++ {
		s.take(name, "turn")
		s.mu.Lock()
		dry := s.home && len(s.queues[job.Source])+len(s.queues[job.Recovery]) == 0
		s.mu.Unlock()
		if dry && s.calm() || time.Since(s.began) > limit {
			return
		}
		lane := []job.Queue{job.Source, job.Recovery}[turn%2]
		batch, next := s.receive(lane)
		if len(batch) == 0 {
			time.Sleep(min(time.Until(next), time.Minute) / 2)
			continue
		}
		s.invoke(fmt.Sprint(name, "/", turn), lane, batch)
	}
}

// invoke runs the handler on a batch, in a process that may die, and acknowledges the messages that the handler
// did not report.
func (s *story) invoke(name string, lane job.Queue, batch []job.Message) {
	l := &life{story: s, name: name, left: -1, open: map[string]bool{}}
	if s.number(100, "death", name) < s.die && !s.calm() {
		l.left, l.after = s.number(3*len(batch)+1, "death at", name), s.number(2, "death after", name) == 1
	}
	// Clocks differ, and may be reset.
	skew := time.Duration(s.number(int(2*maxSkew), "skew", name)) - maxSkew
	now := func() time.Time { return time.Now().Add(skew) }
	type payload struct{ ID string }
	kind := job.Define(job.Definition[payload]{Name: "sim", Key: func(p payload) (string, []string) { return p.ID, nil }})
	kind.Run = func(ctx context.Context, d job.Delivery) job.Result { return l.run(ctx, d, now) }
	tokens := 0
	h := worker.New(s.config, worker.Dependencies{
		Ledger: l, Lanes: l, Operators: &runs{}, Kinds: job.NewCatalogue(kind), Now: now,
		Metrics: telemetry.NewRecorder(io.Discard, "acklast", now), Log: telemetry.NewLogger(io.Discard, 0),
		Random: func() float64 { return float64(s.number(1000, "jitter", name)) / 1000 },
		Token:  func() string { tokens++; return fmt.Sprint(name, "-", tokens) },
	})
	var event events.SQSEvent
	for _, m := range batch {
		event.Records = append(event.Records, asRecord(m, lane))
	}
	ctx, cancel := context.WithTimeout(context.Background(), topology.Default().WorkerTimeout)
	defer cancel()
	response, err := h.Handle(ctx, event)
	if ctx.Err() != nil {
		s.mu.Lock()
		s.breaks("%s took all of its time", name)
		s.mu.Unlock()
	}
	if err != nil || l.dead {
		return
	}
	failed := map[string]bool{}
	for _, f := range response.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	for _, m := range batch {
		if !failed[m.ID] && s.fateOf("acknowledge", m.ReceiptHandle) != undone {
			s.acknowledge(lane, m)
		}
	}
}

// asRecord returns a message as Lambda shows it.
func asRecord(m job.Message, lane job.Queue) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: m.ID, ReceiptHandle: m.ReceiptHandle, Body: m.Body, EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:acklast-" + string(lane),
		Attributes: map[string]string{
			"SentTimestamp": fmt.Sprint(m.SentAt.UnixMilli()), "ApproximateReceiveCount": fmt.Sprint(m.ReceiveCount), "MessageGroupId": m.Group,
		},
		MessageAttributes: map[string]events.SQSMessageAttribute{},
	}
	for name, a := range m.Attributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{DataType: a.Type, StringValue: &a.String}
	}
	if own, err := m.Memory.Encode(); err == nil && m.Memory != (job.Memory{}) {
		r.MessageAttributes[job.MemoryAttribute] = events.SQSMessageAttribute{DataType: own.Type, StringValue: &own.String}
	}
	return r
}

// operator puts messages of the DLQ back now and then, by hand: a send, then a delete, which may fail.
func (s *story) operator() {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.home = true
	}()
	for {
		time.Sleep(11 * time.Minute)
		s.take("operator")
		if s.calm() {
			return
		}
		s.mu.Lock()
		ids := slices.Sorted(maps.Keys(s.queues[job.DLQ]))
		s.mu.Unlock()
		for _, id := range ids {
			if s.number(4, "put back") != 0 {
				continue
			}
			f := s.fateOf("put back", id)
			s.mu.Lock()
			m := s.queues[job.DLQ][id]
			s.put(job.Source, m.Message, 0)
			s.putBack[s.jobOf(m.Message).key]++
			if f == done {
				delete(s.queues[job.DLQ], id)
			}
			s.mu.Unlock()
		}
	}
}

// judge checks the state at the end.
func (s *story) judge() {
	if left := len(s.queues[job.Source]) + len(s.queues[job.Recovery]); left > 0 {
		s.breaks("%d messages still wander after %v", left, limit)
	}
	isolated := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(s.queues[job.DLQ])) {
		isolated[s.jobOf(s.queues[job.DLQ][id].Message).name]++
	}
	for _, j := range s.jobs {
		e, effects := s.entries[j.key], s.effects[j.key]
		switch {
		case effects > 1:
			s.breaks("%s took effect %d times", j.name, effects)
		case (effects == 1) != (e.Status == ledger.Done):
			s.breaks("%s took effect %d times and is %q", j.name, effects, e.Status)
		case !e.Status.Final() && isolated[j.name] == 0:
			s.breaks("%s is lost: entry %q, nothing on the DLQ", j.name, e.Status)
		}
		if j.temper == killer && effects > 0 {
			s.breaks("%s took effect and should have died of it", j.name)
		}
		if j.temper == broken && isolated[j.name] < 1 {
			s.breaks("%s cannot be read and is not on the DLQ", j.name)
		}
	}
}
