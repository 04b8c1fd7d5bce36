package acklast

import (
	"context"
	"errors"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// smokeRetention is how long a smoke job's entry and counter are kept. It leaves a check enough time, and both are
// over within the hour.
const smokeRetention = 30 * time.Minute

// smoke is the engine's own kind. Both functions know it, beside the kinds that they are started with.
var smoke = define(Definition[job.SmokePayload]{
	Name:  job.SmokeKind,
	Key:   func(p job.SmokePayload) (string, []string) { return p.ID, nil },
	Check: func(p job.SmokePayload) error { return CheckID("id", p.ID) },
}, func(_ context.Context, s Services) (Runner[job.SmokePayload], error) {
	core := *s.core
	// The other entries are kept for weeks, so that no copy of a job comes after them. Here nothing is at stake.
	core.rules.Retention = smokeRetention
	return &smoker{core: &core}, nil
})

// smoker runs smoke jobs.
type smoker struct{ core *core }

// Run commits the job together with one more effect on its counter. Every delivery that finds the job done adds
// its message to the counter, so the sender knows when all are answered.
func (s *smoker) Run(ctx context.Context, j *Job[job.SmokePayload]) error {
	a := j.attempt
	a.services.core = s.core
	err := j.Commit(ctx, "smoked", s.core.store.SmokeEffect(j.Payload.ID, j.Now().Add(smokeRetention)))
	var refused *ledger.RefusedError
	if err == nil || errors.As(err, &refused) && refused.Entry.Status.Final() {
		if e := s.core.store.FinishSmoke(ctx, j.Payload.ID, a.delivery.OriginalID()); e != nil {
			j.Log.Warn("smoke job's counter not told", telemetry.KeyError, e.Error())
		}
	}
	return err
}

// withSmoke adds the engine's own kind.
func withSmoke(kinds []Kind) []Kind {
	return append(append(make([]Kind, 0, len(kinds)+1), kinds...), smoke)
}
