// Package soak checks the record of a long run with faults against the promises of the system.
//
// A History is what outside observers saw: the sender, the proxies between the functions and AWS, the answers of
// the worker, the provider, and the tables and the DLQ after everything was drained. Check is pure. It trusts no
// log and no counter of the system under test, and it knows no case that it may not judge.
//
// The order of events is that of one counter. An operation began at one value of it and ended at another, so
// two operations that overlap have no order, and no rule relies on one. Only what is about a job's due time compares
// times, and allows for the clocks that a run steps.
package soak

// Moment is a value of the counter that orders all events.
type Moment int64

// History is everything that was seen.
type History struct {
	Sent       []Sent
	Mended     []Mended
	Deliveries []Delivery
	Deletes    []Delete
	Moves      []Move
	// Removed are the marks of the messages that redrives deleted from the DLQ.
	Removed []string
	// Discarded are the messages that a discard deleted from the DLQ.
	Discarded []Form
	// Unwanted are by key the jobs that people asked to end when the provider had accepted nothing yet.
	Unwanted  map[string]bool
	Schedules []Schedule
	Writes    []Write
	// Seen has by key the first moment at which an answer had shown the worker that the entry is final. A commit may be
	// seen by others before its own answer arrives.
	Seen map[string]Moment
	// Created tells when messages came to be, by their ids, as far as Sent and Moves do not tell. Such messages are
	// those that people put back, that a schedule sent, and whose sender got no answer.
	Created map[string]Moment
	// Accepted counts the messages that the provider accepted, by provider key.
	Accepted map[string]int
	Entries  map[string]Entry
	DLQ      []OnDLQ
	// Waiting are the marks of the messages that a schedule or a lane still holds.
	Waiting map[string]bool
	// Balances are the resources at the end.
	Balances map[string]Balance
	Runs     []Run
	// Skew is by how many milliseconds a worker's clock may be wrong.
	Skew int64
	// Approvals are by plan the names of those that the answers called its approver.
	Approvals map[string][]string
	// Thrown are the times in which the kill switch was on and no redrive was at work that began before.
	Thrown []Window
}

// Form is a message with one of its bodies.
type Form struct{ Mark, Body string }

// Content is what a message's sender gave it. Attributes holds the sender's attributes, each as type and value.
type Content struct {
	Body       string
	Attributes map[string]string
	Group      string
}

// Sent is one message of a sender. Its mark is a message attribute of the sender's that no other message has,
// so it names the message through every move.
type Sent struct {
	Mark      string
	MessageID string
	At        Moment
	Content
	// Key is the job's key. It is empty if the body cannot be read.
	Key string
	// Digest is that of the payload, by the ledger's rule.
	Digest string
	// Poison says that the job kills its process.
	Poison bool
	// MayExpire says that the job expires before the end of the run.
	MayExpire bool
	// Due is the first moment at which the job may end, in milliseconds since 1970; 0 if it may at once.
	Due int64
}

// Mended is a message with another body that somebody approved, under the mark of the message that it replaces. At is when
// the approval was asked for.
type Mended struct {
	Sent
	// Of is the body that it replaces.
	Of string
}

// Delivery is a message that an invocation got and answered.
type Delivery struct {
	Mark, MessageID, Receipt string
	Content
	// Answered is when the worker answered. Acknowledged says that the answer lets Lambda delete the message.
	Answered     Moment
	Acknowledged bool
}

// Delete is a message that the worker deleted itself. Mark and MessageID are those of the event that gave the worker
// the receipt.
type Delete struct {
	Receipt, Mark, MessageID string
	Began                    Moment
}

// Move is a message that SQS confirmed under its new id. Redriven says that the redrive function sent it.
type Move struct {
	Mark, Queue, MessageID string
	Content
	Began, Ended Moment
	Redriven     bool
}

// Window is a time between two events.
type Window struct{ From, Until Moment }

// Schedule is a confirmed creation, or a sight, of a schedule that holds a message. Body may be empty unless the message was
// mended.
type Schedule struct {
	Mark, Body   string
	Began, Ended Moment
}

// Write is a confirmed write of an entry. A field that the write does not set is empty, and Attempts is then -1.
type Write struct {
	Key          string
	Began, Ended Moment
	// At is when the write began, in milliseconds since 1970.
	At int64
	// Request names the call. The SDK keeps the name when it repeats a call, so writes with one name are one.
	Request string
	// Version is the entry's version after the write; 0 if the write only says that it adds one.
	Version  int
	Status   string
	Final    bool
	Attempts int
	// Claims is the owner's token if the write claims the job.
	Claims string
	// Completes is the token of the delivery that completes a claimed job.
	Completes string
}

// Entry is an entry at the end.
type Entry struct {
	Status, Outcome, Digest string
	Final, Isolated         bool
	Attempts, Redrives      int
	Run                     string
	ProviderKey             string
	// IsolatedFirstID is the first message's id of the delivery that isolated the job.
	IsolatedFirstID string
	Scheduled       bool
	// Unmarked says that the message that was isolated has no room for our attribute, so it does not name itself.
	Unmarked bool
	// Decided says that a person's decision ended the job, whose message stays on the DLQ.
	Decided bool
}

// OnDLQ is a message on the DLQ at the end.
type OnDLQ struct {
	Mark string
	Content
	// HasMemory says that the message carries our own attribute, of which the rest is.
	HasMemory      bool
	FirstID, Class string
	Cause          string
	Copy           bool
}

// Balance is a resource's account at the end.
type Balance struct{ Capacity, Available, Held, Confirmed int64 }

// Run is what a redrive's run said at its end.
type Run struct {
	ID        string
	Succeeded int
	// Named are jobs of which it said that they succeeded, Gone those whose message it did not find any more.
	Named, Gone []string
	// Total is the number of messages of its plan, Endings the number of endings that it told.
	Done           bool
	Total, Endings int
}
