// Package stacktest runs the functions of a module on an AWS inside a test: the compiled worker and redrive
// as processes, fed from queues, with the tables of the module's kinds. It needs no account and no Docker.
//
//	func TestACartCloses(t *testing.T) {
//		s := stacktest.Start(t, "../..") // a folder of the module
//		... put the cart into s.Client().Table("carts") ...
//		s.Send(acklast.Message{Kind: "cart.close", Payload: carts.Close{CartID: "c-1"}})
//		if j := s.Wait("cart.close/c-1"); j.Outcome != "closed" {
//			t.Errorf("the job ended as %+v", j)
//		}
//	}
//
// Its times are short: a failed attempt is repeated after a second or two, and a job has four attempts.
package stacktest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/topology"
)

// Options are for the functions of a module. The zero value is enough for a kind that reads
// no variable.
type Options struct {
	// Environment are the variables that the kinds read. Nothing of the test's own environment reaches a
	// function.
	Environment map[string]string
	// Processes is how many worker processes run; 0 stands for two.
	Processes int
	// WorkerPackage and RedrivePackage are the functions' main packages, as folders from the module's root; "" stands
	// for functions/worker and functions/redrive.
	WorkerPackage, RedrivePackage string
	// Patience is how long Wait waits; 0 stands for a minute.
	Patience time.Duration
}

// Stack is a running stack.
type Stack struct {
	t        testing.TB
	env      *local.Environment
	client   *acklast.Client
	ledger   *dynamo.Store
	patience time.Duration
}

// started counts the stacks of this process, which share one engine and so need different names.
var started atomic.Int64

// Start builds the functions of the module that the folder lies in, and runs them until the test ends. The
// first build of a module takes about a minute. The functions' logs become the test's output.
func Start(t testing.TB, module string, options ...func(*Options)) *Stack {
	t.Helper()
	o := Options{Patience: time.Minute}
	for _, set := range options {
		set(&o)
	}
	usual := local.UsualPackages()
	packages := local.Packages{Worker: cmp.Or(o.WorkerPackage, usual.Worker), Redrive: cmp.Or(o.RedrivePackage, usual.Redrive)}
	root, ok := packages.FindModule(module)
	if !ok {
		t.Fatalf("stacktest: %s does not lie in a module with a go.mod and a folder %s", module, packages.Worker)
	}
	functions, err := packages.Build(t.Context(), root, t.TempDir(), t.Output())
	if err != nil {
		t.Fatalf("stacktest: %v", err)
	}
	env, err := local.Start(t.Context(), local.Config{
		Stack:    fmt.Sprintf("test-%d-%d", os.Getpid(), started.Add(1)),
		Settings: topology.Scaled(), Kinds: functions.Kinds, Environment: o.Environment,
		WorkerBinary: functions.Worker, Processes: o.Processes,
		RedriveBinary: functions.Redrive, Redrive: topology.ScaledRedrive(),
		Logs: t.Output(),
	})
	if err != nil {
		t.Fatalf("stacktest: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Errorf("stacktest: %v", err)
		}
	})
	cfg, names := env.AWSConfig(), env.Names()
	return &Stack{
		t: t, env: env, client: acklast.NewClient(cfg, names.Stack), patience: o.Patience,
		ledger: dynamo.New(awsclient.DynamoDB(cfg), names.LedgerTable, dynamo.Options{}),
	}
}

// Name is the stack's name.
func (s *Stack) Name() string { return s.env.Names().Stack }

// AWS is the configuration for clients of this AWS, which reach nothing else.
func (s *Stack) AWS() aws.Config { return s.env.AWSConfig() }

// Client is the stack's client.
func (s *Stack) Client() *acklast.Client { return s.client }

// Send sends a job. The test ends when the job cannot be sent.
func (s *Stack) Send(m acklast.Message) {
	s.t.Helper()
	if err := s.client.Send(s.t.Context(), m); err != nil {
		s.t.Fatalf("stacktest: %v", err)
	}
}

// Job is what the ledger knows of a job.
type Job struct {
	Key string
	// Status is "done", "expired", "terminal" or "isolated"; while the job has not ended, "pending" or
	// "running"; and "" if the ledger does not know the job.
	Status string
	// Outcome is what the kind committed.
	Outcome string
	// Failures is how many attempts failed. LastClass and LastError tell of the last one.
	Failures             int
	LastClass, LastError string
}

// Job returns what the ledger knows of a job now.
func (s *Stack) Job(key string) Job {
	s.t.Helper()
	e, err := s.ledger.Get(s.t.Context(), key)
	if err != nil {
		s.t.Fatalf("stacktest: %v", err)
	}
	return Job{
		Key: key, Status: string(e.Status), Outcome: e.Outcome,
		Failures: e.Attempts, LastClass: string(e.LastClass), LastError: e.LastError,
	}
}

// Wait waits until a job has ended or is isolated. The test ends when that takes too long.
func (s *Stack) Wait(key string) Job {
	s.t.Helper()
	for end := time.Now().Add(s.patience); ; time.Sleep(20 * time.Millisecond) {
		j := s.Job(key)
		if status := ledger.Status(j.Status); status.Final() || status == ledger.Isolated {
			return j
		}
		if time.Now().After(end) {
			s.t.Fatalf("stacktest: after %v the job is %+v", s.patience, j)
		}
	}
}

// Redrive sends a request to the redrive function and reads its answer, both JSON, into answer. The test
// ends when the function fails; what it refuses, the answer says.
func (s *Stack) Redrive(request, answer any) {
	s.t.Helper()
	payload, err := json.Marshal(request)
	if err != nil {
		s.t.Fatalf("stacktest: %v", err)
	}
	out, err := s.env.Invoke(context.WithoutCancel(s.t.Context()), s.env.Names().RedriveFunction, payload)
	if err == nil {
		err = json.Unmarshal(out, answer)
	}
	if err != nil {
		s.t.Fatalf("stacktest: %v", err)
	}
}

// KillWorker kills every worker process, whatever it is doing. They are started again, and SQS delivers
// again what they had not acknowledged.
func (s *Stack) KillWorker() { s.env.KillAll() }
