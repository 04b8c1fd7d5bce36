package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// latest stands for the newest plan or run that a command can be used on.
const latest = "latest"

// handle is the plan or the run for a command.
type handle struct{ plan, run string }

// resolve returns the plan or run for a command: the given one, the newest one for "latest", or, without an
// argument and on a terminal, the one that a person chooses.
func (a *app) resolve(ctx context.Context, g *governor, args []string, fits func(redrive.Run) bool) (handle, error) {
	id := ""
	if len(args) > 0 {
		id = args[0]
	}
	if id == "" && !a.interactive() {
		return handle{}, refuse("name a plan or a run, or say %q", latest)
	}
	if id == "" || id == latest {
		resp, err := g.ask(ctx, redrive.Request{Action: "status"})
		if err != nil {
			return handle{}, err
		}
		runs := slices.DeleteFunc(resp.Runs, func(r redrive.Run) bool { return !fits(r) })
		if len(runs) == 0 {
			return handle{}, refuse("there is no plan and no run for that: make a plan with \"acklast redrive plan\"")
		}
		chosen := 0
		if id == "" {
			options := make([]string, len(runs))
			for i, r := range runs {
				options[i] = fmt.Sprintf("%s  %s  %s", r.Plan, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)), when(r.StartedAt, a.now()))
			}
			if chosen, err = a.choose("Which plan?", options); err != nil {
				return handle{}, err
			}
		}
		id = cmp.Or(runs[chosen].Plan, runs[chosen].ID)
	}
	if strings.HasPrefix(id, "p-") {
		return handle{plan: id}, nil
	}
	return handle{run: id}, nil
}

// choose shows options and returns the number of the chosen one.
func (a *app) choose(question string, options []string) (int, error) {
	for i, option := range options {
		say(a.stderr, "%3d  %s\n", i+1, plain(option))
	}
	say(a.stderr, "%s Type its number: ", question)
	line, err := a.line()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(line)
	if err != nil || n < 1 || n > len(options) {
		return 0, refuse("%q is no number from 1 to %d; nothing was done", line, len(options))
	}
	return n - 1, nil
}

// line reads one line of input.
func (a *app) line() (string, error) {
	if a.typed == nil {
		a.typed = bufio.NewReader(a.stdin)
	}
	line, err := a.typed.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// interactive says whether a person sits at a terminal and can be asked.
func (a *app) interactive() bool { return a.person != nil && a.person() }

// chooseGroup lets a person choose a group of isolated jobs for a plan. The groups come from the ledger's index, so the
// plan's scan of the DLQ is the only one.
func (a *app) chooseGroup(ctx context.Context, t *target) (*redrive.Filter, error) {
	reader, err := a.overview(ctx, t, func(*overview.Config) {})
	if err != nil {
		return nil, err
	}
	s, err := reader.Read(ctx)
	if err != nil {
		return nil, t.explain(err)
	}
	if s.Run != nil && s.Run.State == redrive.Active {
		return nil, refuse("%s", heldBy(s.Run))
	}
	if s.IsolatedNotTold != "" {
		say(a.stderr, "%s\n", plain(s.IsolatedNotTold))
	}
	jobs, groups := 0, []overview.Group{}
	if s.Isolated != nil {
		jobs, groups = s.Isolated.Jobs, s.Isolated.Groups
	}
	if n := s.DLQ.Isolated - jobs; n > 0 {
		say(a.stderr, "%s on the DLQ without an isolated job in the ledger: \"acklast dlq\" shows what they are.\n", aboutMore(n))
	}
	if len(groups) == 0 {
		return nil, refuse("nothing is isolated")
	}
	options := make([]string, len(groups))
	for i, group := range groups {
		options[i] = fmt.Sprintf("%d × %s, %s, %s: %s; the newest %s", group.Count, group.Class, group.Cause, group.Kind, dash(group.Fingerprint), when(group.NewestAt, a.now()))
	}
	n, err := a.choose("Which group?", options)
	if err != nil {
		return nil, err
	}
	return filterOf(groups[n]), nil
}

// aboutMore says how many messages there are, by a count that is approximate.
func aboutMore(n int) string {
	if n == 1 {
		return "About 1 more message is"
	}
	return fmt.Sprintf("About %d more messages are", n)
}

// filterOf selects a group of isolated jobs.
func filterOf(group overview.Group) *redrive.Filter {
	f := &redrive.Filter{Kinds: []string{group.Kind}}
	f.Classes = append(f.Classes, group.Class)
	if group.Fingerprint != "" {
		f.Fingerprints = []string{group.Fingerprint}
	}
	return f
}

// asOneOf tells whether a name is a message's id or a job's key, which is kind/subject/rest.
func asOneOf(id string) (message, job string) {
	if strings.Contains(id, "/") {
		return "", id
	}
	return id, ""
}
