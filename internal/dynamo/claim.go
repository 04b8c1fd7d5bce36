package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// kept are the attributes that the first claim, or whatever opened the entry, decides. Later claims
// leave them as they are.
var kept = []string{
	attrKind, attrDue, attrFirstSent, attrDeadline, attrAttempts,
	attrProviderKey, attrCalledFrom, attrExpiresAt,
}

// Claim applies ledger.Rules.Claim in one conditional write, without reading the entry first, and
// returns the entry as written. Its UnresolvedBefore says whether a call of an earlier claim has no
// known outcome yet.
//
//	write if nobody holds it ──ok──────────────────────────────────▶ ours, with open_claims + 1
//	        │ refused
//	        ├─ found running under our token ──▶ our own write, answer lost: ours, counted once
//	        └─ anything else ──────────────────▶ *ledger.RefusedError with the entry as found
//
// The count is why a lost answer does not matter: the second call cannot see what the entry was before
// the first, but it sees how many claims are open.
func (s *Store) Claim(ctx context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (ledger.Entry, error) {
	e, err := s.claim(ctx, rules, d, l)
	if err != nil {
		return e, fmt.Errorf("claim entry: %w", err)
	}
	return e, nil
}

func (s *Store) claim(ctx context.Context, rules ledger.Rules, d job.Delivery, l ledger.Lease) (ledger.Entry, error) {
	if err := checkKey(d.Key); err != nil {
		return ledger.Entry{}, err
	}
	if d.Token == "" || l.ProviderKey == "" || l.Until.IsZero() {
		return ledger.Entry{}, errors.New("a claim needs a token, a provider key and a lease time")
	}
	in, err := s.claimInput(rules, d, l)
	if err != nil {
		return ledger.Entry{}, err
	}
	for try := 1; ; try++ {
		out, err := s.api.UpdateItem(ctx, in)
		if err == nil {
			return s.found(ctx, d.Key, out.Attributes)
		}
		err = Translate(err)
		var failed *ConditionError
		if errors.As(err, &failed) {
			e, err := s.found(ctx, d.Key, failed.Item)
			if err != nil {
				return ledger.Entry{}, err
			}
			if e.Status == ledger.Running && e.Owner == d.Token {
				return e, nil
			}
			return e, &ledger.RefusedError{Entry: e}
		}
		if !errors.Is(err, ledger.ErrContended) {
			return ledger.Entry{}, err
		}
		s.opts.OnConflict()
		if try == tries {
			return ledger.Entry{}, err
		}
		if err := s.wait(ctx, try); err != nil {
			return ledger.Entry{}, err
		}
	}
}

// claimInput writes what ledger.Rules.Claim makes of an absent entry, on the condition that is the
// same rule for one that exists.
func (s *Store) claimInput(rules ledger.Rules, d job.Delivery, l ledger.Lease) (*dynamodb.UpdateItemInput, error) {
	now := s.opts.Now()
	fresh, _, err := rules.Claim(ledger.Entry{}, d, l, now)
	if err != nil {
		return nil, err
	}
	fresh.UpdatedAt = now
	w := newWrite()
	values := marshal(fresh)
	for _, name := range []string{attrSubject, attrKey, attrVersion, attrOpenClaims} {
		delete(values, name)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(kept, name) {
			w.keep(name, values[name])
		} else {
			w.set(name, values[name])
		}
	}
	w.increment(attrOpenClaims)
	w.increment(attrVersion)
	w.remove(attrRetryAt)

	key, status, retryAt, until := w.name(attrKey), w.name(attrStatus), w.name(attrRetryAt), w.name(attrLeaseUntil)
	pending, at := w.value("pending", text(string(ledger.Pending))), w.value("now", millis(now))
	running := w.value(attrStatus, text(string(ledger.Running))) // what status is set to as well
	format, known := w.name(attrFormat), w.value(attrFormat, number(ledger.Format))
	return &dynamodb.UpdateItemInput{
		TableName:        &s.table,
		Key:              keyOf(d.Key),
		UpdateExpression: w.expression(),
		// A comparison with a missing attribute is false, but not on every engine: a running entry without a
		// lease time is never free.
		ConditionExpression: aws.String("attribute_not_exists(" + key + ")" +
			" OR ((attribute_not_exists(" + format + ") OR " + format + " <= " + known + ")" +
			" AND (attribute_not_exists(" + retryAt + ") OR " + retryAt + " <= " + at + ")" +
			" AND (" + status + " = " + pending +
			" OR (" + status + " = " + running + " AND attribute_exists(" + until + ") AND " + until + " <= " + at + ")))"),
		ExpressionAttributeNames:            w.names,
		ExpressionAttributeValues:           w.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, nil
}

// Learn appends evidence to an entry that exists, whatever its status and whoever owns it: the owner
// stays, and with it the right to complete.
func (s *Store) Learn(ctx context.Context, rules ledger.Rules, key string, ev ledger.Evidence) (ledger.Entry, error) {
	found, err := s.Get(ctx, key)
	if err != nil {
		return ledger.Entry{}, err
	}
	found.Key = key
	return s.update(ctx, found, func(e ledger.Entry) (ledger.Entry, error) { return rules.Learn(e, ev) })
}
