package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/worker"
)

// again is the record as SQS delivers it for the n-th time.
func again(r events.SQSMessage, n int) events.SQSMessage {
	attributes := map[string]string{}
	for k, v := range r.Attributes {
		attributes[k] = v
	}
	attributes["ApproximateReceiveCount"] = fmt.Sprint(n)
	r.Attributes = attributes
	return r
}

// watch records in the ledger's log which jobs ran.
func (b *bench) watch() {
	run := b.run
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		b.ledger.note("run " + d.ID)
		return run(ctx, d)
	}
}

func (b *bench) wantLog(want ...string) {
	b.Helper()
	if got := strings.Join(b.ledger.log, ", "); got != strings.Join(want, ", ") {
		b.Errorf("in this order: %s\nwant: %s", got, strings.Join(want, ", "))
	}
}

func TestSuspectsRunAloneAfterTheOthersAreFlushed(t *testing.T) {
	b := newBench(t)
	b.watch()
	b.all(again(b.record("s1", body("1")), 3), b.record("m2", body("2")), again(b.record("s3", body("3")), 7))
	b.wantLog("run m2", "delete m2", "strike s1", "name s1", "run s1", "clear s1", "delete s1", "strike s3", "name s3", "run s3", "clear s3", "delete s3")
}

func TestSecondReceiveIsNoSuspect(t *testing.T) {
	b := newBench(t)
	b.watch()
	b.one(again(b.record("m1", body("1")), 2))
	b.wantLog("run m1")
}

// All messages without an id would share their strikes, so such a message is never convicted.
func TestAMessageWithoutAnIDIsNoSuspect(t *testing.T) {
	b := newBench(t)
	b.ledger.strikes[""] = map[string]time.Time{"a": t0.Add(-time.Hour), "b": t0.Add(-time.Hour)}
	b.one(again(b.record("", body("1")), 5))
	equal(b, b.ledger.entries["test/1"].Status, ledger.Done, "the entry's status")
	equal(b, len(b.wires.sent), 0, "the number of queues with moves")
}

// An attempt that fails or panics returns too: its move is sent before the next suspect starts, and its message
// is deleted.
func TestEveryReturnRetiresItsMessage(t *testing.T) {
	b := newBench(t)
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		switch d.Subject {
		case "1":
			return fails(job.Transient, 0)(ctx, d)
		case "2":
			panic("not a death")
		}
		if n := len(b.wires.sent[job.Recovery]); n != 2 {
			t.Errorf("%d retries sent before the last suspect starts, want 2", n)
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	b.all(again(b.record("s1", body("1")), 3), again(b.record("s2", body("2")), 3), again(b.record("s3", body("3")), 3), again(b.record("s4", "unreadable"), 3))
	b.last(job.Recovery, 2)
	b.last(job.DLQ, 1)
	if _, struck := b.ledger.strikes["s4"]; struck {
		t.Error("a body that nobody can read was struck, although no kind's code ran")
	}
}

// mortal connects a process with the ledger and the queues. After the process has died, no call gets through.
type mortal struct {
	*memory
	*wires
	dead bool
}

var errDead = errors.New("dead")

func (p *mortal) ClearStrike(ctx context.Context, id, token string) error {
	if p.dead {
		return errDead
	}
	return p.memory.ClearStrike(ctx, id, token)
}

func (p *mortal) Strike(ctx context.Context, id, token, kind string, end time.Time) error {
	if p.dead {
		return errDead
	}
	return p.memory.Strike(ctx, id, token, kind, end)
}

func (p *mortal) Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error {
	if p.dead {
		errs := make([]error, len(moves))
		for i := range errs {
			errs[i] = errDead
		}
		return errs
	}
	return p.wires.Send(ctx, to, moves)
}

func (p *mortal) Backoff(ctx context.Context, lane job.Queue, items []lanes.Backoff) error {
	if p.dead {
		return errDead
	}
	return p.wires.Backoff(ctx, lane, items)
}

// process handles one batch in a process that dies when it runs the job "poison".
func (b *bench) process(records ...events.SQSMessage) {
	b.Helper()
	p := &mortal{memory: b.ledger, wires: b.wires}
	d := b.Dependencies
	d.Ledger, d.Lanes = p, p
	run := b.run
	defer func() { b.run = run }()
	ctx, cancel := context.WithDeadline(b.Context(), b.now.Add(30*time.Second))
	defer cancel()
	b.run = func(runCtx context.Context, d job.Delivery) job.Result {
		if p.dead {
			return job.Result{Verdict: job.Unconfirmed, Err: errDead}
		}
		if d.Subject == "poison" {
			p.dead = true
			cancel() // nothing goes on in a dead process
			return job.Result{Verdict: job.Unconfirmed, Err: errDead}
		}
		return run(runCtx, d)
	}
	_, _ = worker.New(b.Config, d).Handle(ctx, events.SQSEvent{Records: records})
}

// The same three messages come back together. Only the poison is convicted; the others take effect once.
func TestThePoisonIsConvictedAlone(t *testing.T) {
	b := newBench(t)
	b.now = time.Now()
	b.watch()
	first, poison, last := b.record("m1", body("1")), b.record("m2", body("poison")), b.record("m3", body("3"))

	b.process(again(first, 3), again(poison, 3), again(last, 3))
	b.wantLog("strike m1", "name m1", "run m1", "clear m1", "delete m1", "strike m2", "name m2")

	b.now = b.now.Add(3 * time.Minute)
	b.ledger.log = nil
	b.process(again(poison, 4), again(last, 4))
	// The suspect with the fewest strikes runs first: the innocent one ends before the poison runs again.
	b.wantLog("strike m3", "name m3", "run m3", "clear m3", "delete m3", "strike m2")

	b.now = b.now.Add(3 * time.Minute)
	b.ledger.log = nil
	b.one(again(poison, 5))
	b.wantLog("delete m2")
	m := b.last(job.DLQ, 1).Message
	equal(b, m.Memory.Class, job.Crashed, "the memory's class")
	equal(b, m.Memory.Cause, job.CauseCrash, "the memory's cause")
	equal(b, b.ledger.entries["test/poison"].LastClass, job.Crashed, "the entry's class")
	equal(b, b.ledger.entries["test/poison"].Status, ledger.Isolated, "the entry's status")
	if m.Body != body("poison") {
		t.Errorf("body %s", m.Body)
	}
	for _, key := range []string{"test/1", "test/3"} {
		equal(t, b.ledger.entries[key].Status, ledger.Done, "the status of %s", key)
	}
}

// struck is a bench whose message m1, of job "1", has two strikes that ended at the given time.
func struck(t *testing.T, end time.Time) (*bench, events.SQSMessage) {
	b := newBench(t)
	b.ledger.strikes["m1"] = map[string]time.Time{"a": end, "b": end}
	return b, again(b.record("m1", body("1")), 5)
}

func TestAStrikeCountsOnlyWhenItsInvocationIsOver(t *testing.T) {
	b, r := struck(t, t0.Add(-60*time.Second)) // over, if clocks did not differ
	b.one(r)
	equal(b, b.ran.Load(), 1, "the number of runs")
	equal(b, len(b.wires.sent[job.DLQ]), 0, "the number of moves to %s", job.DLQ)
	b, r = struck(t, t0.Add(-60*time.Second-time.Millisecond))
	b.one(r)
	equal(b, b.ran.Load(), 0, "the number of runs")
	equal(b, len(b.wires.sent[job.DLQ]), 1, "the number of moves to %s", job.DLQ)
}

// An outage must convict no job.
func TestOutageConvictsNoInnocent(t *testing.T) {
	t.Run("strikes not read: handed back, unrun", func(t *testing.T) {
		b := newBench(t)
		b.ledger.fail = ledger.ErrUnavailable
		b.one(again(b.record("m1", body("1")), 3))
		b.last(job.Source, 1)
		if b.ran.Load() != 0 {
			t.Error("it ran")
		}
	})
	t.Run("strike not confirmed: handed back, unrun", func(t *testing.T) {
		b := newBench(t)
		b.ledger.unstruck = ledger.ErrUnavailable
		b.one(again(b.record("m1", body("1")), 3))
		b.last(job.Source, 1)
		if b.ran.Load() != 0 {
			t.Error("it ran")
		}
	})
	t.Run("its name not confirmed: handed back, unrun", func(t *testing.T) {
		b := newBench(t)
		b.ledger.unnamed = ledger.ErrUnavailable
		b.one(again(b.record("m1", body("1")), 3))
		b.last(job.Source, 1)
		if b.ran.Load() != 0 {
			t.Error("it ran")
		}
		b.wantLog("strike m1", "clear m1", "delete m1")
	})
	t.Run("left: cleared", func(t *testing.T) {
		b := newBench(t)
		b.run = leaves
		b.wires.deny = nil
		if failed, _ := b.handle(again(b.record("m1", body("1")), 3)); len(failed) != 1 {
			t.Errorf("failed %v, want it left", failed)
		}
		b.wantLog("strike m1", "name m1", "clear m1")
	})
	t.Run("its hand-over failed: cleared", func(t *testing.T) {
		b := newBench(t)
		b.run = fails(job.Transient, 0)
		b.wires.refuse = func(job.Queue, lanes.Move) error { return lanes.ErrUnsent }
		if failed, _ := b.handle(again(b.record("m1", body("1")), 3)); len(failed) != 1 {
			t.Errorf("failed %v, want it left", failed)
		}
		b.wantLog("strike m1", "name m1", "clear m1")
	})
	t.Run("done: cleared, since a deletion may be confirmed and not be made", func(t *testing.T) {
		b := newBench(t)
		b.one(again(b.record("m1", body("1")), 3))
		b.wantLog("strike m1", "name m1", "clear m1", "delete m1")
	})
	t.Run("left, and clearing not confirmed: handed back", func(t *testing.T) {
		b := newBench(t)
		b.HandoverMargin, b.StartMargin = 80*time.Millisecond, 100*time.Millisecond
		b.now = time.Now()
		b.ledger.unclear = ledger.ErrUnavailable
		b.run = leaves
		ctx, cancel := context.WithDeadline(t.Context(), b.now.Add(300*time.Millisecond))
		defer cancel()
		response, err := b.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{again(b.record("m1", body("1")), 3)}})
		equal(b, err, nil, "the error")
		equal(b, len(response.BatchItemFailures), 0, "the number of failures")
		b.last(job.Source, 1)
	})
	t.Run("neither at first: both again", func(t *testing.T) {
		b := newBench(t)
		b.HandoverMargin = 80 * time.Millisecond
		b.ledger.unclear = ledger.ErrUnavailable
		b.run = leaves
		tries := 0
		b.wires.refuse = func(job.Queue, lanes.Move) error {
			if tries++; tries == 3 {
				b.ledger.unclear = nil
			}
			return lanes.ErrUnsent
		}
		failed, _ := b.handle(again(b.record("m1", body("1")), 3))
		equal(b, len(failed), 1, "the number of failures")
		equal(b, tries, 3, "the number of hand-overs")
		b.wantLog("strike m1", "name m1", "clear m1")
	})
}

// Two strikes that were not cleared would convict the next delivery. So no other suspect starts until one is
// cleared.
func TestAnUnclearedStrikeHoldsTheOthersBack(t *testing.T) {
	b := newBench(t)
	b.HandoverMargin, b.StartMargin = 80*time.Millisecond, 100*time.Millisecond
	b.now = time.Now()
	b.ledger.unclear = ledger.ErrUnavailable
	b.run = leaves
	b.wires.refuse = func(_ job.Queue, m lanes.Move) error {
		if m.Message.ID == "m1" {
			return lanes.ErrUnsent
		}
		return nil
	}
	ctx, cancel := context.WithDeadline(t.Context(), b.now.Add(300*time.Millisecond))
	defer cancel()
	_, _ = b.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{again(b.record("m1", body("1")), 3), again(b.record("m2", body("2")), 3)}})
	if b.ran.Load() != 1 {
		t.Errorf("%d suspects ran, want the first alone", b.ran.Load())
	}
	if sent := b.wires.sent[job.Recovery]; len(sent) > 1 {
		t.Errorf("%d moves to the recovery lane", len(sent))
	}
}

// A strike that no time was left to clear would count as a death, though its invocation returned. So the process
// clears it when it is invoked again, whatever the batch is.
func TestAnUnclearedStrikeIsClearedByTheNextInvocation(t *testing.T) {
	b := newBench(t)
	process := worker.New(b.Config, b.Dependencies)
	invoke := func(ctx context.Context, r events.SQSMessage) {
		_, _ = process.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{r}})
	}
	ctx, over := context.WithCancel(t.Context())
	defer over()
	b.run = leaves
	b.ledger.unclear = ledger.ErrUnavailable
	b.wires.refuse = func(job.Queue, lanes.Move) error {
		over()
		return lanes.ErrUnsent
	}
	invoke(ctx, again(b.record("m1", body("1")), 3))
	b.wantLog("strike m1", "name m1")

	b.run = fails(job.Transient, 0)
	invoke(t.Context(), b.record("m2", body("2"))) // the clearing is not confirmed this time, either
	b.wantLog("strike m1", "name m1")
	b.ledger.unclear = nil
	invoke(t.Context(), b.record("m3", body("3")))
	b.wantLog("strike m1", "name m1", "clear m1")
	invoke(t.Context(), b.record("m4", body("4")))
	b.wantLog("strike m1", "name m1", "clear m1")
}

// A process that ends itself has no next invocation. So it clears the strike after its response was sent, before it ends.
func TestAnUnclearedStrikeIsClearedBeforeTheProcessEndsItself(t *testing.T) {
	timed(t, func(b *bench) {
		b.Exit = func() { b.ledger.note("exit") }
		release := make(chan struct{})
		defer close(release)
		b.run = b.claims(release)
		b.ledger.unclear = ledger.ErrUnavailable
		ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
		defer cancel()
		response, err := worker.New(b.Config, b.Dependencies).Invoke(ctx, events.SQSEvent{Records: []events.SQSMessage{again(b.record("m1", body("1")), 3)}})
		if err != nil {
			b.Fatal(err)
		}
		b.wantLog("strike m1", "name m1", "delete m1")
		b.ledger.unclear = nil
		_ = response.(io.Closer).Close()
		b.wantLog("strike m1", "name m1", "delete m1", "clear m1", "exit")
	})
}

// A message without room for our memory is deferred without it. Its contentions are counted in the ledger, and
// the next delivery reads them there.
func TestContentionsOfAFullMessageCountInTheLedger(t *testing.T) {
	b := newBench(t)
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Err: ledger.ErrContended}
	}
	full := func(id, arn string) events.SQSMessage {
		r := b.record(id, body("1"))
		r.EventSourceARN = arn
		r.MessageAttributes = map[string]events.SQSMessageAttribute{}
		for i := range 10 {
			text := "x"
			r.MessageAttributes[fmt.Sprint("a", i)] = events.SQSMessageAttribute{DataType: "String", StringValue: &text}
		}
		return r
	}
	b.MaxContentions, b.ContentionTime = 2, 2*time.Minute
	b.one(full("m1", sourceARN))
	for n := 1; n <= 2; n++ {
		equal(b, b.ledger.entries["test/1"].Contentions, n, "the entry's number of contentions")
		equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "the entry's status")
		sameTime(b, b.ledger.entries["test/1"].FirstSent, t0, "the entry's time of the first sending")
		b.now = b.now.Add(time.Minute)
		b.one(full(fmt.Sprint("m", n+1), recoveryARN))
	}
	if m := b.last(job.DLQ, 1); len(m.Message.Attributes) != 10 {
		t.Errorf("the sender's attributes: %v", m.Message.Attributes)
	}
	equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "the entry's status")
	equal(b, b.ledger.entries["test/1"].Cause, job.CauseContention, "the entry's cause")
}

// Our attribute was removed from the message. The counts that were written into the ledger too are taken from
// there.
func TestARecoveryDeliveryWithoutMemoryReadsItsEntry(t *testing.T) {
	b := newBench(t)
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Err: ledger.ErrContended}
	}
	b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Pending, Attempts: 2, Contentions: 7, Redrives: 1, FirstSent: t0.Add(-time.Hour), Version: 3}
	r := b.record("m1", body("1"))
	r.EventSourceARN = recoveryARN
	b.one(r)
	equal(b, b.last(job.Recovery, 1).Message.Memory.Contentions, 8, "the memory's number of contentions")
	equal(b, b.last(job.Recovery, 1).Message.Memory.Attempt, 2, "the memory's attempt")
	equal(b, b.last(job.Recovery, 1).Message.Memory.Redrives, 1, "the memory's generation")
	sameTime(b, b.last(job.Recovery, 1).Message.Memory.FirstSent, t0.Add(-time.Hour), "the memory's time of the first sending")
}

func TestForgedMemoryGainsNothing(t *testing.T) {
	for _, forged := range []string{`{"attempt":-5}`, `{"attempt":"x"}`, `{"contentions":99999999999999999999}`, `{"run":{"a":{"b":1}}}`, `nonsense`, `{"attempt":9,"run":"foreign","redrives":2}`} {
		b := newBench(t)
		b.Rules.Retry.MaxAttempts = 2
		b.run = fails(job.Transient, 0)
		r := b.record("m1", body("1"))
		r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &forged}}
		b.one(r)
		first := b.last(job.Recovery, 1)
		equal(t, first.Message.Memory.Attempt, 1, "%s: the attempt, which the ledger counts and not the message,", forged)
		b.now = b.now.Add(time.Minute)
		r = b.back("m2", first)
		r.MessageAttributes[job.MemoryAttribute] = events.SQSMessageAttribute{DataType: "String", StringValue: &forged}
		b.one(r)
		equal(b, b.ledger.entries["test/1"].Status, ledger.Isolated, "%s: the entry's status", forged)
		equal(b, b.ledger.entries["test/1"].Attempts, 2, "%s: the entry's number of attempts", forged)
	}
}
