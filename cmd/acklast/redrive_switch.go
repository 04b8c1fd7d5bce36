package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/redrive"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// throwPause is the pause between two tries to throw the switch.
const throwPause = time.Second

func newRedriveStop(a *app) *cobra.Command {
	var by, reason string
	cmd := &cobra.Command{
		Use:   "stop [RUN|PLAN|latest]",
		Short: "Throw the kill switch: stop every redrive; or stop one run",
		Long: `Throw the kill switch, which stops every redrive before its next cohort, until "acklast redrive resume". It is written
directly, so that no busy or throttled function is in its way, and is tried until it is confirmed; who may not write it directly
asks the function. With a RUN, that run alone is stopped, and can be continued. Neither needs a name or a reason.`,
		Example: `  acklast redrive stop
  acklast redrive stop r-20261201-100000-1a2b3c4d --reason 'the provider answers 500 again'`,
		Args: someArgs(0, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.at(g.target)
			who := cmp.Or(by, a.getenv("USER"), "unknown")
			r := redrive.Request{Action: "stop", By: who, Reason: cmp.Or(reason, "none was given")}
			if len(args) == 1 {
				on, err := a.resolve(ctx, g, args, func(r redrive.Run) bool { return r.State == redrive.Active })
				if err != nil {
					return err
				}
				if on.plan != "" { // stop is for a run
					status, err := g.ask(ctx, redrive.Request{Action: "status", Plan: on.plan})
					if err != nil {
						return err
					}
					if status.Run == nil {
						return refuse("plan %s has no run yet: nothing is to be stopped", on.plan)
					}
					on.run = status.Run.ID
				}
				r.Run = on.run
				resp, err := g.ask(ctx, r)
				if err != nil {
					return err
				}
				return a.answer(resp, func(out io.Writer) { printRun(out, resp.Run, a.now()) })
			}
			sw, err := a.throw(ctx, g, r)
			if err != nil {
				return err
			}
			return a.answer(redrive.Response{Action: "stop", Switch: sw}, func(out io.Writer) { printSwitch(out, sw) })
		}),
	}
	cmd.Flags().StringVar(&by, "by", "", "who asks (default: USER)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who find it on")
	return cmd
}

// throw throws the kill switch, directly or through the function, until one of them confirms it. It ends early only if
// both answer what every repetition would answer.
func (a *app) throw(ctx context.Context, g *governor, r redrive.Request) (*redrive.Switch, error) {
	store := redrive.NewStore(g.db, g.names.OperationsTable)
	sw := redrive.Switch{On: true, By: r.By, Reason: r.Reason, At: a.now().UTC()}
	ttl := sw.At.Add(topology.DefaultRedrive().Retention)
	for {
		direct := g.explain(store.ThrowSwitch(ctx, sw, ttl))
		if direct == nil {
			if err := g.explain(store.RecordThrow(ctx, sw, ttl)); err != nil {
				say(a.stderr, "the kill switch is on; the audit has no line about it before its release: %s\n", plain(err.Error()))
			}
			return &sw, nil
		}
		resp, err := g.ask(ctx, r)
		if err == nil {
			return resp.Switch, nil
		}
		if lasts(direct) && lasts(err) {
			return nil, fmt.Errorf("the kill switch is not thrown: %w", direct)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("not confirmed: %w; %w", direct, err)
		}
		say(a.stderr, "not confirmed yet, trying again: %s; %s\n", plain(direct.Error()), plain(err.Error()))
		if err := retry.Sleep(ctx, throwPause); err != nil {
			return nil, fmt.Errorf("not confirmed: %w", direct)
		}
	}
}

func newRedriveResume(a *app) *cobra.Command {
	var w who
	cmd := &cobra.Command{
		Use: "resume", Short: "Release the kill switch; continues no run by itself", Args: noArgs,
		Long: `Release the kill switch that "acklast redrive stop" threw. Runs stay halted: "acklast redrive run RUN" continues one, with a
fresh canary.`,
		Example: `  acklast redrive resume --reason 'the provider is back'`,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			return a.request(cmd.Context(), w, redrive.Request{Action: "resume"}, func(out io.Writer, r redrive.Response) { printSwitch(out, r.Switch) })
		}),
	}
	w.flags(cmd)
	return cmd
}

func newRedriveRevoke(a *app) *cobra.Command {
	var w who
	cmd := &cobra.Command{
		Use: "revoke [PLAN|RUN|latest]", Short: "End a run for good and take back what waits, or withdraw a plan", Args: someArgs(0, 1),
		Long: `End a run for good, or withdraw a plan. Messages of the run that still wait on the recovery lane go back to the DLQ with
cause "revoked" when they are delivered; jobs that have run stay as they are. A revoked run cannot be continued.`,
		Example: `  acklast redrive revoke r-20261201-100000-1a2b3c4d --reason 'the wrong jobs were selected'`,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.announce(ctx, g.target)
			on, err := a.resolve(ctx, g, args, func(r redrive.Run) bool { return r.State != redrive.Done && r.State != redrive.Revoked })
			if err != nil {
				return err
			}
			resp, err := g.ask(ctx, redrive.Request{Action: "revoke", Plan: on.plan, Run: on.run, By: g.name(ctx, w), Reason: w.reason})
			if err != nil {
				return err
			}
			return a.answer(resp, func(out io.Writer) { printRun(out, resp.Run, a.now()) })
		}),
	}
	w.flags(cmd)
	return cmd
}

func printSwitch(w io.Writer, s *redrive.Switch) {
	switch {
	case s == nil:
		say(w, "\nThe kill switch is off.\n")
	case s.On:
		say(w, "\nThe kill switch is on, by %s: %s\n", plain(s.By), plain(s.Reason))
	default:
		say(w, "\nThe kill switch is off.\n")
	}
}
