package reminder

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"

	"acklast"
	"acklast/internal/job"
)

//go:embed sample.json
var sample string

// table is the name of the kind's table, behind the stack's name.
const table = "subscriptions"

// definition describes the kind. A late reminder expires, but that is for the kind itself to do and not
// for the worker: whether the entry has a call that nobody knows the end of comes first, and a reminder
// that was put back has its expiry and no longer the deadline of its body.
var definition = acklast.Definition[Payload]{
	Name: KindName,
	Key: func(p Payload) (string, []string) {
		return p.ReminderID, []string{string(p.Channel), p.TemplateVersion}
	},
	Check:   Payload.check,
	Late:    acklast.RunLate,
	Masked:  []string{"recipient"},
	Grants:  grants,
	Tables:  []acklast.Table{{Name: table, PartitionKey: "subscription_id"}},
	Samples: []acklast.Sample{{Name: "reminder-send", Body: sample}},
}

// Kind is the kind of job that sends a reminder.
func Kind() acklast.Kind {
	return acklast.Raw(job.Define(definition), func(_ context.Context, s acklast.Raws) (job.Kind, error) {
		c, err := ParseConfig(s.Getenv)
		if err != nil {
			return job.Kind{}, err
		}
		if most := s.AttemptLeft; c.Provider != ProviderNone && c.Timeout > most {
			return job.Kind{}, fmt.Errorf("%s is %v, but a record that is started has only %v to make its call", EnvTimeout, c.Timeout, most)
		}
		k := job.Define(definition)
		k.Run = NewSender(Options{
			Stack: s.Stack, Ledger: s.Ledger, Subscriptions: NewSubscriptions(s.DynamoDB, s.Table(table)),
			Provider: c.NewProvider(s.AWS, s.Now), Rules: s.Rules, Timeout: c.Timeout, LeaseSkew: s.LeaseSkew,
			Now: s.Now, Random: rand.Float64,
		}).run
		return k, nil
	})
}
