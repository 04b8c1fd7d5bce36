package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/topology"
)

// bootBinary is testdata/boot, compiled with aws-lambda-go's runtime loop.
var bootBinary string

func TestMain(m *testing.M) {
	if os.Getenv(envParent) != "" {
		parentMain()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "acklast-local")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bootBinary = filepath.Join(dir, "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", bootBinary, "./testdata/boot")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build testdata/boot: %v\n%s", err, out))
	}
	return m.Run()
}

var stacks atomic.Int64

// newStack returns a unique name, because all engines of a process share their state.
func newStack() string { return fmt.Sprintf("t%d-%d", os.Getpid(), stacks.Add(1)) }

// quick are settings with the shortest times that Lambda's and SQS's whole seconds allow.
func quick() topology.Settings {
	s := topology.Scaled()
	s.WorkerTimeout = time.Second
	s.StartMargin, s.AttemptTime = 700*time.Millisecond, 400*time.Millisecond
	s.LaneVisibility = 6 * time.Second
	s.StartMargin, s.HandoverMargin, s.AttemptTime = 600*time.Millisecond, 150*time.Millisecond, 400*time.Millisecond
	return s
}

// patient are settings with a timeout that no test waits for.
func patient() topology.Settings {
	s := topology.Scaled()
	s.WorkerTimeout = 30 * time.Second
	s.LaneVisibility = 180 * time.Second
	return s
}

type fixture struct {
	*Environment
	*recorder
	t   *testing.T
	sqs *sqs.Client
}

func start(t *testing.T, settings topology.Settings, change ...func(*Config)) *fixture {
	t.Helper()
	r := newRecorder(t)
	c := Config{
		Stack: newStack(), Settings: settings, WorkerBinary: bootBinary,
		WorkerEnv: func(topology.QueueURLs) map[string]string { return map[string]string{"BOOT_REPORT": r.server.URL} },
		Grace:     2 * time.Second,
		Logs:      t.Output(),
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	e, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.release()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{Environment: e, recorder: r, t: t, sqs: awsclient.SQS(e.AWSConfig())}
}

func processes(n int) func(*Config) { return func(c *Config) { c.Processes = n } }

func (f *fixture) url(lane job.Queue) *string {
	if lane == job.Recovery {
		return aws.String(f.QueueURLs().Recovery)
	}
	return aws.String(f.QueueURLs().Source)
}

// send sends the bodies and returns their ids. Bodies that fit into one batch arrive as one batch.
func (f *fixture) send(lane job.Queue, bodies ...string) []string {
	f.t.Helper()
	f.Pause(lane)
	defer f.Resume(lane)
	ids := make([]string, len(bodies))
	for i, b := range bodies {
		out, err := f.sqs.SendMessage(f.t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(lane), MessageBody: &b})
		if err != nil {
			f.t.Fatal(err)
		}
		ids[i] = *out.MessageId
	}
	return ids
}

// counts returns how many messages wait, delayed ones included, and how many are in flight.
func (f *fixture) counts(lane job.Queue) (waiting, inFlight int) {
	f.t.Helper()
	out, err := f.sqs.GetQueueAttributes(context.Background(), &sqs.GetQueueAttributesInput{
		QueueUrl: f.url(lane), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		f.t.Fatal(err)
	}
	n := func(a types.QueueAttributeName) int { v, _ := strconv.Atoi(out.Attributes[string(a)]); return v }
	return n(types.QueueAttributeNameApproximateNumberOfMessages) + n(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		n(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)
}

// awaitEmpty waits until every message of the lane is deleted.
func (f *fixture) awaitEmpty(lane job.Queue) {
	f.t.Helper()
	eventually(f.t, "the lane is empty", func() bool {
		waiting, inFlight := f.counts(lane)
		return waiting == 0 && inFlight == 0
	})
}

// awaitIdle waits until no invocation is in flight.
func (f *fixture) awaitIdle(within time.Duration) {
	f.t.Helper()
	f.Pause(job.Source)
	f.Pause(job.Recovery)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.worker.gate.drained(ctx); err != nil {
		f.t.Fatalf("invocations still in flight after %v", within)
	}
	f.Resume(job.Source)
	f.Resume(job.Recovery)
}

// hanging is when a wait is given up. It ends only tests whose event never comes: no test fails because the
// machine is slow.
const hanging = 5 * time.Minute

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(hanging); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", hanging, what)
		}
	}
}

// recorder sees every event before the function acts on it, and keeps those with a body "block"
// until release.
type recorder struct {
	server *httptest.Server

	mu       sync.Mutex
	seen     []sighting
	blocked  map[string]int // by queue ARN
	peak     map[string]int
	gate     chan struct{}
	released bool
}

type sighting struct {
	at       time.Time
	raw      []byte
	records  []events.SQSMessage
	deadline time.Time
	pid      int
	env      []string
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{blocked: map[string]int{}, peak: map[string]int{}, gate: make(chan struct{})}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

func (r *recorder) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	var e events.SQSEvent
	_ = json.Unmarshal(body, &e)
	ms, _ := strconv.ParseInt(req.Header.Get("Deadline-Ms"), 10, 64)
	pid, _ := strconv.Atoi(req.Header.Get("Pid"))
	r.mu.Lock()
	r.seen = append(r.seen, sighting{time.Now(), body, e.Records, time.UnixMilli(ms), pid, req.Header["Env"]})
	block := false
	for _, m := range e.Records {
		block = block || strings.HasPrefix(m.Body, "block")
	}
	if block {
		arn := e.Records[0].EventSourceARN
		r.blocked[arn]++
		r.peak[arn] = max(r.peak[arn], r.blocked[arn])
		defer func() {
			r.mu.Lock()
			r.blocked[arn]--
			r.mu.Unlock()
		}()
	}
	gate := r.gate
	r.mu.Unlock()
	if block {
		select {
		case <-gate:
		case <-req.Context().Done():
		}
	}
}

func (r *recorder) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.released {
		close(r.gate)
		r.released = true
	}
}

func (r *recorder) sightings() []sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sighting(nil), r.seen...)
}

// of are the sightings with the given message.
func (r *recorder) of(id string) (found []sighting) {
	for _, s := range r.sightings() {
		for _, m := range s.records {
			if m.MessageId == id {
				found = append(found, s)
			}
		}
	}
	return found
}

func (r *recorder) await(t *testing.T, id string, times int) sighting {
	t.Helper()
	eventually(t, fmt.Sprintf("message seen %d times", times), func() bool { return len(r.of(id)) >= times })
	return r.of(id)[times-1]
}

func (r *recorder) blockedNow() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.blocked)
}

func (r *recorder) peakOf(arn string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak[arn]
}
