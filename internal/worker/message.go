package worker

import (
	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
)

// message reads a record of a Lambda event. The error says what is wrong with our own attribute, which then
// counts as missing. The message is usable in any case.
func message(r events.SQSMessage) (job.Message, error) {
	var all map[string]job.Attribute
	if len(r.MessageAttributes) > 0 {
		all = make(map[string]job.Attribute, len(r.MessageAttributes))
	}
	for name, a := range r.MessageAttributes {
		attribute := job.Attribute{Type: a.DataType, Binary: a.BinaryValue}
		if a.StringValue != nil {
			attribute.String = *a.StringValue
		}
		all[name] = attribute
	}
	m := job.Message{ID: r.MessageId, ReceiptHandle: r.ReceiptHandle, Body: r.Body}
	lanes.ReadSystem(&m, r.Attributes)
	err := lanes.ReadAttributes(&m, all)
	return m, err
}
