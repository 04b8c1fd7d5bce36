package job

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		"connection reset by peer":        "connection reset by peer",
		"status 503: try again in 2.5s":   "status #: try again in #",
		"dial tcp 10.0.0.1:443: refused":  "dial tcp #:#: refused",
		"reservation r-1042 is held":      "reservation # is held",
		"request 3f1c2a9e-0000-4c1b-9d2e": "request #",
		"due 2026-12-02T06:14:05.123Z":    "due #",
		"due 2026-12-02 06:14":            "due #",
		"no mailbox ada@example.com":      "no mailbox #",
		`wrong type at "/payload/units"`:  `wrong type at "/payload/units"`,
		"key k/r-1/hold-2,  second line":  "key k/#/#, second line",
		"größe 12":                        "größe #",
	} {
		if got := Fingerprint(text); got != want {
			t.Errorf("Fingerprint(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestFingerprintIsBounded(t *testing.T) {
	t.Parallel()
	got := Fingerprint(strings.Repeat("ä", 500))
	if len(got) > maxFingerprint || len(got) < maxFingerprint-3 {
		t.Errorf("it has %d bytes, want about %d", len(got), maxFingerprint)
	}
	if !utf8.ValidString(got) {
		t.Errorf("%q is not UTF-8", got)
	}
}

// A group would fall apart if masking a masked text changed it again.
func TestFingerprintOfItself(t *testing.T) {
	t.Parallel()
	once := Fingerprint("order o-17 of ada@example.com at 2026-12-02T06:14:05+01:00 took 3 tries")
	if again := Fingerprint(once); again != once {
		t.Errorf("it became %q, was %q", again, once)
	}
}
