package stack

import (
	"maps"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/worker"
)

// schedules are the group that holds the schedules of jobs that are due far ahead, and the role under which they
// send. Jobs that are acknowledged live there, so both exist whatever the settings say, and outlive the stack as the
// queues do. The setting scheduleFrom only decides whether new schedules are made.
type schedules struct {
	group awsscheduler.CfnScheduleGroup
	role  awsiam.Role
}

func newSchedules(st *Stack) schedules {
	names := st.props.names()
	group := awsscheduler.NewCfnScheduleGroup(st.scope, jsii.String("ScheduleGroup"), &awsscheduler.CfnScheduleGroupProps{
		Name: &names.ScheduleGroup,
	})
	group.ApplyRemovalPolicy(st.removal(), nil)
	// Only schedules of this group may act under the role.
	trusted := map[string]any{"StringEquals": map[string]any{
		"aws:SourceAccount": st.stack.Account(), "aws:SourceArn": st.scheduleGroupARN(),
	}}
	// Scheduler moves inputs that it cannot send to the DLQ under the same role.
	statements := []awsiam.PolicyStatement{statement(on(st.queues.recovery, st.queues.dlq), "sqs:SendMessage")}
	if st.key != nil {
		statements = append(statements, statement([]*string{st.key.KeyArn()}, "kms:Decrypt", "kms:GenerateDataKey"))
	}
	role := awsiam.NewRole(st.scope, jsii.String("SchedulerRole"), &awsiam.RoleProps{
		// A role's name is unique in an account, and the stack may live in two of its regions.
		RoleName: jsii.String(names.SchedulerRole + "-" + *st.stack.Region()),
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("scheduler.amazonaws.com"), &awsiam.ServicePrincipalOpts{
			Conditions: &trusted,
		}),
		Description: jsii.String("Under which schedules of " + st.props.Name + " send jobs back"),
		// CloudFormation would delete a separate policy together with the stack, and the role that stays could send nothing.
		InlinePolicies: &map[string]awsiam.PolicyDocument{
			"send": awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &statements}),
		},
	})
	role.ApplyRemovalPolicy(st.removal())
	return schedules{group, role}
}

// scheduleGroupARN is the group's ARN, formed from its name.
func (st *Stack) scheduleGroupARN() *string {
	return st.stack.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("scheduler"), Resource: jsii.String("schedule-group"), ResourceName: jsii.String(st.props.names().ScheduleGroup),
	})
}

// scheduleARNs are the group's schedules.
func (st *Stack) scheduleARNs() []*string {
	return []*string{st.stack.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("scheduler"), Resource: jsii.String("schedule"), ResourceName: jsii.String(st.props.names().ScheduleGroup + "/*"),
	})}
}

// grantScheduling lets the worker hand jobs over: create schedules and read them, in this group alone, and pass on
// the role, to Scheduler alone.
func (st *Stack) grantScheduling(role awsiam.IRole) {
	allow(role, st.scheduleARNs(), "scheduler:CreateSchedule", "scheduler:GetSchedule")
	role.AddToPrincipalPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("iam:PassRole"), Resources: &[]*string{st.schedules.role.RoleArn()},
		Conditions: &map[string]any{"StringEquals": map[string]any{"iam:PassedToService": "scheduler.amazonaws.com"}},
	}))
}

// scheduleEnvironment adds the worker's variables about schedules.
func (st *Stack) scheduleEnvironment(variables map[string]string) {
	maps.Copy(variables, worker.ScheduleEnvironment(*st.schedules.role.RoleArn(), *st.queues.dlq.QueueArn()))
}
