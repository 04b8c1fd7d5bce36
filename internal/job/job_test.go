package job

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestDecode(t *testing.T) {
	const good = `{"kind":"k","payload":{}}`
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	tests := []struct {
		name, body string
		want       string // part of the error, "" when it decodes
	}{
		{"least", good, ""},
		{"unknown fields", `{"kind":"k","payload":{"a":1},"traceId":"x"}`, ""},
		{"white space around", " \n" + good + "\t ", ""},
		{"times", `{"kind":"k","notBefore":"2026-12-01T10:00:00Z","deadline":"2026-12-01T11:00:00+01:00","payload":{}}`, ""},
		{"empty", "", "body is empty"},
		{"blank", " \n", "body is empty"},
		{"cut off", `{"a":`, "not valid JSON"},
		{"null", `null`, "not a JSON object"},
		{"list", `[]`, "not a JSON object"},
		{"plain text", `hello`, "not a JSON object"},
		{"bell", "\x07", "not a JSON object"},
		{"emoji", "😀", "not a JSON object"},
		{"trailing data", good + `{}`, "not valid JSON at byte"},
		{"duplicate names", `{"kind":"k","kind":"l","payload":{}}`, "stands twice"},
		{"duplicate names below", `{"kind":"k","payload":{"a":1,"a":2}}`, "stands twice"},
		{"invalid UTF-8", "{\"kind\":\"k\xff\",\"payload\":{}}", "not valid JSON"},
		{"no kind", `{"payload":{}}`, "kind is missing"},
		{"kind of a wrong type", `{"kind":1,"payload":{}}`, `wrong type or value at "/kind"`},
		{"other case", `{"Kind":"k","payload":{}}`, "kind is missing"},
		{"no payload", `{"kind":"k"}`, "payload is missing"},
		{"null payload", `{"kind":"k","payload":null}`, "payload is missing"},
		{"payload is a list", `{"kind":"k","payload":[]}`, "payload is missing or not an object"},
		{"time without a zone", `{"kind":"k","notBefore":"2026-12-01T10:00:00","payload":{}}`, "RFC 3339 time with a zone"},
		{"time as a number", `{"kind":"k","deadline":1764583200,"payload":{}}`, "RFC 3339 time with a zone"},
		{"deadline before notBefore", `{"kind":"k","notBefore":"2026-12-01T10:00:00Z","deadline":"2026-12-01T09:59:59Z","payload":{}}`, "lies before notBefore"},
		{"control character", `{"kind":"a\u0007b","payload":{}}`, "kind has a control character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := Decode([]byte(tt.body))
			if tt.want == "" {
				if err != nil {
					t.Fatalf("Decode() = %v", err)
				}
				if tt.name == "times" && (!e.NotBefore.Equal(at) || !e.Deadline.Equal(at)) {
					t.Errorf("times are %v and %v, want %v", e.NotBefore, e.Deadline, at)
				}
				return
			}
			var f *Failure
			if !errors.As(err, &f) || f.Class != Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Decode() = %v, want an invalid failure that says %q", err, tt.want)
			}
		})
	}
}

// A decoder's error goes to logs, so it must not quote the body.
func TestDecodeErrorsDoNotQuoteTheBody(t *testing.T) {
	const secret = "hunter2"
	for _, body := range []string{
		secret, `"` + secret + `"`, `{"kind":"k","payload":{}}` + secret, `{"kind":"k","notBefore":"` + secret + `","payload":{}}`,
		`{"kind":{"a":"` + secret + `"},"payload":{}}`, `{"kind":"k","payload":"` + secret + `"}`,
		`{"kind":"k","payload":{"` + secret + `":{"a":1,"a":2}}}`, `{"kind":"k","payload":{},"` + secret + `":1,"` + secret + `":2}`,
	} {
		if _, err := Decode([]byte(body)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Decode(%s) = %v", body, err)
		}
	}
}

// An error names the place of a wrong value only by names that the payload's type declares.
func TestPayloadErrorsNameTheirPlaceAndQuoteNoName(t *testing.T) {
	type inner struct {
		Units int `json:"units"`
	}
	type Base struct {
		Plan int `json:"plan"`
	}
	var p struct {
		Base
		Many  []inner
		Named map[string]inner `json:"named"`
		Raw   jsontext.Value   `json:"raw"`
		At    *time.Time       `json:"at"`
	}
	for body, want := range map[string]string{
		`{"plan":"x"}`:                        `at "/plan", want an integer`,
		`{"Many":[{},{"units":"x"}]}`:         `at "/Many/1/units", want an integer`,
		`{"named":{"hunter2":{"units":"x"}}}`: `at "/named/*/units", want an integer`,
		`{"raw":{"hunter2":{"a":1,"a":2}}}`:   `at "/raw/*"`,
		`{"hunter2":{"a":1,"a":2}}`:           `at "/*"`,
		`{"at":"hunter2"}`:                    `at "/at", want an RFC 3339 time`,
	} {
		if err := DecodePayload([]byte(body), &p); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

func TestDecodePayloadKeepsIntegersExact(t *testing.T) {
	var v struct{ N int64 }
	for raw, want := range map[string]int64{
		`{"N":9007199254740992}`: 9007199254740992, `{"N":9007199254740993}`: 9007199254740993,
	} {
		if err := DecodePayload([]byte(raw), &v); err != nil || v.N != want {
			t.Errorf("DecodePayload(%s) = %d, %v", raw, v.N, err)
		}
	}
	for _, raw := range []string{`{"N":1.5}`, `{"N":1e3}`, `{"N":"1"}`, `{"N":9223372036854775808}`} {
		err := DecodePayload([]byte(raw), &v)
		if AsFailure(err).Class != Invalid || !strings.Contains(err.Error(), `"/N", want an integer`) {
			t.Errorf("DecodePayload(%s) = %v", raw, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "r-1042", strings.Repeat("x", 256), "ü/ %😀", " a "} {
		if err := CheckID("id", id); err != nil {
			t.Errorf("CheckID(%.20q) = %v", id, err)
		}
	}
	for id, want := range map[string]string{
		"": "id is missing", "  ": "id is blank", strings.Repeat("x", 3000): "id has 3000 bytes, more than 256",
		"a\x00b": "control character", "a\u0085": "control character", "\xff": "not UTF-8",
	} {
		err := CheckID("id", id)
		if err == nil || AsFailure(err).Class != Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckID(%.20q) = %v, want %q", id, err, want)
		}
	}
}

func TestKey(t *testing.T) {
	key, err := Key("reservation.expire", "r-1042", "hold-3")
	if err != nil || key != "reservation.expire/r-1042/hold-3" {
		t.Errorf("Key() = %q, %v", key, err)
	}
	if _, err := Key("k", strings.Repeat("/", 256), strings.Repeat("%", 256)); AsFailure(err).Class != Invalid {
		t.Errorf("a key above %d bytes: %v", MaxKey, err)
	}
}

func TestKeysOfDifferentPartsDiffer(t *testing.T) {
	part := rapid.StringOfN(rapid.SampledFrom([]rune("a/%2F")), 0, 6, -1)
	parts := rapid.SliceOfN(part, 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		ka, _ := Key("k", a[0], a[1:]...)
		kb, _ := Key("k", b[0], b[1:]...)
		if (strings.Join(a, "\x00") == strings.Join(b, "\x00") && len(a) == len(b)) != (ka == kb) {
			t.Fatalf("%q → %q, %q → %q", a, ka, b, kb)
		}
	})
}

func TestMemoryOfANewerFormatTravelsUnchanged(t *testing.T) {
	t.Parallel()
	a := Attribute{Type: "String", String: `{"v":2, "attempt": {"total": 3}, "novel":true}`}
	m, err := ParseMemory(a)
	var newer *NewerError
	if !errors.As(err, &newer) || newer.Format != 2 || newer.Known != MemoryFormat {
		t.Errorf("error %v, want a NewerError of format 2", err)
	}
	if m.Attempt != 0 {
		t.Errorf("attempt is %d, want nothing to be read", m.Attempt)
	}
	if got, err := m.Encode(); err != nil || got.String != a.String {
		t.Errorf("it is written as %s, %v, want %s", got.String, err, a.String)
	}
}

func TestMemoryHasItsFormat(t *testing.T) {
	t.Parallel()
	a, err := Memory{Attempt: 1}.Encode()
	if err != nil || a.String != `{"v":1,"attempt":1}` {
		t.Errorf("got %s, %v", a.String, err)
	}
	// This attribute was written before there were formats.
	if m, err := ParseMemory(Attribute{Type: "String", String: `{"attempt":1}`}); err != nil || m.Attempt != 1 {
		t.Errorf("without a format: %+v, %v", m, err)
	}
}

func TestParseMemoryGainsNothingFromForgery(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 10) + "1" + strings.Repeat("}", 10)
	for name, a := range map[string]Attribute{
		"negative":       {Type: "String", String: `{"attempt":-1}`},
		"negative count": {Type: "String", String: `{"contentions":-9}`},
		"text":           {Type: "String", String: `{"attempt":"3"}`},
		"huge":           {Type: "String", String: `{"attempt":99999999999999999999}`},
		"not JSON":       {Type: "String", String: `attempt=3`},
		"too long":       {Type: "String", String: `{"error":"` + strings.Repeat("x", 9000) + `"}`},
		"wrong type":     {Type: "Binary", Binary: []byte(`{"attempt":3}`)},
		"deep":           {Type: "String", String: `{"run":` + deep + `}`},
		"empty":          {Type: "String"},
		"not in SQS":     {Type: "String", String: `{"run":"\uffff"}`},
		"long key":       {Type: "String", String: `{"key":"` + strings.Repeat("k", MaxKey+1) + `"}`},
		"key not SQS's":  {Type: "String", String: `{"key":"a\uffffb"}`},
		"long run":       {Type: "String", String: `{"run":"` + strings.Repeat("x", 600) + `"}`},
	} {
		if m, err := ParseMemory(a); err == nil || m != (Memory{}) {
			t.Errorf("%s: ParseMemory() = %+v, %v, want nothing and an error", name, m, err)
		}
	}
}

func TestMemoryTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Memory{
			Attempt: rapid.IntRange(0, 1000).Draw(t, "attempt"), Contentions: rapid.IntRange(0, 1000).Draw(t, "contentions"),
			Redrives: rapid.IntRange(0, 9).Draw(t, "redrives"), Run: SafeText(rapid.StringN(0, 40, 200).Draw(t, "run")),
			MessageID: SafeText(rapid.StringN(0, 40, 200).Draw(t, "id")),
			FirstSent: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "sent")).UTC(),
			Key:       strings.Repeat("k", rapid.IntRange(0, MaxKey).Draw(t, "key")),
			Class:     Throttled, Cause: CauseTime, Error: SafeText(rapid.String().Draw(t, "error")),
		}
		a, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseMemory(a); err != nil || back != m {
			t.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
	})
}

func TestSafeText(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n": "plain\ttext\n", "bell\x07": "bell\uFFFD", "\xff": "\uFFFD", "\uFFFE😀": "\uFFFD😀",
	} {
		if got := SafeText(in); got != want {
			t.Errorf("SafeText(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "in"))
		got := SafeText(in)
		if len(got) > maxErrorText || !utf8.ValidString(got) || SafeText(got) != got {
			t.Fatalf("SafeText(%q) = %q", in, got)
		}
	})
}

func TestAsFailure(t *testing.T) {
	cause := errors.New("boom")
	wrapped := errors.Join(&Failure{Class: Throttled, RetryAfter: time.Second, Err: cause})
	if f := AsFailure(wrapped); f.Class != Throttled || f.RetryAfter != time.Second || !errors.Is(f, cause) {
		t.Errorf("AsFailure(wrapped) = %+v", f)
	}
	if f := AsFailure(cause); f.Class != ClassUnknown || !errors.Is(f, cause) {
		t.Errorf("AsFailure(unclassified) = %+v", f)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"k","payload":{}}`, `{"kind":"reservation.expire","notBefore":"2026-12-01T10:00:00Z","payload":{"units":1}}`,
		`{"a":`, `null`, `[]`, ``, "\x07", `{"kind":"k","kind":"k","payload":{}}`, `{"kind":"k","payload":{}}x`,
		bySNSOf(plain), byEventBridgeOf(plain), bySNSOf(byEventBridgeOf(plain)), testEvent, bySNSOf(testEvent), `{"Type":"Notification","Message":"{}"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := Decode(body)
		if errors.Is(err, ErrProbe) {
			if e.Kind != "" || e.Payload != nil {
				t.Fatalf("%q is a probe and decoded to %+v", body, e)
			}
			return
		}
		if err != nil {
			if AsFailure(err).Class != Invalid {
				t.Fatalf("%q: class %s", body, AsFailure(err).Class)
			}
			return
		}
		if e.Kind == "" || e.Payload.Kind() != '{' || !utf8.ValidString(e.Kind) {
			t.Fatalf("%q decoded to %+v", body, e)
		}
	})
}
