// Command bare is a minimal worker: one transaction for each job and no more. It decodes the body, makes the
// transaction that the kind reservation.expire makes, and reports failures. A job that is done already is a success.
// It has no retries of its own, no budget, no log line and no metrics. With BARE_THROWS it fails the whole batch when
// one job fails, as a handler without partial responses does. make bench compares the worker with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type body struct {
	Kind    string `json:"kind"`
	Payload struct {
		ReservationID string `json:"reservationId"`
		CommandID     string `json:"commandId"`
		ResourceID    string `json:"resourceId"`
		Units         int64  `json:"units"`
	} `json:"payload"`
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		panic(err)
	}
	db := dynamodb.NewFromConfig(cfg)
	stack := os.Getenv("ACKLAST_STACK")
	run := func(ctx context.Context, m events.SQSMessage) error {
		var b body
		if err := json.Unmarshal([]byte(m.Body), &b); err != nil {
			return err
		}
		p := b.Payload
		now := time.Now().UnixMilli()
		_, err := db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{
				TableName: aws.String(stack + "-ledger"),
				Item: map[string]types.AttributeValue{
					"subject": text(p.ReservationID), "key": text(b.Kind + "/" + p.ReservationID + "/" + p.CommandID),
					"status": text("done"), "updated_at": number(now), "ttl": number(now/1000 + 45*86400),
				},
				ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{"#k": "key"},
			}},
			{Update: &types.Update{
				TableName: aws.String(stack + "-reservations"), Key: map[string]types.AttributeValue{"reservation_id": text(p.ReservationID)},
				UpdateExpression:          aws.String("SET #state = :expired, #updated = :now"),
				ConditionExpression:       aws.String("#state = :held AND #command = :command AND #expires <= :now"),
				ExpressionAttributeNames:  map[string]string{"#state": "state", "#command": "command_id", "#expires": "expires_at", "#updated": "updated_at"},
				ExpressionAttributeValues: map[string]types.AttributeValue{":expired": text("expired"), ":held": text("held"), ":command": text(p.CommandID), ":now": number(now)},
			}},
			{Update: &types.Update{
				TableName: aws.String(stack + "-resources"), Key: map[string]types.AttributeValue{"resource_id": text(p.ResourceID)},
				UpdateExpression:          aws.String("SET #available = #available + :units"),
				ConditionExpression:       aws.String("attribute_exists(#id)"),
				ExpressionAttributeNames:  map[string]string{"#id": "resource_id", "#available": "available"},
				ExpressionAttributeValues: map[string]types.AttributeValue{":units": number(p.Units)},
			}},
		}})
		var cancelled *types.TransactionCanceledException
		if errors.As(err, &cancelled) && len(cancelled.CancellationReasons) > 0 && aws.ToString(cancelled.CancellationReasons[0].Code) == "ConditionalCheckFailed" {
			return nil
		}
		return err
	}
	throws := os.Getenv("BARE_THROWS") != ""
	lambda.Start(func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		failed := make([]bool, len(event.Records))
		var wait sync.WaitGroup
		for i, m := range event.Records {
			wait.Go(func() { failed[i] = run(ctx, m) != nil })
		}
		wait.Wait()
		response := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
		for i, m := range event.Records {
			if failed[i] && throws {
				return response, errors.New("a job of the batch failed")
			}
			if failed[i] {
				response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			}
		}
		return response, nil
	})
}
