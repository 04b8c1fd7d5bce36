package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
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

// place synthesises the system with stubs for the functions.
func place(t *testing.T, s Settings) awscdk.Stack {
	t.Helper()
	dist := t.TempDir()
	for _, name := range []string{"worker", "redrive"} {
		if err := os.MkdirAll(filepath.Join(dist, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dist, name, "bootstrap"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	return newStack(awscdk.NewApp(&awscdk.AppProps{Outdir: &out}), s, dist)
}

func TestDeletionProtectionIsTheStacksToo(t *testing.T) {
	s := DefaultSettings()
	s.DeletionProtection = true
	if st := place(t, s); !*st.TerminationProtection() {
		t.Error("the stack can be deleted")
	}
}

func TestDeploymentSaysThatAlarmsTellNobody(t *testing.T) {
	told := DefaultSettings()
	told.AlarmEmail = "ops@example.com"
	for want, s := range map[int]Settings{1: DefaultSettings(), 0: told} {
		found := assertions.Annotations_FromStack(place(t, s)).
			FindInfo(jsii.String("*"), assertions.Match_StringLikeRegexp(jsii.String("^the alarms tell nobody")))
		if got := len(*found); got != want {
			t.Errorf("with e-mail %q it is said %d times, want %d", s.AlarmEmail, got, want)
		}
	}
}
