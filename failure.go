package acklast

import (
	"errors"
	"fmt"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Rejected returns an error that isolates the job at once: a required record is missing or does not
// match. People redrive it once data or code are mended.
func Rejected(format string, args ...any) error {
	return &job.Failure{Class: job.Rejected, Err: fmt.Errorf(format, args...)}
}

// Transient returns the error of an attempt that may succeed later, such as a time-out of a dependency.
func Transient(err error) error { return &job.Failure{Class: job.Transient, Err: err} }

// Throttled returns the error of an attempt that a dependency refused for now. The next attempt is not
// made before the given time has passed; zero leaves it to the backoff.
func Throttled(err error, retryAfter time.Duration) error {
	return &job.Failure{Class: job.Throttled, RetryAfter: retryAfter, Err: err}
}

// NotBefore returns the error of a run that attempted nothing, because the job is not to run before t.
// It spends no attempt.
func NotBefore(t time.Time, why string) error {
	return fmt.Errorf("%s: %w", why, &ledger.NotYetError{Until: t})
}

// Contended returns the error of a run that attempted nothing, because its records kept changing. It
// spends no attempt and is tried again soon.
func Contended(why string) error { return fmt.Errorf("%s: %w", why, ledger.ErrContended) }

// DynamoDBError returns what the error of a DynamoDB call of your own means to the worker. Throttling, a
// time-out or an outage is the database's trouble and not the job's: it spends no attempt. A conflict with
// another write counts as Contended. Look for a failed condition before you call this.
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

// Table, Grant, Metric, Variable, Sample, Attempts and LatePolicy are parts of a Definition.
type (
	// Table is a DynamoDB table of a kind: Name, which follows the stack's name and a hyphen;
	// PartitionKey and SortKey, which are strings; and TTL, the attribute with the expiry in seconds.
	Table = job.Table
	// Grant is what the worker may do for a kind: Actions such as "dynamodb:UpdateItem" on a Table of
	// the kind, by its Name, or on a Resource, an ARN in which {partition}, {region} and {account} stand
	// for the stack's own.
	Grant = job.Grant
	// Variable is an environment variable that a kind reads: its Name, and Help in one line.
	Variable = job.Variable
	// Sample is the Body of a job that shows what a kind's jobs look like, under a Name.
	Sample = job.Sample
	// Attempts bounds a kind's attempts: how many at Most, BackoffBase and BackoffCap between them, and
	// the Time of one. A zero field is the stack's own number.
	Attempts = job.Attempts
	// Metric is a metric that a kind's runs record with Job.Metric: its Name, which is 1 to 64 ASCII letters
	// and digits and begins with a capital, its Unit, and Help in one line. A kind may have 20; every one of
	// them is billed by CloudWatch.
	Metric = job.Metric
	// Unit is the unit of a metric's values: Count, Milliseconds, Bytes, Percent or NoUnit.
	Unit = job.Unit
	// LatePolicy says what becomes of a job past its deadline: RunLate or ExpireLate.
	LatePolicy = job.LatePolicy
	// Description is what is known of a kind without a client and without an environment.
	Description = job.Description
)

// The late policies.
const (
	// RunLate runs the job, late. It is the zero value.
	RunLate = job.RunLate
	// ExpireLate ends the job as expired, without running it.
	ExpireLate = job.ExpireLate
)

// The units of metrics.
const (
	Count        = job.Count
	Milliseconds = job.Milliseconds
	Bytes        = job.Bytes
	Percent      = job.Percent
	// NoUnit is a plain number, such as an amount of money.
	NoUnit = job.NoUnit
)

// Describe returns the kinds' descriptions.
func Describe(kinds ...Kind) []Description {
	all := make([]Description, len(kinds))
	for i, k := range kinds {
		all[i] = k.kind.Description
	}
	return all
}
