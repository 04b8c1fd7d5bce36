package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
)

// mappings feed the worker, one for each lane, so that each has a concurrency cap and can be paused
// on its own.
type mappings struct{ source, recovery awslambda.EventSourceMapping }

func newMappings(st *Stack) mappings {
	n := st.props.Numbers
	return mappings{
		source:   newMapping(st, "SourceMapping", st.queues.source, n.SourceConcurrency, st.props.PauseSource),
		recovery: newMapping(st, "RecoveryMapping", st.queues.recovery, n.RecoveryConcurrency, st.props.PauseRecovery),
	}
}

func newMapping(st *Stack, id string, lane awssqs.Queue, concurrency int, paused bool) awslambda.EventSourceMapping {
	n := st.props.Numbers
	props := &awslambda.EventSourceMappingProps{
		Target: st.worker.live,
		// Set in both cases, because CloudFormation enables a changed mapping that does not set it.
		Enabled:        jsii.Bool(!paused),
		EventSourceArn: lane.QueueArn(),
		BatchSize:      jsii.Number(n.BatchSize),
		MaxConcurrency: jsii.Number(concurrency),
		// Without it, one failed record would bring back its whole batch.
		ReportBatchItemFailures: jsii.Bool(true),
		MetricsConfig:           &awslambda.MetricsConfig{Metrics: &[]awslambda.MetricType{awslambda.MetricType_EVENT_COUNT}},
	}
	if n.BatchWindow > 0 {
		props.MaxBatchingWindow = seconds(n.BatchWindow)
	}
	return awslambda.NewEventSourceMapping(st.scope, &id, props)
}
