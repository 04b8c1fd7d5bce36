package dynamo

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/ledger"
)

// A cancelled transaction is never taken for a success. An own item refused only if the reason at its place says so,
// and never while an item was throttled, unless the entry itself refused.
func FuzzCancellationReasons(f *testing.F) {
	for _, seed := range []string{"", "None", "ConditionalCheckFailed,None", "None,ConditionalCheckFailed", "TransactionConflict,ConditionalCheckFailed",
		"None,ThrottlingError,ConditionalCheckFailed", "AccessDenied", "ValidationError,None,None", "ResourceNotFound,TransactionConflict"} {
		f.Add(seed, 2)
	}
	f.Fuzz(func(t *testing.T, list string, n int) {
		e := &cancelledError{}
		for code := range strings.SplitSeq(list, ",") {
			e.reasons = append(e.reasons, types.CancellationReason{Code: aws.String(code)})
		}
		err := e.verdict(n)
		if err == nil {
			t.Fatalf("%q of %d items is no error", list, n)
		}
		var refused *ItemError
		if !errors.As(err, &refused) {
			return
		}
		if len(e.reasons) != n || refused.Index >= n || aws.ToString(e.reasons[refused.Index].Code) != "ConditionalCheckFailed" {
			t.Fatalf("%q of %d items: item %d refused", list, n, refused.Index)
		}
		if refused.Index > 0 && (strings.Contains(list, "ThrottlingError,") || errors.Is(err, ledger.ErrUnavailable)) {
			t.Fatalf("%q: item %d refused, although another one was throttled", list, refused.Index)
		}
	})
}
