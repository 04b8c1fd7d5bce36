package acklast

import (
	"context"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Raws are Services with the engine's own parts. Temporary, until effects have their own runner.
type Raws struct {
	Services
	Ledger                 *dynamo.Store
	Rules                  ledger.Rules
	LeaseSkew, AttemptLeft time.Duration
}

// Raw makes a kind of an internal one. Temporary.
func Raw(k job.Kind, start func(context.Context, Raws) (job.Kind, error)) Kind {
	return Kind{kind: k, start: func(ctx context.Context, s Services) (job.Kind, error) {
		return start(ctx, Raws{Services: s, Ledger: s.core.store, Rules: s.core.rules, LeaseSkew: s.core.leaseSkew, AttemptLeft: s.core.attemptLeft})
	}}
}

// Reading is the catalogue of kinds whose jobs are only read. Temporary, until nothing outside the
// functions reads bodies.
func Reading(kinds ...Kind) job.Catalogue { return catalogue(kinds) }
