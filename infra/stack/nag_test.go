package stack

import (
	"encoding/json"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// exceptions are the findings of cdk-nag that are right as they are, each with its reason. They stand
// here and not in the stack, which is deployed without cdk-nag.
var exceptions = []struct{ path, rule, finding, reason string }{
	{"/acklast/Default/WorkerRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::*", "X-Ray's write actions know no resources."},
	{"/acklast/Default/RedriveRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::*", "X-Ray's write actions know no resources."},
	{"/acklast/Default/Operators/Resource", "AwsSolutions-IAM5", "Resource::*", "Reading metrics, listing alarms and mappings, and the results of one's own log queries knows no resources."},
	{"/acklast/Default/ReadOnly/Resource", "AwsSolutions-IAM5", "Resource::*", "Reading metrics, listing alarms and mappings, and the results of one's own log queries knows no resources."},
	{"/acklast/Default/WorkerRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/acklast-scheduled/*", "Schedules are named by their jobs, so the right is to those of the stack's own group."},
	{"/acklast/Default/RedriveRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/acklast-scheduled/*", "Schedules are named by their jobs, so the right is to those of the stack's own group."},
	{"/acklast/Default/Operators/Resource", "AwsSolutions-IAM5", "Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/acklast-scheduled/*", "Schedules are named by their jobs, so the right is to those of the stack's own group."},
	{"/acklast/Default/ReadOnly/Resource", "AwsSolutions-IAM5", "Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/acklast-scheduled/*", "Schedules are named by their jobs, so the right is to those of the stack's own group."},
	{"/acklast/Default/Cancellers/Resource", "AwsSolutions-IAM5", "Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/acklast-scheduled/*", "Schedules are named by their jobs, so the right is to those of the stack's own group."},
	{"/acklast/Default/Operators/Resource", "AwsSolutions-IAM5", "Resource::<Worker11F36D0F.Arn>:*", "The console reads a function's versions and aliases, whose numbers nobody knows beforehand."},
	{"/acklast/Default/Operators/Resource", "AwsSolutions-IAM5", "Resource::<Redrive07EFE77D.Arn>:*", "The console reads a function's versions and aliases, whose numbers nobody knows beforehand."},
	{"/acklast/Default/ReadOnly/Resource", "AwsSolutions-IAM5", "Resource::<Worker11F36D0F.Arn>:*", "The console reads a function's versions and aliases, whose numbers nobody knows beforehand."},
	{"/acklast/Default/ReadOnly/Resource", "AwsSolutions-IAM5", "Resource::<Redrive07EFE77D.Arn>:*", "The console reads a function's versions and aliases, whose numbers nobody knows beforehand."},
}

// exceptionsOfDeployment are those of a deployment that is checked.
var exceptionsOfDeployment = []struct{ path, rule, finding, reason string }{
	{"/acklast/Default/Hook/Resource", "AwsSolutions-L1", "", "Node.js 24 is supported until 2028, and the hook uses nothing newer."},
	{"/acklast/Default/HookRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::<Worker11F36D0F.Arn>:*", "The right to a version that was made a moment ago might not have spread when the hook is called."},
	{"/acklast/Default/Deployment/ServiceRole/Resource", "AwsSolutions-IAM4", "Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited", "CodeDeploy's own policy for its role, which the CDK attaches."},
	{"/acklast/Default/Deployment/ServiceRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "Resource::<HookB39E2767.Arn>:*", "The CDK's right to invoke the hook, in any version of it."},
}

func TestNag(t *testing.T) {
	all := defaults()
	all.CustomerKey, all.AlarmEmail, all.CheckedDeployment = true, "ops@example.com", true
	for name, s := range map[string]Props{"default": defaults(), "everything": all} {
		// Or the CDK's own report would end the process before anything is asserted.
		own := map[string]any{"@aws-cdk/core:annotationsInValidationReport": false}
		_, err := synthesise(t.TempDir(), s, own, func(app awscdk.App, st awscdk.Stack, _ *Stack) {
			awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true)}), nil)
			for _, e := range exceptions {
				suppress(st, e.path, e.rule, e.finding, e.reason)
			}
			for _, e := range exceptionsOfDeployment {
				if s.CheckedDeployment {
					suppress(st, e.path, e.rule, e.finding, e.reason)
				}
			}
			found := assertions.Annotations_FromStack(st)
			anything := assertions.Match_AnyValue()
			for _, m := range append(*found.FindError(jsii.String("*"), anything), *found.FindWarning(jsii.String("*"), anything)...) {
				said, err := json.Marshal(m)
				t.Errorf("%s: %s (%v)", name, said, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func suppress(st awscdk.Stack, path, rule, finding, reason string) {
	one := &cdknag.NagPackSuppression{Id: &rule, Reason: &reason}
	if finding != "" {
		one.AppliesTo = &[]any{finding}
	}
	cdknag.NagSuppressions_AddResourceSuppressionsByPath(st, path, &[]*cdknag.NagPackSuppression{one}, nil)
}
