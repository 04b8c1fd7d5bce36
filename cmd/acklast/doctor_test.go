//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"acklast/internal/doctor"
)

// On the embedded AWS the queues and the mappings answer, and what it does not know is not called ok.
func TestDoctorOnTheEmbeddedAWS(t *testing.T) {
	built := buildFunctions(t)
	r := startLocal(t, "--port", "0", "--worker-binary", built.Worker, "--redrive-binary", built.Redrive)
	_, endpoint, _ := strings.Cut(r.stdout.String(), "AWS_ENDPOINT_URL=")
	endpoint, _, _ = strings.Cut(endpoint, " ")
	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": endpoint, envStack: r.stack}}
	answer := user.run("doctor", "--commands", "status", "--output", "json")
	got := decode[doctorReport](t, answer)
	results := map[string]doctor.Check{}
	for _, c := range got.Checks {
		results[c.Name] = c
	}
	for _, name := range []string{
		"visibility of " + r.stack + "-source", "redrive policy of " + r.stack + "-recovery", "retention of " + r.stack + "-dlq",
		"partial responses of " + r.stack + "-source", "mapping of " + r.stack + "-recovery",
	} {
		if c := results[name]; c.Result != doctor.OK {
			t.Errorf("%s is %q: %s", name, c.Result, c.Todo)
		}
	}
	if c := results["recursive loops of the worker"]; c.Result == doctor.OK {
		t.Errorf("this machine has no detection of loops, but it is ok: %s", c.Found)
	}
	want := exitUnsure
	if got.Findings > 0 {
		want = exitFailed
	}
	if answer.code != want {
		t.Errorf("exit code %d with %d findings and %d unknown, want %d", answer.code, got.Findings, got.Unknown, want)
	}
	contains(t, user.run("doctor", "--commands", "status").stdout, "AREA", "cannot be made.")
}

func TestDoctorRefusesWrongFlags(t *testing.T) {
	c := offline(t)
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.refused(exitRefused, []string{"--settings"}, "doctor", "--settings", file+".none")
	c.refused(exitRefused, []string{"one JSON object"}, "doctor", "--settings", file)
	c.refused(exitRefused, []string{`"stauts"`, "status"}, "doctor", "--commands", "stauts")
}

// A place that does not answer is no finding about the stack.
func TestDoctorWithoutAnAnswer(t *testing.T) {
	r := offline(t).run("doctor", "--output", "json")
	if r.code != exitUnsure {
		t.Errorf("exit code %d, want %d: %s", r.code, exitUnsure, r.stderr)
	}
	got := decode[doctorReport](t, r)
	for _, c := range got.Checks {
		if c.Result != doctor.CannotTell {
			t.Errorf("%s is %q", c.Name, c.Result)
		}
	}
}
