package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	tea "charm.land/bubbletea/v2"

	"acklast/internal/console"
	"acklast/internal/job"
	"acklast/internal/overview"
)

// An action is a command of this tool. It runs on the terminal, as if it had been typed: it asks what the command
// asks, prints what the command prints, and has its permissions.
type action struct {
	// args are its arguments, without the global flags.
	args []string
	// questions are asked before anything is done. Each answer is the value of a flag. An empty answer does nothing.
	questions []question
	// confirm asks for a yes, for commands that do not ask by themselves.
	confirm bool
}

// question asks for the value of a flag.
type question struct{ flag, text string }

// binding is a key on a page that starts an action.
type binding struct {
	page page
	key  string
	what string // for the help
	// make returns the action for what is shown, or says why there is none.
	make func(m *watchModel) (act action, why string)
}

var askReason = question{"--reason", "Why, for the audit?"}

// reasoned is a command that takes a reason.
func reasoned(args ...string) action {
	return action{args: args, questions: []question{askReason}}
}

// actions are all keys that start commands.
var actions = []binding{
	{pageStack, "1", "pause or resume the source lane", func(m *watchModel) (action, string) { return laneAction(m, 0) }},
	{pageStack, "2", "pause or resume the recovery lane", func(m *watchModel) (action, string) { return laneAction(m, 1) }},
	{pageStack, "K", "pause a kind, or resume the one that is paused", kindAction},
	{pageStack, "S", "throw the kill switch: stop every redrive", func(*watchModel) (action, string) {
		return action{args: []string{"redrive", "stop"}, confirm: true}, ""
	}},
	{pageStack, "U", "release the kill switch", func(*watchModel) (action, string) { return reasoned("redrive", "resume"), "" }},
	{pageStack, "d", "look at the DLQ's messages (receives them for a moment)", func(*watchModel) (action, string) { return action{args: []string{"dlq"}}, "" }},
	{pageStack, "p", "plan a redrive of the chosen group", planAction},
	{pageStack, "O", "make an open plan of it: its selection is frozen, for a big DLQ", openPlanAction},

	{pageGroup, "p", "plan a redrive of the group", planAction},
	{pageGroup, "O", "make an open plan of it", openPlanAction},
	{pageGroup, "d", "look at its messages (receives them for a moment)", func(m *watchModel) (action, string) {
		return action{args: append([]string{"dlq"}, selecting(m.top().group)...)}, ""
	}},
	{pageGroup, "x", "discard the group", func(m *watchModel) (action, string) { return groupAction(m, "discard") }},
	{pageGroup, "Y", "decide that all of it took effect (ambiguous jobs)", func(m *watchModel) (action, string) { return groupAction(m, "decide", "--sent") }},
	{pageGroup, "N", "decide that none of it did", func(m *watchModel) (action, string) { return groupAction(m, "decide", "--not-sent") }},

	{pageJob, "o", "redrive this job alone", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return reasoned("redrive", "run", "--only", key) })
	}},
	{pageJob, "c", "cancel it", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return reasoned("cancel", key) })
	}},
	{pageJob, "x", "discard it", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return reasoned("discard", key) })
	}},
	{pageJob, "b", "print its message's body, to mend it (the audit keeps that)", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return action{args: []string{"redrive", "mend", key}} })
	}},
	{pageJob, "m", "plan to send it with a mended body, from a file", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action {
			return action{args: []string{"redrive", "mend", key}, questions: []question{{"--file", "File with the mended body?"}, askReason}}
		})
	}},
	{pageJob, "Y", "decide that it took effect (ambiguous jobs)", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return reasoned("decide", key, "--sent") })
	}},
	{pageJob, "N", "decide that it did not", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return reasoned("decide", key, "--not-sent") })
	}},
	{pageJob, "d", "show its message on the DLQ (receives messages for a moment)", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return action{args: []string{"dlq", "--show", key}} })
	}},
	{pageJob, "u", "show its audit", func(m *watchModel) (action, string) {
		return jobAction(m, func(key string) action { return action{args: []string{"audit", key}} })
	}},

	{pageRun, "a", "approve the plan", func(m *watchModel) (action, string) {
		return runAction(m, m.top().plan, func(id string) action { return reasoned("redrive", "approve", id) })
	}},
	{pageRun, "R", "run the plan, or continue the run", func(m *watchModel) (action, string) {
		return runAction(m, m.top().id, func(id string) action { return action{args: []string{"redrive", "run", id}} })
	}},
	{pageRun, "S", "stop this run", func(m *watchModel) (action, string) {
		return runAction(m, m.top().run, func(id string) action { return action{args: []string{"redrive", "stop", id}, confirm: true} })
	}},
	{pageRun, "v", "revoke it: end it for good and take back what waits", func(m *watchModel) (action, string) {
		return runAction(m, m.top().id, func(id string) action { return reasoned("redrive", "revoke", id) })
	}},
	{pageRun, "u", "show its audit", func(m *watchModel) (action, string) {
		return runAction(m, m.top().id, func(id string) action { return action{args: []string{"audit", id}} })
	}},
}

func laneAction(m *watchModel, lane int) (action, string) {
	if !m.ready || m.snapshot.LanesNotTold != "" {
		return action{}, "it is not known whether the lane is paused: use acklast pause or resume"
	}
	l := m.snapshot.Lanes[lane]
	use := "pause"
	if l.Paused {
		use = "resume"
	}
	return action{args: []string{use, string(l.Lane)}, confirm: true}, ""
}

// kindAction resumes the paused kind, if there is exactly one, and otherwise pauses the kind of the chosen group.
func kindAction(m *watchModel) (action, string) {
	var paused []string
	for _, k := range m.snapshot.Kinds {
		if k.Paused != nil {
			paused = append(paused, k.Kind)
		}
	}
	groups, at := m.groups(), m.top().cursor
	switch {
	case len(paused) == 1:
		return reasoned("resume", "--kind", paused[0]), ""
	case len(paused) > 1:
		return action{}, "several kinds are paused: name one to acklast resume --kind"
	case at < len(groups):
		return reasoned("pause", "--kind", groups[at].Kind), ""
	}
	return action{}, "no group is chosen, so no kind is: use acklast pause --kind"
}

func planAction(m *watchModel) (action, string) {
	group := m.top().group
	if m.top().page == pageStack {
		if m.top().cursor >= len(m.groups()) {
			return action{}, "nothing is isolated with an entry; d looks at the messages"
		}
		group = m.groups()[m.top().cursor]
	}
	return reasoned(append([]string{"redrive", "plan"}, selecting(group)...)...), ""
}

func openPlanAction(m *watchModel) (action, string) {
	act, why := planAction(m)
	if why == "" {
		act.args = append(act.args, "--open")
		act.questions = append([]question{{"--count", "How many messages may its run take at most?"}}, act.questions...)
	}
	return act, why
}

// groupAction makes an action for a whole group. The command is refused if its selection has another count by then.
func groupAction(m *watchModel, command ...string) (action, string) {
	g := m.top().group
	if g.Count == 0 {
		return action{}, "none of the group is isolated any more"
	}
	return reasoned(slices.Concat(command, selecting(g), []string{"--count", strconv.Itoa(g.Count)})...), ""
}

// jobAction makes an action for a job by its key. A subject may have several jobs.
func jobAction(m *watchModel, of func(key string) action) (action, string) {
	if _, isKey := job.SubjectOf(m.top().id); !isKey {
		return action{}, "this is a subject: open one of its jobs by its key, with j"
	}
	return of(m.top().id), ""
}

func runAction(_ *watchModel, id string, of func(id string) action) (action, string) {
	if id == "" {
		return action{}, "there is no run yet"
	}
	return of(id), ""
}

// selecting are the flags that select a group. Their values are lists separated by commas.
func selecting(g overview.Group) []string {
	flags := []string{"--class", console.Listed(string(g.Class)), "--kind", console.Listed(g.Kind)}
	if g.Fingerprint != "" {
		flags = append(flags, "--fingerprint", console.Listed(g.Fingerprint))
	}
	return flags
}

// startAction gives the terminal to an action and then returns to the view.
func (a *app) startAction(ctx context.Context, act action) tea.Cmd {
	return tea.Exec(&runningAction{a: a, ctx: ctx, act: act}, func(error) tea.Msg { return actedMsg{} })
}

// runningAction is an action that has the terminal.
type runningAction struct {
	a      *app
	ctx    context.Context //nolint:containedctx // tea.Exec passes none
	act    action
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

func (r *runningAction) SetStdin(in io.Reader)   { r.stdin = in }
func (r *runningAction) SetStdout(out io.Writer) { r.stdout = out }
func (r *runningAction) SetStderr(err io.Writer) { r.stderr = err }

// Run shows the command line, asks, runs it, and waits until its output was read. Ctrl-C ends the command alone.
func (r *runningAction) Run() error {
	ctx, stop := signal.NotifyContext(r.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	in := bufio.NewReader(r.stdin) // the command reads on in it
	args := slices.Clone(r.act.args)
	shown := slices.Clone(args)
	for _, q := range r.act.questions {
		shown = append(shown, q.flag, "...")
	}
	say(r.stdout, "\n$ acklast %s\n", plain(shellWords(shown)))
	for _, q := range r.act.questions {
		say(r.stdout, "%s (an empty line does nothing) ", q.text)
		answer := typedLine(in)
		if answer == "" {
			return nil
		}
		args = append(args, q.flag, answer)
	}
	if r.act.confirm {
		say(r.stdout, "Do it? Type yes: ")
		if typedLine(in) != "yes" {
			return nil
		}
	}
	code := run(ctx, append(r.a.globalFlags(), args...), in, r.stdout, r.stderr, r.a.getenv)
	say(r.stdout, "\nExit code %d. Enter goes back. ", code)
	typedLine(in)
	return nil
}

func typedLine(in *bufio.Reader) string {
	line, _ := in.ReadString('\n')
	return strings.TrimSpace(line)
}

// globalFlags begin a command line for the same stack and place.
func (a *app) globalFlags() []string {
	args := []string{"acklast", "--stack", a.stack}
	for _, f := range [][2]string{{"--profile", a.profile}, {"--region", a.region}, {"--endpoint-url", a.endpoint}} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	return args
}
