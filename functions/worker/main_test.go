package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/reminder"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func TestRunStopsOnBadConfiguration(t *testing.T) {
	env := worker.Environment("shop", worker.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	delete(env, worker.EnvDLQURL)
	stops := func(variable string) {
		t.Helper()
		err := run(t.Context(), func(name string) string { return env[name] }, io.Discard, func(any) { t.Error("served all the same") })
		if err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("run() = %v, want an error that names %s", err, variable)
		}
	}
	stops(worker.EnvDLQURL)
	env[worker.EnvDLQURL] = "d"
	env[reminder.EnvProvider] = "ses"
	stops(reminder.EnvSESFrom)
	env[reminder.EnvSESFrom], env[reminder.EnvTimeout] = "billing@example.com", "7s" // longer than what is left of an invocation
	stops(reminder.EnvTimeout)
}

func TestRunServesAHandler(t *testing.T) {
	env := worker.Environment("shop", worker.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	served := false
	err := run(t.Context(), func(name string) string { return env[name] }, io.Discard, func(handler any) {
		_, served = handler.(func(context.Context, events.SQSEvent) (events.SQSEventResponse, error))
	})
	if err != nil || !served {
		t.Errorf("run() = %v, served a batch handler: %v", err, served)
	}
}
