package redrive

import (
	"context"
	"time"

	"acklast/internal/job"
)

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
	// Groups are the largest groups of the selected messages, with samples, for the person who approves the plan.
	Groups []Group `json:"groups"`
	// Drift is only in an answer: what has changed since the plan was made.
	Drift *Drifted `json:"drift,omitempty"`

	RatePerSecond int `json:"ratePerSecond"` // -1: no limit
	// Stages are how many jobs go first, each stage judged before the next one goes.
	Stages []int `json:"stages"`
	// People says that jobs without a key are among them. People have to judge each stage that has some.
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
