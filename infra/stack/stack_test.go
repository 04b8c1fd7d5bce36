package stack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func TestQueues(t *testing.T) {
	tm, names, n := standardTemplate(t), topology.NamesOf(testStack), topology.Default()
	if got := len(tm.of("AWS::SQS::Queue")); got != 3 {
		t.Errorf("got %d queues, want 3", got)
	}
	dlq := "arn:aws:sqs:eu-central-1:123456789012:acklast-dlq"
	for _, name := range []string{names.SourceQueue, names.RecoveryQueue} {
		lane := tm.named(t, "AWS::SQS::Queue", "QueueName", name)
		if got := number(lane["VisibilityTimeout"]); got != n.LaneVisibility.Seconds() || got < 6*n.WorkerTimeout.Seconds()+n.BatchWindow.Seconds() {
			t.Errorf("%s: visibility is %v", name, got)
		}
		if got := number(lane["MessageRetentionPeriod"]); got != n.LaneRetention.Seconds() {
			t.Errorf("%s: retention is %v", name, got)
		}
		policy := tm.resolve(lane["RedrivePolicy"]).(map[string]any)
		if policy["deadLetterTargetArn"] != dlq || number(policy["maxReceiveCount"]) != float64(n.MaxReceiveCount) {
			t.Errorf("%s: redrive policy is %v", name, policy)
		}
		if got := fmt.Sprint(lane["RedriveAllowPolicy"]); got != "map[redrivePermission:denyAll]" {
			t.Errorf("%s: redrive allow policy is %v", name, got)
		}
		// Nothing waits on the queue's own account: the worker and its tests rely on zero.
		for _, absent := range []string{"DelaySeconds", "ReceiveMessageWaitTimeSeconds", "FifoQueue"} {
			if lane[absent] != nil {
				t.Errorf("%s: %s is %v", name, absent, lane[absent])
			}
		}
	}
	queue := tm.named(t, "AWS::SQS::Queue", "QueueName", names.DLQ)
	if got := number(queue["MessageRetentionPeriod"]); got != n.DLQRetention.Seconds() {
		t.Errorf("DLQ: retention is %v", got)
	}
	if queue["RedrivePolicy"] != nil {
		t.Errorf("DLQ has a DLQ: %v", queue["RedrivePolicy"])
	}
	allow := tm.resolve(queue["RedriveAllowPolicy"]).(map[string]any)
	if allow["redrivePermission"] != "byQueue" {
		t.Errorf("DLQ: redrive allow policy is %v", allow)
	}
	var lanes []string
	for _, arn := range allow["sourceQueueArns"].([]any) {
		lanes = append(lanes, arn.(string))
	}
	equal(t, "DLQ sources", lanes, []string{
		"arn:aws:sqs:eu-central-1:123456789012:acklast-source", "arn:aws:sqs:eu-central-1:123456789012:acklast-recovery",
	})
}

func TestQueuesAreEncryptedAndTLSOnly(t *testing.T) {
	tm := standardTemplate(t)
	secured := map[string]bool{}
	for _, id := range tm.of("AWS::SQS::QueuePolicy") {
		p := tm.Resources[id].Properties
		document, _ := json.Marshal(p["PolicyDocument"])
		if !bytes.Contains(document, []byte(`"Condition":{"Bool":{"aws:SecureTransport":"false"}},"Effect":"Deny","Principal":{"AWS":"*"}`)) {
			t.Errorf("%s does not refuse plain HTTP: %s", id, document)
		}
		for _, q := range p["Queues"].([]any) {
			secured[tm.text(q)] = true
		}
	}
	for _, id := range tm.of("AWS::SQS::Queue") {
		if !secured[tm.ref(id)] {
			t.Errorf("%s has no policy", id)
		}
		if tm.Resources[id].Properties["SqsManagedSseEnabled"] != true {
			t.Errorf("%s is not encrypted", id)
		}
	}
}

func TestTables(t *testing.T) {
	tm := standardTemplate(t)
	names := topology.NamesOf(testStack)
	want := names.Tables()
	for _, k := range acklast.Describe(kinds()...) {
		for _, own := range k.Tables {
			want = append(want, topology.Table{Name: names.Table(own.Name), PartitionKey: own.PartitionKey, SortKey: own.SortKey, TTL: own.TTL})
		}
	}
	if got := len(tm.of("AWS::DynamoDB::Table")); got != len(want) {
		t.Errorf("got %d tables, want %d", got, len(want))
	}
	for _, table := range want {
		p := tm.named(t, "AWS::DynamoDB::Table", "TableName", table.Name)
		if got := keys(p); got != schema(table.PartitionKey, table.SortKey) {
			t.Errorf("%s: keys are %s", table.Name, got)
		}
		attributes := []string{table.PartitionKey}
		if table.SortKey != "" {
			attributes = append(attributes, table.SortKey)
		}
		indexes, _ := p["GlobalSecondaryIndexes"].([]any)
		if table.Index.Name == "" && len(indexes) != 0 || table.Index.Name != "" && len(indexes) != 1 {
			t.Fatalf("%s: indexes are %v", table.Name, indexes)
		}
		for _, one := range indexes {
			index := one.(map[string]any)
			if index["IndexName"] != table.Index.Name || keys(index) != schema(table.Index.PartitionKey, table.Index.SortKey) ||
				fmt.Sprint(index["Projection"]) != fmt.Sprintf("map[NonKeyAttributes:%v ProjectionType:INCLUDE]", table.Index.Include) {
				t.Errorf("%s: index is %v", table.Name, index)
			}
			attributes = append(attributes, table.Index.PartitionKey, table.Index.SortKey)
		}
		var defined []string
		for _, one := range p["AttributeDefinitions"].([]any) {
			a := one.(map[string]any)
			defined = append(defined, fmt.Sprint(a["AttributeName"], a["AttributeType"]))
		}
		slices.Sort(attributes)
		attributes = slices.Compact(attributes)
		for i := range attributes {
			attributes[i] += "S"
		}
		equal(t, table.Name+" attributes", defined, attributes)

		ttl, _ := p["TimeToLiveSpecification"].(map[string]any)
		if table.TTL == "" && ttl != nil || table.TTL != "" && (ttl["AttributeName"] != table.TTL || ttl["Enabled"] != true) {
			t.Errorf("%s: TTL is %v", table.Name, ttl)
		}
		if fmt.Sprint(p["PointInTimeRecoverySpecification"]) != "map[PointInTimeRecoveryEnabled:true]" {
			t.Errorf("%s: no point-in-time recovery", table.Name)
		}
		if p["BillingMode"] != "PAY_PER_REQUEST" {
			t.Errorf("%s: billing mode is %v", table.Name, p["BillingMode"])
		}
	}
}

func schema(partition, sort string) string {
	if sort == "" {
		return partition + ":HASH"
	}
	return partition + ":HASH " + sort + ":RANGE"
}

func keys(p map[string]any) string {
	var out []string
	for _, one := range p["KeySchema"].([]any) {
		k := one.(map[string]any)
		out = append(out, fmt.Sprint(k["AttributeName"], ":", k["KeyType"]))
	}
	return strings.Join(out, " ")
}

func TestWorkerFunction(t *testing.T) {
	tm, n := standardTemplate(t), topology.Default()
	p := tm.named(t, "AWS::Lambda::Function", "FunctionName", "acklast-worker")
	if number(p["Timeout"]) != n.WorkerTimeout.Seconds() || number(p["MemorySize"]) != float64(n.WorkerMemoryMB) {
		t.Errorf("timeout %v, memory %v", p["Timeout"], p["MemorySize"])
	}
	// Without it, Lambda stops a job after 16 rounds through the recovery lane.
	if p["RecursiveLoop"] != "Allow" {
		t.Errorf("recursive loop is %v", p["RecursiveLoop"])
	}
	if p["ReservedConcurrentExecutions"] != nil {
		t.Error("reserves concurrency, which small accounts refuse")
	}
}

func TestFunctions(t *testing.T) {
	tm := standardTemplate(t)
	if got := len(tm.of("AWS::Lambda::Function")); got != 2 {
		t.Errorf("got %d functions, want 2: a custom resource?", got)
	}
	roles := map[string]bool{}
	for _, id := range tm.of("AWS::Lambda::Function") {
		p := tm.Resources[id].Properties
		if p["Runtime"] != "provided.al2023" || p["Handler"] != "bootstrap" || fmt.Sprint(p["Architectures"]) != "[arm64]" {
			t.Errorf("%s: %v %v %v", id, p["Runtime"], p["Handler"], p["Architectures"])
		}
		if fmt.Sprint(p["TracingConfig"]) != "map[Mode:Active]" {
			t.Errorf("%s is not traced", id)
		}
		logging := tm.resolve(p["LoggingConfig"]).(map[string]any)
		if logging["LogFormat"] != "JSON" || logging["LogGroup"] != "/aws/lambda/"+tm.name(id) {
			t.Errorf("%s: logging is %v", id, logging)
		}
		if group := tm.named(t, "AWS::Logs::LogGroup", "LogGroupName", "/aws/lambda/"+tm.name(id)); number(group["RetentionInDays"]) != 30 {
			t.Errorf("%s: logs are kept for %v days", id, group["RetentionInDays"])
		}
		roles[tm.text(p["Role"])] = true
	}
	if len(roles) != 2 {
		t.Error("the functions share a role")
	}
}

func TestWorkerEnvironmentSatisfiesItsConfig(t *testing.T) {
	custom := defaults()
	custom.Name, custom.Numbers.MaxAttempts = "orders", 7
	for name, s := range map[string]Props{"default": defaults(), "custom": custom} {
		tm := templateOf(t, s)
		p := tm.named(t, "AWS::Lambda::Function", "FunctionName", s.names().WorkerFunction)
		variables := tm.resolve(p["Environment"]).(map[string]any)["Variables"].(map[string]any)
		config, err := worker.ParseConfig(func(name string) string { v, _ := variables[name].(string); return v })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if config.Names != s.names() || config.Rules.Retry.MaxAttempts != s.Numbers.MaxAttempts ||
			config.Rules.Retention != s.Numbers.LedgerRetention {
			t.Errorf("%s: %+v", name, config)
		}
		for url, queue := range map[string]string{
			config.SourceURL: s.names().SourceQueue, config.RecoveryURL: s.names().RecoveryQueue, config.DLQURL: s.names().DLQ,
		} {
			if !strings.HasPrefix(url, "https://sqs.") || !strings.HasSuffix(url, "/"+queue) {
				t.Errorf("%s: %s is not the URL of %s", name, url, queue)
			}
		}
	}
}

func TestRedriveEnvironmentSatisfiesItsConfig(t *testing.T) {
	custom := defaults()
	custom.Name, custom.Numbers.MaxRedrives, custom.Infra.RedriveTimeout = "orders", 5, 120*time.Second
	for name, s := range map[string]Props{"default": defaults(), "custom": custom} {
		tm := templateOf(t, s)
		p := tm.named(t, "AWS::Lambda::Function", "FunctionName", s.names().RedriveFunction)
		variables := tm.resolve(p["Environment"]).(map[string]any)["Variables"].(map[string]any)
		config, err := redrive.ParseConfig(func(name string) string { v, _ := variables[name].(string); return v })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if config.Names != s.names() || config.Rules.MaxRedrives != s.Numbers.MaxRedrives || config.Numbers.Timeout != s.Infra.RedriveTimeout {
			t.Errorf("%s: %+v", name, config)
		}
		if config.Unqualified {
			t.Errorf("%s: a deployed redrive may be invoked without an alias", name)
		}
		for url, queue := range map[string]string{
			config.SourceURL: s.names().SourceQueue, config.RecoveryURL: s.names().RecoveryQueue, config.DLQURL: s.names().DLQ,
		} {
			if !strings.HasSuffix(url, "/"+queue) {
				t.Errorf("%s: %s is not the URL of %s", name, url, queue)
			}
		}
	}
}

func TestRedriveFunctionHasTwoDoorsAndNoRetries(t *testing.T) {
	tm := standardTemplate(t)
	p := tm.named(t, "AWS::Lambda::Function", "FunctionName", "acklast-redrive")
	if number(p["Timeout"]) != 900 || p["ReservedConcurrentExecutions"] != nil {
		t.Errorf("timeout %v, reserved %v", p["Timeout"], p["ReservedConcurrentExecutions"])
	}
	var aliases, quiet []string
	for _, id := range tm.of("AWS::Lambda::Alias") {
		aliases = append(aliases, tm.text(tm.Resources[id].Properties["FunctionName"])+":"+tm.name(id))
	}
	equal(t, "aliases", aliases, []string{"acklast-redrive:operate", "acklast-redrive:approve", "acklast-worker:live"})
	for _, id := range tm.of("AWS::Lambda::EventInvokeConfig") {
		c := tm.Resources[id].Properties
		if number(c["MaximumRetryAttempts"]) != 0 {
			t.Errorf("%s retries %v times", id, c["MaximumRetryAttempts"])
		}
		quiet = append(quiet, tm.text(c["FunctionName"])+" "+fmt.Sprint(tm.resolve(c["Qualifier"])))
	}
	equal(t, "asynchronous invocations", quiet, []string{
		"acklast-redrive $LATEST", "acklast-redrive operate", "acklast-redrive approve",
	})
}

// A census that nobody asks for counts nothing.
func TestCensusIsAskedForDaily(t *testing.T) {
	tm := standardTemplate(t)
	rules := tm.of("AWS::Events::Rule")
	if len(rules) != 1 {
		t.Fatalf("rules %v, want one", rules)
	}
	p := tm.Resources[rules[0]].Properties
	if !regexp.MustCompile(`^cron\(\d+ \d+ \* \* \? \*\)$`).MatchString(tm.text(p["ScheduleExpression"])) || p["State"] != "ENABLED" {
		t.Errorf("schedule %v, %v, want once a day", p["ScheduleExpression"], p["State"])
	}
	target := tm.resolve(p["Targets"]).([]any)[0].(map[string]any)
	alias := "arn:aws:lambda:" + testRegion + ":" + testAccount + ":function:acklast-redrive:operate"
	if target["Arn"] != alias {
		t.Errorf("the schedule invokes %v, want %s", target["Arn"], alias)
	}
	if req, err := redrive.DecodeRequest([]byte(tm.text(target["Input"]))); err != nil || req.Action != redrive.ActionCensus {
		t.Errorf("the schedule asks for %+v, %v", req, err)
	}
	// Nobody's rule but this one may invoke it.
	permission := tm.Resources[tm.of("AWS::Lambda::Permission")[0]].Properties
	if got := tm.text(permission["SourceArn"]); got != tm.att(rules[0], "Arn") || permission["Principal"] != "events.amazonaws.com" {
		t.Errorf("%v may invoke for %s", permission["Principal"], got)
	}
}

func TestMappings(t *testing.T) {
	tm, n := standardTemplate(t), topology.Default()
	caps := map[string]float64{}
	for _, id := range tm.of("AWS::Lambda::EventSourceMapping") {
		p := tm.Resources[id].Properties
		if fmt.Sprint(p["FunctionResponseTypes"]) != "[ReportBatchItemFailures]" {
			t.Errorf("%s: one failed record brings back its batch", id)
		}
		if tm.text(p["FunctionName"]) != "acklast-worker:live" || number(p["BatchSize"]) != float64(n.BatchSize) || p["MaximumBatchingWindowInSeconds"] != nil {
			t.Errorf("%s: %v", id, p)
		}
		if p["Enabled"] != true {
			t.Errorf("%s is paused", id)
		}
		if fmt.Sprint(p["MetricsConfig"]) != "map[Metrics:[EventCount]]" {
			t.Errorf("%s: counts are %v", id, p["MetricsConfig"])
		}
		if p["FilterCriteria"] != nil {
			t.Errorf("%s has a filter: what it refuses is deleted without a trace", id)
		}
		caps[tm.text(p["EventSourceArn"])] = number(p["ScalingConfig"].(map[string]any)["MaximumConcurrency"])
	}
	const arn = "arn:aws:sqs:eu-central-1:123456789012:"
	if len(caps) != 2 || caps[arn+"acklast-source"] != float64(n.SourceConcurrency) || caps[arn+"acklast-recovery"] != float64(n.RecoveryConcurrency) {
		t.Errorf("caps are %v", caps)
	}
}

func TestLanesCanBeDeployedPaused(t *testing.T) {
	p := defaults()
	p.PauseRecovery = true
	tm := templateOf(t, p)
	for _, id := range tm.of("AWS::Lambda::EventSourceMapping") {
		m := tm.Resources[id].Properties
		source := strings.HasSuffix(tm.text(m["EventSourceArn"]), "-source")
		if m["Enabled"] != source {
			t.Errorf("%s: enabled is %v, want %v", id, m["Enabled"], source)
		}
	}
}

func TestDataOutlivesTheStack(t *testing.T) {
	kept := []string{"AWS::SQS::Queue", "AWS::DynamoDB::Table", "AWS::KMS::Key"}
	with := defaults()
	with.CustomerKey = true
	gone := with
	gone.DestroyData = true
	for _, c := range []struct {
		settings          Props
		deletion, replace string
	}{{with, "RetainExceptOnCreate", "Retain"}, {gone, "Delete", "Delete"}} {
		tm := templateOf(t, c.settings)
		for _, kind := range kept {
			for _, id := range tm.of(kind) {
				if r := tm.Resources[id]; r.DeletionPolicy != c.deletion || r.UpdateReplacePolicy != c.replace {
					t.Errorf("%s: %s, %s", id, r.DeletionPolicy, r.UpdateReplacePolicy)
				}
			}
		}
	}
}

func TestEverySettingReachesTheTemplate(t *testing.T) {
	s := defaults()
	s.Name = "orders"
	s.Numbers.BatchSize, s.Numbers.BatchWindow, s.Numbers.LaneVisibility = 50, 5e9, 200e9
	s.Infra.WorkerReserved, s.Infra.RedriveReserved = 55, 2
	s.DeletionProtection = true
	s.AlarmEmail, s.AlarmTopicARNs = "ops@example.com", []string{"arn:aws:sns:eu-central-1:123456789012:pages"}
	tm := templateOf(t, s)
	mapping := tm.Resources[tm.of("AWS::Lambda::EventSourceMapping")[0]].Properties
	if number(mapping["BatchSize"]) != 50 || number(mapping["MaximumBatchingWindowInSeconds"]) != 5 {
		t.Errorf("mapping: %v", mapping)
	}
	if number(tm.named(t, "AWS::SQS::Queue", "QueueName", "orders-source")["VisibilityTimeout"]) != 200 {
		t.Error("visibility")
	}
	if number(tm.named(t, "AWS::Lambda::Function", "FunctionName", "orders-worker")["ReservedConcurrentExecutions"]) != 55 ||
		number(tm.named(t, "AWS::Lambda::Function", "FunctionName", "orders-redrive")["ReservedConcurrentExecutions"]) != 2 {
		t.Error("reserved concurrency")
	}
	if tm.named(t, "AWS::DynamoDB::Table", "TableName", "orders-ledger")["DeletionProtectionEnabled"] != true {
		t.Error("deletion protection")
	}
	subscription := tm.Resources[tm.of("AWS::SNS::Subscription")[0]].Properties
	if subscription["Protocol"] != "email" || subscription["Endpoint"] != "ops@example.com" {
		t.Errorf("subscription: %v", subscription)
	}
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		for _, actions := range []string{"AlarmActions", "OKActions"} {
			if got, _ := tm.Resources[id].Properties[actions].([]any); len(got) != 2 || !slices.Contains(got, any(s.AlarmTopicARNs[0])) {
				t.Errorf("%s: %s are %v", id, actions, got)
			}
		}
	}
	for id, r := range tm.Resources {
		if raw, _ := json.Marshal(r); bytes.Contains(raw, []byte("acklast-")) {
			t.Errorf("%s names another stack's parts: %s", id, raw)
		}
	}
}

func TestCustomerKeyEncryptsAndIsGranted(t *testing.T) {
	s := defaults()
	s.CustomerKey = true
	tm := templateOf(t, s)
	key := tm.Resources[tm.of("AWS::KMS::Key")[0]]
	if key.Properties["EnableKeyRotation"] != true {
		t.Error("the key does not rotate")
	}
	for _, id := range tm.of("AWS::SQS::Queue") {
		if p := tm.Resources[id].Properties; p["KmsMasterKeyId"] == nil || p["SqsManagedSseEnabled"] != nil {
			t.Errorf("%s: key is %v", id, p["KmsMasterKeyId"])
		}
	}
	for _, id := range tm.of("AWS::DynamoDB::Table") {
		if sse := fmt.Sprint(tm.Resources[id].Properties["SSESpecification"]); !strings.Contains(sse, "KMSMasterKeyId") {
			t.Errorf("%s: encryption is %v", id, sse)
		}
	}
	arn := " kms:key/<" + tm.of("AWS::KMS::Key")[0] + ">"
	for _, role := range []string{"WorkerRole", "RedriveRole"} {
		for _, action := range []string{"kms:Decrypt", "kms:GenerateDataKey"} {
			if may := tm.allowed(t, role); !slices.Contains(may, action+arn) {
				t.Errorf("%s may not %s, but %v", role, action, may)
			}
		}
	}
}

// Taking the key away must not strand messages that wait under it.
func TestAKeyIsKeptForWhatWaits(t *testing.T) {
	used, kept := defaults(), defaults()
	used.CustomerKey, kept.KeepKey = true, true
	before, after := templateOf(t, used), templateOf(t, kept)
	keys := after.of("AWS::KMS::Key")
	equal(t, "keys", keys, before.of("AWS::KMS::Key"))
	for _, id := range after.of("AWS::SQS::Queue") {
		if p := after.Resources[id].Properties; p["KmsMasterKeyId"] != nil || p["SqsManagedSseEnabled"] != true {
			t.Errorf("%s still encrypts under the key", id)
		}
	}
	for _, id := range after.of("AWS::DynamoDB::Table") {
		if sse := after.Resources[id].Properties["SSESpecification"]; sse != nil {
			t.Errorf("%s still encrypts under the key: %v", id, sse)
		}
	}
	for _, id := range []string{"WorkerRole", "RedriveRole", "Operators", "ReadOnly", "Senders", "Cancellers"} {
		equal(t, id, after.allowed(t, id), before.allowed(t, id))
	}
	// Scheduler sends under the key what was acknowledged before; its role has its policy within.
	for _, id := range after.of("AWS::IAM::Role") {
		if !strings.HasPrefix(id, "SchedulerRole") {
			continue
		}
		may := fmt.Sprint(after.resolve(after.Resources[id].Properties["Policies"]))
		if want := fmt.Sprint(before.resolve(before.Resources[id].Properties["Policies"])); may != want || !strings.Contains(may, "kms:Decrypt") {
			t.Errorf("%s may %s, want %s", id, may, want)
		}
	}
}

func TestNoCycle(t *testing.T) {
	graph := standardTemplate(t).graph()
	const (
		visiting = 1
		done     = 2
	)
	state := map[string]int{}
	var visit func(id string, path []string)
	visit = func(id string, path []string) {
		switch state[id] {
		case visiting:
			t.Errorf("cycle: %s", strings.Join(append(path, id), " → "))
		case 0:
			state[id] = visiting
			for _, next := range graph[id] {
				visit(next, append(path, id))
			}
			state[id] = done
		}
	}
	edges := 0
	for id := range graph {
		edges += len(graph[id])
		visit(id, nil)
	}
	if edges < 50 {
		t.Errorf("only %d references found: this test looks at nothing", edges)
	}
}

func TestFolderDoesNotMatter(t *testing.T) {
	one := standardTemplate(t)
	two, err := synthesise(t.TempDir(), defaults(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.raw, two.raw) {
		t.Error("two folders, two templates")
	}
}

func TestOutputs(t *testing.T) {
	tm := standardTemplate(t)
	for id, want := range map[string]string{
		"SourceQueueUrl":     "https://sqs.eu-central-1.amazonaws.com/123456789012/acklast-source",
		"DLQUrl":             "https://sqs.eu-central-1.amazonaws.com/123456789012/acklast-dlq",
		"WorkerFunctionName": "acklast-worker",
		"LedgerTableName":    "acklast-ledger",
		"DashboardUrl":       "https://eu-central-1.console.aws.amazon.com/cloudwatch/home?region=eu-central-1#dashboards/dashboard/acklast-eu-central-1",
		"PauseSource":        "aws lambda update-event-source-mapping --region eu-central-1 --uuid <" + tm.of("AWS::Lambda::EventSourceMapping")[1] + "> --no-enabled",
		"Next":               "AWS_REGION=eu-central-1 bin/acklast status --stack acklast",
	} {
		if got := tm.text(tm.Outputs[id].Value); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	local := defaults()
	local.Endpoint = "http://127.0.0.1:4566"
	other := templateOf(t, local)
	for id, want := range map[string]string{
		"PauseSource":   "aws --endpoint-url http://127.0.0.1:4566 lambda update-event-source-mapping ",
		"PauseRecovery": "aws --endpoint-url http://127.0.0.1:4566 lambda update-event-source-mapping ",
		"Next":          "bin/acklast --endpoint-url http://127.0.0.1:4566 status --stack acklast",
	} {
		if got := other.text(other.Outputs[id].Value); !strings.Contains(got, want) {
			t.Errorf("%s on a local engine is %q, want %q in it", id, got, want)
		}
	}
	for id, o := range tm.Outputs {
		if o.Description == "" {
			t.Errorf("%s has no description", id)
		}
	}
}
