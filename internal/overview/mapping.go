package overview

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// ErrNoMapping: the function has no event source mapping of the queue.
var ErrNoMapping = errors.New("no event source mapping")

// Mapping finds the mapping from the queue to the function, or to an alias of it. Lambda lists a mapping of an
// alias only under the alias, so this lists by the queue. The error wraps ErrNoMapping if there is none.
func Mapping(ctx context.Context, api lambda.ListEventSourceMappingsAPIClient, function, queueARN string) (types.EventSourceMappingConfiguration, error) {
	pages := lambda.NewListEventSourceMappingsPaginator(api, &lambda.ListEventSourceMappingsInput{EventSourceArn: &queueARN})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return types.EventSourceMappingConfiguration{}, fmt.Errorf("list event source mappings of %s: %w", queueARN, err)
		}
		for _, m := range page.EventSourceMappings {
			_, name, _ := strings.Cut(aws.ToString(m.FunctionArn), ":function:")
			name, _, _ = strings.Cut(name, ":")
			if name == function && aws.ToString(m.EventSourceArn) == queueARN {
				return m, nil
			}
		}
	}
	return types.EventSourceMappingConfiguration{}, fmt.Errorf("function %s has %w of queue %s", function, ErrNoMapping, queueARN)
}

// Paused says whether a mapping receives nothing, or is about to.
func Paused(m types.EventSourceMappingConfiguration) bool {
	return strings.HasPrefix(stateOf(m), "Disabl")
}

func stateOf(m types.EventSourceMappingConfiguration) string { return aws.ToString(m.State) }
