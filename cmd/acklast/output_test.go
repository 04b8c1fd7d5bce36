package main

import (
	"strings"
	"testing"
	"time"
)

func TestRowIsPlain(t *testing.T) {
	var b strings.Builder
	row(&b, "a\tb", "c\nd", "\x1b[31mred", 7)
	if got, want := b.String(), "a b\tc d\t�[31mred\t7\n"; got != want {
		t.Errorf("row = %q, want %q", got, want)
	}
}

func TestWhen(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		t    time.Time
		want string
	}{
		{time.Time{}, "-"},
		{now.Add(1500 * time.Millisecond), "2026-12-01T10:00:01.5Z (in 1.5s)"},
		{now.Add(-90 * time.Second), "2026-12-01T09:58:30Z (1m30s ago)"},
		{now.Add(26*time.Hour + time.Second), "2026-12-02T12:00:01Z (in 26h0m)"},
		{now.Add(-100 * time.Hour), "2026-11-27T06:00:00Z (4 days ago)"},
		{now.In(time.FixedZone("", 3600)), "2026-12-01T10:00:00Z (0s ago)"},
	} {
		if got := when(test.t, now); got != test.want {
			t.Errorf("when = %q, want %q", got, test.want)
		}
	}
}

func TestShellWords(t *testing.T) {
	if got, want := shellWords([]string{"./bin/acklast", "--x=a b", "it's", "", "$HOME"}), `./bin/acklast '--x=a b' 'it'\''s' '' '$HOME'`; got != want {
		t.Errorf("shellWords = %s, want %s", got, want)
	}
}
