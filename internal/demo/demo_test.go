package demo_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"acklast/internal/demo"
	"acklast/internal/local"
)

// The story is an end-to-end test: its chapters wait for what they claim, and its checks count.
func TestTheStoryAddsUp(t *testing.T) {
	t.Parallel()
	root, ok := local.FindModule(".")
	if !ok {
		t.Fatal("not in a module with functions")
	}
	functions, err := local.BuildFunctions(t.Context(), root, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out, logs bytes.Buffer
	report, err := demo.Run(t.Context(), demo.Config{Functions: functions, Out: &out, Logs: &logs})
	if errors.Is(err, demo.ErrNoSamples) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s\nThe worker's log:\n%s", err, out.String(), logs.String())
	}
	t.Log(out.String())
	for _, want := range []string{"capacity adds up", "one transition each", "one acceptance each", "nothing lost"} {
		if !strings.Contains(out.String(), "ok    "+want) {
			t.Errorf("no check %q", want)
		}
		if !slices.ContainsFunc(report.Checks, func(c demo.Check) bool { return c.Name == want && c.OK }) {
			t.Errorf("the report has no check %q", want)
		}
	}
}
