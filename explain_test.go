package acklast

import (
	"context"
	"errors"
	"strings"
	"testing"
)

type explainer struct{ RunnerFunc[struct{}] }

func (explainer) Explain(_ context.Context, subject string) ([]Fact, error) {
	return []Fact{{Name: "subject", Value: subject}}, nil
}

// starting returns a kind of the given name, and a counter of its starts.
func starting(name string, runner Runner[struct{}], err error) (kind Kind, starts *int) {
	starts = new(int)
	return Define(Definition[struct{}]{Name: name, Key: func(struct{}) (string, []string) { return "s", nil }},
		func(context.Context, Services) (Runner[struct{}], error) {
			*starts++
			return runner, err
		}), starts
}

func TestAKindIsStartedWhenItIsFirstAsked(t *testing.T) {
	asked, n := starting("asked", explainer{}, nil)
	other, m := starting("other", explainer{}, nil)
	s := &starts{kinds: []Kind{other, asked}}
	for range 2 {
		k, err := s.start(t.Context(), "asked")
		if err != nil {
			t.Fatal(err)
		}
		facts, err := k.Explain(t.Context(), "r-1")
		if err != nil || len(facts) != 1 || facts[0] != (Fact{Name: "subject", Value: "r-1"}) {
			t.Errorf("facts %+v, %v", facts, err)
		}
	}
	if *n != 1 {
		t.Errorf("the kind that was asked was started %d times, want once", *n)
	}
	if *m != 0 {
		t.Errorf("the other kind was started %d times, want never", *m)
	}
}

func TestARunnerNeedNotExplain(t *testing.T) {
	kind, _ := starting("silent", RunnerFunc[struct{}](nil), nil)
	k, err := (&starts{kinds: []Kind{kind}}).start(t.Context(), "silent")
	if err != nil {
		t.Fatal(err)
	}
	if k.Explain != nil {
		t.Error("it explains")
	}
}

// A kind that could not be started is tried again, because the reason may have gone.
func TestAKindThatCannotBeStarted(t *testing.T) {
	kind, n := starting("unset", nil, errors.New("SHOP_URL is not set"))
	s := &starts{kinds: []Kind{kind}}
	for range 2 {
		if _, err := s.start(t.Context(), "unset"); err == nil || !strings.Contains(err.Error(), "SHOP_URL") {
			t.Errorf("%v, want an error that names SHOP_URL", err)
		}
	}
	if *n != 2 {
		t.Errorf("it was started %d times, want 2", *n)
	}
}

func TestAKindThatNobodyKnows(t *testing.T) {
	if _, err := (&starts{}).start(t.Context(), "no.such"); err == nil || !strings.Contains(err.Error(), "no.such") {
		t.Errorf("%v, want an error that names no.such", err)
	}
}
