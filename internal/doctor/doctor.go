// Package doctor compares a deployed stack with internal/topology and with AWS's guidance.
//
// It only reads. Each check has one of three results: ok, a finding with what to do, or "cannot tell" with the
// reason. A check is ok only if AWS has answered and the answer is right: an error, a denied call and an attribute
// that is missing are never ok.
package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"acklast/internal/awsclient"
	"acklast/internal/topology"
)

// Result is the result of a check.
type Result string

// The results.
const (
	OK         Result = "ok"
	Finding    Result = "finding"
	CannotTell Result = "cannot tell"
)

// Check is one check and its result.
type Check struct {
	// Area groups checks: queues, mappings, functions, account, alarms, clock, settings or permissions.
	Area string `json:"area"`
	// Name says what was checked.
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Found is what the stack has.
	Found string `json:"found,omitzero"`
	// Todo says what to do about a finding, or why the doctor cannot tell.
	Todo string `json:"todo,omitzero"`
}

// Clients are the AWS clients that the doctor uses.
type Clients struct {
	SQS        *sqs.Client
	Lambda     *lambda.Client
	CloudWatch *cloudwatch.Client
	SNS        *sns.Client
	IAM        *iam.Client
	STS        *sts.Client
}

// Doctor examines one stack.
type Doctor struct {
	Clients
	Names topology.Names
	Want  Wanted
	// Environment are the worker's variables that the wanted settings make, without those that name a queue.
	Environment map[string]string
	// Commands limit the check of the caller's permissions; empty is all.
	Commands []string
	// Region is the stack's region.
	Region string
}

// Examine makes all checks, in the order of their areas.
func (d *Doctor) Examine(ctx context.Context) []Check {
	areas := []struct {
		name    string
		examine func(context.Context, *report)
	}{
		{"queues", d.queues}, {"mappings", d.mappings}, {"functions", d.functions}, {"account", d.account},
		{"alarms", d.alarms}, {"clock", d.clock}, {"settings", d.settings}, {"permissions", d.permissions},
	}
	reports := make([]report, len(areas))
	var wait sync.WaitGroup
	for i, area := range areas {
		reports[i].area = area.name
		wait.Go(func() { area.examine(ctx, &reports[i]) })
	}
	wait.Wait()
	var all []Check
	for _, r := range reports {
		all = append(all, r.checks...)
	}
	return all
}

// report collects the checks of one area.
type report struct {
	area   string
	checks []Check
}

// judge adds a check whose value is known.
func (r *report) judge(name string, ok bool, found any, todo string, args ...any) {
	c := Check{Area: r.area, Name: name, Result: OK, Found: fmt.Sprint(found)}
	if !ok {
		c.Result, c.Todo = Finding, fmt.Sprintf(todo, args...)
	}
	r.checks = append(r.checks, c)
}

// unsure adds a check that the doctor cannot make.
func (r *report) unsure(name, why string, args ...any) {
	r.checks = append(r.checks, Check{Area: r.area, Name: name, Result: CannotTell, Todo: fmt.Sprintf(why, args...)})
}

// failed adds checks that a failed call leaves open. action is the permission that the call needs.
func (r *report) failed(err error, action string, names ...string) {
	for _, name := range names {
		r.unsure(name, "%s", because(err, action))
	}
}

// because is a failed call's error in few words, with what the caller needs.
func because(err error, action string) string {
	p, ok := awsclient.ProblemOf(err)
	text := fmt.Sprintf("%s answered %s", action, p.Answer())
	switch {
	case !ok:
		return fmt.Sprintf("%s got no answer: %v", action, err)
	case p.Cause == awsclient.Denied:
		return fmt.Sprintf("you may not call %s: the stack's read-only policy allows it (%s)", action, p.Code)
	case p.Code == "" || p.Cause == awsclient.Foreign:
		text = fmt.Sprintf("%s got no answer: %s", action, p.Answer())
	}
	if advice := p.Advice(); advice != "" {
		text += "; " + advice
	}
	return text
}

// missing says that the error is about something that does not exist.
func missing(err error) bool {
	p, ok := awsclient.ProblemOf(err)
	return ok && p.Cause == awsclient.Missing
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
