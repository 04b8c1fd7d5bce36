package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Claim applies ledger.Rules.Claim in one conditional write and returns the entry as written. UnresolvedBefore
// of that entry says whether a call of an earlier claim still has no known outcome. If the job already has an
// entry, Claim needs a second write: the refusal of the first one returns the entry.
//
//	write if there is no entry ──ok──▶ ours
//	        │ refused
//	        ├─ found our own write ──────────▶ its answer was lost: ours
//	        └─ found another ──▶ the rule ──▶ write if its version is still the same, or an error
//
// When the rule refuses, the error is a *ledger.RefusedError with the entry as found, a *ledger.ConflictError,
// or wraps ledger.ErrSpent.
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
	now := s.opts.Now()
	fresh, err := rules.Claim(ledger.Entry{}, d, l, now)
	if err != nil {
		return ledger.Entry{}, err
	}
	fresh.Version, fresh.UpdatedAt = 1, now
	if fresh, err = stored(fresh); err != nil {
		return ledger.Entry{}, err
	}
	err = s.write(ctx, ledger.Entry{}, fresh)
	if err == nil {
		return fresh, nil
	}
	var failed *ConditionError
	var found ledger.Entry
	switch {
	case errors.As(err, &failed):
		if found, err = s.found(ctx, d.Key, failed.Item); err != nil {
			return ledger.Entry{}, err
		}
		if reflect.DeepEqual(found, fresh) {
			return fresh, nil
		}
	case errors.Is(err, ledger.ErrContended):
		// A transaction held the entry; its effect on the entry is not known yet.
		s.opts.OnConflict()
		if err := s.wait(ctx, 1); err != nil {
			return ledger.Entry{}, err
		}
		if found, err = s.Get(ctx, d.Key); err != nil {
			return ledger.Entry{}, err
		}
	default:
		return ledger.Entry{}, err
	}
	found.Key = d.Key
	var refusal error
	e, err := s.update(ctx, found, func(e ledger.Entry) (ledger.Entry, error) {
		next, err := rules.Claim(e, d, l, s.opts.Now())
		refusal = err
		return next, err
	})
	var conflict *ledger.ConflictError
	switch {
	case err == nil || refusal == nil, errors.Is(refusal, ledger.ErrSpent), errors.As(refusal, &conflict):
		return e, err
	}
	return e, &ledger.RefusedError{Entry: e}
}

// Learn appends evidence to an existing entry, whatever its status and its owner. The owner does not change, so
// the owner can still complete the job.
func (s *Store) Learn(ctx context.Context, rules ledger.Rules, key string, ev ledger.Evidence) (ledger.Entry, error) {
	found, err := s.Get(ctx, key)
	if err != nil {
		return ledger.Entry{}, err
	}
	found.Key = key
	return s.update(ctx, found, func(e ledger.Entry) (ledger.Entry, error) { return rules.Learn(e, ev) })
}
