package e2e_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

func mentions(text string) func([]byte) bool {
	return func(body []byte) bool { return bytes.Contains(body, []byte(text)) }
}

// damaged makes every transaction on the reservation fail for a reason of the job itself.
func (e *embedded) damaged(h reservation.Hold, times int) (mend func()) {
	return e.faults.Add(faults.Rule{
		Operation: "TransactWriteItems", Match: mentions(`"` + h.ReservationID + `"`), Times: times,
		Fault: faults.CancelTransaction("None", "None", "ValidationError"),
	})
}

// Second question: is a job acknowledged only after its commit?
func TestAcknowledgedOnlyAfterTheCommit(t *testing.T) {
	e := newEmbedded(t)
	begun, seen := make(chan struct{}), make(chan struct{})
	e.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Match: func([]byte) bool {
		close(begun)
		<-seen // the request is held back until this test has looked
		return true
	}})
	h := e.place(e.hold("slow", 1, 0))
	<-begun
	if d := e.depth(job.Source); d.InFlight != 1 {
		t.Errorf("before the commit the message is gone: %+v", d)
	}
	e.wantState(h, reservation.Held)
	close(seen)
	e.ends(h, ledger.Done)
	e.dry()
}

func TestKillBetweenCommitAndAcknowledgement(t *testing.T) {
	e := newEmbedded(t)
	var killed atomic.Int32
	e.env.OnResponse(func(_ local.Invocation) local.Action {
		if killed.CompareAndSwap(0, 1) {
			e.env.Pause(job.Source) // no redelivery before this test has looked
			return local.KillBeforeAck
		}
		return local.Forward
	})
	h := e.place(e.hold("killed", 5, 0))
	e.until("the worker is killed", func() bool { return killed.Load() == 1 })
	// The commit is done, and the message still exists.
	e.ends(h, ledger.Done)
	e.wantState(h, reservation.Expired)
	e.wantAvailable(100)
	if d := e.depth(job.Source); d.InFlight+d.Visible != 1 {
		t.Errorf("acknowledged without a response: %+v", d)
	}
	e.env.Resume(job.Source)
	e.until("the redelivery is acknowledged", func() bool { return e.tally.Of(e.key(h))[local.Duplicate] == 1 })
	e.dry()
	if n := e.tally.Effects(e.key(h)); n != 1 {
		t.Errorf("%d deliveries took effect", n)
	}
	e.wantAvailable(100)
	e.wantDLQ(0)
}

func TestHundredConcurrentDeliveries(t *testing.T) {
	e := newEmbedded(t)
	e.env.Pause(job.Source)
	h := e.place(e.hold("copied", 3, 0))
	moves := make([]lanes.Move, 99)
	for i := range moves {
		moves[i].Message.Body = e.body(h)
	}
	for _, err := range e.queues.Send(t.Context(), job.Source, moves) {
		if err != nil {
			t.Fatal(err)
		}
	}
	e.env.Resume(job.Source)
	e.until("all are handled", func() bool { return e.tally.Total(e.key(h)) >= 100 })
	e.dry()
	got := e.tally.Of(e.key(h))
	if got[string(job.Acknowledged)] != 1 || got[local.Duplicate] != 99 {
		t.Errorf("outcomes %v, want 1 effect and 99 duplicates", got)
	}
	e.wantAvailable(100)
	e.wantDLQ(0)
}

func TestFailureBeforeTheCommitLeavesNoTrace(t *testing.T) {
	e := newEmbedded(t)
	e.env.Pause(job.Recovery) // no retry before this test has looked
	h := e.hold("shaky", 2, 0)
	e.damaged(h, 1)
	e.place(h)
	e.until("the first attempt is over", func() bool { return e.entry(e.key(h)).Attempts == 1 })
	e.wantState(h, reservation.Held)
	e.env.Resume(job.Recovery)
	got := e.ends(h, ledger.Done)
	if got.Attempts != 1 || len(got.History) != 1 || got.History[0].What != ledger.EventFailed {
		t.Errorf("entry %+v", got)
	}
	e.dry()
	e.wantAvailable(100)
	e.wantDLQ(0)
}

func TestAttemptsSurviveARestartOfEveryProcess(t *testing.T) {
	e := newEmbedded(t)
	h := e.hold("failing", 2, 0)
	e.damaged(h, 0)
	e.place(h)
	e.until("two attempts failed", func() bool { return e.entry(e.key(h)).Attempts >= 2 })
	before := e.env.PIDs()
	if err := e.env.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range e.env.PIDs() {
		for _, old := range before {
			if pid == old {
				t.Errorf("process %d was not restarted", pid)
			}
		}
	}
	got := e.ends(h, ledger.Isolated)
	if got.Attempts != e.settings.MaxAttempts || got.Cause != job.CauseAttempts || got.LastClass != job.ClassUnknown {
		t.Errorf("entry %+v", got)
	}
	m := e.fromDLQ(e.body(h))
	if m.Memory.Attempt != e.settings.MaxAttempts || m.Memory.Cause != job.CauseAttempts || m.Memory.MessageID == "" || m.Memory.FirstSent.IsZero() {
		t.Errorf("memory %+v", m.Memory)
	}
	e.dry()
	e.wantDLQ(1)
	e.wantState(h, reservation.Held)
}

func TestTimeBudgetIsolates(t *testing.T) {
	settings := topology.Scaled()
	// The least delay, half of this, is longer than the time left until the deadline.
	settings.BackoffBase, settings.BackoffCap = 4*time.Minute, 4*time.Minute
	e := newEmbeddedWith(t, settings, local.DefaultProcesses)
	h := e.hold("hurried", 2, 0)
	h.Deadline = h.ExpiresAt.Add(time.Minute)
	e.damaged(h, 0)
	e.place(h)
	got := e.ends(h, ledger.Isolated)
	if got.Cause != job.CauseTime {
		t.Errorf("cause %s, want %s", got.Cause, job.CauseTime)
	}
	if got.Attempts != 1 {
		t.Errorf("%d attempts, want 1: no second one fits before the deadline", got.Attempts)
	}
	if got.IsolatedAt.After(h.Deadline) {
		t.Errorf("isolated %v after the deadline, not when the time ran short", got.IsolatedAt.Sub(h.Deadline))
	}
	e.fromDLQ(e.body(h))
}

// The isolation is recorded, its send fails, and SQS delivers the job again. Only the hand-over is repeated.
func TestUnconfirmedIsolationIsHandedOverAgain(t *testing.T) {
	e := newEmbedded(t)
	works := e.faults.Add(faults.Rule{Operation: "SendMessageBatch", Match: mentions("-dlq"),
		Fault: faults.Error(500, "InternalFailure", "try again")})
	h := e.hold("missing", 2, 0)
	e.send(e.body(h), nil)
	got := e.ends(h, ledger.Isolated)
	e.until("the hand-over failed", func() bool { return e.tally.Of(e.key(h))[string(job.Left)] > 0 })
	e.wantDLQ(0)
	works()
	m := e.fromDLQ(e.body(h))
	if m.Memory.Class != job.Rejected || !m.Memory.At.Equal(got.IsolatedAt) {
		t.Errorf("memory %+v, entry %+v", m.Memory, got)
	}
	e.dry()
	e.wantDLQ(1)
	if after := e.entry(e.key(h)); after.Attempts != 1 || after.Redrives != 0 || after.Version != got.Version {
		t.Errorf("the entry changed: %+v, was %+v", after, got)
	}
}

// The outage hands each job back more often than SQS would deliver it. No receive is spent, so SQS moves none.
func TestLedgerOutageAndRecovery(t *testing.T) {
	settings := topology.Scaled()
	settings.MaxReceiveCount = 5
	e := newEmbeddedWith(t, settings, local.DefaultProcesses)
	down := e.faults.Add(faults.Rule{Match: func(body []byte) bool { return !bytes.Contains(body, []byte("QueueUrl")) }, Fault: faults.Refuse()})
	var holds []reservation.Hold
	for i := range 20 {
		holds = append(holds, e.place(e.hold(fmt.Sprint("outage-", i), 1, 0)))
	}
	e.until("every job was handed back often", func() bool {
		for _, h := range holds {
			if e.tally.Of(e.key(h))[string(job.Deferred)] <= settings.MaxReceiveCount {
				return false
			}
		}
		return true
	})
	e.wantAvailable(80)
	down()
	for _, h := range holds {
		if got := e.ends(h, ledger.Done); got.Attempts != 0 {
			t.Errorf("the ledger's trouble spent an attempt: %+v", got)
		}
	}
	e.dry()
	e.wantAvailable(100)
	e.wantDLQ(0)
}

// Processes die at random moments while jobs and copies of them run: every effect happens once.
func TestRandomKills(t *testing.T) {
	e := newEmbedded(t)
	var holds []reservation.Hold
	for i := range 60 {
		h := e.place(e.hold(fmt.Sprint("chaos-", i), 1, 2*time.Second))
		holds = append(holds, h)
		if i%3 == 0 {
			e.send(e.body(h), nil)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for range 12 {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(300)) * time.Millisecond):
				e.env.Kill(rand.IntN(2))
			}
		}
	}()
	for _, h := range holds {
		e.ends(h, ledger.Done)
	}
	close(stop)
	<-stopped
	e.dry()
	for _, h := range holds {
		e.wantState(h, reservation.Expired)
		if got := e.entry(e.key(h)); got.Attempts != 0 {
			t.Errorf("%s: a kill spent %d attempts", got.Key, got.Attempts)
		}
	}
	e.wantAvailable(100)
	e.wantDLQ(0)
}
