package stack

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"

	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// listAlarms are all alarms. The scenarios of this package's tests say when each fires.
//
// At a job an hour a fault shows as single datapoints that lie minutes apart. So the windows are wide and need
// two or three datapoints: a short fault raises no alarm, and a lasting fault does not let the alarm flap.
func (st *Stack) listAlarms() []alarm {
	list := append(st.dlqAlarms(), st.censusAlarms()...)
	list = append(list, st.jobAlarms()...)
	list = append(list, st.scheduleAlarms()...)
	list = append(list, st.functionAlarms()...)
	n := st.props.Numbers
	list = append(list, st.laneAlarms("source", st.queues.source, n.SourceConcurrency)...)
	list = append(list, st.laneAlarms("recovery", st.queues.recovery, n.RecoveryConcurrency)...)
	return append(list, st.tableAlarms()...)
}

// comesBack is a window, in minutes, in which one job that is left or handed back again and again shows twice: in
// the end it comes every 15 minutes.
const comesBack = 31

// dlqAlarms watch what is on the DLQ now. The first tells of each arrival; the second stays on while anything
// is there, so it cannot tell of a further one.
func (st *Stack) dlqAlarms() []alarm {
	dlq := st.props.names().DLQ
	visible, inFlight := queueMetric(st.queues.dlq, sqsVisible, maximum, ""), queueMetric(st.queues.dlq, sqsNotVisible, maximum, "")
	return []alarm{
		{
			name: "dlq-arrivals", severity: page,
			todo: "Jobs were isolated on " + dlq + ". Look at why (acklast dlq), mend the cause, then plan a redrive, decide or discard. " +
				"The alarm returns to OK by itself, and fires again for later arrivals.",
			// SQS's own moves are in none of the worker's counts, and only raise the depth.
			metric: expression("IF(FILL(isolated, 0) > 0 OR DIFF(FILL(visible, 0) + FILL(in_flight, 0)) > 0, 1, 0)", "arrivals",
				map[string]awscloudwatch.IMetric{
					"isolated": st.workerMetric(telemetry.MetricIsolated, sum, ""), "visible": visible, "in_flight": inFlight,
				}),
			limit: 1, periods: 15, datapoints: 1,
		}, {
			name: "dlq-depth", severity: ticket,
			todo: "Isolated jobs are on " + dlq + ". Redrive, decide or discard them; each has a reason (acklast dlq). " +
				"Looking does not clear this alarm: it counts messages in flight too.",
			metric: expression("FILL(visible, 0) + FILL(in_flight, 0)", "isolated", map[string]awscloudwatch.IMetric{"visible": visible, "in_flight": inFlight}),
			limit:  1, periods: 15, datapoints: 1,
		},
	}
}

// censusAlarms watch what the daily census counts, and the census.
func (st *Stack) censusAlarms() []alarm {
	s, i := st.props, st.props.Infra
	list := []alarm{
		{
			name: "dlq-age", severity: page,
			todo: fmt.Sprintf("Jobs have been isolated for more than %v. SQS deletes them %v after their isolation, so redrive, decide or discard them. "+
				"The daily census counts them by the ledger, which no look at the DLQ disturbs.", i.DLQAge, s.Numbers.DLQRetention),
			metric: st.censusMetric(telemetry.MetricCensusOldestAge), limit: i.DLQAge.Seconds(),
		}, {
			name: "dlq-deleted", severity: page,
			todo: "SQS deleted the messages of isolated jobs in the last day, because nobody had redriven, decided or discarded them in time. " +
				"The ledger still has their entries: find them with acklast job, and see to each by hand.",
			metric: st.censusMetric(telemetry.MetricCensusDeleted), limit: 1,
		}, {
			name: "dlq-unrecorded", severity: page,
			todo: "Messages are on " + s.names().DLQ + " that no isolated entry accounts for: SQS moved them itself after too many receives, " +
				"or their bodies are malformed, or they are copies. The census cannot tell their age, so look at them (acklast dlq).",
			metric: st.censusMetric(telemetry.MetricCensusUnrecorded), limit: 1,
		}, {
			name: "dlq-missing", severity: ticket,
			todo: "Jobs are isolated whose messages are not on " + s.names().DLQ + ". Somebody took them off by hand, or purged it. " +
				"The ledger still has their entries, and acklast audit tells what the redrive did.",
			metric: st.censusMetric(telemetry.MetricCensusMissing), limit: 1,
		},
	}
	for i := range list {
		list[i].periods, list[i].datapoints = day, 1
	}
	return append(list, alarm{
		name: "census-failed", severity: ticket,
		todo: "The daily census did not start, so nobody counts what is isolated. Invoke it by hand (events/redrive/census.json), " +
			"and see whether the redrive function is throttled. A census that starts and fails raises redrive-errors.",
		metric: expression("FILL(refused, 0) + FILL(dropped, 0)", "not started", map[string]awscloudwatch.IMetric{
			"refused": metric("AWS/Events", ruleFailed, sum, "", map[string]*string{"RuleName": st.census.RuleName()}),
			"dropped": functionMetric(st.redrive.fn, lambdaDropped, sum, ""),
		}),
		limit: 1, periods: 1, datapoints: 1,
	})
}

// jobAlarms watch what the worker counts of jobs.
func (st *Stack) jobAlarms() []alarm {
	i := st.props.Infra
	return []alarm{
		{
			// The median: one job that fails again and again must not look like a system that is slow.
			name: "slow", severity: page,
			todo: fmt.Sprintf("Half of the jobs end more than %v after they are due or were reopened, and the shortest budget is %v. "+
				"If the lanes are long, raise the concurrency cap; if the dependency is slow, see its own alarms.", i.NearDeadline, i.ShortestBudget),
			metric: st.workerMetric(telemetry.MetricTerminalLatency, "p50", ""),
			limit:  float64(i.NearDeadline.Milliseconds()), periods: 5, datapoints: 3,
		}, {
			name: "late", severity: page,
			todo: "Jobs ended after their deadline, late or expired, as their kind's late policy says. " +
				"Find them by status in the ledger, and see whether they waited (waiting, slow) or failed (failing).",
			metric: st.workerMetric(telemetry.MetricLateness, "SampleCount", ""), limit: 1, periods: 5, datapoints: 1,
		}, {
			name: "failing", severity: page,
			todo: "More than half of the attempts fail and are retried. See the classes on the dashboard: transient and throttled are the dependency's, " +
				"unknown is an error nobody classified. Retries stop by themselves; what is spent is isolated.",
			metric: st.failing(), limit: 50, periods: 15, datapoints: 10,
		}, {
			name: "left", severity: page,
			todo: "Deliveries could not even be handed over: SQS refuses the worker's sends, or invocations run out of time. " +
				"They come back, and after too many receives SQS moves them to the DLQ without a record. See the worker's log for the error.",
			metric: st.workerMetric(telemetry.MetricLeft, sum, ""), limit: 1, periods: comesBack, datapoints: 2,
		}, {
			name: "ledger-outage", severity: page,
			todo: "The ledger does not answer: DynamoDB fails, throttles, or denies the worker. Jobs are handed back to their lanes for up to three days, " +
				"and no attempt is spent. Restore the table or the right to it; nothing has to be redriven.",
			metric: st.workerMetric(telemetry.MetricLedgerOutage, sum, ""), limit: 1, periods: comesBack, datapoints: 2,
		}, {
			name: "expired-by-outage", severity: page,
			todo: "Jobs expired without running, because the ledger's trouble had held them back until after their deadline. " +
				"Find them by status expired in the ledger, and tell those who wait for them.",
			metric: st.workerMetric(telemetry.MetricExpiredByOutage, sum, ""), limit: 1, periods: 5, datapoints: 1,
		}, {
			// By the hour, because people pause a kind on purpose for less than an hour.
			name: "kind-paused", severity: ticket,
			todo: "Operators paused a kind of job, and its jobs have been waiting for two hours. Their deadlines and the lane's retention go on. " +
				"Let it run again with acklast resume, or tell those who wait.",
			metric: st.workerMetric(telemetry.MetricPaused, sum, "").With(hourly()), limit: 1, periods: 2, datapoints: 2,
		}, {
			name: "copies", severity: ticket,
			todo: "Copies of isolated jobs arrived and went to the DLQ. A producer sends again what is isolated, or somebody puts messages back. " +
				"A copy lifts nothing: redrive or decide the job, and discard the copy by its message's id, which leaves the job as it is.",
			metric: st.workerMetric(telemetry.MetricCopies, sum, ""), limit: 1, periods: 15, datapoints: 1,
		}, {
			name: "conflicts", severity: ticket,
			todo: "Deliveries came under the key of another job with another payload, and were isolated. A producer uses one key for two commands, " +
				"or somebody forges jobs. Their entries are untouched; see which payload is right, and discard the other.",
			metric: st.workerMetric(telemetry.MetricConflicts, sum, ""), limit: 1, periods: 15, datapoints: 1,
		},
	}
}

// scheduleAlarms watch the schedules of jobs that are due far ahead. Scheduler reports only what happened, so that a
// group without trouble has no such metrics.
func (st *Stack) scheduleAlarms() []alarm {
	names := st.props.names()
	return []alarm{
		{
			name: "schedule-undelivered", severity: page,
			todo: "EventBridge Scheduler could not send jobs to " + names.RecoveryQueue + " in up to a day of tries, and put them on " + names.DLQ + ". " +
				"The role " + names.SchedulerRole + " or the queue's policy or key was changed: mend that, then redrive the jobs (acklast dlq, cause schedule).",
			metric: st.scheduleMetric(scheduleToDLQ, ""), limit: 1, periods: 15, datapoints: 1,
		}, {
			// By the hour for a day: there is no other sign of such a job, and its alarm must outlast a night.
			name: "schedule-lost", severity: page,
			todo: "EventBridge Scheduler could send jobs neither to " + names.RecoveryQueue + " nor to " + names.DLQ + ", and dropped them. No queue has them any more. " +
				"Mend the role " + names.SchedulerRole + ", find the jobs in the ledger (the runbook has the query), and send them again under the same key.",
			metric: st.scheduleMetric(scheduleLost, "").With(hourly()), limit: 1, periods: day, datapoints: 1,
		},
	}
}

// functionAlarms watch both functions.
func (st *Stack) functionAlarms() []alarm {
	return []alarm{
		{
			name: "worker-errors", severity: page,
			todo: "The worker crashed, timed out, cannot start, or could confirm nothing of a whole batch. " +
				"See its log, and roll back a deployment that broke it. The work is safe: SQS delivers it again, and the ledger knows what is done.",
			metric: functionMetric(st.worker.fn, lambdaErrors, sum, ""), limit: 1, periods: comesBack, datapoints: 2,
		}, {
			name: "worker-throttles", severity: page,
			todo: "Lambda refuses to run the worker: the account's concurrency, or the function's own reserve, is used up. " +
				"Each refusal spends one receive of every message in its batch. Raise the quota or lower the caps.",
			metric: functionMetric(st.worker.fn, lambdaThrottles, sum, ""), limit: 1, periods: 15, datapoints: 2,
		}, {
			name: "redrive-errors", severity: ticket,
			todo: "The redrive function crashed or timed out, or a census could not count. Ask for the run's status and run it again: " +
				"at most the calls that were in flight are repeated, and the ledger absorbs them.",
			metric: functionMetric(st.redrive.fn, lambdaErrors, sum, ""), limit: 1, periods: 1, datapoints: 1,
		}, {
			name: "redrive-stopped", severity: ticket,
			todo: "A redrive stopped itself: its canary or too many of its jobs failed again, or somebody threw the kill switch. " +
				"Ask for the run's status, which says why; mend the cause before you run it again, or revoke it.",
			metric: st.workerMetric(telemetry.MetricRedriveStopped, sum, ""), limit: 1, periods: 1, datapoints: 1,
		},
	}
}

// laneAlarms watch one lane, whose mapping has the concurrency cap.
func (st *Stack) laneAlarms(lane string, q awssqs.Queue, limit int) []alarm {
	s, i := st.props, st.props.Infra
	stalled := int(i.Stalled / time.Minute)
	ready := queueMetric(q, sqsVisible, minimum, "")
	return []alarm{
		{
			// Messages that are delayed are not ready, and SQS's age may count their delay. The backlog over the rate
			// at which it is worked off is how long the last of it will wait.
			name: lane + "-waiting", severity: page, section: "lane-waiting",
			todo: fmt.Sprintf("The ready jobs on the %s lane need more than %v at the rate of the last minutes, and the shortest budget is %v. "+
				"If the worker is healthy, raise the lane's concurrency cap.", lane, i.NearDeadline, i.ShortestBudget),
			metric: expression("IF(FILL(acknowledged, 0) > 0, 60 * ready / acknowledged, 0)", "seconds to work off", map[string]awscloudwatch.IMetric{
				"ready": ready, "acknowledged": queueMetric(q, sqsDeleted, sum, ""),
			}),
			limit: i.NearDeadline.Seconds(), periods: 3, datapoints: 3,
		}, {
			name: lane + "-stalled", severity: page, section: "lane-stalled",
			todo: fmt.Sprintf("Jobs are ready on the %s lane and none was acknowledged for %v. It is paused (output Pause%s tells how to go on), "+
				"throttled (worker-throttles) or broken (worker-errors).", lane, i.Stalled, constructID(lane)),
			// FILL is here because a queue that deletes no message may report no datapoint.
			metric: expression("IF(ready > 0 AND FILL(acknowledged, 0) == 0, 1, 0)", "stalled", map[string]awscloudwatch.IMetric{
				"ready": ready, "acknowledged": queueMetric(q, sqsDeleted, sum, ""),
			}),
			limit: 1, periods: stalled, datapoints: stalled,
		}, {
			name: lane + "-saturated", severity: ticket, section: "lane-saturated",
			todo: fmt.Sprintf("For ten minutes, more jobs were ready on the %s lane than all %d invocations of its concurrency cap take at once. "+
				"Raise the cap, or see why jobs have become slow.", lane, limit),
			metric: expression(fmt.Sprintf("IF(ready >= %d AND FILL(running, 0) >= %d, 1, 0)", limit*s.Numbers.BatchSize, limit), "saturated",
				map[string]awscloudwatch.IMetric{"ready": ready, "running": functionMetric(st.worker.fn, lambdaConcurrency, maximum, "")}),
			limit: 1, periods: 10, datapoints: 10,
		}, {
			name: lane + "-age", severity: page, section: "lane-age",
			todo: fmt.Sprintf("The oldest job on the %s lane is older than %v. SQS deletes it at %v without asking, and without a DLQ. "+
				"Get the lane moving, or take the jobs out; never purge.", lane, i.LaneAge, s.Numbers.LaneRetention),
			metric: queueMetric(q, sqsOldest, maximum, ""),
			limit:  i.LaneAge.Seconds(), periods: 5, datapoints: 5,
		},
	}
}

// tableAlarms watch each table, and the ledger's index.
func (st *Stack) tableAlarms() []alarm {
	var list []alarm
	for _, t := range st.tables.all() {
		name := strings.TrimPrefix(st.tables.nameOf[t], st.props.Name+"-")
		read := func(event string, more ...string) awscloudwatch.IMetric {
			dimensions := map[string]*string{"TableName": t.TableName()}
			if len(more) > 0 {
				dimensions["GlobalSecondaryIndexName"] = &more[0]
			}
			return metric("AWS/DynamoDB", event, sum, "", dimensions)
		}
		formula, using := "FILL(reads, 0) + FILL(writes, 0)", map[string]awscloudwatch.IMetric{"reads": read(readThrottles), "writes": read(writeThrottles)}
		if t == st.tables.ledger {
			formula += " + FILL(index, 0)"
			using["index"] = read(writeThrottles, topology.IsolatedIndex)
		}
		list = append(list, alarm{
			name: name + "-throttles", severity: ticket, section: "table-throttles",
			todo: "DynamoDB throttles the table " + st.tables.nameOf[t] + ". The worker waits and tries again, so that jobs get slower, and none is lost. " +
				"Look for one key that takes most writes, or for the account's limits.",
			metric: expression(formula, "throttled", using), limit: 1, periods: 15, datapoints: 3,
		})
	}
	return list
}

// failing is the share of attempts that failed and were retried, in percent. A share of few jobs says
// nothing: a single job that fails ten times in an hour is no trouble of the system, and ends on the DLQ.
func (st *Stack) failing() awscloudwatch.MathExpression {
	return expression("IF(retried >= 5, 100 * retried / (retried + acknowledged), 0)", "% retried", map[string]awscloudwatch.IMetric{
		"retried":      st.workerMetric(telemetry.MetricRetried, sum, ""),
		"acknowledged": st.workerMetric(telemetry.MetricAcknowledged, sum, ""),
	})
}
