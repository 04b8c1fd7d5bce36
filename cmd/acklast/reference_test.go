package main

import (
	"cmp"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"acklast/internal/redrive"
)

var update = flag.Bool("update", false, "write what the tests check in docs anew")

const reference = "../../docs/cli.md"

// TestReference compares docs/cli.md with the commands and with the types of their answers.
func TestReference(t *testing.T) {
	page := newReference(leaves(t))
	want := page.String()
	for _, field := range page.untold {
		t.Errorf("the field %s has no meaning: comment on it in its type, or add it to reference_words_test.go", field)
	}
	for field := range fieldWords {
		if !page.told[field] {
			t.Errorf("reference_words_test.go has the field %s, which no answer has, or which has a comment of its own", field)
		}
	}
	if *update {
		if err := os.WriteFile(reference, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) == want {
		return
	}
	haveLines, wantLines := strings.Split(string(have), "\n"), strings.Split(want, "\n")
	for i, line := range wantLines {
		if i >= len(haveLines) || haveLines[i] != line {
			t.Fatalf("docs/cli.md is not current from line %d: %q is missing. Write it with: go test ./cmd/acklast -run TestReference -update", i+1, line)
		}
	}
	t.Fatal("docs/cli.md has lines that are no longer true. Write it with: go test ./cmd/acklast -run TestReference -update")
}

// referencePage is the page, and the types that it still has to describe.
type referencePage struct {
	strings.Builder
	types map[string]reflect.Type
	// comments are the fields' comments, by package.
	comments map[string]map[string]string
	// untold are the fields without a meaning, told those whose meaning stands in fieldWords.
	untold []string
	told   map[string]bool
}

func newReference(all map[string]*cobra.Command) *referencePage {
	p := &referencePage{types: map[string]reflect.Type{}, comments: map[string]map[string]string{}, told: map[string]bool{}}
	root := newRoot(&app{getenv: func(string) string { return "" }})
	p.WriteString("# The commands of acklast\n\n<!-- Generated from the commands: go test ./cmd/acklast -run TestReference -update -->\n\n")
	fmt.Fprintf(p, "Every command takes these flags:\n\n%s", flagTable(root.PersistentFlags()))
	p.WriteString(`
## Exit codes

| code | meaning |
| --- | --- |
`)
	for _, line := range []struct {
		code    int
		meaning string
	}{
		{exitOK, "the command did its work"},
		{exitFailed, "it did not do its work, or not all of it"},
		{exitRefused, "the command line, its input or the present state does not allow it; nothing was changed"},
		{exitStopped, "a redrive halted itself, or was halted"},
		{exitUnwell, "a redrive is done, and not every message of its plan ended well"},
		{exitInterrupted, "a redrive's process ended without a report; the run can be continued"},
	} {
		fmt.Fprintf(p, "| %d | %s |\n", line.code, line.meaning)
	}
	p.WriteString(`
The answer goes to standard output, everything else to standard error. With ` + "`--output json`" + ` the answer is one JSON document
of the type that the command's part names; [JSON answers](#json-answers) describes the types. A new version adds fields;
if one is renamed or removed, the changelog says so. ` + "`acklast dlq --list`" + ` writes one [Listed](#redrivelisted) for each line.
Characters that could control a terminal are replaced in tables and in errors, and escaped in JSON.

An error is plain text on standard error also with ` + "`--output json`" + `, as it is by default with the AWS CLI, gh and kubectl.
Standard error also has notes for people, such as the place of a change and the progress, so read the exit code in a program and log the text.
With ` + "`--output json`" + ` standard output is empty or has whole JSON documents, whatever goes wrong; ` + "`acklast ... | jq`" + ` never sees an error's text.
`)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		cmd := all[name]
		fmt.Fprintf(p, "\n## acklast %s\n\n%s.\n\n```\n%s\n```\n\n%s\n", name, cmd.Short, cmd.UseLine(), prose(cmd.Long))
		if flags := flagTable(cmd.LocalFlags()); flags != "" {
			fmt.Fprintf(p, "\n%s", flags)
		}
		fmt.Fprintf(p, "\n```sh\n%s\n```\n", unindent(cmd.Example))
		if answer := commands[name].answer; answer != nil {
			fmt.Fprintf(p, "\nJSON: %s.\n", p.link(reflect.TypeOf(answer)))
		}
	}
	p.link(reflect.TypeFor[redrive.Listed]()) // dlq --list
	p.describe()
	return p
}

// flagTable is a table of flags, or nothing if there are none.
func flagTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		if f.Name == "stack" { // every clone may have its own
			usage += " (default: topology.DefaultStack)"
		} else if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" {
			usage += fmt.Sprintf(" (default: %s)", f.DefValue)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, cell(usage))
	})
	if b.Len() == 0 {
		return ""
	}
	return "| flag | meaning |\n| --- | --- |\n" + b.String()
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s) }

// prose is a help text as Markdown: its indented lines are code.
func prose(long string) string {
	var out []string
	code := false
	for line := range strings.SplitSeq(long, "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != code {
			out, code = append(out, "```"), indented
		}
		out = append(out, line)
	}
	if code {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

func unindent(s string) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		out = append(out, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(out, "\n")
}

// link names a type as it appears in JSON, and notes that it is to be described.
func (p *referencePage) link(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time, RFC 3339"
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return "any JSON"
	case t.Kind() == reflect.Pointer:
		return p.link(t.Elem())
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()), t.Kind() == reflect.String:
		return "string"
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return "string, written by its own rule"
	case t == reflect.TypeFor[time.Duration]():
		return "number, nanoseconds"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "string, base64"
	case t.Kind() == reflect.Slice:
		return "list of " + p.link(t.Elem())
	case t.Kind() == reflect.Map:
		return "object, each value a " + p.link(t.Elem())
	case t.Kind() == reflect.Struct:
		p.types[t.String()] = t
		return fmt.Sprintf("[%s](#%s)", shortName(t), strings.ToLower(strings.ReplaceAll(t.String(), ".", "")))
	}
	return "number"
}

func shortName(t reflect.Type) string { return strings.TrimPrefix(t.String(), "main.") }

// describe describes the types and those in their fields.
func (p *referencePage) describe() {
	p.WriteString("\n## JSON answers\n\nA field that may be absent is absent if it does not apply, or if it is empty.\n")
	told := map[string]bool{}
	for {
		var next string
		for name := range p.types {
			if !told[name] && (next == "" || name < next) {
				next = name
			}
		}
		if next == "" {
			return
		}
		told[next] = true
		t := p.types[next]
		fmt.Fprintf(p, "\n<a id=\"%s\"></a>\n### %s\n\n| field | type | meaning |\n| --- | --- | --- |\n",
			strings.ToLower(strings.ReplaceAll(next, ".", "")), shortName(t))
		p.fields(t)
	}
}

func (p *referencePage) fields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			p.fields(f.Type)
			continue
		case !f.IsExported() || name == "-":
			continue
		}
		kind := p.link(f.Type)
		if strings.Contains(options, "omit") {
			kind += ", may be absent"
		}
		fmt.Fprintf(p, "| `%s` | %s | %s |\n", cmp.Or(name, f.Name), kind, cell(p.meaning(t, f, cmp.Or(name, f.Name))))
	}
}

// meaning is what a field means: a text for this field, or else the first sentence of its comment, or else the text
// for all fields of its name in JSON.
func (p *referencePage) meaning(t reflect.Type, f reflect.StructField, name string) string {
	field := t.String() + "." + f.Name
	module := strings.TrimSuffix(reflect.TypeFor[redrive.Listed]().PkgPath(), "internal/redrive") // a clone has its own name
	dir := "../../" + strings.TrimPrefix(t.PkgPath(), module)
	if t.PkgPath() == "main" || strings.HasPrefix(t.String(), "main.") {
		dir = "."
	}
	if p.comments[dir] == nil {
		p.comments[dir] = fieldComments(dir)
	}
	if comment := p.comments[dir][t.Name()+"."+f.Name]; comment != "" {
		sentence, _, _ := strings.Cut(comment, ". ")
		for _, verb := range []string{" is ", " are "} {
			if rest, ok := strings.CutPrefix(sentence, f.Name+verb); ok {
				sentence = rest
			}
		}
		return strings.TrimSuffix(sentence, ".")
	}
	if text := fieldWords[field]; text != "" {
		p.told[field] = true
		return text
	}
	if commonWords[name] == "" {
		p.untold = append(p.untold, field)
	}
	return commonWords[name]
}

// fieldComments are the comments on the fields of a package's types, by type and field.
func fieldComments(dir string) map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.go")) // the pattern is not malformed
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			continue // then nothing compiles
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			named, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := named.Type.(*ast.StructType); ok {
				for _, field := range of.Fields.List {
					for _, name := range field.Names {
						found[named.Name.Name+"."+name.Name] = strings.Join(strings.Fields(cmp.Or(field.Doc.Text(), field.Comment.Text())), " ")
					}
				}
			}
			return true
		})
	}
	return found
}
