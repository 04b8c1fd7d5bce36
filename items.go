package acklast

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
)

// Text is a DynamoDB string, for the items of a Commit.
func Text(s string) types.AttributeValue { return dynamo.Text(s) }

// Number is a DynamoDB number, for the items of a Commit.
func Number[N int | int64](n N) types.AttributeValue { return dynamo.Number(n) }

// Millis is a DynamoDB number that holds a time, in milliseconds since 1970. The ledger keeps its times in this
// form.
func Millis(t time.Time) types.AttributeValue { return dynamo.Millis(t) }
