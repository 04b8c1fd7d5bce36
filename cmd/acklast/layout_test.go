package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// wide returns the lines that are wider than 80 columns and have more than one word.
func wide(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > 80 && len(strings.Fields(line)) > 1 {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAnswersFoldAt80Columns(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	long := "dial tcp 10.0.0.1:443: connect: connection refused while the provider was asked for the state of a reminder"
	id := "5d1cf1a5-0000-4000-8000-000000000001"
	key := "reminder.send/renewal-1042/email/v3"
	group := redrive.Group{Class: job.Transient, Cause: job.CauseAttempts, Kind: "reminder.send", Fingerprint: long, Count: 1200, Oldest: now.Add(-time.Hour),
		Actions: map[redrive.Action]int{redrive.Redrive: 1000, redrive.Limit: 200},
		Samples: []redrive.Sample{{Message: id, Job: key, Error: long, IsolatedAt: now.Add(-time.Hour), Action: redrive.Redrive, Why: "it is isolated"}}}
	run := redrive.Run{ID: "r-20261201-100000-1a2b3c4d", Plan: "p-20261201-100000-1a2b3c4d", State: redrive.Halted, Code: redrive.HaltFailures, Why: long, By: "arn:aws:iam::123456789012:user/ada",
		Reason: "the provider is back since 10:40", StartedAt: now, Endings: map[redrive.Ending]int{redrive.Again: 12}, Names: map[redrive.Ending][]string{redrive.Again: {key, key, key}}, Total: 1200}
	plan := redrive.Plan{ID: run.Plan, By: run.By, Reason: run.Reason, Approval: "1000 jobs, more than 100; jobs of class crashed; a mended body", Actions: group.Actions, RatePerSecond: 10, Stages: []int{1, 2, 5, 20}, ExpiresAt: now}
	for name, write := range map[string]func(*bytes.Buffer){
		"look": func(b *bytes.Buffer) {
			printInspection(b, redrive.Response{Groups: []redrive.Group{group}, Scan: &redrive.Scan{Seen: 1200, Holds: 1200}}, now)
		},
		"plan":   func(b *bytes.Buffer) { printPlan(b, plan, now) },
		"run":    func(b *bytes.Buffer) { printRun(b, &run, now) },
		"status": func(b *bytes.Buffer) { printRuns(b, redrive.Response{Runs: []redrive.Run{run}}, now) },
	} {
		var text bytes.Buffer
		write(&text)
		got := fold(text.String(), 80)
		if lines := wide(got); len(lines) > 0 {
			t.Errorf("%s: wider than 80 columns:\n%s", name, strings.Join(lines, "\n"))
		}
		for _, word := range strings.Fields(text.String()) {
			if !strings.Contains(strings.ToLower(got), strings.ToLower(word)) {
				t.Errorf("%s: %q is lost in\n%s", name, word, got)
				break
			}
		}
	}
}

func TestFold(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"fits":             {"A\tB\n1\t2\n", "A  B\n1  2\n"},
		"names and values": {"why\tone two three four five\n", "why  one two three\n     four five\n"},
		"a table":          {"ID\tWHAT\tWHY\nid-1\tsent\tbecause it was\n", "id: id-1\n  what: sent\n  why: because it\n    was\n"},
		"a line":           {"one two three four five six\n", "one two three four\n  five six\n"},
		"a long word":      {"why\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b\n", "why\n     aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n     b\n"},
	} {
		if got := fold(tt.text, 20); got != tt.want {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, tt.want)
		}
	}
}

func TestHelpFitsInto80Columns(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if lines := slices.DeleteFunc(wide(c.Long+"\n"+c.UsageString()), func(l string) bool { return strings.HasPrefix(l, "  acklast ") }); len(lines) > 0 {
			t.Errorf("%s: wider than 80 columns:\n%s", c.CommandPath(), strings.Join(lines, "\n"))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(a))
}

func TestTheProgressLineFits(t *testing.T) {
	line := strings.Repeat("ü", 100)
	if got := fits(line, 79); utf8.RuneCountInString(got) != 79 || !strings.HasSuffix(got, "…") {
		t.Errorf("%q has %d columns, want 79", got, utf8.RuneCountInString(got))
	}
	if got := fits("short", 79); got != "short" {
		t.Errorf("%q, want it as it is", got)
	}
}

// On a terminal a person chooses by a number. Any other input does nothing.
func TestChoose(t *testing.T) {
	for typed, want := range map[string]int{"2\n": 1, "1 \n": 0, "0\n": -1, "3\n": -1, "\n": -1, "x\n": -1} {
		var said bytes.Buffer
		a := &app{stdin: strings.NewReader(typed), stderr: &said}
		got, err := a.choose("Which?", []string{"first", "second"})
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", typed, got, err, want)
		}
		contains(t, said.String(), "  1  first\n", "  2  second\n", "Which? Type its number: ")
	}
}

func TestWhatACommandIsUsedOn(t *testing.T) {
	a := &app{stdin: strings.NewReader(""), stderr: &bytes.Buffer{}}
	for arg, want := range map[string]handle{"p-1": {plan: "p-1"}, "r-1": {run: "r-1"}} {
		if got, err := a.resolve(context.Background(), nil, []string{arg}, nil); err != nil || got != want {
			t.Errorf("%s: %+v, %v", arg, got, err)
		}
	}
	if _, err := a.resolve(context.Background(), nil, nil, nil); err == nil {
		t.Error("without a terminal nothing is chosen, and nothing was named")
	}
	for id, want := range map[string]string{"5d1c-1": "5d1c-1 ", "reminder.send/r/1": " reminder.send/r/1", "": " "} {
		message, job := asOneOf(id)
		if got := fmt.Sprint(message, " ", job); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

// writes counts the calls of Write.
type writes struct {
	bytes.Buffer
	calls int
}

func (w *writes) Write(b []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(b)
}

// A program that reads an answer from a pipe gets it as a whole.
func TestAnAnswerIsOneWrite(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		var w writes
		a := &app{stdout: &w, output: output, getenv: func(string) string { return "" }}
		if err := a.answer([]string{"a", "b"}, func(w io.Writer) {
			row(w, "one", "two")
			say(w, "\nA sentence.\n")
			row(w, "three", "four")
		}); err != nil {
			t.Fatal(err)
		}
		if w.calls != 1 {
			t.Errorf("%s: %d writes: %s", output, w.calls, w.String())
		}
	}
}
