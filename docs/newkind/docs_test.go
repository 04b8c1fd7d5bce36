package newkind_test

import (
	"os"
	"strings"
	"testing"
)

// The code in docs/new-kind.md and in the README is the code that is compiled and tested here.
func TestTheDocumentQuotesThisCode(t *testing.T) {
	flat := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return strings.Trim(strings.Join(lines, "\n"), "\n")
	}
	var source string
	for _, file := range []string{"newkind.go", "notify.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source += flat(string(text))
	}
	for page, want := range map[string]int{"../new-kind.md": 5, "../../README.md": 1} {
		doc, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(doc), "```go\n")[1:]
		if len(blocks) != want {
			t.Errorf("%s has %d blocks of Go, want %d", page, len(blocks), want)
		}
		for _, block := range blocks {
			code, _, _ := strings.Cut(block, "```")
			if !strings.Contains(source, flat(code)) {
				t.Errorf("%s quotes what is not in the source:\n%s", page, code)
			}
		}
	}
}
