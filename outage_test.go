package acklast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"acklast"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/lanes"
	"acklast/internal/memdb"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// outage is a worker with the real kind of reminders, on a DynamoDB that can be out of reach.
type outage struct {
	testing.TB
	*memdb.DB
	now    time.Time
	down   bool
	slow   time.Duration // of each claim
	paused []string
	sent   []lanes.Move
	to     job.Queue // of the last move
	out    bytes.Buffer
	worker *worker.Handler
	// subscriptions is the table that reminders are checked against.
	subscriptions *reminder.Subscriptions
}

func newOutage(t *testing.T) *outage {
	o := &outage{TB: t, DB: memdb.New(), now: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)}
	const stack = "outage"
	names, clock := topology.NamesOf(stack), func() time.Time { return o.now }
	for _, table := range names.Tables() {
		o.CreateTable(table.Name, table.PartitionKey, table.SortKey)
	}
	o.CreateTable(names.Table("subscriptions"), "subscription_id", "")
	services := acklast.NewServices(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String("http://memory.invalid"), HTTPClient: o, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "memory", SecretAccessKey: "memory"}, nil
		}),
	}, stack, clock)
	services.Getenv = func(name string) string {
		return map[string]string{reminder.EnvProvider: "http", reminder.EnvURL: "https://provider.invalid", reminder.EnvRefusals: "none"}[name]
	}
	o.subscriptions = reminder.NewSubscriptions(services.DynamoDB, names.Table("subscriptions"))
	kind, err := acklast.Running(t.Context(), reminder.Kind(), services)
	if err != nil {
		t.Fatal(err)
	}
	env := worker.Environment(stack, topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	o.worker = worker.New(config, worker.Dependencies{
		Ledger: dynamo.New(services.DynamoDB, names.LedgerTable, dynamo.Options{Now: clock}), Lanes: o, Operators: o,
		Kinds: job.NewCatalogue(kind), Metrics: telemetry.NewRecorder(&o.out, stack, clock), Log: telemetry.NewLogger(&o.out, 0),
		Now: clock, Random: func() float64 { return 0 }, Token: func() string { tokens++; return fmt.Sprint("token-", tokens) },
	})
	return o
}

func (o *outage) Do(r *http.Request) (*http.Response, error) {
	if o.down {
		return nil, errors.New("no connection")
	}
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem") {
		o.now = o.now.Add(o.slow)
	}
	return o.DB.Do(r)
}

func (o *outage) Revoked(context.Context, string) (bool, error) { return false, nil }
func (o *outage) Paused(context.Context) ([]string, error)      { return o.paused, nil }

func (o *outage) Send(_ context.Context, to job.Queue, moves []lanes.Move) []error {
	o.sent, o.to = append(o.sent, moves...), to
	return make([]error, len(moves))
}
func (o *outage) Backoff(context.Context, job.Queue, []lanes.Backoff) error { return nil }
func (o *outage) Delete(_ context.Context, _ job.Queue, all []job.Message) []error {
	return make([]error, len(all))
}

// deliver delivers a message, and returns it as the worker moved it; nil if it was acknowledged.
func (o *outage) deliver(m *job.Message) *job.Message {
	o.Helper()
	move, _ := o.moved(m)
	if move == nil {
		return nil
	}
	return &move.Message
}

// moved is deliver, and says how the message was moved, and where to.
func (o *outage) moved(m *job.Message) (*lanes.Move, job.Queue) {
	o.Helper()
	o.sent = nil
	o.out.Reset()
	own, err := m.Memory.Encode()
	if err != nil {
		o.Fatal(err)
	}
	answer, err := o.worker.Handle(o.Context(), events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: "m1", ReceiptHandle: "r1", Body: m.Body, EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:outage-source",
		Attributes:        map[string]string{"SentTimestamp": fmt.Sprint(o.now.UnixMilli()), "ApproximateReceiveCount": "1"},
		MessageAttributes: map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: own.Type, StringValue: &own.String}},
	}}})
	if err != nil || len(answer.BatchItemFailures) > 0 {
		o.Fatalf("left: %v\n%s", err, o.out.String())
	}
	if len(o.sent) == 0 {
		return nil, ""
	}
	return &o.sent[0], o.to
}

// A ledger whose claims always leave too little time for the call is in trouble. A job that never expires goes to the DLQ
// after three days of that, with few deliveries, and nothing is sent.
func TestClaimsThatAreAlwaysSlow(t *testing.T) {
	o := newOutage(t)
	p := reminder.Payload{
		ReminderID: "rem-1", SubscriptionID: "sub-1", Channel: reminder.Email, Template: "renewal", TemplateVersion: "1",
		Recipient: "customer-1", Plan: "pro", RenewsAt: o.now.AddDate(1, 0, 0), ExpiresAt: o.now.AddDate(1, 0, 0),
	}
	body, err := p.Job(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.subscriptions.Put(t.Context(), reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}); err != nil {
		t.Fatal(err)
	}
	begun := o.now
	o.slow = 2 * time.Second
	m, deliveries := &job.Message{Body: body}, 0
	for {
		deliveries++
		if deliveries > 400 {
			t.Fatalf("still deferred after %d deliveries and %v:\n%s", deliveries, o.now.Sub(begun), o.out.String())
		}
		move, to := o.moved(m)
		if move == nil {
			t.Fatalf("it ended:\n%s", o.out.String())
		}
		if m = &move.Message; to == job.DLQ {
			break
		}
		o.now = o.now.Add(move.Delay)
	}
	if m.Memory.Cause != job.CauseTime {
		t.Errorf("cause %q, want %q", m.Memory.Cause, job.CauseTime)
	}
	if took := o.now.Sub(begun).Round(time.Hour); took != 72*time.Hour {
		t.Errorf("on the DLQ after %v, want 72h", took)
	}
	if m.Memory.Attempt != 0 {
		t.Errorf("%d attempts were spent", m.Memory.Attempt)
	}
	if m.Memory.UnusedClaim != "" {
		t.Errorf("the message names the claim %q", m.Memory.UnusedClaim)
	}
}

// A reminder that expires is counted apart if an outage of the ledger held it back, also if it waited for another
// reason meanwhile.
func TestAReminderThatExpiresByAnOutageIsCountedApart(t *testing.T) {
	for _, c := range []struct {
		name           string
		outage, paused bool
		want           string
	}{
		{"no trouble", false, false, `"ExpiredByOutage":0`},
		{"a pause", false, true, `"ExpiredByOutage":0`},
		{"an outage", true, false, `"ExpiredByOutage":1`},
		{"an outage and a pause", true, true, `"ExpiredByOutage":1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOutage(t)
			body, err := reminder.Payload{
				ReminderID: "rem-1", SubscriptionID: "sub-1", Channel: reminder.Email, Template: "renewal", TemplateVersion: "1",
				Recipient: "customer-1", Plan: "pro", RenewsAt: o.now.Add(time.Hour), ExpiresAt: o.now.Add(10 * time.Minute),
			}.Job(time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			m := &job.Message{Body: body}
			if c.outage {
				o.down = true
				m = o.deliver(m)
				o.down = false
				o.now = o.now.Add(30 * time.Second)
			}
			if c.paused {
				o.paused = []string{reminder.KindName}
				m = o.deliver(m)
				o.paused = nil
			}
			o.now = o.now.Add(10 * time.Minute)
			if moved := o.deliver(m); moved != nil {
				t.Fatalf("it did not end:\n%s", o.out.String())
			}
			if !strings.Contains(o.out.String(), `"detail":"expired"`) {
				t.Errorf("it did not expire:\n%s", o.out.String())
			}
			if !strings.Contains(o.out.String(), c.want) {
				t.Errorf("no %s in\n%s", c.want, o.out.String())
			}
		})
	}
}
