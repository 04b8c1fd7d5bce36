//go:build engines

package stacktest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"acklast/infra/stack/stacktest"
)

// adopted is the module path of a platform team's copy. Its host is one that the go command knows, so that it asks
// git at once.
const adopted = "github.com/platform/jobs"

// A platform team adopts acklast, pushes its copy as docs/upgrade.md says, and tags a version of its own. A product
// team gets that version like any other module. No network: git finds the repository in a folder, and all other
// modules come from this machine's cache.
func TestAnAdoptedCopyIsGotByAProductTeam(t *testing.T) {
	modules := strings.TrimSpace(output(t, ".", "go", "env", "GOMODCACHE"))
	remote := t.TempDir()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull, "GIT_CONFIG_COUNT": "1",
		"GIT_CONFIG_KEY_0": "url.file://" + remote + ".insteadOf", "GIT_CONFIG_VALUE_0": "https://" + adopted,
		"GIT_AUTHOR_NAME": "ada", "GIT_AUTHOR_EMAIL": "ada@example.com", "GIT_COMMITTER_NAME": "ada", "GIT_COMMITTER_EMAIL": "ada@example.com",
		"GOPROXY": "file://" + modules + "/cache/download", "GOPRIVATE": adopted, "GOVCS": "", "GOINSECURE": "", "GONOPROXY": "",
		"GOMODCACHE": t.TempDir(), // this machine's own keeps no trace of the copy
		"GOFLAGS":    os.Getenv("GOFLAGS") + " -modcacherw -mod=mod", "GOSUMDB": "off", "GOWORK": "off",
	} {
		t.Setenv(name, value)
	}
	output(t, remote, "git", "init", "-q", "--bare")

	platform := copied(t)
	for _, command := range []string{
		"git init -q -b main", "git add -A", "git commit -qm Clone", "git tag v9.9.9", // a version of acklast
		"sh scripts/adopt.sh " + adopted, "git remote add origin " + remote,
		documented(t, "git push origin HEAD upstream"), "git tag v1.2.3", "git push -q origin v1.2.3",
	} {
		output(t, platform, "sh", "-c", command)
	}

	shop := t.TempDir()
	for _, name := range []string{"carts/carts.go", "carts/sample.json", "functions/worker/main.go", "functions/redrive/main.go"} {
		write(t, shop, name, read(t, filepath.Join(platform, "docs/example", name)))
	}
	write(t, shop, "go.mod", []byte("module example.com/shop\n\ngo 1.26.0\n"))
	output(t, shop, "go", "get", adopted+"@latest")
	if mod := string(read(t, filepath.Join(shop, "go.mod"))); !strings.Contains(mod, adopted+" v1.2.3") || strings.Contains(mod, "replace") {
		t.Errorf("go.mod is\n%s", mod)
	}

	s := stacktest.Start(t, shop)
	var answer struct{ Refused string }
	s.Redrive(map[string]string{"action": "status"}, &answer)
	if answer.Refused != "" {
		t.Errorf("the shop's redrive function refuses: %s", answer.Refused)
	}
}

// output runs a command in a folder.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// documented is the line of docs/upgrade.md that begins like this.
func documented(t *testing.T, begins string) string {
	t.Helper()
	for line := range strings.Lines(string(read(t, root+"/docs/upgrade.md"))) {
		if strings.HasPrefix(line, begins) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("docs/upgrade.md has no %q", begins)
	return ""
}
