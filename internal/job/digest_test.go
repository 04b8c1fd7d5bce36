package job

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestDigestIsOfWhatAPayloadSays(t *testing.T) {
	t.Parallel()
	digest := func(payload string) string {
		t.Helper()
		d, err := Digest(jsontext.Value(payload), []string{"traceId"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const one = `{"id":"r-1","units":1,"to":{"a":1,"b":[1,2]}}`
	for name, same := range map[string]string{
		"the order of names":   `{"to":{"b":[1,2],"a":1},"units":1,"id":"r-1"}`,
		"white space":          ` { "id" : "r-1", "units" : 1, "to" : {"a":1,"b":[1,2]} } `,
		"the form of a number": `{"id":"r-1","units":1.0,"to":{"a":1e0,"b":[1,2]}}`,
		"an escape":            `{"id":"\u0072-1","units":1,"to":{"a":1,"b":[1,2]}}`,
		"a volatile field":     `{"id":"r-1","units":1,"traceId":"x","to":{"a":1,"b":[1,2]}}`,
	} {
		if digest(same) != digest(one) {
			t.Errorf("%s makes another digest", name)
		}
	}
	for name, other := range map[string]string{
		"a value":              `{"id":"r-2","units":1,"to":{"a":1,"b":[1,2]}}`,
		"the order of a list":  `{"id":"r-1","units":1,"to":{"a":1,"b":[2,1]}}`,
		"a field more":         `{"id":"r-1","units":1,"x":1,"to":{"a":1,"b":[1,2]}}`,
		"a type":               `{"id":"r-1","units":"1","to":{"a":1,"b":[1,2]}}`,
		"a nested volatile":    `{"id":"r-1","units":1,"to":{"a":1,"b":[1,2],"traceId":1}}`,
		"a large whole number": `{"id":"r-1","units":9007199254740993,"to":{"a":1,"b":[1,2]}}`,
	} {
		if digest(other) == digest(one) {
			t.Errorf("%s makes no other digest", name)
		}
	}
	if digest(`{"n":9007199254740993}`) == digest(`{"n":9007199254740992}`) {
		t.Error("two large whole numbers have one digest")
	}
}

func TestDigestsDiffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1:aa", "1:bb", true}, {"1:aa", "1:aa", false}, {"1:aa", "2:bb", false}, {"", "1:bb", false}, {"1:aa", "", false},
	} {
		if got := DigestsDiffer(c.a, c.b); got != c.want {
			t.Errorf("DigestsDiffer(%q, %q) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestDigestNamesItsRule(t *testing.T) {
	t.Parallel()
	d, err := Digest(jsontext.Value(`{}`), nil)
	if err != nil || !strings.HasPrefix(d, "1:") {
		t.Errorf("got %q, %v, want it to begin with its rule", d, err)
	}
}
