package reservation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// Hold asks for units of a resource until a time.
type Hold struct {
	Payload
	// ExpiresAt is the time at which the hold becomes stale, in whole milliseconds.
	ExpiresAt time.Time
	// Deadline is the time by which the expiry should have happened; zero means that its budget is by count
	// only.
	Deadline time.Time
}

// Producer is the part of an acklast.Client that a desk uses.
type Producer interface {
	// Check says whether Send would refuse the message as it is.
	Check(m acklast.Message) error
	Send(ctx context.Context, m acklast.Message) error
	Transact(ctx context.Context, items ...types.TransactWriteItem) error
	// Runnable is a transaction's condition that the job with the key can still run.
	Runnable(key string) types.TransactWriteItem
}

// Desk places and confirms holds: the producer's side.
type Desk struct {
	store    *Store
	producer Producer
}

// NewDesk returns a desk.
func NewDesk(s *Store, p Producer) *Desk { return &Desk{store: s, producer: p} }

// Job returns the job that expires the hold.
func (h Hold) Job() acklast.Message {
	return acklast.Message{Kind: KindName, Payload: h.Payload, NotBefore: h.ExpiresAt, Deadline: h.Deadline}
}

// Hold takes the units in three steps. It puts the reservation as placing, sends its expiry job, and then makes
// it held and takes the units in one transaction. The producer may die after any step. So a hold cannot exist
// whose expiry was never sent, and a crash leaves at most a placing reservation without units, which its job
// abandons when due.
//
// Repeating a Hold with the same values is safe and completes an earlier call. Its errors are ErrTaken,
// ErrNoCapacity, ErrNotFound (of the resource), ErrCommandUsed, a *StateError when the job was faster, or those
// of the tables and the queue.
//
// After ErrNoCapacity the reservation stays placing until its job is due. If it were freed at once for another
// command, that job would find another command's hold and raise a false alarm.
func (k *Desk) Hold(ctx context.Context, h Hold) error {
	if err := h.Check(); err != nil {
		return err
	}
	h.ExpiresAt = h.ExpiresAt.UTC().Truncate(time.Millisecond)
	key, err := h.Key()
	if err != nil {
		return err
	}
	if err := k.producer.Check(h.Job()); err != nil {
		return err // before anything is written
	}
	if held, err := k.place(ctx, h); held || err != nil {
		return err
	}
	if err := k.producer.Send(ctx, h.Job()); err != nil {
		return fmt.Errorf("send the expiry of reservation %s: %w", h.ReservationID, err)
	}
	return k.take(ctx, h, key)
}

// place puts the reservation as placing, or finds that an earlier call of the same hold has done so. held is
// true if that call has also taken the units.
func (k *Desk) place(ctx context.Context, h Hold) (held bool, err error) {
	s := k.store
	err = k.producer.Transact(ctx, types.TransactWriteItem{Put: &types.Put{
		TableName: &s.reservations,
		Item: item{
			"reservation_id": acklast.Text(h.ReservationID), "command_id": acklast.Text(h.CommandID), "resource_id": acklast.Text(h.ResourceID),
			"units": acklast.Number(h.Units), "state": acklast.Text(string(Placing)),
			"expires_at": acklast.Millis(h.ExpiresAt), "updated_at": acklast.Millis(s.now()),
		},
		ConditionExpression: aws.String(
			"attribute_not_exists(#id) OR (#state IN (:expired, :abandoned) AND #command <> :command)"),
		ExpressionAttributeNames: map[string]string{"#id": "reservation_id", "#state": "state", "#command": "command_id"},
		ExpressionAttributeValues: item{
			":expired": acklast.Text(string(Expired)), ":abandoned": acklast.Text(string(Abandoned)), ":command": acklast.Text(h.CommandID),
		},
	}})
	var refused *acklast.RefusedError
	if !errors.As(err, &refused) {
		return false, wrap("place reservation "+h.ReservationID, err)
	}
	found, err := s.found(ctx, h.ReservationID, refused.Item)
	if err != nil {
		return false, err
	}
	if found.Payload != h.Payload || !found.ExpiresAt.Equal(h.ExpiresAt) {
		return false, fmt.Errorf("%w: %w", ErrTaken, &StateError{found})
	}
	switch found.State {
	case Placing:
		return false, nil
	case Held:
		return true, nil
	}
	return false, &StateError{found}
}

// take makes the reservation held and takes the units, if its job can still run.
func (k *Desk) take(ctx context.Context, h Hold, key string) error {
	s := k.store
	err := k.producer.Transact(ctx, s.change(h.Payload, Placing, Held), s.takeUnits(h.Payload), k.producer.Runnable(key))
	var refused *acklast.RefusedError
	if !errors.As(err, &refused) {
		return wrap("take reservation "+h.ReservationID, err)
	}
	switch refused.Index {
	case 1:
		_, err := s.get(ctx, s.resources, "resource_id", h.ResourceID)
		if err == nil {
			err = ErrNoCapacity
		}
		return fmt.Errorf("resource %s: %w", h.ResourceID, err)
	case 2:
		return fmt.Errorf("hold %s of reservation %s: %w", h.CommandID, h.ReservationID, ErrCommandUsed)
	}
	found, err := s.found(ctx, h.ReservationID, refused.Item)
	if err != nil {
		return err
	}
	if found.Payload == h.Payload && found.State == Held {
		return nil // by an earlier call of ours, whose answer was lost
	}
	return &StateError{found}
}

// Confirm makes a held reservation permanent. The state decides, not the clock: a stale hold that is not
// released yet can still be confirmed. If a confirmation and an expiry run at the same time, one of them wins.
// Confirm uses a transaction so that a conflict with the expiry is tried again in place. Repeating it is safe.
// Its errors are ErrNotFound, a *StateError, or those of the table.
func (k *Desk) Confirm(ctx context.Context, reservationID, commandID string) error {
	s := k.store
	err := k.producer.Transact(ctx, types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.reservations,
		Key:                      item{"reservation_id": acklast.Text(reservationID)},
		UpdateExpression:         aws.String("SET #state = :confirmed, #updated = :now"),
		ConditionExpression:      aws.String("#state = :held AND #command = :command"),
		ExpressionAttributeNames: map[string]string{"#state": "state", "#command": "command_id", "#updated": "updated_at"},
		ExpressionAttributeValues: item{
			":held": acklast.Text(string(Held)), ":confirmed": acklast.Text(string(Confirmed)), ":command": acklast.Text(commandID),
			":now": acklast.Millis(s.now()),
		},
	}})
	var refused *acklast.RefusedError
	if !errors.As(err, &refused) {
		return wrap("confirm reservation "+reservationID, err)
	}
	found, err := s.found(ctx, reservationID, refused.Item)
	if err != nil {
		return err
	}
	if found.State == Confirmed && found.CommandID == commandID {
		return nil
	}
	return &StateError{found}
}

// found returns the reservation that refused a write: the engine's item, or the result of one consistent read
// if the engine returned none.
func (s *Store) found(ctx context.Context, reservationID string, refused item) (Reservation, error) {
	if refused != nil {
		return readReservation(refused), nil
	}
	return s.Get(ctx, reservationID)
}
