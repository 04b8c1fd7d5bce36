package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/spf13/cobra"

	"acklast/internal/job"
)

// laneReport says whether a lane is received from.
type laneReport struct {
	Lane job.Queue `json:"lane"`
	// Mapping is the id of the lane's event source mapping.
	Mapping string `json:"mapping"`
	// State is the mapping's, in Lambda's words: "Disabled", or "Disabling" for some seconds before.
	State string `json:"state"`
}

func newPause(a *app) *cobra.Command {
	return laneCommand(a, "pause", false, "Stop receiving from a lane",
		`Disable the lane's event source mapping. Invocations that run go on, messages stay where they are and keep
their age: SQS deletes them when the lane's retention ends, four days by default. "acklast resume" undoes it.

The same with the AWS CLI:
  aws lambda list-event-source-mappings --function-name acklast-worker
  aws lambda update-event-source-mapping --uuid UUID --no-enabled`)
}

func newResume(a *app) *cobra.Command {
	return laneCommand(a, "resume", true, "Receive from a lane again",
		`Enable the lane's event source mapping.

The same with the AWS CLI:
  aws lambda update-event-source-mapping --uuid UUID --enabled`)
}

func laneCommand(a *app, use string, enabled bool, short, long string) *cobra.Command {
	names := []string{string(job.Source), string(job.Recovery)}
	return &cobra.Command{
		Use: use + " source|recovery", Short: short, Long: long, Example: "  acklast " + use + " recovery",
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: names,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			return a.setLane(cmd.Context(), job.Queue(args[0]), enabled)
		}),
	}
}

func (a *app) setLane(ctx context.Context, lane job.Queue, enabled bool) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	queue := t.names.SourceQueue
	if lane == job.Recovery {
		queue = t.names.RecoveryQueue
	}
	client := lambda.NewFromConfig(t.config)
	mapping, err := mappingOf(ctx, client, t.names.WorkerFunction, queue)
	if err != nil {
		return t.explain(err)
	}
	a.announce(ctx, t)
	out, err := client.UpdateEventSourceMapping(ctx, &lambda.UpdateEventSourceMappingInput{UUID: mapping.UUID, Enabled: &enabled})
	if err != nil {
		return t.explain(err)
	}
	r := laneReport{Lane: lane, Mapping: aws.ToString(out.UUID), State: aws.ToString(out.State)}
	return a.answer(r, func(w io.Writer) { fmt.Fprintf(w, "The %s lane is %s.\n", r.Lane, strings.ToLower(r.State)) })
}

// mappingOf finds the mapping that feeds the function from the queue.
func mappingOf(ctx context.Context, client *lambda.Client, function, queue string) (types.EventSourceMappingConfiguration, error) {
	pages := lambda.NewListEventSourceMappingsPaginator(client, &lambda.ListEventSourceMappingsInput{FunctionName: &function})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return types.EventSourceMappingConfiguration{}, fmt.Errorf("list event source mappings of %s: %w", function, err)
		}
		for _, m := range page.EventSourceMappings {
			if strings.HasSuffix(aws.ToString(m.EventSourceArn), ":"+queue) {
				return m, nil
			}
		}
	}
	return types.EventSourceMappingConfiguration{}, refuse("function %s has no event source mapping of queue %s: is the stack deployed, and is --stack right?", function, queue)
}
