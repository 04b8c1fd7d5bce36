package job

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxFingerprint bounds a fingerprint, in bytes.
const maxFingerprint = 160

// The parts that differ between two occurrences of one error: times, addresses of people, and words with a
// digit, which are numbers and ids.
var varying = []*regexp.Regexp{
	regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?`),
	regexp.MustCompile(`[^\s<>"']+@[^\s<>"':,;]+`),
	regexp.MustCompile(`[\pL_-]*\d+(\.\d+)*[\pL\d_-]*`),
}

// Fingerprint returns the part of an error's text that is the same for other jobs: the text with "#" for each
// time, address, number and id. People read it, and programs group by it.
func Fingerprint(text string) string {
	for _, v := range varying {
		text = v.ReplaceAllLiteralString(text, "#")
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxFingerprint {
		return text
	}
	cut := maxFingerprint
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
