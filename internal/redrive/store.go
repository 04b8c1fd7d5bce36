package redrive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

// DynamoDB is what a Store needs of the SDK's client.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Store keeps the redrive's documents in the operations table. A Put replaces exactly the version it
// was made from, and a repeated Put whose first answer was lost is recognised. Reads are consistent.
// It may be used concurrently.
type Store struct {
	api  DynamoDB
	name string
}

// NewStore returns the store in the table of the given name.
func NewStore(api DynamoDB, name string) *Store { return &Store{api: api, name: name} }

// The attributes of an attributes. None is a prefix of another.
const (
	attrPK      = "pk"
	attrSK      = "sk"
	attrDoc     = "doc"
	attrVersion = "version"
	attrTTL     = "ttl"
	// attrWrite is the token of the write that made the version.
	attrWrite = "write_id"
)

const (
	// maxBatch is the most items of one BatchWriteItem.
	maxBatch = 25
	// batchTries is how often what a batch left unprocessed is written again.
	batchTries = 6
	firstPause = 25 * time.Millisecond
)

type attributes = map[string]types.AttributeValue

func marshalRecord(r Record, write string) attributes {
	it := attributes{
		attrPK: dynamo.Text(r.PK), attrSK: dynamo.Text(r.SK), attrDoc: dynamo.Text(string(r.Doc)),
		attrVersion: dynamo.Number(r.Version), attrWrite: dynamo.Text(write),
	}
	if !r.TTL.IsZero() {
		it[attrTTL] = dynamo.Number(r.TTL.Unix())
	}
	return it
}

func unmarshalRecord(it attributes) (r Record, write string, err error) {
	str := func(name string) string {
		if s, ok := it[name].(*types.AttributeValueMemberS); ok {
			return s.Value
		}
		return ""
	}
	r = Record{PK: str(attrPK), SK: str(attrSK), Doc: []byte(str(attrDoc))}
	n, ok := it[attrVersion].(*types.AttributeValueMemberN)
	if !ok {
		return r, "", fmt.Errorf("document %s %s has no version", r.PK, r.SK)
	}
	if r.Version, err = strconv.ParseInt(n.Value, 10, 64); err != nil || r.Version < 1 {
		return r, "", fmt.Errorf("document %s %s has version %q", r.PK, r.SK, n.Value)
	}
	return r, str(attrWrite), nil
}

// Get reads a document; one that is missing has Version 0.
func (t *Store) Get(ctx context.Context, pk, sk string) (Record, error) {
	r, _, err := t.get(ctx, pk, sk)
	return r, err
}

func (t *Store) get(ctx context.Context, pk, sk string) (Record, string, error) {
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, Key: attributes{attrPK: dynamo.Text(pk), attrSK: dynamo.Text(sk)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Record{}, "", fmt.Errorf("get document: %w", dynamo.Translate(err))
	}
	if len(out.Item) == 0 {
		return Record{PK: pk, SK: sk}, "", nil
	}
	return unmarshalRecord(out.Item)
}

// Put writes a document on condition that the stored version is the record's. A document that is
// another by now is ErrChanged.
func (t *Store) Put(ctx context.Context, r Record) (Record, error) {
	write := rand.Text()
	next := r
	next.Version++
	in := &dynamodb.PutItemInput{TableName: &t.name, Item: marshalRecord(next, write)}
	if r.Version == 0 {
		in.ConditionExpression = aws.String("attribute_not_exists(#pk)")
		in.ExpressionAttributeNames = map[string]string{"#pk": attrPK}
	} else {
		in.ConditionExpression = aws.String("#version = :expected")
		in.ExpressionAttributeNames = map[string]string{"#version": attrVersion}
		in.ExpressionAttributeValues = attributes{":expected": dynamo.Number(r.Version)}
	}
	_, err := t.api.PutItem(ctx, in)
	err = dynamo.Translate(err)
	var failed *dynamo.ConditionError
	switch {
	case err == nil:
		return next, nil
	case !errors.As(err, &failed):
		return r, fmt.Errorf("put document: %w", err)
	}
	// Perhaps by this very write, whose answer was lost and which the SDK repeated.
	found, by, err := t.get(ctx, r.PK, r.SK)
	if err != nil {
		return r, err
	}
	if by == write {
		return next, nil
	}
	return found, ErrChanged
}

// ThrowSwitch throws the kill switch without asking the redrive function, which may be busy or throttled.
// It needs dynamodb:UpdateItem on the partition of the switch alone. Releasing goes through the function.
func (t *Store) ThrowSwitch(ctx context.Context, sw Switch, ttl time.Time) error {
	sw.On = true
	doc, err := encode(sw)
	if err != nil {
		return err
	}
	_, err = t.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &t.name, Key: attributes{attrPK: dynamo.Text(pkSwitch), attrSK: dynamo.Text(pkSwitch)},
		// No condition: the switch is thrown in any case.
		UpdateExpression:         aws.String("SET #doc = :doc, #write = :write, #ttl = :ttl ADD #version :one"),
		ExpressionAttributeNames: map[string]string{"#doc": attrDoc, "#write": attrWrite, "#ttl": attrTTL, "#version": attrVersion},
		ExpressionAttributeValues: attributes{
			":doc": dynamo.Text(string(doc)), ":write": dynamo.Text(rand.Text()), ":ttl": dynamo.Number(ttl.Unix()), ":one": dynamo.Number(1),
		},
	})
	if err != nil {
		return fmt.Errorf("throw the kill switch: %w", dynamo.Translate(err))
	}
	return nil
}

// RecordThrow adds the line of the audit about a ThrowSwitch, in the partition of the switch, and so with the same right.
// Repeating it changes nothing.
func (t *Store) RecordThrow(ctx context.Context, sw Switch, ttl time.Time) error {
	return t.addLine(ctx, pkSwitch, AuditRecord{Run: deeds, Message: pkSwitch, At: sw.At.UTC(), What: auditStopped, By: sw.By, Reason: sw.Reason}, ttl)
}

// RecordCancel adds the line of the audit about the cancellation of a job. Repeating it with the same decision
// changes nothing. It needs dynamodb:UpdateItem on the partitions of CancelKeys alone.
func (t *Store) RecordCancel(ctx context.Context, key string, d ledger.Decision, ttl time.Time) error {
	return t.addLine(ctx, pkAudit(cancels, key), AuditRecord{Run: cancels, Message: key, Job: key, At: d.At.UTC(), What: auditCancelled, Status: ledger.Terminal, By: d.By, Reason: d.Reason}, ttl)
}

// addLine adds a line to the audit, in the given partition, with dynamodb:UpdateItem.
func (t *Store) addLine(ctx context.Context, pk string, line AuditRecord, ttl time.Time) error {
	doc, err := encode(line)
	if err != nil {
		return err
	}
	_, err = t.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &t.name,
		// No nonce: the time tells lines of one message apart.
		Key: attributes{attrPK: dynamo.Text(pk), attrSK: dynamo.Text(line.sortKey(""))},
		// A line that is there is never changed.
		UpdateExpression: aws.String("SET #doc = if_not_exists(#doc, :doc), #write = if_not_exists(#write, :write), " +
			"#ttl = if_not_exists(#ttl, :ttl), #version = if_not_exists(#version, :one)"),
		ExpressionAttributeNames: map[string]string{"#doc": attrDoc, "#write": attrWrite, "#ttl": attrTTL, "#version": attrVersion},
		ExpressionAttributeValues: attributes{
			":doc": dynamo.Text(string(doc)), ":write": dynamo.Text(rand.Text()), ":ttl": dynamo.Number(ttl.Unix()), ":one": dynamo.Number(1),
		},
	})
	if err != nil {
		return fmt.Errorf("write audit: %w", dynamo.Translate(err))
	}
	return nil
}

// Append writes documents under keys that nobody else uses.
func (t *Store) Append(ctx context.Context, records []Record) error {
	write := rand.Text()
	requests := make([]types.WriteRequest, len(records))
	for i, r := range records {
		r.Version = 1
		requests[i] = types.WriteRequest{PutRequest: &types.PutRequest{Item: marshalRecord(r, write)}}
	}
	for len(requests) > 0 {
		n := min(maxBatch, len(requests))
		if err := t.writeBatch(ctx, requests[:n]); err != nil {
			return err
		}
		requests = requests[n:]
	}
	return nil
}

func (t *Store) writeBatch(ctx context.Context, requests []types.WriteRequest) error {
	for try := range batchTries {
		out, err := t.api.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{t.name: requests}})
		if err != nil {
			return fmt.Errorf("append documents: %w", dynamo.Translate(err))
		}
		if requests = out.UnprocessedItems[t.name]; len(requests) == 0 {
			return nil
		}
		if err := retry.Sleep(ctx, firstPause<<try); err != nil {
			return fmt.Errorf("append documents: %w: %w", ledger.ErrUnavailable, err)
		}
	}
	return fmt.Errorf("append documents: %w: %d were not processed", ledger.ErrUnavailable, len(requests))
}

// Query calls each for every document of a partition whose sort key has the prefix, in their order.
func (t *Store) Query(ctx context.Context, pk, prefix string, each func(Record) error) error {
	in := t.partition(pk)
	if prefix != "" {
		in.KeyConditionExpression = aws.String("#pk = :pk AND begins_with(#sk, :prefix)")
		in.ExpressionAttributeNames["#sk"] = attrSK
		in.ExpressionAttributeValues[":prefix"] = dynamo.Text(prefix)
	}
	return t.pages(ctx, in, each)
}

// QueryAfter calls each for every document of a partition whose sort key comes after the given one, in their order.
func (t *Store) QueryAfter(ctx context.Context, pk, after string, each func(Record) error) error {
	in := t.partition(pk)
	if after != "" {
		in.KeyConditionExpression = aws.String("#pk = :pk AND #sk > :after")
		in.ExpressionAttributeNames["#sk"] = attrSK
		in.ExpressionAttributeValues[":after"] = dynamo.Text(after)
	}
	return t.pages(ctx, in, each)
}

func (t *Store) partition(pk string) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("#pk = :pk"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPK},
		ExpressionAttributeValues: attributes{":pk": dynamo.Text(pk)},
	}
}

func (t *Store) pages(ctx context.Context, in *dynamodb.QueryInput, each func(Record) error) error {
	for pages := dynamodb.NewQueryPaginator(t.api, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("query documents: %w", dynamo.Translate(err))
		}
		for _, it := range page.Items {
			r, _, err := unmarshalRecord(it)
			if err != nil {
				return err
			}
			if err := each(r); err != nil {
				return err
			}
		}
	}
	return nil
}
