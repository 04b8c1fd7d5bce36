package acklast

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// A wrongly defined effect keeps its kind from starting.
func TestAWrongEffectDoesNotStart(t *testing.T) {
	send := func(context.Context, string, struct{}) (string, error) { return "", nil }
	for name, tt := range map[string]struct {
		effect Effect[struct{}]
		late   LatePolicy
		want   string
	}{
		"no send":                    {Effect[struct{}]{Timeout: time.Second}, RunLate, "Send"},
		"no timeout":                 {Effect[struct{}]{Send: send}, RunLate, "timeout"},
		"longer than an attempt":     {Effect[struct{}]{Send: send, Timeout: time.Minute}, RunLate, "1m0s"},
		"looks up without a look-up": {Effect[struct{}]{Send: send, Timeout: time.Second, Abilities: Abilities{LooksUp: true, KeyWindow: time.Hour}}, RunLate, "Lookup"},
		"no key window":              {Effect[struct{}]{Send: send, Timeout: time.Second, Abilities: Abilities{Deduplicates: true}}, RunLate, "key window"},
		"a settle time below zero":   {Effect[struct{}]{Send: send, Timeout: time.Second, Abilities: Abilities{SettleTime: -1}}, RunLate, "settle time"},
		"settles without a look-up":  {Effect[struct{}]{Send: send, Timeout: time.Second, Abilities: Abilities{Deduplicates: true, KeyWindow: time.Hour, SettleTime: time.Minute}}, RunLate, "looks up"},
		"forgets before it settles":  {Effect[struct{}]{Send: send, Lookup: send, Timeout: time.Second, Abilities: Abilities{LooksUp: true, KeyWindow: time.Hour, SettleTime: time.Hour - 2*time.Minute}}, RunLate, "too short for a settle time"},
		"expires late":               {Effect[struct{}]{Send: send, Timeout: time.Second}, ExpireLate, "ExpiresAt"},
	} {
		kind := Define(Definition[struct{}]{Name: "note.send", Late: tt.late, Key: func(struct{}) (string, []string) { return "n", nil }},
			func(_ context.Context, s Services) (Runner[struct{}], error) { return NewEffect(s, tt.effect) })
		if _, err := kind.Start(t.Context(), NewServices(aws.Config{}, "s", time.Now)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Start() = %v, want an error that says %q", name, err, tt.want)
		}
	}
}
