package newkind_test

import (
	"os"
	"strings"
	"testing"
)

// The code in docs/new-kind.md is the code that is compiled and tested here.
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
	doc, err := os.ReadFile("../new-kind.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "```go\n")[1:]
	if len(blocks) != 5 {
		t.Errorf("%d blocks of Go, want 5", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(source, flat(code)) {
			t.Errorf("not in the source:\n%s", code)
		}
	}
}
