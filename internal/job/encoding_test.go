package job

import (
	"strings"
	"testing"
)

func TestCheckEncoding(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		`{"kind":"k"}`:            "",
		"ü\u2028":                 "",
		"\ufeff{}":                "byte order mark",
		"\xff\xfe{\x00}\x00":      "UTF-16",
		"\xfe\xff\x00{\x00}":      "UTF-16",
		"{\x00}\x00":              "zero byte", // UTF-16 without a mark
		"{}\ufeff":                "",          // within a text, it is a character
		"\x7fELF\x02\x01\x01\x00": "zero byte",
	} {
		err := CheckEncoding([]byte(text))
		if want == "" && err != nil {
			t.Errorf("%q: %v, want no error", text, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
