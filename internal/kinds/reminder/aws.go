package reminder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// SES sends reminders as templated e-mail through Amazon SES. It has no idempotency key and no look-up, so a
// call whose answer is lost makes its job ambiguous. The template's name is the payload's template and version
// joined by "-". The recipient is an e-mail address.
type SES struct {
	client                 *sesv2.Client
	from, configurationSet string
	now                    func() time.Time
}

// NewSES returns a provider that sends from an identity that SES has verified. The configuration set
// may be "".
func NewSES(client *sesv2.Client, from, configurationSet string, now func() time.Time) *SES {
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
		// By this tag the events that SES publishes about the e-mail can be joined with the ledger.
		EmailTags: []types.MessageTag{{Name: aws.String("acklast-key"), Value: &key}},
	}
	if s.configurationSet != "" {
		in.ConfigurationSetName = &s.configurationSet
	}
	// When the context has ended, the SDK returns the context's error in place of the wire's. So the wire's
	// error is kept apart.
	wire := &onWire{}
	out, err := s.client.SendEmail(ctx, in, func(o *sesv2.Options) {
		o.Retryer = aws.NopRetryer{}
		wire.next, o.HTTPClient = o.HTTPClient, wire
	})
	switch {
	case err == nil && aws.ToString(out.MessageId) != "":
		return *out.MessageId, nil
	case err == nil:
		return "", acklast.Transient(errors.New("SES answered without a message id"))
	case !wire.used:
		return "", acklast.Unsent(acklast.Transient(fmt.Errorf("SES was not asked: %w", err)))
	case wire.err != nil:
		return "", fmt.Errorf("SES: %w", wire.err)
	}
	return "", s.failure(err)
}

// onWire is the HTTP client of one call of the SDK. It notes whether there was a request and how it
// failed.
type onWire struct {
	next sesv2.HTTPClient
	used bool
	err  error
}

// Do makes the request on a connection of its own. A connection that is kept may have been closed by SES
// meanwhile, for instance while the process was frozen. A request on it fails after it was written, and
// since SES has no look-up, a person would have to decide.
func (w *onWire) Do(req *http.Request) (*http.Response, error) {
	w.used, req.Close = true, true
	res, err := acklast.OneRequest(w.next, req)
	w.err = err
	return res, err
}

// failure classifies an error answer. Only SES's own errors prove that the e-mail was not accepted. A proxy's
// errors lack the header in which SES names its error.
func (s *SES) failure(err error) error {
	var api smithy.APIError
	var res *awshttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &res) || res.Response == nil {
		return acklast.Transient(errors.New("SES's answer cannot be read"))
	}
	status, code := res.HTTPStatusCode(), api.ErrorCode()
	failure := fmt.Errorf("SES: %s", code)
	switch refused := status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusConflict ||
		status == http.StatusServiceUnavailable; {
	case !refused || res.Response.Header.Get("X-Amzn-Errortype") == "":
		return acklast.Transient(fmt.Errorf("SES answered %d: %s", status, code))
	case slices.Contains([]string{"TooManyRequestsException", "LimitExceededException", "ThrottlingException", "Throttling"}, code):
		return acklast.Unsent(acklast.Throttled(failure, retryAfter(res.Response.Header.Get("Retry-After"), s.now())))
	case slices.Contains([]string{"SendingPausedException", "ServiceUnavailable", "ServiceUnavailableException"}, code):
		return acklast.Unsent(acklast.Transient(failure))
	case slices.Contains([]string{"MessageRejected", "BadRequestException", "NotFoundException", "AccountSuspendedException",
		"MailFromDomainNotVerifiedException", "AccessDeniedException", "InvalidParameterValue"}, code):
		// This is not about the recipient alone: a template, an identity or a permission is missing. SES
		// reports a bad address later, by a bounce. Its own text may quote the recipient, so it is left out.
		return acklast.Unsent(acklast.Rejected("%w", failure))
	}
	return acklast.Unsent(failure)
}

// SecretAPI is the part of the SDK's client that ManagedSecret uses.
type SecretAPI interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// ManagedSecret reads a secret from AWS Secrets Manager when it is first needed. It reads it again when the
// provider refuses it, as after a rotation.
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
