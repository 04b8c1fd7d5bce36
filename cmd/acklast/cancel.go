package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// cancelReport is the answer of cancel.
type cancelReport struct {
	Job string `json:"job"`
	// Entry is the job's entry as it is now.
	Entry ledger.Entry `json:"entry"`
	// Schedule says what became of the job's schedule: deleted or left. It is absent if the job had none.
	Schedule string `json:"schedule,omitzero"`
}

func newCancel(a *app) *cobra.Command {
	var w who
	var notBefore string
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Take a job back that has not run yet",
		Long: `End a job with the outcome "cancelled", also before its first delivery. A delivery that comes later finds the
job ended and does nothing. If the job waits in EventBridge Scheduler, its schedule is deleted; if that fails, its firing
does nothing.

Cancel refuses a job that has ended, that a delivery holds, or that may have had its effect outside the
database. Who cancelled it, and why, stays with the job's entry ("acklast job" shows it) and in the audit ("acklast
audit"). To move a job to another time, cancel it and send it again with a new version in its key.`,
		Example: `  acklast cancel reminder.send/renewal-1042/email/v3 --reason 'the customer left'
  acklast cancel reminder.send/renewal-1042/email/v3 --not-before 2027-06-01T08:00:00Z --reason 'the customer left'`,
		Args: cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			var at time.Time
			if notBefore != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, notBefore); err != nil {
					return refuse("--not-before is %q, want a time such as 2027-06-01T08:00:00Z", notBefore)
				}
			}
			d, err := cancelling(args[0], at)
			if err != nil {
				return err
			}
			return a.cancel(cmd.Context(), d, w)
		}),
	}
	w.flags(cmd)
	cmd.Flags().StringVar(&notBefore, "not-before", "", "the job's own notBefore, if it was not delivered yet: it stays cancelled until after that time")
	return cmd
}

func (a *app) cancel(ctx context.Context, d job.Delivery, w who) error {
	g, err := a.govern(ctx)
	if err != nil {
		return err
	}
	a.announce(ctx, g.target)
	r, err := a.cancelJob(ctx, g, d, g.name(ctx, w), w.reason)
	if err != nil {
		return err
	}
	return a.answer(r, func(w io.Writer) {
		say(w, "%s is cancelled and will not run.\n", plain(r.Job))
		if r.Schedule != "" {
			say(w, "%s\n", plain(fmt.Sprintf("Its schedule is %s.", r.Schedule)))
		}
	})
}

// cancelling is the delivery in whose name a job is cancelled.
func cancelling(key string, notBefore time.Time) (job.Delivery, error) {
	d := job.Delivery{Key: key, Token: uuid.NewString()}
	var ok bool
	if d.Subject, ok = job.SubjectOf(d.Key); !ok || len(d.Key) > job.MaxKey {
		return d, refuse("%q is no job's key: a key is kind/subject/rest, as logs and \"acklast job\" show it", d.Key)
	}
	d.Envelope.Kind, _ = job.KindOf(d.Key)
	d.Envelope.NotBefore = notBefore
	return d, nil
}

// cancelJob ends the job, deletes its schedule and writes the audit.
func (a *app) cancelJob(ctx context.Context, g *governor, d job.Delivery, by, why string) (cancelReport, error) {
	decision := ledger.Decision{At: a.now(), By: job.SafeText(by), Reason: job.SafeText(why)}
	kept, note := g.retention(ctx)
	rules := ledger.Rules{Retention: kept}
	e, err := g.ledger().Update(ctx, d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return rules.Cancel(e, d, decision)
	})
	var running *ledger.NotYetError
	cancelled, ok := e.Cancellation()
	switch {
	case err == nil, errors.Is(err, ledger.ErrFinal) && ok:
	case errors.Is(err, ledger.ErrFinal):
		return cancelReport{}, refuse("%s has ended: %s, %s", d.Key, e.Status, e.Outcome)
	case errors.As(err, &running):
		return cancelReport{}, refuse("a delivery holds %s until %s: try again then", d.Key, stamp(running.Until))
	case errors.Is(err, ledger.ErrUnresolved):
		return cancelReport{}, refuse("%s may have had its effect: \"acklast job\" shows what is known, and \"acklast decide\" decides it", d.Key)
	default:
		return cancelReport{}, g.explain(err)
	}
	if note != "" {
		say(a.stderr, "%s\n", plain(note))
	}
	r := cancelReport{Job: d.Key, Entry: e}
	if e.ScheduleName != "" {
		r.Schedule = "deleted"
		if err := g.schedules().Delete(ctx, e.ScheduleName); err != nil {
			r.Schedule = "left: " + reason(err)
		}
	}
	audit := redrive.NewStore(g.db, g.names.OperationsTable)
	if err := audit.RecordCancel(ctx, d.Key, cancelled, a.now().Add(topology.DefaultRedrive().Retention)); err != nil {
		return r, fmt.Errorf("%s is cancelled, but its line of the audit is missing; repeat the command: %w", d.Key, g.explain(err))
	}
	return r, nil
}

// retention is how long the stack keeps an entry after its job has ended, as the worker has it. If that is not known, it
// is the default, and note says so.
func (g *governor) retention(ctx context.Context) (kept time.Duration, note string) {
	out, err := g.lambda.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &g.names.WorkerFunction})
	if err == nil && out.Environment == nil {
		err = errors.New("the worker has no settings")
	}
	if err == nil {
		kept, err = time.ParseDuration(out.Environment.Variables[worker.EnvLedgerRetention])
	}
	if err != nil {
		kept = topology.Default().LedgerRetention
		note = fmt.Sprintf("Note: the stack's ledgerRetention is not known, so the entry is kept for the default of %d days after its end: %s",
			kept/(24*time.Hour), reason(err))
	}
	return kept, note
}
