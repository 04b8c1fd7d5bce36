//go:build bench

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
	"strings"
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

// TestBesideABareWorker gives the same expiries to the worker and to a bare one, each in its own process, with
// tables in memory. So it measures the two programs alone. Only the ratios have a meaning.
func TestBesideABareWorker(t *testing.T) {
	const jobs = 10_000
	bare := filepath.Join(t.TempDir(), "bare")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", bare, "./testdata/bare")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, resources := range []int{jobs, 10} {
		var rate, cpu [2]float64
		for i, binary := range []string{bootstrap, bare} {
			rate[i], cpu[i] = feed(t, binary, jobs, resources)
		}
		fmt.Printf("beside a bare worker: %d jobs on %d resources: worker %.0f jobs/s, %.2f s of CPU per 1,000 jobs; bare %.0f jobs/s, %.2f s; ratios %.2f and %.2f\n",
			jobs, resources, rate[0], cpu[0], rate[1], cpu[1], rate[0]/rate[1], cpu[0]/cpu[1])
	}
}

// feed lets one process handle the jobs and returns its jobs a second and its seconds of CPU per 1,000 jobs.
func feed(t *testing.T, binary string, jobs, resources int) (rate, cpu float64) {
	t.Helper()
	names := topology.NamesOf("bench")
	db := memdb.New()
	for _, table := range names.Tables() {
		db.CreateTable(table.Name, table.PartitionKey, table.SortKey)
	}
	db.CreateTable(names.Table("reservations"), "reservation_id", "")
	db.CreateTable(names.Table("resources"), "resource_id", "")
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	var event events.SQSEvent
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
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprint("m-", i), ReceiptHandle: "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a", Body: body,
			EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:" + names.SourceQueue,
			Attributes:     map[string]string{"SentTimestamp": fmt.Sprint(then.UnixMilli()), "ApproximateReceiveCount": "1"},
		})
		if len(event.Records) == 10 {
			encoded, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			batches, event.Records = append(batches, encoded), nil
		}
	}
	next, over := 0, make(chan struct{})
	begun := time.Now()
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-over
	took := time.Since(begun)
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return float64(jobs) / took.Seconds(), used.Seconds() * 1000 / float64(jobs)
}
