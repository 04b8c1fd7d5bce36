package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/memdb"
	"acklast/internal/soak"
	"acklast/internal/topology"
)

var names = topology.NamesOf(stack)

const accounts = stack + "-accounts"

// openTables makes a DynamoDB with the stack's tables.
func (s *story) openTables() {
	s.db = memdb.New()
	s.client = &client{story: s, db: s.db.Client()}
	for _, t := range names.Tables() {
		s.db.CreateTable(t.Name, t.PartitionKey, t.SortKey)
	}
	s.db.CreateTable(accounts, "id", "")
}

// store is the ledger's store of a process.
func (l *life) store() *dynamo.Store {
	return dynamo.New(l.client, names.LedgerTable, dynamo.Options{
		Now: l.clock, Random: func() float64 { return float64(l.number(1000, l.name, "pause")) / 1000 },
	})
}

// client is DynamoDB's interface for a process. It repeats no call: a call that is made twice is one that the SDK would
// repeat.
type client struct {
	*story
	db     memdb.Client
	tokens atomic.Int64
}

type attributes = map[string]types.AttributeValue

// update is a write of an item, or a part of a transaction that is none.
type update struct {
	table       string
	key, values attributes
}

func textIn(m attributes, name string) string {
	if v, ok := m[name].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

func numberIn(m attributes, name string) string {
	if v, ok := m[name].(*types.AttributeValueMemberN); ok {
		return v.Value
	}
	return ""
}

// keyText names an item by the keys of all tables.
func keyText(m attributes) string {
	return textIn(m, "subject") + textIn(m, "key") + textIn(m, "pk") + textIn(m, "sk")
}

// name names a call of one item or one partition without anything that a process draws at random.
func (u update) name(operation string, item attributes) string {
	return operation + " " + u.table + " " + keyText(u.key) + keyText(item) + " " + u.owner() + textIn(u.values, ":pk")
}

func (u update) owner() string { return textIn(u.values, ":owner") }

func (c *client) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (out *dynamodb.GetItemOutput, err error) {
	u := update{table: *in.TableName, key: in.Key}
	err = c.call(ctx, u.name("GetItem", nil), "", nil, func() (err error) { out, err = c.db.GetItem(ctx, in); return err })
	return out, err
}

func (c *client) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (out *dynamodb.PutItemOutput, err error) {
	u := update{table: *in.TableName, values: in.ExpressionAttributeValues}
	err = c.call(ctx, u.name("PutItem", in.Item), u.owner(), nil, func() (err error) { out, err = c.db.PutItem(ctx, in); return err })
	return out, err
}

func (c *client) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (out *dynamodb.UpdateItemOutput, err error) {
	u := update{*in.TableName, in.Key, in.ExpressionAttributeValues}
	err = c.call(ctx, u.name("UpdateItem", nil), u.owner(), []update{u}, func() (err error) { out, err = c.db.UpdateItem(ctx, in); return err })
	return out, err
}

func (c *client) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (out *dynamodb.QueryOutput, err error) {
	u := update{table: *in.TableName, values: in.ExpressionAttributeValues}
	err = c.call(ctx, u.name("Query", nil), u.owner(), nil, func() (err error) { out, err = c.db.Query(ctx, in); return err })
	return out, err
}

func (c *client) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (out *dynamodb.TransactWriteItemsOutput, err error) {
	parts := make([]update, len(in.TransactItems))
	what := update{}.name("TransactWriteItems", nil)
	for i, it := range in.TransactItems {
		if u := it.Update; u != nil {
			parts[i] = update{*u.TableName, u.Key, u.ExpressionAttributeValues}
		}
		what += " " + keyText(parts[i].key) + " " + parts[i].owner()
	}
	once := *in
	if once.ClientRequestToken == nil { // the SDK draws one, which a repeated call has as well
		once.ClientRequestToken = aws.String(strconv.FormatInt(c.tokens.Add(1), 10))
	}
	err = c.call(ctx, what, "", parts, func() (err error) { out, err = c.db.TransactWriteItems(ctx, &once); return err })
	return out, err
}

func (c *client) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options)) (out *dynamodb.BatchWriteItemOutput, err error) {
	what := update{}.name("BatchWriteItem", nil)
	for _, writes := range in.RequestItems {
		lines := make([]string, len(writes)) // their order may be that of a map
		for i, w := range writes {
			var line struct {
				Doc struct{ Message, What string }
			}
			_ = json.Unmarshal([]byte(textIn(w.PutRequest.Item, "doc")), &line) // nothing but the call's name depends on it
			lines[i] = line.Doc.Message + " " + line.Doc.What
		}
		what += " " + slices.Min(lines)
	}
	err = c.call(ctx, what, "", nil, func() (err error) { out, err = c.db.BatchWriteItem(ctx, in); return err })
	return out, err
}

// call makes a call. writes are its updates, nil if it is no such call.
func (c *client) call(ctx context.Context, what, owner string, writes []update, apply func() error) error {
	l, ok := ctx.Value(lifeKey{}).(*life)
	if !ok { // the judge
		return apply()
	}
	if l.redrives() { // its tokens are drawn side by side
		what = strings.ReplaceAll(what, owner, "")
	}
	began := c.now()
	name := l.name + " " + what + " " + strconv.FormatInt(int64(began), 10)
	var failed error
	err := l.call(ctx, ofDynamoDB, what, func(bool) {
		if writes != nil && !c.calm() && c.number(100, l.name+what+"conflict") < c.conflict {
			failed = conflict(what, len(writes))
			return
		}
		if failed = apply(); failed == nil {
			for _, u := range writes {
				l.wroteEntry(u, name, began)
			}
		}
	})
	var silent *noAnswer
	switch {
	case !errors.As(err, &silent):
		return failed
	case ctx.Err() != nil:
		return ctx.Err()
	case c.number(2, l.name, what, "how") == 0:
		return &smithy.GenericAPIError{Code: "ProvisionedThroughputExceededException", Message: "slow down"}
	}
	return err
}

// conflict is the answer to a write that met a transaction.
func conflict(what string, items int) error {
	if !strings.HasPrefix(what, "TransactWriteItems") {
		return &smithy.GenericAPIError{Code: "TransactionConflictException", Message: "Transaction is ongoing for the item"}
	}
	reasons := make([]types.CancellationReason, items)
	for i := range reasons {
		reasons[i].Code = aws.String("None")
	}
	reasons[items-1].Code = aws.String("TransactionConflict")
	return &types.TransactionCanceledException{Message: aws.String("cancelled"), CancellationReasons: reasons}
}

// wroteEntry records what a write did. The caller holds the lock.
func (l *life) wroteEntry(in update, name string, began soak.Moment) {
	v := in.values
	if in.table != names.LedgerTable {
		return
	}
	if id, ok := strings.CutPrefix(textIn(in.key, "subject"), "strikes\t"); ok {
		for placeholder := range v {
			if strings.HasPrefix(placeholder, ":struck") {
				until := numberIn(v, placeholder)
				l.struck(id, number(until, 0))
				l.tell("%s: strike of %s until %s", l.name, id, until)
			}
		}
		return
	}
	if textIn(v, ":status") == "" && numberIn(v, ":version") == "" {
		return
	}
	w := soak.Write{Key: textIn(in.key, "key"), Began: began, Ended: l.now(), Request: name, Status: textIn(v, ":status"), Attempts: -1}
	w.Final = ledger.Status(w.Status).Final()
	if w.Version = int(number(numberIn(v, ":version"), 0)); w.Version > 0 {
		w.Attempts = int(number(numberIn(v, ":attempts"), -1))
	}
	if numberIn(v, ":lease_until") != "" {
		w.Claims = l.entry(w.Key).Owner // the write leaves out an owner that does not change
	}
	if evidence, ok := v[":evidence"].(*types.AttributeValueMemberL); w.Final && ok && len(evidence.Value) > 0 {
		w.Completes = textIn(evidence.Value[len(evidence.Value)-1].(*types.AttributeValueMemberM).Value, "token")
	} else if owner := in.owner(); w.Final && owner != "" && !l.redrives() && l.status(w.Key) == ledger.Running {
		w.Completes = owner // an owner who ends its claim writes itself no more
	}
	for _, seen := range slices.Backward(l.history.Writes) {
		if seen.Ended < w.Began {
			break
		}
		if seen.Request == w.Request && seen.Key == w.Key {
			return // made twice
		}
	}
	l.history.Writes = append(l.history.Writes, w)
	l.tell("%s: %s is %s, version %d, attempts %d", l.name, w.Key, w.Status, w.Version, w.Attempts)
	if w.Claims != "" {
		l.claimed(w.Key, w.Claims)
	}
	if j := l.jobOf(w.Key); w.Status == string(ledger.Done) && j != nil && !j.due.IsZero() && time.Now().Before(j.due.Add(-maxSkew)) {
		l.breaks("%s takes effect at %v, and is due at %v", w.Key, time.Now(), j.due)
	}
}

// redrives says whether this is a process of the redrive function.
func (l *life) redrives() bool { return strings.HasPrefix(l.name, "redrive") }

// status is an entry's status as of the writes up to now.
func (s *story) status(key string) ledger.Status {
	for _, w := range slices.Backward(s.history.Writes) {
		if w.Key == key && w.Status != "" {
			return ledger.Status(w.Status)
		}
	}
	return ""
}

func number(s string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return otherwise
}

// entry reads an entry as it is.
func (s *story) entry(key string) ledger.Entry {
	e, err := dynamo.New(s.client, names.LedgerTable, dynamo.Options{}).Get(context.Background(), key)
	if err != nil {
		panic(err)
	}
	return e
}

func (s *story) jobOf(key string) *simJob {
	for _, j := range s.jobs {
		if j.kind+"/"+j.name == key {
			return j
		}
	}
	return nil
}

// final says whether a job with this payload has ended. The caller holds the lock.
func (s *story) final(key, digest string) bool {
	if key == "" {
		return false
	}
	e := s.entry(key)
	return e.Status.Final() && !job.DigestsDiffer(e.Digest, digest)
}
