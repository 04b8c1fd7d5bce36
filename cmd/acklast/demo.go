package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"acklast/internal/local"
)

// demoPackage is the program that tells the story. It is a program of its own, because the story needs the
// sample kinds and this tool knows no kind.
const demoPackage = "./internal/demo/play"

func newDemo(a *app) *cobra.Command {
	var module, logs string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch jobs survive copies, kills and outages",
		Long: `Tell a story on its own embedded AWS, with the real worker binary as processes. All failures in it
are real: by SIGKILL or by a proxy between the worker and AWS. At the end it prints the jobs that were sent and
their outcomes, and checks that they add up; if not, the exit code is 1. With --output json
the story goes to standard error.

Times are scaled down, so it takes about a minute and a half. It keeps no data and uses no fixed port, so it can
run beside "acklast local". It builds the story and the functions first, so it needs a clone of the repository.`,
		Example: `  acklast demo
  acklast demo --logs worker.log`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), module, logs) }),
	}
	cmd.Flags().StringVar(&module, "module", ".", "folder in the clone")
	cmd.Flags().StringVar(&logs, "logs", "", "file for the functions' logs")
	return cmd
}

func (a *app) demo(ctx context.Context, module, logs string) error {
	root, err := findModule(module, local.UsualPackages())
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, demoPackage)); errors.Is(err, fs.ErrNotExist) {
		return refuse("the module at %s has no demo (no folder %s): change into a clone of acklast, or name it with --module DIR", root, demoPackage)
	}
	dir, err := os.MkdirTemp("", "acklast-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder: the system removes the rest
	program := filepath.Join(dir, "play")
	say(a.stderr, "Building the demo of %s; the first time this takes one to two minutes.\n", root)
	if err := local.Build(ctx, root, demoPackage, program, a.stderr); err != nil {
		return err
	}
	args := []string{"-module", root}
	if logs != "" {
		args = append(args, "-logs", logs)
	}
	if a.output == "json" {
		args = append(args, "-json")
	}
	play := exec.CommandContext(ctx, program, args...)
	play.Stdout, play.Stderr = a.stdout, a.stderr
	play.Cancel = func() error { return play.Process.Signal(os.Interrupt) } // it ends its own processes then
	err = play.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return &toldError{exitFailed} // the program has printed why
	}
	return err
}
