package redrive

import (
	"context"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// ActionCensus is the action that the daily schedule asks for.
const ActionCensus = "census"

// Index is what the census reads of the ledger: the index of isolated entries.
type Index interface {
	Isolated(ctx context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error
}

// CensusMetrics writes what a census counted.
type CensusMetrics interface {
	Census(telemetry.Census)
}

// Census counts what is isolated. It receives no message: a receive would hide messages, and SQS leaves
// messages that were received three times out of the age that it reports.
type Census struct {
	At time.Time `json:"at"`
	// Jobs are the isolated jobs whose message SQS still keeps, in all and by class.
	Jobs    int               `json:"jobs"`
	Classes map[job.Class]int `json:"classes"`
	// Newer is how many of them have an entry that a newer version wrote: they are in no class.
	Newer int `json:"newer,omitzero"`
	// DaysLeft is how many of them SQS deletes after so many whole days.
	DaysLeft map[int]int `json:"daysLeft"`
	// OldestAt is when the oldest of them was isolated; zero without jobs.
	OldestAt time.Time `json:"oldestAt,omitzero"`
	// Deleted are jobs that were isolated for so long that SQS has deleted their message, and DeletedLately
	// those of the last day.
	Deleted       int `json:"deleted"`
	DeletedLately int `json:"deletedLately"`
	// Messages is about how many messages the DLQ holds.
	Messages int `json:"messages"`
	// Unrecorded is how many of the messages no isolated entry accounts for: those that SQS moved itself,
	// malformed ones, copies and conflicts.
	Unrecorded int `json:"unrecorded"`
	// Missing is how many isolated jobs have no message, although SQS should still keep it.
	Missing int `json:"missing"`
}

// censusEvery is how often the schedule asks for a census.
const censusEvery = 24 * time.Hour

// census counts the isolated jobs by the ledger's index, and the DLQ's messages by its attributes.
func (s *Service) census(ctx context.Context, _ Request) (Response, error) {
	now := s.now().UTC()
	before, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return Response{}, err
	}
	c := Census{At: now, Classes: map[job.Class]int{}, DaysLeft: map[int]int{}}
	// An isolated entry that nobody touches is gone after the retention, with DynamoDB's delay.
	err = s.isolated.Isolated(ctx, now.Add(-s.rules.Retention), now.Add(time.Second), func(jobs []ledger.IsolatedJob) error {
		for _, j := range jobs {
			if newer := j.Readable(); newer != nil && c.Newer == 0 {
				s.log.Warn("isolated entry not read", telemetry.KeyError, job.SafeText(newer.Error()))
			}
			c.count(j, s.retention)
		}
		return nil
	})
	if err != nil {
		return Response{}, err
	}
	after, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return Response{}, err
	}
	// A job that is isolated meanwhile may be in one of the two counts, and must not be a difference.
	c.Messages = after.Total()
	c.Unrecorded = max(0, min(before.Total(), after.Total())-c.Jobs)
	c.Missing = max(0, c.Jobs-max(before.Total(), after.Total()))
	s.counts.Census(c.metrics())
	return Response{Census: &c}, nil
}

func (c *Census) count(j ledger.IsolatedJob, retention time.Duration) {
	age := c.At.Sub(j.At)
	if left := retention - age; left > 0 {
		c.Jobs++
		if j.Newer > 0 {
			c.Newer++
		} else {
			c.Classes[j.Class]++
		}
		c.DaysLeft[int(left/(24*time.Hour))]++
		if c.OldestAt.IsZero() || j.At.Before(c.OldestAt) {
			c.OldestAt = j.At
		}
		return
	}
	c.Deleted++
	if age < retention+censusEvery {
		c.DeletedLately++
	}
}

func (c *Census) metrics() telemetry.Census {
	m := telemetry.Census{
		Jobs: c.Jobs, Classes: c.Classes, DaysLeft: c.DaysLeft,
		Deleted: c.DeletedLately, Unrecorded: c.Unrecorded, Missing: c.Missing,
	}
	if !c.OldestAt.IsZero() {
		m.OldestAge = c.At.Sub(c.OldestAt)
	}
	return m
}
