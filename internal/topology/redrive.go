package topology

import (
	"errors"
	"fmt"
	"time"
)

// Redrive are the numbers of the redrive function. Times that reach SQS are whole seconds.
type Redrive struct {
	// Timeout is the function's timeout.
	Timeout time.Duration
	// PauseMargin is the time at the end of an invocation in which no cohort starts.
	PauseMargin time.Duration

	// ScanMessages and ScanBytes bound one scan of the DLQ for groups, a plan or a selection; ScanTime bounds every scan.
	ScanMessages, ScanBytes int
	ScanTime                time.Duration
	// EmptyReceives is how many empty long polls of ReceiveWait make a queue count as empty.
	EmptyReceives int
	ReceiveWait   time.Duration

	// MaxHidden is how many messages a run hides at a time, beside those that it is about to move, below SQS's in-flight limit.
	MaxHidden int
	// IdleReceives is how many receives in a row that bring nothing new end a pass of an open plan.
	IdleReceives int

	// Hide is how long a message that a scan or a run holds stays hidden; it is renewed.
	Hide time.Duration
	// GoneAfter is how long a run looks for messages that it did not receive before it reports them as gone. It
	// is longer than the delay of SQS's counts.
	GoneAfter time.Duration

	// PlanExpiry is how long a plan may be used to start a run.
	PlanExpiry time.Duration
	// ApprovalAbove is the largest number of jobs that a plan redrives without an approval.
	ApprovalAbove int

	// Rate is the default number of messages per second, MaxRate the most that a request may ask for.
	Rate, MaxRate int
	// BacklogLimit is the visible plus in-flight work of the lanes at which a run waits.
	BacklogLimit int
	// Ramp is 1 if the first jobs are sent in stages of 1, 2, 5 and 20, each checked before the next; 0 is one
	// canary.
	Ramp int
	// Canary is how many jobs are sent first without a ramp. CanaryWait is how long jobs may take to end, those
	// of the canary and those at the run's end.
	Canary     int
	CanaryWait time.Duration
	// Window is the number of ended jobs by which a run is judged, the latest ones. A run halts if there are at
	// least MinSample, and more than MaxFailedPercent did not succeed or more than MaxDuplicatePercent were
	// already final.
	Window, MinSample                     int
	MaxFailedPercent, MaxDuplicatePercent int

	// LockLease is how long a run's lock lasts after its owner's last write.
	LockLease time.Duration
	// PollEvery is the pause between two looks at a canary or at the lanes' backlog.
	PollEvery time.Duration
	// Retention is how long plans, runs and audit are kept.
	Retention time.Duration
}

// DefaultRedrive returns the numbers of a deployed redrive function.
func DefaultRedrive() Redrive {
	const day = 24 * time.Hour
	return Redrive{
		Timeout:      900 * time.Second,
		PauseMargin:  30 * time.Second,
		ScanMessages: 10_000, ScanBytes: 1 << 30, ScanTime: 5 * time.Minute,
		EmptyReceives: 3, ReceiveWait: 2 * time.Second,
		MaxHidden: 80_000, IdleReceives: 20,
		Hide: 2 * time.Minute, GoneAfter: 2 * time.Minute,
		PlanExpiry: 24 * time.Hour, ApprovalAbove: 100,
		Rate: 10, MaxRate: 500, BacklogLimit: 1000,
		Ramp: 1, Canary: 5, CanaryWait: 10 * time.Minute,
		Window: 50, MinSample: 5, MaxFailedPercent: 20, MaxDuplicatePercent: 50,
		LockLease: time.Minute, PollEvery: time.Second,
		Retention: 400 * day,
	}
}

// ScaledRedrive returns numbers for a demo and for tests.
func ScaledRedrive() Redrive {
	r := DefaultRedrive()
	r.Timeout, r.PauseMargin = 60*time.Second, 3*time.Second
	r.ScanTime, r.ReceiveWait = 20*time.Second, 0
	r.Ramp = 0
	r.Hide, r.GoneAfter = 20*time.Second, 2*time.Second
	r.CanaryWait, r.LockLease, r.PollEvery = 20*time.Second, 3*time.Second, 100*time.Millisecond
	return r
}

// Validate reports every inequality that these numbers break together with s. Infra.Validate checks whether
// Lambda allows the timeout.
func (r Redrive) Validate(s Settings) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(r.PauseMargin > 0 && r.PauseMargin < r.Timeout,
		"pause margin is %v, not between 0 and the redrive timeout of %v: a run could not end in order", r.PauseMargin, r.Timeout)
	must(r.ScanTime > 0 && r.ScanTime < r.Timeout-r.PauseMargin,
		"scan time is %v, not below redrive timeout - pause margin = %v: a plan would be cut off", r.ScanTime, r.Timeout-r.PauseMargin)
	must(r.ScanMessages >= 1 && r.ScanBytes >= MaxMessageBytes, "a scan of %d messages and %d bytes could not see one", r.ScanMessages, r.ScanBytes)
	must(r.ScanMessages <= MaxInFlight, "a scan of %d messages is above SQS's in-flight limit of about %d: it hides what it looks at", r.ScanMessages, MaxInFlight)
	must(r.ReceiveWait >= 0 && r.ReceiveWait <= MaxReceiveWait, "receive wait is %v, but SQS allows 0 s to %v", r.ReceiveWait, MaxReceiveWait)
	must(r.EmptyReceives >= 2, "empty receives is %d, but SQS may answer a receive with nothing although there is something", r.EmptyReceives)
	must(r.MaxHidden >= 1000 && r.MaxHidden <= MaxInFlight, "hidden messages are bounded at %d, not between 1,000 and SQS's about %d in flight", r.MaxHidden, MaxInFlight)
	must(r.IdleReceives >= 2, "idle receives is %d, but SQS may answer a receive with nothing new although there is something", r.IdleReceives)
	must(r.Hide >= 10*time.Second && r.Hide <= MaxVisibility, "hide time is %v, not between 10 s and SQS's %v: what is held would be received again and again", r.Hide, MaxVisibility)
	must(r.GoneAfter >= time.Second, "gone after is %v, below a second: messages that others hide would count as gone", r.GoneAfter)
	must(r.PlanExpiry > 0 && r.PlanExpiry <= s.RedriveWindow,
		"plan expiry is %v, not below the redrive window of %v", r.PlanExpiry, s.RedriveWindow)
	must(r.Rate >= 1 && r.Rate <= r.MaxRate, "rate is %d, not between 1 and the maximum of %d", r.Rate, r.MaxRate)
	must(r.ApprovalAbove >= 0, "approval above is %d, but a plan cannot have fewer than 0 jobs", r.ApprovalAbove)
	must(r.BacklogLimit >= 1, "backlog limit is %d, below 1: a run would wait for ever, also while the lanes are empty", r.BacklogLimit)
	must(r.CanaryWait > 0, "canary wait is %v, not above 0: no job could end in time, and every run would halt", r.CanaryWait)
	must(r.Window >= r.MinSample, "window is %d, below the minimum sample of %d: no run could be halted", r.Window, r.MinSample)
	must(r.Ramp == 0 || r.Ramp == 1, "ramp is %d, want 1 or 0", r.Ramp)
	must(r.Canary >= 1, "canary is %d, but a run without one cannot be judged", r.Canary)
	must(r.MinSample >= 1 && r.MaxFailedPercent >= 0 && r.MaxFailedPercent < 100 && r.MaxDuplicatePercent > 0 && r.MaxDuplicatePercent <= 100,
		"minimum sample %d, failed %d %% and duplicates %d %% would never stop a run", r.MinSample, r.MaxFailedPercent, r.MaxDuplicatePercent)
	must(r.PollEvery > 0, "poll pause is %v, not above 0: a waiting run would ask without a pause", r.PollEvery)
	must(r.LockLease > 2*r.PollEvery, "lock lease is %v, not above twice the poll pause of %v: a waiting run would lose it", r.LockLease, r.PollEvery)
	must(r.Retention >= s.LedgerRetention,
		"operations retention is %v, below the ledger's %v: a revoked run would be forgotten before its jobs", r.Retention, s.LedgerRetention)
	return errors.Join(errs...)
}
