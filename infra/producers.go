package main

import (
	"regexp"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"acklast/infra/stack"
	"acklast/internal/kinds"
)

// service is an AWS service that may send jobs on behalf of one of its resources.
type service struct {
	arn   *regexp.Regexp
	allow func(system *stack.Stack, arn string)
}

var services = []service{
	// SNS delivers from FIFO topics to standard queues too.
	{regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+(\.fifo)?$`), (*stack.Stack).AllowTopic},
	{regexp.MustCompile(`^arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:rule/[A-Za-z0-9_./-]+$`), (*stack.Stack).AllowRule},
	{regexp.MustCompile(`^arn:aws[a-z-]*:s3:::[a-z0-9.-]{3,63}$`), (*stack.Stack).AllowBucket},
}

// serviceOf finds the service of a resource by its ARN; nil when it is none that may send.
func serviceOf(arn string) *service {
	for i := range services {
		if services[i].arn.MatchString(arn) {
			return &services[i]
		}
	}
	return nil
}

func (s Settings) senders() []string { return words(s.Senders) }

// maxPolicyBytes is what SQS allows for a queue's policy.
const maxPolicyBytes = 8192

// policyBytes is how large the senders make the source queue's policy at most: the statements without them, of which
// there is one for each service, and the ARNs as a list.
func (s Settings) policyBytes() int {
	const statements = 1200
	size := statements + 4*len(s.Stack)
	for _, arn := range s.senders() {
		size += len(arn) + len(`"",`)
	}
	return size
}

// deskKind is the kind that the desk belongs to.
const deskKind = "reservation.expire"

// newDesk makes the policy of those who hold and confirm reservations: the producer beside the kind.
func newDesk(st awscdk.Stack, system *stack.Stack) {
	if !kinds.Registered(deskKind) {
		return
	}
	policy := awsiam.NewManagedPolicy(st, jsii.String("Desk"), &awsiam.ManagedPolicyProps{
		Description: jsii.String("Hold and confirm reservations, and make resources"),
	})
	system.GrantSend(policy)
	may := func(table awsdynamodb.Table, actions ...string) {
		policy.AddStatements(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings(actions...), Resources: &[]*string{table.TableArn()},
		}))
	}
	may(system.Table("reservations"), "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
	may(system.Table("resources"), "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
	// A hold is taken only while its job can still run.
	may(system.LedgerTable(), "dynamodb:ConditionCheckItem")
	if key := system.Key(); key != nil {
		key.GrantEncryptDecrypt(policy)
		// DynamoDB asks for this too on the caller's behalf.
		key.Grant(policy, jsii.String("kms:DescribeKey"))
	}
	awscdk.NewCfnOutput(st, jsii.String("DeskPolicyArn"), &awscdk.CfnOutputProps{
		Value: policy.ManagedPolicyArn(), Description: jsii.String("Attach it to the roles that hold and confirm"),
	})
}
