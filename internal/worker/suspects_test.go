package worker_test

import (
	"context"
	"errors"
	"fmt"
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

// watch writes into the ledger's log which jobs ran.
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
	failed, err := b.handle(again(b.record("s1", body("1")), 3), b.record("m2", body("2")), again(b.record("s3", body("3")), 7))
	if err != nil || len(failed) != 0 {
		t.Fatal(failed, err)
	}
	b.wantLog("run m2", "delete m2",
		"strike s1", "name s1", "run s1", "clear s1", "delete s1",
		"strike s3", "name s3", "run s3", "clear s3", "delete s3")
}

func TestSecondReceiveIsNoSuspect(t *testing.T) {
	b := newBench(t)
	b.watch()
	b.one(again(b.record("m1", body("1")), 2))
	b.wantLog("run m1")
}

// Strikes of messages without an id would be everybody's: nobody is convicted by them.
func TestAMessageWithoutAnIDIsNoSuspect(t *testing.T) {
	b := newBench(t)
	b.ledger.strikes[""] = ledger.Strikes{Version: 2, Ends: []time.Time{t0.Add(-time.Hour), t0.Add(-time.Hour)}}
	b.one(again(b.record("", body("1")), 5))
	if e := b.ledger.entries["test/1"]; e.Status != ledger.Done || len(b.wires.sent) != 0 {
		t.Errorf("entry %+v, sent %v", e, b.wires.sent)
	}
}

// A failing and a panicking attempt return too: their strikes are cleared, and their moves are sent
// before the next suspect starts.
func TestEveryReturnClears(t *testing.T) {
	b := newBench(t)
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		switch d.Subject {
		case "1":
			return fails(job.Transient, 0)(ctx, d)
		case "2":
			panic("not a death")
		}
		if n := len(b.wires.sent[job.Recovery]); n != 1 {
			t.Errorf("%d retries sent before the last suspect starts", n)
		}
		return b.ledger.commit(d, b.Rules, b.now)
	}
	failed, err := b.handle(again(b.record("s1", body("1")), 3), again(b.record("s2", body("2")), 3), again(b.record("s3", body("3")), 3), again(b.record("s4", "unreadable"), 3))
	if err != nil || fmt.Sprint(failed) != "[s2]" {
		t.Fatal(failed, err)
	}
	for id, s := range b.ledger.strikes {
		if len(s.Ends) != 0 {
			t.Errorf("%s keeps strikes %v", id, s.Ends)
		}
	}
	b.last(job.Recovery, 1)
	b.last(job.DLQ, 1)
}

// mortal is a process's way to the ledger and the queues. Once it is dead nothing gets through.
type mortal struct {
	*memory
	*wires
	dead bool
}

var errDead = errors.New("dead")

func (p *mortal) ClearStrikes(ctx context.Context, s ledger.Strikes) error {
	if p.dead {
		return errDead
	}
	return p.memory.ClearStrikes(ctx, s)
}

func (p *mortal) Strike(ctx context.Context, s ledger.Strikes, end time.Time) (ledger.Strikes, error) {
	if p.dead {
		return ledger.Strikes{}, errDead
	}
	return p.memory.Strike(ctx, s, end)
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

// process handles one batch in a process that dies when it runs the job "poison", as if at that moment.
func (b *bench) process(deadline time.Time, records ...events.SQSMessage) {
	b.Helper()
	p := &mortal{memory: b.ledger, wires: b.wires}
	d := b.Dependencies
	d.Ledger, d.Lanes = p, p
	run := b.run
	defer func() { b.run = run }()
	b.run = func(ctx context.Context, d job.Delivery) job.Result {
		if p.dead {
			return job.Result{Verdict: job.Unconfirmed, Err: errDead}
		}
		if d.Subject == "poison" {
			p.dead = true
			return job.Result{Verdict: job.Unconfirmed, Err: errDead}
		}
		return run(ctx, d)
	}
	ctx, cancel := context.WithDeadline(b.Context(), deadline)
	defer cancel()
	_, _ = worker.New(b.Config, d).Handle(ctx, events.SQSEvent{Records: records})
}

// The same three come back together. Only the poison is convicted; the others take effect once.
func TestThePoisonIsConvictedAlone(t *testing.T) {
	b := newBench(t)
	b.now = time.Now()
	b.watch()
	first, poison, last := b.record("m1", body("1")), b.record("m2", body("poison")), b.record("m3", body("3"))

	b.process(b.now.Add(30*time.Second), again(first, 3), again(poison, 3), again(last, 3))
	b.wantLog("strike m1", "name m1", "run m1", "clear m1", "delete m1", "strike m2", "name m2")

	b.now = b.now.Add(3 * time.Minute)
	b.ledger.log = nil
	b.process(b.now.Add(30*time.Second), again(poison, 4), again(last, 4))
	// Fewest strikes first: the innocent is through before the poison gets its second chance.
	b.wantLog("strike m3", "name m3", "run m3", "clear m3", "delete m3", "strike m2", "name m2")

	b.now = b.now.Add(3 * time.Minute)
	b.ledger.log = nil
	b.one(again(poison, 5))
	b.wantLog("delete m2")
	m := b.last(job.DLQ, 1).Message
	if m.Memory.Class != job.Crashed || m.Memory.Cause != job.CauseCrash || m.Body != body("poison") || m.Memory.Attempt != 0 || m.Memory.Key != "test/poison" {
		t.Errorf("message %+v", m)
	}
	if e := b.ledger.entries["test/poison"]; e.Status != ledger.Isolated || e.LastClass != job.Crashed || e.Subject != "poison" || e.Kind != "test" {
		t.Errorf("entry %+v", e)
	}
	for _, key := range []string{"test/1", "test/3"} {
		if e := b.ledger.entries[key]; e.Status != ledger.Done {
			t.Errorf("%s: %+v", key, e)
		}
	}
}

// struck is a bench whose message m1, of job "1", has two strikes that ended at the given time.
func struck(t *testing.T, end time.Time) (*bench, events.SQSMessage) {
	b := newBench(t)
	b.ledger.strikes["m1"] = ledger.Strikes{MessageID: "m1", Version: 4, Ends: []time.Time{end, end}, Key: "test/1", Subject: "1", Kind: "test"}
	return b, again(b.record("m1", body("1")), 5)
}

func TestAStrikeCountsOnlyWhenItsInvocationIsOver(t *testing.T) {
	b, r := struck(t, t0.Add(-60*time.Second)) // over, but for clocks that differ
	b.one(r)
	if b.ran.Load() != 1 || len(b.wires.sent[job.DLQ]) != 0 {
		t.Error("convicted by an invocation that may still be running")
	}
	b, r = struck(t, t0.Add(-60*time.Second-time.Millisecond))
	b.one(r)
	if b.ran.Load() != 0 || len(b.wires.sent[job.DLQ]) != 1 {
		t.Error("not convicted")
	}
}

func TestConvictionLooksAtTheEntry(t *testing.T) {
	long := t0.Add(-time.Hour)
	t.Run("final: acknowledged", func(t *testing.T) {
		b, r := struck(t, long)
		b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Done, Outcome: "ran", Version: 1}
		b.one(r)
		if len(b.wires.sent) != 0 || !strings.Contains(b.out.String(), `"duplicate":true`) {
			t.Errorf("sent %v\n%s", b.wires.sent, b.out.String())
		}
	})
	t.Run("live lease: deferred", func(t *testing.T) {
		b, r := struck(t, long)
		b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Running, Owner: "x", LeaseUntil: t0.Add(20 * time.Second), Version: 1}
		b.one(r)
		if m := b.last(job.Recovery, 1); m.Delay != 20*time.Second {
			t.Errorf("delay %v", m.Delay)
		}
	})
	t.Run("dead lease: isolated, unresolved stays", func(t *testing.T) {
		b, r := struck(t, long)
		b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Running, Owner: "x", LeaseUntil: t0, Unresolved: true, Version: 1}
		b.one(r)
		if e := b.ledger.entries["test/1"]; e.Status != ledger.Isolated || !e.Unresolved || e.LastClass != job.Crashed {
			t.Errorf("entry %+v", e)
		}
	})
	t.Run("died while decoding: no entry", func(t *testing.T) {
		b, r := struck(t, long)
		s := b.ledger.strikes["m1"]
		s.Key, s.Subject, s.Kind = "", "", ""
		b.ledger.strikes["m1"] = s
		b.one(r)
		if m := b.last(job.DLQ, 1).Message.Memory; m.Class != job.Crashed || m.Cause != job.CauseCrash {
			t.Errorf("memory %+v", m)
		}
		if b.ran.Load() != 0 || len(b.ledger.entries) != 0 {
			t.Error("a convicted body was read")
		}
	})
	t.Run("put back and killing again: not reopened", func(t *testing.T) {
		b, r := struck(t, long)
		b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Isolated, LastClass: job.Crashed, Cause: job.CauseCrash,
			IsolatedMessageID: "m0", IsolatedAt: t0.Add(-2 * time.Hour), Version: 1}
		b.one(r)
		if m := b.last(job.DLQ, 1).Message.Memory; m.Cause != job.CauseCrash {
			t.Errorf("memory %+v", m)
		}
		if e := b.ledger.entries["test/1"]; e.Status != ledger.Isolated || e.Redrives != 0 || b.ran.Load() != 0 {
			t.Errorf("entry %+v, ran %d", e, b.ran.Load())
		}
	})
	t.Run("its hand-over was not confirmed: again", func(t *testing.T) {
		b, r := struck(t, long)
		b.wires.refuse = func(job.Queue, lanes.Move) error { return lanes.ErrUnsent }
		if failed, err := b.handle(r); err == nil || len(failed) != 1 {
			t.Fatal(failed, err)
		}
		b.wires.refuse = nil
		b.now = b.now.Add(time.Minute)
		b.one(again(r, 6))
		if m := b.last(job.DLQ, 1).Message.Memory; m.Class != job.Crashed || !m.At.Equal(t0) {
			t.Errorf("memory %+v", m)
		}
	})
}

// An outage must convict nobody: without a strike nothing runs, and without its clearing nothing comes
// back under the same id.
func TestOutageConvictsNoInnocent(t *testing.T) {
	t.Run("strike not written: left, unrun", func(t *testing.T) {
		b := newBench(t)
		b.ledger.fail = ledger.ErrUnavailable
		if failed, err := b.handle(again(b.record("m1", body("1")), 3)); err == nil || len(failed) != 1 || b.ran.Load() != 0 {
			t.Errorf("failed %v, %v, ran %d", failed, err, b.ran.Load())
		}
	})
	t.Run("clearing not confirmed: to the recovery lane", func(t *testing.T) {
		b := newBench(t)
		b.run = func(context.Context, job.Delivery) job.Result {
			b.ledger.unclear = ledger.ErrUnavailable
			return job.Result{Verdict: job.Unconfirmed, Err: ledger.ErrUnavailable}
		}
		b.one(again(b.record("m1", body("1")), 3))
		if m := b.last(job.Recovery, 1); m.Delay != 2*time.Minute || m.Message.Memory.Hops != 1 {
			t.Errorf("move %+v", m)
		}
	})
	t.Run("clearing not confirmed, but done: acknowledged", func(t *testing.T) {
		b := newBench(t)
		b.ledger.unclear = ledger.ErrUnavailable
		b.one(again(b.record("m1", body("1")), 3))
		if len(b.wires.sent) != 0 {
			t.Errorf("sent %v", b.wires.sent)
		}
	})
}

// A message that is full of the sender's own is deferred without our memory: its hops count in the
// ledger, and the delivery that follows reads them there.
func TestHopsOfAFullMessageCountInTheLedger(t *testing.T) {
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
	b.MaxHops = 2
	b.one(full("m1", sourceARN))
	for hop := 1; hop <= 2; hop++ {
		if e := b.ledger.entries["test/1"]; e.Hops != hop || e.Status != ledger.Pending || !e.FirstSent.Equal(t0) {
			t.Fatalf("after hop %d: %+v", hop, e)
		}
		b.now = b.now.Add(time.Minute)
		b.one(full(fmt.Sprint("m", hop+1), recoveryARN))
	}
	if m := b.last(job.DLQ, 1); len(m.Message.Attributes) != 10 {
		t.Errorf("the sender's attributes: %v", m.Message.Attributes)
	}
	if e := b.ledger.entries["test/1"]; e.Status != ledger.Isolated || e.Cause != job.CauseHops {
		t.Errorf("entry %+v", e)
	}
}

// Somebody took our attribute away: what it counted is in the ledger too, as far as it was written there.
func TestARecoveryDeliveryWithoutMemoryReadsItsEntry(t *testing.T) {
	b := newBench(t)
	b.run = func(context.Context, job.Delivery) job.Result {
		return job.Result{Verdict: job.Blocked, Err: ledger.ErrContended}
	}
	b.ledger.entries["test/1"] = ledger.Entry{Key: "test/1", Status: ledger.Pending, Attempts: 2, Hops: 7, Redrives: 1, FirstSent: t0.Add(-time.Hour), Version: 3}
	r := b.record("m1", body("1"))
	r.EventSourceARN = recoveryARN
	b.one(r)
	if m := b.last(job.Recovery, 1).Message.Memory; m.Hops != 8 || m.Attempt != 2 || m.Redrives != 1 || !m.FirstSent.Equal(t0.Add(-time.Hour)) {
		t.Errorf("memory %+v", m)
	}
}

func TestForgedMemoryGainsNothing(t *testing.T) {
	for _, forged := range []string{`{"attempt":-5}`, `{"attempt":"x"}`, `{"hops":99999999999999999999}`, `{"run":{"a":{"b":1}}}`, `nonsense`, `{"attempt":9,"run":"foreign","redrives":2}`} {
		b := newBench(t)
		b.Rules.Retry.MaxAttempts = 2
		b.run = fails(job.Transient, 0)
		r := b.record("m1", body("1"))
		r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &forged}}
		b.one(r)
		first := b.last(job.Recovery, 1)
		if first.Message.Memory.Attempt != 1 {
			t.Errorf("%s: memory %+v: the ledger counts, not the message", forged, first.Message.Memory)
		}
		b.now = b.now.Add(time.Minute)
		r = b.back("m2", first)
		r.MessageAttributes[job.MemoryAttribute] = events.SQSMessageAttribute{DataType: "String", StringValue: &forged}
		b.one(r)
		if e := b.ledger.entries["test/1"]; e.Status != ledger.Isolated || e.Attempts != 2 {
			t.Errorf("%s: entry %+v", forged, e)
		}
	}
}
