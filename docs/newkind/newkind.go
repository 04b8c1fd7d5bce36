// Package newkind is a kind of job to copy from: docs/new-kind.md walks through it. It expires vouchers,
// and is registered nowhere but in its test.
package newkind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Payload names the voucher.
type Payload struct {
	VoucherID string `json:"voucherId"`
}

// Ledger commits an entry together with the voucher's own item.
type Ledger interface {
	Commit(ctx context.Context, c ledger.Completion, own ...types.TransactWriteItem) error
}

// Expirer expires vouchers.
type Expirer struct {
	Ledger Ledger
	Rules  ledger.Rules
	Table  string
	Now    func() time.Time
}

// Kind is the kind of job: its name, its key, what becomes of it past its deadline, and how it runs.
func Kind(x *Expirer) job.Kind {
	return job.Kind{
		Name: "voucher.expire",
		Late: job.RunLate,
		Key: func(raw jsontext.Value) (key, subject string, err error) {
			p, err := read(raw)
			if err != nil {
				return "", "", err
			}
			key, err = job.Key("voucher.expire", p.VoucherID)
			return key, p.VoucherID, err
		},
		Run: x.run,
	}
}

func read(raw jsontext.Value) (p Payload, err error) {
	if err := job.DecodePayload(raw, &p); err != nil {
		return p, err
	}
	return p, job.CheckID("voucherId", p.VoucherID)
}

// run makes one attempt: the entry and the voucher change in one transaction, or not at all.
func (x *Expirer) run(ctx context.Context, d job.Delivery) job.Result {
	p, err := read(d.Envelope.Payload)
	if err != nil {
		return job.Result{Err: err}
	}
	err = x.Ledger.Commit(ctx, x.Rules.Complete(d, ledger.Done, "expired", x.Now()), types.TransactWriteItem{
		Update: &types.Update{
			TableName:                &x.Table,
			Key:                      map[string]types.AttributeValue{"voucher_id": text(p.VoucherID)},
			UpdateExpression:         aws.String("SET #state = :expired"),
			ConditionExpression:      aws.String("#state = :issued"),
			ExpressionAttributeNames: map[string]string{"#state": "state"},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":expired": text("expired"), ":issued": text("issued"),
			},
		},
	})
	var notIssued *dynamo.ItemError
	if errors.As(err, &notIssued) {
		// Used, or expired by other hands: nothing is left to do, and the entry says so.
		return x.result(d, "not issued", x.Ledger.Commit(ctx, x.Rules.Complete(d, ledger.Done, "not issued", x.Now())))
	}
	return x.result(d, "expired", err)
}

// result says what a commit came to, in the words the worker understands.
func (x *Expirer) result(d job.Delivery, outcome string, err error) job.Result {
	var refused *ledger.RefusedError
	switch {
	case err == nil:
		return job.Result{Verdict: job.Committed, Detail: outcome}
	case errors.As(err, &refused): // a copy, a waiting retry, an isolation
		return refused.Entry.Refusal(d.Token, x.Now())
	case errors.Is(err, ledger.ErrContended):
		return job.Result{Verdict: job.Blocked, Err: err}
	case errors.Is(err, ledger.ErrUnavailable):
		return job.Result{Verdict: job.Unconfirmed, Err: err}
	}
	return job.Result{Err: fmt.Errorf("expire voucher: %w", err)} // a failed attempt: retried, then isolated
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
