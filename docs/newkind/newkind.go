// Package newkind is a kind of job to copy from: docs/new-kind.md explains it step by step. It expires
// vouchers. Only its test registers it.
package newkind

import (
	"context"
	_ "embed"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Voucher is the payload: it names the voucher.
type Voucher struct {
	VoucherID string `json:"voucherId"`
}

// vouchers is the name of the kind's own table, behind the stack's name.
const vouchers = "vouchers"

//go:embed sample.json
var sample string

// Kind expires vouchers.
func Kind() acklast.Kind {
	return acklast.Define(acklast.Definition[Voucher]{
		Name:   "voucher.expire",
		Key:    func(v Voucher) (string, []string) { return v.VoucherID, nil },
		Tables: []acklast.Table{{Name: vouchers, PartitionKey: "voucher_id"}},
		Grants: func(func(string) string) ([]acklast.Grant, error) {
			return []acklast.Grant{{Table: vouchers, Actions: []string{"dynamodb:GetItem", "dynamodb:UpdateItem"}}}, nil
		},
		Samples: []acklast.Sample{{Name: "voucher-expire", Body: sample}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[Voucher], error) {
		return expirer{table: s.Table(vouchers)}, nil
	})
}

type expirer struct{ table string }

// Run makes one attempt. One transaction changes both the entry and the voucher, or neither.
func (x expirer) Run(ctx context.Context, j *acklast.Job[Voucher]) error {
	err := j.Commit(ctx, "expired", types.TransactWriteItem{Update: &types.Update{
		TableName:                &x.table,
		Key:                      map[string]types.AttributeValue{"voucher_id": acklast.Text(j.Payload.VoucherID)},
		UpdateExpression:         aws.String("SET #state = :expired"),
		ConditionExpression:      aws.String("#state = :issued"),
		ExpressionAttributeNames: map[string]string{"#state": "state"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":expired": acklast.Text("expired"), ":issued": acklast.Text("issued"),
		},
	}})
	var refused *acklast.RefusedError
	if errors.As(err, &refused) {
		// The voucher was used, or has expired in another way. Nothing is left to do, and the entry says so.
		return j.Commit(ctx, "not issued")
	}
	return err
}
