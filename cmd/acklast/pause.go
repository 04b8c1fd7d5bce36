package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spf13/cobra"

	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// laneReport says whether messages are received from a lane.
type laneReport struct {
	Lane job.Queue `json:"lane"`
	// Mapping is the id of the lane's event source mapping.
	Mapping string `json:"mapping"`
	// State is the mapping's state in Lambda's words: "Disabled", or "Disabling" for some seconds before.
	State string `json:"state"`
}

func newPause(a *app) *cobra.Command {
	return laneCommand(a, "pause", false, "Stop receiving from a lane, or stop one kind",
		`With a lane: disable the lane's event source mapping. Invocations that run go on, messages stay where they are and keep
their age: SQS deletes them when the lane's retention ends, four days by default. "acklast resume" undoes it.

With --kind: no attempt at a job of the kind starts until "acklast resume --kind", and the other kinds go on. Its
jobs wait on the recovery lane and look again every five minutes. That spends no attempt, and keeps them from being
deleted; their own deadlines go on. It holds within half a minute, for attempts that have not started. An alarm
reminds of a pause that lasts.

The same with the AWS CLI:
  aws lambda list-event-source-mappings --event-source-arn ARN-OF-THE-QUEUE
  aws lambda update-event-source-mapping --uuid UUID --no-enabled`)
}

func newResume(a *app) *cobra.Command {
	return laneCommand(a, "resume", true, "Receive from a lane again, or let a paused kind run",
		`With a lane: enable the lane's event source mapping. With --kind: end the kind's pause. Its jobs run when they look
again, within five minutes.

The same with the AWS CLI:
  aws lambda update-event-source-mapping --uuid UUID --enabled`)
}

func laneCommand(a *app, use string, enabled bool, short, long string) *cobra.Command {
	names := []string{string(job.Source), string(job.Recovery)}
	var w who
	var kind string
	cmd := &cobra.Command{
		Use: use + " source|recovery | --kind KIND", Short: short, Long: long,
		Example: "  acklast " + use + " recovery\n  acklast " + use + " --kind reminder.send --reason 'the template is wrong'",
		Args:    cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs), ValidArgs: names,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && kind == "" && w == (who{}):
				return a.setLane(cmd.Context(), job.Queue(args[0]), enabled)
			case len(args) == 0 && kind != "" && w.reason != "":
				return a.setKind(cmd.Context(), w, kind, enabled)
			case len(args) == 0 && kind != "":
				return refuse("%s --kind %s needs a --reason: people who find the change will want to know why", use, kind)
			case len(args) == 0:
				return refuse("%s needs a lane, source or recovery, or a --kind", use)
			case kind != "":
				return refuse("%s takes a lane or a --kind, not both", use)
			}
			return refuse("--by and --reason belong to --kind: a lane keeps no record of them")
		}),
	}
	cmd.Flags().StringVar(&kind, "kind", "", "the kind, such as reminder.send")
	cmd.Flags().StringVar(&w.by, "by", "", "who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for the audit and for those who find it")
	return cmd
}

func (a *app) setKind(ctx context.Context, w who, kind string, running bool) error {
	action := "pause"
	if running {
		action = "unpause"
	}
	return a.request(ctx, w, redrive.Request{Action: action, Kind: kind}, func(out io.Writer, _ redrive.Response) {
		if running {
			say(out, "The kind %s may run again.\n", plain(kind))
			return
		}
		say(out, "The kind %s is paused. End it: acklast resume --kind %s --reason WHY\n", plain(kind), plain(kind))
	})
}

func (a *app) setLane(ctx context.Context, lane job.Queue, enabled bool) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	mapping, err := t.mapping(ctx, lane)
	if err != nil {
		return err
	}
	a.announce(ctx, t)
	r, err := t.enable(ctx, lane, mapping, enabled)
	if err != nil {
		return err
	}
	return a.answer(r, func(w io.Writer) { say(w, "The %s lane is %s.\n", r.Lane, strings.ToLower(r.State)) })
}

// mapping looks up the id of a lane's event source mapping.
func (t *target) mapping(ctx context.Context, lane job.Queue) (id string, err error) {
	queue := t.names.SourceQueue
	if lane == job.Recovery {
		queue = t.names.RecoveryQueue
	}
	arn, err := t.queueARN(ctx, queue)
	if err != nil {
		return "", t.explain(err)
	}
	mapping, err := mappingOf(ctx, lambda.NewFromConfig(t.config), t.names.WorkerFunction, arn)
	if err != nil {
		return "", t.explain(err)
	}
	return aws.ToString(mapping.UUID), nil
}

// enable says whether a mapping receives from its lane.
func (t *target) enable(ctx context.Context, lane job.Queue, mapping string, enabled bool) (laneReport, error) {
	out, err := lambda.NewFromConfig(t.config).UpdateEventSourceMapping(ctx, &lambda.UpdateEventSourceMappingInput{UUID: &mapping, Enabled: &enabled})
	if err != nil {
		return laneReport{}, t.explain(err)
	}
	return laneReport{Lane: lane, Mapping: aws.ToString(out.UUID), State: aws.ToString(out.State)}, nil
}

// queueARN looks up the ARN of a queue of the stack.
func (t *target) queueARN(ctx context.Context, queue string) (string, error) {
	url, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return "", fmt.Errorf("look up queue %s: %w", queue, err)
	}
	name := sqstypes.QueueAttributeNameQueueArn
	out, err := t.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{name},
	})
	if err != nil {
		return "", fmt.Errorf("look up the ARN of queue %s: %w", queue, err)
	}
	return out.Attributes[string(name)], nil
}

// mappingOf finds the mapping from the queue to the function.
func mappingOf(ctx context.Context, client *lambda.Client, function, queueARN string) (types.EventSourceMappingConfiguration, error) {
	mapping, err := overview.Mapping(ctx, client, function, queueARN)
	if errors.Is(err, overview.ErrNoMapping) {
		err = refuse("%w: is the stack deployed, and is --stack right?", err)
	}
	return mapping, err
}
