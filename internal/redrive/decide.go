package redrive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Action is what becomes of one message.
type Action string

// The actions. Only Redrive, Remove and Copy touch a message, all others leave it where it is.
const (
	// Redrive: reopen the entry and send the job to the recovery lane.
	Redrive Action = "redrive"
	// Remove: the job is final already; its message is deleted, with audit.
	Remove Action = "remove"
	// Late: past what its kind's late policy allows; kept until it is discarded.
	Late Action = "late"
	// Unsure: its entry could not be read.
	Unsure Action = "unsure"
	// Expired: nobody wants its effect any more, by what its payload or its entry says; kept until it is
	// discarded.
	Expired Action = "expired"
	// Never: malformed, or of a kind that this version does not know; redriven only when named by id, with an approval.
	Never Action = "never"
	// NeedsDecision: ambiguous, and nobody decided.
	NeedsDecision Action = "needs-decision"
	// InProgress: a live lease holds the job.
	InProgress Action = "in-progress"
	// Limit: redriven as often as is allowed; named by id and with an approval it may go once more.
	Limit Action = "generation-limit"
	// Foreign: not one of our messages.
	Foreign Action = "foreign"
	// Copy: another message of the same job, with the same payload, goes first; this one is deleted.
	Copy Action = "copy"
	// Conflict: another payload under the key of another job.
	Conflict Action = "conflict"
	// Drift: the entry is not as the plan saw it, and not for the run to judge.
	Drift Action = "drift"
)

// acts says whether a run does anything with a message of the action.
func (a Action) acts() bool { return a == Redrive || a == Remove || a == Copy }

// candidate is a message on the DLQ, joined with what the ledger knows of its job.
type candidate struct {
	memory job.Memory
	// read is the body; readErr why it cannot be read. Bodies of convicted jobs are not read.
	read    job.Decoded
	readErr error
	entry   ledger.Entry
	// lookErr is why the entry could not be read.
	lookErr error
	// noRoom says that the message has no memory, and no room for one.
	noRoom bool
	// replaced says that the body is not the one that the message failed with, but one that needs an approval.
	replaced bool
}

// discarded says whether a discard ended the job.
func (c candidate) discarded() bool {
	return c.entry.Status == ledger.Terminal && c.entry.Outcome == ledger.OutcomeDiscarded
}

// digest tells two payloads under one key apart, as the ledger does. Of a body that is not decoded it is the
// body's own.
func (c candidate) digest(body string) string {
	if c.readErr == nil {
		if digest, err := job.Digest(c.read.Envelope.Payload, c.read.Kind.Volatile); err == nil {
			return digest
		}
	}
	sum := sha256.Sum256([]byte(body))
	return "body:" + hex.EncodeToString(sum[:16])
}

// class and cause are the ledger's while the entry is isolated, else the message's own words where it
// has any.
func (c candidate) class() job.Class {
	switch {
	case c.entry.Status == ledger.Isolated && c.entry.LastClass != "":
		return c.entry.LastClass
	case c.memory.Class != "":
		return c.memory.Class
	case c.entry.LastClass != "":
		return c.entry.LastClass
	case c.readErr != nil && c.memory != (job.Memory{}):
		return job.AsFailure(c.readErr).Class
	}
	return job.ClassUnknown
}

func (c candidate) cause() job.Cause {
	switch {
	case c.memory.Cause == job.CauseGeneration, c.memory.Cause == job.CauseConflict: // which the message alone says
		return c.memory.Cause
	case c.entry.Status == ledger.Isolated && c.entry.Cause != "":
		return c.entry.Cause
	case c.memory.Cause != "":
		return c.memory.Cause
	}
	return job.CauseReceives
}

// generation is how often the job was redriven. The ledger outranks the message.
func (c candidate) generation() int {
	if c.entry.Version > 0 {
		return c.entry.Redrives
	}
	return c.memory.Redrives
}

// conflicts says whether the message's payload is not that of its job.
func (c candidate) conflicts() bool {
	if c.readErr != nil || c.entry.Digest == "" {
		return c.cause() == job.CauseConflict
	}
	digest, err := job.Digest(c.read.Envelope.Payload, c.read.Kind.Volatile)
	return err == nil && c.entry.Conflict(digest) != nil
}

// decide says what becomes of a message. named says that it was selected by its id, with which an
// approver may let pass what is otherwise kept; guard then says what for.
func (c candidate) decide(named bool, maxRedrives int, now time.Time) (a Action, why, guard string) {
	e := c.entry
	keyless := c.read.Key == ""
	switch {
	case c.lookErr != nil:
		return Unsure, cannotRead + job.SafeText(c.lookErr.Error()), ""
	case keyless && c.memory.Class != job.Crashed && c.memory == (job.Memory{}):
		return Foreign, "neither a job nor a message of the worker's", ""
	case c.replaced && e.Unresolved:
		return NeedsDecision, "an external call was made with the old body, and nobody knows how it ended", ""
	case c.conflicts() && !c.replaced:
		return Conflict, "its payload is not that of the job with its key: discard it by id", ""
	case c.conflicts() && e.Status.Final():
		return Conflict, "its job ended with another payload: " + string(e.Status) + ", " + e.Outcome, ""
	case e.Status.Final():
		return Remove, "the job is final: " + string(e.Status) + ", " + e.Outcome, ""
	case e.Status == ledger.Running && !e.Free(now):
		return InProgress, "a delivery holds its lease until " + stamp(e.LeaseUntil), ""
	case c.class() == job.Ambiguous && (e.Version == 0 || e.Status == ledger.Isolated && e.Decided != ledger.NotSent):
		return NeedsDecision, "nobody knows whether it took effect: decide it first", ""
	case !keyless && c.read.Kind.Late == job.ExpireLate && past(c.read.Envelope.Deadline, now):
		return Late, "its deadline was " + stamp(c.read.Envelope.Deadline), ""
	case !keyless && past(c.read.ExpiresAt, now):
		return Expired, "it expired at " + stamp(c.read.ExpiresAt), ""
	case past(e.ExpiresAt, now) && !c.replaced:
		return Expired, "it expired at " + stamp(e.ExpiresAt), ""
	case c.class() == job.Invalid || c.readErr != nil && job.AsFailure(c.readErr).Class == job.Invalid:
		if !named {
			return Never, "it is malformed, and will be again", ""
		}
		return Redrive, "named by id", "it is malformed"
	case c.readErr != nil && c.memory.Class != job.Crashed:
		if !named {
			return Never, "its kind is not known to this version", ""
		}
		return Redrive, "named by id", "its kind is not known to this version"
	case (e.Version == 0 || e.Status == ledger.Isolated) && c.generation() >= maxRedrives:
		why = fmt.Sprintf("it was redriven %d times", c.generation())
		if !named {
			return Limit, why, ""
		}
		return Redrive, "named by id", why
	}
	if c.noRoom && e.Status != ledger.Isolated {
		guard = "jobs whose message has no room for a record of why it was isolated, and whose entry does not say it"
	}
	switch {
	case keyless:
		return Redrive, "it has no entry; the worker reads it again", guard
	case e.Version == 0:
		return Redrive, "the ledger does not know it yet", guard
	case e.Status != ledger.Isolated && c.cause() == job.CauseSchedule:
		return Redrive, job.SafeText(c.memory.Error), guard
	case e.Status != ledger.Isolated:
		return Redrive, "its entry is open, perhaps by a send that was not confirmed", guard
	}
	return Redrive, "it is isolated", guard
}

func past(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// cannotRead begins the reason of a message whose entry, or whose strikes, cannot be read.
const cannotRead = "its entry cannot be read: "

// Ending is what became of a message of a plan.
type Ending string

// The endings.
const (
	// Succeeded: the job is final, its effect made or not wanted any more.
	Succeeded Ending = "succeeded"
	// Again: it failed and is isolated again, under a new message.
	Again Ending = "isolated again"
	// TooLate: the job expired before it ran.
	TooLate Ending = "expired"
	// TakenOver: another run, or a message put back by hand, took the open job over. What became of it is not this
	// run's to tell.
	TakenOver Ending = "taken over"
	// Retrying: attempts failed, and the worker goes on trying.
	Retrying Ending = "still retrying"
	// Removed: the job was final already; its message was deleted.
	Removed Ending = "removed"
	// Copied: another message of the same job was sent; this one was deleted.
	Copied Ending = "removed as a copy"
	// Skipped: left on the DLQ, because the ledger says so by now, or because its entry cannot be decoded.
	Skipped Ending = "skipped"
	// Gone: not on the DLQ any more, and not by this run.
	Gone Ending = "gone"
	// Unjudged: sent, and the ledger cannot tell what became of it: it has no key, or its entry cannot be decoded.
	Unjudged Ending = "sent, not judged"
)

// allEndings are all of them.
var allEndings = []Ending{Succeeded, Again, TooLate, TakenOver, Retrying, Removed, Copied, Skipped, Gone, Unjudged}

// well says whether the ending is one that was wanted.
func (e Ending) well() bool { return e == Succeeded || e == Removed || e == Copied }

// failed says whether a redriven job did not succeed, up to now.
// One that expired says nothing about what it would have met.
func (e Ending) failed() bool { return e == Again || e == Retrying || e == Unjudged }

// open says whether the ledger may still say something else.
func (e Ending) open() bool { return e == "" || e == Retrying || e == Unjudged }

// judge says what became of a job that a run sent; nothing while it has not run. generation is what
// the run made of it. A throttled attempt is no ending: it asks for patience.
func judge(e ledger.Entry, run string, generation int) (ending Ending, why string, throttled bool) {
	switch {
	case e.Version == 0 || e.Redrives < generation && !e.Status.Final() && e.Status != ledger.Isolated:
		return "", "", false
	case e.Redrives > generation: // only an isolated entry is reopened
		return Again, "isolated again, and brought back since", false
	case e.Status != ledger.Isolated && e.Run == "": // a revocation had given its generation back
		return TakenOver, "its message was put back by hand", false
	case e.Status != ledger.Isolated && e.Run != run: // it was open, so the generation stayed the same
		return TakenOver, "by run " + e.Run, false
	case e.Status == ledger.Expired:
		return TooLate, "it expired", false
	case e.Status.Final():
		return Succeeded, string(e.Status), false
	case e.Status == ledger.Isolated:
		return Again, string(e.LastClass) + ", " + string(e.Cause) + ": " + e.LastError, false
	case e.LastClass == job.Throttled && e.Throttles > 0:
		return "", "throttled", true
	case e.Attempts > e.BudgetFrom:
		return Retrying, fmt.Sprintf("%d attempts failed, the last %s: %s", e.Attempts-e.BudgetFrom, e.LastClass, e.LastError), false
	}
	return "", "", false
}
