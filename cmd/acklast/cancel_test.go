package main

import (
	"testing"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/overview"
	"acklast/internal/schedule"
)

// scheduled lets the expiry of r-1 wait in Scheduler for a year. It returns the job, its time and the client of the
// stack's schedules.
func scheduled(t *testing.T, aws *local.AWS) (job.Delivery, time.Time, *schedule.Client) {
	t.Helper()
	due := time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second).UTC()
	group := aws.Names().ScheduleGroup
	c := schedule.New(awsclient.Scheduler(aws.AWSConfig()), schedule.Target{
		Group: group, RoleARN: "arn:aws:iam::000000000000:role/r", QueueURL: aws.QueueURLs().Recovery, DLQARN: "arn:aws:sqs:us-east-1:000000000000:d",
	})
	d, _ := write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		d.Envelope.NotBefore, d.Envelope.Deadline = due, time.Time{}
		return rules.Schedule(e, d, "name-"+aws.Names().Stack, time.Now())
	})
	if err := c.Create(t.Context(), "name-"+aws.Names().Stack, due, time.Now(), schedule.Message{Body: "{}"}); err != nil {
		t.Fatal(err)
	}
	return d, due, c
}

func TestJobThatWaitsInTheScheduler(t *testing.T) {
	c, aws := embedded(t)
	d, due, _ := scheduled(t, aws)
	contains(t, squeezed(c.must("job", d.Key).stdout), "scheduled until "+stamp(due)+" (in ", "schedule name-"+aws.Names().Stack+"\n",
		"waits in EventBridge Scheduler")
	r := decode[overview.Snapshot](t, c.must("status", "--output", "json"))
	if r.InScheduler != 1 || r.MoreInScheduler {
		t.Errorf("status counts %d jobs in the scheduler, more %v, want 1", r.InScheduler, r.MoreInScheduler)
	}
	contains(t, squeezed(c.must("status").stdout), "In EventBridge Scheduler: 1 jobs")
}

func TestCancelEndsAJobAndItsSchedule(t *testing.T) {
	c, aws := embedded(t)
	d, _, schedules := scheduled(t, aws)
	contains(t, c.must("cancel", d.Key, "--by", "ann", "--reason", "the customer left").stdout, "is cancelled", "Its schedule is deleted")
	if _, found, err := schedules.At(t.Context(), "name-"+aws.Names().Stack); found || err != nil {
		t.Errorf("the schedule is still there: %v, %v", found, err)
	}
	r := decode[cancelReport](t, c.must("cancel", d.Key, "--by", "bob", "--reason", "again", "--output", "json"))
	if r.Entry.Status != ledger.Terminal || r.Entry.Outcome != ledger.Cancelled {
		t.Errorf("the job is %s, %s", r.Entry.Status, r.Entry.Outcome)
	}
	if n := len(r.Entry.Decisions); n != 1 {
		t.Fatalf("%d decisions, want the first one only", n)
	}
	if got := r.Entry.Decisions[0]; got.By != "ann" || got.Reason != "the customer left" || got.What != ledger.Cancel {
		t.Errorf("the decision is %+v", got)
	}
	contains(t, squeezed(c.must("job", d.Key).stdout), "cancel ann the customer left")
}

func TestCancelBeforeTheFirstDelivery(t *testing.T) {
	c, _ := embedded(t)
	due := time.Now().Add(300 * 24 * time.Hour).Truncate(time.Second)
	r := decode[cancelReport](t, c.must("cancel", "reservation.expire/r-9/hold-1", "--not-before", due.Format(time.RFC3339),
		"--reason", "left", "--output", "json"))
	if r.Entry.TTL.Before(due) {
		t.Errorf("the entry goes at %v, before the job is due at %v", r.Entry.TTL, due)
	}
	if r.Schedule != "" {
		t.Errorf("the schedule is %q, want none", r.Schedule)
	}
}

func TestCancelRefuses(t *testing.T) {
	c, aws := embedded(t)
	d, _ := write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.Claim(e, d, ledger.Lease{Until: time.Now().Add(time.Hour), ProviderKey: "p"}, time.Now())
	})
	c.refused(exitRefused, []string{"a delivery holds"}, "cancel", d.Key, "--reason", "left")
	write(t, aws, func(e ledger.Entry, d job.Delivery) (ledger.Entry, error) {
		return rules.CompleteClaim(e, d, ledger.Done, "sent", "r1", time.Now())
	})
	c.refused(exitRefused, []string{"has ended: done, sent"}, "cancel", d.Key, "--reason", "left")
	c.refused(exitRefused, []string{"is no job's key"}, "cancel", "r-1", "--reason", "left")
	c.refused(exitRefused, []string{"--not-before"}, "cancel", d.Key, "--not-before", "tomorrow", "--reason", "left")
}
