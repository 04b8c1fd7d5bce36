//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/local"
	"acklast/internal/overview"
)

// running is an "acklast local" that is ready.
type running struct {
	*cli
	stdout, stderr *buffer
	stop           context.CancelFunc
	ended          chan int
}

// startLocal runs "acklast local" in process and waits until it has answered.
func startLocal(t *testing.T, args ...string) *running {
	t.Helper()
	stack := fmt.Sprintf("cli%d", stacks.Add(1))
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cli: &cli{t: t, stack: stack, env: map[string]string{envStack: stack}},
		stdout: new(buffer), stderr: new(buffer), stop: cancel, ended: make(chan int, 1)}
	go func() {
		r.ended <- run(ctx, append([]string{"./bin/acklast", "local"}, args...), strings.NewReader(""), r.stdout, r.stderr,
			func(name string) string { return r.env[name] })
	}()
	t.Cleanup(func() { cancel(); r.ended <- <-r.ended })
	deadline := time.Now().Add(5 * time.Minute) // the first build of the worker
	for r.stdout.String() == "" {
		select {
		case code := <-r.ended:
			r.ended <- code
			t.Fatalf("acklast local ended with %d: %s", code, r.stderr)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("acklast local is not ready: %s", r.stderr)
		}
	}
	return r
}

// end ends it like Ctrl-C.
func (r *running) end() int {
	r.stop()
	code := <-r.ended
	r.ended <- code
	return code
}

// buildFunctions builds both functions for the tests that do not build them themselves.
func buildFunctions(t *testing.T) local.Functions {
	t.Helper()
	root, ok := local.FindModule(".")
	if !ok {
		t.Fatal("not in a module with functions")
	}
	var log buffer
	functions, err := local.BuildFunctions(t.Context(), root, t.TempDir(), &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	return functions
}

// needSamples skips a test that sends jobs of the sample kinds, if the functions have them no more.
func needSamples(t *testing.T, functions local.Functions) {
	t.Helper()
	for _, name := range []string{"reservation.expire", "reminder.send"} {
		if !slices.ContainsFunc(functions.Kinds, func(k job.Description) bool { return k.Name == name }) {
			t.Skipf("it sends jobs of the sample kind %s, and internal/kinds has it no more", name)
		}
	}
}

// eventually tries until ok.
func eventually(t *testing.T, limit time.Duration, ok func() bool, otherwise func() string) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}

// The output of "acklast local" is enough to work with the stack. The module's own commands in events/local.txt
// are tried in internal/e2e.
func TestLocal(t *testing.T) {
	r := startLocal(t, "--port", "0", "--scaled", "--processes", "1")
	printed := r.stdout.String()
	contains(t, r.stderr.String(), "Building the functions of ", "about a minute")
	contains(t, printed, "stack "+r.stack+", 1 worker processes. Ctrl-C ends it.", "Times are shortened", "at most 5m0s ahead",
		"export AWS_ENDPOINT_URL=http://127.0.0.1:", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"export ACKLAST_STACK="+r.stack+" FAKE_PROVIDER_URL=http://127.0.0.1:")
	tries, err := os.ReadFile("../../events/local.txt")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(tries), "\n")
	contains(t, printed, "\n  "+first+"\n")

	_, endpoint, _ := strings.Cut(printed, "AWS_ENDPOINT_URL=")
	endpoint, _, _ = strings.Cut(endpoint, " ")
	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": endpoint, envStack: r.stack}}
	user.must("status")
	if code := r.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	contains(t, r.stderr.String(), "Ending")
	user.refused(exitFailed, []string{"nothing answers at " + endpoint}, "status")
}

// For a module that proposes no commands, the samples are printed, and the printed commands can be typed.
func TestLocalWithCompiledFunctions(t *testing.T) {
	built := buildFunctions(t)
	r := startLocal(t, "--port", "0", "--scaled", "--worker-binary", built.Worker, "--redrive-binary", built.Redrive)
	printed := r.stdout.String()
	var commands []string
	for line := range strings.Lines(printed) {
		if line, ok := strings.CutPrefix(line, "  ./bin/acklast "); ok {
			commands = append(commands, line)
		}
	}
	if want := 2*len(built.Kinds) + 1; len(commands) != want {
		t.Fatalf("printed %d commands, want %d: %s", len(commands), want, printed)
	}
	for _, k := range built.Kinds {
		contains(t, printed, "The worker knows "+k.Name, "# a sample of "+k.Name)
		for _, table := range k.Tables {
			contains(t, printed, r.stack+"-"+table.Name)
		}
	}
	_, endpoint, _ := strings.Cut(printed, "AWS_ENDPOINT_URL=")
	endpoint, _, _ = strings.Cut(endpoint, " ")
	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": endpoint, envStack: r.stack}}
	user.must(shellFields(commands[0])...)
	// The worker has received it: there is an entry under the printed key.
	eventually(t, 20*time.Second, func() bool { return user.run(shellFields(commands[1])...).code == exitOK },
		func() string { return "no entry of " + commands[1] + "\n" + r.stderr.String() })
	user.must(shellFields(commands[len(commands)-1])...)
}

func TestLocalJSONAndPause(t *testing.T) {
	built := buildFunctions(t)
	needSamples(t, built)
	r := startLocal(t, "--port", "0", "--worker-binary", built.Worker, "--pause", "source,recovery", "--output", "json")
	got := decode[localReport](t, result{stdout: r.stdout.String()})
	if got.Stack != r.stack || got.Region != "us-east-1" || got.AccessKey == "" || got.SecretKey == "" ||
		got.Source != got.Endpoint+"/000000000000/"+r.stack+"-source" || !strings.HasSuffix(got.Recovery, "-recovery") || !strings.HasSuffix(got.DLQ, "-dlq") ||
		len(got.Paused) != 2 || len(got.Processes) != local.DefaultProcesses {
		t.Errorf("report is %+v", got)
	}
	r.env["AWS_ENDPOINT_URL"] = got.Endpoint
	r.must("send", expiry("r-1"))
	time.Sleep(500 * time.Millisecond)
	if s := decode[overview.Snapshot](t, r.must("status", "--output", "json")).Lanes[0]; s.Ready != 1 || s.InFlight != 0 {
		t.Errorf("a paused lane was received from: %+v", s)
	}
	// The lane is resumed by the same command as on AWS. Then the job is received; its hold does not exist.
	if l := decode[laneReport](t, r.must("resume", "source", "--output", "json")); l.State != "Enabled" || l.Lane != "source" {
		t.Errorf("resumed: %+v", l)
	}
	eventually(t, 20*time.Second, func() bool {
		return decode[overview.Snapshot](t, r.must("status", "--output", "json")).DLQ.Isolated == 1
	}, func() string { return "a resumed lane is not received from\n" + r.stderr.String() })
	contains(t, r.must("pause", "recovery").stdout, "The recovery lane is disabled.")
	contains(t, r.must("pause", "recovery").stderr, "Writing to stack "+r.stack)
	r.refused(exitRefused, []string{"is no lane"}, "pause", "dlq")
	if code := r.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, pid := range got.Processes {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("worker process %d is still there: %v", pid, err)
		}
	}
}

func TestLocalPortTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	r := offline(t).refused(exitFailed, []string{"port " + port + " is taken", "--port"}, "local", "--port", port)
	if strings.Contains(r.stderr, "Building") {
		t.Errorf("built the worker first: %s", r.stderr)
	}
}

func TestLocalRefusesBadFlags(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := offline(t)
	for _, test := range []struct {
		wanted string
		args   []string
	}{
		{"--worker-binary: there is no file /nowhere/bootstrap", []string{"--worker-binary", "/nowhere/bootstrap"}},
		{"--redrive-binary needs --worker-binary", []string{"--redrive-binary", "/nowhere/bootstrap"}},
		{"is not a file", []string{"--worker-binary", t.TempDir()}},
		{plain + " is not executable", []string{"--worker-binary", plain}},
		{`--pause names "dlq"`, []string{"--pause", "source,dlq"}},
		{"--processes is 0", []string{"--processes", "0"}},
		{"--port is 70000", []string{"--port", "70000"}},
	} {
		c.refused(exitRefused, []string{test.wanted}, append([]string{"local", "--port", "0"}, test.args...)...)
	}
}

func TestLocalOutsideAModule(t *testing.T) {
	outside := t.TempDir()
	wanted := []string{outside + " does not lie in a module with functions", "--module DIR"}
	offline(t).refused(exitRefused, wanted, "local", "--port", "0", "--module", outside)
	offline(t).refused(exitRefused, wanted, "demo", "--module", outside)
	t.Chdir(outside)
	offline(t).refused(exitRefused, wanted, "local", "--port", "0")
}

// A module of another name has no demo.
func TestDemoOfAnotherModule(t *testing.T) {
	module := t.TempDir()
	if err := os.MkdirAll(filepath.Join(module, "functions/worker"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte("module example.com/shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	offline(t).refused(exitRefused, []string{module + " has no demo"}, "demo", "--module", module)
}

// The error about an executable that is no worker quotes its output.
func TestLocalWithAWorkerThatIsNone(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho no worker here >&2\nexit 3\n"), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	r := offline(t).run("local", "--port", "0", "--worker-binary", fake)
	if r.code != exitFailed {
		t.Errorf("exit code %d", r.code)
	}
	contains(t, r.stderr, "no worker here")
}
