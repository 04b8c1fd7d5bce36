package local

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/topology"
)

const testARN = "arn:aws:sqs:us-east-1:000000000000:t-source"

func TestEventIsWhatLambdaSends(t *testing.T) {
	m := types.Message{
		MessageId: aws.String("m-1"), ReceiptHandle: aws.String("h-1"), Body: aws.String(`{"a":"<&>"}`),
		MD5OfBody: aws.String("5d"), MD5OfMessageAttributes: aws.String("6e"),
		Attributes: map[string]string{"SentTimestamp": "1"},
		MessageAttributes: map[string]types.MessageAttributeValue{
			"s": {DataType: aws.String("String"), StringValue: aws.String("v")},
			"b": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		},
	}
	got, err := split([]types.Message{m}, testARN, topology.MaxPayloadBytes)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d events, error %v", len(got), err)
	}
	// The form and the empty lists are those of the event in AWS's documentation.
	const want = `{"Records":[{"messageId":"m-1","receiptHandle":"h-1","body":"{\"a\":\"<&>\"}",` +
		`"attributes":{"SentTimestamp":"1"},"messageAttributes":{` +
		`"b":{"binaryValue":"AP8=","stringListValues":[],"binaryListValues":[],"dataType":"Binary"},` +
		`"s":{"stringValue":"v","stringListValues":[],"binaryListValues":[],"dataType":"String"}},` +
		`"md5OfMessageAttributes":"6e","md5OfBody":"5d","eventSource":"aws:sqs",` +
		`"eventSourceARN":"` + testARN + `","awsRegion":"us-east-1"}]}`
	if string(got[0].payload) != want {
		t.Errorf("event\n%s\nwant\n%s", got[0].payload, want)
	}
}

func TestSplitKeepsOrderAndLimit(t *testing.T) {
	var messages []types.Message
	for i := range 10 {
		messages = append(messages, types.Message{MessageId: aws.String(fmt.Sprint(i)), Body: aws.String(strings.Repeat("x", 100*(i+1)))})
	}
	whole, err := split(messages, testARN, topology.MaxPayloadBytes)
	if err != nil || len(whole) != 1 {
		t.Fatalf("%d events, error %v; want one", len(whole), err)
	}
	size := len(whole[0].payload)
	for _, limit := range []int{size, size - 1, size / 2, 1} {
		got, err := split(messages, testARN, limit)
		if err != nil {
			t.Fatal(err)
		}
		if (len(got) == 1) != (limit == size) {
			t.Errorf("limit %d of %d bytes: %d events", limit, size, len(got))
		}
		next := 0
		for _, e := range got {
			if len(e.payload) > limit && len(e.messages) > 1 {
				t.Errorf("limit %d: an event of %d messages has %d bytes", limit, len(e.messages), len(e.payload))
			}
			var decoded events.SQSEvent
			if err := json.Unmarshal(e.payload, &decoded); err != nil {
				t.Fatal(err)
			}
			var inEvent, want []string
			for _, r := range decoded.Records {
				inEvent = append(inEvent, r.MessageId)
			}
			for _, m := range e.messages {
				want = append(want, *m.MessageId)
				if *m.MessageId != fmt.Sprint(next) {
					t.Errorf("limit %d: message %s, want %d", limit, *m.MessageId, next)
				}
				next++
			}
			if !reflect.DeepEqual(inEvent, want) {
				t.Errorf("the event holds %v, its messages are %v", inEvent, want)
			}
		}
		if next != len(messages) {
			t.Errorf("limit %d: %d messages, want %d", limit, next, len(messages))
		}
	}
}
