package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"acklast/internal/redrive"
	"acklast/internal/retry"
	"acklast/internal/topology"
	"acklast/internal/version"
)

// What may be redriven is the redrive function's to say. These commands put requests and answers into
// words, and poll.

// pollEvery is the pause between two questions about a run.
const pollEvery = time.Second

// beginLimit is how long a run that was asked for may take to begin before the function is asked why.
const beginLimit = 15 * time.Second

// governor invokes the redrive function.
type governor struct {
	*target
	lambda *lambda.Client
	stderr io.Writer
	// skew says once that the function has another version.
	skew sync.Once
	// approving sends also what only reads through the alias of approvers, who may have no other.
	approving bool
}

func (a *app) govern(ctx context.Context) (*governor, error) {
	t, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &governor{target: t, stderr: a.stderr, lambda: lambda.NewFromConfig(t.config, func(o *lambda.Options) {
		overrule(&o.BaseEndpoint, a.endpoint)
		o.RetryMaxAttempts = 1 // a request that takes long must not be made twice
	})}, nil
}

func (g *governor) invoke(ctx context.Context, r redrive.Request, how types.InvocationType) (redrive.Response, error) {
	var resp redrive.Response
	payload, err := json.Marshal(r)
	if err != nil {
		return resp, err
	}
	alias := topology.AliasOperate
	if r.Action == "approve" || r.Action == "discard" || r.Action == "decide" || g.approving {
		alias = topology.AliasApprove
	}
	out, err := g.lambda.Invoke(ctx, &lambda.InvokeInput{
		FunctionName: &g.names.RedriveFunction, Qualifier: &alias, Payload: payload, InvocationType: how,
	})
	switch {
	case err != nil:
		return resp, g.explain(err)
	case out.FunctionError != nil:
		return resp, fmt.Errorf("the redrive function failed: %s", plain(string(out.Payload)))
	case how == types.InvocationTypeEvent:
		return resp, nil
	}
	if err := json.Unmarshal(out.Payload, &resp); err != nil {
		return resp, fmt.Errorf("the redrive function's answer is not readable: %w", err)
	}
	g.skew.Do(func() {
		if skew := version.Skew("redrive", resp.Version); skew != "" {
			say(g.stderr, "Note: %s\n", skew)
		}
	})
	if resp.Refused != "" {
		return resp, refuse("refused: %s", resp.Refused)
	}
	return resp, nil
}

func (g *governor) ask(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	return g.invoke(ctx, r, types.InvocationTypeRequestResponse)
}

// who are the flags that say who asks, and why.
type who struct{ by, reason string }

func (w *who) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.by, "by", "", "who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for the audit")
	_ = cmd.MarkFlagRequired("reason")
}

// name fills in who asks.
func (g *governor) name(ctx context.Context, w who) string {
	if w.by != "" {
		return w.by
	}
	ctx, cancel := context.WithTimeout(ctx, identityLimit)
	defer cancel()
	out, err := g.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.RetryMaxAttempts = 1 })
	if err == nil && aws.ToString(out.Arn) != "" {
		return aws.ToString(out.Arn)
	}
	return os.Getenv("USER")
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.all, "all", false, "everything on the DLQ")
	f.StringSliceVar(&s.classes, "class", nil, "failure classes, such as transient")
	f.StringSliceVar(&s.kinds, "kind", nil, "kinds of job")
	f.StringSliceVar(&s.keys, "job", nil, "keys of jobs")
	f.StringSliceVar(&s.subjects, "subject", nil, "subjects, such as reservation ids")
	f.StringSliceVar(&s.messages, "message", nil, "message ids on the DLQ")
	f.StringVar(&s.errorText, "error", "", "a part of the error's text")
	f.StringToStringVar(&s.attributes, "attribute", nil, "the sender's attributes, such as tenant=blue")
	f.StringToStringVar(&s.payload, "payload", nil, "fields of the payload, such as planId=p-7")
	f.StringSliceVar(&s.fingerprints, "fingerprint", nil, "errors as a look groups them")
	f.StringVar(&s.older, "older-than", "", "isolated longer ago than that, such as 30m or 7d")
	f.StringVar(&s.younger, "younger-than", "", "isolated less long ago than that")
}

func newRedrive(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Bring isolated jobs back, governed: plan, approve, run, watch, stop, revoke",
		Long: `Bring isolated jobs back to the recovery lane. A plan freezes what is selected; a run moves it, a canary first,
at a limited rate, and stops itself when jobs fail again. Exit code 0: done, and all ended well; 1: failed;
2: refused; 3: halted; 4: done, but some jobs failed again, are still retried, or cannot be told; 5: interrupted.
See docs/runbook.md.`,
		Example: `  acklast redrive plan --class transient --older-than 5m --reason 'the provider is back'
  acklast redrive run p-20261201-100000-1a2b3c4d
  acklast redrive stop --reason 'the provider answers 500 again'`,
		Args: cobra.NoArgs, // else a typo would print the help and succeed
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRedrivePlan(a), newRedriveApprove(a), newRedriveRun(a), newRedriveStatus(a), newRedriveList(a),
		newRedriveStop(a), newRedriveResume(a),
		newRedriveRevoke(a))
	return cmd
}

func newRedrivePlan(a *app) *cobra.Command {
	var s selection
	var w who
	var rate, canary int
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "Freeze a selection into a plan, and say what would happen",
		Example: `  acklast redrive plan --class transient --older-than 5m --reason 'the provider is back'`,
		Args:    cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			resp, err := g.ask(cmd.Context(), redrive.Request{Action: "plan", Select: s.filter(), By: g.name(cmd.Context(), w), Reason: w.reason, RatePerSecond: rate, Canary: canary})
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
		}),
	}
	s.flags(cmd)
	w.flags(cmd)
	cmd.Flags().IntVar(&rate, "rate", 0, "messages per second; 0 is the default, -1 no limit")
	cmd.Flags().IntVar(&canary, "canary", 0, "how many jobs go first and are judged; 0 is the default")
	return cmd
}

func newRedriveApprove(a *app) *cobra.Command {
	var w who
	var yes bool
	cmd := &cobra.Command{
		Use: "approve PLAN", Short: "Show somebody else's plan, ask, and approve it", Args: cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			g.approving = true
			a.announce(ctx, g.target)
			before, err := g.ask(ctx, redrive.Request{Action: "status", Plan: args[0]})
			if err != nil {
				return err
			}
			if before.Run != nil {
				return refuse("plan %s is run %s already, which is %s", args[0], before.Run.ID, before.Run.State)
			}
			if err := a.confirmed(yes, "Approve this?", func(out io.Writer) {
				printInspection(out, redrive.Response{Groups: before.Plan.Groups}, a.now())
				printPlan(out, *before.Plan, a.now())
			}); err != nil {
				return err
			}
			resp, err := g.ask(ctx, redrive.Request{Action: "approve", Plan: args[0], By: g.name(ctx, w), Reason: w.reason})
			if err != nil {
				return err
			}
			return a.answer(resp, func(out io.Writer) { say(out, "approved; now: acklast redrive run %s\n", plain(args[0])) })
		}),
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// request makes one request that changes something, and prints the answer.
func (a *app) request(ctx context.Context, w who, r redrive.Request, table func(io.Writer, redrive.Response)) error {
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
	return a.answer(resp, func(out io.Writer) { table(out, resp) })
}

// throwPause is the pause between two tries to throw the switch.
const throwPause = time.Second

func newRedriveStop(a *app) *cobra.Command {
	var by, reason string
	cmd := &cobra.Command{
		Use:   "stop [RUN]",
		Short: "Throw the kill switch: stop every redrive, now and until resume; or stop one run",
		Long: `Throw the kill switch, which stops every redrive before its next cohort, until "acklast redrive resume". It is written
directly, so that no busy or throttled function is in its way, and is tried until it is confirmed; who may not write it directly
asks the function. With a RUN, that run alone is stopped, and can be continued. Neither needs a name or a reason.`,
		Example: `  acklast redrive stop
  acklast redrive stop r-20261201-100000-1a2b3c4d --reason 'the provider answers 500 again'`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			who := cmp.Or(by, a.getenv("USER"), "unknown")
			r := redrive.Request{Action: "stop", By: who, Reason: cmp.Or(reason, "none was given")}
			if len(args) == 1 {
				r.Run = args[0]
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

// throw throws the kill switch, directly or through the function, until one of them confirms it.
func (a *app) throw(ctx context.Context, g *governor, r redrive.Request) (*redrive.Switch, error) {
	store := redrive.NewStore(g.db, g.names.OperationsTable)
	sw := redrive.Switch{On: true, By: r.By, Reason: r.Reason, At: a.now().UTC()}
	for {
		direct := store.ThrowSwitch(ctx, sw, a.now().Add(topology.DefaultRedrive().Retention))
		if direct == nil {
			return &sw, nil
		}
		resp, err := g.ask(ctx, r)
		if err == nil {
			return resp.Switch, nil
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
		Use: "resume", Short: "Release the kill switch: allow redrives again; continues none by itself", Args: cobra.NoArgs,
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
		Use: "revoke PLAN|RUN", Short: "End a run for good and take back what of it still waits, or withdraw a plan", Args: cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			r := redrive.Request{Action: "revoke", Run: args[0]}
			if strings.HasPrefix(args[0], "p-") {
				r = redrive.Request{Action: "revoke", Plan: args[0]}
			}
			return a.request(cmd.Context(), w, r, func(out io.Writer, r redrive.Response) { printRun(out, r.Run, a.now()) })
		}),
	}
	w.flags(cmd)
	return cmd
}

func newRedriveList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List plans and runs, newest first", Args: cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			resp, err := g.ask(cmd.Context(), redrive.Request{Action: "list"})
			if err != nil {
				return err
			}
			return a.answer(resp, func(w io.Writer) {
				row(w, "RUN", "PLAN", "STATE", "SENT", "OF", "BY", "STARTED", "WHY")
				for _, r := range resp.Runs {
					row(w, r.ID, r.Plan, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)), r.Counts["sent"], r.Total, dash(r.By), when(r.StartedAt, a.now()), dash(r.Why))
				}
				printSwitch(w, resp.Switch)
			})
		}),
	}
}

func newRedriveStatus(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "status RUN|PLAN", Short: "Say how far a run is, and why it stopped", Args: cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			g, err := a.govern(cmd.Context())
			if err != nil {
				return err
			}
			r := redrive.Request{Action: "status", Run: args[0]}
			if strings.HasPrefix(args[0], "p-") {
				r = redrive.Request{Action: "status", Plan: args[0]}
			}
			resp, err := g.ask(cmd.Context(), r)
			if err != nil {
				return err
			}
			if watch && resp.Run != nil && resp.Run.State == redrive.Active {
				if resp, err = a.watch(cmd.Context(), g, r); err != nil {
					return err
				}
			}
			return a.told(resp)
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show progress until it ends")
	return cmd
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

// pollFailures is how many answers in a row a watcher may miss: the run goes on without it.
const pollFailures = 5

// watch polls a run until nobody works on it any more.
func (a *app) watch(ctx context.Context, g *governor, r redrive.Request) (redrive.Response, error) {
	first, began, missed := -1, a.now(), 0
	for {
		resp, err := g.ask(ctx, r)
		var refused *refusal
		switch {
		case err == nil:
			missed = 0
		case ctx.Err() != nil:
			return resp, a.goesOn(err, resp, r)
		case errors.As(err, &refused), missed >= pollFailures:
			return resp, err
		default:
			missed++
			say(a.stderr, "no answer (%s); the run goes on, asking again\n", plain(err.Error()))
		}
		if err == nil && resp.Run != nil {
			settled := settledOf(resp.Run)
			if first < 0 {
				first = settled
			}
			perSecond := 0.0
			if took := a.now().Sub(began).Seconds(); took > 0 {
				perSecond = float64(settled-first) / took
			}
			a.progress(resp.Run, settled, perSecond)
			if resp.Run.State != redrive.Active {
				return resp, nil
			}
		}
		if err := retry.Sleep(ctx, pollEvery); err != nil {
			return resp, a.goesOn(err, resp, r)
		}
	}
}

// goesOn tells whoever ends the watching that this does not end the run.
func (a *app) goesOn(err error, resp redrive.Response, r redrive.Request) error {
	id := cmp.Or(r.Run, r.Plan)
	stop := "acklast redrive stop"
	if resp.Run != nil {
		id, stop = resp.Run.ID, "acklast redrive stop "+resp.Run.ID
	}
	say(a.stderr, "\nThe run goes on. Watch it: acklast redrive status %s --watch. Stop it: %s\n", plain(id), plain(stop))
	return err
}

// endingsOf says what became of a run's messages, as far as it is known.
func endingsOf(run *redrive.Run) string {
	var list []string
	for _, ending := range slices.Sorted(maps.Keys(run.Endings)) {
		list = append(list, fmt.Sprintf("%s %d", ending, run.Endings[ending]))
	}
	return strings.Join(list, ", ")
}

// settledOf counts the messages of a run that are done with.
func settledOf(run *redrive.Run) (n int) {
	for what, count := range run.Counts {
		if what != "unsent" && what != "unsure" {
			n += count
		}
	}
	return n
}

// progress shows one line about a run, on a terminal over the one before.
func (a *app) progress(run *redrive.Run, settled int, perSecond float64) {
	const width = 30
	full := 0
	if run.Total > 0 {
		full = min(width, width*settled/run.Total)
	}
	line := fmt.Sprintf("[%s%s] %d of %d  %.1f/s  %s  canary %s  %s  %s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		settled, run.Total, perSecond, run.State, cmp.Or(run.Canary, "going out"), endingsOf(run), run.Why)
	if isTerminal(a.stderr) {
		say(a.stderr, "\r\x1b[K%s", plain(line))
		if run.State != redrive.Active {
			say(a.stderr, "\n")
		}
		return
	}
	say(a.stderr, "%s\n", plain(line))
}

func newRedriveRun(a *app) *cobra.Command {
	var w who
	var message string
	var yes bool
	cmd := &cobra.Command{
		Use:   "run PLAN|RUN|latest",
		Short: "Run a plan, or continue a run, and watch it",
		Example: `  acklast redrive run p-20261201-100000-1a2b3c4d
  acklast redrive run --message 5d1cf1a5-0000-4000-8000-000000000001 --reason 'its record is there now'`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if (len(args) == 1) == (message != "") {
				return refuse("name a plan or a run, or one message with --message")
			}
			if message != "" && w.reason == "" {
				return refuse("--message needs a --reason")
			}
			g, err := a.govern(ctx)
			if err != nil {
				return err
			}
			a.announce(ctx, g.target)
			if len(args) == 1 && args[0] == latest {
				if args[0], err = g.latest(ctx); err != nil {
					return err
				}
			}
			r := redrive.Request{Action: "run"}
			switch {
			case message != "":
				resp, err := g.ask(ctx, redrive.Request{Action: "plan", Select: &redrive.Filter{Messages: []string{message}}, By: g.name(ctx, w), Reason: w.reason})
				if err != nil {
					return err
				}
				r.Plan = resp.Plan.ID
			case strings.HasPrefix(args[0], "p-"):
				r.Plan = args[0]
			default:
				r.Run = args[0]
			}
			status := redrive.Request{Action: "status", Plan: r.Plan, Run: r.Run}
			before, err := g.ask(ctx, status)
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
			resp, err := a.runAndWatch(ctx, g, r, status, before)
			if err != nil {
				return err
			}
			return a.told(resp)
		}),
	}
	cmd.Flags().StringVar(&w.by, "by", "", "with --message: who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "with --message: why, for the audit")
	cmd.Flags().StringVar(&message, "message", "", "plan and run one message, by its id on the DLQ")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// latest stands for the newest plan or run.
const latest = "latest"

func (g *governor) latest(ctx context.Context) (string, error) {
	resp, err := g.ask(ctx, redrive.Request{Action: "list"})
	if err != nil {
		return "", err
	}
	if len(resp.Runs) == 0 {
		return "", refuse("there is no plan and no run yet: make a plan with \"acklast redrive plan\"")
	}
	return resp.Runs[0].Plan, nil
}

// confirmed shows what will happen and asks.
func (a *app) confirmed(yes bool, question string, show func(io.Writer)) error {
	if yes {
		return nil
	}
	table := tabwriter.NewWriter(a.stderr, 0, 0, 2, ' ', 0)
	show(table)
	if err := table.Flush(); err != nil {
		return err
	}
	say(a.stderr, "%s Type yes: ", question)
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) != "yes" {
		return refuse("not confirmed; nothing was done (--yes does not ask)")
	}
	return nil
}

// runAndWatch invokes the run asynchronously and polls it. A run that halts near the function's timeout
// is asked for again.
func (a *app) runAndWatch(ctx context.Context, g *governor, r, status redrive.Request, before redrive.Response) (redrive.Response, error) {
	for {
		rounds := 0
		if before.Run != nil {
			rounds = before.Run.Rounds
			r = redrive.Request{Action: "run", Run: before.Run.ID}
			if before.Run.State == redrive.Done || before.Run.State == redrive.Revoked {
				return before, nil
			}
		}
		if before.Run == nil || before.Run.State != redrive.Active {
			if _, err := g.invoke(ctx, r, types.InvocationTypeEvent); err != nil {
				return before, err
			}
			for asked := a.now(); ; {
				resp, err := g.ask(ctx, status)
				if err != nil {
					return resp, err
				}
				if resp.Run != nil && resp.Run.Rounds > rounds {
					break
				}
				if a.now().Sub(asked) > beginLimit {
					// It was refused, and an asynchronous request cannot say why.
					return g.ask(ctx, r)
				}
				if err := retry.Sleep(ctx, pollEvery/4); err != nil {
					return resp, err
				}
			}
		}
		resp, err := a.watch(ctx, g, status)
		if err != nil {
			return resp, err
		}
		if resp.Run.State != redrive.Halted || resp.Run.Code != redrive.HaltTime {
			return resp, nil
		}
		before = resp
	}
}

func printPlan(w io.Writer, p redrive.Plan, now time.Time) {
	say(w, "\n")
	row(w, "PLAN", p.ID)
	row(w, "by", p.By)
	row(w, "reason", p.Reason)
	row(w, "selected", fmt.Sprintf("%d messages, %d bytes: %s", p.Selected, p.Bytes, actionsOf(p.Actions)))
	rate, takes := "none", "as fast as it goes"
	if p.RatePerSecond > 0 {
		rate = fmt.Sprintf("%d per second", p.RatePerSecond)
		takes = "about " + (time.Duration(p.Actions[redrive.Redrive]/p.RatePerSecond+1) * time.Second).String()
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
	if d := p.Drift; d != nil && d.Final+d.Redriven+d.Guarded+d.Unread > 0 {
		row(w, "changed since", fmt.Sprintf("%d are final, %d were redriven, %d need an approval of their own, %d cannot be read; such as %s",
			d.Final, d.Redriven, d.Guarded, d.Unread, strings.Join(d.Samples, ", ")))
	}
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
	for _, ending := range slices.Sorted(maps.Keys(r.Endings)) {
		names := strings.Join(r.Names[ending], ", ")
		if more := r.Endings[ending] - len(r.Names[ending]); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		row(w, ending, fmt.Sprintf("%d: %s", r.Endings[ending], names))
	}
	if r.Unseen > 0 {
		row(w, "not seen", r.Unseen)
	}
	for _, watched := range r.Watched {
		if watched.Ending == redrive.Again || watched.Ending == redrive.Retrying || watched.Ending == redrive.TooLate {
			row(w, "failed", fmt.Sprintf("%s: %s: %s", watched.Job, watched.Ending, watched.Why))
		}
	}
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
