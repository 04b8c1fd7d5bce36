package lanes_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/sivchari/kumo"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

// engine is an SQS that runs locally.
type engine struct {
	url func() string
	// carriesGroup says whether a standard queue's messages keep their group. None of the engines keeps the
	// trace header of a batch; the tests on the wire show that it is sent and read.
	carriesGroup bool
	// staleIsAnError says whether a deletion by a stale receipt handle fails. SQS does either.
	staleIsAnError bool
}

func TestKumo(t *testing.T) {
	t.Parallel()
	// One server for the process: kumo races with itself when two are built at a time.
	conformance(t, engine{url: sync.OnceValue(func() string { return kumo.NewServer().URL }), staleIsAnError: true})
}

// conformance checks the promises of a Client on an engine.
func conformance(t *testing.T, e engine) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, engine, *lanes.Client)
	}{
		{"RoundTripThroughAllQueues", testRoundTrip},
		{"ADelayedMessageIsNotThereBefore", testDelay},
		{"BackoffHidesADelivery", testBackoff},
		{"DeleteIsPerEntry", testDelete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(t, e, newStack(t, e))
		})
	}
}

// newStack returns a client for the queues of a stack of its own.
func newStack(t *testing.T, e engine) *lanes.Client {
	t.Helper()
	client := awsclient.SQS(awsConfig(t, e.url(), 1))
	stack := fmt.Sprintf("lanes-%08x", rand.Uint32()) // engines outlive the process
	create := func(name string) string {
		out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(stack + "-" + name)})
		if err != nil {
			t.Fatal(err)
		}
		return *out.QueueUrl
	}
	return lanes.New(client, topology.QueueURLs{Source: create("source"), Recovery: create("recovery"), DLQ: create("dlq")})
}

func receive(t *testing.T, c *lanes.Client, q job.Queue, visibility time.Duration) []lanes.Received {
	t.Helper()
	list, err := c.Receive(t.Context(), q, 10, visibility, 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(start)
}

func testRoundTrip(t *testing.T, e engine, c *lanes.Client) {
	want := job.Message{
		Body: "{ \"kind\":\"x\",\n\"payload\":{\"n\":12345678901234567890.10,\"s\":\"ü<&>\u2028\"}}",
		Attributes: map[string]job.Attribute{
			"s":        {Type: "String", String: "ä\t"},
			"n":        {Type: "Number", String: "007.10"},
			"n.custom": {Type: "Number.int", String: "-1"},
			"b":        {Type: "Binary", Binary: []byte{0, 1, 0xfe, 0xff}},
			"b.custom": {Type: "Binary.png", Binary: []byte("\x89PNG")},
			"s.custom": {Type: "String.json", String: `{"a":1}`},
		},
		Memory: job.Memory{Attempt: 1, Contentions: 2, Redrives: 3, Run: "run-1", MessageID: "m-0",
			FirstSent: time.Date(2026, 12, 1, 10, 0, 0, 123e6, time.UTC)},
	}
	if e.carriesGroup {
		want.Group = "tenant-12"
	}
	m := want
	for _, q := range []job.Queue{job.Source, job.Recovery, job.DLQ} {
		if err := c.Send(t.Context(), q, []lanes.Move{{Message: m}})[0]; err != nil {
			t.Fatal(err)
		}
		list := receive(t, c, q, time.Minute)
		if len(list) != 1 {
			t.Fatalf("%s gave %d messages", q, len(list))
		}
		got := list[0]
		if got.Body != want.Body || got.Memory != want.Memory || got.MemoryErr != nil || got.Group != want.Group {
			t.Errorf("%s: message is %+v", q, got)
		}
		if !maps.EqualFunc(got.Attributes, want.Attributes, func(a, b job.Attribute) bool {
			return a.Type == b.Type && a.String == b.String && bytes.Equal(a.Binary, b.Binary)
		}) {
			t.Errorf("%s: attributes are %+v", q, got.Attributes)
		}
		if got.ID == "" || got.ID == m.ID || got.ReceiptHandle == "" || got.ReceiveCount != 1 || time.Since(got.SentAt).Abs() > time.Minute {
			t.Errorf("%s: message is %+v", q, got)
		}
		m = got.Message
	}
}

func testDelay(t *testing.T, _ engine, c *lanes.Client) {
	sent := time.Now()
	moves := []lanes.Move{{Message: job.Message{Body: "now"}}, {Message: job.Message{Body: "later"}, Delay: 2100 * time.Millisecond}}
	if errs := c.Send(t.Context(), job.Recovery, moves); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	if d, err := c.Depth(t.Context(), job.Recovery); err != nil || d != (lanes.Depth{Visible: 1, Delayed: 1}) {
		t.Errorf("depth is %+v: %v", d, err)
	}
	if list := receive(t, c, job.Recovery, time.Minute); len(list) != 1 || list[0].Body != "now" {
		t.Fatalf("received %+v", list)
	}
	if d, err := c.Depth(t.Context(), job.Recovery); err != nil || d != (lanes.Depth{InFlight: 1, Delayed: 1}) {
		t.Errorf("depth is %+v: %v", d, err)
	}
	var list []lanes.Received
	eventually(t, 10*time.Second, "the delayed message", func() bool {
		list = receive(t, c, job.Recovery, time.Minute)
		return len(list) > 0
	})
	// The delay of 2.1 s is rounded up to 3 s, never down to 2 s.
	if waited := time.Since(sent); list[0].Body != "later" || waited < 2100*time.Millisecond {
		t.Errorf("%q came after %v", list[0].Body, waited)
	}
}

func testBackoff(t *testing.T, _ engine, c *lanes.Client) {
	if errs := c.Send(t.Context(), job.Source, bodies(3)); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	list := receive(t, c, job.Source, time.Second)
	if len(list) != 3 {
		t.Fatalf("received %d messages", len(list))
	}
	back := func(i int, d time.Duration) lanes.Backoff {
		return lanes.Backoff{ReceiptHandle: list[i].ReceiptHandle, MessageID: list[i].ID, For: d}
	}
	err := c.Backoff(t.Context(), job.Source, []lanes.Backoff{
		back(0, time.Hour), {ReceiptHandle: "nobody's", MessageID: "stale", For: time.Hour}, back(1, 0), back(2, time.Hour)})
	var e *lanes.Error
	if !errors.Is(err, lanes.ErrNotBackedOff) || !errors.As(err, &e) || e.Code == "" {
		t.Errorf("error is %v", err)
	}
	// The entry after the failed one was backed off too; the one with zero is back at once.
	var again []lanes.Received
	eventually(t, 5*time.Second, "the one backed off by zero", func() bool {
		again = receive(t, c, job.Source, time.Minute)
		return len(again) > 0
	})
	time.Sleep(1200 * time.Millisecond) // the visibility timeout of the receive is over
	again = append(again, receive(t, c, job.Source, time.Minute)...)
	if len(again) != 1 || again[0].ID != list[1].ID || again[0].ReceiveCount != 2 {
		t.Errorf("received again %+v", again)
	}
}

func testDelete(t *testing.T, e engine, c *lanes.Client) {
	if errs := c.Send(t.Context(), job.DLQ, bodies(12)); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	var messages []job.Message
	eventually(t, 5*time.Second, "all messages", func() bool {
		for _, r := range receive(t, c, job.DLQ, time.Minute) {
			messages = append(messages, r.Message)
		}
		return len(messages) == 12
	})
	if d, err := c.Depth(t.Context(), job.DLQ); err != nil || d != (lanes.Depth{InFlight: 12}) {
		t.Errorf("depth is %+v: %v", d, err)
	}
	kept := messages[4].ReceiptHandle
	messages[4].ReceiptHandle = "nobody's"
	errs := c.Delete(t.Context(), job.DLQ, messages)
	if e.staleIsAnError {
		if got := failed(errs); !slices.Equal(got, []int{4}) || !errors.Is(errs[4], lanes.ErrUndeleted) {
			t.Errorf("failed are %v: %v", got, errs)
		}
	} else if got := failed(errs); len(got) > 0 {
		t.Errorf("failed are %v: %v", got, errs)
	}
	if d, err := c.Depth(t.Context(), job.DLQ); err != nil || d != (lanes.Depth{InFlight: 1}) {
		t.Errorf("depth is %+v: %v", d, err)
	}
	messages[4].ReceiptHandle = kept
	if errs := c.Delete(t.Context(), job.DLQ, messages[4:5]); errs[0] != nil {
		t.Error(errs[0])
	}
	if q, err := c.Describe(t.Context(), job.DLQ); err != nil || q.Retention != 4*24*time.Hour || !strings.Contains(q.ARN, "dlq") {
		t.Errorf("the DLQ is %+v: %v", q, err)
	}
	if d, err := c.Depth(t.Context(), job.DLQ); err != nil || d != (lanes.Depth{}) {
		t.Errorf("depth is %+v: %v", d, err)
	}
}
