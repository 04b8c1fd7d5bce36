package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"acklast/internal/job"
)

// Packages are the main packages of a module's two functions, as paths from its root.
type Packages struct{ Worker, Redrive string }

// UsualPackages are those that a module has unless it says otherwise.
func UsualPackages() Packages { return Packages{"functions/worker", "functions/redrive"} }

// describeLimit is how long a function may take to describe its kinds.
const describeLimit = 30 * time.Second

// FindModule is Packages.FindModule for the usual packages.
func FindModule(dir string) (root string, ok bool) { return UsualPackages().FindModule(dir) }

// FindModule returns the root of the module that dir lies in: the nearest directory upwards that has a
// go.mod and the folder of the worker. Its name does not matter.
func (p Packages) FindModule(dir string) (root string, ok bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", false
	}
	for !isModule(dir, p.Worker) {
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
	return dir, true
}

func isModule(dir, pkg string) bool {
	file, err := os.Stat(filepath.Join(dir, "go.mod"))
	if err != nil || !file.Mode().IsRegular() {
		return false
	}
	folder, err := os.Stat(filepath.Join(dir, pkg))
	return err == nil && folder.IsDir()
}

// Functions are the compiled functions of a module.
type Functions struct {
	// Worker and Redrive are the paths of the two binaries.
	Worker, Redrive string
	// Kinds are the kinds of job that the worker knows.
	Kinds []job.Description
}

// BuildFunctions is Packages.Build for the usual packages.
func BuildFunctions(ctx context.Context, root, dir string, log io.Writer) (Functions, error) {
	return UsualPackages().Build(ctx, root, dir, log)
}

// Build compiles both functions of the module at root into the folder dir, for this machine's
// processor and otherwise exactly as they are compiled for Lambda, and asks the worker for its kinds. The
// compiler's messages go to log. The first build takes about a minute, so tell people before it starts.
func (p Packages) Build(ctx context.Context, root, dir string, log io.Writer) (Functions, error) {
	f := Functions{Worker: filepath.Join(dir, "worker"), Redrive: filepath.Join(dir, "redrive")}
	for _, function := range [][2]string{{p.Worker, f.Worker}, {p.Redrive, f.Redrive}} {
		if err := Build(ctx, root, "./"+filepath.ToSlash(filepath.Clean(function[0])), function[1], log); err != nil {
			return Functions{}, err
		}
	}
	var err error
	f.Kinds, err = Describe(ctx, f.Worker)
	return f, err
}

// Build compiles a main package of the module at root into the file out, like Packages.Build. The package
// is a path such as "./functions/worker".
func Build(ctx context.Context, root, pkg, out string, log io.Writer) error {
	if !isModule(root, pkg) {
		return fmt.Errorf("build %s: %s is not a module with this function: it needs a go.mod and a folder %s", pkg, root, filepath.Clean(pkg))
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	// With these flags the same source gives the same bytes: no paths, no commit, no build id.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-tags", "lambda.norpc", "-ldflags", "-s -w -buildid=", "-o", out, pkg)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	build.Stdout, build.Stderr = log, log
	if err := build.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("build %s: the go command is not on the PATH; install Go from https://go.dev/dl", pkg)
		}
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// Describe returns the kinds that a compiled function knows. The function prints them itself, so this
// works for kinds of any module.
func Describe(ctx context.Context, binary string) ([]job.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, "describe")
	cmd.Env = []string{} // a description depends on no environment, and none of ours may leak into it
	cmd.Stdout, cmd.Stderr = &out, &said
	const what = "%s is no worker of this version: %v. Build it with: go build -tags lambda.norpc -o FILE ./functions/worker"
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return nil, fmt.Errorf(what, binary, fmt.Sprintf("asked for its kinds, it ended with exit code %d and said %q", ended.ExitCode(), strings.TrimSpace(said.String())))
	case ctx.Err() != nil:
		return nil, fmt.Errorf(what, binary, "it did not tell its kinds in time")
	case err != nil:
		return nil, fmt.Errorf(what, binary, "this machine cannot run it")
	}
	kinds, err := job.DecodeDescriptions(out.Bytes())
	if err != nil {
		if errors.Unwrap(err) != nil { // the error is a decoder's
			err = errors.New("it did not tell its kinds")
		}
		return nil, fmt.Errorf(what, binary, err)
	}
	return kinds, nil
}
