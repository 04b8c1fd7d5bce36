package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how much work each lane holds",
		Long: `Show how many messages of each lane are scheduled (delayed by SQS), ready (waiting for the worker) and in
flight (with the worker, or backing off), how many jobs wait in EventBridge Scheduler because they are due far
ahead, and how many are isolated on the DLQ, by class. It names paused lanes and kinds, the kill switch, and a
redrive's run that is active or halted. SQS's counts are approximate. No message is received.

The age of the oldest message is CloudWatch's figure, which may be some minutes old. It exists only on AWS,
and only for queues that were in use. The kinds' own rates come from the redrive function, if you may invoke it.
"acklast watch" shows the same live.`,
		Example: `  acklast status
  acklast status --stack orders --output json | jq .dlq.isolated`,
		Args: noArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context()) }),
	}
}

func (a *app) status(ctx context.Context) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	reader, err := a.overview(ctx, t, func(c *overview.Config) {
		g := a.governing(t)
		c.Kinds = func(ctx context.Context) ([]redrive.KindState, error) {
			resp, err := g.ask(ctx, redrive.Request{Action: "kinds"})
			return resp.Kinds, err
		}
	})
	if err != nil {
		return err
	}
	s, err := reader.Read(ctx)
	if err != nil {
		return t.explain(err)
	}
	return a.answer(s, func(w io.Writer) { printStatus(w, s) })
}

// overview returns a reader of the stack, without its series unless adjust adds them.
func (a *app) overview(ctx context.Context, t *target, adjust func(*overview.Config)) (*overview.Reader, error) {
	client, err := t.lanes(ctx, job.Source, job.Recovery, job.DLQ)
	if err != nil {
		return nil, err
	}
	c := overview.Config{
		Names: t.names, Place: t.place, Lanes: client, Ledger: t.ledger(), Schedules: t.schedules(),
		Operations: redrive.Operators{Table: redrive.NewStore(t.db, t.names.OperationsTable)},
		Mappings:   lambda.NewFromConfig(t.config, func(o *lambda.Options) { overrule(&o.BaseEndpoint, a.endpoint) }),
		Now:        a.now, Explain: reason,
	}
	if t.endpoint == "" {
		c.CloudWatch = cloudwatch.NewFromConfig(t.config)
	}
	adjust(&c)
	return overview.New(c), nil
}

// history has the outcomes of a target over time.
func (a *app) history(t *target) overview.History {
	return overview.CloudWatch{
		API:   cloudwatch.NewFromConfig(t.config, func(o *cloudwatch.Options) { overrule(&o.BaseEndpoint, a.endpoint) }),
		Names: t.names, Local: t.endpoint != "",
	}
}

func printStatus(w io.Writer, r overview.Snapshot) {
	age := func(o *overview.Oldest) string {
		switch {
		case r.OldestNotTold != "":
			return "not told here"
		case o == nil:
			return "no figure"
		}
		return rough(time.Duration(o.AgeSeconds)*time.Second) + " at " + o.At.UTC().Format("15:04Z")
	}
	row(w, "LANE", "SCHEDULED", "READY", "IN FLIGHT", "ISOLATED", "OLDEST")
	for _, l := range r.Lanes {
		row(w, l.Lane, l.Scheduled, l.Ready, l.InFlight, "-", age(l.Oldest))
	}
	row(w, job.DLQ, "-", "-", r.DLQ.InFlight, r.DLQ.Isolated, age(r.DLQ.Oldest))
	if r.OldestNotTold != "" {
		say(w, "Oldest: %s\n", plain(r.OldestNotTold))
	}
	switch {
	case r.SchedulerNotTold != "":
		say(w, "In EventBridge Scheduler: %s\n", plain(r.SchedulerNotTold))
	case r.MoreInScheduler:
		say(w, "In EventBridge Scheduler: more than %d jobs\n", r.InScheduler)
	default:
		say(w, "In EventBridge Scheduler: %d jobs\n", r.InScheduler)
	}
	printIsolated(w, r)
	printHeld(w, r)
}

// printIsolated says what the ledger knows about the isolated jobs.
func printIsolated(w io.Writer, r overview.Snapshot) {
	switch {
	case r.Isolated == nil:
		say(w, "Isolated jobs: %s\n", plain(r.IsolatedNotTold))
		return
	case r.Isolated.Jobs == 0:
		return
	}
	var classes []string
	for _, c := range r.Isolated.Classes() {
		classes = append(classes, fmt.Sprintf("%d %s", c.Count, c.Class))
	}
	more := ""
	if r.Isolated.More {
		more = "more than "
	}
	say(w, "Isolated jobs: %s%s. SQS deletes the oldest in %s.\n", more, plain(strings.Join(classes, ", ")), rough(r.Isolated.DeletedAt.Sub(r.At)))
	if r.IsolatedNotTold != "" {
		say(w, "%s\n", plain(r.IsolatedNotTold))
	}
}

// printHeld says what holds work back or moves it: pauses, the kill switch and a run.
func printHeld(w io.Writer, r overview.Snapshot) {
	for _, l := range r.Lanes {
		if l.Paused {
			say(w, "The %s lane is paused (its mapping is %s).\n", l.Lane, plain(strings.ToLower(l.Mapping)))
		}
	}
	if r.LanesNotTold != "" {
		say(w, "Lanes: %s\n", plain(r.LanesNotTold))
	}
	switch {
	case r.RedriveNotTold != "":
		say(w, "Redrive: %s\n", plain(r.RedriveNotTold))
	case r.Switch.On:
		say(w, "The kill switch is on, by %s: %s\n", plain(r.Switch.By), plain(r.Switch.Reason))
	}
	if r.Run != nil && (r.Run.State == redrive.Active || r.Run.State == redrive.Halted) {
		say(w, "Run %s is %s: %d of %d done. See acklast redrive status %[1]s\n", plain(r.Run.ID),
			plain(strings.TrimSpace(fmt.Sprint(r.Run.State, " ", r.Run.Code))), settledOf(r.Run), r.Run.Total)
	}
	for _, k := range r.Kinds {
		if k.Paused != nil {
			say(w, "Kind %s is paused since %s, by %s: %s\n", plain(k.Kind), k.Paused.At.UTC().Format(time.RFC3339), plain(k.Paused.By), plain(k.Paused.Reason))
		}
		if k.PerSecond > 0 {
			say(w, "Kind %s makes at most about %v attempts a second.\n", plain(k.Kind), k.PerSecond)
		}
	}
	if r.KindsNotTold != "" {
		say(w, "Kinds: %s\n", plain(r.KindsNotTold))
	}
}
