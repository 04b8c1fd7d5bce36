package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"acklast/internal/demo"
)

func newDemo(a *app) *cobra.Command {
	var binary, redriver, logs string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch jobs survive copies, kills and outages",
		Long: `Tell a story on an embedded AWS of its own, with the real worker binary as processes. Whatever fails in it
fails for real, by SIGKILL or by a proxy between the worker and AWS. At the end it says what was sent, what
became of it, and whether it adds up; if not, the exit code is 1.

Times are scaled down, so it takes about a minute and a half. Nothing is kept, no port is fixed: it can run beside
"acklast local".`,
		Example: `  acklast demo
  acklast demo --logs worker.log`,
		Args: cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), binary, redriver, logs) }),
	}
	cmd.Flags().StringVar(&binary, "worker-binary", "", "path of the compiled worker (default: build it from the checkout)")
	cmd.Flags().StringVar(&redriver, "redrive-binary", "", "path of the compiled redrive function; goes with --worker-binary")
	cmd.Flags().StringVar(&logs, "logs", "", "file for the worker's log")
	return cmd
}

func (a *app) demo(ctx context.Context, binary, redriver, logs string) (err error) {
	built := binary == ""
	if !built && redriver == "" {
		return refuse("--worker-binary needs --redrive-binary too")
	}
	binary, remove, err := a.worker(ctx, binary)
	if err != nil {
		return err
	}
	defer remove()
	redriver, removeToo, err := a.redriver(ctx, redriver, built)
	if err != nil {
		return err
	}
	defer removeToo()
	var log io.Writer
	if logs != "" {
		file, createErr := os.Create(logs)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		log = file
	}
	return demo.Run(ctx, demo.Config{WorkerBinary: binary, RedriveBinary: redriver, Out: a.stdout, Logs: log})
}
