package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/kinds/reservation"
	"acklast/internal/topology"
)

// producer is the stack's client, except that the run marks and records its messages.
type producer struct {
	*acklast.Client
	r *run
}

func (p producer) Send(_ context.Context, m acklast.Message) error {
	body, err := m.Body()
	must(err)
	p.r.send(message{body: body, delay: time.Until(m.NotBefore)})
	return nil
}

// sending is a message that waits for its batch.
type sending struct {
	Sent
	entry sqstypes.SendMessageBatchRequestEntry
}

type message struct {
	body, key string
	poison    bool
	mayExpire bool
	delay     time.Duration
}

// send gives a message a mark, and sends it with the next batch.
func (r *run) send(m message) {
	r.n++
	mark := "mark-" + strconv.Itoa(r.n)
	attributes := map[string]sqstypes.MessageAttributeValue{
		markName: {DataType: aws.String("String"), StringValue: &mark},
		"weight": {DataType: aws.String("Number.kg"), StringValue: aws.String("0.50")},
		"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255, 1}},
	}
	content := Content{Body: m.body, Attributes: map[string]string{markName: "String/" + mark, "weight": "Number.kg/0.50", "bytes": "Binary/AP8B"}}
	if m.delay > 30*time.Second { // what is scheduled cannot have binary attributes
		delete(attributes, "bytes")
		delete(content.Attributes, "bytes")
	}
	s := Sent{Mark: mark, Content: content, Key: m.key, Poison: m.poison, MayExpire: m.mayExpire}
	if e, err := job.Decode([]byte(m.body)); err == nil && !m.poison {
		s.Digest, err = job.Digest(e.Payload, nil)
		must(err)
		var p struct{ ReservationID, CommandID string }
		if s.Key == "" {
			must(json.Unmarshal(e.Payload, &p))
			if p.ReservationID != "" {
				s.Key = "reservation.expire/" + p.ReservationID + "/" + p.CommandID
			}
		}
	}
	delay := int32(0)
	if m.delay > 0 && r.random.IntN(2) == 0 { // the others arrive early
		delay = int32(min(m.delay.Seconds(), 900))
	}
	r.pending = append(r.pending, sending{s, sqstypes.SendMessageBatchRequestEntry{
		Id: &mark, MessageBody: &m.body, MessageAttributes: attributes, DelaySeconds: delay,
	}})
	if len(r.pending) == topology.MaxSendBatch {
		r.flush()
	}
}

// flush sends the messages that wait, and records them.
func (r *run) flush() {
	if len(r.pending) == 0 {
		return
	}
	url := r.env.QueueURLs().Source
	in := &sqs.SendMessageBatchInput{QueueUrl: &url}
	r.record.mu.Lock()
	for _, p := range r.pending {
		r.record.sent[p.Mark] = p.Content
		in.Entries = append(in.Entries, p.entry)
	}
	r.record.mu.Unlock()
	out, err := r.api.SendMessageBatch(r.Context(), in)
	must(err)
	ids := map[string]string{}
	for _, ok := range out.Successful {
		ids[*ok.Id] = *ok.MessageId
	}
	r.record.mu.Lock()
	for _, p := range r.pending {
		p.MessageID = ids[p.Mark]
		if p.MessageID == "" {
			panic("the embedded SQS refused the message " + p.Mark)
		}
		r.record.Sent = append(r.record.Sent, p.Sent)
	}
	r.record.mu.Unlock()
	r.pending = r.pending[:0]
}

// load sends jobs of all sorts until ctx ends.
func (r *run) load(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if i%20 == 0 {
			for ctx.Err() == nil && r.depth(job.Source)+r.depth(job.Recovery) > r.size.backlog {
				time.Sleep(20 * time.Millisecond)
			}
		}
		r.one(i)
	}
	r.flush()
}

func (r *run) depth(q job.Queue) int {
	d, err := r.queues.Depth(r.Context(), q)
	must(err)
	return d.Total()
}

func (r *run) one(i int) {
	id := fmt.Sprintf("r-%d", i)
	hold := func(ahead time.Duration) reservation.Hold {
		return reservation.Hold{
			Payload:   reservation.Payload{ReservationID: id, CommandID: "c", ResourceID: room(r.random.IntN(rooms)), Units: int64(1 + r.random.IntN(3))},
			ExpiresAt: time.Now().Add(ahead).Truncate(time.Millisecond),
		}
	}
	place := func(h reservation.Hold) {
		// The job may be faster than its producer, and then takes the hold back.
		_ = r.desk.Hold(r.Context(), h)
	}
	kind := r.random.IntN(100)
	if r.size.copies && (kind < 20 || kind >= 60 && kind < 70 && r.random.IntN(5) > 0) {
		kind = 30
	}
	switch {
	case kind < 30:
		place(hold(0))
	case kind < 45:
		h := hold(0)
		place(h)
		body, err := h.Job().Body()
		must(err)
		for range 1 + r.random.IntN(19) {
			r.send(message{body: body})
		}
	case kind < 50:
		h := hold(2 * time.Second)
		place(h)
		_ = r.desk.Confirm(r.Context(), h.ReservationID, h.CommandID)
	case kind < 60:
		place(hold(time.Duration(500+r.random.IntN(4000)) * time.Millisecond))
	case kind < 61 && r.size.schedules: // a short run would wait for them
		place(hold(time.Duration(35+r.random.IntN(20)) * time.Second))
	case kind < 63:
		r.send(message{body: []string{"", "{", `{"kind":"reservation.expire","payload":{}}`, `{"kind":7}`, "\x1b[31m"}[1+r.random.IntN(4)], key: ""})
	case kind < 65:
		body, err := hold(0).Job().Body() // without its reservation
		must(err)
		r.send(message{body: body})
	case kind < 66 && *oldFlag == "" && r.random.IntN(10) == 0: // an earlier version does not know the kind
		r.send(message{body: `{"kind":"test.poison","payload":{"id":"` + id + `"}}`, key: "test.poison/" + id, poison: true})
	default:
		r.remind(id)
	}
}

func (r *run) remind(id string) {
	p := reminder.Payload{
		ReminderID: id, SubscriptionID: "s-" + id, Channel: reminder.Email, Template: "renewal", TemplateVersion: "v1",
		Recipient: "to-" + id, Plan: "pro", RenewsAt: time.Now().Add(72 * time.Hour).Truncate(time.Millisecond),
		ExpiresAt: time.Now().Add(24 * time.Hour).Truncate(time.Millisecond),
	}
	s := reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}
	copies, mayExpire := 1, false
	switch kind := r.random.IntN(20); {
	case kind < 5:
		copies = 2 + r.random.IntN(4)
	case kind < 6:
		s.Plan = "basic"
	case kind < 7:
		mayExpire = true
		p.ExpiresAt = time.Now().Add(-time.Second).Truncate(time.Millisecond)
	}
	must(r.subs.Put(r.Context(), s))
	key, err := p.Key()
	must(err)
	body, err := p.Job(time.Time{})
	must(err)
	for range copies {
		r.send(message{body: body, key: key, mayExpire: mayExpire})
	}
	if r.random.IntN(30) == 0 && (!r.size.copies || r.random.IntN(5) == 0) {
		p.Recipient = "another"
		body, err := p.Job(time.Time{})
		must(err)
		r.send(message{body: body, key: key, mayExpire: mayExpire})
	}
}
