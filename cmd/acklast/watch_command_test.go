package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

func TestWatchLine(t *testing.T) {
	const want = "2026-12-01T10:00:00Z source: 1 scheduled, 22 ready, 333 in flight; recovery (paused): 0 scheduled, 4444 ready, 0 in flight; " +
		"dlq: 121 isolated (100 transient, 20 ambiguous), the oldest is deleted in 13 days; " +
		"per minute: acknowledged 1.1, retried 1.3, deferred 1.5, isolated 1.7, left 1.9, redriven 2.3; " +
		"KILL SWITCH ON by ada: the provider answers 500; kind reminder.send PAUSED by grace: a wrong template; " +
		"run r-20261201-095500-1a2b3c4d active, 40 of 100; canary passed; window: 2 of 3 sent jobs ran, 1 well"
	s := busy()
	s.Isolated.DeletedAt = s.Isolated.OldestAt.Add(14 * 24 * time.Hour)
	if got := watchLine(s); got != want {
		t.Errorf("line is\n%s\nwant\n%s", got, want)
	}
}

// countedSQS counts calls and holds some messages.
type countedSQS struct {
	lanes.API
	calls map[string]*atomic.Int64
}

func (c countedSQS) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	c.calls["receive"].Add(1)
	return &sqs.ReceiveMessageOutput{}, nil
}

func (c countedSQS) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	c.calls["attributes"].Add(1)
	attributes := map[string]string{}
	for _, name := range in.AttributeNames {
		attributes[string(name)] = "3"
	}
	return &sqs.GetQueueAttributesOutput{Attributes: attributes}, nil
}

type noLedger struct{}

func (noLedger) Isolated(context.Context, time.Time, time.Time, func([]ledger.IsolatedJob) error) error {
	return nil
}

type nothing struct{}

func (nothing) Standing(context.Context, time.Time) (redrive.Standing, error) {
	return redrive.Standing{}, nil
}
func (nothing) Count(context.Context, int) (int, error) { return 0, nil }
func (nothing) ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error) {
	return &lambda.ListEventSourceMappingsOutput{}, nil
}

// A day of watching receives nothing, live and line by line. Every receive counts on a message, and hides it.
func TestADayOfWatchingReceivesNothing(t *testing.T) {
	const looks = 24 * 60 * 60 / 5
	for name, watch := range map[string]func(t *testing.T, a *app, r *overview.Reader){
		"live": func(_ *testing.T, a *app, r *overview.Reader) {
			m := a.watchModel(context.Background(), &target{}, r, 5*time.Second)
			msg := m.Init()()
			for range looks {
				_, wait := m.Update(msg)
				_, cmd := m.Update(wait())
				msg = cmd()
			}
		},
		"lines": func(t *testing.T, a *app, r *overview.Reader) {
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			if err := a.watchLines(ctx, &target{}, r, watchOptions{every: 5 * time.Second}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := map[string]*atomic.Int64{"receive": {}, "attributes": {}}
				client := lanes.New(countedSQS{calls: calls}, topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"})
				var out, err bytes.Buffer
				a := &app{stdout: &out, stderr: &err, now: time.Now}
				began := time.Now()
				watch(t, a, overview.New(overview.Config{Names: topology.NamesOf("s"), Lanes: client, Ledger: noLedger{}, Operations: nothing{},
					Schedules: nothing{}, Mappings: nothing{}, Now: time.Now, Slow: watchSlow}))
				if took := time.Since(began); took < 24*time.Hour {
					t.Errorf("only %v were watched", took)
				}
				if n := calls["receive"].Load(); n != 0 {
					t.Errorf("%d receives", n)
				}
				if n := calls["attributes"].Load(); n < 3*looks {
					t.Errorf("%d reads of attributes, want at least %d", n, 3*looks)
				}
			})
		})
	}
}

func TestWatchPrintsLines(t *testing.T) {
	c, aws := embedded(t)
	if _, err := sqsClient(aws).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: new(aws.QueueURLs().Source), MessageBody: new(expiry("r-1"))}); err != nil {
		t.Fatal(err)
	}
	contains(t, c.must("watch", "--once").stdout, "source: 0 scheduled, 1 ready", "per minute: acknowledged 0.0")
	s := decode[overview.Snapshot](t, c.must("watch", "--once", "--output", "json"))
	if s.Lanes[0].Ready != 1 || s.Series == nil || s.Series.Source != "acklast local" {
		t.Errorf("snapshot is %+v", s)
	}
	if s.Series != nil && !slices.Equal(slices.Sorted(maps.Keys(s.Series.Counts)), slices.Sorted(slices.Values(overview.Names))) {
		t.Errorf("series are %v", s.Series.Counts)
	}

	// Not a terminal: an object a line, until it is interrupted.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"acklast", "watch", "--every", "1s", "--output", "json"}, strings.NewReader(""), &out, new(buffer), func(name string) string { return c.env[name] })
	}()
	eventually(t, time.Minute, func() bool { return strings.Count(out.String(), "\n") >= 2 }, out.String)
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(out.String()) {
		if err := json.Unmarshal([]byte(line), new(overview.Snapshot)); err != nil {
			t.Errorf("%v in %s", err, line)
		}
	}
	c.refused(exitRefused, []string{"--every is 10ms, want at least 1s"}, "watch", "--every", "10ms")
}

// A key's command asks first, runs like one that was typed, and says how it ended.
func TestWatchRunsACommand(t *testing.T) {
	c, aws := embedded(t)
	d, _, _ := scheduled(t, aws)
	act := func(a action, typed string) string {
		t.Helper()
		var out bytes.Buffer
		r := &runningAction{a: &app{stack: c.stack, endpoint: c.env["AWS_ENDPOINT_URL"], getenv: func(string) string { return "" }}, ctx: t.Context(), act: a}
		r.SetStdin(strings.NewReader(typed))
		r.SetStdout(&out)
		r.SetStderr(&out)
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	status := func() ledger.Status {
		t.Helper()
		return decode[jobReport](t, c.must("job", d.Key, "--output", "json")).Entries[0].Status
	}
	cancelling := reasoned("cancel", d.Key)
	contains(t, act(cancelling, "\n"), "$ acklast cancel "+d.Key+" --reason ...", "Why, for the audit?")
	if status().Final() {
		t.Error("cancelled without a reason")
	}
	contains(t, act(cancelling, "the customer left\n\n"), "is cancelled", "Exit code 0. Enter goes back.")
	contains(t, c.must("job", d.Key).stdout, "the customer left")

	switchOn := func() bool {
		return decode[overview.Snapshot](t, c.must("status", "--output", "json")).Switch.On
	}
	stop := action{args: []string{"redrive", "stop"}, confirm: true}
	act(stop, "no\n")
	if switchOn() {
		t.Error("the switch is on without a yes")
	}
	contains(t, act(stop, "yes\n\n"), "The kill switch is on", "Exit code 0")
	if !switchOn() {
		t.Error("the switch is off")
	}
}

// A job's screen is what acklast job prints, wrapped, without control characters.
func TestWatchLoadsAJob(t *testing.T) {
	c, aws := embedded(t)
	d, _, _ := scheduled(t, aws)
	a := &app{stack: c.stack, endpoint: c.env["AWS_ENDPOINT_URL"], getenv: func(string) string { return "" }, now: time.Now, stdout: new(buffer), stderr: new(buffer)}
	target, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.loadScreen(t.Context(), target, screen{page: pageJob, id: d.Key}, 60)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, strings.Join(s.text, "\n"), d.Key, "waits in EventBridge Scheduler")
	for _, line := range s.text {
		if len([]rune(line)) > 60 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("a line has %d characters: %s", len([]rune(line)), line)
		}
	}
	s, err = a.loadScreen(t.Context(), target, screen{page: pageJob, id: "nobody"}, 60)
	if err != nil || len(s.text) == 0 {
		t.Errorf("an unknown job shows %q, %v", s.text, err)
	}
	if _, err = a.loadScreen(t.Context(), target, screen{page: pageRuns}, 60); err == nil {
		t.Error("runs without a redrive function are no error")
	}
}
