package acklast

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/memdb"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// conflicting is a DynamoDB whose transactions take time: one that meets another on an item is cancelled, as
// DynamoDB's documentation of transaction conflicts says.
type conflicting struct {
	db    *memdb.DB
	takes time.Duration

	mu     sync.Mutex
	locked map[string]bool
	// transactions is the number of transactions sent, cancelled the number of those that another one
	// cancelled. units are the write units of the committed ones: two for each item of up to 1 KiB.
	transactions, cancelled, units int
}

func (c *conflicting) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	again := func() *http.Request {
		next := r.Clone(r.Context())
		next.Body = io.NopCloser(bytes.NewReader(body))
		return next
	}
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") {
		time.Sleep(c.takes / 2)
		return c.db.Do(again())
	}
	var in struct {
		TransactItems []map[string]struct {
			TableName string
			Key, Item map[string]any
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	var items []string
	for _, one := range in.TransactItems {
		for _, part := range one {
			id := part.Key
			if id == nil {
				id = map[string]any{"key": part.Item["key"]}
			}
			items = append(items, fmt.Sprint(part.TableName, id))
		}
	}
	c.mu.Lock()
	c.transactions++
	met := false
	var reasons []map[string]string
	for _, it := range items {
		code := "None"
		if c.locked[it] {
			met, code = true, "TransactionConflict"
		}
		reasons = append(reasons, map[string]string{"Code": code})
	}
	if !met {
		for _, it := range items {
			c.locked[it] = true
		}
	} else {
		c.cancelled++
	}
	c.mu.Unlock()
	time.Sleep(c.takes)
	if met {
		answer, err := json.Marshal(map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "CancellationReasons": reasons})
		return &http.Response{
			StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body: io.NopCloser(bytes.NewReader(answer)), Request: r,
		}, err
	}
	res, err := c.db.Do(again())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range items {
		delete(c.locked, it)
	}
	if err == nil && res.StatusCode == http.StatusOK {
		c.units += 2 * len(items)
	}
	return res, err
}

// seat is a job that returns a unit to a hall. All jobs of a hall change the same item.
type seat struct {
	ID   string `json:"id"`
	Hall string `json:"hall"`
}

// alone releases one seat in a transaction. In one process the jobs of a hall take turns.
type alone struct {
	s    Services
	turn chan struct{}
}

func (a *alone) own(j *Job[seat]) []types.TransactWriteItem {
	return []types.TransactWriteItem{{Put: &types.Put{
		TableName: aws.String(a.s.Table("seats")), Item: map[string]types.AttributeValue{"key": Text(j.Payload.ID)},
		ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{"#k": "key"},
	}}}
}

func (a *alone) hall(jobs ...*Job[seat]) []types.TransactWriteItem {
	return []types.TransactWriteItem{{Update: &types.Update{
		TableName: aws.String(a.s.Table("halls")), Key: map[string]types.AttributeValue{"key": Text(jobs[0].Payload.Hall)},
		UpdateExpression: aws.String("ADD #free :n"), ExpressionAttributeNames: map[string]string{"#free": "free"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": Number(len(jobs))},
	}}}
}

func (a *alone) Run(ctx context.Context, j *Job[seat]) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return Contended(ctx.Err().Error())
	}
	return j.Commit(ctx, "released", append(a.own(j), a.hall(j)...)...)
}

// grouped releases a hall's seats of one batch in one transaction.
type grouped struct{ *alone }

func (grouped) Together(p seat) string { return p.Hall }

func (g grouped) RunBatch(ctx context.Context, jobs []*Job[seat]) []error {
	return CommitTogether(ctx, "released", jobs, g.own, func(jobs []*Job[seat]) []types.TransactWriteItem { return g.hall(jobs...) })
}

// hotFigures are the results for the backlog of one hall.
type hotFigures struct {
	jobs, transactions, cancelled, deferrals, units int
	took                                            time.Duration
}

// drainHall lets the given number of processes work off a backlog of one hall, with ten records in a batch.
func drainHall(t *testing.T, processes, jobs int, together bool) (f hotFigures) {
	names := topology.NamesOf(checkStack)
	db := memdb.New()
	for _, table := range names.Tables() {
		db.CreateTable(table.Name, table.PartitionKey, table.SortKey)
	}
	for _, table := range []string{"seats", "halls"} {
		db.CreateTable(names.Table(table), "key", "")
	}
	hot := &conflicting{db: db, takes: 10 * time.Millisecond, locked: map[string]bool{}}
	kind := Define(Definition[seat]{
		Name: "seat.release", Key: func(p seat) (string, []string) { return p.ID, nil },
		Tables: []Table{{Name: "seats", PartitionKey: "key"}, {Name: "halls", PartitionKey: "key"}},
	}, func(_ context.Context, s Services) (Runner[seat], error) {
		one := &alone{s: s, turn: make(chan struct{}, 1)}
		if together {
			return grouped{one}, nil
		}
		return one, nil
	})
	const nowhere = "http://memory.invalid"
	cfg := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(nowhere), HTTPClient: hot,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "memory", SecretAccessKey: "memory"}, nil
		}),
		Retryer: func() aws.Retryer { return retry.NewStandard() },
	}
	environment := worker.Environment(checkStack, topology.QueueURLs{Source: nowhere, Recovery: nowhere, DLQ: nowhere}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
	}
	queue := make(chan job.Message, jobs)
	for i := range jobs {
		queue <- job.Message{ID: uuid.NewString(), Body: fmt.Sprintf(`{"kind":"seat.release","payload":{"id":"s-%d","hall":"h"}}`, i), SentAt: time.Now()}
	}
	var left sync.WaitGroup
	left.Add(jobs)
	over := make(chan struct{})
	began := time.Now()
	var running sync.WaitGroup
	for range processes {
		services := NewServices(cfg, checkStack, time.Now)
		services.core.store = dynamo.New(awsclient.DynamoDB(cfg), names.LedgerTable, dynamo.Options{Now: time.Now})
		started, err := kind.start(t.Context(), services)
		if err != nil {
			t.Fatal(err)
		}
		moved := &checkQueue{}
		handler := worker.New(config, worker.Dependencies{
			Ledger: services.core.store, Lanes: moved, Operators: noOperators{}, Kinds: job.NewCatalogue(started),
			Metrics: telemetry.NewRecorder(io.Discard, checkStack, time.Now), Log: slog.New(slog.DiscardHandler),
			Now: time.Now, Random: rand.Float64, Token: uuid.NewString, Exit: func() {},
		})
		running.Go(func() {
			for {
				var batch []job.Message
				select {
				case m := <-queue:
					batch = append(batch, m)
				case <-over:
					return
				}
				for len(batch) < 10 && len(queue) > 0 {
					batch = append(batch, <-queue)
				}
				var event events.SQSEvent
				for _, m := range batch {
					event.Records = append(event.Records, asRecord(m))
				}
				response, err := handler.Handle(t.Context(), event)
				if err != nil || len(response.BatchItemFailures) > 0 {
					t.Errorf("%v, %v", response, err)
				}
				moves := moved.take()
				for range len(batch) - len(moves) {
					left.Done()
				}
				hot.mu.Lock()
				f.deferrals += len(moves)
				hot.mu.Unlock()
				for _, m := range moves {
					again := job.Message{ID: uuid.NewString(), Body: m.Message.Body, SentAt: time.Now(), Memory: m.Message.Memory}
					time.AfterFunc(m.Delay, func() { queue <- again })
				}
			}
		})
	}
	left.Wait()
	f.took = time.Since(began)
	close(over)
	running.Wait()
	hall, err := awsclient.DynamoDB(cfg).GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(names.Table("halls")), Key: map[string]types.AttributeValue{"key": Text("h")}})
	if err != nil {
		t.Fatal(err)
	}
	if free, ok := hall.Item["free"].(*types.AttributeValueMemberN); !ok || free.Value != fmt.Sprint(jobs) {
		t.Errorf("%v units are back, want %d", hall.Item["free"], jobs)
	}
	f.jobs, f.transactions, f.cancelled, f.units = jobs, hot.transactions, hot.cancelled, hot.units
	return f
}

// Jobs of one resource cancel each other's transactions when they run side by side. The jobs of one batch share
// one transaction. So a hot resource needs a fifth of the transactions, and no job waits at ten processes.
func TestAHotResource(t *testing.T) {
	for _, c := range []struct{ processes, jobs int }{{1, 100}, {5, 100}, {10, 100}, {50, 500}} {
		var before, after hotFigures
		synctest.Test(t, func(t *testing.T) { before = drainHall(t, c.processes, c.jobs, false) })
		synctest.Test(t, func(t *testing.T) { after = drainHall(t, c.processes, c.jobs, true) })
		t.Logf("%d processes, %d jobs: alone %+v, together %+v", c.processes, c.jobs, before, after)
		if 5*after.transactions > before.transactions {
			t.Errorf("%d processes: %d transactions together, %d alone", c.processes, after.transactions, before.transactions)
		}
		if c.processes <= 10 && after.deferrals > 0 {
			t.Errorf("%d processes: %d deferrals", c.processes, after.deferrals)
		}
	}
}
