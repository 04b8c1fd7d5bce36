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
		Use:   "discard [MESSAGE|JOB...]",
		Short: "End isolated or scheduled jobs, with their payload in the audit",
		Long: `End isolated jobs for good, by the ids of their messages on the DLQ ("acklast dlq" shows them), by their keys, or by a
selection with the number of messages that it selects. The message goes into the audit first; the job's entry becomes terminal, so that
no copy of it runs; then the message is deleted. Of a copy, and of a message with another payload than its job's, only the message is
deleted, and the answer says so: a job is ended by its key, or by the message that was isolated. For an ambiguous job this is the decision to drop it. A job that waits in EventBridge
Scheduler is named by its key, and its schedule is deleted. It is refused while a
delivery holds the job. The exit code is 2 if any was not discarded. "acklast redrive resend" undoes a discard.`,
		Example: `  acklast discard 5d1cf1a5-0000-4000-8000-000000000001 --reason 'malformed by a producer that is mended'
  acklast discard --class invalid --error 'not valid JSON' --count 12 --reason 'malformed by a producer that is mended'`,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r := redrive.Request{Action: "discard"}
			for _, id := range args {
				if message, job := asOneOf(id); job != "" {
					r.Jobs = append(r.Jobs, job)
				} else {
					r.Messages = append(r.Messages, message)
				}
			}
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
			return a.results(resp, "discarded")
		}),
	}
	w.flags(cmd)
	s.flags(cmd)
	cmd.Flags().IntVar(&count, "count", 0, "how many messages the selection selects")
	return cmd
}

// results prints the result of each message, and ends with exit code 2 if any differs from wanted.
func (a *app) results(resp redrive.Response, wanted string) error {
	err := a.answer(resp, func(out io.Writer) {
		row(out, "MESSAGE", "JOB", "RESULT", "WHY")
		for _, r := range resp.Results {
			row(out, dash(r.Message), dash(r.Job), r.Result, dash(r.Why))
		}
		if resp.Discard != "" {
			say(out, "\nThe audit has them: acklast audit %s\n", plain(resp.Discard))
		}
	})
	if err == nil && slices.ContainsFunc(resp.Results, func(r redrive.Result) bool { return r.Result != wanted }) {
		err = &toldError{exitRefused}
	}
	return err
}

func newDecide(a *app) *cobra.Command {
	var w who
	var s selection
	var count int
	var sent, notSent bool
	cmd := &cobra.Command{
		Use:   "decide [JOB]",
		Short: "Decide an ambiguous job: it took effect, or it did not",
		Long: `Decide whether an ambiguous job took effect, by its key ("acklast job" shows the evidence), or by a
selection with the number of messages that it selects. --sent makes it final. --not-sent lets it be redriven once, and is
refused when the provider gave a request id or the job has expired. The decision is recorded on the entry. "acklast discard"
ends a job that is not wanted any more.`,
		Example: `  acklast decide reminder.send/renewal-1042/email/v3 --not-sent --reason 'the provider finds no such request'
  acklast decide --class ambiguous --error 'earlier request is unknown' --count 12 --not-sent --reason 'the provider was down all the time'`,
		Args: someArgs(0, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			r := redrive.Request{Action: "decide", Decision: ledger.NotSent}
			if sent {
				r.Decision = ledger.Sent
			}
			f := s.filter()
			if (len(args) == 0) == emptyFilter(f) || emptyFilter(f) != (count == 0) {
				return refuse("name a job, or select jobs and say with --count how many messages that are")
			}
			if len(args) == 1 {
				r.Job = args[0]
				return a.request(cmd.Context(), w, r, func(out io.Writer, resp redrive.Response) { printEntry(out, *resp.Entry, a.now()) })
			}
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			a.announce(cmd.Context(), g.target)
			r.Select, r.Count, r.By, r.Reason = f, count, g.name(cmd.Context(), w), w.reason
			resp, err := g.ask(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.results(resp, "decided")
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&sent, "sent", false, "it did take effect")
	f.BoolVar(&notSent, "not-sent", false, "it did not; it may be redriven once")
	cmd.MarkFlagsOneRequired("sent", "not-sent")
	cmd.MarkFlagsMutuallyExclusive("sent", "not-sent")
	s.flags(cmd)
	f.IntVar(&count, "count", 0, "how many messages the selection selects")
	w.flags(cmd)
	return cmd
}
