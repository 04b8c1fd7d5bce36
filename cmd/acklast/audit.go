package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"acklast/internal/redrive"
)

func newAudit(a *app) *cobra.Command {
	var payload, ending string
	cmd := &cobra.Command{
		Use:   "audit JOB|RUN|PLAN|switch",
		Short: "Say who did what with a job, a run, a plan or the kill switch",
		Long: `Print the audit of a run (everything it did, and what became of each of its jobs, as the ledger has it now), of a plan (who made, approved, ran and revoked it) or of a job, by its key
(what runs and discards did with it, who decided and who cancelled it), or of the kill switch, as "switch". With --body and a discard's id (d-...), print
the body of one discarded message; with --body and a plan's, what the plan mends in that message.`,
		Example: `  acklast audit r-20261201-100000-1a2b3c4d
  acklast audit r-20261201-100000-1a2b3c4d --ending 'isolated again'
  acklast audit reminder.send/renewal-1042/email/v3
  acklast audit d-20261201-100000-1a2b3c4d --body 5d1cf1a5-0000-4000-8000-000000000001`,
		Args: someArgs(1, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.at(g.target)
			r := redrive.Request{Action: "audit", Ending: redrive.Ending(ending)}
			switch id := args[0]; {
			case strings.HasPrefix(id, "p-"):
				r.Plan = id
			case strings.HasPrefix(id, "r-"), strings.HasPrefix(id, "d-"):
				r.Run = id
			default:
				r.Job = id
			}
			if ending != "" && (payload != "" || !strings.HasPrefix(r.Run, "r-")) {
				return refuse("--ending selects from the audit of a run, such as r-20261201-100000-1a2b3c4d")
			}
			if payload != "" {
				if r.Run == "" && r.Plan == "" {
					return refuse("--body needs the id of a discard, such as d-20261201-100000-1a2b3c4d, or of a plan that mends")
				}
				r.WithBody = true
				if r.Run != "" { // a plan has one message
					r.Message, r.Job = asOneOf(payload)
				}
			}
			all, err := g.ask(ctx, r)
			for page, after := all.NextPage, all.Next; err == nil && (page > 0 || after != ""); {
				r.Page, r.After = page, after
				var next redrive.Response
				if next, err = g.ask(ctx, r); err == nil {
					all.Audit, page, after = append(all.Audit, next.Audit...), next.NextPage, next.Next
				}
			}
			if err != nil {
				return err
			}
			all.NextPage, all.Next = 0, ""
			slices.SortStableFunc(all.Audit, func(a, b redrive.AuditRecord) int { return a.At.Compare(b.At) })
			if len(all.Audit) == 0 && ending != "" {
				say(a.stderr, "No message of %s ended as %q.\n", plain(r.Run), plain(ending))
			} else if len(all.Audit) == 0 && payload == "" {
				if r.Job == "" {
					return refuse("the audit has nothing about %s: \"acklast redrive status\" lists plans and runs", args[0])
				}
				if r.Job == redrive.SwitchKey {
					return refuse("nobody threw or released the kill switch within the time that the audit is kept")
				}
				say(a.stderr, "The audit has nothing about %s: no run and no discard touched it, and nobody decided or cancelled it.\n", plain(r.Job))
			}
			if payload != "" && a.output != "json" {
				if all.Plan != nil && all.Plan.Replacement != nil {
					all.Body = all.Plan.Replacement.Diff
				}
				return a.body(all.Body)
			}
			return a.answer(all, func(w io.Writer) {
				row(w, "AT", "WHAT", "JOB", "MESSAGE", "ENDING", "BY", "WHY")
				for _, line := range all.Audit {
					row(w, stamp(line.At), line.What, dash(line.Job), line.Message, dash(string(line.Ending)), dash(line.By), dash(whyOf(line)))
				}
				if r.Job == redrive.SwitchKey {
					printSwitch(w, all.Switch)
				}
				if !all.EndingsAt.IsZero() {
					say(w, "\nThe endings are as of %s.\n", stamp(all.EndingsAt))
				}
			})
		}),
	}
	cmd.Flags().StringVar(&payload, "body", "", "the body of one message of a discard, by its id or its job's key, or what a plan mends in it")
	cmd.Flags().StringVar(&ending, "ending", "", "only the messages of a run that ended so, such as 'isolated again', each with its last line")
	return cmd
}

// whyOf is why a line's step was made: a person's reason, and what the redrive or the ledger says.
func whyOf(line redrive.AuditRecord) string {
	why := cmp.Or(line.EndingWhy, line.Why)
	if line.Reason != "" && why != "" {
		return line.Reason + " (" + why + ")"
	}
	return cmp.Or(line.Reason, why)
}
