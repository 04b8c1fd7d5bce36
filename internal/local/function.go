package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"acklast/internal/topology"
)

const (
	// startLimit is how long the processes may take until their first request for work.
	startLimit = 30 * time.Second
	// engineGrace is the difference between the engine's own timeout and the function's. The Runtime API
	// enforces the function's timeout. The engine's is a second guard, for the case that this fails.
	engineGrace = 10 * time.Second
)

// Function is a Lambda function to run.
type Function struct {
	// Name is the function's name.
	Name string
	// Binary is the path of its compiled bootstrap.
	Binary string
	// Timeout is the function's timeout, in whole seconds.
	Timeout time.Duration
	// MemoryMB is the memory size in the function's environment. Nothing enforces it.
	MemoryMB int
	// Processes is how many run; 0 means one.
	Processes int
	// Env is the function's environment, to which Lambda's own variables are added.
	Env map[string]string
	// EnvFor returns further variables that depend on the queues' URLs. It may be nil.
	EnvFor func(urls topology.QueueURLs) map[string]string
	// EndpointFor returns the AWS endpoint for the function, such as a fault proxy in front of the
	// environment's own. Nil means the environment's own.
	EndpointFor func(endpoint string) string

	endpoint string // AWS_ENDPOINT_URL; "" means the engine's own
	// scheduler is the endpoint of EventBridge Scheduler, which is ours and not the engine's; "" means our own.
	scheduler string
}

// function is a running Function.
type function struct {
	name      string
	gate      *gate
	api       *runtimeAPI
	processes []*process
	earlyExit chan error
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

func (f *function) pids() []int {
	pids := make([]int, len(f.processes))
	for i, p := range f.processes {
		pids[i] = p.running()
	}
	return pids
}

// startFunction creates the function at the engine, starts its processes and waits until all of
// them have asked for work.
func startFunction(ctx context.Context, a *AWS, f Function, logs io.Writer, log *slog.Logger) (*function, error) {
	binary, err := filepath.Abs(f.Binary)
	if err != nil {
		return nil, err
	}
	f.Binary, f.Processes = binary, max(1, f.Processes)
	if f.endpoint == "" {
		f.endpoint = a.data
	}
	if f.EndpointFor != nil {
		f.endpoint = f.EndpointFor(a.endpoint)
	}
	f.scheduler = cmp.Or(f.scheduler, a.front.url)
	if f.EnvFor != nil {
		env := maps.Clone(f.Env)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, f.EnvFor(a.urls))
		f.Env = env
	}
	if err := createFunction(ctx, a.lambda, f); err != nil {
		return nil, err
	}
	running := &function{name: f.Name, gate: newGate(), earlyExit: make(chan error, 1)}
	running.api, err = newRuntimeAPI(a.engine, f.Name, f.Timeout, f.Processes, running.gate, log)
	if err != nil {
		return nil, err
	}
	alive, cancel := context.WithCancel(context.Background())
	running.cancel = cancel
	for n := range f.Processes {
		p := &process{number: n, binary: f.Binary, env: f.environment(n), api: running.api,
			logs: logs, log: log, earlyExit: running.earlyExit}
		running.processes = append(running.processes, p)
		running.running.Go(func() { p.run(alive) })
	}
	if err := running.ready(ctx); err != nil {
		running.stop()
		running.api.close()
		return nil, err
	}
	return running, nil
}

// createFunction makes the function known to the engine, or updates it after an earlier start.
func createFunction(ctx context.Context, cfg aws.Config, f Function) error {
	client := lambda.NewFromConfig(cfg)
	timeout := aws.Int32(int32((f.Timeout + engineGrace) / time.Second))
	settings := &types.Environment{Variables: f.Env} // for people who read them; the processes get theirs directly
	_, err := client.CreateFunction(ctx, &lambda.CreateFunctionInput{
		FunctionName: &f.Name,
		Role:         aws.String("arn:aws:iam::000000000000:role/" + f.Name),
		Runtime:      types.RuntimeProvidedal2023,
		Handler:      aws.String("bootstrap"),
		Code:         &types.FunctionCode{ZipFile: []byte{}},
		Timeout:      timeout,
		MemorySize:   aws.Int32(int32(f.MemoryMB)),
		Environment:  settings,
	})
	var exists *types.ResourceConflictException
	if errors.As(err, &exists) {
		_, err = client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
			FunctionName: &f.Name, Timeout: timeout, Environment: settings})
	}
	if err != nil {
		return fmt.Errorf("create function: %w", err)
	}
	return nil
}

// environment is the whole environment of one process: Lambda's variables, the variables that lead the SDK to
// this AWS and nowhere else, and the function's own. No variable of our own process is added.
func (f Function) environment(process int) []string {
	env := map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME":        f.Name,
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.MemoryMB),
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + f.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      "local-" + strconv.Itoa(process),
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"LAMBDA_TASK_ROOT":                filepath.Dir(f.Binary),
		"_HANDLER":                        "bootstrap",
		"TZ":                              ":UTC",
		"LANG":                            "en_US.UTF-8",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin",

		"AWS_ENDPOINT_URL":            f.endpoint,
		"AWS_ENDPOINT_URL_SCHEDULER":  f.scheduler,
		"AWS_REGION":                  Region,
		"AWS_DEFAULT_REGION":          Region,
		"AWS_ACCESS_KEY_ID":           Credential,
		"AWS_SECRET_ACCESS_KEY":       Credential,
		"AWS_CONFIG_FILE":             "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
		"AWS_EC2_METADATA_DISABLED":   "true",
	}
	maps.Copy(env, f.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// ready waits until every process is in working order. It returns an error if a process exits before that.
func (f *function) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case err := <-f.earlyExit:
			fail(err)
		case <-ctx.Done():
		}
	}()
	err := f.gate.ready(ctx, len(f.processes))
	if err != nil {
		err = fmt.Errorf("wait for its processes: %w", context.Cause(ctx))
	}
	fail(nil)
	<-watched
	return err
}

func (f *function) killAll() {
	var dying sync.WaitGroup
	for _, p := range f.processes {
		dying.Go(p.end)
	}
	dying.Wait()
}

// stop kills every process and waits until all are gone.
func (f *function) stop() {
	f.cancel()
	f.running.Wait()
}

// Invoke invokes a function of this AWS and returns its answer. If the function fails, Invoke returns an error
// with the answer as its text.
func (a *AWS) Invoke(ctx context.Context, name string, payload []byte) ([]byte, error) {
	out, err := lambda.NewFromConfig(a.config, func(o *lambda.Options) { o.RetryMaxAttempts = 1 }).
		Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: payload})
	if err != nil {
		return nil, fmt.Errorf("invoke %s: %w", name, err)
	}
	if out.FunctionError != nil {
		return out.Payload, fmt.Errorf("invoke %s: %s: %s", name, *out.FunctionError, out.Payload)
	}
	return out.Payload, nil
}
