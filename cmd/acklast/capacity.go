package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/capacity"
	"acklast/internal/topology"
)

func newCapacity(a *app) *cobra.Command {
	n := topology.Default()
	in := capacity.Input{}
	c := &cobra.Command{
		Use:   "capacity",
		Short: "Plan a recovery: how much work there is, how fast a backlog may go",
		Long: `Compare a stack's work with its capacity, and compute how fast a backlog may be redriven and how long that takes.

Every attempt fails with the same probability and is retried up to --retries times, so that a job makes
(1-p^(n+1))/(1-p) attempts on average and 1+n at most. First attempts of fresh jobs run on the source lane,
retries and redriven jobs on the recovery lane. An invocation takes a full batch and lasts as long as
its slowest record. No lane and no provider is planned above 80 % of its capacity.

If a plan is not possible, the answer says what would make it possible, and the exit code is 2. The command
reads nothing from the stack: every number is an argument.`,
		Example: `  acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000
  acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000 --within 30m --quota 60`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := capacity.New(in)
			if err != nil {
				return refuse("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			a.started = true
			if err := a.answer(p, func(w io.Writer) { printCapacity(w, p) }); err != nil {
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
	for _, required := range []string{"arrivals", "p50", "p95"} {
		_ = c.MarkFlagRequired(required)
	}
	return c
}

func printCapacity(w io.Writer, p capacity.Plan) {
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
