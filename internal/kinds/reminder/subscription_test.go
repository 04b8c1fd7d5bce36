package reminder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/sivchari/kumo"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/topology"
)

func TestSubscriptions(t *testing.T) {
	srv := kumo.NewServer()
	t.Cleanup(srv.Close)
	db := awsclient.DynamoDB(awsAt(t, srv.URL))
	names := topology.NamesOf("reminder-subscriptions")
	subscriptions := names.Table("subscriptions")
	if err := dynamo.CreateTables(t.Context(), db, names, acklast.Describe(reminder.Kind())[0].Tables...); err != nil {
		t.Fatal(err)
	}
	subs := reminder.NewSubscriptions(db, subscriptions)
	if _, err := subs.Get(t.Context(), "sub-7"); !errors.Is(err, reminder.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	want := reminder.Subscription{ID: "sub-7", Cancelled: true, Plan: "pro", RenewsAt: t0, Unsubscribed: []reminder.Channel{reminder.SMS}}
	if err := subs.Put(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, err := subs.Get(t.Context(), "sub-7"); err != nil || got.Cancelled != want.Cancelled || got.Plan != want.Plan ||
		!got.RenewsAt.Equal(want.RenewsAt) || len(got.Unsubscribed) != 1 || got.Unsubscribed[0] != reminder.SMS {
		t.Errorf("got %+v, %v", got, err)
	}
}

// other is a subscription as another writer may put it into the table.
func other(t *testing.T, change func(map[string]types.AttributeValue)) (reminder.Subscription, error) {
	t.Helper()
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	it := map[string]types.AttributeValue{"subscription_id": text("sub-7"), "status": text("active"), "plan": text("pro"),
		"renews_at": &types.AttributeValueMemberN{Value: "1796378400000"}}
	change(it)
	return reminder.NewSubscriptions(table{it}, "subscriptions").Get(t.Context(), "sub-7")
}

// table is a table with one item.
type table struct {
	item map[string]types.AttributeValue
}

func (t table) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return &dynamodb.GetItemOutput{Item: t.item}, nil
}

func (table) PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return nil, errors.New("nothing is written")
}

// Every spelling of an opt-out is honoured.
func TestOptOutsInAnySpelling(t *testing.T) {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	list := func(words ...string) types.AttributeValue {
		var l []types.AttributeValue
		for _, w := range words {
			l = append(l, text(w))
		}
		return &types.AttributeValueMemberL{Value: l}
	}
	all := []reminder.Channel{reminder.Email, reminder.SMS, reminder.Push}
	for _, tt := range []struct {
		value types.AttributeValue
		want  []reminder.Channel
	}{
		{nil, nil},
		{&types.AttributeValueMemberNULL{Value: true}, nil},
		{list(), nil},
		{list("none"), nil},
		{list("email"), []reminder.Channel{reminder.Email}},
		{list("EMAIL"), []reminder.Channel{reminder.Email}},
		{list("E-Mail"), []reminder.Channel{reminder.Email}},
		{list(" e_mail "), []reminder.Channel{reminder.Email}},
		{list("mail", "Text Message"), []reminder.Channel{reminder.Email, reminder.SMS}},
		{list("Push-Notifications"), []reminder.Channel{reminder.Push}},
		{&types.AttributeValueMemberSS{Value: []string{"Sms"}}, []reminder.Channel{reminder.SMS}},
		{list("ALL"), all},
		{list("*"), all},
		{text("email"), []reminder.Channel{reminder.Email}},
		{text("Email, SMS"), []reminder.Channel{reminder.Email, reminder.SMS}},
		{text("yes"), all},
		{&types.AttributeValueMemberBOOL{Value: true}, all},
		{&types.AttributeValueMemberBOOL{Value: false}, nil},
	} {
		got, err := other(t, func(it map[string]types.AttributeValue) {
			if tt.value != nil {
				it["unsubscribed"] = tt.value
			}
		})
		if err != nil || !slices.Equal(got.Unsubscribed, tt.want) {
			t.Errorf("%#v: unsubscribed from %q, %v, want %q", tt.value, got.Unsubscribed, err, tt.want)
		}
	}
	for _, status := range []string{"Cancelled", "canceled", " CANCELLED "} {
		if got, err := other(t, func(it map[string]types.AttributeValue) { it["status"] = text(status) }); err != nil || !got.Cancelled {
			t.Errorf("status %q: %+v, %v, want it cancelled", status, got, err)
		}
	}
}

// An unreadable subscription does not count as consent, and the error names the attribute.
func TestASubscriptionThatCannotBeRead(t *testing.T) {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
	list := func(word string) types.AttributeValue {
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{text(word)}}
	}
	for _, tt := range []struct {
		attribute string
		value     types.AttributeValue // nil: there is none
	}{
		{"status", nil},
		{"status", text("paused")},
		{"status", number("1")},
		{"plan", nil},
		{"renews_at", nil},
		{"renews_at", text("2026-12-04")},
		{"renews_at", number("1.5")},
		{"renews_at", number("1796378400")},          // seconds
		{"renews_at", number("1796378400000000")},    // microseconds
		{"renews_at", number("1796378400000000000")}, // nanoseconds
		{"renews_at", number("0")},
		{"renews_at", number("-1796378400000")},
		{"unsubscribed", text("")},
		{"unsubscribed", text("whatsapp")},
		{"unsubscribed", text("email, whatsapp")},
		{"unsubscribed", text("\u0435mail")}, // a Cyrillic letter
		{"unsubscribed", number("1")},
		{"unsubscribed", &types.AttributeValueMemberSS{Value: []string{"email", "fax"}}},
		{"unsubscribed", &types.AttributeValueMemberL{Value: []types.AttributeValue{number("1")}}},
		{"unsubscribed", &types.AttributeValueMemberL{Value: []types.AttributeValue{text("")}}},
		{"unsubscribed", &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"email": text("yes")}}},
		{"Unsubscribed", text("email")},
		{"unsubscribed_at", number("1796378400000")},
		{"optOut", &types.AttributeValueMemberBOOL{Value: true}},
		{"opt_in", &types.AttributeValueMemberBOOL{Value: false}},
		{"marketing-consent", text("revoked")},
		{"do_not_contact", text("yes")},
		{"subscribed", &types.AttributeValueMemberBOOL{Value: false}},
		{"is_subscribed", &types.AttributeValueMemberBOOL{Value: false}},
		{"email_enabled", &types.AttributeValueMemberBOOL{Value: false}},
		{"notifications", &types.AttributeValueMemberBOOL{Value: false}},
		{"opt_email", &types.AttributeValueMemberBOOL{Value: false}},
		{"opted", text("out")},
		{"no_email", &types.AttributeValueMemberBOOL{Value: true}},
		{"dnc", number("1")},
		{"do_not_disturb", &types.AttributeValueMemberBOOL{Value: true}},
		{"blocked", &types.AttributeValueMemberBOOL{Value: true}},
		{"permission", text("withdrawn")},
		{"unsubsribed", list("email")}, // misspelt
		{"preferences", &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"email": text("off")}}},
		{"unsubscribed_by_link", &types.AttributeValueMemberBOOL{Value: true}},
		{"unsubscribed_by_link", text("yes")},
		{"optout_token", &types.AttributeValueMemberBOOL{Value: true}},
		{"unsubscribe_url", text("clicked")},
	} {
		_, err := other(t, func(it map[string]types.AttributeValue) {
			if tt.value == nil {
				delete(it, tt.attribute)
				return
			}
			it[tt.attribute] = tt.value
		})
		if err == nil || job.AsFailure(err).Class != job.Rejected || !strings.Contains(err.Error(), tt.attribute) {
			t.Errorf("%s %#v: %v, want it rejected by the attribute's name", tt.attribute, tt.value, err)
		}
	}
	// The table's owner may have other attributes. The configuration names those that say nothing about consent.
	it := map[string]types.AttributeValue{"subscription_id": text("sub-7"), "status": text("active"), "plan": text("pro"), "renews_at": number("1796378400000"),
		"customer_id": text("c-1"), "consent_version": text("v1"), "unsubscribed": list("sms")}
	if _, err := reminder.NewSubscriptions(table{it}, "subscriptions", "customer_id").Get(t.Context(), "sub-7"); err == nil || !strings.Contains(err.Error(), "consent_version") || !strings.Contains(err.Error(), reminder.EnvIgnore) {
		t.Errorf("one attribute that is not named: %v, want its name and %s", err, reminder.EnvIgnore)
	}
	if got, err := reminder.NewSubscriptions(table{it}, "subscriptions", "customer_id", "consent_version").Get(t.Context(), "sub-7"); err != nil || len(got.Unsubscribed) != 1 {
		t.Errorf("both named: %+v, %v, want it read with its opt-out", got, err)
	}
	// An address under which to unsubscribe is no opt-out.
	if _, err := other(t, func(it map[string]types.AttributeValue) { it["unsubscribe_url"] = text("https://shop.example/u/7") }); err != nil {
		t.Errorf("an address: %v", err)
	}
}
