package acklast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/google/uuid"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/memdb"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// sdkAttempts is how often the SDK makes one call in memory.
const sdkAttempts = 2

// checkStack is the name of the stack that exists only in memory.
const checkStack = "check"

// world is a worker with one kind on a DynamoDB in memory. Its clock stands still unless it is moved.
type world struct {
	db       *memdb.DB
	line     *line
	services Services
	kind     job.Kind
	handler  *worker.Handler
	tables   []Table
	queue    *checkQueue
	told     *toldDeliveries

	mu  sync.Mutex
	now time.Time
}

func newWorld(ctx context.Context, k Kind, o CheckOptions) (*world, error) {
	w := &world{db: memdb.New(), tables: k.kind.Tables, queue: &checkQueue{}, told: &toldDeliveries{}}
	w.line = &line{next: w.db}
	names := topology.NamesOf(checkStack)
	for _, t := range names.Tables() {
		w.db.CreateTable(t.Name, t.PartitionKey, t.SortKey)
	}
	for _, t := range w.tables {
		w.db.CreateTable(names.Table(t.Name), t.PartitionKey, t.SortKey)
	}
	const nowhere = "http://memory.invalid"
	w.services = NewServices(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(nowhere), HTTPClient: w.line,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "memory", SecretAccessKey: "memory"}, nil
		}),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff, o.RateLimiter = sdkAttempts, time.Nanosecond, unlimited{}
			})
		},
	}, checkStack, w.clock)
	w.services.Getenv = o.Getenv
	w.services.Log = slog.New(w.told)

	running, err := k.start(ctx, w.services)
	if err != nil {
		return nil, err
	}
	w.kind = running
	environment := worker.Environment(checkStack, topology.QueueURLs{Source: nowhere, Recovery: nowhere, DLQ: nowhere}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return environment[name] })
	if err != nil {
		return nil, err
	}
	w.handler = worker.New(config, worker.Dependencies{
		Ledger: w.services.core.store, Lanes: w.queue, Operators: noOperators{}, Kinds: job.NewCatalogue(running),
		Metrics: telemetry.NewRecorder(io.Discard, checkStack, w.clock), Log: w.services.Log,
		Now: w.clock, Random: func() float64 { return 0 }, Token: uuid.NewString, Exit: func() {},
	})
	return w, nil
}

// unlimited lets the SDK repeat a call however many have failed before.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (unlimited) AddTokens(uint) error { return nil }

// noOperators have made no decision.
type noOperators struct{}

func (noOperators) Revoked(context.Context, string) (bool, error) { return false, nil }
func (noOperators) Paused(context.Context) ([]string, error)      { return nil, nil }

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) at(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

// reset empties the tables, sets the clock and calls Seed.
func (w *world) reset(ctx context.Context, now time.Time, seed func(context.Context, Services) error) error {
	w.line.set(nil)
	w.db.Clear()
	w.queue.take()
	w.at(now)
	if seed != nil {
		if err := seed(ctx, w.services); err != nil {
			return fmt.Errorf("the option Seed: %w", err)
		}
	}
	w.db.Calls()
	return nil
}

// delivered is the result of one delivery, from the worker's log.
type delivered struct {
	outcome   job.Outcome
	duplicate bool
	err       string
}

// deliver gives the worker one batch of messages and returns the result of each.
func (w *world) deliver(ctx context.Context, messages ...job.Message) []delivered {
	var event events.SQSEvent
	for _, m := range messages {
		event.Records = append(event.Records, asRecord(m))
	}
	_, _ = w.handler.Handle(ctx, event) // an error of the batch only says that everything was left, as the outcomes do
	all := make([]delivered, len(messages))
	for i, m := range messages {
		all[i] = w.told.of(m.ID)
	}
	return all
}

// asRecord is a message as Lambda delivers it: from the recovery lane if it has been handled before.
func asRecord(m job.Message) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: m.ID, ReceiptHandle: m.ID, Body: m.Body,
		EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:" + topology.NamesOf(checkStack).SourceQueue,
		Attributes: map[string]string{
			"ApproximateReceiveCount": "1", "SentTimestamp": strconv.FormatInt(m.SentAt.UnixMilli(), 10),
		},
	}
	if a, err := m.Memory.Encode(); err == nil && m.Memory != (job.Memory{}) {
		r.EventSourceARN = "arn:aws:sqs:us-east-1:000000000000:" + topology.NamesOf(checkStack).RecoveryQueue
		r.MessageAttributes = map[string]events.SQSMessageAttribute{
			job.MemoryAttribute: {DataType: a.Type, StringValue: &a.String},
		}
	}
	return r
}

// runBatches passes the jobs that share something to the kind's batch form, if it has one.
func (w *world) runBatches(ctx context.Context, bodies []string) error {
	if w.kind.RunBatch == nil {
		return nil
	}
	starter := &Starter{kind: w.kind, now: w.clock}
	groups := map[string][]job.Delivery{}
	for _, body := range bodies {
		d, err := starter.delivery(body)
		if err != nil {
			return err
		}
		if name := w.kind.Together(d); name != "" {
			groups[name] = append(groups[name], d)
		}
	}
	for name, group := range groups {
		if results := w.kind.RunBatch(ctx, group); len(results) != len(group) {
			return fmt.Errorf("RunBatch returned %d results for the %d jobs of %q", len(results), len(group), name)
		}
	}
	return nil
}

// message is a copy of the job, sent now.
func (w *world) message(body string) job.Message {
	return job.Message{ID: uuid.NewString(), Body: body, SentAt: w.clock()}
}

// rounds bounds how often a job is delivered until it has ended.
const rounds = 25

// settle delivers messages, and delivers them again if they are handed on or left. Faults end with the first
// delivery. It returns every delivery in order.
func (w *world) settle(ctx context.Context, messages ...job.Message) ([]delivered, error) {
	var all []delivered
	for range rounds {
		got := w.deliver(ctx, messages...)
		w.line.set(nil)
		all = append(all, got...)
		var next []job.Message
		later := w.clock()
		for i, d := range got {
			if d.outcome == job.Left {
				next = append(next, messages[i])
				later = w.clock().Add(30 * time.Second) // SQS hides it for a while
			}
		}
		for _, move := range w.queue.take() {
			next = append(next, job.Message{ID: uuid.NewString(), Body: move.Message.Body, SentAt: w.clock(), Memory: move.Message.Memory})
			if due := w.clock().Add(move.Delay); due.After(later) {
				later = due
			}
		}
		if len(next) == 0 {
			return all, nil
		}
		messages = next
		w.at(later)
	}
	return all, fmt.Errorf("it has no end after %d rounds of deliveries: %s", rounds, all[len(all)-1].err)
}

func (w *world) entry(ctx context.Context, key string) (ledger.Entry, error) {
	w.line.set(nil)
	return w.services.core.store.Get(ctx, key)
}

// checkQueue records the messages that the worker hands on to a lane.
type checkQueue struct {
	mu    sync.Mutex
	moves []lanes.Move
}

func (q *checkQueue) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if to != job.DLQ {
		q.moves = append(q.moves, moves...)
	}
	return make([]error, len(moves))
}

func (q *checkQueue) Backoff(context.Context, job.Queue, []lanes.Backoff) error { return nil }

func (q *checkQueue) Delete(_ context.Context, _ job.Queue, messages []job.Message) []error {
	return make([]error, len(messages))
}

func (q *checkQueue) take() []lanes.Move {
	q.mu.Lock()
	defer q.mu.Unlock()
	moves := q.moves
	q.moves = nil
	return moves
}

// toldDeliveries is a log handler that keeps only the worker's line for each delivery.
type toldDeliveries struct {
	mu   sync.Mutex
	byID map[string]delivered
}

func (l *toldDeliveries) Enabled(context.Context, slog.Level) bool { return true }
func (l *toldDeliveries) WithAttrs([]slog.Attr) slog.Handler       { return slog.DiscardHandler } // a job's own
func (l *toldDeliveries) WithGroup(string) slog.Handler            { return slog.DiscardHandler }

func (l *toldDeliveries) Handle(_ context.Context, r slog.Record) error {
	if r.Message != telemetry.MessageDelivery {
		return nil
	}
	var id string
	var d delivered
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case telemetry.KeyMessageID:
			id = a.Value.String()
		case telemetry.KeyOutcome:
			d.outcome = job.Outcome(a.Value.String())
		case telemetry.KeyDuplicate:
			d.duplicate = a.Value.Bool()
		case telemetry.KeyError:
			d.err = a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[string]delivered{}
	}
	l.byID[id] = d
	return nil
}

func (l *toldDeliveries) of(id string) delivered {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

// line is the connection between the SDK and the tables. It can lose answers and refuse calls.
type line struct {
	next aws.HTTPClient

	mu    sync.Mutex
	calls int
	// fault chooses the fault of each call by its number, from 0; nil means no fault.
	fault func(call int) lineFault
}

// lineFault is a fault of a call.
type lineFault int

const (
	noFault lineFault = iota
	// loseAnswer makes the call and loses its answer.
	loseAnswer
	// throttle refuses the call.
	throttle
)

var errLost = errors.New("the answer was lost")

// set sets the fault and restarts the count of calls.
func (l *line) set(fault func(call int) lineFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.fault = 0, fault
}

func (l *line) made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func (l *line) Do(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	fault := noFault
	if l.fault != nil {
		fault = l.fault(l.calls)
	}
	l.calls++
	l.mu.Unlock()
	for range 10 { // without a pause, calls in memory are so fast that deliveries would never meet
		runtime.Gosched()
	}
	if fault == throttle {
		return memdb.Throttled(r), nil
	}
	response, err := l.next.Do(r)
	if fault == loseAnswer {
		return nil, errLost
	}
	return response, err
}
