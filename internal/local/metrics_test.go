package local

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"acklast/internal/job"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// The worker's own recorder writes the lines, and the SDK's client reads the sums.
func TestMetrics(t *testing.T) {
	a, err := StartAWS(t.Context(), "metrics", topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	start := time.Date(2026, 12, 1, 10, 0, 10, 0, time.UTC)
	now := start
	record := func(stack string, observations ...telemetry.Observation) {
		t.Helper()
		r := telemetry.NewRecorder(a.metrics, stack, func() time.Time { return now })
		for _, o := range observations {
			r.Observe(o)
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	ack := telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: job.Acknowledged, Final: true}
	retried := telemetry.Observation{Kind: "k", Lane: job.Recovery, Outcome: job.Retried, Class: job.Transient}
	left := telemetry.Observation{Kind: "k", Lane: job.Source, Outcome: job.Left}
	record("metrics", ack, ack, retried, left)
	record("metrics", ack)
	record("another", ack)
	now = start.Add(2 * time.Minute)
	record("metrics", retried)

	sums := func(namespace, metric, dimension, value string, period int32, from time.Time) ([]time.Time, []float64) {
		t.Helper()
		out, err := cloudwatch.NewFromConfig(a.AWSConfig()).GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
			StartTime: &from, EndTime: aws.Time(start.Add(5 * time.Minute)),
			MetricDataQueries: []types.MetricDataQuery{{Id: aws.String("a"), MetricStat: &types.MetricStat{
				Period: &period, Stat: aws.String("Sum"), Metric: &types.Metric{Namespace: &namespace, MetricName: &metric,
					Dimensions: []types.Dimension{{Name: &dimension, Value: &value}}},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) != 1 || aws.ToString(out.Messages[0].Code) != telemetry.TallyCode {
			t.Errorf("messages are %v, want the one that names the tally", out.Messages)
		}
		var at []time.Time
		for _, one := range out.MetricDataResults[0].Timestamps {
			at = append(at, one.UTC())
		}
		return at, out.MetricDataResults[0].Values
	}
	minute := start.Truncate(time.Minute)
	hour := start.Truncate(time.Hour)
	for _, c := range []struct {
		namespace, metric, dimension, value string
		period                              int32
		from                                time.Time
		at                                  []time.Time
		values                              []float64
	}{
		{"acklast", "Acknowledged", "stack", "metrics", 60, minute, []time.Time{minute.Add(2 * time.Minute), minute}, []float64{0, 3}},
		{"acklast", "Acknowledged", "stack", "another", 60, minute, []time.Time{minute}, []float64{1}},
		{"acklast", "Retried", "stack", "metrics", 60, minute, []time.Time{minute.Add(2 * time.Minute), minute}, []float64{1, 1}},
		{"acklast", "Retried", "stack", "metrics", 300, hour, []time.Time{hour}, []float64{2}},
		{"acklast", "Retried", "stack", "metrics", 60, minute.Add(time.Minute), []time.Time{minute.Add(2 * time.Minute)}, []float64{1}},
		{"acklast", "Left", "stack", "metrics", 300, hour, []time.Time{hour}, []float64{1}},
		// As SQS counts on AWS: what was left is not deleted.
		{"AWS/SQS", "NumberOfMessagesDeleted", "QueueName", "metrics-source", 300, hour, []time.Time{hour}, []float64{4}},
		{"AWS/SQS", "NumberOfMessagesDeleted", "QueueName", "metrics-recovery", 60, minute, []time.Time{minute.Add(2 * time.Minute), minute}, []float64{1, 1}},
		{"acklast", "Nothing", "stack", "metrics", 60, minute, nil, nil},
	} {
		at, values := sums(c.namespace, c.metric, c.dimension, c.value, c.period, c.from)
		if !slices.Equal(at, c.at) {
			t.Errorf("%s of %s: at %v, want %v", c.metric, c.value, at, c.at)
		}
		if !slices.Equal(values, c.values) {
			t.Errorf("%s of %s: %v, want %v", c.metric, c.value, values, c.values)
		}
	}
}
