// Package stack is an acklast system as a CDK construct: queues, tables, both functions, alarms, a
// dashboard and policies for people. New places it in a stack of your own app, also several times.
//
// It reads its Props only, so neither the CDK's context nor the environment changes it. The working directory matters
// only to relative paths in Props.
package stack

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Stack is a system in a stack.
type Stack struct {
	// scope is not embedded: jsii takes a struct around one of its objects for another object.
	scope constructs.Construct
	stack awscdk.Stack
	props Props

	key       awskms.Key // nil unless CustomerKey or KeepKey
	queues    queues
	tables    tables
	worker    workerFunction
	redrive   redriveFunction
	schedules schedules
	census    awsevents.Rule
	mappings  mappings
	policies  policies
	alarms    alarms
	services  map[string]*sending // that may send, by their names
}

// New adds a system to a scope. The id "Default" keeps the id out of the logical ids of what is in it,
// which suits a stack that holds nothing else.
//
// As constructs of the CDK do, it panics when the props are wrong; Props.Validate tells beforehand.
func New(scope constructs.Construct, id string, props Props) *Stack {
	props = props.withDefaults()
	if err := props.Validate(); err != nil {
		panic(fmt.Errorf("stack %s: %w", id, err))
	}
	st := &Stack{scope: constructs.NewConstruct(scope, &id), stack: awscdk.Stack_Of(scope), props: props, services: map[string]*sending{}}
	st.claimName()
	if props.CustomerKey || props.KeepKey {
		st.key = awskms.NewKey(st.scope, jsii.String("Key"), &awskms.KeyProps{
			Description:       jsii.String("Encrypts the queues and tables of " + props.Name),
			EnableKeyRotation: jsii.Bool(true),
			RemovalPolicy:     st.removal(),
		})
	}
	st.queues = newQueues(st)
	st.tables = newTables(st)
	st.schedules = newSchedules(st)
	st.worker = newWorker(st)
	st.redrive = newRedrive(st)
	st.census = newCensus(st)
	st.mappings = newMappings(st)
	st.policies = newPolicies(st)
	newAlarms(st)
	if props.CheckedDeployment {
		newDeployment(st)
	}
	newDashboard(st)
	newOutputs(st)
	for _, key := range slices.Sorted(maps.Keys(props.Tags)) {
		awscdk.Tags_Of(st.scope).Add(&key, jsii.String(props.Tags[key]), nil)
	}
	if props.PermissionsBoundary != nil {
		awsiam.PermissionsBoundary_Of(st.scope).Apply(props.PermissionsBoundary)
	}
	return st
}

// claimName refuses a second system of one name in a stack. CloudFormation would refuse it only during the deployment.
func (st *Stack) claimName() {
	id := "acklast name " + st.props.Name
	if st.stack.Node().TryFindChild(&id) != nil {
		panic(fmt.Errorf("stack %s: the stack has a system named %q already; give each a Name of its own", *st.scope.Node().Id(), st.props.Name))
	}
	constructs.NewConstruct(st.stack, &id)
}

// Construct is the construct that holds everything, for aspects and dependencies.
func (st *Stack) Construct() constructs.Construct { return st.scope }

// SourceQueue is the lane that takes fresh jobs.
func (st *Stack) SourceQueue() awssqs.Queue { return st.queues.source }

// RecoveryQueue is the lane of retries, deferrals and redrives.
func (st *Stack) RecoveryQueue() awssqs.Queue { return st.queues.recovery }

// DLQ holds isolated jobs.
func (st *Stack) DLQ() awssqs.Queue { return st.queues.dlq }

// LedgerTable holds an entry for each job.
func (st *Stack) LedgerTable() awsdynamodb.Table { return st.tables.ledger }

// OperationsTable holds plans, runs and audit of the redrive.
func (st *Stack) OperationsTable() awsdynamodb.Table { return st.tables.operations }

// Table is the table of a kind, by the name in the kind's description; nil when there is none.
func (st *Stack) Table(name string) awsdynamodb.Table { return st.tables.kinds[name] }

// WorkerFunction runs the jobs.
func (st *Stack) WorkerFunction() awslambda.Function { return st.worker.fn }

// LiveAlias is the worker's alias that both lanes feed.
func (st *Stack) LiveAlias() awslambda.Alias { return st.worker.live }

// RedriveFunction governs the DLQ. People invoke it through the aliases only.
func (st *Stack) RedriveFunction() awslambda.Function { return st.redrive.fn }

// OperateAlias is the redrive function's alias for operators, ApproveAlias the one for approvers.
func (st *Stack) OperateAlias() awslambda.Alias { return st.redrive.operate }

// ApproveAlias is described at OperateAlias.
func (st *Stack) ApproveAlias() awslambda.Alias { return st.redrive.approve }

// Alarms are the alarms by name, such as "dlq-depth".
func (st *Stack) Alarms() map[string]awscloudwatch.Alarm { return maps.Clone(st.alarms.byName) }

// Key encrypts queues and tables, or did so; nil unless Props.CustomerKey or Props.KeepKey.
func (st *Stack) Key() awskms.Key { return st.key }

// removal is the removal policy of queues and tables. If the creation of the stack fails, CloudFormation deletes them in any
// case, so that the next try does not fail on names that exist.
func (st *Stack) removal() awscdk.RemovalPolicy {
	if st.props.DestroyData {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}

// arn forms the ARN of something of this account and region from its name.
func (st *Stack) arn(service, resource string) *string {
	return st.stack.FormatArn(&awscdk.ArnComponents{
		Service: &service, Resource: &resource, ArnFormat: awscdk.ArnFormat_NO_RESOURCE_NAME,
	})
}

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}
