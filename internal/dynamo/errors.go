package dynamo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"acklast/internal/ledger"
)

// ConditionError: the condition of a single write failed; nothing was written.
type ConditionError struct {
	// Item is the item that failed the condition; nil if there is none or the engine returned none. DynamoDB
	// returns it only to a request with ReturnValuesOnConditionCheckFailure = ALL_OLD.
	Item map[string]types.AttributeValue
}

func (e *ConditionError) Error() string { return "the write's condition failed" }

// Translate turns an error of the SDK's DynamoDB client into a condition of the ledger. It is the only place
// that knows the SDK's errors. The kinds' stores use it for their own reads and single writes.
//
//   - a failed condition: *ConditionError
//   - a transaction or another write was at the same item: wraps ledger.ErrContended
//   - a request that is itself wrong: the error, which is none of the ledger's conditions
//   - denied access, a missing table, an encryption key that cannot be used: wraps ledger.ErrDenied
//   - everything else, such as throttling, timeouts, connections, outages and ended contexts: wraps
//     ledger.ErrUnavailable. An unknown error counts as this, so that its delivery is handed back and its job
//     is not decided.
//
// Translate does not read why a transaction was cancelled; Commit and Transact do.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	var condition *types.ConditionalCheckFailedException
	if errors.As(err, &condition) {
		return &ConditionError{Item: noEmpty(condition.Item)}
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		return &cancelledError{cancelled.CancellationReasons}
	}
	var params smithy.InvalidParamsError // the SDK returns it by value
	var serialization *smithy.SerializationError
	if errors.As(err, &params) || errors.As(err, &serialization) {
		return err
	}
	// Compare codes, not types: engines send some of these errors without a type of the SDK.
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "ConditionalCheckFailedException":
			return &ConditionError{}
		case "TransactionCanceledException":
			return &cancelledError{}
		case "TransactionConflictException", "TransactionInProgressException",
			"IdempotentParameterMismatchException", "IdempotentParameterMismatch",
			"ReplicatedWriteConflictException":
			return fmt.Errorf("%w: %w", ledger.ErrContended, err)
		case "AccessDeniedException", "ResourceNotFoundException", "InaccessibleEncryptionCredentialsException":
			return fmt.Errorf("%w: %w", ledger.ErrDenied, err)
		case "ValidationException", "SerializationException", "ItemCollectionSizeLimitExceededException":
			return err
		}
		if strings.HasPrefix(api.ErrorCode(), "KMS") {
			return fmt.Errorf("%w: %w", ledger.ErrDenied, err)
		}
	}
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
}

// cancelledError: a transaction was cancelled, for reasons in the order of its items.
type cancelledError struct{ reasons []types.CancellationReason }

func (e *cancelledError) Error() string {
	codes := make([]string, len(e.reasons))
	for i, r := range e.reasons {
		codes[i] = aws.ToString(r.Code)
	}
	return "transaction cancelled [" + strings.Join(codes, ", ") + "]"
}

// verdict reads the reasons of a transaction of n items by position. It returns an *ItemError with the position
// of the item that refused, ledger.ErrContended, or the error itself if another try would fail too.
func (e *cancelledError) verdict(n int) error {
	contended := fmt.Errorf("%w: %w", ledger.ErrContended, e)
	if len(e.reasons) != n {
		// Positions mean nothing without a reason for each item. Nothing was written, so another try may give
		// more reasons.
		return contended
	}
	refused, conflict, throttle, denied, fault := -1, -1, -1, -1, -1
	for i, r := range e.reasons {
		first := &fault
		switch aws.ToString(r.Code) {
		case "", "None":
			continue
		case "ConditionalCheckFailed":
			first = &refused
		case "TransactionConflict":
			first = &conflict
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			first = &throttle
		case "AccessDenied", "ResourceNotFound":
			first = &denied
		}
		if *first < 0 {
			*first = i
		}
	}
	switch {
	// The first item outranks the others, because it is the entry of a Commit. Its refusal explains theirs. If
	// it was not evaluated, their refusal explains nothing.
	case refused == 0:
	// A throttled item has not been evaluated either, and the database is in trouble.
	case throttle >= 0:
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, e)
	case conflict == 0:
		return contended
	case denied >= 0:
		return fmt.Errorf("%w: %w", ledger.ErrDenied, e)
	case fault >= 0:
		r := e.reasons[fault]
		return fmt.Errorf("item %d of the transaction: %s: %s", fault, aws.ToString(r.Code), aws.ToString(r.Message))
	case refused < 0:
		return contended // also when no item has a reason
	}
	return &ItemError{Index: refused, Item: noEmpty(e.reasons[refused].Item)}
}

// noEmpty returns nil for an empty item: engines use both to say that there is no item.
func noEmpty(it item) item {
	if len(it) == 0 {
		return nil
	}
	return it
}
