package schedule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/schedule"
)

var (
	now = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	at  = time.Date(2027, 12, 1, 9, 58, 0, 0, time.UTC)

	target = schedule.Target{
		Group: "shop-scheduled", RoleARN: "arn:aws:iam::123456789012:role/shop-scheduler",
		QueueURL: "https://sqs.eu-central-1.amazonaws.com/123456789012/shop-recovery",
		DLQARN:   "arn:aws:sqs:eu-central-1:123456789012:shop-dlq",
	}
)

// document is a schedule as Scheduler's API has it.
type document struct {
	ActionAfterCompletion, GroupName, Name, ScheduleExpression, ScheduleExpressionTimezone, State string
	FlexibleTimeWindow                                                                            struct{ Mode string }
	Target                                                                                        struct {
		Arn, RoleArn, Input string
		DeadLetterConfig    struct{ Arn string }
		RetryPolicy         struct{ MaximumEventAgeInSeconds, MaximumRetryAttempts int }
	}
}

// wire answers as Scheduler documents it, and keeps what it is sent.
type wire struct {
	mu        sync.Mutex
	schedules map[string]document
	creates   int
	refuse    string // how CreateSchedule ends, if set
	status    int
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(status int, code string) {
		rw.Header().Set("X-Amzn-ErrorType", code)
		rw.WriteHeader(status)
		_, _ = fmt.Fprintf(rw, `{"Message":"no"}`)
	}
	name := strings.TrimPrefix(r.URL.Path, "/schedules/")
	rw.Header().Set("Content-Type", "application/json")
	switch d, found := w.schedules[name]; {
	case r.Method == http.MethodPost:
		w.creates++
		body, _ := io.ReadAll(r.Body)
		if w.refuse != "" {
			fail(w.status, w.refuse)
			return
		}
		if found {
			fail(http.StatusConflict, "ConflictException")
			return
		}
		if err := json.Unmarshal(body, &d); err != nil {
			fail(http.StatusBadRequest, "ValidationException")
			return
		}
		d.Name = name
		w.schedules[name] = d
		_, _ = fmt.Fprintf(rw, `{"ScheduleArn":"arn:aws:scheduler:eu-central-1:123456789012:schedule/%s/%s"}`, d.GroupName, name)
	case r.URL.Path == "/schedules":
		if r.URL.Query().Get("ScheduleGroup") != target.Group {
			fail(http.StatusNotFound, "ResourceNotFoundException")
			return
		}
		var list []map[string]string
		for name := range w.schedules {
			list = append(list, map[string]string{"Name": name})
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"Schedules": list})
	case !found:
		fail(http.StatusNotFound, "ResourceNotFoundException")
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(rw).Encode(d)
	case r.Method == http.MethodDelete:
		delete(w.schedules, name)
	}
}

func newWire(t *testing.T) (*wire, *schedule.Client) {
	t.Helper()
	w := &wire{schedules: map[string]document{}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	cfg, err := awsclient.Load(t.Context(), config.WithRegion("eu-central-1"), config.WithBaseEndpoint(server.URL),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "test", "")),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
	if err != nil {
		t.Fatal(err)
	}
	return w, schedule.New(awsclient.Scheduler(cfg), target)
}

func message(body string) schedule.Message {
	return schedule.Message{
		Body: body, Group: "tenant-1", TraceHeader: "Root=1-5759e988-bd862e3fe1be46a994272793",
		Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: "<one>"}, "n": {Type: "Number.int", String: "7"}},
	}
}

func TestAScheduleSendsTheMessageOnceAndIsDeleted(t *testing.T) {
	w, c := newWire(t)
	body := `{"kind":"test","payload":{"text":"<aws.scheduler.attempt-number> & <b>"}}`
	if err := c.Create(t.Context(), "n1", at, now, message(body)); err != nil {
		t.Fatal(err)
	}
	d := w.schedules["n1"]
	for what, pair := range map[string][2]any{
		"group":      {d.GroupName, target.Group},
		"expression": {d.ScheduleExpression, "at(2027-12-01T09:58:00)"},
		"time zone":  {d.ScheduleExpressionTimezone, "UTC"},
		"state":      {d.State, "ENABLED"},
		"completion": {d.ActionAfterCompletion, "DELETE"},
		"window":     {d.FlexibleTimeWindow.Mode, "OFF"},
		"operation":  {d.Target.Arn, "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"},
		"role":       {d.Target.RoleArn, target.RoleARN},
		"DLQ":        {d.Target.DeadLetterConfig.Arn, target.DLQARN},
		"age":        {d.Target.RetryPolicy.MaximumEventAgeInSeconds, 86400},
		"tries":      {d.Target.RetryPolicy.MaximumRetryAttempts, 185},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	if strings.Contains(d.Target.Input, "<") {
		t.Errorf("the input has a keyword that Scheduler would replace: %s", d.Target.Input)
	}
	var sent map[string]any
	if err := json.Unmarshal([]byte(d.Target.Input), &sent); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"QueueUrl": target.QueueURL, "MessageBody": body, "MessageGroupId": "tenant-1",
		"MessageAttributes": map[string]any{
			"tenant": map[string]any{"DataType": "String", "StringValue": "<one>"},
			"n":      map[string]any{"DataType": "Number.int", "StringValue": "7"},
		},
		"MessageSystemAttributes": map[string]any{
			"AWSTraceHeader": map[string]any{"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"},
		},
	}
	if got, wanted := fmt.Sprint(sent), fmt.Sprint(want); got != wanted {
		t.Errorf("the schedule sends\n%s, want\n%s", got, wanted)
	}
}

func TestTheNameTellsJobsTimesAndPayloadsApart(t *testing.T) {
	name := schedule.Name
	base := name("k/1", 0, at, "v1:aa")
	if base != name("k/1", 0, at.In(time.FixedZone("x", 3600)), "v1:aa") {
		t.Error("the name depends on the zone of the time")
	}
	if !regexp.MustCompile(`^[0-9a-zA-Z-_.]{1,64}$`).MatchString(base) {
		t.Errorf("Scheduler would refuse the name %q", base)
	}
	for what, other := range map[string]string{
		"key":        name("k/2", 0, at, "v1:aa"),
		"generation": name("k/1", 1, at, "v1:aa"),
		"time":       name("k/1", 0, at.Add(time.Millisecond), "v1:aa"),
		"digest":     name("k/1", 0, at, "v1:ab"),
	} {
		if other == base {
			t.Errorf("another %s has the same name", what)
		}
	}
}

func TestAnExistingScheduleCountsOnlyIfItWillSend(t *testing.T) {
	for name, spoil := range map[string]struct {
		change func(*document)
		want   string // in the error; empty if the schedule counts
	}{
		"as created":    {func(*document) {}, ""},
		"a bit earlier": {func(d *document) { d.ScheduleExpression = "at(2027-12-01T09:57:00)" }, ""},
		"disabled":      {func(d *document) { d.State = "DISABLED" }, "it is disabled"},
		"over":          {func(d *document) { d.ScheduleExpression = "at(2026-12-01T10:00:00)" }, "is over"},
		"later":         {func(d *document) { d.ScheduleExpression = "at(2027-12-01T09:59:00)" }, "is later than"},
		"again":         {func(d *document) { d.ScheduleExpression = "rate(1 day)" }, `its time is "rate(1 day)"`},
		"another zone":  {func(d *document) { d.ScheduleExpressionTimezone = "Europe/Berlin" }, "its time is"},
		"another role":  {func(d *document) { d.Target.RoleArn += "x" }, "it has the role"},
		"another call":  {func(d *document) { d.Target.Arn = "arn:aws:lambda:eu-central-1:1:function:f" }, "its target is"},
		"another queue": {func(d *document) { d.Target.Input = `{"QueueUrl":"other"}` }, "it sends to another queue"},
		"no JSON":       {func(d *document) { d.Target.Input = "x" }, "it sends to another queue"},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWire(t)
			if err := c.Create(t.Context(), "n1", at, now, message("{}")); err != nil {
				t.Fatal(err)
			}
			d := w.schedules["n1"]
			spoil.change(&d)
			w.schedules["n1"] = d
			err := c.Create(t.Context(), "n1", at, now, message("{}"))
			switch {
			case spoil.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case spoil.want != "" && !errors.Is(err, schedule.ErrUnconfirmed):
				t.Errorf("got %v, want ErrUnconfirmed", err)
			case spoil.want != "" && !strings.Contains(err.Error(), spoil.want):
				t.Errorf("got %v, want %q in it", err, spoil.want)
			}
		})
	}
}

func TestWhatSchedulerRefusesIsUnconfirmed(t *testing.T) {
	for code, status := range map[string]int{
		"ThrottlingException": 429, "ServiceQuotaExceededException": 402, "ValidationException": 400,
		"ResourceNotFoundException": 404, "AccessDeniedException": 403, "InternalServerException": 500,
	} {
		w, c := newWire(t)
		w.refuse, w.status = code, status
		if err := c.Create(t.Context(), "n1", at, now, message("{}")); !errors.Is(err, schedule.ErrUnconfirmed) {
			t.Errorf("%s: got %v, want ErrUnconfirmed", code, err)
		}
	}
}

func TestWhatMayNotTravelUnchangedIsUnfit(t *testing.T) {
	binary := message("{}")
	binary.Attributes["b"] = job.Attribute{Type: "Binary.png", Binary: []byte{1}}
	broken := message("{}")
	broken.Attributes["b"] = job.Attribute{Type: "String", String: "\xff"}
	for want, m := range map[string]schedule.Message{
		`attribute "b" is binary`:    binary,
		"body is not UTF-8":          message("\xff"),
		`attribute "b" is not UTF-8`: broken,
		"more than 262144":           message(strings.Repeat("<", 50_000)), // six bytes each
	} {
		w, c := newWire(t)
		err := c.Create(t.Context(), "n1", at, now, m)
		var unfit *schedule.UnfitError
		if !errors.As(err, &unfit) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an UnfitError with %q", err, want)
		}
		if w.creates != 0 {
			t.Errorf("%s: asked Scheduler %d times", want, w.creates)
		}
		if m.Fits(target.QueueURL) == nil {
			t.Errorf("%s: said to fit", want)
		}
	}
}

func TestASchedulesEndIsSeen(t *testing.T) {
	_, c := newWire(t)
	if err := c.Create(t.Context(), "n1", at, now, message("{}")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Count(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("counted %d, %v, want 1", n, err)
	}
	if fires, found, err := c.At(t.Context(), "n1"); !fires.Equal(at) || !found || err != nil {
		t.Errorf("fires at %v, %v, %v, want %v", fires, found, err, at)
	}
	for _, what := range []string{"the schedule", "what is gone"} {
		if err := c.Delete(t.Context(), "n1"); err != nil {
			t.Errorf("delete %s: %v", what, err)
		}
	}
	if _, found, err := c.At(t.Context(), "n1"); found || err != nil {
		t.Errorf("deleted, but found is %v, %v", found, err)
	}
	if n, err := c.Count(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("counted %d, %v, want none", n, err)
	}
}
