package stack

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"acklast"
	"acklast/docs/newkind"
)

// adopter is an app of somebody else's, with the CDK's context and nothing of this repository's.
func adopter(t *testing.T) (app awscdk.App, props func(name string) Props, synth func(stack string) template) {
	t.Helper()
	dir := t.TempDir()
	out := dir + "/cdk.out"
	app = awscdk.NewApp(&awscdk.AppProps{Outdir: &out, AnalyticsReporting: jsii.Bool(false)})
	worker, redrive, err := stubs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return app, func(name string) Props {
			return Props{Name: name, Kinds: []acklast.Kind{newkind.Kind()}, WorkerCode: worker, RedriveCode: redrive}
		}, func(stack string) template {
			app.Synth(nil)
			tm, err := read(dir, stack)
			if err != nil {
				t.Fatal(err)
			}
			return tm
		}
}

func role(scope awscdk.Stack, id string) awsiam.Role {
	return awsiam.NewRole(scope, &id, &awsiam.RoleProps{AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil)})
}

func TestTwoSystemsInOneStack(t *testing.T) {
	app, props, synth := adopter(t)
	shop := awscdk.NewStack(app, jsii.String("Shop"), nil)
	New(shop, "Orders", props("orders"))
	New(shop, "Returns", props("returns"))
	tm := synth("Shop")
	for kind, want := range map[string][]string{
		"AWS::SQS::Queue":       {"orders-source", "orders-recovery", "orders-dlq", "returns-source", "returns-recovery", "returns-dlq"},
		"AWS::Lambda::Function": {"orders-worker", "orders-redrive", "returns-worker", "returns-redrive"},
		"AWS::DynamoDB::Table": {"orders-ledger", "orders-operations", "orders-vouchers",
			"returns-ledger", "returns-operations", "returns-vouchers"},
	} {
		var names []string
		for _, id := range tm.of(kind) {
			names = append(names, tm.name(id))
		}
		equal(t, kind, names, want)
		if len(names) != len(want) {
			t.Errorf("%d of %s, want %d", len(names), kind, len(want))
		}
	}
	// Neither may touch what the other has.
	for _, pair := range [][2]string{{"Orders", "returns-"}, {"Returns", "orders-"}} {
		for _, part := range []string{"WorkerRole", "RedriveRole", "Operators", "Approvers", "ReadOnly"} {
			for _, line := range tm.allowed(t, pair[0]+part) {
				if strings.Contains(line, pair[1]) {
					t.Errorf("%s %s may %s", pair[0], part, line)
				}
			}
		}
	}
}

func TestTwoSystemsOfOneNameAreRefused(t *testing.T) {
	app, props, _ := adopter(t)
	shop := awscdk.NewStack(app, jsii.String("Shop"), nil)
	New(shop, "Orders", props("orders"))
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `stack Again: the stack has a system named "orders" already`) {
			t.Errorf("got %s", said)
		}
	}()
	New(shop, "Again", props("orders"))
}

// A producer in a stack of its own may send to a system in another, and to nothing else of it.
func TestGrantsAcrossStacks(t *testing.T) {
	app, props, synth := adopter(t)
	p := props("orders")
	p.CustomerKey = true
	jobs := New(awscdk.NewStack(app, jsii.String("Jobs"), nil), "Orders", p)
	web := awscdk.NewStack(app, jsii.String("Web"), nil)
	jobs.GrantSend(role(web, "Producer"))
	jobs.GrantCancel(role(web, "Canceller"))
	jobs.GrantOperate(role(web, "Operator"))
	jobs.GrantApprove(role(web, "Approver"))
	tm := synth("Web")
	for id, want := range map[string][]string{
		"Canceller": append(grid("LedgerTable", "dynamodb:GetItem", "dynamodb:UpdateItem"), append(grid("Key", keyActions...),
			"scheduler:DeleteSchedule scheduler:schedule/orders-scheduled/*", "dynamodb:UpdateItem OperationsTable", "lambda:GetFunctionConfiguration Worker")...),
		"Producer": {"sqs:GetQueueUrl SourceQueue", "sqs:SendMessage SourceQueue", "kms:GenerateDataKey Key", "kms:Decrypt Key"},
		"Approver": {"lambda:InvokeFunction RedriveAliasapprove"},
	} {
		equal(t, id, imported(tm.allowed(t, id)), want)
	}
	may := imported(tm.allowed(t, "Operator"))
	for _, line := range []string{
		"lambda:InvokeFunction RedriveAliasoperate", "dynamodb:Query LedgerTable",
	} {
		if !slices.Contains(may, line) {
			t.Errorf("operators may not %s, but %v", line, may)
		}
	}
}

// imported shortens what another stack exports to the id of its construct.
func imported(lines []string) []string {
	export := regexp.MustCompile(`^(\S+) <Jobs:ExportsOutput(?:FnGetAtt|Ref)Orders(\w+?)[0-9A-F]{8}.*>$`)
	for i, line := range lines {
		lines[i] = export.ReplaceAllString(line, "$1 $2")
	}
	return lines
}

// Services send on behalf of one source, and under the key.
func TestServicesThatMaySend(t *testing.T) {
	app, props, synth := adopter(t)
	p := props("orders")
	p.CustomerKey = true
	st := New(awscdk.NewStack(app, jsii.String("Jobs"), nil), "Default", p)
	const (
		topic = "arn:aws:sns:eu-central-1:123456789012:holds"
		rule  = "arn:aws:events:eu-central-1:123456789012:rule/nightly"
		files = "arn:aws:s3:::uploads"
	)
	st.AllowTopic(topic)
	st.AllowRule(rule)
	st.AllowBucket(files)
	tm := synth("Jobs")
	want := []string{
		"sns.amazonaws.com map[ArnEquals:map[aws:SourceArn:[" + topic + "]]]",
		"events.amazonaws.com map[ArnEquals:map[aws:SourceArn:[" + rule + "]]]",
		"s3.amazonaws.com map[ArnEquals:map[aws:SourceArn:[" + files + "]] StringEquals:map[aws:SourceAccount:" + testAccount + "]]",
	}
	services := func(document any, actions string) []string {
		var got []string
		for _, one := range tm.resolve(document).(map[string]any)["Statement"].([]any) {
			s := one.(map[string]any)
			if service, ok := s["Principal"].(map[string]any)["Service"]; ok && s["Effect"] == "Allow" {
				got = append(got, fmt.Sprint(service, " ", s["Condition"]))
				if fmt.Sprint(s["Action"]) != actions {
					t.Errorf("%v may %v, want %s", service, s["Action"], actions)
				}
			}
		}
		return got
	}
	for _, id := range tm.of("AWS::SQS::QueuePolicy") {
		p := tm.Resources[id].Properties
		of := tm.text(p["Queues"].([]any)[0])
		if strings.HasSuffix(of, "/orders-source") {
			equal(t, "source queue", services(p["PolicyDocument"], "sqs:SendMessage"), want)
		} else if got := services(p["PolicyDocument"], ""); len(got) != 0 {
			t.Errorf("%s takes messages of %v", of, got)
		}
	}
	equal(t, "key", services(tm.Resources[tm.of("AWS::KMS::Key")[0]].Properties["KeyPolicy"], "[kms:GenerateDataKey kms:Decrypt]"), want)
}

// A kind of another package appears with its table, and the worker may do what the kind says and no more.
func TestAKindBringsTablesAndGrants(t *testing.T) {
	app, props, synth := adopter(t)
	st := New(awscdk.NewStack(app, jsii.String("Jobs"), nil), "Default", props("orders"))
	if st.Table("vouchers") == nil || st.Table("other") != nil {
		t.Error("Table does not find the kind's table by its name")
	}
	tm := synth("Jobs")
	if got := keys(tm.named(t, "AWS::DynamoDB::Table", "TableName", "orders-vouchers")); got != schema("voucher_id", "") {
		t.Errorf("keys are %s", got)
	}
	var may []string
	for _, line := range tm.allowed(t, "WorkerRole") {
		if strings.HasSuffix(line, " dynamodb:table/orders-vouchers") {
			may = append(may, line)
		}
	}
	equal(t, "worker", may, grid("dynamodb:table/orders-vouchers", "dynamodb:GetItem", "dynamodb:UpdateItem"))
	if got := tm.text(tm.Outputs["VouchersTableName"].Value); got != "orders-vouchers" {
		t.Errorf("the output names the table %q", got)
	}
	if may := tm.allowed(t, "ReadOnly"); !slices.Contains(may, "dynamodb:Query dynamodb:table/orders-vouchers") {
		t.Errorf("readers may not read the table, but %v", may)
	}
}

// neverStarted is the constructor of kinds that are only described.
func neverStarted(context.Context, acklast.Services) (acklast.Runner[struct{}], error) {
	return nil, errors.New("not here")
}

func TestGrantsOfKindsAreChecked(t *testing.T) {
	kind := func(name string, tables []acklast.Table, grants ...acklast.Grant) acklast.Kind {
		return acklast.Define(acklast.Definition[struct{}]{
			Name: name, Key: func(struct{}) (string, []string) { return "x", nil }, Tables: tables,
			Grants: func(getenv func(string) string) ([]acklast.Grant, error) {
				if getenv("BROKEN") != "" {
					return nil, fmt.Errorf("BROKEN is set")
				}
				return grants, nil
			},
		}, neverStarted)
	}
	own := []acklast.Table{{Name: "own", PartitionKey: "id"}}
	act := []string{"dynamodb:GetItem"}
	for want, p := range map[string]Props{
		`kind a: a grant names the table "ledger", which is none of the kind's own`: {Kinds: []acklast.Kind{kind("a", own, acklast.Grant{Actions: act, Table: "ledger"})}},
		`want actions on one of the two`:                                            {Kinds: []acklast.Kind{kind("a", own, acklast.Grant{Actions: act})}},
		`kind a: a grant has actions []`:                                            {Kinds: []acklast.Kind{kind("a", own, acklast.Grant{Table: "own"})}},
		`kind a: BROKEN is set`:                                                     {Kinds: []acklast.Kind{kind("a", own)}, Environment: map[string]string{"BROKEN": "1"}},
		`kind b has a table "own", which kind a has with other keys`: {Kinds: []acklast.Kind{
			kind("a", own), kind("b", []acklast.Table{{Name: "own", PartitionKey: "other"}})}},
		`kind a has a table "ledger", which the system has`: {Kinds: []acklast.Kind{kind("a", []acklast.Table{{Name: "ledger", PartitionKey: "id"}})}},
		`kind a: table "a/b": a table's name has`:           {Kinds: []acklast.Kind{kind("a", []acklast.Table{{Name: "a/b", PartitionKey: "id"}})}},
		`kind slow: attempt time is 1h0m0s, above start margin`: {Kinds: []acklast.Kind{acklast.Define(acklast.Definition[struct{}]{
			Name: "slow", Key: func(struct{}) (string, []string) { return "x", nil }, Attempts: acklast.Attempts{Time: time.Hour}}, neverStarted)}},
		`the worker's environment has up to`:                   {Environment: map[string]string{"LONG": strings.Repeat("x", 4000)}},
		`environment has ACKLAST_REDRIVE_RATE, which New sets`: {Environment: map[string]string{"ACKLAST_REDRIVE_RATE": "x"}},
		`environment has ACKLAST_STACK, which New sets`:        {Environment: map[string]string{"ACKLAST_STACK": "x"}},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	shared := Props{Kinds: []acklast.Kind{kind("a", own), kind("b", own)}}
	if err := shared.Validate(); err != nil {
		t.Errorf("two kinds may share a table: %v", err)
	}
}

// VPC, tags, boundary and environment reach what they are for.
func TestPropsReachTheTemplate(t *testing.T) {
	app, props, synth := adopter(t)
	in := awscdk.NewStack(app, jsii.String("Jobs"), nil)
	p := props("orders")
	p.VPC = awsec2.NewVpc(in, jsii.String("Vpc"), nil)
	p.Tags = map[string]string{"team": "checkout"}
	const boundary = "arn:aws:iam::123456789012:policy/bound"
	p.PermissionsBoundary = awsiam.ManagedPolicy_FromManagedPolicyArn(in, jsii.String("Boundary"), jsii.String(boundary))
	p.Environment = map[string]string{"SHOP": "eu"}
	New(in, "Default", p)
	tm := synth("Jobs")
	for _, name := range []string{"orders-worker", "orders-redrive"} {
		f := tm.named(t, "AWS::Lambda::Function", "FunctionName", name)
		if subnets, _ := f["VpcConfig"].(map[string]any)["SubnetIds"].([]any); len(subnets) == 0 {
			t.Errorf("%s is in no subnet", name)
		}
		if tags := fmt.Sprint(f["Tags"]); !strings.Contains(tags, "map[Key:team Value:checkout]") {
			t.Errorf("%s has tags %s", name, tags)
		}
		shop := tm.resolve(f["Environment"]).(map[string]any)["Variables"].(map[string]any)["SHOP"]
		if shop != "eu" {
			t.Errorf("%s has SHOP=%v, want eu", name, shop)
		}
	}
	for _, id := range []string{"WorkerRole", "RedriveRole"} {
		if may := tm.allowed(t, id); !slices.Contains(may, "ec2:CreateNetworkInterface *") {
			t.Errorf("%s may not make its network interface", id)
		}
		roles := slices.DeleteFunc(tm.of("AWS::IAM::Role"), func(r string) bool { return !strings.HasPrefix(r, id) })
		if got := tm.Resources[roles[0]].Properties["PermissionsBoundary"]; got != boundary {
			t.Errorf("%s is bounded by %v", id, got)
		}
	}
}

// A zip file of a bootstrap is as good as a folder with one.
func TestCodeMayBeAZipFile(t *testing.T) {
	var zipped bytes.Buffer
	archive := zip.NewWriter(&zipped)
	if _, err := archive.Create("bootstrap"); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "worker.zip")
	if err := os.WriteFile(file, zipped.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	app, props, synth := adopter(t)
	p := props("orders")
	p.WorkerCode = BuiltAt(file)
	New(awscdk.NewStack(app, jsii.String("Jobs"), nil), "Default", p)
	tm := synth("Jobs")
	key := fmt.Sprint(tm.named(t, "AWS::Lambda::Function", "FunctionName", "orders-worker")["Code"].(map[string]any)["S3Key"])
	staged, err := os.ReadFile(filepath.Join(*app.Outdir(), "asset."+key))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(staged, zipped.Bytes()) {
		t.Error("the asset is not the zip file")
	}
}

func TestCodeIsCheckedByNew(t *testing.T) {
	app, props, _ := adopter(t)
	for want, code := range map[string]Code{
		"function a-worker: it is not built: ":                             BuiltAt(t.TempDir()),
		"function b-worker: its code is neither a Path nor a Module with":  {},
		"function c-worker: build ./nowhere":                               GoPackage("../..", "./nowhere"),
		"function d-worker: build ./infra/build: it is not a main package": GoPackage("../..", "./infra/build"),
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("got %s, want %s", said, want)
				}
			}()
			name := want[len("function "):][:1]
			p := props(name)
			p.WorkerCode = code
			New(awscdk.NewStack(app, &name, nil), "Default", p)
		}()
	}
}
