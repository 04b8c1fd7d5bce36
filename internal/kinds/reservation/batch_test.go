package reservation_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"acklast"
	"acklast/internal/kinds/reservation"
	"acklast/internal/local/faults"
)

// together runs one delivery of each hold's job, in one batch.
func (w *world) together(holds ...reservation.Hold) []acklast.Tried {
	w.Helper()
	bodies := make([]string, len(holds))
	for i, h := range holds {
		var err error
		if bodies[i], err = h.Job().Body(); err != nil {
			w.Fatal(err)
		}
	}
	all, err := w.expirer.TryBatch(w.Context(), bodies...)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// Expiries of one resource in one batch are one transaction.
func TestExpiriesOfOneResourceAreOneTransaction(t *testing.T) {
	w := newWorld(t)
	var holds []reservation.Hold
	for i := range 10 {
		h := hold(fmt.Sprint("r-", i), 1)
		w.hold(h)
		holds = append(holds, h)
	}
	w.at(due)
	w.wantAvailable(0)
	w.faults.Reset()
	for _, res := range w.together(holds...) {
		w.wantResult(res, acklast.Committed, reservation.Released)
	}
	if n := w.faults.Calls()["TransactWriteItems"]; n != 1 {
		t.Errorf("%d transactions for 10 expiries, want 1", n)
	}
	w.wantAvailable(10)
	for _, res := range w.together(holds...) {
		w.wantResult(res, acklast.Duplicate, reservation.Released)
	}
	w.wantAvailable(10)
}

// Each job of a batch has its own end, whatever the ends of the others. Units come back once, and only those of
// stale holds.
func TestEachJobOfABatchHasItsOwnEnd(t *testing.T) {
	type member struct {
		prepare func(w *world, h reservation.Hold)
		verdict acklast.Verdict
		outcome string
		back    int64 // units that return
	}
	stale := func(w *world, h reservation.Hold) { w.hold(h) }
	members := map[string]member{
		"stale": {stale, acklast.Committed, reservation.Released, 1},
		"confirmed": {func(w *world, h reservation.Hold) {
			w.hold(h)
			if err := w.desk.Confirm(w.Context(), h.ReservationID, h.CommandID); err != nil {
				w.Fatal(err)
			}
		}, acklast.Committed, reservation.Superseded, 0},
		"expired before": {func(w *world, h reservation.Hold) {
			w.hold(h)
			w.at(due)
			w.deliver(h)
			w.at(t0)
		}, acklast.Duplicate, reservation.Released, 1},
		"missing": {func(*world, reservation.Hold) {}, acklast.Failed, "", 0},
		"not stale yet": {func(w *world, h reservation.Hold) {
			h.ExpiresAt, h.Deadline = h.ExpiresAt.Add(time.Hour), h.Deadline.Add(time.Hour)
			w.hold(h)
		}, acklast.Waiting, "", 0},
	}
	names := []string{"stale", "confirmed", "expired before", "missing", "not stale yet"}
	w := newWorld(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		drawn := rapid.SliceOfN(rapid.SampledFrom(names), 2, 8).Draw(r, "members")
		fault := rapid.SampledFrom([]string{"none", "lost answer", "no reasons"}).Draw(r, "fault")
		w.at(t0)
		n++
		room := fmt.Sprint("hall-", n)
		if err := w.store.CreateResource(t.Context(), room, 100); err != nil {
			t.Fatal(err)
		}
		var holds []reservation.Hold
		taken, back := int64(0), int64(0)
		for i, name := range drawn {
			h := hold(fmt.Sprintf("r-%d-%d", n, i), 1)
			h.ResourceID = room
			members[name].prepare(w, h)
			if name != "missing" {
				taken++
			}
			back += members[name].back
			holds = append(holds, h)
		}
		w.at(due)
		switch fault {
		case "lost answer":
			w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Fault: faults.DropAnswer()})
		case "no reasons":
			w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Fault: faults.CancelTransaction()})
		}
		for i, res := range w.together(holds...) {
			if want := members[drawn[i]]; res.Verdict != want.verdict || res.Outcome != want.outcome {
				r.Errorf("%s among %q with fault %q: %+v, want %v %q", drawn[i], drawn, fault, res, want.verdict, want.outcome)
			}
		}
		all, err := w.store.Balances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b := all[room]; b.Available != 100-taken+back || !b.AddsUp() {
			r.Errorf("%q with fault %q: %+v, want %d available", drawn, fault, b, 100-taken+back)
		}
	})
}

// Two commands' jobs of one reservation cannot be in one transaction: the second is attempted alone.
func TestTwoJobsOfOneReservationInOneBatch(t *testing.T) {
	w := newWorld(t)
	first, second := hold("r-1", 3), hold("r-1", 3)
	w.hold(first)
	second.CommandID = "hold-2"
	w.at(due)
	got := w.together(first, second, hold("r-2", 1))
	w.wantResult(got[0], acklast.Committed, reservation.Released)
	for i, res := range got[1:] {
		if res.Verdict != acklast.Failed {
			t.Errorf("job %d: %+v, want it rejected", i+1, res)
		}
	}
	w.wantAvailable(10)
}
