package local

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with the given main package as its worker.
func module(t *testing.T, main string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                     "module example.com/any\n\ngo 1.26\n",
		"functions/worker/main.go":   main,
		"functions/worker/a/b/c.txt": "deep",
		"other/go.mod":               "module other\n",
		"other/x/y.txt":              "deep",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const hello = "package main\n\nfunc main() { println(\"hello\") }\n"

func TestFindModule(t *testing.T) {
	root := module(t, hello)
	// A go.mod alone, such as other's, does not make a module with functions.
	for _, dir := range []string{root, root + "/functions/worker/a/b", root + "/other/x"} {
		if got, ok := FindModule(dir); !ok || got != root {
			t.Errorf("from %s: %q, %v", dir, got, ok)
		}
	}
}

// A module may have its functions anywhere in it.
func TestFindModuleByOtherPackages(t *testing.T) {
	root := module(t, hello)
	for pkg, want := range map[string]string{"functions/worker/a": root, "./functions/worker/a/": root, "y": "", "cmd/jobs": ""} {
		if got, _ := (Packages{Worker: pkg}).FindModule(root + "/functions/worker"); got != want {
			t.Errorf("by %s: %q, want %q", pkg, got, want)
		}
	}
}

// Both functions are built from the packages that are named.
func TestBuildOtherPackages(t *testing.T) {
	root := module(t, hello)
	worker := "package main\n\nfunc main() { println(\"not a worker\") }\n"
	for _, pkg := range []string{"cmd/jobs", "cmd/ways-back"} {
		if err := os.MkdirAll(filepath.Join(root, pkg), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pkg, "main.go"), []byte(worker), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	_, err := Packages{"cmd/jobs", "./cmd/ways-back"}.Build(t.Context(), root, dir, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is no worker of this version") {
		t.Errorf("the binary that was asked for its kinds: %v", err)
	}
	for _, name := range []string{"worker", "redrive"} {
		if text, err := exec.Command(filepath.Join(dir, name)).CombinedOutput(); err != nil || string(text) != "not a worker\n" {
			t.Errorf("%s says %q, error %v", name, text, err)
		}
	}
}

func TestFindModuleFindsNone(t *testing.T) {
	if got, ok := FindModule(t.TempDir()); ok {
		t.Errorf("found %q where there is none", got)
	}
}

func TestFindModuleFindsThisOne(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := FindModule("."); !ok || got != filepath.Dir(filepath.Dir(wd)) {
		t.Errorf("from here: %q, %v", got, ok)
	}
}

func TestBuildIsReproducibleAndRuns(t *testing.T) {
	t.Setenv("GOOS", "plan9") // set for another build
	t.Setenv("GOARCH", "arm")
	t.Setenv("CGO_ENABLED", "1")
	var sums [2][sha256.Size]byte
	for i := range sums {
		out := filepath.Join(t.TempDir(), "bootstrap")
		if err := Build(t.Context(), module(t, hello), "./functions/worker", out, io.Discard); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(b)
		if text, err := exec.Command(out).CombinedOutput(); err != nil || string(text) != "hello\n" {
			t.Errorf("the binary says %q, error %v", text, err)
		}
	}
	if sums[0] != sums[1] {
		t.Error("the same source in two folders gives two binaries")
	}
}

func TestBuildSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct{ root, pkg, want string }{
		"no module":        {t.TempDir(), "./functions/worker", "it needs a go.mod and a folder functions/worker"},
		"no such function": {module(t, hello), "./functions/redrive", "functions/redrive"},
	} {
		err := Build(t.Context(), test.root, test.pkg, t.TempDir()+"/b", io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestBuildPassesTheCompilersMessagesOn(t *testing.T) {
	var log bytes.Buffer
	err := Build(t.Context(), module(t, "package main\n\nfunc main() { nonsense }\n"), "./functions/worker", t.TempDir()+"/b", &log)
	if err == nil {
		t.Error("built nonsense")
	}
	if !strings.Contains(log.String(), "undefined: nonsense") {
		t.Errorf("the compiler's message is missing: %q", log.String())
	}
}

func TestBuildNeedsTheGoCommand(t *testing.T) {
	root := module(t, hello)
	t.Setenv("PATH", "")
	err := Build(t.Context(), root, "./functions/worker", t.TempDir()+"/b", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("no go command: %v", err)
	}
}

// describing is a worker that answers describe with the given shell commands.
func describing(t *testing.T, commands string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+commands), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	return file
}

func TestDescribeReadsWhatAFunctionPrints(t *testing.T) {
	kinds, err := Describe(t.Context(), describing(t, `echo '{"format":1,"kinds":[{"name":"'$1'd","late":"run"}]}'`))
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 1 || kinds[0].Name != "described" {
		t.Errorf("kinds are %+v", kinds)
	}
}

func TestDescribeSaysWhatIsWrong(t *testing.T) {
	for commands, want := range map[string]string{
		"echo no such thing >&2; exit 1":      "no such thing",
		`echo '{"format":99,"kinds":[]}'`:     "format 99",
		"echo a function of another kind\n":   "it did not tell its kinds",
		"echo '{\"format\":1,\"kinds\":[{\"'": "it did not tell its kinds",
	} {
		if _, err := Describe(t.Context(), describing(t, commands)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", commands, err, want)
		}
	}
}
