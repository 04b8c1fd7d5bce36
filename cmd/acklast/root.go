package main

import (
	"bufio"
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/topology"
)

// app is the common part of every command: the outside world and the global flags.
type app struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time

	profile, region, endpoint, stack, output string

	// command is the name of the command that runs, and target the stack that it uses, if it uses one already.
	command string
	target  *target

	// width is the largest width of an answer that is shown elsewhere than on a terminal of its own; 0 asks the
	// terminal.
	width int

	// typed reads a.stdin; person says whether a person types there.
	typed  *bufio.Reader
	person func() bool

	// started says that the command itself has begun. Before that, an error is about the command line.
	started bool
}

// envStack is the variable that names the stack.
const envStack = "ACKLAST_STACK"

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "acklast",
		Short: "Run SQS jobs on Lambda whose effects happen once",
		Long: `acklast runs SQS jobs on AWS Lambda whose effects happen once, and this is its operator's tool.

It works with the embedded AWS of "acklast local", with LocalStack and with AWS. Only AWS's own
settings decide which: with AWS_ENDPOINT_URL or --endpoint-url it uses that address, otherwise AWS
with your profile and region. At an address of this machine it needs no credentials. Before it
writes anything, it prints the place on standard error.

The answer goes to standard output, as a table or with --output json; everything else goes to
standard error. The exit code is 0 if all went well, 1 if the command failed, 2 if the command line,
its input or the present state does not allow it, 3 if a redrive was stopped by a condition, and 6 if doctor could not
make a check.

Shell completion: "acklast completion bash|zsh|fish|powershell" prints the script, for example
  source <(acklast completion bash)`,
		Example: `  acklast local                                   # the system on this machine, until Ctrl-C
  export AWS_ENDPOINT_URL=http://127.0.0.1:4566   # in another terminal
  acklast send --file events/reservation-expire.json
  acklast job r-1042
  acklast status`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.command = strings.TrimPrefix(cmd.CommandPath(), "acklast ")
			if a.output != "table" && a.output != "json" {
				return refuse("--output is %q, want table or json", a.output)
			}
			if a.stack == "" {
				return refuse("--stack is empty")
			}
			if !topology.ValidStack(a.stack) {
				return refuse("--stack is %q, but a stack's name begins with a letter and has at most %d letters, digits and hyphens", a.stack, topology.MaxStack)
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.profile, "profile", "", "AWS profile (default: AWS_PROFILE)")
	flags.StringVar(&a.region, "region", "", "AWS region (default: AWS_REGION or the profile's)")
	flags.StringVar(&a.endpoint, "endpoint-url", "", "address to use in place of AWS (default: AWS_ENDPOINT_URL)")
	flags.StringVar(&a.stack, "stack", cmp.Or(a.getenv(envStack), topology.DefaultStack), "name of the stack, also "+envStack)
	flags.StringVar(&a.output, "output", "table", "form of the answer: table or json")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))

	root.AddCommand(
		newLocal(a),
		newDemo(a),
		newSend(a),
		newSmoke(a),
		newJob(a),
		newStatus(a),
		newWatch(a),
		newDoctor(a),
		newCapacity(a),
		newConsole(a),
		newPause(a),
		newResume(a),
		newDLQ(a),
		newRedrive(a),
		newCancel(a),
		newDiscard(a),
		newDecide(a),
		newAudit(a),
		newVersion(a),
	)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80")) // and all below it
	narrow(root)
	return root
}

// narrow wraps the help of a command and of its subcommands at 80 columns.
func narrow(cmd *cobra.Command) {
	cmd.Long = reflow(cmd.Long, defaultColumns)
	for _, sub := range cmd.Commands() {
		narrow(sub)
	}
}

// starting makes a command's RunE: errors from f are not about the command line.
func (a *app) starting(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}
