// Package reminder sends renewal reminders, each at most once, through a provider that nobody shares a
// transaction with.
//
// The provider may accept and its answer get lost, the worker may die or outlive its lease. So a job is
// claimed before the call, under a key for the provider that never changes, and a claim whose call
// nobody knows the end of is looked up before anything else is done. Where that tells nothing and a
// second request could be a second reminder, the job ends as ambiguous: a person decides.
//
//	                       accepted, refused
//	(absent) ──▶ running ────────────────────▶ done │ terminal │ expired
//	   ▲  claim     │  ▲
//	   │            │  └── claimed again: look up, then complete, send under the same key, or give up
//	   │ not sent   ▼                                                                  │
//	pending ◀── failed; or unresolved: the call's end is unknown                       ▼
//	   ▲                                                                    isolated as ambiguous
//	   └──────────────── decided "not sent", and put back ────────────────────────────┘
//
// docs/reminders.md is for the people who operate it.
package reminder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/job"
)

// KindName is the kind of the job that sends a reminder.
const KindName = "reminder.send"

// Channel is the way a reminder takes.
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
	Sent = "sent"
	// TooLate: its expiry passed first.
	TooLate = "expired"
	// The provider's two final refusals.
	InvalidRecipient = "invalid-recipient"
	Unsubscribed     = "unsubscribed"
	// What the subscription says, see Policy.
	Cancelled   = "cancelled"
	Renewed     = "renewed"
	PlanChanged = "plan-changed"
)

// Payload is the payload of a reminder. The producer takes all of it down when it sends the job, so that
// what is sent does not depend on when.
type Payload struct {
	ReminderID     string  `json:"reminderId"`
	SubscriptionID string  `json:"subscriptionId"`
	Channel        Channel `json:"channel"`
	// Template and TemplateVersion name the text. Another version is another reminder.
	Template        string `json:"template"`
	TemplateVersion string `json:"templateVersion"`
	// Recipient is what the provider knows the recipient by. It is never logged.
	Recipient string `json:"recipient"`
	// Plan is the subscription's plan, RenewsAt when it renews, as the reminder says it.
	Plan     string    `json:"plan"`
	RenewsAt time.Time `json:"renewsAt"`
	// ExpiresAt is from when on nobody wants the reminder any more.
	ExpiresAt time.Time `json:"expiresAt"`
}

func (p Payload) check() error {
	for _, id := range []struct{ name, value string }{
		{"reminderId", p.ReminderID}, {"subscriptionId", p.SubscriptionID}, {"template", p.Template},
		{"templateVersion", p.TemplateVersion}, {"recipient", p.Recipient}, {"plan", p.Plan},
	} {
		if err := job.CheckID(id.name, id.value); err != nil {
			return err
		}
	}
	switch {
	case !slices.Contains(channels, p.Channel):
		return job.InvalidPayload("channel is none of %q", channels)
	case p.RenewsAt.IsZero():
		return job.InvalidPayload("renewsAt is missing")
	case p.ExpiresAt.IsZero():
		return job.InvalidPayload("expiresAt is missing")
	}
	return nil
}

// Key returns the key of the job: a reminder on a channel in a version of its template.
func (p Payload) Key() (string, error) {
	return job.Key(KindName, p.ReminderID, string(p.Channel), p.TemplateVersion)
}

// Job returns the body of the job that sends the reminder, for its producer. Its budget by time ends
// with the reminder's expiry.
func (p Payload) Job(notBefore time.Time) (string, error) {
	if err := p.check(); err != nil {
		return "", err
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode payload: %w", err)
	}
	body, err := json.Marshal(job.Envelope{Kind: KindName, NotBefore: notBefore, Deadline: p.ExpiresAt, Payload: payload})
	if err != nil {
		return "", fmt.Errorf("encode job: %w", err)
	}
	return string(body), nil
}

// ReadPayload reads and checks a payload. Its error is a *job.Failure of class Invalid.
func ReadPayload(raw jsontext.Value) (Payload, error) {
	var p Payload
	if err := job.DecodePayload(raw, &p); err != nil {
		return Payload{}, err
	}
	return p, p.check()
}

// providerKey is the job's idempotency key at the provider. It follows from the stack and the job's
// key, so that it never changes, two stacks that share an account never meet, and no id reaches the
// provider that is not meant for it.
func providerKey(stack, jobKey string) string {
	sum := sha256.Sum256([]byte(stack + "\x00" + jobKey))
	return "acklast-" + hex.EncodeToString(sum[:16])
}

// A Rule is one line of the policy.
type Rule struct {
	// Outcome is what the entry ends with, as terminal, when the rule applies.
	Outcome string
	// When says it in words.
	When    string
	applies func(p Payload, s Subscription) bool
}

// Policy says what a subscription's present state means for a reminder about it: the first rule that
// applies drops it, and if none does it is sent. docs/reminders.md has the same table.
func Policy() []Rule {
	return []Rule{
		{Cancelled, "the subscription is cancelled: it will not renew",
			func(_ Payload, s Subscription) bool { return s.Cancelled }},
		{Renewed, "the subscription already renews later than the reminder says",
			func(p Payload, s Subscription) bool { return s.RenewsAt.After(p.RenewsAt) }},
		{Unsubscribed, "the recipient does not want reminders on this channel",
			func(p Payload, s Subscription) bool { return slices.Contains(s.Unsubscribed, p.Channel) }},
		{PlanChanged, "the plan is another than the reminder says: its text would be wrong",
			func(p Payload, s Subscription) bool { return s.Plan != p.Plan }},
	}
}

// drop returns the outcome with which the policy drops a reminder, or "" to send it.
func drop(p Payload, s Subscription) string {
	for _, r := range Policy() {
		if r.applies(p, s) {
			return r.Outcome
		}
	}
	return ""
}
