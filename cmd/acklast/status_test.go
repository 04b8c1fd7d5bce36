package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

func TestStatus(t *testing.T) {
	c, aws := embedded(t)
	put := func(queueURL string, delay int32) {
		if _, err := sqsClient(aws).SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &queueURL, MessageBody: new(expiry("r-1")), DelaySeconds: delay}); err != nil {
			t.Fatal(err)
		}
	}
	put(aws.QueueURLs().Source, 0)
	received(t, aws, job.Source) // in flight
	put(aws.QueueURLs().Source, 0)
	put(aws.QueueURLs().Source, 0)
	for range 3 {
		put(aws.QueueURLs().Recovery, 600)
	}
	put(aws.QueueURLs().DLQ, 0)
	received(t, aws, job.DLQ)
	put(aws.QueueURLs().DLQ, 0)

	got := decode[overview.Snapshot](t, c.must("status", "--output", "json"))
	if l := got.Lanes[0]; l.Lane != "source" || l.Queue != c.stack+"-source" || l.Scheduled != 0 || l.Ready != 2 || l.InFlight != 1 {
		t.Errorf("source is %+v", l)
	}
	if l := got.Lanes[1]; l.Lane != "recovery" || l.Scheduled != 3 || l.Ready != 0 || l.InFlight != 0 {
		t.Errorf("recovery is %+v", l)
	}
	if d := got.DLQ; d.Isolated != 2 || d.InFlight != 1 {
		t.Errorf("dlq is %+v", d)
	}
	if got.DLQ.Oldest != nil || got.OldestNotTold == "" || got.Stack != c.stack || got.Place != c.env["AWS_ENDPOINT_URL"] || time.Since(got.At) > time.Minute {
		t.Errorf("report is %+v", got)
	}
	table := c.must("status").stdout
	var rows []string
	for _, line := range strings.Split(table, "\n") {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	contains(t, strings.Join(rows, "\n"),
		"LANE SCHEDULED READY IN FLIGHT ISOLATED OLDEST",
		"source 0 2 1 - not told here",
		"recovery 3 0 0 - not told here",
		"dlq - - 1 2 not told here",
	)
}

// Ages, pauses, the kill switch and a run, as status prints them.
func TestPrintStatus(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	var b strings.Builder
	printStatus(&b, overview.Snapshot{
		At:    now,
		Lanes: []overview.Lane{{Lane: "source", Oldest: &overview.Oldest{AgeSeconds: 90, At: now}}, {Lane: "recovery", Mapping: "Disabled", Paused: true}},
		Isolated: &overview.Isolated{Jobs: 3, DeletedAt: now.Add(50 * time.Hour), Groups: []overview.Group{
			{Class: job.Transient, Count: 2}, {Class: job.Rejected, Count: 1}}},
		Switch: &redrive.Switch{On: true, By: "ada", Reason: "incident\x1b[2J"},
		Run:    &redrive.Run{ID: "r-1", State: redrive.Halted, Code: redrive.HaltCanary, Total: 9, Counts: map[redrive.Step]int{"sent": 2}},
	})
	contains(t, b.String(), "1m30s at 10:00Z", "no figure", "Isolated jobs: 2 transient, 1 rejected. SQS deletes the oldest in 2 days.",
		"The recovery lane is paused (its mapping is disabled).", "The kill switch is on, by ada: incident\uFFFD[2J\n",
		"Run r-1 is halted canary: 2 of 9 done. See acklast redrive status r-1")
}

// What a newer version wrote is named, and the others are told all the same.
func TestEntriesOfANewerVersion(t *testing.T) {
	c, aws := embedded(t)
	failed := &job.Failure{Class: job.Rejected, Err: errors.New("order 17 is missing")}
	d, e := write(t, aws, fail(failed, time.Now()))
	_, err := awsclient.DynamoDB(aws.AWSConfig()).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: new(aws.Names().LedgerTable), Key: map[string]types.AttributeValue{"subject": dynamo.Text(e.Subject), "key": dynamo.Text(e.Key)},
		UpdateExpression:          new("SET #format = :newer"),
		ExpressionAttributeNames:  map[string]string{"#format": "format"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":newer": dynamo.Number(2)},
	})
	if err != nil {
		t.Fatal(err)
	}
	const says = "entry reservation.expire/r-1/hold-1 has format 2, but this acklast reads up to 1: update this acklast"
	c.refused(exitFailed, []string{says}, "job", d.Key)
	status := c.must("status").stdout
	contains(t, status, "Isolated jobs: 1 newer. SQS deletes", "\n1 of 1 isolated jobs are in no group: "+says+"\n")
	contains(t, c.must("watch", "--once").stdout, "1 newer")
}
