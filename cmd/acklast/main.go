// Command acklast is the operator's tool. It runs the system on this machine, sends jobs, reports on jobs and
// lanes, and governs the DLQ. It works with any stack and knows no kind of job: if a command needs a kind, it
// asks the stack's own functions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitOK = iota
	// exitFailed: the command did not do its work, or not all of it.
	exitFailed
	// exitRefused: the command line, its input or the present state does not allow the command. Nothing was
	// changed, and the same call will be refused again.
	exitRefused
	// exitStopped: a redrive halted itself, or was halted.
	exitStopped
	// exitUnwell: a redrive is done, and not every message of its plan ended well.
	exitUnwell
	// exitInterrupted: a redrive's process ended without a report; the run can be continued.
	exitInterrupted
	// exitUnsure: doctor found nothing, and could not make every check.
	exitUnsure
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal ends the command, the second one the process at once
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run runs one command line and returns the exit code. args[0] is the program as it was typed. Errors are
// printed on stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := &app{args: args, stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, now: time.Now}
	a.person = func() bool { return isTerminal(stderr) && isTerminal(stdin) }
	root := newRoot(a)
	root.SetArgs(args[1:])
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	command, err := root.ExecuteContextC(ctx)
	var told *toldError
	var refused *refusal
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &told):
		return told.code
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errors.New("interrupted")
	case a.target != nil:
		err = a.target.explain(err)
	}
	say(stderr, "acklast: %v\n", err)
	if !a.started { // cobra refused the command line
		say(stderr, "Run '%s --help' for how to use it.\n", command.CommandPath())
		return exitRefused
	}
	if errors.As(err, &refused) {
		return exitRefused
	}
	return exitFailed
}

// refusal is an error in the command line or its input.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...)} }

// toldError ends a command that has already printed its error.
type toldError struct{ code int }

func (e *toldError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
