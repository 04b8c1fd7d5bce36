package stack

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// stack gathers the parts while they are made, in this order.
type stack struct {
	scope    awscdk.Stack // not embedded: jsii takes a struct around one of its objects for another object
	settings Settings

	key      awskms.Key // nil unless CustomerKey
	queues   queues
	tables   tables
	worker   function
	redrive  redriveFunction
	mappings mappings
	policies policies
	made     []interfacesawscloudwatch.IAlarmRef // the alarms
}

// NewStack adds the system to the app. The functions' binaries lie in dist.
func NewStack(scope constructs.Construct, s Settings, dist string) awscdk.Stack {
	st := &stack{settings: s, scope: awscdk.NewStack(scope, &s.Stack, &awscdk.StackProps{
		Description:           jsii.String("acklast: SQS jobs whose effects happen once, and a DLQ that can be governed"),
		TerminationProtection: &s.DeletionProtection,
	})}
	if s.CustomerKey {
		st.key = awskms.NewKey(st.scope, jsii.String("Key"), &awskms.KeyProps{
			Description:       jsii.String("Encrypts the queues and tables of " + s.Stack),
			EnableKeyRotation: jsii.Bool(true),
			RemovalPolicy:     st.removal(),
		})
	}
	st.queues = newQueues(st)
	st.tables = newTables(st)
	st.worker = newWorker(st, dist)
	st.redrive = newRedrive(st, dist)
	st.mappings = newMappings(st)
	st.policies = newPolicies(st)
	st.made = newAlarms(st)
	newDashboard(st)
	newOutputs(st)
	return st.scope
}

// removal is what becomes of what holds data when the stack goes. A stack that could not be created
// leaves nothing behind, so that the next try does not fail on names that exist.
func (st *stack) removal() awscdk.RemovalPolicy {
	if st.settings.DestroyData {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}

// arn forms the ARN of something of this account and region from its name.
func (st *stack) arn(service, resource string) *string {
	return st.scope.FormatArn(&awscdk.ArnComponents{
		Service: &service, Resource: &resource, ArnFormat: awscdk.ArnFormat_NO_RESOURCE_NAME,
	})
}

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}
