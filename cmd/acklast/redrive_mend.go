package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"acklast/internal/redrive"
	"acklast/internal/topology"
)

func newRedriveMend(a *app) *cobra.Command {
	var w who
	var file string
	cmd := &cobra.Command{
		Use:   "mend MESSAGE|JOB",
		Short: "Plan to send a job with a mended body, for somebody to approve",
		Long: `Plan to send a message of the DLQ with another body. Without --file it prints the body that the message has, for you to
edit; with --file it shows what the edited body changes, and makes a plan of it. Somebody else sees the same and approves it; then
"acklast redrive run" sends it. The job's key must stay the same: a new key is a new job. The audit keeps both bodies.`,
		Example: `  acklast redrive mend 5d1cf1a5-0000-4000-8000-000000000001 > body.json
  acklast redrive mend 5d1cf1a5-0000-4000-8000-000000000001 --file body.json --reason 'the units were missing'`,
		Args: someArgs(1, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if (file == "") != (w.reason == "") {
				return refuse("--file needs a --reason, and a --reason needs a --file")
			}
			body := ""
			if file != "" {
				var err error
				if body, err = a.bodyOf(file); err != nil {
					return err
				}
			}
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			message, job := asOneOf(args[0])
			if file == "" {
				a.at(g.target)
				resp, err := g.ask(ctx, redrive.Request{Action: "inspect", Message: message, Job: job, WithBody: true})
				if err == nil && resp.Message == nil {
					err = refuse("%s", heldBy(resp.Run))
				}
				if err != nil {
					return err
				}
				if a.output == "json" {
					return a.answer(resp, nil)
				}
				return a.body(resp.Message.Body)
			}
			a.announce(ctx, g.target)
			return a.planned(ctx, g, redrive.Request{Action: "mend", Message: message, Job: job, Body: body, By: g.name(ctx, w), Reason: w.reason})
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "file with the new body, - for standard input")
	cmd.Flags().StringVar(&w.by, "by", "", "who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "with --file: why, for the audit")
	return cmd
}

// bodyOf reads a message's body from a file. The newline that editors put at its end is no part of it.
func (a *app) bodyOf(file string) (string, error) {
	body, err := a.readInput(file, topology.MaxMessageBytes)
	return strings.TrimSuffix(string(body), "\n"), err
}

func newRedriveResend(a *app) *cobra.Command {
	var w who
	cmd := &cobra.Command{
		Use:   "resend DISCARD MESSAGE|JOB",
		Short: "Plan to send a discarded message again, for somebody to approve",
		Long: `Plan to send a message again that a discard (d-...) took from the DLQ. The audit has it with everything that its sender put
into it. Somebody else sees it and approves the plan; then "acklast redrive run" reopens its job and sends it. A job that has ended
otherwise meanwhile is not sent.`,
		Example: `  acklast redrive resend d-20261201-100000-1a2b3c4d 5d1cf1a5-0000-4000-8000-000000000001 --reason 'it was wanted after all'`,
		Args:    someArgs(2, 2),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.announce(ctx, g.target)
			message, job := asOneOf(args[1])
			return a.planned(ctx, g, redrive.Request{Action: "resend", Run: args[0], Message: message, Job: job, By: g.name(ctx, w), Reason: w.reason})
		}),
	}
	w.flags(cmd)
	return cmd
}

// planned makes a request that makes a plan, prints the plan, and says what comes next.
func (a *app) planned(ctx context.Context, g *governor, r redrive.Request) error {
	resp, err := g.ask(ctx, r)
	if err != nil {
		return err
	}
	return a.answer(resp, func(w io.Writer) {
		printInspection(w, redrive.Response{Scan: resp.Scan, Groups: resp.Groups}, a.now())
		printPlan(w, *resp.Plan, a.now())
		next := "acklast redrive run " + resp.Plan.ID
		if resp.Plan.Approval != "" {
			next = "acklast redrive approve " + resp.Plan.ID + ", by somebody else"
		}
		say(w, "\nNext: %s\n", plain(next))
	})
}
