package acklast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

var now = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// stack is a client's stack on the embedded AWS.
type stack struct {
	*testing.T
	cfg    aws.Config
	names  topology.Names
	client *acklast.Client
	store  *dynamo.Store
}

func newStack(t *testing.T) stack {
	t.Helper()
	name := fmt.Sprintf("face-%d", rand.Uint64())
	env, err := local.StartAWS(t.Context(), name, topology.Scaled(), 0, job.Table{Name: "orders", PartitionKey: "order_id"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	cfg, names := env.AWSConfig(), topology.NamesOf(name)
	clock := func() time.Time { return now }
	return stack{
		T: t, cfg: cfg, names: names,
		client: acklast.NewClient(cfg, name, func(o *acklast.ClientOptions) { o.Now = clock }),
		store:  dynamo.New(awsclient.DynamoDB(cfg), names.LedgerTable, dynamo.Options{Now: clock}),
	}
}

type order struct {
	OrderID string `json:"orderId"`
	Units   int64  `json:"units"`
}

func TestClientSendsWhatAWorkerReads(t *testing.T) {
	s := newStack(t)
	deadline := now.Add(time.Hour)
	if err := s.client.Send(t.Context(), acklast.Message{
		Kind: "order.close", Payload: order{"o-1", 1<<53 + 1}, Deadline: deadline,
		Attributes: map[string]string{"tenant": "t-7"},
	}); err != nil {
		t.Fatal(err)
	}
	queues := awsclient.SQS(s.cfg)
	url, err := queues.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &s.names.SourceQueue})
	if err != nil {
		t.Fatal(err)
	}
	out, err := queues.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url.QueueUrl, MessageAttributeNames: []string{"All"}, WaitTimeSeconds: 5})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("received %d messages, %v", len(out.Messages), err)
	}
	m := out.Messages[0]
	if got := aws.ToString(m.MessageAttributes["tenant"].StringValue); got != "t-7" {
		t.Errorf("attribute tenant = %q", got)
	}
	e, err := job.Decode([]byte(*m.Body))
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != "order.close" {
		t.Errorf("kind = %q", e.Kind)
	}
	if !e.NotBefore.IsZero() {
		t.Errorf("notBefore = %v, want none", e.NotBefore)
	}
	if !e.Deadline.Equal(deadline) {
		t.Errorf("deadline = %v, want %v", e.Deadline, deadline)
	}
	if got, want := string(e.Payload), `{"orderId":"o-1","units":9007199254740993}`; got != want {
		t.Errorf("payload = %s, want %s", got, want)
	}
}

func TestClientRefusesAMessageThatBreaksARule(t *testing.T) {
	client := acklast.NewClient(aws.Config{}, "s", func(o *acklast.ClientOptions) { o.Now = func() time.Time { return now } })
	fine := order{"o-1", 1}
	for name, tt := range map[string]struct {
		message acklast.Message
		want    string
	}{
		"no kind":             {acklast.Message{Payload: fine}, "kind is missing"},
		"no payload":          {acklast.Message{Kind: "k"}, "payload"},
		"a list":              {acklast.Message{Kind: "k", Payload: []int{1}}, "payload"},
		"not JSON":            {acklast.Message{Kind: "k", Payload: json.RawMessage("{")}, "payload"},
		"a name twice":        {acklast.Message{Kind: "k", Payload: json.RawMessage(`{"a":1,"a":2}`)}, "payload"},
		"deadline before":     {acklast.Message{Kind: "k", Payload: fine, NotBefore: now, Deadline: now.Add(-1)}, "before notBefore"},
		"too far ahead":       {acklast.Message{Kind: "k", Payload: fine, NotBefore: now.Add(topology.Default().ScheduleAhead + 1)}, "ahead"},
		"too large":           {acklast.Message{Kind: "k", Payload: order{strings.Repeat("x", topology.MaxMessageBytes), 1}}, "bytes"},
		"the engine's name":   {acklast.Message{Kind: "k", Payload: fine, Attributes: map[string]string{"acklast": "{}"}}, "reserved"},
		"a group with spaces": {acklast.Message{Kind: "k", Payload: fine, Group: "a b"}, "group"},
	} {
		t.Run(name, func(t *testing.T) {
			err := client.Send(t.Context(), tt.message)
			if !errors.Is(err, acklast.ErrMessage) {
				t.Errorf("Send() = %v, want ErrMessage", err)
			}
			if err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Send() = %v, want an error that names %q", err, tt.want)
			}
		})
	}
}

// A bad message does not keep a good one from being sent, and each error belongs to its own message.
func TestClientSendsAllThatCanBeSent(t *testing.T) {
	s := newStack(t)
	good := acklast.Message{Kind: "k", Payload: order{"o-1", 1}}
	errs := s.client.SendAll(t.Context(), acklast.Message{}, good, acklast.Message{}, good)
	for i, want := range []bool{false, true, false, true} {
		if (errs[i] == nil) != want {
			t.Errorf("message %d: %v", i, errs[i])
		}
	}
}

func TestClientCallsAnUnconfirmedSendSo(t *testing.T) {
	s := newStack(t)
	nobody := acklast.NewClient(s.cfg, "nobody-"+s.names.Stack)
	err := nobody.Send(t.Context(), acklast.Message{Kind: "k", Payload: order{"o-1", 1}})
	if !errors.Is(err, acklast.ErrUnconfirmed) {
		t.Errorf("Send() to a stack that does not exist = %v, want ErrUnconfirmed", err)
	}
	if errors.Is(err, acklast.ErrMessage) {
		t.Errorf("Send() = %v blames the message", err)
	}
}

func TestKeyIsTheKinds(t *testing.T) {
	got, err := acklast.Key("order.close", "a/b", "3%")
	if want := "order.close/a%2Fb/3%25"; got != want || err != nil {
		t.Errorf("Key() = %q, %v, want %q", got, err, want)
	}
	for _, parts := range [][]string{{"", "s"}, {"k", ""}, {"k", "s", ""}, {"k", "s", "a\x00"}} {
		if key, err := acklast.Key(parts[0], parts[1], parts[2:]...); err == nil {
			t.Errorf("Key(%q) = %q, want an error", parts, key)
		}
	}
}

// A producer that has the kind takes the key from it, so producer and worker always have the same key.
func TestKeyOfAPayload(t *testing.T) {
	kind := ticketKind(definition(), run)
	for name, payload := range map[string]any{
		"a struct": ticket{TicketID: "t-1", Note: "n"},
		"JSON":     json.RawMessage(`{"ticketId":"t-1"}`),
	} {
		if key, err := kind.KeyOf(payload); key != "ticket.close/t-1" || err != nil {
			t.Errorf("%s: KeyOf() = %q, %v", name, key, err)
		}
	}
	for name, payload := range map[string]any{"no id": ticket{}, "a list": []int{1}, "no JSON": func() {}} {
		if key, err := kind.KeyOf(payload); key != "" || err == nil {
			t.Errorf("%s: KeyOf() = %q, %v, want an error", name, key, err)
		}
	}
}

// The tags of a payload are read as its documentation says.
func TestTagsOfAPayload(t *testing.T) {
	payload := struct {
		Empty string `json:"empty,omitempty"`
		Count int    `json:"count,omitempty"`
		Flag  bool   `json:"flag,omitempty"`
		Zero  int    `json:"zero,omitzero"`
	}{}
	body, err := acklast.Message{Kind: "k", Payload: payload}.Body()
	if want := `{"kind":"k","payload":{"count":0,"flag":false}}`; err != nil || body != want {
		t.Errorf("Body() = %s, %v, want %s", body, err, want)
	}
}

func TestCancelBeforeTheFirstDelivery(t *testing.T) {
	s := newStack(t)
	key, err := acklast.Key("order.close", "o-1")
	if err != nil {
		t.Fatal(err)
	}
	by := acklast.Cancellation{By: "shop", Reason: "order withdrawn"}
	for range 2 { // repeating it does no harm
		if err := s.client.Cancel(t.Context(), key, by); err != nil {
			t.Fatal(err)
		}
	}
	e, err := s.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"status":    {e.Status, ledger.Terminal},
		"outcome":   {e.Outcome, "cancelled"},
		"kind":      {e.Kind, "order.close"},
		"subject":   {e.Subject, "o-1"},
		"version":   {e.Version, int64(1)},
		"decisions": {e.Decisions, []ledger.Decision{{At: now, By: "shop", What: ledger.Cancel, Reason: "order withdrawn"}}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
	audit, err := s.client.DynamoDB().Scan(t.Context(), &dynamodb.ScanInput{TableName: &s.names.OperationsTable})
	if err != nil || len(audit.Items) != 1 {
		t.Fatalf("the audit has %d lines, %v, want 1", len(audit.Items), err)
	}
	for _, want := range []string{`"what":"cancelled"`, `"by":"shop"`, `"reason":"order withdrawn"`, `"job":"` + key + `"`} {
		if doc := audit.Items[0]["doc"].(*types.AttributeValueMemberS).Value; !strings.Contains(doc, want) {
			t.Errorf("the audit's line has no %s: %s", want, doc)
		}
	}
	t.Run("a late delivery is a duplicate", func(t *testing.T) {
		ran := 0
		kind := acklast.Define(acklast.Definition[order]{
			Name: "order.close", Key: func(o order) (string, []string) { return o.OrderID, nil },
		}, func(context.Context, acklast.Services) (acklast.Runner[order], error) {
			return acklast.RunnerFunc[order](func(ctx context.Context, j *acklast.Job[order]) error {
				ran++
				return j.Commit(ctx, "closed")
			}), nil
		})
		starter, err := kind.Start(t.Context(), acklast.NewServices(s.cfg, s.names.Stack, func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		got, err := starter.Try(t.Context(), `{"kind":"order.close","payload":{"orderId":"o-1","units":1}}`)
		if err != nil {
			t.Fatal(err)
		}
		if want := (acklast.Tried{Verdict: acklast.Duplicate, Outcome: "cancelled"}); got != want {
			t.Errorf("Try() = %+v, want %+v", got, want)
		}
		if ran != 1 {
			t.Errorf("Run was called %d times, want once: its commit is refused", ran)
		}
	})
	t.Run("nothing may rely on it", func(t *testing.T) {
		var refused *acklast.RefusedError
		if err := s.client.Transact(t.Context(), s.client.Runnable(key)); !errors.As(err, &refused) {
			t.Errorf("Transact(Runnable) = %v, want a RefusedError", err)
		}
	})
}

// A cancellation whose line of the audit was not written says so. Repeating it writes the line.
func TestCancelIsAuditedWhenRepeated(t *testing.T) {
	s := newStack(t)
	proxy := faults.New(aws.ToString(s.cfg.BaseEndpoint))
	t.Cleanup(proxy.Close)
	cfg := s.cfg.Copy()
	cfg.BaseEndpoint = aws.String(proxy.URL())
	client := acklast.NewClient(cfg, s.names.Stack, func(o *acklast.ClientOptions) { o.Now = func() time.Time { return now } })
	key, err := acklast.Key("order.close", "o-1")
	if err != nil {
		t.Fatal(err)
	}
	proxy.Add(faults.Rule{Operation: "UpdateItem", Match: func(body []byte) bool { return strings.Contains(string(body), s.names.OperationsTable) },
		Fault: faults.Error(400, "AccessDeniedException", "no")})
	by := acklast.Cancellation{By: "shop", Reason: "order withdrawn"}
	if err := client.Cancel(t.Context(), key, by); err == nil || !strings.Contains(err.Error(), "its line of the audit is missing") {
		t.Errorf("Cancel() = %v, want the missing line", err)
	}
	if e, err := s.store.Get(t.Context(), key); err != nil || e.Outcome != ledger.Cancelled {
		t.Errorf("the job is %q, %v, want it cancelled", e.Outcome, err)
	}
	if err := s.client.Cancel(t.Context(), key, acklast.Cancellation{By: "later", Reason: "again"}); err != nil {
		t.Fatal(err)
	}
	audit, err := s.client.DynamoDB().Scan(t.Context(), &dynamodb.ScanInput{TableName: &s.names.OperationsTable})
	if err != nil || len(audit.Items) != 1 {
		t.Fatalf("the audit has %d lines, %v, want 1", len(audit.Items), err)
	}
	if doc := audit.Items[0]["doc"].(*types.AttributeValueMemberS).Value; !strings.Contains(doc, `"by":"shop"`) {
		t.Errorf("the line does not name the first one: %s", doc)
	}
}

func TestCancelIsRefused(t *testing.T) {
	s := newStack(t)
	d := func(key string) job.Delivery {
		return job.Delivery{Key: key, Subject: "o-1", Token: "t", Envelope: job.Envelope{Kind: "order.close"}}
	}
	rules := ledger.Rules{Retention: 1000 * 24 * time.Hour} // the engine removes what is over by its own clock
	for name, tt := range map[string]struct {
		entry func(ledger.Entry, job.Delivery) (ledger.Entry, error)
		want  acklast.CancelError
	}{
		"ended": {func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
			return rules.Finish(e, d, ledger.Done, "closed", now)
		}, acklast.CancelError{Err: acklast.ErrEnded, Outcome: "closed"}},
		"running": {func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
			e, err := rules.Claim(e, d, ledger.Lease{Until: now.Add(time.Minute), ProviderKey: "p"}, now)
			return e, err
		}, acklast.CancelError{Err: acklast.ErrRunning, Until: now.Add(time.Minute)}},
		"unresolved": {func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
			e, err := rules.Claim(e, d, ledger.Lease{Until: now, ProviderKey: "p"}, now)
			return e, err
		}, acklast.CancelError{Err: acklast.ErrUnresolved}},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := acklast.Key("order.close", "o-1", name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.Update(t.Context(), key, "t", func(e ledger.Entry) (ledger.Entry, error) { return tt.entry(e, d(key)) }); err != nil {
				t.Fatal(err)
			}
			err = s.client.Cancel(t.Context(), key, acklast.Cancellation{By: "b", Reason: "r"})
			var got *acklast.CancelError
			if !errors.As(err, &got) {
				t.Fatalf("Cancel() = %v, want a CancelError", err)
			}
			tt.want.Key = key
			got.Until = got.Until.UTC()
			if *got != tt.want {
				t.Errorf("Cancel() = %+v, want %+v", *got, tt.want)
			}
		})
	}
	for name, tt := range map[string]struct {
		key string
		by  acklast.Cancellation
	}{
		"not a key": {"o-1", acklast.Cancellation{By: "b", Reason: "r"}},
		"nobody":    {"k/s", acklast.Cancellation{Reason: "r"}},
		"no reason": {"k/s", acklast.Cancellation{By: "b"}},
	} {
		if err := s.client.Cancel(t.Context(), tt.key, tt.by); err == nil {
			t.Errorf("%s: Cancel() = nil, want an error", name)
		}
	}
}

func TestTransactTellsWhichItemRefused(t *testing.T) {
	s := newStack(t)
	put := func(id string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{
			TableName:                aws.String(s.names.Table("orders")),
			Item:                     map[string]types.AttributeValue{"order_id": &types.AttributeValueMemberS{Value: id}},
			ConditionExpression:      aws.String("attribute_not_exists(#id)"),
			ExpressionAttributeNames: map[string]string{"#id": "order_id"},
		}}
	}
	if err := s.client.Transact(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	err := s.client.Transact(t.Context(), put("b"), put("a"))
	var refused *acklast.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("Transact() = %v, want a RefusedError", err)
	}
	if refused.Index != 1 {
		t.Errorf("item %d refused, want 1", refused.Index)
	}
}
