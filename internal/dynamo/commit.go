package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/ledger"
)

// ItemError: the condition of one of the caller's own items refused the transaction; nothing of it
// was written. When several refused, it tells of the first.
type ItemError struct {
	// Index is the item's place among those the caller gave.
	Index int
	// Item is what the condition met. It is nil when the engine returned none, be it that there is no
	// such item or that the engine never does; the caller then reads it.
	Item map[string]types.AttributeValue
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("own item %d refused the transaction", e.Index)
}

// overwritten are the attributes that a completion decides. All others of an entry that exists are
// its history, which a completion keeps.
var overwritten = map[string]bool{
	attrFormat: true, attrKind: true, attrStatus: true, attrOutcome: true,
	attrFinalAt: true, attrUpdatedAt: true, attrTTL: true, attrOwner: true,
}

// Commit makes an entry final together with a kind's own items, in one TransactWriteItems call and
// without reading anything first. It returns nil when this transaction is committed, whichever call
// committed it.
//
// When the entry refuses, the error is a *ledger.RefusedError with the entry as it was found, or a
// *ledger.ConflictError when the entry is of another payload; also when an own item refuses too: a final
// entry explains the item, not the other way round. When only an own item refuses, it is an *ItemError.
func (s *Store) Commit(ctx context.Context, c ledger.Completion, own ...types.TransactWriteItem) error {
	err := s.commit(ctx, c, own)
	if err != nil {
		return fmt.Errorf("commit entry: %w", err)
	}
	return nil
}

func (s *Store) commit(ctx context.Context, c ledger.Completion, own []types.TransactWriteItem) error {
	if err := checkCompletion(c); err != nil {
		return err
	}
	items := append([]types.TransactWriteItem{{Update: s.completion(c)}}, own...)
	err := s.transact(ctx, items)

	var refused *ItemError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Index > 0 {
		return &ItemError{Index: refused.Index - 1, Item: refused.Item}
	}
	return s.refusedBy(ctx, c, refused.Item)
}

func checkCompletion(c ledger.Completion) error {
	if err := checkKey(c.Entry.Key); err != nil {
		return err
	}
	if c.Token == "" {
		return errors.New("no owner token")
	}
	if !c.Entry.Status.Final() {
		return fmt.Errorf("status %q is not final", c.Entry.Status)
	}
	return nil
}

// refusedBy says what it means that the entry refused a completion: nil for a commit of this same delivery
// whose answer was lost, else a *ledger.RefusedError with the entry as it was found.
func (s *Store) refusedBy(ctx context.Context, c ledger.Completion, it item) error {
	e, err := s.found(ctx, c.Entry.Key, it)
	if err != nil {
		return err
	}
	// Our own earlier write, whose answer was lost. The token alone does not say so: this delivery
	// may have isolated the entry, or completed it with another outcome, which the caller must learn.
	if e.Owner == c.Token && e.Status == c.Entry.Status && e.Outcome == c.Entry.Outcome {
		return nil
	}
	if err := e.Conflict(c.Entry.Digest); err != nil {
		return err
	}
	return &ledger.RefusedError{Entry: e}
}

// completion is the entry's own write: the rule of ledger.Entry.Accepts as a condition.
func (s *Store) completion(c ledger.Completion) *types.Update {
	e := c.Entry
	e.Owner, e.UpdatedAt = c.Token, c.Now
	w := newWrite()
	fresh := marshal(e)
	for _, name := range []string{attrSubject, attrKey, attrVersion, attrRetryAt} {
		delete(fresh, name)
	}
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		if overwritten[name] {
			w.set(name, fresh[name])
		} else {
			w.keep(name, fresh[name])
		}
	}
	w.increment(attrVersion)
	w.remove(attrRetryAt)

	// Digests of another rule lie outside of this rule's range: a semicolon follows the colon.
	var same string
	if rule, _, ok := strings.Cut(e.Digest, ":"); ok {
		digest := w.name(attrDigest)
		same = " AND (attribute_not_exists(" + digest + ") OR " + digest + " = " + w.value(attrDigest, Text(e.Digest)) +
			" OR " + digest + " < " + w.value("low", Text(rule+":")) + " OR " + digest + " > " + w.value("high", Text(rule+";")) + ")"
	}
	key, status, retryAt := w.name(attrKey), w.name(attrStatus), w.name(attrRetryAt)
	pending, now := w.value("pending", Text(string(ledger.Pending))), w.value("now", Millis(c.Now))
	format, known := w.name(attrFormat), w.value(attrFormat, Number(ledger.Format))
	return &types.Update{
		TableName:        &s.table,
		Key:              keyOf(e.Key),
		UpdateExpression: w.expression(),
		ConditionExpression: aws.String("attribute_not_exists(" + key + ") OR (" + status + " = " + pending +
			" AND (attribute_not_exists(" + format + ") OR " + format + " <= " + known + ")" +
			" AND (attribute_not_exists(" + retryAt + ") OR " + retryAt + " <= " + now + ")" + same + ")"),
		ExpressionAttributeNames:  w.names,
		ExpressionAttributeValues: w.values,
	}
}

// Transact writes a kind's own items in one transaction, as Commit does, where no entry is to be
// completed. A transaction cannot be told from another's by its items alone: on an engine that
// ignores ClientRequestToken, a repeated call may be refused by what it wrote itself. So a caller that
// gets an *ItemError looks whether the items are already as it wanted them.
func (s *Store) Transact(ctx context.Context, items ...types.TransactWriteItem) error {
	if err := s.transact(ctx, items); err != nil {
		return fmt.Errorf("write items: %w", err)
	}
	return nil
}

// Runnable is a transaction's condition that the job with the key can still run: it has no entry yet,
// or a pending one. Who promises that a job will come, such as the one that expires a hold, commits
// the promise together with this condition.
func (s *Store) Runnable(key string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                 &s.table,
		Key:                       keyOf(key),
		ConditionExpression:       aws.String("attribute_not_exists(#key) OR #status = :pending"),
		ExpressionAttributeNames:  map[string]string{"#key": attrKey, "#status": attrStatus},
		ExpressionAttributeValues: item{":pending": Text(string(ledger.Pending))},
	}}
}

// transact writes the items, in place up to three times as long as conflicting writes defeat them.
// The SDK gives each of these calls a fresh ClientRequestToken, and keeps it when it repeats one.
func (s *Store) transact(ctx context.Context, items []types.TransactWriteItem) error {
	asked := make([]types.TransactWriteItem, len(items))
	for i, it := range items {
		asked[i] = returning(it)
	}
	for try := 1; ; try++ {
		_, err := s.api.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: asked})
		err = Translate(err)
		var cancelled *cancelledError
		if errors.As(err, &cancelled) {
			err = cancelled.verdict(len(items))
		}
		if !errors.Is(err, ledger.ErrContended) {
			return err
		}
		s.opts.OnConflict()
		if try == tries {
			return err
		}
		if err := s.wait(ctx, try); err != nil {
			return err
		}
	}
}

// returning asks for the item that a failed condition met, on a copy of the caller's item.
func returning(it types.TransactWriteItem) types.TransactWriteItem {
	const old = types.ReturnValuesOnConditionCheckFailureAllOld
	switch {
	case it.Update != nil:
		u := *it.Update
		u.ReturnValuesOnConditionCheckFailure, it.Update = old, &u
	case it.Put != nil:
		p := *it.Put
		p.ReturnValuesOnConditionCheckFailure, it.Put = old, &p
	case it.Delete != nil:
		d := *it.Delete
		d.ReturnValuesOnConditionCheckFailure, it.Delete = old, &d
	case it.ConditionCheck != nil:
		c := *it.ConditionCheck
		c.ReturnValuesOnConditionCheckFailure, it.ConditionCheck = old, &c
	}
	return it
}
