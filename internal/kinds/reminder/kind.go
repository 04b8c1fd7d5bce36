package reminder

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"acklast"
)

//go:embed sample.json
var sample string

// table is the name of the kind's table, behind the stack's name.
const table = "subscriptions"

// Kind is the kind of job that sends a reminder. A late reminder expires by its own expiry and not by the
// envelope's deadline. For the effect first looks up an earlier call, and a reminder that was put back has
// another deadline than its body.
func Kind() acklast.Kind { return acklast.Define(definition(), start) }

func definition() acklast.Definition[Payload] {
	return acklast.Definition[Payload]{
		Name: KindName,
		Key: func(p Payload) (string, []string) {
			return p.ReminderID, []string{string(p.Channel), p.TemplateVersion}
		},
		Check:       Payload.check,
		ExpiresAt:   func(p Payload) time.Time { return p.ExpiresAt },
		Late:        acklast.RunLate,
		Masked:      []string{"recipient"},
		Tables:      []acklast.Table{{Name: table, PartitionKey: "subscription_id"}},
		Grants:      grants,
		Environment: variables,
		Samples:     []acklast.Sample{{Name: "reminder-send", Body: sample}},
	}
}

func start(_ context.Context, s acklast.Services) (acklast.Runner[Payload], error) {
	c, err := ParseConfig(s.Getenv)
	if err != nil {
		return nil, err
	}
	provider := c.NewProvider(s.AWS, s.Now)
	if provider == nil {
		return acklast.RunnerFunc[Payload](func(context.Context, *acklast.Job[Payload]) error {
			return acklast.Rejected("no provider is configured: set %s", EnvProvider)
		}), nil
	}
	runner, err := acklast.NewEffect(s, acklast.Effect[Payload]{
		Plan: planner{NewSubscriptions(s.DynamoDB, s.Table(table), listed(c.Ignore)...)}.plan,
		Send: provider.Send, Lookup: provider.Lookup, Abilities: c.abilities(), Timeout: c.Timeout,
	})
	if err != nil { // ParseConfig has checked the rest
		return nil, fmt.Errorf("%s: %w", EnvTimeout, err)
	}
	return runner, nil
}

// planner reads a reminder's subscription before the reminder is sent.
type planner struct{ subscriptions *Subscriptions }

func (x planner) plan(ctx context.Context, p Payload) (drop string, err error) {
	s, err := x.subscriptions.Get(ctx, p.SubscriptionID)
	if errors.Is(err, ErrNotFound) {
		return "", acklast.Rejected("%w", err)
	} else if err != nil {
		return "", err
	}
	return dropped(p, s), nil
}

// grants lets the worker read subscriptions and reach the provider that the environment chooses, and no
// other.
func grants(getenv func(string) string) ([]acklast.Grant, error) {
	c, err := ParseConfig(getenv)
	if err != nil {
		return nil, err
	}
	if err := c.deployable(getenv); err != nil {
		return nil, fmt.Errorf("reminder configuration: %w", err)
	}
	all := []acklast.Grant{{Table: table, Actions: []string{"dynamodb:GetItem"}}}
	switch {
	case c.Provider == ProviderHTTP && c.SecretARN != "":
		// If the secret has its own encryption key, that key's policy also has to let the worker decrypt.
		all = append(all, acklast.Grant{Resource: c.SecretARN, Actions: []string{"secretsmanager:GetSecretValue"}})
	case c.Provider == ProviderSES:
		// SES checks the verified identity, which is the address, its domain or a domain above that, and the parts
		// of which the e-mail is made. Producers choose the templates. Sending a template has an action of its own
		// in SES's first API.
		resources := []string{"identity/" + c.SESFrom}
		for _, domain, _ := strings.Cut(c.SESFrom, "@"); strings.Contains(domain, "."); _, domain, _ = strings.Cut(domain, ".") {
			resources = append(resources, "identity/"+domain)
		}
		if c.SESSandbox {
			resources = []string{"identity/*"} // recipients are identities too
		}
		resources = append(resources, "template/*")
		if c.SESSet != "" {
			resources = append(resources, "configuration-set/"+c.SESSet)
		}
		for _, r := range resources {
			all = append(all, acklast.Grant{
				Resource: "arn:{partition}:ses:{region}:{account}:" + r, Actions: []string{"ses:SendEmail", "ses:SendTemplatedEmail"},
			})
		}
	}
	return all, nil
}
