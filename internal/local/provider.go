package local

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"acklast/internal/local/fakeprovider"
	"acklast/internal/topology"
)

const (
	// providerTimeout is the longest time that one call to the provider may take.
	providerTimeout = 5 * time.Second
	// providerWindow is the key window in the settings when the provider never forgets a key.
	providerWindow = 24 * time.Hour
)

// providerEnvironment returns the variables by which a kind finds the fake provider. They are the variables of
// the kind reminder.send. Another kind finds the fake provider if it reads them too.
func providerEnvironment(p *fakeprovider.Server, o fakeprovider.Options, s topology.Settings) map[string]string {
	// Take two thirds of an attempt, so that the claim has time before the call. An attempt may have only the
	// time that remains of an invocation when its last record starts.
	timeout := min(s.AttemptTime, s.StartMargin-s.HandoverMargin) * 2 / 3
	env := map[string]string{
		"ACKLAST_PROVIDER":              "http",
		"ACKLAST_PROVIDER_URL":          p.URL(),
		"ACKLAST_PROVIDER_TIMEOUT":      min(timeout, providerTimeout).String(),
		"ACKLAST_PROVIDER_DEDUPLICATES": strconv.FormatBool(o.Deduplicates),
		"ACKLAST_PROVIDER_LOOKS_UP":     strconv.FormatBool(o.LooksUp),
		"ACKLAST_PROVIDER_KEY_WINDOW":   cmp.Or(o.KeyWindow, providerWindow).String(),
		"ACKLAST_PROVIDER_REFUSALS":     strings.Join(fakeprovider.Refusals, ","),
	}
	if o.SettleTime > 0 {
		env["ACKLAST_PROVIDER_SETTLE_TIME"] = o.SettleTime.String()
	}
	if o.Token != "" {
		env["ACKLAST_PROVIDER_SECRET"] = o.Token
	}
	return env
}
