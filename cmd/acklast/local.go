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

	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/topology"
)

// localOptions are the flags of local.
type localOptions struct {
	port, processes int
	// module is a folder inside the module whose functions are run.
	module string
	// packages are the functions' main packages in the module.
	packages local.Packages
	// worker and redrive are paths of compiled functions; "" builds the module's.
	worker, redrive string
	scaled          bool
	pause, env      []string
}

func newLocal(a *app) *cobra.Command {
	var o localOptions
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run the whole system on this machine until Ctrl-C",
		Long: `Run an embedded AWS (SQS, DynamoDB and Lambda) on this machine, with the stack's queues and tables and the
real worker binary as processes, fed by one poller for each lane. No account, no Docker, no credentials.

It builds the functions of the module that contains the folder --module, by default the current one: the main
packages functions/worker and functions/redrive, unless --worker-package and --redrive-package name others. The
worker prints its kinds and tables. Without a module, use --worker-binary for a compiled worker. A function gets no variable of your environment; pass the kinds'
variables with --env.

Once it is ready, it prints the address and commands to copy; a module's own commands come from its file
events/local.txt. The functions' logs go to standard error. All data is lost when it ends. A lane is paused
and resumed as on AWS, by "acklast pause" and "acklast resume" or by its event source mapping, whose id
here is the lane's name.`,
		Example: `  acklast local
  acklast local --module ../shop --env SHOP_URL=http://127.0.0.1:8080 --env SHOP_TOKEN
  acklast local --port 4567 --processes 4 2>worker.log
  acklast local --scaled --pause recovery`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.local(cmd.Context(), o) }),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.port, "port", 4566, "port of the address on 127.0.0.1; 0 takes any free one")
	flags.IntVar(&o.processes, "processes", local.DefaultProcesses, "worker processes, and so invocations at a time")
	flags.StringVar(&o.module, "module", ".", "folder in the module whose functions to run")
	usual := local.UsualPackages()
	flags.StringVar(&o.packages.Worker, "worker-package", usual.Worker, "the worker's main package, as a folder from the module's root")
	flags.StringVar(&o.packages.Redrive, "redrive-package", usual.Redrive, "the redrive function's main package, likewise")
	flags.StringVar(&o.worker, "worker-binary", "", "path of a compiled worker (default: build the module's)")
	flags.StringVar(&o.redrive, "redrive-binary", "", "path of a compiled redrive function; with --worker-binary alone there is none")
	flags.StringArrayVar(&o.env, "env", nil, "variable for the kinds, NAME=VALUE, or NAME for its value here; may be repeated")
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
	environment, err := a.variables(o.env)
	if err != nil {
		return err
	}
	if err := freePort(ctx, o.port); err != nil {
		return err // fail now, and not after a minute of building
	}
	functions, tries, remove, err := a.functions(ctx, o)
	if err != nil {
		return err
	}
	defer remove()
	settings, numbers := topology.Default(), topology.DefaultRedrive()
	if o.scaled {
		settings, numbers = topology.Scaled(), topology.ScaledRedrive()
	}
	env, err := local.Start(ctx, local.Config{
		Stack: a.stack, Settings: settings, Kinds: functions.Kinds, Port: o.port,
		WorkerBinary: functions.Worker, Processes: o.processes, Environment: environment,
		RedriveBinary: functions.Redrive, Redrive: numbers,
		Logs: logWriter{a.stderr}, Log: slog.New(slog.NewTextHandler(a.stderr, nil)),
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
		Stack: a.stack, Paused: paused, Processes: env.PIDs(), Provider: env.Provider().URL(),
	}
	for _, k := range functions.Kinds {
		r.Kinds = append(r.Kinds, describeKind(k, env.Names()))
	}
	r.Source, r.Recovery, r.DLQ = at(r.Endpoint, env.QueueURLs().Source), at(r.Endpoint, env.QueueURLs().Recovery), at(r.Endpoint, env.QueueURLs().DLQ)
	if err := a.answer(r, func(w io.Writer) { a.printLocal(w, r, settings, tries) }); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// variables reads --env.
func (a *app) variables(flags []string) (map[string]string, error) {
	env := make(map[string]string, len(flags))
	for _, f := range flags {
		name, value, given := strings.Cut(f, "=")
		if name == "" {
			return nil, refuse("--env is %q, want NAME=VALUE or NAME", f)
		}
		if !given {
			if value = a.getenv(name); value == "" {
				return nil, refuse("--env names %s, which is not set here", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// check checks the flags before anything is started.
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

// findModule returns the root of the module with functions that contains dir.
func findModule(dir string, packages local.Packages) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	root, ok := packages.FindModule(absolute)
	if !ok {
		return "", refuse("%s does not lie in a module with functions (a go.mod and a folder %s): change into one, or name it with --module DIR", absolute, packages.Worker)
	}
	return root, nil
}

// triesFile is the file in which a module keeps commands to try on this machine.
const triesFile = "events/local.txt"

// functions returns the given functions, or else compiles those of the module. tries are the commands that the
// module proposes. remove deletes the compiled files.
func (a *app) functions(ctx context.Context, o localOptions) (f local.Functions, tries string, remove func(), err error) {
	remove = func() {}
	if o.worker != "" {
		f = local.Functions{Worker: o.worker, Redrive: o.redrive}
		for flag, path := range map[string]string{"--worker-binary": o.worker, "--redrive-binary": o.redrive} {
			if err := checkBinary(flag, path); path != "" && err != nil {
				return f, "", nil, err
			}
		}
		f.Kinds, err = local.Describe(ctx, o.worker)
		return f, "", remove, err
	}
	if o.redrive != "" {
		return f, "", nil, refuse("--redrive-binary needs --worker-binary too")
	}
	root, err := findModule(o.module, o.packages)
	if err != nil {
		return f, "", nil, err
	}
	dir, err := os.MkdirTemp("", "acklast-functions-")
	if err != nil {
		return f, "", nil, err
	}
	say(a.stderr, "Building the functions of %s; the first time this takes about a minute.\n", root)
	if f, err = o.packages.Build(ctx, root, dir, a.stderr); err != nil {
		_ = os.RemoveAll(dir)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return f, "", nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, triesFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		say(a.stderr, "acklast: %v\n", err) // only a convenience
	}
	return f, string(text), func() { _ = os.RemoveAll(dir) }, nil // a temporary folder: the system removes the rest
}

// checkBinary says why a file cannot be a function.
func checkBinary(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return refuse("%s: there is no file %s; build it with: go build -tags lambda.norpc -o %[2]s ./functions/%s",
			flag, path, strings.TrimSuffix(strings.TrimPrefix(flag, "--"), "-binary"))
	case err != nil:
		return refuse("%s: %w", flag, err)
	case !info.Mode().IsRegular():
		return refuse("%s: %s is not a file", flag, path)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return refuse("%s: %s is not executable; make it so with: chmod +x %[2]s", flag, path)
	}
	return nil
}
