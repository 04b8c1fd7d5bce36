package stack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
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

// described is what an alarm's message says.
var described = regexp.MustCompile(`^\[(page|ticket)\] (.+) Runbook: (\S+)#(\S+)$`)

// headings are a page's headings as GitHub's anchors.
func headings(t *testing.T, file string) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		if level, title, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Trim(level, "#") == "" && level != "" {
			all[strings.ReplaceAll(strings.ToLower(title), " ", "-")] = true
		}
	}
	return all
}

func TestAlarms(t *testing.T) {
	tm := templateOf(t, checked())
	doc, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	known := headings(t, "../../docs/runbook.md")
	used := map[string]bool{}
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		p := tm.Resources[id].Properties
		name := strings.TrimPrefix(tm.text(p["AlarmName"]), "acklast-")
		line, metrics := tm.watched(p)
		if p["ComparisonOperator"] != "GreaterThanOrEqualToThreshold" || p["TreatMissingData"] != "notBreaching" {
			t.Errorf("%s: %v, %v", name, p["ComparisonOperator"], p["TreatMissingData"])
		}
		if strings.Contains(line, "NumberOfMessagesSent") {
			t.Errorf("%s: SQS does not count there what it moves itself", name)
		}
		if len(metrics) > 10 {
			t.Errorf("%s looks at %d metrics, but CloudWatch allows 10", name, len(metrics))
		}
		if p["AlarmActions"] != nil {
			t.Errorf("%s tells somebody nobody chose", name)
		}
		description := tm.text(p["AlarmDescription"])
		parts := described.FindStringSubmatch(description)
		if parts == nil || len(parts[2]) < 80 || len(description) > 1024 {
			t.Errorf("%s: the description does not say how urgent it is, what to do, and where more is told: %q", name, description)
			continue
		}
		if parts[3] != "docs/runbook.md" || !known[parts[4]] {
			t.Errorf("%s: the runbook has no section %s#%s", name, parts[3], parts[4])
		}
		used[parts[4]] = true
		if !documented(string(doc), name, parts[1]) {
			t.Errorf("docs/deploy.md does not list %s as a %s", name, parts[1])
		}
	}
	// What the runbook tells of alarms is about alarms that exist.
	raw, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alarms, _ := strings.Cut(string(raw), "## The alarms\n")
	alarms, _, _ = strings.Cut(alarms, "\n## ")
	for line := range strings.Lines(alarms) {
		if section, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok && !used[section] {
			t.Errorf("docs/runbook.md has a section %s, to which no alarm points", section)
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d sections are used", len(used))
	}
}

// documented says whether the documentation lists an alarm with its severity. Those of the tables share a line.
func documented(doc, name, severity string) bool {
	if strings.HasSuffix(name, "-throttles") && name != "worker-throttles" {
		name = "ledger-throttles"
	}
	for line := range strings.Lines(doc) {
		if strings.HasPrefix(line, "| `") && strings.Contains(line, "| "+severity+" |") && strings.Contains(line, "`"+name+"`") {
			return true
		}
	}
	return false
}

// The page that the messages point to may be a team's own.
func TestAlarmsPointToTheChosenRunbook(t *testing.T) {
	p := defaults()
	p.Runbook = "https://wiki.example.com/jobs"
	tm := templateOf(t, p)
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		if d := tm.text(tm.Resources[id].Properties["AlarmDescription"]); !strings.Contains(d, " Runbook: https://wiki.example.com/jobs#") {
			t.Errorf("%s says %q", id, d)
		}
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
				Duplicate: true, Scheduled: true, Cancelled: true, Final: true, TerminalLatency: time.Second, Lateness: time.Second})
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

// quiet are the stack's metrics that no alarm looks at, each with the reason.
var quiet = map[string]string{
	telemetry.MetricDeferred:        "waiting is no fault; a wait that is one shows as late, slow or stalled",
	telemetry.MetricDuplicates:      "SQS delivers twice, and the ledger absorbs it",
	telemetry.MetricLedgerConflicts: "conflicts are tried again; what lasts is isolated by contention",
	telemetry.MetricBatchFailures:   "Left counts the same deliveries",
	telemetry.MetricAllLeft:         "Left counts the deliveries, and Lambda's Errors the invocations",
	telemetry.MetricScheduled:       "a wait is no fault; schedule-undelivered and schedule-lost watch how it ends",
	telemetry.MetricCancelled:       "a cancelled job's delivery does nothing, as it should",
	telemetry.MetricRedriven:        "a redrive at work",
	telemetry.MetricRedriveFailed:   "a run that cannot send stops, which RedriveStopped counts",
	telemetry.MetricCensusJobs:      "dlq-depth says that jobs are isolated",
}

func TestEveryMetricHasAnAlarmOrAReason(t *testing.T) {
	tm := standardTemplate(t)
	watched := map[string]bool{}
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		_, metrics := tm.watched(tm.Resources[id].Properties)
		for _, one := range metrics {
			watched[one] = true
		}
	}
	written, _ := emitted(t)
	for series := range written {
		name, ofStack := strings.CutPrefix(series, telemetry.Namespace+" stack=acklast ")
		if !ofStack {
			continue
		}
		if _, listed := quiet[name]; listed == watched[series] {
			t.Errorf("%s has an alarm: %v, and is listed as one that needs none: %v", name, watched[series], listed)
		}
		delete(quiet, name)
	}
	for name := range quiet {
		t.Errorf("nobody writes %s", name)
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
	contains("Far ahead (EventBridge Scheduler)", "acklast stack=acklast Scheduled", "acklast stack=acklast Cancelled",
		"AWS/Scheduler ScheduleGroup=acklast-scheduled InvocationAttemptCount",
		"AWS/Scheduler ScheduleGroup=acklast-scheduled InvocationsSentToDeadLetterCount",
		"AWS/Scheduler ScheduleGroup=acklast-scheduled InvocationsFailedToBeSentToDeadLetterCount")
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
