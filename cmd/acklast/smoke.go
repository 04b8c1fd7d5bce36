package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

const (
	// smokeCopies is how often the job is sent.
	smokeCopies = 2
	// smokeEvery is how often the ledger is read. Two reads of a small item cost nothing that matters.
	smokeEvery = 500 * time.Millisecond
)

// smokeReport is the answer of smoke.
type smokeReport struct {
	Stack string `json:"stack"`
	Place string `json:"place"`
	Job   string `json:"job"`
	// OK says that the job was sent twice, found done by both deliveries, and took effect once.
	OK bool `json:"ok"`
	// Sent counts the messages, Done those that the worker found done, Effects how often the job took effect.
	Sent    int `json:"sent"`
	Done    int `json:"done"`
	Effects int `json:"effects"`
	// Status is the entry's; empty if there is no entry.
	Status ledger.Status `json:"status"`
	// Seconds is the time from the sending to the answer.
	Seconds float64 `json:"seconds"`
	// Problem says what is wrong and what to do; absent if OK.
	Problem string `json:"problem,omitzero"`
}

func newSmoke(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "smoke",
		Short: "Check that a stack works: a job sent twice has its effect once",
		Long: `Send one job of the engine's own kind, acklast.smoke, twice, and wait until the worker has found both done. Its
effect is a counter in the ledger's table, which has to be 1. Entry and counter expire within the hour, and the
job is in no metric and no alarm.

The exit code is 0 if the stack works, 1 if it does not or did not answer in time.`,
		Example: `  acklast smoke
  acklast smoke --stack orders --timeout 5m --output json`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return refuse("--timeout is %v, want more than 0", timeout)
			}
			return a.smoke(cmd.Context(), timeout)
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait for the worker")
	return cmd
}

func (a *app) smoke(ctx context.Context, timeout time.Duration) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	client, err := t.lanes(ctx, job.Source)
	if err != nil {
		return err
	}
	a.announce(ctx, t)
	id := uuid.NewString()
	r := smokeReport{Stack: t.names.Stack, Place: t.place, Job: job.SmokeKind + "/" + id}
	body, err := json.Marshal(map[string]any{"kind": job.SmokeKind, "payload": job.SmokePayload{ID: id}})
	if err != nil {
		return err
	}
	began := a.now()
	copies := make([]lanes.Move, smokeCopies)
	for i := range copies {
		copies[i] = lanes.Move{Message: job.Message{Body: string(body)}}
	}
	if err := errors.Join(client.Send(ctx, job.Source, copies)...); err != nil {
		return t.explain(err)
	}
	r.Sent = smokeCopies
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e, c, err := watchSmoke(waiting, t.ledger(), r.Job, id)
	if err != nil && (waiting.Err() == nil || ctx.Err() != nil) {
		return t.explain(err)
	}
	r.Done, r.Effects, r.Status = c.Done, c.Effects, e.Status
	r.Seconds = a.now().Sub(began).Round(time.Millisecond).Seconds()
	r.Problem = smokeProblem(e, c, timeout)
	r.OK = r.Problem == ""
	if err := a.answer(r, func(w io.Writer) { printSmoke(w, r) }); err != nil {
		return err
	}
	if !r.OK {
		return &toldError{exitFailed}
	}
	return nil
}

// watchSmoke reads the job's entry and counter until every copy is done, the job is isolated, or ctx ends. Then it
// returns what it read last.
func watchSmoke(ctx context.Context, store *dynamo.Store, key, id string) (e ledger.Entry, c dynamo.SmokeCounter, err error) {
	for {
		entry, err := store.Get(ctx, key)
		if err != nil {
			return e, c, err
		}
		counter, err := store.ReadSmoke(ctx, id)
		if err != nil {
			return entry, c, err
		}
		e, c = entry, counter
		if c.Done >= smokeCopies || e.Status == ledger.Isolated {
			return e, c, nil
		}
		select {
		case <-ctx.Done():
			return e, c, ctx.Err()
		case <-time.After(smokeEvery):
		}
	}
}

// smokeProblem says what is wrong and what to do; "" if the stack works.
func smokeProblem(e ledger.Entry, c dynamo.SmokeCounter, timeout time.Duration) string {
	switch {
	case c.Effects > 1:
		return fmt.Sprintf("the job took effect %d times: stop the lanes with \"acklast pause\" and look at the worker's version and its table", c.Effects)
	case e.Status == ledger.Isolated:
		return fmt.Sprintf("the job is isolated as %s: %s. Look at \"acklast job %s\", and discard it afterwards", e.LastClass, e.LastError, e.Key)
	case e.Version == 0:
		return fmt.Sprintf("no worker took the job within %v. Look at \"acklast status\": a paused lane, a worker that is throttled or fails to start, "+
			"or one of a version that does not know %s yet", timeout, job.SmokeKind)
	case !e.Status.Final():
		return fmt.Sprintf("the job is %s after %v, last error: %s. Look at \"acklast job %s\" and the worker's log", e.Status, timeout, e.LastError, e.Key)
	case c.Effects == 0:
		return "the entry says done, but the counter is missing: the effect did not commit with its entry"
	case c.Done < smokeCopies:
		return fmt.Sprintf("the job is done, but only %d of %d messages were found done within %v: look at \"acklast status\" and the worker's log", c.Done, smokeCopies, timeout)
	}
	return ""
}

func printSmoke(w io.Writer, r smokeReport) {
	result := "works"
	if !r.OK {
		result = "does not work"
	}
	row(w, "STACK", "RESULT", "SENT", "DONE", "EFFECTS", "ENTRY", "SECONDS")
	status := string(r.Status)
	if status == "" {
		status = "none"
	}
	row(w, r.Stack, result, r.Sent, r.Done, r.Effects, status, r.Seconds)
	if r.Problem != "" {
		say(w, "\n%s.\n", plain(r.Problem))
	}
}
