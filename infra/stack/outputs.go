package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
)

type output struct{ id, description, value string }

// newOutputs prints, at the end of a deployment, what people need next.
func newOutputs(st *Stack) {
	region, aws, tool := *st.stack.Region(), "aws", "bin/acklast"
	if endpoint := st.props.Endpoint; endpoint != "" {
		aws, tool = "aws --endpoint-url "+endpoint, "bin/acklast --endpoint-url "+endpoint
	}
	outputs := []output{
		{"SourceQueueUrl", "Send jobs here", *st.queues.source.QueueUrl()},
		{"RecoveryQueueUrl", "Retries, deferrals and redrives", *st.queues.recovery.QueueUrl()},
		{"DLQUrl", "Isolated jobs", *st.queues.dlq.QueueUrl()},
		{"WorkerFunctionName", "Runs the jobs", *st.worker.fn.FunctionName()},
		{"RedriveFunctionName", "Governs the DLQ", *st.redrive.fn.FunctionName()},
		{"LedgerTableName", "What became of every job", *st.tables.ledger.TableName()},
		{"OperationsTableName", "Plans, runs and audit of the redrive", *st.tables.operations.TableName()},
		{"OperatorsPolicyArn", "Attach it to the role of those who operate", *st.policies.operators.ManagedPolicyArn()},
		{"ApproversPolicyArn", "Attach it to the role of those who approve", *st.policies.approvers.ManagedPolicyArn()},
		{"ReadOnlyPolicyArn", "Attach it to the role of those who look", *st.policies.readOnly.ManagedPolicyArn()},
		{"CancellersPolicyArn", "Attach it to the roles that cancel jobs", *st.policies.cancellers.ManagedPolicyArn()},
		{"SendersPolicyArn", "Attach it to the roles that send jobs", *st.policies.senders.ManagedPolicyArn()},
		{"PauseSource", "Stops feeding fresh jobs; --enabled goes on", pause(aws, st.mappings.source, region)},
		{"PauseRecovery", "Stops feeding retries and redrives; --enabled goes on", pause(aws, st.mappings.recovery, region)},
		{"DashboardUrl", "The dashboard", "https://" + region + ".console.aws.amazon.com" +
			"/cloudwatch/home?region=" + region + "#dashboards/dashboard/" + st.dashboardName()},
		{"Next", "Type this next", "AWS_REGION=" + region + " " + tool + " status --stack " + st.props.Name},
	}
	for _, name := range st.tables.names {
		outputs = append(outputs, output{constructID(name) + "TableName", "A kind's table: " + name, *st.tables.kinds[name].TableName()})
	}
	for _, o := range outputs {
		awscdk.NewCfnOutput(st.scope, &o.id, &awscdk.CfnOutputProps{Value: &o.value, Description: &o.description})
	}
}

func pause(aws string, m awslambda.EventSourceMapping, region string) string {
	return aws + " lambda update-event-source-mapping --region " + region + " --uuid " + *m.EventSourceMappingId() + " --no-enabled"
}
