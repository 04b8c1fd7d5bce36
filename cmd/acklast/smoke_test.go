//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// The compiled worker takes the job of a check, and its exit code tells.
func TestSmoke(t *testing.T) {
	built := buildFunctions(t)
	r := startLocal(t, "--port", "0", "--scaled", "--worker-binary", built.Worker, "--redrive-binary", built.Redrive)
	_, endpoint, _ := strings.Cut(r.stdout.String(), "AWS_ENDPOINT_URL=")
	endpoint, _, _ = strings.Cut(endpoint, " ")
	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": endpoint, envStack: r.stack}}
	got := decode[smokeReport](t, user.must("smoke", "--output", "json"))
	if !got.OK || got.Problem != "" {
		t.Errorf("the stack does not work: %+v", got)
	}
	if got.Effects != 1 {
		t.Errorf("%d effects, want 1", got.Effects)
	}
	if got.Done != 2 {
		t.Errorf("%d messages are done, want 2", got.Done)
	}
	contains(t, user.must("smoke").stdout, "works")
	// A second check is a job of its own.
	if again := decode[smokeReport](t, user.must("smoke", "--output", "json")); again.Job == got.Job {
		t.Errorf("two checks share the job %s", got.Job)
	}
}

// Without a worker, the check says so.
func TestSmokeWithoutAWorker(t *testing.T) {
	c, aws := embedded(t)
	r := c.run("smoke", "--timeout", "1s")
	if r.code != exitFailed {
		t.Errorf("exit code %d, want %d", r.code, exitFailed)
	}
	contains(t, r.stdout, "does not work", "no worker took the job within 1s")
	contains(t, r.stderr, "Writing to stack")
	sent := received(t, aws, job.Source)
	if len(sent) != 2 {
		t.Fatalf("%d messages were sent, want 2", len(sent))
	}
	if sent[0].Body != sent[1].Body {
		t.Errorf("the two messages differ: %s and %s", sent[0].Body, sent[1].Body)
	}
}

func TestSmokeRefusesATimeoutOfZero(t *testing.T) {
	offline(t).refused(exitRefused, []string{"--timeout is 0s"}, "smoke", "--timeout", "0")
}

func TestSmokeSaysWhatIsWrong(t *testing.T) {
	done := ledger.Entry{Key: "acklast.smoke/1", Version: 1, Status: ledger.Done}
	isolated := ledger.Entry{Key: "acklast.smoke/1", Version: 1, Status: ledger.Isolated, LastClass: job.Crashed, LastError: "boom"}
	for name, tt := range map[string]struct {
		entry   ledger.Entry
		counter dynamo.SmokeCounter
		want    string
	}{
		"works":        {done, dynamo.SmokeCounter{Effects: 1, Done: 2}, ""},
		"two effects":  {done, dynamo.SmokeCounter{Effects: 2, Done: 2}, "took effect 2 times"},
		"isolated":     {isolated, dynamo.SmokeCounter{}, "isolated as crashed: boom"},
		"no entry":     {ledger.Entry{}, dynamo.SmokeCounter{}, "no worker took the job"},
		"pending":      {ledger.Entry{Version: 1, Status: ledger.Pending, LastError: "slow"}, dynamo.SmokeCounter{}, "is pending"},
		"no counter":   {done, dynamo.SmokeCounter{}, "the counter is missing"},
		"one delivery": {done, dynamo.SmokeCounter{Effects: 1, Done: 1}, "only 1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := smokeProblem(tt.entry, tt.counter, time.Minute)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}
