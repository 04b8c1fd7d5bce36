// Command acklast is the operator's tool: it runs the system on this machine, sends jobs, says what became
// of a job and how full the lanes are, and governs the DLQ. It works with any stack and knows no kind of
// job: what needs one, it asks of the stack's own functions.
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
	// exitFailed: what was asked for did not happen, or not all of it.
	exitFailed
	// exitRefused: the command line, its input or the state of things does not allow it; nothing
	// was changed, and the same call will be refused again.
	exitRefused
	// exitStopped: a redrive halted itself, or was halted.
	exitStopped
	// exitUnwell: a redrive is done, and not every message of its plan ended well.
	exitUnwell
	// exitInterrupted: a redrive's process ended without a word; the run can be continued.
	exitInterrupted
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal ends what runs, a second one the process at once
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run runs one command line, of which args[0] is the program as it was typed, and returns the exit
// code. Whatever is said about an error stands on stderr.
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
	}
	say(stderr, "acklast: %v\n", err)
	if !a.started { // cobra found fault with the command line
		say(stderr, "Run '%s --help' for how to use it.\n", command.CommandPath())
		return exitRefused
	}
	if errors.As(err, &refused) {
		return exitRefused
	}
	return exitFailed
}

// refusal is an error that lies in what was asked for.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...)} }

// toldError ends a command that has said itself what there is to say.
type toldError struct{ code int }

func (e *toldError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
