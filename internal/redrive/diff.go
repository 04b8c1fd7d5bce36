package redrive

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDiff bounds the table of a diff's comparison; two texts that need a larger one are shown whole.
const maxDiff = 4 << 20

// diff shows what changes from one body to another, line by line. JSON is indented first, so that a change
// of one field is a change of one line.
func diff(before, after string) string {
	a, b := linesOf(before), linesOf(after)
	if before != after && strings.Join(a, "\n") == strings.Join(b, "\n") { // they differ in white space alone
		a, b = strings.Split(before, "\n"), strings.Split(after, "\n")
	}
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var out strings.Builder
	write := func(mark string, lines []string) {
		for _, line := range lines {
			out.WriteString(mark + line + "\n")
		}
	}
	write("  ", a[:start])
	changed(a[start:len(a)-end], b[start:len(b)-end], write)
	write("  ", a[len(a)-end:])
	return out.String()
}

// changed writes the lines that differ, by the longest common subsequence.
func changed(a, b []string, write func(string, []string)) {
	if len(a)*len(b) > maxDiff {
		write("- ", a)
		write("+ ", b)
		return
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			write("  ", a[i:i+1])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			write("- ", a[i:i+1])
			i++
		default:
			write("+ ", b[j:j+1])
			j++
		}
	}
}

// linesOf are a body's lines, indented if it is JSON.
func linesOf(body string) []string {
	if body == "" {
		return nil
	}
	value := jsontext.Value(body)
	if value.Indent(jsontext.WithIndent("  ")) == nil {
		body = string(value)
	}
	return strings.Split(strings.TrimSuffix(body, "\n"), "\n")
}
