package reminder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/smithy-go"
	"github.com/go-json-experiment/json"

	"acklast"
)

// SESAPI is what SES uses of the SDK's client.
type SESAPI interface {
	SendEmail(context.Context, *sesv2.SendEmailInput, ...func(*sesv2.Options)) (*sesv2.SendEmailOutput, error)
}

// SES sends reminders as templated e-mail through Amazon SES. It knows no idempotency key and no
// look-up, so a call whose answer is lost makes its job ambiguous. The template's name is the
// payload's template and version joined by "-", the recipient is an e-mail address.
type SES struct {
	client                 SESAPI
	from, configurationSet string
	now                    func() time.Time
}

// NewSES returns a provider that sends from an identity that SES has verified. The configuration set
// may be "".
func NewSES(client SESAPI, from, configurationSet string, now func() time.Time) *SES {
	return &SES{client: client, from: from, configurationSet: configurationSet, now: now}
}

// Lookup is never called, since SES has no ability.
func (*SES) Lookup(context.Context, string, Payload) (string, error) {
	return "", errors.New("SES cannot look up a request")
}

// Send makes one request. The SDK's own attempts are off: each would be an e-mail.
func (s *SES) Send(ctx context.Context, key string, p Payload) (string, error) {
	if p.Channel != Email {
		return "", acklast.Unsent(acklast.Rejected("SES sends e-mail and no %s", p.Channel))
	}
	data, err := json.Marshal(struct {
		SubscriptionID string    `json:"subscriptionId"`
		Plan           string    `json:"plan"`
		RenewsAt       time.Time `json:"renewsAt"`
	}{p.SubscriptionID, p.Plan, p.RenewsAt})
	if err != nil {
		return "", acklast.Unsent(fmt.Errorf("encode template data: %w", err))
	}
	in := &sesv2.SendEmailInput{
		FromEmailAddress: &s.from,
		Destination:      &types.Destination{ToAddresses: []string{p.Recipient}},
		Content: &types.EmailContent{Template: &types.Template{
			TemplateName: aws.String(p.Template + "-" + p.TemplateVersion), TemplateData: aws.String(string(data)),
		}},
		// What SES publishes about the e-mail can be joined with the ledger by it.
		EmailTags: []types.MessageTag{{Name: aws.String("acklast-key"), Value: &key}},
	}
	if s.configurationSet != "" {
		in.ConfigurationSetName = &s.configurationSet
	}
	out, err := s.client.SendEmail(ctx, in, func(o *sesv2.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return "", s.failure(err)
	}
	return aws.ToString(out.MessageId), nil
}

func (s *SES) failure(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		switch code := api.ErrorCode(); code {
		case "TooManyRequestsException", "LimitExceededException", "ThrottlingException", "Throttling":
			var wait time.Duration
			var res *awshttp.ResponseError
			if errors.As(err, &res) && res.Response != nil {
				wait = retryAfter(res.Response.Header.Get("Retry-After"), s.now())
			}
			return acklast.Unsent(acklast.Throttled(fmt.Errorf("SES: %s", code), wait))
		case "SendingPausedException", "ServiceUnavailable", "ServiceUnavailableException":
			return acklast.Unsent(acklast.Transient(fmt.Errorf("SES: %s", code)))
		case "MessageRejected", "BadRequestException", "NotFoundException", "AccountSuspendedException",
			"MailFromDomainNotVerifiedException", "AccessDeniedException", "InvalidParameterValue":
			// Not of the recipient alone: a template, an identity or a right is missing. SES tells of a bad
			// address later, by a bounce. Its own words may quote the recipient, so they stay out.
			return acklast.Unsent(acklast.Rejected("SES: %s", code))
		}
		var res *awshttp.ResponseError
		if errors.As(err, &res) && res.HTTPStatusCode() >= 400 && res.HTTPStatusCode() < 500 {
			return acklast.Unsent(fmt.Errorf("SES: %s", api.ErrorCode()))
		}
		return acklast.Transient(fmt.Errorf("SES: %s", api.ErrorCode()))
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return acklast.Unsent(acklast.Transient(fmt.Errorf("no connection to SES: %w", dial)))
	}
	return acklast.Transient(fmt.Errorf("no answer from SES: %w", err))
}

// SecretAPI is what ManagedSecret uses of the SDK's client.
type SecretAPI interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// ManagedSecret reads a secret from AWS Secrets Manager when it is first needed, and again when the
// provider no longer takes it, as after a rotation.
func ManagedSecret(client SecretAPI, arn string) Secret {
	var mu sync.Mutex
	var value string
	return func(ctx context.Context, fresh bool) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if value != "" && !fresh {
			return value, nil
		}
		out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn})
		if err != nil {
			return "", err
		}
		if value = aws.ToString(out.SecretString); value == "" {
			return "", errNoSecret
		}
		return value, nil
	}
}
