package dynamo_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/sivchari/kumo"
	minidyn "github.com/truora/minidyn/server"
	"go.uber.org/goleak"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
	"acklast/internal/memdb"
	aretry "acklast/internal/retry"
	"acklast/internal/topology"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// kumo starts these goroutines once for the process and cannot end them.
		goleak.IgnoreAnyFunction("github.com/sivchari/kumo/internal/service/dynamodb.(*MemoryStorage).ttlReaper"),
	)
}

// engine is a DynamoDB that runs locally.
type engine struct {
	url func(*testing.T) string
	// returnsItems says whether a failed condition returns the item that failed it.
	returnsItems bool
	// transacts says whether the engine knows TransactWriteItems. If not, the tests of transactions alone do
	// not run on it.
	transacts bool
	// allReasons says whether a cancelled transaction reports every condition that failed. minidyn stops at the
	// first.
	allReasons bool
	// hasTTL says whether the engine knows UpdateTimeToLive.
	hasTTL bool
	// removes says whether REMOVE deletes a top-level attribute. minidyn parses it and does nothing.
	removes bool
	// indexesUpdates says whether the index finds an item that UpdateItem created. minidyn overwrites another
	// item's place in the index.
	indexesUpdates bool
}

var kumoStarts sync.Mutex

// newKumo starts an engine. kumo's servers share state that their start writes, so they start one at a time.
func newKumo(t *testing.T) *kumo.Server {
	t.Helper()
	kumoStarts.Lock()
	defer kumoStarts.Unlock()
	srv := kumo.NewServer()
	t.Cleanup(srv.Close)
	return srv
}

func TestKumo(t *testing.T) {
	t.Parallel()
	srv := newKumo(t)
	conformance(t, engine{url: func(*testing.T) string { return srv.URL }, transacts: true, allReasons: true, hasTTL: true, removes: true, indexesUpdates: true})
}

func TestMinidyn(t *testing.T) {
	t.Parallel()
	// Each test has its own engine: its CreateTable races with every other call.
	conformance(t, engine{returnsItems: true, transacts: true, url: func(t *testing.T) string {
		srv := httptest.NewServer(minidyn.NewServer())
		t.Cleanup(srv.Close)
		return srv.URL
	}})
}

// CheckKind tests kinds on the DynamoDB in memory, so that one has to behave as a Store expects.
func TestMemory(t *testing.T) {
	t.Parallel()
	memory := memdb.New()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := memory.Do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		maps.Copy(w.Header(), out.Header)
		w.WriteHeader(out.StatusCode)
		_, _ = io.Copy(w, out.Body)
	}))
	t.Cleanup(srv.Close)
	conformance(t, engine{url: func(*testing.T) string { return srv.URL }, returnsItems: true, transacts: true, allReasons: true, removes: true, indexesUpdates: true})
}

// bench is a store on tables of its own, with a proxy between the SDK and the engine.
type bench struct {
	*testing.T
	engine    engine
	store     *dynamo.Store
	client    *dynamodb.Client
	proxy     *faults.Proxy
	names     topology.Names
	conflicts atomic.Int64
}

// The SDK's own attempts per call, and the store's tries.
const (
	sdkAttempts = 3
	storeTries  = 3
)

func newBench(t *testing.T, e engine) *bench {
	t.Helper()
	b := &bench{T: t, engine: e, proxy: faults.New(e.url(t))}
	t.Cleanup(b.proxy.Close)
	cfg, err := awsclient.Load(t.Context(),
		config.WithRegion("eu-central-1"),
		config.WithBaseEndpoint(b.proxy.URL()),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "test", "")),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = sdkAttempts, time.Millisecond
				o.RateLimiter = noLimit{} // otherwise a test with many faults uses up the SDK's retry tokens
			})
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	b.client = awsclient.DynamoDB(cfg)
	b.names = topology.NamesOf(fmt.Sprintf("test-%08x", rand.Uint32())) // engines outlive the process
	if !e.hasTTL {
		b.proxy.Add(faults.Rule{Operation: "UpdateTimeToLive", Fault: faults.Reply(200, "{}")})
	}
	if err := dynamo.CreateTables(t.Context(), b.client, b.names, ownTables...); err != nil {
		t.Fatal(err)
	}
	b.proxy.Reset()
	b.store = dynamo.New(b.client, b.names.LedgerTable, dynamo.Options{
		Now:        func() time.Time { return now },
		OnConflict: func() { b.conflicts.Add(1) },
		Pause:      func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	return b
}

type noLimit struct{}

func (noLimit) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (noLimit) AddTokens(uint) error { return nil }

var (
	now   = time.Date(2026, 12, 1, 10, 0, 0, 123e6, time.UTC)
	rules = ledger.Rules{
		Retry:       aretry.Policy{Base: 5 * time.Second, Cap: time.Minute, MaxAttempts: 10, AttemptTime: time.Second},
		MaxRedrives: 3,
		Retention:   1000 * 24 * time.Hour,
	}
)

const key = "reservation.expire/r-1/hold-1"

// delivery is a delivery of the job under key with its own token.
func delivery(token string) job.Delivery {
	return job.Delivery{
		Message:  job.Message{ID: "m-" + token, SentAt: now.Add(-time.Minute)},
		Envelope: job.Envelope{Kind: "reservation.expire", NotBefore: now.Add(-time.Second), Deadline: now.Add(time.Hour)},
		Key:      key, Subject: "r-1", Token: token,
	}
}

func complete(token string) ledger.Completion {
	return rules.Complete(delivery(token), ledger.Done, "released", now)
}

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue  { return &types.AttributeValueMemberN{Value: s} }

// count adds one to a resource's counter, on condition that it is below most.
func (b *bench) count(resource string, most string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 aws.String(b.resources()),
		Key:                       item{"resource_id": text(resource)},
		UpdateExpression:          aws.String("SET #n = if_not_exists(#n, :zero) + :one"),
		ConditionExpression:       aws.String("attribute_not_exists(#n) OR #n < :most"),
		ExpressionAttributeNames:  map[string]string{"#n": "counted"},
		ExpressionAttributeValues: item{":zero": num("0"), ":one": num("1"), ":most": num(most)},
	}}
}

// reserve puts a reservation that must not exist.
func (b *bench) reserve(id string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName:                aws.String(b.reservations()),
		Item:                     item{"reservation_id": text(id), "state": text("held")},
		ConditionExpression:      aws.String("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": "reservation_id"},
	}}
}

func (b *bench) rawEntry(key string) item {
	b.Helper()
	subject, _ := job.SubjectOf(key)
	out, err := b.client.GetItem(context.Background(), &dynamodb.GetItemInput{
		TableName: &b.names.LedgerTable, Key: item{"subject": text(subject), "key": text(key)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		b.Fatal(err)
	}
	return out.Item
}

func (b *bench) raw(table, keyName, id string) item {
	b.Helper()
	out, err := b.client.GetItem(context.Background(), &dynamodb.GetItemInput{
		TableName: &table, Key: item{keyName: text(id)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		b.Fatal(err)
	}
	return out.Item
}

// counted returns the value of a resource's counter.
func (b *bench) counted(resource string) string {
	b.Helper()
	if n, ok := b.raw(b.resources(), "resource_id", resource)["counted"].(*types.AttributeValueMemberN); ok {
		return n.Value
	}
	return "0"
}

func (b *bench) get() ledger.Entry {
	b.Helper()
	e, err := b.store.Get(context.Background(), key)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// put stores e in place of any other entry, and returns it as stored, in version 1.
func (b *bench) put(e ledger.Entry) ledger.Entry {
	b.Helper()
	_, err := b.client.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{
		TableName: &b.names.LedgerTable, Key: item{"subject": text("r-1"), "key": text(key)},
	})
	if err != nil {
		b.Fatal(err)
	}
	e, err = b.store.Update(context.Background(), key, "setup", func(ledger.Entry) (ledger.Entry, error) { return e, nil })
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// set writes one attribute of the stored entry without the store.
func (b *bench) set(name string, v types.AttributeValue) {
	b.Helper()
	_, err := b.client.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &b.names.LedgerTable, Key: item{"subject": text("r-1"), "key": text(key)}, UpdateExpression: aws.String("SET #set_name = :v"),
		ExpressionAttributeNames: map[string]string{"#set_name": name}, ExpressionAttributeValues: item{":v": v},
	})
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) fail(operation string, times int, f faults.Fault) {
	b.proxy.Add(faults.Rule{Operation: operation, Times: times, Fault: f})
}

// calls returns the calls since the last reset, in the order of their names.
func (b *bench) calls() string {
	c := b.proxy.Calls()
	s := ""
	for _, name := range slices.Sorted(maps.Keys(c)) {
		s += fmt.Sprintf("%s %d ", name, c[name])
	}
	return s
}

// ownTables are the tables of a kind.
var ownTables = []job.Table{
	{Name: "reservations", PartitionKey: "reservation_id"},
	{Name: "resources", PartitionKey: "resource_id"},
}

func (b *bench) reservations() string { return b.names.Table("reservations") }
func (b *bench) resources() string    { return b.names.Table("resources") }
