//go:build adoption

package internal_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	adopted      = "github.com/acme/jobs"
	adoptedStack = "orders"
)

// repository is a git repository with the files of this working tree, without its history and its remotes.
type repository struct {
	*testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	here := repository{t, ".."}
	for _, name := range strings.Split(strings.TrimSuffix(here.run("git", "ls-files", "-z", "-c", "-o", "--exclude-standard"), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		r.write(name, string(text))
		if err := os.Chmod(filepath.Join(r.dir, name), info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	r.run("git", "init", "-q", "-b", "main")
	r.commit("Version 1")
	r.run("git", "tag", "v1")
	return r
}

// try runs a command in the repository and returns its output.
func (r repository) try(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.Context(), name, args...)
	cmd.Dir = r.dir
	// The commands' commits need an author, and must not depend on this machine's git configuration.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=ada", "GIT_COMMITTER_EMAIL=ada@example.com",
		"GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r repository) run(name string, args ...string) string {
	r.Helper()
	out, err := r.try(name, args...)
	if err != nil {
		r.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (r repository) commit(message string) {
	r.Helper()
	r.run("git", "add", "-A")
	r.run("git", "commit", "-q", "-m", message)
}

func (r repository) read(name string) string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

func (r repository) write(name, text string) {
	r.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

// edit replaces one piece of a file, which has to be there once.
func (r repository) edit(name, old, new string) {
	r.Helper()
	text := r.read(name)
	if n := strings.Count(text, old); n != 1 {
		r.Fatalf("%s has %q %d times, want once", name, old, n)
	}
	r.write(name, strings.Replace(text, old, new, 1))
}

func (r repository) has(name string) bool {
	_, err := os.Stat(filepath.Join(r.dir, name))
	return err == nil
}

// An adopted clone builds under its own path, imports nothing from the old one, and runs the demo.
func TestAdoptedCloneRuns(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.run("scripts/adopt.sh", adopted, adoptedStack)
	if out := r.run("git", "status", "--porcelain"); out != "" {
		t.Errorf("adoption left uncommitted:\n%s", out)
	}
	if out := r.run("gofmt", "-l", "."); out != "" {
		t.Errorf("not gofmt-ed:\n%s", out)
	}
	for _, dir := range []string{".", "docs/example"} {
		for imported := range strings.Lines(r.run("go", "list", "-C", dir, "-deps", "./...")) {
			if strings.TrimSpace(imported) == "acklast" || strings.HasPrefix(imported, "acklast/") {
				t.Errorf("in %s, %s is imported under its old path", dir, strings.TrimSpace(imported))
			}
		}
	}
	r.run("go", "build", "./...")
	// The tests of imports, numbers, the synthesised stack and the command line pass under any names.
	r.run("go", "test", "./internal", "./internal/topology", "./infra/...", "./cmd/...")

	r.run("go", "build", "-o", "bin/acklast", "./cmd/acklast")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	demo := exec.CommandContext(ctx, "bin/acklast", "demo")
	demo.Cancel = func() error { return demo.Process.Signal(os.Interrupt) }
	demo.Dir, demo.Stderr = r.dir, os.Stderr
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasPrefix(lines.Text(), "2. ") { // the first chapter has ended
			cancel()
		}
	}
	_ = demo.Wait() // it was interrupted
	if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, "2. ") }) {
		t.Errorf("the demo did not come to its second chapter:\n%s", strings.Join(said, "\n"))
	}
}

// ownKind makes the example of a kind one of the clone's own: its package, and its line in the list.
func (r repository) ownKind() {
	r.Helper()
	r.write("internal/kinds/voucher/voucher.go", strings.Replace(r.read("docs/newkind/newkind.go"), "package newkind", "package voucher", 1))
	r.write("internal/kinds/voucher/sample.json", r.read("docs/newkind/sample.json"))
	const list = "internal/kinds/kinds.go"
	r.edit(list, "\t\""+adopted+"/internal/kinds/reservation\"\n", "\t\""+adopted+"/internal/kinds/reservation\"\n\t\""+adopted+"/internal/kinds/voucher\"\n")
	r.edit(list, "\t\treminder.Kind(),\n", "\t\treminder.Kind(),\n\t\tvoucher.Kind(),\n")
	r.commit("Add vouchers")
}

// withoutSamples takes the sample kinds out of the list.
func (r repository) withoutSamples() {
	r.Helper()
	for _, name := range []string{"reminder", "reservation"} {
		r.edit("internal/kinds/kinds.go", "\t\""+adopted+"/internal/kinds/"+name+"\"\n", "")
		r.edit("internal/kinds/kinds.go", "\t\t"+name+".Kind(),\n", "")
	}
	r.commit("Deploy no sample kind")
}

// A clone has a kind of its own, beside the samples and then without them, and no test that follows the list of
// kinds turns red.
func TestAdoptedCloneHasItsOwnKinds(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.run("scripts/adopt.sh", adopted, adoptedStack)
	r.ownKind()
	tests := func() {
		r.run("go", "test", "./internal/kinds", "./infra")
		r.run("go", "test", "./infra/stack", "-run", "^(TestSummary|TestTables|TestNobodyMay|Test.*May|TestWorkerMayReachItsProvider|TestPeopleWriteOfTheOperationsOnlyWhatTheyMay)$")
		r.run("go", "test", "./internal/worker", "-run", "^TestSampleEvents$")
	}
	tests()
	r.withoutSamples()
	tests()
	r.run("go", "vet", "./...")
	r.run("go", "test", "./internal/e2e", "./internal/demo", "./internal/soak")
	if out, err := r.try("go", "run", "./internal/demo/play"); err == nil || !strings.Contains(out, "the demo plays with the sample kinds") {
		t.Errorf("the demo without its kinds: %v, %s", err, out)
	}
}

// A clone is adopted at an older version, adds a kind and deletes a sample. Then it takes a newer version.
func TestAdoptedCloneIsUpgraded(t *testing.T) {
	t.Parallel()
	r := newRepository(t)

	// The next version of acklast: it changes the engine, the list of kinds and the sample, and has new files beside them.
	const sample = "internal/kinds/reminder"
	r.run("git", "checkout", "-q", "-b", "next")
	const added = "package %s\n\nimport _ \"acklast/internal/job\"\n\n// AddedLater is new in this version.\nconst AddedLater = true\n"
	r.write("internal/ledger/later.go", strings.Replace(added, "%s", "ledger", 1))
	r.write(sample+"/later.go", strings.Replace(added, "%s", "reminder", 1))
	r.write(sample+"/testdata/fuzz/FuzzAnswer/later", "new, in a folder below")
	r.write(sample+"/testdata/later/1.txt", "new, in a folder that is new, too")
	r.write("internal/job/kind.go", r.read("internal/job/kind.go")+"\n// AddedLater is new in this version.\nconst AddedLater = true\n")
	r.write(sample+"/reminder.go", r.read(sample+"/reminder.go")+"\n// It was changed later.\n")
	r.edit("internal/kinds/kinds.go", "// Package kinds lists", "// Package kinds, in version 2, lists")
	r.commit("Version 2")
	r.run("git", "tag", "v2")
	r.run("git", "checkout", "-q", "main")

	r.run("scripts/adopt.sh", adopted, adoptedStack)
	r.ownKind()
	r.withoutSamples()
	r.run("git", "rm", "-rq", sample)
	r.commit("Remove reminders")

	out := r.run("scripts/adopt.sh", "upgrade", "v2")
	for _, file := range []string{"reminder.go", "later.go", "testdata/fuzz/FuzzAnswer/later", "testdata/later/1.txt"} {
		if !strings.Contains(out, "stays deleted: "+sample+"/"+file) {
			t.Errorf("nobody is told that %s stays deleted:\n%s", file, out)
		}
	}
	if r.has(sample) {
		t.Error("the deleted sample came back")
	}
	list := r.read("internal/kinds/kinds.go")
	if !r.has("internal/kinds/voucher/voucher.go") || !strings.Contains(list, "voucher.Kind()") {
		t.Error("the own kind is gone")
	}
	if !strings.Contains(list, "in version 2") || strings.Contains(list, "reminder") {
		t.Errorf("the list of kinds is\n%s", list)
	}
	if !strings.Contains(r.read("internal/ledger/later.go"), `"`+adopted+`/internal/job"`) {
		t.Error("the new file imports the old path")
	}
	if !strings.Contains(r.read("internal/job/kind.go"), "AddedLater") {
		t.Error("the change is not there")
	}
	if out := r.run("git", "status", "--porcelain"); out != "" {
		t.Errorf("the upgrade left uncommitted:\n%s", out)
	}
	// What is deployed needs no sample.
	deployed := []string{"./functions/...", "./infra/...", "./internal/kinds", "./internal/kinds/voucher", "./internal/worker", "./internal/redrive"}
	r.run("go", append([]string{"build"}, deployed...)...)
	r.run("go", append([]string{"vet"}, deployed...)...)
	if out := r.run("scripts/adopt.sh", "upgrade", "v2"); !strings.Contains(out, "has v2 already") {
		t.Errorf("the same upgrade again: %s", out)
	}

	// If both have changed the same lines, a person decides, and nothing is committed until then.
	r.run("git", "checkout", "-q", "next")
	r.edit("internal/ledger/later.go", "AddedLater = true", "AddedLater = 3")
	r.commit("Version 3")
	r.run("git", "update-ref", "refs/acklast/v3", "HEAD") // as the fetch of docs/upgrade.md does
	r.run("git", "checkout", "-q", "main")
	r.edit("internal/ledger/later.go", "AddedLater = true", "AddedLater = false")
	r.commit("Differ")
	head := r.run("git", "rev-parse", "HEAD")
	out, err := r.try("scripts/adopt.sh", "upgrade", "v3")
	if err == nil {
		t.Error("a conflict is no failure")
	}
	if !strings.Contains(out, "in conflict: internal/ledger/later.go") {
		t.Errorf("the conflict is not named:\n%s", out)
	}
	if r.run("git", "rev-parse", "HEAD") != head {
		t.Error("a conflict was committed")
	}
}

// The versions of acklast that a clone brings along are no versions of the adopted module: they are kept where
// nothing publishes them, while the clone's own tags are pushed as everywhere.
func TestAdoptionPublishesNoTagOfAcklast(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.run("git", "tag", "-a", "-m", "Version 1.1", "v1.1")
	acklast := repository{t, t.TempDir()}
	acklast.run("git", "clone", "-q", r.dir, ".")
	r.run("scripts/adopt.sh", adopted, adoptedStack)
	remote := t.TempDir()
	r.run("git", "init", "-q", "--bare", remote)
	r.run("git", "remote", "add", "origin", remote)
	page := r.read("docs/upgrade.md")
	push := regexp.MustCompile(`(?m)^git push (.*)$`).FindStringSubmatch(page)
	if push == nil {
		t.Fatal("docs/upgrade.md does not say how to push")
	}
	r.run("git", append([]string{"push", "-q"}, strings.Fields(push[1])...)...)
	if out := r.run("git", "-C", remote, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main\nrefs/heads/upstream\n" {
		t.Errorf("after git push %s, the repository has\n%s", push[1], out)
	}
	r.run("git", "tag", "v0.1.0")
	r.run("git", "push", "-q", "origin", "--tags")
	if out := r.run("git", "-C", remote, "tag"); out != "v0.1.0\n" {
		t.Errorf("git push --tags published\n%s", out)
	}
	if out := r.run("git", "for-each-ref", "--format=%(refname) %(objecttype)", "refs/acklast"); out != "refs/acklast/v1 commit\nrefs/acklast/v1.1 tag\n" {
		t.Errorf("acklast's versions are\n%s", out)
	}

	// A later version is fetched as the page says, and a tag of the clone's own with its name is another one.
	acklast.write("later.txt", "later")
	acklast.commit("Version 0.1.0")
	acklast.run("git", "tag", "v0.1.0")
	if out, err := r.try("scripts/adopt.sh", "upgrade", "v0.1.0"); err == nil || !strings.Contains(out, "git fetch --no-tags") {
		t.Errorf("a tag of the clone's own is no version of acklast: %v, %s", err, out)
	}
	fetch := regexp.MustCompile(`(?m)^git fetch (.*)$`).FindStringSubmatch(page)
	if fetch == nil {
		t.Fatal("docs/upgrade.md does not say how to fetch")
	}
	own := r.run("git", "rev-parse", "v0.1.0")
	r.run("sh", "-c", "git fetch -q "+strings.Replace(fetch[1], "ADDRESS-OF-ACKLAST", acklast.dir, 1))
	if got := r.run("git", "rev-parse", "refs/acklast/v0.1.0"); got != acklast.run("git", "rev-parse", "v0.1.0") {
		t.Errorf("fetched was %s", got)
	}
	if out := r.run("git", "tag"); out != "v0.1.0\n" || r.run("git", "rev-parse", "v0.1.0") != own {
		t.Errorf("fetching changed the clone's own tags: %s", out)
	}
}

// A merge that git refuses is a failure, changes no file, and can be repeated.
func TestAnUpgradeThatGitRefusesFails(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.run("git", "checkout", "-q", "-b", "next")
	r.write("internal/ledger/later.go", "package ledger\n")
	r.commit("Version 2")
	r.run("git", "tag", "v2")
	r.run("git", "checkout", "-q", "main")
	r.run("scripts/adopt.sh", adopted, adoptedStack)

	r.run("git", "config", "merge.verifySignatures", "true") // the versions are not signed
	for range 2 {
		out, err := r.try("scripts/adopt.sh", "upgrade", "v2")
		if err == nil || strings.Contains(out, "Nothing to merge") || !strings.Contains(out, "signature") {
			t.Errorf("%v, %s", err, out)
		}
		if out := r.run("git", "status", "--porcelain"); out != "" {
			t.Errorf("it left\n%s", out)
		}
	}
	r.run("git", "config", "--unset", "merge.verifySignatures")
	r.run("scripts/adopt.sh", "upgrade", "v2")
	if !r.has("internal/ledger/later.go") {
		t.Error("the repeated upgrade brought nothing")
	}
}

// A clone that cannot be adopted stays as it is, and the message says what to do.
func TestAdoptionRefuses(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a path with a space":      {[]string{"my jobs"}, "not a module path"},
		"a stack with a dot":       {[]string{adopted, "my.stack"}, "not a stack's name"},
		"an upgrade before it all": {[]string{"upgrade", "v1"}, "no branch upstream"},
	} {
		out, err := r.try("scripts/adopt.sh", c.args...)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	r.write("stray.txt", "mine")
	if out, err := r.try("scripts/adopt.sh", adopted); err == nil || !strings.Contains(out, "uncommitted changes") {
		t.Errorf("uncommitted changes: %v, %s", err, out)
	}
	r.run("git", "clean", "-fq")
	if out := r.run("git", "status", "--porcelain"); out != "" {
		t.Errorf("a refusal changed:\n%s", out)
	}
}
