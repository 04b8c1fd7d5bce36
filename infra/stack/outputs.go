package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
)

// newOutputs prints, at the end of a deployment, what people need next.
func newOutputs(st *stack) {
	region := *st.scope.Region()
	for _, o := range []struct{ id, description, value string }{
		{"SourceQueueUrl", "Send jobs here", *st.queues.source.QueueUrl()},
		{"RecoveryQueueUrl", "Retries, deferrals and redrives", *st.queues.recovery.QueueUrl()},
		{"DLQUrl", "Isolated jobs", *st.queues.dlq.QueueUrl()},
		{"WorkerFunctionName", "Runs the jobs", *st.worker.fn.FunctionName()},
		{"RedriveFunctionName", "Governs the DLQ", *st.redrive.fn.FunctionName()},
		{"LedgerTableName", "What became of every job", *st.tables.ledger.TableName()},
		{"OperationsTableName", "Plans, runs and audit of the redrive", *st.tables.operations.TableName()},
		{"ReservationsTableName", "Holds on resources", *st.tables.reservations.TableName()},
		{"ResourcesTableName", "Resources and their free units", *st.tables.resources.TableName()},
		{"SubscriptionsTableName", "What reminders are about", *st.tables.subscriptions.TableName()},
		{"OperatorsPolicyArn", "Attach it to the role of those who operate", *st.policies.operators.ManagedPolicyArn()},
		{"ApproversPolicyArn", "Attach it to the role of those who approve", *st.policies.approvers.ManagedPolicyArn()},
		{"ReadOnlyPolicyArn", "Attach it to the role of those who look", *st.policies.readOnly.ManagedPolicyArn()},
		{"PauseSource", "Stops feeding fresh jobs; --enabled goes on", pause(st.mappings.source, region)},
		{"PauseRecovery", "Stops feeding retries and redrives; --enabled goes on", pause(st.mappings.recovery, region)},
		{"DashboardUrl", "The dashboard", "https://" + region + ".console.aws.amazon.com" +
			"/cloudwatch/home?region=" + region + "#dashboards/dashboard/" + st.settings.Stack},
		{"Next", "Type this next", "AWS_REGION=" + region + " bin/acklast status --stack " + st.settings.Stack},
	} {
		awscdk.NewCfnOutput(st.scope, &o.id, &awscdk.CfnOutputProps{Value: &o.value, Description: &o.description})
	}
}

func pause(m awslambda.EventSourceMapping, region string) string {
	return "aws lambda update-event-source-mapping --region " + region + " --uuid " + *m.EventSourceMappingId() + " --no-enabled"
}
