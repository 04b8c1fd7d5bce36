package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast"
	"acklast/infra/stack"
	"acklast/internal/kinds"
	"acklast/internal/topology"
)

// Prefix marks the CDK context that is ours: cdk deploy -c acklast:batchSize=5.
const Prefix = "acklast:"

// Settings are what a deployment may choose.
type Settings struct {
	// Stack names the stack and, with it, everything in it.
	Stack string
	// Numbers and Infra are the system's numbers.
	Numbers stack.Numbers
	Infra   stack.Infra
	Redrive stack.RedriveNumbers

	// OfKinds are the kinds' variables whose settings are given.
	OfKinds map[string]string

	// LogLevel is the least level that the functions log and Lambda lets through: one of the four
	// that slog names. Metrics are log lines too, of a level that passes every filter.
	LogLevel slog.Level
	// CustomerKey encrypts queues and tables under a KMS key of the stack's own. KeepKey keeps a key that is
	// no longer used, for what still waits under it.
	CustomerKey, KeepKey bool
	// DeletionProtection refuses to delete the tables and the stack, until it is taken away again.
	DeletionProtection bool
	// DestroyData deletes queues and tables together with the stack. Otherwise they stay behind.
	DestroyData bool
	// CheckedDeployment tries a new version of the worker before it gets jobs.
	CheckedDeployment bool
	// Paused are the lanes that are deployed paused: source, recovery, or both with a comma.
	Paused string
	// Senders are the ARNs of the SNS topics, EventBridge rules and S3 buckets that may send jobs, separated by commas.
	Senders string
	// Environment are variables for the worker's kinds and Tags those of the resources: name=value, separated
	// by commas.
	Environment, Tags string
	// VPC is the id of the VPC that both functions run in, and Subnets the ids of its subnets.
	VPC, Subnets string
	// Boundary is the ARN of the policy that bounds the functions' roles.
	Boundary string
	// NoTracing leaves out X-Ray's traces.
	NoTracing bool
	// AlarmEmail receives the alarms, AlarmTopicARN is an existing SNS topic that does. Either, both
	// or none.
	AlarmEmail, AlarmTopicARN string
	// Runbook is the page that the alarms' messages point to.
	Runbook string
	// Endpoint is the local engine that is deployed into.
	Endpoint string
}

// DefaultSettings returns what is deployed when nothing is chosen.
func DefaultSettings() Settings {
	return Settings{
		Stack:    topology.DefaultStack,
		Numbers:  stack.DefaultNumbers(),
		Infra:    stack.DefaultInfra(),
		Redrive:  stack.DefaultRedriveNumbers(stack.DefaultInfra().RedriveTimeout),
		LogLevel: slog.LevelInfo,
	}
}

// A setting is one key of the CDK context.
type setting struct {
	name string
	set  func(s *Settings, value string) error
}

// allSettings lists every key: those of the system and those of the kinds' variables.
func allSettings() []setting {
	all := slices.Clone(settings)
	for _, kind := range acklast.Describe(kinds.All()...) {
		for _, v := range kind.Environment {
			if v.Setting != "" {
				all = append(all, setting{v.Setting, func(s *Settings, value string) error {
					if s.OfKinds == nil {
						s.OfKinds = map[string]string{}
					}
					s.OfKinds[v.Name] = value
					return nil // The kind's Grants check it.
				}})
			}
		}
	}
	return all
}

// settings are the system's keys, in the order of docs/deploy.md.
var settings = []setting{
	{"stack", func(s *Settings, v string) error { s.Stack = v; return nil }},
	duration("workerTimeout", func(s *Settings) *time.Duration { return &s.Numbers.WorkerTimeout }),
	count("workerMemory", func(s *Settings) *int { return &s.Numbers.WorkerMemoryMB }),
	count("batchSize", func(s *Settings) *int { return &s.Numbers.BatchSize }),
	duration("batchWindow", func(s *Settings) *time.Duration { return &s.Numbers.BatchWindow }),
	duration("laneVisibility", func(s *Settings) *time.Duration { return &s.Numbers.LaneVisibility }),
	count("maxReceiveCount", func(s *Settings) *int { return &s.Numbers.MaxReceiveCount }),
	count("sourceConcurrency", func(s *Settings) *int { return &s.Numbers.SourceConcurrency }),
	count("recoveryConcurrency", func(s *Settings) *int { return &s.Numbers.RecoveryConcurrency }),
	duration("startMargin", func(s *Settings) *time.Duration { return &s.Numbers.StartMargin }),
	duration("handoverMargin", func(s *Settings) *time.Duration { return &s.Numbers.HandoverMargin }),
	count("maxAttempts", func(s *Settings) *int { return &s.Numbers.MaxAttempts }),
	duration("backoffBase", func(s *Settings) *time.Duration { return &s.Numbers.BackoffBase }),
	duration("backoffCap", func(s *Settings) *time.Duration { return &s.Numbers.BackoffCap }),
	duration("attemptTime", func(s *Settings) *time.Duration { return &s.Numbers.AttemptTime }),
	duration("scheduleFrom", func(s *Settings) *time.Duration { return &s.Numbers.ScheduleFrom }),
	count("maxRedrives", func(s *Settings) *int { return &s.Numbers.MaxRedrives }),
	duration("laneRetention", func(s *Settings) *time.Duration { return &s.Numbers.LaneRetention }),
	duration("dlqRetention", func(s *Settings) *time.Duration { return &s.Numbers.DLQRetention }),
	duration("redriveWindow", func(s *Settings) *time.Duration { return &s.Numbers.RedriveWindow }),
	duration("ledgerRetention", func(s *Settings) *time.Duration { return &s.Numbers.LedgerRetention }),
	duration("redriveTimeout", func(s *Settings) *time.Duration { return &s.Infra.RedriveTimeout }),
	count("redriveMemory", func(s *Settings) *int { return &s.Infra.RedriveMemoryMB }),
	count("workerReserved", func(s *Settings) *int { return &s.Infra.WorkerReserved }),
	count("accountConcurrency", func(s *Settings) *int { return &s.Infra.AccountConcurrency }),
	count("redriveReserved", func(s *Settings) *int { return &s.Infra.RedriveReserved }),
	count("redriveRate", func(s *Settings) *int { return &s.Redrive.Rate }),
	count("redriveMaxRate", func(s *Settings) *int { return &s.Redrive.MaxRate }),
	count("redriveBacklog", func(s *Settings) *int { return &s.Redrive.BacklogLimit }),
	count("redriveCanary", func(s *Settings) *int { return &s.Redrive.Canary }),
	duration("redriveCanaryWait", func(s *Settings) *time.Duration { return &s.Redrive.CanaryWait }),
	count("redriveApprovalAbove", func(s *Settings) *int { return &s.Redrive.ApprovalAbove }),
	count("redriveScan", func(s *Settings) *int { return &s.Redrive.ScanMessages }),
	duration("redrivePlanExpiry", func(s *Settings) *time.Duration { return &s.Redrive.PlanExpiry }),
	duration("logRetention", func(s *Settings) *time.Duration { return &s.Infra.LogRetention }),
	duration("shortestBudget", func(s *Settings) *time.Duration { return &s.Infra.ShortestBudget }),
	duration("nearDeadline", func(s *Settings) *time.Duration { return &s.Infra.NearDeadline }),
	duration("stalled", func(s *Settings) *time.Duration { return &s.Infra.Stalled }),
	duration("laneAge", func(s *Settings) *time.Duration { return &s.Infra.LaneAge }),
	duration("dlqAge", func(s *Settings) *time.Duration { return &s.Infra.DLQAge }),
	{"logLevel", func(s *Settings, v string) error { return s.LogLevel.UnmarshalText([]byte(v)) }},
	{"customerKey", func(s *Settings, v string) error {
		switch v {
		case "true":
			s.CustomerKey = true
		case "false":
			s.KeepKey = true // Whoever says false may have said true before.
		case "none":
		default:
			return errors.New("want true, false or none")
		}
		return nil
	}},
	yesNo("deletionProtection", func(s *Settings) *bool { return &s.DeletionProtection }),
	yesNo("destroyData", func(s *Settings) *bool { return &s.DestroyData }),
	yesNo("checkedDeployment", func(s *Settings) *bool { return &s.CheckedDeployment }),
	{"paused", func(s *Settings, v string) error { s.Paused = v; return nil }},
	{"senders", func(s *Settings, v string) error { s.Senders = v; return nil }},
	{"environment", func(s *Settings, v string) error { s.Environment = v; return nil }},
	{"tags", func(s *Settings, v string) error { s.Tags = v; return nil }},
	{"vpc", func(s *Settings, v string) error { s.VPC = v; return nil }},
	{"subnets", func(s *Settings, v string) error { s.Subnets = v; return nil }},
	{"permissionsBoundaryArn", func(s *Settings, v string) error { s.Boundary = v; return nil }},
	{"tracing", func(s *Settings, v string) error {
		on, err := strconv.ParseBool(v)
		if s.NoTracing = !on; err != nil {
			return errors.New("want true or false")
		}
		return nil
	}},
	{"alarmEmail", func(s *Settings, v string) error { s.AlarmEmail = v; return nil }},
	{"alarmTopicArn", func(s *Settings, v string) error { s.AlarmTopicARN = v; return nil }},
	{"runbook", func(s *Settings, v string) error { s.Runbook = v; return nil }},
	{"endpoint", func(s *Settings, v string) error { s.Endpoint = v; return nil }},
}

func duration(name string, field func(*Settings) *time.Duration) setting {
	return setting{name, func(s *Settings, v string) (err error) {
		// Days are how retention is spoken of, and Go's durations have none.
		if days, ok := strings.CutSuffix(v, "d"); ok {
			var n int
			if n, err = strconv.Atoi(days); err == nil {
				*field(s) = time.Duration(n) * 24 * time.Hour
				return nil
			}
		} else if *field(s), err = time.ParseDuration(v); err == nil {
			return nil
		}
		return errors.New("want a duration such as 30s, 15m or 4d")
	}}
}

func count(name string, field func(*Settings) *int) setting {
	return setting{name, func(s *Settings, v string) (err error) {
		if *field(s), err = strconv.Atoi(v); err != nil {
			return errors.New("want a whole number")
		}
		return nil
	}}
}

func yesNo(name string, field func(*Settings) *bool) setting {
	return setting{name, func(s *Settings, v string) (err error) {
		if *field(s), err = strconv.ParseBool(v); err != nil {
			return errors.New("want true or false")
		}
		return nil
	}}
}

// ParseSettings reads the settings from the CDK context, where every other key is somebody else's.
// The error has a sentence for each value that is wrong, and for each inequality that is broken.
func ParseSettings(context map[string]any) (Settings, error) {
	s := DefaultSettings()
	var errs []error
	known := map[string]bool{}
	for _, one := range allSettings() {
		known[Prefix+one.name] = true
		if v, given := context[Prefix+one.name]; given {
			if err := one.set(&s, text(v)); err != nil {
				errs = append(errs, fmt.Errorf("%s%s is %q: %w", Prefix, one.name, text(v), err))
			}
		}
	}
	for key := range context {
		if strings.HasPrefix(key, Prefix) && !known[key] {
			errs = append(errs, fmt.Errorf("%s is not a setting, docs/deploy.md lists them", key))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, s.validate())
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if err := errors.Join(errs...); err != nil {
		return Settings{}, fmt.Errorf("settings:\n%w", err)
	}
	return s, nil
}

// text is a value as the command line would give it. A list is separated by commas, and so are the
// name=value of an object.
func text(v any) string {
	if object, ok := v.(map[string]any); ok {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(object)) {
			all = append(all, name+"="+fmt.Sprint(object[name]))
		}
		return strings.Join(all, ",")
	}
	if list, ok := v.([]any); ok {
		all := make([]string, len(list))
		for i := range list {
			all[i] = fmt.Sprint(list[i])
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}

// pairs are the name=value of a list. What has no = has no value either, and validate refuses it.
func pairs(list string) map[string]string {
	all := map[string]string{}
	for one := range strings.SplitSeq(list, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(one), "="); name != "" {
			all[name] = value
		}
	}
	return all
}

// words are the parts of a list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// props are what the settings make of the system, but for what the CDK or a build makes.
func (s Settings) props() stack.Props {
	p := stack.Props{
		Name: s.Stack, Kinds: kinds.All(), Numbers: s.Numbers, Infra: s.Infra,
		LogLevel: s.LogLevel, CustomerKey: s.CustomerKey, KeepKey: s.KeepKey, DeletionProtection: s.DeletionProtection,
		DestroyData: s.DestroyData, CheckedDeployment: s.CheckedDeployment, AlarmEmail: s.AlarmEmail, Runbook: s.Runbook, Endpoint: s.Endpoint,
		Redrive: s.Redrive, Environment: pairs(s.Environment), Tags: pairs(s.Tags), NoTracing: s.NoTracing,
	}
	// The parts of an invocation follow from its timeout.
	parts := stack.DefaultRedriveNumbers(s.Infra.RedriveTimeout)
	p.Redrive.Timeout, p.Redrive.ScanTime, p.Redrive.PauseMargin = parts.Timeout, parts.ScanTime, parts.PauseMargin
	p.PauseSource, p.PauseRecovery = slices.Contains(words(s.Paused), laneSource), slices.Contains(words(s.Paused), laneRecovery)
	if s.AlarmTopicARN != "" {
		p.AlarmTopicARNs = []string{s.AlarmTopicARN}
	}
	maps.Copy(p.Environment, s.OfKinds)
	return p
}
