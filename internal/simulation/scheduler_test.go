package simulation_test

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/job"
	"acklast/internal/soak"
)

// alarm is a schedule that has not fired.
type alarm struct {
	in *scheduler.CreateScheduleInput
}

func (c *alarm) mark() string { return scheduled(*c.in.Target.Input).mark() }
func (c *alarm) body() string { return scheduled(*c.in.Target.Input).body }

// clock is EventBridge Scheduler's interface for a process.
type clock struct{ *story }

func (c clock) CreateSchedule(ctx context.Context, in *scheduler.CreateScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.CreateScheduleOutput, error) {
	l, name := lines(c).life(ctx), *in.Name
	began := c.now()
	exists := false
	err := l.call(ctx, ofScheduler, "create "+name, func(heard bool) {
		if exists = c.schedules[name] != nil; exists {
			return
		}
		at, err := time.Parse("at(2006-01-02T15:04:05)", *in.ScheduleExpression)
		if err != nil {
			c.breaks("a schedule's time is %q", *in.ScheduleExpression)
			return
		}
		made := &alarm{in}
		c.schedules[name] = made
		c.firing++
		c.tell("%s: %s is scheduled for %s", l.name, made.mark(), *in.ScheduleExpression)
		if heard {
			c.history.Schedules = append(c.history.Schedules, soak.Schedule{Mark: made.mark(), Body: made.body(), Began: began, Ended: c.now()})
		}
		// Its precision is a minute. Sometimes it is late, and sometimes it fires twice.
		late := time.Duration(c.number(int(time.Minute), "precision"+name))
		if !c.calm() && c.number(100, "late"+name) < 10 {
			late += time.Duration(c.number(int(20*time.Minute), "later"+name))
		}
		c.later.Go(func() { c.fires(name, made, time.Until(at)+late) })
	})
	switch {
	case err != nil:
		return nil, err
	case exists:
		return nil, &types.ConflictException{Message: aws.String("exists")}
	}
	return &scheduler.CreateScheduleOutput{}, nil
}

// fires sends a schedule's message. If it cannot, its input goes to the DLQ.
func (c clock) fires(name string, made *alarm, after time.Duration) {
	time.Sleep(after)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.schedules[name] == made {
		delete(c.schedules, name)
		m := scheduled(*made.in.Target.Input)
		if c.number(100, "dead"+name) < 5 {
			m = &message{body: *made.in.Target.Input, attributes: map[string]sqstypes.MessageAttributeValue{
				"SCHEDULE_ARN": text("arn:aws:scheduler:us-east-1:1:schedule/" + name), "TARGET_ARN": text(*made.in.Target.Arn),
				"ERROR_CODE": text("AccessDenied"), "ERROR_MESSAGE": text("no"), "IS_PAYLOAD_TRUNCATED": text("false"),
			}}
			c.put(job.DLQ, m, 0)
		} else {
			c.put(job.Recovery, m, 0)
		}
		if c.number(100, "double"+name) < 20 {
			c.later.Go(func() {
				c.rest(time.Duration(c.number(100, "double after", name))*time.Second, name)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.put(job.Recovery, scheduled(*made.in.Target.Input), 0)
				c.firing--
			})
			return
		}
	}
	c.firing--
}

func (c clock) GetSchedule(ctx context.Context, in *scheduler.GetScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.GetScheduleOutput, error) {
	l := lines(c).life(ctx)
	began := c.now()
	var found *alarm
	err := l.call(ctx, ofScheduler, "get "+*in.Name, func(heard bool) {
		if found = c.schedules[*in.Name]; found != nil && heard {
			c.history.Schedules = append(c.history.Schedules, soak.Schedule{Mark: found.mark(), Body: found.body(), Began: began, Ended: c.now()})
		}
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, &types.ResourceNotFoundException{Message: aws.String("none")}
	}
	return &scheduler.GetScheduleOutput{
		Name: in.Name, State: found.in.State, Target: found.in.Target,
		ScheduleExpression: found.in.ScheduleExpression, ScheduleExpressionTimezone: found.in.ScheduleExpressionTimezone,
	}, nil
}

func (c clock) DeleteSchedule(ctx context.Context, in *scheduler.DeleteScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.DeleteScheduleOutput, error) {
	return &scheduler.DeleteScheduleOutput{}, lines(c).life(ctx).call(ctx, ofScheduler, "delete "+*in.Name, func(bool) { delete(c.schedules, *in.Name) })
}

func (c clock) ListSchedules(context.Context, *scheduler.ListSchedulesInput, ...func(*scheduler.Options)) (*scheduler.ListSchedulesOutput, error) {
	return nil, errors.New("nobody lists schedules here")
}
