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
	"acklast/internal/ledger"
	"acklast/internal/reservation"
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
	// Meaning says in sentences what follows from that.
	Meaning []string `json:"meaning"`
}

func newJob(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "job <key or reservation id>",
		Short: "Say what is known of a job, or of all jobs of a reservation",
		Long: `Say what the ledger knows of a job: status, attempts, history, due time and deadline, the last failure's
class and error, why it was isolated and under which message id, and the reservation's own state.

Ask by the job's key, as in logs, or by a reservation id for all of its jobs. If there is no entry, it says
what that means and where to look next, and the exit code is 1 unless there is a reservation.`,
		Example: `  acklast job reservation.expire/r-1042/hold-3
  acklast job r-1042
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

// lookUp finds the entry of a key, or else the entries of a subject, and the reservation. The index by
// subject may lag behind, so the entry of the reservation's present hold is read on its own.
func (t *target) lookUp(ctx context.Context, asked string) (jobReport, error) {
	r := jobReport{Asked: asked, Entries: []ledger.Entry{}}
	store := t.ledger()
	e, err := store.Get(ctx, asked)
	if err != nil {
		return r, err
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
	if byKey || id != asked {
		return r, nil
	}
	key, err := found.Key()
	if err != nil {
		return r, nil //nolint:nilerr // not written by this program; the entries stand on their own
	}
	present, err := store.Get(ctx, key)
	if err != nil {
		return r, err
	}
	if i := slices.IndexFunc(r.Entries, func(e ledger.Entry) bool { return e.Key == key }); i >= 0 {
		r.Entries[i] = present
	} else if present.Version > 0 {
		r.Entries = append(r.Entries, present)
	}
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

// meaning says in a sentence where an entry stands and what, if anything, is to be done.
func meaning(e ledger.Entry, now time.Time) string {
	switch {
	case e.Status == ledger.Done:
		return fmt.Sprintf("%s is done (%s): nothing to do, a copy that is delivered later has no effect.", e.Key, e.Outcome)
	case e.Status == ledger.Expired:
		return fmt.Sprintf("%s expired: its time passed before it ran, and it will not run.", e.Key)
	case e.Status == ledger.Terminal:
		return fmt.Sprintf("%s ended for good (%s) and will not run.", e.Key, e.Outcome)
	case e.Status == ledger.Isolated:
		return fmt.Sprintf("%s is isolated, cause %s: it is on the DLQ or on its way there, recorded by message %s, and runs again only when it is put back.",
			e.Key, e.Cause, e.IsolatedMessageID)
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
	fact("next attempt", when(e.RetryAt, now))
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
	fact("owner", e.Owner)
	fact("updated", when(e.UpdatedAt, now))
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
