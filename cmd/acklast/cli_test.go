package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// TestMain removes the user's own AWS settings, which could change the results.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

var stacks atomic.Int64

// cli is a command line in front of an embedded AWS.
type cli struct {
	t     *testing.T
	stack string
	env   map[string]string
	stdin io.Reader
}

// result is the result of a command line.
type result struct {
	code           int
	stdout, stderr string
}

// embedded starts the services with a stack of its own, without a worker.
func embedded(t *testing.T) (*cli, *local.AWS) {
	t.Helper()
	stack := fmt.Sprintf("cli%d", stacks.Add(1))
	aws, err := local.StartAWS(t.Context(), stack, topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = aws.Close() })
	return &cli{t: t, stack: stack, env: map[string]string{"AWS_ENDPOINT_URL": aws.Endpoint(), envStack: stack}}, aws
}

// offline is a command line without any AWS.
func offline(t *testing.T) *cli {
	return &cli{t: t, stack: "none", env: map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", envStack: "none"}}
}

func (c *cli) runContext(ctx context.Context, stderr io.Writer, args ...string) result {
	return c.runTo(ctx, io.Discard, stderr, args...)
}

// runTo runs a command line and writes what it prints to stdout and stderr too.
func (c *cli) runTo(ctx context.Context, stdout, stderr io.Writer, args ...string) result {
	var out, err buffer
	in := c.stdin
	if in == nil {
		in = strings.NewReader("")
	}
	env := c.env
	// This file gets every AWS call of a command, for the check of the policies: see scripts/iam.
	if file := os.Getenv("ACKLAST_CALLS"); file != "" && env["AWS_ENDPOINT_URL"] != "" {
		p := faults.New(env["AWS_ENDPOINT_URL"])
		defer p.Close()
		p.Record(file, command(args), env[envStack])
		env = maps.Clone(env)
		env["AWS_ENDPOINT_URL"] = p.URL()
	}
	code := run(ctx, append([]string{"acklast"}, args...), in, io.MultiWriter(&out, stdout), io.MultiWriter(&err, stderr),
		func(name string) string { return env[name] })
	return result{code, out.String(), err.String()}
}

// command returns the words of a command line that name the command, such as "redrive plan".
func command(args []string) string {
	if len(args) > 1 && args[0] == "redrive" {
		return args[0] + " " + args[1]
	}
	return args[0]
}

func (c *cli) run(args ...string) result {
	return c.runContext(c.t.Context(), io.Discard, args...)
}

// must runs a command line that has to succeed.
func (c *cli) must(args ...string) result {
	c.t.Helper()
	r := c.run(args...)
	if r.code != exitOK {
		c.t.Fatalf("acklast %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r
}

// refused runs a command line that has to end with the exit code. Its error has to contain all of wanted, and
// it has to print no answer.
func (c *cli) refused(code int, wanted []string, args ...string) result {
	c.t.Helper()
	r := c.run(args...)
	if r.code != code {
		c.t.Fatalf("acklast %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.stdout, r.stderr)
	}
	contains(c.t, r.stderr, wanted...)
	if r.stdout != "" {
		c.t.Errorf("acklast %s answered: %s", strings.Join(args, " "), r.stdout)
	}
	return r
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// decode reads a JSON answer strictly: a field that its type does not document is an error.
func decode[T any](t *testing.T, r result) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(r.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s", err, r.stdout)
	}
	return v
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// faulty puts a fault proxy in front of the command line's endpoint.
func (c *cli) faulty() *faults.Proxy {
	p := faults.New(c.env["AWS_ENDPOINT_URL"])
	c.t.Cleanup(p.Close)
	c.env["AWS_ENDPOINT_URL"] = p.URL()
	return p
}

// received takes all visible messages of a queue.
func received(t *testing.T, aws *local.AWS, q job.Queue) []job.Message {
	t.Helper()
	u := aws.QueueURLs()
	client := lanes.New(sqsClient(aws), topology.QueueURLs{Source: u.Source, Recovery: u.Recovery, DLQ: u.DLQ})
	var all []job.Message
	for {
		got, err := client.Receive(t.Context(), q, 10, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return all
		}
		for _, m := range got {
			all = append(all, m.Message)
		}
	}
}

func expiry(reservation string) string {
	return fmt.Sprintf(`{"kind":"reservation.expire","payload":{"reservationId":%q,"commandId":"hold-1","resourceId":"room-7","units":1}}`, reservation)
}

func TestBadCommandLines(t *testing.T) {
	for _, test := range []struct {
		args   string
		wanted []string
	}{
		{"nonsense", []string{`unknown command "nonsense"`, "acklast --help"}},
		{"status --output xml", []string{`--output is "xml", want table or json`, "acklast status --help"}},
		{"status --nope", []string{"unknown flag: --nope"}},
		{"status more", []string{`"more"`}},
		{"job", []string{"an argument is missing", "key or subject"}},
		{"local --env =x --port 0", []string{`--env is "=x"`}},
		{"local --env NO_SUCH_VARIABLE --port 0", []string{"NO_SUCH_VARIABLE, which is not set here"}},
		{"status --stack=", []string{"--stack is empty"}},
		{"status --endpoint-url 127.0.0.1:4566", []string{`endpoint "127.0.0.1:4566" is not a URL`}},
	} {
		t.Run(test.args, func(t *testing.T) { offline(t).refused(exitRefused, test.wanted, strings.Fields(test.args)...) })
	}
}

// Every command has a help text, and its examples can be typed.
func TestHelp(t *testing.T) {
	root := newRoot(&app{getenv: func(string) string { return "" }})
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s has no long help with an example", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			line, _, _ = strings.Cut(line, " #")
			line, _, _ = strings.Cut(line, " 2>")
			for _, part := range strings.Split(line, " | ") {
				words := shellFields(part)
				if len(words) == 0 || words[0] != "acklast" {
					continue
				}
				root := newRoot(&app{getenv: func(string) string { return "" }})
				found, rest, err := root.Find(words[1:])
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err == nil {
					err = found.ValidateRequiredFlags()
				}
				if err != nil || found == root {
					t.Errorf("%s: example %q: %v", cmd.CommandPath(), part, err)
				}
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no usage", cmd.CommandPath(), f.Name)
			}
		})
	}
	r := offline(t).must("send", "--help")
	contains(t, r.stdout, "NDJSON", "Examples:", "--from-line", "Global Flags:", "--endpoint-url")
}

// shellFields splits words as a shell does that knows single quotes only.
func shellFields(s string) (words []string) {
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func TestCompletion(t *testing.T) {
	c := offline(t)
	contains(t, c.must("--help").stdout, "acklast completion bash", "completion")
	contains(t, c.must("completion", "bash").stdout, "bash completion", "acklast")
	contains(t, c.must(cobra.ShellCompRequestCmd, "status", "--output", "").stdout, "table", "json")
	contains(t, c.must(cobra.ShellCompRequestCmd, "local", "--pause", "").stdout, "source", "recovery")
}
