package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// selection are the flags of a selection.
type selection struct {
	all                             bool
	classes                         []string
	kinds, keys, subjects, messages []string
	fingerprints                    []string
	errorText                       string
	attributes, payload             map[string]string
	older, younger                  string
}

func (s selection) filter() *redrive.Filter {
	f := &redrive.Filter{All: s.all, Kinds: s.kinds, Keys: s.keys, Subjects: s.subjects, Messages: s.messages,
		Fingerprints: s.fingerprints, ErrorText: s.errorText, OlderThan: s.older, YoungerThan: s.younger,
		Attributes: s.attributes, Payload: s.payload}
	for _, c := range s.classes {
		f.Classes = append(f.Classes, job.Class(c))
	}
	return f
}

func newDLQ(a *app) *cobra.Command {
	var s selection
	var show string
	var payload, list bool
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Show isolated messages and why they are isolated",
		Long: `Group the messages on the DLQ by class, cause and kind, with samples, ages, and what a redrive would do with each
message. No message is consumed: the messages are hidden for a moment and then visible again. Their receive
counts grow.`,
		Example: `  acklast dlq
  acklast dlq --class transient --older-than 1h
  acklast dlq --show 5d1cf1a5-0000-4000-8000-000000000001 --body`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			a.at(g.target)
			r := redrive.Request{Action: "inspect", WithBody: payload}
			r.Message, r.Job = asOneOf(show)
			if f := s.filter(); !emptyFilter(f) {
				if show != "" {
					return refuse("--show prints one message: it takes no selection")
				}
				r.Select = f
			}
			if payload && show == "" {
				return refuse("--body prints the body of one message: name it with --show")
			}
			if list {
				return a.list(cmd.Context(), g, r)
			}
			resp, err := g.ask(cmd.Context(), r)
			if err == nil && show != "" && resp.Message == nil {
				err = refuse("%s", heldBy(resp.Run))
			}
			if err != nil {
				return err
			}
			return a.answer(resp, func(w io.Writer) { printInspection(w, resp, a.now()) })
		}),
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&list, "list", false, "name every message of the DLQ, however many there are; with --output json one line for each; exit code 1 if others hide some, so that the list is a part")
	cmd.Flags().StringVar(&show, "show", "", "print one message whole, by its id or its job's key")
	cmd.MarkFlagsMutuallyExclusive("list", "show")
	cmd.Flags().BoolVar(&payload, "body", false, "with --show: print its body too")
	return cmd
}

// list prints all selected messages, page by page.
func (a *app) list(ctx context.Context, g *governor, r redrive.Request) error {
	r.List = true
	var found []redrive.Listed
	part := false
	for {
		resp, err := g.ask(ctx, r)
		if err == nil && resp.Run != nil {
			err = refuse("%s", heldBy(resp.Run))
		}
		if err != nil {
			return err
		}
		for _, m := range resp.Messages {
			if a.output == "json" {
				if err := writeJSON(a.stdout, m, ""); err != nil {
					return err
				}
				continue
			}
			found = append(found, m)
		}
		if resp.Scan != nil && resp.Scan.Partial != "" {
			say(a.stderr, "only a part: %s\n", plain(resp.Scan.Partial))
			part = true
		}
		if resp.Next == "" {
			break
		}
		r = redrive.Request{Action: "inspect", List: true, After: resp.Next} // of the same list
	}
	slices.SortFunc(found, func(a, b redrive.Listed) int { return strings.Compare(a.Message, b.Message) })
	if a.output != "json" {
		if err := a.table(a.stdout, func(w io.Writer) {
			row(w, "MESSAGE", "CLASS", "JOB", "ISOLATED", "DELETED BY SQS", "A REDRIVE WOULD", "ERROR")
			for _, m := range found {
				row(w, m.Message, m.Class, dash(m.Job), when(m.IsolatedAt, a.now()), when(m.DeletedAt, a.now()), m.Action, dash(m.Error))
			}
		}); err != nil {
			return err
		}
	}
	if part {
		return &toldError{exitFailed}
	}
	return nil
}

// heldBy says that a look received nothing because a run holds the DLQ, and what to do.
func heldBy(run *redrive.Run) string {
	return fmt.Sprintf("run %[1]s is going on and holds the messages of the DLQ, so nothing was received: watch it with \"acklast redrive status %[1]s --watch\", "+
		"or stop it with \"acklast redrive stop %[1]s\", and look after its end", plain(run.ID))
}

func emptyFilter(f *redrive.Filter) bool {
	b, err := json.Marshal(f)
	return err == nil && string(b) == "{}"
}

func printInspection(w io.Writer, r redrive.Response, now time.Time) {
	if m := r.Message; m != nil {
		for _, line := range [][2]any{
			{"MESSAGE", m.ID}, {"job", dash(m.Job)}, {"class", m.Class}, {"cause", m.Cause}, {"error", dash(m.Memory.Error)},
			{"isolated", when(m.Memory.At, now)}, {"sent", when(m.SentAt, now)}, {"received", fmt.Sprint(m.ReceiveCount, " times")},
			{"bytes", m.Bytes}, {"attributes", strings.Join(slices.Sorted(maps.Keys(m.Attributes)), ", ")},
			{"unreadable", dash(m.Unreadable)}, {"redrive would", fmt.Sprint(m.Action, ": ", m.Why)},
		} {
			row(w, line[0], line[1])
		}
		if m.Body != "" {
			row(w, "payload", m.Body)
		}
		if m.Entry != nil {
			say(w, "\n")
			printEntry(w, *m.Entry, now)
		}
		return
	}
	if r.Run != nil {
		printRun(w, r.Run, now)
		say(w, "\n%s.\n", heldBy(r.Run))
		return
	}
	row(w, "CLASS", "CAUSE", "KIND", "COUNT", "OLDEST", "A REDRIVE WOULD", "ERROR")
	for _, g := range r.Groups {
		row(w, g.Class, g.Cause, g.Kind, g.Count, when(g.Oldest, now), actionsOf(g.Actions), dash(g.Fingerprint))
	}
	say(w, "\n")
	if len(r.Groups) > 0 {
		row(w, "SAMPLE", "JOB", "ISOLATED", "GENERATION", "ERROR", "WHY")
	}
	for _, g := range r.Groups {
		for _, s := range g.Samples {
			row(w, s.Message, dash(s.Job), when(s.IsolatedAt, now), s.Generation, dash(s.Error), fmt.Sprint(s.Action, ": ", s.Why))
		}
	}
	if s := r.Scan; s != nil {
		say(w, "\n%d of about %d messages seen", s.Seen, s.Holds)
		if s.Partial != "" {
			say(w, ": only a part, %s", plain(s.Partial))
		}
		say(w, ".\n")
	}
	next := map[redrive.Action]string{}
	for _, g := range r.Groups {
		for action := range g.Actions {
			switch action {
			case redrive.Redrive, redrive.Remove, redrive.Copy:
				next[redrive.Redrive] = "acklast redrive plan --class " + string(g.Class) + " --reason WHY"
			case redrive.NeedsDecision:
				next[action] = "acklast decide JOB, see acklast job JOB"
			case redrive.Late, redrive.Expired, redrive.Never, redrive.Foreign, redrive.Conflict:
				next[redrive.Never] = "acklast discard MESSAGE... --reason WHY"
			}
		}
	}
	for _, action := range slices.Sorted(maps.Keys(next)) {
		say(w, "Next: %s\n", next[action])
	}
}

func actionsOf(actions map[redrive.Action]int) string {
	var list []string
	for _, a := range slices.Sorted(maps.Keys(actions)) {
		list = append(list, fmt.Sprintf("%s %d", a, actions[a]))
	}
	return strings.Join(list, ", ")
}
