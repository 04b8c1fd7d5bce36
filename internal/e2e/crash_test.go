package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// kills sends SIGKILL to the worker's only process when it sends the operation with the text in its body. So
// the worker dies in the middle of that job, as it does when it runs out of memory. The request itself is
// dropped. times is how often; 0 is every time.
func (e *embedded) kills(operation, text string, times int) (deaths func() int) {
	var n atomic.Int32
	e.faults.Add(faults.Rule{
		Operation: operation, Times: times,
		Match: func(body []byte) bool {
			if !bytes.Contains(body, []byte(text)) {
				return false
			}
			e.env.Kill(0) // returns when the process is dead, so one process makes one request
			n.Add(1)
			return true
		},
		Fault: faults.Refuse(),
	})
	return func() int { return int(n.Load()) }
}

// At low traffic the same ten messages come back together, and one of them kills the process each time.
// Only that one ends on the DLQ.
func TestAPoisonAmongNineInnocents(t *testing.T) {
	e := newEmbeddedWith(t, topology.Scaled(), 1)
	e.env.Pause(job.Source)
	var innocents []reservation.Hold
	for i := range 8 {
		innocents = append(innocents, e.place(e.hold(fmt.Sprint("innocent-", i), 1, 0)))
	}
	// The ninth keeps failing, so it is retried. Its retry must be sent once, although other jobs of its batch
	// kill the process.
	failing := e.hold("failing", 1, 0)
	e.damaged(failing, 0)
	e.place(failing)
	poison := e.place(e.hold("poison", 1, 0))
	deaths := e.kills("TransactWriteItems", `"`+poison.ReservationID+`"`, 0)
	e.env.Resume(job.Source)

	// A conviction runs no code of the kind. The job's key is known from its strikes.
	if m := e.fromDLQ(e.body(poison)); m.Memory.Class != job.Crashed || m.Memory.Cause != job.CauseCrash {
		t.Errorf("memory %+v", m.Memory)
	}
	if got := e.ends(poison, ledger.Isolated); got.LastClass != job.Crashed || got.Cause != job.CauseCrash {
		t.Errorf("the poison: %+v", got)
	}
	// Twice it took its batch down, and twice it died alone under a strike.
	if n := deaths(); n != 4 {
		t.Errorf("%d deaths, want 4", n)
	}
	for _, h := range innocents {
		if got := e.ends(h, ledger.Done); got.Attempts != 0 {
			t.Errorf("%s: %+v", got.Key, got)
		}
		e.wantState(h, reservation.Expired)
	}
	if got := e.ends(failing, ledger.Isolated); got.Attempts != e.settings.MaxAttempts || got.Cause != job.CauseAttempts {
		t.Errorf("the failing one: %+v", got)
	}
	e.dry()
	e.wantDLQ(2) // one message each: no retry was sent twice
	all, err := e.store.Balances(t.Context())
	if b := all[e.room()]; err != nil || !b.AddsUp() || b.Available != 98 {
		t.Errorf("balance %+v, %v", b, err)
	}
}

// The process dies before the body is read. The job is never known, and its message is isolated in spite of
// that.
func TestACrashWhileDecoding(t *testing.T) {
	e := newEmbeddedWith(t, topology.Scaled(), 1)
	body := `{"kind":"reservation.expire","payload":{"poison":"` + e.id + `"}}`
	// From the third receive on, the job is struck before it is read. So killing at the strike stands for a
	// death while reading. Before the third receive, killing at the hand-over does.
	early := e.kills("SendMessageBatch", "poison", 2)
	unwritten := e.kills("UpdateItem", `"#strikes"`, 1)
	// From then on the strike itself has to arrive. Otherwise it could not be counted.
	struck := e.killsAfter("UpdateItem", `"#strikes"`, 2)
	e.send(body, nil)
	m := e.fromDLQ(body)
	if m.Memory.Class != job.Crashed || m.Memory.Cause != job.CauseCrash {
		t.Errorf("isolated as %s, cause %s", m.Memory.Class, m.Memory.Cause)
	}
	if !strings.Contains(m.Memory.Error, "2 invocations") {
		t.Errorf("the message does not name 2 invocations: %s", m.Memory.Error)
	}
	if n := early(); n != 2 {
		t.Errorf("%d deaths at the hand-over, want 2", n)
	}
	if n := unwritten(); n != 1 {
		t.Errorf("%d deaths before the strike was written, want 1", n)
	}
	if n := struck(); n != 2 {
		t.Errorf("%d deaths at the strike, want 2", n)
	}
	e.dry()
	e.wantDLQ(1)
}

// killsAfter is like kills, but the request takes effect and only its answer is lost.
func (e *embedded) killsAfter(operation, text string, times int) (deaths func() int) {
	var n atomic.Int32
	e.faults.Add(faults.Rule{
		Operation: operation, Times: times,
		Match: mentions(text),
		Fault: faults.HoldAnswer(func() {
			e.env.Kill(0)
			n.Add(1)
		}),
	})
	return func() int { return int(n.Load()) }
}

// A suspect that came back three times for other reasons and behaves runs, and its strike is cleared.
func TestASuspectThatBehaves(t *testing.T) {
	e := newEmbeddedWith(t, topology.Scaled(), 1)
	down := e.faults.Add(faults.Rule{Operation: "TransactWriteItems", Fault: faults.Error(400, "ThrottlingException", "slow down")})
	// A message is left only if it cannot be handed back either.
	mute := e.faults.Add(faults.Rule{Operation: "SendMessageBatch", Fault: faults.Error(400, "InvalidParameterValue", "no")})
	h := e.place(e.hold("suspect", 1, 0))
	e.until("it was left three times", func() bool { return e.tally.Of(e.key(h))[string(job.Left)] >= 3 })
	down()
	mute()
	if got := e.ends(h, ledger.Done); got.Attempts != 0 {
		t.Errorf("entry %+v", got)
	}
	e.dry()
	if calls := e.calls(); calls["DeleteMessageBatch"] == 0 {
		t.Errorf("no suspect was deleted ahead: %v", calls)
	}
	e.wantDLQ(0)
	e.wantAvailable(100)
}
