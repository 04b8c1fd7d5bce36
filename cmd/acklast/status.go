package main

import (
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/redrive"
)

// statusReport is the answer of status. SQS's counts are approximate.
type statusReport struct {
	Stack string    `json:"stack"`
	Place string    `json:"place"`
	At    time.Time `json:"at"`
	// Lanes are the queues that feed the worker: source, then recovery.
	Lanes []laneStatus `json:"lanes"`
	DLQ   dlqStatus    `json:"dlq"`
	// InScheduler counts the jobs that wait in EventBridge Scheduler, up to a limit. More are there if
	// MoreInScheduler says so.
	InScheduler     int  `json:"inScheduler"`
	MoreInScheduler bool `json:"moreInScheduler,omitzero"`
	// SchedulerNotTold says why InScheduler is not known; absent if it is.
	SchedulerNotTold string `json:"schedulerNotTold,omitzero"`
	// OldestNotTold says why the ages of the oldest messages are missing; absent if they are there.
	OldestNotTold string `json:"oldestNotTold,omitzero"`
	// Kinds are the redrive function's kinds, with their own rates and the people who paused them.
	Kinds []redrive.KindState `json:"kinds"`
	// KindsNotTold says why Kinds is missing; absent if the function answered.
	KindsNotTold string `json:"kindsNotTold,omitzero"`
}

// laneStatus counts a lane's messages.
type laneStatus struct {
	Lane  job.Queue `json:"lane"`
	Queue string    `json:"queue"`
	// Scheduled messages are delayed by SQS. Ready ones wait for the worker. InFlight ones are with the worker
	// or back off.
	Scheduled int `json:"scheduled"`
	Ready     int `json:"ready"`
	InFlight  int `json:"inFlight"`
	// Oldest is absent if the platform has no such figure.
	Oldest *oldestMessage `json:"oldest,omitempty"`
}

// dlqStatus counts the DLQ's messages.
type dlqStatus struct {
	Queue string `json:"queue"`
	// Isolated counts all of them, InFlight the received ones among them.
	Isolated int            `json:"isolated"`
	InFlight int            `json:"inFlight"`
	Oldest   *oldestMessage `json:"oldest,omitempty"`
}

// oldestMessage is CloudWatch's latest figure for the age of a queue's oldest message.
type oldestMessage struct {
	AgeSeconds int64 `json:"ageSeconds"`
	// At is the minute of the measurement.
	At time.Time `json:"at"`
}

// kindsLimit is how long status waits for the redrive function, which may have to start.
const kindsLimit = 5 * time.Second

// schedulesShown is how many schedules status counts: Scheduler lists 100 in a call.
const schedulesShown = 1000

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how much work each lane holds",
		Long: `Show how many messages of each lane are scheduled (delayed by SQS), ready (waiting for the worker) and in
flight (with the worker, or backing off), how many jobs wait in EventBridge Scheduler because they are due far
ahead, and how many are isolated on the DLQ. SQS's counts are
approximate.

The age of the oldest message is CloudWatch's figure, which may be some minutes old. It exists only on AWS,
and only for queues that were in use. Kinds, their own rates and pauses come from the redrive function, if
you may invoke it. Paused lanes: on AWS "aws lambda list-event-source-mappings
--event-source-arn ARN-OF-THE-QUEUE" shows whether a lane's mapping is enabled.`,
		Example: `  acklast status
  acklast status --stack orders --output json | jq .dlq.isolated`,
		Args: cobra.NoArgs,
		RunE: a.starting(func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context()) }),
	}
}

func (a *app) status(ctx context.Context) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	queues := []job.Queue{job.Source, job.Recovery, job.DLQ}
	client, err := t.lanes(ctx, queues...)
	if err != nil {
		return err
	}
	depths, errs := make([]lanes.Depth, len(queues)), make([]error, len(queues))
	var ages map[string]oldestMessage
	var notTold string
	var wait sync.WaitGroup
	for i, q := range queues {
		wait.Go(func() { depths[i], errs[i] = client.Depth(ctx, q) })
	}
	wait.Go(func() { ages, notTold = t.oldest(ctx) })
	kinds, kindsNotTold := []redrive.KindState{}, ""
	wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, kindsLimit)
		defer cancel()
		resp, err := a.governing(t).ask(ctx, redrive.Request{Action: "kinds"})
		if err != nil {
			kindsNotTold = "the redrive function did not tell: " + reason(err)
			return
		}
		kinds = resp.Kinds
	})
	scheduled, schedulerNotTold := 0, ""
	wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, kindsLimit)
		defer cancel()
		n, err := t.schedules().Count(ctx, schedulesShown)
		if scheduled = n; err != nil {
			schedulerNotTold = "EventBridge Scheduler did not tell: " + reason(err)
		}
	})
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return t.explain(err)
		}
	}
	r := t.report(depths, ages)
	r.At, r.OldestNotTold = a.now().UTC().Truncate(time.Millisecond), notTold
	r.InScheduler, r.MoreInScheduler, r.SchedulerNotTold = scheduled, scheduled == schedulesShown, schedulerNotTold
	r.Kinds, r.KindsNotTold = kinds, kindsNotTold
	return a.answer(r, func(w io.Writer) { printStatus(w, r) })
}

// report joins the figures of the source, the recovery lane and the DLQ, in this order.
func (t *target) report(depths []lanes.Depth, ages map[string]oldestMessage) statusReport {
	oldest := func(queue string) *oldestMessage {
		if o, ok := ages[queue]; ok {
			return &o
		}
		return nil
	}
	lane := func(l job.Queue, queue string, d lanes.Depth) laneStatus {
		return laneStatus{Lane: l, Queue: queue, Scheduled: d.Delayed, Ready: d.Visible, InFlight: d.InFlight, Oldest: oldest(queue)}
	}
	dlq := depths[2]
	return statusReport{
		Stack: t.names.Stack, Place: t.place,
		Lanes: []laneStatus{
			lane(job.Source, t.names.SourceQueue, depths[0]),
			lane(job.Recovery, t.names.RecoveryQueue, depths[1]),
		},
		DLQ: dlqStatus{
			Queue: t.names.DLQ, Isolated: dlq.Total(), InFlight: dlq.InFlight,
			Oldest: oldest(t.names.DLQ),
		},
	}
}

func printStatus(w io.Writer, r statusReport) {
	age := func(o *oldestMessage) string {
		switch {
		case r.OldestNotTold != "":
			return "not told here"
		case o == nil:
			return "no figure"
		}
		return rough(time.Duration(o.AgeSeconds)*time.Second) + " at " + o.At.UTC().Format("15:04Z")
	}
	row(w, "LANE", "SCHEDULED", "READY", "IN FLIGHT", "ISOLATED", "OLDEST")
	for _, l := range r.Lanes {
		row(w, l.Lane, l.Scheduled, l.Ready, l.InFlight, "-", age(l.Oldest))
	}
	row(w, job.DLQ, "-", "-", r.DLQ.InFlight, r.DLQ.Isolated, age(r.DLQ.Oldest))
	if r.OldestNotTold != "" {
		say(w, "Oldest: %s\n", plain(r.OldestNotTold))
	}
	switch {
	case r.SchedulerNotTold != "":
		say(w, "In EventBridge Scheduler: %s\n", plain(r.SchedulerNotTold))
	case r.MoreInScheduler:
		say(w, "In EventBridge Scheduler: more than %d jobs\n", r.InScheduler)
	default:
		say(w, "In EventBridge Scheduler: %d jobs\n", r.InScheduler)
	}
	for _, k := range r.Kinds {
		if k.Paused != nil {
			say(w, "Kind %s is paused since %s, by %s: %s\n", plain(k.Kind), k.Paused.At.UTC().Format(time.RFC3339), plain(k.Paused.By), plain(k.Paused.Reason))
		}
		if k.PerSecond > 0 {
			say(w, "Kind %s makes at most about %v attempts a second.\n", plain(k.Kind), k.PerSecond)
		}
	}
	if r.KindsNotTold != "" {
		say(w, "Kinds: %s\n", plain(r.KindsNotTold))
	}
}

// oldest asks CloudWatch for the age of each queue's oldest message. It asks no other platform, because SQS
// itself has no such figure.
func (t *target) oldest(ctx context.Context) (ages map[string]oldestMessage, notTold string) {
	if t.endpoint != "" {
		return nil, "the age of the oldest message is known to CloudWatch on AWS only"
	}
	ages, err := oldestAges(ctx, cloudwatch.NewFromConfig(t.config), t.now(), t.names.SourceQueue, t.names.RecoveryQueue, t.names.DLQ)
	if err != nil {
		return nil, "CloudWatch did not tell: " + reason(err)
	}
	return ages, ""
}

// oldestAges reads the latest figure of each queue. A queue that was idle for a while has none.
func oldestAges(ctx context.Context, api cloudwatch.GetMetricDataAPIClient, now time.Time, queues ...string) (map[string]oldestMessage, error) {
	const window = 15 * time.Minute // SQS's metrics come some minutes late
	in := &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(now.Add(-window)), EndTime: aws.Time(now),
		ScanBy: cwtypes.ScanByTimestampDescending,
	}
	byID := map[string]string{}
	for i, q := range queues {
		id := "q" + strconv.Itoa(i)
		byID[id] = q
		in.MetricDataQueries = append(in.MetricDataQueries, cwtypes.MetricDataQuery{
			Id: &id,
			MetricStat: &cwtypes.MetricStat{
				Metric: &cwtypes.Metric{
					Namespace: aws.String("AWS/SQS"), MetricName: aws.String("ApproximateAgeOfOldestMessage"),
					Dimensions: []cwtypes.Dimension{{Name: aws.String("QueueName"), Value: &q}},
				},
				Period: aws.Int32(60), Stat: aws.String("Maximum"),
			},
		})
	}
	ages := map[string]oldestMessage{}
	for pages := cloudwatch.NewGetMetricDataPaginator(api, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.MetricDataResults {
			queue := byID[aws.ToString(r.Id)]
			if _, newer := ages[queue]; queue == "" || newer || len(r.Values) == 0 || len(r.Timestamps) == 0 {
				continue
			}
			ages[queue] = oldestMessage{AgeSeconds: int64(r.Values[0]), At: r.Timestamps[0].UTC()}
		}
	}
	return ages, nil
}
