package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"acklast/internal/redrive"
)

// loadScreen reads a job, the runs, or a plan or a run, in the words of the commands that print them.
func (a *app) loadScreen(ctx context.Context, t *target, s screen, width int) (screen, error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	var out bytes.Buffer
	quiet := *a
	quiet.stdout, quiet.stderr, quiet.output, quiet.width = &out, io.Discard, "table", width
	g := quiet.governing(t)
	var err error
	var resp redrive.Response
	switch s.page {
	case pageJob:
		var told *toldError
		if err = quiet.jobAt(ctx, g, s.id); errors.As(err, &told) {
			err = nil // the text says what is missing
		}
	case pageRuns:
		if resp, err = g.ask(ctx, redrive.Request{Action: "status"}); err == nil {
			s.runs = resp.Runs
		}
	case pageRun:
		r := redrive.Request{Action: "status", Run: s.id}
		if strings.HasPrefix(s.id, "p-") {
			r = redrive.Request{Action: "status", Plan: s.id}
		}
		if resp, err = g.ask(ctx, r); err == nil {
			s.run, s.plan = "", s.id
			if resp.Run != nil {
				s.run, s.plan = resp.Run.ID, resp.Run.Plan
			}
			err = quiet.table(&out, func(w io.Writer) { printWhole(w, resp, a.now()) })
		}
	}
	if err != nil {
		return s, err
	}
	s.text = nil
	for line := range strings.Lines(strings.TrimSpace(out.String())) {
		s.text = append(s.text, plain(strings.TrimSuffix(line, "\n")))
	}
	return s, nil
}

// loadLimit is how long the text of a screen may take.
const loadLimit = 15 * time.Second

// printWhole prints a run, or the plan that has none.
func printWhole(w io.Writer, resp redrive.Response, now time.Time) {
	if resp.Run == nil {
		printPlan(w, *resp.Plan, now)
		say(w, "\n")
		printInspection(w, redrive.Response{Groups: resp.Plan.Groups}, now)
		return
	}
	say(w, "%s\n", plain(canaryWords(resp.Run)))
	printRun(w, resp.Run, now)
}
