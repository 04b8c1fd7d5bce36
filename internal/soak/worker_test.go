package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"acklast/internal/local"
)

// steppedClock is added to a copy of the file that gives the worker its clock. A process reads by how many
// milliseconds its clock is off from the file named after it, so a test can step the clock of one process.
const steppedClock = `
func steppedNow() time.Time {
	now := time.Now()
	if text, err := os.ReadFile("clock-" + strconv.Itoa(os.Getpid())); err == nil {
		if off, err := strconv.Atoi(string(text)); err == nil {
			return now.Add(time.Duration(off) * time.Millisecond)
		}
	}
	return now
}
`

// workers builds the worker's binary, whose clock can be stepped. With an earlier version given, about every second
// process is of that version, and changes it when it is started again.
func (r *run) workers() string {
	r.Helper()
	dir := r.TempDir()
	r.clocks = dir
	binary := filepath.Join(dir, "new")
	buildStepped(r.T, binary)
	if *oldFlag == "" {
		return binary
	}
	old, err := filepath.Abs(*oldFlag)
	must(err)
	both := filepath.Join(dir, "bootstrap")
	must(os.WriteFile(both, fmt.Appendf(nil, "#!/bin/sh\n[ $(($$ %% 2)) = 0 ] && exec %q\nexec %q\n", old, binary), 0o700))
	return both
}

// buildStepped builds the soak's worker from a copy of start.go in which the clock can be stepped. So production code
// needs no hook for it.
func buildStepped(t *testing.T, out string) {
	t.Helper()
	root, ok := local.FindModule(".")
	if !ok {
		t.Fatal("not in a checkout")
	}
	root, err := filepath.Abs(root)
	must(err)
	path := filepath.Join(root, "start.go")
	source, err := os.ReadFile(path)
	must(err)
	const clock, stepped = "Now: time.Now,", "Now: steppedNow,"
	if !bytes.Contains(source, []byte(clock)) {
		t.Fatalf("%s gives the worker no clock as %q any more", path, clock)
	}
	source = bytes.ReplaceAll(source, []byte(clock), []byte(stepped))
	dir := t.TempDir()
	copied, overlay := filepath.Join(dir, "start.go"), filepath.Join(dir, "overlay.json")
	must(os.WriteFile(copied, append(source, steppedClock...), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: copied}})
	must(err)
	must(os.WriteFile(overlay, text, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-trimpath", "-buildvcs=false",
		"-tags", "lambda.norpc", "-ldflags", "-s -w -buildid=", "-o", out, "./internal/soak/testdata/worker")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the worker: %v\n%s", err, said)
	}
}

// step sets by how much the clock of a process is off.
func (r *run) step(pid int, off time.Duration) {
	name := filepath.Join(r.clocks, "clock-"+strconv.Itoa(pid))
	must(os.WriteFile(name+".new", []byte(strconv.FormatInt(off.Milliseconds(), 10)), 0o600))
	must(os.Rename(name+".new", name)) // so that nobody reads half of it
}

// unstep sets every clock right.
func (r *run) unstep() {
	names, err := filepath.Glob(filepath.Join(r.clocks, "clock-*"))
	must(err)
	for _, name := range names {
		must(os.Remove(name))
	}
}
