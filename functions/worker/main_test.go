package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/topology"
	"acklast/internal/worker"
)

func TestRunStopsOnBadConfiguration(t *testing.T) {
	env := worker.Environment("shop", worker.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	delete(env, worker.EnvDLQURL)
	err := run(t.Context(), func(name string) string { return env[name] }, io.Discard, func(any) { t.Error("served all the same") })
	if err == nil || !strings.Contains(err.Error(), worker.EnvDLQURL) {
		t.Errorf("run() = %v, want an error that names %s", err, worker.EnvDLQURL)
	}
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
