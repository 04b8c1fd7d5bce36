package redrive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"

	"github.com/google/uuid"
)

// million is a world for many jobs: it keeps a few bytes of each, and makes messages, entries and audit lines of them
// when it is asked. Every hundredth job is of another class; every thousandth fails again.
type million struct {
	mu sync.Mutex
	n  int
	// status, run and generation are those of the jobs' entries.
	status     []byte
	opened     []byte
	generation []byte
	// visible are the numbers of the messages that can be received: job i is message i, and n+i when it failed again.
	visible []int32
	hidden  map[int32]bool
	most    int
	// last is the last step of each message's audit, shards where its lines lie.
	last   []byte
	shards []byte
	// run is the run's id, started a time after its plan was made.
	run     string
	started time.Time
	small   *world
	calls   map[string]int
	sent    int
}

const (
	isolatedAgain = 'a'
	isolatedFirst = 'i'
	pendingNow    = 'p'
	doneNow       = 'd'
)

var millionSteps = []redrive.Step{"", "intent", "sent", "sent-undeleted", "unsent", "removed", "final-undeleted", "kept", "unsure", "copy", "gone"}

func newMillion(n int) *million {
	m := &million{n: n, status: make([]byte, n), opened: make([]byte, n), generation: make([]byte, n), last: make([]byte, 2*n), shards: make([]byte, 2*n),
		hidden: map[int32]bool{}, small: newWorld(), calls: map[string]int{}}
	for i := range n {
		m.status[i] = isolatedFirst
		m.visible = append(m.visible, int32(i*7919%n))
	}
	for i := range 2 * n {
		h := fnv.New32a()
		h.Write([]byte(messageID(int32(i))))
		m.shards[i] = byte(h.Sum32() % 16)
	}
	return m
}

func messageID(i int32) string { return fmt.Sprintf("m-%07d", i) }

func numberOf(text string) int {
	i, err := strconv.Atoi(text[strings.LastIndexAny(text, "-j")+1:])
	if err != nil {
		panic(err)
	}
	return i
}

func classOf(i int) job.Class {
	if i%100 == 0 {
		return job.Rejected
	}
	return job.Transient
}

// The ledger.

func (m *million) entry(i int) ledger.Entry {
	e := ledger.Entry{Key: key(fmt.Sprint("j", i)), Subject: fmt.Sprint("j", i), Kind: "test", Version: 1, Redrives: int(m.generation[i]), LastClass: classOf(i), Cause: job.CauseAttempts}
	switch m.status[i] {
	case isolatedFirst:
		e.Status, e.IsolatedAt = ledger.Isolated, time.Unix(1, 0)
	case isolatedAgain:
		e.Status, e.IsolatedAt = ledger.Isolated, m.started
	case pendingNow:
		e.Status = ledger.Pending
	case doneNow:
		e.Status = ledger.Done
	}
	if m.opened[i] == 1 {
		e.Run = m.run
	}
	return e
}

func (m *million) Get(_ context.Context, k string) (ledger.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["get"]++
	return m.entry(numberOf(k)), nil
}

func (m *million) ReadStrikes(context.Context, string) (ledger.Strikes, error) {
	return ledger.Strikes{}, nil
}

func (m *million) Update(_ context.Context, k, _ string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["update"]++
	i := numberOf(k)
	found := m.entry(i)
	e, err := change(found)
	if err != nil {
		return found, err
	}
	if e.Status != ledger.Pending || e.Run != m.run {
		panic(fmt.Sprintf("an entry that is %s for run %q", e.Status, e.Run))
	}
	m.status[i], m.opened[i], m.generation[i] = pendingNow, 1, byte(e.Redrives)
	return e, nil
}

// The queues.

func (m *million) Receive(_ context.Context, _ job.Queue, n int, _, _ time.Duration) (list []lanes.Received, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["receive"]++
	for len(list) < n && len(m.visible) > 0 {
		i := m.visible[0]
		m.visible = m.visible[1:]
		m.hidden[i] = true
		at, of := time.Unix(1, 0), int(i)
		if of >= m.n {
			at, of = m.started, of-m.n
		}
		list = append(list, lanes.Received{Message: job.Message{ID: messageID(i), ReceiptHandle: strconv.Itoa(int(i)), Body: body(fmt.Sprint("j", of)), SentAt: at,
			Memory: job.Memory{Class: classOf(of), Cause: job.CauseAttempts, Error: "down", At: at}}})
	}
	m.most = max(m.most, len(m.hidden))
	return list, nil
}

// Send is also the worker: it ends every job at once.
func (m *million) Send(_ context.Context, _ job.Queue, moves []lanes.Move) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["send"]++
	for _, move := range moves {
		i := numberOf(move.Message.ID)
		m.sent++
		if m.status[i] = doneNow; m.sent%1000 == 500 { // by the order of sending, so that the canary never has such a job
			m.status[i] = isolatedAgain
			m.visible = append(m.visible, int32(m.n+i))
		}
	}
	return make([]error, len(moves))
}

func (m *million) Delete(_ context.Context, _ job.Queue, messages []job.Message) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["delete"]++
	for _, message := range messages {
		delete(m.hidden, int32(numberOf(message.ID)))
	}
	return make([]error, len(messages))
}

func (m *million) Hide(context.Context, job.Queue, []job.Message, time.Duration) error { return nil }

func (m *million) Release(_ context.Context, _ job.Queue, messages []job.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range messages {
		i := int32(numberOf(message.ID))
		delete(m.hidden, i)
		m.visible = append(m.visible, i)
	}
	return nil
}

func (m *million) Depth(_ context.Context, of job.Queue) (lanes.Depth, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of != job.DLQ {
		return lanes.Depth{}, nil
	}
	return lanes.Depth{Visible: len(m.visible), InFlight: len(m.hidden)}, nil
}

// The table: small documents as they are, the run's audit as one step for each message.

type millionTable struct {
	table
	m *million
}

func (t millionTable) Append(ctx context.Context, records []redrive.Record) error {
	if !strings.HasPrefix(records[0].PK, "audit#"+t.m.run+"#") || t.m.run == "" {
		return t.table.Append(ctx, records)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	for _, r := range records {
		parts := strings.Split(r.SK, "#")
		for step, name := range millionSteps {
			if string(name) == parts[2] {
				t.m.last[numberOf(parts[0])] = byte(step)
			}
		}
	}
	return nil
}

func (t millionTable) Query(ctx context.Context, pk, prefix string, each func(redrive.Record) error) error {
	shard, ours := strings.CutPrefix(pk, "audit#"+t.m.run+"#")
	if !ours || t.m.run == "" {
		return t.table.Query(ctx, pk, prefix, each)
	}
	number, err := strconv.Atoi(shard)
	if err != nil {
		return err
	}
	for i, step := range t.m.last {
		if step == 0 || int(t.m.shards[i]) != number {
			continue
		}
		doc, err := json.Marshal(map[string]any{"format": 1, "doc": redrive.AuditRecord{Run: t.m.run, Message: messageID(int32(i)), What: millionSteps[step],
			Job: key(fmt.Sprint("j", i%t.m.n)), Generation: 1}})
		if err == nil {
			err = each(redrive.Record{Doc: doc})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// heap watches the live heap while it runs, and returns how far it rose above what it was before.
func heap(while func()) (rise float64) {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	while()
	close(done)
	<-ended
	return float64(peak.Load()) - float64(before.HeapAlloc)
}

// An open plan over 1,000,000 messages on a fake, bounded by counts: every matching job is sent once, each message is
// received and joined once for each pass, and memory is a few bytes a message.
func BenchmarkOpenPlanOfAMillion(b *testing.B) {
	for range b.N {
		openPlanOf(b, 1_000_000)
	}
}

func openPlanOf(b testing.TB, n int) {
	m := newMillion(n)
	c := redrive.Config{Names: topology.NamesOf("test"), Numbers: topology.DefaultRedrive(), Unqualified: true, Rules: ledger.Rules{MaxRedrives: 3, Retention: time.Hour}}
	c.Numbers.ReceiveWait, c.Numbers.Ramp, c.Numbers.ScanMessages = 0, 0, 1000
	s := redrive.New(c, redrive.Dependencies{Ledger: m, Queues: m, Table: millionTable{table{m.small}, m}, Kinds: job.NewCatalogue(testKind("test", job.RunLate)),
		Log: slog.New(slog.DiscardHandler), Progress: redrive.NoProgress, Now: time.Now, ID: uuid.NewString})
	plan := request(b, s, redrive.Request{Action: "plan", Open: true, Select: transient, Count: 2 * n, RatePerSecond: -1, By: "a", Reason: "b"}).Plan
	request(b, s, redrive.Request{Action: "approve", Plan: plan.ID, By: "c", Reason: "d"})
	m.run, m.started, m.calls, m.most = plan.Run, time.Now(), map[string]int{}, 0
	var run *redrive.Run
	rise := heap(func() { run = request(b, s, redrive.Request{Action: "run", Plan: plan.ID}).Run })
	others := n / 100
	jobs := n - others
	again := (jobs + 500) / 1000
	if run.State != redrive.Done {
		b.Fatalf("%s %s: %s", run.State, run.Code, run.Why)
	}
	if m.sent != jobs {
		b.Errorf("%d sent, want each of %d jobs once", m.sent, jobs)
	}
	if run.Endings[redrive.Again] != again || run.Endings[redrive.Succeeded] != jobs-again || run.Total != jobs {
		b.Errorf("endings %v of %d, want %d succeeded and %d isolated again", run.Endings, run.Total, jobs-again, again)
	}
	if left := len(m.visible); left != others+again || len(m.hidden) != 0 {
		b.Errorf("%d left on the DLQ and %d hidden, want %d and none", left, len(m.hidden), others+again)
	}
	// Two passes: one over all, one over what is left. Side by side, the last receives may bring nothing.
	if most := (n+2*(others+again))/10 + 100; m.calls["receive"] > most {
		b.Errorf("%d receives, want at most %d", m.calls["receive"], most)
	}
	// One to join each message, one to judge each job at the end, and those of the window.
	if m.calls["get"] > 3*n {
		b.Errorf("%d reads of entries for %d messages, want at most 3 each", m.calls["get"], n)
	}
	if m.calls["update"] != jobs {
		b.Errorf("%d updates of entries, want one for each of %d jobs", m.calls["update"], jobs)
	}
	if m.most > c.Numbers.MaxHidden {
		b.Errorf("%d messages were hidden at a time, want at most %d", m.most, c.Numbers.MaxHidden)
	}
	if r, ok := b.(*testing.B); ok {
		r.ReportMetric(rise/float64(n), "B/message")
	}
	if each := rise / float64(n); each > 100 && n >= 1_000_000 {
		b.Errorf("%.0f bytes a message, want at most 100", each)
	}
}

// The same, smaller, with every test.
func TestAnOpenPlanOfManyMessages(t *testing.T) {
	n := 5_000
	if raceDetector {
		n = 1_000
	}
	openPlanOf(t, n)
}
