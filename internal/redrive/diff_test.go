package redrive

import (
	"fmt"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	for name, tt := range map[string]struct{ before, after, want string }{
		"a field":         {`{"a":1,"b":2}`, `{"a":1,"b":3}`, "  {\n    \"a\": 1,\n-   \"b\": 2\n+   \"b\": 3\n  }\n"},
		"no JSON":         {"x\ny\nz", "x\nz", "  x\n- y\n  z\n"},
		"nothing before":  {"", `{"a":1}`, "+ {\n+   \"a\": 1\n+ }\n"},
		"white space":     {`{"a":1}`, `{"a": 1}`, "- {\"a\":1}\n+ {\"a\": 1}\n"},
		"moved":           {"a\nb\nc\nd", "b\nc\na\nd", "- a\n  b\n  c\n+ a\n  d\n"},
		"nothing differs": {"a", "a", "  a\n"},
	} {
		if got := diff(tt.before, tt.after); got != tt.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, tt.want)
		}
	}
}

// Two long texts that differ in every line are compared in bounded time and memory, and shown whole.
func TestDiffOfLongTexts(t *testing.T) {
	var a, b strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&a, "a", i)
		fmt.Fprintln(&b, "b", i)
	}
	got := strings.Split(diff(a.String(), b.String()), "\n")
	if len(got) != 6001 || got[0] != "- a 0" || got[3000] != "+ b 0" {
		t.Errorf("%d lines, the first %q, the 3,001st %q", len(got), got[0], got[3000])
	}
}
