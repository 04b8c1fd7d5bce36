package job

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
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

// A payload without volatile fields is not taken apart first. The digest is the same as if it were: entries have
// digests of both ways.
func TestDigestOfAPayloadAsItIs(t *testing.T) {
	value := rapid.SampledFrom([]string{
		`0`, `-0`, `1`, `1.0`, `1e2`, `1E+2`, `0.1`, `9007199254740993`, `-12345678901234567890`, `1e400`, `true`, `null`, `""`, `"a"`, `"\u0061"`, `"\u20ac\/"`,
		`"é"`, `"\ud834\udd1e"`, `"\ud834"`, "\"\xff\"", `[]`, `[1, 2.0]`, `{}`, `{"b" : 1, "a":{"d":1,"c":2}}`, `{"a":1,"a":2}`, `{`, `tru`,
	})
	name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"é"`, `"zz"`, `"𝄞"`, `""`})
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			members = append(members, name.Draw(t, "name")+rapid.SampledFrom([]string{":", " : "}).Draw(t, "colon")+value.Draw(t, "value"))
		}
		payload := "{" + strings.Join(members, rapid.SampledFrom([]string{",", " , "}).Draw(t, "comma")) + "}"
		if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
			payload = value.Draw(t, "value")
		}
		asItIs, err := Digest(jsontext.Value(payload), nil)
		apart, apartErr := Digest(jsontext.Value(payload), []string{"no such field"})
		if (err == nil) != (apartErr == nil) {
			t.Fatalf("%s: as it is %v, apart %v", payload, err, apartErr)
		}
		if asItIs != apart {
			t.Fatalf("%s: as it is %s, apart %s", payload, asItIs, apart)
		}
	})
}
