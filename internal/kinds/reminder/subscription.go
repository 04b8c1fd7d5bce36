package reminder

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Subscription is what the subscriptions table says about a subscription. The table belongs to
// whoever manages subscriptions; this package only reads it, but for Put.
type Subscription struct {
	ID        string
	Cancelled bool
	Plan      string
	// RenewsAt is when it renews next.
	RenewsAt time.Time
	// Unsubscribed are the channels on which the recipient does not want reminders.
	Unsubscribed []Channel
}

// TableAPI is what Subscriptions uses of the DynamoDB client; the worker itself only reads.
type TableAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Subscriptions reads the subscriptions table.
type Subscriptions struct {
	db    TableAPI
	table string
}

// NewSubscriptions returns the subscriptions of a table.
func NewSubscriptions(db TableAPI, table string) *Subscriptions {
	return &Subscriptions{db: db, table: table}
}

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Get reads a subscription consistently. Its error is ErrNotFound when there is none, else one of
// dynamo.Translate, or acklast.Rejected that names the attribute nobody can read.
func (s *Subscriptions) Get(ctx context.Context, id string) (Subscription, error) {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: item{"subscription_id": str(id)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Subscription{}, fmt.Errorf("read subscription: %w", acklast.DynamoDBError(err))
	}
	if len(out.Item) == 0 {
		return Subscription{}, fmt.Errorf("subscription %s: %w", id, ErrNotFound)
	}
	return readSubscription(id, out.Item)
}

// Put writes a subscription, for producers, demos and tests.
func (s *Subscriptions) Put(ctx context.Context, sub Subscription) error {
	status := "active"
	if sub.Cancelled {
		status = "cancelled"
	}
	off := make([]types.AttributeValue, 0, len(sub.Unsubscribed))
	for _, c := range sub.Unsubscribed {
		off = append(off, str(string(c)))
	}
	_, err := s.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: item{
		"subscription_id": str(sub.ID), "status": str(status), "plan": str(sub.Plan),
		"renews_at":    &types.AttributeValueMemberN{Value: strconv.FormatInt(sub.RenewsAt.UnixMilli(), 10)},
		"unsubscribed": &types.AttributeValueMemberL{Value: off},
	}})
	if err != nil {
		return fmt.Errorf("put subscription: %w", acklast.DynamoDBError(err))
	}
	return nil
}

// readSubscription is strict: a subscription somebody wrote in another form must not be taken for one
// that wants reminders.
func readSubscription(id string, it item) (Subscription, error) {
	bad := func(name, want string) (Subscription, error) {
		return Subscription{}, acklast.Rejected("subscription %s: attribute %s is not %s", id, name, want)
	}
	status, _ := it["status"].(*types.AttributeValueMemberS)
	if status == nil || status.Value != "active" && status.Value != "cancelled" {
		return bad("status", `"active" or "cancelled"`)
	}
	plan, _ := it["plan"].(*types.AttributeValueMemberS)
	if plan == nil {
		return bad("plan", "a string")
	}
	renews, _ := it["renews_at"].(*types.AttributeValueMemberN)
	if renews == nil {
		return bad("renews_at", "a number of milliseconds")
	}
	ms, err := strconv.ParseInt(renews.Value, 10, 64)
	if err != nil {
		return bad("renews_at", "a whole number of milliseconds")
	}
	s := Subscription{ID: id, Cancelled: status.Value == "cancelled", Plan: plan.Value, RenewsAt: time.UnixMilli(ms).UTC()}
	switch off := it["unsubscribed"].(type) {
	case nil:
	case *types.AttributeValueMemberSS:
		for _, c := range off.Value {
			s.Unsubscribed = append(s.Unsubscribed, Channel(c))
		}
	case *types.AttributeValueMemberL:
		for _, v := range off.Value {
			c, ok := v.(*types.AttributeValueMemberS)
			if !ok {
				return bad("unsubscribed", "a list of channels")
			}
			s.Unsubscribed = append(s.Unsubscribed, Channel(c.Value))
		}
	default:
		return bad("unsubscribed", "a list or set of channels")
	}
	return s, nil
}
