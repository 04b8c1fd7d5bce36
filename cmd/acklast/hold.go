package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"acklast"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/topology"
)

// holdReport is the answer of hold and of confirm.
type holdReport struct {
	ReservationID string            `json:"reservationId"`
	CommandID     string            `json:"commandId"`
	State         reservation.State `json:"state"`
	// The rest is of hold alone.
	ResourceID string    `json:"resourceId,omitzero"`
	Units      int64     `json:"units,omitzero"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	// Deadline is when the hold should have been released; absent when there is none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Key is the key of the job that expires the hold.
	Key string `json:"key,omitzero"`
}

func newHold(a *app) *cobra.Command {
	var (
		h             reservation.Hold
		lasts         time.Duration
		until         string
		deadlineAfter time.Duration
		capacity      int64
	)
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold units of a resource for a while",
		Long: `Hold units of a resource until a time, at which a job gives them back unless the hold was confirmed.

The expiry job is sent before the units are taken, so a hold without an expiry cannot exist. Repeating
the very same hold, with the same --until, is safe and completes what an earlier call began.`,
		Example: `  acklast hold --reservation r-1042 --command hold-3 --resource room-7 --units 1 --for 5m --capacity 20
  acklast hold --reservation r-1042 --command hold-3 --resource room-7 --units 1 --until 2026-12-01T10:00:00Z`,
		Args: cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			now := a.now()
			switch {
			case until != "":
				t, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return refuse("--until is %q, want a time with a zone such as 2026-12-01T10:00:00Z", until)
				}
				h.ExpiresAt = t
			case lasts <= 0:
				return refuse("--for is %v, want a positive duration such as 5m", lasts)
			default:
				h.ExpiresAt = now.Add(lasts)
			}
			h.ExpiresAt = h.ExpiresAt.UTC().Truncate(time.Millisecond)
			switch {
			case h.ExpiresAt.After(now.Add(topology.Default().MaxAhead)):
				return refuse("the hold would last until %s, more than %v ahead", stamp(h.ExpiresAt), topology.Default().MaxAhead)
			case deadlineAfter < 0:
				return refuse("--deadline-after is %v, want 0 or more", deadlineAfter)
			case deadlineAfter > 0:
				h.Deadline = h.ExpiresAt.Add(deadlineAfter)
			}
			if cmd.Flags().Changed("capacity") && capacity < 1 {
				return refuse("--capacity is %d, want at least 1", capacity)
			}
			return a.hold(cmd.Context(), h, capacity)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&h.ReservationID, "reservation", "", "reservation id")
	flags.StringVar(&h.CommandID, "command", "", "command id: names this hold, so that it can be repeated")
	flags.StringVar(&h.ResourceID, "resource", "", "resource id")
	flags.Int64Var(&h.Units, "units", 1, "units to hold")
	flags.DurationVar(&lasts, "for", 0, "how long to hold, such as 5m; at most 24h")
	flags.StringVar(&until, "until", "", "until when to hold, in RFC 3339")
	flags.DurationVar(&deadlineAfter, "deadline-after", 15*time.Minute, "how long after that the units must be back at the latest; 0 means no deadline")
	flags.Int64Var(&capacity, "capacity", 0, "create the resource with this many units if it is missing")
	require(cmd, "reservation", "command", "resource")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	cmd.MarkFlagsOneRequired("for", "until")
	return cmd
}

func newConfirm(a *app) *cobra.Command {
	var reservationID, commandID string
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Make a held reservation permanent",
		Long: `Confirm a hold, so that its expiry finds nothing to give back.

The state decides, not the clock: of a confirmation and an expiry that race, one wins. Repeating a
confirmation is safe.`,
		Example: `  acklast confirm --reservation r-1042 --command hold-3`,
		Args:    cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			for _, err := range []error{job.CheckID("--reservation", reservationID), job.CheckID("--command", commandID)} {
				if err != nil {
					return refuse("%w", err)
				}
			}
			return a.confirm(cmd.Context(), reservationID, commandID)
		}),
	}
	cmd.Flags().StringVar(&reservationID, "reservation", "", "reservation id")
	cmd.Flags().StringVar(&commandID, "command", "", "command id of the hold")
	require(cmd, "reservation", "command")
	return cmd
}

func require(cmd *cobra.Command, flags ...string) {
	for _, f := range flags {
		if err := cmd.MarkFlagRequired(f); err != nil {
			panic(err) // no such flag: a mistake in the program
		}
	}
}

func (a *app) hold(ctx context.Context, h reservation.Hold, capacity int64) error {
	body, err := h.Job()
	if err != nil {
		return err
	}
	c := &checker{kinds: acklast.Reading(kinds.All()...), maxAhead: topology.Default().MaxAhead, now: a.now}
	read, err := c.check(body) // before anything is written
	if err != nil {
		return refuse("%w", err)
	}
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	queue, err := t.lanes(ctx, job.Source)
	if err != nil {
		return err
	}
	a.announce(ctx, t)
	store := t.reservations()
	if capacity > 0 {
		if err := store.CreateResource(ctx, h.ResourceID, capacity); err != nil {
			return t.explain(err)
		}
	}
	desk := reservation.NewDesk(store, func(ctx context.Context, body string, notBefore time.Time) error {
		return queue.Send(ctx, job.Source, []lanes.Move{c.move(body, notBefore, a.now())})[0]
	})
	if err := desk.Hold(ctx, h); err != nil {
		return t.holdError(h, err)
	}
	r := holdReport{
		ReservationID: h.ReservationID, CommandID: h.CommandID, State: reservation.Held,
		ResourceID: h.ResourceID, Units: h.Units, ExpiresAt: h.ExpiresAt, Deadline: h.Deadline, Key: read.Key,
	}
	return a.answer(r, func(w io.Writer) {
		row(w, "RESERVATION", "COMMAND", "RESOURCE", "UNITS", "STATE", "EXPIRES", "JOB")
		row(w, r.ReservationID, r.CommandID, r.ResourceID, r.Units, r.State, when(r.ExpiresAt, a.now()), r.Key)
	})
}

// holdError says what a refused hold means and what to do.
func (t *target) holdError(h reservation.Hold, err error) error {
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
	case errors.Is(err, ledger.ErrContended):
		return fmt.Errorf("other writes were in the way every time: repeat this hold with %s: %w", until, err)
	}
	return fmt.Errorf("%w\nIt may be half done; repeating it with %s completes it", t.explain(err), until)
}

func (a *app) confirm(ctx context.Context, reservationID, commandID string) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	a.announce(ctx, t)
	desk := reservation.NewDesk(t.reservations(), nil) // a confirmation sends nothing
	if err := desk.Confirm(ctx, reservationID, commandID); err != nil {
		return t.confirmError(reservationID, commandID, err)
	}
	r := holdReport{ReservationID: reservationID, CommandID: commandID, State: reservation.Confirmed}
	return a.answer(r, func(w io.Writer) {
		row(w, "RESERVATION", "COMMAND", "STATE")
		row(w, r.ReservationID, r.CommandID, r.State)
	})
}

func (t *target) confirmError(reservationID, commandID string, err error) error {
	var state *reservation.StateError
	switch {
	case errors.Is(err, reservation.ErrNotFound):
		return refuse("there is no reservation %s in stack %s: hold it first", reservationID, t.names.Stack)
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
	return t.explain(err)
}
