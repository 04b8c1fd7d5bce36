package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"acklast/internal/retry"
)

// RestoreAPI is what Restore needs of the SDK's client.
type RestoreAPI interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Restored counts the entries of a restored ledger.
type Restored struct {
	// Read are all entries that were read.
	Read int
	// There are those that the live ledger has too, in any version.
	There int
	// Expired are those that the live ledger lacks since their retention is over.
	Expired int
	// Missing are those that the live ledger lacks although it should have them, Copied those of them that were copied.
	Missing, Copied int
}

const (
	// restorePage is how many entries are compared by one call: the most keys of a BatchGetItem.
	restorePage = 100
	// restoreWrites is how many entries are written at once.
	restoreWrites = 20
	// restorePause is how long DynamoDB is left alone when it did not answer for all keys of a page.
	restorePause = 100 * time.Millisecond
)

// Restore compares the restored ledger in the table from with the live one in the table to, entry by entry. With write it
// copies what the live ledger lacks. It changes no entry: each is put on condition that none is there. So it may run
// beside workers, and again after an error, when it finds its own copies there. It calls told with the counts after each page.
func Restore(ctx context.Context, api RestoreAPI, from, to string, write bool, now time.Time, told func(Restored)) (Restored, error) {
	var all Restored
	in := &dynamodb.ScanInput{TableName: &from, Limit: aws.Int32(restorePage)}
	for {
		page, err := api.Scan(ctx, in)
		if err != nil {
			return all, fmt.Errorf("read %s: %w", from, err)
		}
		absent, err := lacking(ctx, api, to, page.Items)
		if err != nil {
			return all, err
		}
		all.Read += len(page.Items)
		all.There += len(page.Items) - len(absent)
		var missing []item
		for _, entry := range absent {
			if over(entry, now) {
				all.Expired++
			} else {
				missing = append(missing, entry)
			}
		}
		all.Missing += len(missing)
		if write {
			copied, there, err := putMissing(ctx, api, to, missing)
			all.Copied += copied
			all.There += there
			all.Missing -= there
			if err != nil {
				return all, fmt.Errorf("write to %s: %w", to, err)
			}
		}
		told(all)
		if in.ExclusiveStartKey = page.LastEvaluatedKey; len(page.LastEvaluatedKey) == 0 {
			return all, nil
		}
	}
}

// over says whether DynamoDB may have deleted an entry, since its retention is over.
func over(entry item, now time.Time) bool {
	ttl, ok := entry[attrTTL].(*types.AttributeValueMemberN)
	if !ok {
		return false
	}
	seconds, err := strconv.ParseInt(ttl.Value, 10, 64)
	return err == nil && seconds <= now.Unix()
}

// id is an entry's key in the table.
type id struct{ subject, key string }

func idOf(entry item) (id, bool) {
	subject, ok := entry[attrSubject].(*types.AttributeValueMemberS)
	key, also := entry[attrKey].(*types.AttributeValueMemberS)
	if !ok || !also {
		return id{}, false
	}
	return id{subject.Value, key.Value}, true
}

// lacking returns those of the entries that the table has under no version.
func lacking(ctx context.Context, api RestoreAPI, table string, entries []item) ([]item, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	keys := make([]map[string]types.AttributeValue, len(entries))
	for i, entry := range entries {
		if _, ok := idOf(entry); !ok {
			return nil, fmt.Errorf("an item without %s and %s is no entry of a ledger", attrSubject, attrKey)
		}
		keys[i] = item{attrSubject: entry[attrSubject], attrKey: entry[attrKey]}
	}
	there := map[id]bool{}
	asked := map[string]types.KeysAndAttributes{table: {
		Keys: keys, ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("#subject, #key"),
		ExpressionAttributeNames: map[string]string{"#subject": attrSubject, "#key": attrKey},
	}}
	for {
		out, err := api.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: asked})
		if err != nil {
			return nil, fmt.Errorf("compare with %s: %w", table, err)
		}
		for _, found := range out.Responses[table] {
			if at, ok := idOf(found); ok {
				there[at] = true
			}
		}
		if asked = out.UnprocessedKeys; len(asked) == 0 {
			break
		}
		if err := retry.Sleep(ctx, restorePause); err != nil {
			return nil, err
		}
	}
	var missing []item
	for _, entry := range entries {
		if at, _ := idOf(entry); !there[at] {
			missing = append(missing, entry)
		}
	}
	return missing, nil
}

// putMissing puts each entry on condition that none is there. It returns how many it put and how many were there by then,
// also by its own write, if that was repeated since its answer was lost.
func putMissing(ctx context.Context, api RestoreAPI, table string, entries []item) (copied, there int, err error) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(restoreWrites)
	for _, entry := range entries {
		group.Go(func() error {
			_, err := api.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &table, Item: entry, ConditionExpression: aws.String("attribute_not_exists(#subject)"),
				ExpressionAttributeNames: map[string]string{"#subject": attrSubject},
			})
			exists := errors.As(err, new(*types.ConditionalCheckFailedException))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case exists:
				there++
			case err != nil:
				return err
			default:
				copied++
			}
			return nil
		})
	}
	err = group.Wait()
	return copied, there, err
}
