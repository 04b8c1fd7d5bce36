package stack

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// Prices of us-east-1 in dollars: per million, but for seconds, gigabytes and months.
const (
	priceSQS         = 0.40
	priceRequest     = 0.20
	priceGBSecond    = 0.0000133334
	priceRead        = 0.125
	priceWrite       = 0.625
	priceSchedule    = 1.00
	priceTrace       = 5.00
	priceLogsGB      = 0.50
	priceMetric      = 0.30
	priceAlarmMetric = 0.10
	priceDashboard   = 3.00
)

// What is assumed of the world.
const (
	// wait is how long a transaction takes, and cpu what the worker computes for a job on a whole processor.
	wait, cpu = 0.010, 0.00035 // seconds
	// wholeMB is the memory at which Lambda gives a function one processor.
	wholeMB = 1769
	// lambdaKB is the size of Lambda's own two lines for each invocation.
	lambdaKB = 0.5
	// traced is the part of an invocation's traces that X-Ray records under load; it records the first one of each
	// second whatever the load.
	traced = 0.05
)

// million is what a million jobs cost that come in batches of a size.
type million struct {
	batch, logsKB float64
}

// took is how long an invocation takes in seconds.
func (m million) took(memoryMB float64) float64 { return wait + m.batch*cpu*max(wholeMB/memoryMB, 1) }

func (m million) duration(memoryMB float64) float64 {
	return 1e6 / m.batch * m.took(memoryMB) * memoryMB / 1024 * priceGBSecond
}

func (m million) polls() float64    { return 2 * priceSQS / m.batch }
func (m million) requests() float64 { return priceRequest / m.batch }
func (m million) logs() float64     { return (m.logsKB + lambdaKB) / m.batch * priceLogsGB }

// traces: at a trickle every invocation is the first of its second.
func (m million) traces() float64 {
	if m.batch == 1 {
		return priceTrace
	}
	return traced * priceTrace / m.batch
}

// delivery is what it costs to bring a message to the worker and to delete it. A message that comes again belongs to
// the trace of its first time.
func (m million) delivery(memoryMB float64) float64 {
	return m.polls() + m.requests() + m.duration(memoryMB) + m.logs()
}

// logKB measures the lines that the worker writes for a batch, in KB.
func logKB(t *testing.T, records int) float64 {
	t.Helper()
	type payload struct{ ReservationID, CommandID string }
	kind := job.Define(job.Definition[payload]{Name: "reservation.expire",
		Key: func(p payload) (string, []string) { return p.ReservationID, []string{p.CommandID} }})
	kind.Run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Committed, Detail: "released"}
	}
	env := worker.Environment("acklast", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	now := func() time.Time { return time.Date(2026, 12, 1, 10, 0, 0, 123e6, time.UTC) }
	h := worker.New(config, worker.Dependencies{
		Operators: nobodyPaused{}, Kinds: job.NewCatalogue(kind), Metrics: telemetry.NewRecorder(&out, "acklast", now),
		Log: telemetry.NewLogger(&out, 0), Now: now, Random: func() float64 { return 0 }, Token: func() string { return "token" },
	})
	var event events.SQSEvent
	for i := range records {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprintf("059f36b4-87a3-44ab-83d2-66197583%04d", i), EventSourceARN: "arn:aws:sqs:us-east-1:1:acklast-source",
			Body: fmt.Sprintf(`{"kind":"reservation.expire","notBefore":"2026-12-01T09:59:59Z","payload":{"ReservationID":"r-%d","CommandID":"hold-3"}}`, 1000+i),
		})
	}
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "5c1f3a2b-0000-4000-8000-000000000001"})
	if _, err := h.Handle(ctx, event); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"outcome":"acknowledged"`); n != records {
		t.Fatalf("%d of %d jobs were done:\n%s", n, records, &out)
	}
	// The line's time is the machine's, and is written without the zeros at its end.
	lines := machineTime.ReplaceAllString(out.String(), `"timestamp":"2026-12-01T10:00:00.123Z"`)
	return float64((len(lines)+50)/100) / 10
}

var machineTime = regexp.MustCompile(`"timestamp":"[^"]+"`)

type nobodyPaused struct{ worker.Operators }

func (nobodyPaused) Paused(context.Context) ([]string, error) { return nil, nil }

// The tables of the page about costs are computed here. Write them anew with
// go test ./infra/stack -run Costs -update
func TestCosts(t *testing.T) {
	trickle, full := million{1, logKB(t, 1)}, million{10, logKB(t, 10)}
	memory := float64(DefaultNumbers().WorkerMemoryMB)
	both := func(f func(million) float64) [2]float64 { return [2]float64{f(trickle), f(full)} }
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }

	row("what", "how many (millions)", "B = 1", "B = 10")
	row("---", "---", "---", "---")
	var sum [2]float64
	for _, line := range []struct {
		what, many string
		cost       [2]float64
	}{
		{"SQS send", "1", [2]float64{priceSQS, priceSQS}},
		{"SQS receive and delete, by Lambda's poller", "2 / B", both(million.polls)},
		{"Lambda requests", "1 / B", both(million.requests)},
		{fmt.Sprintf("Lambda duration at %.0f MB: %.0f ms and %.0f ms an invocation", memory, trickle.took(memory)*1000, full.took(memory)*1000), "1 / B",
			both(func(m million) float64 { return m.duration(memory) })},
		{"DynamoDB, one transaction of three writes", "3 × 2 units", [2]float64{6 * priceWrite, 6 * priceWrite}},
		{fmt.Sprintf("Logs: %.1f KB and %.1f KB of ours, and %.1f KB of Lambda's, an invocation", trickle.logsKB, full.logsKB, lambdaKB), "1 / B", both(million.logs)},
		{"X-Ray: at B = 1 every invocation, at B = 10 a twentieth", "1, 0.05 / B", both(million.traces)},
	} {
		sum[0], sum[1] = sum[0]+line.cost[0], sum[1]+line.cost[1]
		row(line.what, line.many, fmt.Sprintf("%.2f", line.cost[0]), fmt.Sprintf("%.2f", line.cost[1]))
	}
	row("**sum**", "", fmt.Sprintf("**%.2f**", sum[0]), fmt.Sprintf("**%.2f**", sum[1]))
	row("**sum with `tracing` off**", "", fmt.Sprintf("**%.2f**", sum[0]-trickle.traces()), fmt.Sprintf("**%.2f**", sum[1]-full.traces()))

	b.WriteString("\nWhat comes on top of a job, per million:\n\n")
	row("what", "B = 1", "B = 10")
	row("---", "---", "---")
	for _, line := range []struct {
		what string
		cost func(million) float64
	}{
		{"a retry: a read, a write, a send (a tenth of one if ten move together), a delivery", func(m million) float64 {
			return priceRead + priceWrite + priceSQS/m.batch + m.delivery(memory)
		}},
		{"an isolation: a read, a write of the entry and one of the index, a send", func(m million) float64 {
			return priceRead + 2*priceWrite + priceSQS/m.batch
		}},
		{"a suspect, from its third receive on: a read of its strikes, a strike, its job's name, its clearing, a deletion", func(million) float64 {
			return priceRead + 3*priceWrite + priceSQS
		}},
		// The reads are those of BenchmarkCalls in internal/redrive; receives and changes of visibility go by tens.
		{"a redrive: up to 4 reads, two lines of the audit, the entry and the index, 0.6 requests to SQS, 0.1 s of the function at 10 a second; a delivery", func(m million) float64 {
			return 4*priceRead + 4*priceWrite + 0.6*priceSQS + 1e6*0.1*0.25*priceGBSecond + m.delivery(memory)
		}},
		{"a cancellation: a read, a write, a line of the audit", func(million) float64 { return priceRead + 2*priceWrite }},
	} {
		row(line.what, fmt.Sprintf("%.2f", line.cost(trickle)), fmt.Sprintf("%.2f", line.cost(full)))
	}
	checkBlock(t, "<!-- The costs of a million jobs are computed by TestCosts. -->\n", "<!-- They end here. -->\n", b.String(), costsAnew)

	b.Reset()
	row("due", "hops, B = 1", "hops, B = 10", "scheduled, B = 1", "scheduled, B = 10")
	row("---", "---", "---", "---", "---")
	hop := func(m million) float64 { return priceSQS/m.batch + m.delivery(memory) }
	scheduled := func(m million) float64 {
		return priceSchedule + priceSQS + priceRead + priceWrite + m.delivery(memory) + hop(m)
	}
	for _, due := range []struct {
		name  string
		hours float64
	}{{"1 hour", 1}, {"4 hours", 4}, {"1 day", 24}, {"30 days", 30 * 24}, {"365 days", 365 * 24}} {
		row(due.name+" ahead", dollars(4*due.hours*hop(trickle)), dollars(4*due.hours*hop(full)), dollars(scheduled(trickle)), dollars(scheduled(full)))
	}
	checkBlock(t, "<!-- The costs of waiting are computed by TestCosts. -->\n", "<!-- Those of waiting end here. -->\n", b.String(), costsAnew)

	breakEven := fmt.Sprintf("So it pays from %d hops at a trickle, and from %d hours in full batches.",
		int(math.Ceil(scheduled(trickle)/hop(trickle))), int(math.Ceil(scheduled(full)/hop(full)/4)))

	b.Reset()
	row("memory", "share of a processor", "an invocation, B = 1", "B = 10", "duration of a million jobs, B = 1", "B = 10")
	row("---", "---", "---", "---", "---", "---")
	for _, mb := range []float64{128, 256, 512, 1024, wholeMB} {
		row(fmt.Sprintf("%.0f MB", mb), fmt.Sprintf("%.0f %%", 100*mb/wholeMB), fmt.Sprintf("%.0f ms", trickle.took(mb)*1000), fmt.Sprintf("%.0f ms", full.took(mb)*1000),
			fmt.Sprintf("%.3f", trickle.duration(mb)), fmt.Sprintf("%.3f", full.duration(mb)))
	}
	checkBlock(t, "<!-- The memory's costs are computed by TestCosts. -->\n", "<!-- The memory's costs end here. -->\n", b.String(), costsAnew)

	tm := templateOf(t, checked()) // as infra/environments/default.json has it
	alarms, watched := tm.of("AWS::CloudWatch::Alarm"), 0
	for _, id := range alarms {
		_, metrics := tm.watched(tm.Resources[id].Properties)
		watched += len(metrics)
	}
	const mappingMetrics = 4 // polled, invoked, failed and deleted events
	mappings := len(tm.of("AWS::Lambda::EventSourceMapping"))
	polls := 5 * 3 * 60 * 24 * 30 * mappings
	healthy, census, ofStack, ofKind := healthySeries(t), 0, 0, 0
	written, _ := emitted(t)
	for series := range written {
		name := series[strings.LastIndex(series, " ")+1:]
		switch dimensions := strings.TrimSuffix(strings.TrimPrefix(series, telemetry.Namespace+" "), " "+name); {
		case strings.HasPrefix(name, "Census"):
			census++
		case dimensions == "stack=acklast":
			ofStack++
		case dimensions == "kind=reservation.expire,stack=acklast":
			ofKind++
		}
	}
	b.Reset()
	row("what", "how many", "a month")
	row("---", "---", "---")
	month := 0.0
	for _, line := range []struct {
		what, many string
		cost       float64
	}{
		{"pollers that ask SQS for nothing: about five long polls of 20 s a lane", fmt.Sprintf("%.1f million requests", float64(polls)/1e6), float64(polls) / 1e6 * priceSQS},
		{"alarms, by the metrics that they look at", fmt.Sprintf("%d alarms, %d metrics", len(alarms), watched), float64(watched) * priceAlarmMetric},
		{"dashboard (free, as one of three)", "1", priceDashboard},
		{"custom metrics of two healthy kinds, while they are written in every hour", fmt.Sprint(healthy), float64(healthy) * priceMetric},
		{"event counts of the mappings, if they are charged as custom metrics", fmt.Sprintf("%d × %d", mappings, mappingMetrics), float64(mappings*mappingMetrics) * priceMetric},
		{"the census's metrics, written once a day", fmt.Sprintf("%d / 24", census), float64(census) / 24 * priceMetric},
	} {
		month += line.cost
		row(line.what, line.many, fmt.Sprintf("%.2f", line.cost))
	}
	row("**sum**", "", fmt.Sprintf("**%.2f**", month))
	checkBlock(t, "<!-- The costs of a month are computed by TestCosts. -->\n", "<!-- Those of a month end here. -->\n", b.String(), costsAnew)

	doc, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		breakEven,
		fmt.Sprintf("Custom metrics are %d for the stack, %d for each kind", ofStack, ofKind),
		fmt.Sprintf("The census's %d are written once a day", census),
		fmt.Sprintf("a transaction takes %.0f ms", wait*1000), fmt.Sprintf("computes %.2f ms for a job", cpu*1000), fmt.Sprintf("At %s MB", "1,769"),
		fmt.Sprintf("%.2f per million requests of up to 64 KB", priceSQS), fmt.Sprintf("%.2f per million requests, %.10f per GB-second", priceRequest, priceGBSecond),
		fmt.Sprintf("%.3f per million write units (1 KB), %.3f per million read units", priceWrite, priceRead),
		fmt.Sprintf("%.2f per GB of logs taken in, %.2f per custom metric and month, %.2f per metric of an alarm and month, %.0f per dashboard", priceLogsGB, priceMetric, priceAlarmMetric, priceDashboard),
		fmt.Sprintf("%.2f per million invocations", priceSchedule), fmt.Sprintf("%.2f per million traces recorded", priceTrace),
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(doc)), " "), want) {
			t.Errorf("docs/deploy.md does not say %q", want)
		}
	}
}

const costsAnew = "go test ./infra/stack -run Costs -update"

// healthySeries counts the metrics of a stack with two kinds, whose jobs all end well at the first delivery.
func healthySeries(t *testing.T) int {
	t.Helper()
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "acklast", time.Now)
	for _, kind := range []string{"reservation.expire", "reminder.send"} {
		r.Observe(telemetry.Observation{Kind: kind, Lane: job.Source, Outcome: job.Acknowledged, Final: true})
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	return strings.Count(out.String(), `"Unit":`)
}

// dollars writes an amount with a comma after its thousands.
func dollars(amount float64) string {
	text := fmt.Sprintf("%.2f", amount)
	if n := len(text) - len(".00") - 3; n > 0 {
		text = text[:n] + "," + text[n:]
	}
	return text
}
