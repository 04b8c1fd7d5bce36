package redrive

import (
	"acklast/internal/job"
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
	pkSwitch = SwitchKey
	pkLock   = "lock"
)

// SwitchKey is the partition of the kill switch, and of nothing else: operators may write it directly.
const SwitchKey = "switch"

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
	// Replacement says which body is sent, where it is not the one that lies on the DLQ.
	Replacement *Replacement `json:"replacement,omitempty"`
	// Open says that the selection itself is frozen, and that the run takes at most Count messages that it matches,
	// isolated before At.
	Open  bool `json:"open,omitempty"`
	Count int  `json:"count,omitempty"`
	// Digest is over the selection, the count, the rate, the body and every message id and generation in it.
	Digest string `json:"digest"`
	// Selected counts the messages, of an open plan those that were seen when it was made, Actions by what would happen to each, Bytes is their size.
	Selected int            `json:"selected"`
	Actions  map[Action]int `json:"actions"`
	Bytes    int            `json:"bytes"`
	Partial  string         `json:"partial,omitempty"`
	// Groups are what was selected, for whoever approves it: the largest, with samples.
	Groups []Group `json:"groups"`
	// Drift is only in an answer: what has changed since the plan was made.
	Drift *Drifted `json:"drift,omitempty"`

	RatePerSecond int `json:"ratePerSecond"` // -1: no limit
	// Stages are how many jobs go first, each stage judged before the next one goes.
	Stages []int `json:"stages"`
	// People says that jobs without a key are among them, whose canary people have to judge.
	People bool `json:"people,omitempty"`

	// Approval says what it needs one for; empty when it needs none.
	Approval       string    `json:"approval,omitempty"`
	ApprovedBy     string    `json:"approvedBy,omitempty"`
	ApprovedAt     time.Time `json:"approvedAt,omitzero"`
	ApprovalReason string    `json:"approvalReason,omitempty"`
}

// most is how many messages the plan's run does something with, at most.
func (p Plan) most() int {
	if p.Open {
		return p.Count
	}
	return p.acting()
}

// acting counts the selected messages that the plan's run would do something with.
func (p Plan) acting() (n int) {
	for action, count := range p.Actions {
		if action.acts() {
			n += count
		}
	}
	return n
}

// Drifted counts the messages of a plan whose entries are not as the plan saw them.
type Drifted struct {
	// Final jobs have ended meanwhile, Redriven ones were redriven by something else, Guarded ones are now of
	// a class that needs an approval and was not approved, Unread ones have an entry that cannot be read.
	Final    int `json:"final"`
	Redriven int `json:"redriven"`
	Guarded  int `json:"guarded"`
	Unread   int `json:"unread"`
	// Samples are jobs of them.
	Samples []string `json:"samples"`
}

// Replacement is a body that a plan's run sends in place of a message's own. The audit has it, and what it replaces.
type Replacement struct {
	Message string `json:"message"`
	Job     string `json:"job,omitempty"`
	// Discard is the discard whose audit has the message; empty for a message on the DLQ with a mended body.
	Discard string `json:"discard,omitempty"`
	// SHA256 is the body's. An approval covers no other.
	SHA256 string `json:"sha256"`
	// Note says what an approver has to know of it.
	Note string `json:"note,omitempty"`
	// Diff is only in an answer: what the body changes, line by line.
	Diff string `json:"diff,omitempty"`
}

// target is one message of a plan.
type target struct {
	ID         string    `json:"i"`
	Generation int       `json:"g,omitempty"`
	Action     Action    `json:"a"`
	Key        string    `json:"k,omitempty"`
	Class      job.Class `json:"c,omitempty"`
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

// indexed is a line of the index that list reads. A discard has no plan.
type indexed struct {
	Run  string    `json:"run"`
	Plan string    `json:"plan,omitempty"`
	At   time.Time `json:"at"`
}

// State is where a run stands.
type State string

// The states of a run. A halted run can be continued; nothing continues a done or a revoked one.
const (
	Planned State = "planned" // no run yet
	Active  State = "active"
	Halted  State = "halted"
	// Done: every message of the plan has a known ending.
	Done    State = "done"
	Revoked State = "revoked"
)

// Code says why a run is halted.
type Code string

// The codes of a halt.
const (
	// HaltNotBegun: the run exists and nobody has worked on it yet.
	HaltNotBegun Code = "not-begun"
	// HaltTime: the function's timeout is near; nothing is wrong.
	HaltTime Code = "time"
	// HaltInterrupted: the run's process ended without a word.
	HaltInterrupted Code = "interrupted"
	// HaltCall: a call to AWS failed.
	HaltCall Code = "call-failed"
	// HaltSwitch: the kill switch is on, or cannot be read.
	HaltSwitch Code = "switch"
	// HaltStopped: somebody stopped this run.
	HaltStopped Code = "stopped"
	// HaltCanary: the canary did not succeed, or did not end in time.
	HaltCanary Code = "canary"
	// HaltFailures: too many of the jobs last judged did not succeed.
	HaltFailures Code = "failures"
	// HaltFinal: too many jobs were final already.
	HaltFinal Code = "final-already"
	// HaltPeople: the canary went out, and the ledger cannot judge it.
	HaltPeople Code = "people"
	// HaltNotSeen: messages of the plan were not seen on the DLQ, and may still be there.
	HaltNotSeen Code = "not-seen"
	// HaltNotRun: jobs that were sent have not run.
	HaltNotRun Code = "not-run"
	// HaltUnsettled: of some messages nothing was confirmed.
	HaltUnsettled Code = "unsettled"
	// HaltExpired: the plan expired before everything of it was sent.
	HaltExpired Code = "expired"
	// HaltForbidden: SQS takes no message at all until somebody allows it.
	HaltForbidden Code = "forbidden"
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

// Watched is a job that was sent, with what the ledger last said of it.
type Watched struct {
	Job        string `json:"job"`
	Generation int    `json:"generation"`
	Canary     bool   `json:"canary,omitempty"`
	// Ending is empty while the job has not run. Why is what the ledger said.
	Ending Ending `json:"ending,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Halt is one halt of a run, with the failures that it was judged by.
type Halt struct {
	At     time.Time `json:"at"`
	Code   Code      `json:"code"`
	Why    string    `json:"why"`
	Failed []Watched `json:"failed,omitempty"`
}

// What a run keeps of its past: halts, the failures of each, and names for each ending. The audit has all.
const (
	maxHalts = 10
	maxNames = 10
)

// Run is what is stored of a run. Every write is conditional on the version that was read, so that of
// two owners one finds out before its next cohort.
type Run struct {
	ID    string `json:"id"`
	Plan  string `json:"plan"`
	State State  `json:"state"`
	// Code and Why say why it is halted; Why alone, what an active run waits for.
	Code   Code   `json:"code,omitempty"`
	Why    string `json:"why,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Source and Destination are the queues.
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	StartedAt   time.Time `json:"startedAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	// Rounds counts the invocations that have worked on it.
	Rounds int `json:"rounds"`
	// Total is how many messages there are to move or remove, until the end of an open plan's run the most there may
	// be; Counts is what was done with them.
	Total  int          `json:"total"`
	Counts map[Step]int `json:"counts"`
	// Endings counts the messages by what became of them. A run that is done has one for each. Names are
	// jobs of each ending, or messages without a key: the first ten.
	Endings map[Ending]int      `json:"endings"`
	Names   map[Ending][]string `json:"names,omitempty"`
	// Unseen counts the messages of the plan that this run has not found on the DLQ.
	Unseen        int         `json:"unseen,omitempty"`
	RatePerSecond int         `json:"ratePerSecond"`
	Canary        CanaryState `json:"canary,omitempty"`
	CanaryUntil   time.Time   `json:"canaryUntil,omitzero"`
	// Watched are the jobs of the canary and of the window that it is judged by. They start empty with
	// every continuation; Halts is what it was halted by before.
	Watched   []Watched `json:"watched,omitempty"`
	Halts     []Halt    `json:"halts,omitempty"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// interrupted tells a run that is active although nobody works on it for what it is.
func (r *Run) interrupted() {
	if r.State == Active {
		r.State, r.Code, r.Why = Halted, HaltInterrupted, "its process ended without a word: run it again to continue"
	}
}

// EndedWell says whether a run that is done did for every message what was wanted.
func (r Run) EndedWell() bool {
	for ending, n := range r.Endings {
		if n > 0 && !ending.well() {
			return false
		}
	}
	return r.State == Done
}

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
	if run.Endings == nil {
		run.Endings = map[Ending]int{}
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

// readSwitch reads the kill switch. Whoever cannot read it has to take it for on.
func (s *Service) readSwitch(ctx context.Context) (Switch, error) {
	rec, err := s.table.Get(ctx, pkSwitch, pkSwitch)
	if err != nil || rec.Version == 0 {
		return Switch{}, err
	}
	return decode[Switch](rec)
}
