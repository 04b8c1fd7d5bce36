package main

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"acklast/internal/capacity"
	"acklast/internal/overview"
)

// seriesPeriod is the period of the series that --from-stack reads. Only their totals count.
const seriesPeriod = 5 * time.Minute

// measure reads what a stack tells about itself, with the rates of the window before now.
func (a *app) measure(ctx context.Context, t *target, window time.Duration) (capacity.Measured, error) {
	reader, err := a.overview(ctx, t, func(*overview.Config) {})
	if err != nil {
		return capacity.Measured{}, err
	}
	snapshot, err := reader.Read(ctx)
	if err != nil {
		return capacity.Measured{}, t.explain(err)
	}
	now := a.now()
	series := overview.Read(ctx, a.history(t), now.Add(-window), now, min(seriesPeriod, window), reason)
	m := capacity.Measured{Backlog: snapshot.DLQ.Isolated, From: series.From, To: series.To, Source: series.Source, NoHistory: series.NoHistory, CostUSD: series.CostUSD,
		Fresh: series.Total(overview.Fresh), Retried: series.Total(overview.Retried),
		Ended: max(0, series.Total(overview.Acknowledged)-series.Total(overview.Duplicates))}
	if o := snapshot.DLQ.Oldest; o != nil {
		m.Left = time.Duration(snapshot.DLQ.RetentionSeconds-o.AgeSeconds) * time.Second
	}
	m.NoDuration = "CloudWatch on AWS only has the worker's duration"
	if t.endpoint == "" {
		m.P50, m.P95, err = durations(ctx, cloudwatch.NewFromConfig(t.config), t.names.WorkerFunction, now, window)
		if m.NoDuration = ""; err != nil {
			m.NoDuration = reason(err)
		}
	}
	functions := lambda.NewFromConfig(t.config, func(o *lambda.Options) { overrule(&o.BaseEndpoint, a.endpoint) })
	for _, lane := range []struct {
		queue string
		limit *int
	}{{t.names.SourceQueue, &m.SourceCap}, {t.names.RecoveryQueue, &m.RecoveryCap}} {
		arn, err := t.queueARN(ctx, lane.queue)
		if err != nil {
			return capacity.Measured{}, t.explain(err)
		}
		mapping, err := overview.Mapping(ctx, functions, t.names.WorkerFunction, arn)
		if err != nil {
			m.NoMappings = reason(err)
			break
		}
		m.Batch = int(aws.ToInt32(mapping.BatchSize))
		if mapping.ScalingConfig != nil {
			*lane.limit = int(aws.ToInt32(mapping.ScalingConfig.MaximumConcurrency))
		}
	}
	return m, nil
}

// durations reads the median and the 95th percentile of a function's duration over the window.
func durations(ctx context.Context, api cloudwatch.GetMetricDataAPIClient, function string, now time.Time, window time.Duration) (p50, p95 time.Duration, err error) {
	period := int32((window + time.Minute - 1) / time.Minute * 60)
	query := func(id string) cwtypes.MetricDataQuery {
		return cwtypes.MetricDataQuery{Id: &id, MetricStat: &cwtypes.MetricStat{
			Metric: &cwtypes.Metric{Namespace: aws.String("AWS/Lambda"), MetricName: aws.String("Duration"),
				Dimensions: []cwtypes.Dimension{{Name: aws.String("FunctionName"), Value: &function}}},
			Period: &period, Stat: &id,
		}}
	}
	out, err := api.GetMetricData(ctx, &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(now.Add(-window)), EndTime: &now, ScanBy: cwtypes.ScanByTimestampDescending,
		MetricDataQueries: []cwtypes.MetricDataQuery{query("p50"), query("p95")},
	})
	if err != nil {
		return 0, 0, err
	}
	for _, r := range out.MetricDataResults {
		if len(r.Values) == 0 {
			continue
		}
		d := time.Duration(r.Values[0] * float64(time.Millisecond))
		switch aws.ToString(r.Id) {
		case "p50":
			p50 = d
		case "p95":
			p95 = d
		}
	}
	if p50 <= 0 || p95 <= 0 {
		return 0, 0, errors.New("the worker was not invoked in the window")
	}
	return p50, p95, nil
}
