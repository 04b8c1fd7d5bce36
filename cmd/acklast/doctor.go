package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/spf13/cobra"

	"acklast/internal/doctor"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// doctorReport is the answer of doctor.
type doctorReport struct {
	Stack  string         `json:"stack"`
	Place  string         `json:"place"`
	Checks []doctor.Check `json:"checks"`
	// Findings and Unknown count the checks that found something, and those that could not be made.
	Findings int `json:"findings"`
	Unknown  int `json:"unknown"`
}

func newDoctor(a *app) *cobra.Command {
	var file, only string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Compare a deployed stack with its settings and AWS's guidance",
		Long: `Check a deployed stack: partial responses, visibility, redrive policies, retentions, Lambda's detection of
recursive loops, the account's concurrency, alarms that somebody deleted or disabled and who is told, this machine's clock, your permissions for each
command, and settings that differ from --settings (default: the numbers that a deployment has without any).

Each check answers ok, a finding with what to do, or "cannot tell" with the reason. It only reads. The exit code is 0 if
all is ok, 1 if there is a finding, and 6 if there is none and a check could not be made.`,
		Example: `  acklast doctor --settings infra/environments/default.json
  acklast doctor --commands status,job --output json | jq '.checks[] | select(.result != "ok")'`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			var raw []byte
			if file != "" {
				var err error
				if raw, err = a.readInput(file, topology.MaxMessageBytes); err != nil {
					return refuse("--settings: %w", err)
				}
			}
			want, err := doctor.ReadSettings(raw)
			if err != nil {
				return refuse("--settings %s: %w", file, err)
			}
			var commands []string
			for name := range strings.SplitSeq(only, ",") {
				if name = strings.TrimSpace(name); name == "" {
					continue
				}
				if !slices.Contains(doctor.CommandNames(), name) {
					return refuse("--commands has %q, want some of %s", name, strings.Join(doctor.CommandNames(), ", "))
				}
				commands = append(commands, name)
			}
			return a.examine(cmd.Context(), want, commands)
		}),
	}
	cmd.Flags().StringVar(&file, "settings", "", "settings file of the deployment, such as infra/environments/default.json")
	cmd.Flags().StringVar(&only, "commands", "", "commands whose permissions are checked, with commas (default: all)")
	return cmd
}

func (a *app) examine(ctx context.Context, want doctor.Wanted, commands []string) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	// These variables do not follow from the numbers.
	environment := worker.Environment(t.names.Stack, topology.QueueURLs{}, want.Settings)
	for _, name := range []string{worker.EnvSourceURL, worker.EnvRecoveryURL, worker.EnvDLQURL, worker.EnvLogLevel} {
		delete(environment, name)
	}
	d := doctor.Doctor{
		Names: t.names, Want: want, Environment: environment, Commands: commands, Region: t.config.Region,
		Clients: doctor.Clients{
			SQS: t.sqs, STS: t.sts, Lambda: lambda.NewFromConfig(t.config), CloudWatch: cloudwatch.NewFromConfig(t.config),
			SNS: sns.NewFromConfig(t.config), IAM: iam.NewFromConfig(t.config),
		},
	}
	r := doctorReport{Stack: t.names.Stack, Place: t.place, Checks: d.Examine(ctx)}
	for _, c := range r.Checks {
		switch c.Result {
		case doctor.OK:
		case doctor.Finding:
			r.Findings++
		default:
			r.Unknown++
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := a.answer(r, func(w io.Writer) { printDoctor(w, r) }); err != nil {
		return err
	}
	switch {
	case r.Findings > 0:
		return &toldError{exitFailed}
	case r.Unknown > 0:
		return &toldError{exitUnsure}
	}
	return nil
}

// namedChecks is how many checks with the same result and reason are named below the table, which names all.
const namedChecks = 3

func printDoctor(w io.Writer, r doctorReport) {
	row(w, "AREA", "CHECK", "RESULT", "FOUND")
	for _, c := range r.Checks {
		found := c.Found
		if found == "" {
			found = "-"
		}
		row(w, c.Area, c.Name, c.Result, found)
	}
	// One cause often leaves many checks open: it is told once.
	type told struct {
		result doctor.Result
		todo   string
	}
	var order []told
	names := map[told][]string{}
	for _, c := range r.Checks {
		if c.Todo == "" {
			continue
		}
		same := told{c.Result, c.Todo}
		if names[same] == nil {
			order = append(order, same)
		}
		names[same] = append(names[same], c.Name)
	}
	for _, same := range order {
		which := strings.Join(names[same], ", ")
		if more := len(names[same]) - namedChecks; more > 0 {
			which = fmt.Sprintf("%s and %d more", strings.Join(names[same][:namedChecks], ", "), more)
		}
		say(w, "\n%s: %s: %s.\n", plain(which), same.result, strings.TrimSuffix(plain(same.todo), "."))
	}
	say(w, "\n%d checks, %d findings, %d that cannot be made.\n", len(r.Checks), r.Findings, r.Unknown)
}
