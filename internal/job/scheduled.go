package job

import (
	"strings"

	"github.com/go-json-experiment/json"
)

// ScheduledSend is the input of a schedule: the parameters of SQS's SendMessage. Scheduler gives the input itself to
// the DLQ if it cannot make that call.
type ScheduledSend struct {
	QueueURL                string                   `json:"QueueUrl"`
	MessageBody             string                   `json:"MessageBody"`
	MessageAttributes       map[string]ScheduledText `json:"MessageAttributes,omitempty"`
	MessageSystemAttributes map[string]ScheduledText `json:"MessageSystemAttributes,omitempty"`
	MessageGroupID          string                   `json:"MessageGroupId,omitempty"`
}

// ScheduledText is an attribute in a ScheduledSend. None is binary.
type ScheduledText struct {
	DataType    string `json:"DataType"`
	StringValue string `json:"StringValue"`
}

// TraceHeader is the system attribute that a sender may set.
const TraceHeader = "AWSTraceHeader"

// The attributes by which Scheduler says why an input is on the DLQ.
const (
	scheduleARN       = "SCHEDULE_ARN"
	scheduleTarget    = "TARGET_ARN"
	scheduleErrorCode = "ERROR_CODE"
	scheduleError     = "ERROR_MESSAGE"
	scheduleTruncated = "IS_PAYLOAD_TRUNCATED"

	// ScheduledOperation ends the ARN of the operation that a schedule calls, in every partition.
	ScheduledOperation = ":scheduler:::aws-sdk:sqs:sendMessage"
)

// UnwrapSchedule takes a job's message out of a schedule's dead letter: body, message group, trace header and the
// returned attributes are then those that the schedule had to send. failure says why it could not; it is empty for a
// message that is no such dead letter. Such a message stays as it is, and so does a dead letter whose input was cut
// off.
func (m *Message) UnwrapSchedule(attrs map[string]Attribute) (sent map[string]Attribute, failure string) {
	if attrs[scheduleARN].String == "" || !strings.HasSuffix(attrs[scheduleTarget].String, ScheduledOperation) {
		return attrs, ""
	}
	failure = "EventBridge Scheduler could not send it: " + attrs[scheduleErrorCode].String + ": " + attrs[scheduleError].String
	var in ScheduledSend
	if attrs[scheduleTruncated].String == "true" || json.Unmarshal([]byte(m.Body), &in) != nil || in.MessageBody == "" {
		return attrs, failure
	}
	m.Body, m.Group, m.TraceHeader = in.MessageBody, in.MessageGroupID, in.MessageSystemAttributes[TraceHeader].StringValue
	for name, a := range in.MessageAttributes {
		if sent == nil {
			sent = make(map[string]Attribute, len(in.MessageAttributes))
		}
		sent[name] = Attribute{Type: a.DataType, String: a.StringValue}
	}
	return sent, failure
}
