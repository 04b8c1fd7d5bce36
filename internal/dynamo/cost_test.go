package dynamo_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// size is an item's size by DynamoDB's documented rules. Names and texts count by their bytes, a number by
// about one byte for two digits and one more. Lists and maps count three bytes, and one for each element.
func size(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(strings.Trim(v.Value, "0."))+1)/2 + 2
	case *types.AttributeValueMemberBOOL:
		return 1
	case *types.AttributeValueMemberL:
		n := 3
		for _, e := range v.Value {
			n += 1 + size(e)
		}
		return n
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + itemSize(v.Value)
	}
	panic(fmt.Sprintf("%T", v))
}

func itemSize(it map[string]types.AttributeValue) int {
	n := 0
	for name, v := range it {
		n += len(name) + size(v)
	}
	return n
}

// units are the write units of an item's write: one for each kibibyte, rounded up.
func units(bytes int) int { return (bytes + 1023) / 1024 }

// A failed attempt writes the entry, which grows with its history. Ten failed attempts stay below 25 write
// units, however long the errors are.
func TestTenFailuresAreCheap(t *testing.T) {
	r := rules
	r.Retry.MaxAttempts = 10
	d := delivery("t")
	d.Key = "reservation.expire/r-5f0e8d1c2b3a49586776/hold-1"
	d.Digest = strings.Repeat("d", 47)
	var e ledger.Entry
	at, sum := now, 0
	for i := range 10 {
		f := &job.Failure{Class: job.Transient, Err: errors.New(fmt.Sprint(i) + strings.Repeat(" the provider answered 503", 100))}
		next, err := r.Fail(e, d, f, at, 0)
		if err != nil {
			t.Fatal(err)
		}
		next.Version, next.Owner, next.UpdatedAt = e.Version+1, "0b0d6f7c-6fd0-4c4d-9c45-0e3b4a7a9e21", at
		before, after := 0, itemSize(dynamo.Marshal(next))
		if e.Version > 0 {
			before = itemSize(dynamo.Marshal(e))
		}
		sum += units(max(before, after)) // DynamoDB charges for the larger of the two
		e, at = next, next.RetryAt.Add(time.Second)
	}
	t.Logf("%d write units; the entry has %d bytes at the end", sum, itemSize(dynamo.Marshal(e)))
	if e.Status != ledger.Isolated || len(e.History) != 11 {
		t.Fatalf("%s after %d events", e.Status, len(e.History))
	}
	if sum >= 25 {
		t.Errorf("ten failures cost %d write units", sum)
	}
}
