package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// jobReport is the answer of job.
type jobReport struct {
	// Asked is the key or the subject as given.
	Asked string `json:"asked"`
	// Entries are the ledger's entries: the entry of the key, or all entries of the subject; empty if there is
	// none.
	Entries []ledger.Entry `json:"entries"`
	// Records are the kinds' own records about the subject, from those kinds that explain themselves.
	Records []redrive.Explanation `json:"records"`
	// Meaning explains the report in sentences.
	Meaning []string `json:"meaning"`
}

func newJob(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "job <key or subject>",
		Short: "Show what is known about a job, or about all jobs of a subject",
		Long: `Show a job's entry in the ledger: status, attempts, history, due time and deadline, the last failure's
class and error, why it was isolated and under which message id. For an effect outside the database it shows
whether it happened or was only tried: lease, the provider's key and request ids, the evidence, and
people's decisions.

Ask by the job's key, as in logs, or by its subject, such as a reservation id, for all of its jobs. The
kind's own records, such as a reservation's state, come from the redrive function. Without the permission
to invoke it, that part is missing. If there is no entry, the answer explains what that means and where to
look next, and the exit code is 1 unless there are records.`,
		Example: `  acklast job reservation.expire/r-1042/hold-3
  acklast job r-1042
  acklast job renewal-1042
  acklast job r-1042 --output json | jq '.entries[].status'`,
		Args: someArgs(1, 1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error { return a.job(cmd.Context(), args[0]) }),
	}
}

func (a *app) job(ctx context.Context, asked string) error {
	if asked == "" || len(asked) > job.MaxKey {
		return refuse("a key or subject has 1 to %d bytes, this one has %d", job.MaxKey, len(asked))
	}
	g, err := a.govern(ctx)
	if err != nil {
		return err
	}
	return a.jobAt(ctx, g, asked)
}

// jobAt is job at a place that is known.
func (a *app) jobAt(ctx context.Context, g *governor, asked string) error {
	r, unknown, err := g.jobReport(ctx, asked)
	if err != nil {
		return err
	}
	if unknown != nil {
		say(a.stderr, "%s\n", leftOut(unknown))
	}
	if err := a.answer(r, func(w io.Writer) { printJob(w, r, a.now()) }); err != nil {
		return err
	}
	if len(r.Entries) == 0 && !known(r.Records) {
		return &toldError{exitFailed}
	}
	return nil
}

// jobReport reads what is known about a key or a subject. unknown says why the kinds' own records are missing.
func (g *governor) jobReport(ctx context.Context, asked string) (r jobReport, unknown, err error) {
	// Read both at the same time: the function may have to be started first.
	var records []redrive.Explanation
	var asking sync.WaitGroup
	asking.Go(func() { records, unknown = g.records(ctx, asked) })
	entries, err := g.lookUp(ctx, asked)
	asking.Wait()
	if err != nil {
		return r, nil, g.explain(err)
	}
	r = jobReport{Asked: asked, Entries: entries, Records: records, Meaning: []string{}}
	for _, e := range r.Entries {
		r.Meaning = append(r.Meaning, meaning(e, g.now()))
	}
	if len(r.Entries) == 0 {
		r.Meaning = g.absent(r)
	}
	return r, unknown, nil
}

func leftOut(err error) string {
	return fmt.Sprintf("The kinds' own records are left out, as the redrive function did not answer: %v", err)
}

// lookUp finds the entry of a key, or else the entries of a subject.
func (t *target) lookUp(ctx context.Context, asked string) ([]ledger.Entry, error) {
	store := t.ledger()
	if _, mayBeKey := job.SubjectOf(asked); mayBeKey {
		e, err := store.Get(ctx, asked)
		if err != nil || e.Version > 0 {
			return []ledger.Entry{e}, err
		}
	}
	found, err := store.BySubject(ctx, asked)
	return append([]ledger.Entry{}, found...), err
}

// recordsLimit is how long job waits for the redrive function. Without its answer the report has no records.
const recordsLimit = 10 * time.Second

// records asks the redrive function for the kinds' own records about a key or a subject. It returns at least an
// empty list.
func (g *governor) records(ctx context.Context, asked string) ([]redrive.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, recordsLimit)
	defer cancel()
	records := []redrive.Explanation{}
	if subject, ok := job.SubjectOf(asked); ok && subject != "" {
		resp, err := g.ask(ctx, redrive.Request{Action: "explain", Job: asked})
		if err != nil || known(resp.Explanations) {
			return append(records, resp.Explanations...), err
		}
	}
	resp, err := g.ask(ctx, redrive.Request{Action: "explain", Subject: asked}) // a subject may look like a key
	return append(records, resp.Explanations...), err
}

// known says whether any kind has a record.
func known(records []redrive.Explanation) bool {
	return slices.ContainsFunc(records, func(x redrive.Explanation) bool { return len(x.Facts) > 0 })
}

// meaning explains an entry's state in a sentence, and what to do, if anything.
func meaning(e ledger.Entry, now time.Time) string {
	switch {
	case e.Status == ledger.Done:
		return fmt.Sprintf("%s is done (%s): nothing to do, a copy that is delivered later has no effect.", e.Key, e.Outcome)
	case e.Status == ledger.Expired:
		return fmt.Sprintf("%s expired: its time passed before it ran, and it will not run.", e.Key)
	case e.Status == ledger.Terminal:
		return fmt.Sprintf("%s ended for good (%s) and will not run.", e.Key, e.Outcome)
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous && e.Decided == ledger.NotSent:
		return fmt.Sprintf("%s was decided to be not sent: it may be redriven once, and is then sent without a look-up.", e.Key)
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous:
		return fmt.Sprintf("%s is ambiguous: a call was made, or begun, under provider key %s, and it is unknown whether it was accepted. Ask the provider, then decide with \"acklast decide\".",
			e.Key, e.ProviderKey)
	case e.Status == ledger.Isolated:
		return fmt.Sprintf("%s is isolated, cause %s: it is on the DLQ or on its way there, recorded by message %s, and runs again only after it is redriven or put back.",
			e.Key, e.Cause, e.IsolatedMessageID)
	case e.Status == ledger.Running && e.LeaseUntil.IsZero():
		return fmt.Sprintf("%s is claimed without a lease time, so the claim never ends: this program did not write that.", e.Key)
	case e.Status == ledger.Running && e.Free(now):
		return fmt.Sprintf("%s was claimed and the lease ended %s: its delivery died or is stuck. The next delivery takes over and looks the call up.", e.Key, when(e.LeaseUntil, now))
	case e.Status == ledger.Running:
		return fmt.Sprintf("%s is claimed and may be making its call now; no other delivery can claim it before %s.", e.Key, when(e.LeaseUntil, now))
	case e.RetryAt.After(now) && e.Unresolved:
		return fmt.Sprintf("%s failed, and the provider may have accepted the call; its next attempt, not before %s, looks that up first.", e.Key, when(e.RetryAt, now))
	case e.RetryAt.After(now):
		return fmt.Sprintf("%s failed and waits on the recovery lane; its next attempt is not before %s.", e.Key, when(e.RetryAt, now))
	case e.Scheduled(now):
		return fmt.Sprintf("%s is due %s and waits in EventBridge Scheduler, which sends it to the recovery lane shortly before; its schedule is %s. If Scheduler did not take it, it hops on the recovery lane.",
			e.Key, when(e.ScheduledUntil, now), e.ScheduleName)
	case e.Redrives > 0 && e.RetryAt.IsZero():
		return fmt.Sprintf("%s was reopened and waits on a lane or runs now.", e.Key)
	}
	return fmt.Sprintf("%s may run since %s: it waits on the recovery lane or runs now. If that is long ago, \"acklast status\" shows whether the lane moves.",
		e.Key, when(e.RetryAt, now))
}

// absent explains why there may be no entry.
func (t *target) absent(r jobReport) []string {
	settings := topology.Default()
	awsSQS := "aws sqs"
	if t.endpoint != "" { // version 1 of the AWS CLI ignores AWS_ENDPOINT_URL for SQS
		awsSQS = "aws --endpoint-url " + shellWords([]string{t.endpoint}) + " sqs"
	}
	return []string{
		fmt.Sprintf("Stack %s at %s has no ledger entry for %q.", t.names.Stack, t.place, r.Asked),
		"A job without an entry never reached the ledger: no attempt was recorded, whatever happened to its message.",
		"It may be waiting on a lane, not due yet or behind others: \"acklast status\" counts what is scheduled and ready.",
		fmt.Sprintf("SQS may have moved it to the DLQ after %d receives, or an unreadable body was isolated there, which has no key: \"%[2]s receive-message --queue-url $(%[2]s get-queue-url --queue-name %[3]s --query QueueUrl --output text) --max-number-of-messages 10 --visibility-timeout 0 --message-attribute-names All\" shows some of it.",
			settings.MaxReceiveCount, awsSQS, t.names.DLQ),
		fmt.Sprintf("It may never have been sent, or to another stack (--stack), or have ended more than %d days ago, when its entry was deleted.",
			settings.LedgerRetention/(24*time.Hour)),
	}
}

func printJob(w io.Writer, r jobReport, now time.Time) {
	for _, e := range r.Entries {
		printEntry(w, e, now)
		say(w, "\n")
	}
	for _, x := range r.Records {
		row(w, "RECORDS", x.Kind)
		if x.Error != "" {
			row(w, "not known", x.Error)
		}
		for _, f := range x.Facts {
			row(w, f.Name, f.Value)
		}
		say(w, "\n")
	}
	for _, s := range r.Meaning {
		say(w, "%s\n", plain(s))
	}
}

func printEntry(w io.Writer, e ledger.Entry, now time.Time) {
	row(w, "JOB", e.Key)
	fact := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "-" {
			row(w, name, s)
		}
	}
	fact("kind", e.Kind)
	fact("subject", e.Subject)
	fact("status", e.Status)
	fact("outcome", e.Outcome)
	attempts := fmt.Sprintf("%d failed", e.Attempts)
	if e.BudgetFrom > 0 {
		attempts += fmt.Sprintf(", %d since it was last reopened", e.Attempts-e.BudgetFrom)
	}
	fact("attempts", attempts)
	fact("first sent", when(e.FirstSent, now))
	fact("due", when(e.Due, now))
	fact("deadline", when(e.Deadline, now))
	fact("expiry", when(e.ExpiresAt, now))
	fact("next attempt", when(e.RetryAt, now))
	if e.Scheduled(now) {
		fact("scheduled until", when(e.ScheduledUntil, now))
		fact("schedule", e.ScheduleName)
	}
	fact("lease until", when(e.LeaseUntil, now))
	fact("ended", when(e.FinalAt, now))
	fact("last class", e.LastClass)
	fact("last error", e.LastError)
	fact("cause", e.Cause)
	if e.Status == ledger.Isolated {
		fact("isolated", when(e.IsolatedAt, now))
	}
	fact("isolated message", e.IsolatedMessageID)
	if e.Redrives > 0 {
		fact("redrives", e.Redrives)
	}
	fact("redrive run", e.Run)
	fact("provider key", e.ProviderKey)
	if e.Unresolved {
		fact("call", "its outcome is unknown")
	}
	fact("request ids", strings.Join(requestIDs(e), ", "))
	fact("decided", e.Decided)
	fact("owner", e.Owner)
	fact("updated", when(e.UpdatedAt, now))
	printHistory(w, e)
	if len(e.Evidence) > 0 {
		say(w, "\n")
		row(w, "AT", "EVIDENCE", "OWNER", "NOTE")
		for _, ev := range e.Evidence {
			row(w, stamp(ev.At), dash(ev.RequestID), ev.Token, dash(ev.Note))
		}
	}
	if len(e.Decisions) > 0 {
		say(w, "\n")
		row(w, "AT", "DECIDED", "BY", "REASON")
		for _, d := range e.Decisions {
			row(w, stamp(d.At), d.What, d.By, d.Reason)
		}
	}
}

// requestIDs are the provider's ids of the accepted requests, as far as they are known.
func requestIDs(e ledger.Entry) []string {
	var ids []string
	for _, ev := range e.Evidence {
		if ev.RequestID != "" && !slices.Contains(ids, ev.RequestID) {
			ids = append(ids, ev.RequestID)
		}
	}
	return ids
}

func printHistory(w io.Writer, e ledger.Entry) {
	if len(e.History) == 0 {
		return
	}
	say(w, "\n")
	row(w, "AT", "WHAT", "ATTEMPT", "CLASS", "CAUSE", "ERROR")
	for _, ev := range e.History {
		attempt := "-"
		if ev.Attempt > 0 {
			attempt = fmt.Sprint(ev.Attempt)
		}
		row(w, stamp(ev.At), ev.What, attempt, dash(string(ev.Class)), dash(string(ev.Cause)), dash(ev.Error))
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
