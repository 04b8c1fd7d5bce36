//go:build bench

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// These tests measure, and print the results. make bench runs them one after the other.

// TestThroughput handles jobs with one and two worker processes. Right before each, it moves the same number of
// messages without a worker, to measure the engine itself.
func TestThroughput(t *testing.T) {
	const jobs, resources = 3000, 100
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			e := newEmbeddedWith(t, topology.Scaled(), processes)
			// Expiries of one resource in one batch take turns, so use many resources.
			hold := func(i int) reservation.Hold {
				h := e.hold(fmt.Sprint("bench-", i), 1, 0)
				h.ResourceID = fmt.Sprint("bench-", i%resources, "-", e.id)
				return h
			}
			for i := range resources {
				if err := e.store.CreateResource(t.Context(), hold(i).ResourceID, jobs); err != nil {
					t.Fatal(err)
				}
			}
			ceiling := e.withoutAWorker(jobs)
			e.env.Pause(job.Source)
			var placing sync.WaitGroup
			for part := range 4 {
				placing.Go(func() {
					for i := part; i < jobs; i += 4 {
						e.place(hold(i))
					}
				})
			}
			placing.Wait()
			start := time.Now()
			e.env.Resume(job.Source)
			e.dry()
			took := time.Since(start)
			e.ends(hold(jobs-1), "done")
			rate := jobs / took.Seconds()
			report(fmt.Sprint("WorkerThroughput/processes=", processes), rate, "jobs/s", ceiling, "engine-msg/s", rate/ceiling, "of-engine")
		})
	}
}

// withoutAWorker sends, receives and deletes n messages and returns how many a second were received and
// deleted. The DLQ has no poller.
func (e *embedded) withoutAWorker(n int) float64 {
	e.Helper()
	moves := make([]lanes.Move, n)
	for i := range moves {
		moves[i].Message.Body = e.body(e.hold(fmt.Sprint("ceiling-", i), 1, 0))
	}
	for _, err := range e.queues.Send(e.Context(), job.DLQ, moves) {
		if err != nil {
			e.Fatal(err)
		}
	}
	start := time.Now()
	for got := 0; got < n; {
		received, err := e.queues.Receive(e.Context(), job.DLQ, 10, time.Minute, 0)
		if err != nil {
			e.Fatal(err)
		}
		var messages []job.Message
		for _, m := range received {
			messages = append(messages, m.Message)
		}
		for _, err := range e.queues.Delete(e.Context(), job.DLQ, messages) {
			if err != nil {
				e.Fatal(err)
			}
		}
		got += len(messages)
	}
	return float64(n) / time.Since(start).Seconds()
}

// report prints figures as a benchmark's line, which make bench collects: values, each with its unit.
func report(name string, figures ...any) {
	line := "Benchmark" + name + "\t1"
	for i := 0; i+1 < len(figures); i += 2 {
		line += fmt.Sprintf("\t%.4g %s", figures[i], figures[i+1])
	}
	fmt.Println(line)
}

// TestColdStart starts the worker and an empty handler in turn, and compares the medians.
func TestColdStart(t *testing.T) {
	const pairs = 40
	empty := filepath.Join(t.TempDir(), "empty")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", empty, "./testdata/empty")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	aws, err := local.StartAWS(t.Context(), "bench-cold", topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer aws.Close()
	event, err := json.Marshal(events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: "m1", ReceiptHandle: "r1", EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:" + aws.Names().SourceQueue,
		Body:       `{"kind":"reservation.expire","payload":{"reservationId":"r","commandId":"c","resourceId":"x","units":1}}`,
		Attributes: map[string]string{"SentTimestamp": "1", "ApproximateReceiveCount": "1"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var next, response [2][]time.Duration
	for range pairs + 2 {
		for i, binary := range []string{bootstrap, empty} {
			n, r := start(t, aws, binary, event)
			next[i], response[i] = append(next[i], n), append(response[i], r)
		}
	}
	median := func(d []time.Duration) time.Duration {
		d = slices.Clone(d[2:]) // the first two load the files
		slices.Sort(d)
		return d[len(d)/2]
	}
	a, b := median(next[0]), median(next[1])
	c, d := median(response[0]), median(response[1])
	report("ColdStart", a.Seconds()*1000, "ms-next", float64(a)/float64(b), "x-next", c.Seconds()*1000, "ms-response", float64(c)/float64(d), "x-response")
	if ratio := float64(a) / float64(b); ratio > 1.15 {
		t.Errorf("the worker takes %.2f times as long to start", ratio)
	}
}

// start runs a bootstrap until its first response.
func start(t *testing.T, aws *local.AWS, binary string, event []byte) (next, response time.Duration) {
	t.Helper()
	asked, answered := make(chan time.Time, 2), make(chan time.Time, 2)
	given := false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/next"):
			if given {
				<-r.Context().Done()
				return
			}
			given = true
			asked <- time.Now()
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(30*time.Second).UnixMilli()))
			_, _ = w.Write(event)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			answered <- time.Now()
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer api.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(api.URL, "http://"), "AWS_ENDPOINT_URL=" + aws.Endpoint(), "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_LAMBDA_FUNCTION_NAME=f", "AWS_LAMBDA_FUNCTION_VERSION=1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256",
		"GET_ITEM=" + aws.Names().LedgerTable,
	}
	for name, value := range worker.Environment(aws.Names().Stack, aws.QueueURLs(), topology.Scaled()) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	at := func(c chan time.Time) time.Duration {
		select {
		case when := <-c:
			return when.Sub(begun)
		case <-ctx.Done():
			t.Fatalf("%s does not start", binary)
			return 0
		}
	}
	return at(asked), at(answered)
}
