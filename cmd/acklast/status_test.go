package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/job"
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

	got := decode[statusReport](t, c.must("status", "--output", "json"))
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

type fakeCloudWatch struct {
	in  *cloudwatch.GetMetricDataInput
	out []*cloudwatch.GetMetricDataOutput
	err error
}

func (f *fakeCloudWatch) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	f.in = in
	if f.err != nil {
		return nil, f.err
	}
	out := f.out[0]
	f.out = f.out[1:]
	return out, nil
}

// The newest figure of each queue counts. A queue without a figure has none in the result.
func TestOldestAges(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	result := func(id string, newest time.Time, values ...float64) cwtypes.MetricDataResult {
		r := cwtypes.MetricDataResult{Id: &id, Values: values}
		for i := range values {
			r.Timestamps = append(r.Timestamps, newest.Add(-time.Duration(i)*time.Minute))
		}
		return r
	}
	f := &fakeCloudWatch{out: []*cloudwatch.GetMetricDataOutput{
		{NextToken: aws.String("more"), MetricDataResults: []cwtypes.MetricDataResult{
			result("q0", now.Add(-2*time.Minute), 90, 30), result("q1", now), result("stranger", now, 5)}},
		{MetricDataResults: []cwtypes.MetricDataResult{result("q0", now.Add(-9*time.Minute), 7), result("q2", now.Add(-time.Minute), 0)}},
	}}
	got, err := oldestAges(t.Context(), f, now, "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]oldestMessage{"a": {90, now.Add(-2 * time.Minute)}, "c": {0, now.Add(-time.Minute)}}
	if len(got) != len(want) || got["a"] != want["a"] || got["c"] != want["c"] {
		t.Errorf("ages are %v, want %v", got, want)
	}
	if q := f.in.MetricDataQueries[1]; *q.MetricStat.Metric.Dimensions[0].Value != "b" || *q.MetricStat.Metric.MetricName != "ApproximateAgeOfOldestMessage" {
		t.Errorf("query is %+v", q)
	}
	f.err = errors.New("denied")
	if _, err := oldestAges(t.Context(), f, now, "a"); err == nil {
		t.Error("no error")
	}

	var b strings.Builder
	r := statusReport{Lanes: []laneStatus{{Lane: "source", Oldest: &oldestMessage{AgeSeconds: 90, At: now}}, {Lane: "recovery"}}}
	printStatus(&b, r)
	contains(t, b.String(), "1m30s at 10:00Z", "no figure")
}
