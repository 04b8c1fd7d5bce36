package worker_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// convict is a bench whose message m1, of job "1", was named by its first strike and has two that count. Reading its
// payload fails the test.
func convict(t *testing.T) (*bench, events.SQSMessage) {
	b, r := struck(t, t0.Add(-time.Hour))
	b.ledger.named["m1"] = job.Delivery{Key: "test/1", Subject: "1", Digest: "1:aa"}
	b.unreadable()
	return b, r
}

// unreadable makes reading a payload fail the test.
func (b *bench) unreadable() {
	k := b.kind("test", job.RunLate)
	k.Read = func([]byte) (job.Contents, error) {
		b.Error("the payload was read")
		return job.Contents{}, nil
	}
	b.Kinds = job.NewCatalogue(k)
}

// No struck delivery came so far that its payload was read, so nobody knows the job.
func TestAConvictWithoutANameIsIsolatedByItsMessageAlone(t *testing.T) {
	b, r := struck(t, t0.Add(-time.Hour))
	b.unreadable()
	b.one(r)
	m := b.last(job.DLQ, 1).Message.Memory
	equal(b, m.Class, job.Crashed, "the memory's class")
	equal(b, m.Cause, job.CauseCrash, "the memory's cause")
	equal(b, m.Key, "", "the memory's key")
	if m.Fingerprint == "" {
		t.Error("the memory has no fingerprint")
	}
	if len(b.ledger.entries) != 0 {
		t.Errorf("entries %v, want none", b.ledger.entries)
	}
}

// Reading the payload of a job kills the process, so no strike names the job. The run that sent it did, or its earlier
// conviction. That counts for the entry that this run has opened, or that is isolated as crashed.
func TestAConvictWithoutANameIsKnownByItsMessage(t *testing.T) {
	opened := ledger.Entry{Key: "test/1", Status: ledger.Pending, Digest: "1:aa", Redrives: 1, Run: "run-1", Version: 4}
	sent := job.Memory{Key: "test/1", Run: "run-1", Redrives: 1}
	for name, c := range map[string]struct {
		change func(*ledger.Entry, *job.Memory)
		known  bool
	}{
		"sent by the run": {func(*ledger.Entry, *job.Memory) {}, true},
		"isolated by this delivery, and not handed over": {func(e *ledger.Entry, _ *job.Memory) {
			e.Status, e.LastClass, e.Cause, e.IsolatedMessageID, e.IsolatedFirstID, e.IsolatedAt = ledger.Isolated, job.Crashed, job.CauseCrash, "m1", "m1", t0
		}, true},
		"put back by hand after its conviction": {func(e *ledger.Entry, m *job.Memory) {
			e.Status, e.LastClass, e.Cause, e.IsolatedMessageID, e.IsolatedFirstID, e.IsolatedAt, e.Run = ledger.Isolated, job.Crashed, job.CauseCrash, "m0", "m0", t0.Add(-2*time.Hour), ""
			*m = job.Memory{Key: "test/1", MessageID: "m0", Class: job.Crashed, Cause: job.CauseCrash, At: t0.Add(-2 * time.Hour), Redrives: 1}
		}, true},
		"the key of a job that was isolated for something else": {func(e *ledger.Entry, m *job.Memory) {
			e.Status, e.LastClass, e.Cause, e.Run = ledger.Isolated, job.Transient, job.CauseAttempts, ""
			*m = job.Memory{Key: "test/1", Class: job.Crashed, Cause: job.CauseCrash, Redrives: 1}
		}, false},
		"opened by another run":        {func(e *ledger.Entry, _ *job.Memory) { e.Run = "run-2" }, false},
		"put back by hand since":       {func(e *ledger.Entry, _ *job.Memory) { e.Run, e.Redrives = "", 2 }, false},
		"no run in the attribute":      {func(e *ledger.Entry, m *job.Memory) { e.Run, m.Run = "", "" }, false},
		"a key that no job can have":   {func(_ *ledger.Entry, m *job.Memory) { m.Key = "test" }, false},
		"the key of a job that is new": {func(_ *ledger.Entry, m *job.Memory) { m.Key = "test/2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := struck(t, t0.Add(-time.Hour))
			b.unreadable()
			before, memory := opened, sent
			c.change(&before, &memory)
			b.ledger.entries["test/1"] = before
			a, err := memory.Encode()
			if err != nil {
				t.Fatal(err)
			}
			r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: a.Type, StringValue: &a.String}}
			b.one(r)
			m := b.last(job.DLQ, 1).Message.Memory
			equal(b, m.Class, job.Crashed, "the memory's class")
			e := b.ledger.entries["test/1"]
			if !c.known {
				equal(b, m.Key, "", "the memory's key")
				if !reflect.DeepEqual(e, before) {
					t.Errorf("the entry is\n%+v\nwas\n%+v", e, before)
				}
				equal(b, len(b.ledger.entries), 1, "the number of entries")
				return
			}
			equal(b, m.Key, "test/1", "the memory's key")
			equal(b, e.Status, ledger.Isolated, "the entry's status")
			equal(b, e.LastClass, job.Crashed, "the entry's class")
			equal(b, e.Digest, "1:aa", "the entry's digest")
		})
	}
}

// A message of a run names its job also after an attempt that failed.
func TestARetriedMessageOfARunKeepsItsName(t *testing.T) {
	b := newBench(t)
	b.run = fails(job.Transient, 0)
	r := b.record("m1", body("1"))
	a, err := job.Memory{Key: "test/1", Run: "run-1", Redrives: 1}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: a.Type, StringValue: &a.String}}
	b.one(r)
	equal(b, b.last(job.Recovery, 1).Message.Memory.Key, "test/1", "the memory's key")
}

// A job that was redriven kills the process again. Its entry says so, and the run can see it.
func TestAConvictWithANameIsolatesItsEntry(t *testing.T) {
	for name, before := range map[string]ledger.Entry{
		"absent":            {},
		"pending":           {Key: "test/1", Status: ledger.Pending, Digest: "1:aa", Redrives: 1, Run: "run-1", Version: 4},
		"its lease ended":   {Key: "test/1", Status: ledger.Running, Owner: "a", LeaseUntil: t0.Add(-time.Second), Digest: "1:aa", Redrives: 1, Run: "run-1", Version: 4},
		"an older digest's": {Key: "test/1", Status: ledger.Pending, Digest: "0:bb", Redrives: 1, Run: "run-1", Version: 4},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := convict(t)
			if before.Version > 0 {
				b.ledger.entries["test/1"] = before
			}
			b.one(r)
			e := b.ledger.entries["test/1"]
			equal(b, e.Status, ledger.Isolated, "the entry's status")
			equal(b, e.LastClass, job.Crashed, "the entry's class")
			equal(b, e.Cause, job.CauseCrash, "the entry's cause")
			equal(b, e.LastError, "2 invocations died with this message", "the entry's error")
			equal(b, e.Redrives, before.Redrives, "the entry's generation")
			equal(b, e.Run, before.Run, "the entry's run")
			equal(b, e.IsolatedMessageID, "m1", "the message that isolated it")
			m := b.last(job.DLQ, 1).Message.Memory
			equal(b, m.Class, job.Crashed, "the memory's class")
			equal(b, m.Key, "test/1", "the memory's key")
			equal(b, m.Redrives, before.Redrives, "the memory's generation")
			sameTime(b, m.At, e.IsolatedAt, "the memory's time of the isolation")
		})
	}
}

// A convict ends no entry that belongs to another delivery or to another payload, and reopens none.
func TestAConvictHarmsNoEntry(t *testing.T) {
	for name, c := range map[string]struct {
		before ledger.Entry
		memory job.Memory
		class  job.Class // on the DLQ; empty if the message does not go there
	}{
		"final":             {before: ledger.Entry{Status: ledger.Done, Digest: "1:aa"}},
		"another's lease":   {before: ledger.Entry{Status: ledger.Running, Owner: "other", LeaseUntil: t0.Add(time.Minute), Digest: "1:aa"}, class: job.Crashed},
		"another payload":   {before: ledger.Entry{Status: ledger.Pending, Digest: "1:bb"}, class: job.Crashed},
		"another one, done": {before: ledger.Entry{Status: ledger.Done, Digest: "1:bb"}, class: job.Crashed},
		"isolated, and the message was put back": {
			before: ledger.Entry{Status: ledger.Isolated, LastClass: job.Transient, Cause: job.CauseAttempts, Digest: "1:aa", IsolatedMessageID: "m0", IsolatedFirstID: "m0", IsolatedAt: t0.Add(-2 * time.Hour)},
			memory: job.Memory{MessageID: "m0", Class: job.Transient, Cause: job.CauseAttempts, At: t0.Add(-2 * time.Hour)},
			class:  job.Transient,
		},
		"isolated, by this delivery, and not handed over": {
			before: ledger.Entry{Status: ledger.Isolated, LastClass: job.Crashed, Cause: job.CauseCrash, Digest: "1:aa", IsolatedMessageID: "m1", IsolatedFirstID: "m1", IsolatedAt: t0},
			class:  job.Crashed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := convict(t)
			before := c.before
			before.Key, before.Version = "test/1", 4
			b.ledger.entries["test/1"] = before
			if c.memory != (job.Memory{}) {
				a, err := c.memory.Encode()
				if err != nil {
					t.Fatal(err)
				}
				r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: a.Type, StringValue: &a.String}}
			}
			b.one(r)
			if e := b.ledger.entries["test/1"]; !reflect.DeepEqual(e, before) {
				t.Errorf("the entry is\n%+v\nwas\n%+v", e, before)
			}
			equal(b, b.ran.Load(), 0, "the number of runs")
			if c.class == "" {
				equal(b, len(b.wires.sent[job.DLQ]), 0, "the number of moves to %s", job.DLQ)
				return
			}
			equal(b, b.last(job.DLQ, 1).Message.Memory.Class, c.class, "the memory's class")
		})
	}
}

// The entry is isolated and its message did not reach the DLQ: the message stays, and its next delivery goes there.
func TestAConvictThatIsNotHandedOverStays(t *testing.T) {
	b, r := convict(t)
	b.wires.refuse = func(job.Queue, lanes.Move) error { return lanes.ErrUnsent }
	failed, _ := b.handle(r)
	equal(b, len(failed), 1, "the number of failures")
	written := b.ledger.entries["test/1"]
	equal(b, written.Status, ledger.Isolated, "the entry's status")
	b.wires.refuse = nil
	b.now = b.now.Add(time.Minute)
	b.one(again(r, 6))
	m := b.last(job.DLQ, 1).Message.Memory
	sameTime(b, m.At, written.IsolatedAt, "the memory's time of the isolation")
	equal(b, b.ledger.entries["test/1"].Version, written.Version, "the entry's version")
}

// The ledger does not answer. The message is neither lost nor on the DLQ without its entry.
func TestAConvictWhoseEntryIsNotWrittenIsHandedBack(t *testing.T) {
	b, r := convict(t)
	b.Ledger = unwritten{b.ledger}
	b.one(r)
	b.last(job.Source, 1)
	equal(b, len(b.wires.sent[job.DLQ]), 0, "the number of moves to %s", job.DLQ)
	equal(b, b.ran.Load(), 0, "the number of runs")
}

// unwritten is a ledger that takes no changes of entries.
type unwritten struct{ *memory }

func (unwritten) Update(context.Context, string, string, func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	return ledger.Entry{}, ledger.ErrUnavailable
}
