package stack

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// alarm is one alarm: it goes off when its metric reaches the limit in enough of the last periods.
type alarm struct {
	name string
	// todo says what happened and what to do about it.
	todo   string
	metric awscloudwatch.IMetric
	limit  float64
	// periods are looked at, of which datapoints must reach the limit. A period is a minute, or an hour where
	// hourly says so.
	periods, datapoints int
	hourly              bool
}

// day is how many hourly periods an alarm on the census looks at: its metrics come once a day.
const day = 24

// alarms are the alarms in the order of the dashboard, and by name.
type alarms struct {
	shown  []interfacesawscloudwatch.IAlarmRef
	byName map[string]awscloudwatch.Alarm
}

// newAlarms adds the alarms. Missing data never raises one: every metric here that can be missing is
// missing because nothing happened.
func newAlarms(st *Stack) alarms {
	var targets []awscloudwatch.IAlarmAction
	if st.props.AlarmEmail != "" {
		topic := awssns.NewTopic(st.scope, jsii.String("AlarmTopic"), &awssns.TopicProps{
			DisplayName: jsii.String(st.props.Name + " alarms"),
			EnforceSSL:  jsii.Bool(true),
		})
		// EnforceSSL writes a policy, which takes the place of the one that SNS makes by itself and that lets
		// the account's alarms publish.
		topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
			Actions:    jsii.Strings("sns:Publish"), Resources: &[]*string{topic.TopicArn()},
			Conditions: &map[string]any{
				"StringEquals": map[string]any{"aws:SourceAccount": st.stack.Account()},
				"ArnLike":      map[string]any{"aws:SourceArn": st.arn("cloudwatch", "alarm:"+st.props.Name+"-*")},
			},
		}))
		topic.AddSubscription(awssnssubscriptions.NewEmailSubscription(&st.props.AlarmEmail, nil))
		targets = append(targets, awscloudwatchactions.NewSnsAction(topic))
	}
	for i, arn := range st.props.AlarmTopicARNs {
		topic := awssns.Topic_FromTopicArn(st.scope, jsii.String(fmt.Sprint("AlarmTopicByArn", i)), &arn)
		targets = append(targets, awscloudwatchactions.NewSnsAction(topic))
	}
	all := alarms{byName: map[string]awscloudwatch.Alarm{}}
	for _, a := range st.listAlarms() {
		made := awscloudwatch.NewAlarm(st.scope, jsii.String(constructID(a.name)+"Alarm"), &awscloudwatch.AlarmProps{
			AlarmName:          jsii.String(st.props.Name + "-" + a.name),
			AlarmDescription:   &a.todo,
			Metric:             a.metric,
			Threshold:          &a.limit,
			ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
			EvaluationPeriods:  jsii.Number(a.periods),
			DatapointsToAlarm:  jsii.Number(a.datapoints),
			TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
		})
		made.AddAlarmAction(targets...)
		made.AddOkAction(targets...)
		all.shown, all.byName[a.name] = append(all.shown, made), made
	}
	return all
}

func (st *Stack) listAlarms() []alarm {
	s, q, i := st.props, st.queues, st.props.Infra
	list := []alarm{
		{
			name: "dlq-depth",
			todo: "Jobs are isolated on " + s.names().DLQ + ". Look at why (inspect), mend the cause, then plan a redrive, decide or discard. " +
				"Looking does not clear this alarm: it counts messages in flight too.",
			metric: st.isolated(), limit: 1, periods: 1, datapoints: 1,
		}, {
			name: "dlq-age",
			todo: fmt.Sprintf("Jobs have been isolated for more than %v. SQS deletes them %v after their isolation, so redrive, decide or discard them. "+
				"The daily census counts them by the ledger, which no look at the DLQ disturbs.", i.DLQAge, s.Numbers.DLQRetention),
			metric: st.censusMetric(telemetry.MetricCensusOldestAge, maximum),
			limit:  i.DLQAge.Seconds(), periods: day, datapoints: 1, hourly: true,
		}, {
			name: "dlq-deleted",
			todo: "SQS deleted the messages of isolated jobs in the last day, because nobody had redriven, decided or discarded them in time. " +
				"The ledger still has their entries: find them with acklast job, and see to each by hand.",
			metric: st.censusMetric(telemetry.MetricCensusDeleted, maximum), limit: 1, periods: day, datapoints: 1, hourly: true,
		}, {
			name: "dlq-unrecorded",
			todo: "Messages are on " + s.names().DLQ + " that no isolated entry accounts for: SQS moved them itself after too many receives, " +
				"or their bodies are malformed, or they are copies. The census cannot tell their age, so look at them (acklast dlq).",
			metric: st.censusMetric(telemetry.MetricCensusUnrecorded, maximum), limit: 1, periods: day, datapoints: 1, hourly: true,
		}, {
			name: "dlq-missing",
			todo: "Jobs are isolated whose messages are not on " + s.names().DLQ + ". Somebody took them off by hand, or purged it. " +
				"The ledger still has their entries, and acklast audit tells what the redrive did.",
			metric: st.censusMetric(telemetry.MetricCensusMissing, maximum), limit: 1, periods: day, datapoints: 1, hourly: true,
		}, {
			name: "census-failed",
			todo: "The daily census did not start, so nobody counts what is isolated. Invoke it by hand (events/redrive/census.json), " +
				"and see whether the redrive function is throttled. A census that starts and fails raises redrive-errors.",
			metric: expression("FILL(refused, 0) + FILL(dropped, 0)", "not started", map[string]awscloudwatch.IMetric{
				"refused": metric("AWS/Events", ruleFailed, sum, "", map[string]*string{"RuleName": st.census.RuleName()}),
				"dropped": functionMetric(st.redrive.fn, lambdaDropped, sum, ""),
			}),
			limit: 1, periods: 1, datapoints: 1,
		}, {
			// The median: one job that fails again and again must not look like a system that is slow.
			name: "slow",
			todo: fmt.Sprintf("Half of the jobs end more than %v after they are due, and the shortest budget is %v. "+
				"If the lanes are long, raise the concurrency cap; if the dependency is slow, see its own alarms.", i.NearDeadline, i.ShortestBudget),
			metric: st.workerMetric(telemetry.MetricTerminalLatency, "p50", ""),
			limit:  float64(i.NearDeadline.Milliseconds()), periods: 5, datapoints: 3,
		}, {
			name: "late",
			todo: "Jobs ended after their deadline, late or expired, as their kind's late policy says. " +
				"Find them by status in the ledger, and see whether they waited (waiting, slow) or failed (failing).",
			metric: st.workerMetric(telemetry.MetricLateness, "SampleCount", ""),
			limit:  1, periods: 5, datapoints: 1,
		}, {
			name: "failing",
			todo: "More than half of the attempts fail and are retried. See the classes on the dashboard: transient and throttled are the dependency's, " +
				"unknown is an error nobody classified. Retries stop by themselves; what is spent is isolated.",
			metric: st.failing(), limit: 50, periods: 15, datapoints: 10,
		}, {
			name: "worker-errors",
			todo: "The worker crashed, timed out, or could confirm nothing of a whole batch (ledger or queues do not answer). " +
				"See its log. The work is safe: SQS delivers it again, and the ledger knows what is done.",
			metric: functionMetric(st.worker.fn, lambdaErrors, sum, ""), limit: 1, periods: 5, datapoints: 3,
		}, {
			name: "worker-throttles",
			todo: "Lambda refuses to run the worker: the account's concurrency, or the function's own reserve, is used up. " +
				"Each refusal spends one receive of every message in its batch. Raise the quota or lower the caps.",
			metric: functionMetric(st.worker.fn, lambdaThrottles, sum, ""), limit: 1, periods: 5, datapoints: 3,
		}, {
			name: "redrive-errors",
			todo: "The redrive function crashed or timed out. Ask for the run's status and run it again: " +
				"at most the calls that were in flight are repeated, and the ledger absorbs them.",
			metric: functionMetric(st.redrive.fn, lambdaErrors, sum, ""), limit: 1, periods: 1, datapoints: 1,
		}, {
			name: "redrive-stopped",
			todo: "A redrive stopped itself: its canary or too many of its jobs failed again, or somebody threw the kill switch. " +
				"Ask for the run's status, which says why; mend the cause before you run it again, or revoke it. See docs/runbook.md.",
			metric: st.workerMetric(telemetry.MetricRedriveStopped, sum, ""), limit: 1, periods: 1, datapoints: 1,
		},
	}
	// A message on a lane may wait for its delay before it is ready, and its age may count that.
	list = append(list, st.laneAlarms("source", q.source, i.ProducerDelay)...)
	return append(list, st.laneAlarms("recovery", q.recovery, topology.MaxDelay)...)
}

// laneAlarms watch one lane, whose messages may be sent with the given delay.
func (st *Stack) laneAlarms(lane string, q awssqs.Queue, delay time.Duration) []alarm {
	s, i := st.props, st.props.Infra
	stalled := int(i.Stalled / time.Minute)
	return []alarm{
		{
			name: lane + "-waiting",
			todo: fmt.Sprintf("Ready jobs on the %s lane wait near their deadline: the oldest is older than %v + the delay of up to %v, and the shortest budget is %v. "+
				"If the worker is healthy, raise the lane's concurrency cap.", lane, i.NearDeadline, delay, i.ShortestBudget),
			// Without a ready message the oldest one is in flight, or not due.
			metric: expression("IF(ready > 0, oldest, 0)", "oldest ready", map[string]awscloudwatch.IMetric{
				"ready":  queueMetric(q, sqsVisible, maximum, ""),
				"oldest": queueMetric(q, sqsOldest, maximum, ""),
			}),
			limit: (delay + i.NearDeadline).Seconds(), periods: 3, datapoints: 3,
		}, {
			name: lane + "-stalled",
			todo: fmt.Sprintf("Jobs are ready on the %s lane and none was acknowledged for %v. It is paused (output Pause%s tells how to go on), "+
				"throttled (worker-throttles) or broken (worker-errors).", lane, i.Stalled, constructID(lane)),
			// A queue that deletes nothing may report nothing, which is what FILL is for.
			metric: expression("IF(ready > 0 AND FILL(acknowledged, 0) == 0, 1, 0)", "stalled", map[string]awscloudwatch.IMetric{
				"ready":        queueMetric(q, sqsVisible, minimum, ""),
				"acknowledged": queueMetric(q, sqsDeleted, sum, ""),
			}),
			limit: 1, periods: stalled, datapoints: stalled,
		}, {
			name: lane + "-age",
			todo: fmt.Sprintf("The oldest job on the %s lane is older than %v. SQS deletes it at %v without asking, and without a DLQ. "+
				"Get the lane moving, or take the jobs out; never purge.", lane, i.LaneAge, s.Numbers.LaneRetention),
			metric: queueMetric(q, sqsOldest, maximum, ""),
			limit:  i.LaneAge.Seconds(), periods: 5, datapoints: 5,
		},
	}
}

// failing is the share of attempts that failed and were retried, in percent. Few jobs make no share:
// a single one that fails ten times in an hour is its own matter, and ends on the DLQ.
func (st *Stack) failing() awscloudwatch.MathExpression {
	return expression("IF(retried >= 5, 100 * retried / (retried + acknowledged), 0)", "% retried", map[string]awscloudwatch.IMetric{
		"retried":      st.workerMetric(telemetry.MetricRetried, sum, ""),
		"acknowledged": st.workerMetric(telemetry.MetricAcknowledged, sum, ""),
	})
}

// constructID turns dlq-depth into DlqDepth. Output ids have letters and digits only.
func constructID(name string) string {
	var id strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }) {
		id.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return id.String()
}
