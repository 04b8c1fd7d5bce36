// Command empty is a handler with the same SDK clients as the worker, and nothing else. The worker's start is
// compared with it. With GET_ITEM set to a table it reads one item at the start and each time.
package main

import (
	"context"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"acklast/internal/awsclient"
)

func main() {
	cfg, err := awsclient.Load(context.Background())
	if err != nil {
		panic(err)
	}
	db, _ := awsclient.DynamoDB(cfg), awsclient.SQS(cfg)
	_, _ = sesv2.NewFromConfig(cfg), secretsmanager.NewFromConfig(cfg)
	get := func(ctx context.Context) error {
		table := os.Getenv("GET_ITEM")
		if table == "" {
			return nil
		}
		_, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table,
			Key: map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: "k"}}})
		return err
	}
	_ = get(context.Background()) // the worker makes a call before it serves, too
	lambda.Start(get)
}
