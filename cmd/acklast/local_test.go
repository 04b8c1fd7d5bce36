//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"acklast/internal/ledger"
	"acklast/internal/local"
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

// end ends it as Ctrl-C does.
func (r *running) end() int {
	r.stop()
	code := <-r.ended
	r.ended <- code
	return code
}

// buildWorker builds the worker for the tests that do not build it by themselves.
func buildWorker(t *testing.T) string {
	t.Helper()
	root, ok := local.FindCheckout(".")
	if !ok {
		t.Fatal("not in a checkout")
	}
	binary := filepath.Join(t.TempDir(), "bootstrap")
	var log buffer
	if err := local.BuildWorker(t.Context(), root, binary, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	return binary
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

// put calls DynamoDB's PutItem with a body as it goes over the wire.
func put(t *testing.T, endpoint, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if answer, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, answer)
	}
}

// A new user types what "acklast local" prints, and it works: a hold expires by the real worker.
func TestLocal(t *testing.T) {
	r := startLocal(t, "--port", "0", "--scaled", "--processes", "1")
	printed := r.stdout.String()
	contains(t, r.stderr.String(), "Building the worker of ", "about a minute")
	contains(t, printed, "stack "+r.stack+", 1 worker processes. Ctrl-C ends it.", "Times are shortened", "at most 5m0s ahead",
		"export AWS_ENDPOINT_URL=http://127.0.0.1:", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"aws --endpoint-url $AWS_ENDPOINT_URL sqs send-message --queue-url http://127.0.0.1:", "/"+r.stack+"-source --message-body '{",
		"dynamodb get-item --table-name "+r.stack+"-ledger", "dynamodb get-item --table-name "+r.stack+"-reservations")
	_, endpoint, _ := strings.Cut(printed, "AWS_ENDPOINT_URL=")
	endpoint, _, _ = strings.Cut(endpoint, " ")

	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": endpoint}}
	var commands []string
	for _, line := range strings.Split(printed, "\n") {
		if line, ok := strings.CutPrefix(line, "  ./bin/acklast "); ok {
			commands = append(commands, line)
		}
	}
	if len(commands) != 6 {
		t.Fatalf("printed %d commands: %s", len(commands), printed)
	}
	remind, watch := commands[4], commands[5]
	commands = commands[:4]
	commands[0] = strings.Replace(commands[0], "--for 10s", "--for 1s", 1)
	for _, command := range commands {
		user.must(shellFields(command)...)
	}
	var report jobReport
	eventually(t, 20*time.Second, func() bool {
		report = decode[jobReport](t, user.must("job", "r-1", "--stack", r.stack, "--output", "json"))
		// The two are read one after the other, and this engine shows a transaction half done.
		return len(report.Entries) == 1 && report.Entries[0].Status == ledger.Done && report.Reservation.State == "expired"
	}, func() string { return fmt.Sprintf("the hold did not expire: %+v\n%s", report, r.stderr) })
	if report.Entries[0].Outcome != "released" {
		t.Errorf("report is %+v", report)
	}

	// The reminder: the subscription as it is printed for the AWS CLI, by the AWS CLI's own means.
	_, subscription, _ := strings.Cut(printed, "--table-name "+r.stack+"-subscriptions --item '")
	subscription, _, _ = strings.Cut(subscription, "'")
	put(t, endpoint, `{"TableName":"`+r.stack+`-subscriptions","Item":`+subscription+`}`)
	user.must(shellFields(remind)...)
	var told result
	eventually(t, 20*time.Second, func() bool {
		told = user.run(shellFields(watch)...)
		return told.code == exitOK && strings.Contains(told.stdout, "is done (sent)")
	}, func() string { return fmt.Sprintf("the reminder was not sent: %s\n%s", told.stdout, r.stderr) })
	_, list, _ := strings.Cut(printed, "curl -s ")
	list, _, _ = strings.Cut(list, "\n")
	res, err := http.Get(list) //nolint:noctx // of this process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var accepted []struct{ RequestID, Recipient string }
	if err := json.NewDecoder(res.Body).Decode(&accepted); err != nil || len(accepted) != 1 || accepted[0].Recipient != "customer-1" {
		t.Errorf("the provider accepted %+v, %v", accepted, err)
	}
	contains(t, told.stdout, accepted[0].RequestID)

	if code := r.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	contains(t, r.stderr.String(), "Ending")
	user.refused(exitFailed, []string{"nothing answers at " + endpoint}, "status")
}

func TestLocalJSONAndPause(t *testing.T) {
	binary := buildWorker(t)
	r := startLocal(t, "--port", "0", "--worker-binary", binary, "--pause", "source,recovery", "--output", "json")
	got := decode[localReport](t, result{stdout: r.stdout.String()})
	if got.Stack != r.stack || got.Region != "us-east-1" || got.AccessKey == "" || got.SecretKey == "" ||
		got.Source != got.Endpoint+"/000000000000/"+r.stack+"-source" || !strings.HasSuffix(got.Recovery, "-recovery") || !strings.HasSuffix(got.DLQ, "-dlq") ||
		len(got.Paused) != 2 || len(got.Processes) != local.DefaultProcesses {
		t.Errorf("report is %+v", got)
	}
	r.env["AWS_ENDPOINT_URL"] = got.Endpoint
	r.must("send", expiry("r-1"))
	time.Sleep(500 * time.Millisecond)
	if s := decode[statusReport](t, r.must("status", "--output", "json")).Lanes[0]; s.Ready != 1 || s.InFlight != 0 {
		t.Errorf("a paused lane was received from: %+v", s)
	}
	// Resumed by the same command as on AWS, the job is received: its hold does not exist.
	if l := decode[laneReport](t, r.must("resume", "source", "--output", "json")); l.State != "Enabled" || l.Lane != "source" {
		t.Errorf("resumed: %+v", l)
	}
	eventually(t, 20*time.Second, func() bool {
		return decode[statusReport](t, r.must("status", "--output", "json")).DLQ.Isolated == 1
	}, func() string { return "a resumed lane is not received from\n" + r.stderr.String() })
	contains(t, r.must("pause", "recovery").stdout, "The recovery lane is disabled.")
	contains(t, r.must("pause", "recovery").stderr, "Writing to stack "+r.stack)
	r.refused(exitRefused, []string{"invalid argument"}, "pause", "dlq")
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
		{"there is no file /nowhere/bootstrap", []string{"--worker-binary", "/nowhere/bootstrap"}},
		{"is not a file", []string{"--worker-binary", t.TempDir()}},
		{plain + " is not executable", []string{"--worker-binary", plain}},
		{`--pause names "dlq"`, []string{"--pause", "source,dlq"}},
		{"--processes is 0", []string{"--processes", "0"}},
		{"--port is 70000", []string{"--port", "70000"}},
	} {
		c.refused(exitRefused, []string{test.wanted}, append([]string{"local", "--port", "0"}, test.args...)...)
	}
}

func TestLocalOutsideACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	offline(t).refused(exitRefused, []string{"not in a checkout of acklast", "--worker-binary PATH"}, "local", "--port", "0")
}

// A file that is executable and no worker is told with what it said.
func TestLocalWithAWorkerThatIsNone(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho no worker here\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := offline(t).run("local", "--port", "0", "--worker-binary", fake)
	if r.code != exitFailed {
		t.Errorf("exit code %d", r.code)
	}
	contains(t, r.stderr, "no worker here")
}
