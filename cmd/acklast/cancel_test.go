package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/worker"
)

// scheduled lets the expiry of r-1 wait in Scheduler for a year. It returns the job, its time and the client of the
// stack's schedules.
func scheduled(t *testing.T, aws *local.AWS) (job.Delivery, time.Time, *schedule.Client) {
	t.Helper()
	due := time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second).UTC()
	group := aws.Names().ScheduleGroup
	c := schedule.New(awsclient.Scheduler(aws.AWSConfig()), schedule.Target{
		Group: group, RoleARN: "arn:aws:iam::000000000000:role/r", QueueURL: aws.QueueURLs().Recovery, DLQARN: "arn:aws:sqs:us-east-1:000000000000:d",
	})
	d, _ := write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		d.Envelope.NotBefore, d.Envelope.Deadline = due, time.Time{}
		return rules.Schedule(e, d, "name-"+aws.Names().Stack, time.Now())
	})
	if err := c.Create(t.Context(), "name-"+aws.Names().Stack, due, time.Now(), schedule.Message{Body: "{}"}); err != nil {
		t.Fatal(err)
	}
	return d, due, c
}

func TestJobThatWaitsInTheScheduler(t *testing.T) {
	c, aws := embedded(t)
	d, due, _ := scheduled(t, aws)
	contains(t, squeezed(c.must("job", d.Key).stdout), "scheduled until "+stamp(due)+" (in ", "schedule name-"+aws.Names().Stack+"\n",
		"waits in EventBridge Scheduler")
	r := decode[overview.Snapshot](t, c.must("status", "--output", "json"))
	if r.InScheduler != 1 || r.MoreInScheduler {
		t.Errorf("status counts %d jobs in the scheduler, more %v, want 1", r.InScheduler, r.MoreInScheduler)
	}
	contains(t, squeezed(c.must("status").stdout), "In EventBridge Scheduler: 1 jobs")
}

func TestCancelEndsAJobAndItsSchedule(t *testing.T) {
	c, aws := embedded(t)
	d, _, schedules := scheduled(t, aws)
	contains(t, c.must("cancel", d.Key, "--by", "ann", "--reason", "the customer left").stdout, "is cancelled", "Its schedule is deleted")
	if _, found, err := schedules.At(t.Context(), "name-"+aws.Names().Stack); found || err != nil {
		t.Errorf("the schedule is still there: %v, %v", found, err)
	}
	r := decode[cancelReport](t, c.must("cancel", d.Key, "--by", "bob", "--reason", "again", "--output", "json"))
	if r.Entry.Status != ledger.Terminal || r.Entry.Outcome != ledger.Cancelled {
		t.Errorf("the job is %s, %s", r.Entry.Status, r.Entry.Outcome)
	}
	if n := len(r.Entry.Decisions); n != 1 {
		t.Fatalf("%d decisions, want the first one only", n)
	}
	if got := r.Entry.Decisions[0]; got.By != "ann" || got.Reason != "the customer left" || got.What != ledger.Cancel {
		t.Errorf("the decision is %+v", got)
	}
	contains(t, squeezed(c.must("job", d.Key).stdout), "cancel ann the customer left")
}

func TestCancelBeforeTheFirstDelivery(t *testing.T) {
	c, _ := embedded(t)
	due := time.Now().Add(300 * 24 * time.Hour).Truncate(time.Second)
	r := decode[cancelReport](t, c.must("cancel", "reservation.expire/r-9/hold-1", "--not-before", due.Format(time.RFC3339),
		"--reason", "left", "--output", "json"))
	if r.Entry.TTL.Before(due) {
		t.Errorf("the entry goes at %v, before the job is due at %v", r.Entry.TTL, due)
	}
	if r.Schedule != "" {
		t.Errorf("the schedule is %q, want none", r.Schedule)
	}
}

// The entry is kept as long as the worker keeps its own.
func TestCancelKeepsTheEntryAsTheStackDoes(t *testing.T) {
	c, aws := embedded(t)
	args := []string{"cancel", "reservation.expire/r-9/hold-1", "--reason", "left", "--output", "json"}
	contains(t, c.must(args...).stderr, "ledgerRetention is not known", "default of 45 days")
	const kept = 90 * 24 * time.Hour
	_, err := lambda.NewFromConfig(aws.AWSConfig()).CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: new(aws.Names().WorkerFunction), Role: new("arn:aws:iam::000000000000:role/r"), Runtime: types.RuntimeProvidedal2023, Handler: new("bootstrap"),
		Code: &types.FunctionCode{ZipFile: []byte{}}, Environment: &types.Environment{Variables: map[string]string{worker.EnvLedgerRetention: kept.String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	args[1] = "reservation.expire/r-9/hold-2"
	before := time.Now()
	got := c.must(args...)
	if strings.Contains(got.stderr, "not known") {
		t.Errorf("the setting is not known: %s", got.stderr)
	}
	if ttl := decode[cancelReport](t, got).Entry.TTL; ttl.Before(before.Add(kept).Truncate(time.Second)) || ttl.After(time.Now().Add(kept+time.Second)) {
		t.Errorf("the entry goes at %v, want %v after %v", ttl, kept, before)
	}
}

// cancels are the audit's lines about the cancelling of a job.
func cancels(t *testing.T, aws *local.AWS, key string) (lines []string) {
	t.Helper()
	table := redrive.NewStore(awsclient.DynamoDB(aws.AWSConfig()), aws.Names().OperationsTable)
	for shard := range 16 {
		err := table.Query(t.Context(), fmt.Sprintf("audit#cancels#%02d", shard), key+"#", func(r redrive.Record) error {
			lines = append(lines, string(r.Doc))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

func TestCancelIsAudited(t *testing.T) {
	c, aws := embedded(t)
	const key = "reservation.expire/r-9/hold-1"
	c.must("cancel", key, "--by", "ann", "--reason", "the customer left")
	lines := cancels(t, aws, key)
	if len(lines) != 1 {
		t.Fatalf("the audit has %d lines, want 1: %q", len(lines), lines)
	}
	contains(t, lines[0], `"what":"cancelled"`, `"by":"ann"`, `"reason":"the customer left"`, `"job":"`+key+`"`)
}

func TestCancelRefuses(t *testing.T) {
	c, aws := embedded(t)
	d, _ := write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.Claim(e, d, ledger.Lease{Until: time.Now().Add(time.Hour), ProviderKey: "p"}, time.Now())
	})
	c.refused(exitRefused, []string{"a delivery holds"}, "cancel", d.Key, "--reason", "left")
	write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.CompleteClaim(e, d, ledger.Done, "sent", "r1", time.Now())
	})
	c.refused(exitRefused, []string{"has ended: done, sent"}, "cancel", d.Key, "--reason", "left")
	c.refused(exitRefused, []string{"is no job's key"}, "cancel", "r-1", "--reason", "left")
	c.refused(exitRefused, []string{"--not-before"}, "cancel", d.Key, "--not-before", "tomorrow", "--reason", "left")
}

// The runbook's query for the alarm schedule-lost finds the jobs that wait past their time, and no others.
func TestTheRunbookFindsLostSchedules(t *testing.T) {
	const filter = "#s = :pending AND scheduled_until < :yesterday"
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(runbook), `--filter-expression "`+filter+`"`) {
		t.Fatalf("the runbook has no filter %q", filter)
	}
	_, aws := embedded(t)
	d, due, _ := scheduled(t, aws)
	find := func(yesterday time.Time) []string {
		out, err := awsclient.DynamoDB(aws.AWSConfig()).Scan(t.Context(), &dynamodb.ScanInput{
			TableName: new(aws.Names().LedgerTable), ProjectionExpression: new("#k"), FilterExpression: new(filter),
			ExpressionAttributeNames: map[string]string{"#s": "status", "#k": "key"},
			ExpressionAttributeValues: map[string]dynamodbtypes.AttributeValue{
				":pending":   &dynamodbtypes.AttributeValueMemberS{Value: "pending"},
				":yesterday": &dynamodbtypes.AttributeValueMemberN{Value: fmt.Sprint(yesterday.Unix(), "000")},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, it := range out.Items {
			keys = append(keys, it["key"].(*dynamodbtypes.AttributeValueMemberS).Value)
		}
		return keys
	}
	if got := find(time.Now().Add(-24 * time.Hour)); len(got) != 0 {
		t.Errorf("it finds %q, whose time has not come", got)
	}
	if got := find(due.Add(24 * time.Hour)); len(got) != 1 || got[0] != d.Key {
		t.Errorf("it finds %q, want %s", got, d.Key)
	}
}
