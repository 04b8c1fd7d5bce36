package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// redriveMemoryMB is the memory size in the redrive function's environment.
const redriveMemoryMB = 256

// killGrace is how long the pollers may take to notice that the processes have ended.
const killGrace = time.Second

// DefaultProcesses is how many worker processes run when a Config does not say.
const DefaultProcesses = 2

// Config says what environment to start. Stack, Settings and WorkerBinary are required.
type Config struct {
	// Stack is the stack's name. Environments of one process share one engine, so each needs its own.
	Stack string
	// Settings are the numbers of the system; they must be valid.
	Settings topology.Settings
	// Kinds are the kinds of job that the worker knows; each brings its tables.
	Kinds []job.Description
	// Port is the port of the endpoint on 127.0.0.1; 0 takes any free one.
	Port int
	// DataEndpoint is another engine's endpoint that serves queues and tables, for tests. The environment
	// itself then serves only the Lambda API. Port has to be 0.
	DataEndpoint string
	// WorkerBinary is the path of the compiled worker.
	WorkerBinary string
	// RedriveBinary is the path of the compiled redrive function; "" runs none. The function gets two
	// processes, so that the second can stop what the first one does.
	RedriveBinary string
	// Redrive are the redrive function's numbers.
	Redrive topology.Redrive
	// Processes is how many worker processes run; 0 means DefaultProcesses. It is also the largest number of
	// invocations in flight.
	Processes int
	// WorkerEndpoint returns the AWS endpoint for the worker, such as a fault proxy in front of the engine's.
	// Nil means the engine's own.
	WorkerEndpoint func(endpoint string) string
	// SchedulerEndpoint is WorkerEndpoint for the worker's calls to EventBridge Scheduler. Nil means this
	// environment's own.
	SchedulerEndpoint func(endpoint string) string
	// Provider says what the fake provider can do. It runs beside the worker.
	Provider fakeprovider.Options
	// Environment are variables that the kinds read. They outrank the variables by which a kind finds the fake
	// provider. No variable of this process's own environment reaches a function.
	Environment map[string]string
	// WorkerEnv returns the worker's own variables, which outrank all others. Nil means worker.Environment.
	WorkerEnv func(urls topology.QueueURLs) map[string]string
	// Functions run beside the worker; nothing polls a queue for them.
	Functions []Function
	// Logs receives what the functions write, line by line. Nil drops it.
	Logs io.Writer
	// Log receives the environment's own messages. Nil drops them.
	Log *slog.Logger
	// Grace is how long Close lets invocations finish before it kills their processes; 0 means 5 s.
	Grace time.Duration
}

// Action is what to do with a response of the worker.
type Action int

const (
	// Forward passes the response on.
	Forward Action = iota
	// KillBeforeAck kills the worker's process and drops the response. Everything is committed then, and
	// nothing is acknowledged.
	KillBeforeAck
)

// Invocation is one that the worker gets, or has just answered.
type Invocation struct {
	RequestID string
	// Process is the number of the worker process, from 0, and PID its process id.
	Process, PID int
	// Lane and Records are the queue and the messages of the event. Both are empty if the event did not come
	// from SQS.
	Lane    job.Queue
	Records []events.SQSMessage
	// Event and Response are the two payloads. Response is empty before the answer.
	Event, Response []byte
}

// Environment is a running AWS with a stack's worker in it.
type Environment struct {
	*AWS
	provider  *fakeprovider.Server
	worker    *function
	functions []*function // all, the worker first
	pollers   map[job.Queue]*poller
	grace     time.Duration

	stopPolling, stopInvoking context.CancelFunc
	polling                   sync.WaitGroup
	closing                   sync.Once
	closeErr                  error
}

// Start starts an environment and returns when its worker processes wait for work. ctx limits the
// start only. The environment runs until Close.
func Start(ctx context.Context, c Config) (*Environment, error) {
	c.Processes = cmp.Or(c.Processes, DefaultProcesses)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Logs == nil {
		c.Logs = io.Discard
	}
	if c.WorkerEndpoint == nil {
		c.WorkerEndpoint = func(endpoint string) string { return endpoint }
	}
	if c.WorkerEnv == nil {
		c.WorkerEnv = func(urls topology.QueueURLs) map[string]string {
			return worker.Environment(c.Stack, urls, c.Settings)
		}
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("local environment: %w", err)
	}

	a, err := startAWS(ctx, c.Stack, c.Settings, c.Port, c.DataEndpoint, c.tables())
	if err != nil {
		return nil, err
	}
	a.schedules.log = c.Log
	c.Logs = &syncWriter{to: io.MultiWriter(a.metrics, c.Logs)}
	e := &Environment{AWS: a, grace: c.Grace, stopPolling: func() {}, stopInvoking: func() {}}
	e.provider = fakeprovider.New(c.Provider)
	ofKinds := providerEnvironment(e.provider, c.Provider, c.Settings)
	maps.Copy(ofKinds, c.Environment)
	env := maps.Clone(ofKinds)
	maps.Copy(env, worker.ScheduleEnvironment("arn:aws:iam::000000000000:role/"+a.names.SchedulerRole, a.arns.DLQ))
	maps.Copy(env, c.WorkerEnv(a.urls))
	functions := []Function{{
		Name: a.names.WorkerFunction, Binary: c.WorkerBinary,
		Timeout: c.Settings.WorkerTimeout, MemoryMB: c.Settings.WorkerMemoryMB,
		Processes: c.Processes, Env: env, endpoint: c.WorkerEndpoint(a.data),
	}}
	if c.SchedulerEndpoint != nil {
		functions[0].scheduler = c.SchedulerEndpoint(a.front.url)
	}
	if c.RedriveBinary != "" {
		env := maps.Clone(ofKinds)
		maps.Copy(env, redrive.LocalEnvironment(c.Stack, a.urls, c.Settings, c.Redrive))
		functions = append(functions, Function{
			Name: a.names.RedriveFunction, Binary: c.RedriveBinary,
			Timeout: c.Redrive.Timeout, MemoryMB: redriveMemoryMB, Processes: 2, Env: env,
		})
	}
	for _, f := range append(functions, c.Functions...) {
		running, err := startFunction(ctx, a, f, c.Logs, c.Log)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start function %s: %w", f.Name, err), e.Close())
		}
		e.functions = append(e.functions, running)
	}
	e.worker = e.functions[0]
	e.poll(c)
	own := http.NewServeMux()
	e.routes(own)
	e.mappings(own)
	e.front.own.Store(own)
	return e, nil
}

// Provider is the fake provider.
func (e *Environment) Provider() *fakeprovider.Server { return e.provider }

// tables are the kinds' own.
func (c Config) tables() []job.Table {
	var all []job.Table
	for _, k := range c.Kinds {
		all = append(all, k.Tables...)
	}
	return all
}

func (c Config) validate() error {
	if c.Stack == "" {
		return errors.New("stack is not set")
	}
	if c.Processes < 1 {
		return fmt.Errorf("%d processes, but the worker needs at least one", c.Processes)
	}
	if c.DataEndpoint != "" && c.Port != 0 {
		return errors.New("a port is of no use to queues and tables that live elsewhere")
	}
	binary, err := filepath.Abs(c.WorkerBinary)
	if c.WorkerBinary == "" || err != nil {
		return errors.New("worker binary is not set")
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("worker binary: %w", err)
	}
	if c.RedriveBinary != "" {
		if err := c.Redrive.Validate(c.Settings); err != nil {
			return err
		}
	}
	return c.Settings.Validate()
}

// poll starts a poller for each lane. Recovery leaves one process to source, if there are two.
func (e *Environment) poll(c Config) {
	var polling, invoking context.Context
	polling, e.stopPolling = context.WithCancel(context.Background())
	invoking, e.stopInvoking = context.WithCancel(context.Background())
	source := min(c.Settings.SourceConcurrency, c.Processes)
	recovery := min(c.Settings.RecoveryConcurrency, max(1, c.Processes-1))
	lane := func(l job.Queue, url, arn string, limit int) *poller {
		return newPoller(l, url, arn, e.worker.name, limit, c.Settings, e.worker.gate, e.direct, e.lambda, c.Log)
	}
	e.pollers = map[job.Queue]*poller{
		job.Source:   lane(job.Source, e.urls.Source, e.arns.Source, source),
		job.Recovery: lane(job.Recovery, e.urls.Recovery, e.arns.Recovery, recovery),
	}
	for _, p := range e.pollers {
		e.polling.Go(func() { p.run(polling, invoking) })
	}
	e.polling.Go(func() { e.schedules.run(polling) })
}

// Close stops receiving, lets invocations finish for the grace of the Config, kills every process
// and stops the services. It may be called more than once.
func (e *Environment) Close() error {
	e.closing.Do(func() {
		e.stopPolling()
		e.drain(e.grace)
		for _, f := range e.functions {
			f.stop()
		}
		e.drain(killGrace) // the end of the processes fails all that were left
		e.stopInvoking()   // except those that no process had received yet
		e.polling.Wait()
		for _, f := range e.functions {
			f.api.close()
		}
		e.provider.Close()
		e.closeErr = e.AWS.Close()
	})
	return e.closeErr
}

// drain waits until no invocation is in flight, but no longer than the given time.
func (e *Environment) drain(atMost time.Duration) {
	if e.worker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	_ = e.worker.gate.drained(ctx)
}

// Pause stops a lane's receives. When it returns, no receive is in flight. Invocations go on.
func (e *Environment) Pause(lane job.Queue) {
	if p := e.pollers[lane]; p != nil {
		p.pause()
	}
}

// Resume undoes Pause.
func (e *Environment) Resume(lane job.Queue) {
	if p := e.pollers[lane]; p != nil {
		p.resume()
	}
}

// OnEvent sets the function that is called before the worker gets an event. Several goroutines may call f at once.
// Nil removes it.
func (e *Environment) OnEvent(f func(Invocation)) {
	hook := f
	if f != nil {
		hook = func(inv Invocation) { f(e.read(inv)) }
	}
	e.worker.api.mu.Lock()
	defer e.worker.api.mu.Unlock()
	e.worker.api.onEvent = hook
}

// OnResponse sets the function that is called after each answer of the worker: after the commit and before the
// acknowledgement. Several goroutines may call f at once. Nil removes it.
func (e *Environment) OnResponse(f func(Invocation) Action) {
	hook := f
	if f != nil {
		hook = func(inv Invocation) Action { return f(e.read(inv)) }
	}
	e.worker.api.mu.Lock()
	defer e.worker.api.mu.Unlock()
	e.worker.api.onResponse = hook
}

// read adds lane and records, if the event came from SQS.
func (e *Environment) read(inv Invocation) Invocation {
	var event events.SQSEvent
	if json.Unmarshal(inv.Event, &event) == nil && len(event.Records) > 0 {
		inv.Records = event.Records
		inv.Lane = e.laneOf(event.Records[0].EventSourceARN)
	}
	return inv
}

func (e *Environment) laneOf(queueARN string) job.Queue {
	switch queueARN[strings.LastIndexByte(queueARN, ':')+1:] {
	case e.names.SourceQueue:
		return job.Source
	case e.names.RecoveryQueue:
		return job.Recovery
	}
	return job.Unknown
}

// KillOnTimeout sets whether a process is killed when its invocation exceeds the function's timeout. It is at
// first, as on Lambda. The invocation has failed in both cases. Without the kill the process goes on working,
// like a machine that lost its network.
func (e *Environment) KillOnTimeout(kill bool) {
	e.worker.api.mu.Lock()
	defer e.worker.api.mu.Unlock()
	e.worker.api.spare = !kill
}

// PIDs returns the process ids of the worker's processes, by process number. 0 means that the process is being
// restarted.
func (e *Environment) PIDs() []int { return e.worker.pids() }

// FunctionPIDs is PIDs for the named function. It returns nil if there is no such function.
func (e *Environment) FunctionPIDs(name string) []int {
	for _, f := range e.functions {
		if f.name == name {
			return f.pids()
		}
	}
	return nil
}

// Invoking returns the numbers of the worker processes that have an invocation.
func (e *Environment) Invoking() []int {
	e.worker.api.mu.Lock()
	defer e.worker.api.mu.Unlock()
	var busy []int
	for _, s := range e.worker.api.sessions {
		if s.current != nil {
			busy = append(busy, s.process)
		}
	}
	return busy
}

// Kill kills one worker process at any point of its work. It returns when the process is dead and its
// invocation has failed. The supervisor then starts the process again.
func (e *Environment) Kill(process int) { e.worker.processes[process].end() }

// KillAll is Kill for all of them.
func (e *Environment) KillAll() { e.worker.killAll() }

// Restart replaces every worker process once its invocation has ended, and returns when the new
// ones wait for work.
func (e *Environment) Restart(ctx context.Context) error {
	e.worker.gate.hold()
	defer e.worker.gate.open()
	if err := e.worker.gate.drained(ctx); err != nil {
		return fmt.Errorf("wait for the worker's invocations: %w", err)
	}
	e.worker.killAll()
	if err := e.worker.gate.ready(ctx, len(e.worker.processes)); err != nil {
		return fmt.Errorf("wait for the new worker processes: %w", err)
	}
	return nil
}

// Suspend stops one worker process until Continue is called or the process dies. The function's timeout still
// kills it.
func (e *Environment) Suspend(process int) { e.worker.processes[process].signal(nil, stopGroup) }

// Continue undoes Suspend.
func (e *Environment) Continue(process int) { e.worker.processes[process].signal(nil, continueGroup) }

// KillFunction kills every process of another function, like KillAll for the worker.
func (e *Environment) KillFunction(name string) {
	for _, f := range e.functions {
		if f.name == name {
			f.killAll()
		}
	}
}
