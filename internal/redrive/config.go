package redrive

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast/internal/env"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// Config is everything the redrive function needs to know. Environment writes it as a function's
// environment, ParseConfig reads it back.
type Config struct {
	Names                          topology.Names
	SourceURL, RecoveryURL, DLQURL string
	// Rules are the generation limit and the retention of final entries.
	Rules ledger.Rules
	// DLQRetention is how long SQS keeps a message on the DLQ.
	DLQRetention time.Duration
	// Numbers bound scans, plans and runs.
	Numbers topology.Redrive
	// Guarded are the classes whose plans always need an approval.
	Guarded []job.Class
	// Unqualified lets the function be invoked without an alias, for any action. Only the local
	// environment sets it.
	Unqualified bool
	LogLevel    slog.Level
}

// The variables of the redrive function's environment. Durations are in Go's form, such as "30s".
const (
	EnvStack           = "ACKLAST_STACK"
	EnvSourceURL       = "ACKLAST_SOURCE_QUEUE_URL"
	EnvRecoveryURL     = "ACKLAST_RECOVERY_QUEUE_URL"
	EnvDLQURL          = "ACKLAST_DLQ_URL"
	EnvMaxRedrives     = "ACKLAST_MAX_REDRIVES"
	EnvLedgerRetention = "ACKLAST_LEDGER_RETENTION"
	EnvDLQRetention    = "ACKLAST_DLQ_RETENTION"
	EnvLogLevel        = "ACKLAST_LOG_LEVEL"
	// EnvGuarded is a list of classes, separated by commas.
	EnvGuarded = "ACKLAST_REDRIVE_GUARDED"
	// EnvUnqualified is "allow" in the local environment, which has no aliases.
	EnvUnqualified = "ACKLAST_REDRIVE_UNQUALIFIED"
)

const allow = "allow"

// number is one number of topology.Redrive and its variable.
type number struct {
	env string
	// Exactly one is set.
	count    func(*topology.Redrive) *int
	duration func(*topology.Redrive) *time.Duration
}

var numbers = []number{
	{"ACKLAST_REDRIVE_TIMEOUT", nil, func(r *topology.Redrive) *time.Duration { return &r.Timeout }},
	{"ACKLAST_REDRIVE_PAUSE_MARGIN", nil, func(r *topology.Redrive) *time.Duration { return &r.PauseMargin }},
	{"ACKLAST_REDRIVE_SCAN_MESSAGES", func(r *topology.Redrive) *int { return &r.ScanMessages }, nil},
	{"ACKLAST_REDRIVE_SCAN_BYTES", func(r *topology.Redrive) *int { return &r.ScanBytes }, nil},
	{"ACKLAST_REDRIVE_SCAN_TIME", nil, func(r *topology.Redrive) *time.Duration { return &r.ScanTime }},
	{"ACKLAST_REDRIVE_EMPTY_RECEIVES", func(r *topology.Redrive) *int { return &r.EmptyReceives }, nil},
	{"ACKLAST_REDRIVE_RECEIVE_WAIT", nil, func(r *topology.Redrive) *time.Duration { return &r.ReceiveWait }},
	{"ACKLAST_REDRIVE_MAX_HIDDEN", func(r *topology.Redrive) *int { return &r.MaxHidden }, nil},
	{"ACKLAST_REDRIVE_IDLE_RECEIVES", func(r *topology.Redrive) *int { return &r.IdleReceives }, nil},
	{"ACKLAST_REDRIVE_HIDE", nil, func(r *topology.Redrive) *time.Duration { return &r.Hide }},
	{"ACKLAST_REDRIVE_GONE_AFTER", nil, func(r *topology.Redrive) *time.Duration { return &r.GoneAfter }},
	{"ACKLAST_REDRIVE_PLAN_EXPIRY", nil, func(r *topology.Redrive) *time.Duration { return &r.PlanExpiry }},
	{"ACKLAST_REDRIVE_APPROVAL_ABOVE", func(r *topology.Redrive) *int { return &r.ApprovalAbove }, nil},
	{"ACKLAST_REDRIVE_RATE", func(r *topology.Redrive) *int { return &r.Rate }, nil},
	{"ACKLAST_REDRIVE_MAX_RATE", func(r *topology.Redrive) *int { return &r.MaxRate }, nil},
	{"ACKLAST_REDRIVE_BACKLOG_LIMIT", func(r *topology.Redrive) *int { return &r.BacklogLimit }, nil},
	{"ACKLAST_REDRIVE_RAMP", func(r *topology.Redrive) *int { return &r.Ramp }, nil},
	{"ACKLAST_REDRIVE_CANARY", func(r *topology.Redrive) *int { return &r.Canary }, nil},
	{"ACKLAST_REDRIVE_CANARY_WAIT", nil, func(r *topology.Redrive) *time.Duration { return &r.CanaryWait }},
	{"ACKLAST_REDRIVE_WINDOW", func(r *topology.Redrive) *int { return &r.Window }, nil},
	{"ACKLAST_REDRIVE_MIN_SAMPLE", func(r *topology.Redrive) *int { return &r.MinSample }, nil},
	{"ACKLAST_REDRIVE_MAX_FAILED_PERCENT", func(r *topology.Redrive) *int { return &r.MaxFailedPercent }, nil},
	{"ACKLAST_REDRIVE_MAX_DUPLICATE_PERCENT", func(r *topology.Redrive) *int { return &r.MaxDuplicatePercent }, nil},
	{"ACKLAST_REDRIVE_LOCK_LEASE", nil, func(r *topology.Redrive) *time.Duration { return &r.LockLease }},
	{"ACKLAST_REDRIVE_POLL_EVERY", nil, func(r *topology.Redrive) *time.Duration { return &r.PollEvery }},
	{"ACKLAST_REDRIVE_RETENTION", nil, func(r *topology.Redrive) *time.Duration { return &r.Retention }},
}

// Environment is the redrive function's environment for a stack with the given settings.
func Environment(stack string, urls topology.QueueURLs, s topology.Settings, r topology.Redrive) map[string]string {
	env := map[string]string{
		EnvStack: stack, EnvSourceURL: urls.Source, EnvRecoveryURL: urls.Recovery, EnvDLQURL: urls.DLQ,
		EnvMaxRedrives:     strconv.Itoa(s.MaxRedrives),
		EnvLedgerRetention: s.LedgerRetention.String(),
		EnvDLQRetention:    s.DLQRetention.String(),
		EnvGuarded:         string(job.Crashed) + "," + string(job.Ambiguous),
		EnvLogLevel:        slog.LevelInfo.String(),
	}
	for _, n := range numbers {
		if n.count != nil {
			env[n.env] = strconv.Itoa(*n.count(&r))
		} else {
			env[n.env] = n.duration(&r).String()
		}
	}
	return env
}

// LocalEnvironment is Environment for a place without aliases: unqualified invocations are allowed.
func LocalEnvironment(stack string, urls topology.QueueURLs, s topology.Settings, r topology.Redrive) map[string]string {
	env := Environment(stack, urls, s, r)
	env[EnvUnqualified] = allow
	return env
}

// ParseConfig reads a Config from an environment. The stack and the queue URLs are required, every
// number falls back to topology's defaults. The error names each variable that is missing or wrong.
func ParseConfig(getenv func(string) string) (Config, error) {
	r := env.New(getenv)
	s := topology.Default()
	c := Config{
		Names:       topology.NamesOf(r.Required(EnvStack, "the name of the stack")),
		SourceURL:   r.Queue(EnvSourceURL, "the URL of the source queue"),
		RecoveryURL: r.Queue(EnvRecoveryURL, "the URL of the recovery queue"),
		DLQURL:      r.Queue(EnvDLQURL, "the URL of the DLQ"),
		Numbers:     topology.DefaultRedrive(),
	}
	s.MaxRedrives = r.Count(EnvMaxRedrives, 1, s.MaxRedrives)
	s.LedgerRetention = r.Duration(EnvLedgerRetention, 0, s.LedgerRetention)
	s.DLQRetention = r.Duration(EnvDLQRetention, 0, s.DLQRetention)
	c.DLQRetention = s.DLQRetention
	c.Rules = ledger.Rules{MaxRedrives: s.MaxRedrives, Retention: s.LedgerRetention}
	var changed []string // the variables that differ from the defaults, which fit together
	for _, n := range numbers {
		before := c.Numbers
		if n.count != nil {
			to := n.count(&c.Numbers)
			*to = r.Count(n.env, 0, *to)
		} else {
			to := n.duration(&c.Numbers)
			*to = r.Duration(n.env, 0, *to)
		}
		if c.Numbers != before {
			changed = append(changed, fmt.Sprintf("%s is %q", n.env, getenv(n.env)))
		}
	}
	for _, class := range strings.Split(r.Text(EnvGuarded), ",") {
		if class = strings.TrimSpace(class); class != "" {
			// A class that does not exist would guard nothing.
			r.Check(slices.Contains(telemetry.Classes, job.Class(class)), "%s has %q, want some of %v with commas", EnvGuarded, class, telemetry.Classes)
			c.Guarded = append(c.Guarded, job.Class(class))
		}
	}
	unqualified := r.Text(EnvUnqualified)
	r.Check(unqualified == "" || unqualified == allow, "%s is %q, want %q or nothing", EnvUnqualified, unqualified, allow)
	c.Unqualified = unqualified == allow
	c.LogLevel = r.Level(EnvLogLevel)
	if r.Err() == nil {
		if err := c.Numbers.Validate(s); err != nil {
			r.Check(false, "numbers do not fit together (%s): %s", strings.Join(changed, ", "), strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	if err := r.Err(); err != nil {
		return Config{}, fmt.Errorf("redrive configuration: %w", err)
	}
	return c, nil
}
