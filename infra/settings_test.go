package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"acklast"
	"acklast/internal/kinds"
)

func TestSettingsDefaultToTopology(t *testing.T) {
	s, err := ParseSettings(map[string]any{"@aws-cdk/core:checkSecretUsage": true, "aws:cdk:bundling-stacks": []any{"**"}})
	if err != nil || !reflect.DeepEqual(s, DefaultSettings()) {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestSettingsReadEveryKind(t *testing.T) {
	// The command line gives strings, cdk.json may give numbers and booleans.
	s, err := ParseSettings(map[string]any{
		"acklast:stack": "orders", "acklast:batchSize": 20.0, "acklast:batchWindow": "5s",
		"acklast:laneVisibility": "4m", "acklast:laneRetention": "3d", "acklast:customerKey": true,
		"acklast:destroyData": "true", "acklast:logLevel": "debug", "acklast:alarmEmail": "ops@example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Stack != "orders" || s.Numbers.BatchSize != 20 || s.Numbers.BatchWindow != 5*time.Second ||
		s.Numbers.LaneRetention != 72*time.Hour || !s.CustomerKey || !s.DestroyData || s.LogLevel.String() != "DEBUG" {
		t.Errorf("got %+v", s)
	}
}

func TestSettingsSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		set  map[string]any
	}{
		{"lane visibility is 2m0s, below 6 × the worker timeout + the batch window = 3m0s: Lambda could", set("laneVisibility", "120s")},
		{"lane visibility is 3m0s, below 6 × the worker timeout + the batch window = 3m5s", set("batchWindow", "5s")},
		{"DLQ retention is 96h0m0s, not above the lane retention of 96h0m0s: a message moved by SQS keeps its age", map[string]any{"acklast:dlqRetention": "4d"}},
		{"ledger retention is 768h0m0s, not above DLQ retention + redrive window + lane retention + the 24h0m0s that Scheduler tries for = 792h0m0s: a copy could outlive", set("ledgerRetention", "32d")},
		{"source concurrency cap is 1, but an event source mapping allows 2 to 1000", set("sourceConcurrency", 1)},
		{"recovery concurrency cap is 1, but", set("recoveryConcurrency", "1")},
		{"worker reserved concurrency is 54, below the caps of both lanes together = 55: Lambda would throttle", set("workerReserved", 54)},
		{"batch size is 11 with a batch window of 0s, but Lambda requires a window", set("batchSize", 11)},
		{"maxReceiveCount is 4, below 5: throttled invocations alone", set("maxReceiveCount", 4)},
		{"redrive reserved concurrency is 1, below 2: while a run is going on, nobody could stop it", set("redriveReserved", 1)},
		{"redrive timeout is 20m0s, but Lambda allows", set("redriveTimeout", "20m")},
		{"log retention is 31 days, but CloudWatch accepts only", set("logRetention", "31d")},
		{"log level is INFO+1, but Lambda knows", set("logLevel", "INFO+1")},
		{`stack is "9lives", but a stack's name begins with a letter`, set("stack", "9lives")},
		{`alarm e-mail is "ops", which is no address`, set("alarmEmail", "ops")},
		{`alarm topic is "ops", which is no ARN`, set("alarmTopicArn", "ops")},
		{`endpoint is "localhost:4566", want an address such as`, set("endpoint", "localhost:4566")},
		{"deletionProtection and destroyData exclude each other", map[string]any{"acklast:deletionProtection": "true", "acklast:destroyData": "true"}},
		{"maxReceiveCount is 5000, but SQS allows at most 1000", set("maxReceiveCount", 5000)},
		{"worker memory is 20480 MB, but Lambda allows 128 to 10240 MB", set("workerMemory", 20480)},
		{"worker reserved concurrency is 100000, above 2000", set("workerReserved", 100_000)},
		{"redrive reserved concurrency is 100000, above 100", set("redriveReserved", 100_000)},
		{"stalled limit is 48h0m0s, but a CloudWatch alarm looks back at most 24h0m0s", set("stalled", "48h")},
		{"attempt time is 2h0m0s, not between 0 and start margin - handover margin = 6s", set("attemptTime", "2h")},
		{`tags has "team", want name=value`, set("tags", "team")},
		{`vpc is "vpc-0a1b2c3d" and subnets are "", want both or neither`, set("vpc", "vpc-0a1b2c3d")},
		{`subnets has "public", want the id of a subnet`, map[string]any{"acklast:vpc": "vpc-0a1b2c3d", "acklast:subnets": "public"}},
		{`permissions boundary is "bound", which is no ARN of an IAM policy`, set("permissionsBoundaryArn", "bound")},
		{"environment has ACKLAST_STACK, which New sets itself", set("environment", "ACKLAST_STACK=x")},
		{"rate is 501, not between 1 and the maximum of 500", set("redriveRate", 501)},
		{"approval above is -1, but a plan cannot have fewer than 0 jobs", set("redriveApprovalAbove", -1)},
		{"backlog limit is 0, below 1: a run would wait for ever", set("redriveBacklog", 0)},
		{"backlog limit is -5, below 1", set("redriveBacklog", "-5")},
		{"canary wait is -5m0s, not above 0", set("redriveCanaryWait", "-5m")},
		{"a scan of 120001 messages is above SQS's in-flight limit of about 120000", set("redriveScan", 120_001)},
		{`environment has "1ST", but Lambda wants a name of at least two letters`, set("environment", "1ST=x")},
		{`environment has "A.B", but Lambda wants a name`, set("environment", "A.B=x")},
		{`environment has "A", but Lambda wants a name`, set("environment", "A=x")},
		{`environment has "_HANDLER", but Lambda wants a name`, set("environment", "_HANDLER=x")},
		{"environment has AWS_REGION, which Lambda sets itself", set("environment", "AWS_REGION=eu-west-1")},
		{"environment has AWS_ACCESS_KEY, which Lambda sets itself", set("environment", "AWS_ACCESS_KEY=x")},
		{"environment has LAMBDA_TASK_ROOT, which Lambda sets itself", set("environment", "LAMBDA_TASK_ROOT=/")},
		{`tags has "aws:team", but AWS keeps that prefix to itself`, set("tags", "aws:team=a")},
		{`tags has "` + strings.Repeat("k", 129) + `", but a tag's name has at most 128 characters and its value 256`, set("tags", strings.Repeat("k", 129)+"=a")},
		{`tags has "team", but a tag's name has at most 128 characters and its value 256`, set("tags", "team="+strings.Repeat("v", 257))},
		{`tags has "team", but a tag has letters, digits, spaces and _.:/=+-@ only`, set("tags", "team=a#b")},
		{"there are 51 tags, but AWS allows 50", set("tags", many(51, "t%02d=x"))},
		{"subnets are 17, but Lambda allows 16", map[string]any{"acklast:vpc": "vpc-0a1b2c3d", "acklast:subnets": many(17, "subnet-0a1b2c%02d")}},
		{"senders make a queue policy of 8244 bytes, but SQS allows 8192", map[string]any{"acklast:stack": "orders",
			"acklast:senders": many(117, "arn:aws:sns:eu-central-1:123456789012:a-topic-of-ours-%03d")}},
		{"checkedDeployment needs two more", map[string]any{"acklast:accountConcurrency": 10, "acklast:sourceConcurrency": 6, "acklast:recoveryConcurrency": 2, "acklast:checkedDeployment": true}},
		{"worker reserved concurrency is 55, but checkedDeployment", map[string]any{"acklast:workerReserved": 55, "acklast:checkedDeployment": true}},
		{`acklast:tracing is "maybe": want true or false`, set("tracing", "maybe")},
		{`paused has "dlq", want source or recovery`, set("paused", "source,dlq")},
		{`senders has "arn:aws:sns:*:123456789012:*", want the ARN of an SNS topic`, set("senders", "arn:aws:s3:::uploads,arn:aws:sns:*:123456789012:*")},
		{"acklast:batchsize is not a setting", set("batchsize", 5)},
		{`acklast:batchSize is "ten": want a whole number`, set("batchSize", "ten")},
		{`acklast:laneVisibility is "180": want a duration such as 30s`, set("laneVisibility", 180)},
		{`acklast:laneRetention is "xd": want a duration`, set("laneRetention", "xd")},
		{`acklast:customerKey is "maybe": want true, false or none`, set("customerKey", "maybe")},
	} {
		_, err := ParseSettings(c.set)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v:\n got %v\nwant %s", c.set, err, c.want)
		} else if n := strings.Count(err.Error(), "\n"); n != 1 {
			t.Errorf("%v also reports something else: %v", c.set, err)
		}
	}
}

// What lies in another region is out of reach for the functions, or for the queue.
func TestSettingsLieInTheRegion(t *testing.T) {
	for want, name := range map[string]string{
		`alarmTopicArn is "arn:aws:sns:eu-central-1:123456789012:own", but alarms of us-east-1`:                                                "alarmTopicArn",
		`providerSecretArn is "arn:aws:secretsmanager:eu-central-1:123456789012:secret:own-AbCdEf", but the worker reads secrets of us-east-1`: "providerSecretArn",
		`senders has "arn:aws:events:eu-central-1:123456789012:rule/own", but a rule reaches queues of its own region`:                         "senders",
	} {
		arn := strings.Split(want, `"`)[1]
		s, err := ParseSettings(map[string]any{Prefix + name: arn})
		if name == "providerSecretArn" {
			if !kinds.Registered("reminder.send") {
				continue // it is that kind's setting
			}
			s, err = ParseSettings(map[string]any{
				Prefix + name: arn, Prefix + "provider": "http", Prefix + "providerUrl": "https://p.example", Prefix + "providerRefusals": "none",
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, region := range []string{"", "eu-central-1"} {
			if err := s.checkRegion(region); err != nil {
				t.Errorf("in %q: %v", region, err)
			}
		}
		if err := s.checkRegion("us-east-1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// SNS delivers to a queue of another region, and a bucket's ARN names none.
	s, err := ParseSettings(set("senders", "arn:aws:sns:eu-central-1:123456789012:own,arn:aws:s3:::own"))
	if err == nil {
		err = s.checkRegion("us-east-1")
	}
	if err != nil {
		t.Error(err)
	}
}

// SNS delivers from a FIFO topic to standard queues too. An alarm cannot use one.
func TestFIFOTopicsMaySend(t *testing.T) {
	const arn = "arn:aws:sns:eu-central-1:123456789012:own.fifo"
	if _, err := ParseSettings(set("senders", arn)); err != nil {
		t.Error(err)
	}
	if _, err := ParseSettings(set("alarmTopicArn", arn)); err == nil {
		t.Error("an alarm may tell a FIFO topic")
	}
}

// A key is dropped only by a word of its own: false follows true, and messages still wait under the key.
func TestCustomerKeyIsKeptUntilToldOtherwise(t *testing.T) {
	for value, want := range map[any][2]bool{true: {true, false}, "false": {false, true}, "none": {false, false}} {
		s, err := ParseSettings(set("customerKey", value))
		if err != nil {
			t.Fatal(err)
		}
		if p := s.props(); p.CustomerKey != want[0] || p.KeepKey != want[1] {
			t.Errorf("%v: uses the key %v, keeps it %v", value, p.CustomerKey, p.KeepKey)
		}
	}
}

func TestNumbersOfTheRedriveAreSettings(t *testing.T) {
	s, err := ParseSettings(map[string]any{"acklast:redriveApprovalAbove": 0.0, "acklast:redriveRate": "20", "acklast:redriveTimeout": "2m"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.props().Redrive
	if r.ApprovalAbove != 0 || r.Rate != 20 {
		t.Errorf("approval above %d, rate %d, want 0 and 20", r.ApprovalAbove, r.Rate)
	}
	if r.Timeout != 2*time.Minute || r.ScanTime != time.Minute {
		t.Errorf("timeout is %v and scan time %v, want 2m and half of it", r.Timeout, r.ScanTime)
	}
}

func TestPausedNamesLanes(t *testing.T) {
	for paused, want := range map[string][2]bool{"": {}, "source": {true, false}, "recovery, source": {true, true}} {
		s, err := ParseSettings(set("paused", paused))
		if err != nil {
			t.Fatal(err)
		}
		if p := s.props(); p.PauseSource != want[0] || p.PauseRecovery != want[1] {
			t.Errorf("%q pauses source %v, recovery %v", paused, p.PauseSource, p.PauseRecovery)
		}
	}
}

func TestSettingsReportAllAtOnce(t *testing.T) {
	_, err := ParseSettings(map[string]any{"acklast:batchSize": "x", "acklast:nonsense": 1, "acklast:stalled": "y"})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("got %v", err)
	}
}

// A kind's setting reaches its variable, or its kind says what is wrong with it.
func TestSettingsOfKinds(t *testing.T) {
	for _, kind := range acklast.Describe(kinds.All()...) {
		for _, v := range kind.Environment {
			if v.Setting == "" {
				continue
			}
			s, err := ParseSettings(set(v.Setting, "none"))
			if err != nil && !strings.Contains(err.Error(), "kind "+kind.Name) {
				t.Errorf("%s is refused by another than its kind %s: %v", v.Setting, kind.Name, err)
			}
			if got := s.props().Environment[v.Name]; err == nil && got != "none" {
				t.Errorf("with %s the variable %s is %q", v.Setting, v.Name, got)
			}
		}
	}
}

// Two settings of one name would be told apart by nobody.
func TestSettingsHaveDifferentNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range allSettings() {
		if seen[s.name] {
			t.Errorf("there are two settings %s", s.name)
		}
		seen[s.name] = true
	}
}

// A kind's own test looks for those of the kind.
func TestSettingsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if !strings.Contains(string(doc), "| `"+s.name+"` |") {
			t.Errorf("docs/deploy.md has no line for %s", s.name)
		}
	}
}

func TestCommandLineIsPinnedAndNamesNoHost(t *testing.T) {
	manifest, err := os.ReadFile("../package.json")
	if err != nil {
		t.Fatal(err)
	}
	if loose := regexp.MustCompile(`"[~^><*]|latest`).Find(manifest); loose != nil {
		t.Errorf("package.json pins nothing with %s", loose)
	}
	lock, err := os.ReadFile("../package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	// Whoever installs has a registry of their own; .npmrc keeps ours out.
	if strings.Contains(string(lock), `"resolved"`) || !strings.Contains(string(lock), `"integrity"`) {
		t.Error("package-lock.json names where packages came from, or does not say what they are")
	}
}

// many is a list of n, each with a number of its own.
func many(n int, format string) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return all
}

func set(name string, value any) map[string]any { return map[string]any{Prefix + name: value} }
