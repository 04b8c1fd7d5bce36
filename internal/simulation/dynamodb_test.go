package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/memdb"
	"acklast/internal/soak"
	"acklast/internal/topology"
)

var names = topology.NamesOf(stack)

const accounts = stack + "-accounts"

// openTables makes a DynamoDB with the stack's tables. The SDK does not repeat calls here: a call that is made twice
// is one that the SDK would repeat.
func (s *story) openTables() {
	s.db = memdb.New()
	s.client = dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://memory"), HTTPClient: s, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "memory", SecretAccessKey: "memory"}, nil
		}),
	})
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

// value is an attribute of an item, as DynamoDB's JSON has it.
type value struct {
	S, N string
	L    []struct{ M map[string]value }
}

type update struct {
	TableName                 string
	Key                       map[string]value
	Item                      map[string]value
	ExpressionAttributeValues map[string]value
}

type request struct {
	update
	TransactItems []struct{ Update, Put, ConditionCheck update }
	RequestItems  map[string][]struct {
		PutRequest struct{ Item map[string]value }
	}
}

// identity names a call without anything that a process draws at random.
func (q request) identity(operation string) string {
	key := func(m map[string]value) string { return m["subject"].S + m["key"].S + m["pk"].S + m["sk"].S }
	id := operation + " " + q.TableName + " " + key(q.Key) + key(q.Item) + " " + q.ExpressionAttributeValues[":owner"].S + q.ExpressionAttributeValues[":pk"].S
	for _, it := range q.TransactItems {
		id += " " + key(it.Update.Key) + " " + it.Update.ExpressionAttributeValues[":owner"].S
	}
	for _, writes := range q.RequestItems {
		lines := make([]string, len(writes)) // their order may be that of a map
		for i, w := range writes {
			var line struct {
				Doc struct{ Message, What string }
			}
			_ = json.Unmarshal([]byte(w.PutRequest.Item["doc"].S), &line) // nothing but the call's name depends on it
			lines[i] = line.Doc.Message + " " + line.Doc.What
		}
		id += " " + slices.Min(lines)
	}
	return id
}

// Do answers a call of the SDK's client.
func (s *story) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	target := r.Header.Get("X-Amz-Target")
	operation := target[strings.LastIndexByte(target, '.')+1:]
	l, ok := r.Context().Value(lifeKey{}).(*life)
	if !ok { // the judge
		return s.answer(r, body)
	}
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	id := q.identity(operation)
	if strings.HasPrefix(l.name, "redrive") { // its tokens are drawn side by side
		id = strings.ReplaceAll(id, q.ExpressionAttributeValues[":owner"].S, "")
	}
	began := s.now()
	name := l.name + " " + id + " " + strconv.FormatInt(int64(began), 10)
	var out *http.Response
	var failed error
	err = l.call(r.Context(), ofDynamoDB, id, func(bool) {
		writes := operation == "TransactWriteItems" || operation == "UpdateItem"
		if writes && !s.calm() && s.number(100, l.name+id+"conflict") < s.conflict {
			out = conflict(r, operation, len(q.TransactItems))
			return
		}
		out, failed = s.answer(r, body)
		if failed == nil && out.StatusCode == http.StatusOK {
			l.wrote(q, operation, name, began)
		}
	})
	var silent *noAnswer
	switch {
	case !errors.As(err, &silent):
		return out, failed
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case s.number(2, l.name, id, "how") == 0:
		return memdb.Throttled(r), nil
	}
	return nil, err
}

func (s *story) answer(r *http.Request, body []byte) (*http.Response, error) {
	again := r.WithContext(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(body))
	return s.db.Do(again)
}

// conflict is the answer to a write that met a transaction.
func conflict(r *http.Request, operation string, items int) *http.Response {
	body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException", "message": "Transaction is ongoing for the item"}
	if operation == "TransactWriteItems" {
		reasons := make([]map[string]string, items)
		for i := range reasons {
			reasons[i] = map[string]string{"Code": "None"}
		}
		reasons[items-1] = map[string]string{"Code": "TransactionConflict"}
		body = map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "message": "cancelled", "CancellationReasons": reasons}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: http.StatusBadRequest, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, ContentLength: int64(len(b)), Body: io.NopCloser(bytes.NewReader(b)),
	}
}

// wrote records what a write did. The caller holds the lock.
func (l *life) wrote(q request, operation, name string, began soak.Moment) {
	switch operation {
	case "UpdateItem":
		l.wroteEntry(q.update, name, began)
	case "TransactWriteItems":
		for _, it := range q.TransactItems {
			l.wroteEntry(it.Update, name, began)
		}
	}
}

func (l *life) wroteEntry(in update, name string, began soak.Moment) {
	v := in.ExpressionAttributeValues
	if in.TableName != names.LedgerTable {
		return
	}
	if id, ok := strings.CutPrefix(in.Key["subject"].S, "strikes\t"); ok {
		for placeholder, value := range v {
			if strings.HasPrefix(placeholder, ":struck") {
				l.struck(id, number(value.N, 0))
				l.tell("%s: strike of %s until %s", l.name, id, value.N)
			}
		}
		return
	}
	if v[":status"].S == "" && v[":version"].N == "" {
		return
	}
	w := soak.Write{Key: in.Key["key"].S, Began: began, Ended: l.now(), Request: name, Status: v[":status"].S, Attempts: -1}
	w.Final = ledger.Status(w.Status).Final()
	if w.Version = int(number(v[":version"].N, 0)); w.Version > 0 {
		w.Attempts = int(number(v[":attempts"].N, -1))
	}
	if v[":lease_until"].N != "" {
		w.Claims = l.entry(w.Key).Owner // the write leaves out an owner that does not change
	}
	if evidence := v[":evidence"].L; w.Final && len(evidence) > 0 {
		w.Completes = evidence[len(evidence)-1].M["token"].S
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
	if j := l.jobOf(w.Key); w.Status == string(ledger.Done) && j != nil && !j.due.IsZero() && time.Now().Before(j.due.Add(-maxSkew)) {
		l.breaks("%s takes effect at %v, and is due at %v", w.Key, time.Now(), j.due)
	}
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
		if j.key == key {
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
