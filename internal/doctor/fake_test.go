package doctor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/encoding/cbor"

	"acklast/internal/doctor"
	"acklast/internal/topology"
)

// fake answers as AWS documents it, for a stack that is as the template makes it. A test changes its fields.
type fake struct {
	t *testing.T
	// queues are the attributes of the queues by name; lambda are answers by operation.
	queues map[string]map[string]string
	lambda map[string]map[string]any
	// settings are those that the stack should have.
	settings string
	// alarm is one metric alarm, subscription the ARN of the topic's one.
	alarm  cbor.Map
	alarms int
	// dashboard is the body of the stack's dashboard.
	dashboard    string
	subscription string
	// caller is the caller's ARN, denied are actions that the simulation denies.
	caller string
	denied map[string]bool
	// fails are error codes by operation.
	fails map[string]string
	// late is how far the answers' Date is behind this machine's clock.
	late time.Duration
}

const topic = "arn:aws:sns:eu-central-1:123456789012:alarms"

func healthy(t *testing.T) *fake {
	lane := func() map[string]string {
		return map[string]string{"VisibilityTimeout": "180", "MessageRetentionPeriod": "345600",
			"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:123456789012:shop-dlq","maxReceiveCount":20}`}
	}
	mappings := []map[string]any{}
	for name, limit := range map[string]int{"source": 50, "recovery": 5} {
		mappings = append(mappings, map[string]any{
			"UUID": name, "State": "Enabled", "EventSourceArn": "arn:aws:sqs:eu-central-1:123456789012:shop-" + name,
			"FunctionArn":           "arn:aws:lambda:eu-central-1:123456789012:function:shop-worker:live",
			"FunctionResponseTypes": []string{"ReportBatchItemFailures"}, "ScalingConfig": map[string]int{"MaximumConcurrency": limit},
		})
	}
	return &fake{t: t,
		queues: map[string]map[string]string{"shop-source": lane(), "shop-recovery": lane(), "shop-dlq": {"MessageRetentionPeriod": "1209600"}},
		lambda: map[string]map[string]any{
			"ListEventSourceMappings":    {"EventSourceMappings": mappings},
			"GetFunctionRecursionConfig": {"RecursiveLoop": "Allow"},
			"GetAccountSettings":         {"AccountLimit": map[string]int{"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 1000}},
			"shop-worker":                {"Timeout": 30, "MemorySize": 256, "Environment": map[string]any{"Variables": map[string]string{"ACKLAST_MAX_ATTEMPTS": "10"}}},
			"shop-redrive":               {"Timeout": 900, "MemorySize": 256},
		},
		alarm:     cbor.Map{"AlarmName": cbor.String("shop-late"), "ActionsEnabled": cbor.Bool(true), "AlarmActions": cbor.List{cbor.String(topic)}},
		dashboard: `{"widgets":[{"type":"metric","properties":{"title":"t"}},{"type":"alarm","properties":{"alarms":["arn:aws:cloudwatch:eu-central-1:123456789012:alarm:shop-late"]}}]}`,
		alarms:    1, subscription: topic + ":1", caller: "arn:aws:sts::123456789012:assumed-role/Oncall/ann",
		denied: map[string]bool{}, fails: map[string]string{},
	}
}

func (f *fake) examine() map[string]doctor.Check {
	f.t.Helper()
	server := httptest.NewServer(f)
	f.t.Cleanup(server.Close)
	cfg := aws.Config{
		Region: "eu-central-1", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	}
	want, err := doctor.ReadSettings([]byte(f.settings))
	if err != nil {
		f.t.Fatal(err)
	}
	d := doctor.Doctor{
		Names: topology.NamesOf("shop"), Want: want, Region: cfg.Region, Environment: map[string]string{"ACKLAST_MAX_ATTEMPTS": "10"},
		Clients: doctor.Clients{
			SQS: sqs.NewFromConfig(cfg), Lambda: lambda.NewFromConfig(cfg), CloudWatch: cloudwatch.NewFromConfig(cfg),
			SNS: sns.NewFromConfig(cfg), IAM: iam.NewFromConfig(cfg), STS: sts.NewFromConfig(cfg),
		},
	}
	checks := map[string]doctor.Check{}
	for _, c := range d.Examine(f.t.Context()) {
		if _, twice := checks[c.Name]; twice {
			f.t.Errorf("the check %q was made twice", c.Name)
		}
		if (c.Result == doctor.OK) != (c.Todo == "") {
			f.t.Errorf("%s is %s and says %q", c.Name, c.Result, c.Todo)
		}
		checks[c.Name] = c
	}
	return checks
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Date", time.Now().Add(-f.late).UTC().Format(http.TimeFormat))
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasPrefix(target, "AmazonSQS."):
		f.sqs(w, strings.TrimPrefix(target, "AmazonSQS."), body)
	case strings.Contains(r.URL.Path, "/operation/"):
		f.cloudwatch(w, path.Base(r.URL.Path))
	case strings.HasPrefix(r.URL.Path, "/20"):
		f.functions(w, r.URL.Path)
	default:
		form, err := url.ParseQuery(string(body))
		if err != nil {
			f.t.Error(err)
		}
		f.query(w, form)
	}
}

// fail answers with the operation's error, if it has one.
func (f *fake) fail(operation string, write func(code string)) bool {
	code := f.fails[operation]
	if code == "" {
		return false
	}
	write(code)
	return true
}

func (f *fake) json(w http.ResponseWriter, operation string, answer any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if f.fail(operation, func(code string) {
		w.Header().Set("X-Amzn-ErrorType", code)
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]string{"__type": code, "message": "no"}
	}) {
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		f.t.Error(err)
	}
}

func (f *fake) sqs(w http.ResponseWriter, operation string, body []byte) {
	var in struct {
		QueueName string
		QueueURL  string `json:"QueueUrl"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		f.t.Error(err)
	}
	if operation == "GetQueueUrl" {
		f.json(w, operation, map[string]string{"QueueUrl": "http://sqs.invalid/123456789012/" + in.QueueName})
		return
	}
	name := path.Base(in.QueueURL)
	attributes := map[string]string{"QueueArn": "arn:aws:sqs:eu-central-1:123456789012:" + name}
	for k, v := range f.queues[name] {
		attributes[k] = v
	}
	f.json(w, operation, map[string]any{"Attributes": attributes})
}

func (f *fake) functions(w http.ResponseWriter, p string) {
	var operation string
	switch {
	case strings.Contains(p, "event-source-mappings"):
		operation = "ListEventSourceMappings"
	case strings.HasSuffix(p, "recursion-config"):
		operation = "GetFunctionRecursionConfig"
	case strings.Contains(p, "account-settings"):
		operation = "GetAccountSettings"
	default:
		f.json(w, "GetFunctionConfiguration", f.lambda[path.Base(path.Dir(p))])
		return
	}
	f.json(w, operation, f.lambda[operation])
}

func (f *fake) cloudwatch(w http.ResponseWriter, operation string) {
	w.Header().Set("Content-Type", "application/cbor")
	w.Header().Set("smithy-protocol", "rpc-v2-cbor")
	if f.fail(operation, func(string) { w.WriteHeader(http.StatusBadRequest) }) {
		_, _ = w.Write(cbor.Encode(cbor.Map{"__type": cbor.String(f.fails[operation]), "message": cbor.String("no")}))
		return
	}
	if operation == "GetDashboard" {
		_, _ = w.Write(cbor.Encode(cbor.Map{"DashboardBody": cbor.String(f.dashboard)}))
		return
	}
	alarms := cbor.List{}
	for range f.alarms {
		alarms = append(alarms, f.alarm)
	}
	_, _ = w.Write(cbor.Encode(cbor.Map{"MetricAlarms": alarms}))
}

func (f *fake) query(w http.ResponseWriter, form url.Values) {
	operation := form.Get("Action")
	w.Header().Set("Content-Type", "text/xml")
	if f.fail(operation, func(code string) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>no</Message></Error></ErrorResponse>", code)
	}) {
		return
	}
	var result string
	switch operation {
	case "GetCallerIdentity":
		result = "<Account>123456789012</Account><Arn>" + f.caller + "</Arn>"
	case "ListSubscriptionsByTopic":
		result = "<Subscriptions><member><SubscriptionArn>" + f.subscription + "</SubscriptionArn></member></Subscriptions>"
	case "SimulatePrincipalPolicy":
		result = "<IsTruncated>false</IsTruncated><EvaluationResults>"
		for i := 1; form.Has(fmt.Sprintf("ActionNames.member.%d", i)); i++ {
			action, decision := form.Get(fmt.Sprintf("ActionNames.member.%d", i)), "allowed"
			if f.denied[action] {
				decision = "implicitDeny"
			}
			result += "<member><EvalActionName>" + action + "</EvalActionName><EvalDecision>" + decision + "</EvalDecision></member>"
		}
		result += "</EvaluationResults>"
		if got := form.Get("PolicySourceArn"); got != "arn:aws:iam::123456789012:role/Oncall" {
			f.t.Errorf("the simulation is for %q", got)
		}
	default:
		f.t.Errorf("unexpected %q", operation)
	}
	_, _ = fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>", operation, result)
}
