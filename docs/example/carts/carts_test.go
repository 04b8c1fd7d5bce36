package carts_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/infra/stack/stacktest"

	"example.com/shop/carts"
)

// The shop's own worker closes an open cart, and leaves one that was paid.
func TestCarts(t *testing.T) {
	s := stacktest.Start(t, ".")
	db, table := s.Client().DynamoDB(), s.Client().Table(carts.Table)
	state := func(cart string) string {
		t.Helper()
		out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: &table, Key: map[string]types.AttributeValue{"cart_id": acklast.Text(cart)}, ConsistentRead: aws.Bool(true),
		})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := out.Item["state"].(*types.AttributeValueMemberS)
		if v == nil {
			t.Fatalf("cart %s is %v", cart, out.Item)
		}
		return v.Value
	}
	for _, test := range []struct{ cart, before, outcome, after string }{
		{"c-1", "open", "closed", "closed"},
		{"c-2", "paid", "not open", "paid"},
	} {
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: &table, Item: map[string]types.AttributeValue{"cart_id": acklast.Text(test.cart), "state": acklast.Text(test.before)},
		}); err != nil {
			t.Fatal(err)
		}
		s.Send(acklast.Message{Kind: "cart.close", Payload: carts.Close{CartID: test.cart}})
		if j := s.Wait("cart.close/" + test.cart); j.Outcome != test.outcome {
			t.Errorf("%s: the job ended as %+v, want outcome %q", test.cart, j, test.outcome)
		}
		if got := state(test.cart); got != test.after {
			t.Errorf("%s is %s, want %s", test.cart, got, test.after)
		}
	}
}

// The shop's own redrive function answers, and knows the shop's kind.
func TestRedrive(t *testing.T) {
	s := stacktest.Start(t, ".")
	s.Send(acklast.Message{Kind: "cart.close", Payload: map[string]string{}}) // nobody can close it
	var answer struct {
		Refused string
		Groups  []struct{ Class, Kind string }
	}
	for range 100 {
		s.Redrive(map[string]any{"action": "inspect", "select": map[string]any{"all": true}}, &answer)
		if len(answer.Groups) > 0 || answer.Refused != "" {
			break
		}
	}
	if answer.Refused != "" {
		t.Fatalf("refused: %s", answer.Refused)
	}
	if len(answer.Groups) != 1 || answer.Groups[0].Class != "invalid" || answer.Groups[0].Kind != "cart.close" {
		t.Errorf("isolated are %+v, want one invalid cart.close", answer.Groups)
	}
}
