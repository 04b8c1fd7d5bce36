package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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

// The keys of the operations table's documents.
const (
	skPlan = "plan"
	skRun  = "run"
	skPart = "part#"

	pkIndex  = "index"
	pkSwitch = "switch"
	pkLock   = "lock"
)

func pkPlan(id string) string { return "plan#" + id }

func pkRun(id string) string { return "run#" + id }

// create writes a new document. One that is there already is ErrChanged.
func (s *Service) create(ctx context.Context, pk, sk string, v any) error {
	_, err := s.put(ctx, Record{PK: pk, SK: sk}, v)
	return err
}

// put replaces a document by v, on condition that it is still as rec says.
func (s *Service) put(ctx context.Context, rec Record, v any) (Record, error) {
	var err error
	if rec.Doc, err = encode(v); err != nil {
		return rec, err
	}
	rec.TTL = s.now().Add(s.numbers.Retention)
	return s.table.Put(ctx, rec)
}

// format is the newest form of requests and documents that this version reads, and the one it writes.
const format = 1

// stored is a document as it is stored: with the number of its form, so that an older version refuses a
// newer document instead of misreading it.
type stored[T any] struct {
	Format int `json:"format"`
	Doc    T   `json:"doc"`
}

func encode(v any) ([]byte, error) { return json.Marshal(stored[any]{format, v}) }

func decode[T any](r Record) (v T, err error) {
	var doc stored[json.RawMessage]
	if err = json.Unmarshal(r.Doc, &doc); err != nil {
		return v, fmt.Errorf("read %s %s: %w", r.PK, r.SK, err)
	}
	if doc.Format > format {
		return v, refuse("%s has format %d, and this redrive function reads up to %d: a newer version wrote it, deploy that one", r.PK, doc.Format, format)
	}
	if err = json.Unmarshal(doc.Doc, &v); err != nil {
		err = fmt.Errorf("read %s %s: %w", r.PK, r.SK, err)
	}
	return v, err
}

// Plan is a frozen selection. It becomes at most one run.
type Plan struct {
	ID string `json:"id"`
	// Run is the id of the run it becomes.
	Run       string    `json:"run"`
	At        time.Time `json:"at"`
	ExpiresAt time.Time `json:"expiresAt"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
	Select    Filter    `json:"select"`
	// Digest is over the selection and every message id and generation in it.
	Digest string `json:"digest"`
	// Selected counts the messages, Actions by what would happen to each, Bytes is their size.
	Selected int            `json:"selected"`
	Actions  map[Action]int `json:"actions"`
	Bytes    int            `json:"bytes"`
	Partial  string         `json:"partial,omitempty"`

	RatePerSecond int `json:"ratePerSecond"` // -1: no limit
	Canary        int `json:"canary"`
	// Crashed says that convicted jobs without a key are among them, whose canary people have to judge.
	Crashed bool `json:"crashed,omitempty"`

	// Approval says what it needs one for; empty when it needs none.
	Approval       string    `json:"approval,omitempty"`
	ApprovedBy     string    `json:"approvedBy,omitempty"`
	ApprovedAt     time.Time `json:"approvedAt,omitzero"`
	ApprovalReason string    `json:"approvalReason,omitempty"`
}

// target is one message of a plan.
type target struct {
	ID         string `json:"i"`
	Generation int    `json:"g,omitempty"`
	Action     Action `json:"a"`
}

func (s *Service) readPlan(ctx context.Context, id string) (Plan, Record, error) {
	if id == "" {
		return Plan{}, Record{}, refuse("the plan is not named")
	}
	rec, err := s.table.Get(ctx, pkPlan(id), skPlan)
	if err != nil {
		return Plan{}, rec, err
	}
	if rec.Version == 0 {
		return Plan{}, rec, refuse("there is no plan %s", id)
	}
	p, err := decode[Plan](rec)
	return p, rec, err
}

// indexed is a line of the index that list reads.
type indexed struct {
	Run  string    `json:"run"`
	Plan string    `json:"plan"`
	At   time.Time `json:"at"`
}

// State is where a run stands.
type State string

// The states. A paused or stopped run can be continued; nothing continues the others.
const (
	Planned State = "planned" // no run yet
	Active  State = "active"
	Paused  State = "paused"
	// Stopped by a condition or by the kill switch.
	Stopped State = "stopped"
	Done    State = "done"
	// Aborted: it may not send at all.
	Aborted State = "aborted"
	Revoked State = "revoked"
)

// CanaryState is how far a run's canary is; empty while it goes out.
type CanaryState string

// The states of a canary.
const (
	CanarySent   CanaryState = "sent"
	CanaryPassed CanaryState = "passed"
	// CanaryPeople: the ledger cannot judge it, people have to.
	CanaryPeople CanaryState = "for people to judge"
)

// Verdict is what the ledger said of a job that was redriven; empty while there is none.
type Verdict string

// The verdicts.
const (
	Succeeded Verdict = "succeeded"
	Failed    Verdict = "failed"
)

// Watched is a redriven job whose outcome a run looks at.
type Watched struct {
	Job        string `json:"job"`
	Generation int    `json:"generation"`
	Canary     bool   `json:"canary,omitempty"`
	// Why is what the ledger said.
	Verdict Verdict `json:"verdict,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// Run is what is stored of a run. Every write is conditional on the version that was read, so that of
// two owners one finds out at its next cohort.
type Run struct {
	ID     string `json:"id"`
	Plan   string `json:"plan"`
	State  State  `json:"state"`
	Why    string `json:"why,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Source and Destination are the queues.
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	StartedAt   time.Time `json:"startedAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	// Total is how many messages there are to move or remove; Counts is what became of them.
	Total  int          `json:"total"`
	Counts map[Step]int `json:"counts"`
	// Waiting messages were not seen while others hold messages of the DLQ.
	Waiting       int         `json:"waiting,omitempty"`
	RatePerSecond int         `json:"ratePerSecond"`
	Canary        CanaryState `json:"canary,omitempty"`
	CanaryUntil   time.Time   `json:"canaryUntil,omitzero"`
	Watched       []Watched   `json:"watched,omitempty"`
	// Fence is the number of the lock it was last continued under.
	Fence     int64     `json:"fence"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// RunView is a run as it is answered.
type RunView struct {
	Run
	// OwnerGone says that the run is active and nobody works on it: run it again.
	OwnerGone bool `json:"ownerGone,omitempty"`
}

// gone is the count of messages that were planned and are not on the DLQ any more.
const countGone Step = "gone"

func (s *Service) readRun(ctx context.Context, id string) (Run, Record, error) {
	if id == "" {
		return Run{}, Record{}, refuse("the run is not named")
	}
	rec, err := s.table.Get(ctx, pkRun(id), skRun)
	if err != nil {
		return Run{}, rec, err
	}
	if rec.Version == 0 {
		return Run{}, rec, refuse("there is no run %s", id)
	}
	run, err := decode[Run](rec)
	if run.Counts == nil {
		run.Counts = map[Step]int{}
	}
	return run, rec, err
}

// lock is the document that one run at a time holds.
type lock struct {
	Run   string    `json:"run"`
	Owner string    `json:"owner"`
	Fence int64     `json:"fence"`
	Until time.Time `json:"until"`
}

func (l lock) live(now time.Time) bool { return l.Owner != "" && now.Before(l.Until) }

func (s *Service) readLock(ctx context.Context) (lock, Record, error) {
	rec, err := s.table.Get(ctx, pkLock, pkLock)
	if err != nil || rec.Version == 0 {
		return lock{}, rec, err
	}
	l, err := decode[lock](rec)
	return l, rec, err
}

// Switch is the kill switch. While it is on, nothing is redriven.
type Switch struct {
	On     bool      `json:"on"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

func (s *Service) readSwitch(ctx context.Context) (Switch, error) {
	rec, err := s.table.Get(ctx, pkSwitch, pkSwitch)
	if err != nil || rec.Version == 0 {
		return Switch{}, err
	}
	return decode[Switch](rec)
}
