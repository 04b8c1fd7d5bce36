package simulation_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/soak"
	"acklast/internal/topology"
)

// message is a message on a queue.
type message struct {
	id, body, group string
	attributes      map[string]types.MessageAttributeValue
	sent, visible   time.Time
	received        int
	receipt         string // of its last receive
}

// handed is a confirmed hand-over of a message of a job.
type handed struct {
	digest string
	at     soak.Moment
}

// count is what a queue held at a time.
type count struct {
	at                         time.Time
	visible, inFlight, delayed int
}

func text(s string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
}

const markName = "mark"

// sender is the message as its sender made it: a dead letter of Scheduler's holds it.
func (m *message) sender() *message {
	if _, dead := m.attributes["SCHEDULE_ARN"]; dead {
		return scheduled(m.body)
	}
	return m
}

func (m *message) mark() string { return aws.ToString(m.sender().attributes[markName].StringValue) }

func (m *message) content() soak.Content {
	m = m.sender()
	c := soak.Content{Body: m.body, Group: m.group, Attributes: map[string]string{}}
	for name, a := range m.attributes {
		if name != job.MemoryAttribute {
			c.Attributes[name] = aws.ToString(a.DataType) + "/" + aws.ToString(a.StringValue) + string(a.BinaryValue)
		}
	}
	return c
}

func (m *message) memory() job.Memory {
	a, ok := m.attributes[job.MemoryAttribute]
	if !ok {
		return job.Memory{}
	}
	memory, err := job.ParseMemory(job.Attribute{Type: aws.ToString(a.DataType), String: aws.ToString(a.StringValue), Binary: a.BinaryValue})
	if err != nil {
		return job.Memory{}
	}
	return memory
}

// put adds a message to a queue under a new id. The caller holds the lock.
func (s *story) put(q job.Queue, m *message, delay time.Duration) *message {
	s.serial++
	m.id, m.sent, m.visible, m.received, m.receipt = fmt.Sprint("m", s.serial), time.Now(), time.Now().Add(delay), 0, ""
	s.queues[q] = append(s.queues[q], m)
	s.ids[m.mark()] = append(s.ids[m.mark()], m.id)
	s.history.Created[m.id] = s.now()
	s.counted()
	s.tell("%s gets %s (%s) in %v, with %s", q, m.id, m.mark(), delay, aws.ToString(m.attributes[job.MemoryAttribute].StringValue))
	return m
}

// take receives up to n messages. next is when the next one is visible. The caller holds the lock.
func (s *story) take(q job.Queue, n int, visibility time.Duration, fits func(batch []*message, m *message) bool) (batch []*message, next time.Time) {
	now := time.Now()
	next = now.Add(3 * time.Minute)
	retention := topology.Default().LaneRetention
	if q == job.DLQ {
		retention = topology.Default().DLQRetention
	}
	list := slices.Clone(s.queues[q])
	if len(list) > 1 {
		start := s.number(len(list), "order"+string(q))
		list = append(list[start:], list[:start]...)
	}
	for _, m := range list {
		switch {
		case now.Sub(m.sent) > retention:
			s.remove(q, m)
			s.tell("%s drops %s: too old", q, m.id)
		case m.visible.After(now):
			if m.visible.Before(next) {
				next = m.visible
			}
		case q != job.DLQ && m.received >= topology.Default().MaxReceiveCount:
			s.remove(q, m)
			s.queues[job.DLQ] = append(s.queues[job.DLQ], m)
			s.tell("SQS moves %s to the DLQ", m.id)
		case len(batch) == n || !fits(batch, m):
			next = now
		case !s.calm() && s.number(100, "hidden"+m.id) < 5:
			next = now.Add(time.Second) // a receive asks only some of SQS's servers
		default:
			m.received++
			m.receipt = fmt.Sprint(m.id, "#", m.received)
			m.visible = now.Add(visibility)
			if !s.calm() && s.number(100, "again"+m.id) < s.again {
				m.visible = now // another server has a copy
			}
			copied := *m
			batch = append(batch, &copied)
		}
	}
	s.counted()
	return batch, next
}

func (s *story) remove(q job.Queue, m *message) {
	s.queues[q] = slices.DeleteFunc(s.queues[q], func(o *message) bool { return o == m })
	s.counted()
}

// counted keeps what the queues hold, for counts that lag. The caller holds the lock.
func (s *story) counted() {
	for _, q := range []job.Queue{job.Source, job.Recovery, job.DLQ} {
		c := count{at: time.Now()}
		for _, m := range s.queues[q] {
			switch {
			case !m.visible.After(c.at):
				c.visible++
			case m.received > 0:
				c.inFlight++
			default:
				c.delayed++
			}
		}
		s.counts[q] = append(s.counts[q], c)
	}
}

// lines is SQS's interface for a process.
type lines struct{ *story }

func (s lines) life(ctx context.Context) *life { return ctx.Value(lifeKey{}).(*life) }

func refusal(err error) error {
	if err == nil {
		return nil
	}
	return &smithy.GenericAPIError{Code: "ServiceUnavailable", Message: err.Error(), Fault: smithy.FaultServer}
}

// within checks SQS's limits of a batch.
func (s lines) within(entries int) {
	if entries < 1 || entries > topology.MaxSendBatch {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.breaks("a batch has %d entries", entries)
	}
}

// one is the fate of one entry of a batch. The caller holds the lock.
func (s lines) one(what string) (made, confirmed bool) {
	n := s.number(100, what)
	if s.calm() || n >= s.fail/2+s.lose/2 {
		return true, true
	}
	return n < s.lose/2, false
}

func (s lines) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	s.within(len(in.Entries))
	l, q := s.life(ctx), job.Queue(*in.QueueUrl)
	what := "send to " + string(q) + " " + aws.ToString(in.Entries[0].MessageAttributes[markName].StringValue)
	began := s.now()
	var out *sqs.SendMessageBatchOutput
	err := l.call(ctx, ofSQS, what, func(heard bool) {
		out = &sqs.SendMessageBatchOutput{}
		for _, e := range in.Entries {
			m := &message{body: aws.ToString(e.MessageBody), group: aws.ToString(e.MessageGroupId), attributes: maps.Clone(e.MessageAttributes)}
			delay := time.Duration(e.DelaySeconds) * time.Second
			if delay < 0 || delay > topology.MaxDelay {
				s.breaks("%s is delayed by %v", m.mark(), delay)
			}
			made, told := s.one(l.name + what + m.mark())
			if made {
				s.put(q, m, delay)
				s.convicted(l, q, m)
			}
			if !told {
				s.tell("%s: %s is not confirmed", l.name, m.mark())
				out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InternalError"), Message: aws.String("try again")})
				continue
			}
			out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id, MessageId: &m.id})
			if heard {
				s.moved(q, m, began)
			}
		}
	})
	return out, refusal(err)
}

// moved records a confirmed move. The caller holds the lock.
func (s *story) moved(to job.Queue, m *message, began soak.Moment) {
	s.history.Moves = append(s.history.Moves, soak.Move{
		Mark: m.mark(), Queue: string(to), MessageID: m.id, Content: m.content(), Began: began, Ended: s.now(),
	})
	if of := s.letterOf(m); of != nil {
		name := cmp.Or(of.key, of.mark)
		s.handed[name] = append(s.handed[name], handed{of.digest, s.now()})
	}
}

// convicted checks a message that the system sends on. The caller holds the lock.
func (s lines) convicted(l *life, to job.Queue, m *message) {
	if to != job.DLQ || m.memory().Cause != job.CauseCrash || s.killed(m.mark()) {
		return
	}
	if !s.poison(m.mark()) || !s.crashed(m.mark()) {
		s.breaks("%s is convicted by %s, and fewer than two invocations died with it, or with a message of its job that was isolated for that", m.mark(), l.name)
	}
}

func (s lines) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	s.within(len(in.Entries))
	l, q := s.life(ctx), job.Queue(*in.QueueUrl)
	what := "delete from " + string(q) + " " + aws.ToString(in.Entries[0].ReceiptHandle)
	var out *sqs.DeleteMessageBatchOutput
	err := l.call(ctx, ofSQS, what, func(bool) {
		out = &sqs.DeleteMessageBatchOutput{}
		for _, e := range in.Entries {
			made, told := s.one(l.name + what + *e.ReceiptHandle)
			if made {
				if q != job.DLQ {
					s.history.Deletes = append(s.history.Deletes, soak.Delete{Receipt: *e.ReceiptHandle, Began: s.now()})
				}
				s.deleted(l, q, *e.ReceiptHandle)
			}
			if told {
				out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
			} else {
				out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InternalError")})
			}
		}
	})
	return out, refusal(err)
}

// deleted deletes a message by its receipt. SQS confirms it even if the message was delivered again meanwhile, and
// then keeps the message. The caller holds the lock.
func (s *story) deleted(l *life, q job.Queue, receipt string) {
	for _, m := range s.queues[q] {
		if m.receipt == receipt {
			s.remove(q, m)
			s.tell("%s deletes %s from %s", l.name, m.id, q)
			if q == job.DLQ {
				s.history.Removed = append(s.history.Removed, m.mark())
				s.leaves(l, m)
			}
			return
		}
	}
}

// leaves checks a message that a redrive has deleted: its job has ended, or a message of the job with the same payload was
// sent since, or still is on the DLQ, or the message was sent with a mended body. A discard may delete any message, but by a copy's id it must not end the job.
func (s *story) leaves(l *life, m *message) {
	of := s.letterOf(m)
	if of != nil && l.discards {
		if m.memory().Copy && !l.byKey {
			// Its job goes on, and the checker excuses nothing.
			if e := s.entry(of.key); of.key != "" && e.Outcome == ledger.OutcomeDiscarded && strings.HasPrefix(e.Owner, l.name+"-") {
				s.breaks("%s discards %s, a copy, and ends %s", l.name, m.id, of.key)
			}
			return
		}
		s.history.Discarded = append(s.history.Discarded, soak.Form{Mark: of.mark, Body: m.content().Body})
	}
	if of == nil || l.discards || s.final(of.key, of.digest) {
		return
	}
	if slices.ContainsFunc(s.queues[job.DLQ], func(o *message) bool {
		other := s.letterOf(o)
		return other != nil && of.key != "" && other.key == of.key && other.digest == of.digest
	}) {
		return // m is a copy, and a run may remove it before it sends the other
	}
	since := s.history.Created[m.id]
	sent := func(of *letter) bool {
		return slices.ContainsFunc(s.handed[cmp.Or(of.key, of.mark)], func(h handed) bool { return h.digest == of.digest && h.at > since })
	}
	if !sent(of) && !slices.ContainsFunc(s.mended, func(x *mended) bool {
		return x.message == m.id && x.approved && (sent(&x.letter) || s.final(x.key, x.digest))
	}) {
		s.breaks("%s deletes %s (%s) from the DLQ without a confirmed send, and %s has not ended", l.name, m.id, of.mark, of.key)
	}
}

func (s lines) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	s.within(len(in.Entries))
	l, q := s.life(ctx), job.Queue(*in.QueueUrl)
	receipts := make([]string, len(in.Entries)) // their order is that of a map
	for i, e := range in.Entries {
		receipts[i] = *e.ReceiptHandle
	}
	what := "hide on " + string(q) + " " + slices.Min(receipts)
	var out *sqs.ChangeMessageVisibilityBatchOutput
	err := l.call(ctx, ofSQS, what, func(bool) {
		out = &sqs.ChangeMessageVisibilityBatchOutput{}
		for _, e := range in.Entries {
			made, told := s.one(l.name + what + *e.ReceiptHandle)
			for _, m := range s.queues[q] {
				if made && m.receipt == *e.ReceiptHandle {
					m.visible = time.Now().Add(time.Duration(e.VisibilityTimeout) * time.Second)
				}
			}
			if told {
				out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			} else {
				out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InternalError")})
			}
		}
		s.counted()
	})
	return out, refusal(err)
}

func (s lines) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	l, q := s.life(ctx), job.Queue(*in.QueueUrl)
	var out *sqs.ReceiveMessageOutput
	for waits := in.WaitTimeSeconds; ; waits = 0 {
		over := false
		err := l.call(ctx, ofSQS, "receive from "+string(q), func(bool) {
			out = &sqs.ReceiveMessageOutput{}
			if s.received[q] == s.now() { // a receive at the same time has them all
				return
			}
			s.received[q] = s.now()
			if c := s.counts[q]; s.inFlight > 0 && !s.calm() && len(c) > 0 && c[len(c)-1].inFlight >= s.inFlight {
				over = in.WaitTimeSeconds == 0
				return
			}
			batch, _ := s.take(q, int(in.MaxNumberOfMessages), time.Duration(in.VisibilityTimeout)*time.Second, func([]*message, *message) bool { return true })
			for _, m := range batch {
				out.Messages = append(out.Messages, types.Message{
					MessageId: &m.id, ReceiptHandle: &m.receipt, Body: &m.body, MessageAttributes: m.attributes, Attributes: system(m),
				})
			}
		})
		switch {
		case err != nil:
			return nil, refusal(err)
		case over:
			return nil, &smithy.GenericAPIError{Code: "OverLimit", Message: "too many messages in flight", Fault: smithy.FaultClient}
		case len(out.Messages) > 0 || waits == 0:
			return out, nil
		}
		s.rest(time.Duration(waits)*time.Second, l.name, "long poll")
	}
}

func system(m *message) map[string]string {
	return map[string]string{
		"SentTimestamp": fmt.Sprint(m.sent.UnixMilli()), "ApproximateReceiveCount": fmt.Sprint(m.received), "MessageGroupId": m.group,
	}
}

func (s lines) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	l, q := s.life(ctx), job.Queue(*in.QueueUrl)
	var out *sqs.GetQueueAttributesOutput
	err := l.call(ctx, ofSQS, "count "+string(q), func(bool) {
		s.counted()
		var told count
		for _, c := range s.counts[q] {
			if s.calm() || time.Since(c.at) >= s.lag {
				told = c
			}
		}
		out = &sqs.GetQueueAttributesOutput{Attributes: map[string]string{
			"ApproximateNumberOfMessages": strconv.Itoa(told.visible), "ApproximateNumberOfMessagesNotVisible": strconv.Itoa(told.inFlight),
			"ApproximateNumberOfMessagesDelayed": strconv.Itoa(told.delayed),
		}}
	})
	return out, refusal(err)
}

// scheduled is the message of a schedule's input.
func scheduled(input string) *message {
	var in job.ScheduledSend
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		panic(err)
	}
	m := &message{body: in.MessageBody, group: in.MessageGroupID, attributes: map[string]types.MessageAttributeValue{}}
	for name, a := range in.MessageAttributes {
		m.attributes[name] = types.MessageAttributeValue{DataType: aws.String(a.DataType), StringValue: aws.String(a.StringValue)}
	}
	return m
}
