package stack

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/template anew")

// The summary shows a reviewer what a change does to the deployed system, with a file for each type of resource. It
// asserts nothing by itself: what must hold is asserted elsewhere. In a conflict, write it anew and never merge it by
// hand: go test ./infra/stack -run Summary -update
func TestSummary(t *testing.T) {
	const folder = "testdata/template"
	got := standardTemplate(t).summary(t)
	if *update {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range got {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, file := range found {
		raw, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		want[file.Name()] = string(raw)
	}
	if !maps.Equal(got, want) {
		for _, file := range slices.Sorted(maps.Keys(mergeNames(got, want))) {
			equal(t, file, strings.Split(got[file], "\n"), strings.Split(want[file], "\n"))
		}
		t.Error("the template changed; if that is meant: go test ./infra/stack -run Summary -update")
	}
}

func mergeNames(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// A version's logical id ends in the hash of its function's properties.
var versionHash = regexp.MustCompile(`[0-9a-f]{32,}`)

// summary has a file for each type, with a paragraph for each resource and a line for each of its properties. What
// other tests list in full, or what changes with every build, is cut short.
func (tm template) summary(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]*strings.Builder{}
	for _, id := range slices.Sorted(maps.Keys(tm.Resources)) {
		r := tm.Resources[id]
		name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(r.Type, "AWS::"), "::", "-")) + ".txt"
		if files[name] == nil {
			files[name] = &strings.Builder{}
		}
		out := files[name]
		out.WriteString(id)
		if r.DeletionPolicy != "" {
			fmt.Fprintf(out, " (%s)", r.DeletionPolicy)
		}
		out.WriteString("\n")
		switch r.Type {
		case "AWS::CloudWatch::Alarm":
			line, _ := tm.watched(r.Properties)
			fmt.Fprintf(out, "\t%s\n\t≥ %.0f in %v of %v periods\n", line, r.Properties["Threshold"], r.Properties["DatapointsToAlarm"], r.Properties["EvaluationPeriods"])
			continue
		case "AWS::CloudWatch::Dashboard":
			for _, w := range tm.widgets(t) {
				fmt.Fprintf(out, "\t%s: %d\n", w.title, len(w.series))
			}
			continue
		case "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy":
			may := tm.allowed(t, id)
			slices.Sort(may)
			fmt.Fprintf(out, "\t%s\n", strings.Join(may, "\n\t"))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
			if name == "Code" {
				continue
			}
			value, err := json.Marshal(tm.resolve(r.Properties[name]))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(out, "\t%s: %s\n", name, value)
		}
	}
	all := map[string]string{}
	for name, text := range files {
		all[name] = versionHash.ReplaceAllString(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(text.String()), "…")
	}
	return all
}
