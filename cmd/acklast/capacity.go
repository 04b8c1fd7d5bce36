package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/capacity"
	"acklast/internal/topology"
)

func newCapacity(a *app) *cobra.Command {
	n := topology.Default()
	in := capacity.Input{}
	var fromStack bool
	var window time.Duration
	var plot string
	c := &cobra.Command{
		Use:   "capacity",
		Short: "Plan a recovery: how much work there is, how fast a backlog may go",
		Long: `Compare a stack's work with its capacity, and compute how fast a backlog may be redriven and how long that takes.

Every attempt fails with the same probability and is retried up to --retries times, so that a job makes
(1-p^(n+1))/(1-p) attempts on average and 1+n at most. First attempts of fresh jobs run on the source lane,
retries and redriven jobs on the recovery lane. An invocation takes a full batch and lasts as long as
its slowest record. No lane and no provider is planned above 80 % of its capacity.

If a plan is not possible, the answer says what would make it possible, and the exit code is 2. Every number is an
argument. With --from-stack, numbers that you do not give come from CloudWatch, SQS and Lambda: arrivals and failures of
the last --window, the worker's duration, batch size, caps, and the DLQ's depth and time to retention. --plot draws the
backlog over time.`,
		Example: `  acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000
  acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000 --within 30m --quota 60
  acklast capacity --from-stack --within 2h --plot backlog.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !drawable(plot) {
				return refuse("--plot is %q, want a file that ends in .svg or .png", plot)
			}
			given := func(flag string) bool { return cmd.Flags().Changed(flag) }
			var sources map[string]string
			var missing []string
			if fromStack {
				if window < time.Minute {
					return refuse("--window is %v, want at least a minute", window)
				}
				a.started = true
				t, err := a.connect(cmd.Context())
				if err != nil {
					return err
				}
				m, err := a.measure(cmd.Context(), t, window)
				if err != nil {
					return err
				}
				var lacking []capacity.Missing
				sources, lacking = m.Fill(&in, given)
				for _, l := range lacking {
					missing = append(missing, fmt.Sprintf("give --%s: %s", l.Name, l.Why))
				}
			} else {
				missing = ungiven(given)
			}
			if len(missing) > 0 {
				return refuse("not known: %s", strings.Join(missing, "; "))
			}
			p, err := capacity.New(in)
			if err != nil {
				return refuse("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			a.started = true
			if plot != "" {
				if err := drawBacklog(plot, p); err != nil {
					return err
				}
			}
			r := capacityReport{Plan: p, Sources: sources, Plot: plot}
			if err := a.answer(r, func(w io.Writer) { printCapacity(w, r) }); err != nil {
				return err
			}
			if len(p.Refused) > 0 {
				return &toldError{exitRefused}
			}
			return nil
		},
	}
	f := c.Flags()
	f.Float64Var(&in.Arrivals, "arrivals", 0, "fresh jobs per second")
	f.Float64Var(&in.Failing, "failing", 0, "fraction of attempts that fail and are retried, 0 to 1")
	f.IntVar(&in.Retries, "retries", n.MaxAttempts-1, "largest number of attempts after the first")
	f.DurationVar(&in.P50, "p50", 0, "median time of one record in the worker")
	f.DurationVar(&in.P95, "p95", 0, "95th percentile of that time")
	f.IntVar(&in.Batch, "batch", n.BatchSize, "batch size of both lanes")
	f.IntVar(&in.SourceCap, "source-concurrency", n.SourceConcurrency, "maximum concurrency of the source lane")
	f.IntVar(&in.RecoveryCap, "recovery-concurrency", n.RecoveryConcurrency, "maximum concurrency of the recovery lane")
	f.Float64Var(&in.Quota, "quota", 0, "attempts per second that the provider allows (default: no limit)")
	f.IntVar(&in.Backlog, "backlog", 0, "isolated jobs to bring back")
	f.DurationVar(&in.Within, "within", 0, "time in which the backlog has to be done (default: no deadline)")
	f.Float64Var(&in.Rate, "rate", 0, "redriven jobs per second (default: the largest safe rate)")
	f.BoolVar(&fromStack, "from-stack", false, "take what is not given from CloudWatch, SQS and Lambda")
	f.DurationVar(&window, "window", time.Hour, "with --from-stack: the time before now whose rates count")
	f.StringVar(&plot, "plot", "", "file that gets a drawing of the backlog over time, .svg or .png")
	return c
}

// capacityReport is the answer of capacity.
type capacityReport struct {
	capacity.Plan
	// Sources says of each number that was read from the stack where it is from.
	Sources map[string]string `json:"sources,omitempty"`
	// Plot is the file that was drawn.
	Plot string `json:"plot,omitzero"`
}

// ungiven names the required numbers that are not on the command line.
func ungiven(given func(string) bool) (missing []string) {
	for _, required := range []string{"arrivals", "p50", "p95"} {
		if !given(required) {
			missing = append(missing, "give --"+required+", or --from-stack")
		}
	}
	return missing
}

func printCapacity(w io.Writer, r capacityReport) {
	p := r.Plan
	if len(r.Sources) > 0 {
		row(w, "READ", "VALUE")
		for _, name := range slices.Sorted(maps.Keys(r.Sources)) {
			row(w, name, r.Sources[name])
		}
		say(w, "\n")
	}
	perSecond := func(v float64) string { return capacity.Rate(v) + "/s" }
	load := func(name string, l capacity.Load) {
		row(w, name, perSecond(l.Offered), perSecond(l.Capacity), capacity.Rate(100*l.Utilisation)+" %")
	}
	row(w, "", "OFFERED", "CAPACITY", "UTILISATION")
	load("source lane", p.Source)
	load("recovery lane", p.Recovery)
	if p.Provider != nil {
		load("provider", *p.Provider)
	}
	say(w, "\n")
	row(w, "attempts of a job", capacity.Rate(p.AttemptsPerJob)+" on average", capacity.Rate(p.AttemptsBound)+" at most")
	row(w, "work of fresh jobs", perSecond(p.Work)+" on average", perSecond(p.WorkBound)+" at most")
	row(w, "largest safe redrive", perSecond(p.SafeRate))
	if p.Drain > 0 {
		row(w, "backlog", p.Input.Backlog, perSecond(p.Rate), "done in "+p.Drain.Round(time.Second).String())
	}
	for _, s := range p.Refused {
		say(w, "\nRefused: %s.\n", s)
	}
	for _, s := range p.Needs {
		say(w, "It needs %s.\n", s)
	}
}
