package lanes_test

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
)

// deadLetter is a schedule's dead letter as Scheduler documents it.
func deadLetter(body string) (job.Message, map[string]job.Attribute) {
	text := func(s string) job.Attribute { return job.Attribute{Type: "String", String: s} }
	return job.Message{ID: "m1", ReceiptHandle: "r1", Body: body, SentAt: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)}, map[string]job.Attribute{
		"SCHEDULE_ARN":              text("arn:aws:scheduler:eu-central-1:1:schedule/shop-scheduled/x"),
		"TARGET_ARN":                text("arn:aws:scheduler:::aws-sdk:sqs:sendMessage"),
		"SCHEDULED_TIME":            text("2026-11-30T10:00:00Z"),
		"ERROR_CODE":                text("AWS.SimpleQueueService.NonExistentQueue"),
		"ERROR_MESSAGE":             text("no queue"),
		"EXHAUSTED_RETRY_CONDITION": text("MaximumEventAgeInSeconds"),
		"EXECUTION_ID":              text("d32c5kddcf5bb8c3"),
		"IS_PAYLOAD_TRUNCATED":      text("false"),
		"RETRY_ATTEMPTS":            text("185"),
	}
}

// What a schedule was to send comes back as it was.
func TestASchedulesDeadLetterIsTheJob(t *testing.T) {
	memory := job.Memory{Attempt: 2, FirstSent: time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC), MessageID: "m0"}
	sent := job.Message{
		Body: `{"kind":"test","payload":{"text":"<b>&</b>"}}`, Group: "tenant-1", TraceHeader: "Root=1", Memory: memory,
		Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: "<blue>"}, "n": {Type: "Number", String: "7"}},
	}
	input := job.ScheduledSend{
		QueueURL: "q", MessageBody: sent.Body, MessageGroupID: sent.Group, MessageAttributes: map[string]job.ScheduledText{},
		MessageSystemAttributes: map[string]job.ScheduledText{"AWSTraceHeader": {DataType: "String", StringValue: sent.TraceHeader}},
	}
	for name, a := range lanes.Outgoing(sent) {
		input.MessageAttributes[name] = job.ScheduledText{DataType: a.Type, StringValue: a.String}
	}
	body, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	m, attrs := deadLetter(string(body))
	if err := lanes.ReadAttributes(&m, attrs); err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"body":         {m.Body, sent.Body},
		"group":        {m.Group, sent.Group},
		"trace header": {m.TraceHeader, sent.TraceHeader},
		"id":           {m.ID, "m1"},
		"receipt":      {m.ReceiptHandle, "r1"},
		"attempt":      {m.Memory.Attempt, 2},
		"first sent":   {m.Memory.FirstSent, memory.FirstSent},
		"message id":   {m.Memory.MessageID, "m0"},
		"class":        {m.Memory.Class, job.Transient},
		"cause":        {m.Memory.Cause, job.CauseSchedule},
		"at":           {m.Memory.At, m.SentAt},
		"error":        {m.Memory.Error, "EventBridge Scheduler could not send it: AWS.SimpleQueueService.NonExistentQueue: no queue"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	if len(m.Attributes) != 2 || m.Attributes["tenant"].String != "<blue>" || m.Attributes["n"].Type != "Number" {
		t.Errorf("the sender's attributes are %v", m.Attributes)
	}
}

func TestWhatIsNotASchedulesDeadLetterStaysAsItIs(t *testing.T) {
	whole := `{"QueueUrl":"q","MessageBody":"{}"}`
	for name, tt := range map[string]struct {
		body   string
		change func(map[string]job.Attribute)
		cause  job.Cause
	}{
		"no schedule": {whole, func(a map[string]job.Attribute) { delete(a, "SCHEDULE_ARN") }, ""},
		"another target": {whole, func(a map[string]job.Attribute) {
			a["TARGET_ARN"] = job.Attribute{Type: "String", String: "arn:aws:lambda:f"}
		}, ""},
		"cut off": {whole, func(a map[string]job.Attribute) {
			a["IS_PAYLOAD_TRUNCATED"] = job.Attribute{Type: "String", String: "true"}
		}, job.CauseSchedule},
		"no JSON": {`{"QueueUrl":"q","Mess`, func(map[string]job.Attribute) {}, job.CauseSchedule},
		"no body": {`{"QueueUrl":"q"}`, func(map[string]job.Attribute) {}, job.CauseSchedule},
	} {
		m, attrs := deadLetter(tt.body)
		tt.change(attrs)
		want := maps.Clone(attrs)
		if err := lanes.ReadAttributes(&m, attrs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m.Body != tt.body {
			t.Errorf("%s: the body is %q, want %q", name, m.Body, tt.body)
		}
		if len(m.Attributes) != len(want) {
			t.Errorf("%s: %d attributes, want %d", name, len(m.Attributes), len(want))
		}
		if m.Memory.Cause != tt.cause {
			t.Errorf("%s: the cause is %q, want %q", name, m.Memory.Cause, tt.cause)
		}
	}
}
