package doctor

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// queues checks the lanes' visibility and redrive policy, and all retentions.
func (d *Doctor) queues(ctx context.Context, r *report) {
	s := d.Want.Settings
	for _, lane := range []string{d.Names.SourceQueue, d.Names.RecoveryQueue} {
		visibility, policy, retention := "visibility of "+lane, "redrive policy of "+lane, "retention of "+lane
		attributes, err := d.attributes(ctx, lane)
		if err != nil {
			d.queueFailed(r, lane, err, visibility, policy, retention)
			continue
		}
		least := 6*s.WorkerTimeout + s.BatchWindow
		r.period(visibility, attributes, types.QueueAttributeNameVisibilityTimeout, func(found time.Duration) bool { return found >= least },
			"AWS asks for 6 × the worker's timeout + the batch window, here %v: deploy with a longer laneVisibility", least)
		r.redrivePolicy(policy, attributes[string(types.QueueAttributeNameRedrivePolicy)], d.Names.DLQ, s.MaxReceiveCount)
		r.period(retention, attributes, types.QueueAttributeNameMessageRetentionPeriod, func(found time.Duration) bool { return found >= s.LaneRetention },
			"below %v, which the ledger's retention counts on: deploy the stack again", s.LaneRetention)
	}
	retention := "retention of " + d.Names.DLQ
	attributes, err := d.attributes(ctx, d.Names.DLQ)
	if err != nil {
		d.queueFailed(r, d.Names.DLQ, err, retention)
		return
	}
	r.period(retention, attributes, types.QueueAttributeNameMessageRetentionPeriod,
		func(found time.Duration) bool { return found >= s.DLQRetention && found > s.LaneRetention },
		"below %v: SQS would delete isolated jobs before people have acted. Deploy the stack again", s.DLQRetention)
}

func (d *Doctor) queueFailed(r *report, queue string, err error, names ...string) {
	if !missing(err) {
		r.failed(err, "sqs:GetQueueAttributes", names...)
		return
	}
	for _, name := range names {
		r.judge(name, false, "no queue", "%s does not exist: deploy the stack, or name another with --stack or --region", queue)
	}
}

func (d *Doctor) attributes(ctx context.Context, queue string) (map[string]string, error) {
	url, err := d.SQS.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return nil, err
	}
	out, err := d.SQS.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// period judges an attribute that is a number of seconds.
func (r *report) period(name string, attributes map[string]string, attribute types.QueueAttributeName, ok func(time.Duration) bool, todo string, args ...any) {
	value := attributes[string(attribute)]
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		r.unsure(name, "SQS answered %s = %q", attribute, value)
		return
	}
	found := time.Duration(n) * time.Second
	r.judge(name, ok(found), found, todo, args...)
}

func (r *report) redrivePolicy(name, value, dlq string, receives int) {
	if value == "" {
		r.judge(name, false, "none", "SQS deletes what the worker cannot take: deploy the stack again")
		return
	}
	var policy struct {
		DeadLetterTargetARN string `json:"deadLetterTargetArn"`
		// Some engines write the number as text.
		MaxReceiveCount json.RawMessage `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(value), &policy); err != nil {
		r.unsure(name, "SQS answered the redrive policy %q", value)
		return
	}
	found, err := strconv.Atoi(strings.Trim(string(policy.MaxReceiveCount), `"`))
	if err != nil {
		r.unsure(name, "SQS answered the redrive policy %q", value)
		return
	}
	r.judge(name, strings.HasSuffix(policy.DeadLetterTargetARN, ":"+dlq) && found == receives, value,
		"want %d receives, then %s: deploy the stack again", receives, dlq)
}
