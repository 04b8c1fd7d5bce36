package redrive_test

import (
	"slices"
	"testing"
	"time"

	"acklast/internal/redrive"
)

func TestPauseOfAKind(t *testing.T) {
	b := newBench(t)
	paused := func() []string {
		t.Helper()
		names, err := (redrive.Operators{Table: table{b.world}}).Paused(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	name := b.kinds.Names()[0]
	if got := paused(); len(got) != 0 {
		t.Errorf("paused %q before anybody did", got)
	}
	b.refused(redrive.Request{Action: "pause", Kind: name}, "needs a name (by) and a reason")
	b.refused(redrive.Request{Action: "pause", By: "ada", Reason: "r"}, "needs a kind")
	b.refused(redrive.Request{Action: "pause", Kind: "typo", By: "ada", Reason: "r"}, "nobody knows the kind")
	b.refused(redrive.Request{Action: "unpause", Kind: name, By: "ada", Reason: "r"}, "is not paused")
	if got := paused(); len(got) != 0 {
		t.Errorf("a refusal paused %q", got)
	}

	b.must(redrive.Request{Action: "pause", Kind: name, By: "ada", Reason: "a wrong template"})
	if got := paused(); len(got) != 1 || got[0] != name {
		t.Errorf("paused %q, want %q", got, name)
	}
	var told *redrive.Pause
	for _, k := range b.must(redrive.Request{Action: "kinds"}).Kinds {
		if k.Kind == name {
			told = k.Paused
		} else if k.Paused != nil {
			t.Errorf("%s is paused too", k.Kind)
		}
	}
	if told == nil {
		t.Fatal("the pause is not told")
	}
	equal(t, told.By, "ada", "the person who paused it")
	equal(t, told.Reason, "a wrong template", "the reason")

	b.must(redrive.Request{Action: "unpause", Kind: name, By: "bob", Reason: "mended"})
	if got := paused(); len(got) != 0 {
		t.Errorf("still paused: %q", got)
	}
}

// A program that shows a payload learns here which fields it has to hide. An unknown kind names none, and not an empty
// list.
func TestKindsTellWhatIsNeverShown(t *testing.T) {
	b := newBench(t)
	told := map[string][]string{}
	for _, k := range b.must(redrive.Request{Action: "kinds"}).Kinds {
		told[k.Kind] = k.Masked
	}
	for _, k := range b.kinds.Kinds() {
		got, ok := told[k.Name]
		if !ok {
			t.Errorf("%s is not told", k.Name)
		}
		if got == nil {
			t.Errorf("%s: no list is told", k.Name)
		}
		if !slices.Equal(got, k.Masked) {
			t.Errorf("%s masks %q, told %q", k.Name, k.Masked, got)
		}
	}
}

// The documents alone tell what holds for the stack. A run that nobody works on any more is interrupted.
func TestStanding(t *testing.T) {
	b := newBench(t)
	standing := func() redrive.Standing {
		t.Helper()
		st, err := (redrive.Operators{Table: table{b.world}}).Standing(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	fresh := standing()
	equal(t, fresh.Switch.On, false, "whether a new stack's switch is on")
	equal(t, fresh.Run, nil, "a new stack's run")
	equal(t, len(fresh.Paused), 0, "the number of a new stack's pauses")
	name := b.kinds.Names()[0]
	b.must(redrive.Request{Action: "pause", Kind: name, By: "ada", Reason: "a wrong template"})
	b.must(redrive.Request{Action: "stop", By: "grace", Reason: "incident"})
	st := standing()
	if st.Switch.By != "grace" || !st.Switch.On {
		t.Errorf("switch is %+v, want on by grace", st.Switch)
	}
	if len(st.Paused) != 1 {
		t.Fatalf("%d pauses, want 1", len(st.Paused))
	}
	equal(t, st.Paused[0].Kind, name, "the paused kind")
	equal(t, st.Paused[0].Paused.Reason, "a wrong template", "the reason")
}
