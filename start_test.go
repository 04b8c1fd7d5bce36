package acklast

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func started(env map[string]string, serve func(any)) process {
	return process{getenv: func(name string) string { return env[name] }, out: io.Discard, serve: serve}
}

func workerEnvironment() map[string]string {
	return worker.Environment("shop", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
}

func TestTheWorkerNamesAMissingVariable(t *testing.T) {
	env := workerEnvironment()
	delete(env, worker.EnvDLQURL)
	err := started(env, func(any) { t.Error("served all the same") }).worker(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), worker.EnvDLQURL) {
		t.Errorf("worker() = %v, want an error that names %s", err, worker.EnvDLQURL)
	}
}

func TestTheWorkerServesABatchHandler(t *testing.T) {
	served := false
	err := started(workerEnvironment(), func(handler any) {
		_, served = handler.(func(context.Context, events.SQSEvent) (any, error))
	}).worker(t.Context(), nil)
	if err != nil || !served {
		t.Errorf("worker() = %v, served a batch handler: %v", err, served)
	}
}

var redriveEnvironment = map[string]string{
	redrive.EnvStack: "s", redrive.EnvSourceURL: "u", redrive.EnvRecoveryURL: "u", redrive.EnvDLQURL: "u",
}

func TestTheRedriveNamesAMissingVariable(t *testing.T) {
	for missing := range redriveEnvironment {
		env := maps.Clone(redriveEnvironment)
		delete(env, missing)
		err := started(env, func(any) { t.Error("served all the same") }).redrive(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

func TestTheRedriveServesRequests(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	served := false
	err := started(redriveEnvironment, func(handler any) {
		served = true
		h := handler.(func(context.Context, json.RawMessage) (redrive.Response, error))
		got, err := h(t.Context(), json.RawMessage(`{"action":"list"}`))
		if err != nil || !strings.Contains(got.Refused, "alias operate") {
			t.Errorf("without an alias: %+v, %v", got, err)
		}
	}).redrive(t.Context(), nil)
	if err != nil || !served {
		t.Fatalf("served %v, %v", served, err)
	}
}
