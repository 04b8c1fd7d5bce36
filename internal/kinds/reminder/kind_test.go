package reminder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sivchari/kumo"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/kinds/reminder"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// A wrong variable keeps the kind from starting, and with it the worker.
func TestTheKindNamesAWrongVariableAtItsStart(t *testing.T) {
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"SES without its sender": {map[string]string{reminder.EnvProvider: "ses"}, reminder.EnvSESFrom},
		"a call longer than an attempt": {map[string]string{
			reminder.EnvProvider: "http", reminder.EnvURL: "https://p.example", reminder.EnvRefusals: "none", reminder.EnvTimeout: "30s",
		}, reminder.EnvTimeout},
	} {
		services := acklast.NewServices(awsAt(t, "http://127.0.0.1:1"), "s", time.Now)
		services.Getenv = environment(tt.env)
		if _, err := reminder.Kind().Start(t.Context(), services); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Start() = %v, want an error that names %s", name, err, tt.want)
		}
	}
}

// bench runs reminders on the embedded AWS.
type bench struct {
	*testing.T
	subscriptions *reminder.Subscriptions
	services      acklast.Services
	provider      *fakeprovider.Server
}

func newBench(t *testing.T) *bench {
	srv := kumo.NewServer()
	t.Cleanup(srv.Close)
	cfg := awsAt(t, srv.URL)
	names := topology.NamesOf("kind")
	if err := dynamo.CreateTables(t.Context(), awsclient.DynamoDB(cfg), names, acklast.Describe(reminder.Kind())[0].Tables...); err != nil {
		t.Fatal(err)
	}
	b := &bench{
		T: t, subscriptions: reminder.NewSubscriptions(awsclient.DynamoDB(cfg), names.Table("subscriptions")),
		services: acklast.NewServices(cfg, "kind", func() time.Time { return t0 }), provider: box(t, fakeprovider.Options{}),
	}
	b.services.Getenv = environment(map[string]string{reminder.EnvProvider: "http", reminder.EnvURL: b.provider.URL(), reminder.EnvRefusals: "none"})
	return b
}

// try sends one reminder about a subscription.
func (b *bench) try(p reminder.Payload) acklast.Tried {
	b.Helper()
	body, err := p.Job(time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	kind, err := reminder.Kind().Start(b.Context(), b.services)
	if err != nil {
		b.Fatal(err)
	}
	got, err := kind.Try(b.Context(), body)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func TestThePolicy(t *testing.T) {
	b := newBench(t)
	for outcome, change := range map[string]func(*reminder.Subscription){
		reminder.Cancelled:    func(s *reminder.Subscription) { s.Cancelled = true },
		reminder.Renewed:      func(s *reminder.Subscription) { s.RenewsAt = s.RenewsAt.Add(time.Hour) },
		reminder.Unsubscribed: func(s *reminder.Subscription) { s.Unsubscribed = []reminder.Channel{reminder.SMS, reminder.Email} },
		reminder.PlanChanged:  func(s *reminder.Subscription) { s.Plan = "basic" },
		reminder.Sent:         func(s *reminder.Subscription) { s.Unsubscribed = []reminder.Channel{reminder.SMS} },
	} {
		p := payload()
		p.ReminderID, p.SubscriptionID, p.Recipient = outcome, "sub-"+outcome, "customer-"+outcome
		sub := reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}
		change(&sub)
		if err := b.subscriptions.Put(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		if got := b.try(p); got.Verdict != acklast.Committed || got.Outcome != outcome {
			t.Errorf("%s: %+v", outcome, got)
		}
		want := 0
		if outcome == reminder.Sent {
			want = 1
		}
		if got := len(b.provider.Accepted(p.Recipient)); got != want {
			t.Errorf("%s: %d acceptances, want %d", outcome, got, want)
		}
	}
}

// The subscription keeps milliseconds, whatever the precision of the payload, and its writer may round.
func TestRenewalsAreComparedInTheTablesPrecision(t *testing.T) {
	b := newBench(t)
	for name, tt := range map[string]struct {
		payload, table time.Duration // after t0
		want           string
	}{
		"cut off":             {500_500 * time.Microsecond, 500 * time.Millisecond, reminder.Sent},
		"rounded up":          {500_500 * time.Microsecond, 501 * time.Millisecond, reminder.Sent},
		"a millisecond later": {500 * time.Millisecond, 501 * time.Millisecond, reminder.Renewed},
	} {
		p := payload()
		p.ReminderID, p.SubscriptionID, p.RenewsAt = name, "sub-"+name, t0.Add(tt.payload)
		if err := b.subscriptions.Put(t.Context(), reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: t0.Add(tt.table)}); err != nil {
			t.Fatal(err)
		}
		if got := b.try(p); got.Outcome != tt.want {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

func TestAReminderThatCannotBeSent(t *testing.T) {
	b := newBench(t)
	if got := b.try(payload()); got.Verdict != acklast.Failed || !strings.Contains(fmt.Sprint(got.Err), "sub-7") {
		t.Errorf("no subscription: %+v", got)
	}
	late := payload()
	late.ReminderID, late.ExpiresAt = "late", t0
	if got := b.try(late); got.Verdict != acklast.Committed || got.Outcome != reminder.TooLate {
		t.Errorf("expired: %+v", got)
	}
	b.services.Getenv = environment(nil)
	if got := b.try(payload()); got.Verdict != acklast.Failed || !strings.Contains(fmt.Sprint(got.Err), reminder.EnvProvider) {
		t.Errorf("no provider: %+v", got)
	}
	if sends, _ := b.provider.Requests(); sends != 0 {
		t.Errorf("%d requests at the provider", sends)
	}
}

// The worker may read subscriptions, and reach only the provider that the environment chooses.
func TestGrants(t *testing.T) {
	const secret = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf"
	grants := reminder.Kind().Grants
	for name, tt := range map[string]struct {
		config reminder.Config
		want   []string
	}{
		"none":                  {reminder.Config{}, nil},
		"http":                  {reminder.Config{Provider: "http", URL: "https://p.example", Refusals: "none", SecretARN: secret}, []string{secret + " secretsmanager:GetSecretValue"}},
		"http without a secret": {reminder.Config{Provider: "http", URL: "https://p.example", Refusals: "none"}, nil},
		"ses": {reminder.Config{Provider: "ses", SESFrom: "billing@example.com"}, []string{
			"arn:{partition}:ses:{region}:{account}:identity/billing@example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:identity/example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:template/* ses:SendEmail ses:SendTemplatedEmail",
		}},
		"ses from below a verified domain": {reminder.Config{Provider: "ses", SESFrom: "billing@mail.example.com"}, []string{
			"arn:{partition}:ses:{region}:{account}:identity/billing@mail.example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:identity/mail.example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:identity/example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:template/* ses:SendEmail ses:SendTemplatedEmail",
		}},
		"ses in the sandbox, where recipients are identities": {reminder.Config{Provider: "ses", SESFrom: "billing@example.com", SESSandbox: true}, []string{
			"arn:{partition}:ses:{region}:{account}:identity/* ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:template/* ses:SendEmail ses:SendTemplatedEmail",
		}},
		"ses with a configuration set": {reminder.Config{Provider: "ses", SESFrom: "billing@example.com", SESSet: "renewals"}, []string{
			"arn:{partition}:ses:{region}:{account}:identity/billing@example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:identity/example.com ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:template/* ses:SendEmail ses:SendTemplatedEmail",
			"arn:{partition}:ses:{region}:{account}:configuration-set/renewals ses:SendEmail ses:SendTemplatedEmail",
		}},
	} {
		all, err := grants(environment(tt.config.Environment()))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, g := range all {
			got = append(got, g.Table+g.Resource+" "+strings.Join(g.Actions, " "))
		}
		if want := append([]string{"subscriptions dynamodb:GetItem"}, tt.want...); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if _, err := grants(environment(map[string]string{reminder.EnvProvider: "smtp"})); err == nil || !strings.Contains(err.Error(), reminder.EnvProvider) {
		t.Errorf("a wrong environment: %v, want it to name %s", err, reminder.EnvProvider)
	}
}

// A deployment is refused, with the variable's name, for what would only fail later or leak a secret.
func TestADeploymentIsChecked(t *testing.T) {
	set := func(more ...string) map[string]string {
		all := map[string]string{worker.EnvAttemptTime: "6s"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	http := []string{reminder.EnvProvider, "http", reminder.EnvURL, "https://p.example", reminder.EnvRefusals, "none"}
	ses := []string{reminder.EnvProvider, "ses", reminder.EnvSESFrom, "a@example.com"}
	for want, env := range map[string]map[string]string{
		`ACKLAST_PROVIDER is "smtp", want "http", "ses" or nothing`:                     set(reminder.EnvProvider, "smtp"),
		"ACKLAST_PROVIDER_URL is not the URL of a provider":                             set(append(http, reminder.EnvURL, "")...),
		"ACKLAST_PROVIDER_KEY_WINDOW is not set, but a provider that deduplicates":      set(append(http, reminder.EnvDeduplicates, "true")...),
		"ACKLAST_PROVIDER_SECRET_ARN is no ARN of a secret":                             set(append(http, reminder.EnvSecretARN, "s3cret")...),
		`ACKLAST_SES_FROM is "example.com", want the e-mail address that SES sends`:     set(reminder.EnvProvider, "ses", reminder.EnvSESFrom, "example.com"),
		`ACKLAST_SES_FROM is "*@example.com", want the e-mail address`:                  set(reminder.EnvProvider, "ses", reminder.EnvSESFrom, "*@example.com"),
		`ACKLAST_SES_CONFIGURATION_SET is "all/*", but the name of`:                     set(append(ses, reminder.EnvSESSet, "all/*")...),
		"ACKLAST_PROVIDER_TIMEOUT is 6s, but an attempt has only 5.4s to make its call": set(append(ses, reminder.EnvTimeout, "6s")...),
		`ACKLAST_PROVIDER_URL is set, but ACKLAST_PROVIDER is "": it belongs to http`:   set(reminder.EnvURL, "https://p.example"),
		`ACKLAST_SES_FROM is set, but ACKLAST_PROVIDER is "http": it belongs to ses`:    set(append(http, reminder.EnvSESFrom, "a@example.com")...),
		"ACKLAST_PROVIDER_URL is no https:// address, and the secret would travel": set(append(http, reminder.EnvURL, "http://p.example",
			reminder.EnvSecretARN, "arn:aws:secretsmanager:eu-central-1:123456789012:secret:p-AbCdEf")...),
		"ACKLAST_PROVIDER_REFUSALS is not set, but without it every error": set(reminder.EnvProvider, "http", reminder.EnvURL, "https://p.example"),
	} {
		_, err := reminder.Kind().Grants(environment(env))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v:\n got %v\nwant %s", env, err, want)
		} else if strings.Contains(err.Error(), "; ACKLAST_") {
			t.Errorf("%v also reports something else: %v", env, err)
		}
	}
}

// The page about deployments has each setting of the kind.
func TestSettingsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range acklast.Describe(reminder.Kind())[0].Environment {
		if v.Setting != "" && !strings.Contains(string(doc), "| `"+v.Setting+"` |") {
			t.Errorf("docs/deploy.md has no line for %s", v.Setting)
		}
		if (v.Setting == "") != (v.Name == reminder.EnvSecret) { // which belongs into Secrets Manager
			t.Errorf("the setting of %s is %q", v.Name, v.Setting)
		}
	}
}

// The description lists every variable of a configuration.
func TestTheDescriptionListsTheEnvironment(t *testing.T) {
	d := acklast.Describe(reminder.Kind())[0]
	full := reminder.Config{Provider: "x", Timeout: 1, URL: "x", Secret: "x", SecretARN: "x", BareYes: "x", Refusals: "x", SESFrom: "x", SESSet: "x", SESSandbox: true, Ignore: "x",
		Abilities: reminder.Abilities{Deduplicates: true, LooksUp: true, KeyWindow: 1, SettleTime: 1}}
	var want, got []string
	for name := range full.Environment() {
		want = append(want, name)
	}
	for _, v := range d.Environment {
		got = append(got, v.Name)
		if v.Help == "" {
			t.Errorf("%s has no help", v.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the description lists %q, want %q", got, want)
	}
	if !slices.Equal(d.Masked, []string{"recipient"}) {
		t.Errorf("masked %q", d.Masked)
	}
	if !json.Valid([]byte(d.Samples[0].Body)) {
		t.Error("the sample is no JSON")
	}
}

// The kind keeps the worker's promises with a provider that has both abilities: there is one reminder, whatever
// is repeated or lost.
func TestTheKindKeepsTheWorkersPromises(t *testing.T) {
	provider := box(t, fakeprovider.Options{Deduplicates: true, LooksUp: true})
	before := 0
	acklast.CheckKind(t, reminder.Kind(), acklast.CheckOptions{
		Getenv: environment(map[string]string{
			reminder.EnvProvider: "http", reminder.EnvURL: provider.URL(), reminder.EnvKeyWindow: "24h",
			reminder.EnvDeduplicates: "true", reminder.EnvLooksUp: "true",
		}),
		Seed: func(ctx context.Context, s acklast.Services) error {
			provider.Forget()
			before = len(provider.Accepted(""))
			return reminder.NewSubscriptions(s.DynamoDB, s.Table("subscriptions")).Put(ctx,
				reminder.Subscription{ID: "sub-7", Plan: "pro", RenewsAt: time.Date(2026, 12, 4, 10, 0, 0, 0, time.UTC)})
		},
		Effects: func() int { return len(provider.Accepted("")) - before },
	})
}
