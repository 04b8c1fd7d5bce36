// Command infra is the CDK app of this repository's own system: it reads the settings from a file of
// environments/ and the CDK context, and places one system, with the kinds of internal/kinds, in one CloudFormation stack.
//
// It is run by the CDK command line (see cdk.json), from the repository's root, after the functions
// were built into dist/. It deploys nothing itself.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"acklast/infra/stack"
)

func main() {
	err := run("dist")
	jsii.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "acklast:", err)
		os.Exit(1)
	}
}

// run synthesises the stack from the context that the CDK command line passed in. The functions'
// binaries lie in dist.
func run(dist string) error {
	app := awscdk.NewApp(nil)
	given, _ := app.Node().GetAllContext(nil).(map[string]any)
	given, err := withEnvironment(environments, given, os.Stderr)
	if err != nil {
		return err
	}
	settings, err := ParseSettings(given)
	if err != nil {
		return err
	}
	// The CDK command line says here where it is about to deploy to.
	if err := settings.checkRegion(os.Getenv("CDK_DEFAULT_REGION")); err != nil {
		return err
	}
	if err := checkDist(dist); err != nil {
		return err
	}
	newStack(app, settings, dist)
	app.Synth(nil)
	return nil
}

// newStack places the system in a stack of its own. The id keeps the logical ids short, and as they
// were before the system was a construct.
func newStack(app awscdk.App, s Settings, dist string) awscdk.Stack {
	st := awscdk.NewStack(app, &s.Stack, &awscdk.StackProps{
		Description:           jsii.String("acklast: SQS jobs whose effects happen once, and a DLQ that can be governed"),
		TerminationProtection: &s.DeletionProtection,
	})
	props := s.props()
	props.WorkerCode = stack.BuiltAt(filepath.Join(dist, "worker"))
	props.RedriveCode = stack.BuiltAt(filepath.Join(dist, "redrive"))
	if s.VPC != "" {
		subnets := words(s.Subnets)
		// The zones are asked for and not used: the functions name subnets only.
		zones := make([]string, len(subnets))
		for i := range zones {
			zones[i] = fmt.Sprint("zone", i)
		}
		props.VPC = awsec2.Vpc_FromVpcAttributes(st, jsii.String("Vpc"), &awsec2.VpcAttributes{
			VpcId: &s.VPC, AvailabilityZones: jsii.Strings(zones...), PrivateSubnetIds: jsii.Strings(subnets...),
		})
	}
	if s.Boundary != "" {
		props.PermissionsBoundary = awsiam.ManagedPolicy_FromManagedPolicyArn(st, jsii.String("Boundary"), &s.Boundary)
	}
	system := stack.New(st, "Default", props)
	for _, arn := range s.senders() {
		serviceOf(arn).allow(system, arn)
	}
	newDesk(st, system)
	if s.AlarmEmail == "" && s.AlarmTopicARN == "" {
		awscdk.Annotations_Of(st).AddInfo(jsii.String("the alarms tell nobody: set alarmEmail or alarmTopicArn"))
	}
	return st
}

// checkDist says which binary is missing, before the CDK says it less clearly.
func checkDist(dist string) error {
	for _, function := range []string{"worker", "redrive"} {
		if _, err := os.Stat(filepath.Join(dist, function, "bootstrap")); err != nil {
			return fmt.Errorf("the %s function is not built, run scripts/build-dist.sh: %w", function, err)
		}
	}
	return nil
}
