package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// module is the module whose checkout has the worker's source.
const module = "acklast"

// FindCheckout returns the root of the acklast checkout that dir lies in: the nearest directory
// upwards whose go.mod is acklast's.
func FindCheckout(dir string) (root string, ok bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", false
	}
	for {
		if moduleOf(filepath.Join(dir, "go.mod")) == module {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// moduleOf reads the module's name from a go.mod; "" when there is none.
func moduleOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == "module" {
			return strings.Trim(words[1], "\"`")
		}
	}
	return ""
}

// BuildWorker compiles the worker of the checkout at root into the file out, for this machine's
// processor and otherwise exactly as it is compiled for Lambda. The compiler's messages go to log.
// The first build takes about a minute; tell people what they are waiting for.
func BuildWorker(ctx context.Context, root, out string, log io.Writer) error {
	return BuildFunction(ctx, root, "worker", out, log)
}

// BuildFunction is BuildWorker for the function in the given folder of functions.
func BuildFunction(ctx context.Context, root, name, out string, log io.Writer) error {
	if moduleOf(filepath.Join(root, "go.mod")) != module {
		return fmt.Errorf("build %s: %s is not a checkout of acklast (no go.mod of module %s)", name, root, module)
	}
	source := "./functions/" + name
	if _, err := os.Stat(filepath.Join(root, source)); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	// The flags make the same source the same bytes: no paths, no commit, no build id.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-tags", "lambda.norpc", "-ldflags", "-s -w -buildid=", "-o", out, source)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	build.Stdout, build.Stderr = log, log
	if err := build.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("build %s: the go command is not on the PATH; install Go from https://go.dev/dl: %w", name, err)
		}
		return fmt.Errorf("build %s: %w", name, err)
	}
	return nil
}
