package job

import (
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A wrapper changes nothing of what is in it, and makes nothing readable that is not.
func FuzzWrapped(f *testing.F) {
	for _, seed := range []string{plain, `{"kind":"k","payload":{}}`, `{`, ``, `null`, testEvent, byEventBridgeOf(plain), "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, inner string) {
		if !utf8.ValidString(inner) { // SNS carries text
			return
		}
		bare, bareErr := Decode([]byte(inner))
		wrapped, err := Decode([]byte(bySNSOf(inner)))
		if errors.Is(bareErr, ErrProbe) || errors.Is(err, ErrProbe) {
			return // a probe has its own rule, see TestProbesAreNoJobs
		}
		if err == nil && bareErr != nil {
			t.Fatalf("%q is unreadable (%v) and readable in a wrapper: %+v", inner, bareErr, wrapped)
		}
		if err != nil && AsFailure(err).Class != Invalid {
			t.Fatalf("%q in a wrapper: class %s", inner, AsFailure(err).Class)
		}
		if err == nil && !reflect.DeepEqual(bare, wrapped) {
			t.Fatalf("%q is %+v, and in a wrapper %+v", inner, bare, wrapped)
		}
	})
}

// An attribute that is read is written so that it reads the same; any other one gains nothing.
func FuzzMemory(f *testing.F) {
	for _, seed := range []string{`{}`, `{"v":1,"attempt":3}`, `{"v":9,"x":1}`, `{"attempt":-1}`, `{"key":"a/b","class":"transient","at":"2026-12-01T10:00:00Z"}`, `{"run":"\u0000"}`} {
		f.Add("String", seed)
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		m, err := ParseMemory(Attribute{Type: kind, String: text})
		var newer *NewerError
		if err != nil && !errors.As(err, &newer) && m != (Memory{}) {
			t.Fatalf("%q is refused and gains %+v", text, m)
		}
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if back, err := ParseMemory(again); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%q is %+v, and after a journey %+v, %v", text, m, back, err)
		}
	})
}

// An event changes nothing of its detail, and makes nothing readable that is not.
func FuzzEvent(f *testing.F) {
	for _, seed := range []string{plain, `{"kind":"k","payload":{}}`, `{}`, `null`, testEvent, bySNSOf(plain), `{"kind":"k","payload":{"a":{"a":1,"a":2}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, detail string) {
		if !jsontext.Value(detail).IsValid() { // EventBridge takes JSON only
			return
		}
		bare, bareErr := Decode([]byte(detail))
		wrapped, err := Decode([]byte(byEventBridgeOf(detail)))
		if errors.Is(bareErr, ErrProbe) || errors.Is(err, ErrProbe) {
			return // a probe has its own rule, see TestProbesAreNoJobs
		}
		if err == nil && bareErr != nil {
			t.Fatalf("%q is unreadable (%v) and readable in an event: %+v", detail, bareErr, wrapped)
		}
		if err != nil && AsFailure(err).Class != Invalid {
			t.Fatalf("%q in an event: class %s", detail, AsFailure(err).Class)
		}
		if err == nil && !reflect.DeepEqual(bare, wrapped) {
			t.Fatalf("%q is %+v, and in an event %+v", detail, bare, wrapped)
		}
	})
}

// A schedule's dead letter becomes the message that its input names, or stays as it is. Any other message stays as
// it is.
func FuzzScheduled(f *testing.F) {
	const target = "arn:aws" + ScheduledOperation
	input := `{"QueueUrl":"http://q/recovery","MessageBody":"{}","MessageAttributes":{"acklast":{"DataType":"String","StringValue":"{}"}},"MessageGroupId":"g"}`
	for _, body := range []string{input, `{"MessageBody":""}`, `{"MessageBody":1}`, `{"MessageBody":"a","MessageBody":"b"}`, plain, ``, `null`, `[`} {
		f.Add(body, "arn:aws:scheduler:::schedule/g/s", target, "false", "SQS.AccessDenied")
	}
	f.Add(input, "", target, "", "")
	f.Add(input, "arn", "arn:aws:lambda:::function:f", "", "")
	f.Add(input, "arn", target, "true", "")
	f.Fuzz(func(t *testing.T, body, schedule, target, truncated, code string) {
		attrs := map[string]Attribute{scheduleARN: {"String", schedule, nil}, scheduleTarget: {"String", target, nil}, scheduleTruncated: {"String", truncated, nil}, scheduleErrorCode: {"String", code, nil}}
		before := Message{ID: "m", Body: body, Group: "g", TraceHeader: "t", ReceiveCount: 3}
		m := before
		sent, failure := m.UnwrapSchedule(attrs)
		if m.ID != before.ID || m.ReceiveCount != before.ReceiveCount {
			t.Fatalf("%q changed what SQS says about its message: %+v", body, m)
		}
		if reflect.DeepEqual(m, before) && reflect.DeepEqual(sent, attrs) {
			return
		}
		if schedule == "" || failure == "" || truncated == "true" {
			t.Fatalf("%q is no complete dead letter, and became %+v with %v", body, m, sent)
		}
		var in ScheduledSend
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatalf("%q became %+v, and is not readable: %v", body, m, err)
		}
		if m.Body == "" || m.Body != in.MessageBody || m.Group != in.MessageGroupID || len(sent) != len(in.MessageAttributes) {
			t.Fatalf("%q became %+v with %v", body, m, sent)
		}
	})
}
