// Package reminder sends renewal reminders, each at most once, through a provider.
//
// The package defines a reminder, decides whether it is still wanted, and speaks to the providers. No
// transaction covers the provider; acklast.NewEffect makes sure that the reminder is sent once.
//
// docs/reminders.md is for operators.
package reminder

import (
	"slices"
	"time"

	"acklast"
)

// KindName is the kind of the job that sends a reminder.
const KindName = "reminder.send"

// Channel is the channel of a reminder.
type Channel string

// The channels.
const (
	Email Channel = "email"
	SMS   Channel = "sms"
	Push  Channel = "push"
)

var channels = []Channel{Email, SMS, Push}

// Outcomes of a finished reminder, as the ledger keeps them.
const (
	// Sent: the provider accepted it.
	Sent = acklast.Sent
	// TooLate: its expiry passed first.
	TooLate = acklast.TooLate
	// The provider's two final refusals.
	InvalidRecipient = "invalid-recipient"
	Unsubscribed     = "unsubscribed"
	// The outcomes by the subscription's state, see Policy.
	Cancelled   = "cancelled"
	Renewed     = "renewed"
	PlanChanged = "plan-changed"
)

// Payload is the payload of a reminder. The producer fills in all of it when it sends the job, so that
// the reminder's text does not depend on when it is sent.
type Payload struct {
	ReminderID     string  `json:"reminderId"`
	SubscriptionID string  `json:"subscriptionId"`
	Channel        Channel `json:"channel"`
	// Template and TemplateVersion name the text. Another version is another reminder.
	Template        string `json:"template"`
	TemplateVersion string `json:"templateVersion"`
	// Recipient names the recipient to the provider. It is never logged.
	Recipient string `json:"recipient"`
	// Plan is the subscription's plan and RenewsAt the time of its renewal, as the reminder states them.
	Plan     string    `json:"plan"`
	RenewsAt time.Time `json:"renewsAt"`
	// ExpiresAt is the time from which the reminder is not wanted any more.
	ExpiresAt time.Time `json:"expiresAt"`
}

func (p Payload) check() error {
	for _, id := range []struct{ name, value string }{
		{"reminderId", p.ReminderID}, {"subscriptionId", p.SubscriptionID}, {"template", p.Template},
		{"templateVersion", p.TemplateVersion}, {"recipient", p.Recipient}, {"plan", p.Plan},
	} {
		if err := acklast.CheckID(id.name, id.value); err != nil {
			return err
		}
	}
	switch {
	case !slices.Contains(channels, p.Channel):
		return acklast.Invalid("channel is none of %q", channels)
	case p.RenewsAt.IsZero():
		return acklast.Invalid("renewsAt is missing")
	case p.ExpiresAt.IsZero():
		return acklast.Invalid("expiresAt is missing")
	case !plausible(p.RenewsAt):
		return acklast.Invalid("renewsAt is no date %s", plausibleDates)
	case !plausible(p.ExpiresAt):
		return acklast.Invalid("expiresAt is no date %s", plausibleDates)
	}
	return nil
}

// Key returns the key of the job. It is made of the channel and the version of the template, among others.
func (p Payload) Key() (string, error) {
	return acklast.Key(KindName, p.ReminderID, string(p.Channel), p.TemplateVersion)
}

// Message returns the job that sends the reminder, for its producer. Its budget by time ends with the
// reminder's expiry.
func (p Payload) Message(notBefore time.Time) (acklast.Message, error) {
	return acklast.Message{Kind: KindName, Payload: p, NotBefore: notBefore, Deadline: p.ExpiresAt}, p.check()
}

// Job returns the body of that message.
func (p Payload) Job(notBefore time.Time) (string, error) {
	m, err := p.Message(notBefore)
	if err != nil {
		return "", err
	}
	return m.Body()
}

// precision is that of the subscriptions table. A payload's time may have more digits, and a writer may
// round it up or down.
const precision = time.Millisecond

// A Rule is one line of the policy.
type Rule struct {
	// Outcome is the entry's outcome when the rule applies; its status is terminal.
	Outcome string
	// When is the rule in words.
	When    string
	applies func(p Payload, s Subscription) bool
}

// Policy says when a subscription's present state drops a reminder. The first rule that applies drops it; if
// none applies, the reminder is sent. docs/reminders.md has the same table.
func Policy() []Rule {
	return []Rule{
		{Cancelled, "the subscription is cancelled: it will not renew",
			func(_ Payload, s Subscription) bool { return s.Cancelled }},
		{Renewed, "the subscription already renews later than the reminder says",
			func(p Payload, s Subscription) bool { return s.RenewsAt.Sub(p.RenewsAt) >= precision }},
		{Unsubscribed, "the recipient does not want reminders on this channel",
			func(p Payload, s Subscription) bool { return slices.Contains(s.Unsubscribed, p.Channel) }},
		{PlanChanged, "the plan is another than the reminder says: its text would be wrong",
			func(p Payload, s Subscription) bool { return s.Plan != p.Plan }},
	}
}

// dropped returns the outcome with which the policy drops a reminder, or "" to send it.
func dropped(p Payload, s Subscription) string {
	for _, r := range Policy() {
		if r.applies(p, s) {
			return r.Outcome
		}
	}
	return ""
}
