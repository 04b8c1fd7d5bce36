// Package redrive is the sanctioned way out of the DLQ: it looks at isolated jobs without consuming
// them, freezes what an operator selected into a plan, and moves it back to the recovery lane in a run
// that is bounded by rate, time, count and generation, judged by the ledger, and can be stopped.
//
//	plan ──approve──▶ run:  canary ─▶ judged by the ledger ─▶ cohort ─▶ cohort ─▶ … ─▶ done
//	                         │              │                   │
//	                         └── kill switch, lock, rate, backlog and stop conditions before each
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
	"errors"
	"log/slog"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// Ledger is what a redrive uses of the ledger's store.
type Ledger interface {
	Get(ctx context.Context, key string) (ledger.Entry, error)
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)
}

// Queues is what a redrive uses of the queues.
type Queues interface {
	Receive(ctx context.Context, q job.Queue, most int, visibility, wait time.Duration) ([]lanes.Received, error)
	Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error
	Delete(ctx context.Context, q job.Queue, messages []job.Message) []error
	Release(ctx context.Context, q job.Queue, messages []job.Message) error
	Depth(ctx context.Context, q job.Queue) (lanes.Depth, error)
}

// Record is one document of the operations table.
type Record struct {
	PK, SK string
	// Doc is the document, JSON.
	Doc []byte
	// Version counts the writes; 0 is a document that does not exist yet.
	Version int64
	// TTL is when the document may be deleted.
	TTL time.Time
}

// ErrChanged: the document is not the version that was read.
var ErrChanged = errors.New("document has changed")

// Table is the operations table.
type Table interface {
	// Get reads consistently; a document that is missing has Version 0.
	Get(ctx context.Context, pk, sk string) (Record, error)
	// Put writes on condition that the stored version is the record's, and returns the record as it
	// then is, or ErrChanged.
	Put(ctx context.Context, r Record) (Record, error)
	// Append writes documents whose keys nobody else uses.
	Append(ctx context.Context, records []Record) error
	// Query calls each for every document of a partition whose sort key has the prefix, in order.
	Query(ctx context.Context, pk, prefix string, each func(Record) error) error
}

// Progress counts what a run did, for metrics.
type Progress interface {
	Redriven(moved, failed, stopped int)
}

// Dependencies are what a Service works with. All are required.
type Dependencies struct {
	Ledger   Ledger
	Queues   Queues
	Table    Table
	Kinds    job.Catalogue
	Log      *slog.Logger
	Progress Progress
	Now      func() time.Time
	// ID returns a new unique token.
	ID func() string
}

// Service answers the redrive function's requests.
type Service struct {
	Config
	Dependencies
}

// New returns a service.
func New(c Config, d Dependencies) *Service { return &Service{Config: c, Dependencies: d} }

// Runs tells the worker about runs.
type Runs struct{ Table Table }

// Revoked says whether a run was revoked. A run that nobody knows was not.
func (r Runs) Revoked(ctx context.Context, id string) (bool, error) {
	if id == "" || len(id) > maxID {
		return false, nil // not one of ours: nothing is gained by naming it
	}
	rec, err := r.Table.Get(ctx, pkRun(id), skRun)
	if err != nil || rec.Version == 0 {
		return false, err
	}
	run, err := decode[Run](rec)
	return run.State == Revoked, err
}

// discardProgress is for a service that nobody measures.
type discardProgress struct{}

func (discardProgress) Redriven(int, int, int) {}

// NoProgress drops the counts.
var NoProgress Progress = discardProgress{}
