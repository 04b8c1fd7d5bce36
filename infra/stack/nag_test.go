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
}

func TestNag(t *testing.T) {
	all := defaults()
	all.CustomerKey, all.AlarmEmail = true, "ops@example.com"
	for name, s := range map[string]Props{"default": defaults(), "everything": all} {
		// Or the CDK's own report would end the process before anything is asserted.
		own := map[string]any{"@aws-cdk/core:annotationsInValidationReport": false}
		_, err := synthesise(t.TempDir(), s, own, func(app awscdk.App, st awscdk.Stack, _ *Stack) {
			awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true)}), nil)
			for _, e := range exceptions {
				suppress(st, e.path, e.rule, e.finding, e.reason)
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
	one := &cdknag.NagPackSuppression{Id: &rule, Reason: &reason, AppliesTo: &[]any{finding}}
	cdknag.NagSuppressions_AddResourceSuppressionsByPath(st, path, &[]*cdknag.NagPackSuppression{one}, nil)
}
