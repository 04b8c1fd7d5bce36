package stack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

// series names one metric: namespace, dimensions, name and, in an alarm, the statistic.
func (tm template) series(m map[string]any, dimensions any) string {
	var dims []string
	for _, one := range dimensions.([]any) {
		d := tm.resolve(one).(map[string]any)
		dims = append(dims, fmt.Sprint(d["Name"], "=", d["Value"]))
	}
	slices.Sort(dims)
	return fmt.Sprint(m["Namespace"], " ", strings.Join(dims, ","), " ", m["MetricName"])
}

// watched says what an alarm looks at, in one line.
func (tm template) watched(p map[string]any) (line string, metrics []string) {
	if p["MetricName"] != nil {
		stat := p["Statistic"]
		if stat == nil {
			stat = p["ExtendedStatistic"]
		}
		one := tm.series(p, p["Dimensions"])
		return fmt.Sprint(one, " ", stat, " ", p["Period"]), []string{one}
	}
	var parts []string
	for _, q := range p["Metrics"].([]any) {
		query := q.(map[string]any)
		if e := query["Expression"]; e != nil {
			line = fmt.Sprint(e)
			continue
		}
		stat := query["MetricStat"].(map[string]any)
		metric := stat["Metric"].(map[string]any)
		one := tm.series(metric, metric["Dimensions"])
		metrics = append(metrics, one)
		parts = append(parts, fmt.Sprint(query["Id"], " = ", one, " ", stat["Stat"], " ", stat["Period"]))
	}
	slices.Sort(parts)
	return line + "; " + strings.Join(parts, "; "), metrics
}

func TestAlarms(t *testing.T) {
	tm := standardTemplate(t)
	want := map[string]string{
		"dlq-depth": "visible + in_flight; in_flight = AWS/SQS QueueName=acklast-dlq ApproximateNumberOfMessagesNotVisible Maximum 60; " +
			"visible = AWS/SQS QueueName=acklast-dlq ApproximateNumberOfMessagesVisible Maximum 60 ≥ 1, 1 of 1",
		"dlq-age":        "acklast stack=acklast CensusOldestAge Maximum 3600 ≥ 604800, 1 of 24",
		"dlq-deleted":    "acklast stack=acklast CensusDeleted Maximum 3600 ≥ 1, 1 of 24",
		"dlq-unrecorded": "acklast stack=acklast CensusUnrecorded Maximum 3600 ≥ 1, 1 of 24",
		"dlq-missing":    "acklast stack=acklast CensusMissing Maximum 3600 ≥ 1, 1 of 24",
		"census-failed": "FILL(refused, 0) + FILL(dropped, 0); dropped = AWS/Lambda FunctionName=acklast-redrive AsyncEventsDropped Sum 60; " +
			"refused = AWS/Events RuleName=<Census06374A65> FailedInvocations Sum 60 ≥ 1, 1 of 1",
		"slow": "acklast stack=acklast TerminalLatency p50 60 ≥ 300000, 3 of 5",
		"late": "acklast stack=acklast Lateness SampleCount 60 ≥ 1, 1 of 5",
		"failing": "IF(retried >= 5, 100 * retried / (retried + acknowledged), 0); acknowledged = acklast stack=acklast Acknowledged Sum 60; " +
			"retried = acklast stack=acklast Retried Sum 60 ≥ 50, 10 of 15",
		"worker-errors":    "AWS/Lambda FunctionName=acklast-worker Errors Sum 60 ≥ 1, 3 of 5",
		"worker-throttles": "AWS/Lambda FunctionName=acklast-worker Throttles Sum 60 ≥ 1, 3 of 5",
		"redrive-errors":   "AWS/Lambda FunctionName=acklast-redrive Errors Sum 60 ≥ 1, 1 of 1",
		"redrive-stopped":  "acklast stack=acklast RedriveStopped Sum 60 ≥ 1, 1 of 1",
	}
	for _, lane := range []string{"source", "recovery"} {
		q := "AWS/SQS QueueName=acklast-" + lane + " "
		want[lane+"-waiting"] = "IF(ready > 0, oldest, 0); oldest = " + q + "ApproximateAgeOfOldestMessage Maximum 60; " +
			"ready = " + q + "ApproximateNumberOfMessagesVisible Maximum 60 ≥ 1200, 3 of 3"
		want[lane+"-stalled"] = "IF(ready > 0 AND FILL(acknowledged, 0) == 0, 1, 0); acknowledged = " + q + "NumberOfMessagesDeleted Sum 60; " +
			"ready = " + q + "ApproximateNumberOfMessagesVisible Minimum 60 ≥ 1, 5 of 5"
		want[lane+"-age"] = q + "ApproximateAgeOfOldestMessage Maximum 60 ≥ 172800, 5 of 5"
	}
	doc, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/deploy.md does not tell of %s", name)
		}
	}
	got := map[string]string{}
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		p := tm.Resources[id].Properties
		line, _ := tm.watched(p)
		got[strings.TrimPrefix(tm.text(p["AlarmName"]), "acklast-")] = fmt.Sprintf("%s ≥ %v, %v of %v",
			line, json.Number(fmt.Sprintf("%.0f", p["Threshold"])), p["DatapointsToAlarm"], p["EvaluationPeriods"])
		if p["ComparisonOperator"] != "GreaterThanOrEqualToThreshold" || p["TreatMissingData"] != "notBreaching" {
			t.Errorf("%s: %v, %v", id, p["ComparisonOperator"], p["TreatMissingData"])
		}
		if description := tm.text(p["AlarmDescription"]); len(description) < 80 || len(description) > 1024 {
			t.Errorf("%s: the description does not say what to do: %q", id, description)
		}
		if p["AlarmActions"] != nil {
			t.Errorf("%s tells somebody nobody chose", id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if strings.Contains(got[name], "NumberOfMessagesSent") {
			t.Errorf("%s: SQS does not count there what it moves itself", name)
		}
		if got[name] != want[name] {
			t.Errorf("%s:\n got %s\nwant %s", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", slices.Sorted(maps.Keys(got)))
	}
}

// emitted is every metric that the worker's recorder writes when it sees everything, and the lines.
func emitted(t *testing.T) (metrics map[string]bool, lines []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	r := telemetry.NewRecorder(&out, "acklast", time.Now)
	for _, class := range append([]job.Class{""}, telemetry.Classes...) {
		for _, outcome := range []job.Outcome{job.Acknowledged, job.Retried, job.Deferred, job.Isolated, job.Left} {
			r.Observe(telemetry.Observation{Kind: "reservation.expire", Lane: job.Source, Outcome: outcome, Class: class,
				Duplicate: true, Final: true, TerminalLatency: time.Second, Lateness: time.Second})
		}
	}
	r.Conflict()
	r.BatchFailures(1)
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	redriven := telemetry.NewRedriveRecorder(&out, "acklast", time.Now)
	redriven.Redriven(1, 1, 1)
	redriven.Census(telemetry.Census{})
	metrics = map[string]bool{}
	for line := range bytes.Lines(out.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
		directive := m["_aws"].(map[string]any)["CloudWatchMetrics"].([]any)[0].(map[string]any)
		var dims []string
		for _, d := range directive["Dimensions"].([]any)[0].([]any) {
			dims = append(dims, fmt.Sprint(d, "=", m[d.(string)]))
		}
		slices.Sort(dims)
		for _, metric := range directive["Metrics"].([]any) {
			metrics[fmt.Sprint(directive["Namespace"], " ", strings.Join(dims, ","), " ", metric.(map[string]any)["Name"])] = true
		}
	}
	return metrics, lines
}

func TestMetricsOfOurOwnExist(t *testing.T) {
	tm := standardTemplate(t)
	written, _ := emitted(t)
	used := 0
	check := func(where, series string) {
		if strings.HasPrefix(series, telemetry.Namespace+" ") {
			used++
			if !written[series] {
				t.Errorf("%s: nobody writes %s", where, series)
			}
		}
	}
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		_, metrics := tm.watched(tm.Resources[id].Properties)
		for _, one := range metrics {
			check(id, one)
		}
	}
	for _, widget := range tm.widgets(t) {
		for _, one := range widget.series {
			check(widget.title, one)
		}
	}
	if used < 20 {
		t.Errorf("only %d uses found: this test looks at nothing", used)
	}
}

// Lambda drops log lines below the function's level, and with them any metric they carry. Metrics count as
// INFO, so no setting may raise the filter above it.
func TestMetricsPassTheLogFilter(t *testing.T) {
	_, lines := emitted(t)
	for _, line := range lines {
		if level, has := line["level"]; has {
			t.Errorf("a metric has the level %v", level)
		}
	}
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "INFO", slog.LevelError: "INFO",
	} {
		p := defaults()
		p.LogLevel = level
		tm := templateOf(t, p)
		for _, name := range []string{"acklast-worker", "acklast-redrive"} {
			f := tm.named(t, "AWS::Lambda::Function", "FunctionName", name)
			if got := fmt.Sprint(f["LoggingConfig"]); !strings.Contains(got, "ApplicationLogLevel:"+want) {
				t.Errorf("%s that logs from %s has %s, want the filter %s", name, level, got, want)
			}
		}
	}
}

type widget struct {
	title  string
	series []string // metrics and expressions
}

func (tm template) widgets(t *testing.T) []widget {
	t.Helper()
	body := tm.text(tm.Resources[tm.of("AWS::CloudWatch::Dashboard")[0]].Properties["DashboardBody"])
	var dashboard struct {
		Widgets []struct {
			Properties struct {
				Title   string
				Metrics [][]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &dashboard); err != nil {
		t.Fatalf("dashboard: %v", err)
	}
	var out []widget
	for _, w := range dashboard.Widgets {
		one := widget{title: w.Properties.Title}
		for _, m := range w.Properties.Metrics {
			if options, ok := m[0].(map[string]any); ok {
				one.series = append(one.series, fmt.Sprint(options["expression"]))
				continue
			}
			var dims, plain []string
			for _, v := range m {
				if s, ok := v.(string); ok {
					plain = append(plain, s)
				}
			}
			for i := 2; i+1 < len(plain); i += 2 {
				dims = append(dims, plain[i]+"="+plain[i+1])
			}
			slices.Sort(dims)
			one.series = append(one.series, plain[0]+" "+strings.Join(dims, ",")+" "+plain[1])
		}
		out = append(out, one)
	}
	return out
}

func TestDashboard(t *testing.T) {
	tm := standardTemplate(t)
	// Dashboards are global: the name must differ in each region.
	if got := tm.text(tm.Resources[tm.of("AWS::CloudWatch::Dashboard")[0]].Properties["DashboardName"]); got != "acklast-"+testRegion {
		t.Errorf("name is %q", got)
	}
	shown := map[string][]string{}
	for _, w := range tm.widgets(t) {
		shown[w.title] = w.series
	}
	contains := func(title string, wanted ...string) {
		for _, one := range wanted {
			if !slices.ContainsFunc(shown[title], func(s string) bool { return strings.Contains(s, one) }) {
				t.Errorf("%q does not show %s: %v", title, one, shown[title])
			}
		}
	}
	for title, queue := range map[string]string{"Source lane": "acklast-source", "Recovery lane": "acklast-recovery"} {
		for _, state := range []string{"Delayed", "Visible", "NotVisible"} {
			contains(title, "AWS/SQS QueueName="+queue+" ApproximateNumberOfMessages"+state)
		}
	}
	contains("Isolated (DLQ)", "visible + in_flight", "acklast daysLeft=0,stack=acklast CensusJobs")
	contains("Outcomes", "Acknowledged", "Retried", "Deferred", "Isolated", "Left")
	contains("Isolated by class", "transient", "throttled", "unknown", "invalid", "rejected", "ambiguous", "crashed")
	contains("Due to final (ms)", "acklast stack=acklast TerminalLatency")
	contains("Duplicates and conflicts", "Duplicates", "LedgerConflicts")
	contains("Redrive", "AWS/SQS QueueName=acklast-dlq NumberOfMessagesDeleted")
	contains("Retries by class", `SEARCH('{acklast,stack,kind,lane,class} MetricName="Retried" stack="acklast"'`)
}

// A topic's own policy replaces the one with which SNS lets the account's alarms publish.
func TestAlarmsMayPublish(t *testing.T) {
	p := defaults()
	p.AlarmEmail = "ops@example.com"
	tm := templateOf(t, p)
	// may are the ARNs, by topic, of the alarms that CloudWatch may publish for.
	may := map[string][]string{}
	for _, id := range tm.of("AWS::SNS::TopicPolicy") {
		for _, one := range tm.resolve(tm.Resources[id].Properties["PolicyDocument"]).(map[string]any)["Statement"].([]any) {
			s := one.(map[string]any)
			conditions, _ := s["Condition"].(map[string]any)
			if s["Effect"] == "Deny" && fmt.Sprint(conditions) != "map[Bool:map[aws:SecureTransport:false]]" {
				t.Errorf("%s denies on other terms than plain HTTP: %v", id, s)
			}
			if s["Effect"] != "Allow" || fmt.Sprint(s["Principal"]) != "map[Service:cloudwatch.amazonaws.com]" || s["Action"] != "sns:Publish" {
				continue
			}
			if got := fmt.Sprint(conditions["StringEquals"]); got != "map[aws:SourceAccount:"+testAccount+"]" {
				t.Errorf("%s lets alarms of %s publish", id, got)
			}
			topic := fmt.Sprint(s["Resource"])
			may[topic] = append(may[topic], fmt.Sprint(conditions["ArnLike"].(map[string]any)["aws:SourceArn"]))
		}
	}
	told := 0
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		for _, list := range []string{"AlarmActions", "OKActions"} {
			for _, action := range tm.Resources[id].Properties[list].([]any) {
				told++
				alarm := tm.att(id, "Arn")
				if !slices.ContainsFunc(may[tm.text(action)], func(pattern string) bool {
					prefix, ok := strings.CutSuffix(pattern, "*")
					return ok && strings.HasPrefix(alarm, prefix)
				}) {
					t.Errorf("%s may not publish to %s, which takes messages of %v", alarm, tm.text(action), may[tm.text(action)])
				}
			}
		}
	}
	if want := 2 * len(tm.of("AWS::CloudWatch::Alarm")); told != want {
		t.Errorf("%d actions tell somebody, want %d", told, want)
	}
}
