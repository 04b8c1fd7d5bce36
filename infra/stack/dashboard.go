package stack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/telemetry"
)

// newDashboard draws the dashboard. docs/deploy.md has a picture of it.
func newDashboard(st *Stack) awscloudwatch.Dashboard {
	q := st.queues
	third := func(title string, left ...awscloudwatch.IMetric) awscloudwatch.IWidget { return graph(title, 8, left) }
	rows := [][]awscloudwatch.IWidget{
		{awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Width: jsii.Number(24), Height: jsii.Number(3), Alarms: &st.alarms.shown,
		})},
		{
			third("Source lane", laneStates(q.source)...),
			third("Recovery lane", laneStates(q.recovery)...),
			third("Isolated (DLQ)", append([]awscloudwatch.IMetric{st.isolated()}, st.daysLeft()...)...),
		},
		{
			third("Oldest message (s)",
				queueMetric(q.source, sqsOldest, maximum, "source"),
				queueMetric(q.recovery, sqsOldest, maximum, "recovery"),
				queueMetric(q.dlq, sqsOldest, maximum, "DLQ")),
			third("Outcomes", st.outcomes()...),
			third("Retries by class", st.byClass(telemetry.MetricRetried)),
		},
		{
			third("Due to final (ms)",
				st.workerMetric(telemetry.MetricTerminalLatency, "p50", "p50"),
				st.workerMetric(telemetry.MetricTerminalLatency, "p95", "p95"),
				st.workerMetric(telemetry.MetricTerminalLatency, "p99", "p99")),
			third("After the deadline",
				st.workerMetric(telemetry.MetricLateness, "SampleCount", "jobs")),
			third("Duplicates and conflicts",
				st.workerMetric(telemetry.MetricDuplicates, sum, "duplicates"),
				st.workerMetric(telemetry.MetricLedgerConflicts, sum, "ledger conflicts"),
				st.workerMetric(telemetry.MetricBatchFailures, sum, "reported failed")),
		},
		{
			third("Isolated by class", st.isolatedByClass()...),
			third("Redrive",
				queueMetric(q.dlq, sqsDeleted, sum, "taken off the DLQ"),
				st.workerMetric(telemetry.MetricRedriven, sum, "sent back"),
				st.workerMetric(telemetry.MetricRedriveFailed, sum, "not sent"),
				st.workerMetric(telemetry.MetricRedriveStopped, sum, "runs stopped"),
				functionMetric(st.redrive.fn, lambdaInvocations, sum, "requests"),
				functionMetric(st.redrive.fn, lambdaErrors, sum, "errors")),
			third("Worker",
				functionMetric(st.worker.fn, lambdaConcurrency, maximum, "running at once"),
				functionMetric(st.worker.fn, lambdaErrors, sum, "errors"),
				functionMetric(st.worker.fn, lambdaThrottles, sum, "throttles")),
		},
		{
			third("Worker duration (ms)",
				functionMetric(st.worker.fn, lambdaDuration, "p50", "p50"),
				functionMetric(st.worker.fn, lambdaDuration, "p99", "p99")),
			third("Source mapping", mappingCounts(st.mappings.source)...),
			third("Recovery mapping", mappingCounts(st.mappings.recovery)...),
		},
		{
			third("Far ahead (EventBridge Scheduler)",
				st.workerMetric(telemetry.MetricScheduled, sum, "handed over"),
				st.scheduleMetric(scheduleAttempts, "tries to send"),
				st.scheduleMetric(scheduleToDLQ, "sent to the DLQ"),
				st.scheduleMetric(scheduleLost, "lost"),
				st.workerMetric(telemetry.MetricCancelled, sum, "came back cancelled")),
		},
	}
	widgets := make([]*[]awscloudwatch.IWidget, len(rows))
	for i := range rows {
		widgets[i] = &rows[i]
	}
	return awscloudwatch.NewDashboard(st.scope, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		DashboardName:   jsii.String(st.dashboardName()),
		DefaultInterval: awscdk.Duration_Hours(jsii.Number(3)),
		Widgets:         &widgets,
	})
}

// dashboardName has the region, because dashboards belong to the account: stacks of one name in two regions would overwrite each
// other's.
func (st *Stack) dashboardName() string { return st.props.Name + "-" + *st.stack.Region() }

func graph(title string, width int, left []awscloudwatch.IMetric) awscloudwatch.GraphWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: &title, Width: jsii.Number(width), Height: jsii.Number(6), Left: &left,
		LeftYAxis: &awscloudwatch.YAxisProps{Min: jsii.Number(0), ShowUnits: jsii.Bool(false)},
	})
}

// laneStates are the states of a lane's messages; the fourth, isolated, is the DLQ's.
func laneStates(q awssqs.Queue) []awscloudwatch.IMetric {
	return []awscloudwatch.IMetric{
		queueMetric(q, sqsDelayed, maximum, "scheduled"),
		queueMetric(q, sqsVisible, maximum, "ready"),
		queueMetric(q, sqsNotVisible, maximum, "in flight"),
	}
}

func mappingCounts(m awslambda.EventSourceMapping) []awscloudwatch.IMetric {
	return []awscloudwatch.IMetric{
		mappingMetric(m, polledEvents, sum, "polled"),
		mappingMetric(m, deletedEvents, sum, "deleted"),
		mappingMetric(m, failedInvokes, sum, "failed"),
	}
}

func (st *Stack) outcomes() []awscloudwatch.IMetric {
	var out []awscloudwatch.IMetric
	for _, name := range []string{
		telemetry.MetricAcknowledged, telemetry.MetricRetried, telemetry.MetricDeferred,
		telemetry.MetricIsolated, telemetry.MetricLeft,
	} {
		out = append(out, st.workerMetric(name, sum, strings.ToLower(name)))
	}
	return out
}

func (st *Stack) isolatedByClass() []awscloudwatch.IMetric {
	var out []awscloudwatch.IMetric
	for _, class := range telemetry.Classes {
		out = append(out, metric(telemetry.Namespace, telemetry.MetricIsolated, sum, string(class), map[string]*string{
			telemetry.DimensionStack: &st.props.Name, telemetry.DimensionClass: jsii.String(string(class)),
		}))
	}
	return out
}

// daysLeft are the counts of the last census, by the days until SQS deletes the messages.
func (st *Stack) daysLeft() []awscloudwatch.IMetric {
	var out []awscloudwatch.IMetric
	for _, days := range telemetry.DaysLeft {
		out = append(out, metric(telemetry.Namespace, telemetry.MetricCensusJobs, maximum, days.Name+" days left", map[string]*string{
			telemetry.DimensionStack: &st.props.Name, telemetry.DimensionDaysLeft: jsii.String(days.Name),
		}))
	}
	return out
}

// byClass finds a count by kind, lane and class. The kinds are not known here, so it searches.
func (st *Stack) byClass(name string) awscloudwatch.IMetric {
	dimensions := strings.Join([]string{
		telemetry.DimensionStack, telemetry.DimensionKind, telemetry.DimensionLane, telemetry.DimensionClass,
	}, ",")
	search := "SEARCH('{" + telemetry.Namespace + "," + dimensions + "} MetricName=\"" + name + "\" " +
		telemetry.DimensionStack + "=\"" + st.props.Name + "\"', 'Sum', 60)"
	return expression(search, "${PROP('Dim."+telemetry.DimensionClass+"')} ${PROP('Dim."+telemetry.DimensionKind+"')}", nil)
}
