package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"

	"acklast/internal/kinds"
	"acklast/internal/topology"
)

type resource struct {
	Type       string
	Properties map[string]any
}

// resources synthesises the system.
func resources(t *testing.T, s Settings) map[string]resource {
	t.Helper()
	raw, err := json.Marshal(assertions.Template_FromStack(place(t, s), nil).ToJSON())
	if err != nil {
		t.Fatal(err)
	}
	var template struct{ Resources map[string]resource }
	if err := json.Unmarshal(raw, &template); err != nil {
		t.Fatal(err)
	}
	return template.Resources
}

// The desk may do what hold and confirm do, and nothing to the entries of jobs.
func TestDeskMay(t *testing.T) {
	if !kinds.Registered(deskKind) {
		t.Skipf("this stack has no %s", deskKind)
	}
	all := resources(t, DefaultSettings())
	var got []string
	for id, r := range all {
		if r.Type != "AWS::IAM::ManagedPolicy" || !strings.HasPrefix(id, "Desk") {
			continue
		}
		for _, one := range r.Properties["PolicyDocument"].(map[string]any)["Statement"].([]any) {
			s := one.(map[string]any)
			on, _ := json.Marshal(s["Resource"])
			for part, r := range all {
				if !strings.Contains(string(on), `"`+part+`"`) {
					continue
				}
				actions, ok := s["Action"].([]any)
				if !ok {
					actions = []any{s["Action"]}
				}
				for _, action := range actions {
					got = append(got, fmt.Sprint(action, " ", r.Properties["TableName"], r.Properties["QueueName"]))
				}
			}
		}
	}
	const stack = topology.DefaultStack
	const queue, ledger, reservations, capacity = "<nil>" + stack + "-source", stack + "-ledger<nil>", stack + "-reservations<nil>", stack + "-resources<nil>"
	want := []string{
		"sqs:GetQueueUrl " + queue, "sqs:SendMessage " + queue,
		"dynamodb:ConditionCheckItem " + ledger,
		"dynamodb:GetItem " + reservations, "dynamodb:PutItem " + reservations, "dynamodb:UpdateItem " + reservations,
		"dynamodb:GetItem " + capacity, "dynamodb:PutItem " + capacity, "dynamodb:UpdateItem " + capacity,
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the desk may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A list in a settings file and commas on the command line mean the same.
func TestSendersMaySend(t *testing.T) {
	const (
		topic  = "arn:aws:sns:eu-central-1:123456789012:holds"
		rule   = "arn:aws:events:eu-central-1:123456789012:rule/bus/nightly"
		bucket = "arn:aws:s3:::uploads"
	)
	s, err := ParseSettings(set("senders", topic+","+rule+", "+bucket))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := ParseSettings(set("senders", []any{topic, rule, bucket}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.senders(), listed.senders()) {
		t.Errorf("commas give %q, a list %q", s.senders(), listed.senders())
	}
	var got []string
	for _, r := range resources(t, s) {
		if r.Type != "AWS::SQS::QueuePolicy" {
			continue
		}
		for _, one := range r.Properties["PolicyDocument"].(map[string]any)["Statement"].([]any) {
			if s := one.(map[string]any); s["Effect"] == "Allow" {
				got = append(got, fmt.Sprint(s["Action"], " ", s["Principal"], " ", s["Condition"].(map[string]any)["ArnEquals"]))
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"sqs:SendMessage map[Service:events.amazonaws.com] map[aws:SourceArn:[" + rule + "]]",
		"sqs:SendMessage map[Service:s3.amazonaws.com] map[aws:SourceArn:[" + bucket + "]]",
		"sqs:SendMessage map[Service:sns.amazonaws.com] map[aws:SourceArn:[" + topic + "]]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What an organisation asks of every stack reaches both functions.
func TestSettingsOfTheOrganisation(t *testing.T) {
	const boundary = "arn:aws:iam::123456789012:policy/bound"
	s, err := ParseSettings(map[string]any{
		"acklast:tags": map[string]any{"team": "checkout"}, "acklast:environment": "SHOP=eu", "acklast:tracing": false,
		"acklast:vpc": "vpc-0a1b2c3d", "acklast:subnets": []any{"subnet-0a1b2c3d", "subnet-1a1b2c3d"},
		"acklast:permissionsBoundaryArn": boundary,
	})
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for id, r := range resources(t, s) {
		switch r.Type {
		case "AWS::Lambda::Function":
			functions++
			if got := fmt.Sprint(r.Properties["VpcConfig"].(map[string]any)["SubnetIds"]); got != "[subnet-0a1b2c3d subnet-1a1b2c3d]" {
				t.Errorf("%s runs in subnets %s", id, got)
			}
			if got := r.Properties["TracingConfig"]; got != nil {
				t.Errorf("%s traces: %v", id, got)
			}
			if got := fmt.Sprint(r.Properties["Tags"]); !strings.Contains(got, "map[Key:team Value:checkout]") {
				t.Errorf("%s has tags %s", id, got)
			}
			shop := r.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["SHOP"]
			if shop != "eu" {
				t.Errorf("%s has SHOP=%v", id, shop)
			}
		case "AWS::IAM::Role":
			if got := r.Properties["PermissionsBoundary"]; got != boundary {
				t.Errorf("%s is bounded by %v", id, got)
			}
		}
	}
	if functions != 2 {
		t.Errorf("%d functions, want 2", functions)
	}
}

// As many senders as the check lets pass make a policy that SQS takes, also for the longest names: at most 8192
// bytes, 20 statements and 10 conditions.
func TestThePolicyOfManySendersFits(t *testing.T) {
	var senders []any
	var s Settings
	for n := 0; ; n++ {
		more := append(slices.Clone(senders), fmt.Sprintf("arn:aws:sns:eu-central-1:123456789012:topic-%03d", n),
			fmt.Sprintf("arn:aws:events:eu-central-1:123456789012:rule/bus/nightly-%03d", n), fmt.Sprintf("arn:aws:s3:::uploads-%03d", n))
		next, err := ParseSettings(map[string]any{Prefix + "stack": strings.Repeat("n", topology.MaxStack), Prefix + "senders": more})
		if err != nil {
			break
		}
		senders, s = more, next
	}
	if len(senders) < 90 {
		t.Fatalf("only %d senders are allowed", len(senders))
	}
	for _, r := range resources(t, s) {
		if r.Type != "AWS::SQS::QueuePolicy" || !strings.Contains(fmt.Sprint(r.Properties), "topic-000") {
			continue
		}
		raw, err := json.Marshal(r.Properties["PolicyDocument"])
		if err != nil {
			t.Fatal(err)
		}
		arn := "arn:aws-us-gov:sqs:ap-northeast-1:123456789012:" + s.Stack + "-source"
		policy := regexp.MustCompile(`\{"Fn::GetAtt":\["SourceQueue[0-9A-F]+","Arn"\]\}`).ReplaceAllString(string(raw), `"`+arn+`"`)
		policy = strings.ReplaceAll(policy, `{"Ref":"AWS::AccountId"}`, `"123456789012"`)
		if strings.Contains(policy, `"Ref"`) || strings.Contains(policy, "Fn::") {
			t.Errorf("the policy has references: %s", policy)
		}
		if n := len(policy); n > 8192 || n < 7000 {
			t.Errorf("the policy of %d senders has %d bytes", len(senders), n)
		}
		if n := strings.Count(policy, `"Effect"`); n > 20 {
			t.Errorf("the policy has %d statements", n)
		}
		if n := strings.Count(policy, `"ArnEquals"`) + strings.Count(policy, `"StringEquals"`) + strings.Count(policy, `"Bool"`); n > 10 {
			t.Errorf("the policy has %d conditions", n)
		}
		return
	}
	t.Error("no policy names the topics")
}

// The desk and the services that send may use a key that is taken out of use as they could before.
func TestAKeyIsKeptForTheDeskAndTheSenders(t *testing.T) {
	of := func(customerKey string) map[string]string {
		s, err := ParseSettings(map[string]any{
			Prefix + "customerKey": customerKey, Prefix + "senders": "arn:aws:sns:eu-central-1:123456789012:holds,arn:aws:s3:::uploads",
		})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for id, r := range resources(t, s) {
			if r.Type == "AWS::KMS::Key" || r.Type == "AWS::IAM::ManagedPolicy" && strings.HasPrefix(id, "Desk") {
				all[r.Type] = fmt.Sprint(r.Properties["KeyPolicy"], r.Properties["PolicyDocument"])
			}
		}
		return all
	}
	used, kept := of("true"), of("false")
	wants := map[string]string{"AWS::KMS::Key": "sns.amazonaws.com"}
	if kinds.Registered(deskKind) {
		wants["AWS::IAM::ManagedPolicy"] = "kms:Decrypt"
	}
	for kind, want := range wants {
		if kept[kind] != used[kind] || !strings.Contains(kept[kind], want) {
			t.Errorf("%s is\n%s\nwant\n%s", kind, kept[kind], used[kind])
		}
	}
}
