package reminder

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Subscription is one item of the subscriptions table. Another service owns the table. The worker only reads
// it; Put is for demos and tests.
type Subscription struct {
	ID        string
	Cancelled bool
	Plan      string
	// RenewsAt is the time of the next renewal.
	RenewsAt time.Time
	// Unsubscribed are the channels on which the recipient does not want reminders.
	Unsubscribed []Channel
}

// TableAPI is the part of the DynamoDB client that Subscriptions uses; the worker itself only reads.
type TableAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Subscriptions reads the subscriptions table.
type Subscriptions struct {
	db    TableAPI
	table string
	// ignored are the attributes that say nothing about consent.
	ignored []string
}

// NewSubscriptions returns the subscriptions of a table. ignored are the other attributes of its items that say nothing
// about consent. An item with an attribute that is neither ignored nor known is refused.
func NewSubscriptions(db TableAPI, table string, ignored ...string) *Subscriptions {
	return &Subscriptions{db: db, table: table, ignored: ignored}
}

type item = map[string]types.AttributeValue

// Get reads a subscription consistently. Its error is ErrNotFound when there is none, else one of
// dynamo.Translate, or acklast.Rejected with the name of an unreadable attribute.
func (s *Subscriptions) Get(ctx context.Context, id string) (Subscription, error) {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: item{"subscription_id": acklast.Text(id)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Subscription{}, fmt.Errorf("read subscription: %w", acklast.DynamoDBError(err))
	}
	if len(out.Item) == 0 {
		return Subscription{}, fmt.Errorf("subscription %s: %w", id, ErrNotFound)
	}
	for name, value := range out.Item {
		if !slices.Contains(attributes, name) && !slices.Contains(s.ignored, name) && !address(name, value) {
			return Subscription{}, acklast.Rejected("subscription %s: attribute %q is not known; only %s says which reminders are not wanted. If it says nothing about consent, name it in %s",
				id, name, unsubscribed, EnvIgnore)
		}
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
		off = append(off, acklast.Text(string(c)))
	}
	_, err := s.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: item{
		"subscription_id": acklast.Text(sub.ID), "status": acklast.Text(status), "plan": acklast.Text(sub.Plan),
		"renews_at":  acklast.Millis(sub.RenewsAt),
		unsubscribed: &types.AttributeValueMemberL{Value: off},
	}})
	if err != nil {
		return fmt.Errorf("put subscription: %w", acklast.DynamoDBError(err))
	}
	return nil
}

// readSubscription is strict about every attribute that decides whether a reminder is wanted. A subscription in
// an unknown form must not be taken for one that wants reminders.
func readSubscription(id string, it item) (Subscription, error) {
	bad := func(name, want string) (Subscription, error) {
		return Subscription{}, acklast.Rejected("subscription %s: attribute %s is not %s", id, name, want)
	}
	s := Subscription{ID: id}
	status, _ := it["status"].(*types.AttributeValueMemberS)
	switch {
	case status == nil:
		return bad("status", "a string")
	case plain(status.Value) == "active":
	case plain(status.Value) == "cancelled" || plain(status.Value) == "canceled":
		s.Cancelled = true
	default:
		return bad("status", `"active" or "cancelled"`)
	}
	plan, _ := it["plan"].(*types.AttributeValueMemberS)
	if plan == nil {
		return bad("plan", "a string")
	}
	s.Plan = plan.Value
	renews, _ := it["renews_at"].(*types.AttributeValueMemberN)
	if renews == nil {
		return bad("renews_at", "a number of milliseconds")
	}
	ms, err := strconv.ParseInt(renews.Value, 10, 64)
	if s.RenewsAt = time.UnixMilli(ms).UTC(); err != nil || !plausible(s.RenewsAt) {
		// Read as milliseconds, seconds would be a day in January 1970, and microseconds a day in the year
		// 58,000.
		return bad("renews_at", "a whole number of milliseconds since 1970, of a date "+plausibleDates)
	}
	off, ok := optOuts(it[unsubscribed])
	if !ok {
		return bad(unsubscribed, fmt.Sprintf("readable: want some of %q, or all", channels))
	}
	s.Unsubscribed = off
	return s, nil
}

// unsubscribed is the attribute with the channels on which the recipient does not want reminders.
const unsubscribed = "unsubscribed"

// attributes are those that are read. Any other one may be an opt-out under a name that nobody thought of.
var attributes = []string{"subscription_id", "status", "plan", "renews_at", unsubscribed}

// address says whether an attribute is an address, by its name and its value, such as one under which to unsubscribe.
func address(name string, v types.AttributeValue) bool {
	s, isString := v.(*types.AttributeValueMemberS)
	if !isString {
		return false
	}
	u, err := url.Parse(s.Value)
	return err == nil && u.Host != "" && slices.ContainsFunc([]string{"url", "uri", "link"}, func(word string) bool { return strings.HasSuffix(plain(name), word) })
}

// spellings are the words for each channel, in lower case and without separators.
var spellings = map[string][]Channel{
	"email": {Email}, "emails": {Email}, "mail": {Email}, "mails": {Email},
	"sms": {SMS}, "text": {SMS}, "texts": {SMS}, "textmessage": {SMS}, "textmessages": {SMS}, "txt": {SMS},
	"push": {Push}, "pushes": {Push}, "pushnotification": {Push}, "pushnotifications": {Push},
	"all": channels, "any": channels, "every": channels, "everything": channels, "allchannels": channels,
	"*": channels, "true": channels, "yes": channels,
	"none": nil, "false": nil, "no": nil,
}

// optOuts reads the channels of an attribute in every form that tables use: a list or a set of strings, a
// string with commas, or a boolean for all of them. ok is false if any part cannot be read.
func optOuts(v types.AttributeValue) (off []Channel, ok bool) {
	var words []string
	switch v := v.(type) {
	case nil, *types.AttributeValueMemberNULL:
		return nil, true
	case *types.AttributeValueMemberBOOL:
		words = []string{strconv.FormatBool(v.Value)}
	case *types.AttributeValueMemberS:
		words = strings.FieldsFunc(v.Value, func(r rune) bool { return r == ',' || r == ';' || r == '|' })
		if len(words) == 0 {
			return nil, false
		}
	case *types.AttributeValueMemberSS:
		words = v.Value
	case *types.AttributeValueMemberL:
		for _, element := range v.Value {
			s, isString := element.(*types.AttributeValueMemberS)
			if !isString {
				return nil, false
			}
			words = append(words, s.Value)
		}
	default:
		return nil, false
	}
	for _, word := range words {
		said, known := spellings[plain(word)]
		if !known {
			return nil, false
		}
		off = append(off, said...)
	}
	return off, true
}

// plausible says whether a time can belong to a reminder or a subscription.
func plausible(t time.Time) bool { return t.Year() >= 2000 && t.Year() < 2200 }

const plausibleDates = "from 2000 to 2199"
