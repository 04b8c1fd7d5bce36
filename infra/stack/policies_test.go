package stack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast"
	"acklast/internal/worker"
)

// allowed lists what the role or managed policy with the logical id's beginning may do, one action
// on one resource a line. ARNs are cut to service:resource.
func (tm template) allowed(t *testing.T, id string) []string {
	t.Helper()
	var lines []string
	for _, policy := range append(tm.of("AWS::IAM::Policy"), tm.of("AWS::IAM::ManagedPolicy")...) {
		if !strings.HasPrefix(policy, id) {
			continue
		}
		document := tm.resolve(tm.Resources[policy].Properties["PolicyDocument"]).(map[string]any)
		for _, one := range document["Statement"].([]any) {
			statement := one.(map[string]any)
			if statement["Effect"] != "Allow" || statement["NotAction"] != nil || statement["NotResource"] != nil {
				t.Errorf("%s: unexpected statement %v", policy, statement)
			}
			for _, action := range list(statement["Action"]) {
				for _, resource := range list(statement["Resource"]) {
					lines = append(lines, action+" "+short(resource))
				}
			}
		}
	}
	if len(lines) == 0 {
		t.Fatalf("no policy of %s", id)
	}
	return lines
}

func short(arn string) string {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 {
		return arn
	}
	return parts[2] + ":" + parts[5]
}

func list(v any) []string {
	if one, ok := v.(string); ok {
		return []string{one}
	}
	var out []string
	for _, one := range v.([]any) {
		out = append(out, fmt.Sprint(one))
	}
	return out
}

// grid is every action on every resource.
func grid(resources string, actions ...string) []string {
	var lines []string
	for resource := range strings.FieldsSeq(resources) {
		for _, action := range actions {
			lines = append(lines, action+" "+resource)
		}
	}
	return lines
}

func TestWorkerMay(t *testing.T) {
	equal(t, "worker", standardTemplate(t).allowed(t, "WorkerRole"), slices.Concat(
		grid("sqs:acklast-source sqs:acklast-recovery",
			"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility"),
		grid("sqs:acklast-source sqs:acklast-recovery sqs:acklast-dlq", "sqs:SendMessage"),
		grid("dynamodb:table/acklast-ledger dynamodb:table/acklast-reservations", "dynamodb:GetItem", "dynamodb:UpdateItem"),
		grid("dynamodb:table/acklast-resources", "dynamodb:UpdateItem"),
		grid("dynamodb:table/acklast-operations dynamodb:table/acklast-subscriptions", "dynamodb:GetItem"),
		grid("scheduler:schedule/acklast-scheduled/*", "scheduler:CreateSchedule", "scheduler:GetSchedule"),
		[]string{"iam:PassRole <SchedulerRole59E73443.Arn>"},
		grid("logs:log-group:/aws/lambda/acklast-worker:*", "logs:CreateLogStream", "logs:PutLogEvents"),
		grid("*", "xray:PutTraceSegments", "xray:PutTelemetryRecords"),
	))
}

// What a kind reaches outside depends on its variables: without them it may reach nothing, with them that and no more.
func TestWorkerMayReachItsProvider(t *testing.T) {
	for name, c := range map[string]struct {
		variable, value string
		more            []string
	}{
		"a secret": {"REMINDER_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf",
			grid("secretsmanager:secret:provider-AbCdEf", "secretsmanager:GetSecretValue")},
		"an identity": {"REMINDER_FROM", "billing@example.com",
			grid("ses:identity/billing@example.com", "ses:SendEmail", "ses:SendTemplatedEmail")},
		"nothing": {"REMINDER_URL", "https://provider.example", nil},
	} {
		s := defaults()
		s.Environment = map[string]string{c.variable: c.value}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		tm := templateOf(t, s)
		var more []string
		without := standardTemplate(t).allowed(t, "WorkerRole")
		for _, line := range tm.allowed(t, "WorkerRole") {
			if !slices.Contains(without, line) {
				more = append(more, line)
			}
		}
		equal(t, name, more, c.more)
		p := tm.named(t, "AWS::Lambda::Function", "FunctionName", "acklast-worker")
		if got := tm.resolve(p["Environment"]).(map[string]any)["Variables"].(map[string]any)[c.variable]; got != c.value {
			t.Errorf("%s: the worker reads %v", name, got)
		}
	}
}

// A kind's permissions may depend on the worker's own variables too.
func TestGrantsReadTheWorkersEnvironment(t *testing.T) {
	p := defaults()
	p.Numbers.AttemptTime = 5 * time.Second
	var read string
	p.Kinds = []acklast.Kind{fixture("a", nil, func(getenv func(string) string) []acklast.Grant {
		read = getenv(worker.EnvAttemptTime)
		return nil
	})}
	if err := p.Validate(); err != nil || read != "5s" {
		t.Errorf("a kind reads %q, %v", read, err)
	}
}

func TestRedriveMay(t *testing.T) {
	equal(t, "redrive", standardTemplate(t).allowed(t, "RedriveRole"), slices.Concat(
		grid("sqs:acklast-dlq", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
		grid("sqs:acklast-recovery", "sqs:SendMessage"),
		grid("sqs:acklast-source sqs:acklast-recovery sqs:acklast-dlq", "sqs:GetQueueAttributes"),
		grid("dynamodb:table/acklast-ledger", "dynamodb:GetItem", "dynamodb:UpdateItem"),
		grid("dynamodb:table/acklast-ledger/index/isolated", "dynamodb:Query"),
		grid("scheduler:schedule/acklast-scheduled/*", "scheduler:DeleteSchedule"),
		grid("dynamodb:table/acklast-operations", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:BatchWriteItem"),
		grid("dynamodb:table/acklast-reservations dynamodb:table/acklast-subscriptions", "dynamodb:GetItem"),
		grid("logs:log-group:/aws/lambda/acklast-redrive:*", "logs:CreateLogStream", "logs:PutLogEvents"),
		grid("*", "xray:PutTraceSegments", "xray:PutTelemetryRecords"),
	))
}

// What must never be, said apart from the lists above, which somebody may extend.
func TestNobodyMay(t *testing.T) {
	tm := standardTemplate(t)
	for role, never := range map[string][]string{
		"WorkerRole": {"sqs:ReceiveMessage sqs:acklast-dlq", "sqs:DeleteMessage sqs:acklast-dlq",
			"dynamodb:DeleteItem dynamodb:table/acklast-ledger", "dynamodb:PutItem dynamodb:table/acklast-operations"},
		"RedriveRole": {"sqs:ReceiveMessage sqs:acklast-source", "sqs:ReceiveMessage sqs:acklast-recovery", "sqs:SendMessage sqs:acklast-source",
			"dynamodb:DeleteItem dynamodb:table/acklast-operations", "dynamodb:PutItem dynamodb:table/acklast-ledger"},
		"Operators": {"lambda:InvokeFunction lambda:function:acklast-redrive", "lambda:InvokeFunction lambda:function:acklast-redrive:approve"},
		"Approvers": {"lambda:InvokeFunction lambda:function:acklast-redrive", "lambda:InvokeFunction lambda:function:acklast-redrive:operate"},
	} {
		may := tm.allowed(t, role)
		for _, line := range never {
			if slices.Contains(may, line) {
				t.Errorf("%s may %s", role, line)
			}
		}
		for _, line := range may {
			action, resource, _ := strings.Cut(line, " ")
			if strings.Contains(action, "*") {
				t.Errorf("%s has a wildcard action: %s", role, line)
			}
			if strings.HasPrefix(role, "Redrive") && strings.Contains(resource, "table/") &&
				!strings.HasSuffix(resource, "-ledger") && !strings.HasSuffix(resource, "-operations") && !slices.Contains(readActions, action) {
				t.Errorf("the redrive writes a kind's table: %s", line)
			}
		}
	}
	for _, id := range tm.of("AWS::IAM::Role") {
		p := tm.Resources[id].Properties
		if strings.HasPrefix(id, "SchedulerRole") {
			continue // Scheduler's, see TestSchedulerMay
		}
		if p["ManagedPolicyArns"] != nil || p["Policies"] != nil {
			t.Errorf("%s has other policies: %v %v", id, p["ManagedPolicyArns"], p["Policies"])
		}
		if principal := fmt.Sprint(p["AssumeRolePolicyDocument"]); !strings.Contains(principal, "lambda.amazonaws.com") || strings.Contains(principal, "AWS:") {
			t.Errorf("%s trusts %s", id, principal)
		}
	}
	for _, id := range tm.of("AWS::IAM::ManagedPolicy") {
		if p := tm.Resources[id].Properties; p["ManagedPolicyName"] != nil {
			t.Errorf("%s has a name, so the stack cannot live in two regions", id)
		}
	}
}

var mayRead = slices.Concat(
	grid("sqs:acklast-source sqs:acklast-recovery sqs:acklast-dlq", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
	grid("dynamodb:table/acklast-ledger dynamodb:table/acklast-operations dynamodb:table/acklast-reservations "+
		"dynamodb:table/acklast-resources dynamodb:table/acklast-subscriptions",
		"dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan", "dynamodb:Query"),
	grid("dynamodb:table/acklast-ledger/index/isolated", "dynamodb:Query"),
	grid("lambda:function:acklast-worker lambda:function:acklast-worker:* lambda:function:acklast-redrive lambda:function:acklast-redrive:*",
		"lambda:GetFunctionConfiguration", "lambda:GetFunction", "lambda:GetFunctionConcurrency", "lambda:GetFunctionCodeSigningConfig",
		"lambda:GetFunctionEventInvokeConfig", "lambda:GetAlias", "lambda:GetPolicy", "lambda:ListAliases", "lambda:ListVersionsByFunction", "lambda:ListTags"),
	grid("lambda:event-source-mapping:<SourceMapping> lambda:event-source-mapping:<RecoveryMapping>", "lambda:GetEventSourceMapping"),
	grid("logs:log-group:/aws/lambda/acklast-worker:* logs:log-group:/aws/lambda/acklast-redrive:*",
		"logs:DescribeLogStreams", "logs:GetLogEvents", "logs:FilterLogEvents", "logs:StartQuery"),
	grid("*", "cloudwatch:GetMetricData", "cloudwatch:GetMetricStatistics", "cloudwatch:ListMetrics", "cloudwatch:DescribeAlarms", "logs:GetQueryResults", "logs:StopQuery", "lambda:ListEventSourceMappings", "lambda:ListFunctions",
		"lambda:GetAccountSettings", "sns:ListSubscriptionsByTopic", "iam:SimulatePrincipalPolicy"),
	grid("lambda:function:acklast-worker", "lambda:GetFunctionRecursionConfig"),
	grid("cloudwatch:dashboard/acklast-eu-central-1", "cloudwatch:GetDashboard"),
	grid("*", "scheduler:ListSchedules"),
	grid("scheduler:schedule/acklast-scheduled/*", "scheduler:GetSchedule"),
)

func TestPeopleMay(t *testing.T) {
	tm := standardTemplate(t)
	// Logical ids end in a hash; the mappings' stand for their identifiers.
	plain := func(id string) []string {
		lines := tm.allowed(t, id)
		for i := range lines {
			for _, mapping := range tm.of("AWS::Lambda::EventSourceMapping") {
				lines[i] = strings.ReplaceAll(lines[i], mapping, mapping[:len(mapping)-8])
			}
		}
		return lines
	}
	equal(t, "read-only", plain("ReadOnly"), mayRead)
	equal(t, "approvers", plain("Approvers"), grid("lambda:function:acklast-redrive:approve", "lambda:InvokeFunction"))
	equal(t, "senders", plain("Senders"), grid("sqs:acklast-source", "sqs:GetQueueUrl", "sqs:SendMessage"))
	equal(t, "cancellers", plain("Cancellers"), slices.Concat(grid("dynamodb:table/acklast-ledger", "dynamodb:GetItem", "dynamodb:UpdateItem"),
		grid("scheduler:schedule/acklast-scheduled/*", "scheduler:DeleteSchedule"),
		grid("dynamodb:table/acklast-operations", "dynamodb:UpdateItem"), // on cancelled jobs' lines alone, see below
		grid("lambda:function:acklast-worker", "lambda:GetFunctionConfiguration")))
	equal(t, "operators", plain("Operators"), slices.Concat(mayRead,
		grid("dynamodb:table/acklast-operations", "dynamodb:UpdateItem"), // on the switch alone, see below
		grid("lambda:function:acklast-redrive:operate", "lambda:InvokeFunction"),
		grid("lambda:event-source-mapping:<SourceMapping> lambda:event-source-mapping:<RecoveryMapping>", "lambda:UpdateEventSourceMapping"),
		grid("sqs:acklast-source", "sqs:SendMessage"), // for acklast smoke
	))
}

// IAM allows 6144 characters for a managed policy and 10240 for the policies of a role, white space aside.
func TestPoliciesFit(t *testing.T) {
	p := checked()
	p.Name, p.CustomerKey, p.AlarmEmail = strings.Repeat("n", 39), true, "ops@example.com"
	tm := templateOf(t, p)
	far := strings.NewReplacer(testRegion, longestRegion, "arn:aws:", "arn:aws-us-gov:")
	for kind, limit := range map[string]int{"AWS::IAM::ManagedPolicy": 6144, "AWS::IAM::Policy": 10_240} {
		for _, id := range tm.of(kind) {
			raw, err := json.Marshal(tm.resolve(tm.Resources[id].Properties["PolicyDocument"]))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(far.Replace(string(raw))); n > limit {
				t.Errorf("%s has up to %d characters, and IAM allows %d", id, n, limit)
			}
		}
	}
}

// The operations table holds the approvals: who may throw the kill switch or cancel jobs may write nothing else in it.
func TestPeopleWriteOfTheOperationsOnlyWhatTheyMay(t *testing.T) {
	tm := standardTemplate(t)
	wants := map[string]string{
		"Operators":  "map[ForAllValues:StringEquals:map[dynamodb:LeadingKeys:[switch]]]",
		"Cancellers": "map[ForAllValues:StringLike:map[dynamodb:LeadingKeys:[audit#cancels#*]]]",
	}
	found := map[string]int{}
	for _, policy := range tm.of("AWS::IAM::ManagedPolicy") {
		document := tm.resolve(tm.Resources[policy].Properties["PolicyDocument"]).(map[string]any)
		for _, one := range document["Statement"].([]any) {
			statement := one.(map[string]any)
			if !slices.Contains(list(statement["Action"]), "dynamodb:UpdateItem") || !strings.Contains(fmt.Sprint(statement["Resource"]), "acklast-operations") {
				continue
			}
			name := policy[:len(policy)-8]
			found[name]++
			if got := fmt.Sprint(statement["Condition"]); got != wants[name] {
				t.Errorf("%s write the operations table on condition %s, want %s", name, got, wants[name])
			}
		}
	}
	for name := range wants {
		if found[name] != 1 {
			t.Errorf("%d statements let %s write the operations table, want 1", found[name], name)
		}
	}
}

// Only schedules of this stack's group act under the role, and they may send, back and to the DLQ. Only the worker
// passes it on, and to Scheduler alone. Group and role outlive the stack, with the role's rights in it.
func TestSchedulerMay(t *testing.T) {
	tm := standardTemplate(t)
	id := tm.of("AWS::IAM::Role")[slices.IndexFunc(tm.of("AWS::IAM::Role"), func(id string) bool { return strings.HasPrefix(id, "SchedulerRole") })]
	role := tm.Resources[id]
	got := fmt.Sprint(tm.resolve(role.Properties["AssumeRolePolicyDocument"]))
	for _, want := range []string{"scheduler.amazonaws.com", "aws:SourceAccount", "aws:SourceArn", ":schedule-group/acklast-scheduled"} {
		if !strings.Contains(got, want) {
			t.Errorf("the role's trust has no %s: %s", want, got)
		}
	}
	policies := role.Properties["Policies"].([]any)
	if len(policies) != 1 {
		t.Fatalf("%d policies, want one", len(policies))
	}
	may := fmt.Sprint(tm.resolve(policies[0]))
	if strings.Count(may, "Action:") != 1 || !strings.Contains(may, "Action:sqs:SendMessage") {
		t.Errorf("the role may do other things than send: %s", may)
	}
	for _, resource := range []string{id, tm.of("AWS::Scheduler::ScheduleGroup")[0]} {
		if policy := tm.Resources[resource].DeletionPolicy; policy != "RetainExceptOnCreate" {
			t.Errorf("%s has the deletion policy %q, and acknowledged jobs would go with the stack", resource, policy)
		}
	}
	passing := 0
	for _, id := range tm.of("AWS::IAM::Policy") {
		if text := fmt.Sprint(tm.resolve(tm.Resources[id].Properties)); strings.Contains(text, "iam:PassRole") {
			passing++
			if !strings.Contains(text, "iam:PassedToService:scheduler.amazonaws.com") {
				t.Errorf("%s passes roles to others than Scheduler", id)
			}
		}
	}
	if passing != 1 {
		t.Errorf("%d roles pass on others, want the worker's only", passing)
	}
}
