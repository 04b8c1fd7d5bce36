package reminder_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	sestypes "github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/sivchari/kumo"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
)

// awsAt is the SDK's configuration, with its own three attempts, for an endpoint.
func awsAt(t *testing.T, endpoint string) aws.Config {
	t.Helper()
	cfg, err := awsclient.Load(t.Context(), config.WithRegion("eu-central-1"), config.WithBaseEndpoint(endpoint),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "test", "")),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func ses(t *testing.T, endpoint string) *reminder.SES {
	t.Helper()
	return reminder.NewSES(sesv2.NewFromConfig(awsAt(t, endpoint)), "billing@example.com", "", func() time.Time { return t0 })
}

func mail() reminder.Payload {
	p := payload()
	p.Recipient = "ada@example.com"
	return p
}

// On the embedded SES.
func TestSESSendsATemplatedEmail(t *testing.T) {
	srv := kumo.NewServer()
	t.Cleanup(srv.Close)
	client := sesv2.NewFromConfig(awsAt(t, srv.URL))
	if _, err := client.CreateEmailIdentity(t.Context(), &sesv2.CreateEmailIdentityInput{EmailIdentity: aws.String("billing@example.com")}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateEmailTemplate(t.Context(), &sesv2.CreateEmailTemplateInput{
		TemplateName:    aws.String("renewal-v3"),
		TemplateContent: &sestypes.EmailTemplateContent{Subject: aws.String("{{plan}} renews"), Text: aws.String("on {{renewsAt}}")},
	}); err != nil {
		t.Fatal(err)
	}
	p := ses(t, srv.URL)
	id, err := p.Send(t.Context(), "acklast-0123", mail())
	if err != nil || id == "" {
		t.Fatalf("Send() = %q, %v", id, err)
	}
	res, err := http.Get(srv.URL + "/kumo/ses/v2/sent-emails") //nolint:noctx // of this process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	sent, err := io.ReadAll(res.Body)
	if err != nil || strings.Count(string(sent), "ada@example.com") != 1 || !strings.Contains(string(sent), id) {
		t.Errorf("sent %s, %v", sent, err)
	}
	sms := mail()
	sms.Channel = reminder.SMS
	_, err = p.Send(t.Context(), "acklast-0123", sms)
	if class, unresolved := failed(t, err); class != job.Rejected || unresolved {
		t.Errorf("an sms: %v", err)
	}
}

func TestSESFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		status     int
		code       string // "": hang up
		class      job.Class
		unresolved bool
	}{
		"too many":        {429, "TooManyRequestsException", job.Throttled, false},
		"limit":           {400, "LimitExceededException", job.Throttled, false},
		"rejected":        {400, "MessageRejected", job.Rejected, false},
		"no template":     {404, "NotFoundException", job.Rejected, false},
		"suspended":       {400, "AccountSuspendedException", job.Rejected, false},
		"paused":          {400, "SendingPausedException", job.Transient, false},
		"denied":          {403, "AccessDeniedException", job.Rejected, false},
		"unheard of":      {400, "SomethingNewException", job.ClassUnknown, false},
		"server's fault":  {500, "InternalServiceErrorException", job.Transient, true},
		"gateway timeout": {504, "GatewayTimeout", job.Transient, true},
		"no answer":       {0, "", job.Transient, true},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				if tt.code == "" {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("X-Amzn-ErrorType", tt.code)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tt.status)
				_ = json.NewEncoder(w).Encode(map[string]string{"message": "ada@example.com is the trouble"})
			}))
			t.Cleanup(srv.Close)
			_, err := ses(t, srv.URL).Send(t.Context(), "acklast-0123", mail())
			class, unresolved := failed(t, err)
			if class != tt.class || unresolved != tt.unresolved {
				t.Errorf("got %s, unresolved %v: %v", class, unresolved, err)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests on the wire", requests.Load())
			}
			if f := job.AsFailure(err); class == job.Throttled && f.RetryAfter != 7*time.Second {
				t.Errorf("retry after %v", f.RetryAfter)
			}
			if strings.Contains(err.Error(), "ada@") {
				t.Errorf("names the recipient: %v", err)
			}
		})
	}
}

// Only SES's own errors, in its own shape, say that the e-mail was not accepted.
func TestSESAnswersOfSomebodyElse(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
	}{
		"a mesh's 503":               {503, "upstream connect error or disconnect/reset before headers. reset reason: connection termination"},
		"a mesh's 503 as JSON":       {503, `{"code":"ServiceUnavailable","message":"reset"}`},
		"a proxy's 403":              {403, html},
		"a proxy's 429":              {429, html},
		"a redirect":                 {302, ""},
		"a redirect with the method": {307, ""},
		"200 without an id":          {200, `{}`},
		"200 null":                   {200, `null`},
		"200 HTML":                   {200, html},
		"200 empty":                  {200, ``},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Location", "/again")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(srv.Close)
			id, err := ses(t, srv.URL).Send(t.Context(), "acklast-0123", mail())
			if id != "" {
				t.Errorf("id %q", id)
			}
			if class, unresolved := failed(t, err); class != job.Transient || !unresolved {
				t.Errorf("got %s, unresolved %v: %v", class, unresolved, err)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests on the wire", requests.Load())
			}
		})
	}
}

// No e-mail is written to a connection that SES may have closed.
func TestSESUsesEveryConnectionOnce(t *testing.T) {
	var connections atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"MessageId":"m-1"}`)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	p := ses(t, srv.URL)
	for range 3 {
		if _, err := p.Send(t.Context(), "acklast-0123", mail()); err != nil {
			t.Fatal(err)
		}
	}
	if connections.Load() != 3 {
		t.Errorf("%d connections for 3 e-mails", connections.Load())
	}
}

// When no request left the machine, the e-mail is not accepted, and no decision is needed.
func TestSESWithoutAConnection(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts the connection and never shakes hands
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	foreign := httptest.NewUnstartedServer(http.NotFoundHandler())
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	foreign.StartTLS()
	t.Cleanup(foreign.Close)
	for name, endpoint := range map[string]string{
		"nobody listens":              "http://" + closed.Addr().String(),
		"TLS with a foreign server":   foreign.URL,
		"TLS that never answers":      "https://" + silent.Addr().String(),
		"an endpoint that is no URL":  "http://[::1",
		"a name that nobody has":      "http://ses.invalid",
		"an address without a server": "http://192.0.2.1", // for documentation: packets to it go nowhere
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // long enough to ask for a connection, on any machine
		_, err := ses(t, endpoint).Send(ctx, "acklast-0123", mail())
		cancel()
		if class, unresolved := failed(t, err); class != job.Transient || unresolved {
			t.Errorf("%s: %s, unresolved %v: %v", name, class, unresolved, err)
		}
	}
}

// On the embedded Secrets Manager.
func TestManagedSecretIsReadOnceUntilItIsRefused(t *testing.T) {
	srv := kumo.NewServer()
	t.Cleanup(srv.Close)
	client := secretsmanager.NewFromConfig(awsAt(t, srv.URL))
	made, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: aws.String("provider"), SecretString: aws.String("one")})
	if err != nil {
		t.Fatal(err)
	}
	secret := reminder.ManagedSecret(client, *made.ARN)
	read := func(fresh bool) string {
		t.Helper()
		s, err := secret(t.Context(), fresh)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := read(false); got != "one" {
		t.Errorf("got %q", got)
	}
	if _, err := client.PutSecretValue(t.Context(), &secretsmanager.PutSecretValueInput{SecretId: made.ARN, SecretString: aws.String("two")}); err != nil {
		t.Fatal(err)
	}
	if got := read(false); got != "one" {
		t.Errorf("read again without need: %q", got)
	}
	if got := read(true); got != "two" {
		t.Errorf("after a refusal: %q", got)
	}
	if _, err := reminder.ManagedSecret(client, "arn:aws:secretsmanager:eu-central-1:1:secret:none")(t.Context(), false); err == nil {
		t.Error("a secret that does not exist")
	}
}
