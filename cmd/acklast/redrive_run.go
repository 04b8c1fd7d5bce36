package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/redrive"
)

func newRedriveRun(a *app) *cobra.Command {
	var w who
	var one string
	var yes bool
	cmd := &cobra.Command{
		Use:   "run [PLAN|RUN|latest]",
		Short: "Run a plan, or continue a run, and watch it",
		Long: `Run a plan, or continue a run that halted, after showing it and asking. A canary goes first and is judged in the ledger;
the others follow at the plan's rate while jobs end well. The command watches until the run is done or halts. Ctrl-C ends the
watching and not the run: "acklast redrive stop" stops that. While the kill switch is on, nothing begins.`,
		Example: `  acklast redrive run p-20261201-100000-1a2b3c4d
  acklast redrive run --only 5d1cf1a5-0000-4000-8000-000000000001 --reason 'its record is there now'`,
		Args: someArgs(0, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case len(args) == 1 && one != "":
				return refuse("name a plan or a run, or one message or job with --only, not both")
			case one != "" && w.reason == "":
				return refuse("--only needs a --reason")
			}
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.announce(ctx, g.target)
			r := redrive.Request{Action: "run", By: g.name(ctx, w), Reason: w.reason}
			if one != "" {
				r.Plan, err = a.planOne(ctx, g, r, one)
			} else {
				var on handle
				on, err = a.resolve(ctx, g, args, func(run redrive.Run) bool { return run.State != redrive.Done && run.State != redrive.Revoked })
				r.Plan, r.Run = on.plan, on.run
			}
			if err != nil {
				return err
			}
			before, err := g.ask(ctx, redrive.Request{Action: "status", Plan: r.Plan, Run: r.Run})
			if err == nil {
				err = switchedOff(before.Switch)
			}
			if err != nil {
				return err
			}
			if err := a.confirmed(yes, "Run this?", func(out io.Writer) {
				if before.Run != nil {
					printRun(out, before.Run, a.now())
				} else {
					printPlan(out, *before.Plan, a.now())
				}
			}); err != nil {
				return err
			}
			resp, err := a.runAndWatch(ctx, g, r)
			if err != nil {
				return err
			}
			return a.told(resp)
		}),
	}
	cmd.Flags().StringVar(&w.by, "by", "", "who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for the audit; --only needs one")
	cmd.Flags().StringVar(&one, "only", "", "plan and run one message by its id on the DLQ, or one job by its key")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// planOne plans one message, or one job, unless the kill switch is on: before a plan exists that could not run.
func (a *app) planOne(ctx context.Context, g *governor, r redrive.Request, one string) (plan string, err error) {
	resp, err := g.ask(ctx, redrive.Request{Action: "status"})
	if err == nil {
		err = switchedOff(resp.Switch)
	}
	if err != nil {
		return "", err
	}
	f := &redrive.Filter{}
	if message, job := asOneOf(one); job != "" {
		f.Keys = []string{job}
	} else {
		f.Messages = []string{message}
	}
	resp, err = g.ask(ctx, redrive.Request{Action: "plan", Select: f, By: r.By, Reason: r.Reason})
	if err != nil {
		return "", fmt.Errorf("%s cannot be redriven: %w", one, err)
	}
	return resp.Plan.ID, nil
}

func newRedriveStatus(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "status [RUN|PLAN|latest]", Short: "List plans and runs, or say how far one is and why it stopped", Args: someArgs(0, 1),
		Long: `List the newest plans and runs and whether the kill switch is on. With a run or a plan, show that one: its state, why it
stopped, and what became of its messages. Its exit code is then that of "acklast redrive run".`,
		Example: `  acklast redrive status
  acklast redrive status latest --watch
  acklast redrive status r-20261201-100000-1a2b3c4d --output json`,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if watch && len(args) == 0 {
				return refuse("--watch watches one run: name it, or say %q", latest)
			}
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.at(g.target)
			r := redrive.Request{Action: "status"}
			if len(args) == 0 {
				resp, err := g.ask(ctx, r)
				if err != nil {
					return err
				}
				return a.answer(resp, func(w io.Writer) { printRuns(w, resp, a.now()) })
			}
			on, err := a.resolve(ctx, g, args, func(redrive.Run) bool { return true })
			if err != nil {
				return err
			}
			r.Plan, r.Run = on.plan, on.run
			resp, err := g.ask(ctx, r)
			if err != nil {
				return err
			}
			if watch && resp.Run == nil {
				return refuse("plan %s has no run to watch: acklast redrive run %s", on.plan, on.plan)
			}
			if watch && resp.Run.State == redrive.Active {
				if resp, err = a.watch(ctx, g, r); err != nil {
					return err
				}
			}
			return a.told(resp)
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show progress until it ends")
	return cmd
}

func printRuns(w io.Writer, resp redrive.Response, now time.Time) {
	row(w, "RUN", "PLAN", "STATE", "SENT", "OF", "BY", "STARTED", "WHY")
	for _, r := range resp.Runs {
		row(w, r.ID, r.Plan, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)), r.Counts["sent"], r.Total, dash(r.By), when(r.StartedAt, now), dash(r.Why))
	}
	printSwitch(w, resp.Switch)
}

// told prints what a run came to and ends with the exit code for it.
func (a *app) told(resp redrive.Response) error {
	err := a.answer(resp, func(w io.Writer) {
		if resp.Run == nil {
			printPlan(w, *resp.Plan, a.now())
			return
		}
		printRun(w, resp.Run, a.now())
	})
	if err != nil || resp.Run == nil {
		return err
	}
	if code := exitOf(resp.Run); code != exitOK {
		return &toldError{code}
	}
	return nil
}

// exitOf is the one table of what a run came to.
func exitOf(run *redrive.Run) int {
	switch {
	case run.State == redrive.Active, run.EndedWell():
		return exitOK
	case run.State == redrive.Done:
		return exitUnwell
	case run.State == redrive.Halted && run.Code == redrive.HaltInterrupted:
		return exitInterrupted
	case run.State == redrive.Revoked:
		return exitFailed
	}
	return exitStopped
}

func printRun(w io.Writer, r *redrive.Run, now time.Time) {
	row(w, "RUN", r.ID)
	row(w, "plan", r.Plan)
	row(w, "state", strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)))
	if r.Why != "" {
		row(w, "why", r.Why)
	}
	row(w, "by", fmt.Sprintf("%s: %s", r.By, r.Reason))
	row(w, "started", when(r.StartedAt, now))
	row(w, "updated", when(r.UpdatedAt, now))
	row(w, "canary", cmp.Or(r.Canary, "-"))
	row(w, "messages", r.Total)
	cut := false
	for _, ending := range slices.Sorted(maps.Keys(r.Endings)) {
		names := strings.Join(r.Names[ending], ", ")
		if more := r.Endings[ending] - len(r.Names[ending]); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
			cut = true
		}
		row(w, ending, fmt.Sprintf("%d: %s", r.Endings[ending], names))
	}
	if r.Unseen > 0 {
		row(w, "not seen", r.Unseen)
	}
	for _, watched := range r.Watched {
		if watched.Ending == redrive.Again || watched.Ending == redrive.Retrying || watched.Ending == redrive.TooLate || watched.Ending == redrive.TakenOver || watched.Ending == redrive.Unjudged {
			row(w, "failed", fmt.Sprintf("%s: %s: %s", watched.Job, watched.Ending, watched.Why))
		}
	}
	if cut {
		say(w, "\nEvery job with its ending: acklast audit %s\n", plain(r.ID))
	}
}
