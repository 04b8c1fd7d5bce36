package main

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast/infra/stack"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reminder"
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

	// Reminders choose the provider of reminders; none by default, which rejects them.
	Reminders reminder.Config

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
	// Paused are the lanes that are deployed paused: source, recovery, or both with a comma.
	Paused string
	// Senders are the ARNs of the SNS topics, EventBridge rules and S3 buckets that may send jobs, separated by commas.
	Senders string
	// AlarmEmail receives the alarms, AlarmTopicARN is an existing SNS topic that does. Either, both
	// or none.
	AlarmEmail, AlarmTopicARN string
	// Endpoint is the local engine that is deployed into.
	Endpoint string
}

// DefaultSettings returns what is deployed when nothing is chosen.
func DefaultSettings() Settings {
	return Settings{
		Stack:    topology.DefaultStack,
		Numbers:  stack.DefaultNumbers(),
		Infra:    stack.DefaultInfra(),
		LogLevel: slog.LevelInfo,
	}
}

// A setting is one key of the CDK context.
type setting struct {
	name string
	set  func(s *Settings, value string) error
}

// settings lists every key there is, in the order of docs/deploy.md.
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
	count("maxRedrives", func(s *Settings) *int { return &s.Numbers.MaxRedrives }),
	duration("laneRetention", func(s *Settings) *time.Duration { return &s.Numbers.LaneRetention }),
	duration("dlqRetention", func(s *Settings) *time.Duration { return &s.Numbers.DLQRetention }),
	duration("redriveWindow", func(s *Settings) *time.Duration { return &s.Numbers.RedriveWindow }),
	duration("ledgerRetention", func(s *Settings) *time.Duration { return &s.Numbers.LedgerRetention }),
	duration("redriveTimeout", func(s *Settings) *time.Duration { return &s.Infra.RedriveTimeout }),
	count("redriveMemory", func(s *Settings) *int { return &s.Infra.RedriveMemoryMB }),
	count("workerReserved", func(s *Settings) *int { return &s.Infra.WorkerReserved }),
	count("redriveReserved", func(s *Settings) *int { return &s.Infra.RedriveReserved }),
	duration("logRetention", func(s *Settings) *time.Duration { return &s.Infra.LogRetention }),
	duration("shortestBudget", func(s *Settings) *time.Duration { return &s.Infra.ShortestBudget }),
	duration("nearDeadline", func(s *Settings) *time.Duration { return &s.Infra.NearDeadline }),
	duration("producerDelay", func(s *Settings) *time.Duration { return &s.Infra.ProducerDelay }),
	duration("stalled", func(s *Settings) *time.Duration { return &s.Infra.Stalled }),
	duration("laneAge", func(s *Settings) *time.Duration { return &s.Infra.LaneAge }),
	duration("dlqAge", func(s *Settings) *time.Duration { return &s.Infra.DLQAge }),
	{"provider", func(s *Settings, v string) error { s.Reminders.Provider = v; return nil }},
	duration("providerTimeout", func(s *Settings) *time.Duration { return &s.Reminders.Timeout }),
	{"providerUrl", func(s *Settings, v string) error { s.Reminders.URL = v; return nil }},
	{"providerSecretArn", func(s *Settings, v string) error { s.Reminders.SecretARN = v; return nil }},
	yesNo("providerDeduplicates", func(s *Settings) *bool { return &s.Reminders.Abilities.Deduplicates }),
	yesNo("providerLooksUp", func(s *Settings) *bool { return &s.Reminders.Abilities.LooksUp }),
	duration("providerKeyWindow", func(s *Settings) *time.Duration { return &s.Reminders.Abilities.KeyWindow }),
	{"providerBareYes", func(s *Settings, v string) error { s.Reminders.BareYes = v; return nil }},
	{"sesFrom", func(s *Settings, v string) error { s.Reminders.SESFrom = v; return nil }},
	{"sesConfigurationSet", func(s *Settings, v string) error { s.Reminders.SESSet = v; return nil }},
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
	{"paused", func(s *Settings, v string) error { s.Paused = v; return nil }},
	{"senders", func(s *Settings, v string) error { s.Senders = v; return nil }},
	{"alarmEmail", func(s *Settings, v string) error { s.AlarmEmail = v; return nil }},
	{"alarmTopicArn", func(s *Settings, v string) error { s.AlarmTopicARN = v; return nil }},
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
	for _, one := range settings {
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

// text is a value as the command line would give it; a list is separated by commas.
func text(v any) string {
	if list, ok := v.([]any); ok {
		all := make([]string, len(list))
		for i := range list {
			all[i] = fmt.Sprint(list[i])
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}

// words are the parts of a list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// The lanes, as the setting paused names them.
const (
	laneSource   = "source"
	laneRecovery = "recovery"
)

var (
	configurationSet = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	topicARN         = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$`)
)

func (s Settings) validate() error {
	// The stack's own rules, and those of the kinds for the worker's environment.
	errs := []error{s.props().Validate()}
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(s.Stack != "", "stack is empty, and everything is named after it")
	env := s.Reminders.Environment()
	c, err := reminder.ParseConfig(func(name string) string { return env[name] })
	must(err != nil || s.Reminders.Provider == "" || c.Timeout <= s.Numbers.StartMargin-s.Numbers.HandoverMargin,
		"provider timeout is %v, but a record that is started has only startMargin - handoverMargin = %v to make its call",
		c.Timeout, s.Numbers.StartMargin-s.Numbers.HandoverMargin)
	for _, one := range s.providerSettings() {
		must(!one.set || slices.Contains(one.of, s.Reminders.Provider),
			"%s is set, but provider is %q: it belongs to %s", one.name, s.Reminders.Provider, strings.Join(one.of, " and "))
	}
	must(s.Reminders.Provider != reminder.ProviderHTTP || s.Reminders.SecretARN == "" || strings.HasPrefix(s.Reminders.URL, "https://"),
		"providerUrl is %q with a secret, which would travel in clear text: use https", s.Reminders.URL)
	must(s.Reminders.SESSet == "" || configurationSet.MatchString(s.Reminders.SESSet),
		"SES's configuration set is %q, but its name has 1 to 64 letters, digits, hyphens and underscores", s.Reminders.SESSet)
	for _, lane := range words(s.Paused) {
		must(lane == laneSource || lane == laneRecovery, "paused has %q, want source or recovery", lane)
	}
	for _, arn := range s.senders() {
		must(serviceOf(arn) != nil, "senders has %q, want the ARN of an SNS topic, an EventBridge rule or an S3 bucket", arn)
	}
	must(s.AlarmTopicARN == "" || topicARN.MatchString(s.AlarmTopicARN), "alarm topic is %q, which is no ARN of an SNS topic", s.AlarmTopicARN)
	return errors.Join(errs...)
}

// providerSetting is a setting about the provider of reminders.
type providerSetting struct {
	name string
	set  bool
	of   []string // the providers that it is for
}

func (s Settings) providerSettings() []providerSetting {
	r := s.Reminders
	http, ses := []string{reminder.ProviderHTTP}, []string{reminder.ProviderSES}
	return []providerSetting{
		{"providerTimeout", r.Timeout != 0, []string{reminder.ProviderHTTP, reminder.ProviderSES}},
		{"providerUrl", r.URL != "", http},
		{"providerSecretArn", r.SecretARN != "", http},
		{"providerDeduplicates", r.Abilities.Deduplicates, http},
		{"providerLooksUp", r.Abilities.LooksUp, http},
		{"providerKeyWindow", r.Abilities.KeyWindow != 0, http},
		{"providerBareYes", r.BareYes != "", http},
		{"sesFrom", r.SESFrom != "", ses},
		{"sesConfigurationSet", r.SESSet != "", ses},
	}
}

// checkRegion checks what must lie in the region that is deployed to, which may be unknown.
func (s Settings) checkRegion(region string) error {
	if parts := strings.Split(s.AlarmTopicARN, ":"); region != "" && len(parts) > 3 && parts[3] != region {
		return fmt.Errorf("settings:\nalarm topic is %q, but alarms of %s reach topics of %s only", s.AlarmTopicARN, region, region)
	}
	return nil
}

// props are what the settings make of the system, but for what the CDK or a build makes.
func (s Settings) props() stack.Props {
	p := stack.Props{
		Name: s.Stack, Kinds: kinds.All(), Numbers: s.Numbers, Infra: s.Infra,
		LogLevel: s.LogLevel, CustomerKey: s.CustomerKey, KeepKey: s.KeepKey, DeletionProtection: s.DeletionProtection,
		DestroyData: s.DestroyData, AlarmEmail: s.AlarmEmail, Endpoint: s.Endpoint,
	}
	p.PauseSource, p.PauseRecovery = slices.Contains(words(s.Paused), laneSource), slices.Contains(words(s.Paused), laneRecovery)
	if s.AlarmTopicARN != "" {
		p.AlarmTopicARNs = []string{s.AlarmTopicARN}
	}
	// The provider of reminders, if there is one.
	if s.Reminders.Provider != reminder.ProviderNone {
		p.Environment = s.Reminders.Environment()
	}
	return p
}
