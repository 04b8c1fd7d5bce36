// Package build compiles a function of any Go module into the bootstrap that Lambda runs, byte for byte
// the same from any folder and at any time.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The flags keep paths, commits and build ids out of the binary, so that the CDK uploads, and Lambda
// restarts, only what changed. The tag leaves out the protocol of the old go1.x runtime.
var flags = []string{"-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w -buildid="}

// Function compiles a main package of a module into the file dir/bootstrap, for Lambda on arm64. The
// package is a path such as "./functions/worker", and module a folder of its module. dir is made when it
// is missing. The compiler's messages are in the error.
func Function(ctx context.Context, module, pkg, dir string) error {
	return FunctionFor(ctx, "linux", "arm64", module, pkg, dir)
}

// FunctionFor is Function for another system or processor, such as this machine's.
func FunctionFor(ctx context.Context, goos, goarch, module, pkg, dir string) error {
	if _, err := os.Stat(module); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	out, err := filepath.Abs(filepath.Join(dir, "bootstrap"))
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	var said bytes.Buffer
	args := append(append([]string{"build"}, flags...), "-o", out, pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = module, &said, &said
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("build %s: the go command is not on the PATH; install Go from https://go.dev/dl: %w", pkg, err)
		}
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, module, err, strings.TrimSpace(said.String()))
	}
	// The go command writes an archive for a package that is not main, and says nothing.
	if magic, err := head(out); err != nil || goos == "linux" && magic != "\x7fELF" {
		return fmt.Errorf("build %s: it is not a main package", pkg)
	}
	return nil
}

func head(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var first [4]byte
	_, err = f.Read(first[:])
	return string(first[:]), err
}
