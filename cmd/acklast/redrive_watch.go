package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/retry"
)

// pollEvery is the pause between two questions about a run.
const pollEvery = time.Second

// beginLimit is how long a run that was asked for may take to begin before this is told.
const beginLimit = 2 * time.Second

// pollFailures is how many answers in a row a watcher may miss: the run goes on without it.
const pollFailures = 5

// watch polls a run until nobody works on it any more.
func (a *app) watch(ctx context.Context, g *governor, r redrive.Request) (redrive.Response, error) {
	first, began, paused := -1, a.now(), false
	for {
		resp, err := a.patiently(ctx, g, r)
		if err != nil {
			return resp, a.goesOn(err, resp, r)
		}
		if resp.Run != nil {
			settled := settledOf(resp.Run)
			if first < 0 {
				first = settled
			}
			perSecond := 0.0
			if took := a.now().Sub(began).Seconds(); took > 0 {
				perSecond = float64(settled-first) / took
			}
			a.progress(resp.Run, settled, perSecond)
			if !paused && waitsForJobs(resp.Run) && a.now().Sub(began) > silence {
				paused = a.sayPaused(ctx, g)
			}
			if resp.Run.State != redrive.Active {
				return resp, nil
			}
		}
		if err := retry.Sleep(ctx, pollEvery); err != nil {
			return resp, a.goesOn(err, resp, r)
		}
	}
}

// patiently makes a request that may be repeated until it is answered or refused, or too many answers in a row were missed.
func (a *app) patiently(ctx context.Context, g *governor, r redrive.Request) (redrive.Response, error) {
	for missed := 0; ; missed++ {
		resp, err := g.ask(ctx, r)
		var refused *refusal
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || missed == pollFailures {
			return resp, err
		}
		say(a.stderr, "no answer (%s), asking again; a run does not wait for it\n", plain(err.Error()))
		if err := retry.Sleep(ctx, pollEvery); err != nil {
			return resp, err
		}
	}
}

// waitsForJobs says whether a run waits for jobs that the worker has to run, or gave up waiting.
func waitsForJobs(run *redrive.Run) bool {
	switch run.State {
	case redrive.Active:
		return run.Canary == redrive.CanarySent || strings.HasPrefix(run.Why, "waits for the ends")
	case redrive.Halted:
		return run.Code == redrive.HaltNotRun || run.Code == redrive.HaltCanary
	}
	return false
}

// sayPaused says that the recovery lane or a kind is paused, if one is: what a run sends waits then.
func (a *app) sayPaused(ctx context.Context, g *governor) (said bool) {
	resp, err := g.ask(ctx, redrive.Request{Action: "kinds"})
	for _, kind := range resp.Kinds {
		if err == nil && kind.Paused != nil {
			said = true
			say(a.stderr, "\nThe kind %s is paused, so its jobs wait: acklast resume --kind %s --reason WHY\n", plain(kind.Kind), plain(kind.Kind))
		}
	}
	return a.laneIsPaused(ctx, g) || said
}

func (a *app) laneIsPaused(ctx context.Context, g *governor) bool {
	arn, err := g.queueARN(ctx, g.names.RecoveryQueue)
	if err != nil {
		return false // it is only a hint
	}
	mapping, err := mappingOf(ctx, g.lambda, g.names.WorkerFunction, arn)
	if err != nil || !overview.Paused(mapping) {
		return false
	}
	say(a.stderr, "\nThe recovery lane is paused, so nothing that was sent runs: acklast resume recovery\n")
	return true
}

// goesOn tells whoever ends the watching that this does not end the run. A refusal says itself what is the matter.
func (a *app) goesOn(err error, resp redrive.Response, r redrive.Request) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return err
	}
	id := cmp.Or(r.Run, r.Plan)
	if resp.Run != nil {
		id = resp.Run.ID
	}
	say(a.stderr, "\nThe run goes on. Watch it: acklast redrive status %[1]s --watch. Stop it: acklast redrive stop %[1]s\n", plain(id))
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

// clearLine moves to the beginning of the terminal's line and clears it.
const clearLine = "\r\x1b[K"

// progress shows one line about a run, on a terminal over the one before.
func (a *app) progress(run *redrive.Run, settled int, perSecond float64) {
	const width = 20
	full := 0
	if run.Total > 0 {
		full = min(width, width*settled/run.Total)
	}
	line := plain(fmt.Sprintf("[%s%s] %d of %d  %.1f/s  %s  canary %s  %s  %s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		settled, run.Total, perSecond, run.State, cmp.Or(run.Canary, "going out"), endingsOf(run), run.Why))
	if columns := a.columns(a.stderr); columns > 0 {
		_, _ = io.WriteString(a.stderr, clearLine+fits(line, columns-1))
		if run.State != redrive.Active {
			say(a.stderr, "\n")
		}
		return
	}
	say(a.stderr, "%s\n", line)
}

// fits cuts a line off at a width.
func fits(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

// runAndWatch has the run created or examined, which tells at once why it may not go on, then invokes it
// asynchronously and polls it. A run that halts near the function's timeout is asked for again.
func (a *app) runAndWatch(ctx context.Context, g *governor, r redrive.Request) (redrive.Response, error) {
	r.Begin = true
	begun, err := g.ask(ctx, r)
	for err == nil {
		r.Plan, r.Run, r.Begin = "", begun.Run.ID, false
		status := redrive.Request{Action: "status", Run: r.Run}
		switch begun.Run.State {
		case redrive.Done, redrive.Revoked:
			return begun, nil
		case redrive.Active:
		default:
			if _, err := g.invoke(ctx, r, types.InvocationTypeEvent); err != nil {
				return begun, err
			}
			if err := a.awaitRound(ctx, g, status, begun.Run.Rounds); err != nil {
				return begun, err
			}
		}
		resp, failed := a.watch(ctx, g, status)
		if failed != nil || resp.Run.State != redrive.Halted || resp.Run.Code != redrive.HaltTime {
			return resp, failed
		}
		r.Begin = true
		if begun, err = a.patiently(ctx, g, r); err != nil {
			say(a.stderr, "\nThe run is halted, and was to be continued: acklast redrive run %s\n", plain(r.Run))
		}
	}
	return begun, err
}

// awaitRound waits until an invocation works on the run. Whatever keeps it from that is told by name.
func (a *app) awaitRound(ctx context.Context, g *governor, status redrive.Request, rounds int) error {
	for asked := a.now(); ; {
		resp, err := a.patiently(ctx, g, status)
		if err != nil {
			return a.goesOn(err, resp, status)
		}
		if resp.Run.Rounds > rounds {
			return nil
		}
		if err := switchedOff(resp.Switch); err != nil {
			return err
		}
		if waited := a.now().Sub(asked); waited > beginLimit {
			say(a.stderr, "the redrive function has not begun for %v; it may be busy or throttled\n", beginLimit)
			if _, err := a.patiently(ctx, g, redrive.Request{Action: "run", Run: status.Run, Begin: true}); err != nil {
				return a.goesOn(err, resp, status)
			}
			asked = a.now()
		}
		if err := retry.Sleep(ctx, pollEvery/4); err != nil {
			return a.goesOn(err, resp, status)
		}
	}
}

// switchedOff refuses while the kill switch is on.
func switchedOff(sw *redrive.Switch) error {
	if sw == nil || !sw.On {
		return nil
	}
	return refuse("the kill switch is on, by %s: %s. Release it first: acklast redrive resume --reason WHY", plain(sw.By), plain(sw.Reason))
}
