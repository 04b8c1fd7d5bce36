package ledger

import (
	"time"

	"acklast/internal/job"
)

// Status is an entry's state.
type Status string

// The statuses. Done, Expired and Terminal are final.
const (
	// Pending: the job may run; attempts may have failed.
	Pending Status = "pending"
	// Running: a delivery has claimed the job and holds its lease.
	Running Status = "running"
	// Isolated: recorded as isolated; its message is on the DLQ or on its way there.
	Isolated Status = "isolated"
	// Done: the effect happened, or was found to be unwanted.
	Done Status = "done"
	// Expired: the time of the job passed before it ran.
	Expired Status = "expired"
	// Terminal: the business refused the effect for good.
	Terminal Status = "terminal"
)

// Final says whether the status cannot change any more.
func (s Status) Final() bool { return s == Done || s == Expired || s == Terminal }

// Format is the format in which entries are stored. Only a newer version of this program can read an entry of a
// newer format: see job.NewerError.
const Format = 1

// MaxHistory is how many events an entry keeps; older ones are dropped.
const MaxHistory = 20

// maxEventError is the most bytes of an error's text that an event keeps. Its beginning is enough to tell it
// from others. LastError has the last error completely. Each write costs by the entry's size.
const maxEventError = 100

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventFailed   EventKind = "failed"
	EventIsolated EventKind = "isolated"
	EventReopened EventKind = "reopened"
	// EventWaits: the job waits until a look-up can tell how an earlier call ended.
	EventWaits EventKind = "waits"
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

// Entry is the ledger's record of one job. An entry with Version 0 does not exist yet.
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
	// Contentions counts the deferrals by conflicting writes since the last opening that could not be counted
	// in the message; ContendedFrom is the time of the first.
	Contentions   int       `json:"contentions,omitzero"`
	ContendedFrom time.Time `json:"contendedFrom,omitzero"`
	// Throttles counts the attempts that a dependency throttled since the last opening; ThrottledFrom is the
	// time of the first. They count against the time budget, not against the number of attempts.
	Throttles     int       `json:"throttles,omitzero"`
	ThrottledFrom time.Time `json:"throttledFrom,omitzero"`
	// Redrives is the generation: how often the entry was reopened.
	Redrives int    `json:"redrives,omitzero"`
	Run      string `json:"run,omitzero"`

	// Digest is the digest of the job's payload, see job.Digest. A delivery with another digest is not a
	// delivery of this job.
	Digest string `json:"digest,omitzero"`

	// Due is when the job was first meant to take effect, FirstSent when it was first sent.
	Due       time.Time `json:"due,omitzero"`
	FirstSent time.Time `json:"firstSent,omitzero"`
	// Deadline bounds the attempts; zero means no budget by time. It is the entry's own and outranks the
	// message's.
	Deadline time.Time `json:"deadline,omitzero"`
	// TimeBudget is the length of the budget by time. Every opening starts it again.
	TimeBudget time.Duration `json:"timeBudget,omitzero"`
	// RetryAt is the earliest time of the next attempt; zero before the first failure.
	RetryAt time.Time `json:"retryAt,omitzero"`

	// ScheduledUntil is the latest due time for which a schedule may bring the job's message back, ScheduleName the
	// schedule that was made last. The entry outlives that time, whatever becomes of the job before.
	ScheduledUntil time.Time `json:"scheduledUntil,omitzero"`
	ScheduleName   string    `json:"scheduleName,omitzero"`

	LastClass job.Class `json:"lastClass,omitzero"`
	LastError string    `json:"lastError,omitzero"`
	Cause     job.Cause `json:"cause,omitzero"`
	// Fingerprint is the part of LastError that is the same for other jobs. It is set on isolating.
	Fingerprint string  `json:"fingerprint,omitzero"`
	History     []Event `json:"history,omitzero"`

	// LeaseUntil is when the claim of a running entry ends. A running entry without it is not free.
	LeaseUntil time.Time `json:"leaseUntil,omitzero"`
	// ExpiresAt is the time from which the business does not want the effect; zero for never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// ProviderKey is the idempotency key of the external call. It is stored before the first call and
	// never changes.
	ProviderKey string `json:"providerKey,omitzero"`
	// CalledFrom is the time of the oldest claim whose call may have been accepted without a known outcome;
	// zero if there is none. No such call is older.
	CalledFrom time.Time `json:"calledFrom,omitzero"`
	// CalledUntil is the time at which the last call without a known outcome was over for its caller: its failure was
	// recorded, or its claim's lease ended. Its request may still be on its way then. Zero if there is no such call,
	// or if its claim has not ended.
	CalledUntil time.Time `json:"calledUntil,omitzero"`
	// Unresolved says that an external call may have been made without a recorded outcome. Every claim sets it,
	// a recorded outcome clears it, and a claim that finds it set looks the call up first.
	Unresolved bool `json:"unresolved,omitzero"`
	// OpenClaims counts the claims since Unresolved was last clear. A claim whose answer was lost finds its own
	// write. The count then shows whether Unresolved was set before it. Release needs it, too: a claim under which no
	// call was made leaves Unresolved set only if an earlier claim set it.
	OpenClaims int `json:"openClaims,omitzero"`
	// Evidence is everything that deliveries learnt about external calls, append-only.
	Evidence []Evidence `json:"evidence,omitzero"`
	// Decisions are people's decisions about an ambiguous job, append-only. Decided is the decision that the
	// next reopening uses up.
	Decisions []Decision   `json:"decisions,omitzero"`
	Decided   DecisionKind `json:"decided,omitzero"`

	// IsolatedMessageID is the message whose delivery isolated the job, IsolatedAt when. A job that a run has opened keeps
	// IsolatedAt and IsolatedFirstID, because its message is still on the DLQ if it was not sent.
	IsolatedMessageID string    `json:"isolatedMessageId,omitzero"`
	IsolatedAt        time.Time `json:"isolatedAt,omitzero"`
	// IsolatedFirstID is the id of that message's first form, which its attribute carries. Unmarked says that
	// the message has no room for our attribute.
	IsolatedFirstID string `json:"isolatedFirstId,omitzero"`
	Unmarked        bool   `json:"unmarked,omitzero"`

	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	FinalAt   time.Time `json:"finalAt,omitzero"`
	// TTL is the time at which DynamoDB may delete the entry. Every write moves it on. Conditions never read
	// it.
	TTL time.Time `json:"ttl,omitzero"`

	// Owner is the token of the delivery that wrote last; Version counts the writes.
	Owner   string `json:"owner,omitzero"`
	Version int64  `json:"version"`
}

func (e Entry) note(ev Event) Entry {
	// A fresh slice: the caller's entry keeps its own history.
	ev.Error = job.Shorten(ev.Error, maxEventError)
	h := append(append(make([]Event, 0, len(e.History)+1), e.History...), ev)
	e.History = h[max(0, len(h)-MaxHistory):]
	return e
}

// Memory returns the memory of a message on its way to the DLQ, with the entry's history. It names the key of a job
// that kills the process, because nobody should have to read that job's body.
func (e Entry) Memory(m job.Memory) job.Memory {
	m.Attempt, m.Redrives, m.Run = e.Attempts, e.Redrives, e.Run
	m.Class, m.Cause, m.Error, m.At = e.LastClass, e.Cause, e.LastError, e.IsolatedAt
	m.Fingerprint = e.Fingerprint
	if m.Key = ""; e.LastClass == job.Crashed {
		m.Key = e.Key
	}
	return m
}

// IsolatedJob holds the fields of an isolated entry that an overview shows. If a newer version wrote the entry, only
// Key, Subject, At and Newer are known.
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
	// Newer is the entry's format if it is newer than Format.
	Newer int `json:"newer,omitzero"`
}

// Readable returns a *job.NewerError if a newer version wrote the entry.
func (j IsolatedJob) Readable() error {
	if j.Newer == 0 {
		return nil
	}
	return &job.NewerError{What: "entry " + j.Key, Format: j.Newer, Known: Format}
}
