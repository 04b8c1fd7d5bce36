// Command play runs the story of package demo with the two functions of this module, which it builds first.
// "acklast demo" runs it, because the command line tool itself knows no kind of job, and the story needs two of
// them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"acklast/internal/demo"
	"acklast/internal/local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil // stop ends ctx too
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil && interrupted:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("play", flag.ContinueOnError)
	flags.SetOutput(stderr)
	module := flags.String("module", ".", "folder in the module whose functions to run")
	logs := flags.String("logs", "", "file for the functions' logs")
	asJSON := flags.Bool("json", false, "print the report as JSON, and the story on standard error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, ok := local.FindModule(*module)
	if !ok {
		return fmt.Errorf("%s does not lie in a module with a folder functions/worker", *module)
	}
	dir, err := os.MkdirTemp("", "acklast-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(stderr, "Building the functions of %s; the first time this takes about a minute.\n", root)
	functions, err := local.BuildFunctions(ctx, root, dir, stderr)
	if err != nil {
		return err
	}
	c := demo.Config{Functions: functions, Out: stdout}
	if *asJSON {
		c.Out = stderr
	}
	if *logs != "" {
		file, err := os.Create(*logs)
		if err != nil {
			return err
		}
		defer file.Close()
		c.Logs = file
	}
	report, err := demo.Run(ctx, c)
	if *asJSON && (err == nil || errors.Is(err, demo.ErrChecks)) {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(report))
	}
	return err
}
