package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reminder"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/retry"
)

var rules = ledger.Rules{
	Retry:       retry.Policy{Base: time.Minute, Cap: time.Hour, MaxAttempts: 2, AttemptTime: time.Second},
	MaxRedrives: 3, Retention: time.Hour,
}

// write applies transitions to the entry of the expiry of r-1, as a worker does.
func write(t *testing.T, aws *local.AWS, changes ...func(ledger.Entry, job.Delivery) (ledger.Entry, error)) (job.Delivery, ledger.Entry) {
	t.Helper()
	store := dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{})
	read, err := acklast.Reading(kinds.All()...).Read(expiry("r-1"))
	if err != nil {
		t.Fatal(err)
	}
	d := job.Delivery{Envelope: read.Envelope, Key: read.Key, Subject: read.Subject, Token: "token-1"}
	d.ID, d.SentAt = "message-1", time.Now().Add(-time.Hour)
	d.Envelope.Deadline = time.Now().Add(time.Hour)
	var e ledger.Entry
	for _, change := range changes {
		e, err = store.Update(t.Context(), d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) { return change(e, d) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return d, e
}

func fail(err *job.Failure, at time.Time) func(ledger.Entry, job.Delivery) (ledger.Entry, error) {
	return func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) { return rules.Fail(e, d, err, at, 0) }
}

// squeezed makes one blank of every run of them.
func squeezed(s string) string {
	var lines []string
	for _, line := range strings.Split(s, "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestJobThatWaitsForItsRetry(t *testing.T) {
	c, aws := embedded(t)
	d, e := write(t, aws, fail(&job.Failure{Class: job.Throttled, Err: errors.New("slow\x1b[31m down")}, time.Now()))
	got := squeezed(c.must("job", d.Key).stdout)
	contains(t, got, "JOB reservation.expire/r-1/hold-1\n", "kind reservation.expire\n", "subject r-1\n", "status pending\n",
		"attempts 1 failed\n", "due ", "deadline ", "next attempt "+stamp(e.RetryAt)+" (in ",
		"last class throttled\n", "last error slow�[31m down\n", "owner token-1\n",
		"AT WHAT ATTEMPT CLASS CAUSE ERROR\n", "failed 1 throttled - slow�[31m down\n",
		"waits on the recovery lane; its next attempt is not before "+stamp(e.RetryAt))

	r := decode[jobReport](t, c.must("job", d.Key, "--output", "json"))
	if len(r.Entries) != 1 || r.Asked != d.Key || r.Reservation != nil || len(r.Meaning) != 1 {
		t.Fatalf("report is %+v", r)
	}
	if g := r.Entries[0]; g.Key != e.Key || g.Attempts != 1 || !g.RetryAt.Equal(e.RetryAt) || len(g.History) != 1 || g.Version != 1 {
		t.Errorf("entry is %+v, want %+v", g, e)
	}
}

func TestJobOfAReservation(t *testing.T) {
	c, aws := embedded(t)
	c.must("hold", "--reservation", "r-1", "--command", "hold-1", "--resource", "room-7", "--for", "1m", "--capacity", "2")

	contains(t, c.must("job", "r-1").stdout, "RESERVATION", "held", "room-7", "which is as it should be", "waits on a lane until then")
	contains(t, c.must("job", "reservation.expire/r-1/hold-1").stdout, "which is as it should be")

	d, _ := write(t, aws,
		fail(&job.Failure{Class: job.Transient, Err: errors.New("timeout")}, time.Now().Add(-time.Hour)),
		fail(&job.Failure{Class: job.Transient, Err: errors.New("timeout again")}, time.Now()))
	for _, asked := range []string{"r-1", d.Key} {
		got := squeezed(c.must("job", asked).stdout)
		contains(t, got, "status isolated\n", "attempts 2 failed\n", "cause attempts\n", "isolated message message-1\n",
			"isolated - transient attempts -\n", "RESERVATION STATE COMMAND", "r-1 held hold-1 room-7 1",
			"isolated, cause attempts: it is on the DLQ", "recorded by message message-1")
	}

	reopen := func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) { return rules.Reopen(e, d, time.Now()) }
	write(t, aws, reopen)
	contains(t, squeezed(c.must("job", "r-1").stdout), "status pending\n", "2 failed, 0 since it was last put back", "redrives 1\n", "was put back and waits on a lane or runs now")

	done := func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.Finish(e, d, ledger.Done, "released", time.Now())
	}
	write(t, aws, done)
	contains(t, squeezed(c.must("job", "r-1").stdout), "status done\n", "outcome released\n", "ended ", "is done (released): nothing to do")
	if r := decode[jobReport](t, c.must("job", "r-1", "--output", "json")); len(r.Entries) != 1 || r.Reservation == nil || r.Reservation.State != "held" {
		t.Errorf("report is %+v", r)
	}
}

// All jobs of a subject are shown, those of earlier holds too.
func TestJobsOfASubject(t *testing.T) {
	c, aws := embedded(t)
	store := dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{})
	for i := range 3 {
		d := job.Delivery{Key: fmt.Sprintf("reservation.expire/r%%2F1/hold-%d", i), Subject: "r/1"}
		d.Envelope.Kind = "reservation.expire"
		if _, err := store.Update(t.Context(), d.Key, "t", func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Finish(e, d, ledger.Done, "released", time.Now())
		}); err != nil {
			t.Fatal(err)
		}
	}
	c.must("hold", "--reservation", "r/1", "--command", "hold-9", "--resource", "room-7", "--for", "1m", "--capacity", "2")
	r := decode[jobReport](t, c.must("job", "r/1", "--output", "json"))
	if len(r.Entries) != 3 || !slices.IsSortedFunc(r.Entries, func(a, b ledger.Entry) int { return strings.Compare(a.Key, b.Key) }) {
		t.Errorf("entries are %+v", r.Entries)
	}
	if r.Reservation == nil || r.Reservation.CommandID != "hold-9" || len(r.Meaning) != 3 {
		t.Errorf("report is %+v", r)
	}
	if id, ok := reservationOf("reservation.expire/r%2F1/hold-9"); id != "r/1" || !ok {
		t.Errorf("reservationOf = %q, %v", id, ok)
	}
	contains(t, c.must("job", "reservation.expire/r%2F1/hold-9").stdout, "hold-9", "which is as it should be")
}

// remember writes the story of a reminder's job, as a worker and a person do.
func remember(t *testing.T, aws *local.AWS, channel reminder.Channel, story func(store *dynamo.Store, d job.Delivery)) string {
	t.Helper()
	store := dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{})
	p := reminder.Payload{
		ReminderID: "renewal/1042", SubscriptionID: "sub-7", Channel: channel, Template: "renewal", TemplateVersion: "v3",
		Recipient: "customer-77", Plan: "pro", RenewsAt: time.Now().Add(72 * time.Hour), ExpiresAt: time.Now().Add(48 * time.Hour),
	}
	body, err := p.Job(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := acklast.Reading(kinds.All()...).Read(body)
	if err != nil {
		t.Fatal(err)
	}
	d := job.Delivery{Envelope: read.Envelope, Key: read.Key, Subject: read.Subject, Token: "token-" + string(channel)}
	d.ID, d.SentAt = "message-1", time.Now().Add(-time.Minute)
	lease := ledger.Lease{Until: time.Now().Add(time.Minute), ProviderKey: "acklast-" + string(channel), ExpiresAt: p.ExpiresAt}
	if _, err := store.Claim(t.Context(), rules, d, lease); err != nil {
		t.Fatal(err)
	}
	story(store, d)
	return read.Key
}

// A reminder id shows all of its channels: was it sent, or do we only know that we tried?
func TestJobOfAReminder(t *testing.T) {
	c, aws := embedded(t)
	change := func(store *dynamo.Store, d job.Delivery, f func(ledger.Entry) (ledger.Entry, error)) {
		t.Helper()
		if _, err := store.Update(t.Context(), d.Key, d.Token, f); err != nil {
			t.Fatal(err)
		}
	}
	remember(t, aws, reminder.Email, func(store *dynamo.Store, d job.Delivery) {
		change(store, d, func(e ledger.Entry) (ledger.Entry, error) {
			return rules.CompleteClaim(e, d, ledger.Done, reminder.Sent, "req-11", time.Now())
		})
	})
	push := remember(t, aws, reminder.Push, func(*dynamo.Store, job.Delivery) {})
	sms := remember(t, aws, reminder.SMS, func(store *dynamo.Store, d job.Delivery) {
		if _, err := store.Learn(t.Context(), rules, d.Key, ledger.Evidence{At: time.Now(), Token: "token-old", Note: "woke up late"}); err != nil {
			t.Fatal(err)
		}
		change(store, d, func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Fail(e, d, &job.Failure{Class: job.Ambiguous, Unresolved: true, Err: errors.New("nobody can tell")}, time.Now(), 0)
		})
	})

	got := squeezed(c.must("job", "renewal/1042").stdout)
	contains(t, got, "channel email\n", "channel sms\n", "channel push\n", "template version v3\n",
		"status done\n", "outcome sent\n", "request ids req-11\n", "provider key acklast-email\n",
		"status running\n", "lease until ", "call its outcome is unknown\n", "may be at its call now",
		"last class ambiguous\n", "AT EVIDENCE OWNER NOTE\n", "- token-old woke up late\n",
		"Ask the provider, then decide with \"acklast decide\"; see docs/reminders.md", "expiry ", "deadline ")

	change(dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{}), job.Delivery{Key: sms, Token: "ada"},
		func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Decide(e, ledger.Decision{At: time.Now(), By: "ada", What: ledger.NotSent, Reason: "asked support"})
		})
	contains(t, squeezed(c.must("job", sms).stdout), "decided not-sent\n", "AT DECIDED BY REASON\n", "not-sent ada asked support\n", "may be put back once")

	r := decode[jobReport](t, c.must("job", "renewal/1042", "--output", "json"))
	if len(r.Entries) != 3 || len(r.Reminders) != 3 || r.Reminders[1].Key != push || r.Reminders[1].ReminderID != "renewal/1042" || r.Reminders[1].Channel != "push" {
		t.Errorf("report %+v", r)
	}
}

func TestUnknownJob(t *testing.T) {
	c, _ := embedded(t)
	wanted := []string{"has neither a ledger entry nor a reservation", "never reached the ledger", "acklast status",
		"after 20 receives", "aws --endpoint-url " + c.env["AWS_ENDPOINT_URL"] + " sqs receive-message", c.stack + "-dlq", "never have been sent", "--stack", "45 days"}
	for _, asked := range []string{"r-9", "reservation.expire/r-9/hold-1", "anything/else"} {
		r := c.run("job", asked)
		if r.code != exitFailed || r.stderr != "" {
			t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
		}
		contains(t, r.stdout, append(wanted, asked)...)
		j := c.run("job", asked, "--output", "json")
		if got := decode[jobReport](t, j); j.code != exitFailed || !strings.Contains(j.stdout, `"entries": []`) || len(got.Meaning) < 4 {
			t.Errorf("exit code %d, report %+v", j.code, got)
		}
	}
	c.refused(exitRefused, []string{"1 to 1024 bytes, this one has 0"}, "job", "")
	c.refused(exitRefused, []string{"1 to 1024 bytes, this one has 1025"}, "job", strings.Repeat("x", 1025))
}

// A hold whose expiry is overdue without an entry is what on-call has to know; a confirmed one is fine.
func TestJobWithoutEntry(t *testing.T) {
	c, _ := embedded(t) // without a worker
	c.must("hold", "--reservation", "r-1", "--command", "hold-1", "--resource", "room-7", "--for", "1ms", "--capacity", "2")
	time.Sleep(5 * time.Millisecond)
	contains(t, c.must("job", "r-1").stdout, "The reservation is held and its expiry was due", "but has no ledger entry", "acklast status")
	c.must("confirm", "--reservation", "r-1", "--command", "hold-1")
	contains(t, c.must("job", "r-1").stdout, "The reservation is confirmed", "nothing to give back")
}
