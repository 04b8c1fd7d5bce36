package main

import (
	"context"
	"errors"
	"fmt"
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

// measured is what a stack tells for a plan. A reason that is not empty says why a part is missing.
type measured struct {
	series overview.Series
	// p50 and p95 are the worker's durations.
	p50, p95   time.Duration
	noDuration string
	// batch is the lanes' batch size, sourceCap and recoveryCap are their caps.
	batch, sourceCap, recoveryCap int
	noMappings                    string
	// backlog is the DLQ's depth, left the time until SQS deletes its oldest message; 0 if that is not known.
	backlog int
	left    time.Duration
}

// measure reads a stack.
func (a *app) measure(ctx context.Context, window time.Duration) (measured, error) {
	t, err := a.connect(ctx)
	if err != nil {
		return measured{}, err
	}
	reader, err := a.overview(ctx, t, func(*overview.Config) {})
	if err != nil {
		return measured{}, err
	}
	snapshot, err := reader.Read(ctx)
	if err != nil {
		return measured{}, t.explain(err)
	}
	m := measured{backlog: snapshot.DLQ.Isolated}
	if o := snapshot.DLQ.Oldest; o != nil {
		m.left = time.Duration(snapshot.DLQ.RetentionSeconds-o.AgeSeconds) * time.Second
	}
	now := a.now()
	m.series = overview.Read(ctx, a.history(t), now.Add(-window), now, min(seriesPeriod, window), reason)
	m.noDuration = "CloudWatch on AWS only has the worker's duration"
	if t.endpoint == "" {
		m.p50, m.p95, err = durations(ctx, cloudwatch.NewFromConfig(t.config), t.names.WorkerFunction, now, window)
		if m.noDuration = ""; err != nil {
			m.noDuration = reason(err)
		}
	}
	functions := lambda.NewFromConfig(t.config, func(o *lambda.Options) { overrule(&o.BaseEndpoint, a.endpoint) })
	for _, lane := range []struct {
		queue string
		limit *int
	}{{t.names.SourceQueue, &m.sourceCap}, {t.names.RecoveryQueue, &m.recoveryCap}} {
		arn, err := t.queueARN(ctx, lane.queue)
		if err != nil {
			return measured{}, t.explain(err)
		}
		mapping, err := overview.Mapping(ctx, functions, t.names.WorkerFunction, arn)
		if err != nil {
			m.noMappings = reason(err)
			break
		}
		m.batch = int(aws.ToInt32(mapping.BatchSize))
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

// fill fills in the numbers of a plan that were not given. It returns where each is from, and what is still missing.
func (m measured) fill(in *capacity.Input, given func(flag string) bool) (sources map[string]string, missing []string) {
	sources = map[string]string{}
	lack := func(flag, why string) { missing = append(missing, fmt.Sprintf("give --%s: %s", flag, why)) }
	seconds := m.series.To.Sub(m.series.From).Seconds()
	if !given("arrivals") {
		if m.series.NoHistory != "" || seconds <= 0 {
			lack("arrivals", m.series.NoHistory)
		} else {
			in.Arrivals = m.series.Total(overview.Fresh) / seconds
			sources["arrivals"] = fmt.Sprintf("%s/s: messages that the source lane was done with since %s, %s", capacity.Rate(in.Arrivals), stamp(m.series.From), m.series.Source)
		}
	}
	if !given("failing") {
		retried := m.series.Total(overview.Retried)
		ended := max(0, m.series.Total(overview.Acknowledged)-m.series.Total(overview.Duplicates))
		switch {
		case m.series.NoHistory != "":
			lack("failing", m.series.NoHistory)
		case retried+ended == 0:
			lack("failing", "no attempt was made in the window")
		default:
			in.Failing = retried / (retried + ended)
			sources["failing"] = fmt.Sprintf("%.3g: attempts that were retried, of those that were retried or acknowledged", in.Failing)
		}
	}
	for _, d := range []struct {
		flag string
		to   *time.Duration
		from time.Duration
	}{{"p50", &in.P50, m.p50}, {"p95", &in.P95, m.p95}} {
		switch {
		case given(d.flag):
		case m.noDuration != "":
			lack(d.flag, m.noDuration)
		default:
			*d.to = d.from
			sources[d.flag] = fmt.Sprintf("%v: of whole invocations, so at least that of a record", d.from.Round(time.Millisecond))
		}
	}
	for _, n := range []struct {
		flag string
		to   *int
		from int
	}{{"batch", &in.Batch, m.batch}, {"source-concurrency", &in.SourceCap, m.sourceCap}, {"recovery-concurrency", &in.RecoveryCap, m.recoveryCap}} {
		switch {
		case given(n.flag):
		case m.noMappings != "" || n.from == 0:
			lack(n.flag, "Lambda does not tell it: "+m.noMappings)
		default:
			*n.to = n.from
			sources[n.flag] = fmt.Sprintf("%d: the lane's mapping", n.from)
		}
	}
	if !given("backlog") {
		in.Backlog = m.backlog
		sources["backlog"] = fmt.Sprintf("%d: messages on the DLQ", m.backlog)
	}
	if !given("within") && in.Backlog > 0 && m.left > 0 {
		in.Within = m.left
		sources["within"] = fmt.Sprintf("%s: then SQS deletes the DLQ's oldest message", rough(m.left))
	}
	return sources, missing
}
