package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/telemetry"
)

// Metrics that AWS keeps by itself. SQS reports a queue's every minute while it holds messages, and
// for some hours after; a queue that stays empty and unused reports none, and no alarm may fire for
// that.
const (
	sqsVisible    = "ApproximateNumberOfMessagesVisible"
	sqsNotVisible = "ApproximateNumberOfMessagesNotVisible"
	sqsDelayed    = "ApproximateNumberOfMessagesDelayed"
	sqsOldest     = "ApproximateAgeOfOldestMessage"
	sqsDeleted    = "NumberOfMessagesDeleted"

	lambdaInvocations = "Invocations"
	lambdaErrors      = "Errors"
	lambdaThrottles   = "Throttles"
	lambdaDuration    = "Duration"
	// Asynchronous events that Lambda dropped after its last try.
	lambdaDropped     = "AsyncEventsDropped"
	lambdaConcurrency = "ConcurrentExecutions"

	polledEvents  = "PolledEventCount"
	failedInvokes = "FailedInvokeEventCount"
	deletedEvents = "DeletedEventCount"

	readThrottles  = "ReadThrottleEvents"
	writeThrottles = "WriteThrottleEvents"

	// Invocations that a rule dropped after its last try.
	ruleFailed = "FailedInvocations"

	// The results of schedules whose time had come: tries to send, inputs that went to the DLQ because the tries
	// were used up, and inputs that could not be sent there either.
	scheduleAttempts = "InvocationAttemptCount"
	scheduleToDLQ    = "InvocationsSentToDeadLetterCount"
	scheduleLost     = "InvocationsFailedToBeSentToDeadLetterCount"
)

const (
	sum     = "Sum"
	maximum = "Maximum"
	minimum = "Minimum"
)

var minute = awscdk.Duration_Minutes

// metric is one by the minute. The label is the dashboard's; an alarm has none.
func metric(namespace, name, statistic, label string, dimensions map[string]*string) awscloudwatch.Metric {
	props := &awscloudwatch.MetricProps{
		Namespace: &namespace, MetricName: &name, Statistic: &statistic,
		DimensionsMap: &dimensions, Period: minute(jsii.Number(1)),
	}
	if label != "" {
		props.Label = &label
	}
	return awscloudwatch.NewMetric(props)
}

func queueMetric(q awssqs.Queue, name, statistic, label string) awscloudwatch.Metric {
	return metric("AWS/SQS", name, statistic, label, map[string]*string{"QueueName": q.QueueName()})
}

func functionMetric(f awslambda.IFunction, name, statistic, label string) awscloudwatch.Metric {
	return metric("AWS/Lambda", name, statistic, label, map[string]*string{"FunctionName": f.FunctionName()})
}

func mappingMetric(m awslambda.EventSourceMapping, name, statistic, label string) awscloudwatch.Metric {
	return metric("AWS/Lambda", name, statistic, label, map[string]*string{"EventSourceMappingUUID": m.EventSourceMappingId()})
}

// scheduleMetric is one that Scheduler counts for the group of the stack's schedules.
func (st *Stack) scheduleMetric(name, label string) awscloudwatch.Metric {
	return metric("AWS/Scheduler", name, sum, label, map[string]*string{"ScheduleGroup": jsii.String(st.props.names().ScheduleGroup)})
}

// workerMetric is one that the worker counts for the whole stack.
func (st *Stack) workerMetric(name, statistic, label string) awscloudwatch.Metric {
	return metric(telemetry.Namespace, name, statistic, label, map[string]*string{telemetry.DimensionStack: &st.props.Name})
}

// censusMetric is one that the census writes once a day.
func (st *Stack) censusMetric(name string) awscloudwatch.Metric {
	return st.workerMetric(name, maximum, "").With(hourly())
}

// hourly is a metric by the hour.
func hourly() *awscloudwatch.MetricOptions {
	return &awscloudwatch.MetricOptions{Period: awscdk.Duration_Hours(jsii.Number(1))}
}

func expression(expr, label string, using map[string]awscloudwatch.IMetric) awscloudwatch.MathExpression {
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: &expr, Label: &label, UsingMetrics: &using, Period: minute(jsii.Number(1)),
	})
}

// isolated counts all messages of the DLQ, also received ones: an alarm must not return to OK because somebody looks.
// NumberOfMessagesSent would leave out the messages that SQS moved by itself.
func (st *Stack) isolated() awscloudwatch.MathExpression {
	return expression("visible + in_flight", "isolated", map[string]awscloudwatch.IMetric{
		"visible":   queueMetric(st.queues.dlq, sqsVisible, maximum, "visible"),
		"in_flight": queueMetric(st.queues.dlq, sqsNotVisible, maximum, "in flight"),
	})
}
