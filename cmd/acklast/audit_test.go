package main

import (
	"strings"
	"testing"

	"acklast/internal/local/faults"
)

// Who stopped everything is in the audit, also after the release, and also if the redrive function had no part in it.
func TestAStopIsInTheAudit(t *testing.T) {
	c, _ := governed(t)
	c.must("redrive", "stop", "--by", "ada", "--reason", "the provider fails")
	contains(t, c.must("audit", "switch").stdout, "stopped", "ada", "the provider fails", "The kill switch is on, by ada")
	c.must("redrive", "stop", "--by", "eve", "--reason", "so does the other")
	c.must("redrive", "resume", "--by", "bob", "--reason", "over")
	got := c.must("audit", "switch").stdout
	contains(t, got, "ada", "eve", "released", "bob", "over", "The kill switch is off.")
	if n := strings.Count(got, " stopped "); n != 2 {
		t.Errorf("%d stops in the audit, want 2:\n%s", n, got)
	}
}

// A switch that is thrown stays thrown if its line cannot be written. That is told, and the exit code is 0: it is on.
func TestAStopWithoutItsLine(t *testing.T) {
	c, _ := governed(t)
	p := c.faulty()
	p.Add(faults.Rule{Operation: "UpdateItem", Match: func(body []byte) bool { return strings.Contains(string(body), "switch#") },
		Fault: faults.Error(400, "AccessDeniedException", "no")})
	got := c.must("redrive", "stop", "--by", "ada", "--reason", "the provider fails")
	contains(t, got.stdout, "The kill switch is on, by ada")
	contains(t, got.stderr, "audit")
	c.must("redrive", "resume", "--by", "bob", "--reason", "over")
	contains(t, c.must("audit", "switch").stdout, "released", "bob", "ada", "the provider fails")
}
