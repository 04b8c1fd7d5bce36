package acklast

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// BatchRunner is a Runner that can also attempt several jobs together. Use it for jobs that share something,
// such as a resource whose item all of them change: side by side their transactions would cancel each other. A
// runner that is not a BatchRunner attempts every job alone.
type BatchRunner[P any] interface {
	Runner[P]
	// Together names the thing that a job shares with others, such as its resource. The worker passes the jobs
	// of one batch with the same name to RunBatch. It passes a job that shares nothing, or has the name "", to
	// Run.
	Together(payload P) string
	// RunBatch makes one attempt at each job. It returns one error for each, in the same order, with the
	// meaning of Run's. The jobs' keys differ.
	RunBatch(ctx context.Context, jobs []*Job[P]) []error
}

// CommitTogether ends several jobs with one outcome, in one transaction: each with its own items, and all with
// the items that they share. own returns a job's items. shared returns the shared items for the given jobs: a
// job that is refused is taken out, and the others commit without it.
//
// It returns one error for each job, with the meaning of Commit's. The Index of a *RefusedError counts the
// shared items after the job's own. No two jobs may have an item in common except the shared ones. One
// transaction holds 100 items; more jobs than that commit in several.
func CommitTogether[P any](ctx context.Context, outcome string, jobs []*Job[P],
	own func(j *Job[P]) []types.TransactWriteItem, shared func(jobs []*Job[P]) []types.TransactWriteItem) []error {
	errs := make([]error, len(jobs))
	var parts []dynamo.Part
	var places []int // of the parts among the jobs
	for i, j := range jobs {
		a := j.attempt
		if a.committed {
			errs[i] = errCommitted
			continue
		}
		if outcome == "" {
			errs[i] = errNoOutcome
			continue
		}
		parts = append(parts, dynamo.Part{
			Completion: a.services.core.rules.Complete(a.delivery, ledger.Done, outcome, a.services.Now()), Own: own(j),
		})
		places = append(places, i)
	}
	if len(parts) == 0 {
		return errs
	}
	store := jobs[0].attempt.services.core.store
	for k, err := range store.CommitTogether(ctx, parts, func(active []int) []types.TransactWriteItem {
		taking := make([]*Job[P], len(active))
		for n, k := range active {
			taking[n] = jobs[places[k]]
		}
		return shared(taking)
	}) {
		errs[places[k]] = jobs[places[k]].attempt.committing(outcome, err)
	}
	return errs
}

var errCommitted = errors.New("the job is committed already")

func together[P any](r BatchRunner[P]) func(job.Delivery) string {
	return func(d job.Delivery) string {
		payload, ok := d.Payload.(P)
		if !ok {
			return "" // Run reports the error
		}
		return r.Together(payload)
	}
}

func runBatch[P any](r BatchRunner[P], of func(context.Context, job.Delivery) (*Job[P], error)) func(context.Context, []job.Delivery) []job.Result {
	return func(ctx context.Context, deliveries []job.Delivery) []job.Result {
		results := make([]job.Result, len(deliveries))
		var jobs []*Job[P]
		var places []int
		for i, d := range deliveries {
			j, err := of(ctx, d)
			if err != nil {
				results[i] = job.Result{Err: err}
				continue
			}
			jobs, places = append(jobs, j), append(places, i)
		}
		errs := r.RunBatch(ctx, jobs)
		for n, j := range jobs {
			var err error
			switch {
			case len(errs) != len(jobs):
				err = fmt.Errorf("the kind's RunBatch returned %d errors for %d jobs", len(errs), len(jobs))
			default:
				err = errs[n]
			}
			results[places[n]] = j.attempt.result(err)
		}
		return results
	}
}
