package memdb_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"acklast/internal/memdb"
)

// calls are those that both clients have.
type calls interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
}

// conversation makes calls of all kinds, also refused ones, and returns the answers.
func conversation(t *testing.T, c calls) (answers []any) {
	t.Helper()
	ctx, tab, old := t.Context(), aws.String("t"), types.ReturnValuesOnConditionCheckFailureAllOld
	names := map[string]string{"#n": "n"}
	said := func(out any, err error) {
		var failed *types.ConditionalCheckFailedException
		var cancelled *types.TransactionCanceledException
		var api smithy.APIError
		switch {
		case errors.As(err, &failed):
			answers = append(answers, failed.ErrorCode(), failed.Item)
		case errors.As(err, &cancelled):
			answers = append(answers, cancelled.ErrorCode(), cancelled.CancellationReasons)
		case errors.As(err, &api):
			answers = append(answers, api.ErrorCode(), api.ErrorMessage())
		case err != nil:
			answers = append(answers, err)
		default:
			reflect.ValueOf(out).Elem().FieldByName("ResultMetadata").Set(reflect.ValueOf(middleware.Metadata{}))
			answers = append(answers, out)
		}
	}
	get := func(id string, projection *string) {
		said(c.GetItem(ctx, &dynamodb.GetItemInput{TableName: tab, Key: item{"id": text(id), "sort": text("1")}, ProjectionExpression: projection}))
	}
	put := func(id, sort string, condition *string) {
		it := example()
		it["id"], it["sort"] = text(id), text(sort)
		it["blobs"] = &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}}
		it["blob"] = &types.AttributeValueMemberB{Value: []byte{3}}
		it["none at all"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
		said(c.PutItem(ctx, &dynamodb.PutItemInput{TableName: tab, Item: it, ConditionExpression: condition, ReturnValues: types.ReturnValueAllOld, ReturnValuesOnConditionCheckFailure: old}))
	}
	update := func(table string, value types.AttributeValue, condition *string, returns types.ReturnValue) {
		said(c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &table, Key: item{"id": text("a"), "sort": text("1")}, UpdateExpression: aws.String("SET #n = :v"), ConditionExpression: condition,
			ExpressionAttributeNames: names, ExpressionAttributeValues: item{":v": value}, ReturnValues: returns, ReturnValuesOnConditionCheckFailure: old,
		}))
	}
	for _, sort := range []string{"1", "2", "3"} {
		put("a", sort, aws.String("attribute_not_exists(id)"))
	}
	put("a", "1", aws.String("attribute_not_exists(id)"))
	put("a", "1", nil)
	get("a", nil)
	get("a", aws.String("s, blobs"))
	get("a", aws.String("absent"))
	get("nobody", nil)
	for _, v := range []string{"8", "-9", "007", "1.50", "123456789012345678901234567890", "no number"} {
		update("t", num(v), nil, types.ReturnValueAllNew)
		update("t", num(v), aws.String("#n < :v"), types.ReturnValueNone)
	}
	update("another", num("1"), nil, "")
	query := func(in dynamodb.QueryInput) {
		in.TableName, in.KeyConditionExpression, in.ExpressionAttributeValues = tab, aws.String("id = :id"), item{":id": text("a")}
		said(c.Query(ctx, &in))
	}
	query(dynamodb.QueryInput{})
	query(dynamodb.QueryInput{Limit: aws.Int32(2)})
	query(dynamodb.QueryInput{Limit: aws.Int32(2), ExclusiveStartKey: item{"id": text("a"), "sort": text("1")}, ScanIndexForward: aws.Bool(false)})
	query(dynamodb.QueryInput{Select: types.SelectCount})
	query(dynamodb.QueryInput{FilterExpression: aws.String("attribute_not_exists(id)")})
	query(dynamodb.QueryInput{IndexName: aws.String("none")})
	key := func(sort string) item { return item{"id": text("a"), "sort": text(sort)} }
	transact := func(token, sort string) {
		said(c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{ClientRequestToken: &token, TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: tab, Item: item{"id": text("b"), "sort": text("1")}}},
			{Update: &types.Update{TableName: tab, Key: key("1"), UpdateExpression: aws.String("SET #n = :v"), ExpressionAttributeNames: names, ExpressionAttributeValues: item{":v": num("3")}}},
			{Delete: &types.Delete{TableName: tab, Key: key("2")}},
			{ConditionCheck: &types.ConditionCheck{TableName: tab, Key: key(sort), ConditionExpression: aws.String("attribute_not_exists(id)"), ReturnValuesOnConditionCheckFailure: old}},
		}}))
	}
	transact("one", "3")
	transact("two", "4")
	transact("two", "4")
	transact("two", "5")
	batch := func(list ...types.WriteRequest) {
		said(c.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"t": list}}))
	}
	batch(types.WriteRequest{PutRequest: &types.PutRequest{Item: key("6")}}, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: key("3")}})
	put("long", strings.Repeat("x", 10), nil)
	update("t", text(strings.Repeat("x", 400<<10)), nil, "")
	update("t", text(strings.Repeat("x", 390<<10)), nil, "")
	return answers
}

// The faster client says what the SDK's says, and leaves the same items.
func TestTheClientSaysWhatTheSDKsClientSays(t *testing.T) {
	there, here := memdb.New(), memdb.New()
	for _, db := range []*memdb.DB{there, here} {
		db.CreateTable("t", "id", "sort")
	}
	want, got := conversation(t, client(there)), conversation(t, here.Client())
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) {
			t.Fatalf("%d answers, want %d", len(got), len(want))
		}
		if out, ok := want[i].(*dynamodb.BatchWriteItemOutput); ok && len(out.UnprocessedItems) == 0 {
			out.UnprocessedItems = nil
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("answer %d is %#v, want %#v", i, got[i], want[i])
		}
	}
	if got, want := here.Items("t"), there.Items("t"); !reflect.DeepEqual(got, want) {
		t.Errorf("the items are %v, want %v", got, want)
	}
}
