package acklast

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Rejected returns an error that isolates the job at once: a required record is missing or does not match.
// People redrive the job after the data or the code is mended.
func Rejected(format string, args ...any) error {
	return &job.Failure{Class: job.Rejected, Err: fmt.Errorf(format, args...)}
}

// Transient returns the error of an attempt that may succeed later, such as a time-out of a dependency.
func Transient(err error) error { return &job.Failure{Class: job.Transient, Err: stated(err)} }

// Throttled returns the error of an attempt that a dependency refused for now. The next attempt is not made
// before the given time has passed. With zero the backoff alone decides.
func Throttled(err error, retryAfter time.Duration) error {
	return &job.Failure{Class: job.Throttled, RetryAfter: retryAfter, Err: stated(err)}
}

// stated replaces a missing error, because a failure has to have one.
func stated(err error) error {
	if err == nil {
		return errors.New("no error was given")
	}
	return err
}

// NotBefore returns the error of a run that made no attempt, because the job must not run before t. It costs no
// attempt.
func NotBefore(t time.Time, why string) error {
	return fmt.Errorf("%s: %w", why, &ledger.NotYetError{Until: t})
}

// Contended returns the error of a run that made no attempt, because its records kept changing. It costs no
// attempt, and the job is tried again soon.
func Contended(why string) error { return fmt.Errorf("%s: %w", why, ledger.ErrContended) }

// DynamoDBError translates the error of a DynamoDB call of your own for the worker. Throttling, a time-out or
// an outage is the database's trouble and not the job's: it costs no attempt. A conflict with another write
// counts as Contended. Look for a failed condition before you call this.
func DynamoDBError(err error) error {
	translated := dynamo.Translate(err)
	if condition := (*dynamo.ConditionError)(nil); errors.As(translated, &condition) {
		return err
	}
	return translated
}

// Invalid returns the error of a payload that can never be read, for a Definition's Check.
func Invalid(format string, args ...any) error { return job.InvalidPayload(format, args...) }

// CheckID says whether an id of a payload can be part of a key: 1 to 256 bytes of UTF-8, not blank,
// without control characters. The error names the field.
func CheckID(field, id string) error { return job.CheckID(field, id) }
