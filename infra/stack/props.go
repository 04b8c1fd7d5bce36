package stack

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"

	"acklast"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// Numbers are the numbers of the worker, its lanes and the ledger. Begin with DefaultNumbers.
//
//   - WorkerTimeout, WorkerMemoryMB: of the worker function.
//   - BatchSize, BatchWindow: of an invocation; above 10 messages a window is required.
//   - LaneVisibility, MaxReceiveCount: of the lanes.
//   - SourceConcurrency, RecoveryConcurrency: the caps of the lanes' mappings.
//   - StartMargin, HandoverMargin: the time left in an invocation below which no record is started, and
//     the time kept for handing over results.
//   - MaxAttempts, BackoffBase, BackoffCap, AttemptTime: the budget of a job's attempts.
//   - HopDelay, MaxAhead: the longest hop of a job that waits for its time, and how far ahead a job may be due if it
//     waits in hops.
//   - ScheduleFrom, ScheduleAhead, ScheduleEarly: from how far ahead on a job is handed to EventBridge Scheduler, up
//     to how far, and how long before its time it comes back.
//   - LeftBackoffBase, LeftBackoffCap: the visibility timeout of a delivery that is left.
//   - LaneRetention, DLQRetention, RedriveWindow, LedgerRetention: how long things are kept.
//   - MaxContentions, ContentionTime: how often and for how long conflicting writes may defer a job.
//   - RolloutWait: how long a job waits if the worker does not know its kind.
//   - LeaseSkew: the clock difference between workers that leases tolerate.
//   - MaxRedrives: how often an isolated job may be reopened.
type Numbers = topology.Settings

// Infra are the numbers that only a deployed system has. Begin with DefaultInfra.
//
//   - RedriveTimeout, RedriveMemoryMB: of the redrive function.
//   - WorkerReserved, RedriveReserved: reserved concurrency; zero reserves none.
//   - AccountConcurrency: the account's quota, which the caps must fit; zero is unknown.
//   - LogRetention: of both functions' logs, in whole days.
//   - ShortestBudget, NearDeadline, Stalled, LaneAge, DLQAge: what the alarms look at.
type Infra = topology.Infra

// RedriveNumbers are the redrive function's own numbers. Begin with DefaultRedriveNumbers.
//
//   - Timeout: set by New from Infra.
//   - PauseMargin: the time at the end of an invocation in which no cohort starts.
//   - ScanMessages, ScanBytes, ScanTime, EmptyReceives, ReceiveWait: bounds of one scan of the DLQ.
//   - Hide, GoneAfter: how long a received message stays hidden, and for how long a run looks for a message that it
//     did not receive.
//   - MaxHidden, IdleReceives: how many messages a run of an open plan hides at a time, and after how many receives
//     that bring nothing new one of its passes ends.
//   - PlanExpiry, ApprovalAbove: until when a plan can run, and above how many jobs it needs an approval.
//   - Rate, MaxRate, BacklogLimit: how fast a run sends.
//   - Ramp, Canary, CanaryWait: the jobs that go first: in stages when Ramp is 1, and how long they may take.
//   - Window, MinSample, MaxFailedPercent, MaxDuplicatePercent: when a run stops itself.
//   - LockLease, PollEvery, Retention: of the run's lock, its looks, and its documents.
type RedriveNumbers = topology.Redrive

// DefaultRunbook is this repository's own, from its root.
const DefaultRunbook = "docs/runbook.md"

// DefaultNumbers returns the numbers of a system whose Props leave Numbers zero.
func DefaultNumbers() Numbers { return topology.Default() }

// DefaultInfra is like DefaultNumbers.
func DefaultInfra() Infra { return topology.DefaultInfra() }

// DefaultRedriveNumbers is like DefaultNumbers, for a redrive function with the timeout.
func DefaultRedriveNumbers(timeout time.Duration) RedriveNumbers {
	n := topology.DefaultRedrive()
	n.Timeout = timeout
	// In a short invocation the parts of it are shorter too.
	n.ScanTime, n.PauseMargin = min(n.ScanTime, timeout/2), min(n.PauseMargin, timeout/4)
	return n
}

// Props say what a system is made of. Kinds, WorkerCode and RedriveCode are required.
type Props struct {
	// Name begins the physical name of everything in the system. Two systems in one account and region
	// have two names. The default is "acklast".
	Name string
	// Kinds are the kinds of job. They bring their tables, and what the worker may do.
	Kinds []acklast.Kind
	// WorkerCode and RedriveCode are the code of the two functions.
	WorkerCode, RedriveCode Code
	// Environment are the variables that the kinds read, in both functions. Kinds may grant by them.
	Environment map[string]string

	// Numbers, Infra and Redrive are the system's numbers; the zero value is the default.
	Numbers Numbers
	Infra   Infra
	Redrive RedriveNumbers

	// LogLevel is the least level that the functions log and Lambda lets through: one of the four
	// that slog names, and slog.LevelInfo by default. Metrics are log lines of a level that passes every filter.
	LogLevel slog.Level
	// CustomerKey encrypts queues and tables under a KMS key of the system's own.
	CustomerKey bool
	// KeepKey keeps that key and the rights to it after CustomerKey was taken away: messages that wait stay
	// encrypted under it, for as long as the DLQ keeps them, and so do the tables' backups.
	KeepKey bool
	// DeletionProtection refuses to delete the tables, until it is taken away again.
	DeletionProtection bool
	// DestroyData deletes queues and tables together with the stack. Otherwise they stay.
	DestroyData bool

	// AlarmEmail receives the alarms through a topic that New makes. AlarmTopicARNs are topics of yours
	// that receive them; the policy of each must let CloudWatch publish.
	AlarmEmail     string
	AlarmTopicARNs []string

	// Runbook is the address of a page with the headings of docs/runbook.md, to which the alarms' messages refer. By
	// default it is that file.
	Runbook string

	// Endpoint is the address of a local engine that the stack is deployed into. The outputs name it, so that
	// their commands reach that engine from any shell, and not the real AWS. Nothing else depends on it.
	Endpoint string

	// PauseSource and PauseRecovery deploy a lane paused, or keep it so. A later deployment without them
	// feeds the lane again. A pause by hand lasts until a deployment changes the lane's mapping.
	PauseSource, PauseRecovery bool

	// CheckedDeployment lets CodeDeploy move jobs to a new version of the worker. If it answers a test event, it gets a tenth
	// of them first, and then all. If it fails, the old version gets them again. By default a deployment moves all at once.
	CheckedDeployment bool

	// VPC places both functions in a VPC's private subnets; nil leaves them outside. They need a way to
	// SQS, DynamoDB and what the kinds call.
	VPC awsec2.IVpc
	// Tags are put on everything that takes tags.
	Tags map[string]string
	// NoTracing leaves out X-Ray's traces, and the right to write them.
	NoTracing bool
	// PermissionsBoundary bounds the roles of both functions.
	PermissionsBoundary awsiam.IManagedPolicy
}

// withDefaults fills in what was not chosen.
func (p Props) withDefaults() Props {
	if p.Name == "" {
		p.Name = topology.DefaultStack
	}
	if p.Numbers == (Numbers{}) {
		p.Numbers = DefaultNumbers()
	}
	if p.Infra == (Infra{}) {
		p.Infra = DefaultInfra()
	}
	if p.Redrive == (RedriveNumbers{}) {
		p.Redrive = DefaultRedriveNumbers(p.Infra.RedriveTimeout)
	}
	if p.Runbook == "" {
		p.Runbook = DefaultRunbook
	}
	p.Redrive.Timeout = p.Infra.RedriveTimeout
	return p
}

var (
	tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,100}$`)
	// It becomes a word of a shell's command line.
	endpoint = regexp.MustCompile(`^https?://[a-zA-Z0-9.-]+(:[0-9]+)?$`)
	email    = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)
	// What Lambda and the services that take tags accept.
	variableName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]+$`)
	tagText      = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+@-]*$`)
)

// longestRegion is a region with as long a name as any of AWS's.
const longestRegion = "ap-northeast-1"

// maxTags is how many tags of ours a resource may have.
const maxTags = 50

// hookInvocations are what a checked deployment runs besides the lanes: the hook, and the version that it tries.
const hookInvocations = 2

// maxEnvironmentBytes is what Lambda allows for a function's environment.
const maxEnvironmentBytes = 4096

// logDays are the retention periods that CloudWatch Logs accepts, in days.
var logDays = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

// Validate reports everything that is wrong with the props, each in a sentence. It does not look at the
// code of the functions.
func (p Props) Validate() error {
	p = p.withDefaults()
	errs := []error{p.Numbers.Validate(), p.Infra.Validate(p.Numbers), p.Redrive.Validate(p.Numbers)}
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(topology.ValidStack(p.Name),
		"stack is %q, but a stack's name begins with a letter and has at most %d letters, digits and hyphens", p.Name, topology.MaxStack)
	must(slices.Contains(logDays, p.logDays()), "log retention is %d days, but CloudWatch accepts only %v", p.logDays(), logDays)
	must(slices.Contains([]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}, p.LogLevel),
		"log level is %v, but Lambda knows DEBUG, INFO, WARN and ERROR", p.LogLevel)
	must(p.AlarmEmail == "" || email.MatchString(p.AlarmEmail), "alarm e-mail is %q, which is no address", p.AlarmEmail)
	must(len(p.Runbook) <= 200 && !strings.ContainsAny(p.Runbook, " #"),
		"runbook is %q, want the address of a page, without an anchor and with at most 200 characters", p.Runbook)
	must(p.Endpoint == "" || endpoint.MatchString(p.Endpoint), "endpoint is %q, want an address such as http://127.0.0.1:4566", p.Endpoint)
	must(!p.DeletionProtection || !p.DestroyData,
		"deletionProtection and destroyData exclude each other: the one refuses what the other promises")
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		if !variableName.MatchString(name) {
			must(false, "environment has %q, but Lambda wants a name of at least two letters, digits and underscores that begins with a letter", name)
			continue
		}
		must(!p.reserved(name), "environment has %s, which New sets itself", name)
		must(!ofLambda(name), "environment has %s, which Lambda sets itself", name)
	}
	environments := p.environments()
	for _, function := range slices.Sorted(maps.Keys(environments)) {
		size := 0
		for name, value := range environments[function] {
			size += len(name) + len(value)
		}
		must(size <= maxEnvironmentBytes, "the %s's environment has up to %d bytes by the region, but Lambda allows %d", function, size, maxEnvironmentBytes)
	}
	must(len(p.Tags) <= maxTags, "there are %d tags, but AWS allows %d", len(p.Tags), maxTags)
	for _, name := range slices.Sorted(maps.Keys(p.Tags)) {
		value := p.Tags[name]
		must(!strings.HasPrefix(strings.ToLower(name), "aws:"), "tags has %q, but AWS keeps that prefix to itself", name)
		must(name != "" && utf8.RuneCountInString(name) <= 128 && utf8.RuneCountInString(value) <= 256,
			"tags has %q, but a tag's name has at most 128 characters and its value 256", name)
		must(tagText.MatchString(name+value), "tags has %q, but a tag has letters, digits, spaces and _.:/=+-@ only", name)
	}
	if lanes := p.Numbers.SourceConcurrency + p.Numbers.RecoveryConcurrency; p.CheckedDeployment {
		of := p.Infra.AccountConcurrency
		// Infra.Validate reports what does not even fit without them.
		must(of == 0 || of < lanes+topology.MinReservedConcurrency || of >= lanes+topology.MinReservedConcurrency+hookInvocations,
			"the account's concurrency of %d has to hold the caps of both lanes, a redrive and a request that stops it, and checkedDeployment needs two more: the hook, and the version that it tries", of)
		reserved := p.Infra.WorkerReserved
		must(reserved != lanes,
			"worker reserved concurrency is %d, but checkedDeployment needs one more than the caps of both lanes: the version that the hook tries", reserved)
	}
	for _, k := range acklast.Describe(p.Kinds...) {
		must(k.Attempts.Time <= p.Numbers.StartMargin-p.Numbers.HandoverMargin,
			"kind %s: attempt time is %v, above start margin - handover margin = %v: an attempt would reach into the hand-over's time",
			k.Name, k.Attempts.Time, p.Numbers.StartMargin-p.Numbers.HandoverMargin)
		for _, t := range k.Tables {
			must(tableName.MatchString(t.Name), "kind %s: table %q: a table's name has 1 to 100 letters, digits, hyphens, underscores and dots", k.Name, t.Name)
		}
	}
	_, err := p.kindTables()
	errs = append(errs, err)
	_, err = p.kindGrants()
	return errors.Join(append(errs, err)...)
}

// reserved says whether New sets the variable.
func (p Props) reserved(variable string) bool {
	_, worker := p.workerEnvironment(topology.QueueURLs{})[variable]
	_, redrive := p.redriveEnvironment(topology.QueueURLs{})[variable]
	return worker || redrive
}

// ofLambda says whether a variable is one that Lambda reserves.
func ofLambda(variable string) bool {
	return strings.HasPrefix(variable, "AWS_LAMBDA_") || slices.Contains([]string{
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EXECUTION_ENV", "AWS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "LAMBDA_TASK_ROOT", "LAMBDA_RUNTIME_DIR",
	}, variable)
}

// environments are both functions' environments, with what only the deployed stack knows as long as in any account
// and region.
func (p Props) environments() map[string]map[string]string {
	const account, region, suffix = "123456789012", longestRegion, ".amazonaws.com.cn/"
	names := p.names()
	url := func(queue string) string { return "https://sqs." + region + suffix + account + "/" + queue }
	urls := topology.QueueURLs{Source: url(names.SourceQueue), Recovery: url(names.RecoveryQueue), DLQ: url(names.DLQ)}
	own := p.workerEnvironment(urls)
	maps.Copy(own, worker.ScheduleEnvironment(
		"arn:aws-us-gov:iam::"+account+":role/"+names.SchedulerRole+"-"+region, "arn:aws-us-gov:sqs:"+region+":"+account+":"+names.DLQ))
	all := map[string]map[string]string{"worker": own, "redrive": p.redriveEnvironment(urls)}
	for _, env := range all {
		maps.Copy(env, p.Environment)
	}
	return all
}

func (p Props) names() topology.Names { return topology.NamesOf(p.Name) }

func (p Props) logDays() int { return int(p.Infra.LogRetention / (24 * time.Hour)) }

// workerEnvironment is the part of the worker's environment that is not the kinds'.
func (p Props) workerEnvironment(urls topology.QueueURLs) map[string]string {
	env := worker.Environment(p.Name, urls, p.Numbers)
	maps.Copy(env, worker.ScheduleEnvironment("", "")) // whose values only the stack knows
	env[worker.EnvLogLevel] = p.LogLevel.String()
	return env
}

func (p Props) redriveEnvironment(urls topology.QueueURLs) map[string]string {
	env := redrive.Environment(p.Name, urls, p.Numbers, p.Redrive)
	env[worker.EnvLogLevel] = p.LogLevel.String()
	return env
}
