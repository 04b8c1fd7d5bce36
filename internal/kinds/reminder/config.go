package reminder

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/env"
	"acklast/internal/retry"
)

// The variables that choose the provider. Durations are in Go's form, such as "5s".
const (
	EnvProvider     = "ACKLAST_PROVIDER"
	EnvURL          = "ACKLAST_PROVIDER_URL"
	EnvSecret       = "ACKLAST_PROVIDER_SECRET"     //nolint:gosec // a variable's name
	EnvSecretARN    = "ACKLAST_PROVIDER_SECRET_ARN" //nolint:gosec // a variable's name
	EnvTimeout      = "ACKLAST_PROVIDER_TIMEOUT"
	EnvDeduplicates = "ACKLAST_PROVIDER_DEDUPLICATES"
	EnvLooksUp      = "ACKLAST_PROVIDER_LOOKS_UP"
	EnvKeyWindow    = "ACKLAST_PROVIDER_KEY_WINDOW"
	EnvSettleTime   = "ACKLAST_PROVIDER_SETTLE_TIME"
	EnvBareYes      = "ACKLAST_PROVIDER_BARE_YES"
	EnvRefusals     = "ACKLAST_PROVIDER_REFUSALS"
	EnvSESFrom      = "ACKLAST_SES_FROM"
	EnvSESSet       = "ACKLAST_SES_CONFIGURATION_SET"
	EnvSESSandbox   = "ACKLAST_SES_SANDBOX"
	EnvIgnore       = "ACKLAST_SUBSCRIPTION_IGNORE"
)

// variables says what each variable is for, and which setting of a deployment sets it.
var variables = []acklast.Variable{
	{Name: EnvProvider, Setting: "provider", Help: `the provider of reminders: "http", "ses", or nothing`},
	{Name: EnvTimeout, Setting: "providerTimeout", Help: "how long one call to the provider may take, such as 5s"},
	{Name: EnvURL, Setting: "providerUrl", Help: "the HTTP provider's base address"},
	{Name: EnvSecret, Help: "the secret that is sent to the HTTP provider as a bearer token"},
	{Name: EnvSecretARN, Setting: "providerSecretArn", Help: "the Secrets Manager secret that holds the bearer token"},
	{Name: EnvDeduplicates, Setting: "providerDeduplicates", Help: "true if the HTTP provider takes requests under one key for one request"},
	{Name: EnvLooksUp, Setting: "providerLooksUp", Help: "true if the HTTP provider tells by the key whether it accepted a request"},
	{Name: EnvKeyWindow, Setting: "providerKeyWindow", Help: "how long the HTTP provider remembers a key, such as 24h"},
	{Name: EnvSettleTime, Setting: "providerSettleTime", Help: "how long after a call the HTTP provider's look-up may not yet find its request, such as 10m; nothing if that is not known"},
	{Name: EnvBareYes, Setting: "providerBareYes", Help: `the statuses with which an empty or null body of the HTTP provider is an acceptance, such as 200,202; or "none"`},
	{Name: EnvRefusals, Setting: "providerRefusals", Help: `the error codes by which the HTTP provider itself says that it has not accepted a request, such as rate_limited,overloaded; or "none"`},
	{Name: EnvSESFrom, Setting: "sesFrom", Help: "the verified address that SES sends from"},
	{Name: EnvSESSet, Setting: "sesConfigurationSet", Help: "the configuration set of SES, or nothing"},
	{Name: EnvSESSandbox, Setting: "sesSandbox", Help: "true while the account is in SES's sandbox"},
	{Name: EnvIgnore, Setting: "subscriptionIgnore", Help: "the other attributes of a subscription that say nothing about consent, such as customer_id,created_at"},
}

// The known providers. With ProviderNone the worker starts and reminders are rejected.
const (
	ProviderNone = ""
	ProviderHTTP = "http"
	ProviderSES  = "ses"
)

// Abilities are a provider's.
type Abilities = acklast.Abilities

// Config chooses the provider that sends reminders.
type Config struct {
	// Provider is one of the constants above.
	Provider string
	// Timeout is the longest time of one call; 5 s by default.
	Timeout time.Duration

	// URL is the HTTP provider's base address.
	URL string
	// Secret, or the text of the Secrets Manager secret SecretARN, is sent to the HTTP provider as a bearer
	// token. If neither is set, none is sent.
	Secret, SecretARN string
	// Abilities are the HTTP provider's.
	Abilities Abilities
	// BareYes lists the statuses with which an empty or null body of the HTTP provider is an acceptance,
	// separated by commas, or is "none". "" means 200,201,202,204.
	BareYes string
	// Refusals lists the error codes by which the HTTP provider itself says that it has not accepted a request,
	// separated by commas, or is "none". A request that was answered with any other code may have been accepted. It may be
	// left out for a provider that deduplicates alone: with another one every error would make a reminder ambiguous.
	Refusals string

	// SESFrom is the verified identity SES sends from, SESSet its configuration set or "".
	SESFrom, SESSet string
	// SESSandbox says that the account is in SES's sandbox, where recipients are verified identities too.
	SESSandbox bool

	// Ignore lists the other attributes of a subscription that say nothing about consent, separated by commas. A
	// subscription with any other attribute is refused, since that may be an opt-out.
	Ignore string
}

// defaultTimeout is short enough that an invocation with only the worker's start margin left can still make a
// look-up or a call and complete the job.
const defaultTimeout = 5 * time.Second

// ParseConfig reads a Config from an environment. The error names each variable that is missing or
// wrong, and never a value that is a secret.
func ParseConfig(getenv func(string) string) (Config, error) {
	r := env.New(getenv)
	c := Config{
		Provider: getenv(EnvProvider), Timeout: r.Duration(EnvTimeout, env.Positive, defaultTimeout),
		URL: getenv(EnvURL), Secret: getenv(EnvSecret), SecretARN: getenv(EnvSecretARN),
		Abilities: Abilities{Deduplicates: r.Bool(EnvDeduplicates), LooksUp: r.Bool(EnvLooksUp), KeyWindow: r.Duration(EnvKeyWindow, env.Positive, 0), SettleTime: r.Duration(EnvSettleTime, env.Positive, 0)},
		BareYes:   getenv(EnvBareYes), Refusals: getenv(EnvRefusals),
		SESFrom: getenv(EnvSESFrom), SESSet: getenv(EnvSESSet), SESSandbox: r.Bool(EnvSESSandbox),
		Ignore: getenv(EnvIgnore),
	}
	for _, name := range listed(c.Ignore) {
		r.Check(name != "" && !slices.Contains(attributes, name), "%s is %q, want names of attributes with commas, and none of %q", EnvIgnore, c.Ignore, attributes)
	}
	switch c.Provider {
	case ProviderNone:
	case ProviderHTTP:
		u, err := url.Parse(c.URL)
		r.Check(err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https"), "%s is not the URL of a provider, want one such as https://provider.example/v1; its %d bytes are not shown, since a URL can hold a password", EnvURL, len(c.URL))
		r.Check(c.SecretARN == "" || secretARN.MatchString(c.SecretARN),
			"%s is no ARN of a secret, want one such as arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf; its %d bytes are not shown, since they may be the secret itself", EnvSecretARN, len(c.SecretARN))
		r.Check(c.Secret == "" || c.SecretARN == "", "%s and %s are both set, want one", EnvSecret, EnvSecretARN)
		_, err = c.bareYes()
		r.Check(err == nil, `%s is %q, want statuses from 200 to 299 such as "200,202", or "none"`, EnvBareYes, c.BareYes)
		r.Check(c.Abilities.Deduplicates || c.Refusals != "", `%s is not set, but without it every error of a provider that does not deduplicate makes a reminder ambiguous, also a wrong secret: want the provider's own error codes, such as rate_limited,overloaded, or "none"`, EnvRefusals)
		for _, code := range c.refusals() {
			r.Check(code != "" && !ofAnyone(code), `%s is %q, want the provider's own error codes with commas, such as rate_limited,overloaded, or "none"; the text of a status is no code, since proxies answer with it too`, EnvRefusals, c.Refusals)
		}
		r.Check(!c.Abilities.Deduplicates && !c.Abilities.LooksUp || c.Abilities.KeyWindow > 0,
			"%s is not set, but a provider that deduplicates or looks up remembers a key for some time only: want that time, such as 24h", EnvKeyWindow)
		r.Check(c.Abilities.SettleTime == 0 || c.Abilities.LooksUp, "%s is set, but only a provider that looks up settles anything: want %s to be true, or the settle time left out", EnvSettleTime, EnvLooksUp)
	case ProviderSES:
		r.Check(mailbox.MatchString(c.SESFrom), "%s is %q, want the e-mail address that SES sends from", EnvSESFrom, c.SESFrom)
	default:
		r.Check(false, "%s is %q, want %q, %q or nothing", EnvProvider, c.Provider, ProviderHTTP, ProviderSES)
	}
	if err := r.Err(); err != nil {
		return Config{}, fmt.Errorf("reminder configuration: %w", err)
	}
	return c, nil
}

var (
	secretARN = regexp.MustCompile(`^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[^*?\s]+$`)
	// Both become resources of a policy, where * and ? would match anything.
	mailbox = regexp.MustCompile(`^[^@\s*?]+@[^@\s*?]+$`)
)

// envAttemptTime is the worker's own variable: how long one attempt may take.
const envAttemptTime = "ACKLAST_ATTEMPT_TIME"

var configurationSet = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// deployable returns what is wrong with a configuration for a deployed worker, whose environment getenv reads. It says
// more than ParseConfig: a deployment has no variable that does nothing, and no secret in clear text.
func (c Config) deployable(getenv func(string) string) error {
	r := env.New(getenv)
	attempt := r.Duration(envAttemptTime, env.Positive, 0)
	r.Check(c.Provider == ProviderNone || attempt == 0 || c.Timeout <= retry.LongestCall(attempt),
		"%s is %v, but an attempt has only %v to make its call: nine tenths of %s = %v", EnvTimeout, c.Timeout, retry.LongestCall(attempt), envAttemptTime, attempt)
	http, ses := []string{ProviderHTTP}, []string{ProviderSES}
	for _, v := range []struct {
		name string
		set  bool
		of   []string // the providers that it is for
	}{
		{EnvTimeout, getenv(EnvTimeout) != "", []string{ProviderHTTP, ProviderSES}},
		{EnvURL, c.URL != "", http},
		{EnvSecret, c.Secret != "", http},
		{EnvSecretARN, c.SecretARN != "", http},
		{EnvDeduplicates, c.Abilities.Deduplicates, http},
		{EnvLooksUp, c.Abilities.LooksUp, http},
		{EnvKeyWindow, c.Abilities.KeyWindow != 0, http},
		{EnvSettleTime, c.Abilities.SettleTime != 0, http},
		{EnvBareYes, c.BareYes != "", http},
		{EnvRefusals, c.Refusals != "", http},
		{EnvSESFrom, c.SESFrom != "", ses},
		{EnvSESSet, c.SESSet != "", ses},
		{EnvSESSandbox, c.SESSandbox, ses},
		{EnvIgnore, c.Ignore != "", []string{ProviderHTTP, ProviderSES}},
	} {
		r.Check(!v.set || slices.Contains(v.of, c.Provider), "%s is set, but %s is %q: it belongs to %s", v.name, EnvProvider, c.Provider, strings.Join(v.of, " and "))
	}
	r.Check(c.Provider != ProviderHTTP || c.SecretARN == "" || strings.HasPrefix(c.URL, "https://"),
		"%s is no https:// address, and the secret would travel to it in clear text: use https", EnvURL)
	r.Check(c.SESSet == "" || configurationSet.MatchString(c.SESSet),
		"%s is %q, but the name of a configuration set has 1 to 64 letters, digits, hyphens and underscores", EnvSESSet, c.SESSet)
	return r.Err()
}

// abilities are those of the chosen provider.
func (c Config) abilities() Abilities {
	if c.Provider == ProviderHTTP {
		return c.Abilities
	}
	return Abilities{} // SES has neither a key nor a look-up
}

// refusals are the codes of Refusals.
func (c Config) refusals() []string {
	if c.Refusals == "none" {
		return nil
	}
	return listed(c.Refusals)
}

// listed are the words of a list with commas.
func listed(list string) []string {
	if list == "" {
		return nil
	}
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// bareYes are the statuses of BareYes.
func (c Config) bareYes() ([]int, error) {
	switch c.BareYes {
	case "":
		return []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent}, nil
	case "none":
		return nil, nil
	}
	var all []int
	for status := range strings.SplitSeq(c.BareYes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(status))
		if err != nil || n < 200 || n > 299 {
			return nil, fmt.Errorf("%q is no status of success", status)
		}
		all = append(all, n)
	}
	return all, nil
}

// Environment is the environment that ParseConfig reads the same Config from.
func (c Config) Environment() map[string]string {
	env := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			env[name] = value
		}
	}
	yes := func(name string, b bool) {
		if b {
			env[name] = "true"
		}
	}
	duration := func(name string, d time.Duration) {
		if d > 0 {
			env[name] = d.String()
		}
	}
	set(EnvProvider, c.Provider)
	duration(EnvTimeout, c.Timeout)
	set(EnvURL, c.URL)
	set(EnvSecret, c.Secret)
	set(EnvSecretARN, c.SecretARN)
	yes(EnvDeduplicates, c.Abilities.Deduplicates)
	yes(EnvLooksUp, c.Abilities.LooksUp)
	duration(EnvKeyWindow, c.Abilities.KeyWindow)
	duration(EnvSettleTime, c.Abilities.SettleTime)
	set(EnvBareYes, c.BareYes)
	set(EnvRefusals, c.Refusals)
	set(EnvSESFrom, c.SESFrom)
	set(EnvSESSet, c.SESSet)
	yes(EnvSESSandbox, c.SESSandbox)
	set(EnvIgnore, c.Ignore)
	return env
}

// NewProvider builds the provider that the configuration chooses; nil for none.
func (c Config) NewProvider(cfg aws.Config, now func() time.Time) Provider {
	switch c.Provider {
	case ProviderHTTP:
		secret := StaticSecret(c.Secret)
		if c.SecretARN != "" {
			secret = ManagedSecret(secretsmanager.NewFromConfig(awsclient.Bounded(cfg)), c.SecretARN)
		}
		yes, _ := c.bareYes() // ParseConfig refuses a wrong list, which would count as none
		return NewHTTP(c.URL, Declared{BareYes: yes, Refusals: c.refusals()}, secret, now)
	case ProviderSES:
		return NewSES(sesv2.NewFromConfig(cfg), c.SESFrom, c.SESSet, now)
	}
	return nil
}
