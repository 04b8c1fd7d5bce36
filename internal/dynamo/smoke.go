package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// A smoke job's counter is kept in the ledger's table, which every stack has, under a subject that no job can have.
// It has none of the index's attributes, so the overviews and the census do not see it.
const (
	smokeSubject = "smoke\t"
	smokeKey     = "#smoke"
	attrEffects  = "effects"
	// donePrefix and a message's id name the attribute that says that a delivery of the message found the job done.
	donePrefix = "done_"
)

// SmokeCounter says what happened to the deliveries of a smoke job.
type SmokeCounter struct {
	// Effects is how often the job took effect.
	Effects int
	// Done is how many of the job's messages were found done, each counted once.
	Done int
	// TTL is the time from which DynamoDB removes the counter.
	TTL time.Time
}

func smokeKeyOf(id string) item {
	return item{attrSubject: Text(smokeSubject + id), attrKey: Text(smokeKey)}
}

// SmokeEffect is the effect of a smoke job: one more on its counter. A kind commits it with the job's entry.
func (s *Store) SmokeEffect(id string, ttl time.Time) types.TransactWriteItem {
	w := newWrite()
	w.increment(attrEffects)
	w.set(attrTTL, Number(ttl.Unix()))
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: smokeKeyOf(id), UpdateExpression: w.expression(),
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
	}}
}

// FinishSmoke records that a delivery of the message found its smoke job done. It may be repeated. It never
// makes a counter: the condition fails if the counter is gone, and then nobody waits for it.
func (s *Store) FinishSmoke(ctx context.Context, id, messageID string) error {
	w := newWrite()
	w.set(donePrefix+messageID, Number(1))
	_, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: smokeKeyOf(id), UpdateExpression: w.expression(),
		ConditionExpression:      aws.String("attribute_exists(" + w.name(attrEffects) + ")"),
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
	})
	var gone *ConditionError
	if err = Translate(err); err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("record that a smoke job is done: %w", err)
	}
	return nil
}

// ReadSmoke reads a smoke job's counter; the zero value is no counter.
func (s *Store) ReadSmoke(ctx context.Context, id string) (SmokeCounter, error) {
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: smokeKeyOf(id), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return SmokeCounter{}, fmt.Errorf("read smoke counter: %w", Translate(err))
	}
	if len(out.Item) == 0 {
		return SmokeCounter{}, nil
	}
	r := reader{item: out.Item}
	c := SmokeCounter{Effects: int(r.number(attrEffects)), TTL: time.Unix(r.number(attrTTL), 0).UTC()}
	for name := range out.Item {
		if strings.HasPrefix(name, donePrefix) {
			c.Done++
		}
	}
	return c, r.err
}
