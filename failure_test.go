package acklast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/internal/ledger"
)

// An error of a kind's own DynamoDB call ends the attempt as the same error of the ledger would.
func TestErrorsOfOwnDynamoDBCalls(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"throttled": {&types.ProvisionedThroughputExceededException{}, ledger.ErrUnavailable},
		"timed out": {context.DeadlineExceeded, ledger.ErrUnavailable},
		"conflict":  {&types.TransactionConflictException{}, acklast.ErrContended},
	} {
		if got := acklast.DynamoDBError(test.err); !errors.Is(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestAFailedConditionStaysVisible(t *testing.T) {
	var condition *types.ConditionalCheckFailedException
	if got := acklast.DynamoDBError(&types.ConditionalCheckFailedException{}); !errors.As(got, &condition) {
		t.Errorf("a failed condition became %v", got)
	}
}

func TestNoDynamoDBErrorIsNone(t *testing.T) {
	if got := acklast.DynamoDBError(nil); got != nil {
		t.Errorf("nil became %v", got)
	}
}

func TestAMessageSaysItsBody(t *testing.T) {
	due := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	m := acklast.Message{Kind: "test.kind", Payload: map[string]string{"id": "a"}, NotBefore: due}
	const want = `{"kind":"test.kind","notBefore":"2026-12-01T10:00:00Z","payload":{"id":"a"}}`
	if body, err := m.Body(); err != nil || body != want {
		t.Errorf("body %s, %v, want %s", body, err, want)
	}
}

func TestAMessageThatIsNoJobHasNoBody(t *testing.T) {
	for name, m := range map[string]acklast.Message{
		"no kind":            {Payload: map[string]string{}},
		"payload no object":  {Kind: "test.kind", Payload: "text"},
		"payload not JSON":   {Kind: "test.kind", Payload: make(chan int)},
		"deadline before it": {Kind: "test.kind", Payload: map[string]string{}, NotBefore: time.Unix(2, 0), Deadline: time.Unix(1, 0)},
	} {
		if body, err := m.Body(); err == nil {
			t.Errorf("%s: body %s, want an error", name, body)
		}
	}
}
