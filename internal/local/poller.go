package local

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// An empty queue is asked again after minIdle, then less and less often, down to every maxIdle. The engine's
// long polls cannot replace this: they do not notice when a message's delay or invisibility ends.
const (
	minIdle = 10 * time.Millisecond
	maxIdle = 100 * time.Millisecond
	// afterTrouble is the pause after a call that failed.
	afterTrouble = time.Second
)

// poller is the event source mapping of one lane: it receives, invokes, and deletes the messages that the
// function confirmed. A message that is not deleted comes back when its visibility timeout ends.
type poller struct {
	lane     job.Queue
	queueURL string
	queueARN string
	function string
	batch    int
	window   time.Duration
	slots    chan struct{} // the lane's concurrency cap
	gate     *gate
	sqs      *sqs.Client
	lambda   *lambda.Client
	log      *slog.Logger

	receiving sync.Mutex    // held while a receive is in flight
	paused    chan struct{} // nil, or closed by resume; receiving guards it
}

func newPoller(lane job.Queue, queueURL, queueARN, function string, limit int, s topology.Settings, g *gate, queues, functions aws.Config, log *slog.Logger) *poller {
	return &poller{
		lane: lane, queueURL: queueURL, queueARN: queueARN, function: function,
		batch: s.BatchSize, window: s.BatchWindow,
		slots: make(chan struct{}, limit), gate: g,
		sqs: awsclient.SQS(queues),
		// A second try would be a second invocation.
		lambda: lambda.NewFromConfig(functions, func(o *lambda.Options) { o.Retryer = aws.NopRetryer{} }),
		log:    log.With("lane", string(lane)),
	}
}

// run polls until ctx ends, then waits for the invocations in flight. When invoking ends too, it gives them up,
// but still deletes the messages that were confirmed.
func (p *poller) run(ctx, invoking context.Context) {
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	for idle := minIdle; ; {
		if !p.admit(ctx) {
			return
		}
		messages, err := p.gather(ctx)
		if err != nil {
			p.log.Error("receive", "error", err)
			idle = afterTrouble
		}
		if len(messages) == 0 {
			p.leave()
			_ = retry.Sleep(ctx, idle)
			idle = min(2*idle, maxIdle)
			continue
		}
		idle = minIdle
		inFlight.Go(func() {
			defer p.leave()
			p.deliver(invoking, messages)
		})
	}
}

// admit waits until the lane is not paused, is below its cap and a process is free for it. It
// returns false when ctx ends.
func (p *poller) admit(ctx context.Context) bool {
	for {
		p.receiving.Lock()
		paused := p.paused
		p.receiving.Unlock()
		if paused == nil {
			break
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if p.gate.acquire(ctx) != nil {
		<-p.slots
		return false
	}
	return true
}

func (p *poller) leave() {
	p.gate.release()
	<-p.slots
}

// gather receives one batch. Without a batch window it takes the messages that are there; with one it also
// takes those that arrive until the window ends. A batch that has begun is returned in any case, also together
// with an error.
func (p *poller) gather(ctx context.Context) ([]types.Message, error) {
	messages, err := p.receive(ctx, p.batch)
	if len(messages) == 0 || p.window == 0 {
		return messages, err
	}
	for end := time.Now().Add(p.window); len(messages) < p.batch && time.Now().Before(end) && ctx.Err() == nil; {
		more, err := p.receive(ctx, p.batch-len(messages))
		if err != nil {
			return messages, err
		}
		messages = append(messages, more...)
		if len(more) == 0 {
			_ = retry.Sleep(ctx, min(maxIdle, time.Until(end)))
		}
	}
	return messages, nil
}

// receive takes at most limit messages, and none from a paused lane. It ignores cancellation: if nobody read
// the answer, its messages would stay invisible until their visibility timeout ends.
func (p *poller) receive(ctx context.Context, limit int) ([]types.Message, error) {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if p.paused != nil || ctx.Err() != nil {
		return nil, nil
	}
	out, err := p.sqs.ReceiveMessage(context.WithoutCancel(ctx), &sqs.ReceiveMessageInput{
		QueueUrl:                    &p.queueURL,
		MaxNumberOfMessages:         int32(min(limit, topology.MaxSendBatch)),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}, func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// pause returns when no receive is in flight and none can begin before resume.
func (p *poller) pause() {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

func (p *poller) isPaused() bool {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	return p.paused != nil
}

func (p *poller) resume() {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// deliver invokes the function with a batch and deletes the confirmed messages. A batch that is too large for
// one event is split.
func (p *poller) deliver(ctx context.Context, messages []types.Message) {
	events, err := split(messages, p.queueARN, topology.MaxPayloadBytes)
	if err != nil {
		p.log.Error("make an event", "error", err)
		return
	}
	for _, e := range events {
		confirmed, err := p.invoke(ctx, e)
		if err != nil {
			p.log.Warn("batch failed", "messages", len(e.messages), "error", err)
			continue
		}
		if err := p.delete(context.WithoutCancel(ctx), e.messages, confirmed); err != nil {
			p.log.Error("delete", "error", err)
		}
	}
}

// invoke returns the ids of the messages that the function confirmed.
func (p *poller) invoke(ctx context.Context, e event) ([]string, error) {
	if len(e.payload) > topology.MaxPayloadBytes {
		return nil, fmt.Errorf("event of message %s has %d bytes, more than %d",
			aws.ToString(e.messages[0].MessageId), len(e.payload), topology.MaxPayloadBytes)
	}
	out, err := p.lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: &p.function, Payload: e.payload})
	if err != nil {
		return nil, err
	}
	if out.FunctionError != nil {
		return nil, fmt.Errorf("function error %s: %s", *out.FunctionError, out.Payload)
	}
	ids := make([]string, len(e.messages))
	for i, m := range e.messages {
		ids[i] = aws.ToString(m.MessageId)
	}
	return Confirmed(ids, out.Payload)
}

// delete deletes the confirmed messages. One that cannot be deleted comes back.
func (p *poller) delete(ctx context.Context, messages []types.Message, confirmed []string) error {
	handles := make(map[string]*string, len(messages))
	for _, m := range messages {
		handles[aws.ToString(m.MessageId)] = m.ReceiptHandle
	}
	for start := 0; start < len(confirmed); start += topology.MaxSendBatch {
		part := confirmed[start:min(start+topology.MaxSendBatch, len(confirmed))]
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &p.queueURL}
		for i, id := range part {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(i)), ReceiptHandle: handles[id]})
		}
		out, err := p.sqs.DeleteMessageBatch(ctx, in)
		if err != nil {
			return err
		}
		for _, f := range out.Failed {
			p.log.Warn("message not deleted", "entry", aws.ToString(f.Id), "code", aws.ToString(f.Code), "reason", aws.ToString(f.Message))
		}
	}
	return nil
}
