//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"acklast/internal/redrive"
)

// byHand lists the commands of the docs that no test runs.
const byHand = "docs/commands-by-hand.md"

// elsewhere are commands that other tests run: the file and the test.
var elsewhere = map[string][2]string{
	"acklast console":         {"cmd/acklast/console_test.go", "TestConsole"},
	"acklast console --write": {"cmd/acklast/console_browser_test.go", "TestBrowserStory"},
	"bin/desk hold --reservation r-1 --command hold-1 --resource room-7 --units 1 --for 10s --capacity 5": {"internal/e2e/try_test.go", "TestTheCommandsThatLocalPrints"},
}

// shown is one command of the docs.
type shown struct {
	// text is the command on one line, as the docs have it. The path of our own program is left out.
	text string
	// words are what the program gets, and parsed says that they need no shell to be known.
	words  []string
	parsed bool
	// where are the places in the docs.
	where []string
}

var fence = regexp.MustCompile("^ *```(.*)$")

// documents are the pages with commands, from the module's root.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/example/README.md"} {
		pages = append(pages, filepath.Join("../..", page))
	}
	return pages
}

// commandsInDocs returns all commands in the docs' shell blocks.
func commandsInDocs(t *testing.T) map[string]*shown {
	t.Helper()
	found := map[string]*shown{}
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, inside, language, first := strings.TrimPrefix(page, "../../"), false, "", 0
		var block strings.Builder
		for i, line := range strings.Split(string(text), "\n") {
			if m := fence.FindStringSubmatch(line); m != nil {
				if inside && language == "sh" {
					commandsOf(t, fmt.Sprintf("%s:%d", name, first), block.String(), found)
				}
				inside, language, first = !inside, m[1], i+1
				block.Reset()
				if inside && !slices.Contains([]string{"", "sh", "go", "json", "text", "mermaid"}, language) {
					t.Errorf("%s:%d: a block of %q: this test would overlook its commands; shell blocks are marked sh", name, i+1, language)
				}
				continue
			}
			block.WriteString(line + "\n")
			// The reference has lines of use in such blocks.
			if inside && language == "" && name != "docs/cli.md" && regexp.MustCompile(`^(\$ |acklast |bin/|make |aws |npx |go |git )`).MatchString(line) {
				t.Errorf("%s:%d: a command in a block without a language: mark the block sh, or text if it is output", name, i+1)
			}
		}
	}
	return found
}

// commandsOf adds the commands of a block: those of pipes, of lists and of substitutions too.
func commandsOf(t *testing.T, where, block string, found map[string]*shown) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(block), where)
	if err != nil {
		t.Errorf("%s: no shell reads this: %v", where, err)
		return
	}
	printer := syntax.NewPrinter(syntax.SingleLine(true))
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		var text strings.Builder
		if err := printer.Print(&text, call); err != nil {
			t.Fatal(err)
		}
		one := strings.Join(strings.Fields(strings.ReplaceAll(text.String(), "\\\n", " ")), " ")
		one = strings.TrimPrefix(strings.TrimPrefix(one, "../../"), "bin/acklast ")
		if strings.Contains(text.String(), "bin/acklast ") {
			one = "acklast " + one
		}
		if found[one] == nil {
			c := &shown{text: one, parsed: true}
			for _, arg := range call.Args {
				syntax.Walk(arg, func(n syntax.Node) bool {
					switch n.(type) {
					case *syntax.CmdSubst, *syntax.ParamExp:
						c.parsed = false
					}
					return true
				})
			}
			if c.parsed {
				if c.words, err = expand.Fields(nil, call.Args...); err != nil {
					t.Errorf("%s: %s: %v", where, one, err)
				}
				if strings.HasSuffix(c.words[0], "bin/acklast") {
					c.words[0] = "acklast"
				}
			}
			found[one] = c
		}
		found[one].where = append(found[one].where, where)
		return true
	})
}

// typed checks that a command line can be typed: the command, its flags and its arguments.
func typed(words []string) error {
	root := newRoot(&app{getenv: func(string) string { return "" }})
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%q is no command of %s", strings.Join(rest, " "), cmd.CommandPath())
	}
	if err := cmd.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
}

// handList reads the page of the commands that no test runs: each with its reason and with the date, or never.
func handList(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../" + byHand)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]bool{}
	row := regexp.MustCompile("^\\| `(.+)` \\| (.+) \\| (.+) \\|$")
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s: no row of three cells: %s", byHand, line)
			continue
		}
		command := strings.ReplaceAll(m[1], `\|`, "|")
		if list[command] {
			t.Errorf("%s has %q twice", byHand, command)
		}
		list[command] = true
		if !regexp.MustCompile(`^(never|\d{4}-\d\d-\d\d)$`).MatchString(m[3]) {
			t.Errorf("%s: %q was last run on %q, want a date or never", byHand, command, m[3])
		}
	}
	return list
}

// makeTargets are the Makefile's targets, and those that CI makes.
func makeTargets(t *testing.T) (all, ci []string) {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^for target in (.*); do$`).FindStringSubmatch(string(script))
	if m == nil {
		t.Fatal(".ci/run has no loop over make's targets")
	}
	return all, strings.Fields(m[1])
}

// runsInCI says whether CI makes all targets of a make command.
func runsInCI(t *testing.T, words []string) bool {
	t.Helper()
	all, ci := makeTargets(t)
	runs := true
	for _, word := range words[1:] {
		if strings.Contains(word, "=") {
			runs = false // CI sets no such variable
			continue
		}
		if !slices.Contains(all, word) {
			t.Errorf("the Makefile has no target %q", word)
		}
		runs = runs && slices.Contains(ci, word)
	}
	return runs
}

// Every command in the docs is run by a test, or stands on the list of those that people run by hand.
func TestEveryDocumentedCommandIsRunOrListed(t *testing.T) {
	found, list := commandsInDocs(t), handList(t)
	if len(found) < 50 {
		t.Errorf("found %d commands in the docs, so most are overlooked", len(found))
	}
	for _, text := range slices.Sorted(maps.Keys(found)) {
		c := found[text]
		where := strings.Join(c.where, ", ")
		run := slices.ContainsFunc(documentedStory, func(s documentedStep) bool { return s.line == text })
		if other, ok := elsewhere[text]; ok {
			source, err := os.ReadFile("../../" + other[0])
			if err != nil || !strings.Contains(string(source), "func "+other[1]+"(") {
				t.Errorf("%s: %s has no %s that runs it: %v", text, other[0], other[1], err)
			}
			run = true
		}
		switch {
		case !c.parsed:
		case c.words[0] == "acklast":
			if err := typed(c.words[1:]); err != nil {
				t.Errorf("%s: %s cannot be typed: %v", where, text, err)
			}
		case c.words[0] == "make":
			run = run || runsInCI(t, c.words)
		case c.words[0] == "aws":
			checkPayloads(t, where, c.words)
		}
		switch {
		case run && list[text]:
			t.Errorf("%s stands on %s, and a test runs it", text, byHand)
		case !run && !list[text]:
			t.Errorf("%s: no test runs it, and it does not stand on %s: %s", where, byHand, text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(list)) {
		if found[text] == nil {
			t.Errorf("%s lists a command that the docs do not show: %s", byHand, text)
		}
	}
	for _, s := range documentedStory {
		if found[s.line] == nil {
			t.Errorf("the story runs a command that the docs do not show: %s", s.line)
		}
	}
	for text := range elsewhere {
		if found[text] == nil {
			t.Errorf("another test is named for a command that the docs do not show: %s", text)
		}
	}
}

// checkPayloads reads the JSON in a command of the AWS CLI: a payload is a request that the redrive function accepts.
func checkPayloads(t *testing.T, where string, words []string) {
	t.Helper()
	for i, word := range words {
		if !strings.HasPrefix(word, "{") {
			continue
		}
		if !json.Valid([]byte(word)) {
			t.Errorf("%s: this is not JSON: %s", where, word)
		}
		if words[i-1] == "--payload" {
			if _, err := redrive.DecodeRequest([]byte(word)); err != nil {
				t.Errorf("%s: %s: %v", where, word, err)
			}
		}
	}
}
