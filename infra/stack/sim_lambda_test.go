package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/infra/cloudwatch"
	"acklast/internal/job"
	"acklast/internal/redrive"
	"acklast/internal/telemetry"
	"acklast/internal/worker"
)

// Lambda, its pollers, the producers, the census's schedule and the minute's metrics: what happens by itself.

// usual is how long a job takes.
const usual = 50 * time.Millisecond

// live lets the world go on, second by second, until stop.
func (w *world) live(done chan<- struct{}) {
	defer close(done)
	for {
		time.Sleep(time.Second)
		w.mu.Lock()
		stop := w.stop
		w.mu.Unlock()
		if stop {
			return
		}
		w.produce()
		for _, lane := range []job.Queue{job.Source, job.Recovery} {
			w.poll(lane)
		}
		if now := time.Now(); !now.Before(w.census) {
			w.census = w.census.Add(24 * time.Hour)
			w.ask(redrive.Request{Action: redrive.ActionCensus})
		}
		if time.Since(w.began)%time.Minute == 0 {
			w.report()
		}
	}
}

// produce sends the jobs that are due.
func (w *world) produce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; !w.next.After(time.Now()); w.next = w.next.Add(w.every) {
		if !w.fault.silent {
			w.send("")
		}
	}
}

// send sends one job; locked. Without an id it is a job like any other.
func (w *world) send(id string) string {
	kind := plainKind
	if w.sent++; w.sent%2 == 0 {
		kind = reminderKind
	}
	if id == "" {
		id = fmt.Sprint("job-", w.sent)
	}
	body := fmt.Sprintf(`{"kind":%q,"deadline":%q,"payload":{"ID":%q}}`, kind, time.Now().UTC().Add(budget).Format(time.RFC3339), id)
	w.put(job.Source, job.Message{Body: body}, 0)
	return kind + "/" + id
}

// poll runs what is ready on a lane, as far as its concurrency cap has room.
func (w *world) poll(lane job.Queue) {
	w.mu.Lock()
	limit := w.numbers.SourceConcurrency
	if lane == job.Recovery {
		limit = w.numbers.RecoveryConcurrency
	}
	takes := usual
	if w.fault.takes != 0 {
		takes = w.fault.takes
	}
	second := float64(limit*w.numbers.BatchSize) / takes.Seconds() / w.weight
	w.credit[lane] = min(w.credit[lane]+second, max(second, 1))
	paused := w.fault.paused[lane]
	w.mu.Unlock()
	for !paused && w.credit[lane] >= 1 {
		w.mu.Lock()
		list := w.receive(lane, min(w.numbers.BatchSize, int(w.credit[lane])), w.numbers.LaneVisibility)
		// The jobs of a batch run side by side, and heavy traffic fills the batches.
		if n := float64(len(list)); n > 0 {
			w.busy += time.Duration(float64(takes) * max(1, n*w.weight/float64(w.numbers.BatchSize)))
		}
		w.mu.Unlock()
		if len(list) == 0 {
			return
		}
		w.credit[lane] -= float64(len(list))
		w.invoke(lane, list)
	}
}

// invoke is one invocation of the worker, in a process of its own.
func (w *world) invoke(lane job.Queue, list []job.Message) {
	w.mu.Lock()
	f := w.fault
	w.mu.Unlock()
	failed, throttled := 0.0, 0.0
	switch {
	case f.throttled:
		throttled = 1
	case f.cannotStart || !w.handle(lane, list):
		failed = 1
	}
	w.count("acklast-worker", lambdaThrottles, throttled)
	w.count("acklast-worker", lambdaErrors, failed)
}

// handle runs a batch and deletes what succeeded. It returns false when the invocation failed.
func (w *world) handle(lane job.Queue, list []job.Message) bool {
	s := &session{world: w}
	var out bytes.Buffer
	handler := worker.New(w.config, worker.Dependencies{
		Ledger: s, Lanes: s, Operators: s, Kinds: w.kinds(s), Metrics: telemetry.NewRecorder(&out, "acklast", time.Now),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Random: func() float64 { return 0.5 }, Token: w.id,
		Exit: func() { w.t.Error("the worker's process ends by itself") },
	})
	ctx, cancel := context.WithTimeout(context.Background(), w.numbers.WorkerTimeout)
	defer cancel()
	var event events.SQSEvent
	for _, m := range list {
		event.Records = append(event.Records, record(w.queues[lane].name, m))
	}
	response, err := handler.Handle(ctx, event)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.dead {
		return false
	}
	w.emf.Write(out.Bytes())
	if err != nil {
		return false
	}
	left := map[string]bool{}
	for _, one := range response.BatchItemFailures {
		left[one.ItemIdentifier] = true
	}
	var done []job.Message
	for _, m := range list {
		if !left[m.ID] {
			done = append(done, m)
		}
	}
	w.remove(lane, done)
	return true
}

// record is a message as Lambda hands it to the worker.
func record(queue string, m job.Message) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: m.ID, ReceiptHandle: m.ReceiptHandle, Body: m.Body,
		EventSourceARN: "arn:aws:sqs:" + testRegion + ":" + testAccount + ":" + queue,
		Attributes: map[string]string{
			"SentTimestamp": fmt.Sprint(m.SentAt.UnixMilli()), "ApproximateReceiveCount": fmt.Sprint(m.ReceiveCount),
		},
	}
	if m.Memory != (job.Memory{}) {
		own, err := m.Memory.Encode()
		if err != nil {
			panic(err)
		}
		r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: own.Type, StringValue: &own.String}}
	}
	return r
}

func (w *world) count(function, metric string, n float64) {
	w.metrics.Put(cloudwatch.SeriesOf("AWS/Lambda", metric, "FunctionName="+function), time.Now(), n, 1)
}

// report writes the metrics of the minute that ends.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The alarms look at the whole stack only.
	var lines bytes.Buffer
	for line := range bytes.Lines(w.emf.Bytes()) {
		if bytes.Contains(line, []byte(`"Dimensions":[["`+telemetry.DimensionStack+`"]]`)) {
			lines.Write(line)
		}
	}
	w.emf.Reset()
	if err := w.metrics.ReadLines(&lines, w.weight); err != nil {
		w.t.Fatal(err)
	}
	minute := time.Now().Add(-time.Second)
	if w.busy > 0 {
		w.metrics.Put(cloudwatch.SeriesOf("AWS/Lambda", lambdaConcurrency, "FunctionName=acklast-worker"), minute, math.Ceil(w.busy.Minutes()), 1)
	}
	w.busy = 0
	for lane, q := range w.queues {
		if lane != job.DLQ && !w.fault.paused[lane] || len(q.byID) > 0 {
			q.use(minute) // polled, or not empty
		}
		if minute.After(q.activeUntil) || minute.Before(q.reportsFrom) {
			continue
		}
		d, oldest := q.depth()
		for metric, n := range map[string]int{sqsVisible: d.Visible, sqsNotVisible: d.InFlight, sqsDelayed: d.Delayed} {
			w.metrics.Put(w.queueSeries(q, metric), minute, float64(n)*w.weight, 1)
		}
		w.metrics.Put(w.queueSeries(q, sqsOldest), minute, oldest.Seconds(), 1)
	}
}

// ask is one request to the redrive function.
func (w *world) ask(req redrive.Request) redrive.Response {
	raw, err := json.Marshal(req)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), DefaultInfra().RedriveTimeout)
	defer cancel()
	got, err := w.redrive.Handle(ctx, raw)
	failed := 0.0
	if err != nil {
		failed = 1
	}
	w.count("acklast-redrive", lambdaErrors, failed)
	return got
}
