package acklast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// Kind is one kind of job: its description, and the constructor of its runner. Define makes one.
type Kind struct {
	kind  job.Kind
	start func(ctx context.Context, s Services) (job.Kind, error)
}

// Grants returns what the worker may do for the kind in an environment, or what is wrong with that
// environment.
func (k Kind) Grants(getenv func(string) string) ([]Grant, error) {
	if k.kind.Grants == nil {
		return nil, nil
	}
	return k.kind.Grants(getenv)
}

// Runner makes attempts at the jobs of a kind. It may be used concurrently.
type Runner[P any] interface {
	// Run makes one attempt. It returns nil only after a Commit of the job succeeded. In every other case it
	// returns an error: one of Commit's unchanged, one of this package's failures, or an error of your own,
	// which counts as a failed attempt of class unknown. Run must return soon after ctx ends.
	Run(ctx context.Context, j *Job[P]) error
}

// RunnerFunc is a function that implements Runner.
type RunnerFunc[P any] func(ctx context.Context, j *Job[P]) error

// Run calls f.
func (f RunnerFunc[P]) Run(ctx context.Context, j *Job[P]) error { return f(ctx, j) }

// Define makes a kind from its definition and the constructor of its runner. The constructor is called once per
// process, and not at all where jobs are only read. Define panics when the definition lacks its name or its key
// or has wrong metrics, when the name is the engine's own, or when there is no constructor: these are mistakes in
// the program.
func Define[P any](d Definition[P], start func(ctx context.Context, s Services) (Runner[P], error)) Kind {
	if d.Name == job.SmokeKind {
		panic("acklast: kind " + d.Name + " is the engine's own, give yours another name")
	}
	return define(d, start)
}

func define[P any](d Definition[P], start func(ctx context.Context, s Services) (Runner[P], error)) Kind {
	kind := job.Define(job.Definition[P](d))
	if start == nil {
		panic("acklast: kind " + d.Name + " needs the constructor of its runner")
	}
	return Kind{kind: kind, start: func(ctx context.Context, s Services) (job.Kind, error) {
		s.late, s.attempts = kind.Late, kind.Attempts
		runner, err := start(ctx, s)
		if err == nil && runner == nil {
			err = errors.New("its constructor returned no runner")
		}
		if err != nil {
			return job.Kind{}, fmt.Errorf("start kind %s: %w", d.Name, err)
		}
		running := kind
		if x, ok := runner.(Explainer); ok {
			running.Explain = x.Explain
		}
		of := func(ctx context.Context, delivery job.Delivery) (*Job[P], error) {
			payload, ok := delivery.Payload.(P)
			if !ok {
				return nil, fmt.Errorf("the payload of %s is a %T", delivery.Key, delivery.Payload)
			}
			j := &Job[P]{
				Payload: payload, Key: delivery.Key, Subject: delivery.Subject, Attempt: delivery.Memory.Attempt + 1,
				Due: delivery.Due(), Deadline: delivery.Envelope.Deadline, Log: s.logger(ctx, delivery),
				attempt: &attempt{delivery: delivery, services: s, metrics: d.Metrics},
			}
			if d.ExpiresAt != nil {
				j.ExpiresAt = d.ExpiresAt(payload)
			}
			return j, nil
		}
		running.Run = func(ctx context.Context, delivery job.Delivery) job.Result {
			j, err := of(ctx, delivery)
			if err != nil {
				return job.Result{Err: err}
			}
			return j.attempt.result(runner.Run(ctx, j))
		}
		if batch, ok := runner.(BatchRunner[P]); ok {
			running.Together, running.RunBatch = together(batch), runBatch(batch, of)
		}
		return running, nil
	}}
}

// KeyOf returns the key of the job with the payload. The payload is a P, or JSON that is decoded into one. The
// error says what is wrong with the payload. So a producer that has the kind can check a job before it sends
// it.
func (k Kind) KeyOf(payload any) (string, error) {
	encoded, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("encode payload: %w", err)
	}
	contents, err := k.kind.Read(encoded)
	return contents.Key, err
}

// Services are passed to the constructor of a runner. The worker makes them, and in tests NewServices does.
type Services struct {
	// AWS is the configuration for clients of your own.
	AWS aws.Config
	// DynamoDB is the client that the ledger uses, too.
	DynamoDB *dynamodb.Client
	// Stack is the stack's name.
	Stack string
	// Getenv reads a variable of the function's environment.
	Getenv func(string) string
	// Now is the clock. Use it in place of time.Now, so that tests can set it.
	Now func() time.Time
	// Log is the function's logger. A Job has its own, with the job's fields.
	Log *slog.Logger

	core *core
	// late is the late policy of the kind that is being started.
	late LatePolicy
	// attempts are the kind's own numbers.
	attempts Attempts
}

// Table returns the physical name of a kind's own table.
func (s Services) Table(name string) string { return topology.NamesOf(s.Stack).Table(name) }

// logger returns a logger whose lines can be joined with the worker's own line of the delivery.
func (s Services) logger(ctx context.Context, d job.Delivery) *slog.Logger {
	return slog.New(deliveryHandler{s.Log.Handler(), func() []slog.Attr {
		requestID := ""
		if lc, ok := lambdacontext.FromContext(ctx); ok {
			requestID = lc.AwsRequestID
		}
		return []slog.Attr{
			slog.String(telemetry.KeyRequestID, requestID), slog.String(telemetry.KeyMessageID, d.ID),
			slog.String(telemetry.KeyKind, d.Envelope.Kind), slog.String(telemetry.KeyJob, d.Key),
			slog.String(telemetry.KeyLane, string(d.Lane)), slog.Int(telemetry.KeyAttempt, d.Memory.Attempt+1),
		}
	}})
}

// deliveryHandler adds a delivery's attributes when a line is written. Most jobs write none, and slog formats
// attributes as soon as they are given.
type deliveryHandler struct {
	slog.Handler
	attrs func() []slog.Attr
}

func (h deliveryHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.Handler.WithAttrs(h.attrs()).Handle(ctx, r)
}

func (h deliveryHandler) WithAttrs(more []slog.Attr) slog.Handler {
	return h.Handler.WithAttrs(h.attrs()).WithAttrs(more)
}

func (h deliveryHandler) WithGroup(name string) slog.Handler {
	return h.Handler.WithAttrs(h.attrs()).WithGroup(name)
}

// core is the part of the engine that an attempt uses.
type core struct {
	store *dynamo.Store
	rules ledger.Rules
	// leaseSkew is how far clocks of invocations may differ. attemptLeft is the least time that remains for an
	// attempt when it starts.
	leaseSkew, attemptLeft time.Duration
	// metric records a value of a kind's own metric.
	metric func(kind string, m Metric, value float64) (recorded bool)
}

// Job is one attempt at a job.
type Job[P any] struct {
	// Payload is the job's payload.
	Payload P
	// Key is the job's key. Subject is the part of it by which people ask.
	Key, Subject string
	// Attempt is the number of this attempt, from 1.
	Attempt int
	// Due is the time at which the job was first meant to take effect.
	Due time.Time
	// Deadline is the time by which the job should be finished; zero means that it has none.
	Deadline time.Time
	// ExpiresAt is the time from which the effect is not wanted, by the Definition; zero means never.
	ExpiresAt time.Time
	// Log carries the job's fields: its key, kind and lane, the message id, the attempt and the request id.
	// Never log a payload or a recipient.
	Log *slog.Logger

	attempt *attempt
}

// Now is the time of the clock. Use it in place of time.Now, so that tests can set it.
func (j *Job[P]) Now() time.Time { return j.attempt.services.Now() }

// Metric records a value of a metric that the kind's Definition declares. CloudWatch gets it in the namespace
// "acklast" under the dimensions stack and kind, through the function's log and without a call.
//
// Each call records one value, however the attempt ends. So record the result of an effect only after Commit
// has returned nil. A name that is not declared, and a value that is not a finite number, is dropped with a
// warning in the log: a metric never fails a job.
func (j *Job[P]) Metric(name string, value float64) {
	a := j.attempt
	for _, m := range a.metrics {
		if m.Name == name && a.services.core.metric(a.delivery.Envelope.Kind, m, value) {
			return
		}
	}
	j.Log.Warn("metric dropped: declare it in the kind's Definition, and record finite values", "metric", name)
}

// Commit ends the job with an outcome, such as "released", in one transaction with items of your own. Either
// the ledger's entry becomes final and your items are written, or nothing is.
//
// When the condition of one of your items refuses, the error is a *RefusedError, and the job has not ended:
// look at the item and commit something else, or return an error. Return every other error unchanged; the
// worker handles it.
func (j *Job[P]) Commit(ctx context.Context, outcome string, items ...types.TransactWriteItem) error {
	return j.attempt.commit(ctx, outcome, items)
}

// RefusedError: the condition of one of your own items refused a transaction. Nothing was written.
type RefusedError struct {
	// Index is the place of the item among the arguments of Commit or Transact. When several refused, it is the
	// first.
	Index int
	// Item is the item that failed the condition. It is nil when there is no such item, or when the engine does
	// not return it: then read it with ConsistentRead.
	Item map[string]types.AttributeValue
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("own item %d refused the transaction", e.Index)
}

// attempt is a Job's link to the engine.
type attempt struct {
	delivery  job.Delivery
	services  Services
	metrics   []Metric
	committed bool
	outcome   string
	// ended is the result of an effect's run; nil if none ran.
	ended *job.Result
}

func (a *attempt) commit(ctx context.Context, outcome string, items []types.TransactWriteItem) error {
	if a.committed {
		return errCommitted
	}
	if outcome == "" {
		return errNoOutcome
	}
	c := a.services.core
	return a.committing(outcome, c.store.Commit(ctx, c.rules.Complete(a.delivery, ledger.Done, outcome, a.services.Now()), items...))
}

var errNoOutcome = errors.New("a commit needs an outcome, such as \"released\"")

// committing records a commit, or translates its error.
func (a *attempt) committing(outcome string, err error) error {
	var refused *dynamo.ItemError
	if errors.As(err, &refused) {
		return &RefusedError{Index: refused.Index, Item: refused.Item}
	}
	if err == nil {
		a.committed, a.outcome = true, outcome
	}
	return err
}

// errNoCommit: Run returned nil without a commit, which is a mistake in the kind.
var errNoCommit = errors.New("the kind's Run returned nil without a commit")

func (a *attempt) result(err error) job.Result {
	if a.committed {
		return job.Result{Verdict: job.Committed, Detail: a.outcome}
	}
	if a.ended != nil {
		return *a.ended
	}
	if err == nil {
		err = errNoCommit
	}
	return ledger.ResultOf(err, a.delivery.Token, a.services.Now())
}
