package cloudwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Alarm is an alarm as CloudFormation describes it.
type Alarm struct {
	Name string
	// period is in minutes.
	period, periods, datapoints int
	threshold                   float64
	expression                  expression
	queries                     map[string]query
}

type query struct {
	series    Series
	statistic string
}

// Delay is how long after its end a period's datapoint can be seen. Assumed: AWS only says that there is a delay.
const Delay = time.Minute

// extra is how many periods more than it evaluates an alarm looks at. Assumed: AWS says that there are some.
const extra = 2

// ParseAlarm reads the properties of an AWS::CloudWatch::Alarm whose references are resolved. It refuses what is
// not modelled.
func ParseAlarm(p map[string]any) (a Alarm, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("alarm %v: %v", p["AlarmName"], r)
		}
	}()
	if p["ComparisonOperator"] != "GreaterThanOrEqualToThreshold" || p["TreatMissingData"] != "notBreaching" {
		panic(fmt.Sprintf("%v with missing data %v is not modelled", p["ComparisonOperator"], p["TreatMissingData"]))
	}
	a = Alarm{
		Name: p["AlarmName"].(string), threshold: p["Threshold"].(float64), periods: int(p["EvaluationPeriods"].(float64)),
		queries: map[string]query{},
	}
	a.datapoints = a.periods
	if n, ok := p["DatapointsToAlarm"].(float64); ok {
		a.datapoints = int(n)
	}
	text := "m1"
	if p["MetricName"] != nil {
		a.add("m1", p, p)
	}
	metrics, _ := p["Metrics"].([]any)
	for _, one := range metrics {
		q := one.(map[string]any)
		if e, ok := q["Expression"].(string); ok {
			text = e
			continue
		}
		stat := q["MetricStat"].(map[string]any)
		a.add(q["Id"].(string), stat["Metric"].(map[string]any), stat)
	}
	var used map[string]bool
	if a.expression, used, err = parse(text); err != nil {
		return a, fmt.Errorf("alarm %s: %w", a.Name, err)
	}
	for id := range used {
		if _, ok := a.queries[id]; !ok {
			panic("its expression uses " + id + ", which it does not define")
		}
	}
	if span := a.period * a.periods; a.period < 60 && span > 24*60 || span > 7*24*60 {
		panic("it looks back further than CloudWatch allows")
	}
	return a, nil
}

func (a *Alarm) add(id string, metric, stat map[string]any) {
	statistic, _ := stat["Statistic"].(string)
	for _, other := range []string{"Stat", "ExtendedStatistic"} {
		if s, ok := stat[other].(string); ok {
			statistic = s
		}
	}
	var dimensions []string
	list, _ := metric["Dimensions"].([]any)
	for _, one := range list {
		d := one.(map[string]any)
		dimensions = append(dimensions, fmt.Sprint(d["Name"], "=", d["Value"]))
	}
	period := int(stat["Period"].(float64)) / 60
	if a.period != 0 && a.period != period {
		panic("metrics of different periods are not modelled")
	}
	a.period = period
	a.queries[id] = query{SeriesOf(metric["Namespace"].(string), metric["MetricName"].(string), dimensions...), statistic}
}

// Series are the metrics that the alarm looks at.
func (a Alarm) Series() []Series {
	var all []Series
	for _, q := range a.queries {
		all = append(all, q.series)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Span is a time in which an alarm was on, in minutes from the start of the metrics. Off is -1 for one that is
// on at the end.
type Span struct{ On, Off int }

// Spans evaluates the alarm every minute and returns when it was on.
func (a Alarm) Spans(m *Metrics, minutes int) []Span {
	var spans []Span
	on := false
	values := a.values(m)
	for minute := range minutes {
		if is := a.on(values, minute); is != on {
			if on = is; on {
				spans = append(spans, Span{minute, -1})
			} else {
				spans[len(spans)-1].Off = minute
			}
		}
	}
	return spans
}

// datapoint says whether a period has a value, and whether it breaches.
type datapoint struct{ there, breaching bool }

// values computes each period's datapoint once.
func (a Alarm) values(m *Metrics) func(period int) datapoint {
	known := map[int]datapoint{}
	at := func(id string, period int) (float64, bool) {
		q := a.queries[id]
		return m.value(q.series, q.statistic, period*a.period, a.period)
	}
	return func(period int) datapoint {
		d, ok := known[period]
		if !ok {
			v, there := a.expression(at, period)
			d = datapoint{there, there && v >= a.threshold}
			known[period] = d
		}
		return d
	}
}

// on says whether the alarm is in the state ALARM at a minute. It looks at the newest datapoints, as many as
// it evaluates. Where fewer than that can be found in a slightly longer range, those that are missing count
// as not breaching.
func (a Alarm) on(values func(int) datapoint, minute int) bool {
	last := (minute-int(Delay/time.Minute))/a.period - 1
	breaching, found := 0, 0
	for period := last; period > last-a.periods-extra && period >= 0 && found < a.periods; period-- {
		d := values(period)
		if d.there {
			found++
		}
		if d.breaching {
			breaching++
		}
	}
	return breaching >= a.datapoints
}

// String writes a span as from–until.
func (s Span) String() string {
	if s.Off < 0 {
		return fmt.Sprintf("%d–", s.On)
	}
	return fmt.Sprintf("%d–%d", s.On, s.Off)
}

// Describe writes when an alarm was on, relative to a minute.
func Describe(spans []Span, from int) string {
	var parts []string
	for _, s := range spans {
		s.On -= from
		if s.Off >= 0 {
			s.Off -= from
		}
		parts = append(parts, s.String())
	}
	return strings.Join(parts, ", ")
}
