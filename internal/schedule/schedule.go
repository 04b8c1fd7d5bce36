// Package schedule hands jobs that are due far ahead to EventBridge Scheduler, which brings them back by
// sending their message to the recovery lane.
//
// A schedule fires once and is then deleted. Its name follows from the job and its time, so that all copies
// of a job meet one schedule, and a job with another time or payload gets a schedule of its own. The target
// is SQS's SendMessage itself and not Scheduler's template for SQS, which has no message attributes and drops
// the message group of a standard queue.
//
// Scheduler replaces keywords such as <aws.scheduler.attempt-number> within its input. The input is JSON in
// which every "<" is escaped, so it has no such keyword. A message that would not travel unchanged is refused: see
// UnfitError.
package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// API is the part of Scheduler's client that this package uses.
type API interface {
	CreateSchedule(context.Context, *scheduler.CreateScheduleInput, ...func(*scheduler.Options)) (*scheduler.CreateScheduleOutput, error)
	GetSchedule(context.Context, *scheduler.GetScheduleInput, ...func(*scheduler.Options)) (*scheduler.GetScheduleOutput, error)
	DeleteSchedule(context.Context, *scheduler.DeleteScheduleInput, ...func(*scheduler.Options)) (*scheduler.DeleteScheduleOutput, error)
	ListSchedules(context.Context, *scheduler.ListSchedulesInput, ...func(*scheduler.Options)) (*scheduler.ListSchedulesOutput, error)
}

// Target says where schedules live and what they do.
type Target struct {
	// Group is the schedule group.
	Group string
	// RoleARN is the role under which Scheduler sends. It needs sqs:SendMessage on both queues.
	RoleARN string
	// QueueURL is the URL of the queue that a schedule sends to.
	QueueURL string
	// DLQARN is the ARN of the queue for the inputs that could not be sent.
	DLQARN string
}

// Client creates, reads and deletes the schedules of one group. It may be used concurrently.
type Client struct {
	api    API
	target Target
}

// New returns a client. Delete, At and Count need no more of the target than the group.
func New(api API, target Target) *Client { return &Client{api, target} }

// The form of a one-time schedule's expression, which has no fraction of a second.
const (
	expressionFormat = "at(2006-01-02T15:04:05)"
	timezone         = "UTC"
)

// maxTries is the most tries that Scheduler allows within topology.ScheduleMaxAge.
const maxTries = 185

// ErrUnconfirmed: Scheduler has not confirmed that the schedule exists and will fire in time. The job must wait in
// another way. Creating the schedule again later is safe.
var ErrUnconfirmed = errors.New("schedule is not confirmed")

// Name returns the name of the schedule of a job that is due at a time, from the job's key, the generation of
// its entry and the digest of its payload.
func Name(key string, generation int, due time.Time, digest string) string {
	h := sha256.New()
	for _, part := range []string{key, strconv.Itoa(generation), strconv.FormatInt(due.UnixMilli(), 10), digest} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash returns no error
	}
	return hex.EncodeToString(h.Sum(nil)) // 64 characters, the longest name that Scheduler takes
}

// Create makes sure that a schedule with the name sends the message at the given time, in whole seconds. It
// returns nil only if Scheduler confirmed that. If a schedule with the name exists, it counts only if it is
// enabled, sends in the future and no later than at, and has the same role and queue. The error is an
// *UnfitError for a message that no schedule can carry, and otherwise wraps ErrUnconfirmed.
func (c *Client) Create(ctx context.Context, name string, at, now time.Time, m Message) error {
	input, err := m.input(c.target.QueueURL)
	if err != nil {
		return err
	}
	at = at.UTC().Truncate(time.Second)
	_, err = c.api.CreateSchedule(ctx, &scheduler.CreateScheduleInput{
		Name:                       &name,
		GroupName:                  &c.target.Group,
		ScheduleExpression:         aws.String(at.Format(expressionFormat)),
		ScheduleExpressionTimezone: aws.String(timezone),
		FlexibleTimeWindow:         &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
		ActionAfterCompletion:      types.ActionAfterCompletionDelete,
		State:                      types.ScheduleStateEnabled,
		Target: &types.Target{
			Arn: aws.String(c.operation()), RoleArn: &c.target.RoleARN, Input: &input,
			DeadLetterConfig: &types.DeadLetterConfig{Arn: &c.target.DLQARN},
			RetryPolicy: &types.RetryPolicy{
				MaximumEventAgeInSeconds: aws.Int32(int32(topology.ScheduleMaxAge / time.Second)), MaximumRetryAttempts: aws.Int32(maxTries),
			},
		},
	})
	var exists *types.ConflictException
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exists):
		return c.confirm(ctx, name, at, now)
	}
	return fmt.Errorf("create schedule %s: %w: %w", name, ErrUnconfirmed, err)
}

// operation is the ARN of SendMessage, in the partition of the role.
func (c *Client) operation() string {
	partition := "aws"
	if parts := strings.SplitN(c.target.RoleARN, ":", 3); len(parts) == 3 && parts[1] != "" {
		partition = parts[1]
	}
	return "arn:" + partition + job.ScheduledOperation
}

// confirm says whether an existing schedule does what a new one would.
func (c *Client) confirm(ctx context.Context, name string, at, now time.Time) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("schedule %s exists, but %s: %w", name, fmt.Sprintf(format, args...), ErrUnconfirmed)
	}
	out, err := c.api.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: &name, GroupName: &c.target.Group})
	if err != nil {
		return fmt.Errorf("read schedule %s, which exists: %w: %w", name, ErrUnconfirmed, err)
	}
	fires, ok := firing(out)
	target := out.Target
	if target == nil {
		target = &types.Target{}
	}
	switch {
	case out.State != types.ScheduleStateEnabled:
		return refuse("it is %s", strings.ToLower(string(out.State)))
	case !ok:
		return refuse("its time is %q", aws.ToString(out.ScheduleExpression))
	case !fires.After(now):
		return refuse("its time %s is over", fires.Format(time.RFC3339))
	case fires.After(at):
		return refuse("its time %s is later than %s", fires.Format(time.RFC3339), at.Format(time.RFC3339))
	case aws.ToString(target.RoleArn) != c.target.RoleARN:
		return refuse("it has the role %s", aws.ToString(target.RoleArn))
	case aws.ToString(target.Arn) != c.operation():
		return refuse("its target is %s", aws.ToString(target.Arn))
	case queueOf(aws.ToString(target.Input)) != c.target.QueueURL:
		return refuse("it sends to another queue than %s", c.target.QueueURL)
	}
	return nil
}

// firing returns the time at which a one-time schedule fires.
func firing(out *scheduler.GetScheduleOutput) (time.Time, bool) {
	at, err := time.Parse(expressionFormat, aws.ToString(out.ScheduleExpression))
	zone := aws.ToString(out.ScheduleExpressionTimezone)
	return at, err == nil && (zone == "" || zone == timezone)
}

// At returns the time at which the schedule with the name fires. found is false if there is none.
func (c *Client) At(ctx context.Context, name string) (at time.Time, found bool, err error) {
	out, err := c.api.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: &name, GroupName: &c.target.Group})
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &missing):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, fmt.Errorf("read schedule %s: %w", name, err)
	}
	at, found = firing(out)
	return at, found && out.State == types.ScheduleStateEnabled, nil
}

// Delete deletes the schedule with the name. If there is none, that is no error.
func (c *Client) Delete(ctx context.Context, name string) error {
	_, err := c.api.DeleteSchedule(ctx, &scheduler.DeleteScheduleInput{Name: &name, GroupName: &c.target.Group})
	var missing *types.ResourceNotFoundException
	if err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("delete schedule %s: %w", name, err)
	}
	return nil
}

// Count counts the group's schedules up to most; there may be more if it returns most. A group that does not
// exist has none.
func (c *Client) Count(ctx context.Context, most int) (int, error) {
	count := 0
	pages := scheduler.NewListSchedulesPaginator(c.api, &scheduler.ListSchedulesInput{
		GroupName: &c.target.Group, MaxResults: aws.Int32(int32(min(most, 100))),
	})
	for pages.HasMorePages() && count < most {
		page, err := pages.NextPage(ctx)
		var missing *types.ResourceNotFoundException
		switch {
		case errors.As(err, &missing):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("list schedules of group %s: %w", c.target.Group, err)
		}
		count += len(page.Schedules)
	}
	return min(count, most), nil
}
