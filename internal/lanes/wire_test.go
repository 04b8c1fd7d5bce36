package lanes_test

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

// awsConfig is a configuration for an endpoint that takes any credentials. One retry makes a
// throttled call visible without waiting for long.
func awsConfig(t *testing.T, endpoint string, attempts int) aws.Config {
	t.Helper()
	cfg, err := awsclient.Load(t.Context(),
		config.WithRegion("eu-central-1"),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "test", "")),
		config.WithBaseEndpoint(endpoint),
		config.WithRetryMaxAttempts(attempts))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

var urls = topology.QueueURLs{
	Source:   "https://sqs.test/1/s-source",
	Recovery: "https://sqs.test/1/s-recovery",
	DLQ:      "https://sqs.test/1/s-dlq",
}

type (
	value struct {
		DataType    string
		StringValue *string
		BinaryValue []byte
	}
	entry struct {
		ID                      string `json:"Id"`
		MessageBody             string
		DelaySeconds            *int
		MessageAttributes       map[string]value
		MessageSystemAttributes map[string]value
		MessageGroupID          *string `json:"MessageGroupId"`
		ReceiptHandle           string
		VisibilityTimeout       *int
	}
	request struct {
		Operation string `json:"-"`
		QueueURL  string `json:"QueueUrl"`
		Entries   []entry
		raw       string
	}
	answer = map[string]any
)

// wire is an HTTP server that records the requests the SDK really sends. Its answer function may
// return a status and a body; without one it confirms every entry as SQS does, MD5 included.
type wire struct {
	mu       sync.Mutex
	requests []request
	answer   func(n int, r request) (status int, body any)
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	req := request{raw: string(b)}
	if err == nil {
		err = json.Unmarshal(b, &req)
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	_, req.Operation, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	n := len(w.requests)
	w.requests = append(w.requests, req)
	w.mu.Unlock()
	status, body := http.StatusOK, any(confirm(req, nil))
	if w.answer != nil {
		status, body = w.answer(n, req)
	}
	rw.Header().Set("Content-Type", "application/x-amz-json-1.0")
	rw.WriteHeader(status)
	if err := json.NewEncoder(rw).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// confirm answers a batch call. An entry in fate fails with that code, or is in neither list if the code is
// empty. The others succeed.
func confirm(r request, fate map[string]string) answer {
	var good, bad []answer
	for _, e := range r.Entries {
		code, doomed := fate[e.ID]
		switch {
		case !doomed:
			sum := md5.Sum([]byte(e.MessageBody))
			good = append(good, answer{"Id": e.ID, "MessageId": "m-" + e.ID, "MD5OfMessageBody": hex.EncodeToString(sum[:])})
		case code != "":
			bad = append(bad, answer{"Id": e.ID, "Code": code, "Message": "no", "SenderFault": code != "InternalError"})
		}
	}
	return answer{"Successful": good, "Failed": bad}
}

func apiError(status int, code string) (int, any) {
	return status, answer{"__type": "com.amazonaws.sqs#" + code, "message": "no"}
}

func newWire(t *testing.T, attempts int, respond func(n int, r request) (int, any)) (*wire, *lanes.Client) {
	t.Helper()
	w := &wire{answer: respond}
	srv := httptest.NewServer(w)
	t.Cleanup(srv.Close)
	return w, lanes.New(awsclient.SQS(awsConfig(t, srv.URL, attempts)), urls)
}

func bodies(n int) []lanes.Move {
	var moves []lanes.Move
	for i := range n {
		moves = append(moves, lanes.Move{Message: job.Message{Body: fmt.Sprintf(`{"n":%d}`, i)}})
	}
	return moves
}

func failed(errs []error) []int {
	list := []int{}
	for i, err := range errs {
		if err != nil {
			list = append(list, i)
		}
	}
	return list
}

func TestSendCarriesEverything(t *testing.T) {
	w, c := newWire(t, 1, nil)
	body := "{ \"kind\" :\t\"x\",\r\n\"payload\":{\"a\":1.10, \"b\":\"<ü\u2028𝄞&>\"} }"
	m := job.Message{
		ID: "m-0", ReceiptHandle: "rh", Body: body, Group: "tenant-7",
		TraceHeader: "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
		Attributes: map[string]job.Attribute{
			"s":      {Type: "String", String: "ä\n"},
			"n":      {Type: "Number", String: "0012.50"},
			"int":    {Type: "Number.int", String: "7"},
			"png":    {Type: "Binary.png", Binary: []byte{0, 0xff, 0x80}},
			"b":      {Type: "Binary", Binary: []byte("x")},
			"custom": {Type: "String.Binary.odd", String: "text"},
			// The memory replaces an attribute under our own name.
			job.MemoryAttribute: {Type: "Number", String: "1"},
		},
		Memory: job.Memory{Attempt: 3, Contentions: 2, MessageID: "m-first"},
	}
	for _, err := range c.Send(t.Context(), job.Recovery, []lanes.Move{{Message: m, Delay: 90 * time.Second}, {Message: job.Message{Body: "plain"}}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(w.requests) != 1 || w.requests[0].Operation != "SendMessageBatch" || w.requests[0].QueueURL != urls.Recovery {
		t.Fatalf("requests are %+v", w.requests)
	}
	e := w.requests[0].Entries[0]
	if e.MessageBody != body {
		t.Errorf("body is %q", e.MessageBody)
	}
	if e.MessageGroupID == nil || *e.MessageGroupID != "tenant-7" {
		t.Errorf("group is %v", e.MessageGroupID)
	}
	trace := e.MessageSystemAttributes["AWSTraceHeader"]
	if len(e.MessageSystemAttributes) != 1 || trace.DataType != "String" || trace.StringValue == nil || *trace.StringValue != m.TraceHeader {
		t.Errorf("system attributes are %+v", e.MessageSystemAttributes)
	}
	if e.DelaySeconds == nil || *e.DelaySeconds != 90 {
		t.Errorf("delay is %v", e.DelaySeconds)
	}
	if len(e.MessageAttributes) != 7 {
		t.Errorf("%d attributes, want 7", len(e.MessageAttributes))
	}
	for name, want := range m.Attributes {
		got := e.MessageAttributes[name]
		if name == job.MemoryAttribute {
			own, err := job.ParseMemory(job.Attribute{Type: got.DataType, String: aws.ToString(got.StringValue)})
			if err != nil || own != m.Memory {
				t.Errorf("memory is %+v: %v", own, err)
			}
			continue
		}
		if got.DataType != want.Type || aws.ToString(got.StringValue) != want.String || !slices.Equal(got.BinaryValue, want.Binary) ||
			(want.Binary == nil) != (got.BinaryValue == nil) || (want.String == "") != (got.StringValue == nil) {
			t.Errorf("attribute %s is %+v, want %+v", name, got, want)
		}
	}
	// Parts that a message does not have are not sent, not even empty ones.
	plain := w.requests[0].Entries[1]
	if plain.MessageGroupID != nil || plain.MessageSystemAttributes != nil || plain.MessageAttributes != nil || plain.DelaySeconds != nil {
		t.Errorf("a plain message was sent as %+v", plain)
	}
	if len(m.Attributes) != 7 || m.Attributes[job.MemoryAttribute].Type != "Number" {
		t.Error("the caller's message was changed")
	}
}

func TestSendRoundsDelaysUp(t *testing.T) {
	w, c := newWire(t, 1, nil)
	delays := map[time.Duration]int{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 899*time.Second + 1: 900,
		900 * time.Second: 900, 901 * time.Second: 900, 24 * time.Hour: 900,
	}
	order := slices.Sorted(maps.Keys(delays))
	moves := bodies(len(order))
	for i, d := range order {
		moves[i].Delay = d
	}
	c.Send(t.Context(), job.Source, moves)
	for i, e := range w.requests[0].Entries {
		got := 0
		if e.DelaySeconds != nil {
			got = *e.DelaySeconds
		}
		if got != delays[order[i]] {
			t.Errorf("%v became %d s, want %d s", order[i], got, delays[order[i]])
		}
	}
}

func TestSendPartialFailure(t *testing.T) {
	_, c := newWire(t, 1, func(n int, r request) (int, any) {
		if n == 0 {
			return 200, confirm(r, map[string]string{"1": "InternalError", "4": "InvalidMessageContents", "7": ""})
		}
		return 200, confirm(r, map[string]string{"0": "InternalError"})
	})
	errs := c.Send(t.Context(), job.DLQ, bodies(13))
	if got := failed(errs); !slices.Equal(got, []int{1, 4, 7, 10}) {
		t.Fatalf("failed are %v: %v", got, errs)
	}
	for i, want := range map[int]lanes.Error{
		1: {Code: "InternalError", Message: "no"}, 4: {Code: "InvalidMessageContents", SenderFault: true, Message: "no"},
		7: {Code: lanes.CodeUnanswered}, 10: {Code: "InternalError", Message: "no"},
	} {
		var e *lanes.Error
		if !errors.Is(errs[i], lanes.ErrUnsent) || !errors.As(errs[i], &e) {
			t.Fatalf("error %d is %v", i, errs[i])
		}
		if e.Code != want.Code || e.SenderFault != want.SenderFault || e.Message != want.Message {
			t.Errorf("error %d is %+v, want %+v", i, e, want)
		}
		if !strings.Contains(e.Error(), want.Code) {
			t.Errorf("error %d says %q", i, e)
		}
	}
}

// A contradictory answer, or one about entries that were not sent, confirms no other entry.
func TestSendDoesNotBelieveAContradiction(t *testing.T) {
	_, c := newWire(t, 1, func(_ int, r request) (int, any) {
		a := confirm(r, nil)
		a["Failed"] = []answer{{"Id": "1", "Code": "InternalError", "SenderFault": false}, {"Id": "3", "Code": "x", "SenderFault": false}}
		a["Successful"] = append(a["Successful"].([]answer)[:2], answer{"Id": "x", "MessageId": "m"}, answer{"Id": "-1", "MessageId": "m"})
		return 200, a
	})
	if got := failed(c.Send(t.Context(), job.DLQ, bodies(3))); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("failed are %v, want 1 and 2", got)
	}
}

func TestSendWholeCallFails(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   int
		code     string
		attempts int
		calls    int
		sender   bool
	}{
		{"server error", 500, "InternalFailure", 1, 2, false},
		{"throttled", 400, "RequestThrottled", 2, 3, true},
		{"no queue", 400, "QueueDoesNotExist", 2, 2, true},
		{"kumo's no queue", 400, "AWS.SimpleQueueService.NonExistentQueue", 1, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, client := newWire(t, c.attempts, func(_ int, r request) (int, any) {
				// The call with the first ten entries fails at every try; the other succeeds.
				if len(r.Entries) == 10 {
					return apiError(c.status, c.code)
				}
				return 200, confirm(r, nil)
			})
			errs := client.Send(t.Context(), job.Recovery, bodies(12))
			if got := failed(errs); len(got) != 10 || got[9] != 9 {
				t.Fatalf("failed are %v", got)
			}
			if len(w.requests) != c.calls {
				t.Errorf("%d calls, want %d", len(w.requests), c.calls)
			}
			for _, err := range errs[:10] {
				var e *lanes.Error
				if !errors.Is(err, lanes.ErrUnsent) || !errors.As(err, &e) || !strings.HasSuffix(e.Code, strings.TrimPrefix(c.code, "AWS.SimpleQueueService.")) {
					t.Errorf("error is %v", err)
				}
			}
		})
	}
}

func TestSendIsNotConfirmedByAWrongChecksum(t *testing.T) {
	_, c := newWire(t, 1, func(_ int, r request) (int, any) {
		a := confirm(r, nil)
		a["Successful"].([]answer)[1]["MD5OfMessageBody"] = "00"
		return 200, a
	})
	errs := c.Send(t.Context(), job.Recovery, bodies(2))
	if len(failed(errs)) != 2 || !errors.Is(errs[0], lanes.ErrUnsent) {
		t.Errorf("errors are %v", errs)
	}
}

func TestSendWithoutAnAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(srv.Close)
	c := lanes.New(awsclient.SQS(awsConfig(t, srv.URL, 1)), urls)
	errs := c.Send(t.Context(), job.Recovery, bodies(2))
	var e *lanes.Error
	if len(failed(errs)) != 2 || !errors.As(errs[1], &e) || e.Code != "" || !errors.Is(e, lanes.ErrUnsent) {
		t.Errorf("errors are %v", errs)
	}
}

func TestSendBatches(t *testing.T) {
	w, c := newWire(t, 1, nil)
	if errs := c.Send(t.Context(), job.Recovery, nil); len(errs) != 0 || len(w.requests) != 0 {
		t.Fatalf("nothing to send made %d calls", len(w.requests))
	}
	sizes := func(reset bool) (n []int) {
		for _, r := range w.requests {
			n = append(n, len(r.Entries))
		}
		if reset {
			w.requests = nil
		}
		return n
	}
	c.Send(t.Context(), job.Recovery, bodies(25))
	if got := sizes(true); !slices.Equal(got, []int{10, 10, 5}) {
		t.Errorf("25 messages went in batches of %v", got)
	}
	// 3 × 512 KiB: two of them fill a call exactly.
	half := lanes.Move{Message: job.Message{Body: strings.Repeat("x", topology.MaxMessageBytes/2)}}
	c.Send(t.Context(), job.Recovery, []lanes.Move{half, half, half})
	if got := sizes(true); !slices.Equal(got, []int{2, 1}) {
		t.Errorf("3 × 512 KiB went in batches of %v", got)
	}
	over := half
	over.Message.Attributes = map[string]job.Attribute{"a": {Type: "String", String: "1"}}
	c.Send(t.Context(), job.Recovery, []lanes.Move{half, over})
	if got := sizes(true); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("1 MiB and 8 bytes went in batches of %v", got)
	}
}

func TestSendRefusesOnlyTheCulprit(t *testing.T) {
	w, c := newWire(t, 1, nil)
	moves := bodies(6)
	moves[0].Message.Body = ""
	moves[1].Message.Body = strings.Repeat("x", topology.MaxMessageBytes+1)
	moves[2].Message.Body = "a\xff"
	moves[3].Message.Attributes = map[string]job.Attribute{"a": {String: "no type"}}
	moves[4].Message.Attributes = map[string]job.Attribute{"a": {Type: "String", String: "\xc0"}}
	eleven := map[string]job.Attribute{}
	for i := range 11 {
		eleven[fmt.Sprint(i)] = job.Attribute{Type: "String", String: "x"}
	}
	moves = append(moves, lanes.Move{Message: job.Message{Body: "x", Attributes: eleven}})
	errs := c.Send(t.Context(), job.Recovery, moves)
	if got := failed(errs); !slices.Equal(got, []int{0, 1, 2, 3, 4, 6}) {
		t.Fatalf("failed are %v", got)
	}
	for _, i := range failed(errs) {
		var e *lanes.Error
		if !errors.Is(errs[i], lanes.ErrUnsent) || !errors.As(errs[i], &e) || e.Code == "" || !e.SenderFault || e.Message == "" {
			t.Errorf("error %d is %#v", i, errs[i])
		}
	}
	if len(w.requests) != 1 || len(w.requests[0].Entries) != 1 || w.requests[0].Entries[0].MessageBody != `{"n":5}` {
		t.Errorf("requests are %+v", w.requests)
	}
}

func TestSendToAQueueWithoutURL(t *testing.T) {
	w, _ := newWire(t, 1, nil)
	c := lanes.New(nil, topology.QueueURLs{Source: "x"})
	errs := c.Send(t.Context(), job.DLQ, bodies(2))
	if len(failed(errs)) != 2 || !errors.Is(errs[0], lanes.ErrUnsent) {
		t.Errorf("errors are %v", errs)
	}
	if errs := c.Delete(t.Context(), job.DLQ, []job.Message{{}}); !errors.Is(errs[0], lanes.ErrUndeleted) {
		t.Errorf("errors are %v", errs)
	}
	if err := c.Backoff(t.Context(), job.Recovery, []lanes.Backoff{{}}); !errors.Is(err, lanes.ErrNotBackedOff) {
		t.Errorf("error is %v", err)
	}
	if err := c.Backoff(t.Context(), job.Unknown, []lanes.Backoff{{}}); !errors.Is(err, lanes.ErrNotBackedOff) {
		t.Errorf("error is %v", err)
	}
	if _, err := c.Receive(t.Context(), job.DLQ, 1, 0, 0); err == nil {
		t.Error("received from a queue without URL")
	}
	if _, err := c.Depth(t.Context(), job.DLQ); err == nil {
		t.Error("counted a queue without URL")
	}
	if len(w.requests) > 0 {
		t.Errorf("requests are %+v", w.requests)
	}
}

func TestBackoffOnTheWire(t *testing.T) {
	w, c := newWire(t, 1, func(n int, r request) (int, any) {
		if n == 1 {
			return 200, confirm(r, map[string]string{"0": "MessageNotInflight", "1": ""})
		}
		return 200, confirm(r, nil)
	})
	waits := []time.Duration{-1, 0, 1, time.Second, 13 * time.Hour, time.Minute, time.Minute, time.Minute, time.Minute, time.Minute, 1, 1, 1}
	want := []int{0, 0, 1, 1, 43200, 60, 60, 60, 60, 60, 1, 1, 1}
	var items []lanes.Backoff
	for i, d := range waits {
		items = append(items, lanes.Backoff{ReceiptHandle: fmt.Sprint("rh-", i), MessageID: fmt.Sprintf("m-%02d", i), For: d})
	}
	err := c.Backoff(t.Context(), job.Source, items)
	i := 0
	for _, r := range w.requests {
		if r.Operation != "ChangeMessageVisibilityBatch" || r.QueueURL != urls.Source {
			t.Errorf("request is %+v", r)
		}
		for _, e := range r.Entries {
			// Zero must be sent: without a value SQS refuses the entry.
			if e.ReceiptHandle != items[i].ReceiptHandle || e.VisibilityTimeout == nil || *e.VisibilityTimeout != want[i] {
				t.Errorf("entry %d is %+v, want %d s", i, e, want[i])
			}
			i++
		}
	}
	if i != len(items) || len(w.requests) != 2 {
		t.Errorf("%d entries in %d calls", i, len(w.requests))
	}
	if !errors.Is(err, lanes.ErrNotBackedOff) || !strings.Contains(err.Error(), "m-10") || !strings.Contains(err.Error(), "m-11") || strings.Contains(err.Error(), "m-12") {
		t.Errorf("error is %v", err)
	}
}

func TestBackoffGoesOnAfterAFailedCall(t *testing.T) {
	w, c := newWire(t, 1, func(n int, r request) (int, any) {
		if n == 0 {
			return apiError(500, "InternalFailure")
		}
		return 200, confirm(r, nil)
	})
	err := c.Backoff(t.Context(), job.Recovery, make([]lanes.Backoff, 11))
	if len(w.requests) != 2 || w.requests[1].QueueURL != urls.Recovery || !errors.Is(err, lanes.ErrNotBackedOff) || strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("%d calls, error is %v", len(w.requests), err)
	}
	if err := c.Backoff(t.Context(), job.Recovery, nil); err != nil {
		t.Errorf("nothing to back off: %v", err)
	}
}

func TestDeletePartialFailure(t *testing.T) {
	w, c := newWire(t, 1, func(n int, r request) (int, any) {
		switch n {
		case 0:
			return 200, confirm(r, map[string]string{"2": "ReceiptHandleIsInvalid", "3": ""})
		case 1:
			return apiError(500, "InternalFailure")
		}
		return 200, confirm(r, nil)
	})
	messages := make([]job.Message, 21)
	for i := range messages {
		messages[i].ReceiptHandle = fmt.Sprint("rh-", i)
	}
	errs := c.Delete(t.Context(), job.DLQ, messages)
	if got := failed(errs); !slices.Equal(got, []int{2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
		t.Errorf("failed are %v", got)
	}
	var e *lanes.Error
	if !errors.Is(errs[2], lanes.ErrUndeleted) || errors.Is(errs[2], lanes.ErrUnsent) || !errors.As(errs[2], &e) || e.Code != "ReceiptHandleIsInvalid" {
		t.Errorf("error is %v", errs[2])
	}
	i := 0
	for _, r := range w.requests {
		for _, e := range r.Entries {
			if r.QueueURL != urls.DLQ || e.ReceiptHandle != messages[i].ReceiptHandle {
				t.Errorf("entry %d is %+v", i, e)
			}
			i++
		}
	}
}

func TestReceiveReadsEverything(t *testing.T) {
	body := "b\u2028"
	sum := md5.Sum([]byte(body))
	w, c := newWire(t, 1, func(_ int, _ request) (int, any) {
		message := func(own answer) answer {
			return answer{
				"MessageId": "m-1", "ReceiptHandle": "rh", "Body": body, "MD5OfBody": hex.EncodeToString(sum[:]),
				"Attributes": answer{"SentTimestamp": "1764583200123", "ApproximateReceiveCount": "4",
					"MessageGroupId": "tenant-7", "AWSTraceHeader": "Root=1-a-b", "SenderId": "x"},
				"MessageAttributes": answer{
					"png": answer{"DataType": "Binary.png", "BinaryValue": []byte{0, 0xff}},
					"n":   answer{"DataType": "Number.int", "StringValue": "7"},
					// This one is ours.
					job.MemoryAttribute: own,
				},
			}
		}
		return 200, answer{"Messages": []answer{
			message(answer{"DataType": "String", "StringValue": `{"attempt":2,"class":"transient"}`}),
			message(answer{"DataType": "String", "StringValue": `{"attempt":-2}`}),
			{"MessageId": "m-2", "ReceiptHandle": "rh", "Body": body, "MD5OfBody": hex.EncodeToString(sum[:])},
		}}
	})
	list, err := c.Receive(t.Context(), job.DLQ, 100, 1500*time.Millisecond, time.Minute)
	if err != nil || len(list) != 3 {
		t.Fatalf("received %v: %v", list, err)
	}
	var in struct {
		QueueURL                                                string `json:"QueueUrl"`
		MaxNumberOfMessages, VisibilityTimeout, WaitTimeSeconds int
		MessageAttributeNames, MessageSystemAttributeNames      []string
	}
	if err := json.Unmarshal([]byte(w.requests[0].raw), &in); err != nil {
		t.Fatal(err)
	}
	if in.QueueURL != urls.DLQ || in.MaxNumberOfMessages != 10 || in.VisibilityTimeout != 2 || in.WaitTimeSeconds != 20 ||
		!slices.Equal(in.MessageAttributeNames, []string{"All"}) || !slices.Equal(in.MessageSystemAttributeNames, []string{"All"}) {
		t.Errorf("request is %s", w.requests[0].raw)
	}
	for i, r := range list[:2] {
		if r.ID != "m-1" || r.ReceiptHandle != "rh" || r.Body != body || r.Group != "tenant-7" || r.TraceHeader != "Root=1-a-b" ||
			r.ReceiveCount != 4 || !r.SentAt.Equal(time.UnixMilli(1764583200123)) {
			t.Errorf("message %d is %+v", i, r)
		}
		if len(r.Attributes) != 2 || r.Attributes["n"].Type != "Number.int" || r.Attributes["n"].String != "7" ||
			r.Attributes["png"].Type != "Binary.png" || !slices.Equal(r.Attributes["png"].Binary, []byte{0, 0xff}) {
			t.Errorf("attributes of %d are %+v", i, r.Attributes)
		}
	}
	if list[0].MemoryErr != nil || list[0].Memory != (job.Memory{Attempt: 2, Class: job.Transient}) {
		t.Errorf("memory is %+v: %v", list[0].Memory, list[0].MemoryErr)
	}
	if list[1].MemoryErr == nil || list[1].Memory != (job.Memory{}) {
		t.Errorf("malformed memory is %+v: %v", list[1].Memory, list[1].MemoryErr)
	}
	if bare := list[2]; bare.Attributes != nil || bare.MemoryErr != nil || !bare.SentAt.IsZero() || bare.ReceiveCount != 0 {
		t.Errorf("bare message is %+v", bare)
	}

	// Zero cannot be sent, and without it the queue's own visibility timeout would apply.
	if _, err := c.Receive(t.Context(), job.DLQ, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	in.VisibilityTimeout, in.MaxNumberOfMessages = 0, 0
	if err := json.Unmarshal([]byte(w.requests[1].raw), &in); err != nil || in.VisibilityTimeout != 1 || in.MaxNumberOfMessages != 1 {
		t.Errorf("request is %s", w.requests[1].raw)
	}
}

func TestReceiveAndDepthReportErrors(t *testing.T) {
	_, c := newWire(t, 1, func(n int, _ request) (int, any) {
		if n < 2 {
			return apiError(400, "QueueDoesNotExist")
		}
		return 200, answer{"Attributes": answer{"ApproximateNumberOfMessages": "1", "ApproximateNumberOfMessagesDelayed": "2"}}
	})
	if _, err := c.Receive(t.Context(), job.DLQ, 1, time.Second, 0); err == nil || !strings.Contains(err.Error(), "dlq") {
		t.Errorf("error is %v", err)
	}
	if _, err := c.Depth(t.Context(), job.DLQ); err == nil || !strings.Contains(err.Error(), "dlq") {
		t.Errorf("error is %v", err)
	}
	// A missing figure is not zero.
	if d, err := c.Depth(t.Context(), job.DLQ); err == nil || !strings.Contains(err.Error(), "NotVisible") {
		t.Errorf("depth is %v, error is %v", d, err)
	}
}
