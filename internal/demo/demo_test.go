package demo_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"acklast/internal/demo"
	"acklast/internal/local"
)

// The story is an end-to-end test: its chapters wait for what they claim, and its checks count.
func TestTheStoryAddsUp(t *testing.T) {
	t.Parallel()
	root, ok := local.FindCheckout(".")
	if !ok {
		t.Fatal("not in a checkout")
	}
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	if err := local.BuildWorker(t.Context(), root, bootstrap, t.Output()); err != nil {
		t.Fatal(err)
	}
	redriver := filepath.Join(t.TempDir(), "redrive")
	if err := local.BuildFunction(t.Context(), root, "redrive", redriver, t.Output()); err != nil {
		t.Fatal(err)
	}
	var out, logs bytes.Buffer
	if err := demo.Run(t.Context(), demo.Config{WorkerBinary: bootstrap, RedriveBinary: redriver, Out: &out, Logs: &logs}); err != nil {
		t.Fatalf("%v\n%s\nThe worker's log:\n%s", err, out.String(), logs.String())
	}
	t.Log(out.String())
	for _, want := range []string{"capacity adds up", "one transition each", "one acceptance each", "nothing lost"} {
		if !strings.Contains(out.String(), "ok    "+want) {
			t.Errorf("no check %q", want)
		}
	}
}
