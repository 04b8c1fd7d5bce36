package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/redrive"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

var rules = ledger.Rules{
	Retry:       retry.Policy{Base: time.Minute, Cap: time.Hour, MaxAttempts: 2, AttemptTime: time.Second},
	MaxRedrives: 3, Retention: time.Hour,
}

// write applies transitions to the entry of the expiry of r-1, as a worker does.
func write(t *testing.T, aws *local.AWS, changes ...func(ledger.Entry, job.Delivery) (ledger.Entry, error)) (job.Delivery, ledger.Entry) {
	t.Helper()
	store := dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{})
	envelope, err := job.Decode([]byte(expiry("r-1")))
	if err != nil {
		t.Fatal(err)
	}
	d := job.Delivery{Envelope: envelope, Key: "reservation.expire/r-1/hold-1", Subject: "r-1", Token: "token-1"}
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

// squeezed replaces every run of blanks by one.
func squeezed(s string) string {
	var lines []string
	for _, line := range strings.Split(s, "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestJobThatWaitsForItsRetry(t *testing.T) {
	c, aws := embedded(t)
	d, e := write(t, aws, fail(&job.Failure{Class: job.Transient, Err: errors.New("slow\x1b[31m down")}, time.Now()))
	got := squeezed(c.must("job", d.Key).stdout)
	contains(t, got, "JOB reservation.expire/r-1/hold-1\n", "kind reservation.expire\n", "subject r-1\n", "status pending\n",
		"attempts 1 failed\n", "due ", "deadline ", "next attempt "+stamp(e.RetryAt)+" (in ",
		"last class transient\n", "last error slow�[31m down\n", "owner token-1\n",
		"AT WHAT ATTEMPT CLASS CAUSE ERROR\n", "failed 1 transient - slow�[31m down\n",
		"waits on the recovery lane; its next attempt is not before "+stamp(e.RetryAt))

	r := decode[jobReport](t, c.must("job", d.Key, "--output", "json"))
	if len(r.Entries) != 1 || r.Asked != d.Key || len(r.Records) != 0 || len(r.Meaning) != 1 {
		t.Fatalf("report is %+v", r)
	}
	if g := r.Entries[0]; g.Key != e.Key || g.Attempts != 1 || !g.RetryAt.Equal(e.RetryAt) || len(g.History) != 1 || g.Version != 1 {
		t.Errorf("entry is %+v, want %+v", g, e)
	}
}

// explaining puts a redrive function in front of the command line that answers explain requests and records
// them. Every other request goes through.
func (c *cli) explaining(answer func(r redrive.Request) any) {
	to, err := url.Parse(c.env["AWS_ENDPOINT_URL"])
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/functions/"+c.stack+"-redrive/invocations") {
			proxy.ServeHTTP(w, r)
			return
		}
		if got := r.URL.Query().Get("Qualifier"); got != topology.AliasOperate {
			c.t.Errorf("invoked through %q", got)
		}
		var req redrive.Request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Action != "explain" {
			c.t.Errorf("request %+v, %v", req, err)
		}
		if err := json.NewEncoder(w).Encode(answer(req)); err != nil {
			c.t.Error(err)
		}
	}))
	c.t.Cleanup(server.Close)
	c.env["AWS_ENDPOINT_URL"] = server.URL
}

// held is an answer about the subject r-1: one kind has a record of it, and another could not be asked.
func held(r redrive.Request) any {
	if subject, _ := job.SubjectOf(r.Job); subject != "r-1" && r.Subject != "r-1" {
		return redrive.Response{}
	}
	return redrive.Response{Explanations: []redrive.Explanation{
		{Kind: "reservation.expire", Facts: []job.Fact{{Name: "state", Value: "held"}, {Name: "resource", Value: "room-7"}}},
		{Kind: "mail.send", Facts: []job.Fact{}, Error: "MAIL_URL is not set"},
	}}
}

func TestJobWithRecordsOfItsKind(t *testing.T) {
	c, aws := embedded(t)
	c.explaining(held)
	d, _ := write(t, aws,
		fail(&job.Failure{Class: job.Transient, Err: errors.New("timeout")}, time.Now().Add(-time.Hour)),
		fail(&job.Failure{Class: job.Transient, Err: errors.New("timeout again")}, time.Now()))
	for _, asked := range []string{"r-1", d.Key} {
		contains(t, squeezed(c.must("job", asked).stdout), "status isolated\n", "attempts 2 failed\n", "cause attempts\n",
			"isolated message message-1\n", "isolated - transient attempts -\n",
			"RECORDS reservation.expire\nstate held\nresource room-7\n", "RECORDS mail.send\nnot known MAIL_URL is not set\n",
			"isolated, cause attempts: it is on the DLQ", "recorded by message message-1")
	}

	reopen := func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) { return rules.Reopen(e, d, time.Now()) }
	write(t, aws, reopen)
	contains(t, squeezed(c.must("job", "r-1").stdout), "status pending\n", "2 failed, 0 since it was last reopened", "redrives 1\n", "was reopened and waits on a lane or runs now")

	done := func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.Finish(e, d, ledger.Done, "released", time.Now())
	}
	write(t, aws, done)
	contains(t, squeezed(c.must("job", "r-1").stdout), "status done\n", "outcome released\n", "ended ", "is done (released): nothing to do")
	r := decode[jobReport](t, c.must("job", "r-1", "--output", "json"))
	if len(r.Entries) != 1 {
		t.Errorf("entries are %+v", r.Entries)
	}
	if len(r.Records) != 2 || r.Records[0].Kind != "reservation.expire" || len(r.Records[0].Facts) != 2 {
		t.Errorf("records are %+v", r.Records)
	}
}

// Records without an entry are shown; an error alone is not a record.
func TestJobWithoutAnEntry(t *testing.T) {
	c, _ := embedded(t)
	c.explaining(held)
	for _, asked := range []string{"r-1", "reservation.expire/r-1/hold-1"} {
		contains(t, squeezed(c.must("job", asked).stdout), "state held\n", "has no ledger entry for", "acklast status")
	}
	if r := c.run("job", "r-2"); r.code != exitFailed {
		t.Errorf("exit code %d for a subject that nobody knows", r.code)
	}
}

// Without the redrive function, or without the permission to invoke it, the ledger's part is still shown.
func TestJobWithoutTheRedriveFunction(t *testing.T) {
	c, aws := embedded(t)
	d, _ := write(t, aws, fail(&job.Failure{Class: job.Transient, Err: errors.New("timeout")}, time.Now()))
	r := c.must("job", d.Key)
	contains(t, r.stdout, "status", "pending")
	contains(t, r.stderr, "own records are left out")

	c.explaining(func(redrive.Request) any { return redrive.Response{Refused: "explain is none of its actions"} })
	r = c.must("job", d.Key)
	contains(t, r.stdout, "status", "pending")
	contains(t, r.stderr, "own records are left out", "none of its actions")
}

// All jobs of a subject are shown, also when the subject looks like a key.
func TestJobsOfASubject(t *testing.T) {
	c, aws := embedded(t)
	var asked []redrive.Request
	c.explaining(func(r redrive.Request) any { asked = append(asked, r); return redrive.Response{} })
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
	r := decode[jobReport](t, c.must("job", "r/1", "--output", "json"))
	if len(r.Entries) != 3 || !slices.IsSortedFunc(r.Entries, func(a, b ledger.Entry) int { return strings.Compare(a.Key, b.Key) }) {
		t.Errorf("entries are %+v", r.Entries)
	}
	if len(r.Meaning) != 3 {
		t.Errorf("meaning is %q", r.Meaning)
	}
	if len(asked) == 0 || asked[len(asked)-1].Subject != "r/1" {
		t.Errorf("the function was asked %+v, want at last for the subject", asked)
	}
}

// remember writes the history of a job with an effect outside the database, as a worker and a person do.
func remember(t *testing.T, aws *local.AWS, channel string, story func(store *dynamo.Store, d job.Delivery)) string {
	t.Helper()
	store := dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{})
	d := job.Delivery{Key: "reminder.send/renewal%2F1042/" + channel + "/v3", Subject: "renewal/1042", Token: "token-" + channel}
	d.Envelope = job.Envelope{Kind: "reminder.send", Deadline: time.Now().Add(48 * time.Hour), Payload: []byte(`{}`)}
	d.ID, d.SentAt = "message-1", time.Now().Add(-time.Minute)
	lease := ledger.Lease{Until: time.Now().Add(time.Minute), ProviderKey: "acklast-" + channel, ExpiresAt: time.Now().Add(48 * time.Hour)}
	if _, err := store.Claim(t.Context(), rules, d, lease); err != nil {
		t.Fatal(err)
	}
	story(store, d)
	return d.Key
}

// A subject shows all of its jobs, and whether the effect happened or may have happened.
func TestJobOfAnEffect(t *testing.T) {
	c, aws := embedded(t)
	change := func(store *dynamo.Store, d job.Delivery, f func(ledger.Entry) (ledger.Entry, error)) {
		t.Helper()
		if _, err := store.Update(t.Context(), d.Key, d.Token, f); err != nil {
			t.Fatal(err)
		}
	}
	remember(t, aws, "email", func(store *dynamo.Store, d job.Delivery) {
		change(store, d, func(e ledger.Entry) (ledger.Entry, error) {
			return rules.CompleteClaim(e, d, ledger.Done, "sent", "req-11", time.Now())
		})
	})
	push := remember(t, aws, "push", func(*dynamo.Store, job.Delivery) {})
	sms := remember(t, aws, "sms", func(store *dynamo.Store, d job.Delivery) {
		if _, err := store.Learn(t.Context(), rules, d.Key, ledger.Evidence{At: time.Now(), Token: "token-old", Note: "woke up late"}); err != nil {
			t.Fatal(err)
		}
		change(store, d, func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Fail(e, d, &job.Failure{Class: job.Ambiguous, Unresolved: true, Err: errors.New("nobody can tell")}, time.Now(), 0)
		})
	})

	contains(t, squeezed(c.must("job", "renewal/1042").stdout), "status done\n", "outcome sent\n", "request ids req-11\n", "provider key acklast-email\n",
		"status running\n", "lease until ", "call its outcome is unknown\n", "may be making its call now",
		"last class ambiguous\n", "AT EVIDENCE OWNER NOTE\n", "- token-old woke up late\n",
		"Ask the provider, then decide with \"acklast decide\"", "expiry ", "deadline ")

	change(dynamo.New(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().LedgerTable, dynamo.Options{}), job.Delivery{Key: sms, Token: "ada"},
		func(e ledger.Entry) (ledger.Entry, error) {
			return rules.Decide(e, ledger.Decision{At: time.Now(), By: "ada", What: ledger.NotSent, Reason: "asked support"})
		})
	contains(t, squeezed(c.must("job", sms).stdout), "decided not-sent\n", "AT DECIDED BY REASON\n", "not-sent ada asked support\n", "may be redriven once")

	r := decode[jobReport](t, c.must("job", "renewal/1042", "--output", "json"))
	if len(r.Entries) != 3 || r.Entries[1].Key != push {
		t.Errorf("entries are %+v", r.Entries)
	}
}

func TestUnknownJob(t *testing.T) {
	c, _ := embedded(t)
	wanted := []string{"has no ledger entry for", "never reached the ledger", "acklast status",
		"after 20 receives", "aws --endpoint-url " + c.env["AWS_ENDPOINT_URL"] + " sqs receive-message", c.stack + "-dlq", "never have been sent", "--stack", "45 days"}
	for _, asked := range []string{"r-9", "reservation.expire/r-9/hold-1", "anything/else"} {
		r := c.run("job", asked)
		if r.code != exitFailed {
			t.Errorf("exit code %d", r.code)
		}
		contains(t, r.stdout, append(wanted, asked)...)
		j := c.run("job", asked, "--output", "json")
		if got := decode[jobReport](t, j); j.code != exitFailed || !strings.Contains(j.stdout, `"entries": []`) || len(got.Meaning) < 4 {
			t.Errorf("exit code %d, report %+v", j.code, got)
		}
	}
	c.refused(exitRefused, []string{"an argument is empty"}, "job", "")
	c.refused(exitRefused, []string{"1 to 1024 bytes, this one has 1025"}, "job", strings.Repeat("x", 1025))
}
