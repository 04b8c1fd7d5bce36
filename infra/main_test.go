package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// The CDK lives in a child process that serves one caller at a time: no test here runs in parallel.
func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

func TestMissingBinaryIsNamed(t *testing.T) {
	if err := checkDist(t.TempDir()); err == nil || !strings.Contains(err.Error(), "the worker function is not built, run scripts/build-dist.sh") {
		t.Errorf("got %v", err)
	}
}

func TestDeletionProtectionIsTheStacksToo(t *testing.T) {
	dist := t.TempDir()
	for _, name := range []string{"worker", "redrive"} {
		if err := os.MkdirAll(filepath.Join(dist, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dist, name, "bootstrap"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := DefaultSettings()
	s.DeletionProtection = true
	out := t.TempDir()
	if st := newStack(awscdk.NewApp(&awscdk.AppProps{Outdir: &out}), s, dist); !*st.TerminationProtection() {
		t.Error("the stack can be deleted")
	}
}
