// Package reservation holds capacity for a while and gives it back exactly once.
//
// A resource has a capacity; a reservation takes units of it. The promise of this package is that
// capacity always adds up: available units plus the units of held and confirmed reservations equal
// the resource's capacity, whatever is repeated, raced or killed.
//
//	            Desk.Hold                 Desk.Confirm
//	(absent) ───▶ placing ───────▶ held ──────────────▶ confirmed
//	                 │    takes the  │
//	     due job, no │    units      │ due job, gives
//	     units taken ▼               ▼ the units back
//	             abandoned        expired
//
// Only the transition placing → held takes units and only held → expired returns them, each in one
// transaction with the reservation's own state.
package reservation

import (
	"errors"
	"fmt"
	"time"

	"acklast"
)

// KindName is the kind of the job that expires a hold.
const KindName = "reservation.expire"

// MaxUnits is the most units of one reservation: the largest integer that every JSON reader keeps exactly.
const MaxUnits = 1<<53 - 1

// State is a reservation's state.
type State string

// The states. A reservation that is expired or abandoned may be held anew by another command.
const (
	Placing   State = "placing"
	Held      State = "held"
	Confirmed State = "confirmed"
	Expired   State = "expired"
	Abandoned State = "abandoned"
)

// Outcomes of a finished expiry job, as the ledger keeps them.
const (
	// Released: the hold was stale; its units went back to the resource.
	Released = "released"
	// Superseded: there was nothing to release: the reservation was confirmed in time, or never held.
	Superseded = "superseded"
)

// Payload is the payload of an expiry job.
type Payload struct {
	ReservationID string `json:"reservationId"`
	// CommandID names the hold to expire; a reservation may be held again later by another command.
	CommandID  string `json:"commandId"`
	ResourceID string `json:"resourceId"`
	Units      int64  `json:"units"`
}

// Check returns what is wrong with a payload; its error wraps that of acklast.Invalid.
func (p Payload) Check() error {
	if err := acklast.CheckID("reservationId", p.ReservationID); err != nil {
		return err
	}
	if err := acklast.CheckID("commandId", p.CommandID); err != nil {
		return err
	}
	if err := acklast.CheckID("resourceId", p.ResourceID); err != nil {
		return err
	}
	if p.Units < 1 || p.Units > MaxUnits {
		return acklast.Invalid("units is %d, want 1 to %d", p.Units, int64(MaxUnits))
	}
	return nil
}

// Key returns the key of the job that expires the hold.
func (p Payload) Key() (string, error) { return acklast.Key(KindName, p.ReservationID, p.CommandID) }

// Reservation is one reservation as it is stored.
type Reservation struct {
	Payload
	State State `json:"state"`
	// ExpiresAt is the time at which the hold becomes stale. Until then no job can release it.
	ExpiresAt time.Time `json:"expiresAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Balance is a resource's account.
type Balance struct {
	ResourceID string `json:"resourceId"`
	Capacity   int64  `json:"capacity"`
	Available  int64  `json:"available"`
	Held       int64  `json:"held"`
	Confirmed  int64  `json:"confirmed"`
}

// AddsUp says whether no unit was lost or added.
func (b Balance) AddsUp() bool { return b.Available+b.Held+b.Confirmed == b.Capacity }

// Conditions of holding and confirming.
var (
	// ErrNotFound: there is no such reservation or resource.
	ErrNotFound = errors.New("not found")
	// ErrNoCapacity: the resource has too few units available.
	ErrNoCapacity = errors.New("not enough units available")
	// ErrTaken: another command, or another hold under the same command, has the reservation.
	ErrTaken = errors.New("reservation is taken")
	// ErrCommandUsed: the expiry job of this command has already ended, so a hold under it could never expire.
	ErrCommandUsed = errors.New("command id was used before")
)

// StateError: the reservation is not in the state that the change needs.
type StateError struct{ Found Reservation }

func (e *StateError) Error() string {
	return fmt.Sprintf("reservation %s is %s (command %s)", e.Found.ReservationID, e.Found.State, e.Found.CommandID)
}
