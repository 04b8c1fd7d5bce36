package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
)

// tools is the folder bin of the compiled command line and of the reservations' producer, built once.
var tools = sync.OnceValues(func() (string, error) {
	root, ok := local.FindModule(".")
	if !ok {
		return "", errors.New("not in a module with functions")
	}
	bin := filepath.Join(scratch, "bin")
	return bin, errors.Join(
		local.Build(context.Background(), root, "./cmd/acklast", filepath.Join(bin, "acklast"), os.Stderr),
		local.Build(context.Background(), root, "./internal/kinds/reservation/desk", filepath.Join(bin, "desk"), os.Stderr),
	)
})

// operator runs the command line as a person does, against the stack of the black-box tests.
type operator struct {
	*system
	binary string
	env    []string
}

// newOperator returns an operator that has the stack for itself. The test is not parallel, and parallel tests
// wait for its end, because it pauses lanes and sets the kill switch, which affect the whole stack.
func newOperator(t *testing.T) *operator {
	t.Helper()
	bin, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{system: blackBoxAlone(t), binary: filepath.Join(bin, "acklast")}
	o.env = append(os.Environ(), "ACKLAST_STACK="+o.names.Stack)
	if !deployed() {
		o.env = append(o.env, "AWS_ENDPOINT_URL="+shared.env.Endpoint(), "AWS_REGION="+local.Region,
			"AWS_ACCESS_KEY_ID="+local.Credential, "AWS_SECRET_ACCESS_KEY="+local.Credential)
	}
	if os.Getenv(envData) != "" { // which has no functions
		o.env = append(o.env, "AWS_ENDPOINT_URL_LAMBDA="+shared.env.FunctionsEndpoint())
	}
	return o
}

// desk is the producer of holds, run as a person does.
func (o *operator) desk() *operator {
	return &operator{system: o.system, binary: filepath.Join(filepath.Dir(o.binary), "desk"), env: o.env}
}

// run is one command line. It returns the answer and the exit code.
func (o *operator) run(args ...string) (string, int) {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), o.binary, args...)
	var stderr strings.Builder
	cmd.Env, cmd.Stderr = o.env, &stderr
	if !deployed() && os.Getenv(envCalls) != "" {
		command := args[0]
		switch tool := filepath.Base(o.binary); {
		case tool != "acklast":
			command = tool + " " + args[0]
		case args[0] == "redrive":
			command += " " + args[1]
		}
		p := faults.New(shared.env.Endpoint())
		defer p.Close()
		record(p, command, o.names.Stack)
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL="+p.URL())
	}
	out, err := cmd.Output()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		o.Fatalf("%s %s: %v", filepath.Base(o.binary), strings.Join(args, " "), err)
	}
	o.Logf("%s %s: exit code %d\n%s", filepath.Base(o.binary), strings.Join(args, " "), cmd.ProcessState.ExitCode(), stderr.String())
	return string(out), cmd.ProcessState.ExitCode()
}

// The exit codes, as the help of the command line lists them.
const (
	refused = 2
	stopped = 3
)

// onDLQ waits for the hold's job on the DLQ and returns its message's id there.
func (o *operator) onDLQ(h reservation.Hold) (id string) {
	o.Helper()
	o.until("the job is on the DLQ", func() bool {
		for _, group := range ask[redrive.Response](o, "dlq", "--subject", h.ReservationID).Groups {
			for _, sample := range group.Samples {
				id = sample.Message
			}
		}
		return id != ""
	})
	return id
}

// wants runs a command line that has to end with the code.
func (o *operator) wants(code int, args ...string) string {
	o.Helper()
	out, got := o.run(args...)
	if got != code {
		o.Fatalf("%s %s: exit code %d, want %d\n%s", filepath.Base(o.binary), strings.Join(args, " "), got, code, out)
	}
	return out
}

// ask runs a command line that has to succeed and decodes its answer.
func ask[T any](o *operator, args ...string) (answer T) {
	o.Helper()
	out := o.wants(0, append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		o.Fatalf("%s %s: %v in:\n%s", filepath.Base(o.binary), strings.Join(args, " "), err, out)
	}
	return answer
}

func (o *operator) wantSaid(out, want string) {
	o.Helper()
	if !strings.Contains(out, want) {
		o.Errorf("%q does not stand in:\n%s", want, out)
	}
}

func TestOperatorHoldsAndConfirms(t *testing.T) {
	o := newOperator(t)
	h := o.hold("counter", 2, 0)
	o.desk().wants(0, "hold", "--reservation", h.ReservationID, "--command", h.CommandID, "--resource", h.ResourceID, "--units", "2", "--for", "3s")
	o.wantAvailable(98)
	o.desk().wants(0, "confirm", "--reservation", h.ReservationID, "--command", h.CommandID)
	o.until("its job has ended", func() bool {
		out, code := o.run("job", h.ReservationID)
		return code == 0 && strings.Contains(out, "superseded")
	})
	o.wantAvailable(98)
}

func TestOperatorPausesALane(t *testing.T) {
	o := newOperator(t)
	o.wants(0, "pause", "source")
	resume := sync.OnceFunc(func() { o.wants(0, "resume", "source") })
	defer resume()
	o.until("the lane is paused", func() bool {
		return ask[struct{ State string }](o, "pause", "source").State == "Disabled"
	})
	h := o.place(o.hold("waits", 1, 0))
	o.until("the job waits", func() bool { return o.depth(job.Source).Visible == 1 })
	o.wantState(h, reservation.Held)
	resume()
	o.ends(h, ledger.Done)
	o.wantSaid(o.wants(0, "status"), "source")
}

// The jobs of a paused kind wait without an attempt, the stack's status shows the pause, and the jobs run after
// it.
func TestOperatorPausesAKind(t *testing.T) {
	o := newOperator(t)
	o.wants(2, "pause", "--kind", reservation.KindName)
	o.wantSaid(o.wants(0, "pause", "--kind", reservation.KindName, "--reason", "a wrong price", "--by", "ada"), "is paused")
	resume := sync.OnceFunc(func() { o.wants(0, "resume", "--kind", reservation.KindName, "--reason", "mended", "--by", "ada") })
	defer resume()
	o.wantSaid(o.wants(0, "status"), "is paused since")
	// A deployed stack's lane may hold messages of an earlier test run.
	waiting := func() int {
		d := o.depth(job.Recovery)
		return d.Delayed + d.Visible + d.InFlight
	}
	// A process may use its list of paused kinds for some seconds after a change.
	var h reservation.Hold
	n := 0
	o.until("a job waits on the recovery lane", func() bool {
		n++
		before := waiting()
		h = o.place(o.hold(fmt.Sprint("waits-", n), 1, 2*time.Second))
		for {
			if o.entry(o.key(h)).Status == ledger.Done {
				return false
			}
			if waiting() > before {
				return true
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	o.wantState(h, reservation.Held)
	resume()
	if deployed() {
		// The job waits for minutes there. A producer's copy runs as soon as no process relies on the pause any more.
		o.until("a copy has run", func() bool {
			o.send(o.body(h), nil)
			time.Sleep(time.Second)
			return o.entry(o.key(h)).Status == ledger.Done
		})
	}
	o.ends(h, ledger.Done)
}

// A job without its record is found, redriven in vain, mended, redriven by another plan, and done.
func TestOperatorRedrivesOneJob(t *testing.T) {
	o := newOperator(t)
	h := o.hold("mended", 2, 0)
	o.send(o.body(h), nil)
	o.ends(h, ledger.Isolated)
	id := o.onDLQ(h)
	o.wantSaid(o.wants(0, "dlq", "--show", id, "--body"), h.ReservationID)

	plan := ask[redrive.Response](o, "redrive", "plan", "--message", id, "--by", "ada", "--reason", "looks mended").Plan
	o.wantSaid(o.wants(stopped, "redrive", "run", plan.ID, "--yes"), "canary failed")
	o.wantSaid(o.wants(0, "audit", plan.Run), id)
	o.wants(0, "redrive", "revoke", plan.Run, "--by", "ada", "--reason", "was not mended")

	o.restore(h)
	id = o.onDLQ(h)
	second := ask[redrive.Response](o, "redrive", "plan", "--message", id, "--by", "ada", "--reason", "mended").Plan
	o.wants(0, "redrive", "stop", "--by", "ada", "--reason", "lunch")
	o.wantSaid(o.wants(0, "redrive", "status"), "kill switch is on")
	o.wants(refused, "redrive", "run", second.ID, "--yes")
	o.wants(0, "redrive", "resume", "--by", "ada", "--reason", "back")
	o.wants(0, "redrive", "run", second.ID, "--yes")
	if e := o.ends(h, ledger.Done); e.Redrives != 2 {
		t.Errorf("redrives are %d, want 2", e.Redrives)
	}
	o.wantSaid(o.wants(0, "redrive", "status"), second.Run)
}

// Actions that end a job for good use the other alias of the function.
func TestOperatorApprovesAndDiscards(t *testing.T) {
	o := newOperator(t)
	bad := `{"kind":"reservation.expire","payload":{"reservationId":"` + o.id + `"}}`
	o.send(bad, nil)
	id := o.fromDLQ(bad).ID
	o.until("the message is visible again", func() bool {
		return len(ask[redrive.Response](o, "dlq", "--message", id).Groups) == 1
	})
	plan := ask[redrive.Response](o, "redrive", "plan", "--message", id, "--by", "ada", "--reason", "try").Plan
	if plan.Approval == "" {
		t.Error("an invalid job needs no approval")
	}
	o.wants(refused, "redrive", "approve", plan.ID, "--by", "ada", "--reason", "my own", "--yes")
	o.wants(0, "redrive", "approve", plan.ID, "--by", "grace", "--reason", "seen", "--yes")
	o.wantSaid(o.wants(0, "discard", id, "--by", "grace", "--reason", "never valid"), "discarded")
}
