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
	{topicARN, (*stack.Stack).AllowTopic},
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
