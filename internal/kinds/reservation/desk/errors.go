package main

import (
	"errors"
	"fmt"
	"time"

	"acklast"
	"acklast/internal/kinds/reservation"
)

// holdError explains a refused hold and says what to do.
func holdError(h reservation.Hold, err error) error {
	until := "--until " + stamp(h.ExpiresAt)
	var state *reservation.StateError
	errors.As(err, &state)
	switch {
	case errors.Is(err, reservation.ErrNoCapacity):
		return refuse("resource %s has fewer than %d units available: hold fewer, or repeat this hold with %s once units are free. Until then the reservation is placing, without units, and its expiry abandons it",
			h.ResourceID, h.Units, until)
	case errors.Is(err, reservation.ErrNotFound):
		return refuse("resource %s does not exist: repeat this hold with %s and --capacity UNITS to create it", h.ResourceID, until)
	case errors.Is(err, reservation.ErrCommandUsed):
		return refuse("command %s of reservation %s was used before and its expiry is over: hold under a new --command", h.CommandID, h.ReservationID)
	case errors.Is(err, reservation.ErrTaken) && state != nil:
		f := state.Found
		if f.CommandID == h.CommandID {
			return refuse("reservation %s is %s under the same command, but for %d of %s until %s: to repeat that hold give the same values and --until %[5]s, for another one a new --command once it is expired",
				f.ReservationID, f.State, f.Units, f.ResourceID, stamp(f.ExpiresAt))
		}
		return refuse("reservation %s is %s by command %s until %s: take another reservation, or wait for its end",
			f.ReservationID, f.State, f.CommandID, stamp(f.ExpiresAt))
	case state != nil && state.Found.State == reservation.Confirmed:
		return refuse("reservation %s is confirmed already: there is nothing to hold", h.ReservationID)
	case state != nil:
		return refuse("reservation %s is %s: its expiry was faster than this hold; hold it under a new --command",
			h.ReservationID, state.Found.State)
	case errors.Is(err, acklast.ErrContended):
		return fmt.Errorf("other writes were in the way every time: repeat this hold with %s: %w", until, err)
	}
	return fmt.Errorf("%w\nIt may be half done; repeating it with %s completes it", err, until)
}

// confirmError explains a refused confirmation and says what to do.
func confirmError(reservationID, commandID string, err error) error {
	var state *reservation.StateError
	switch {
	case errors.Is(err, reservation.ErrNotFound):
		return refuse("there is no reservation %s: hold it first, or name another stack with --stack", reservationID)
	case errors.As(err, &state):
		f := state.Found
		if f.CommandID != commandID {
			return refuse("reservation %s is %s by command %s, not by %s", reservationID, f.State, f.CommandID, commandID)
		}
		switch f.State {
		case reservation.Placing:
			return refuse("reservation %s is not held yet: its hold has no units, repeat the hold with --until %s", reservationID, stamp(f.ExpiresAt))
		case reservation.Expired, reservation.Abandoned:
			return refuse("reservation %s is %s since %s: hold it again under a new --command", reservationID, f.State, stamp(f.UpdatedAt))
		}
		return refuse("reservation %s is %s", reservationID, f.State)
	}
	return err
}

// stamp writes a time up to the millisecond, as the tables keep it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }
