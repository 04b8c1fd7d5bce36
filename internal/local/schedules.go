package local

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
)

const (
	// schedulesPath is where EventBridge Scheduler's API has the schedules.
	schedulesPath = "/schedules"
	// scheduleTick is the pause between two looks for due schedules.
	scheduleTick = 100 * time.Millisecond
	// scheduleForm is the form of a one-time schedule's expression, in UTC.
	scheduleForm = "at(2006-01-02T15:04:05)"
	// sendTarget ends the ARN of the only target that is called: SQS's SendMessage.
	sendTarget = ":scheduler:::aws-sdk:sqs:sendMessage"
)

// schedule is a one-time schedule as Scheduler's API shows it.
type schedule struct {
	Arn, Name, GroupName, State, ScheduleExpression, ScheduleExpressionTimezone, ActionAfterCompletion string
	FlexibleTimeWindow                                                                                 json.RawMessage
	Target                                                                                             struct {
		Arn, RoleArn, Input string
		DeadLetterConfig    struct{ Arn string }
		RetryPolicy         struct{ MaximumEventAgeInSeconds, MaximumRetryAttempts int }
	}

	at       time.Time
	attempts int
	failed   error
}

// schedules is EventBridge Scheduler for one group, which the engine serves but never fires. It creates, shows,
// lists and deletes one-time schedules whose target is SQS's SendMessage, and fires them by AWS's documented rules:
// keywords in the input are replaced, a call that fails is repeated until the schedule's age or tries are spent, and
// the input then goes to the DLQ, with attributes that say why.
type schedules struct {
	group string
	sqs   *sqs.Client
	dlq   string // URL
	log   *slog.Logger
	mu    sync.Mutex
	all   map[string]*schedule
}

func newSchedules(group, dlqURL string, data aws.Config, log *slog.Logger) *schedules {
	return &schedules{group: group, sqs: awsclient.SQS(data), dlq: dlqURL, log: log, all: map[string]*schedule{}}
}

// routes adds Scheduler's API to the mux.
func (s *schedules) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+schedulesPath+"/{name}", s.create)
	mux.HandleFunc("GET "+schedulesPath+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		if one := s.get(w, r); one != nil {
			reply(w, http.StatusOK, one)
		}
	})
	mux.HandleFunc("DELETE "+schedulesPath+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		if one := s.get(w, r); one != nil {
			s.remove(one.Name)
			reply(w, http.StatusOK, struct{}{})
		}
	})
	mux.HandleFunc("GET "+schedulesPath, s.list)
}

func (s *schedules) create(w http.ResponseWriter, r *http.Request) {
	var one schedule
	if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
		refuse(w, http.StatusBadRequest, "ValidationException", "the request is not readable")
		return
	}
	at, err := time.Parse(scheduleForm, one.ScheduleExpression)
	switch {
	case one.GroupName != s.group:
		refuse(w, http.StatusNotFound, "ResourceNotFoundException", "Schedule group "+one.GroupName+" does not exist.")
		return
	case err != nil || one.ScheduleExpressionTimezone != "UTC" || !strings.HasSuffix(one.Target.Arn, sendTarget):
		refuse(w, http.StatusBadRequest, "ValidationException", "only one-time schedules in UTC that send to SQS are served here")
		return
	}
	one.Name, one.at = r.PathValue("name"), at
	one.Arn = "arn:aws:scheduler:" + Region + ":000000000000:schedule/" + one.GroupName + "/" + one.Name
	s.mu.Lock()
	_, exists := s.all[one.Name]
	if !exists {
		s.all[one.Name] = &one
	}
	s.mu.Unlock()
	if exists {
		refuse(w, http.StatusConflict, "ConflictException", "Schedule "+one.Name+" already exists.")
		return
	}
	reply(w, http.StatusOK, map[string]string{"ScheduleArn": one.Arn})
}

// get returns a copy of the schedule that a request names. If there is none, it answers the request with that.
func (s *schedules) get(w http.ResponseWriter, r *http.Request) *schedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[r.PathValue("name")]
	if !ok || r.URL.Query().Get("groupName") != s.group {
		refuse(w, http.StatusNotFound, "ResourceNotFoundException", "Schedule "+r.PathValue("name")+" does not exist.")
		return nil
	}
	shown := *one
	return &shown
}

func (s *schedules) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
}

// list answers in pages, in the order of the names.
func (s *schedules) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("ScheduleGroup") != s.group {
		refuse(w, http.StatusNotFound, "ResourceNotFoundException", "Schedule group "+q.Get("ScheduleGroup")+" does not exist.")
		return
	}
	most, err := strconv.Atoi(q.Get("MaxResults"))
	if err != nil || most < 1 || most > 100 {
		most = 100
	}
	type summary struct{ Arn, Name, GroupName, State string }
	page := struct {
		Schedules []summary
		NextToken string `json:",omitempty"`
	}{Schedules: []summary{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if name <= q.Get("NextToken") {
			continue
		}
		if len(page.Schedules) == most {
			page.NextToken = page.Schedules[most-1].Name
			break
		}
		one := s.all[name]
		page.Schedules = append(page.Schedules, summary{one.Arn, one.Name, one.GroupName, one.State})
	}
	reply(w, http.StatusOK, page)
}

// run fires due schedules until ctx ends.
func (s *schedules) run(ctx context.Context) {
	tick := time.NewTicker(scheduleTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, one := range s.due(time.Now()) {
				s.fire(ctx, one)
			}
		}
	}
}

func (s *schedules) due(now time.Time) []*schedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*schedule
	for _, one := range s.all {
		if one.State != "DISABLED" && !one.at.After(now) {
			due = append(due, one)
		}
	}
	return due
}

// fire calls the target once. The schedule is gone when the call succeeded, or when its tries are spent and its
// input is on the DLQ.
func (s *schedules) fire(ctx context.Context, one *schedule) {
	one.attempts++
	input := strings.NewReplacer(
		"<aws.scheduler.schedule-arn>", one.Arn,
		"<aws.scheduler.scheduled-time>", one.at.Format(time.RFC3339),
		"<aws.scheduler.execution-id>", uuid.NewString(),
		"<aws.scheduler.attempt-number>", strconv.Itoa(one.attempts),
	).Replace(one.Target.Input)
	if one.failed = s.send(ctx, input); one.failed == nil {
		s.remove(one.Name)
		return
	}
	var answered smithy.APIError
	permanent := errors.As(one.failed, &answered) && answered.ErrorFault() != smithy.FaultServer
	age := time.Duration(one.Target.RetryPolicy.MaximumEventAgeInSeconds) * time.Second
	if !permanent && time.Since(one.at) < age && one.attempts <= one.Target.RetryPolicy.MaximumRetryAttempts {
		return
	}
	if err := s.bury(ctx, one, input); err != nil {
		s.log.Error("a schedule's input did not reach the DLQ", "schedule", one.Name, "error", err)
		return
	}
	s.remove(one.Name)
}

// send makes the call that the input describes.
func (s *schedules) send(ctx context.Context, input string) error {
	var in struct {
		QueueURL                string `json:"QueueUrl"`
		MessageBody             string
		MessageGroupID          string `json:"MessageGroupId"`
		MessageAttributes       map[string]struct{ DataType, StringValue string }
		MessageSystemAttributes map[string]struct{ DataType, StringValue string }
	}
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		return err
	}
	m := &sqs.SendMessageInput{QueueUrl: &in.QueueURL, MessageBody: &in.MessageBody}
	if in.MessageGroupID != "" {
		m.MessageGroupId = &in.MessageGroupID
	}
	for name, a := range in.MessageAttributes {
		if m.MessageAttributes == nil {
			m.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: &a.DataType, StringValue: &a.StringValue}
	}
	for name, a := range in.MessageSystemAttributes {
		if m.MessageSystemAttributes == nil {
			m.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{}
		}
		m.MessageSystemAttributes[name] = types.MessageSystemAttributeValue{DataType: &a.DataType, StringValue: &a.StringValue}
	}
	_, err := s.sqs.SendMessage(ctx, m)
	return err
}

// bury sends the input to the DLQ as Scheduler does: the input is the body, and attributes say what failed.
func (s *schedules) bury(ctx context.Context, one *schedule, input string) error {
	code := "InternalError"
	var answered smithy.APIError
	if errors.As(one.failed, &answered) {
		code = answered.ErrorCode()
	}
	attributes := map[string]types.MessageAttributeValue{}
	for name, value := range map[string]string{
		"SCHEDULE_ARN": one.Arn, "TARGET_ARN": one.Target.Arn, "SCHEDULED_TIME": one.at.Format(time.RFC3339),
		"ERROR_CODE": code, "ERROR_MESSAGE": one.failed.Error(), "RETRY_ATTEMPTS": strconv.Itoa(one.attempts - 1),
		"EXECUTION_ID": uuid.NewString(), "IS_PAYLOAD_TRUNCATED": "false",
	} {
		attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
	}
	_, err := s.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &s.dlq, MessageBody: &input, MessageAttributes: attributes})
	return err
}
