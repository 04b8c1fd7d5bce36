package newkind_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/docs/newkind"
	"acklast/internal/awsclient"
	"acklast/internal/local"
	"acklast/internal/topology"
)

// Vouchers expire once, on the embedded AWS.
func TestVouchersExpireOnce(t *testing.T) {
	env, err := local.StartAWS(t.Context(), "newkind", topology.Scaled(), 0, acklast.Describe(newkind.Kind())[0].Tables...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	services := acklast.NewServices(env.AWSConfig(), "newkind", time.Now)
	kind, err := newkind.Kind().Start(t.Context(), services)
	if err != nil {
		t.Fatal(err)
	}
	db := awsclient.DynamoDB(env.AWSConfig())
	table := aws.String(services.Table("vouchers"))
	for id, state := range map[string]string{"v-1": "issued", "v-2": "used"} {
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table,
			Item: map[string]types.AttributeValue{"voucher_id": acklast.Text(id), "state": acklast.Text(state)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		voucher string
		want    acklast.Tried
		state   string
	}{
		{"v-1", acklast.Tried{Verdict: acklast.Committed, Outcome: "expired"}, "expired"},
		{"v-1", acklast.Tried{Verdict: acklast.Duplicate, Outcome: "expired"}, "expired"},
		{"v-2", acklast.Tried{Verdict: acklast.Committed, Outcome: "not issued"}, "used"},
	} {
		got, err := kind.Try(t.Context(), fmt.Sprintf(`{"kind":"voucher.expire","payload":{"voucherId":%q}}`, step.voucher))
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != step.want.Verdict || got.Outcome != step.want.Outcome {
			t.Errorf("%s: %+v, want %+v", step.voucher, got, step.want)
		}
		out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: map[string]types.AttributeValue{"voucher_id": acklast.Text(step.voucher)}})
		if err != nil {
			t.Fatal(err)
		}
		if state := out.Item["state"].(*types.AttributeValueMemberS).Value; state != step.state {
			t.Errorf("%s is %s, want %s", step.voucher, state, step.state)
		}
	}
}
