package e2e_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
)

// stubborn is the binary of a worker whose kinds misbehave.
var stubborn = sync.OnceValues(func() (string, error) {
	root, _ := local.FindModule(".")
	binary := filepath.Join(scratch, "stubborn")
	return binary, local.Build(context.Background(), root, "./internal/e2e/testdata/stubborn", binary, os.Stderr)
})

// newStubborn starts that worker. ends counts its processes that ended by themselves.
func newStubborn(t *testing.T) (e *embedded, ends func() int) {
	t.Helper()
	needsEmbedded(t)
	binary, err := stubborn()
	if err != nil {
		t.Fatal(err)
	}
	var own lockedBuffer
	e = newEmbedded(t, func(c *local.Config) {
		c.WorkerBinary, c.Log = binary, slog.New(slog.NewTextHandler(&own, nil))
	})
	return e, func() int { return strings.Count(own.String(), `exit="exit status 0"`) }
}

// An attempt that hangs, panics or ignores its end is a failed one. It costs an attempt, and its job is
// isolated with its history, while a job beside it is done.
func TestEveryAttemptHasAnEnd(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for _, c := range []struct {
		kind  string
		class job.Class
		says  string
	}{
		{"test.hangs", job.Transient, "took all of its time"},
		{"test.panics", job.ClassUnknown, "panic with a string in main."},
		{"test.ignores", job.Transient, "did not return when its time was over"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			e, ends := newStubborn(t)
			body := `{"kind":"` + c.kind + `","payload":{"id":"` + e.id + `"}}`
			e.send(body, nil)
			e.send(`{"kind":"test.behaves","payload":{"id":"`+e.id+`"}}`, nil)
			e.until("the job is isolated", func() bool { return e.entry(c.kind+"/"+e.id).Status == ledger.Isolated })
			got := e.entry(c.kind + "/" + e.id)
			if got.Attempts != e.settings.MaxAttempts {
				t.Errorf("%d attempts, want %d", got.Attempts, e.settings.MaxAttempts)
			}
			if got.Cause != job.CauseAttempts || got.LastClass != c.class {
				t.Errorf("isolated as %s by %s, want %s by attempts", got.LastClass, got.Cause, c.class)
			}
			if !strings.Contains(got.LastError, c.says) {
				t.Errorf("the last error is %q, want %q in it", got.LastError, c.says)
			}
			if m := e.fromDLQ(body); m.Memory.Attempt != e.settings.MaxAttempts {
				t.Errorf("memory %+v", m.Memory)
			}
			e.until("the other job is done", func() bool { return e.entry("test.behaves/"+e.id).Status == ledger.Done })
			if c.kind == "test.ignores" { // else its code would go on in a later invocation
				e.until("each process of an attempt has ended", func() bool { return ends() >= e.settings.MaxAttempts })
			}
			if log := e.logs.String(); strings.Contains(log, "Task timed out") {
				t.Error("an invocation did not answer in time")
			}
		})
	}
}

// A call that ignores its end, while its delivery holds the job's claim, may still be made. So no failure is written, and
// the job waits for the end of the lease. Nobody calls a second time, since the provider cannot look up: a person decides.
func TestACallThatIgnoresItsEndUnderAClaim(t *testing.T) {
	e, ends := newStubborn(t)
	e.send(`{"kind":"test.deaf","payload":{"id":"`+e.id+`"}}`, nil)
	e.until("the process of the attempt has ended", func() bool { return ends() >= 1 })
	got := e.comesTo("test.deaf/"+e.id, ledger.Isolated)
	if got.LastClass != job.Ambiguous {
		t.Errorf("isolated as %s, want %s: %s", got.LastClass, job.Ambiguous, got.LastError)
	}
	if first := got.History[0]; first.Error != "the claim ended without an outcome" {
		t.Errorf("the first event is %+v, want the end of the claim", first)
	}
	if waited := got.IsolatedAt.Sub(got.CalledFrom); waited < e.settings.LeaseSkew {
		t.Errorf("isolated %v after the call, within its lease", waited)
	}
	if calls := strings.Count(e.logs.String(), "test.deaf calls"); calls != 1 {
		t.Errorf("%d calls, want one", calls)
	}
	if strings.Contains(e.logs.String(), "Task timed out") {
		t.Error("the invocation did not answer in time")
	}
}

// A service accepts each request and never answers, one operation after the other. Every invocation still
// answers in time, and its work is done once the service answers again.
func TestAServiceThatNeverAnswers(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for _, operation := range []string{"TransactWriteItems", "GetItem", "SendMessageBatch", "ChangeMessageVisibilityBatch"} {
		t.Run(operation, func(t *testing.T) {
			e := newEmbedded(t)
			late := e.place(e.hold("late", 1, 0)) // its answers are lost
			missing := e.hold("missing", 1, 0)    // its isolation is sent
			held := make(chan struct{}, 1000)
			answers := e.faults.Add(faults.Rule{Operation: operation, Fault: faults.HoldAnswer(func() { held <- struct{}{} })})
			e.send(e.body(missing), nil)
			sends := func() {}
			if operation == "ChangeMessageVisibilityBatch" { // it is called only for messages that are left
				sends = e.faults.Add(faults.Rule{Operation: "SendMessageBatch", Fault: faults.Error(400, "InvalidParameterValue", "no")})
			}
			if operation == "GetItem" { // a message that comes back without its memory is looked up
				back := []lanes.Move{{Message: job.Message{Body: e.body(late)}}}
				if err := e.queues.Send(t.Context(), job.Recovery, back)[0]; err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				<-held
			}
			answers()
			sends()
			e.ends(late, ledger.Done)
			e.ends(missing, ledger.Isolated)
			e.fromDLQ(e.body(missing))
			e.dry()
			e.wantAvailable(100)
			if log := e.logs.String(); strings.Contains(log, "Task timed out") {
				t.Error("an invocation did not answer in time")
			}
		})
	}
}

// During a roll-out an older worker may get a newer producer's job: it waits one hop for a newer worker.
func TestAKindThatNobodyKnows(t *testing.T) {
	e := newEmbedded(t)
	body := `{"kind":"from.tomorrow","payload":{"id":"` + e.id + `"}}`
	e.send(body, nil)
	m := e.fromDLQ(body)
	if m.Memory.Class != job.Rejected || !strings.Contains(m.Memory.Error, "unknown kind") {
		t.Errorf("memory %+v", m.Memory)
	}
	if waited := m.Memory.At.Sub(m.Memory.FirstSent); waited < e.settings.RolloutWait {
		t.Errorf("isolated after %v, before a roll-out of %v could be over", waited, e.settings.RolloutWait)
	}
	e.dry()
	e.wantDLQ(1)
}
