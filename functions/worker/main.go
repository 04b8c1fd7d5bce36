// Command worker is the Lambda function that runs jobs: it reads its configuration, builds each
// client once and hands batches to internal/worker.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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
	"acklast/internal/reminder"
	"acklast/internal/reservation"
	"acklast/internal/telemetry"
	"acklast/internal/worker"
)

func main() {
	if err := run(context.Background(), os.Getenv, os.Stdout, func(handler any) { lambda.Start(handler) }); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run builds the handler and serves it. It returns what keeps it from starting.
func run(ctx context.Context, getenv func(string) string, out io.Writer, serve func(handler any)) error {
	config, err := worker.ParseConfig(getenv)
	if err != nil {
		return err
	}
	sending, err := reminder.ParseConfig(getenv)
	if err != nil {
		return err
	}
	if most := config.StartMargin - config.HandoverMargin; sending.Provider != reminder.ProviderNone && sending.Timeout > most {
		return fmt.Errorf("%s is %v, but a record that is started has only %v (%s less %s) to make its call",
			reminder.EnvTimeout, sending.Timeout, most, worker.EnvStartMargin, worker.EnvHandoverMargin)
	}
	aws, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	db := awsclient.DynamoDB(aws)
	metrics := telemetry.NewRecorder(out, config.Names.Stack, time.Now)
	store := dynamo.New(db, config.Names.LedgerTable, dynamo.Options{Now: time.Now, OnConflict: metrics.Conflict})
	reservations := reservation.NewStore(db, store, config.Names, time.Now)

	handler := worker.New(config, worker.Dependencies{
		Ledger: store,
		Lanes: lanes.New(awsclient.SQS(aws), lanes.URLs{
			Source: config.SourceURL, Recovery: config.RecoveryURL, DLQ: config.DLQURL,
		}),
		Runs: redrive.Runs{Table: operations.New(db, config.Names.OperationsTable)},
		Kinds: kinds.All(kinds.Dependencies{
			Reservations: reservation.NewExpirer(reservations, config.Rules),
			Reminders: reminder.NewSender(reminder.Options{
				Stack: config.Names.Stack, Ledger: store,
				Subscriptions: reminder.NewSubscriptions(db, config.Names.SubscriptionsTable),
				Provider:      sending.NewProvider(aws, time.Now),
				Rules:         config.Rules, Timeout: sending.Timeout, LeaseSkew: config.LeaseSkew,
				Now: time.Now, Random: rand.Float64,
			}),
		}),
		Metrics: metrics,
		Log:     telemetry.NewLogger(out, config.LogLevel),
		Now:     time.Now,
		Random:  rand.Float64,
		Token:   uuid.NewString,
	})
	serve(handler.Handle)
	return nil
}
