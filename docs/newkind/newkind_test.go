package newkind_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/docs/newkind"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// A third kind is one package and one line: the worker, the ledger and the queues are those of the
// others, and know nothing of vouchers.
func TestAThirdKindIsOnePackageAndOneLine(t *testing.T) {
	settings := topology.Scaled()
	env, err := local.StartAWS(t.Context(), "newkind", settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	db := awsclient.DynamoDB(env.AWSConfig())
	const table = "newkind-vouchers"
	if _, err := db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(table), BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("voucher_id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("voucher_id"), AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	for id, state := range map[string]string{"v-1": "issued", "v-2": "used"} {
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table),
			Item: map[string]types.AttributeValue{"voucher_id": text(id), "state": text(state)}}); err != nil {
			t.Fatal(err)
		}
	}

	variables := worker.Environment("newkind", env.QueueURLs(), settings)
	config, err := worker.ParseConfig(func(name string) string { return variables[name] })
	if err != nil {
		t.Fatal(err)
	}
	store := dynamo.New(db, config.Names.LedgerTable, dynamo.Options{})
	tokens := 0
	handler := worker.New(config, worker.Dependencies{
		Ledger: store,
		Lanes:  lanes.New(awsclient.SQS(env.AWSConfig()), lanes.URLs(env.QueueURLs())),
		Kinds: kinds.New(
			newkind.Kind(&newkind.Expirer{Ledger: store, Rules: config.Rules, Table: table, Now: time.Now}), // the one line
		),
		Metrics: telemetry.NewRecorder(io.Discard, "newkind", time.Now),
		Log:     telemetry.NewLogger(io.Discard, config.LogLevel),
		Now:     time.Now, Random: func() float64 { return 0 },
		Token: func() string { tokens++; return fmt.Sprint("token-", tokens) },
	})
	deliver := func(id, body string) {
		t.Helper()
		response, err := handler.Handle(context.Background(), events.SQSEvent{Records: []events.SQSMessage{{
			MessageId: id, ReceiptHandle: id, Body: body, EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:" + config.Names.SourceQueue,
			Attributes: map[string]string{"SentTimestamp": fmt.Sprint(time.Now().UnixMilli()), "ApproximateReceiveCount": "1"},
		}}})
		if err != nil || len(response.BatchItemFailures) != 0 {
			t.Fatalf("%s: %+v, %v", body, response, err)
		}
	}
	job := func(voucher string) string {
		return `{"kind":"voucher.expire","payload":{"voucherId":"` + voucher + `"}}`
	}
	for i, voucher := range []string{"v-1", "v-1", "v-2"} {
		deliver(fmt.Sprint("m-", i), job(voucher))
	}
	for voucher, want := range map[string][2]string{"v-1": {"expired", "expired"}, "v-2": {"used", "not issued"}} {
		out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: map[string]types.AttributeValue{"voucher_id": text(voucher)}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := store.Get(t.Context(), "voucher.expire/"+voucher)
		if err != nil {
			t.Fatal(err)
		}
		if state := out.Item["state"].(*types.AttributeValueMemberS).Value; state != want[0] || e.Status != ledger.Done || e.Outcome != want[1] || e.Version != 1 {
			t.Errorf("%s is %s, entry %+v", voucher, state, e)
		}
	}
	// What it cannot read is isolated, like that of any other kind.
	deliver("m-9", `{"kind":"voucher.expire","payload":{}}`)
	if d, err := lanes.New(awsclient.SQS(env.AWSConfig()), lanes.URLs(env.QueueURLs())).Depth(t.Context(), lanes.ToDLQ); err != nil || d.Visible != 1 {
		t.Errorf("the DLQ has %+v, %v", d, err)
	}
}

// The commit's errors mean what the page says.
func TestWhatTheErrorsMean(t *testing.T) {
	x := &newkind.Expirer{Now: time.Now}
	for _, tt := range []struct {
		err  error
		want job.Verdict
	}{
		{&ledger.RefusedError{Entry: ledger.Entry{Version: 1, Status: ledger.Done}}, job.Duplicate},
		{&ledger.RefusedError{Entry: ledger.Entry{Version: 1, Status: ledger.Isolated}}, job.FoundIsolated},
		{ledger.ErrContended, job.Blocked}, {ledger.ErrUnavailable, job.Unconfirmed}, {errors.New("wrong"), job.Failed},
	} {
		x.Ledger = failing{tt.err}
		d := job.Delivery{Key: "k", Token: "t", Envelope: job.Envelope{Payload: []byte(`{"voucherId":"v-1"}`)}}
		if res := newkind.Kind(x).Run(t.Context(), d); res.Verdict != tt.want {
			t.Errorf("%v: %+v", tt.err, res)
		}
	}
}

type failing struct{ err error }

func (f failing) Commit(context.Context, ledger.Completion, ...types.TransactWriteItem) error {
	return f.err
}

// What the page quotes is what is compiled here.
func TestThePageQuotesTheCode(t *testing.T) {
	page, err := os.ReadFile("../new-kind.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("newkind.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of code", len(blocks))
	}
	lines := strings.Split(string(source), "\n")
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		for _, line := range strings.Split(strings.Trim(block, "\n"), "\n") {
			if !slices.Contains(lines, line) {
				t.Errorf("newkind.go has no line %q", line)
			}
		}
	}
}
