package acklast

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"acklast/internal/job"
)

// A mistake in a program that uses the face is reported where it is made, and not by a nil pointer later.
func TestMisuseIsNamed(t *testing.T) {
	d := Definition[struct{}]{Name: "k", Key: func(struct{}) (string, []string) { return "s", nil }}
	none := func(context.Context, Services) (Runner[struct{}], error) { return nil, nil }
	some := func(context.Context, Services) (Runner[struct{}], error) { return RunnerFunc[struct{}](nil), nil }
	services := NewServices(aws.Config{Region: "us-east-1"}, "s", nil)
	for name, tt := range map[string]struct {
		do   func() error
		want string
	}{
		"no constructor":        {func() error { Define(d, nil); return nil }, "needs the constructor"},
		"no key":                {func() error { Define(Definition[struct{}]{Name: "k"}, some); return nil }, "needs a name and a key"},
		"the engine's own kind": {func() error { Define(Definition[struct{}]{Name: job.SmokeKind, Key: d.Key}, some); return nil }, "engine's own"},
		"no runner":             {func() error { _, err := Define(d, none).Start(t.Context(), services); return err }, "returned no runner"},
		"zero kind":             {func() error { _, err := Kind{}.Start(t.Context(), services); return err }, "Define did not make"},
		"zero services":         {func() error { _, err := Define(d, some).Start(t.Context(), Services{}); return err }, "use NewServices"},
		"zero kind in a function": {func() error {
			return inProcess(nil, func(any) {}).start(nil, []Kind{{}}, func(context.Context, []Kind) error { return nil })
		}, "Define did not make"},
		"no outcome": {func() error { return (&Job[struct{}]{attempt: &attempt{}}).Commit(t.Context(), "") }, "needs an outcome"},
		"no outcome for several": {func() error {
			return CommitTogether(t.Context(), "", []*Job[struct{}]{{attempt: &attempt{}}}, nil, nil)[0]
		}, "needs an outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("%v", p)
					}
				}()
				return tt.do()
			}()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error that says %q", err, tt.want)
			}
		})
	}
}

// A failure without an error still has a text.
func TestFailuresOfNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		class job.Class
	}{"transient": {Transient(nil), job.Transient}, "throttled": {Throttled(nil, 0), job.Throttled}} {
		if got := tt.err.Error(); got == "" {
			t.Errorf("%s: no text", name)
		}
		var f *job.Failure
		if !errors.As(tt.err, &f) || f.Class != tt.class {
			t.Errorf("%s: %v has no class %s", name, tt.err, tt.class)
		}
	}
}

// The environment of a test is not a function's: only a function's start reads the environment.
func TestNewServicesReadsNoEnvironment(t *testing.T) {
	t.Setenv("SHOP_URL", "http://127.0.0.1:1")
	if got := NewServices(aws.Config{}, "s", nil).Getenv("SHOP_URL"); got != "" {
		t.Errorf("SHOP_URL is %q, want nothing of the test's own environment", got)
	}
}
