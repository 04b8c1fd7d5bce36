package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/soak"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// process is a place for a process of the worker. When the process dies, Lambda starts another one.
func (s *story) process(n int) {
	place := fmt.Sprint("worker-", n)
	var l *life
	var handler *worker.Handler
	starts := 0
	for turn := 0; ; turn++ {
		s.rest(0, place)
		if s.dry() || time.Since(s.began) > limit {
			return
		}
		lane := []job.Queue{job.Source, job.Recovery}[turn%2]
		s.mu.Lock()
		batch, next := s.take(lane, 10, topology.Default().LaneVisibility, s.fits)
		for _, m := range batch {
			s.delivered[m.receipt] = len(s.history.Deliveries)
			s.history.Deliveries = append(s.history.Deliveries, soak.Delivery{Mark: m.mark(), MessageID: m.id, Receipt: m.receipt, Content: m.content()})
		}
		s.mu.Unlock()
		if len(batch) == 0 {
			if turn%2 == 1 {
				time.Sleep(min(time.Until(next), 2*time.Minute))
			}
			continue
		}
		if l == nil || l.dead || l.gone {
			starts++
			l, _ = s.born(context.Background(), fmt.Sprint(place, "/", starts), 0, 1)
			handler = l.handler()
		}
		l.risk(s.die, 3*len(batch)+2)
		l.invoke(handler, lane, batch)
	}
}

// fits keeps copies of a job out of a batch whose records run side by side, because a replay needs a fixed order. With
// one record at a time they come together.
func (s *story) fits(batch []*message, m *message) bool {
	key := func(m *message) string {
		if of := s.letterOf(m); of != nil && of.key != "" {
			return of.key
		}
		return m.mark()
	}
	return s.config.Concurrency == 1 || !slices.ContainsFunc(batch, func(b *message) bool { return key(b) == key(m) })
}

// dry says whether nothing is left to do.
func (s *story) dry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home && s.calm() && s.firing == 0 && len(s.queues[job.Source])+len(s.queues[job.Recovery]) == 0
}

func (l *life) handler() *worker.Handler {
	tokens := 0
	return worker.New(l.config, worker.Dependencies{
		Ledger: l.store(), Lanes: l.lanes(),
		Scheduler: schedule.New(clock{l.story}, schedule.Target{
			Group: names.ScheduleGroup, RoleARN: l.config.ScheduleRoleARN, QueueURL: l.config.RecoveryURL, DLQARN: l.config.DLQARN,
		}),
		Operators: operators{redrive.Operators{Table: redrive.NewStore(l.client, names.OperationsTable)}},
		Kinds:     l.kinds(), Now: l.clock,
		Metrics: telemetry.NewRecorder(io.Discard, stack, l.clock), Log: telemetry.NewLogger(io.Discard, 100),
		Random: func() float64 { return float64(l.number(1000, l.name, "jitter")) / 1000 },
		Token:  func() string { tokens++; return fmt.Sprint(strings.ReplaceAll(l.name, "/", "-"), "-", tokens) },
		Exit: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.tell("%s ends itself", l.name)
			l.dead = true
			l.end()
		},
	})
}

// operators read the paused kinds in no time. The worker reads them under a lock, and virtual time stands still while
// somebody waits for a lock.
type operators struct{ redrive.Operators }

func (o operators) Paused(context.Context) ([]string, error) {
	return o.Operators.Paused(context.Background())
}

func (l *life) lanes() *lanes.Client {
	return lanes.New(lines{l.story}, topology.QueueURLs{Source: "source", Recovery: "recovery", DLQ: "dlq"})
}

// invoke is Lambda: it hands over a batch, and deletes the messages that the answer does not report.
func (l *life) invoke(h *worker.Handler, lane job.Queue, batch []*message) {
	var event events.SQSEvent
	for _, m := range batch {
		event.Records = append(event.Records, record(m, lane))
	}
	ctx, end := context.WithTimeout(context.WithValue(context.Background(), lifeKey{}, l), topology.Default().WorkerTimeout)
	defer end()
	l.end = end
	l.invoked = time.Now()
	over := make(chan struct{})
	if l.stalls+l.freezes > 0 {
		until, _ := ctx.Deadline()
		l.later.Go(func() { l.watch(until, over) })
	}
	l.stall(200*time.Millisecond, "invocation")
	answer, err := h.Invoke(ctx, event)
	close(over)
	l.mu.Lock()
	if ctx.Err() != nil && !l.goes.Before(l.invoked) {
		l.givenUp()
	}
	l.mu.Unlock()
	if l.gone { // Lambda does not listen any more, and the process may still make calls
		return
	}
	if ctx.Err() != nil && !l.dead {
		l.mu.Lock()
		l.breaks("%s took all of its time", l.name)
		l.mu.Unlock()
	}
	if err != nil || l.dead {
		return
	}
	response, ok := answer.(events.SQSEventResponse)
	if !ok {
		stream := answer.(io.ReadCloser)
		if err := json.NewDecoder(stream).Decode(&response); err != nil {
			panic(err)
		}
		defer func() { _ = stream.Close() }() // ends the process
	}
	failed := map[string]bool{}
	for _, f := range response.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	_ = l.call(ctx, ofLambda, "answer "+batch[0].receipt, func(bool) { // without an answer, nothing is deleted
		for _, m := range batch {
			d := &l.history.Deliveries[l.delivered[m.receipt]]
			d.Answered, d.Acknowledged = l.now(), !failed[m.id]
			if d.Acknowledged && (l.calm() || l.number(100, "acknowledge"+m.receipt) >= l.fail) {
				l.deleted(l, lane, m.receipt)
			}
		}
	})
}

// record is a message as Lambda shows it.
func record(m *message, lane job.Queue) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: m.id, ReceiptHandle: m.receipt, Body: m.body, EventSourceARN: "arn:aws:sqs:us-east-1:1:" + stack + "-" + string(lane),
		Attributes: system(m), MessageAttributes: map[string]events.SQSMessageAttribute{},
	}
	for name, a := range m.attributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{DataType: *a.DataType, StringValue: a.StringValue, BinaryValue: a.BinaryValue}
	}
	return r
}
