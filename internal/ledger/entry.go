package ledger

import (
	"time"

	"acklast/internal/job"
)

// Status is where an entry stands.
type Status string

// The statuses. Done, Expired and Terminal are final.
const (
	// Pending: the job may run; attempts may have failed.
	Pending Status = "pending"
	// Running: a delivery has claimed the job and holds its lease.
	Running Status = "running"
	// Isolated: recorded as isolated; its message is on the DLQ or on its way there.
	Isolated Status = "isolated"
	// Done: the effect happened, or turned out not to be wanted any more.
	Done Status = "done"
	// Expired: the job's time passed before it ran.
	Expired Status = "expired"
	// Terminal: the business said no, for good.
	Terminal Status = "terminal"
)

// Final says whether the status is never left again.
func (s Status) Final() bool { return s == Done || s == Expired || s == Terminal }

// Format is the form in which entries are stored. An entry of a newer one is for a newer version of this
// program to read: see job.NewerError.
const Format = 1

// MaxHistory is how many events an entry keeps; older ones make room.
const MaxHistory = 20

// EventKind is what an Event tells.
type EventKind string

// The kinds of events.
const (
	EventFailed   EventKind = "failed"
	EventIsolated EventKind = "isolated"
	EventReopened EventKind = "reopened"
)

// Event is one line of an entry's history.
type Event struct {
	At      time.Time `json:"at"`
	What    EventKind `json:"what"`
	Attempt int       `json:"attempt,omitzero"`
	Class   job.Class `json:"class,omitzero"`
	Cause   job.Cause `json:"cause,omitzero"`
	Error   string    `json:"error,omitzero"`
}

// Entry is what the ledger knows of one job. An entry with Version 0 does not exist yet.
type Entry struct {
	Key     string `json:"key"`
	Subject string `json:"subject"`
	Kind    string `json:"kind"`
	Status  Status `json:"status"`
	// Outcome is the business outcome of a final entry, such as "released".
	Outcome string `json:"outcome,omitzero"`

	// Attempts counts failed attempts over the entry's whole life; it only grows.
	Attempts int `json:"attempts"`
	// BudgetFrom is what Attempts was when the entry was last opened.
	BudgetFrom int `json:"budgetFrom,omitzero"`
	// Contentions counts the deferrals by conflicting writes that could not be counted in the message,
	// since the last opening; ContendedFrom is when the first was.
	Contentions   int       `json:"contentions,omitzero"`
	ContendedFrom time.Time `json:"contendedFrom,omitzero"`
	// Throttles counts the attempts that a dependency throttled since the last opening, ThrottledFrom is
	// when the first was. They spend time and no attempt.
	Throttles     int       `json:"throttles,omitzero"`
	ThrottledFrom time.Time `json:"throttledFrom,omitzero"`
	// Redrives is the generation: how often the entry was reopened.
	Redrives int    `json:"redrives,omitzero"`
	Run      string `json:"run,omitzero"`

	// Digest is that of the job's payload, see job.Digest. A delivery with another one is no delivery of
	// this job.
	Digest string `json:"digest,omitzero"`

	// Due is when the job was first meant to take effect, FirstSent when it was first sent.
	Due       time.Time `json:"due,omitzero"`
	FirstSent time.Time `json:"firstSent,omitzero"`
	// Deadline bounds the attempts; zero means no budget by time. It is the entry's own and outranks the
	// message's.
	Deadline time.Time `json:"deadline,omitzero"`
	// TimeBudget is the length of the budget by time, which every opening gives anew.
	TimeBudget time.Duration `json:"timeBudget,omitzero"`
	// RetryAt is the earliest time of the next attempt, zero when nothing failed yet.
	RetryAt time.Time `json:"retryAt,omitzero"`

	LastClass job.Class `json:"lastClass,omitzero"`
	LastError string    `json:"lastError,omitzero"`
	Cause     job.Cause `json:"cause,omitzero"`
	// Fingerprint is what LastError has in common with the same error of other jobs. It is set on
	// isolating.
	Fingerprint string  `json:"fingerprint,omitzero"`
	History     []Event `json:"history,omitzero"`

	// LeaseUntil is when the claim of a running entry ends. A running entry without it is not free.
	LeaseUntil time.Time `json:"leaseUntil,omitzero"`
	// ExpiresAt is the business's own end of the job, after which its effect is not wanted any more;
	// zero when the kind has none.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// ProviderKey is the idempotency key of the external call. It is stored before the first call and
	// never changes.
	ProviderKey string `json:"providerKey,omitzero"`
	// CalledFrom is when the oldest claim whose call may have been accepted was made; zero when no call's
	// outcome is open. No call that may have been accepted is older.
	CalledFrom time.Time `json:"calledFrom,omitzero"`
	// Unresolved says that an external call may have been made whose outcome nobody recorded. Every
	// claim sets it, a recorded outcome clears it, and a claim that finds it set looks first.
	Unresolved bool `json:"unresolved,omitzero"`
	// OpenClaims counts the claims since Unresolved was last clear. It tells a claim that finds itself
	// written, since its answer was lost, whether Unresolved was set before.
	OpenClaims int `json:"openClaims,omitzero"`
	// Evidence is what was learned of external calls, append-only.
	Evidence []Evidence `json:"evidence,omitzero"`
	// Decisions are what people decided of an ambiguous job, append-only. Decided is the one that is
	// still to be spent by a reopening.
	Decisions []Decision   `json:"decisions,omitzero"`
	Decided   DecisionKind `json:"decided,omitzero"`

	// IsolatedMessageID is the message whose delivery isolated the job, IsolatedAt when.
	IsolatedMessageID string    `json:"isolatedMessageId,omitzero"`
	IsolatedAt        time.Time `json:"isolatedAt,omitzero"`
	// IsolatedFirstID is the id of that message's first form, which its attribute carries. Unmarked says
	// that the message has no room for our attribute.
	IsolatedFirstID string `json:"isolatedFirstId,omitzero"`
	Unmarked        bool   `json:"unmarked,omitzero"`

	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	FinalAt   time.Time `json:"finalAt,omitzero"`
	// TTL is when DynamoDB may delete the entry. Every write moves it on. Conditions never read it.
	TTL time.Time `json:"ttl,omitzero"`

	// Owner is the token of the delivery that wrote last; Version counts the writes.
	Owner   string `json:"owner,omitzero"`
	Version int64  `json:"version"`
}

func (e Entry) note(ev Event) Entry {
	// A fresh slice: the caller's entry keeps its own history.
	h := append(append(make([]Event, 0, len(e.History)+1), e.History...), ev)
	e.History = h[max(0, len(h)-MaxHistory):]
	return e
}

// Memory is what a message on its way to the DLQ tells of the entry.
func (e Entry) Memory(m job.Memory) job.Memory {
	m.Attempt, m.Redrives, m.Run = e.Attempts, e.Redrives, e.Run
	m.Class, m.Cause, m.Error, m.At = e.LastClass, e.Cause, e.LastError, e.IsolatedAt
	m.Fingerprint = e.Fingerprint
	return m
}

// IsolatedJob is what an overview needs of an isolated entry.
type IsolatedJob struct {
	Key         string       `json:"key"`
	Subject     string       `json:"subject"`
	Kind        string       `json:"kind"`
	Class       job.Class    `json:"class"`
	Cause       job.Cause    `json:"cause"`
	Fingerprint string       `json:"fingerprint,omitzero"`
	At          time.Time    `json:"at"`
	MessageID   string       `json:"messageId"`
	Redrives    int          `json:"redrives,omitzero"`
	Decided     DecisionKind `json:"decided,omitzero"`
}
