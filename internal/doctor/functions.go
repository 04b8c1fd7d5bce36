package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/topology"
)

// mappings checks that both lanes feed the worker, and how.
func (d *Doctor) mappings(ctx context.Context, r *report) {
	for _, lane := range []struct {
		queue string
		limit int
	}{{d.Names.SourceQueue, d.Want.Settings.SourceConcurrency}, {d.Names.RecoveryQueue, d.Want.Settings.RecoveryConcurrency}} {
		partial, state, limit := "partial responses of "+lane.queue, "mapping of "+lane.queue, "concurrency cap of "+lane.queue
		m, err := d.mapping(ctx, lane.queue)
		if err != nil {
			if missing(err) {
				r.judge(state, false, "no queue", "%s does not exist: deploy the stack", lane.queue)
				r.failed(err, "lambda:ListEventSourceMappings", partial, limit)
				continue
			}
			r.failed(err, "lambda:ListEventSourceMappings", state, partial, limit)
			continue
		}
		if m == nil {
			r.judge(state, false, "none", "nothing takes messages from %s to %s: deploy the stack", lane.queue, d.Names.WorkerFunction)
			continue
		}
		r.judge(state, aws.ToString(m.State) == "Enabled", aws.ToString(m.State),
			"no job of this lane runs: \"acklast resume\" it when the reason is gone")
		r.judge(partial, slices.Contains(m.FunctionResponseTypes, types.FunctionResponseTypeReportBatchItemFailures), m.FunctionResponseTypes,
			"without ReportBatchItemFailures SQS deletes what the worker left: deploy the stack again, now")
		if m.ScalingConfig == nil || m.ScalingConfig.MaximumConcurrency == nil {
			r.judge(limit, false, "none", "recovery can starve fresh work: deploy the stack again with a cap of %d", lane.limit)
			continue
		}
		found := int(*m.ScalingConfig.MaximumConcurrency)
		r.judge(limit, found == lane.limit, found, "the settings say %d: deploy again, or change the settings' file", lane.limit)
	}
}

// mapping finds the mapping of a queue to the worker or an alias of it; nil if there is none.
func (d *Doctor) mapping(ctx context.Context, queue string) (*types.EventSourceMappingConfiguration, error) {
	url, err := d.SQS.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return nil, err
	}
	attribute := sqstypes.QueueAttributeNameQueueArn
	out, err := d.SQS.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{attribute}})
	if err != nil {
		return nil, err
	}
	arn := out.Attributes[string(attribute)]
	pages := lambda.NewListEventSourceMappingsPaginator(d.Lambda, &lambda.ListEventSourceMappingsInput{EventSourceArn: &arn})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range page.EventSourceMappings {
			_, name, _ := strings.Cut(aws.ToString(m.FunctionArn), ":function:")
			name, _, _ = strings.Cut(name, ":")
			if name == d.Names.WorkerFunction && aws.ToString(m.EventSourceArn) == arn {
				return &m, nil
			}
		}
	}
	return nil, nil
}

// functions checks Lambda's detection of recursive loops, which the worker looks like: it sends to a queue that
// feeds it.
func (d *Doctor) functions(ctx context.Context, r *report) {
	const name = "recursive loops of the worker"
	out, err := d.Lambda.GetFunctionRecursionConfig(ctx, &lambda.GetFunctionRecursionConfigInput{FunctionName: &d.Names.WorkerFunction})
	switch {
	case missing(err):
		r.judge(name, false, "no function", "%s does not exist: deploy the stack", d.Names.WorkerFunction)
	case err != nil:
		r.failed(err, "lambda:GetFunctionRecursionConfig", name)
	case out.RecursiveLoop == "":
		r.unsure(name, "Lambda answered without a setting")
	default:
		r.judge(name, out.RecursiveLoop == types.RecursiveLoopAllow, out.RecursiveLoop,
			"Lambda ends a job after 16 hops and sends it to the DLQ: aws lambda put-function-recursion-config --function-name %s --recursive-loop Allow", d.Names.WorkerFunction)
	}
}

// account checks that the account's quota holds the caps and leaves what Lambda keeps free.
func (d *Doctor) account(ctx context.Context, r *report) {
	const quota, kept = "concurrency quota of the account", "concurrency that reservations leave"
	out, err := d.Lambda.GetAccountSettings(ctx, &lambda.GetAccountSettingsInput{})
	if err != nil {
		r.failed(err, "lambda:GetAccountSettings", quota, kept)
		return
	}
	if out.AccountLimit == nil || out.AccountLimit.ConcurrentExecutions == 0 {
		r.unsure(quota, "Lambda answered without a limit")
		return
	}
	s, limit := d.Want.Settings, int(out.AccountLimit.ConcurrentExecutions)
	caps := s.SourceConcurrency + s.RecoveryConcurrency
	need := caps + topology.MinReservedConcurrency
	r.judge(quota, limit >= need, limit, "both lanes' caps and a redrive need %d: lower the caps, or ask for a higher quota in Service Quotas", need)
	if d.Want.Infra.WorkerReserved > 0 {
		return // the reservation holds the caps
	}
	if out.AccountLimit.UnreservedConcurrentExecutions == nil {
		r.unsure(kept, "Lambda answered without the unreserved concurrency")
		return
	}
	free := int(*out.AccountLimit.UnreservedConcurrentExecutions)
	r.judge(kept, free >= need, free, "functions of this account reserve so much that %d are not left: lower their reservations, or set workerReserved", need)
}
