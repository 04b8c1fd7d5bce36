package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/topology"
)

// jobReport is the answer of job.
type jobReport struct {
	// Asked is the key or the id as it was given.
	Asked string `json:"asked"`
	// Entries are the ledger's entries: the one of the key, or all of the subject; empty if there is none.
	Entries []ledger.Entry `json:"entries"`
	// Reservation is the reservation that the jobs are about; absent if there is none.
	Reservation *reservation.Reservation `json:"reservation,omitempty"`
	// Reminders are what the keys of reminders among the entries name, in their order.
	Reminders []reminderPart `json:"reminders,omitempty"`
	// Meaning says in sentences what follows from that.
	Meaning []string `json:"meaning"`
}

// reminderPart is what the key of a reminder's job says.
type reminderPart struct {
	Key             string `json:"key"`
	ReminderID      string `json:"reminderId"`
	Channel         string `json:"channel"`
	TemplateVersion string `json:"templateVersion"`
}

func newJob(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "job <key, reservation id or reminder id>",
		Short: "Say what is known of a job, or of all jobs of a reservation or reminder",
		Long: `Say what the ledger knows of a job: status, attempts, history, due time and deadline, the last failure's
class and error, why it was isolated and under which message id, and the reservation's own state. Of a
reminder it says for each channel and template version whether it was sent or only tried: lease, the
provider's key and request ids, the evidence, and what people decided.

Ask by the job's key, as in logs, or by a reservation or reminder id for all of its jobs. If there is no
entry, it says what that means and where to look next, and the exit code is 1 unless there is a reservation.`,
		Example: `  acklast job reservation.expire/r-1042/hold-3
  acklast job r-1042
  acklast job renewal-1042
  acklast job r-1042 --output json | jq '.entries[].status'`,
		Args: cobra.ExactArgs(1),
		RunE: a.starting(func(cmd *cobra.Command, args []string) error { return a.job(cmd.Context(), args[0]) }),
	}
}

func (a *app) job(ctx context.Context, asked string) error {
	if asked == "" || len(asked) > job.MaxKey {
		return refuse("a key or id has 1 to %d bytes, this one has %d", job.MaxKey, len(asked))
	}
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	r, err := t.lookUp(ctx, asked)
	if err != nil {
		return t.explain(err)
	}
	now := a.now()
	for _, e := range r.Entries {
		if part, ok := reminderOf(e); ok {
			r.Reminders = append(r.Reminders, part)
		}
		r.Meaning = append(r.Meaning, meaning(e, now))
	}
	if len(r.Entries) == 0 {
		r.Meaning = t.absent(r, now)
	}
	if err := a.answer(r, func(w io.Writer) { printJob(w, r, now) }); err != nil {
		return err
	}
	if len(r.Entries) == 0 && r.Reservation == nil {
		return &toldError{exitFailed}
	}
	return nil
}

// lookUp finds the entry of a key, or else the entries of a subject, and the reservation.
func (t *target) lookUp(ctx context.Context, asked string) (jobReport, error) {
	r := jobReport{Asked: asked, Entries: []ledger.Entry{}}
	store := t.ledger()
	var e ledger.Entry
	if _, mayBeKey := job.SubjectOf(asked); mayBeKey {
		var err error
		if e, err = store.Get(ctx, asked); err != nil {
			return r, err
		}
	}
	byKey := e.Version > 0
	if byKey {
		r.Entries = append(r.Entries, e)
	} else {
		found, err := store.BySubject(ctx, asked)
		if err != nil {
			return r, err
		}
		r.Entries = append(r.Entries, found...)
	}

	id := asked
	if byKey {
		id = e.Subject
	} else if fromKey, ok := reservationOf(asked); ok && len(r.Entries) == 0 {
		id = fromKey
	}
	if id == "" || byKey && e.Kind != reservation.KindName {
		return r, nil
	}
	found, err := t.reservations().Get(ctx, id)
	switch {
	case errors.Is(err, reservation.ErrNotFound):
		return r, nil
	case err != nil:
		return r, err
	}
	r.Reservation = &found
	return r, nil
}

// reservationOf returns the reservation id in the key of an expiry job.
func reservationOf(key string) (string, bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 || parts[0] != reservation.KindName {
		return "", false
	}
	id, err := url.PathUnescape(parts[1])
	return id, err == nil && id != ""
}

// reminderOf returns what the key of a reminder's entry says.
func reminderOf(e ledger.Entry) (reminderPart, bool) {
	parts := strings.Split(e.Key, "/")
	if len(parts) != 4 || parts[0] != reminder.KindName {
		return reminderPart{}, false
	}
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return reminderPart{}, false
		}
		parts[i] = plain
	}
	return reminderPart{Key: e.Key, ReminderID: parts[1], Channel: parts[2], TemplateVersion: parts[3]}, true
}

// meaning says in a sentence where an entry stands and what, if anything, is to be done.
func meaning(e ledger.Entry, now time.Time) string {
	switch {
	case e.Status == ledger.Done:
		return fmt.Sprintf("%s is done (%s): nothing to do, a copy that is delivered later has no effect.", e.Key, e.Outcome)
	case e.Status == ledger.Expired:
		return fmt.Sprintf("%s expired: its time passed before it ran, and it will not run.", e.Key)
	case e.Status == ledger.Terminal:
		return fmt.Sprintf("%s ended for good (%s) and will not run.", e.Key, e.Outcome)
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous && e.Decided == ledger.NotSent:
		return fmt.Sprintf("%s was decided to be not sent: it may be put back once, and is then sent without a look-up.", e.Key)
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous:
		return fmt.Sprintf("%s is ambiguous: a call was made, or begun, under provider key %s, and nobody can tell whether it was accepted. Ask the provider, then decide with \"acklast decide\"; see docs/reminders.md.",
			e.Key, e.ProviderKey)
	case e.Status == ledger.Isolated:
		return fmt.Sprintf("%s is isolated, cause %s: it is on the DLQ or on its way there, recorded by message %s, and runs again only when it is put back.",
			e.Key, e.Cause, e.IsolatedMessageID)
	case e.Status == ledger.Running && e.LeaseUntil.IsZero():
		return fmt.Sprintf("%s is claimed without a lease time, which is never free: that was not written by this program.", e.Key)
	case e.Status == ledger.Running && e.Free(now):
		return fmt.Sprintf("%s was claimed and the lease ended %s: whoever held it died or is stuck. The next delivery takes over and looks up what became of the call.", e.Key, when(e.LeaseUntil, now))
	case e.Status == ledger.Running:
		return fmt.Sprintf("%s is claimed and may be at its call now; no other delivery touches it before %s.", e.Key, when(e.LeaseUntil, now))
	case e.RetryAt.After(now) && e.Unresolved:
		return fmt.Sprintf("%s failed in a way that leaves open whether the provider accepted; its next attempt, not before %s, looks that up first.", e.Key, when(e.RetryAt, now))
	case e.RetryAt.After(now):
		return fmt.Sprintf("%s failed and waits on the recovery lane; its next attempt is not before %s.", e.Key, when(e.RetryAt, now))
	case e.Redrives > 0 && e.RetryAt.IsZero():
		return fmt.Sprintf("%s was put back and waits on a lane or runs now.", e.Key)
	}
	return fmt.Sprintf("%s may run since %s: it waits on the recovery lane or runs now. If that is long ago, \"acklast status\" says whether the lane moves.",
		e.Key, when(e.RetryAt, now))
}

// absent says what it means that there is no entry.
func (t *target) absent(r jobReport, now time.Time) []string {
	settings := topology.Default()
	awsSQS := "aws sqs"
	if t.endpoint != "" { // version 1 of the AWS CLI ignores AWS_ENDPOINT_URL for SQS
		awsSQS = "aws --endpoint-url " + shellWords([]string{t.endpoint}) + " sqs"
	}
	var said []string
	switch found := r.Reservation; {
	case found == nil:
		said = append(said, fmt.Sprintf("Stack %s at %s has neither a ledger entry nor a reservation for %q.", t.names.Stack, t.place, r.Asked))
	case found.State == reservation.Confirmed:
		return []string{fmt.Sprintf("The reservation is confirmed. Its expiry has no ledger entry yet; due %s, it will find nothing to give back.", when(found.ExpiresAt, now))}
	case found.ExpiresAt.After(now):
		return []string{fmt.Sprintf("The reservation is %s. Its expiry has no ledger entry yet, which is as it should be: it is due %s and waits on a lane until then.", found.State, when(found.ExpiresAt, now))}
	default:
		said = append(said, fmt.Sprintf("The reservation is %s and its expiry was due %s, but has no ledger entry.", found.State, when(found.ExpiresAt, now)))
	}
	return append(said,
		"A job without an entry never reached the ledger: no attempt was recorded, whatever happened to its message.",
		"It may be waiting on a lane, not due yet or behind others: \"acklast status\" counts what is scheduled and ready.",
		fmt.Sprintf("SQS may have moved it to the DLQ after %d receives, or a body nobody could read was isolated there, which has no key: \"%[2]s receive-message --queue-url $(%[2]s get-queue-url --queue-name %[3]s --query QueueUrl --output text) --max-number-of-messages 10 --visibility-timeout 0 --message-attribute-names All\" shows some of it.",
			settings.MaxReceiveCount, awsSQS, t.names.DLQ),
		fmt.Sprintf("It may never have been sent, or to another stack (--stack), or have ended more than %d days ago, when its entry was deleted.",
			settings.LedgerRetention/(24*time.Hour)),
	)
}

func printJob(w io.Writer, r jobReport, now time.Time) {
	for _, e := range r.Entries {
		printEntry(w, e, now)
		say(w, "\n")
	}
	if f := r.Reservation; f != nil {
		row(w, "RESERVATION", "STATE", "COMMAND", "RESOURCE", "UNITS", "EXPIRES", "UPDATED")
		row(w, f.ReservationID, f.State, f.CommandID, f.ResourceID, f.Units, when(f.ExpiresAt, now), when(f.UpdatedAt, now))
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
	if part, ok := reminderOf(e); ok {
		fact("channel", part.Channel)
		fact("template version", part.TemplateVersion)
	}
	fact("status", e.Status)
	fact("outcome", e.Outcome)
	attempts := fmt.Sprintf("%d failed", e.Attempts)
	if e.BudgetFrom > 0 {
		attempts += fmt.Sprintf(", %d since it was last put back", e.Attempts-e.BudgetFrom)
	}
	fact("attempts", attempts)
	fact("first sent", when(e.FirstSent, now))
	fact("due", when(e.Due, now))
	fact("deadline", when(e.Deadline, now))
	fact("expiry", when(e.ExpiresAt, now))
	fact("next attempt", when(e.RetryAt, now))
	fact("lease until", when(e.LeaseUntil, now))
	fact("ended", when(e.FinalAt, now))
	fact("last class", e.LastClass)
	fact("last error", e.LastError)
	fact("cause", e.Cause)
	fact("isolated", when(e.IsolatedAt, now))
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

// requestIDs are the provider's ids of what it accepted, as far as anybody knows.
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
