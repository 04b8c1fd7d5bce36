package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
)

func hold(more string) []string {
	args := "hold --reservation r-1 --command hold-1 --resource room-7 --units 2 " + more
	return strings.Fields(args)
}

func TestHoldAndConfirm(t *testing.T) {
	c, aws := embedded(t)
	until := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	at := "--until " + stamp(until)

	contains(t, c.must(hold(at+" --capacity 5")...).stdout, "RESERVATION", "r-1", "room-7", "held", stamp(until), "reservation.expire/r-1/hold-1")
	got := decode[holdReport](t, c.must(hold(at+" --output json")...)) // the same once more
	want := holdReport{ReservationID: "r-1", CommandID: "hold-1", State: reservation.Held, ResourceID: "room-7", Units: 2,
		ExpiresAt: until, Deadline: until.Add(15 * time.Minute), Key: "reservation.expire/r-1/hold-1"}
	if got != want {
		t.Errorf("report is %+v, want %+v", got, want)
	}
	if s := decode[statusReport](t, c.must("status", "--output", "json")).Lanes[0]; s.Scheduled != 1 || s.Ready != 0 {
		t.Errorf("source is %+v, want its expiry scheduled", s)
	}

	contains(t, c.must("confirm", "--reservation", "r-1", "--command", "hold-1").stdout, "RESERVATION", "confirmed")
	confirmed := decode[holdReport](t, c.must("confirm", "--reservation", "r-1", "--command", "hold-1", "--output", "json"))
	if confirmed != (holdReport{ReservationID: "r-1", CommandID: "hold-1", State: reservation.Confirmed}) {
		t.Errorf("report is %+v", confirmed)
	}
	c.refused(exitRefused, []string{"confirmed already"}, hold(at)...)

	no := decode[holdReport](t, c.must("hold", "--reservation", "r-2", "--command", "c", "--resource", "room-7", "--for", "1ms", "--deadline-after", "0", "--output", "json"))
	if !no.Deadline.IsZero() || no.Units != 1 {
		t.Errorf("report is %+v, want no deadline and one unit", no)
	}
	time.Sleep(10 * time.Millisecond)
	if got := received(t, aws, job.Source); len(got) != 1 || strings.Contains(got[0].Body, "deadline") {
		t.Errorf("source holds %q, want the expiry without a deadline", bodies(got))
	}
}

func TestHoldRefused(t *testing.T) {
	c, _ := embedded(t)
	r := c.refused(exitRefused, []string{"resource room-7 does not exist", "--capacity UNITS", "--until "}, hold("--for 1m")...)
	_, until, _ := strings.Cut(r.stderr, "--until ")
	until, _, _ = strings.Cut(until, " ")
	c.must(hold("--capacity 3 --until " + until)...) // what it said to type

	c.refused(exitRefused, []string{"under the same command", "--until " + until, "a new --command"}, hold("--for 2m")...)
	c.refused(exitRefused, []string{"held by command hold-1 until " + until},
		"hold", "--reservation", "r-1", "--command", "hold-2", "--resource", "room-7", "--for", "1m")
	c.refused(exitRefused, []string{"fewer than 2 units available", "--until "},
		"hold", "--reservation", "r-2", "--command", "hold-1", "--resource", "room-7", "--units", "2", "--for", "1m")

	c.refused(exitRefused, []string{"not held yet", "repeat the hold"}, "confirm", "--reservation", "r-2", "--command", "hold-1")
	c.refused(exitRefused, []string{"held by command hold-1, not by other"}, "confirm", "--reservation", "r-1", "--command", "other")
	c.refused(exitRefused, []string{"no reservation r-9", c.stack}, "confirm", "--reservation", "r-9", "--command", "hold-1")
}

// The states that only a worker brings about.
func TestErrorsAreSentences(t *testing.T) {
	tg := &target{}
	until := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	h := reservation.Hold{Payload: reservation.Payload{ReservationID: "r-1", CommandID: "c", ResourceID: "x", Units: 1}, ExpiresAt: until}
	state := func(s reservation.State) error {
		return &reservation.StateError{Found: reservation.Reservation{Payload: h.Payload, State: s, ExpiresAt: until, UpdatedAt: until}}
	}
	contains(t, tg.holdError(h, state(reservation.Abandoned)).Error(), "r-1 is abandoned", "a new --command")
	contains(t, tg.holdError(h, reservation.ErrCommandUsed).Error(), "command c of reservation r-1 was used before", "a new --command")
	contains(t, tg.holdError(h, http.ErrHandlerTimeout).Error(), "may be half done", "--until 2026-12-01T10:00:00Z")
	contains(t, tg.confirmError("r-1", "c", state(reservation.Expired)).Error(), "r-1 is expired since 2026-12-01T10:00:00Z", "a new --command")
}

func TestHoldRefusesBadFlags(t *testing.T) {
	c := offline(t)
	for flags, wanted := range map[string]string{
		"--for 25h":                         "more than 24h0m0s ahead",
		"--for -1m":                         "want a positive duration",
		"--for 0s":                          "want a positive duration",
		"--until tomorrow":                  "want a time with a zone",
		"--until 2026-12-01T10:00:00":       "want a time with a zone",
		"--for 1m --deadline-after -1s":     "--deadline-after is -1s",
		"--for 1m --capacity 0":             "--capacity is 0",
		"--for 1m --units 0":                "units is 0",
		"--for 1m --units -3":               "units is -3",
		"--for 1m --reservation=":           "reservationId is missing",
		"--for 1m --command a\x07b":         "commandId has a control character",
		"--for 1m --units 9007199254740992": "units is 9007199254740992",
	} {
		c.refused(exitRefused, []string{wanted}, hold(flags)...)
	}
	c.refused(exitRefused, []string{"--command has 300 bytes"}, "confirm", "--reservation", "r", "--command", strings.Repeat("x", 300))
}

// An outage in the middle says how to complete the hold, and that completes it.
func TestHoldHalfDone(t *testing.T) {
	c, _ := embedded(t)
	direct := c.env["AWS_ENDPOINT_URL"]
	c.intercept(func(operation string, w http.ResponseWriter) bool {
		if operation == "SendMessageBatch" {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	r := c.refused(exitFailed, []string{"may be half done", "--until "}, hold("--for 1m --capacity 5")...)
	_, until, _ := strings.Cut(r.stderr, "--until ")
	until, _, _ = strings.Cut(until, " ")
	c.env["AWS_ENDPOINT_URL"] = direct
	c.must(hold("--until " + until)...)
}
