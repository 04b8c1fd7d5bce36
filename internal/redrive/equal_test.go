package redrive_test

import (
	"fmt"
	"strings"
)

// reporter is the part of a *testing.T, and of a *bench, that a check needs.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// equal checks one fact, such as "the run's state".
func equal[V comparable](t reporter, got, want V, fact string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", fmt.Sprintf(fact, args...), got, want)
	}
}

// within checks that a number lies in a range.
func within(t reporter, got, least, most int, fact string, args ...any) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s is %d, want %d to %d", fmt.Sprintf(fact, args...), got, least, most)
	}
}

// contains checks that a text has a part.
func contains(t reporter, got, part, fact string, args ...any) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s is %q, want %q in it", fmt.Sprintf(fact, args...), got, part)
	}
}
