package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/topology"
)

func TestCloseLeavesNothing(t *testing.T) {
	// The engine starts some goroutines only once, and parallel tests have their own. Start both before
	// counting.
	warm, err := StartAWS(t.Context(), newStack(), quick(), 0)
	if err != nil {
		t.Fatal(err)
	}
	warm.Close()
	before := goleak.IgnoreCurrent()

	r := newRecorder(t)
	e, err := Start(t.Context(), Config{
		Stack: newStack(), Settings: patient(), WorkerBinary: bootBinary, Grace: 100 * time.Millisecond,
		WorkerEnv: func(topology.QueueURLs) map[string]string { return map[string]string{"BOOT_REPORT": r.server.URL} },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Environment: e, recorder: r, t: t, sqs: awsclient.SQS(e.AWSConfig())}
	pids := e.PIDs()
	f.await(t, f.send(job.Source, "ok")[0], 1)
	f.await(t, f.send(job.Source, "hang")[0], 1) // outlives the grace
	began := time.Now()
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v with a grace of 100 ms", took)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	r.server.Close()
	goleak.VerifyNone(t, before)
}

func TestCloseLetsInvocationsFinish(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), func(c *Config) { c.Grace = 20 * time.Second })
	id := f.send(job.Source, "block")[0]
	f.await(t, id, 1)
	time.AfterFunc(300*time.Millisecond, f.release)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// The engine's state stays in this process after Close, so a second environment can read it.
	again, err := StartAWS(t.Context(), f.Names().Stack, patient(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f.sqs = awsclient.SQS(again.AWSConfig())
	if waiting, inFlight := f.counts(job.Source); waiting+inFlight != 0 {
		t.Errorf("%d waiting, %d in flight, want the message acknowledged", waiting, inFlight)
	}
}

func TestPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_, err = StartAWS(t.Context(), newStack(), quick(), port)
	if !errors.Is(err, ErrPortInUse) || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Fatalf("port taken: error %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := StartAWS(t.Context(), newStack(), quick(), port)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("http://127.0.0.1:%d", port); a.Endpoint() != want {
		t.Errorf("endpoint %s, want %s", a.Endpoint(), want)
	}
	if _, err := awsclient.SQS(a.AWSConfig()).GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(a.Names().DLQ)}); err != nil {
		t.Errorf("through the fixed port: %v", err)
	}
	a.Close()
	a.Close()
	if _, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		t.Error("the port still answers after Close")
	}
}

func TestEverythingThroughAFixedPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	f := start(t, patient(), func(c *Config) { c.Port = port })
	f.await(t, f.send(job.Source, "ok")[0], 1)
	f.awaitEmpty(job.Source)
}

func TestStartAWSCreatesWhatTopologyNames(t *testing.T) {
	// None of these may lead anywhere else.
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_DYNAMODB"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	profile := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(profile, []byte("[profile work]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n"+
		"use_fips_endpoint = true\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n\n"+
		"[sso-session s]\nsso_start_url = http://127.0.0.1:1\nsso_region = eu-west-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", profile)
	t.Setenv("AWS_PROFILE", "work")
	t.Setenv("AWS_REGION", "eu-central-1")
	s := topology.Default()
	a, err := StartAWS(t.Context(), newStack(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got := a.AWSConfig().Region; got != Region {
		t.Errorf("region %s", got)
	}
	client := awsclient.SQS(a.AWSConfig())
	for url, want := range map[string]map[string]string{
		a.QueueURLs().DLQ:      {"MessageRetentionPeriod": "1209600"},
		a.QueueURLs().Source:   {"MessageRetentionPeriod": "345600", "VisibilityTimeout": "180"},
		a.QueueURLs().Recovery: {"MessageRetentionPeriod": "345600", "VisibilityTimeout": "180"},
	} {
		out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err != nil {
			t.Fatal(err)
		}
		if url != a.QueueURLs().DLQ {
			want["RedrivePolicy"] = `{"deadLetterTargetArn":"` + a.arns.DLQ + `","maxReceiveCount":20}`
		}
		for name, value := range want {
			if out.Attributes[name] != value {
				t.Errorf("%s of %s is %s, want %s", name, url, out.Attributes[name], value)
			}
		}
	}
	tables := awsclient.DynamoDB(a.AWSConfig())
	for _, table := range a.Names().Tables() {
		if _, err := tables.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table.Name}); err != nil {
			t.Errorf("table %s: %v", table.Name, err)
		}
	}
}

// TestMessageMovesToTheDLQ shows that the redrive policy is one the engine acts on.
func TestMessageMovesToTheDLQ(t *testing.T) {
	t.Parallel()
	s := quick()
	s.LaneVisibility, s.MaxReceiveCount = time.Second, 1
	a, err := StartAWS(t.Context(), newStack(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	client := awsclient.SQS(a.AWSConfig())
	urls := a.QueueURLs()
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &urls.Source, MessageBody: aws.String("x")}); err != nil {
		t.Fatal(err)
	}
	receive := func(url string) int {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Messages)
	}
	if receive(urls.Source) != 1 {
		t.Fatal("nothing received")
	}
	eventually(t, "the message is in the DLQ", func() bool { return receive(urls.Source) == 0 && receive(urls.DLQ) == 1 })
}

// A lane is paused by Lambda's own API, as on AWS.
func TestPauseByEventSourceMapping(t *testing.T) {
	f := start(t, patient())
	client := lambda.NewFromConfig(f.AWSConfig())
	name := f.Names().WorkerFunction
	list, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{FunctionName: &name})
	if err != nil || len(list.EventSourceMappings) != 2 || !strings.HasSuffix(*list.EventSourceMappings[0].EventSourceArn, ":"+f.Names().SourceQueue) {
		t.Fatalf("mappings %+v, %v", list, err)
	}
	set := func(uuid string, enabled bool) (string, error) {
		out, err := client.UpdateEventSourceMapping(t.Context(), &lambda.UpdateEventSourceMappingInput{UUID: &uuid, Enabled: &enabled})
		if err != nil {
			return "", err
		}
		return *out.State, nil
	}
	source := *list.EventSourceMappings[0].UUID
	if state, err := set(source, false); err != nil || state != "Disabled" {
		t.Fatal(state, err)
	}
	sent, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(job.Source), MessageBody: aws.String("ok")})
	if err != nil {
		t.Fatal(err)
	}
	other := f.send(job.Recovery, "ok")[0]
	f.await(t, other, 1) // the other lane goes on
	if n, _ := f.counts(job.Source); n != 1 {
		t.Errorf("%d messages wait on the paused lane", n)
	}
	if state, err := set(source, true); err != nil || state != "Enabled" {
		t.Fatal(state, err)
	}
	f.await(t, *sent.MessageId, 1)
	if _, err := set("nobody", true); err == nil {
		t.Error("a mapping that does not exist was changed")
	}
}

func TestProcessEnvironmentIsItsOwn(t *testing.T) {
	t.Setenv("ACKLAST_TEST_SECRET", "leaks")
	var engine string
	f := start(t, patient(), func(c *Config) {
		c.WorkerEndpoint = func(endpoint string) string { engine = endpoint; return endpoint + "/through-a-proxy" }
	})
	got := f.await(t, f.send(job.Source, "ok")[0], 1).env
	for _, want := range []string{
		"AWS_ENDPOINT_URL=" + engine + "/through-a-proxy", "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test",
		"AWS_SECRET_ACCESS_KEY=test", "AWS_LAMBDA_FUNCTION_NAME=" + f.Names().WorkerFunction,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256", "BOOT_REPORT=" + f.server.URL,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	for _, e := range got {
		if strings.HasPrefix(e, "ACKLAST_TEST_SECRET") || strings.HasPrefix(e, "HOME=") {
			t.Errorf("%s leaked into the worker", e)
		}
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := Config{Stack: newStack(), Settings: quick(), WorkerBinary: bootBinary}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no stack":         {func(c *Config) { c.Stack = "" }, "stack is not set"},
		"no binary":        {func(c *Config) { c.WorkerBinary = "" }, "worker binary is not set"},
		"binary missing":   {func(c *Config) { c.WorkerBinary = "/nowhere/bootstrap" }, "/nowhere/bootstrap"},
		"bad settings":     {func(c *Config) { c.Settings.LaneVisibility = time.Second }, "lane visibility"},
		"negative":         {func(c *Config) { c.Processes = -1 }, "-1 processes"},
		"not a program":    {func(c *Config) { c.WorkerBinary = "engine.go" }, "exited before it asked for work"},
		"dies at start":    {func(c *Config) { c.WorkerEnv = dies("LEDGER is not set") }, "LEDGER is not set"},
		"function missing": {func(c *Config) { c.Functions = []Function{{Name: "f", Binary: "/nowhere/f", Timeout: time.Second}} }, "/nowhere/f"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			c.Stack = newStack()
			tt.change(&c)
			e, err := Start(t.Context(), c)
			if err == nil {
				e.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want it to say %q", err, tt.want)
			}
		})
	}
}

func dies(reason string) func(topology.QueueURLs) map[string]string {
	return func(topology.QueueURLs) map[string]string { return map[string]string{"BOOT_DIES": reason} }
}

func TestLogsArriveByLine(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	_, err := Start(t.Context(), Config{Stack: newStack(), Settings: quick(), WorkerBinary: bootBinary, Processes: 1,
		WorkerEnv: dies("first line\nsecond line"), Logs: &logs})
	if err == nil {
		t.Fatal("started")
	}
	if !strings.HasPrefix(logs.String(), "first line\nsecond line\n") {
		t.Errorf("logs %q", logs.String())
	}
}

func TestFurtherFunction(t *testing.T) {
	t.Parallel()
	stack := newStack()
	name := topology.NamesOf(stack).RedriveFunction
	r := newRecorder(t)
	f := start(t, patient(), func(c *Config) {
		c.Stack = stack
		c.Functions = []Function{{Name: name, Binary: bootBinary, Timeout: time.Minute, MemoryMB: 128,
			Env: map[string]string{"BOOT_REPORT": r.server.URL}}}
	})
	out, err := lambda.NewFromConfig(f.AWSConfig()).Invoke(t.Context(), &lambda.InvokeInput{
		FunctionName: &name, Payload: []byte(`{"Records":[{"body":"raw {\"plan\":1}"}]}`)})
	if err != nil || out.FunctionError != nil || string(out.Payload) != `{"plan":1}` {
		t.Fatalf("answer %s, function error %v, error %v", out.Payload, aws.ToString(out.FunctionError), err)
	}
}

// TestNoOrphans kills a process that holds an environment, the way that leaves it no time.
func TestNoOrphans(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only the Linux kernel kills the children")
	}
	file := filepath.Join(t.TempDir(), "pids")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), envParent+"="+file, "ACKLAST_TEST_BOOT="+bootBinary)
	parent.Stderr = t.Output()
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	eventually(t, "the environment runs", func() bool {
		text, _ := os.ReadFile(file)
		pids = nil
		for line := range strings.Lines(string(text)) {
			var pid int
			if n, _ := fmt.Sscanf(line, "%d\n", &pid); n == 1 && pid != 0 {
				pids = append(pids, pid)
			}
		}
		return len(pids) == 3
	})
	for _, pid := range pids {
		if !alive(pid) {
			t.Fatalf("process %d is not there to begin with", pid)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, "the children are gone", func() bool { return !slices.ContainsFunc(pids, alive) })
}

const envParent = "ACKLAST_TEST_PARENT"

func parentMain() {
	// All processes hang in an invocation. A process that waits for work would exit when its Runtime API
	// closes.
	var hanging sync.WaitGroup
	hanging.Add(3)
	report := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hanging.Done() }))
	settings := patient()
	settings.BatchSize = 1
	e, err := Start(context.Background(), Config{Stack: newStack(), Settings: settings, Processes: 3,
		WorkerBinary: os.Getenv("ACKLAST_TEST_BOOT"),
		WorkerEnv:    func(topology.QueueURLs) map[string]string { return map[string]string{"BOOT_REPORT": report.URL} }})
	if err != nil {
		panic(err)
	}
	for range 3 {
		if _, err := awsclient.SQS(e.AWSConfig()).SendMessage(context.Background(), &sqs.SendMessageInput{
			QueueUrl: aws.String(e.QueueURLs().Source), MessageBody: aws.String("hang")}); err != nil {
			panic(err)
		}
	}
	hanging.Wait()
	var text string
	for _, pid := range e.PIDs() {
		text += fmt.Sprintln(pid)
	}
	if err := os.WriteFile(os.Getenv(envParent), []byte(text), 0o600); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute) // to be killed long before
}

// alive reports whether a process runs. A dead process that is not yet reaped does not run.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		state := stat[bytes.LastIndexByte(stat, ')')+2]
		return state != 'Z' && state != 'X'
	}
	if runtime.GOOS == "linux" {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}
