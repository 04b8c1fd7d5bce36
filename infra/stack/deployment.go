package stack

import (
	_ "embed"
	"encoding/json"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"
)

//go:embed hook.js
var hookCode string

// probe is an event for the worker that carries no job: S3's test message. It goes through configuration, start,
// decoding and answer, and changes nothing.
const probe = `{"Service":"Amazon S3","Event":"s3:TestEvent"}`

// newDeployment lets CodeDeploy move the alias live to a new version. A hook invokes the version first, because
// a canary tests nothing at a job an hour. Then a tenth of the invocations goes to it for ten minutes, watched by an
// alarm on its own errors, since other traffic must not roll it back.
func newDeployment(st *Stack) {
	version := st.worker.fn.CurrentVersion()
	hook := newHook(st, version)
	errs := st.newAlarm(alarm{
		name: "new-version-errors", severity: ticket, section: "worker-errors",
		todo: "The version of the worker that is being deployed fails, and is rolled back. The jobs that it failed come back to the old one. " +
			"See its log, mend it, and deploy again.",
		metric: metric("AWS/Lambda", lambdaErrors, sum, "", map[string]*string{
			"FunctionName": st.worker.fn.FunctionName(),
			"Resource":     jsii.String(*st.worker.fn.FunctionName() + ":" + AliasLive), "ExecutedVersion": version.Version(),
		}),
		limit: 1, periods: 10, datapoints: 2,
	})
	awscodedeploy.NewLambdaDeploymentGroup(st.scope, jsii.String("Deployment"), &awscodedeploy.LambdaDeploymentGroupProps{
		Alias:            st.worker.live,
		DeploymentConfig: awscodedeploy.LambdaDeploymentConfig_CANARY_10PERCENT_10MINUTES(),
		PreHook:          hook,
		Alarms:           &[]interfacesawscloudwatch.IAlarmRef{errs},
		AutoRollback: &awscodedeploy.AutoRollbackConfig{
			FailedDeployment: jsii.Bool(true), StoppedDeployment: jsii.Bool(true), DeploymentInAlarm: jsii.Bool(true),
		},
	})
	// CloudFormation must have changed both before it moves the alias.
	st.worker.live.Node().AddDependency(hook, errs)
}

// newHook is the function that CodeDeploy calls before it moves any traffic.
func newHook(st *Stack, version awslambda.Version) awslambda.Function {
	name := st.props.Name + "-deployment-hook"
	role := awsiam.NewRole(st.scope, jsii.String("HookRole"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("What " + name + " may do"),
	})
	logs := awslogs.NewLogGroup(st.scope, jsii.String("HookLogs"), &awslogs.LogGroupProps{
		LogGroupName: jsii.String("/aws/lambda/" + name), RemovalPolicy: awscdk.RemovalPolicy_DESTROY, Retention: awslogs.RetentionDays_ONE_MONTH,
	})
	logs.GrantWrite(role)
	// The hook reports to CodeDeploy's group and may invoke any version: a right to the new version alone might not be in
	// effect yet when the hook is called.
	allow(role, []*string{jsii.String(*st.worker.fn.FunctionArn() + ":*")}, "lambda:InvokeFunction")
	return awslambda.NewFunction(st.scope, jsii.String("Hook"), &awslambda.FunctionProps{
		FunctionName: &name,
		Description:  jsii.String("Invokes a new version of the worker before it gets jobs"),
		Runtime:      awslambda.Runtime_NODEJS_24_X(),
		Architecture: awslambda.Architecture_ARM_64(),
		Handler:      jsii.String("index.handler"),
		Code:         awslambda.Code_FromInline(&hookCode),
		Role:         role,
		LogGroup:     logs,
		// The version may need its whole timeout.
		Timeout: seconds(st.props.Numbers.WorkerTimeout * 2),
		Environment: &map[string]*string{
			"VERSION": version.FunctionArn(), "EVENT": jsii.String(probeEvent(*st.queues.source.QueueArn())),
		},
	})
}

// probeEvent is an event of Lambda's poller with the probe from a queue.
func probeEvent(queueARN string) string {
	event := map[string]any{"Records": []any{map[string]any{
		"messageId": "deployment-probe", "receiptHandle": "", "body": probe, "eventSource": "aws:sqs", "eventSourceARN": queueARN,
		"attributes": map[string]string{"ApproximateReceiveCount": "1", "SentTimestamp": "0"},
	}}}
	encoded, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
