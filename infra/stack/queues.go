package stack

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
)

// queues are the two lanes and the DLQ.
type queues struct{ source, recovery, dlq awssqs.Queue }

func newQueues(st *Stack) queues {
	names, n := st.props.names(), st.props.Numbers

	// The DLQ names the lanes that may use it, and each lane names its DLQ: a cycle, unless one side
	// is an ARN formed from a name.
	allowed := []awssqs.IQueue{
		awssqs.Queue_FromQueueArn(st.scope, jsii.String("SourceByName"), st.arn("sqs", names.SourceQueue)),
		awssqs.Queue_FromQueueArn(st.scope, jsii.String("RecoveryByName"), st.arn("sqs", names.RecoveryQueue)),
	}
	dlq := newQueue(st, "DLQ", names.DLQ, n.DLQRetention, &awssqs.QueueProps{
		// The redrive function hides a message of the DLQ while it works on it, never longer than a lane does.
		VisibilityTimeout: seconds(n.LaneVisibility),
		RedriveAllowPolicy: &awssqs.RedriveAllowPolicy{
			RedrivePermission: awssqs.RedrivePermission_BY_QUEUE, SourceQueues: &allowed,
		},
	})
	lane := func(id, name string) awssqs.Queue {
		return newQueue(st, id, name, n.LaneRetention, &awssqs.QueueProps{
			VisibilityTimeout: seconds(n.LaneVisibility),
			DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: dlq, MaxReceiveCount: jsii.Number(n.MaxReceiveCount)},
			// No other queue may use a lane as its DLQ, because the worker would run its messages as jobs.
			RedriveAllowPolicy: &awssqs.RedriveAllowPolicy{RedrivePermission: awssqs.RedrivePermission_DENY_ALL},
		})
	}
	return queues{
		source:   lane("SourceQueue", names.SourceQueue),
		recovery: lane("RecoveryQueue", names.RecoveryQueue),
		dlq:      dlq,
	}
}

// newQueue adds the settings that all three queues share.
func newQueue(st *Stack, id, name string, retention time.Duration, props *awssqs.QueueProps) awssqs.Queue {
	props.QueueName = &name
	props.RetentionPeriod = seconds(retention)
	props.EnforceSSL = jsii.Bool(true)
	props.Encryption = awssqs.QueueEncryption_SQS_MANAGED
	if st.props.CustomerKey {
		props.Encryption, props.EncryptionMasterKey = awssqs.QueueEncryption_KMS, st.key
	}
	props.RemovalPolicy = st.removal()
	return awssqs.NewQueue(st.scope, &id, props)
}
