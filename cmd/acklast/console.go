package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"acklast/internal/capacity"
	"acklast/internal/console"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/version"
)

func newConsole(a *app) *cobra.Command {
	var port int
	var write, approver bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the stack on a local web page",
		Long: `Serve a web page about the stack on this machine until Ctrl-C, and print the link that opens it. A link works
once; the next one is printed then. The page shows lanes and history, the DLQ's groups and messages, a job's way,
plans and runs as they move, the audit, and capacity. It answers at 127.0.0.1 only and loads nothing from elsewhere.

It only reads, unless it is started with --write. Then each action shows what it will do, to which stack and
account, and asks. It receives from the DLQ only if you press a button that says so or make a plan. Payloads are
hidden until you ask for one, and the fields that a kind masks stay hidden. See docs/console.md.`,
		Example: `  acklast console
  acklast console --write --port 8080
  acklast console --stack orders --profile approver --write --approver`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return refuse("--port is %d, want 0 to 65535", port)
			}
			return a.console(cmd.Context(), port, write, approver)
		}),
	}
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0 takes any free one")
	cmd.Flags().BoolVar(&write, "write", false, "allow actions that change something; each one asks first")
	cmd.Flags().BoolVar(&approver, "approver", false, "read through the alias of approvers from the start, for people who may use no other")
	return cmd
}

func (a *app) console(ctx context.Context, port int, write, approver bool) error {
	g, err := a.govern(ctx)
	if err != nil {
		return err
	}
	g.approving.Store(approver)
	g.stderr = io.Discard // the page says what it waits for
	quiet := *a
	quiet.stderr = io.Discard
	stack := &consoleStack{app: &quiet, governor: g, ends: ctx}
	stack.reader, err = a.overview(ctx, g.target, func(c *overview.Config) {
		c.Kinds = func(ctx context.Context) ([]redrive.KindState, error) {
			resp, err := g.ask(ctx, redrive.Request{Action: "kinds"})
			return resp.Kinds, err
		}
		c.History, c.Window = a.history(g.target), consoleWindow
		if g.endpoint == "" {
			c.Slow = consoleSlow
		}
	})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is taken: choose another with --port, or none for any free one", port)
	}
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	if write {
		a.announce(ctx, g.target)
	} else {
		a.at(g.target)
	}
	command := func(args []string) string { return plain(shellWords(append(a.globalFlags(), args...))) }
	return console.Serve(ctx, l, console.Config{Stack: stack, Write: write, Command: command, Version: version.Number, Now: a.now,
		Link: func(link string) { say(a.stdout, "Open %s\n", link) }})
}

const (
	// consoleWindow is how far back the plots begin.
	consoleWindow = 3 * time.Hour
	// consoleSlow is how long figures that cost money are kept on AWS.
	consoleSlow = time.Minute
)

// consoleStack is the stack for the console's pages.
type consoleStack struct {
	app *app
	*governor
	reader *overview.Reader
	// ends is the command's context. The console follows a run that it began until this context ends.
	ends context.Context //nolint:containedctx // it outlives the requests

	mu    sync.Mutex
	where console.Place
	// asked is when AWS was last asked who the caller is.
	asked time.Time
	// runs are the runs that are followed.
	runs map[string]bool
}

// placeLife is how long the caller's identity is kept.
const placeLife = time.Minute

func (s *consoleStack) Place(ctx context.Context) console.Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.app.now(); now.Sub(s.asked) > placeLife {
		s.asked = now
		s.where = console.Place{Stack: s.names.Stack, At: s.place, Account: "unknown", Caller: s.user}
		ctx, cancel := context.WithTimeout(ctx, identityLimit)
		defer cancel()
		out, err := s.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.RetryMaxAttempts = 1 })
		if err == nil {
			s.where.Account, s.where.Caller = aws.ToString(out.Account), aws.ToString(out.Arn)
		}
	}
	where := s.where
	if skew := s.skew.Load(); skew != nil {
		where.Skew = *skew
	}
	return where
}

func (s *consoleStack) Ask(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	return s.ask(ctx, r)
}

// Run begins or continues a run, which says at once why it may not go on, and follows it: a run that halts near the
// function's timeout is asked for again, as by "acklast redrive run".
func (s *consoleStack) Run(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	check := r
	check.Begin = true
	begun, err := s.ask(ctx, check)
	if err == nil {
		err = switchedOff(begun.Switch)
	}
	if err != nil || begun.Run == nil {
		return begun, err
	}
	r.Plan, r.Run = "", begun.Run.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]bool{}
	}
	if s.runs[r.Run] {
		return begun, nil
	}
	s.runs[r.Run] = true
	go func() {
		_, _ = s.app.runAndWatch(s.ends, s.governor, r) // its page shows how it stands
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runs, r.Run)
	}()
	return begun, nil
}

// stopLimit is how long the kill switch is tried for before the page says that it was not confirmed.
const stopLimit = 30 * time.Second

func (s *consoleStack) Stop(ctx context.Context, by, reason string) (redrive.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	sw, err := s.app.throw(ctx, s.governor, redrive.Request{Action: "stop", By: by, Reason: reason})
	return redrive.Response{Action: "stop", Switch: sw}, err
}

func (s *consoleStack) Cancel(ctx context.Context, key string, notBefore time.Time, by, why string) (redrive.Response, error) {
	d, err := cancelling(key, notBefore)
	if err != nil {
		return refusedBy(err)
	}
	r, err := s.app.cancelJob(ctx, s.governor, d, by, why)
	if err != nil {
		return refusedBy(err)
	}
	return redrive.Response{Entry: &r.Entry}, nil
}

// refusedBy is the answer for an error, which says so if the error is a refusal.
func refusedBy(err error) (redrive.Response, error) {
	var refused *refusal
	if errors.As(err, &refused) {
		return redrive.Response{Refused: refused.Error()}, err
	}
	return redrive.Response{}, err
}

func (s *consoleStack) SetLane(ctx context.Context, lane job.Queue, running bool) error {
	mapping, err := s.mapping(ctx, lane)
	if err == nil {
		_, err = s.enable(ctx, lane, mapping, running)
	}
	return err
}

func (s *consoleStack) Measure(ctx context.Context, window time.Duration) (capacity.Measured, error) {
	return s.app.measure(ctx, s.target, window)
}

func (s *consoleStack) Job(ctx context.Context, asked string) (console.Job, error) {
	r, unknown, err := s.jobReport(ctx, asked)
	j := console.Job{Entries: r.Entries, Records: r.Records, Meaning: r.Meaning}
	if unknown != nil {
		j.Note = leftOut(unknown)
	}
	return j, err
}

// isolatedRead is how many isolated jobs a page reads.
const isolatedRead = 20_000

// errReadEnough ends the reading of the index.
var errReadEnough = errors.New("enough jobs read")

func (s *consoleStack) Isolated(ctx context.Context) (jobs []ledger.IsolatedJob, more bool, err error) {
	now := s.app.now()
	err = s.ledger().Isolated(ctx, now.Add(-topology.Default().DLQRetention), now.Add(time.Second), func(page []ledger.IsolatedJob) error {
		if jobs = append(jobs, page...); len(jobs) >= isolatedRead {
			return errReadEnough
		}
		return nil
	})
	slices.Reverse(jobs)
	if more = errors.Is(err, errReadEnough); err != nil && !more {
		return nil, false, s.explain(err)
	}
	return jobs, more, nil
}

func (s *consoleStack) Standing(ctx context.Context) (console.Standing, error) {
	snapshot, err := s.reader.Read(ctx)
	if err != nil {
		return console.Standing{}, s.explain(err)
	}
	return standingOf(snapshot), nil
}

// standingOf puts a snapshot into the words of the console's pages.
func standingOf(r overview.Snapshot) console.Standing {
	age := func(o *overview.Oldest) time.Duration {
		if o == nil {
			return 0
		}
		return time.Duration(o.AgeSeconds) * time.Second
	}
	lane := func(l overview.Lane) console.Lane {
		return console.Lane{Name: string(l.Lane), Scheduled: l.Scheduled, Ready: l.Ready, InFlight: l.InFlight, Oldest: age(l.Oldest), Paused: l.Paused}
	}
	st := console.Standing{
		At: r.At, Source: lane(r.Lanes[0]), Recovery: lane(r.Lanes[1]), Isolated: r.DLQ.Isolated, DLQInFlight: r.DLQ.InFlight,
		InScheduler: r.InScheduler, MoreInScheduler: r.MoreInScheduler, Kinds: r.Kinds, Run: r.Run, Switch: r.Switch,
	}
	// CloudWatch knows the age of every message, the index that of recorded ones.
	switch retention := time.Duration(r.DLQ.RetentionSeconds) * time.Second; {
	case r.DLQ.Isolated == 0:
	case r.DLQ.Oldest != nil:
		st.Deleted = r.DLQ.Oldest.At.Add(retention - age(r.DLQ.Oldest))
	case r.Isolated != nil:
		st.Deleted = r.Isolated.DeletedAt
	}
	if r.Isolated != nil {
		for _, g := range r.Isolated.Groups {
			st.Groups = append(st.Groups, console.Group{Class: string(g.Class), Cause: string(g.Cause), Kind: g.Kind, Fingerprint: g.Fingerprint,
				Count: g.Count, Oldest: g.OldestAt, Newest: g.NewestAt})
		}
	}
	for _, note := range []string{r.IsolatedNotTold, r.LanesNotTold, r.SchedulerNotTold, r.KindsNotTold, r.RedriveNotTold} {
		if note != "" {
			st.Notes = append(st.Notes, strings.ToUpper(note[:1])+note[1:])
		}
	}
	if r.Series != nil {
		st.History = historyOf(*r.Series)
	}
	return st
}

// leastPeriods is how many periods a plot shows at least.
const leastPeriods = 10

// historyOf makes plots of series. Periods before the first count are left out: nothing was recorded then.
func historyOf(s overview.Series) console.History {
	if s.NoHistory != "" {
		return console.History{None: strings.TrimPrefix(strings.TrimPrefix(s.NoHistory, "no history here: "), "no history: ") + "."}
	}
	periods := s.Periods()
	first := len(periods)
	for _, counts := range s.Counts {
		if i := slices.IndexFunc(counts, func(n float64) bool { return n != 0 }); i >= 0 {
			first = min(first, i)
		}
	}
	h := console.History{Source: s.Source + ", counts a minute."}
	if s.CostUSD > 0 {
		h.Cost = fmt.Sprintf("Reading it cost $%.5f; while this page is open it is read once in %v.", s.CostUSD, consoleSlow)
	}
	from := max(0, min(first-1, len(periods)-leastPeriods))
	plot := func(id, title string, names ...overview.Name) {
		p := console.Plot{ID: id, Title: title, Unit: "a minute"}
		if first < len(periods) {
			p.Times = periods[from:]
			for _, name := range names {
				p.Lines = append(p.Lines, console.Line{Name: string(name), Values: s.Counts[name][from:]})
			}
		}
		h.Plots = append(h.Plots, p)
	}
	plot("outcomes", "What became of deliveries", overview.Acknowledged, overview.Retried, overview.IsolatedNow, overview.Deferred, overview.Left)
	plot("work", "Fresh work and recovery", overview.Fresh, overview.Recovered, overview.Redriven, overview.Duplicates)
	return h
}
