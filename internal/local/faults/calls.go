package faults

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Call is one AWS call as IAM sees it. One request may be several calls: a transaction needs the permission for
// each of its parts.
type Call struct {
	// Principal is the caller: "worker", "redrive", or the words of a command such as "redrive plan".
	Principal string `json:"principal"`
	// Action is IAM's name of the call, such as "sqs:SendMessage". It begins with "unknown:" if this package
	// does not know the request.
	Action string `json:"action"`
	// Resource is the end of the resource's ARN, such as "table/acklast-ledger". It is "*" for an action
	// without resources. The stack's name in it is replaced by "acklast".
	Resource string `json:"resource"`
	// Context holds the values that a policy's condition may test: here, the partition key of an update that
	// people may make under one key only. Keys of jobs are left out, because each would be another call to
	// replay.
	Context map[string][]string `json:"context,omitempty"`
}

// leadingKeys is IAM's name for the partition keys in a call to DynamoDB.
const leadingKeys = "dynamodb:LeadingKeys"

// operationsKey is the partition key of the operations table.
const operationsKey = "pk"

// Record appends every later call to the file, one JSON object a line, as calls of principal on the stack.
// Several proxies and processes may record into one file.
func (p *Proxy) Record(file, principal, stack string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe = func(r *http.Request, body []byte) {
		var lines []byte
		for _, c := range callsOf(r, body) {
			c.Principal = principal
			c.Resource = strings.Replace(c.Resource, stack+"-", "acklast-", 1)
			line, err := json.Marshal(c)
			if err != nil {
				panic(err) // strings always encode
			}
			lines = append(append(lines, line...), '\n')
		}
		// Make one write, so that lines of several processes do not mix.
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(lines)
			_ = f.Close()
		}
		if err != nil {
			panic("faults: record calls: " + err.Error())
		}
	}
}

// callsOf reads a request.
func callsOf(r *http.Request, body []byte) []Call {
	service, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch {
	case service == "AmazonSQS":
		return callsOfSQS(operation, body)
	case strings.HasPrefix(service, "DynamoDB_"):
		return callsOfDynamoDB(operation, body)
	case strings.HasPrefix(r.URL.Path, lambdaPath):
		return callsOfLambda(r)
	case r.URL.Path == schedulesPath || strings.HasPrefix(r.URL.Path, schedulesPath+"/"):
		return callsOfScheduler(r, body)
	case strings.HasPrefix(r.URL.Path, cloudWatchPath):
		return []Call{{Action: "cloudwatch:" + strings.TrimPrefix(r.URL.Path, cloudWatchPath), Resource: "*"}}
	case r.URL.Path == accountPath:
		return []Call{{Action: "lambda:GetAccountSettings", Resource: "*"}}
	case strings.HasPrefix(r.URL.Path, recursionPath) && strings.HasSuffix(r.URL.Path, recursionSuffix):
		function := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, recursionPath), recursionSuffix)
		return []Call{{Action: "lambda:GetFunctionRecursionConfig", Resource: "function:" + function}}
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded"):
		// This is the query protocol. STS is the only service with it that is called.
		if form, err := url.ParseQuery(string(body)); err == nil && form.Get("Action") == "GetCallerIdentity" {
			return []Call{{Action: "sts:GetCallerIdentity", Resource: "*"}}
		}
	}
	return []Call{{Action: "unknown:" + r.Method + " " + r.URL.Path + " " + r.Header.Get("X-Amz-Target"), Resource: "*"}}
}

// callsOfSQS ignores batches, because IAM has no actions for them.
func callsOfSQS(operation string, body []byte) []Call {
	var in struct {
		QueueURL  string `json:"QueueUrl"`
		QueueName string
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return []Call{{Action: "unknown:sqs " + err.Error(), Resource: "*"}}
	}
	queue := in.QueueName
	if queue == "" {
		queue = in.QueueURL[strings.LastIndexByte(in.QueueURL, '/')+1:]
	}
	return []Call{{Action: "sqs:" + strings.TrimSuffix(operation, "Batch"), Resource: queue}}
}

// callsOfDynamoDB returns a call for each part of a transaction, and one for each table of a batch.
func callsOfDynamoDB(operation string, body []byte) []Call {
	type part struct{ TableName string }
	var in struct {
		TableName, IndexName string
		Key                  map[string]struct{ S string }
		RequestItems         map[string]json.RawMessage
		TransactItems        []map[string]part
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return []Call{{Action: "unknown:dynamodb " + err.Error(), Resource: "*"}}
	}
	var calls []Call
	for table := range in.RequestItems {
		calls = append(calls, Call{Action: "dynamodb:" + operation, Resource: "table/" + table})
	}
	for _, item := range in.TransactItems {
		for kind, p := range item {
			action := kind + "Item"
			if kind == "ConditionCheck" {
				action = "ConditionCheckItem"
			}
			calls = append(calls, Call{Action: "dynamodb:" + action, Resource: "table/" + p.TableName})
		}
	}
	if len(calls) > 0 {
		return calls
	}
	resource := "table/" + in.TableName
	if in.IndexName != "" {
		resource += "/index/" + in.IndexName
	}
	if in.TableName == "" {
		resource = "*"
	}
	call := Call{Action: "dynamodb:" + operation, Resource: resource}
	if key, ok := in.Key[operationsKey]; ok && operation == "UpdateItem" {
		call.Context = map[string][]string{leadingKeys: {key.S}}
	}
	return []Call{call}
}

const (
	schedulesPath = "/schedules"
	// cloudWatchPath comes before the name of an operation of CloudWatch.
	cloudWatchPath = "/service/GraniteServiceVersion20100801/operation/"
	// Two operations of Lambda have versions of their own.
	accountPath                    = "/2016-08-19/account-settings"
	recursionPath, recursionSuffix = "/2024-08-31/functions/", "/recursion-config"
)

// callsOfScheduler leaves out a schedule's name, which is a hash: each would be another call to replay.
func callsOfScheduler(r *http.Request, body []byte) []Call {
	if r.URL.Path == schedulesPath {
		return []Call{{Action: "scheduler:ListSchedules", Resource: "*"}}
	}
	group := r.URL.Query().Get("groupName")
	if r.Method == http.MethodPost {
		var in struct{ GroupName string }
		if err := json.Unmarshal(body, &in); err != nil {
			return []Call{{Action: "unknown:scheduler " + err.Error(), Resource: "*"}}
		}
		group = in.GroupName
	}
	action := map[string]string{http.MethodPost: "CreateSchedule", http.MethodGet: "GetSchedule", http.MethodDelete: "DeleteSchedule"}[r.Method]
	return []Call{{Action: "scheduler:" + action, Resource: "schedule/" + group + "/s"}}
}

const lambdaPath = "/2015-03-31/"

func callsOfLambda(r *http.Request) []Call {
	words := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, lambdaPath), "/"), "/")
	if words[0] == "event-source-mappings" {
		if len(words) == 1 {
			return []Call{{Action: "lambda:ListEventSourceMappings", Resource: "*"}}
		}
		action := map[string]string{http.MethodGet: "GetEventSourceMapping", http.MethodPut: "UpdateEventSourceMapping"}[r.Method]
		return []Call{{Action: "lambda:" + action, Resource: "event-source-mapping:" + words[1]}}
	}
	if words[0] == "functions" && len(words) == 3 {
		function := "function:" + words[1]
		if q := r.URL.Query().Get("Qualifier"); q != "" {
			function += ":" + q
		}
		switch {
		case words[2] == "invocations":
			return []Call{{Action: "lambda:InvokeFunction", Resource: function}}
		case words[2] == "configuration" && r.Method == http.MethodGet:
			return []Call{{Action: "lambda:GetFunctionConfiguration", Resource: function}}
		}
	}
	return []Call{{Action: "unknown:" + r.Method + " " + r.URL.Path, Resource: "*"}}
}
