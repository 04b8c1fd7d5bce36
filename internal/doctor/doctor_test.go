package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"

	"acklast/internal/doctor"
)

func TestAHealthyStackIsOK(t *testing.T) {
	checks := healthy(t).examine()
	for name, c := range checks {
		if c.Result != doctor.OK {
			t.Errorf("%s is %s: %s", name, c.Result, c.Todo)
		}
	}
	if want := 20 + len(doctor.CommandNames()); len(checks) < want {
		t.Errorf("%d checks, want at least %d", len(checks), want)
	}
}

// Each fault makes exactly the findings that name it.
func TestAFaultIsFound(t *testing.T) {
	mapping := func(f *fake, i int) map[string]any {
		return f.lambda["ListEventSourceMappings"]["EventSourceMappings"].([]map[string]any)[i]
	}
	source := func(f *fake) map[string]any {
		for i := range 2 {
			if m := mapping(f, i); m["UUID"] == "source" {
				return m
			}
		}
		return nil
	}
	for name, tt := range map[string]struct {
		fault func(*fake)
		found []string
		todo  string
	}{
		"visibility":     {func(f *fake) { f.queues["shop-source"]["VisibilityTimeout"] = "179" }, []string{"visibility of shop-source"}, "6 × the worker's timeout"},
		"lane retention": {func(f *fake) { f.queues["shop-recovery"]["MessageRetentionPeriod"] = "60" }, []string{"retention of shop-recovery"}, "deploy"},
		"DLQ retention":  {func(f *fake) { f.queues["shop-dlq"]["MessageRetentionPeriod"] = "345600" }, []string{"retention of shop-dlq"}, "delete isolated jobs"},
		"no policy":      {func(f *fake) { delete(f.queues["shop-source"], "RedrivePolicy") }, []string{"redrive policy of shop-source"}, "deploy"},
		"few receives": {func(f *fake) {
			f.queues["shop-source"]["RedrivePolicy"] = strings.Replace(f.queues["shop-source"]["RedrivePolicy"], "20", "3", 1)
		}, []string{"redrive policy of shop-source"}, "want 20 receives"},
		"another DLQ": {func(f *fake) {
			f.queues["shop-source"]["RedrivePolicy"] = strings.Replace(f.queues["shop-source"]["RedrivePolicy"], "shop-dlq", "old-dlq", 1)
		}, []string{"redrive policy of shop-source"}, "shop-dlq"},
		"whole batches": {func(f *fake) { delete(source(f), "FunctionResponseTypes") }, []string{"partial responses of shop-source"}, "ReportBatchItemFailures"},
		"paused":        {func(f *fake) { source(f)["State"] = "Disabled" }, []string{"mapping of shop-source"}, "acklast resume"},
		"no cap":        {func(f *fake) { delete(source(f), "ScalingConfig") }, []string{"concurrency cap of shop-source"}, "starve"},
		"another function": {func(f *fake) {
			source(f)["FunctionArn"] = "arn:aws:lambda:eu-central-1:123456789012:function:shop-worker2"
		}, []string{"mapping of shop-source"}, "nothing takes"},
		"recursion": {func(f *fake) { f.lambda["GetFunctionRecursionConfig"]["RecursiveLoop"] = "Terminate" }, []string{"recursive loops of the worker"}, "--recursive-loop Allow"},
		"small account": {func(f *fake) {
			f.lambda["GetAccountSettings"]["AccountLimit"] = map[string]int{"ConcurrentExecutions": 56, "UnreservedConcurrentExecutions": 56}
		},
			[]string{"concurrency quota of the account", "concurrency that reservations leave"}, "57"},
		"reserved": {func(f *fake) {
			f.lambda["GetAccountSettings"]["AccountLimit"] = map[string]int{"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 56}
		},
			[]string{"concurrency that reservations leave"}, "reserve"},
		"no alarm": {func(f *fake) { f.alarms = 0 }, []string{"alarms"}, "deploy"},
		"deleted alarm": {func(f *fake) {
			f.dashboard = strings.Replace(f.dashboard, `:shop-late"`, `:shop-late","arn:aws:cloudwatch:eu-central-1:123456789012:alarm:shop-dlq-arrivals"`, 1)
		}, []string{"alarms of the dashboard"}, "do not exist: shop-dlq-arrivals. "},
		"silent alarm": {func(f *fake) { delete(f.alarm, "AlarmActions") }, []string{"alarms' actions"}, "alarmEmail"},
		"alarm off":    {func(f *fake) { f.alarm["ActionsEnabled"] = cbor.Bool(false) }, []string{"alarms' actions"}, "enable"},
		"unconfirmed":  {func(f *fake) { f.subscription = "PendingConfirmation" }, []string{"subscriptions of alarms"}, "confirmation"},
		"clock":        {func(f *fake) { f.late = 2 * time.Minute }, []string{"clock of this machine"}, "NTP"},
		"timeout":      {func(f *fake) { f.lambda["shop-worker"]["Timeout"] = 20 }, []string{"timeout of shop-worker"}, "30s"},
		"variable": {func(f *fake) {
			f.lambda["shop-worker"]["Environment"] = map[string]any{"Variables": map[string]string{"ACKLAST_MAX_ATTEMPTS": "3"}}
		}, []string{"variables of shop-worker"}, `ACKLAST_MAX_ATTEMPTS is "3", not "10"`},
		"not a canceller": {func(f *fake) { f.denied["dynamodb:UpdateItem"] = true }, []string{"permissions for cancel", "permissions for redrive stop"}, "dynamodb:UpdateItem on arn:aws:dynamodb:eu-central-1:123456789012:table/shop-"},
		"no queue":        {func(f *fake) { f.fails["GetQueueUrl"] = "QueueDoesNotExist" }, []string{"visibility of shop-source", "mapping of shop-source"}, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			tt.fault(f)
			checks := f.examine()
			for _, found := range tt.found {
				c := checks[found]
				if c.Result != doctor.Finding {
					t.Errorf("%s is %q, want a finding", found, c.Result)
				}
				if !strings.Contains(c.Todo, tt.todo) {
					t.Errorf("%s says %q, want %q", found, c.Todo, tt.todo)
				}
			}
			for other, c := range checks {
				if name != "no queue" && c.Result != doctor.OK && !slices.Contains(tt.found, other) {
					t.Errorf("%s is %s, too: %s", other, c.Result, c.Todo)
				}
			}
		})
	}
}

// A call that fails makes its checks "cannot tell", whatever the error.
func TestAFailedCallIsNeverOK(t *testing.T) {
	for operation, names := range map[string][]string{
		"GetQueueUrl":                {"visibility of shop-source", "retention of shop-dlq", "partial responses of shop-source"},
		"GetQueueAttributes":         {"visibility of shop-recovery", "redrive policy of shop-source", "retention of shop-dlq"},
		"ListEventSourceMappings":    {"mapping of shop-source", "partial responses of shop-recovery", "concurrency cap of shop-source"},
		"GetFunctionRecursionConfig": {"recursive loops of the worker"},
		"GetAccountSettings":         {"concurrency quota of the account", "concurrency that reservations leave"},
		"GetFunctionConfiguration":   {"timeout of shop-worker", "memory of shop-redrive", "variables of shop-worker"},
		"DescribeAlarms":             {"alarms", "alarms' actions"},
		"GetDashboard":               {"alarms of the dashboard"},
		"ListSubscriptionsByTopic":   {"subscriptions of alarms"},
		"GetCallerIdentity":          {"clock of this machine", "permissions for status"},
		"SimulatePrincipalPolicy":    {"permissions for send", "permissions for decide"},
	} {
		for _, code := range []string{"AccessDeniedException", "AccessDenied", "InternalFailure"} {
			t.Run(operation+" "+code, func(t *testing.T) {
				f := healthy(t)
				f.fails[operation] = code
				checks := f.examine()
				for _, name := range names {
					if c := checks[name]; c.Result != doctor.CannotTell {
						t.Errorf("%s is %q, want %q", name, c.Result, doctor.CannotTell)
					}
					if c := checks[name]; code != "InternalFailure" && !strings.Contains(c.Todo, "you may not call") {
						t.Errorf("%s says %q, want the missing permission", name, c.Todo)
					}
				}
			})
		}
	}
}

// An answer without the value in question is no ok either.
func TestAnEmptyAnswerIsNeverOK(t *testing.T) {
	f := healthy(t)
	for name := range f.queues {
		f.queues[name] = nil
	}
	for name := range f.lambda {
		f.lambda[name] = map[string]any{}
	}
	f.alarms, f.caller = 0, ""
	for name, c := range f.examine() {
		if c.Result == doctor.OK && name != "clock of this machine" {
			t.Errorf("%s is ok: %s", name, c.Found)
		}
	}
}

// A dashboard that tells of no alarm says nothing about the alarms.
func TestADashboardWithoutAlarmsIsNeverOK(t *testing.T) {
	for _, body := range []string{"", "x", "{}", `{"widgets":[]}`} {
		f := healthy(t)
		f.dashboard = body
		if c := f.examine()["alarms of the dashboard"]; c.Result != doctor.CannotTell {
			t.Errorf("%q: %q, want %q", body, c.Result, doctor.CannotTell)
		}
	}
}

func TestWhoCannotBeSimulated(t *testing.T) {
	for _, caller := range []string{"arn:aws:iam::123456789012:root", "arn:aws:sts::123456789012:federated-user/ann"} {
		f := healthy(t)
		f.caller = caller
		if c := f.examine()["permissions for status"]; c.Result != doctor.CannotTell {
			t.Errorf("%s: %q, want %q", caller, c.Result, doctor.CannotTell)
		}
	}
}

// Whether deployments are checked shows in the alarm that CodeDeploy watches.
func TestACheckedDeploymentShowsInItsAlarm(t *testing.T) {
	for _, c := range []struct {
		settings, alarm string
		want            doctor.Result
	}{
		{`{"checkedDeployment": true}`, "shop-new-version-errors", doctor.OK},
		{`{"checkedDeployment": true}`, "shop-late", doctor.Finding},
		{`{"checkedDeployment": false}`, "shop-late", doctor.OK},
		{`{"checkedDeployment": false}`, "shop-new-version-errors", doctor.Finding},
		{`{}`, "shop-late", ""},
	} {
		f := healthy(t)
		f.settings = c.settings
		f.alarm["AlarmName"] = cbor.String(c.alarm)
		if got := f.examine()["checked deployment"]; got.Result != c.want {
			t.Errorf("%s with the alarm %s: %q (%s), want %q", c.settings, c.alarm, got.Result, got.Found, c.want)
		}
	}
}

func TestASettingsFileIsRead(t *testing.T) {
	w, err := doctor.ReadSettings([]byte(`{"batchSize": 5, "dlqRetention": "10d", "workerTimeout": "20s", "alarmEmail": "", "checkedDeployment": true, "vpc": "vpc-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if w.Settings.BatchSize != 5 {
		t.Errorf("batchSize = %d, want 5", w.Settings.BatchSize)
	}
	if w.Settings.DLQRetention != 240*time.Hour {
		t.Errorf("dlqRetention = %v, want 240h", w.Settings.DLQRetention)
	}
	if w.Settings.WorkerTimeout != 20*time.Second {
		t.Errorf("workerTimeout = %v, want 20s", w.Settings.WorkerTimeout)
	}
	if w.Checked == nil || !*w.Checked {
		t.Error("checkedDeployment was not read")
	}
	if !slices.Equal(w.Unread, []string{"vpc"}) {
		t.Errorf("unread %q, want vpc alone", w.Unread)
	}
	for _, wrong := range []string{`[]`, `{"batchSize": "many"}`, `{"workerTimeout": 30}`} {
		if _, err := doctor.ReadSettings([]byte(wrong)); err == nil {
			t.Errorf("%s was read", wrong)
		}
	}
}
