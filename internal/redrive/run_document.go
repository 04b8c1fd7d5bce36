package redrive

import (
	"context"
	"time"
)

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
	// HaltThrottled: jobs that were sent ran and are still throttled.
	HaltThrottled Code = "throttled"
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
	Failed []Watched `json:"failed"`
}

// A run keeps so many halts, and so many failures of each, and so many names for each ending. The audit has all.
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
	// Stage is how many of the plan's stages have passed since the last fresh start.
	Stage int `json:"stage"`
	// Keyless is how many jobs of the stage that is out have no key. People have to judge those.
	Keyless int `json:"keyless,omitempty"`
	// Watched are the jobs of the canary and of the window that it is judged by. They start empty with
	// every continuation; Halts is what it was halted by before.
	Watched   []Watched `json:"watched"`
	Halts     []Halt    `json:"halts"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// interrupted marks a run as halted that is active although no invocation works on it.
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
	run, err := decodeRun(rec)
	return run, rec, err
}

// decodeRun reads a run. Lists and counts that an earlier version left out are empty.
func decodeRun(rec Record) (Run, error) {
	run, err := decode[Run](rec)
	run.fill()
	return run, err
}

// fill makes the counts and lists that are nil empty, so that JSON has no null.
func (r *Run) fill() {
	if r.Counts == nil {
		r.Counts = map[Step]int{}
	}
	if r.Endings == nil {
		r.Endings = map[Ending]int{}
	}
	if r.Watched == nil {
		r.Watched = []Watched{}
	}
	if r.Halts == nil {
		r.Halts = []Halt{}
	}
	for i := range r.Halts {
		if r.Halts[i].Failed == nil {
			r.Halts[i].Failed = []Watched{}
		}
	}
}
