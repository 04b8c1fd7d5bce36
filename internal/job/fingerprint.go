package job

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxFingerprint bounds a fingerprint, in bytes.
const maxFingerprint = 160

// What differs between two occurrences of one error: times, addresses of people, and words with a digit,
// which are numbers and ids.
var varying = []*regexp.Regexp{
	regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?`),
	regexp.MustCompile(`[^\s<>"']+@[^\s<>"':,;]+`),
	regexp.MustCompile(`[\pL_-]*\d+(\.\d+)*[\pL\d_-]*`),
}

// Fingerprint returns what an error's text has in common with the same error of other jobs: the text
// with "#" for each time, address, number and id. It is made for people to read and for programs to
// group by.
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
