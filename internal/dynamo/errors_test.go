package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"acklast/internal/dynamo"
	"acklast/internal/ledger"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	code := func(c string) error { return &smithy.GenericAPIError{Code: c, Message: "m"} }
	held := item{"state": text("held")}
	const (
		condition = iota + 1
		contended
		unavailable
		denied
		plain
	)
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"condition", &types.ConditionalCheckFailedException{Item: held}, condition},
		{"condition by code", code("ConditionalCheckFailedException"), condition},
		{"transaction at the item", &types.TransactionConflictException{}, contended},
		{"the same by code", code("TransactionConflictException"), contended},
		{"in progress", &types.TransactionInProgressException{}, contended},
		{"token used", &types.IdempotentParameterMismatchException{}, contended},
		{"replica", code("ReplicatedWriteConflictException"), contended},
		{"validation", code("ValidationException"), plain},
		{"too large", &types.ItemCollectionSizeLimitExceededException{}, plain},
		{"parameters", smithy.InvalidParamsError{}, plain},
		{"serialization", &smithy.SerializationError{Err: errors.New("x")}, plain},
		{"cancelled, unread", &types.TransactionCanceledException{}, plain},
		{"cancelled by code", code("TransactionCanceledException"), plain},
		{"throttled", code("ThrottlingException"), unavailable},
		{"table", &types.ResourceNotFoundException{}, denied},
		{"denied", code("AccessDeniedException"), denied},
		{"key disabled", code("KMSDisabledException"), denied},
		{"key denied", code("KMSAccessDeniedException"), denied},
		{"unheard of", code("Novel"), unavailable},
		{"network", &net.OpError{Op: "dial", Err: errors.New("refused")}, unavailable},
		{"answer unread", &smithy.DeserializationError{Err: errors.New("x")}, unavailable},
		{"ended", context.DeadlineExceeded, unavailable},
		{"anything", errors.New("x"), unavailable},
	} {
		if tt.err != nil { // as the client returns them
			tt.err = &smithy.OperationError{ServiceID: "DynamoDB", OperationName: "X", Err: fmt.Errorf("attempt: %w", tt.err)}
		}
		err := dynamo.Translate(tt.err)
		got := 0
		switch {
		case err == nil:
		case errors.As(err, new(*dynamo.ConditionError)):
			got = condition
		case errors.Is(err, ledger.ErrContended):
			got = contended
		case errors.Is(err, ledger.ErrUnavailable):
			got = unavailable
		case errors.Is(err, ledger.ErrDenied):
			got = denied
		default:
			got = plain
		}
		if got != tt.want {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}

	var c *dynamo.ConditionError
	if err := dynamo.Translate(&types.ConditionalCheckFailedException{Item: held}); !errors.As(err, &c) || c.Item["state"] == nil {
		t.Errorf("the item is lost: %v", err)
	}
	if err := dynamo.Translate(&types.ConditionalCheckFailedException{Item: item{}}); !errors.As(err, &c) || c.Item != nil {
		t.Errorf("no item is %v", c.Item)
	}
}

// contendedAPI answers every transaction with a conflict.
type contendedAPI struct{ dynamo.API }

func (contendedAPI) TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return nil, &types.TransactionCanceledException{}
}

func TestPausesAreJittered(t *testing.T) {
	t.Parallel()
	for random, want := range map[float64]string{0: "[40ms 80ms]", 0.5: "[30ms 60ms]", 0.99: "[20.2ms 40.4ms]"} {
		var pauses []time.Duration
		s := dynamo.New(contendedAPI{}, "t", dynamo.Options{
			Random: func() float64 { return random },
			Pause: func(_ context.Context, d time.Duration) error {
				pauses = append(pauses, d)
				return nil
			},
		})
		if err := s.Transact(t.Context()); !errors.Is(err, ledger.ErrContended) {
			t.Fatal(err)
		}
		if got := fmt.Sprint(pauses); got != want {
			t.Errorf("random %v: pauses %s, want %s", random, got, want)
		}
	}
}
