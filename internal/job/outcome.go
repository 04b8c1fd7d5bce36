package job

import (
	"errors"
	"fmt"
	"time"
)

// Class says what kind of failure stopped a job.
type Class string

// The failure classes. ClassUnknown is an error that nobody classified.
const (
	Transient    Class = "transient"
	Throttled    Class = "throttled"
	ClassUnknown Class = "unknown"
	Invalid      Class = "invalid"
	Rejected     Class = "rejected"
	Ambiguous    Class = "ambiguous"
	Crashed      Class = "crashed"
)

// Retryable says whether another attempt may succeed without help from people.
func (c Class) Retryable() bool {
	return c == Transient || c == Throttled || c == ClassUnknown
}

// Cause says why a job was isolated.
type Cause string

// The causes. CauseConflict is a delivery whose payload differs from its job's. CauseReceives is a message that SQS itself moved,
// CauseSchedule one that EventBridge Scheduler could not send.
const (
	CausePermanent  Cause = "permanent"
	CauseAttempts   Cause = "attempts"
	CauseTime       Cause = "time"
	CauseContention Cause = "contention"
	CauseConflict   Cause = "conflict"
	CauseAmbiguous  Cause = "ambiguous"
	CauseCrash      Cause = "crash"
	CauseGeneration Cause = "generation"
	CauseRevoked    Cause = "revoked"
	CauseReceives   Cause = "receives"
	CauseSchedule   Cause = "schedule"
)

// CauseOf returns the cause of an isolation that does not depend on a budget.
func CauseOf(c Class) Cause {
	switch c {
	case Ambiguous:
		return CauseAmbiguous
	case Crashed:
		return CauseCrash
	}
	return CausePermanent
}

// Outcome is the result of one delivery. Every delivery has exactly one.
type Outcome string

// The outcomes.
const (
	// Acknowledged: the effect was committed now, or found final in the ledger.
	Acknowledged Outcome = "acknowledged"
	// Retried: a failed attempt was recorded and the job sent to the recovery lane with a delay.
	Retried Outcome = "retried"
	// Deferred: not due, held by another delivery, contended, or the ledger cannot be reached; sent to a
	// lane, no attempt spent.
	Deferred Outcome = "deferred"
	// Isolated: recorded and sent to the DLQ.
	Isolated Outcome = "isolated"
	// Left: nothing could be confirmed; SQS delivers it again.
	Left Outcome = "left"
)

// LatePolicy says what a kind does with a job past its deadline.
type LatePolicy int

const (
	// RunLate runs the job, late.
	RunLate LatePolicy = iota
	// ExpireLate ends the job as expired, without running it.
	ExpireLate
)

// Failure is an error with a class. An error that is not a Failure counts as ClassUnknown.
type Failure struct {
	Class Class
	// RetryAfter is the dependency's own lower bound for the next attempt, zero if it gave none.
	RetryAfter time.Duration
	// Unresolved says that the external call may have taken effect in spite of the error. The next attempt then
	// has to find out first. It is set for every error without a class.
	Unresolved bool
	// NoCall says that the failed attempt made no external call itself. So Unresolved is about an earlier one.
	NoCall bool
	Err    error
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// AsFailure returns err as a Failure; an error without a class gets ClassUnknown.
func AsFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return &Failure{Class: f.Class, RetryAfter: f.RetryAfter, Unresolved: f.Unresolved, NoCall: f.NoCall, Err: err}
	}
	return &Failure{Class: ClassUnknown, Unresolved: true, Err: err}
}

func invalid(format string, args ...any) *Failure {
	return &Failure{Class: Invalid, Err: fmt.Errorf(format, args...)}
}

// InvalidPayload is a Failure of class Invalid, for kinds that check their payload.
func InvalidPayload(format string, args ...any) *Failure { return invalid(format, args...) }

// Verdict is the result of a kind's attempt; the worker turns it into an outcome.
type Verdict int

const (
	// Failed: the attempt failed, and Err says how. It is the zero value, so that an empty Result never means
	// success.
	Failed Verdict = iota
	// Committed: the effect is durable, and was made durable by this delivery.
	Committed
	// Duplicate: the entry was already final.
	Duplicate
	// Blocked: no attempt was made, because the job is not due, another delivery holds it, or the tables are
	// contended. The job is deferred.
	Blocked
	// FoundIsolated: the entry is isolated; the worker compares the delivery with it.
	FoundIsolated
	// Unconfirmed: the ledger's own trouble; whether anything happened is unknown. The delivery
	// is handed back.
	Unconfirmed
)

// Result is the result of one run of a kind.
type Result struct {
	Verdict Verdict
	// Detail is the business outcome that was written with the entry, such as "released".
	Detail string
	// Expired says of a Committed job that it ended without its effect, because that is not wanted any more.
	Expired bool
	// UnusedClaim says that the delivery may still hold the job's claim, and made no call under it.
	UnusedClaim bool
	// ClaimTakenBack says that the claim that the delivery's Memory names as unused no longer stands.
	ClaimTakenBack bool
	// Until is when a Blocked job may be tried again; zero means soon.
	Until time.Time
	// Err says why, for every verdict but Committed and Duplicate.
	Err error
}

// asInvalid gives an error the class Invalid, unless it already has a class.
func asInvalid(err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return err
	}
	return &Failure{Class: Invalid, Err: err}
}
