// Package version holds the version of this code. It is a constant, since the functions are built without
// stamps of a version control system: the same source has to give the same bytes.
package version

import "fmt"

// Number is the version, by the rules of semantic versioning. CHANGELOG.md says what each version brings.
const Number = "0.2.0"

// Skew says in one sentence that a function has another version than this program; "" if it has the same. other
// is the function's answer. It is empty if the function is older than this report of versions.
func Skew(function, other string) string {
	switch other {
	case Number:
		return ""
	case "":
		return fmt.Sprintf("the %s function does not tell its version, so it is older than this acklast, which is %s: deploy this version", function, Number)
	}
	return fmt.Sprintf("the %s function is acklast %s, and this is acklast %s: deploy this version, or use that one's acklast", function, other, Number)
}
