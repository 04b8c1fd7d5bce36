package stack

import (
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
)

// GrantSend lets a role of yours send jobs.
func (st *Stack) GrantSend(grantee awsiam.IGrantable) {
	st.grant(grantee, st.sendStatements())
}

// GrantCancel lets a role of yours cancel jobs, as Client.Cancel does.
func (st *Stack) GrantCancel(grantee awsiam.IGrantable) {
	st.grant(grantee, st.cancelStatements())
}

// GrantOperate gives what the operators' managed policy gives: drive the redrive, pause the lanes, read
// everything.
func (st *Stack) GrantOperate(grantee awsiam.IGrantable) {
	st.grant(grantee, st.operateStatements())
}

// GrantApprove gives what the approvers' managed policy gives: approve, discard and decide.
func (st *Stack) GrantApprove(grantee awsiam.IGrantable) {
	st.grant(grantee, st.approveStatements())
}

func (st *Stack) grant(grantee awsiam.IGrantable, statements []awsiam.PolicyStatement) {
	for _, s := range statements {
		grantee.GrantPrincipal().AddToPrincipalPolicy(s)
	}
}

// AllowTopic lets an SNS topic, by its ARN, send jobs. Subscribe the source queue to it yourself, with or
// without raw delivery.
func (st *Stack) AllowTopic(arn string) { st.allowService("sns.amazonaws.com", arn) }

// AllowRule lets an EventBridge rule, by its ARN, send jobs. Make the source queue its target yourself.
func (st *Stack) AllowRule(arn string) { st.allowService("events.amazonaws.com", arn) }

// AllowBucket lets an S3 bucket, by its ARN, send jobs. A bucket's ARN names no account, so the bucket
// must be one of the stack's own account.
func (st *Stack) AllowBucket(arn string) {
	st.allowService("s3.amazonaws.com", arn, "aws:SourceAccount", *st.stack.Account())
}

// allowService lets a service send to the source queue on behalf of one more source. Without the condition, topics, rules
// and buckets of every AWS customer could send too. SQS allows few statements and conditions in a policy, so that a
// service has one.
func (st *Stack) allowService(service, sourceARN string, more ...string) {
	s, known := st.services[service]
	if !known {
		principal := &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(&service, nil)}
		s = &sending{queue: awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Principals: principal, Actions: jsii.Strings("sqs:SendMessage"), Resources: &[]*string{st.queues.source.QueueArn()},
		})}
		st.queues.source.AddToResourcePolicy(s.queue)
		if st.key != nil {
			// A key's policy knows only the key it belongs to, as "*".
			s.key = awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
				Principals: principal, Actions: jsii.Strings("kms:GenerateDataKey", "kms:Decrypt"), Resources: jsii.Strings("*"),
			})
			st.key.AddToResourcePolicy(s.key, nil)
		}
		st.services[service] = s
	}
	if !slices.Contains(s.sources, sourceARN) {
		s.sources = append(s.sources, sourceARN)
	}
	for _, one := range []awsiam.PolicyStatement{s.queue, s.key} {
		if one == nil {
			continue
		}
		one.AddCondition(jsii.String("ArnEquals"), map[string]any{"aws:SourceArn": s.sources})
		if len(more) == 2 {
			one.AddCondition(jsii.String("StringEquals"), map[string]any{more[0]: more[1]})
		}
	}
}

// sending are the statements that let a service send for its sources; key is nil without a key.
type sending struct {
	queue, key awsiam.PolicyStatement
	sources    []string
}
