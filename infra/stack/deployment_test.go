package stack

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

func checked() Props {
	p := defaults()
	p.CheckedDeployment = true
	return p
}

func TestDeploymentGroup(t *testing.T) {
	if n := len(standardTemplate(t).of("AWS::CodeDeploy::DeploymentGroup")); n != 0 {
		t.Errorf("%d deployment groups that nobody asked for", n)
	}
	tm := templateOf(t, checked())
	groups := tm.of("AWS::CodeDeploy::DeploymentGroup")
	if len(groups) != 1 {
		t.Fatalf("deployment groups %v, want one", groups)
	}
	var alias string
	for _, id := range tm.of("AWS::Lambda::Alias") {
		if tm.Resources[id].Properties["Name"] == AliasLive {
			alias = id
		}
	}
	var hook string
	for _, id := range tm.of("AWS::Lambda::Function") {
		if tm.name(id) == "acklast-deployment-hook" {
			hook = id
		}
	}
	update, _ := tm.Resources[alias].UpdatePolicy["CodeDeployLambdaAliasUpdate"].(map[string]any)
	if got := idOf(update["DeploymentGroupName"]); got != groups[0] {
		t.Errorf("the alias is moved by %q, want %s", got, groups[0])
	}
	if got := idOf(update["BeforeAllowTrafficHook"]); got != hook {
		t.Errorf("before that, %q is called, want %s", got, hook)
	}
	p := tm.Resources[groups[0]].Properties
	rollback := p["AutoRollbackConfiguration"].(map[string]any)
	if events := list(rollback["Events"]); rollback["Enabled"] != true || !slices.Contains(events, "DEPLOYMENT_STOP_ON_ALARM") || !slices.Contains(events, "DEPLOYMENT_FAILURE") {
		t.Errorf("rollback is %v", rollback)
	}
	alarms := p["AlarmConfiguration"].(map[string]any)
	watched := idOf(alarms["Alarms"].([]any)[0].(map[string]any)["Name"])
	if alarms["Enabled"] != true || tm.name(watched) != "acklast-new-version-errors" {
		t.Errorf("it is rolled back on %v", alarms)
	}
	// The alarm looks at the errors of the new version alone, and the hook invokes that version.
	dimensions := map[string]any{}
	for _, one := range tm.Resources[watched].Properties["Dimensions"].([]any) {
		d := one.(map[string]any)
		dimensions[d["Name"].(string)] = d["Value"]
	}
	version, _ := dimensions["ExecutedVersion"].(map[string]any)
	live, _ := tm.Resources[alias].Properties["FunctionVersion"].(map[string]any)
	if version == nil || !slices.Equal(version["Fn::GetAtt"].([]any), live["Fn::GetAtt"].([]any)) {
		t.Errorf("the alarm looks at version %v, and the alias moves to %v", version, live)
	}
	if got := tm.text(dimensions["Resource"]); got != "acklast-worker:live" {
		t.Errorf("the alarm looks at %q", got)
	}
	environment := tm.Resources[hook].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
	if got := idOf(environment["VERSION"]); got != live["Fn::GetAtt"].([]any)[0] {
		t.Errorf("the hook invokes %v", environment["VERSION"])
	}
	for _, first := range []string{hook, watched} {
		if !slices.Contains(tm.Resources[alias].DependsOn, first) {
			t.Errorf("the alias may move before %s is the new version's", first)
		}
	}
	equal(t, "the hook", tm.allowed(t, "HookRole"), slices.Concat(
		grid("lambda:function:acklast-worker:*", "lambda:InvokeFunction"),
		grid("codedeploy:deploymentgroup:<"+tm.of("AWS::CodeDeploy::Application")[0]+">/<"+groups[0]+">", "codedeploy:PutLifecycleEventHookExecutionStatus"),
		grid("logs:log-group:/aws/lambda/acklast-deployment-hook:*", "logs:CreateLogStream", "logs:PutLogEvents"),
	))
}

// The hook's code runs here as it will in Lambda, but for the two SDK clients.
func TestHookTellsWhetherTheVersionAnswers(t *testing.T) {
	tm := templateOf(t, checked())
	var code, event string
	for _, id := range tm.of("AWS::Lambda::Function") {
		if tm.name(id) == "acklast-deployment-hook" {
			p := tm.Resources[id].Properties
			code = p["Code"].(map[string]any)["ZipFile"].(string)
			event = tm.text(p["Environment"].(map[string]any)["Variables"].(map[string]any)["EVENT"])
		}
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("index.js", code)
	write("node_modules/@aws-sdk/client-lambda/index.js", `
		exports.InvokeCommand = class { constructor(input) { this.input = input } };
		exports.LambdaClient = class { async send({ input }) {
			console.log("invoke " + input.FunctionName + " " + input.Payload);
			if (process.env.THROWS) throw new Error("throttled");
			return { FunctionError: process.env.FUNCTION_ERROR, Payload: Buffer.from(process.env.ANSWER) };
		} };`)
	write("node_modules/@aws-sdk/client-codedeploy/index.js", `
		exports.PutLifecycleEventHookExecutionStatusCommand = class { constructor(input) { this.input = input } };
		exports.CodeDeployClient = class { async send({ input }) { console.log("status " + JSON.stringify(input)) } };`)
	for name, c := range map[string]struct {
		environment []string
		want        string
	}{
		"it answers":            {[]string{`ANSWER={"batchItemFailures":[]}`}, "Succeeded"},
		"it cannot start":       {[]string{"FUNCTION_ERROR=Unhandled", `ANSWER={"errorType":"Runtime.ExitError"}`}, "Failed"},
		"it leaves the message": {[]string{`ANSWER={"batchItemFailures":[{"itemIdentifier":"deployment-probe"}]}`}, "Failed"},
		"it answers otherwise":  {[]string{`ANSWER="hello"`}, "Failed"},
		"it cannot be invoked":  {[]string{"THROWS=1"}, "Failed"},
	} {
		cmd := exec.CommandContext(t.Context(), "node", "-e",
			`require("./index.js").handler({ DeploymentId: "d-1", LifecycleEventHookExecutionId: "h-1" })`)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), append(c.environment, "VERSION=worker:7", "EVENT="+event)...)
		out, err := cmd.Output()
		want := "invoke worker:7 " + event + "\n" + `status {"deploymentId":"d-1","lifecycleEventHookExecutionId":"h-1","status":"` + c.want + `"}` + "\n"
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, out, want)
		}
	}
}

// The real worker answers the event, and touches neither queue nor ledger.
func TestWorkerAnswersTheProbe(t *testing.T) {
	env := worker.Environment("acklast", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, DefaultNumbers())
	config, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	var event events.SQSEvent
	if err := json.Unmarshal([]byte(probeEvent("arn:aws:sqs:eu-central-1:123456789012:acklast-source")), &event); err != nil {
		t.Fatal(err)
	}
	handler := worker.New(config, worker.Dependencies{
		Operators: &session{world: &world{}}, Kinds: job.NewCatalogue(), Metrics: telemetry.NewRecorder(io.Discard, "acklast", time.Now),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Token: func() string { return "t" },
	})
	response, err := handler.Handle(context.Background(), event)
	if err != nil || response.BatchItemFailures == nil || len(response.BatchItemFailures) != 0 {
		t.Errorf("the worker answers %+v, %v", response, err)
	}
	encoded, err := json.Marshal(response)
	if err != nil || !strings.Contains(string(encoded), `"batchItemFailures":[]`) {
		t.Errorf("the answer is %s, %v", encoded, err)
	}
}
