package reminder_test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
)

func TestConfig(t *testing.T) {
	for name, c := range map[string]reminder.Config{
		"none": {Timeout: 5 * time.Second},
		"http": {Provider: reminder.ProviderHTTP, Timeout: 3 * time.Second, URL: "https://provider.example/v1", SecretARN: "arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf",
			Abilities: reminder.Abilities{Deduplicates: true, LooksUp: true, KeyWindow: time.Hour, SettleTime: time.Minute}},
		"http that can do nothing": {Provider: reminder.ProviderHTTP, Timeout: time.Second, URL: "http://127.0.0.1:1", Secret: "s", BareYes: "200, 202", Refusals: "rate_limited, Overloaded"},
		"ses":                      {Provider: reminder.ProviderSES, Timeout: time.Second, SESFrom: "a@example.com", SESSet: "set", Ignore: "customer_id, created_at"},
	} {
		env := c.Environment()
		got, err := reminder.ParseConfig(func(name string) string { return env[name] })
		if err != nil || got != c {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if p := got.NewProvider(aws.Config{}, time.Now); (p == nil) != (c.Provider == reminder.ProviderNone) {
			t.Errorf("%s: provider %v", name, p)
		}
	}
	// Without any variable the worker starts too.
	if c, err := reminder.ParseConfig(func(string) string { return "" }); err != nil || c.Timeout == 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigNamesTheVariable(t *testing.T) {
	http := map[string]string{reminder.EnvProvider: "http", reminder.EnvURL: "https://p.example", reminder.EnvRefusals: "none"}
	ses := map[string]string{reminder.EnvProvider: "ses", reminder.EnvSESFrom: "a@example.com"}
	for _, tt := range []struct {
		base map[string]string
		name string
		bad  map[string]string
	}{
		{nil, reminder.EnvProvider, map[string]string{reminder.EnvProvider: "smtp"}},
		{nil, reminder.EnvTimeout, map[string]string{reminder.EnvTimeout: "5"}},
		{http, reminder.EnvURL, map[string]string{reminder.EnvURL: ""}},
		{http, reminder.EnvURL, map[string]string{reminder.EnvURL: "provider.example"}},
		{http, reminder.EnvURL, map[string]string{reminder.EnvURL: "ftp://billing:s3cret@provider.example"}},
		{http, reminder.EnvSecretARN, map[string]string{reminder.EnvSecret: "s3cret", reminder.EnvSecretARN: "arn:x"}},
		{http, reminder.EnvSecretARN, map[string]string{reminder.EnvSecretARN: "provider-secret"}},
		{http, reminder.EnvSecretARN, map[string]string{reminder.EnvSecretARN: "s3cret"}}, // the secret itself, in the wrong variable
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: ""}},
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: "", reminder.EnvLooksUp: "true", reminder.EnvKeyWindow: "1h"}},
		{http, reminder.EnvKeyWindow, map[string]string{reminder.EnvDeduplicates: "true"}},
		{http, reminder.EnvKeyWindow, map[string]string{reminder.EnvLooksUp: "true", reminder.EnvKeyWindow: "-1h"}},
		{http, reminder.EnvSettleTime, map[string]string{reminder.EnvDeduplicates: "true", reminder.EnvKeyWindow: "1h", reminder.EnvSettleTime: "1m"}},
		{http, reminder.EnvBareYes, map[string]string{reminder.EnvBareYes: "200,404"}},
		{http, reminder.EnvBareYes, map[string]string{reminder.EnvBareYes: "yes"}},
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: "rate_limited,,overloaded"}},
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: "rate_limited, Forbidden"}},
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: "service_unavailable"}},
		{http, reminder.EnvRefusals, map[string]string{reminder.EnvRefusals: "ServiceUnavailable"}},
		{http, reminder.EnvLooksUp, map[string]string{reminder.EnvLooksUp: "perhaps"}},
		{http, reminder.EnvIgnore, map[string]string{reminder.EnvIgnore: "customer_id,,ttl"}},
		{http, reminder.EnvIgnore, map[string]string{reminder.EnvIgnore: "customer_id, unsubscribed"}},
		{ses, reminder.EnvSESFrom, map[string]string{reminder.EnvSESFrom: ""}},
		{ses, reminder.EnvSESFrom, map[string]string{reminder.EnvSESFrom: "billing"}},
	} {
		env := map[string]string{}
		maps.Copy(env, tt.base)
		maps.Copy(env, tt.bad)
		_, err := reminder.ParseConfig(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), tt.name) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: %v, want it to name %s", tt.bad, err, tt.name)
			continue
		}
		if !strings.Contains(err.Error(), "want ") {
			t.Errorf("%v: %v, want it to say what is expected", tt.bad, err)
		}
		if !strings.Contains(err.Error(), ": correct the environment that the function is deployed with") {
			t.Errorf("%v: %v, want it to say what to do", tt.bad, err)
		}
	}
}

func TestPayload(t *testing.T) {
	p := payload()
	key, err := p.Key()
	if err != nil || key != "reminder.send/renewal-1042/email/v3" {
		t.Errorf("key %q, %v", key, err)
	}
	body, err := p.Job(t0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := job.Decode([]byte(body))
	if err != nil || !e.NotBefore.Equal(t0) || !e.Deadline.Equal(p.ExpiresAt) {
		t.Errorf("envelope %+v, %v", e, err)
	}
	read, err := job.Define(job.Definition[reminder.Payload](reminder.Definition())).Read(e.Payload)
	if err != nil || read.Payload != any(p) {
		t.Errorf("read %+v, %v", read.Payload, err)
	}
	if read.Key != key {
		t.Errorf("the kind's key is %q, the payload's %q", read.Key, key)
	}
	if !read.ExpiresAt.Equal(p.ExpiresAt) {
		t.Errorf("expires at %v, want %v", read.ExpiresAt, p.ExpiresAt)
	}
	for name, spoil := range map[string]func(*reminder.Payload){
		"reminderId":           func(p *reminder.Payload) { p.ReminderID = "" },
		"subscriptionId":       func(p *reminder.Payload) { p.SubscriptionID = " " },
		"channel":              func(p *reminder.Payload) { p.Channel = "fax" },
		"template":             func(p *reminder.Payload) { p.Template = "a\nb" },
		"templateVersion":      func(p *reminder.Payload) { p.TemplateVersion = "" },
		"recipient":            func(p *reminder.Payload) { p.Recipient = "" },
		"plan":                 func(p *reminder.Payload) { p.Plan = "" },
		"renewsAt":             func(p *reminder.Payload) { p.RenewsAt = time.Time{} },
		"expiresAt":            func(p *reminder.Payload) { p.ExpiresAt = time.Time{} },
		"renewsAt is no date":  func(p *reminder.Payload) { p.RenewsAt = time.Unix(0, 1) },
		"expiresAt is no date": func(p *reminder.Payload) { p.ExpiresAt = time.UnixMicro(1796378400000000).AddDate(1000, 0, 0) },
	} {
		p := payload()
		spoil(&p)
		if _, err := p.Job(t0); err == nil || !strings.Contains(err.Error(), name) || job.AsFailure(err).Class != job.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The policy is a table in code and a table in the docs; both are the same.
func TestThePolicyIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/reminders.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reminder.Policy() {
		if line := "| " + r.When + " | dropped: `terminal`, outcome `" + r.Outcome + "` |"; !strings.Contains(string(doc), line) {
			t.Errorf("docs/reminders.md has no line %q", line)
		}
	}
	for _, name := range []string{reminder.EnvProvider, reminder.EnvURL, reminder.EnvSecret, reminder.EnvSecretARN, reminder.EnvTimeout,
		reminder.EnvDeduplicates, reminder.EnvLooksUp, reminder.EnvKeyWindow, reminder.EnvSettleTime, reminder.EnvBareYes, reminder.EnvRefusals, reminder.EnvSESFrom, reminder.EnvSESSet, reminder.EnvIgnore} {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/reminders.md does not explain %s", name)
		}
	}
}

// deadlines is an HTTP client that notes whether a request has a bound.
type deadlines struct{ bound []bool }

func (d *deadlines) Do(req *http.Request) (*http.Response, error) {
	_, bound := req.Context().Deadline()
	d.bound = append(d.bound, bound)
	return nil, errors.New("no connection")
}

// A dead connection to Secrets Manager costs one try: each has a bound of its own, and not only the call.
func TestReadingTheSecretBoundsEachTry(t *testing.T) {
	client := &deadlines{}
	c := reminder.Config{Provider: reminder.ProviderHTTP, URL: "https://provider.example", SecretARN: "arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf"}
	cfg := aws.Config{Region: "eu-central-1", HTTPClient: client, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), RetryMaxAttempts: 1}
	if _, err := c.NewProvider(cfg, time.Now).Send(t.Context(), "k1", payload()); err == nil {
		t.Fatal("sent without a secret")
	}
	if len(client.bound) != 1 || !client.bound[0] {
		t.Errorf("requests with a bound: %v, want one", client.bound)
	}
}
