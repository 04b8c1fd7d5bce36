// Package topology holds every name and every number of an acklast system, and checks the
// inequalities between them.
//
// The infrastructure, the CLI, the local environment and the tests all read them here, so that a
// visibility timeout in the template cannot drift away from the one the local environment uses. The
// values are plain; nothing here talks to AWS.
package topology

import (
	"errors"
	"fmt"
	"time"
)

// QueueURLs are the URLs of a stack's queues, or their ARNs if the documentation says so.
type QueueURLs struct{ Source, Recovery, DLQ string }

// Limits that AWS sets; they are facts, not settings.
const (
	// MaxDelay is the longest delay SQS accepts for one message (whole seconds).
	MaxDelay = 900 * time.Second
	// MaxInFlight is about how many received messages SQS keeps invisible at a time in one queue.
	MaxInFlight = 120_000
	// MaxReceiveWait is the longest time that SQS lets a receive wait for messages.
	MaxReceiveWait = 20 * time.Second
	// MaxVisibility is the longest time SQS keeps a received message invisible, in total.
	MaxVisibility = 12 * time.Hour
	// MaxRetention is the longest retention of an SQS queue.
	MaxRetention = 14 * 24 * time.Hour
	// MaxMessageBytes is the largest SQS message, attributes included, and the largest batch.
	MaxMessageBytes = 1 << 20
	// MaxAttributes is the largest number of message attributes Lambda and SQS carry along.
	MaxAttributes = 10
	// MaxSendBatch is the largest number of entries in one SQS batch call.
	MaxSendBatch = 10
	// MaxPayloadBytes is the largest event of one synchronous Lambda invocation.
	MaxPayloadBytes = 6 << 20
	// MinConcurrency is the smallest maximum concurrency of an SQS event source mapping.
	MinConcurrency = 2
	// MaxConcurrency is the largest maximum concurrency of an SQS event source mapping.
	MaxConcurrency = 1000
	// MinMemoryMB is the smallest memory of a function.
	MinMemoryMB = 128
	// MaxMemoryMB is the largest memory of a function.
	MaxMemoryMB = 10_240
	// MaxReceives is the largest maxReceiveCount of a queue.
	MaxReceives = 1000
	// ScheduleMaxAge is how long EventBridge Scheduler tries to send before it gives the input to the DLQ. It is
	// the most that Scheduler allows.
	ScheduleMaxAge = 24 * time.Hour
	// MaxScheduleAhead is how far ahead a job may be due: longer than a year, and within what audits keep.
	MaxScheduleAhead = 400 * 24 * time.Hour
	// MaxAlarmSpan is the longest time that a CloudWatch alarm may look at: period × evaluation periods.
	MaxAlarmSpan = 24 * time.Hour
)

// Names are the physical names of a stack's parts. They follow from the stack's name alone, so no
// look-up service is needed.
type Names struct {
	Stack string

	SourceQueue, RecoveryQueue, DLQ string
	WorkerFunction, RedriveFunction string
	LedgerTable, OperationsTable    string

	// ScheduleGroup holds the schedules of jobs that are due far ahead, SchedulerRole is the role under which they
	// send. Acknowledged jobs live there, so both outlive the stack. A role belongs to the account and not to a
	// region, so the region is added to its name.
	ScheduleGroup, SchedulerRole string
}

// DefaultStack is the stack name when none is given.
const DefaultStack = "acklast"

// MaxStack is the longest name of a stack, so that every name made of it is within AWS's limits. IAM allows 64 characters
// for a role's name, of which the schedules' takes 25: "-scheduler-" and a region.
const MaxStack = 39

// ValidStack says whether a name can be a stack's: it begins with a letter and has letters, digits and hyphens.
func ValidStack(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-') {
			return false
		}
	}
	return name != "" && len(name) <= MaxStack
}

// IsolatedIndex is the ledger's index of isolated entries. Entries that are not isolated are not in it.
const IsolatedIndex = "isolated"

// NamesOf returns the names of the given stack.
func NamesOf(stack string) Names {
	return Names{
		Stack:           stack,
		SourceQueue:     stack + "-source",
		RecoveryQueue:   stack + "-recovery",
		DLQ:             stack + "-dlq",
		WorkerFunction:  stack + "-worker",
		RedriveFunction: stack + "-redrive",
		LedgerTable:     stack + "-ledger",
		OperationsTable: stack + "-operations",
		ScheduleGroup:   stack + "-scheduled",
		SchedulerRole:   stack + "-scheduler",
	}
}

// Table returns the physical name of a table of the stack, such as a kind's own.
func (n Names) Table(name string) string { return n.Stack + "-" + name }

// Table describes one DynamoDB table: its keys (all strings), its index and its TTL attribute.
type Table struct {
	Name         string
	PartitionKey string
	SortKey      string // "" when the table has none
	Index        Index  // the zero Index when the table has none
	TTL          string // attribute holding the expiry in Unix seconds, "" when there is none
}

// Index describes a global secondary index. It holds the keys of the table and of the index, and the
// attributes of Include.
type Index struct {
	Name, PartitionKey, SortKey string
	Include                     []string
}

// Tables lists the tables of the engine. A kind brings its own.
func (n Names) Tables() []Table {
	return []Table{
		{Name: n.LedgerTable, PartitionKey: "subject", SortKey: "key", TTL: "ttl", Index: Index{
			Name: IsolatedIndex, PartitionKey: "isolated_day", SortKey: "isolated_order",
			Include: []string{"format", "kind", "last_class", "cause", "fingerprint", "isolated_at", "isolated_message_id", "redrives", "decided"},
		}},
		{Name: n.OperationsTable, PartitionKey: "pk", SortKey: "sk", TTL: "ttl"},
	}
}

// Settings are the numbers of a system. Times are exact; those that reach SQS or Lambda must be
// whole seconds.
type Settings struct {
	// WorkerTimeout is the worker function's timeout.
	WorkerTimeout time.Duration
	// WorkerMemoryMB is the worker function's memory, in MB.
	WorkerMemoryMB int
	// BatchSize is the most messages in one invocation; above 10 a BatchWindow is required by AWS.
	BatchSize int
	// BatchWindow is how long Lambda gathers a batch. Zero means that a single message is enough to invoke.
	BatchWindow time.Duration
	// LaneVisibility is the visibility timeout of both lanes.
	LaneVisibility time.Duration
	// MaxReceiveCount is how often SQS delivers a message before it moves it to the DLQ itself. Retries and
	// deferrals are new messages and do not spend receives. It is the last resort in outages.
	MaxReceiveCount int
	// SourceConcurrency and RecoveryConcurrency cap the concurrent invocations of each lane.
	SourceConcurrency, RecoveryConcurrency int

	// StartMargin is the least time an invocation must have left for a record to be started.
	StartMargin time.Duration
	// HandoverMargin is the time at the end of an invocation for sending moves and backing off the messages
	// that are left. Attempts are cancelled when it begins.
	HandoverMargin time.Duration

	// MaxAttempts is the budget by count, per opening of an entry.
	MaxAttempts int
	// BackoffBase and BackoffCap bound the delay before the next attempt:
	// min(BackoffCap, BackoffBase·2^(attempt-1)), jittered down to half.
	BackoffBase, BackoffCap time.Duration
	// AttemptTime is the longest time of one attempt; the budget by time keeps room for it.
	AttemptTime time.Duration
	// HopDelay is the longest wait of one hop through the recovery lane, at most MaxDelay.
	HopDelay time.Duration
	// MaxContentions is how often conflicting writes may defer a job before it is isolated with cause
	// "contention". ContentionTime is how long the contention must have lasted before that.
	MaxContentions int
	ContentionTime time.Duration
	// RolloutWait is how long a job waits if the worker does not know its kind.
	RolloutWait time.Duration
	// MaxAhead is how far ahead a job's notBefore may lie if the job waits in hops.
	MaxAhead time.Duration
	// ScheduleFrom is how far ahead a job must be due to be handed to EventBridge Scheduler, where that costs less
	// than its hops. Zero hands over nothing.
	ScheduleFrom time.Duration
	// ScheduleAhead is how far ahead the notBefore of a job may lie that is handed over.
	ScheduleAhead time.Duration
	// ScheduleEarly is how long before its time a job comes back from Scheduler, whose precision is a minute. The
	// rest of the wait is a delay.
	ScheduleEarly time.Duration
	// LeftBackoffBase and LeftBackoffCap bound the visibility timeout of a left delivery, doubling
	// with its receive count.
	LeftBackoffBase, LeftBackoffCap time.Duration

	// LaneRetention and DLQRetention are the queues' retention periods.
	LaneRetention, DLQRetention time.Duration
	// RedriveWindow is how long after isolation a redrive may still bring a job back.
	RedriveWindow time.Duration
	// LedgerRetention is how long an entry is kept after it became final.
	LedgerRetention time.Duration
	// LeaseSkew is the clock difference between workers that leases tolerate.
	LeaseSkew time.Duration
	// MaxRedrives is the generation limit: how often an entry may be reopened.
	MaxRedrives int
}

// Default returns the settings of a deployed system.
func Default() Settings {
	const day = 24 * time.Hour
	return Settings{
		WorkerTimeout:       30 * time.Second,
		WorkerMemoryMB:      256,
		BatchSize:           10,
		BatchWindow:         0,
		LaneVisibility:      180 * time.Second,
		MaxReceiveCount:     20,
		SourceConcurrency:   50,
		RecoveryConcurrency: 5,
		StartMargin:         10 * time.Second,
		HandoverMargin:      4 * time.Second,
		MaxAttempts:         10,
		BackoffBase:         5 * time.Second,
		BackoffCap:          300 * time.Second,
		AttemptTime:         6 * time.Second,
		HopDelay:            MaxDelay,
		MaxContentions:      120,
		ContentionTime:      time.Hour,
		RolloutWait:         MaxDelay,
		MaxAhead:            day,
		ScheduleFrom:        4 * time.Hour,
		ScheduleAhead:       400 * day,
		ScheduleEarly:       2 * time.Minute,
		LeftBackoffBase:     30 * time.Second,
		LeftBackoffCap:      15 * time.Minute,
		LaneRetention:       4 * day,
		DLQRetention:        14 * day,
		RedriveWindow:       14 * day,
		LedgerRetention:     45 * day,
		LeaseSkew:           60 * time.Second,
		MaxRedrives:         3,
	}
}

// Scaled returns settings whose times are short enough for a demo and for tests. Every inequality
// of Validate holds for them as it does for Default.
func Scaled() Settings {
	s := Default()
	s.WorkerTimeout = 2 * time.Second
	s.LaneVisibility = 12 * time.Second
	s.StartMargin = 1300 * time.Millisecond
	s.HandoverMargin = 300 * time.Millisecond
	s.MaxAttempts = 4
	s.BackoffBase = time.Second
	s.BackoffCap = 4 * time.Second
	s.AttemptTime = time.Second
	s.HopDelay = 5 * time.Second
	s.RolloutWait = 5 * time.Second
	s.MaxAhead = 5 * time.Minute
	s.ScheduleFrom = 30 * time.Second
	s.ScheduleEarly = 2 * time.Second
	s.LeftBackoffBase = time.Second
	s.LeftBackoffCap = 4 * time.Second
	s.LeaseSkew = time.Second
	return s
}

// Validate reports every inequality that the settings break. Each is a sentence that names the inequality and
// its reason. It returns nil when all hold.
func (s Settings) Validate() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	whole := func(name string, d time.Duration) {
		must(d%time.Second == 0, "%s is %v, but SQS and Lambda count in whole seconds", name, d)
	}
	whole("worker timeout", s.WorkerTimeout)
	whole("batch window", s.BatchWindow)
	whole("lane visibility", s.LaneVisibility)
	whole("hop delay", s.HopDelay)
	whole("rollout wait", s.RolloutWait)
	whole("lane retention", s.LaneRetention)
	whole("DLQ retention", s.DLQRetention)

	must(s.WorkerTimeout > 0 && s.WorkerTimeout <= 900*time.Second,
		"worker timeout is %v, but Lambda allows 1 s to 900 s", s.WorkerTimeout)
	must(s.WorkerMemoryMB >= MinMemoryMB && s.WorkerMemoryMB <= MaxMemoryMB,
		"worker memory is %d MB, but Lambda allows %d to %d MB", s.WorkerMemoryMB, MinMemoryMB, MaxMemoryMB)
	must(s.BatchSize >= 1 && s.BatchSize <= 10_000, "batch size is %d, but Lambda allows 1 to 10000", s.BatchSize)
	must(s.BatchSize <= 10 || s.BatchWindow >= time.Second,
		"batch size is %d with a batch window of %v, but Lambda requires a window of at least 1 s above 10", s.BatchSize, s.BatchWindow)
	must(s.BatchWindow >= 0 && s.BatchWindow <= 300*time.Second,
		"batch window is %v, but Lambda allows 0 s to 300 s", s.BatchWindow)
	must(s.LaneVisibility >= 6*s.WorkerTimeout+s.BatchWindow,
		"lane visibility is %v, below 6 × the worker timeout + the batch window = %v: Lambda could be handed a message again while it is still at work on it",
		s.LaneVisibility, 6*s.WorkerTimeout+s.BatchWindow)
	must(s.LaneVisibility <= MaxVisibility, "lane visibility is %v, but SQS allows at most %v", s.LaneVisibility, MaxVisibility)
	must(s.MaxReceiveCount >= 5,
		"maxReceiveCount is %d, below 5: throttled invocations alone would move healthy messages to the DLQ", s.MaxReceiveCount)
	must(s.MaxReceiveCount <= MaxReceives, "maxReceiveCount is %d, but SQS allows at most %d", s.MaxReceiveCount, MaxReceives)
	must(s.SourceConcurrency >= MinConcurrency && s.SourceConcurrency <= MaxConcurrency,
		"source concurrency cap is %d, but an event source mapping allows 2 to 1000", s.SourceConcurrency)
	must(s.RecoveryConcurrency >= MinConcurrency && s.RecoveryConcurrency <= MaxConcurrency,
		"recovery concurrency cap is %d, but an event source mapping allows 2 to 1000", s.RecoveryConcurrency)

	must(s.HandoverMargin > 0, "handover margin is %v: results could not be handed over any more", s.HandoverMargin)
	must(s.StartMargin > s.HandoverMargin,
		"start margin is %v, not above the handover margin of %v: a started record would have no time", s.StartMargin, s.HandoverMargin)
	must(s.StartMargin < s.WorkerTimeout,
		"start margin is %v, not below the worker timeout of %v: no record would ever start", s.StartMargin, s.WorkerTimeout)

	must(s.MaxAttempts >= 1, "max attempts is %d, but a job needs at least one", s.MaxAttempts)
	must(s.BackoffBase > 0 && s.BackoffCap >= s.BackoffBase,
		"backoff base %v and cap %v must be positive, the cap not below the base", s.BackoffBase, s.BackoffCap)
	must(s.AttemptTime > 0 && s.AttemptTime <= s.StartMargin-s.HandoverMargin,
		"attempt time is %v, not between 0 and start margin - handover margin = %v: an attempt would reach into the hand-over's time",
		s.AttemptTime, s.StartMargin-s.HandoverMargin)
	must(s.HopDelay >= time.Second && s.HopDelay <= MaxDelay,
		"hop delay is %v, but SQS delays a message by at most %v", s.HopDelay, MaxDelay)
	must(s.MaxContentions >= 1 && s.ContentionTime > 0,
		"max contentions %d and contention time %v must be positive", s.MaxContentions, s.ContentionTime)
	must(s.RolloutWait >= time.Second && s.RolloutWait <= s.HopDelay,
		"rollout wait is %v, not between 1 s and the hop delay of %v: it is one hop", s.RolloutWait, s.HopDelay)
	must(s.MaxAhead > 0, "max ahead is %v, but a job must be allowed to wait", s.MaxAhead)
	must(s.ScheduleFrom == 0 || s.ScheduleFrom >= s.HopDelay && s.ScheduleFrom <= s.MaxAhead,
		"schedule from is %v, neither 0 nor between the hop delay of %v and max ahead of %v: one hop is cheaper than a schedule, and what waits longer cannot hop",
		s.ScheduleFrom, s.HopDelay, s.MaxAhead)
	must(s.ScheduleFrom == 0 || s.ScheduleEarly >= time.Second && s.ScheduleEarly < s.HopDelay,
		"schedule early is %v, not between 1 s and the hop delay of %v: the rest of the wait is one hop", s.ScheduleEarly, s.HopDelay)
	must(s.ScheduleFrom == 0 || s.ScheduleAhead >= s.MaxAhead && s.ScheduleAhead <= MaxScheduleAhead,
		"schedule ahead is %v, not between max ahead of %v and %v", s.ScheduleAhead, s.MaxAhead, MaxScheduleAhead)
	must(s.LeftBackoffBase >= time.Second && s.LeftBackoffCap >= s.LeftBackoffBase && s.LeftBackoffCap <= MaxVisibility,
		"left backoff base %v and cap %v must lie between 1 s and %v, the cap not below the base", s.LeftBackoffBase, s.LeftBackoffCap, MaxVisibility)

	must(s.LaneRetention >= time.Minute && s.LaneRetention > s.LaneVisibility && s.LaneRetention > s.MaxAhead,
		"lane retention is %v: SQS would delete waiting work", s.LaneRetention)
	must(s.DLQRetention > s.LaneRetention,
		"DLQ retention is %v, not above the lane retention of %v: a message moved by SQS keeps its age and would be deleted unseen", s.DLQRetention, s.LaneRetention)
	must(s.DLQRetention <= MaxRetention, "DLQ retention is %v, but SQS allows at most %v", s.DLQRetention, MaxRetention)
	latest, tries := s.DLQRetention+s.RedriveWindow+s.LaneRetention, ""
	if s.ScheduleFrom > 0 {
		latest, tries = latest+ScheduleMaxAge, fmt.Sprintf(" + the %v that Scheduler tries for", ScheduleMaxAge)
	}
	must(s.LedgerRetention > latest,
		"ledger retention is %v, not above DLQ retention + redrive window + lane retention%s = %v: a copy could outlive the entry that makes it harmless",
		s.LedgerRetention, tries, latest)
	must(s.LeaseSkew >= 0, "lease skew is %v, but a clock difference cannot be negative", s.LeaseSkew)
	must(s.MaxRedrives >= 1, "max redrives is %d, but a redrive needs at least one generation", s.MaxRedrives)
	return errors.Join(errs...)
}
