package local

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
)

// record is one message in the event that Lambda sends for an SQS event source. The names and the
// empty lists are AWS's; events.SQSMessage of aws-lambda-go reads them.
type record struct {
	MessageID              string                     `json:"messageId"`
	ReceiptHandle          string                     `json:"receiptHandle"`
	Body                   string                     `json:"body"`
	Attributes             map[string]string          `json:"attributes"`
	MessageAttributes      map[string]recordAttribute `json:"messageAttributes"`
	MD5OfMessageAttributes string                     `json:"md5OfMessageAttributes,omitzero"`
	MD5OfBody              string                     `json:"md5OfBody"`
	EventSource            string                     `json:"eventSource"`
	EventSourceARN         string                     `json:"eventSourceARN"`
	AWSRegion              string                     `json:"awsRegion"`
}

type recordAttribute struct {
	StringValue      *string  `json:"stringValue,omitzero"`
	BinaryValue      []byte   `json:"binaryValue,omitzero"`
	StringListValues []string `json:"stringListValues"`
	BinaryListValues [][]byte `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

// encodeRecord writes one received message as Lambda shows it to a function.
func encodeRecord(m types.Message, queueARN string) ([]byte, error) {
	r := record{
		MessageID:              aws.ToString(m.MessageId),
		ReceiptHandle:          aws.ToString(m.ReceiptHandle),
		Body:                   aws.ToString(m.Body),
		Attributes:             m.Attributes,
		MessageAttributes:      make(map[string]recordAttribute, len(m.MessageAttributes)),
		MD5OfMessageAttributes: aws.ToString(m.MD5OfMessageAttributes),
		MD5OfBody:              aws.ToString(m.MD5OfBody),
		EventSource:            "aws:sqs",
		EventSourceARN:         queueARN,
		AWSRegion:              Region,
	}
	for name, a := range m.MessageAttributes {
		r.MessageAttributes[name] = recordAttribute{
			StringValue: a.StringValue, BinaryValue: a.BinaryValue, DataType: aws.ToString(a.DataType),
		}
	}
	b, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode message %s: %w", r.MessageID, err)
	}
	return b, nil
}

const eventHead, eventTail = `{"Records":[`, `]}`

// event is the payload of one invocation and the messages in it.
type event struct {
	payload  []byte
	messages []types.Message
}

// split packs messages into as few events as their order allows, none larger than limit bytes. A
// message that exceeds the limit by itself gets an event of its own, which the invocation refuses.
func split(messages []types.Message, queueARN string, limit int) ([]event, error) {
	var events []event
	for _, m := range messages {
		r, err := encodeRecord(m, queueARN)
		if err != nil {
			return nil, err
		}
		last := len(events) - 1
		if last < 0 || len(events[last].payload)+len(",")+len(r)+len(eventTail) > limit {
			events = append(events, event{payload: []byte(eventHead)})
			last++
		} else {
			events[last].payload = append(events[last].payload, ',')
		}
		events[last].payload = append(events[last].payload, r...)
		events[last].messages = append(events[last].messages, m)
	}
	for i := range events {
		events[i].payload = append(events[i].payload, eventTail...)
	}
	return events, nil
}
