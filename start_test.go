package acklast

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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

// wrongVariable is a variable that stops a function's start, and what the error says about it.
type wrongVariable struct {
	name, value string
	// want are the parts of the error beside the name: the value, and what is expected.
	want []string
}

// wrongInBoth are the mistakes in variables that both functions read.
var wrongInBoth = []wrongVariable{
	{worker.EnvStack, "", []string{"is not set, want the name of the stack"}},
	{worker.EnvSourceURL, "", []string{"is not set, want the URL of the source queue"}},
	{worker.EnvRecoveryURL, "", []string{"is not set, want the URL of the recovery queue"}},
	{worker.EnvDLQURL, "", []string{"is not set, want the URL of the DLQ"}},
	{worker.EnvMaxRedrives, "1O", []string{`is "1O"`, "want a whole number of at least 1"}},
	{worker.EnvLedgerRetention, "45d", []string{`is "45d"`, "duration", "such as 30s"}},
	{worker.EnvLogLevel, "LOUD", []string{`is "LOUD"`, "want DEBUG, INFO, WARN or ERROR"}},
}

// A wrong variable stops the start with one line: the variable, its value, what is expected and what to do.
func TestAWrongVariableStopsTheStart(t *testing.T) {
	for function, f := range map[string]struct {
		env   map[string]string
		start func(process) error
		wrong []wrongVariable
	}{
		"worker": {workerEnvironment(), func(p process) error { return p.worker(t.Context(), nil) }, []wrongVariable{
			{worker.EnvConcurrency, "0", []string{`is "0"`, "want a whole number of at least 1"}},
			{worker.EnvStartMargin, "10", []string{`is "10", want a positive duration such as 30s: correct`}},
			{worker.EnvScheduleFrom, "-1s", []string{`is "-1s"`, "want a duration of at least 0s, such as 30s"}},
			{worker.EnvBackoffCap, "1s", []string{"is 1s, below " + worker.EnvBackoffBase}},
			{worker.EnvDLQURL, "https://sqs/1/shop-dlq.fifo", []string{"is a FIFO queue", "use a standard queue"}},
			{worker.EnvDLQARN, "arn:aws:sqs:eu-central-1:1:d", []string{worker.EnvScheduleRole, "set both, or neither"}},
		}},
		"redrive": {redrive.Environment("shop", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default(), topology.DefaultRedrive()),
			func(p process) error { return p.redrive(t.Context(), nil) }, []wrongVariable{
				{redrive.EnvDLQRetention, "14d", []string{`is "14d"`, "want a duration of at least 0s, such as 30s"}},
				{redrive.EnvGuarded, "crashed,ambigous", []string{`has "ambigous"`, "want some of", "ambiguous"}},
				{redrive.EnvUnqualified, "yes", []string{`is "yes"`, `want "allow" or nothing`}},
				{"ACKLAST_REDRIVE_CANARY", "five", []string{`is "five"`, "want a whole number of at least 0"}},
				{"ACKLAST_REDRIVE_CANARY", "0", []string{`is "0"`, "do not fit together", "canary is 0"}},
			}},
	} {
		for _, w := range append(f.wrong, wrongInBoth...) {
			env := maps.Clone(f.env)
			env[w.name] = w.value
			err := f.start(inProcess(env, func(any) { t.Errorf("%s: %s=%q: served all the same", function, w.name, w.value) }))
			if err == nil {
				t.Errorf("%s: %s=%q: no error", function, w.name, w.value)
				continue
			}
			for _, want := range append(w.want, w.name, ": correct the environment that the function is deployed with") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %s=%q: %q is missing in: %v", function, w.name, w.value, want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %s=%q: more than one line: %q", function, w.name, w.value, err)
			}
		}
	}
}

// A start names every wrong variable, so that one start shows all mistakes.
func TestAStartNamesAllWrongVariables(t *testing.T) {
	err := inProcess(map[string]string{worker.EnvLogLevel: "LOUD"}, nil).worker(t.Context(), nil)
	for _, name := range []string{worker.EnvStack, worker.EnvSourceURL, worker.EnvRecoveryURL, worker.EnvDLQURL, worker.EnvLogLevel} {
		if err == nil || strings.Count(err.Error(), name) != 1 {
			t.Errorf("%v, want it to name %s once", err, name)
		}
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
			slices.Sort(line.Kinds)
			if want := []string{"acklast.smoke", "order.close"}; !slices.Equal(line.Kinds, want) {
				t.Errorf("kinds = %q, want %q", line.Kinds, want)
			}
		})
	}
}
