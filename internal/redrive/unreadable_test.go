package redrive_test

import (
	"strings"
	"testing"

	"acklast/internal/redrive"
)

// People paste requests into the Lambda console. Each mistake is told in words, without the decoder's own.
func TestAPastedRequestIsRefusedInWords(t *testing.T) {
	for raw, wanted := range map[string]string{
		"":                              "it is empty",
		"\ufeff{\"action\":\"status\"}": "byte order mark",
		"\xff\xfe{\x00}\x00":            "UTF-16",
		"\x00{\x00}":                    "zero byte",
		`{"action":"status"`:            "ends too early",
		`{"action":status}`:             "no JSON from byte 11",
		`[]`:                            "a JSON array; want an object",
		`"status"`:                      "a JSON string; want an object",
		`{"action":1}`:                  "action is a JSON number",
		`{"action":"plan","count":"3"}`: "count is a JSON string",
		`{"action":"plan","select":{"classes":"x"}}`: "select.classes is a JSON string",
		`{"action":"plan","filters":"x"}`:            `it has the field "filters", which no action has`,
		`{"action":"status"} x`:                      "followed by something else",
	} {
		_, err := redrive.DecodeRequest([]byte(raw))
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: %v, want %q", raw, err, wanted)
			continue
		}
		if strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "invalid character") {
			t.Errorf("%q: the decoder's own words: %v", raw, err)
		}
	}
}
