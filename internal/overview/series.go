package overview

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// Name is what a series counts.
type Name string

// The series: the deliveries by outcome, those found final already, the jobs that a redrive sent back, and the
// messages that each lane is done with. Fresh against Recovered is fresh work against retries, deferrals and
// redrives.
const (
	Acknowledged Name = "acknowledged"
	Retried      Name = "retried"
	Deferred     Name = "deferred"
	IsolatedNow  Name = "isolated"
	Left         Name = "left"
	Duplicates   Name = "duplicates"
	Redriven     Name = "redriven"
	Fresh        Name = "fresh"
	Recovered    Name = "recovered"
)

// Names are the series in the order in which people read them.
var Names = []Name{Acknowledged, Retried, Deferred, IsolatedNow, Left, Duplicates, Redriven, Fresh, Recovered}

// Series are counts over time, of equally long periods.
type Series struct {
	// Source says where the counts are from. NoHistory says why there are none; Counts are then absent.
	Source    string `json:"source,omitzero"`
	NoHistory string `json:"noHistory,omitzero"`
	// From is the start of the first period. To is the time of the reading, so that the last period is not over.
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	PeriodSeconds int       `json:"periodSeconds"`
	// Counts has one count for each period, for each of Names.
	Counts map[Name][]float64 `json:"counts,omitempty"`
	// CostUSD is what the reading cost: CloudWatch bills each metric of a call.
	CostUSD float64 `json:"costUsd"`
}

// Periods are the starts of the periods.
func (s Series) Periods() []time.Time {
	var starts []time.Time
	for at := s.From; !at.After(s.To); at = at.Add(time.Duration(s.PeriodSeconds) * time.Second) {
		starts = append(starts, at)
	}
	return starts
}

// Total is the sum of a series.
func (s Series) Total(name Name) (total float64) {
	for _, n := range s.Counts[name] {
		total += n
	}
	return total
}

// PerMinute is the mean of a series per minute. ok is false if there is no history.
func (s Series) PerMinute(name Name) (rate float64, ok bool) {
	minutes := s.To.Sub(s.From).Minutes()
	if s.NoHistory != "" || minutes <= 0 {
		return 0, false
	}
	return s.Total(name) / minutes, true
}

// History has counts over time.
type History interface {
	// Read returns the counts of each series from a time on, in whole periods, and where they are from. A series
	// may have no count in a period. It returns no counts and no error if nobody records them.
	Read(ctx context.Context, from, to time.Time, period time.Duration) (counts map[Name]map[time.Time]float64, source string, costUSD float64, err error)
}

// Read reads the series of a time span. The first period contains from, and the last one contains to.
func Read(ctx context.Context, h History, from, to time.Time, period time.Duration, explain func(error) string) Series {
	s := Series{From: from.UTC().Truncate(period), To: to.UTC(), PeriodSeconds: int(period / time.Second)}
	counts, source, cost, err := h.Read(ctx, s.From, s.To, period)
	switch {
	case err != nil:
		s.NoHistory = "no history: " + explain(err)
		return s
	case source == "":
		s.NoHistory = "no history here: neither CloudWatch nor acklast local records it"
		return s
	}
	s.Source, s.CostUSD, s.Counts = source, cost, map[Name][]float64{}
	starts := s.Periods()
	for _, name := range Names {
		s.Counts[name] = make([]float64, len(starts))
		for i, start := range starts {
			s.Counts[name][i] = counts[name][start]
		}
	}
	return s
}

const (
	// SourceCloudWatch and SourceLocal are the sources of a CloudWatch.
	SourceCloudWatch = "CloudWatch"
	SourceLocal      = "acklast local"
	// metricUSD is CloudWatch's price of one metric in GetMetricData.
	metricUSD = 0.01 / 1000
)

// CloudWatch reads the series with GetMetricData: on AWS from CloudWatch, and at the address of "acklast local"
// from its tally of the metric lines. Other engines record no metric lines.
type CloudWatch struct {
	API   cloudwatch.GetMetricDataAPIClient
	Names topology.Names
	// Local says that the address is not AWS's. Only an answer that says that it is a tally counts there.
	Local bool
}

// metric is the metric behind a series.
type metric struct{ namespace, name, dimension, value string }

func (c CloudWatch) metrics() map[Name]metric {
	own := func(name string) metric {
		return metric{telemetry.Namespace, name, telemetry.DimensionStack, c.Names.Stack}
	}
	deleted := func(queue string) metric {
		return metric{"AWS/SQS", "NumberOfMessagesDeleted", "QueueName", queue}
	}
	return map[Name]metric{
		Acknowledged: own(telemetry.MetricAcknowledged), Retried: own(telemetry.MetricRetried), Deferred: own(telemetry.MetricDeferred),
		IsolatedNow: own(telemetry.MetricIsolated), Left: own(telemetry.MetricLeft), Duplicates: own(telemetry.MetricDuplicates),
		Redriven: own(telemetry.MetricRedriven), Fresh: deleted(c.Names.SourceQueue), Recovered: deleted(c.Names.RecoveryQueue),
	}
}

// Read implements History.
func (c CloudWatch) Read(ctx context.Context, from, to time.Time, period time.Duration) (map[Name]map[time.Time]float64, string, float64, error) {
	in := &cloudwatch.GetMetricDataInput{StartTime: aws.Time(from), EndTime: aws.Time(to.Add(time.Second))}
	byID, metrics := map[string]Name{}, c.metrics()
	for i, name := range Names {
		id, m := "s"+strconv.Itoa(i), metrics[name]
		byID[id] = name
		in.MetricDataQueries = append(in.MetricDataQueries, types.MetricDataQuery{
			Id: &id,
			MetricStat: &types.MetricStat{
				Metric: &types.Metric{Namespace: &m.namespace, MetricName: &m.name,
					Dimensions: []types.Dimension{{Name: &m.dimension, Value: &m.value}}},
				Period: aws.Int32(int32(period / time.Second)), Stat: aws.String("Sum"),
			},
		})
	}
	counts, source, cost := map[Name]map[time.Time]float64{}, SourceCloudWatch, 0.0
	if c.Local {
		source = ""
	}
	for pages := cloudwatch.NewGetMetricDataPaginator(c.API, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, "", cost, err
		}
		for _, m := range page.Messages {
			if c.Local && aws.ToString(m.Code) == telemetry.TallyCode {
				source = SourceLocal
			}
		}
		if !c.Local {
			cost += float64(len(in.MetricDataQueries)) * metricUSD
		}
		for _, r := range page.MetricDataResults {
			name, known := byID[aws.ToString(r.Id)]
			if !known {
				continue
			}
			if counts[name] == nil {
				counts[name] = map[time.Time]float64{}
			}
			for i, at := range r.Timestamps {
				counts[name][at.UTC().Truncate(period)] += r.Values[i]
			}
		}
	}
	return counts, source, cost, nil
}

// oldestAges reads the latest figure of each queue. A queue that was idle for a while has none.
func oldestAges(ctx context.Context, api cloudwatch.GetMetricDataAPIClient, now time.Time, queues ...string) (map[string]Oldest, error) {
	const window = 15 * time.Minute // SQS's metrics come some minutes late
	in := &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(now.Add(-window)), EndTime: aws.Time(now),
		ScanBy: types.ScanByTimestampDescending,
	}
	byID := map[string]string{}
	for i, q := range queues {
		id := "q" + strconv.Itoa(i)
		byID[id] = q
		in.MetricDataQueries = append(in.MetricDataQueries, types.MetricDataQuery{
			Id: &id,
			MetricStat: &types.MetricStat{
				Metric: &types.Metric{
					Namespace: aws.String("AWS/SQS"), MetricName: aws.String("ApproximateAgeOfOldestMessage"),
					Dimensions: []types.Dimension{{Name: aws.String("QueueName"), Value: &q}},
				},
				Period: aws.Int32(60), Stat: aws.String("Maximum"),
			},
		})
	}
	ages := map[string]Oldest{}
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
			ages[queue] = Oldest{AgeSeconds: int64(r.Values[0]), At: r.Timestamps[0].UTC()}
		}
	}
	return ages, nil
}
