package e2e_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/topology"
)

// soon are numbers with which a job that is due in seconds is worth a schedule.
func soon() topology.Settings {
	s := topology.Scaled()
	s.ScheduleFrom, s.ScheduleEarly = s.HopDelay, 2*time.Second
	return s
}

// newScheduling is a stack whose jobs arrive before they are due.
func newScheduling(t *testing.T) (*embedded, *schedule.Client) {
	t.Helper()
	e := newEmbeddedWith(t, soon(), local.DefaultProcesses)
	e.undelayed = true
	return e, e.schedules(e.env.QueueURLs().Recovery)
}

// schedulerConfig reaches Scheduler, and every other service too.
func (e *embedded) schedulerConfig() aws.Config {
	return awsclient.At(e.env.AWSConfig(), e.env.FunctionsEndpoint())
}

// schedules is a client of the stack's schedules that sends to the queue.
func (e *embedded) schedules(queueURL string) *schedule.Client {
	return schedule.New(awsclient.Scheduler(e.schedulerConfig()), schedule.Target{
		Group: e.names.ScheduleGroup, RoleARN: "arn:aws:iam::000000000000:role/" + e.names.SchedulerRole,
		QueueURL: queueURL, DLQARN: "arn:aws:sqs:us-east-1:000000000000:" + e.names.DLQ,
	})
}

func (e *embedded) waitsAt(c *schedule.Client, h reservation.Hold) {
	e.Helper()
	e.until("the job is scheduled", func() bool { return e.tally.Of(e.key(h))[string(job.Deferred)] > 0 })
	entry := e.entry(e.key(h))
	if !entry.ScheduledUntil.Equal(h.ExpiresAt) {
		e.Errorf("the entry is scheduled until %v, want %v", entry.ScheduledUntil, h.ExpiresAt)
	}
	at, found, err := c.At(e.Context(), entry.ScheduleName)
	if want := h.ExpiresAt.Add(-e.settings.ScheduleEarly).Truncate(time.Second).UTC(); err != nil || !found || !at.Equal(want) {
		e.Errorf("the schedule fires at %v, %v, %v, want %v", at, found, err, want)
	}
	if d := e.depth(job.Recovery); d.Visible+d.Delayed+d.InFlight != 0 {
		e.Errorf("the job also waits on its lane: %+v", d)
	}
}

// A job comes back unchanged, even if it looks like a keyword of Scheduler's.
func TestAScheduledJobComesBackAndRunsInTime(t *testing.T) {
	e, c := newScheduling(t)
	h := e.place(e.hold("<aws.scheduler.attempt-number>", 1, 12*time.Second))
	e.waitsAt(c, h)
	got := e.ends(h, ledger.Done)
	if got.FinalAt.Before(h.ExpiresAt) {
		t.Errorf("ended at %v, before it was due at %v", got.FinalAt, h.ExpiresAt)
	}
	if n, err := c.Count(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d schedules are left, %v", n, err)
	}
	e.dry()
	if n := e.tally.Effects(e.key(h)); n != 1 {
		t.Errorf("%d deliveries took effect", n)
	}
	e.wantDLQ(0)
}

// The process dies between the schedule and the acknowledgement: the redelivery meets the same schedule.
func TestKillBetweenScheduleAndAcknowledgement(t *testing.T) {
	e, c := newScheduling(t)
	var killed atomic.Int32
	e.env.OnResponse(func(local.Invocation) local.Action {
		if killed.CompareAndSwap(0, 1) {
			return local.KillBeforeAck
		}
		return local.Forward
	})
	h := e.place(e.hold("killed", 1, 30*time.Second)) // longer than the visibility timeout
	e.until("the redelivery is scheduled", func() bool { return e.tally.Of(e.key(h))[string(job.Deferred)] > 1 })
	e.waitsAt(c, h)
	if n, err := c.Count(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d schedules, %v, want one", n, err)
	}
	e.ends(h, ledger.Done)
	e.dry()
	if n := e.tally.Effects(e.key(h)); n != 1 {
		t.Errorf("%d deliveries took effect", n)
	}
}

// A schedule that cannot send gives its input to the DLQ. There it reads as the schedule's failure and as the job,
// and a redrive sends the job.
func TestASchedulesDeadLetterIsRedriven(t *testing.T) {
	g := newGoverned(t, topology.ScaledRedrive())
	g.undelayed = true
	g.env.Pause(job.Source)
	h := g.place(g.hold("undeliverable", 1, time.Second))
	nowhere := g.schedules("http://localhost:4566/000000000000/nowhere-" + g.id)
	m := schedule.Message{Body: g.body(h), Attributes: map[string]job.Attribute{"tenant": {Type: "String", String: "<blue>"}}}
	if err := nowhere.Create(t.Context(), "dead-"+g.id, time.Now().Add(time.Second), time.Now(), m); err != nil {
		t.Fatal(err)
	}
	g.until("the input is on the DLQ", func() bool { return g.depth(job.DLQ).Visible == 1 })
	view := g.ask(redrive.Request{Action: "inspect", Job: g.key(h), WithBody: true}).Message
	for what, pair := range map[string][2]any{
		"job":    {view.Job, g.key(h)},
		"body":   {view.Body, g.body(h)},
		"cause":  {view.Cause, job.CauseSchedule},
		"class":  {view.Class, job.Transient},
		"action": {view.Action, redrive.Redrive},
		"tenant": {view.Attributes["tenant"], "String"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}).Plan
	g.ask(redrive.Request{Action: "run", Plan: plan.ID})
	got := g.ends(h, ledger.Done)
	if got.Redrives != 1 {
		t.Errorf("redriven %d times, want once", got.Redrives)
	}
	g.wantDLQ(0)
	g.env.Resume(job.Source) // the first message is a duplicate by now
	g.dry()
	if n := g.tally.Effects(g.key(h)); n != 1 {
		t.Errorf("%d deliveries took effect", n)
	}
}

// Cancelling a scheduled job deletes its schedule, and the job never runs.
func TestACancelledJobIsNotSentAgain(t *testing.T) {
	e, c := newScheduling(t)
	h := e.place(e.hold("cancelled", 1, 20*time.Second))
	e.waitsAt(c, h)
	client := acklast.NewClient(e.schedulerConfig(), e.names.Stack)
	if err := client.Cancel(t.Context(), e.key(h), acklast.Cancellation{By: "shop", Reason: "the customer left"}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Count(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d schedules are left, %v", n, err)
	}
	if got := e.entry(e.key(h)); got.Outcome != ledger.Cancelled {
		t.Errorf("the outcome is %s, want cancelled", got.Outcome)
	}
}
