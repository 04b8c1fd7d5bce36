package local

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"

	"acklast/internal/job"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// metricsPath is CloudWatch's GetMetricData, in the SDK's protocol.
const metricsPath = "/service/GraniteServiceVersion20100801/operation/GetMetricData"

// metricsKept is how long counts are kept.
const metricsKept = 24 * time.Hour

// metrics is CloudWatch for the counts of the functions. It is a writer that reads the metric lines of their log,
// sums counts by minute, and answers GetMetricData with the sums. The engine's own CloudWatch reads no metric
// lines. It is safe for concurrent use.
//
// It also counts what SQS counts on AWS as NumberOfMessagesDeleted for each lane: every delivery that was not left.
type metrics struct {
	queues map[string]string // lane, queue
	mu     sync.Mutex
	counts map[string]map[time.Time]float64 // by name, and the start of the minute
	pruned time.Time
}

func newMetrics(names topology.Names) *metrics {
	return &metrics{
		queues: map[string]string{string(job.Source): names.SourceQueue, string(job.Recovery): names.RecoveryQueue},
		counts: map[string]map[time.Time]float64{},
	}
}

// metricLine is a line in CloudWatch's embedded metric format.
type metricLine struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

// Write takes whole lines of a log. It skips lines without metrics.
func (m *metrics) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if bytes.HasPrefix(line, []byte(`{"_aws":`)) {
			m.read(line)
		}
	}
	return len(lines), nil
}

func (m *metrics) read(line []byte) {
	var format metricLine
	var fields map[string]any
	if json.Unmarshal(line, &format) != nil || json.Unmarshal(line, &fields) != nil {
		return
	}
	at := time.UnixMilli(format.AWS.Timestamp).UTC().Truncate(time.Minute)
	for _, set := range format.AWS.CloudWatchMetrics {
		for _, dimensions := range set.Dimensions {
			values := map[string]string{}
			for _, d := range dimensions {
				values[d], _ = fields[d].(string)
			}
			for _, metric := range set.Metrics {
				n, isCount := fields[metric.Name].(float64)
				if !isCount {
					continue // only a distribution has several values
				}
				m.add(at, seriesName(set.Namespace, metric.Name, values), n)
				queue := m.queues[values[telemetry.DimensionLane]]
				if queue != "" && metric.Name != telemetry.MetricLeft {
					m.add(at, seriesName("AWS/SQS", "NumberOfMessagesDeleted", map[string]string{"QueueName": queue}), n)
				}
			}
		}
	}
}

func (m *metrics) add(minute time.Time, name string, n float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts[name] == nil {
		m.counts[name] = map[time.Time]float64{}
	}
	m.counts[name][minute] += n
	if minute.After(m.pruned) {
		m.pruned = minute
		for _, counts := range m.counts {
			for at := range counts {
				if at.Before(minute.Add(-metricsKept)) {
					delete(counts, at)
				}
			}
		}
	}
}

// seriesName names a metric with its dimensions.
func seriesName(namespace, metric string, dimensions map[string]string) string {
	parts := []string{namespace, metric}
	for name, value := range dimensions {
		parts = append(parts, name+"="+value)
	}
	slices.Sort(parts[2:])
	return strings.Join(parts, "\x00")
}

// sums are the sums of a metric by period, newest first as in CloudWatch.
func (m *metrics) sums(name string, from, to time.Time, period time.Duration) (starts []time.Time, values []float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byStart := map[time.Time]float64{}
	for at, n := range m.counts[name] {
		if start := at.Truncate(period); !start.Before(from.Truncate(period)) && start.Before(to) {
			byStart[start] += n
		}
	}
	for start := range byStart {
		starts = append(starts, start)
	}
	slices.SortFunc(starts, func(a, b time.Time) int { return b.Compare(a) })
	for _, start := range starts {
		values = append(values, byStart[start])
	}
	return starts, values
}

// routes adds GetMetricData to the mux. It answers sums of whole minutes only, in one page.
func (m *metrics) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/cbor")
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		answer, why := m.answer(r.Body)
		if why != "" {
			w.WriteHeader(http.StatusBadRequest)
			answer = cbor.Map{"__type": cbor.String("com.amazonaws.cloudwatch#InvalidParameterValueException"), "message": cbor.String(why)}
		}
		_, _ = w.Write(cbor.Encode(answer)) // if the client has hung up, nobody reads the answer
	})
}

func (m *metrics) answer(body io.Reader) (answer cbor.Map, why string) {
	raw, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if err != nil {
		return nil, "the request is not readable"
	}
	value, err := cbor.Decode(raw)
	if err != nil {
		return nil, "the request is not readable"
	}
	request, _ := value.(cbor.Map)
	from, errFrom := cbor.AsTime(request["StartTime"])
	to, errTo := cbor.AsTime(request["EndTime"])
	queries, ok := request["MetricDataQueries"].(cbor.List)
	if errFrom != nil || errTo != nil || !ok {
		return nil, "StartTime, EndTime and MetricDataQueries are required"
	}
	results := cbor.List{}
	for _, query := range queries {
		q, _ := query.(cbor.Map)
		stat, _ := q["MetricStat"].(cbor.Map)
		metric, _ := stat["Metric"].(cbor.Map)
		seconds, err := cbor.AsInt32(stat["Period"])
		if err != nil || seconds <= 0 || seconds%60 != 0 || text(stat["Stat"]) != "Sum" {
			return nil, "only the Sum of whole minutes is served here"
		}
		dimensions := map[string]string{}
		list, _ := metric["Dimensions"].(cbor.List)
		for _, one := range list {
			d, _ := one.(cbor.Map)
			dimensions[text(d["Name"])] = text(d["Value"])
		}
		starts, values := m.sums(seriesName(text(metric["Namespace"]), text(metric["MetricName"]), dimensions),
			from, to, time.Duration(seconds)*time.Second)
		timestamps, numbers := cbor.List{}, cbor.List{}
		for i := range starts {
			timestamps = append(timestamps, &cbor.Tag{ID: 1, Value: cbor.Float64(float64(starts[i].UnixMilli()) / 1000)})
			numbers = append(numbers, cbor.Float64(values[i]))
		}
		results = append(results, cbor.Map{
			"Id": cbor.String(text(q["Id"])), "Label": cbor.String(text(metric["MetricName"])), "StatusCode": cbor.String("Complete"),
			"Timestamps": timestamps, "Values": numbers,
		})
	}
	return cbor.Map{"MetricDataResults": results, "Messages": cbor.List{cbor.Map{
		"Code": cbor.String(telemetry.TallyCode), "Value": cbor.String("tallied from the functions' metric lines"),
	}}}, ""
}

func text(v cbor.Value) string {
	s, _ := v.(cbor.String)
	return string(s)
}
