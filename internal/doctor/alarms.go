package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// alarms checks that the alarms of the deployed template are there, and that each tells somebody who has confirmed.
func (d *Doctor) alarms(ctx context.Context, r *report) {
	const there, on = "alarms", "alarms' actions"
	topics, exist := map[string]bool{}, map[string]bool{}
	var silent, off []string
	count := 0
	pages := cloudwatch.NewDescribeAlarmsPaginator(d.CloudWatch, &cloudwatch.DescribeAlarmsInput{AlarmNamePrefix: aws.String(d.Names.Stack + "-")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			r.failed(err, "cloudwatch:DescribeAlarms", there, on)
			return
		}
		for _, alarm := range page.MetricAlarms {
			count++
			name := aws.ToString(alarm.AlarmName)
			exist[name] = true
			if !aws.ToBool(alarm.ActionsEnabled) {
				off = append(off, name)
			}
			told := false
			for _, action := range alarm.AlarmActions {
				if strings.Contains(action, ":sns:") {
					topics[action], told = true, true
				}
			}
			if !told {
				silent = append(silent, name)
			}
		}
	}
	r.judge(there, count > 0, count, "the stack %s has no alarm: deploy it again", d.Names.Stack)
	if count == 0 {
		return
	}
	d.deployedAlarms(ctx, r, exist)
	if want := d.Want.Checked; want != nil {
		// CodeDeploy rolls a version back on this alarm.
		is := exist[d.Names.Stack+"-new-version-errors"]
		r.judge("checked deployment", is == *want, is, "the settings say checkedDeployment=%v: deploy again, or change the settings' file", *want)
	}
	r.judge(on, len(off)+len(silent) == 0, count-len(off)-len(silent),
		"these tell nobody: %s. Set alarmEmail or alarmTopicArn and deploy, or enable their actions", strings.Join(append(silent, off...), ", "))
	var all []string
	for topic := range topics {
		all = append(all, topic)
	}
	slices.Sort(all)
	for _, topic := range all {
		d.topic(ctx, r, topic)
	}
}

// deployedAlarms checks that every alarm that the template made still exists. The stack's dashboard names them all, and
// an alarm that somebody deletes stays on it.
func (d *Doctor) deployedAlarms(ctx context.Context, r *report, exist map[string]bool) {
	const name = "alarms of the dashboard"
	dashboard := d.Names.Stack + "-" + d.Region
	out, err := d.CloudWatch.GetDashboard(ctx, &cloudwatch.GetDashboardInput{DashboardName: &dashboard})
	if err != nil {
		r.failed(err, "cloudwatch:GetDashboard", name)
		return
	}
	var body struct {
		Widgets []struct {
			Properties struct {
				Alarms []string `json:"alarms"`
			} `json:"properties"`
		} `json:"widgets"`
	}
	if err := json.Unmarshal([]byte(aws.ToString(out.DashboardBody)), &body); err != nil {
		r.unsure(name, "the dashboard %s cannot be read as JSON", dashboard)
		return
	}
	var gone []string
	listed := 0
	for _, w := range body.Widgets {
		for _, arn := range w.Properties.Alarms {
			listed++
			if alarm := arn[strings.LastIndexByte(arn, ':')+1:]; !exist[alarm] {
				gone = append(gone, alarm)
			}
		}
	}
	if listed == 0 {
		r.unsure(name, "the dashboard %s names no alarm: deploy the stack again if somebody has edited it", dashboard)
		return
	}
	r.judge(name, len(gone) == 0, listed-len(gone),
		"these were deployed and do not exist: %s. CloudFormation does not notice that on a deployment without a change: its drift detection lists them; "+
			"make each again as the template has it", strings.Join(gone, ", "))
}

// topic checks that a topic has a confirmed subscription.
func (d *Doctor) topic(ctx context.Context, r *report, topic string) {
	name := "subscriptions of " + topic[strings.LastIndexByte(topic, ':')+1:]
	confirmed, pending := 0, 0
	pages := sns.NewListSubscriptionsByTopicPaginator(d.SNS, &sns.ListSubscriptionsByTopicInput{TopicArn: &topic})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		switch {
		case missing(err):
			r.judge(name, false, "no topic", "%s does not exist, so the alarms tell nobody: deploy the stack again", topic)
			return
		case err != nil:
			r.failed(err, "sns:ListSubscriptionsByTopic", name)
			return
		}
		for _, s := range page.Subscriptions {
			if strings.HasPrefix(aws.ToString(s.SubscriptionArn), "arn:") {
				confirmed++
			} else {
				pending++
			}
		}
	}
	todo := "nobody is told of an alarm: subscribe an address to %s"
	if pending > 0 {
		todo = "a subscription of %s waits for its confirmation: open the link in the message from AWS Notifications"
	}
	r.judge(name, confirmed > 0, confirmed, todo, topic)
}

// clock compares this machine's clock with AWS's, by the Date header of an answer.
func (d *Doctor) clock(ctx context.Context, r *report) {
	const name = "clock of this machine"
	out, err := d.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		r.failed(err, "sts:GetCallerIdentity", name)
		return
	}
	server, ok := middleware.GetServerTime(out.ResultMetadata)
	received, also := middleware.GetResponseAt(out.ResultMetadata)
	if !ok || !also || server.IsZero() {
		r.unsure(name, "the answer has no date")
		return
	}
	skew := received.Sub(server).Abs()
	r.judge(name, skew <= d.Want.Settings.LeaseSkew, skew.Round(1e9),
		"it differs from AWS's by more than %v, so what you type as a time is wrong and calls are refused: set the clock by NTP", d.Want.Settings.LeaseSkew)
}
