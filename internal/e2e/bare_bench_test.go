//go:build bench && linux

package e2e_test

import (
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/kinds/reservation"
	"acklast/internal/memdb"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// TestBesideABareWorker gives the same expiries to the worker and to a bare one, each in its own process. Only the
// ratios have a meaning. Tables in memory evaluate the transactions, on the same processors as the worker; its
// transactions have the ledger's conditions, so they take longer there. Tables that accept everything take no
// time: so the third part measures the two programs alone.
func TestBesideABareWorker(t *testing.T) {
	const jobs, rounds = 10_000, 3
	bare := buildBare(t)
	for _, tt := range []struct {
		name      string
		resources int
		evaluates bool
	}{{"distinct", jobs, true}, {"shared", 10, true}, {"accepting", jobs, false}} {
		for range rounds {
			load := load{jobs: jobs, resources: tt.resources, evaluates: tt.evaluates}
			ours, theirs := feed(t, bootstrap, load), feed(t, bare, load)
			report("BesideABareWorker/"+tt.name,
				ours.rate/theirs.rate, "x-jobs/s", ours.cpu/theirs.cpu, "x-cpu", ours.cpu, "cpu-s/1000jobs", theirs.cpu, "bare-cpu-s/1000jobs",
				ours.rss/1024, "MiB", theirs.rss/1024, "bare-MiB")
		}
	}
}

// buildBare compiles the bare worker.
func buildBare(t *testing.T) string {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "bare")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", bare, "./testdata/bare")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bare
}

// used is what one process used: jobs a second, seconds of CPU per 1,000 jobs, KiB of resident memory at the end, calls
// to the tables for each job, and seconds from the start to the first request for work.
type used struct{ rate, cpu, rss, calls, start float64 }

// load is what a process gets: jobs on so many resources, and each copy in a batch after its job's. Tables that do not
// evaluate accept every transaction.
type load struct {
	jobs, resources, copies int
	evaluates               bool
}

// feed lets one process handle a load.
func feed(t *testing.T, binary string, l load) used {
	t.Helper()
	jobs, resources, evaluates := l.jobs, l.resources, l.evaluates
	names := topology.NamesOf("bench")
	db := memdb.New()
	for _, table := range names.Tables() {
		db.CreateTable(table.Name, table.PartitionKey, table.SortKey)
	}
	db.CreateTable(names.Table("reservations"), "reservation_id", "")
	db.CreateTable(names.Table("resources"), "resource_id", "")
	db.CreateTable(names.Stack+"-idempotency", "id", "") // the peer's, see make bench-peers
	var calls atomic.Int64
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if !evaluates && strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			_, _ = io.WriteString(w, "{}")
			return
		}
		res, err := db.Do(r)
		if err != nil {
			panic(err)
		}
		defer res.Body.Close()
		for name, values := range res.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}))
	defer tables.Close()

	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &tables.URL, Credentials: credentials.NewStaticCredentialsProvider("t", "t", "")}
	then := time.Now().Add(-time.Hour)
	client := awsclient.DynamoDB(cfg)
	store := reservation.NewStore(client, names.Table, func() time.Time { return then })
	var batches [][]byte
	var all []events.SQSMessage
	for i := range jobs {
		h := reservation.Hold{
			Payload:   reservation.Payload{ReservationID: fmt.Sprint("r-", i), CommandID: "hold-1", ResourceID: fmt.Sprint("room-", i/(jobs/resources)), Units: 1},
			ExpiresAt: then,
		}
		if i%(jobs/resources) == 0 {
			if err := store.CreateResource(t.Context(), h.ResourceID, int64(jobs)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: aws.String(names.Table("reservations")), Item: map[string]types.AttributeValue{
				"reservation_id": acklast.Text(h.ReservationID), "command_id": acklast.Text(h.CommandID), "resource_id": acklast.Text(h.ResourceID),
				"units": acklast.Number(h.Units), "state": acklast.Text(string(reservation.Held)),
				"expires_at": acklast.Millis(then), "updated_at": acklast.Millis(then),
			}}); err != nil {
			t.Fatal(err)
		}
		body, err := h.Job().Body()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events.SQSMessage{
			MessageId: fmt.Sprint("m-", i), ReceiptHandle: "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a", Body: body,
			EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:" + names.SourceQueue,
			Attributes:     map[string]string{"SentTimestamp": fmt.Sprint(then.UnixMilli()), "ApproximateReceiveCount": "1"},
		})
	}
	for i := range l.copies { // of the oldest jobs, so that a copy is never in its job's batch
		m := all[i]
		m.MessageId = fmt.Sprint("copy-", i)
		all = append(all, m)
	}
	for batch := range slices.Chunk(all, 10) {
		encoded, err := json.Marshal(events.SQSEvent{Records: batch})
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, encoded)
	}
	calls.Store(0)
	next, over := 0, make(chan struct{})
	started, begun := time.Now(), time.Now()
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/next") {
			if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"batchItemFailures":[]`) {
				t.Errorf("response %s", body)
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if next == len(batches) {
			close(over)
			<-r.Context().Done()
			return
		}
		if next == 0 {
			begun = time.Now()
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request")
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
		_, _ = w.Write(batches[next])
		next++
	}))
	defer runtime.Close()

	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(runtime.URL, "http://"), "AWS_ENDPOINT_URL=" + tables.URL, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_LAMBDA_FUNCTION_NAME=f", "AWS_LAMBDA_FUNCTION_VERSION=1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256",
	}
	for name, value := range worker.Environment("bench", topology.QueueURLs{Source: "http://q/s", Recovery: "http://q/r", DLQ: "http://q/d"}, topology.Default()) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	started = time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-over
	took, rss := time.Since(begun), kib(t, cmd.Process.Pid, "VmRSS")
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return used{float64(len(all)) / took.Seconds(), cpu.Seconds() * 1000 / float64(len(all)), rss, float64(calls.Load()) / float64(len(all)), begun.Sub(started).Seconds()}
}
