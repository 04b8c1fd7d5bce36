package local

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"acklast/internal/job"
)

func TestDeathMidInvocationFailsTheBatchAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), processes(1))
	for _, body := range []string{"exit", "panic", "block"} {
		_, before := f.counts(job.Source)
		pid := f.PIDs()[0]
		ids := f.send(job.Source, "ok", body)
		f.await(t, ids[1], 1)
		if body == "block" {
			f.Kill(0)
		}
		f.awaitIdle(5 * time.Second) // far below the function's timeout
		if _, after := f.counts(job.Source); after-before != 2 {
			t.Errorf("%s: %d of the batch left, want both", body, after-before)
		}
		// The only process was started again, and works.
		next := f.send(job.Source, "ok")
		s := f.await(t, next[0], 1)
		if s.pid == pid {
			t.Errorf("%s: still served by process %d", body, pid)
		}
		f.awaitIdle(5 * time.Second)
	}
}

// TestUnseenDeathWhileIdle kills the process without the supervisor. The engine may hand the next invocation to
// the dead process before its exit is noticed. That invocation fails, but no invocation hangs until its
// timeout.
func TestUnseenDeathWhileIdle(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), processes(1))
	for n := range 10 {
		pid := f.PIDs()[0]
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, before := f.counts(job.Source)
		id := f.send(job.Source, "ok")[0]
		eventually(t, "the message is taken", func() bool { _, n := f.counts(job.Source); return n > before || len(f.of(id)) > 0 })
		f.awaitIdle(5 * time.Second)
		_, after := f.counts(job.Source)
		if seen := len(f.of(id)); after-before == seen {
			t.Fatalf("round %d: message seen %d times and %d left: want it done, or failed", n, seen, after-before)
		}
		eventually(t, "the process runs again", func() bool { return f.PIDs()[0] != 0 && f.PIDs()[0] != pid })
	}
}

func TestDeathWhileIdleLosesNothing(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), processes(1))
	for n := range 20 {
		pid := f.PIDs()[0]
		f.Kill(0)
		id := f.send(job.Source, "ok")[0]
		f.await(t, id, 1)
		f.awaitIdle(5 * time.Second)
		if waiting, inFlight := f.counts(job.Source); waiting+inFlight != 0 {
			t.Fatalf("round %d: %d waiting, %d in flight after the restart", n, waiting, inFlight)
		}
		eventually(t, "the process waits again", func() bool { return f.PIDs()[0] != 0 && f.PIDs()[0] != pid })
	}
}

// TestNoWorkForADoomedProcess lets two processes ask for work and marks the first one for killing. The next
// invocation goes to the second.
func TestNoWorkForADoomedProcess(t *testing.T) {
	t.Parallel()
	a, err := StartAWS(t.Context(), newStack(), patient(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	name := a.Names().WorkerFunction
	if err := createFunction(t.Context(), a.direct, Function{Name: name, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	api, err := newRuntimeAPI(a.engine, name, time.Minute, 2, newGate(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer api.close()
	var got [2]chan int
	var sessions [2]*session
	for i := range got {
		got[i] = make(chan int, 1)
		sessions[i] = api.open(i, func() {})
		go func() {
			res, err := http.Get("http://" + sessions[i].address() + runtimeVersion + "/invocation/next")
			if err == nil {
				res.Body.Close()
				got[i] <- res.StatusCode
			}
		}()
		if err := api.gate.ready(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	sessions[0].kill()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = lambda.NewFromConfig(a.direct).Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name, Payload: []byte("{}")})
	}()
	select {
	case <-got[1]:
	case <-got[0]:
		t.Error("a process that was about to be killed got the work")
	case <-time.After(5 * time.Second):
		t.Error("nobody got the work")
	}
	for _, s := range sessions {
		s.end(errors.New("over"))
	}
	<-done
}

func TestTimeoutKills(t *testing.T) {
	t.Parallel()
	f := start(t, quick(), processes(1))
	pid := f.PIDs()[0]
	id := f.send(job.Source, "hang")[0]
	seen := f.await(t, id, 1)
	if left := seen.deadline.Sub(seen.at); left > time.Second || left < 500*time.Millisecond {
		t.Errorf("the function was told it has %v left of its second", left)
	}
	f.awaitIdle(8 * time.Second) // below the engine's own timeout
	if took := time.Since(seen.at); took < 900*time.Millisecond {
		t.Errorf("failed after %v, before its timeout", took)
	}
	if _, inFlight := f.counts(job.Source); inFlight != 1 {
		t.Error("the message was deleted")
	}
	next := f.await(t, f.send(job.Source, "ok")[0], 1)
	if next.pid == pid {
		t.Error("the process that hung is still there")
	}
}

func TestTimeoutWithoutKillFailsTheBatchAndSparesTheProcess(t *testing.T) {
	t.Parallel()
	f := start(t, quick(), processes(1))
	f.KillOnTimeout(false)
	id := f.send(job.Source, "block")[0]
	seen := f.await(t, id, 1)
	f.awaitIdle(4 * time.Second)
	waits := f.send(job.Source, "ok") // its only process is not back yet
	for range 10 {
		time.Sleep(maxIdle / 2)
		if waiting, _ := f.counts(job.Source); waiting != 1 {
			t.Fatal("a message was taken though no process can work on it")
		}
	}
	f.release()
	next := f.await(t, waits[0], 1)
	if next.pid != seen.pid {
		t.Errorf("served by process %d, want %d still", next.pid, seen.pid)
	}
	// The answer came too late to count, so the message comes back.
	if again := f.await(t, id, 2); again.records[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("came back as %+v", again.records)
	}
}

func TestKillBeforeAck(t *testing.T) {
	t.Parallel()
	f := start(t, quick(), processes(1))
	var killed atomic.Pointer[Invocation]
	f.OnResponse(func(inv Invocation) Action {
		if killed.CompareAndSwap(nil, &inv) {
			return KillBeforeAck
		}
		return Forward
	})
	ids := f.send(job.Recovery, "ok 1", "ok 2")
	first := f.await(t, ids[0], 1)
	f.awaitIdle(5 * time.Second)
	if _, inFlight := f.counts(job.Recovery); inFlight != 2 {
		t.Fatalf("%d messages left, want both: the response was never passed on", inFlight)
	}
	inv := killed.Load()
	if inv.Lane != job.Recovery || len(inv.Records) != 2 || inv.Records[1].MessageId != ids[1] || inv.PID != first.pid ||
		inv.Process != 0 || inv.RequestID == "" || !strings.Contains(string(inv.Response), "batchItemFailures") {
		t.Errorf("the hook saw %+v", inv)
	}
	second := f.await(t, ids[0], 2)
	if second.records[0].Attributes["ApproximateReceiveCount"] != "2" || second.pid == first.pid {
		t.Errorf("came back to process %d (before: %d) as %+v", second.pid, first.pid, second.records)
	}
	f.awaitEmpty(job.Recovery)
}

func TestKillAllAndRestart(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	before := f.PIDs()
	f.KillAll()
	id := f.send(job.Source, "block")[0]
	f.await(t, id, 1)
	time.AfterFunc(300*time.Millisecond, f.release)
	if err := f.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.awaitEmpty(job.Source)
	if n := len(f.of(id)); n != 1 {
		t.Errorf("the invocation in flight was repeated: seen %d times", n)
	}
	for _, pid := range f.PIDs() {
		if pid == 0 || slices.Contains(before, pid) {
			t.Errorf("process %d after a restart of %v", pid, before)
		}
	}
}

func TestSuspendAndContinue(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), processes(1))
	f.Suspend(0)
	id := f.send(job.Source, "ok")[0]
	time.Sleep(500 * time.Millisecond)
	if n := len(f.of(id)); n != 0 {
		t.Fatal("a suspended process works")
	}
	pid := f.PIDs()[0]
	f.Continue(0)
	if s := f.await(t, id, 1); s.pid != pid {
		t.Errorf("served by %d, want %d", s.pid, pid)
	}
	f.awaitEmpty(job.Source)
}

func TestSuspendedProcessTimesOut(t *testing.T) {
	t.Parallel()
	f := start(t, quick(), processes(1))
	pid := f.PIDs()[0]
	f.Suspend(0)
	id := f.send(job.Source, "ok")[0]
	if s := f.await(t, id, 1); s.pid == pid || s.records[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("served by %d (suspended: %d) as %+v", s.pid, pid, s.records)
	}
	f.awaitEmpty(job.Source)
}
