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

func checkout(t *testing.T, main string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                     "// a comment\nmodule acklast // and another\n\ngo 1.26\n",
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

func TestFindCheckout(t *testing.T) {
	root := checkout(t, hello)
	for _, dir := range []string{root, root + "/functions/worker/a/b", root + "/other/x"} {
		if got, ok := FindCheckout(dir); !ok || got != root {
			t.Errorf("from %s: %q, %v", dir, got, ok)
		}
	}
	if got, ok := FindCheckout(t.TempDir()); ok {
		t.Errorf("found %q where there is none", got)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := FindCheckout("."); !ok || got != filepath.Dir(filepath.Dir(wd)) {
		t.Errorf("from here: %q, %v", got, ok)
	}
}

func TestBuildWorkerIsReproducibleAndRuns(t *testing.T) {
	t.Setenv("GOOS", "plan9") // what someone set for another build
	t.Setenv("GOARCH", "arm")
	t.Setenv("CGO_ENABLED", "1")
	var sums [2][sha256.Size]byte
	for i := range sums {
		out := filepath.Join(t.TempDir(), "bootstrap")
		if err := BuildWorker(t.Context(), checkout(t, hello), out, io.Discard); err != nil {
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

func TestBuildWorkerSaysWhatIsWrong(t *testing.T) {
	var log bytes.Buffer
	if err := BuildWorker(t.Context(), checkout(t, "package main\n\nfunc main() { nonsense }\n"), t.TempDir()+"/b", &log); err == nil {
		t.Error("built nonsense")
	}
	if !strings.Contains(log.String(), "undefined: nonsense") {
		t.Errorf("the compiler's message is missing: %q", log.String())
	}
	if err := BuildWorker(t.Context(), t.TempDir(), t.TempDir()+"/b", io.Discard); err == nil || !strings.Contains(err.Error(), "not a checkout of acklast") {
		t.Errorf("no checkout: %v", err)
	}
	if err := BuildFunction(t.Context(), checkout(t, hello), "redrive", t.TempDir()+"/b", io.Discard); err == nil || !strings.Contains(err.Error(), "functions/redrive") {
		t.Errorf("no such function: %v", err)
	}
	root := checkout(t, hello)
	t.Setenv("PATH", "")
	if err := BuildWorker(t.Context(), root, t.TempDir()+"/b", io.Discard); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("no go command: %v", err)
	}
}
