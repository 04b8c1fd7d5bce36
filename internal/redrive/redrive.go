// Package redrive is the sanctioned way out of the DLQ: it looks at isolated jobs without consuming
// them, freezes what an operator selected into a plan, and moves it back to the recovery lane in a run
// that is bounded by rate, time, count and generation, judged by the ledger, and can be stopped.
//
//	plan ──approve──▶ run:  stage ─▶ judged by the ledger ─▶ stage ─▶ … ─▶ cohort ─▶ cohort ─▶ … ─▶ endings ─▶ done
//	                         │              │                                │                       │
//	                         └── kill switch, lock, rate, backlog and the jobs judged last, before each; else halted
//
// A run is done when every message of its plan has a known ending, and it says which. A message that was not
// seen is not gone: the run looks for it for longer than SQS's counts lag. Everything else is halted, with a
// code, and can be continued, starting with a fresh stage.
//
// Per message: audit what is about to happen, reopen the entry, send to the recovery lane, and delete
// only what SQS confirmed as sent. A crash after any step repeats that step and those after it:
//
//	audit │ reopen │ send │ delete
//	      ▲        ▲      ▲
//	      │        │      └ sent, undeleted: deleted later, or found final; the ledger absorbs the copy
//	      │        └ open by this run: sent without counting again
//	      └ nothing happened yet
//
// Correctness rests on the ledger's conditions. The lock only keeps two runs from doing the same work.
package redrive

import (
	"context"
	"log/slog"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/topology"
)

// Ledger is what a redrive uses of the ledger's store.
type Ledger interface {
	Get(ctx context.Context, key string) (ledger.Entry, error)
	// ReadStrikes reads the invocations that died with a message.
	ReadStrikes(ctx context.Context, messageID string) (ledger.Strikes, error)
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
}

// Queues is what a redrive uses of the queues.
type Queues interface {
	Receive(ctx context.Context, q job.Queue, most int, visibility, wait time.Duration) ([]lanes.Received, error)
	Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error
	Delete(ctx context.Context, q job.Queue, messages []job.Message) []error
	// Hide keeps received messages hidden for so long from now on.
	Hide(ctx context.Context, q job.Queue, messages []job.Message, d time.Duration) error
	Release(ctx context.Context, q job.Queue, messages []job.Message) error
	Depth(ctx context.Context, q job.Queue) (lanes.Depth, error)
}

// Schedules is what a discard uses of EventBridge Scheduler.
type Schedules interface {
	Delete(ctx context.Context, name string) error
}

// Progress counts what a run did, for metrics.
type Progress interface {
	Redriven(moved, failed, stopped int)
}

// Dependencies are what a Service works with. All are required.
type Dependencies struct {
	Ledger Ledger
	Queues Queues
	Table  Table
	Index  Index
	// Schedules deletes what brings a discarded job back.
	Schedules Schedules
	Kinds     job.Catalogue
	// Start returns the kind of the name with its runner started, for what its records say. Nothing is
	// run. A name that nobody knows is an error.
	Start    func(ctx context.Context, kind string) (job.Kind, error)
	Log      *slog.Logger
	Progress Progress
	Counts   CensusMetrics
	Now      func() time.Time
	// ID returns a new unique token.
	ID func() string
	// Version is the version of the program, which every answer names.
	Version string
}

// Service answers the redrive function's requests.
type Service struct {
	names       topology.Names
	rules       ledger.Rules
	numbers     topology.Redrive
	retention   time.Duration
	guarded     []job.Class
	unqualified bool
	version     string

	ledger    Ledger
	queues    Queues
	table     Table
	isolated  Index
	schedules Schedules
	kinds     job.Catalogue
	start     func(ctx context.Context, kind string) (job.Kind, error)
	log       *slog.Logger
	progress  Progress
	counts    CensusMetrics
	now       func() time.Time
	newID     func() string
}

// New returns a service.
func New(c Config, d Dependencies) *Service {
	return &Service{
		names: c.Names, rules: c.Rules, numbers: c.Numbers, retention: c.DLQRetention, guarded: c.Guarded, unqualified: c.Unqualified, version: d.Version,
		ledger: d.Ledger, queues: d.Queues, table: d.Table, isolated: d.Index, schedules: d.Schedules, kinds: d.Kinds, start: d.Start,
		log: d.Log, progress: d.Progress, counts: d.Counts, now: d.Now, newID: d.ID,
	}
}

// discardProgress is for a service that nobody measures.
type discardProgress struct{}

func (discardProgress) Redriven(int, int, int) {}

// NoProgress drops the counts.
var NoProgress Progress = discardProgress{}
