// Package lanes moves messages between a stack's queues and reports for every single message whether SQS
// confirmed the move.
//
// A message's body, the sender's attributes, the message group and the trace header travel on unchanged. Our
// own attribute is added if it fits, and is left out if it does not: nothing of the sender's is ever trimmed
// for it. A move that SQS did not confirm counts as not done. If only the confirmation was lost, the message is
// sent twice. The ledger makes a duplicate harmless; a lost message could not be repaired.
//
// The queues are standard queues whose own delivery delay and receive wait time are zero.
package lanes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"acklast/internal/job"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// API is what this package needs of an SQS client.
type API interface {
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
}

// maxWait is the longest long poll SQS accepts.
const maxWait = 20 * time.Second

// Client talks to the queues of one stack. It is safe for concurrent use.
type Client struct {
	api  API
	urls map[job.Queue]string
}

// New returns a client for the queues.
func New(api API, urls topology.QueueURLs) *Client {
	return &Client{api: api, urls: map[job.Queue]string{
		job.Source: urls.Source, job.Recovery: urls.Recovery, job.DLQ: urls.DLQ,
	}}
}

func (c *Client) url(q job.Queue) (*string, error) {
	if u := c.urls[q]; u != "" {
		return &u, nil
	}
	return nil, fmt.Errorf("no URL is known of queue %q", q)
}

// Conditions of an entry that SQS did not confirm.
var (
	// ErrUnsent: the message may not have arrived in the queue.
	ErrUnsent = errors.New("not confirmed as sent")
	// ErrUndeleted: the message may still be in the queue.
	ErrUndeleted = errors.New("not confirmed as deleted")
	// ErrNotBackedOff: the message keeps its previous visibility timeout.
	ErrNotBackedOff = errors.New("not confirmed as backed off")
)

// CodeUnanswered is the Code of an entry that SQS listed neither as successful nor as failed.
const CodeUnanswered = "Unanswered"

// Error says why SQS did not confirm an entry. It wraps one of the conditions above and, when the
// call failed as a whole, the call's error.
type Error struct {
	// Code is SQS's error code; empty when the call never got an answer.
	Code string
	// SenderFault says that SQS would refuse the same entry again.
	SenderFault bool
	// Message is SQS's explanation.
	Message string

	condition, cause error
}

func (e *Error) Error() string {
	s := e.condition.Error()
	if e.cause != nil {
		return s + ": " + e.cause.Error()
	}
	if e.Message != "" {
		return s + ": " + e.Code + ": " + e.Message
	}
	return s + ": " + e.Code
}

func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.condition}
	}
	return []error{e.condition, e.cause}
}

// callError is the Error of every entry of a call that failed as a whole.
func callError(condition, cause error) *Error {
	e := &Error{condition: condition, cause: cause}
	var api smithy.APIError
	if errors.As(cause, &api) {
		e.Code, e.Message = api.ErrorCode(), api.ErrorMessage()
		e.SenderFault = api.ErrorFault() == smithy.FaultClient
	}
	return e
}

// settle writes the answers to one call into errs. The call's entry with id k belongs to errs[indexes[k]]. An
// entry is confirmed only if the answer lists it as successful and does not also list it as failed.
func settle(errs []error, indexes []int, condition error, successful []*string, failed []types.BatchResultErrorEntry) {
	at := func(id *string) int {
		if k, err := strconv.Atoi(aws.ToString(id)); err == nil && k >= 0 && k < len(indexes) {
			return indexes[k]
		}
		return -1
	}
	for _, i := range indexes {
		errs[i] = &Error{Code: CodeUnanswered, condition: condition}
	}
	for _, id := range successful {
		if i := at(id); i >= 0 {
			errs[i] = nil
		}
	}
	for _, f := range failed {
		if i := at(f.Id); i >= 0 {
			errs[i] = &Error{Code: aws.ToString(f.Code), SenderFault: f.SenderFault, Message: aws.ToString(f.Message), condition: condition}
		}
	}
}

func fill(errs []error, indexes []int, err error) {
	for _, i := range indexes {
		errs[i] = err
	}
}

// span returns the indexes from from up to, but not including, to.
func span(from, to int) []int {
	s := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

// ids returns the ids of a call's successful entries.
func ids[T any](entries []T, id func(T) *string) []*string {
	list := make([]*string, 0, len(entries))
	for _, e := range entries {
		list = append(list, id(e))
	}
	return list
}

// Move is one message on its way to another queue.
type Move struct {
	// Message is the message to send. Our own attribute is made from its Memory.
	Message job.Message
	// Delay is how long the queue holds the message back. It is rounded up to whole seconds and cut
	// at topology.MaxDelay; a longer wait takes another hop.
	Delay time.Duration
}

// Send sends the moves, in order and in as few calls as SQS's limits allow, and returns one error
// for each: nil only if SQS confirmed that very message. Every other error is ErrUnsent, and an
// *Error.
func (c *Client) Send(ctx context.Context, to job.Queue, moves []Move) []error {
	errs := make([]error, len(moves))
	url, err := c.url(to)
	if err != nil {
		fill(errs, span(0, len(moves)), callError(ErrUnsent, err))
		return errs
	}
	var (
		indexes []int
		entries []types.SendMessageBatchRequestEntry
		bytes   int
	)
	flush := func() {
		if len(entries) == 0 {
			return
		}
		out, err := c.api.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err != nil {
			fill(errs, indexes, callError(ErrUnsent, err))
		} else {
			settle(errs, indexes, ErrUnsent,
				ids(out.Successful, func(e types.SendMessageBatchResultEntry) *string { return e.Id }), out.Failed)
		}
		indexes, entries, bytes = nil, nil, 0
	}
	for i, mv := range moves {
		if e := refuse(mv.Message); e != nil {
			e.condition = ErrUnsent
			errs[i] = e
			continue
		}
		attrs, size := outgoing(mv.Message)
		if len(entries) == topology.MaxSendBatch || bytes+size > topology.MaxMessageBytes {
			flush()
		}
		entry := types.SendMessageBatchRequestEntry{
			Id:                aws.String(strconv.Itoa(len(entries))),
			MessageBody:       aws.String(mv.Message.Body),
			DelaySeconds:      seconds(mv.Delay, topology.MaxDelay),
			MessageAttributes: attrs,
		}
		if mv.Message.Group != "" {
			entry.MessageGroupId = aws.String(mv.Message.Group)
		}
		if mv.Message.TraceHeader != "" {
			entry.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
				systemTraceHeader: {DataType: aws.String("String"), StringValue: aws.String(mv.Message.TraceHeader)},
			}
		}
		indexes, entries, bytes = append(indexes, i), append(entries, entry), bytes+size
	}
	flush()
	return errs
}

// Outgoing returns the attributes a message is sent with, ours among them if it fits.
func Outgoing(m job.Message) map[string]job.Attribute {
	attrs := maps.Clone(m.Attributes)
	delete(attrs, job.MemoryAttribute)
	if own, ok := ownAttribute(m); ok {
		if attrs == nil {
			attrs = make(map[string]job.Attribute, 1)
		}
		attrs[job.MemoryAttribute] = own
	}
	return attrs
}

// outgoing returns the attributes of Outgoing in SQS's form, and the message's size with them.
func outgoing(m job.Message) (map[string]types.MessageAttributeValue, int) {
	size := len(m.Body)
	all := Outgoing(m)
	if len(all) == 0 {
		return nil, size
	}
	attrs := make(map[string]types.MessageAttributeValue, len(all))
	for name, a := range all {
		attrs[name] = attributeValue(a)
		size += attributeSize(name, a)
	}
	return attrs, size
}

func attributeValue(a job.Attribute) types.MessageAttributeValue {
	if isBinary(a.Type) {
		return types.MessageAttributeValue{DataType: aws.String(a.Type), BinaryValue: a.Binary}
	}
	return types.MessageAttributeValue{DataType: aws.String(a.Type), StringValue: aws.String(a.String)}
}

func seconds(d, ceiling time.Duration) int32 {
	return int32(retry.WholeSeconds(d, ceiling) / time.Second)
}

// Backoff says how long one delivery stays invisible.
type Backoff struct {
	ReceiptHandle string
	// MessageID names the message in errors.
	MessageID string
	// For is counted from now; it is rounded up to whole seconds and cut to SQS's 0 to 12 h.
	For time.Duration
}

// Backoff changes the visibility timeouts of deliveries. It is a best effort: a delivery whose change fails
// comes back when its previous visibility timeout ends. The error names every message that SQS did not confirm,
// and is ErrNotBackedOff.
func (c *Client) Backoff(ctx context.Context, lane job.Queue, items []Backoff) error {
	if lane != job.Source && lane != job.Recovery {
		return fmt.Errorf("%w: %q is no lane", ErrNotBackedOff, lane)
	}
	url, err := c.url(lane)
	if err != nil {
		return callError(ErrNotBackedOff, err)
	}
	return c.changeVisibility(ctx, url, items)
}

func (c *Client) changeVisibility(ctx context.Context, url *string, items []Backoff) error {
	errs := make([]error, len(items))
	for from := 0; from < len(items); from += topology.MaxSendBatch {
		indexes := span(from, min(from+topology.MaxSendBatch, len(items)))
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, 0, len(indexes))
		for k, i := range indexes {
			entries = append(entries, types.ChangeMessageVisibilityBatchRequestEntry{
				Id:                aws.String(strconv.Itoa(k)),
				ReceiptHandle:     aws.String(items[i].ReceiptHandle),
				VisibilityTimeout: seconds(items[i].For, topology.MaxVisibility),
			})
		}
		out, err := c.api.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: url, Entries: entries})
		if err != nil {
			fill(errs, indexes, callError(ErrNotBackedOff, err))
			continue
		}
		settle(errs, indexes, ErrNotBackedOff,
			ids(out.Successful, func(e types.ChangeMessageVisibilityBatchResultEntry) *string { return e.Id }), out.Failed)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("message %s: %w", items[i].MessageID, err)
		}
	}
	return errors.Join(errs...)
}

// Delete deletes messages by the receipt handles of their receives. It returns one error for each: nil only if
// SQS confirmed the deletion. Every other error is ErrUndeleted, and an *Error.
func (c *Client) Delete(ctx context.Context, q job.Queue, messages []job.Message) []error {
	errs := make([]error, len(messages))
	url, err := c.url(q)
	if err != nil {
		fill(errs, span(0, len(messages)), callError(ErrUndeleted, err))
		return errs
	}
	for from := 0; from < len(messages); from += topology.MaxSendBatch {
		indexes := span(from, min(from+topology.MaxSendBatch, len(messages)))
		entries := make([]types.DeleteMessageBatchRequestEntry, 0, len(indexes))
		for k, i := range indexes {
			entries = append(entries, types.DeleteMessageBatchRequestEntry{
				Id:            aws.String(strconv.Itoa(k)),
				ReceiptHandle: aws.String(messages[i].ReceiptHandle),
			})
		}
		out, err := c.api.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: entries})
		if err != nil {
			fill(errs, indexes, callError(ErrUndeleted, err))
			continue
		}
		settle(errs, indexes, ErrUndeleted,
			ids(out.Successful, func(e types.DeleteMessageBatchResultEntry) *string { return e.Id }), out.Failed)
	}
	return errs
}

// Received is a received message.
type Received struct {
	job.Message
	// MemoryErr says what is wrong with our own attribute, whose Memory is then zero; nil if it is
	// in order or missing.
	MemoryErr error
}

// Receive receives up to most messages (SQS gives at most 10) and hides them for the visibility timeout. It
// waits up to wait (at most 20 s) for the first. Both durations are rounded up to whole seconds. The visibility
// is at least one second: the SDK omits a zero, and SQS would then apply the queue's own. If ctx ends during
// the call, SQS may have hidden messages that the caller never gets. So give it a ctx that outlives the wait.
func (c *Client) Receive(ctx context.Context, q job.Queue, most int, visibility, wait time.Duration) ([]Received, error) {
	url, err := c.url(q)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	out, err := c.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    url,
		MaxNumberOfMessages:         int32(min(max(most, 1), topology.MaxSendBatch)),
		VisibilityTimeout:           max(seconds(visibility, topology.MaxVisibility), 1),
		WaitTimeSeconds:             seconds(wait, maxWait),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		return nil, fmt.Errorf("receive from %s: %w", q, err)
	}
	list := make([]Received, 0, len(out.Messages))
	for _, m := range out.Messages {
		list = append(list, incoming(m))
	}
	return list, nil
}

func incoming(m types.Message) Received {
	r := Received{Message: job.Message{
		ID:            aws.ToString(m.MessageId),
		ReceiptHandle: aws.ToString(m.ReceiptHandle),
		Body:          aws.ToString(m.Body),
	}}
	ReadSystem(&r.Message, m.Attributes)
	var attrs map[string]job.Attribute
	if len(m.MessageAttributes) > 0 {
		attrs = make(map[string]job.Attribute, len(m.MessageAttributes))
	}
	for name, a := range m.MessageAttributes {
		attrs[name] = job.Attribute{Type: aws.ToString(a.DataType), String: aws.ToString(a.StringValue), Binary: a.BinaryValue}
	}
	r.MemoryErr = ReadAttributes(&r.Message, attrs)
	return r
}

// Depth is how many messages a queue holds, as far as SQS knows: the figures are approximate.
type Depth struct {
	// Visible messages are ready to be received.
	Visible int
	// InFlight messages are received and neither deleted nor visible again.
	InFlight int
	// Delayed messages are scheduled: sent, but not ready yet.
	Delayed int
}

// Total is all of them.
func (d Depth) Total() int { return d.Visible + d.InFlight + d.Delayed }

// Depth counts the messages of a queue.
func (c *Client) Depth(ctx context.Context, q job.Queue) (Depth, error) {
	const (
		visible  = types.QueueAttributeNameApproximateNumberOfMessages
		inFlight = types.QueueAttributeNameApproximateNumberOfMessagesNotVisible
		delayed  = types.QueueAttributeNameApproximateNumberOfMessagesDelayed
	)
	var d Depth
	figures := map[types.QueueAttributeName]*int{visible: &d.Visible, inFlight: &d.InFlight, delayed: &d.Delayed}
	told, err := c.attributes(ctx, q, visible, inFlight, delayed)
	if err != nil {
		return Depth{}, fmt.Errorf("depth of %s: %w", q, err)
	}
	for name, figure := range figures {
		if *figure, err = strconv.Atoi(told[string(name)]); err != nil {
			return Depth{}, fmt.Errorf("depth of %s: %s is %q", q, name, told[string(name)])
		}
	}
	return d, nil
}

// Queue is what is fixed about a queue.
type Queue struct {
	ARN string
	// Retention is how long SQS keeps a message.
	Retention time.Duration
}

// Describe reads what is fixed about a queue.
func (c *Client) Describe(ctx context.Context, q job.Queue) (Queue, error) {
	const arn, retention = types.QueueAttributeNameQueueArn, types.QueueAttributeNameMessageRetentionPeriod
	told, err := c.attributes(ctx, q, arn, retention)
	if err != nil {
		return Queue{}, fmt.Errorf("describe %s: %w", q, err)
	}
	seconds, err := strconv.Atoi(told[string(retention)])
	if err != nil {
		return Queue{}, fmt.Errorf("describe %s: %s is %q", q, retention, told[string(retention)])
	}
	return Queue{ARN: told[string(arn)], Retention: time.Duration(seconds) * time.Second}, nil
}

func (c *Client) attributes(ctx context.Context, q job.Queue, names ...types.QueueAttributeName) (map[string]string, error) {
	url, err := c.url(q)
	if err != nil {
		return nil, err
	}
	out, err := c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: names})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// Release makes received messages visible again now. It is a best effort: a message whose release fails comes
// back after its visibility timeout. The error is ErrNotBackedOff and names every message that SQS did not
// confirm.
func (c *Client) Release(ctx context.Context, q job.Queue, messages []job.Message) error {
	return c.Hide(ctx, q, messages, 0)
}

// Hide keeps received messages hidden for the given time from now on. Its error is like Release's.
func (c *Client) Hide(ctx context.Context, q job.Queue, messages []job.Message, d time.Duration) error {
	url, err := c.url(q)
	if err != nil {
		return callError(ErrNotBackedOff, err)
	}
	items := make([]Backoff, len(messages))
	for i, m := range messages {
		items[i] = Backoff{ReceiptHandle: m.ReceiptHandle, MessageID: m.ID, For: d}
	}
	return c.changeVisibility(ctx, url, items)
}
