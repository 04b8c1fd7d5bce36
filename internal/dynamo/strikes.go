package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/ledger"
)

// Strikes stand in the ledger's table under a subject that no job can have, since a subject has no
// control character.
const (
	strikeSubject = "strikes\t"
	strikeKey     = "#strikes"
)

func strikeKeyOf(messageID string) item {
	return item{attrSubject: text(strikeSubject + messageID), attrKey: text(strikeKey)}
}

const (
	attrEnds    = "ends"
	attrJobKey  = "job_key"
	attrJobOf   = "of_subject"
	attrJobKind = "of_kind"
)

// strikeRetention is how long strikes are kept: longer than any lane keeps a message. Clean-up only.
const strikeRetention = 15 * 24 * time.Hour

// ReadStrikes reads the strikes of a message; none is the zero count.
func (s *Store) ReadStrikes(ctx context.Context, messageID string) (ledger.Strikes, error) {
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: strikeKeyOf(messageID), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return ledger.Strikes{}, fmt.Errorf("read strikes: %w", Translate(err))
	}
	return unmarshalStrikes(messageID, out.Item)
}

// Strike adds a strike for an invocation that ends at the given time at the latest. It fails with
// ledger.ErrContended when another delivery of the same message was faster.
func (s *Store) Strike(ctx context.Context, old ledger.Strikes, end time.Time) (ledger.Strikes, error) {
	next := old
	next.Ends = append(slices.Clone(old.Ends), end)
	return s.putStrikes(ctx, old, next)
}

// NameStrikes keeps the job of a message with its strikes.
func (s *Store) NameStrikes(ctx context.Context, old ledger.Strikes, key, subject, kind string) (ledger.Strikes, error) {
	next := old
	next.Key, next.Subject, next.Kind = key, subject, kind
	return s.putStrikes(ctx, old, next)
}

// ClearStrikes takes all strikes of a message back. The item stays, empty, until its TTL: so the
// worker needs no right to delete from the ledger.
func (s *Store) ClearStrikes(ctx context.Context, old ledger.Strikes) error {
	next := old
	next.Ends = nil
	_, err := s.putStrikes(ctx, old, next)
	return err
}

func (s *Store) putStrikes(ctx context.Context, old, next ledger.Strikes) (ledger.Strikes, error) {
	next.Version = old.Version + 1
	w := newWrite()
	ends := make([]types.AttributeValue, len(next.Ends))
	for i, end := range next.Ends {
		ends[i] = millis(end)
	}
	w.set(attrEnds, &types.AttributeValueMemberL{Value: ends})
	for name, v := range map[string]string{attrJobKey: next.Key, attrJobOf: next.Subject, attrJobKind: next.Kind} {
		if v != "" {
			w.set(name, text(v))
		}
	}
	w.set(attrVersion, number(next.Version))
	w.set(attrTTL, number(s.opts.Now().Add(strikeRetention).Unix()))
	var condition string // DynamoDB refuses a placeholder that no expression uses
	if old.Version == 0 {
		condition = "attribute_not_exists(" + w.name(attrKey) + ")"
	} else {
		condition = w.name(attrVersion) + " = " + w.value("old", number(old.Version))
	}
	_, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: strikeKeyOf(old.MessageID),
		UpdateExpression: w.expression(), ConditionExpression: &condition,
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
	})
	err = Translate(err)
	var refused *ConditionError
	if errors.As(err, &refused) {
		// Perhaps by this very write, whose answer was lost.
		found, err := s.ReadStrikes(ctx, old.MessageID)
		if err != nil {
			return ledger.Strikes{}, err
		}
		if found.Version == next.Version && sameStrikes(found, next) {
			return found, nil
		}
		return ledger.Strikes{}, fmt.Errorf("write strikes: %w", ledger.ErrContended)
	}
	if err != nil {
		return ledger.Strikes{}, fmt.Errorf("write strikes: %w", err)
	}
	return next, nil
}

func sameStrikes(a, b ledger.Strikes) bool {
	return a.Key == b.Key && slices.EqualFunc(a.Ends, b.Ends, func(x, y time.Time) bool { return x.UnixMilli() == y.UnixMilli() })
}

func unmarshalStrikes(messageID string, it item) (ledger.Strikes, error) {
	r := reader{item: it}
	st := ledger.Strikes{
		MessageID: messageID, Key: readText[string](&r, attrJobKey), Subject: readText[string](&r, attrJobOf),
		Kind: readText[string](&r, attrJobKind), Version: r.number(attrVersion),
	}
	if l, ok := it[attrEnds].(*types.AttributeValueMemberL); ok {
		for _, v := range l.Value {
			n, ok := v.(*types.AttributeValueMemberN)
			if !ok {
				r.fail(attrEnds, "a list of numbers")
				break
			}
			ms, err := strconv.ParseInt(n.Value, 10, 64)
			if err != nil {
				r.fail(attrEnds, "a list of whole numbers")
				break
			}
			st.Ends = append(st.Ends, time.UnixMilli(ms).UTC())
		}
	}
	if r.err != nil {
		return ledger.Strikes{}, fmt.Errorf("read strikes: %w", r.err)
	}
	return st, nil
}
