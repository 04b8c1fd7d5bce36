package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"acklast"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reminder"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// localReport says what "acklast local" started, once it is ready.
type localReport struct {
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	Stack     string `json:"stack"`
	// Source, Recovery and DLQ are queue URLs at the endpoint.
	Source   string `json:"sourceQueueUrl"`
	Recovery string `json:"recoveryQueueUrl"`
	DLQ      string `json:"dlqUrl"`
	// Provider is the address of the provider that reminders go through; GET /messages lists what it accepted.
	Provider string `json:"providerUrl"`
	// Paused are the lanes that are not received from.
	Paused []job.Queue `json:"paused"`
	// Processes are the process ids of the worker.
	Processes []int `json:"processes"`
}

// localOptions are the flags of local.
type localOptions struct {
	port, processes int
	// binary is the worker's; redriver the redrive function's, "" when only the worker's is known.
	binary, redriver string
	scaled           bool
	pause            []string
}

func newLocal(a *app) *cobra.Command {
	var o localOptions
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run the whole system on this machine until Ctrl-C",
		Long: `Run an embedded AWS (SQS, DynamoDB and Lambda) on this machine, with the stack's queues and tables and the
real worker binary as processes, fed by one poller for each lane. No account, no Docker, no credentials.

In a checkout of acklast it builds the worker first; elsewhere --worker-binary says where it is. Once it is
ready it prints the address and commands to copy. The worker's logs go to standard error. Nothing is kept
when it ends. A lane is paused and resumed as on AWS, by "acklast pause" and "acklast resume" or by its event source
mapping, whose id here is the lane's name.`,
		Example: `  acklast local
  acklast local --port 4567 --processes 4 2>worker.log
  acklast local --scaled --pause recovery`,
		Args: cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.local(cmd.Context(), o) }),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.port, "port", 4566, "port of the address on 127.0.0.1; 0 takes any free one")
	flags.IntVar(&o.processes, "processes", local.DefaultProcesses, "worker processes, and so invocations at a time")
	flags.StringVar(&o.binary, "worker-binary", "", "path of the compiled worker (default: build it from the checkout)")
	flags.StringVar(&o.redriver, "redrive-binary", "", "path of the compiled redrive function (default: build it with the worker; without a checkout there is none)")
	flags.BoolVar(&o.scaled, "scaled", false, "shorten backoff, visibility and timeouts to seconds")
	flags.StringSliceVar(&o.pause, "pause", nil, "lanes to start paused: source, recovery")
	_ = cmd.RegisterFlagCompletionFunc("pause", cobra.FixedCompletions([]string{string(job.Source), string(job.Recovery)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) local(ctx context.Context, o localOptions) (err error) {
	paused, err := o.check()
	if err != nil {
		return err
	}
	if err := freePort(ctx, o.port); err != nil {
		return err // now, and not after a minute of building
	}
	binary, remove, err := a.worker(ctx, o.binary)
	if err != nil {
		return err
	}
	defer remove()
	redriver, remove, err := a.redriver(ctx, o.redriver, o.binary == "")
	if err != nil {
		return err
	}
	defer remove()
	settings := topology.Default()
	if o.scaled {
		settings = topology.Scaled()
	}
	numbers := topology.DefaultRedrive()
	if o.scaled {
		numbers = topology.ScaledRedrive()
	}
	env, err := local.Start(ctx, local.Config{Kinds: acklast.Describe(kinds.All()...),
		Stack: a.stack, Settings: settings, Port: o.port, WorkerBinary: binary, Processes: o.processes,
		Functions: a.redriveFunction(redriver, settings, numbers),
		Logs:      a.stderr, Log: slog.New(slog.NewTextHandler(a.stderr, nil)),
		Provider: fakeprovider.Options{Deduplicates: true, LooksUp: true},
	})
	if errors.Is(err, local.ErrPortInUse) {
		return portTaken(o.port)
	}
	if err != nil {
		return err
	}
	defer func() {
		say(a.stderr, "Ending: invocations finish, then everything is gone.\n")
		err = errors.Join(err, env.Close())
	}()
	for _, lane := range paused {
		env.Pause(lane)
	}
	r := localReport{
		Endpoint: env.Endpoint(), Region: local.Region, AccessKey: local.Credential, SecretKey: local.Credential,
		Stack: a.stack, Paused: paused, Processes: env.PIDs(),
	}
	r.Source, r.Recovery, r.DLQ = at(r.Endpoint, env.QueueURLs().Source), at(r.Endpoint, env.QueueURLs().Recovery), at(r.Endpoint, env.QueueURLs().DLQ)
	r.Provider = env.Provider().URL()
	if err := a.answer(r, func(w io.Writer) { a.printLocal(w, r, env.Names(), settings) }); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// check reads the flags that no start could honour.
func (o localOptions) check() (paused []job.Queue, err error) {
	if o.port < 0 || o.port > 65535 {
		return nil, refuse("--port is %d, want 0 to 65535", o.port)
	}
	if o.processes < 1 {
		return nil, refuse("--processes is %d, want at least 1", o.processes)
	}
	paused = []job.Queue{}
	for _, name := range o.pause {
		lane := job.Queue(strings.TrimSpace(name))
		if lane != job.Source && lane != job.Recovery {
			return nil, refuse("--pause names %q, want %s or %s", name, job.Source, job.Recovery)
		}
		paused = append(paused, lane)
	}
	return paused, nil
}

func freePort(ctx context.Context, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return portTaken(port)
	}
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l.Close()
}

func portTaken(port int) error {
	return fmt.Errorf("port %d is taken, perhaps by LocalStack or another acklast local: end that, or choose another with --port", port)
}

// worker returns the path of the worker: the binary that was named, or one compiled from the checkout
// that the working directory lies in. remove takes away what was compiled.
func (a *app) worker(ctx context.Context, named string) (binary string, remove func(), err error) {
	if named != "" {
		return named, func() {}, checkBinary(named)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", nil, err
	}
	root, ok := local.FindCheckout(here)
	if !ok {
		return "", nil, refuse("%s is not in a checkout of acklast, so there is no worker to build: say where its binary is with --worker-binary PATH, or change into a checkout", here)
	}
	dir, err := os.MkdirTemp("", "acklast-worker-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // a temporary folder: the system clears what is left
	fmt.Fprintf(a.stderr, "Building the worker of %s; the first time this takes about a minute.\n", root)
	binary = filepath.Join(dir, "bootstrap")
	if err := local.BuildWorker(ctx, root, binary, a.stderr); err != nil {
		remove()
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
		return "", nil, err
	}
	return binary, remove, nil
}

// redriver returns the redrive function's binary: the given one, or one built from the checkout if the
// worker was too, or none. remove takes away what was built.
func (a *app) redriver(ctx context.Context, given string, build bool) (binary string, remove func(), err error) {
	remove = func() {}
	if given != "" || !build {
		if given != "" {
			err = checkBinary(given)
		}
		return given, remove, err
	}
	root, ok := local.FindCheckout(".")
	if !ok {
		return "", nil, errors.New("not in a checkout any more")
	}
	dir, err := os.MkdirTemp("", "acklast-redrive-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // a temporary folder: the system clears what is left
	binary = filepath.Join(dir, "bootstrap")
	if err := local.BuildFunction(ctx, root, "redrive", binary, a.stderr); err != nil {
		remove()
		return "", nil, err
	}
	return binary, remove, nil
}

// redriveFunction is the redrive function as the local environment runs it: without aliases, and with
// a second process that can stop what the first one does.
func (a *app) redriveFunction(binary string, settings topology.Settings, numbers topology.Redrive) []local.Function {
	if binary == "" {
		return nil
	}
	return []local.Function{{
		Name: topology.NamesOf(a.stack).RedriveFunction, Binary: binary, Timeout: numbers.Timeout, MemoryMB: 256, Processes: 2,
		EnvFor: func(urls topology.QueueURLs) map[string]string {
			return redrive.LocalEnvironment(a.stack, urls, settings, numbers)
		},
	}}
}

// checkBinary says what keeps a file from being a worker.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return refuse("--worker-binary: there is no file %s; build it with: go build -tags lambda.norpc -o %[1]s ./functions/worker", path)
	case err != nil:
		return refuse("--worker-binary: %w", err)
	case !info.Mode().IsRegular():
		return refuse("--worker-binary: %s is not a file", path)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return refuse("--worker-binary: %s is not executable; make it so with: chmod +x %[1]s", path)
	}
	return nil
}

// at returns a queue's URL with the host of the endpoint: the engine names another port than it
// listens on, and some clients believe it.
func at(endpoint, queueURL string) string {
	path := queueURL
	if i := strings.Index(path, "://"); i >= 0 {
		path = path[i+len("://"):]
	}
	_, path, _ = strings.Cut(path, "/")
	return endpoint + "/" + path
}

func (a *app) printLocal(w io.Writer, r localReport, names topology.Names, s topology.Settings) {
	const sample = `{"kind":"reservation.expire","payload":{"reservationId":"r-1","commandId":"hold-1","resourceId":"room-7","units":1}}`
	renews := a.now().Add(72 * time.Hour).UTC().Truncate(time.Second)
	reminding, err := reminder.Payload{
		ReminderID: "renewal-1", SubscriptionID: "sub-1", Channel: reminder.Email, Template: "renewal", TemplateVersion: "v1",
		Recipient: "customer-1", Plan: "pro", RenewsAt: renews, ExpiresAt: renews.Add(-time.Hour),
	}.Job(time.Time{})
	if err != nil {
		reminding = err.Error() // it is a constant but for the time
	}
	me := shellWords(a.args[:1])
	if a.stack != topology.DefaultStack {
		me += " --stack " + shellWords([]string{a.stack})
	}
	lanes := ""
	for _, l := range r.Paused {
		lanes += fmt.Sprintf("\nThe %s lane is paused.", l)
	}
	if s.MaxAhead < topology.Default().MaxAhead {
		lanes += fmt.Sprintf("\nTimes are shortened: jobs may be due at most %v ahead, and have %d attempts.", s.MaxAhead, s.MaxAttempts)
	}
	say(w, `The embedded AWS runs at %s: stack %s, %d worker processes. Ctrl-C ends it.%s

In another terminal:

  export AWS_ENDPOINT_URL=%[1]s AWS_DEFAULT_REGION=%[5]s AWS_ACCESS_KEY_ID=%[6]s AWS_SECRET_ACCESS_KEY=%[7]s

  # hold 1 of 5 rooms for 10 seconds, and see what became of it
  %[8]s hold --reservation r-1 --command hold-1 --resource room-7 --units 1 --for 10s --capacity 5
  %[8]s status
  %[8]s job r-1

  # send its expiry once more: it finds the work done, or not due yet, and has no effect
  %[8]s send '%[9]s'

  # the same with the AWS CLI, whose version 1 needs the flag for SQS
  aws --endpoint-url $AWS_ENDPOINT_URL sqs send-message --queue-url %[10]s --message-body '%[9]s'
  aws --endpoint-url $AWS_ENDPOINT_URL dynamodb get-item --table-name %[11]s --key '{"key":{"S":"reservation.expire/r-1/hold-1"}}'
  aws --endpoint-url $AWS_ENDPOINT_URL dynamodb get-item --table-name %[12]s --key '{"reservation_id":{"S":"r-1"}}'

  # remind somebody of a renewal; the provider here delivers nothing and lists what it accepted
  aws --endpoint-url $AWS_ENDPOINT_URL dynamodb put-item --table-name %[13]s --item '{"subscription_id":{"S":"sub-1"},"status":{"S":"active"},"plan":{"S":"pro"},"renews_at":{"N":"%[14]d"}}'
  %[8]s send '%[15]s'
  %[8]s job renewal-1
  curl -s %[16]s/messages

`, r.Endpoint, r.Stack, len(r.Processes), lanes, r.Region, r.AccessKey, r.SecretKey, me, sample,
		r.Source, names.LedgerTable, names.Table("reservations"),
		names.Table("subscriptions"), renews.UnixMilli(), reminding, r.Provider)
}
