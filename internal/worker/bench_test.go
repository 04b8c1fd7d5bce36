package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// idle has a queue and a ledger that a successful job never calls.
type idle struct{ *memory }

func (idle) Send(context.Context, job.Queue, []lanes.Move) []error     { panic("a move") }
func (idle) Backoff(context.Context, job.Queue, []lanes.Backoff) error { panic("a delivery is left") }
func (idle) Delete(context.Context, job.Queue, []job.Message) []error  { panic("a deletion") }

// expiry is a payload like that of the sample kind reservation.expire.
type expiry struct {
	ReservationID string `json:"reservationId"`
	CommandID     string `json:"commandId"`
	ResourceID    string `json:"resourceId"`
	Units         int64  `json:"units"`
}

// overhead is a handler of batches of ten, whose jobs take only the time of work.
func overhead(tb testing.TB, out io.Writer, work func()) (*worker.Handler, events.SQSEvent) {
	env := worker.Environment("acklast", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	kind := job.Define(job.Definition[expiry]{
		Name: "reservation.expire", Late: job.RunLate,
		Key: func(p expiry) (string, []string) { return p.ReservationID, []string{p.CommandID} },
	})
	kind.Run = func(context.Context, job.Delivery) job.Result {
		work()
		return job.Result{Verdict: job.Committed, Detail: "released"}
	}
	h := worker.New(config, worker.Dependencies{
		Ledger: idle{}, Lanes: idle{}, Operators: &runs{}, Kinds: job.NewCatalogue(kind), Now: time.Now,
		Metrics: telemetry.NewRecorder(out, "acklast", time.Now), Log: telemetry.NewLogger(out, 0),
		Random: func() float64 { return 0 }, Token: func() string { return "0b0d6f7c-6fd0-4c4d-9c45-0e3b4a7a9e21" },
	})
	var event events.SQSEvent
	for i := range 10 {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprintf("059f36b4-87a3-44ab-83d2-66197583%04d", i), ReceiptHandle: "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
			Body:           fmt.Sprintf(`{"kind":"reservation.expire","notBefore":"1999-01-01T10:00:00Z","deadline":"2126-01-01T10:15:00Z","payload":{"reservationId":"r-%d","commandId":"hold-3","resourceId":"room-7","units":1}}`, i),
			EventSourceARN: sourceARN,
			Attributes:     map[string]string{"SentTimestamp": "1796119200000", "ApproximateReceiveCount": "1"},
		})
	}
	return h, event
}

// BenchmarkOverheadPerRecord measures the handler's own cost of a record, without the dependency's calls and
// Lambda's decoding.
func BenchmarkOverheadPerRecord(b *testing.B) {
	h, event := overhead(b, io.Discard, func() {})
	b.ReportAllocs()
	records := 0
	for b.Loop() {
		if _, err := h.Handle(b.Context(), event); err != nil {
			b.Fatal(err)
		}
		records += len(event.Records)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
}

// Allocations do not depend on the machine, so they are bounded here. make bench measures the time.
func TestAllocationsPerRecord(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates on its own account; make test runs this test without it as well")
	}
	h, event := overhead(t, io.Discard, func() {})
	run := func() {
		if _, err := h.Handle(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	run() // the allocations that are made once
	per := testing.AllocsPerRun(100, run) / float64(len(event.Records))
	t.Logf("%.1f allocations per record", per)
	if most := 60.0; per >= most {
		t.Errorf("%.1f allocations per record, want fewer than %v", per, most)
	}
}

// The log is a good part of what a job costs: docs/deploy.md counts its bytes.
func TestLinesOfTheLog(t *testing.T) {
	const most = 300
	for records := range 11 {
		if records == 0 {
			continue
		}
		var out bytes.Buffer
		h, event := overhead(t, &out, func() {})
		event.Records = event.Records[:records]
		ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "5c1f3a2b-0000-4000-8000-000000000001"})
		if _, err := h.Handle(ctx, event); err != nil {
			t.Fatal(err)
		}
		deliveries := 0
		for line := range bytes.Lines(out.Bytes()) {
			if bytes.Contains(line, []byte(`"message":"`+telemetry.MessageDelivery+`"`)) {
				deliveries++
				if len(line) > most {
					t.Errorf("a line has %d bytes, want at most %d: %s", len(line), most, line)
				}
			}
		}
		if deliveries != records {
			t.Errorf("%d lines about %d deliveries", deliveries, records)
		}
		if records == 1 || records == 10 {
			t.Logf("%d bytes of log for %d records:\n%s", out.Len(), records, out.String())
		}
	}
}

// Ten records that wait for a dependency wait together.
func TestABatchTakesAsLongAsOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, event := overhead(t, io.Discard, func() { time.Sleep(20 * time.Millisecond) })
		took := func(records []events.SQSMessage) time.Duration {
			start := time.Now()
			if _, err := h.Handle(t.Context(), events.SQSEvent{Records: records}); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		if one, ten := took(event.Records[:1]), took(event.Records); one != 20*time.Millisecond || ten > one*13/10 {
			t.Errorf("one record takes %v, ten take %v", one, ten)
		}
	})
}

// The handler's memory does not grow with the number of jobs it has handled.
func TestMemoryIsFlat(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector keeps memory of its own; make test runs this test without it as well")
	}
	h, event := overhead(t, io.Discard, func() {})
	heap := func(jobs int) uint64 {
		for range jobs / len(event.Records) {
			if _, err := h.Handle(t.Context(), event); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap(10_000)
	after := heap(90_000)
	t.Logf("heap of %d KiB after 10,000 jobs, %d KiB after 100,000", before>>10, after>>10)
	if after > before+64<<10 {
		t.Errorf("the heap grew by %d KiB", (after-before)>>10)
	}
}
