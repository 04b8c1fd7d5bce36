package faults

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRecordedCallsAreThoseOfIAM(t *testing.T) {
	for name, c := range map[string]struct{ method, path, target, form, body, want string }{
		"a batch of SQS is its action": {
			"POST", "/", "AmazonSQS.SendMessageBatch", "", `{"QueueUrl":"http://x/0/s-1-dlq"}`, "sqs:SendMessage acklast-dlq"},
		"a queue by name": {
			"POST", "/", "AmazonSQS.GetQueueUrl", "", `{"QueueName":"s-1-source"}`, "sqs:GetQueueUrl acklast-source"},
		"CloudWatch's metrics": {
			"POST", "/service/GraniteServiceVersion20100801/operation/GetMetricData", "", "", "", "cloudwatch:GetMetricData *"},
		"CloudWatch's alarms": {
			"POST", "/service/GraniteServiceVersion20100801/operation/DescribeAlarms", "", "", "", "cloudwatch:DescribeAlarms *"},
		"an account's settings": {
			"GET", "/2016-08-19/account-settings", "", "", "", "lambda:GetAccountSettings *"},
		"a function's recursion": {
			"GET", "/2024-08-31/functions/s-1-worker/recursion-config", "", "", "", "lambda:GetFunctionRecursionConfig function:acklast-worker"},
		"an index": {
			"POST", "/", "DynamoDB_20120810.Query", "", `{"TableName":"s-1-ledger","IndexName":"i"}`, "dynamodb:Query table/acklast-ledger/index/i"},
		"a key that a condition asks for": {
			"POST", "/", "DynamoDB_20120810.UpdateItem", "", `{"TableName":"s-1-operations","Key":{"pk":{"S":"switch"},"sk":{"S":"-"}}}`,
			`dynamodb:UpdateItem table/acklast-operations {"dynamodb:LeadingKeys":["switch"]}`},
		"a job's key": {
			"POST", "/", "DynamoDB_20120810.UpdateItem", "", `{"TableName":"s-1-ledger","Key":{"subject":{"S":"r-1"}}}`,
			"dynamodb:UpdateItem table/acklast-ledger"},
		"a transaction is its parts": {
			"POST", "/", "DynamoDB_20120810.TransactWriteItems", "",
			`{"TransactItems":[{"Update":{"TableName":"s-1-ledger"}},{"ConditionCheck":{"TableName":"s-1-a"}}]}`,
			"dynamodb:UpdateItem table/acklast-ledger, dynamodb:ConditionCheckItem table/acklast-a"},
		"a batch of DynamoDB keeps its name": {
			"POST", "/", "DynamoDB_20120810.BatchWriteItem", "", `{"RequestItems":{"s-1-operations":[]}}`, "dynamodb:BatchWriteItem table/acklast-operations"},
		"an alias": {
			"POST", "/2015-03-31/functions/s-1-redrive/invocations?Qualifier=operate", "", "", `{}`, "lambda:InvokeFunction function:acklast-redrive:operate"},
		"mappings": {
			"GET", "/2015-03-31/event-source-mappings/?EventSourceArn=a", "", "", "", "lambda:ListEventSourceMappings *"},
		"a mapping": {
			"PUT", "/2015-03-31/event-source-mappings/source", "", "", `{}`, "lambda:UpdateEventSourceMapping event-source-mapping:source"},
		"whose account": {
			"POST", "/", "", "application/x-www-form-urlencoded", "Action=GetCallerIdentity&Version=1", "sts:GetCallerIdentity *"},
		"something new": {
			"PUT", "/2015-03-31/layers", "", "", `{}`, "unknown:PUT /2015-03-31/layers *"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "calls")
			target := httptest.NewServer(nil)
			defer target.Close()
			p := New(target.URL)
			defer p.Close()
			p.Record(file, "worker", "s-1")
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
			if c.target != "" {
				r.Header.Set("X-Amz-Target", c.target)
			}
			if c.form != "" {
				r.Header.Set("Content-Type", c.form)
			}
			p.ServeHTTP(httptest.NewRecorder(), r)
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for call := range strings.SplitSeq(c.want, ", ") {
				call, context, conditional := strings.Cut(call, " {")
				i := strings.LastIndexByte(call, ' ')
				want.WriteString(`{"principal":"worker","action":"` + call[:i] + `","resource":"` + call[i+1:] + `"`)
				if conditional {
					want.WriteString(`,"context":{` + context)
				}
				want.WriteString("}\n")
			}
			if string(got) != want.String() {
				t.Errorf("recorded\n%swant\n%s", got, want.String())
			}
		})
	}
}
