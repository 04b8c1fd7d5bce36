// Package overview reads what people want to see of a stack at one glance: its lanes and its DLQ, the isolated
// jobs, pauses, the kill switch, the redrive's run, and how many deliveries had which outcome over time.
//
// It changes nothing. It never receives a message, because a receive hides the message from others and raises
// its receive count: the isolated jobs come from the ledger's index, and the counts from the queues' attributes.
package overview

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// Snapshot is a stack at one time. SQS's counts are approximate. A part that could not be read is missing, and the
// field named after it with NotTold says why.
type Snapshot struct {
	Stack string    `json:"stack"`
	Place string    `json:"place"`
	At    time.Time `json:"at"`
	// Lanes are the queues that feed the worker: source, then recovery.
	Lanes []Lane `json:"lanes"`
	// LanesNotTold says why it is not known whether the lanes are paused.
	LanesNotTold string `json:"lanesNotTold,omitzero"`
	DLQ          DLQ    `json:"dlq"`
	// Isolated are the jobs that the ledger counts as isolated.
	Isolated *Isolated `json:"isolated,omitempty"`
	// IsolatedNotTold says why the isolated jobs are not known, or names an entry that a newer version wrote.
	IsolatedNotTold string `json:"isolatedNotTold,omitzero"`
	// InScheduler counts the jobs that wait in EventBridge Scheduler, up to a limit. More are there if
	// MoreInScheduler says so.
	InScheduler      int    `json:"inScheduler"`
	MoreInScheduler  bool   `json:"moreInScheduler,omitzero"`
	SchedulerNotTold string `json:"schedulerNotTold,omitzero"`
	// OldestNotTold says why the ages of the oldest messages are missing.
	OldestNotTold string `json:"oldestNotTold,omitzero"`
	// Kinds are the kinds, with their own rates and with the people who paused them. They are the paused kinds only, if
	// the redrive function was not asked or did not answer.
	Kinds        []redrive.KindState `json:"kinds"`
	KindsNotTold string              `json:"kindsNotTold,omitzero"`
	// Switch is the kill switch, Run the redrive's run that is active, or else the last one.
	Switch         *redrive.Switch `json:"switch,omitempty"`
	Run            *redrive.Run    `json:"run,omitempty"`
	RedriveNotTold string          `json:"redriveNotTold,omitzero"`
	// Series are the outcomes over time, if the reader was asked for them.
	Series *Series `json:"series,omitempty"`
}

// Lane counts a lane's messages.
type Lane struct {
	Lane  job.Queue `json:"lane"`
	Queue string    `json:"queue"`
	// Scheduled messages are delayed by SQS. Ready ones wait for the worker. InFlight ones are with the worker
	// or back off.
	Scheduled int `json:"scheduled"`
	Ready     int `json:"ready"`
	InFlight  int `json:"inFlight"`
	// Oldest is absent if the platform has no such figure.
	Oldest *Oldest `json:"oldest,omitempty"`
	// RetentionSeconds is how long SQS keeps a message.
	RetentionSeconds int64 `json:"retentionSeconds"`
	// Mapping is the state of the lane's event source mapping in Lambda's words; "" if it is not known. Paused says
	// that nothing is received.
	Mapping string `json:"mapping,omitzero"`
	Paused  bool   `json:"paused,omitzero"`
}

// DLQ counts the DLQ's messages.
type DLQ struct {
	Queue string `json:"queue"`
	// Isolated counts all of them, InFlight the received ones among them.
	Isolated         int     `json:"isolated"`
	InFlight         int     `json:"inFlight"`
	Oldest           *Oldest `json:"oldest,omitempty"`
	RetentionSeconds int64   `json:"retentionSeconds"`
}

// Oldest is CloudWatch's latest figure for the age of a queue's oldest message.
type Oldest struct {
	AgeSeconds int64 `json:"ageSeconds"`
	// At is the minute of the measurement.
	At time.Time `json:"at"`
}

// Lanes is what a Reader needs of the queues.
type Lanes interface {
	Depth(ctx context.Context, q job.Queue) (lanes.Depth, error)
	Describe(ctx context.Context, q job.Queue) (lanes.Queue, error)
}

// Ledger is what a Reader needs of the ledger: its index of isolated entries.
type Ledger interface {
	Isolated(ctx context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error
}

// Schedules counts the jobs that wait in EventBridge Scheduler.
type Schedules interface {
	Count(ctx context.Context, most int) (int, error)
}

// Operations reads what operators decided.
type Operations interface {
	Standing(ctx context.Context, now time.Time) (redrive.Standing, error)
}

// Config is the configuration of a Reader. A field is required unless its comment says otherwise.
type Config struct {
	Names topology.Names
	// Place says in words where the stack is.
	Place      string
	Lanes      Lanes
	Ledger     Ledger
	Operations Operations
	Schedules  Schedules
	Mappings   lambda.ListEventSourceMappingsAPIClient
	// Kinds asks the redrive function for its kinds. If it is nil, a snapshot has the paused kinds only.
	Kinds func(context.Context) ([]redrive.KindState, error)
	// CloudWatch has the ages of the oldest messages; nil where no CloudWatch has them.
	CloudWatch cloudwatch.GetMetricDataAPIClient
	// History has the outcomes over time; nil reads none. Window is how far back a snapshot's Series begin.
	History History
	Window  time.Duration
	// Slow is how long a Reader keeps the results of calls that cost money or are many: the isolated jobs, until the
	// DLQ's count changes, the schedules, the mappings and CloudWatch's figures. Zero reads everything each time.
	Slow time.Duration
	Now  func() time.Time
	// Explain puts an error into words; nil takes the error's text.
	Explain func(error) string
}

const (
	// SchedulesCounted is how many schedules are counted: Scheduler lists 100 in a call.
	SchedulesCounted = 1000
	// partLimit bounds the reading of a part that may be missing. The redrive function may have to start.
	partLimit = 5 * time.Second
)

// Reader reads snapshots. It may be used concurrently.
type Reader struct {
	c  Config
	mu sync.Mutex // held for a whole Read
	// fixed are the attributes of the queues that never change; nil before the first Read.
	fixed map[job.Queue]lanes.Queue
	slow  slow
}

// slow holds the results that a Reader keeps for Config.Slow.
type slow struct {
	at       time.Time
	messages int // on the DLQ, when isolated was read
	isolated *Isolated
	snapshot Snapshot
}

// New returns a Reader.
func New(c Config) *Reader {
	if c.Explain == nil {
		c.Explain = error.Error
	}
	return &Reader{c: c}
}

// queues are the queues in the order of the results.
var queues = [...]job.Queue{job.Source, job.Recovery, job.DLQ}

// Read reads a snapshot. It fails only if the queues cannot be read: every other part may be missing.
func (r *Reader) Read(ctx context.Context) (Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.c.Now().UTC().Truncate(time.Millisecond)
	if err := r.describe(ctx); err != nil {
		return Snapshot{}, err
	}
	var depths [len(queues)]lanes.Depth
	var errs [len(queues)]error
	s := Snapshot{Stack: r.c.Names.Stack, Place: r.c.Place, At: now, Kinds: []redrive.KindState{}}
	var wait sync.WaitGroup
	for i, q := range queues {
		wait.Go(func() { depths[i], errs[i] = r.c.Lanes.Depth(ctx, q) })
	}
	var standing redrive.Standing
	r.part(ctx, &wait, "the operations table did not tell: ", &s.RedriveNotTold, func(ctx context.Context) (err error) {
		standing, err = r.c.Operations.Standing(ctx, now)
		return err
	})
	var kinds []redrive.KindState
	if r.c.Kinds != nil {
		r.part(ctx, &wait, "the redrive function did not tell: ", &s.KindsNotTold, func(ctx context.Context) (err error) {
			kinds, err = r.c.Kinds(ctx)
			return err
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return Snapshot{}, err
		}
	}
	if s.RedriveNotTold == "" {
		s.Switch, s.Run = &standing.Switch, standing.Run
	}
	switch {
	case r.c.Kinds != nil && s.KindsNotTold == "":
		s.Kinds = append(s.Kinds, kinds...)
	case s.RedriveNotTold == "":
		s.Kinds = append(s.Kinds, standing.Paused...)
	case s.KindsNotTold == "":
		s.KindsNotTold = s.RedriveNotTold
	}
	r.count(&s, depths)
	r.slowly(ctx, &s)
	return s, nil
}

// part reads one part in the background. If it fails, notTold says why.
func (r *Reader) part(ctx context.Context, wait *sync.WaitGroup, prefix string, notTold *string, read func(context.Context) error) {
	wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, partLimit)
		defer cancel()
		*notTold = ""
		if err := read(ctx); err != nil {
			*notTold = prefix + r.c.Explain(err)
		}
	})
}

// describe reads the queues' fixed attributes once.
func (r *Reader) describe(ctx context.Context) error {
	if r.fixed != nil {
		return nil
	}
	fixed := map[job.Queue]lanes.Queue{}
	for _, q := range queues {
		one, err := r.c.Lanes.Describe(ctx, q)
		if err != nil {
			return err
		}
		fixed[q] = one
	}
	r.fixed = fixed
	return nil
}

func (r *Reader) count(s *Snapshot, depths [len(queues)]lanes.Depth) {
	retention := func(q job.Queue) int64 { return int64(r.fixed[q].Retention / time.Second) }
	for i, name := range []string{r.c.Names.SourceQueue, r.c.Names.RecoveryQueue} {
		d := depths[i]
		s.Lanes = append(s.Lanes, Lane{
			Lane: queues[i], Queue: name, Scheduled: d.Delayed, Ready: d.Visible, InFlight: d.InFlight,
			RetentionSeconds: retention(queues[i]),
		})
	}
	dlq := depths[2]
	s.DLQ = DLQ{Queue: r.c.Names.DLQ, Isolated: dlq.Total(), InFlight: dlq.InFlight, RetentionSeconds: retention(job.DLQ)}
}

// slowly adds the kept results. It reads them again first if they are too old.
func (r *Reader) slowly(ctx context.Context, s *Snapshot) {
	kept := &r.slow
	old := kept.at.IsZero() || s.At.Sub(kept.at) >= r.c.Slow
	var wait sync.WaitGroup
	unread := ""
	if old || kept.messages != s.DLQ.Isolated {
		kept.messages = s.DLQ.Isolated
		r.part(ctx, &wait, "the ledger did not tell: ", &kept.snapshot.IsolatedNotTold, func(ctx context.Context) (err error) {
			kept.isolated, unread, err = r.isolated(ctx, s.At)
			return err
		})
	}
	if old {
		kept.at = s.At
		r.readSlow(ctx, &wait, s.At)
	}
	wait.Wait()
	if unread != "" {
		kept.snapshot.IsolatedNotTold = unread
	}
	k := kept.snapshot
	s.Isolated, s.IsolatedNotTold = kept.isolated, k.IsolatedNotTold
	s.InScheduler, s.MoreInScheduler, s.SchedulerNotTold = k.InScheduler, k.InScheduler == SchedulesCounted, k.SchedulerNotTold
	s.OldestNotTold, s.LanesNotTold, s.Series = k.OldestNotTold, k.LanesNotTold, k.Series
	s.DLQ.Oldest = k.DLQ.Oldest
	for i := range s.Lanes {
		s.Lanes[i].Oldest, s.Lanes[i].Mapping, s.Lanes[i].Paused = k.Lanes[i].Oldest, k.Lanes[i].Mapping, k.Lanes[i].Paused
	}
}

// readSlow reads the schedules, the mappings and CloudWatch's figures.
func (r *Reader) readSlow(ctx context.Context, wait *sync.WaitGroup, now time.Time) {
	k := &r.slow.snapshot
	k.Lanes, k.InScheduler, k.Series = make([]Lane, 2), 0, nil
	r.part(ctx, wait, "EventBridge Scheduler did not tell: ", &k.SchedulerNotTold, func(ctx context.Context) (err error) {
		k.InScheduler, err = r.c.Schedules.Count(ctx, SchedulesCounted)
		return err
	})
	r.part(ctx, wait, "Lambda did not tell whether the lanes are paused: ", &k.LanesNotTold, func(ctx context.Context) error {
		for i := range k.Lanes {
			m, err := Mapping(ctx, r.c.Mappings, r.c.Names.WorkerFunction, r.fixed[queues[i]].ARN)
			if err != nil {
				return err
			}
			k.Lanes[i].Mapping, k.Lanes[i].Paused = stateOf(m), Paused(m)
		}
		return nil
	})
	var ages map[string]Oldest
	r.part(ctx, wait, "CloudWatch did not tell: ", &k.OldestNotTold, func(ctx context.Context) (err error) {
		if r.c.CloudWatch != nil {
			ages, err = oldestAges(ctx, r.c.CloudWatch, now, r.c.Names.SourceQueue, r.c.Names.RecoveryQueue, r.c.Names.DLQ)
		}
		return err
	})
	if r.c.History != nil {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, partLimit)
			defer cancel()
			series := Read(ctx, r.c.History, now.Add(-r.c.Window), now, time.Minute, r.c.Explain)
			k.Series = &series
		})
	}
	wait.Wait()
	if r.c.CloudWatch == nil {
		k.OldestNotTold = "the age of the oldest message is known to CloudWatch on AWS only"
	}
	of := func(queue string) *Oldest {
		if o, ok := ages[queue]; ok {
			return &o
		}
		return nil
	}
	k.Lanes[0].Oldest, k.Lanes[1].Oldest, k.DLQ.Oldest = of(r.c.Names.SourceQueue), of(r.c.Names.RecoveryQueue), of(r.c.Names.DLQ)
}
