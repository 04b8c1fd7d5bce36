package acklast

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/version"
	"acklast/internal/worker"
)

func inProcess(env map[string]string, serve func(any)) process {
	return process{getenv: func(name string) string { return env[name] }, out: io.Discard, serve: serve}
}

func workerEnvironment() map[string]string {
	return worker.Environment("shop", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
}

func TestTheWorkerNamesAMissingVariable(t *testing.T) {
	env := workerEnvironment()
	delete(env, worker.EnvDLQURL)
	err := inProcess(env, func(any) { t.Error("served all the same") }).worker(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), worker.EnvDLQURL) {
		t.Errorf("worker() = %v, want an error that names %s", err, worker.EnvDLQURL)
	}
}

func TestTheWorkerServesABatchHandler(t *testing.T) {
	served := false
	err := inProcess(workerEnvironment(), func(handler any) {
		_, served = handler.(func(context.Context, events.SQSEvent) (any, error))
	}).worker(t.Context(), nil)
	if err != nil || !served {
		t.Errorf("worker() = %v, served a batch handler: %v", err, served)
	}
}

// A connection and credentials are there before the first message is.
func TestTheWorkerCallsDynamoDBBeforeItServes(t *testing.T) {
	var calls []string
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Header.Get("X-Amz-Target"))
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, "{}")
	}))
	defer tables.Close()
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": tables.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"} {
		t.Setenv(name, value)
	}
	err := inProcess(workerEnvironment(), func(any) {
		if len(calls) != 1 || !strings.HasSuffix(calls[0], ".GetItem") {
			t.Errorf("%q before it serves, want one GetItem", calls)
		}
	}).worker(t.Context(), nil)
	if err != nil {
		t.Error(err)
	}
}

var redriveEnvironment = map[string]string{
	redrive.EnvStack: "s", redrive.EnvSourceURL: "u", redrive.EnvRecoveryURL: "u", redrive.EnvDLQURL: "u",
}

func TestTheRedriveNamesAMissingVariable(t *testing.T) {
	for missing := range redriveEnvironment {
		env := maps.Clone(redriveEnvironment)
		delete(env, missing)
		err := inProcess(env, func(any) { t.Error("served all the same") }).redrive(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

func TestTheRedriveServesRequests(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	served := false
	err := inProcess(redriveEnvironment, func(handler any) {
		served = true
		h := handler.(func(context.Context, json.RawMessage) (redrive.Response, error))
		got, err := h(t.Context(), json.RawMessage(`{"action":"status"}`))
		if err != nil || !strings.Contains(got.Refused, "alias operate") {
			t.Errorf("without an alias: %+v, %v", got, err)
		}
	}).redrive(t.Context(), nil)
	if err != nil || !served {
		t.Fatalf("served %v, %v", served, err)
	}
}

// A function logs its version before it serves, since it is built without any other stamp.
func TestAFunctionSaysItsVersionFirst(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	kind := Define(Definition[struct{}]{Name: "order.close", Key: func(struct{}) (string, []string) { return "s", nil }},
		func(context.Context, Services) (Runner[struct{}], error) { return RunnerFunc[struct{}](nil), nil })
	for function, start := range map[string]func(process) error{
		"worker":  func(p process) error { return p.worker(t.Context(), []Kind{kind}) },
		"redrive": func(p process) error { return p.redrive(t.Context(), []Kind{kind}) },
	} {
		t.Run(function, func(t *testing.T) {
			env := workerEnvironment()
			maps.Copy(env, redriveEnvironment)
			var out bytes.Buffer
			p := inProcess(env, func(any) {
				if out.Len() == 0 {
					t.Error("it serves before it has said anything")
				}
			})
			p.out = &out
			if err := start(p); err != nil {
				t.Fatal(err)
			}
			var line struct {
				Message, Function, Version string
				Kinds                      []string
			}
			if err := json.NewDecoder(&out).Decode(&line); err != nil {
				t.Fatal(err)
			}
			if line.Message != "started" {
				t.Errorf("message = %q", line.Message)
			}
			if line.Function != function {
				t.Errorf("function = %q", line.Function)
			}
			if line.Version != version.Number {
				t.Errorf("version = %q, want %q", line.Version, version.Number)
			}
			if len(line.Kinds) != 1 || line.Kinds[0] != "order.close" {
				t.Errorf("kinds = %q", line.Kinds)
			}
		})
	}
}
