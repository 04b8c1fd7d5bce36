// Package marks finds a mark in a text, also if the text is escaped or encoded. It is for tests that search logs for
// what must not be in them.
package marks

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// New makes a mark of a name, which is letters and digits. No escape changes a mark.
func New(name string) string { return "mark7of" + name + "7" }

// In says in which form a text has the mark, "" if it has it in none.
func In(text, mark string) (form string) {
	if strings.Contains(strings.ToLower(text), strings.ToLower(mark)) {
		return "plain or escaped"
	}
	if strings.Contains(strings.ToLower(text), hex.EncodeToString([]byte(mark))) {
		return "hex"
	}
	// The mark's place in what was encoded decides its first and last characters.
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + mark))
		inner := encoded[4 : len(encoded)-4]
		if strings.Contains(text, inner) || strings.Contains(text, strings.NewReplacer("+", "-", "/", "_").Replace(inner)) {
			return "base64"
		}
	}
	return ""
}
