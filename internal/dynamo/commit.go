package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/ledger"
)

// ItemError: the condition of one of the caller's own items refused the transaction. Nothing was written. If
// several refused, the error is about the first.
type ItemError struct {
	// Index is the item's place among the caller's items.
	Index int
	// Item is the item that failed the condition. It is nil if there is no such item, or if the engine does not
	// return it; then the caller reads it.
	Item map[string]types.AttributeValue
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("own item %d refused the transaction", e.Index)
}

// overwritten are the attributes that a completion sets. A completion keeps all other attributes, which are the
// entry's history.
var overwritten = map[string]bool{
	attrFormat: true, attrKind: true, attrStatus: true, attrOutcome: true,
	attrFinalAt: true, attrUpdatedAt: true, attrTTL: true, attrOwner: true,
}

// Commit makes an entry final together with a kind's own items, in one TransactWriteItems call and without a
// read. It returns nil if the transaction is committed, also if an earlier call of this delivery committed it.
//
// When the entry refuses, the error is a *ledger.RefusedError with the entry as found, or a
// *ledger.ConflictError if the entry has another payload. So it is when an own item refuses as well, because a
// final entry explains why the item refused. When only an own item refuses, the error is an *ItemError.
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
	for {
		items := append([]types.TransactWriteItem{{Update: s.completion(c)}}, own...)
		err := s.transact(ctx, items)

		var refused *ItemError
		if !errors.As(err, &refused) {
			return err
		}
		if refused.Index > 0 {
			return &ItemError{Index: refused.Index - 1, Item: refused.Item}
		}
		var short *shortError
		if err = s.refusedBy(ctx, c, refused.Item); !errors.As(err, &short) {
			return err
		}
		c = short.kept
	}
}

// shortError: the entry refused the completion only because a schedule may bring the job back after the
// completion's TTL. kept is the completion with a later one. It stays within this package.
type shortError struct{ kept ledger.Completion }

func (e *shortError) Error() string {
	return "the entry is scheduled until " + e.kept.Covers.UTC().Format(time.RFC3339)
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

// refusedBy says why the entry refused a completion. It returns nil if this same delivery had committed it and
// the answer was lost, a *shortError if the completion may be tried again with a later TTL, else a
// *ledger.RefusedError with the entry as found.
func (s *Store) refusedBy(ctx context.Context, c ledger.Completion, it item) error {
	e, err := s.found(ctx, c.Entry.Key, it)
	if err != nil {
		return err
	}
	// This is our own earlier write, whose answer was lost. The token alone does not prove that: this delivery
	// may have isolated the entry, or completed it with another outcome. The caller must learn of these two.
	if e.Owner == c.Token && e.Status == c.Entry.Status && e.Outcome == c.Entry.Outcome {
		return nil
	}
	if err := e.Conflict(c.Entry.Digest); err != nil {
		return err
	}
	if kept, short := c.Keep(e); short && e.Accepts(c.Now) {
		return &shortError{kept}
	}
	return &ledger.RefusedError{Entry: e}
}

// completion is the write of the entry itself: the rules of ledger.Entry.Accepts and ledger.Completion.Keep as
// a condition. An update cannot compute the later of two times, so a TTL that is too short is refused.
func (s *Store) completion(c ledger.Completion) *types.Update {
	e := c.Entry
	e.Owner, e.UpdatedAt = c.Token, c.Now
	fresh := marshal(e)
	for _, name := range []string{attrSubject, attrKey, attrVersion, attrRetryAt} {
		delete(fresh, name)
	}
	rule, _, ruled := strings.Cut(e.Digest, ":")
	text := s.completionText(slices.Sorted(maps.Keys(fresh)), ruled)

	values := make(item, len(fresh)+8)
	for name, v := range fresh {
		values[text.values[name]] = v
	}
	values[":zero"], values[":one"] = Number(0), Number(1)
	values[":pending"], values[":now"], values[":covers"] = Text(string(ledger.Pending)), Millis(c.Now), Millis(c.Covers)
	if ruled {
		// This range holds the digests of this rule. A digest of another rule lies outside, because it begins
		// otherwise. In ASCII the semicolon follows the colon.
		values[":low"], values[":high"] = Text(rule+":"), Text(rule+";")
	}
	return &types.Update{
		TableName:                 &s.table,
		Key:                       keyOf(e.Key),
		UpdateExpression:          text.update,
		ConditionExpression:       text.condition,
		ExpressionAttributeNames:  text.names,
		ExpressionAttributeValues: values,
	}
}

// completionText is what completions that set the same attributes have in common. Nothing changes it.
type completionText struct {
	update, condition *string
	names             map[string]string
	// values are the placeholders of the attributes' values.
	values map[string]string
}

// completionText returns the text of completions that set the attributes. There are only a few combinations of
// attributes, so each text is made once. ruled says that the payload's digest names its rule.
func (s *Store) completionText(attributes []string, ruled bool) *completionText {
	shape := fmt.Sprint(ruled) + strings.Join(attributes, ",")
	if text, ok := s.texts.Load(shape); ok {
		return text.(*completionText)
	}
	w := newWrite()
	text := &completionText{names: w.names, values: map[string]string{}}
	for _, name := range attributes {
		text.values[name] = ":" + name
		if overwritten[name] {
			w.set(name, nil)
		} else {
			w.keep(name, nil)
		}
	}
	w.increment(attrVersion)
	w.remove(attrRetryAt)
	text.update = w.expression()

	var same string
	if ruled {
		digest := w.name(attrDigest)
		same = " AND (attribute_not_exists(" + digest + ") OR " + digest + " = :" + attrDigest +
			" OR " + digest + " < :low OR " + digest + " > :high)"
	}
	key, status, retryAt := w.name(attrKey), w.name(attrStatus), w.name(attrRetryAt)
	until, format := w.name(attrScheduledUntil), w.name(attrFormat)
	text.condition = aws.String("attribute_not_exists(" + key + ") OR (" + status + " = :pending" +
		" AND (attribute_not_exists(" + format + ") OR " + format + " <= :" + attrFormat + ")" +
		" AND (attribute_not_exists(" + retryAt + ") OR " + retryAt + " <= :now)" +
		" AND (attribute_not_exists(" + until + ") OR " + until + " <= :covers)" + same + ")")
	s.texts.Store(shape, text)
	return text
}

// Transact writes a kind's own items in one transaction, as Commit does, without completing an entry. The items
// alone do not show which call wrote them. On an engine that ignores ClientRequestToken, a repeated call may
// therefore be refused because of its own first write. So a caller that gets an *ItemError checks whether the
// items are already as it wants them.
func (s *Store) Transact(ctx context.Context, items ...types.TransactWriteItem) error {
	if err := s.transact(ctx, items); err != nil {
		return fmt.Errorf("write items: %w", err)
	}
	return nil
}

// Runnable is a transaction's condition that the job with the key can still run: it has no entry yet, or a
// pending one. Use it when items rely on a job that will come, such as a hold on its expiry: commit them
// together with this condition.
func (s *Store) Runnable(key string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                 &s.table,
		Key:                       keyOf(key),
		ConditionExpression:       aws.String("attribute_not_exists(#key) OR #status = :pending"),
		ExpressionAttributeNames:  map[string]string{"#key": attrKey, "#status": attrStatus},
		ExpressionAttributeValues: item{":pending": Text(string(ledger.Pending))},
	}}
}

// transact writes the items. If conflicting writes win, it tries again in place, three times in all. The SDK
// gives each of these calls a fresh ClientRequestToken, and keeps the token when it repeats a call.
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

// returning asks for the item that failed a condition, on a copy of the caller's item.
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
