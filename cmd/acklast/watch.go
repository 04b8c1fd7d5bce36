package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/retry"
)

const (
	// watchWindow is how far back the outcomes of watch begin.
	watchWindow = 15 * time.Minute
	// watchSlow is how long watch keeps figures that cost money on AWS.
	watchSlow = time.Minute
)

// watchOptions are the flags of watch.
type watchOptions struct {
	every time.Duration
	once  bool
}

func newWatch(a *app) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch the lanes, the DLQ, the outcomes and a redrive live",
		Long: `Show live how much work each lane and the DLQ hold, when SQS deletes the oldest isolated message, how many
deliveries had which outcome, why jobs are isolated, and what is paused, stopped or redriven. Keys open a group of
isolated jobs, a job or a run, and start the same commands as you would type, with the same questions: "?" lists
them.

If standard output is not a terminal, it prints one line for each interval, and with --output json one object for each
line. It needs the permissions of "acklast status". It receives no message; only a plan and a look at the DLQ do.

The outcomes come from CloudWatch, where watch reads nine metrics a minute: about 0.13 USD a day. At the address of
"acklast local" they come from the functions' metric lines and cost nothing. Other places have no history.`,
		Example: `  acklast watch
  acklast watch --every 1m
  acklast watch --once --output json | jq .dlq.isolated`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.watchStack(cmd.Context(), o) }),
	}
	cmd.Flags().DurationVar(&o.every, "every", 5*time.Second, "pause between two looks, at least 1s")
	cmd.Flags().BoolVar(&o.once, "once", false, "print one look and end")
	return cmd
}

func (a *app) watchStack(ctx context.Context, o watchOptions) error {
	if o.every < time.Second {
		return refuse("--every is %v, want at least 1s", o.every)
	}
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	reader, err := a.overview(ctx, t, func(c *overview.Config) {
		c.History, c.Window = a.history(t), watchWindow
		if t.endpoint == "" {
			c.Slow = watchSlow
		}
	})
	if err != nil {
		return err
	}
	if o.once || a.output == "json" || !isTerminal(a.stdout) || !isTerminal(a.stdin) {
		return a.watchLines(ctx, t, reader, o)
	}
	m := a.watchModel(context.WithoutCancel(ctx), t, reader, o.every)
	_, err = tea.NewProgram(m, tea.WithInput(a.stdin), tea.WithOutput(a.stdout)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// watchLines prints one line for each look, until ctx ends. Only the first look has to succeed.
func (a *app) watchLines(ctx context.Context, t *target, reader *overview.Reader, o watchOptions) error {
	for first := true; first || retry.Sleep(ctx, o.every) == nil; first = false {
		s, err := reader.Read(ctx)
		switch {
		case ctx.Err() != nil:
			continue // the person who watches has ended it
		case err != nil && (first || o.once):
			return t.explain(err)
		case err != nil:
			say(a.stderr, "%s not read: %s\n", a.now().UTC().Format(time.RFC3339), plain(reason(err)))
		default:
			if err := a.printLine(s); err != nil {
				return err
			}
		}
		if o.once {
			break
		}
	}
	return nil
}

func (a *app) printLine(s overview.Snapshot) error {
	if a.output == "json" {
		return writeJSON(a.stdout, s, "")
	}
	_, err := io.WriteString(a.stdout, watchLine(s)+"\n")
	return err
}

// watchLine is a snapshot in one line.
func watchLine(s overview.Snapshot) string {
	parts := []string{}
	for _, l := range s.Lanes {
		paused := ""
		if l.Paused {
			paused = " (paused)"
		}
		parts = append(parts, fmt.Sprintf("%s%s: %d scheduled, %d ready, %d in flight", l.Lane, paused, l.Scheduled, l.Ready, l.InFlight))
	}
	parts = append(parts, "dlq: "+isolatedWords(s))
	if rates := rateWords(s.Series); rates != "" {
		parts = append(parts, rates)
	}
	parts = append(parts, heldWords(s)...)
	if r := s.Run; r != nil && r.State == redrive.Active {
		parts = append(parts, runWords(r), canaryWords(r))
	}
	return plain(s.At.UTC().Format(time.RFC3339) + " " + strings.Join(parts, "; "))
}

// isolatedWords counts the DLQ and its classes.
func isolatedWords(s overview.Snapshot) string {
	text := fmt.Sprintf("%d isolated", s.DLQ.Isolated)
	if s.Isolated == nil || s.Isolated.Jobs == 0 {
		return text
	}
	var classes []string
	for _, c := range s.Isolated.Classes() {
		classes = append(classes, fmt.Sprintf("%d %s", c.Count, c.Class))
	}
	return fmt.Sprintf("%s (%s), the oldest is deleted in %s", text, strings.Join(classes, ", "), rough(s.Isolated.DeletedAt.Sub(s.At)))
}

// rateWords are the outcomes per minute.
func rateWords(series *overview.Series) string {
	if series == nil || series.NoHistory != "" {
		return ""
	}
	var rates []string
	for _, name := range shownSeries {
		rate, _ := series.PerMinute(name)
		rates = append(rates, fmt.Sprintf("%s %.1f", name, rate))
	}
	return "per minute: " + strings.Join(rates, ", ")
}

// shownSeries are the series that people see, in order.
var shownSeries = []overview.Name{
	overview.Acknowledged, overview.Retried, overview.Deferred, overview.IsolatedNow, overview.Left, overview.Redriven,
}

// heldWords say what holds work back.
func heldWords(s overview.Snapshot) []string {
	var held []string
	if s.Switch != nil && s.Switch.On {
		held = append(held, fmt.Sprintf("KILL SWITCH ON by %s: %s", s.Switch.By, s.Switch.Reason))
	}
	for _, k := range s.Kinds {
		if k.Paused != nil {
			held = append(held, fmt.Sprintf("kind %s PAUSED by %s: %s", k.Kind, k.Paused.By, k.Paused.Reason))
		}
	}
	return held
}

// runWords say how far a run is.
func runWords(r *redrive.Run) string {
	return fmt.Sprintf("run %s %s, %d of %d", r.ID, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)), settledOf(r), r.Total)
}

// canaryWords say how the canary stands, and how many of the jobs in the window ended well.
func canaryWords(r *redrive.Run) string {
	canary := "canary going out"
	switch {
	case r.Code == redrive.HaltCanary:
		canary = "canary failed"
	case r.Canary != "":
		canary = "canary " + string(r.Canary)
	case r.State != redrive.Active:
		canary = "no canary passed"
	}
	judged, well := 0, 0
	for _, w := range r.Watched {
		if w.Ending != "" {
			judged++
			if w.Ending == redrive.Succeeded {
				well++
			}
		}
	}
	return fmt.Sprintf("%s; window: %d of %d sent jobs ran, %d well", canary, judged, len(r.Watched), well)
}
