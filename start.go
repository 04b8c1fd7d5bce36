package acklast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/version"
	"acklast/internal/worker"
)

// StartWorker is the main function of the worker's Lambda function. It serves until Lambda ends the
// process. If it cannot start, it says why on standard error and exits with status 1.
//
// With the argument "describe" it serves nothing and prints the kinds' descriptions as JSON. This is how
// "acklast local" learns of a module's kinds.
func StartWorker(kinds ...Kind) {
	p := process{os.Getenv, os.Stdout, serve}
	exit("worker", p.start(os.Args[1:], kinds, p.worker))
}

// StartRedrive is the main function of the redrive's Lambda function. It knows the argument "describe"
// too, see StartWorker.
func StartRedrive(kinds ...Kind) {
	p := process{os.Getenv, os.Stdout, serve}
	exit("redrive", p.start(os.Args[1:], kinds, p.redrive))
}

func serve(handler any) {
	collectLess(os.Getenv)
	lambda.Start(handler)
}

// collectLess makes the garbage collector run less often. A function's live heap is a few megabytes, so by
// default the collector runs all the time, and takes a fifth of the worker's processor time. The memory limit
// keeps a function with a larger heap within its memory. GOGC and GOMEMLIMIT in the environment outrank this.
func collectLess(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if size, err := strconv.ParseInt(getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"), 10, 64); err == nil && size > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(size << 20 * 3 / 4)
	}
}

const gcPercent = 400

func exit(function string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, function+":", err)
		os.Exit(1)
	}
}

// process is the environment of a function.
type process struct {
	getenv func(string) string
	out    io.Writer
	serve  func(handler any)
}

// errNotDefined: the Kind is zero.
var errNotDefined = errors.New("a Kind that Define did not make")

// start prints the kinds if the arguments ask for a description, and otherwise starts the function. Lambda
// starts it without arguments.
func (p process) start(args []string, kinds []Kind, function func(context.Context, []Kind) error) error {
	switch {
	case slices.ContainsFunc(kinds, func(k Kind) bool { return k.start == nil }):
		return errNotDefined
	case len(args) == 0:
		return function(context.Background(), kinds)
	case len(args) == 1 && args[0] == "describe":
		encoded, err := job.EncodeDescriptions(Describe(kinds...))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s\n", encoded)
		return err
	}
	return fmt.Errorf(`the arguments are %q, want none, or "describe"`, args)
}

func (p process) worker(ctx context.Context, kinds []Kind) error {
	config, err := worker.ParseConfig(p.getenv)
	if err != nil {
		return err
	}
	aws, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	db := awsclient.DynamoDB(aws)
	metrics := telemetry.NewRecorder(p.out, config.Names.Stack, time.Now)
	store := dynamo.New(db, config.Names.LedgerTable, dynamo.Options{Now: time.Now, OnConflict: metrics.Conflict})
	log := telemetry.NewLogger(p.out, config.LogLevel)
	services := Services{
		AWS: aws, DynamoDB: db, Stack: config.Names.Stack, Getenv: p.getenv, Now: time.Now, Log: log,
		core: &core{
			store: store, rules: config.Rules,
			leaseSkew: config.LeaseSkew, attemptLeft: config.AttemptLeft(),
			metric: metrics.Own,
		},
	}
	running := make([]job.Kind, len(kinds))
	for i, k := range kinds {
		if err := config.CheckKind(k.kind.Description); err != nil {
			return err
		}
		if running[i], err = k.start(ctx, services); err != nil {
			return err
		}
	}
	handler := worker.New(config, worker.Dependencies{
		Ledger: store,
		Lanes: lanes.New(awsclient.SQS(aws), topology.QueueURLs{
			Source: config.SourceURL, Recovery: config.RecoveryURL, DLQ: config.DLQURL,
		}),
		Scheduler: schedule.New(awsclient.Scheduler(aws), schedule.Target{
			Group: config.Names.ScheduleGroup, RoleARN: config.ScheduleRoleARN, QueueURL: config.RecoveryURL, DLQARN: config.DLQARN,
		}),
		Operators: redrive.Operators{Table: redrive.NewStore(db, config.Names.OperationsTable)},
		Kinds:     job.NewCatalogue(running...),
		Metrics:   metrics, Log: log, Now: time.Now, Random: rand.Float64, Token: uuid.NewString,
		Exit: func() { os.Exit(0) },
	})
	started(log, "worker", running...)
	handler.Prepare(ctx)
	p.serve(handler.Invoke)
	return nil
}

func (p process) redrive(ctx context.Context, kinds []Kind) error {
	config, err := redrive.ParseConfig(p.getenv)
	if err != nil {
		return err
	}
	aws, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	db := awsclient.DynamoDB(aws)
	store := dynamo.New(db, config.Names.LedgerTable, dynamo.Options{Now: time.Now})
	log := telemetry.NewLogger(p.out, config.LogLevel)
	reading := catalogue(kinds)
	explaining := &starts{kinds: kinds, services: Services{
		AWS: aws, DynamoDB: db, Stack: config.Names.Stack, Getenv: p.getenv, Now: time.Now, Log: log,
		// No attempt is made here, so any timeout of an effect is allowed.
		core: &core{store: store, rules: config.Rules, attemptLeft: config.Numbers.Timeout},
	}}
	metrics := telemetry.NewRedriveRecorder(p.out, config.Names.Stack, time.Now)
	service := redrive.New(config, redrive.Dependencies{
		Ledger: store, Index: store,
		Schedules: schedule.New(awsclient.Scheduler(aws), schedule.Target{Group: config.Names.ScheduleGroup}),
		Queues: lanes.New(awsclient.SQS(aws), topology.QueueURLs{
			Source: config.SourceURL, Recovery: config.RecoveryURL, DLQ: config.DLQURL,
		}),
		Table:    redrive.NewStore(db, config.Names.OperationsTable),
		Kinds:    reading,
		Start:    explaining.start,
		Log:      log,
		Progress: metrics, Counts: metrics,
		Now:     time.Now,
		ID:      uuid.NewString,
		Version: version.Number,
	})
	started(log, "redrive", reading.Kinds()...)
	p.serve(service.Handle)
	return nil
}

// started writes the function's first line.
func started(log *slog.Logger, function string, kinds ...job.Kind) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	log.Info("started", "function", function, telemetry.KeyVersion, version.Number, "kinds", names)
}

// catalogue holds kinds whose jobs are only read.
func catalogue(kinds []Kind) job.Catalogue {
	reading := make([]job.Kind, len(kinds))
	for i, k := range kinds {
		reading[i] = k.kind
	}
	return job.NewCatalogue(reading...)
}
