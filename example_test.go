package acklast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Expiry is the payload of a job that expires a voucher.
type Expiry struct {
	VoucherID string `json:"voucherId"`
}

// expire is the runner of the kind "voucher.expire".
func expire(_ context.Context, s acklast.Services) (acklast.Runner[Expiry], error) {
	return acklast.RunnerFunc[Expiry](func(ctx context.Context, j *acklast.Job[Expiry]) error {
		err := j.Commit(ctx, "expired", types.TransactWriteItem{Update: &types.Update{
			TableName:                aws.String(s.Table("vouchers")),
			Key:                      map[string]types.AttributeValue{"voucher_id": &types.AttributeValueMemberS{Value: j.Payload.VoucherID}},
			UpdateExpression:         aws.String("SET #state = :expired"),
			ConditionExpression:      aws.String("#state = :issued"),
			ExpressionAttributeNames: map[string]string{"#state": "state"},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":expired": &types.AttributeValueMemberS{Value: "expired"},
				":issued":  &types.AttributeValueMemberS{Value: "issued"},
			},
		}})
		var refused *acklast.RefusedError
		if errors.As(err, &refused) {
			// The voucher was used meanwhile. Nothing is left to do, and the job's entry says so.
			return j.Commit(ctx, "not issued")
		}
		return err
	}), nil
}

// vouchers is a kind of job with a table of its own.
func vouchers() acklast.Kind {
	return acklast.Define(acklast.Definition[Expiry]{
		Name:   "voucher.expire",
		Key:    func(e Expiry) (string, []string) { return e.VoucherID, nil },
		Tables: []acklast.Table{{Name: "vouchers", PartitionKey: "voucher_id"}},
		Grants: func(func(string) string) ([]acklast.Grant, error) {
			return []acklast.Grant{{Table: "vouchers", Actions: []string{"dynamodb:UpdateItem"}}}, nil
		},
		Samples: []acklast.Sample{{Name: "voucher", Body: `{"kind":"voucher.expire","payload":{"voucherId":"v-1"}}`}},
	}, expire)
}

// A kind is a Definition, which needs no client and no environment, and the constructor of its runner.
func ExampleDefine() {
	for _, d := range acklast.Describe(vouchers()) {
		fmt.Println(d.Name, "has the table", d.Tables[0].Name)
		fmt.Println("its sample's key is", d.Samples[0].Key)
	}
	// Output:
	// voucher.expire has the table vouchers
	// its sample's key is voucher.expire/v-1
}

// failures prints the errors of a check. In a test of your own, give CheckKind its *testing.T.
type failures struct{}

func (failures) Helper() {}
func (failures) Errorf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}

// Commit ends the job together with the voucher's own change. CheckKind tries the kind in memory. The table has
// no voucher, so the condition refuses, and the job ends with another outcome.
func ExampleJob_Commit() {
	acklast.CheckKind(failures{}, vouchers(), acklast.CheckOptions{})
	fmt.Println("checked")
	// Output:
	// checked
}

// An effect outside the database needs a claim: the key of its request is stored before the call, and after a
// lost answer the request is looked up before another one is made.
func ExampleNewEffect() {
	type greeting struct {
		GuestID string `json:"guestId"`
	}
	sent := 0
	kind := acklast.Define(acklast.Definition[greeting]{
		Name:    "guest.greet",
		Key:     func(g greeting) (string, []string) { return g.GuestID, nil },
		Samples: []acklast.Sample{{Name: "greeting", Body: `{"kind":"guest.greet","payload":{"guestId":"g-1"}}`}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[greeting], error) {
		return acklast.NewEffect(s, acklast.Effect[greeting]{
			Send: func(_ context.Context, _ string, g greeting) (string, error) {
				sent++ // make exactly one request here, under the key in the second argument
				return "request-" + g.GuestID, nil
			},
			Timeout: time.Second,
		})
	})
	acklast.CheckKind(failures{}, kind, acklast.CheckOptions{Effects: func() int { return sent }})
	fmt.Println("checked")
	// Output:
	// checked
}

// Send returns nil only when SQS has confirmed the job. Cancel ends a job that has not run yet.
func ExampleClient() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := acklast.NewClient(cfg, "shop")
	if err := client.Send(ctx, acklast.Message{
		Kind: "voucher.expire", Payload: Expiry{VoucherID: "v-1"},
		NotBefore: time.Now().Add(time.Hour), Deadline: time.Now().Add(2 * time.Hour),
	}); err != nil {
		fmt.Println(err) // ErrMessage: correct the message. ErrUnconfirmed: send it again, which is safe.
		return
	}

	key, err := acklast.Key("voucher.expire", "v-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.Cancel(ctx, key, acklast.Cancellation{By: "shop", Reason: "the voucher was prolonged"})
	var refused *acklast.CancelError
	if errors.As(err, &refused) {
		fmt.Println("too late:", refused.Err)
	}
}

// A producer that relies on a job commits its own item together with the condition that the job can run.
func ExampleClient_Transact() {
	ctx := context.Background()
	client := acklast.NewClient(aws.Config{Region: "eu-central-1"}, "shop")
	key, err := acklast.Key("voucher.expire", "v-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.Transact(ctx, types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String("shop-vouchers"),
		Item: map[string]types.AttributeValue{
			"voucher_id": &types.AttributeValueMemberS{Value: "v-1"}, "state": &types.AttributeValueMemberS{Value: "issued"},
		},
	}}, client.Runnable(key))
	var refused *acklast.RefusedError
	if errors.As(err, &refused) && refused.Index == 1 {
		fmt.Println("the voucher's expiry has run already, or was cancelled")
	}
}
