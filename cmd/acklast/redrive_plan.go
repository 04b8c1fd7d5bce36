package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/capacity"
	"acklast/internal/redrive"
)

func newRedrivePlan(a *app) *cobra.Command {
	var s selection
	var w who
	var rate, canary, count int
	var open bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Freeze a selection into a plan, and say what would happen",
		Long: `Select isolated messages, join each with its ledger entry, and freeze the selection into a plan: its answer says what a
run would do with each message. Nothing moves. Without a selection, on a terminal, it shows the groups of isolated jobs and lets you choose.
The plan expires, becomes at most one run, and says whether somebody else has to approve it.`,
		Example: `  acklast redrive plan --class transient --older-than 5m --reason 'the provider is back'`,
		Args:    noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			if open != (count > 0) {
				return refuse("--open and --count belong together: the selection is frozen instead of the messages, and the count bounds it")
			}
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			a.announce(cmd.Context(), g.target)
			f := s.filter()
			if emptyFilter(f) && a.interactive() {
				if f, err = a.chooseGroup(cmd.Context(), g.target); err != nil {
					return err
				}
			}
			return a.planned(cmd.Context(), g, redrive.Request{Action: "plan", Select: f, By: g.name(cmd.Context(), w), Reason: w.reason,
				RatePerSecond: rate, Canary: canary, Open: open, Count: count})
		}),
	}
	s.flags(cmd)
	w.flags(cmd)
	cmd.Flags().IntVar(&rate, "rate", 0, "messages per second; 0 is the default, -1 no limit")
	cmd.Flags().IntVar(&canary, "canary", 0, "how many jobs go first and are judged; 0 is the default")
	cmd.Flags().BoolVar(&open, "open", false, "freeze the selection instead of the messages, for a big queue; needs --count")
	cmd.Flags().IntVar(&count, "count", 0, "with --open: how many messages the run redrives or removes at most")
	return cmd
}

func newRedriveApprove(a *app) *cobra.Command {
	var w who
	var yes bool
	cmd := &cobra.Command{
		Use: "approve [PLAN|latest]", Short: "Show somebody else's plan, ask, and approve it", Args: someArgs(0, 1),
		Long: `Show a plan, ask, and approve it. Only another person than the plan's author may, through the redrive function's
alias "approve", which is a permission of its own.`,
		Example: `  acklast redrive approve p-20261201-100000-1a2b3c4d --reason 'checked with the provider'
  acklast redrive approve latest --reason 'checked with the provider'`,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			g.approving.Store(true)
			a.announce(ctx, g.target)
			on, err := a.resolve(ctx, g, args, func(r redrive.Run) bool { return r.State == redrive.Planned })
			if err != nil {
				return err
			}
			if on.plan == "" {
				return refuse("%s is no plan: plans begin with p-", on.run)
			}
			before, err := g.ask(ctx, redrive.Request{Action: "status", Plan: on.plan})
			if err != nil {
				return err
			}
			if before.Run != nil {
				return refuse("plan %s is run %s already, which is %s", on.plan, before.Run.ID, before.Run.State)
			}
			if err := a.confirmed(yes, "Approve this?", func(out io.Writer) {
				printInspection(out, redrive.Response{Groups: before.Plan.Groups}, a.now())
				printPlan(out, *before.Plan, a.now())
			}); err != nil {
				return err
			}
			resp, err := g.ask(ctx, redrive.Request{Action: "approve", Plan: on.plan, By: g.name(ctx, w), Reason: w.reason})
			if err != nil {
				return err
			}
			return a.answer(resp, func(out io.Writer) { say(out, "Approved.\nNext: acklast redrive run %s\n", plain(on.plan)) })
		}),
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// confirmed shows what will happen and asks.
func (a *app) confirmed(yes bool, question string, show func(io.Writer)) error {
	if yes {
		return nil
	}
	if err := a.table(a.stderr, show); err != nil {
		return err
	}
	say(a.stderr, "%s Type yes: ", question)
	line, err := a.line()
	if err != nil {
		return err
	}
	if line != "yes" {
		return refuse("not confirmed; nothing was done (--yes does not ask)")
	}
	return nil
}

func printPlan(w io.Writer, p redrive.Plan, now time.Time) {
	say(w, "\n")
	row(w, "PLAN", p.ID)
	row(w, "by", p.By)
	row(w, "reason", p.Reason)
	if p.Open {
		row(w, "open", fmt.Sprintf("up to %d messages that its selection matches, isolated before %s", p.Count, stamp(p.At)))
		conditions, _ := json.Marshal(p.Select)
		row(w, "selection", string(conditions))
	}
	row(w, "selected", fmt.Sprintf("%d messages, %d bytes: %s", p.Selected, p.Bytes, actionsOf(p.Actions)))
	rate, takes := "none", "as fast as it goes"
	if p.RatePerSecond > 0 {
		rate = fmt.Sprintf("%d per second", p.RatePerSecond)
		takes = "about " + rough(capacity.Drain(p.Actions[redrive.Redrive], float64(p.RatePerSecond)))
	}
	row(w, "canary", strings.Trim(fmt.Sprint(p.Stages), "[]")+" jobs, judged before the rest")
	row(w, "rate", fmt.Sprintf("%s, %s after the canary", rate, takes))
	row(w, "expires", when(p.ExpiresAt, now))
	switch {
	case p.ApprovedBy != "":
		row(w, "approved", fmt.Sprintf("by %s: %s", p.ApprovedBy, p.ApprovalReason))
	case p.Approval != "":
		row(w, "needs approval", p.Approval)
	}
	if p.Partial != "" {
		row(w, "partial", p.Partial)
	}
	if r := p.Replacement; r != nil {
		row(w, "message", r.Message)
		row(w, "job", dash(r.Job))
		if r.Discard != "" {
			row(w, "from the audit of", r.Discard)
		}
		if r.Note != "" {
			row(w, "note", r.Note)
		}
		say(w, "\n")
		for line := range strings.Lines(r.Diff) {
			say(w, "%s\n", plain(strings.TrimSuffix(line, "\n")))
		}
	}
	if d := p.Drift; d != nil && d.Final+d.Redriven+d.Guarded+d.Unread > 0 {
		row(w, "changed since", fmt.Sprintf("%d are final, %d were redriven, %d need an approval of their own, %d cannot be read; such as %s",
			d.Final, d.Redriven, d.Guarded, d.Unread, strings.Join(d.Samples, ", ")))
	}
}
