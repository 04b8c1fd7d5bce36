package worker

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"acklast/internal/env"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// Config is the worker's configuration. Environment writes it as a function's environment, ParseConfig reads it
// back.
type Config struct {
	// Names are the physical names of the stack's parts.
	Names topology.Names
	// SourceURL, RecoveryURL and DLQURL are the queues' URLs.
	SourceURL, RecoveryURL, DLQURL string
	// DLQARN and ScheduleRoleARN are what schedules need: the DLQ's ARN, and the ARN of the role under which they
	// send. Without them nothing is handed to EventBridge Scheduler.
	DLQARN, ScheduleRoleARN string

	// Concurrency is how many records of a batch run at once.
	Concurrency int
	// Processes is how many invocations may run at once: the caps of both lanes together.
	Processes int
	// StartMargin is the least time the invocation must have left for a record to be started.
	StartMargin time.Duration
	// HandoverMargin is the time at the end of the invocation that is kept for moves.
	HandoverMargin time.Duration
	// Rules are the budgets, the generation limit and the retention of final entries.
	Rules ledger.Rules
	// HopDelay is the longest wait of one hop.
	HopDelay time.Duration
	// MaxAhead is how far ahead a job's notBefore may lie if the job waits in hops.
	MaxAhead time.Duration
	// A job that is due further ahead than ScheduleFrom, and no further than ScheduleAhead, is handed to
	// EventBridge Scheduler, to come back ScheduleEarly before its time. A zero ScheduleFrom hands over nothing.
	ScheduleFrom, ScheduleAhead, ScheduleEarly time.Duration
	// RolloutWait is how long a job of an unknown kind waits for a newer worker.
	RolloutWait time.Duration
	// A job is isolated when it was deferred by conflicting writes more than MaxContentions times and at
	// least for ContentionTime.
	MaxContentions int
	ContentionTime time.Duration
	// LeftBackoffBase and LeftBackoffCap bound the visibility timeout of messages that are left.
	LeftBackoffBase, LeftBackoffCap time.Duration
	// LeaseSkew is how far clocks of invocations may differ.
	LeaseSkew time.Duration
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
}

// The variables of the worker's environment. Durations are in Go's form, such as "30s".
const (
	EnvStack           = "ACKLAST_STACK"
	EnvSourceURL       = "ACKLAST_SOURCE_QUEUE_URL"
	EnvRecoveryURL     = "ACKLAST_RECOVERY_QUEUE_URL"
	EnvDLQURL          = "ACKLAST_DLQ_URL"
	EnvConcurrency     = "ACKLAST_CONCURRENCY"
	EnvProcesses       = "ACKLAST_PROCESSES"
	EnvStartMargin     = "ACKLAST_START_MARGIN"
	EnvHandoverMargin  = "ACKLAST_HANDOVER_MARGIN"
	EnvMaxAttempts     = "ACKLAST_MAX_ATTEMPTS"
	EnvBackoffBase     = "ACKLAST_BACKOFF_BASE"
	EnvBackoffCap      = "ACKLAST_BACKOFF_CAP"
	EnvAttemptTime     = "ACKLAST_ATTEMPT_TIME"
	EnvHopDelay        = "ACKLAST_HOP_DELAY"
	EnvMaxAhead        = "ACKLAST_MAX_AHEAD"
	EnvScheduleFrom    = "ACKLAST_SCHEDULE_FROM"
	EnvScheduleAhead   = "ACKLAST_SCHEDULE_AHEAD"
	EnvScheduleEarly   = "ACKLAST_SCHEDULE_EARLY"
	EnvRolloutWait     = "ACKLAST_ROLLOUT_WAIT"
	EnvMaxContentions  = "ACKLAST_MAX_CONTENTIONS"
	EnvContentionTime  = "ACKLAST_CONTENTION_TIME"
	EnvMaxRedrives     = "ACKLAST_MAX_REDRIVES"
	EnvLedgerRetention = "ACKLAST_LEDGER_RETENTION"
	EnvLeftBackoffBase = "ACKLAST_LEFT_BACKOFF_BASE"
	EnvLeftBackoffCap  = "ACKLAST_LEFT_BACKOFF_CAP"
	EnvLeaseSkew       = "ACKLAST_LEASE_SKEW"
	EnvLogLevel        = "ACKLAST_LOG_LEVEL"
)

// The variables of ScheduleEnvironment.
const (
	EnvDLQARN       = "ACKLAST_DLQ_ARN"
	EnvScheduleRole = "ACKLAST_SCHEDULE_ROLE_ARN"
)

// ScheduleEnvironment are the variables that a worker needs besides Environment to hand jobs to EventBridge
// Scheduler.
func ScheduleEnvironment(roleARN, dlqARN string) map[string]string {
	return map[string]string{EnvScheduleRole: roleARN, EnvDLQARN: dlqARN}
}

// Environment is the worker function's environment for a stack with the given settings.
func Environment(stack string, urls topology.QueueURLs, s topology.Settings) map[string]string {
	return map[string]string{
		EnvStack:           stack,
		EnvSourceURL:       urls.Source,
		EnvRecoveryURL:     urls.Recovery,
		EnvDLQURL:          urls.DLQ,
		EnvConcurrency:     strconv.Itoa(s.BatchSize),
		EnvProcesses:       strconv.Itoa(s.SourceConcurrency + s.RecoveryConcurrency),
		EnvStartMargin:     s.StartMargin.String(),
		EnvHandoverMargin:  s.HandoverMargin.String(),
		EnvMaxAttempts:     strconv.Itoa(s.MaxAttempts),
		EnvBackoffBase:     s.BackoffBase.String(),
		EnvBackoffCap:      s.BackoffCap.String(),
		EnvAttemptTime:     s.AttemptTime.String(),
		EnvHopDelay:        s.HopDelay.String(),
		EnvMaxAhead:        s.MaxAhead.String(),
		EnvScheduleFrom:    s.ScheduleFrom.String(),
		EnvScheduleAhead:   s.ScheduleAhead.String(),
		EnvScheduleEarly:   s.ScheduleEarly.String(),
		EnvRolloutWait:     s.RolloutWait.String(),
		EnvMaxContentions:  strconv.Itoa(s.MaxContentions),
		EnvContentionTime:  s.ContentionTime.String(),
		EnvMaxRedrives:     strconv.Itoa(s.MaxRedrives),
		EnvLedgerRetention: s.LedgerRetention.String(),
		EnvLeftBackoffBase: s.LeftBackoffBase.String(),
		EnvLeftBackoffCap:  s.LeftBackoffCap.String(),
		EnvLeaseSkew:       s.LeaseSkew.String(),
		EnvLogLevel:        slog.LevelInfo.String(),
	}
}

// ParseConfig reads a Config from an environment. The stack and the queue URLs are required, every
// number falls back to topology.Default. The error names each variable that is missing or wrong.
func ParseConfig(getenv func(string) string) (Config, error) {
	r := env.New(getenv)
	d := topology.Default()
	c := Config{
		Names:          topology.NamesOf(r.Required(EnvStack, "the name of the stack")),
		SourceURL:      r.Queue(EnvSourceURL, "the URL of the source queue"),
		RecoveryURL:    r.Queue(EnvRecoveryURL, "the URL of the recovery queue"),
		DLQURL:         r.Queue(EnvDLQURL, "the URL of the DLQ"),
		Concurrency:    r.Count(EnvConcurrency, 1, d.BatchSize),
		Processes:      r.Count(EnvProcesses, 1, d.SourceConcurrency+d.RecoveryConcurrency),
		StartMargin:    r.Duration(EnvStartMargin, env.Positive, d.StartMargin),
		HandoverMargin: r.Duration(EnvHandoverMargin, env.Positive, d.HandoverMargin),
		Rules: ledger.Rules{
			Retry: retry.Policy{
				Base:        r.Duration(EnvBackoffBase, env.Positive, d.BackoffBase),
				Cap:         r.Duration(EnvBackoffCap, env.Positive, d.BackoffCap),
				MaxAttempts: r.Count(EnvMaxAttempts, 1, d.MaxAttempts),
				AttemptTime: r.Duration(EnvAttemptTime, env.Positive, d.AttemptTime),
			},
			MaxRedrives: r.Count(EnvMaxRedrives, 1, d.MaxRedrives),
			Retention:   r.Duration(EnvLedgerRetention, env.Positive, d.LedgerRetention),
		},
		HopDelay:        r.Duration(EnvHopDelay, env.Positive, d.HopDelay),
		MaxAhead:        r.Duration(EnvMaxAhead, env.Positive, d.MaxAhead),
		ScheduleFrom:    r.Duration(EnvScheduleFrom, 0, d.ScheduleFrom),
		ScheduleAhead:   r.Duration(EnvScheduleAhead, env.Positive, d.ScheduleAhead),
		ScheduleEarly:   r.Duration(EnvScheduleEarly, env.Positive, d.ScheduleEarly),
		DLQARN:          r.Text(EnvDLQARN),
		ScheduleRoleARN: r.Text(EnvScheduleRole),
		RolloutWait:     r.Duration(EnvRolloutWait, env.Positive, d.RolloutWait),
		MaxContentions:  r.Count(EnvMaxContentions, 1, d.MaxContentions),
		ContentionTime:  r.Duration(EnvContentionTime, env.Positive, d.ContentionTime),
		LeftBackoffBase: r.Duration(EnvLeftBackoffBase, env.Positive, d.LeftBackoffBase),
		LeftBackoffCap:  r.Duration(EnvLeftBackoffCap, env.Positive, d.LeftBackoffCap),
		LeaseSkew:       r.Duration(EnvLeaseSkew, env.Positive, d.LeaseSkew),
		LogLevel:        r.Level(EnvLogLevel),
	}
	r.Check(c.Rules.Retry.Cap >= c.Rules.Retry.Base, "%s is %v, below %s = %v",
		EnvBackoffCap, c.Rules.Retry.Cap, EnvBackoffBase, c.Rules.Retry.Base)
	r.Check(c.StartMargin > c.HandoverMargin, "%s is %v, not above %s = %v: a started record would have no time",
		EnvStartMargin, c.StartMargin, EnvHandoverMargin, c.HandoverMargin)
	r.Check(c.Rules.Retry.AttemptTime <= c.AttemptLeft(), "%s is %v, above %s - %s = %v: an attempt would reach into the hand-over's time",
		EnvAttemptTime, c.Rules.Retry.AttemptTime, EnvStartMargin, EnvHandoverMargin, c.AttemptLeft())
	r.Check(c.HopDelay <= topology.MaxDelay, "%s is %v, but SQS delays a message by at most %v",
		EnvHopDelay, c.HopDelay, topology.MaxDelay)
	r.Check((c.DLQARN == "") == (c.ScheduleRoleARN == ""), "%s and %s belong together: set both, or neither to schedule nothing",
		EnvScheduleRole, EnvDLQARN)
	r.Check(!c.Schedules() || c.ScheduleFrom >= c.HopDelay, "%s is %v, below %s = %v: one hop is cheaper than a schedule",
		EnvScheduleFrom, c.ScheduleFrom, EnvHopDelay, c.HopDelay)
	r.Check(!c.Schedules() || c.ScheduleEarly < c.ScheduleFrom, "%s is %v, not below %s = %v: a schedule would be over before it is made",
		EnvScheduleEarly, c.ScheduleEarly, EnvScheduleFrom, c.ScheduleFrom)
	r.Check(c.ScheduleAhead <= topology.MaxScheduleAhead, "%s is %v, above %v", EnvScheduleAhead, c.ScheduleAhead, topology.MaxScheduleAhead)
	r.Check(c.LeftBackoffCap >= c.LeftBackoffBase && c.LeftBackoffCap <= topology.MaxVisibility,
		"%s is %v, but must lie between %s = %v and SQS's %v",
		EnvLeftBackoffCap, c.LeftBackoffCap, EnvLeftBackoffBase, c.LeftBackoffBase, topology.MaxVisibility)
	if err := r.Err(); err != nil {
		return Config{}, fmt.Errorf("worker configuration: %w", err)
	}
	return c, nil
}

// Schedules says whether jobs that are due far ahead are handed to EventBridge Scheduler.
func (c Config) Schedules() bool {
	return c.ScheduleFrom > 0 && c.ScheduleRoleARN != "" && c.DLQARN != ""
}

// AttemptLeft is the least time that remains for an attempt when it starts.
func (c Config) AttemptLeft() time.Duration { return c.StartMargin - c.HandoverMargin }

// grace is how long the worker waits for an attempt to return after its time is over. It is a part of the
// hand-over's time.
func (c Config) grace() time.Duration { return c.HandoverMargin / 4 }

// answerMargin is the time at the very end that is kept for the response.
func (c Config) answerMargin() time.Duration { return c.HandoverMargin / 8 }

// CheckKind says whether a kind's own numbers fit the invocation.
func (c Config) CheckKind(d job.Description) error {
	if t := d.Attempts.Time; t > c.AttemptLeft() {
		return fmt.Errorf("kind %s wants %v for an attempt, but one that is started has only %s - %s = %v",
			d.Name, t, EnvStartMargin, EnvHandoverMargin, c.AttemptLeft())
	}
	return nil
}
