// Command teardown runs "cdk destroy", unless jobs wait in EventBridge Scheduler.
//
// Such a job was acknowledged, so no queue has it: its schedule is all that is left of it. Without the worker, its
// message would come to a lane that nobody reads, and SQS would delete it there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"acklast/internal/awsclient"
	"acklast/internal/schedule"
	"acklast/internal/topology"
)

func main() {
	if err := run(context.Background(), os.Args[1:], command); err != nil {
		fmt.Fprintln(os.Stderr, "teardown:", err)
		os.Exit(1)
	}
}

const usage = `go run ./infra/teardown CDK [ARGUMENT ...], as "make destroy" does it`

// most is how many schedules are counted.
const most = 1000

// command runs a command on this process's terminal. It returns the output if that is wanted.
func command(ctx context.Context, wanted bool, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	if wanted {
		out, err := cmd.Output()
		return string(out), err
	}
	cmd.Stdout = os.Stdout
	return "", cmd.Run()
}

// run asks the CDK which stack the arguments mean, counts its schedules, and destroys it if there are none.
func run(ctx context.Context, args []string, command func(ctx context.Context, wanted bool, name string, args ...string) (string, error)) error {
	if len(args) == 0 {
		return errors.New("want the CDK's command: " + usage)
	}
	cdk, args := args[0], args[1:]
	listed, err := command(ctx, true, cdk, append([]string{"list"}, args...)...)
	if err != nil {
		return fmt.Errorf("%s list: %w", cdk, err)
	}
	stacks := strings.Fields(listed)
	if len(stacks) != 1 {
		return fmt.Errorf("%s list names %d stacks, want one: %s", cdk, len(stacks), strings.Join(stacks, ", "))
	}
	if err := refuse(ctx, stacks[0]); err != nil {
		return err
	}
	if _, err := command(ctx, false, cdk, append([]string{"destroy"}, args...)...); err != nil {
		return fmt.Errorf("%s destroy: %w", cdk, err)
	}
	return nil
}

// refuse returns an error if the stack's group has schedules, or cannot be asked.
func refuse(ctx context.Context, stack string) error {
	group := topology.NamesOf(stack).ScheduleGroup
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	n, err := schedule.New(awsclient.Scheduler(cfg), schedule.Target{Group: group}).Count(ctx, most)
	switch {
	case err != nil:
		return fmt.Errorf("nothing is destroyed, since nobody knows whether jobs wait: %w", err)
	case n == 0:
		return nil
	}
	count := fmt.Sprint(n)
	if n == most {
		count = fmt.Sprintf("at least %d", n)
	}
	return fmt.Errorf(`nothing is destroyed: %s jobs of %s wait in EventBridge Scheduler, and their schedules are all that is left of them.
Deploy with scheduleFrom=0s, so that no more are made, and let these end; or cancel them (acklast cancel JOB).
To lose them knowingly: aws scheduler delete-schedule-group --name %s`, count, stack, group)
}
