package main

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

func newDiscard(a *app) *cobra.Command {
	var w who
	var s selection
	var count int
	cmd := &cobra.Command{
		Use:   "discard [MESSAGE...]",
		Short: "End isolated jobs for good, with their payload in the audit",
		Long: `End isolated jobs for good, by the ids of their messages on the DLQ ("acklast dlq" shows them), or by a selection of
which you say how many it selects. The payload goes into the audit first; the job's entry becomes terminal, so that no copy of
it runs; then the message is deleted. Refused for a job that a delivery holds, and for an ambiguous one, which is for "acklast
decide". Exit code 2 if any was not discarded.`,
		Example: `  acklast discard 5d1cf1a5-0000-4000-8000-000000000001 --reason 'malformed by a producer that is mended'
  acklast discard --class invalid --error 'not JSON' --count 12 --reason 'malformed by a producer that is mended'`,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r := redrive.Request{Action: "discard", Messages: args}
			if f := s.filter(); !emptyFilter(f) {
				r.Select, r.Count = f, count
			}
			if (len(args) == 0) == (r.Select == nil) {
				return refuse("name the messages by their ids, or select them and say with --count how many that are")
			}
			if (r.Select != nil) != (count > 0) {
				return refuse("--count says how many a selection selects: give both or none")
			}
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.announce(ctx, g.target)
			r.By, r.Reason = g.name(ctx, w), w.reason
			resp, err := g.ask(ctx, r)
			if err != nil {
				return err
			}
			err = a.answer(resp, func(out io.Writer) {
				row(out, "MESSAGE", "RESULT", "WHY")
				for _, r := range resp.Results {
					row(out, r.Message, r.Result, dash(r.Why))
				}
			})
			if err == nil && slices.ContainsFunc(resp.Results, func(r redrive.Result) bool { return r.Result != "discarded" }) {
				err = &toldError{exitRefused}
			}
			return err
		}),
	}
	w.flags(cmd)
	s.flags(cmd)
	cmd.Flags().IntVar(&count, "count", 0, "how many messages the selection selects")
	return cmd
}

func newDecide(a *app) *cobra.Command {
	var w who
	var sent, notSent, drop bool
	cmd := &cobra.Command{
		Use:   "decide JOB",
		Short: "Decide an ambiguous job: it took effect, it did not, or it is over",
		Long: `Decide a job of which nobody knows whether it took effect, by its key ("acklast job" shows the evidence).
--sent makes it final. --not-sent lets it be redriven once, and is refused when the provider gave a request id or
the job has expired. --drop ends it. The decision is recorded on the entry.`,
		Example: `  acklast decide reminder.send/renewal-1042/email/v3 --not-sent --reason 'the provider finds no such request'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			what := map[ledger.DecisionKind]bool{ledger.Sent: sent, ledger.NotSent: notSent, ledger.Drop: drop}
			r := redrive.Request{Action: "decide", Job: args[0]}
			for kind, chosen := range what {
				if chosen {
					r.Decision = kind
				}
			}
			return a.request(cmd.Context(), w, r, func(out io.Writer, resp redrive.Response) { printEntry(out, *resp.Entry, a.now()) })
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&sent, "sent", false, "it did take effect")
	f.BoolVar(&notSent, "not-sent", false, "it did not; it may be redriven once")
	f.BoolVar(&drop, "drop", false, "whatever happened, it is over")
	cmd.MarkFlagsOneRequired("sent", "not-sent", "drop")
	cmd.MarkFlagsMutuallyExclusive("sent", "not-sent", "drop")
	w.flags(cmd)
	return cmd
}
