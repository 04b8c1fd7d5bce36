// Command redrive is the Lambda function that governs the DLQ: it reads its configuration, builds
// each client once and hands requests to internal/redrive.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/kinds"
	"acklast/internal/lanes"
	"acklast/internal/operations"
	"acklast/internal/redrive"
	"acklast/internal/telemetry"
)

func main() {
	if err := run(context.Background(), os.Getenv, os.Stdout, func(handler any) { lambda.Start(handler) }); err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
}

// run builds the service and serves it. It returns what keeps it from starting.
func run(ctx context.Context, getenv func(string) string, out io.Writer, serve func(handler any)) error {
	config, err := redrive.ParseConfig(getenv)
	if err != nil {
		return err
	}
	aws, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	db := awsclient.DynamoDB(aws)
	service := redrive.New(config, redrive.Dependencies{
		Ledger: dynamo.New(db, config.Names.LedgerTable, dynamo.Options{Now: time.Now}),
		Queues: lanes.New(awsclient.SQS(aws), lanes.URLs{
			Source: config.SourceURL, Recovery: config.RecoveryURL, DLQ: config.DLQURL,
		}),
		Table:    operations.New(db, config.Names.OperationsTable),
		Kinds:    kinds.All(kinds.Dependencies{}), // to read jobs, not to run them
		Log:      telemetry.NewLogger(out, config.LogLevel),
		Progress: telemetry.NewRedriveRecorder(out, config.Names.Stack, time.Now),
		Now:      time.Now,
		ID:       uuid.NewString,
	})
	serve(service.Handle)
	return nil
}
