package stack

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"
)

// severity says what people do when an alarm fires.
type severity string

const (
	// page: jobs fail or wait now, and somebody should look at once.
	page severity = "page"
	// ticket: a day's delay makes it no worse.
	ticket severity = "ticket"
)

// alarm is one alarm: it fires when its metric reaches the limit in enough of the last periods.
type alarm struct {
	name     string
	severity severity
	// section is the heading of the runbook's section; the alarm's name if empty.
	section string
	// todo says what happened and what to do about it.
	todo   string
	metric awscloudwatch.IMetric
	limit  float64
	// periods of the metric are looked at, of which datapoints must reach the limit.
	periods, datapoints int
}

// description is what an alarm's message says.
func (a alarm) description(runbook string) string {
	return fmt.Sprintf("[%s] %s Runbook: %s#%s", a.severity, a.todo, runbook, cmp.Or(a.section, a.name))
}

// day is how many hourly periods an alarm on the census looks at: its metrics come once a day.
const day = 24

// alarms are the alarms in the order of the dashboard, and by name.
type alarms struct {
	shown  []interfacesawscloudwatch.IAlarmRef
	byName map[string]awscloudwatch.Alarm
	// targets are told of each.
	targets []awscloudwatch.IAlarmAction
}

// newAlarms adds the alarms. Missing data never raises one: a metric here is missing
// only if its event did not happen.
func newAlarms(st *Stack) {
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
	st.alarms = alarms{byName: map[string]awscloudwatch.Alarm{}, targets: targets}
	for _, a := range st.listAlarms() {
		st.newAlarm(a)
	}
}

// newAlarm adds one alarm, with the targets of all alarms.
func (st *Stack) newAlarm(a alarm) awscloudwatch.Alarm {
	made := awscloudwatch.NewAlarm(st.scope, jsii.String(constructID(a.name)+"Alarm"), &awscloudwatch.AlarmProps{
		AlarmName:          jsii.String(st.props.Name + "-" + a.name),
		AlarmDescription:   jsii.String(a.description(st.props.Runbook)),
		Metric:             a.metric,
		Threshold:          &a.limit,
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
		EvaluationPeriods:  jsii.Number(a.periods),
		DatapointsToAlarm:  jsii.Number(a.datapoints),
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
	})
	made.AddAlarmAction(st.alarms.targets...)
	made.AddOkAction(st.alarms.targets...)
	st.alarms.shown, st.alarms.byName[a.name] = append(st.alarms.shown, made), made
	return made
}

// constructID turns dlq-depth into DlqDepth. Output ids have letters and digits only.
func constructID(name string) string {
	var id strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }) {
		id.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return id.String()
}
