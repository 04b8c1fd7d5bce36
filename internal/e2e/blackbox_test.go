package e2e_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// First question: is a job visible no earlier than its time?
func TestNoEffectBeforeTheChosenTime(t *testing.T) {
	t.Parallel()
	for name, undelayed := range map[string]bool{"SQS delays it": false, "it arrives early and hops": true} {
		t.Run(name, func(t *testing.T) {
			s := blackBox(t)
			s.undelayed = undelayed
			h := s.place(s.hold("early", 2, 7*time.Second))
			for time.Until(h.ExpiresAt) > 100*time.Millisecond {
				if state := s.state(h); state != reservation.Held && time.Now().Before(h.ExpiresAt) {
					t.Fatalf("%s with %v to go", state, time.Until(h.ExpiresAt))
				}
				time.Sleep(50 * time.Millisecond)
			}
			e := s.ends(h, ledger.Done)
			if e.FinalAt.Before(h.ExpiresAt) || e.Attempts != 0 || e.Outcome != reservation.Released {
				t.Errorf("due at %v, entry %+v", h.ExpiresAt, e)
			}
			s.wantState(h, reservation.Expired)
			s.wantAvailable(100)
		})
	}
}

func TestCopiesReleaseOnce(t *testing.T) {
	s := blackBox(t)
	h := s.place(s.hold("copied", 3, time.Second))
	for range 30 {
		s.send(s.body(h), nil)
	}
	s.ends(h, ledger.Done)
	s.wantState(h, reservation.Expired)
	s.wantAvailable(100)
}

func TestConfirmedJustBeforeExpiry(t *testing.T) {
	s := blackBox(t)
	h := s.place(s.hold("paid", 4, 2*time.Second))
	if err := s.desk.Confirm(t.Context(), h.ReservationID, h.CommandID); err != nil {
		t.Fatal(err)
	}
	if e := s.ends(h, ledger.Done); e.Outcome != reservation.Superseded {
		t.Errorf("entry %+v", e)
	}
	s.wantState(h, reservation.Confirmed)
	s.wantAvailable(96)
}

// Third question: is exhausted work isolated with payload and key intact?
func TestIsolatedIntact(t *testing.T) {
	s := blackBox(t)
	h := s.hold("missing", 2, 0)
	body := s.body(h)
	attributes := map[string]job.Attribute{
		"tenant": {Type: "Number.int", String: "12"}, "note": {Type: "String", String: "überraschung 😀"},
		"seal": {Type: "Binary.sha", Binary: []byte{0, 1, 0xFE, 0xFF}},
	}
	s.send(body, attributes)
	m := s.takeFromDLQ(body)
	if len(m.Attributes) != len(attributes) {
		t.Errorf("attributes %v", m.Attributes)
	}
	for name, want := range attributes {
		if got := m.Attributes[name]; got.Type != want.Type || got.String != want.String || string(got.Binary) != string(want.Binary) {
			t.Errorf("attribute %s is %+v, want %+v", name, got, want)
		}
	}
	if m.Memory.Class != job.Rejected || m.Memory.Cause != job.CausePermanent || !strings.Contains(m.Memory.Error, "does not exist") || m.Memory.Attempt != 1 {
		t.Errorf("memory %+v", m.Memory)
	}
	if e := s.entry(s.key(h)); e.Status != ledger.Isolated || e.Subject != h.ReservationID || e.Cause != job.CausePermanent {
		t.Errorf("entry %+v", e)
	}
}

// Fourth question: can one isolated job be put back without touching the others?
func TestOneIsPutBackByHand(t *testing.T) {
	s := blackBox(t)
	mended, other := s.hold("mended", 2, 0), s.hold("other", 2, 0)
	for _, h := range []reservation.Hold{mended, other} {
		s.send(s.body(h), nil)
		s.ends(h, ledger.Isolated)
	}
	left := s.fromDLQ(s.body(other))

	// The missing record is written, as an operator would do it.
	s.restore(mended)
	s.wantAvailable(98)
	m := s.fromDLQ(s.body(mended))
	if err := s.queues.Send(t.Context(), job.Source, []lanes.Move{{Message: m.Message}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := s.queues.Delete(t.Context(), job.DLQ, []job.Message{m.Message})[0]; err != nil {
		t.Fatal(err)
	}
	e := s.ends(mended, ledger.Done)
	if e.Redrives != 1 || e.Attempts != 1 || e.Outcome != reservation.Released {
		t.Errorf("entry %+v", e)
	}
	s.wantAvailable(100)

	again := s.takeFromDLQ(s.body(other))
	if again.ID != left.ID || !maps.EqualFunc(again.Attributes, left.Attributes, func(a, b job.Attribute) bool { return a.String == b.String }) || again.Memory != left.Memory {
		t.Errorf("the other one changed: %+v, was %+v", again, left)
	}
	if e := s.entry(s.key(other)); e.Status != ledger.Isolated {
		t.Errorf("the other one's entry: %+v", e)
	}
}

// restore writes the hold as if it had been placed.
func (s *system) restore(h reservation.Hold) {
	s.Helper()
	type item = map[string]types.AttributeValue
	text := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	_, err := s.db.PutItem(s.Context(), &dynamodb.PutItemInput{TableName: aws.String(s.names.Table("reservations")), Item: item{
		"reservation_id": text(h.ReservationID), "command_id": text(h.CommandID), "resource_id": text(h.ResourceID),
		"units": &types.AttributeValueMemberN{Value: "2"}, "state": text("held"),
		"expires_at": &types.AttributeValueMemberN{Value: "1000"}, "updated_at": &types.AttributeValueMemberN{Value: "1000"},
	}})
	if err == nil {
		_, err = s.db.UpdateItem(s.Context(), &dynamodb.UpdateItemInput{TableName: aws.String(s.names.Table("resources")),
			Key:                       item{"resource_id": text(h.ResourceID)},
			UpdateExpression:          aws.String("SET #available = #available - :units"),
			ExpressionAttributeNames:  map[string]string{"#available": "available"},
			ExpressionAttributeValues: item{":units": &types.AttributeValueMemberN{Value: "2"}},
		})
	}
	if err != nil {
		s.Fatal(err)
	}
}

func TestUnreadableBodiesBesideAGoodOne(t *testing.T) {
	s := blackBox(t)
	bodies := []string{
		`{"id":"` + s.id + `","a":`, `["` + s.id + `"]`, "plain text " + s.id, "😀 " + s.id,
		`{"kind":"reservation.expire","payload":{"reservationId":"` + s.id + strings.Repeat("x", 3000) + `","commandId":"c","resourceId":"r","units":1}}`,
		`{"kind":"reservation.expire","payload":{"reservationId":"` + s.id + `","commandId":"c","resourceId":"r","units":9007199254740993}}`,
	}
	if !rewritesBodies() { // of two equal names it would keep one
		bodies = append(bodies, `{"kind":"reservation.expire","kind":"`+s.id+`","payload":{}}`)
	}
	var moves []lanes.Move
	for _, body := range bodies {
		moves = append(moves, lanes.Move{Message: job.Message{Body: body}})
	}
	h := s.hold("neighbour", 1, 0)
	s.restore(s.hold("neighbour", 2, 0))
	h.Units = 2
	moves = append(moves, lanes.Move{Message: job.Message{Body: s.body(h)}})
	for _, err := range s.queues.Send(t.Context(), job.Source, moves) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if e := s.ends(h, ledger.Done); e.Outcome != reservation.Released {
		t.Errorf("the good neighbour: %+v", e)
	}
	for body, m := range s.takeAllFromDLQ(bodies...) {
		if m.Memory.Class != job.Invalid {
			t.Errorf("%.40q: class %s, want %s", body, m.Memory.Class, job.Invalid)
		}
		if m.Memory.Error == "" {
			t.Errorf("%.40q: the message does not say why it is invalid", body)
		}
	}
}
