package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/local"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// goingOn has a run hold the DLQ, as a run does while an invocation works on it.
func (c *cli) goingOn(aws *local.AWS, run string) {
	c.t.Helper()
	store := redrive.NewStore(awsclient.DynamoDB(aws.AWSConfig()), topology.NamesOf(c.stack).OperationsTable)
	for key, doc := range map[[2]string]any{
		{"run#" + run, "run"}: redrive.Run{ID: run, Plan: strings.Replace(run, "r-", "p-", 1), State: redrive.Active, Rounds: 1, StartedAt: time.Now(), UpdatedAt: time.Now()},
		{"lock", "lock"}:      map[string]any{"run": run, "owner": "its invocation", "fence": 1, "until": time.Now().Add(time.Hour)},
	} {
		raw, err := json.Marshal(map[string]any{"format": 1, "doc": doc})
		if err == nil {
			_, err = store.Put(c.t.Context(), redrive.Record{PK: key[0], SK: key[1], Doc: raw, TTL: time.Now().Add(time.Hour)})
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// A list names every message, also more than a plan may have. One that is only a part, because others hide some, says so, and its
// exit code does.
func TestAPartOfAList(t *testing.T) {
	c, aws := governed(t, func(config *redrive.Config) { config.Numbers.ScanMessages = 10 })
	queue := aws.QueueURLs().DLQ
	for i := range 25 {
		if _, err := sqsClient(aws).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: new(expiry(fmt.Sprint("r-", i)))}); err != nil {
			t.Fatal(err)
		}
	}
	for _, output := range []string{"table", "json"} {
		if n := strings.Count(c.must("dlq", "--list", "--output", output).stdout, "foreign"); n != 25 {
			t.Errorf("%s names %d messages, want 25", output, n)
		}
	}
	if _, err := sqsClient(aws).ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 5, VisibilityTimeout: 600}); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{"table", "json"} {
		got := c.run("dlq", "--list", "--output", output)
		if got.code != exitFailed {
			t.Errorf("%s: exit code %d, want %d", output, got.code, exitFailed)
		}
		contains(t, got.stderr, "only a part: saw 20 of about 25")
		if n := strings.Count(got.stdout, "foreign"); n != 20 {
			t.Errorf("%s names %d messages, want the 20 that were seen:\n%s", output, n, got.stdout)
		}
	}
}

// chooseGroup lets a person at a terminal choose what a plan without a selection takes.
func (c *cli) chooseGroup(typed string) (f *redrive.Filter, said string, err error) {
	c.t.Helper()
	var stderr strings.Builder
	a := &app{stdin: strings.NewReader(typed), stdout: io.Discard, stderr: &stderr, now: time.Now, getenv: func(name string) string { return c.env[name] },
		stack: c.stack, endpoint: c.env["AWS_ENDPOINT_URL"], person: func() bool { return true }}
	g, err := a.govern(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	f, err = a.chooseGroup(c.t.Context(), g.target)
	return f, stderr.String(), err
}

// The groups from which a person chooses come from the ledger, so the plan of the choice is the only scan of the DLQ. The DLQ's
// other messages are counted.
func TestTheGroupsForAPlanReceiveNothing(t *testing.T) {
	c, aws := governed(t)
	if _, _, err := c.chooseGroup("1\n"); err == nil || !strings.Contains(err.Error(), "nothing is isolated") {
		t.Errorf("an empty stack: %v", err)
	}
	failed := &job.Failure{Class: job.Rejected, Err: errors.New("order 17 is missing")}
	_, e := write(t, aws, fail(failed, time.Now()))
	queue := aws.QueueURLs().DLQ
	for _, body := range []string{expiry("r-1"), "{"} {
		if _, err := sqsClient(aws).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	f, said, err := c.chooseGroup("1\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (&redrive.Filter{Kinds: []string{"reservation.expire"}, Classes: []job.Class{job.Rejected}, Fingerprints: []string{e.Fingerprint}}); !reflect.DeepEqual(f, want) {
		t.Errorf("chosen is %+v, want %+v", f, want)
	}
	contains(t, said, "1 × rejected", "reservation.expire", e.Fingerprint, "About 1 more message is on the DLQ", "acklast dlq")
	for _, m := range received(t, aws, job.DLQ) {
		if m.ReceiveCount != 1 {
			t.Errorf("%s was received %d times before", m.ID, m.ReceiveCount-1)
		}
	}
}

// While a run goes on, whatever looks says which run holds the DLQ and what to do, and blames nobody else.
func TestALookDuringARunNamesTheRun(t *testing.T) {
	c, aws := governed(t)
	c.goingOn(aws, someRun)
	wanted := []string{someRun, "acklast redrive status " + someRun + " --watch", "acklast redrive stop " + someRun}
	got := c.must("dlq")
	contains(t, got.stdout, wanted...)
	if strings.Contains(got.stdout, "0 messages seen") {
		t.Errorf("what was not received is counted:\n%s", got.stdout)
	}
	if resp := decode[redrive.Response](t, c.must("dlq", "--output", "json")); resp.Run == nil || resp.Run.ID != someRun {
		t.Errorf("answer %+v, want run %s", resp, someRun)
	}
	for _, args := range [][]string{
		{"dlq", "--list"}, {"dlq", "--list", "--output", "json"},
		{"dlq", "--show", someID}, {"dlq", "--show", someJob, "--body"}, {"dlq", "--show", someID, "--output", "json"},
		{"redrive", "mend", someID}, {"redrive", "mend", someJob, "--output", "json"},
	} {
		said := c.refused(exitRefused, wanted, args...).stderr
		if strings.Contains(said, "another program") {
			t.Errorf("acklast %s blames another program:\n%s", strings.Join(args, " "), said)
		}
	}
	for _, args := range [][]string{
		{"redrive", "plan", "--all", "--reason", "why"}, {"redrive", "run", "--only", someID, "--reason", "why", "--yes"},
		{"discard", someID, "--reason", "why"}, {"decide", "--class", "ambiguous", "--count", "1", "--sent", "--reason", "why"},
	} {
		c.refused(exitRefused, []string{someRun + " is going on"}, args...)
	}
	// So does a plan without a selection on a terminal, before it asks.
	_, _, failed := c.chooseGroup("1\n")
	contains(t, fmt.Sprint(failed), wanted...)
	var refused *refusal
	if !errors.As(failed, &refused) {
		t.Errorf("%v, want a refusal", failed)
	}
}
