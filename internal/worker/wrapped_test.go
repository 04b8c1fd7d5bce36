package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

func TestAWrappedJobRunsAndTravelsOnAsItCame(t *testing.T) {
	b := newBench(t)
	wrapped := func(id string) []string {
		return []string{
			fmt.Sprintf(`{"Type":"Notification","TopicArn":"arn:t", "Message":%q}`, body(id+"-sns")),
			fmt.Sprintf(`{"detail-type":"x","source":"s", "detail":%s}`, body(id+"-bridge")),
		}
	}
	for i, body := range wrapped("good") {
		b.one(b.record(fmt.Sprint("m", i), body))
	}
	for _, key := range []string{"test/good-sns", "test/good-bridge"} {
		equal(t, b.ledger.entries[key].Status, ledger.Done, "the status of %s", key)
	}
	b.run = fails(job.Transient, 0)
	for i, body := range wrapped("bad") {
		b.one(b.record(fmt.Sprint("n", i), body))
		m := b.last(job.Recovery, i+1).Message
		equal(b, m.Body, body, "the body of the moved message")
		equal(b, m.Memory.Attempt, 1, "the memory's attempt")
	}
}

// A probe is acknowledged and counted, and is neither a job that became final nor an unreadable body.
func TestAProbeIsAcknowledgedAndCounted(t *testing.T) {
	b := newBench(t)
	b.one(b.record("m1", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`))
	equal(b, len(b.wires.sent), 0, "the number of queues with moves")
	equal(b, len(b.ledger.entries), 0, "the number of entries")
	equal(b, b.ran.Load(), 0, "the number of runs")
	out := b.out.String()
	for _, want := range []string{`"kind":"probe"`, `"Acknowledged":1`, `"outcome":"acknowledged"`, `"detail":"probe"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if strings.Contains(out, "TerminalLatency") {
		t.Errorf("a probe counts as a job that became final:\n%s", out)
	}
}
