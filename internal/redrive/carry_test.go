package redrive_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// Whatever its sender put into a message is in it after DLQ → recovery, on an engine that speaks SQS.
func TestCarriedUnchanged(t *testing.T) {
	ten := map[string]job.Attribute{}
	for i := range 9 {
		ten[fmt.Sprint("s", i)] = job.Attribute{Type: "String", String: strings.Repeat("ü", i+1)}
	}
	ten["bin"] = job.Attribute{Type: "Binary.custom", Binary: []byte{0, 1, 254, 255}}
	envelope := func(id, pad string) string {
		return `{"kind":"test", "payload":{"id":"` + id + `"},` + "\n\t" + `"more":"` + pad + `"}`
	}
	messages := map[string]job.Message{
		"types": {Body: envelope("types", "é\u2028<&>"), Attributes: map[string]job.Attribute{
			"s": {Type: "String", String: "x"}, "n": {Type: "Number.int", String: "1"}, "b": {Type: "Binary", Binary: []byte("y")}}},
		// Wrapped by SNS: read through the wrapping, carried with it.
		"wrapped": {Body: `{"Type": "Notification", "MessageId":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",` + "\n" +
			`"TopicArn":"arn:aws:sns:eu-central-1:123456789012:t","Message":` + strconv.Quote(`{"kind":"test","payload":{"id":"wrapped"}}`) + `,"Timestamp":"2026-12-01T09:45:00.000Z"}`},
		"ten":  {Body: envelope("ten", ""), Attributes: ten},
		"full": {Body: envelope("full", strings.Repeat("x", topology.MaxMessageBytes-len(envelope("full", ""))))},
	}
	s, queues, _ := onAWS(t, 0, false, func(c *redrive.Config) {
		c.Numbers.Canary = 10
		c.Numbers.CanaryWait = time.Millisecond // nobody runs them
	})
	for name, m := range messages {
		if err := queues.Send(t.Context(), job.DLQ, []lanes.Move{{Message: m}})[0]; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	plan := request(t, s, planOf(all)).Plan
	// A send whose answer came late was repeated: the second message is a copy.
	if plan.Actions[redrive.Redrive] != len(messages) || plan.Selected != len(messages)+plan.Actions[redrive.Copy] {
		t.Fatalf("plan %+v", plan)
	}
	// Some have no room for a record of why they are here.
	request(t, s, redrive.Request{Action: "approve", Plan: plan.ID, By: "grace", Reason: "seen"})
	if run := request(t, s, redrive.Request{Action: "run", Plan: plan.ID}).Run; run.Counts["sent"] != len(messages) {
		t.Fatalf("run %+v", run)
	}
	got := map[string]lanes.Received{}
	for range 5 {
		received, err := queues.Receive(t.Context(), job.Recovery, 10, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range received {
			got[m.Body] = m
		}
	}
	for name, want := range messages {
		m, ok := got[want.Body]
		if !ok {
			t.Errorf("%s: its body is not there", name)
			continue
		}
		same := func(a, b job.Attribute) bool {
			return a.Type == b.Type && a.String == b.String && string(a.Binary) == string(b.Binary)
		}
		if !maps.EqualFunc(m.Attributes, want.Attributes, same) {
			t.Errorf("%s: attributes %v", name, m.Attributes)
		}
		if fits := lanes.Fits(job.Message{Body: want.Body, Attributes: want.Attributes, Memory: job.Memory{Run: plan.Run}}); fits != (m.Memory.Run == plan.Run) {
			t.Errorf("%s: memory %+v, fits %v", name, m.Memory, fits)
		}
	}
}

func TestScanLimitsSayThatItIsAPart(t *testing.T) {
	for name, limit := range map[string]func(*bench){
		"limit of 20 messages": func(b *bench) { b.Numbers.ScanMessages = 20 },
		"bytes":                func(b *bench) { b.Numbers.ScanBytes = 200 },
		"limit of 10ms":        func(b *bench) { b.Numbers.ScanTime, b.latency = 10*time.Millisecond, time.Millisecond },
		"others hold the rest": func(b *bench) {
			for _, m := range b.queues[job.DLQ][:7] {
				m.visible = time.Now().Add(time.Hour)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			for i := range 100 {
				b.isolated(fmt.Sprint("j", i), job.Transient)
			}
			limit(b)
			got := b.must(planOf(all))
			contains(t, got.Plan.Partial, name, "the reason for a part")
			within(t, got.Scan.Seen, 0, 99, "the number of seen messages")
			equal(t, got.Scan.Holds, 100, "the number of messages on the DLQ")
		})
	}
}

// Sent, not deleted, and isolated again meanwhile: the old copy is deleted when it is seen again, and
// not sent a second time.
func TestUndeletedCopyIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = isolatesAgain
		id := b.isolated("a", job.Transient)
		plan := b.must(planOf(all)).Plan
		b.fault = func(call string) (error, error) {
			if call == "delete" {
				return errOutage, nil
			}
			return nil, nil
		}
		first := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, first.State, redrive.Halted, "the first run's state")
		equal(t, first.Counts["sent-undeleted"], 1, "the number of messages that were sent and not deleted")
		equal(t, b.on(job.DLQ), 2, "the number of messages on the DLQ")
		if t.Failed() {
			t.FailNow()
		}
		b.fault = nil
		time.Sleep(time.Hour) // until it is visible again
		second := b.must(redrive.Request{Action: "run", Run: plan.Run}).Run
		equal(t, second.Counts["sent"], 1, "the run's count of sent messages")
		equal(t, len(b.sentAt), 1, "the number of sent messages")
		if b.on(job.DLQ) != 1 {
			t.Errorf("%d messages are on the DLQ, want 1", b.on(job.DLQ))
		} else {
			equal(t, b.queues[job.DLQ][0].ID == id, false, "whether the sent message is still on the DLQ")
		}
	})
}

// What others hold is waiting, and not gone.
func TestInFlightIsWaitingAndNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run = completes(map[string]int{})
		for i := range 12 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		plan := b.must(planOf(all)).Plan
		b.queues[job.DLQ][3].visible = time.Now().Add(time.Hour)
		got := b.must(redrive.Request{Action: "run", Plan: plan.ID}).Run
		equal(t, got.State, redrive.Halted, "the run's state")
		equal(t, got.Unseen, 1, "the number of unseen messages")
		equal(t, got.Counts["gone"], 0, "the number of gone messages")
		equal(t, got.Counts["sent"], 11, "the number of sent messages")
		time.Sleep(time.Hour)
		if got = b.must(redrive.Request{Action: "run", Run: plan.Run}).Run; got.State != redrive.Done || len(b.sentAt) != 12 {
			t.Errorf("run %+v", got)
		}
	})
}

func TestScanOutlivesALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 50 {
			b.isolated(fmt.Sprint("j", i), job.Transient)
		}
		fails := 1
		b.fault = func(call string) (error, error) {
			if call == "receive" && fails > 0 {
				fails--
				return nil, errOutage // received, and the answer is lost
			}
			return nil, nil
		}
		got := b.must(planOf(all))
		equal(t, got.Scan.Seen, 40, "the number of seen messages")
		equal(t, got.Scan.Holds, 50, "the number of messages on the DLQ")
		equal(t, got.Plan.Partial == "", false, "whether the plan hides that it is a part")
		fails = 1000
		if _, err := b.try(t.Context(), planOf(all)); err == nil {
			t.Error("a queue that cannot be read is taken for an empty one")
		}
	})
}
