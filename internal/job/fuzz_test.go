package job

import (
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"
)

// A wrapper changes nothing of what is in it, and makes nothing readable that is not.
func FuzzWrapped(f *testing.F) {
	for _, seed := range []string{plain, `{"kind":"k","payload":{}}`, `{`, ``, `null`, testEvent, byEventBridgeOf(plain), "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, inner string) {
		if !utf8.ValidString(inner) { // SNS carries text
			return
		}
		bare, bareErr := Decode([]byte(inner))
		wrapped, err := Decode([]byte(bySNSOf(inner)))
		if errors.Is(bareErr, ErrProbe) || errors.Is(err, ErrProbe) {
			return // a probe has its own rule, see TestProbesAreNoJobs
		}
		if err == nil && bareErr != nil {
			t.Fatalf("%q is unreadable (%v) and readable in a wrapper: %+v", inner, bareErr, wrapped)
		}
		if err != nil && AsFailure(err).Class != Invalid {
			t.Fatalf("%q in a wrapper: class %s", inner, AsFailure(err).Class)
		}
		if err == nil && !reflect.DeepEqual(bare, wrapped) {
			t.Fatalf("%q is %+v, and in a wrapper %+v", inner, bare, wrapped)
		}
	})
}

// An attribute that is read is written so that it reads the same; any other one gains nothing.
func FuzzMemory(f *testing.F) {
	for _, seed := range []string{`{}`, `{"v":1,"attempt":3}`, `{"v":9,"x":1}`, `{"attempt":-1}`, `{"key":"a/b","class":"transient","at":"2026-12-01T10:00:00Z"}`, `{"run":"\u0000"}`} {
		f.Add("String", seed)
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		m, err := ParseMemory(Attribute{Type: kind, String: text})
		var newer *NewerError
		if err != nil && !errors.As(err, &newer) && m != (Memory{}) {
			t.Fatalf("%q is refused and gains %+v", text, m)
		}
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if back, err := ParseMemory(again); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%q is %+v, and after a journey %+v, %v", text, m, back, err)
		}
	})
}
