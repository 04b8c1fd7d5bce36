package build

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with a main package and a library into a folder of its own.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/tiny\n\ngo 1.26.0\n",
		"worker/main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
		"lib/lib.go":     "package lib\n",
		"broken/main.go": "package main\n\nfunc main() { missing() }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheSameBytesFromAnyFolder(t *testing.T) {
	var sums [2][sha256.Size]byte
	for i := range sums {
		out := filepath.Join(t.TempDir(), "made", "on", "the", "way")
		if err := Function(t.Context(), module(t), "./worker", out); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(out, "bootstrap"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(raw)
		f, err := elf.NewFile(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("the binary is for %v", f.Machine)
		}
	}
	if sums[0] != sums[1] {
		t.Error("two folders, two binaries")
	}
}

func TestBuildErrorsSayWhatIsWrong(t *testing.T) {
	dir := module(t)
	for _, c := range []struct{ module, pkg, want string }{
		{filepath.Join(dir, "absent"), "./worker", "no such file"},
		{dir, "./absent", "directory not found"},
		{dir, "./broken", "undefined: missing"},
		{dir, "./lib", "it is not a main package"},
	} {
		err := Function(t.Context(), c.module, c.pkg, t.TempDir())
		if err == nil || !strings.Contains(err.Error(), "build "+c.pkg) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.pkg, err, c.want)
		}
	}
}

// The script that builds dist/ is for people without a CDK app of their own; both build alike.
func TestTheScriptHasTheSameFlags(t *testing.T) {
	script, err := os.ReadFile("../../scripts/build-dist.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range flags {
		if !strings.Contains(string(script), flag) {
			t.Errorf("scripts/build-dist.sh lacks %s", flag)
		}
	}
}
