// Package carts closes shopping carts that nobody paid for.
package carts

import (
	"context"
	_ "embed"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Close is the payload of a job that closes a cart.
type Close struct {
	CartID string `json:"cartId"`
}

// Table is the name of the carts' table, behind the stack's name.
const Table = "carts"

//go:embed sample.json
var sample string

// Kind closes carts.
func Kind() acklast.Kind {
	return acklast.Define(acklast.Definition[Close]{
		Name:   "cart.close",
		Key:    func(c Close) (string, []string) { return c.CartID, nil },
		Tables: []acklast.Table{{Name: Table, PartitionKey: "cart_id"}},
		Grants: func(func(string) string) ([]acklast.Grant, error) {
			return []acklast.Grant{{Table: Table, Actions: []string{"dynamodb:UpdateItem"}}}, nil
		},
		Samples: []acklast.Sample{{Name: "cart-close", Body: sample}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[Close], error) {
		return closer{table: s.Table(Table)}, nil
	})
}

type closer struct{ table string }

// Run closes the cart and ends the job in one transaction.
func (c closer) Run(ctx context.Context, j *acklast.Job[Close]) error {
	err := j.Commit(ctx, "closed", types.TransactWriteItem{Update: &types.Update{
		TableName:                 &c.table,
		Key:                       map[string]types.AttributeValue{"cart_id": acklast.Text(j.Payload.CartID)},
		UpdateExpression:          aws.String("SET #state = :closed"),
		ConditionExpression:       aws.String("#state = :open"),
		ExpressionAttributeNames:  map[string]string{"#state": "state"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":open": acklast.Text("open"), ":closed": acklast.Text("closed")},
	}})
	if refused := (*acklast.RefusedError)(nil); errors.As(err, &refused) {
		// Paid, closed before, or never opened: there is nothing to close, and the entry says so.
		return j.Commit(ctx, "not open")
	}
	return err
}
