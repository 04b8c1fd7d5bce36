//go:build engines

package stacktest_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"acklast/infra/stack/stacktest"
)

// An adopted copy: acklast under a module path of the platform team's own.
const (
	adopted = "example.com/platform/jobs"
	version = "v1.2.3"
)

// renamed gives every import path and go.mod of a copy another module path.
func renamed(t *testing.T, dir, module string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text := read(t, path)
		switch {
		case filepath.Ext(path) == ".go":
			text = bytes.ReplaceAll(text, []byte(`"acklast/`), []byte(`"`+module+`/`))
			text = bytes.ReplaceAll(text, []byte("\t\"acklast\"\n"), []byte("\tacklast \""+module+"\"\n"))
		case d.Name() == "go.mod":
			text = bytes.Replace(text, []byte("module acklast\n"), []byte("module "+module+"\n"), 1)
		default:
			return nil
		}
		return os.WriteFile(path, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// proxy writes a module as a proxy serves it, into a tree for a file:// GOPROXY.
func proxy(t *testing.T, dir, module string) (tree string) {
	t.Helper()
	tree = t.TempDir()
	at := module + "/@v/"
	write(t, tree, at+"list", []byte(version+"\n"))
	write(t, tree, at+version+".info", []byte(fmt.Sprintf(`{"Version":%q,"Time":"2026-12-01T10:00:00Z"}`, version)))
	write(t, tree, at+version+".mod", read(t, filepath.Join(dir, "go.mod")))
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			// A module within is none of this one's files.
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		f, err := w.Create(module + "@" + version + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = f.Write(read(t, path))
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, tree, at+version+".zip", packed.Bytes())
	return tree
}

// A platform team keeps one copy under its own path; a product team gets it like any other module. No
// network: the copy comes from a file:// proxy, and everything else from this machine's module cache.
func TestAnAdoptedCopyIsGotFromAProxy(t *testing.T) {
	platform := copied(t)
	renamed(t, platform, adopted)
	tree := proxy(t, platform, adopted)

	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"GOPROXY":    "file://" + tree + ",file://" + strings.TrimSpace(string(out)) + "/cache/download",
		"GOMODCACHE": t.TempDir(), // this machine's own keeps no trace of the copy
		"GOFLAGS":    "-modcacherw -mod=mod", "GONOSUMDB": "*", "GONOSUMCHECK": "1", "GOSUMDB": "off", "GOWORK": "off",
	} {
		t.Setenv(name, value)
	}

	shop := t.TempDir()
	const example = root + "/docs/example/"
	for _, name := range []string{"carts/carts.go", "carts/sample.json", "functions/worker/main.go", "functions/redrive/main.go"} {
		write(t, shop, name, read(t, example+name))
	}
	renamed(t, shop, adopted)
	write(t, shop, "go.mod", []byte("module example.com/shop\n\ngo 1.26.0\n"))
	get := exec.CommandContext(t.Context(), "go", "get", adopted+"@"+version)
	get.Dir = shop
	if out, err := get.CombinedOutput(); err != nil {
		t.Fatalf("go get: %v\n%s", err, out)
	}
	if mod := string(read(t, filepath.Join(shop, "go.mod"))); !strings.Contains(mod, adopted+" "+version) || strings.Contains(mod, "replace") {
		t.Errorf("go.mod is\n%s", mod)
	}

	s := stacktest.Start(t, shop)
	var answer struct{ Refused string }
	s.Redrive(map[string]string{"action": "status"}, &answer)
	if answer.Refused != "" {
		t.Errorf("the shop's redrive function refuses: %s", answer.Refused)
	}
}
