package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"acklast/internal/topology"
)

// need is an action that a command takes, and the resource in the stack: its service, type and name. A resource
// without a service is any.
type need struct{ action, service, resource string }

// policy is the stack's policy whose holders may run a command, and what the command needs at least.
type policy struct {
	name  string
	needs []need
}

// commands are the needs of each command.
func commands(n topology.Names) map[string]policy {
	queue := func(name string, actions ...string) (all []need) {
		for _, action := range actions {
			all = append(all, need{"sqs:" + action, "sqs", name})
		}
		return all
	}
	table := func(name string, actions ...string) (all []need) {
		for _, action := range actions {
			all = append(all, need{"dynamodb:" + action, "dynamodb", "table/" + name})
		}
		return all
	}
	invoke := func(alias string) []need {
		return []need{{"lambda:InvokeFunction", "lambda", "function:" + n.RedriveFunction + ":" + alias}}
	}
	reading := queue(n.SourceQueue, "GetQueueUrl", "GetQueueAttributes")
	operate := policy{"Operators", invoke(topology.AliasOperate)}
	approve := policy{"Approvers", invoke(topology.AliasApprove)}
	lane := policy{"Operators", slices.Concat(reading, []need{{"lambda:ListEventSourceMappings", "", "*"}, {"lambda:UpdateEventSourceMapping", "lambda", "event-source-mapping:*"}})}
	return map[string]policy{
		"send":            {"Senders", queue(n.SourceQueue, "GetQueueUrl", "SendMessage")},
		"smoke":           {"Operators", slices.Concat(queue(n.SourceQueue, "GetQueueUrl", "SendMessage"), table(n.LedgerTable, "GetItem"))},
		"status":          {"ReadOnly", slices.Concat(reading, []need{{"cloudwatch:GetMetricData", "", "*"}, {"scheduler:ListSchedules", "", "*"}})},
		"job":             {"ReadOnly", table(n.LedgerTable, "GetItem", "Query")},
		"cancel":          {"Cancellers", table(n.LedgerTable, "GetItem", "UpdateItem")},
		"audit":           {"Operators", table(n.OperationsTable, "Query")},
		"dlq":             operate,
		"pause":           lane,
		"resume":          lane,
		"redrive plan":    operate,
		"redrive run":     operate,
		"redrive stop":    {"Operators", table(n.OperationsTable, "UpdateItem")},
		"redrive approve": approve,
		"discard":         approve,
		"decide":          approve,
	}
}

// CommandNames are the commands whose permissions the doctor can check.
func CommandNames() []string {
	return slices.Sorted(maps.Keys(commands(topology.NamesOf(topology.DefaultStack))))
}

// PolicyOf is the name of the stack's policy whose holders may run a command.
func PolicyOf(command string) string {
	if p, ok := commands(topology.NamesOf(topology.DefaultStack))[command]; ok {
		return p.name
	}
	if strings.HasPrefix(command, "redrive ") {
		return "Operators"
	}
	return "ReadOnly"
}

// permissions asks IAM what the caller may do, for each command.
func (d *Doctor) permissions(ctx context.Context, r *report) {
	all := commands(d.Names)
	wanted := d.Commands
	if len(wanted) == 0 {
		wanted = CommandNames()
	}
	names := make([]string, len(wanted))
	for i, command := range wanted {
		names[i] = "permissions for " + command
	}
	identity, err := d.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		r.failed(err, "sts:GetCallerIdentity", names...)
		return
	}
	caller, err := arn.Parse(aws.ToString(identity.Arn))
	if err != nil {
		for _, name := range names {
			r.unsure(name, "AWS says that you are %q", aws.ToString(identity.Arn))
		}
		return
	}
	source, ok := principal(caller)
	if !ok {
		for _, name := range names {
			r.unsure(name, "IAM simulates roles and users only, and you are %s", caller)
		}
		return
	}
	for i, command := range wanted {
		p := all[command]
		denied, err := d.simulate(ctx, source, caller, p.needs)
		if err != nil {
			r.failed(err, "iam:SimulatePrincipalPolicy", names[i])
			continue
		}
		r.judge(names[i], len(denied) == 0, source, "you may not %s. If you should, have the stack's policy %s attached to %s",
			strings.Join(denied, ", "), p.name, source)
	}
}

// principal is the role or user whose policies hold for the caller.
func principal(caller arn.ARN) (string, bool) {
	kind, rest, _ := strings.Cut(caller.Resource, "/")
	switch {
	case caller.Service == "sts" && kind == "assumed-role":
		// The name of a session follows the role's. The role's path is not told; IAM says so if there is one.
		role, _, _ := strings.Cut(rest, "/")
		return fmt.Sprintf("arn:%s:iam::%s:role/%s", caller.Partition, caller.AccountID, role), role != ""
	case caller.Service == "iam" && kind == "user":
		return caller.String(), rest != ""
	}
	return "", false
}

// simulate returns the needs that IAM would deny.
func (d *Doctor) simulate(ctx context.Context, source string, caller arn.ARN, needs []need) ([]string, error) {
	byResource := map[string][]string{}
	for _, n := range needs {
		resource := "*"
		if n.service != "" {
			resource = fmt.Sprintf("arn:%s:%s:%s:%s:%s", caller.Partition, n.service, d.Region, caller.AccountID, n.resource)
		}
		byResource[resource] = append(byResource[resource], n.action)
	}
	var denied []string
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		told := 0
		pages := iam.NewSimulatePrincipalPolicyPaginator(d.IAM, &iam.SimulatePrincipalPolicyInput{
			PolicySourceArn: &source, ActionNames: byResource[resource], ResourceArns: []string{resource},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, result := range page.EvaluationResults {
				told++
				if result.EvalDecision != types.PolicyEvaluationDecisionTypeAllowed {
					denied = append(denied, aws.ToString(result.EvalActionName)+" on "+resource)
				}
			}
		}
		if told != len(byResource[resource]) {
			return nil, fmt.Errorf("IAM judged %d of %d actions on %s", told, len(byResource[resource]), resource)
		}
	}
	return denied, nil
}
