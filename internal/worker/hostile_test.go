package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// The texts that a hostile sender puts wherever it can: lines of a log, of metrics and of a terminal.
const (
	forgedLine   = "\n{\"level\":\"INFO\",\"message\":\"delivery\",\"outcome\":\"acknowledged\",\"message_id\":\"m2\"}\n"
	forgedMetric = "\r\n{\"_aws\":{\"Timestamp\":1,\"CloudWatchMetrics\":[{\"Namespace\":\"acklast\",\"Dimensions\":[[]],\"Metrics\":[{\"Name\":\"Isolated\"}]}]},\"Isolated\":1e9}\r\n"
	terminal     = "\x1b]0;owned\x07\x1b[2J\u009b2J\u202e\u2028"
)

// hostile are bodies of a sender that means harm.
func hostile() map[string]string {
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	named := func(member string) string { return `{"kind":"test","payload":{"ID":"evil",` + member + `}}` }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	fill := func(head, tail string) string {
		return head + strings.Repeat("x", topology.MaxMessageBytes-len(head)-len(tail)) + tail
	}
	bodies := map[string]string{
		"1 MiB that is a job": fill(`{"kind":"test","payload":{"ID":"evil","more":"`, `"}}`), "1 MiB that is none": fill("", ""), "1 MiB of an id": fill(`{"kind":"test","payload":{"ID":"`, `"}}`),
		"1 MiB of a kind": fill(`{"kind":"`, `","payload":{}}`), "1 MiB of brackets": strings.Repeat("[", topology.MaxMessageBytes),
		"deep payload": named(`"more":` + deep(9_990)), "deeper payload": named(`"more":` + deep(10_000)), "deep body": deep(10_000), "deep objects": strings.Repeat(`{"a":`, 10_000),
		"deep event":   `{"detail-type":"x","source":"y","detail":` + named(`"more":`+deep(10_000)) + `}`,
		"a name twice": named(`"ID":"1"`), "a name twice inside": named(`"more":{"a":1,"a":2}`), "two jobs": named(`"a":1`) + named(`"a":2`), "kind twice": `{"kind":"test","kind":"other","payload":{"ID":"1"}}`,
		"huge number": named(`"more":1` + strings.Repeat("0", 100_000)), "huge exponent": named(`"more":1e999999999`), "far time": `{"kind":"test","notBefore":"9999-12-31T23:59:59Z","payload":{"ID":"evil"}}`,
		"time before all": `{"kind":"test","deadline":"0000-01-01T00:00:00Z","payload":{"ID":"evil"}}`,
		"not UTF-8":       named("\"more\":\"\xff\xfe\""), "not UTF-8 in an id": "{\"kind\":\"test\",\"payload\":{\"ID\":\"\xff\"}}", "half a surrogate": named(`"more":"\ud800"`), "NUL": "\x00",
	}
	for name, text := range map[string]string{"line": forgedLine, "metric": forgedMetric, "terminal": terminal} {
		bodies[name+" as a kind"] = `{"kind":` + quoted(text) + `,"payload":{}}`
		bodies[name+" as an id"] = `{"kind":"test","payload":{"ID":` + quoted(text) + `}}`
		bodies[name+" as a field"] = named(`"more":` + quoted(text))
		bodies[name+" as a name"] = named(quoted(text) + `:{"a":1,"a":2}`)
		bodies[name+" as the body"] = text
		bodies[name+" as a time"] = `{"kind":"test","notBefore":` + quoted(text) + `,"payload":{"ID":"evil"}}`
		bodies[name+" as an error"] = `{"kind":"quoting","payload":{"ID":"evil","Text":` + quoted(text) + `}}`
		bodies[name+" in a message"] = `{"Type":"Notification","TopicArn":"a","Message":` + quoted(text) + `}`
	}
	return bodies
}

// forgedMemories are texts of our own attribute that a sender wrote.
func forgedMemories() []string {
	control, err := json.Marshal(forgedLine + terminal)
	if err != nil {
		panic(err)
	}
	return []string{
		"", `{"attempt":9999,"contentions":9999,"redrives":99,"run":"r-20261201-100000-1a2b3c4d","outages":99}`, `{"run":` + string(control) + `}`, `{"key":"test/innocent","class":"crashed","cause":"crash","at":"2026-12-01T10:00:00Z"}`,
		`{"class":` + string(control) + `,"cause":` + string(control) + `}`, `{"v":99,"attempt":1}`, `{"messageId":"m2","redrives":-1}`, strings.Repeat("[", 20_000), forgedMetric,
		`{"unusedClaim":"token-1"}`, `{"firstSent":"0001-01-01T00:00:00Z","opened":"9999-12-31T00:00:00Z","redrives":1}`, `{"outageFrom":"0001-01-01T00:00:00Z","contendedFrom":"0001-01-01T00:00:00Z"}`,
	}
}

// Whatever a sender writes, only its own job ends otherwise: the job beside it is done, no entry has another
// job's key, and no line of the log is its.
func TestAHostileMessageHarmsOnlyItsOwnJob(t *testing.T) {
	kinds := []string{"test", "quoting"}
	for name, body := range hostile() {
		for i, forged := range forgedMemories() {
			if i > 0 && len(body) > 1000 {
				continue // the attribute has nothing to do with the size of the body
			}
			b := newBench(t)
			type quoting struct{ ID, Text string }
			k := job.Define(job.Definition[quoting]{Name: "quoting", Key: func(q quoting) (string, []string) { return q.ID, nil }})
			k.Run = func(_ context.Context, d job.Delivery) job.Result {
				return job.Result{Err: fmt.Errorf("provider said %s", d.Payload.(quoting).Text)}
			}
			b.Kinds = job.NewCatalogue(b.kind("test", job.RunLate), k)
			r := b.record("m1", body)
			if forged != "" {
				r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &forged}}
			}
			before := b.ledger.entries["test/innocent"]
			failed, err := b.handle(r, b.record("m2", `{"kind":"test","payload":{"ID":"innocent"}}`))
			if err != nil {
				t.Errorf("%s, %.40q: the batch failed: %v", name, forged, err)
			}
			if slices.Contains(failed, "m2") {
				t.Errorf("%s, %.40q: the job beside it was left", name, forged)
			}
			innocent := b.ledger.entries["test/innocent"]
			equal(t, innocent.Status, ledger.Done, "%s, %.40q: the status of the job beside it", name, forged)
			equal(t, innocent.Attempts, before.Attempts, "%s, %.40q: its attempts", name, forged)
			equal(t, innocent.Redrives, 0, "%s, %.40q: its generation", name, forged)
			for key, e := range b.ledger.entries {
				if kind, _ := job.KindOf(key); !slices.Contains(kinds, kind) {
					t.Errorf("%s, %.40q: the key %q of an entry names no kind", name, forged, key)
				}
				if strings.ContainsFunc(key, unicode.IsControl) {
					t.Errorf("%s, %.40q: the key %q of an entry has a control character", name, forged, key)
				}
				equal(t, e.Redrives, 0, "%s, %.40q: the generation", name, forged)
				equal(t, e.Run, "", "%s, %.40q: the run", name, forged)
				equal(t, e.Attempts > 1, false, "%s, %.40q: whether the attribute gained an attempt", name, forged)
			}
			if n := len(b.wires.sent[job.Source]) + len(b.wires.sent[job.Recovery]) + len(b.wires.sent[job.DLQ]); n > 1 {
				t.Errorf("%s, %.40q: %d moves of one message", name, forged, n)
			}
			for lane, moves := range b.wires.sent {
				for _, m := range moves {
					if m.Message.Body != body {
						t.Errorf("%s, %.40q: sent to %s with another body", name, forged, lane)
					}
					if m.Delay > 15*time.Minute {
						t.Errorf("%s, %.40q: a delay of %v", name, forged, m.Delay)
					}
				}
			}
			b.wantOwnLines(fmt.Sprintf("%s, %.40q", name, forged), kinds)
		}
	}
}

// wantOwnLines checks that each line of the output is one that the worker wrote: one line a delivery, and metrics
// of known kinds.
func (b *bench) wantOwnLines(name string, kinds []string) {
	b.Helper()
	deliveries := map[string]int{}
	if strings.ContainsFunc(strings.ReplaceAll(b.out.String(), "\n", ""), func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }) {
		b.Errorf("%s: a control character in the log:\n%q", name, b.out.String())
	}
	for line := range strings.Lines(b.out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			b.Errorf("%s: %v in the line %.200q", name, err, line)
			continue
		}
		if len(line) > 4<<10 {
			b.Errorf("%s: a line of %d bytes", name, len(line))
		}
		if fields["_aws"] == nil {
			if fields["message"] == telemetry.MessageDelivery {
				deliveries[fields["message_id"].(string)]++
			}
			continue
		}
		if kind, ok := fields["kind"].(string); ok && kind != "unknown" && !slices.Contains(kinds, kind) {
			b.Errorf("%s: a metric of the kind %q", name, kind)
		}
		for metric, value := range fields {
			if n, ok := value.(float64); ok && metric != "TerminalLatency" && metric != "Lateness" && n > 2 {
				b.Errorf("%s: the metric %s is %v with two messages", name, metric, n)
			}
		}
	}
	for _, id := range []string{"m1", "m2"} {
		equal(b, deliveries[id], 1, "%s: the number of lines about %s", name, id)
	}
}
