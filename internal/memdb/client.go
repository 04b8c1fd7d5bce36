package memdb

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Client answers the calls of the SDK's client without HTTP, signatures and JSON, which take most of a call's time. It
// is for simulations of millions of calls. It ignores call options and contexts, and does not check required
// parameters. Its errors are not wrapped as the SDK's are. A failed condition and a cancelled transaction have the
// SDK's types; each other error is a *smithy.GenericAPIError.
type Client struct{ db *DB }

// Client returns a client of the database.
func (db *DB) Client() Client { return Client{db} }

// GetItem reads an item.
func (c Client) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	a, err := c.db.answer("GetItem", request{
		TableName: aws.ToString(in.TableName), Key: itemOf(in.Key), ProjectionExpression: in.ProjectionExpression,
		ExpressionAttributeNames: in.ExpressionAttributeNames,
	})
	if err != nil {
		return nil, typed(err)
	}
	return &dynamodb.GetItemOutput{Item: attributesOf(a.Item)}, nil
}

// PutItem writes an item.
func (c Client) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	a, err := c.db.answer("PutItem", request{
		TableName: aws.ToString(in.TableName), Item: itemOf(in.Item), ConditionExpression: in.ConditionExpression,
		ExpressionAttributeNames: in.ExpressionAttributeNames, ExpressionAttributeValues: itemOf(in.ExpressionAttributeValues),
		ReturnValues: string(in.ReturnValues), ReturnValuesOnConditionCheckFailure: string(in.ReturnValuesOnConditionCheckFailure),
	})
	if err != nil {
		return nil, typed(err)
	}
	return &dynamodb.PutItemOutput{Attributes: attributesOf(a.Attributes)}, nil
}

// UpdateItem changes an item.
func (c Client) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	a, err := c.db.answer("UpdateItem", request{
		TableName: aws.ToString(in.TableName), Key: itemOf(in.Key), ConditionExpression: in.ConditionExpression,
		UpdateExpression: aws.ToString(in.UpdateExpression), ExpressionAttributeNames: in.ExpressionAttributeNames,
		ExpressionAttributeValues: itemOf(in.ExpressionAttributeValues),
		ReturnValues:              string(in.ReturnValues), ReturnValuesOnConditionCheckFailure: string(in.ReturnValuesOnConditionCheckFailure),
	})
	if err != nil {
		return nil, typed(err)
	}
	return &dynamodb.UpdateItemOutput{Attributes: attributesOf(a.Attributes)}, nil
}

// Query reads items of a partition.
func (c Client) Query(_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	a, err := c.db.answer("Query", request{
		TableName: aws.ToString(in.TableName), IndexName: aws.ToString(in.IndexName), KeyConditionExpression: in.KeyConditionExpression,
		FilterExpression: in.FilterExpression, ProjectionExpression: in.ProjectionExpression, Select: string(in.Select),
		ExpressionAttributeNames: in.ExpressionAttributeNames, ExpressionAttributeValues: itemOf(in.ExpressionAttributeValues),
		ScanIndexForward: in.ScanIndexForward, Limit: int(aws.ToInt32(in.Limit)), ExclusiveStartKey: itemOf(in.ExclusiveStartKey),
	})
	if err != nil {
		return nil, typed(err)
	}
	out := &dynamodb.QueryOutput{Count: int32(*a.Count), ScannedCount: int32(*a.ScannedCount), LastEvaluatedKey: attributesOf(a.LastEvaluatedKey)} //nolint:gosec // a table in memory
	for _, it := range a.Items {
		out.Items = append(out.Items, attributesOf(it))
	}
	return out, nil
}

// TransactWriteItems makes all writes or none.
func (c Client) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	all := request{ClientRequestToken: aws.ToString(in.ClientRequestToken), TransactItems: make([]map[string]request, len(in.TransactItems))}
	for i, it := range in.TransactItems {
		all.TransactItems[i] = part(it)
	}
	if _, err := c.db.answer("TransactWriteItems", all); err != nil {
		return nil, typed(err)
	}
	return &dynamodb.TransactWriteItemsOutput{}, nil
}

func part(it types.TransactWriteItem) map[string]request {
	switch {
	case it.Update != nil:
		u := it.Update
		return map[string]request{"Update": {
			TableName: aws.ToString(u.TableName), Key: itemOf(u.Key), ConditionExpression: u.ConditionExpression,
			UpdateExpression: aws.ToString(u.UpdateExpression), ExpressionAttributeNames: u.ExpressionAttributeNames,
			ExpressionAttributeValues:           itemOf(u.ExpressionAttributeValues),
			ReturnValuesOnConditionCheckFailure: string(u.ReturnValuesOnConditionCheckFailure),
		}}
	case it.Put != nil:
		p := it.Put
		return map[string]request{"Put": {
			TableName: aws.ToString(p.TableName), Item: itemOf(p.Item), ConditionExpression: p.ConditionExpression,
			ExpressionAttributeNames: p.ExpressionAttributeNames, ExpressionAttributeValues: itemOf(p.ExpressionAttributeValues),
			ReturnValuesOnConditionCheckFailure: string(p.ReturnValuesOnConditionCheckFailure),
		}}
	case it.ConditionCheck != nil:
		k := it.ConditionCheck
		return map[string]request{"ConditionCheck": {
			TableName: aws.ToString(k.TableName), Key: itemOf(k.Key), ConditionExpression: k.ConditionExpression,
			ExpressionAttributeNames: k.ExpressionAttributeNames, ExpressionAttributeValues: itemOf(k.ExpressionAttributeValues),
			ReturnValuesOnConditionCheckFailure: string(k.ReturnValuesOnConditionCheckFailure),
		}}
	case it.Delete != nil:
		d := it.Delete
		return map[string]request{"Delete": {
			TableName: aws.ToString(d.TableName), Key: itemOf(d.Key), ConditionExpression: d.ConditionExpression,
			ExpressionAttributeNames: d.ExpressionAttributeNames, ExpressionAttributeValues: itemOf(d.ExpressionAttributeValues),
			ReturnValuesOnConditionCheckFailure: string(d.ReturnValuesOnConditionCheckFailure),
		}}
	}
	return nil
}

// BatchWriteItem writes and deletes items without conditions.
func (c Client) BatchWriteItem(_ context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	writes := map[string][]map[string]request{}
	for table, list := range in.RequestItems {
		for _, one := range list {
			w := map[string]request{}
			if one.PutRequest != nil {
				w["PutRequest"] = request{Item: itemOf(one.PutRequest.Item)}
			}
			if one.DeleteRequest != nil {
				w["DeleteRequest"] = request{Key: itemOf(one.DeleteRequest.Key)}
			}
			writes[table] = append(writes[table], w)
		}
	}
	if _, err := c.db.answer("BatchWriteItem", request{writes: writes}); err != nil {
		return nil, typed(err)
	}
	return &dynamodb.BatchWriteItemOutput{}, nil
}

// typed is the SDK's error for a fault.
func typed(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	switch f.code {
	case "ConditionalCheckFailedException":
		return &types.ConditionalCheckFailedException{Message: &f.message, Item: attributesOf(f.item)}
	case "TransactionCanceledException":
		out := &types.TransactionCanceledException{Message: &f.message}
		for _, r := range f.reasons {
			reason := types.CancellationReason{Code: &r.Code, Item: attributesOf(r.Item)}
			if r.Message != "" {
				reason.Message = &r.Message
			}
			out.CancellationReasons = append(out.CancellationReasons, reason)
		}
		return out
	}
	return &smithy.GenericAPIError{Code: f.code, Message: f.message}
}

// itemOf copies an item of the SDK's.
func itemOf(in map[string]types.AttributeValue) Item {
	if in == nil {
		return nil
	}
	out := make(Item, len(in))
	for name, v := range in {
		out[name] = valueOf(v)
	}
	return out
}

func valueOf(in types.AttributeValue) Value {
	switch v := in.(type) {
	case *types.AttributeValueMemberS:
		s := v.Value // a copy, because the caller may change its own
		return Value{S: &s}
	case *types.AttributeValueMemberN:
		n := v.Value
		return Value{N: &n}
	case *types.AttributeValueMemberBOOL:
		b := v.Value
		return Value{BOOL: &b}
	case *types.AttributeValueMemberNULL:
		b := v.Value
		return Value{NULL: &b}
	case *types.AttributeValueMemberB:
		return Value{B: bytes.Clone(v.Value)}
	case *types.AttributeValueMemberM:
		m := itemOf(v.Value)
		return Value{M: &m}
	case *types.AttributeValueMemberL:
		l := make([]Value, len(v.Value))
		for i, e := range v.Value {
			l[i] = valueOf(e)
		}
		return Value{L: &l}
	case *types.AttributeValueMemberSS:
		return Value{SS: slices.Clone(v.Value)}
	case *types.AttributeValueMemberNS:
		return Value{NS: slices.Clone(v.Value)}
	case *types.AttributeValueMemberBS:
		bs := make([][]byte, len(v.Value))
		for i, b := range v.Value {
			bs[i] = bytes.Clone(b)
		}
		return Value{BS: bs}
	}
	return Value{}
}

// attributesOf copies an item for the SDK. An empty one is nil, as in the SDK's answers.
func attributesOf(in Item) map[string]types.AttributeValue {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]types.AttributeValue, len(in))
	for name, v := range in {
		out[name] = attributeOf(v)
	}
	return out
}

func attributeOf(v Value) types.AttributeValue {
	switch v.kind() {
	case "S":
		return &types.AttributeValueMemberS{Value: *v.S}
	case "N":
		return &types.AttributeValueMemberN{Value: *v.N}
	case "BOOL":
		return &types.AttributeValueMemberBOOL{Value: *v.BOOL}
	case "NULL":
		return &types.AttributeValueMemberNULL{Value: *v.NULL}
	case "M":
		m := make(map[string]types.AttributeValue, len(*v.M))
		for name, e := range *v.M {
			m[name] = attributeOf(e)
		}
		return &types.AttributeValueMemberM{Value: m}
	case "L":
		l := make([]types.AttributeValue, len(*v.L))
		for i, e := range *v.L {
			l[i] = attributeOf(e)
		}
		return &types.AttributeValueMemberL{Value: l}
	case "SS":
		return &types.AttributeValueMemberSS{Value: slices.Clone(v.SS)}
	case "NS":
		return &types.AttributeValueMemberNS{Value: slices.Clone(v.NS)}
	case "BS":
		bs := make([][]byte, len(v.BS))
		for i, b := range v.BS {
			bs[i] = bytes.Clone(b)
		}
		return &types.AttributeValueMemberBS{Value: bs}
	}
	return &types.AttributeValueMemberB{Value: bytes.Clone(v.B)}
}
