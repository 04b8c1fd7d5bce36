package redrive

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/go-json-experiment/json/jsontext"
)

// diff shows what changes from one body to another, line by line. JSON is indented first, so that a change
// of one field is a change of one line.
func diff(before, after string) string {
	a, b := linesOf(before), linesOf(after)
	if before != after && a == b { // they differ in white space alone
		a, b = terminated(before), terminated(after)
	}
	var out strings.Builder
	write := func(mark, text string) {
		for line := range strings.Lines(text) {
			out.WriteString(mark + line)
		}
	}
	at := 0
	for _, edit := range udiff.Lines(a, b) {
		write("  ", a[at:edit.Start])
		write("- ", a[edit.Start:edit.End])
		write("+ ", edit.New)
		at = edit.End
	}
	write("  ", a[at:])
	return out.String()
}

// linesOf are a body's lines, indented if it is JSON.
func linesOf(body string) string {
	value := jsontext.Value(body)
	if value.Indent(jsontext.WithIndent("  ")) == nil {
		body = string(value)
	}
	return terminated(body)
}

// terminated is a text whose last line has an end.
func terminated(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
