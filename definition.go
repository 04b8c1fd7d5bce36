package acklast

import (
	"time"

	"acklast/internal/job"
)

// Definition describes a kind whose payloads are decoded into P, a struct of plain types with json tags.
// Name and Key are required. The rest may be left zero.
type Definition[P any] struct {
	// Name is the envelope's kind, such as "reservation.expire".
	Name string
	// Key returns the parts of the job's key behind the kind's name. People ask by the subject, such as a
	// reservation's id. Make a key of business fields, which are the same however often the job is sent, and
	// never of a message id, a random number or a time of sending.
	Key func(P) (subject string, rest []string)
	// Check returns what is wrong with a decoded payload; Invalid and CheckID make the error. A job that
	// fails the check is isolated at once. Nil checks nothing.
	Check func(P) error
	// ExpiresAt returns the time from which the effect is not wanted any more. An Effect that has not begun by
	// then ends as expired. A Runner of your own reads Job.ExpiresAt. Nil, and the zero time, mean never.
	ExpiresAt func(P) time.Time
	// Late says whether a job past its deadline still runs.
	Late LatePolicy
	// Volatile are the payload's top-level fields that may differ between two copies of one job, such as the
	// time of sending. A copy that differs elsewhere is another job under the same key, and is isolated.
	Volatile []string
	// Masked are the payload's top-level fields that are never shown, such as a recipient. Errors of your code and of
	// the kind's checks are logged and kept without their values, if these have four bytes or more.
	Masked []string
	// Attempts bounds the attempts of one job. A zero field is the stack's own number.
	Attempts Attempts
	// PerSecond bounds the attempts a second, such as by a provider's quota; zero means no bound. It is best
	// effort. Each process keeps to its share, which is PerSecond divided by the caps of both lanes, so a few
	// processes stay below the bound. A wrong clock or a new process may exceed it for a moment. With or
	// without a bound, a kind that a dependency throttles slows down by itself.
	PerSecond float64
	// Tables are the tables that belong to the kind. The stack creates them.
	Tables []Table
	// Metrics are the metrics that Job.Metric records.
	Metrics []Metric
	// Environment are the variables that the kind reads by Services.Getenv.
	Environment []Variable
	// Samples show what the kind's jobs look like. CheckKind delivers them.
	Samples []Sample
	// Grants returns what the worker may do for the kind in an environment. Its error says what is wrong with
	// that environment. While a stack is made, it has the kinds' variables and the worker's own. Nil grants nothing.
	Grants func(getenv func(string) string) ([]Grant, error)
}

// The parts of a Definition and of a Description.
type (
	// Table is a DynamoDB table of a kind: Name, which follows the stack's name and a hyphen in the table's
	// physical name; PartitionKey and SortKey, the names of its keys, which are strings, of which the latter
	// may be empty; and TTL, the attribute that holds the expiry in Unix seconds, empty for none.
	Table = job.Table
	// Grant is what the worker may do for a kind: IAM Actions such as "dynamodb:UpdateItem", on a Table of
	// the kind by its Name, or on a Resource, an ARN in which {partition}, {region} and {account} stand for
	// the stack's own. Exactly one of Table and Resource is set.
	Grant = job.Grant
	// Metric is a metric that a kind's runs record with Job.Metric: its Name, which is 1 to 64 ASCII letters
	// and digits and begins with a capital, its Unit, and Help in one line. A kind may have 20; every one of
	// them is billed by CloudWatch.
	Metric = job.Metric
	// Unit is the unit of a metric's values: Count, Milliseconds, Bytes, Percent or NoUnit.
	Unit = job.Unit
	// Variable is an environment variable that a kind reads: its Name, Help in one line, and Setting, the name of the
	// setting with which infra/, the CDK app of this repository, sets it, such as "providerUrl"; empty for none.
	Variable = job.Variable
	// Sample is the Body of a job that shows what a kind's jobs look like, under a Name that is unique among
	// the kind's samples and usable as a file name, without an extension. Define fills in Key, the key of
	// that job; it stays empty if the kind cannot read the body.
	Sample = job.Sample
	// Attempts bounds a kind's attempts: how many at Most since the job was last opened, BackoffBase and
	// BackoffCap for the delay between two of them, and the Time of one. A zero field is the stack's own
	// number.
	Attempts = job.Attempts
	// LatePolicy says whether a job past its deadline still runs: RunLate or ExpireLate.
	LatePolicy = job.LatePolicy
	// Description describes a kind without a client and without an environment. It is plain data: Name, Late,
	// Volatile, Masked, Attempts, PerSecond, Tables, Metrics, Environment and Samples, with the meaning that
	// they have in the kind's Definition.
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
