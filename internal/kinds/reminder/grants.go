package reminder

import (
	"strings"

	"acklast"
)

// grants lets the worker read subscriptions and reach the provider that the environment chooses, and no
// other.
func grants(getenv func(string) string) ([]acklast.Grant, error) {
	c, err := ParseConfig(getenv)
	if err != nil {
		return nil, err
	}
	all := []acklast.Grant{{Table: table, Actions: []string{"dynamodb:GetItem"}}}
	switch {
	case c.Provider == ProviderHTTP && c.SecretARN != "":
		// A secret under a key of its own needs that key's policy to let the worker decrypt.
		all = append(all, acklast.Grant{Resource: c.SecretARN, Actions: []string{"secretsmanager:GetSecretValue"}})
	case c.Provider == ProviderSES:
		// SES asks for the identity that it verified, which is the address or its domain, and for what the
		// e-mail is made with. Templates are the producers' to name, and sending one has an action of its own
		// in SES's first API.
		_, domain, _ := strings.Cut(c.SESFrom, "@")
		resources := []string{"identity/" + c.SESFrom, "identity/" + domain, "template/*"}
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
