package topology

import (
	"errors"
	"fmt"
	"time"
)

// The redrive function's aliases. IAM says who may invoke which alias, and the function says which actions each
// one allows.
const (
	AliasOperate = "operate"
	AliasApprove = "approve"
)

// MinReservedConcurrency is the least reserved concurrency of the redrive function: one run and one
// request that stops it.
const MinReservedConcurrency = 2

// MaxReservedRedrive is the most that the redrive function may reserve.
const MaxReservedRedrive = 100

// UnreservedConcurrency is what Lambda keeps free of reservations in an account.
const UnreservedConcurrency = 100

// CensusMargin is the least time between the alarm about old isolated jobs and their deletion.
const CensusMargin = 48 * time.Hour

// Infra are the numbers that only the deployed system has: the redrive function's size, reserved concurrency,
// log retention, and the limits of the alarms.
type Infra struct {
	// RedriveTimeout and RedriveMemoryMB are the redrive function's.
	RedriveTimeout  time.Duration
	RedriveMemoryMB int
	// WorkerReserved and RedriveReserved are reserved concurrency; zero reserves none, which is the
	// default because small accounts refuse any.
	WorkerReserved, RedriveReserved int
	// AccountConcurrency is the account's quota of invocations that run at once in the region; zero is unknown.
	AccountConcurrency int
	// LogRetention is how long both functions' logs are kept, in whole days.
	LogRetention time.Duration

	// ShortestBudget is the least time that any kind of job has between being due and its deadline.
	ShortestBudget time.Duration
	// NearDeadline is how long a job may be overdue before the alarm about waiting work. It is a fraction of
	// ShortestBudget, so that people can still act.
	NearDeadline time.Duration
	// Stalled is how long there may be ready work without any acknowledgement.
	Stalled time.Duration
	// LaneAge is the age of a lane's oldest message that raises an alarm. SQS deletes the message at
	// LaneRetention.
	LaneAge time.Duration
	// DLQAge is how long a job may be isolated before an alarm. SQS deletes its message at DLQRetention.
	DLQAge time.Duration
}

// DefaultInfra returns the numbers of a deployed system.
func DefaultInfra() Infra {
	const day = 24 * time.Hour
	return Infra{
		RedriveTimeout:  900 * time.Second,
		RedriveMemoryMB: 256,
		LogRetention:    30 * day,
		ShortestBudget:  15 * time.Minute,
		NearDeadline:    5 * time.Minute,
		Stalled:         5 * time.Minute,
		LaneAge:         2 * day,
		DLQAge:          7 * day,
	}
}

// Validate reports every inequality that these numbers break together with s. Each is a sentence that names the
// inequality and its reason. It does not repeat s.Validate.
func (i Infra) Validate(s Settings) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(i.RedriveTimeout >= time.Second && i.RedriveTimeout <= 900*time.Second && i.RedriveTimeout%time.Second == 0,
		"redrive timeout is %v, but Lambda allows 1 s to 900 s in whole seconds", i.RedriveTimeout)
	must(i.RedriveMemoryMB >= MinMemoryMB && i.RedriveMemoryMB <= MaxMemoryMB,
		"redrive memory is %d MB, but Lambda allows %d to %d MB", i.RedriveMemoryMB, MinMemoryMB, MaxMemoryMB)
	must(i.WorkerReserved == 0 || i.WorkerReserved >= s.SourceConcurrency+s.RecoveryConcurrency,
		"worker reserved concurrency is %d, below the caps of both lanes together = %d: Lambda would throttle its own pollers, and every throttle spends a receive",
		i.WorkerReserved, s.SourceConcurrency+s.RecoveryConcurrency)
	must(i.WorkerReserved <= 2*MaxConcurrency,
		"worker reserved concurrency is %d, above %d: two mappings can use no more, and the rest is taken from the account",
		i.WorkerReserved, 2*MaxConcurrency)
	must(i.RedriveReserved <= MaxReservedRedrive,
		"redrive reserved concurrency is %d, above %d: one run at a time and people's requests need no more, and the rest is taken from the account",
		i.RedriveReserved, MaxReservedRedrive)
	must(i.RedriveReserved == 0 || i.RedriveReserved >= MinReservedConcurrency,
		"redrive reserved concurrency is %d, below %d: while a run is going on, nobody could stop it", i.RedriveReserved, MinReservedConcurrency)
	must(i.AccountConcurrency == 0 || s.SourceConcurrency+s.RecoveryConcurrency+MinReservedConcurrency <= i.AccountConcurrency,
		"the caps of both lanes are %d together, but the account's concurrency of %d has to hold them, a redrive and a request that stops it: lower the caps",
		s.SourceConcurrency+s.RecoveryConcurrency, i.AccountConcurrency)
	must(i.AccountConcurrency == 0 || i.WorkerReserved+i.RedriveReserved == 0 || i.WorkerReserved+i.RedriveReserved <= i.AccountConcurrency-UnreservedConcurrency,
		"reserved concurrency is %d, but of the account's %d Lambda keeps %d unreserved",
		i.WorkerReserved+i.RedriveReserved, i.AccountConcurrency, UnreservedConcurrency)
	must(i.LogRetention > 0 && i.LogRetention%(24*time.Hour) == 0,
		"log retention is %v, but CloudWatch keeps logs for whole days", i.LogRetention)
	must(i.NearDeadline >= time.Minute && i.NearDeadline < i.ShortestBudget,
		"near-deadline limit is %v, not between 1 m and the shortest budget of %v: the alarm would come when it is too late", i.NearDeadline, i.ShortestBudget)
	must(i.Stalled >= time.Minute && i.Stalled%time.Minute == 0 && i.Stalled > s.WorkerTimeout+s.BatchWindow,
		"stalled limit is %v, but must be whole minutes and above worker timeout + batch window = %v, or a slow batch looks like none",
		i.Stalled, s.WorkerTimeout+s.BatchWindow)
	must(i.Stalled <= MaxAlarmSpan, "stalled limit is %v, but a CloudWatch alarm looks back at most %v", i.Stalled, MaxAlarmSpan)
	must(i.LaneAge > MaxDelay && i.LaneAge < s.LaneRetention,
		"lane age limit is %v, not between %v and the lane retention of %v", i.LaneAge, MaxDelay, s.LaneRetention)
	// s.Validate reports wrong retentions.
	must(i.DLQAge > 0 && (i.DLQAge <= s.DLQRetention-CensusMargin || s.DLQRetention <= s.LaneRetention),
		"DLQ age limit is %v, above DLQ retention less %v = %v: a census counts once a day, and people need a day to act",
		i.DLQAge, CensusMargin, s.DLQRetention-CensusMargin)
	return errors.Join(errs...)
}
