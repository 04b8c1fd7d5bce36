package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// The rights of each role, action by action. Managed policies and the CDK's grant methods give more rights than are
// used, so none is used here.

// grantWorker gives the worker its rights. The worker sends to the DLQ and can never read it.
func (st *Stack) grantWorker(role awsiam.IRole) {
	q, t := st.queues, st.tables
	// Lambda's poller acts under the worker's role: it receives, deletes and asks for attributes. The
	// worker itself deletes what is done before it risks a suspect, and backs off what it left.
	allow(role, on(q.source, q.recovery),
		"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility")
	// In the ledger's trouble a delivery goes back to the lane that it came from.
	allow(role, on(q.source, q.recovery, q.dlq), "sqs:SendMessage")

	// A transaction needs the right to each of its parts, and every write to an entry is an update,
	// also the first. Only DynamoDB's TTL deletes an entry.
	allow(role, tableARNs(t.ledger), "dynamodb:GetItem", "dynamodb:UpdateItem")
	// The worker reads whether the run of a redriven job was revoked.
	allow(role, tableARNs(t.operations), "dynamodb:GetItem")
	st.grantScheduling(role)
	st.grantKinds(role)
	st.grantKey(role)
}

// grantRedrive gives the redrive function its rights. It writes no table of a kind.
func (st *Stack) grantRedrive(role awsiam.IRole) {
	q, t := st.queues, st.tables
	allow(role, on(q.dlq), "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility")
	// Jobs go back by the recovery lane, while the lanes' backlog allows.
	allow(role, on(q.recovery), "sqs:SendMessage")
	allow(role, on(q.source, q.recovery, q.dlq), "sqs:GetQueueAttributes")

	// Every change of an entry is a conditional update, as the worker's are.
	allow(role, tableARNs(t.ledger), "dynamodb:GetItem", "dynamodb:UpdateItem")
	// The census counts what is isolated.
	allow(role, []*string{st.index()}, "dynamodb:Query")
	// Plans, runs, lock and switch are put under a condition; the audit is written in batches. The
	// function deletes neither.
	allow(role, tableARNs(t.operations), "dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:BatchWriteItem")
	// A discarded job is not to be sent any more.
	allow(role, st.scheduleARNs(), "scheduler:DeleteSchedule")
	// "acklast job" asks it what the kinds' own records say.
	st.grantExplanations(role)
	st.grantKey(role)
}

// grantKey lets a function work with queues and tables under a key of the stack's own.
func (st *Stack) grantKey(role awsiam.IRole) {
	if st.key != nil {
		allow(role, []*string{st.key.KeyArn()}, keyActions...)
	}
}

// keyActions are the rights that queues and tables under a key need. SQS: GenerateDataKey to send, Decrypt to
// receive. DynamoDB asks for the rest on the caller's behalf.
var keyActions = []string{"kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
	"kms:Encrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:DescribeKey"}

// policies are for people. Attach them to the roles of your organisation; the stack makes no role for people.
type policies struct{ operators, approvers, readOnly, senders, cancellers awsiam.ManagedPolicy }

func newPolicies(st *Stack) policies {
	// The policies have no fixed names, because a name is unique in an account and the stack may live in two regions.
	policy := func(id, description string, statements ...awsiam.PolicyStatement) awsiam.ManagedPolicy {
		return awsiam.NewManagedPolicy(st.scope, &id, &awsiam.ManagedPolicyProps{
			Description: &description, Statements: &statements,
		})
	}
	return policies{
		operators: policy("Operators", "Operate "+st.props.Name+": drive the redrive, pause the lanes, read everything",
			st.operateStatements()...),
		approvers:  policy("Approvers", "Approve in "+st.props.Name+": approve, discard and decide", st.approveStatements()...),
		senders:    policy("Senders", "Send jobs to "+st.props.Name, st.sendStatements()...),
		cancellers: policy("Cancellers", "Cancel jobs of "+st.props.Name, st.cancelStatements()...),
		readOnly:   policy("ReadOnly", "Read "+st.props.Name+": status, tables, logs and metrics", st.readStatements()...),
	}
}

func (st *Stack) operateStatements() []awsiam.PolicyStatement {
	statements := append(st.readStatements(),
		// Operators throw the kill switch directly, so that a busy function cannot delay it. They may write its key only,
		// because the table holds the approvals too.
		awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings("dynamodb:UpdateItem"), Resources: pointer(tableARNs(st.tables.operations)),
			Conditions: &map[string]any{"ForAllValues:StringEquals": map[string]any{"dynamodb:LeadingKeys": []string{redrive.SwitchKey}}},
		}),
		statement([]*string{st.redrive.operate.FunctionArn()}, "lambda:InvokeFunction"),
		// Pausing a lane is an operator's first answer to a bad deployment.
		statement([]*string{st.mappings.source.EventSourceMappingArn(), st.mappings.recovery.EventSourceMappingArn()},
			"lambda:UpdateEventSourceMapping"),
		// "acklast smoke" sends jobs of the engine's own kind. SQS has no condition on what a message contains.
		statement(on(st.queues.source), "sqs:SendMessage"),
	)
	if st.key != nil {
		statements = append(statements, statement([]*string{st.key.KeyArn()}, keyActions...))
	}
	return statements
}

func pointer[T any](v T) *T { return &v }

// approveStatements are about the alias approve alone, because an approver needs no right to run. Approvers also need the
// read-only policy to see the plans.
func (st *Stack) approveStatements() []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{statement([]*string{st.redrive.approve.FunctionArn()}, "lambda:InvokeFunction")}
}

// sendStatements let a producer send jobs.
func (st *Stack) sendStatements() []awsiam.PolicyStatement {
	statements := []awsiam.PolicyStatement{statement(on(st.queues.source), "sqs:GetQueueUrl", "sqs:SendMessage")}
	if st.key != nil {
		statements = append(statements, statement([]*string{st.key.KeyArn()}, "kms:GenerateDataKey", "kms:Decrypt"))
	}
	return statements
}

// cancelStatements let a producer cancel jobs: read their entries and end them, with a line of the audit.
func (st *Stack) cancelStatements() []awsiam.PolicyStatement {
	statements := []awsiam.PolicyStatement{
		statement(tableARNs(st.tables.ledger), "dynamodb:GetItem", "dynamodb:UpdateItem"),
		statement(st.scheduleARNs(), "scheduler:DeleteSchedule"),
		// Only the lines of cancelled jobs, because the table holds the approvals too.
		awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings("dynamodb:UpdateItem"), Resources: pointer(tableARNs(st.tables.operations)),
			Conditions: &map[string]any{"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": []string{redrive.CancelKeys}}},
		}),
		// The worker's settings say how long the stack keeps an entry.
		statement([]*string{st.worker.fn.FunctionArn()}, "lambda:GetFunctionConfiguration"),
	}
	if st.key != nil {
		statements = append(statements, statement([]*string{st.key.KeyArn()}, keyActions...))
	}
	return statements
}

// readStatements let people see everything but message bodies on the queues: to receive a message is
// to hide it from others.
func (st *Stack) readStatements() []awsiam.PolicyStatement {
	q, t := st.queues, st.tables
	all := tableARNs(t.all()...)
	statements := []awsiam.PolicyStatement{
		statement(on(q.source, q.recovery, q.dlq), "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
		statement(append(all, st.index()), "dynamodb:Query"),
		statement(all, "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan"),
		// What the Lambda console reads for the pages of a function and of its aliases, by AWS's guide.
		statement(versions(st.worker.fn, st.redrive.fn), "lambda:GetFunctionConfiguration", "lambda:GetFunction", "lambda:GetFunctionConcurrency",
			"lambda:GetFunctionCodeSigningConfig", "lambda:GetFunctionEventInvokeConfig", "lambda:GetAlias", "lambda:GetPolicy", "lambda:ListAliases",
			"lambda:ListVersionsByFunction", "lambda:ListTags"),
		statement([]*string{st.mappings.source.EventSourceMappingArn(), st.mappings.recovery.EventSourceMappingArn()},
			"lambda:GetEventSourceMapping"),
		// The doctor checks that Lambda does not stop the worker's hops as a recursive loop.
		statement([]*string{st.worker.fn.FunctionArn()}, "lambda:GetFunctionRecursionConfig"),
		statement([]*string{st.worker.logs.LogGroupArn(), st.redrive.logs.LogGroupArn()},
			"logs:DescribeLogStreams", "logs:GetLogEvents", "logs:FilterLogEvents", "logs:StartQuery"),
		// IAM allows these actions on all resources only: metrics belong to the account, and the results of a query to its
		// caller. Alarms have names, but listing them by other properties needs the right to all.
		statement([]*string{jsii.String("*")}, "cloudwatch:GetMetricData", "cloudwatch:GetMetricStatistics",
			"cloudwatch:ListMetrics", "cloudwatch:DescribeAlarms", "logs:GetQueryResults", "logs:StopQuery",
			// Mappings are found by their queue.
			"lambda:ListEventSourceMappings",
			// The console finds a function in this list.
			"lambda:ListFunctions",
			// "acklast doctor" reads the account's quota, the subscribers of the alarms' topics, which may be topics of
			// another stack, and the caller's own rights. The stack does not know the caller's role.
			"lambda:GetAccountSettings", "sns:ListSubscriptionsByTopic", "iam:SimulatePrincipalPolicy",
			// Schedules are listed by group, but IAM has no resource for this action.
			"scheduler:ListSchedules"),
		statement(st.scheduleARNs(), "scheduler:GetSchedule"),
		statement([]*string{st.dashboardARN()}, "cloudwatch:GetDashboard"),
	}
	if st.key != nil {
		// DynamoDB decrypts on the reader's behalf.
		statements = append(statements, statement([]*string{st.key.KeyArn()}, "kms:Decrypt", "kms:DescribeKey"))
	}
	return statements
}

// index is the ledger's index of isolated entries.
func (st *Stack) index() *string {
	return jsii.String(*st.tables.ledger.TableArn() + "/index/" + topology.IsolatedIndex)
}

// dashboardARN has no region: dashboards belong to the account.
func (st *Stack) dashboardARN() *string {
	return st.stack.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("cloudwatch"), Region: jsii.String(""),
		Resource: jsii.String("dashboard"), ResourceName: jsii.String(st.dashboardName()),
	})
}

func allow(role awsiam.IRole, resources []*string, actions ...string) {
	role.AddToPrincipalPolicy(statement(resources, actions...))
}

func statement(resources []*string, actions ...string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings(actions...), Resources: &resources,
	})
}

func on(queues ...awssqs.Queue) []*string {
	var arns []*string
	for _, q := range queues {
		arns = append(arns, q.QueueArn())
	}
	return arns
}

// versions are functions with all their versions and aliases.
func versions(functions ...awslambda.Function) []*string {
	var arns []*string
	for _, f := range functions {
		arns = append(arns, f.FunctionArn(), jsii.String(*f.FunctionArn()+":*"))
	}
	return arns
}

func tableARNs(tables ...awsdynamodb.Table) []*string {
	var arns []*string
	for _, t := range tables {
		arns = append(arns, t.TableArn())
	}
	return arns
}
