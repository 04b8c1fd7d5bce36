package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"acklast"
)

// The CDK lives in a child process that serves one caller at a time: no test here runs in parallel.
func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

type resource struct {
	Type                                string
	Properties                          map[string]any
	DependsOn                           []string
	UpdatePolicy                        map[string]any
	DeletionPolicy, UpdateReplacePolicy string
}

type template struct {
	Resources map[string]resource
	Outputs   map[string]struct {
		Description string
		Value       any
	}
	raw []byte
}

// standardTemplate is the template of a system for which nothing was chosen.
func standardTemplate(t *testing.T) template {
	t.Helper()
	return templateOf(t, defaults())
}

// templates are those that were made, by their props without the kinds: no test changes a template.
var templates = map[string]template{}

// templateOf makes the template of a system with the kinds of defaults, or has made it before.
func templateOf(t *testing.T, p Props) template {
	t.Helper()
	known := p
	known.Kinds = nil
	key := fmt.Sprintf("%+v", known)
	if tm, made := templates[key]; made {
		return tm
	}
	tm, err := synthesise(t.TempDir(), p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	templates[key] = tm
	return tm
}

// testStack is the name of the tests' system, whatever DefaultStack is: the tests name its parts, and adopters
// choose another default.
const testStack = "acklast"

// kinds are those of the tests' system. They have the names, tables and permissions of this repository's samples. They do
// not follow the list in internal/kinds, so that a kind of yours changes no expectation here.
func kinds() []acklast.Kind {
	return []acklast.Kind{
		fixture("reservation.expire",
			[]acklast.Table{{Name: "reservations", PartitionKey: "reservation_id"}, {Name: "resources", PartitionKey: "resource_id"}},
			func(func(string) string) []acklast.Grant {
				return []acklast.Grant{
					{Table: "reservations", Actions: []string{"dynamodb:GetItem", "dynamodb:UpdateItem"}},
					{Table: "resources", Actions: []string{"dynamodb:UpdateItem"}},
				}
			}),
		fixture("reminder.send",
			[]acklast.Table{{Name: "subscriptions", PartitionKey: "subscription_id"}},
			func(getenv func(string) string) []acklast.Grant {
				all := []acklast.Grant{{Table: "subscriptions", Actions: []string{"dynamodb:GetItem"}}}
				if secret := getenv("REMINDER_SECRET_ARN"); secret != "" {
					all = append(all, acklast.Grant{Resource: secret, Actions: []string{"secretsmanager:GetSecretValue"}})
				}
				if from := getenv("REMINDER_FROM"); from != "" {
					all = append(all, acklast.Grant{Resource: "arn:{partition}:ses:{region}:{account}:identity/" + from, Actions: []string{"ses:SendEmail", "ses:SendTemplatedEmail"}})
				}
				return all
			}),
	}
}

// fixture is a kind that is deployed and never run.
func fixture(name string, tables []acklast.Table, grants func(getenv func(string) string) []acklast.Grant) acklast.Kind {
	type payload struct {
		ID string `json:"id"`
	}
	return acklast.Define(acklast.Definition[payload]{
		Name: name, Key: func(p payload) (string, []string) { return p.ID, nil }, Tables: tables,
		Grants: func(getenv func(string) string) ([]acklast.Grant, error) { return grants(getenv), nil },
	}, func(context.Context, acklast.Services) (acklast.Runner[payload], error) {
		return nil, errors.New("a fixture does not run")
	})
}

// defaults are the props of a system with the kinds above, for which nothing was chosen.
func defaults() Props {
	return Props{Name: testStack, Kinds: kinds(), Numbers: DefaultNumbers(), Infra: DefaultInfra()}
}

// synthesise makes the template in a folder of its own, with stubs for the binaries, and with more
// context than cdk.json has. place, if given, does more with the stack before it is synthesised.
func synthesise(dir string, p Props, more map[string]any, place func(awscdk.App, awscdk.Stack, *Stack)) (template, error) {
	app, err := newApp(dir, more)
	if err != nil {
		return template{}, err
	}
	if p.WorkerCode, p.RedriveCode, err = stubs(dir); err != nil {
		return template{}, err
	}
	in := awscdk.NewStack(app, &p.Name, nil)
	st := New(in, "Default", p)
	if place != nil {
		place(app, in, st)
	}
	app.Synth(nil)
	return read(dir, p.Name)
}

// newApp is an app that writes into dir.
func newApp(dir string, more map[string]any) (awscdk.App, error) {
	context, err := cdkContext()
	if err != nil {
		return nil, err
	}
	maps.Copy(context, more)
	out := filepath.Join(dir, "cdk.out")
	return awscdk.NewApp(&awscdk.AppProps{Context: &context, Outdir: &out, AnalyticsReporting: jsii.Bool(false)}), nil
}

// stubs are the code of both functions, without a build.
func stubs(dir string) (worker, redrive Code, err error) {
	at := func(name string) Code {
		folder := filepath.Join(dir, "dist", name)
		err = errors.Join(err, os.MkdirAll(folder, 0o755),
			os.WriteFile(filepath.Join(folder, "bootstrap"), []byte("#!/bin/sh\n# "+name+"\n"), 0o755))
		return BuiltAt(folder)
	}
	worker, redrive = at("worker"), at("redrive")
	return worker, redrive, err
}

// read reads the template of a stack.
func read(dir, stack string) (template, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "cdk.out", stack+".template.json"))
	if err != nil {
		return template{}, err
	}
	tm := template{raw: raw}
	return tm, json.Unmarshal(raw, &tm)
}

// cdkContext is what the CDK command line would pass in.
func cdkContext() (map[string]any, error) {
	raw, err := os.ReadFile("../../cdk.json")
	if err != nil {
		return nil, err
	}
	var config struct{ Context map[string]any }
	return config.Context, json.Unmarshal(raw, &config)
}

// of returns the logical ids of a type's resources, in order.
func (tm template) of(kind string) []string {
	var ids []string
	for id, r := range tm.Resources {
		if r.Type == kind {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// named finds the one resource of a type whose property has the value.
func (tm template) named(t *testing.T, kind, property, value string) map[string]any {
	t.Helper()
	for _, id := range tm.of(kind) {
		if p := tm.Resources[id].Properties; tm.text(p[property]) == value {
			return p
		}
	}
	t.Fatalf("no %s with %s = %s", kind, property, value)
	return nil
}

const (
	testRegion  = "eu-central-1"
	testAccount = "123456789012"
)

// text resolves a value to the string that it would be once deployed.
func (tm template) text(v any) string {
	s, _ := tm.resolve(v).(string)
	return s
}

// resolve replaces every reference by what it would be in testAccount and testRegion.
func (tm template) resolve(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = tm.resolve(v[i])
		}
		return out
	case map[string]any:
		if len(v) == 1 {
			if ref, ok := v["Ref"].(string); ok {
				return tm.ref(ref)
			}
			if join, ok := v["Fn::Join"].([]any); ok {
				var parts []string
				for _, part := range join[1].([]any) {
					parts = append(parts, tm.text(part))
				}
				return strings.Join(parts, join[0].(string))
			}
			if att, ok := v["Fn::GetAtt"].([]any); ok {
				return tm.att(att[0].(string), att[1].(string))
			}
			if choice, ok := v["Fn::Select"].([]any); ok {
				of, _ := tm.resolve(choice[1]).([]any)
				n, err := strconv.Atoi(fmt.Sprint(choice[0]))
				if err != nil || n >= len(of) {
					return nil
				}
				return of[n]
			}
			if split, ok := v["Fn::Split"].([]any); ok {
				var parts []any
				for part := range strings.SplitSeq(tm.text(split[1]), split[0].(string)) {
					parts = append(parts, part)
				}
				return parts
			}
			if export, ok := v["Fn::ImportValue"].(string); ok {
				return "<" + export + ">"
			}
			if sub, ok := v["Fn::Sub"].(string); ok {
				return strings.NewReplacer("${AWS::AccountId}", testAccount, "${AWS::Region}", testRegion).Replace(sub)
			}
		}
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = tm.resolve(v[k])
		}
		return out
	}
	return v
}

func (tm template) ref(id string) string {
	switch id {
	case "AWS::Region":
		return testRegion
	case "AWS::AccountId":
		return testAccount
	case "AWS::Partition":
		return "aws"
	case "AWS::URLSuffix":
		return "amazonaws.com"
	}
	r := tm.Resources[id]
	switch r.Type {
	case "AWS::SQS::Queue":
		return "https://sqs." + testRegion + ".amazonaws.com/" + testAccount + "/" + tm.name(id)
	case "AWS::Lambda::Alias":
		return tm.att(id, "AliasArn")
	case "AWS::CloudWatch::Alarm", "AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::Logs::LogGroup":
		return tm.name(id)
	}
	return "<" + id + ">"
}

func (tm template) att(id, attribute string) string {
	r, name := tm.Resources[id], tm.name(id)
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":" + testRegion + ":" + testAccount + ":" + resource
	}
	switch r.Type + " " + attribute {
	case "AWS::SQS::Queue Arn":
		return arn("sqs", name)
	case "AWS::SQS::Queue QueueName":
		return name
	case "AWS::DynamoDB::Table Arn":
		return arn("dynamodb", "table/"+name)
	case "AWS::Lambda::Function Arn":
		return arn("lambda", "function:"+name)
	case "AWS::Lambda::Alias AliasArn":
		return tm.att(idOf(r.Properties["FunctionName"]), "Arn") + ":" + name
	case "AWS::Lambda::EventSourceMapping EventSourceMappingArn":
		return arn("lambda", "event-source-mapping:<"+id+">")
	case "AWS::Logs::LogGroup Arn":
		return arn("logs", "log-group:"+name+":*")
	case "AWS::CloudWatch::Alarm Arn":
		return arn("cloudwatch", "alarm:"+name)
	case "AWS::KMS::Key Arn":
		return arn("kms", "key/<"+id+">")
	}
	return "<" + id + "." + attribute + ">"
}

func idOf(ref any) string {
	m, _ := ref.(map[string]any)
	id, _ := m["Ref"].(string)
	return id
}

// name is a resource's physical name.
func (tm template) name(id string) string {
	for _, property := range []string{"QueueName", "TableName", "LogGroupName", "AlarmName", "Name", "FunctionName"} {
		if v, ok := tm.Resources[id].Properties[property].(string); ok {
			return v
		}
	}
	return "<" + id + ">"
}

// number reads a property that is a number, or says that there is none.
func number(v any) float64 {
	n, ok := v.(float64)
	if !ok {
		return -1
	}
	return n
}

// equal reports how two lists differ, line by line.
func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	for _, line := range slices.Compact(got) {
		if !slices.Contains(want, line) {
			t.Errorf("%s: unexpected %s", what, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: missing %s", what, line)
		}
	}
}

// references finds every logical id that a value refers to.
func references(v any, found map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			references(one, found)
		}
	case map[string]any:
		for key, value := range v {
			switch target := value.(type) {
			case string:
				if key == "Ref" {
					found[target] = true
				}
			case []any:
				if key == "Fn::GetAtt" {
					found[fmt.Sprint(target[0])] = true
				}
			}
			references(value, found)
		}
	}
}

// graph maps each resource to those it needs.
func (tm template) graph() map[string][]string {
	out := map[string][]string{}
	for id, r := range tm.Resources {
		found := map[string]bool{}
		references(r.Properties, found)
		for _, d := range r.DependsOn {
			found[d] = true
		}
		out[id] = slices.Sorted(maps.Keys(found))
	}
	return out
}
