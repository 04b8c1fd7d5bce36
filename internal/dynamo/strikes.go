package dynamo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Strikes are kept in the ledger's table, under a subject with a control character, which no job's subject can
// have. Each strike is an attribute of its own. Its name is made of its delivery's token, its value is the end
// of the invocation. So a strike and its clearing depend on no other write, and repeating either is safe.
const (
	strikeSubject = "strikes\t"
	strikeKey     = "#strikes"
	strikePrefix  = "struck_"

	attrJobKey     = "job_key"
	attrJobSubject = "job_subject"
)

// strikeRetention is how long strikes are kept: longer than any lane keeps a message. Clean-up only.
const strikeRetention = 15 * 24 * time.Hour

func strikeKeyOf(messageID string) item {
	return item{attrSubject: Text(strikeSubject + messageID), attrKey: Text(strikeKey)}
}

// ReadStrikes reads the strikes of a message; none is the zero value.
func (s *Store) ReadStrikes(ctx context.Context, messageID string) (ledger.Strikes, error) {
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: strikeKeyOf(messageID), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return ledger.Strikes{}, fmt.Errorf("read strikes: %w", Translate(err))
	}
	r := reader{item: out.Item}
	strikes := ledger.Strikes{
		Kind: readText[string](&r, attrKind), Key: readText[string](&r, attrJobKey),
		Subject: readText[string](&r, attrJobSubject), Digest: readText[string](&r, attrDigest),
	}
	for _, name := range slices.Sorted(maps.Keys(out.Item)) {
		if !strings.HasPrefix(name, strikePrefix) {
			continue
		}
		if ms := r.number(name); ms != 0 { // zero: the strike was cleared
			strikes.Ends = append(strikes.Ends, time.UnixMilli(ms).UTC())
		}
	}
	if r.err != nil {
		return ledger.Strikes{}, fmt.Errorf("read strikes: %w: %w", ledger.ErrUndecodable, r.err)
	}
	return strikes, nil
}

// Strike records that a delivery with the token begins to run a job of the kind. The invocation ends at the
// given time at the latest.
func (s *Store) Strike(ctx context.Context, messageID, token, kind string, end time.Time) error {
	w := newWrite()
	w.set(attrKind, Text(kind))
	w.set(strikePrefix+token, Millis(end))
	return s.writeStrikes(ctx, "strike", messageID, w)
}

// ClearStrike removes a delivery's strike. The item stays until its TTL, so the worker needs no permission to
// delete from the ledger.
func (s *Store) ClearStrike(ctx context.Context, messageID, token string) error {
	w := newWrite()
	w.set(strikePrefix+token, Number(0))
	return s.writeStrikes(ctx, "clear strike", messageID, w)
}

// NameSuspect records which job a struck message carries. A message never changes, so repeating it is safe.
func (s *Store) NameSuspect(ctx context.Context, d job.Delivery) error {
	w := newWrite()
	w.set(attrJobKey, Text(d.Key))
	w.set(attrJobSubject, Text(d.Subject))
	w.set(attrDigest, Text(d.Digest))
	return s.writeStrikes(ctx, "name suspect", d.ID, w)
}

func (s *Store) writeStrikes(ctx context.Context, doing, messageID string, w *write) error {
	w.set(attrTTL, Number(s.opts.Now().Add(strikeRetention).Unix()))
	_, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: strikeKeyOf(messageID), UpdateExpression: w.expression(),
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, Translate(err))
	}
	return nil
}
