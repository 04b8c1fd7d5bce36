package acklast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// NewServices builds services as StartWorker does, with the stack's default numbers. It is for tests
// that try a kind against an engine; the fields of the result may be replaced before they are used. Getenv finds every
// variable empty until it is replaced. A nil now is time.Now.
func NewServices(cfg aws.Config, stack string, now func() time.Time) Services {
	if now == nil {
		now = time.Now
	}
	db := awsclient.DynamoDB(cfg)
	n := topology.Default()
	return Services{
		AWS: cfg, DynamoDB: db, Stack: stack, Getenv: func(string) string { return "" }, Now: now, Log: slog.New(slog.DiscardHandler),
		core: &core{
			store: dynamo.New(db, topology.NamesOf(stack).LedgerTable, dynamo.Options{Now: now}),
			rules: ledger.Rules{
				Retry:       retry.Policy{Base: n.BackoffBase, Cap: n.BackoffCap, MaxAttempts: n.MaxAttempts, AttemptTime: n.AttemptTime},
				MaxRedrives: n.MaxRedrives, Retention: n.LedgerRetention,
			},
			leaseSkew: n.LeaseSkew, attemptLeft: n.StartMargin - n.HandoverMargin,
			metric: func(string, Metric, float64) bool { return true },
		},
	}
}

// Verdict is the result of one attempt.
type Verdict string

// The verdicts.
const (
	// Committed: the effect is durable, by this attempt.
	Committed Verdict = "committed"
	// Duplicate: the job had ended before.
	Duplicate Verdict = "duplicate"
	// Waiting: no attempt was made, because the job is not due, is held by another delivery, or is contended.
	Waiting Verdict = "waiting"
	// Isolated: the job is isolated in the ledger.
	Isolated Verdict = "isolated"
	// Unconfirmed: a call failed as a whole; whether it wrote is unknown.
	Unconfirmed Verdict = "unconfirmed"
	// Failed: the attempt failed.
	Failed Verdict = "failed"
)

var verdicts = map[job.Verdict]Verdict{
	job.Committed: Committed, job.Duplicate: Duplicate, job.Blocked: Waiting,
	job.FoundIsolated: Isolated, job.Unconfirmed: Unconfirmed, job.Failed: Failed,
}

// Tried is the result of Starter.Try.
type Tried struct {
	Verdict Verdict
	// Outcome is the job's outcome, if it has ended.
	Outcome string
	// Until is the time from which a waiting job may be tried again; zero means soon.
	Until time.Time
	// Err says why, for every verdict but Committed and Duplicate.
	Err error
}

// Starter tries the jobs of one kind, for tests. Kind.Start makes one.
type Starter struct {
	kind job.Kind
	now  func() time.Time
}

// Start builds the kind's runner from the services, for tests.
func (k Kind) Start(ctx context.Context, s Services) (*Starter, error) {
	switch {
	case k.start == nil:
		return nil, errNotDefined
	case s.core == nil:
		return nil, errors.New("Services that are made by hand cannot run jobs: use NewServices, and replace its fields")
	}
	running, err := k.start(ctx, s)
	if err != nil {
		return nil, err
	}
	return &Starter{kind: running, now: s.Now}, nil
}

// Try makes one attempt at a job, as one delivery without the worker: there is no queue and no budget, and a
// job that is not due is tried too. It is for tests.
func (s *Starter) Try(ctx context.Context, body string) (Tried, error) {
	d, err := s.delivery(body)
	if err != nil {
		return Tried{}, err
	}
	return tried(s.kind.Run(ctx, d)), nil
}

// TryBatch is Try for jobs that the worker would pass to a BatchRunner together.
func (s *Starter) TryBatch(ctx context.Context, bodies ...string) ([]Tried, error) {
	if s.kind.RunBatch == nil {
		return nil, fmt.Errorf("the runner of %s is no BatchRunner", s.kind.Name)
	}
	deliveries := make([]job.Delivery, len(bodies))
	for i, body := range bodies {
		d, err := s.delivery(body)
		if err != nil {
			return nil, fmt.Errorf("body %d: %w", i, err)
		}
		deliveries[i] = d
	}
	all := make([]Tried, len(bodies))
	for i, r := range s.kind.RunBatch(ctx, deliveries) {
		all[i] = tried(r)
	}
	return all, nil
}

func (s *Starter) delivery(body string) (job.Delivery, error) {
	read, err := job.NewCatalogue(s.kind).Read(body)
	if err != nil {
		return job.Delivery{}, fmt.Errorf("read job: %w", err)
	}
	id := uuid.NewString()
	return job.Delivery{
		Message: job.Message{ID: id, Body: body, SentAt: s.now()}, Lane: job.Source,
		Envelope: read.Envelope, Key: read.Key, Subject: read.Subject, Payload: read.Payload, Token: id,
	}, nil
}

func tried(r job.Result) Tried {
	return Tried{Verdict: verdicts[r.Verdict], Outcome: r.Detail, Until: r.Until, Err: r.Err}
}
