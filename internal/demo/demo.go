// Package demo tells a story on the embedded AWS with the compiled worker. The failures of production happen
// for real, by a kill or a fault proxy. At the end everything is counted.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reminder"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// ErrChecks: the story ran to its end, and a check failed.
var ErrChecks = errors.New("a check failed")

// ErrNoSamples: the story's jobs are of the sample kinds, and the list of kinds has them no more.
var ErrNoSamples = errors.New("the demo plays with the sample kinds " + reservation.KindName + " and " + reminder.KindName + ", and internal/kinds lists them no more")

const (
	stack    = "acklast-demo"
	room     = "room-7"
	capacity = 100
	// patience is how long anything in the story may take; the longest, a conviction, takes four
	// visibility timeouts.
	patience = 60 * time.Second
)

// story is the running demo.
type story struct {
	out    io.Writer
	env    *local.Environment
	faults *faults.Proxy
	queues *lanes.Client
	ledger *dynamo.Store
	store  *reservation.Store
	desk   *reservation.Desk
	seen   *local.Tally
	// settings are the system's numbers.
	settings topology.Settings

	subscriptions *reminder.Subscriptions

	report   Report
	jobs     map[string]ledger.Status // every job's key, and the status in which it has to end
	isolated int                      // messages that belong on the DLQ
	accepted map[string]int           // how many messages the provider has to accept for each recipient
	delay    bool                     // whether jobs are sent with SQS's delay until they are due
}

// Report is the result of the story.
type Report struct {
	Seconds  float64 `json:"seconds"`
	Chapters []row   `json:"chapters"`
	Checks   []Check `json:"checks"`
}

// row is a chapter's line in the table at the end.
type row struct {
	Chapter string `json:"chapter"`
	// Sent counts its messages, and Became says which outcomes they had.
	Sent   int    `json:"messages"`
	Became string `json:"became"`
}

// Check is one sum at the end of the story.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

type chapter struct {
	title string
	tell  func(*story, context.Context) (row, error)
}

var chapters = []chapter{
	{"Five stale holds expire", (*story).expire},
	{"One job is sent 20 times at once", (*story).duplicates},
	{"A hold is confirmed just before it expires", (*story).confirm},
	{"A job comes before it is due", (*story).early},
	{"Bodies that nobody can read", (*story).unreadable},
	{"The ledger throttles, and recovers", (*story).outage},
	{"The worker is killed between commit and acknowledgement", (*story).kill},
	{"A job keeps failing until its budget is spent", (*story).fail},
	{"One of ten jobs kills the worker every time", (*story).poison},
	{"A dependency was down, and an operator brings its jobs back", (*story).redrive},
	{"Renewal reminders go out", (*story).reminders},
	{"The worker is killed when the provider has accepted", (*story).killAfterAcceptance},
	{"Nobody can tell whether a reminder was sent", (*story).ambiguous},
}

// Config says what to run and where to write. Functions and Out are required.
type Config struct {
	// Functions are the compiled functions.
	Functions local.Functions
	// Out receives the story.
	Out io.Writer
	// Logs receives the functions' logs, line by line. Nil drops them.
	Logs io.Writer
}

// Run tells the story and reports it. It returns ErrChecks if the jobs that were sent and their outcomes do not
// add up. Any other error means that the story did not come to its end.
func Run(ctx context.Context, c Config) (Report, error) {
	if !kinds.Registered(reservation.KindName, reminder.KindName) {
		return Report{}, ErrNoSamples
	}
	s := &story{out: c.Out, seen: local.NewTally(), jobs: map[string]ledger.Status{}, accepted: map[string]int{}, delay: true}
	began := time.Now()
	err := s.start(ctx, c)
	if err != nil {
		return s.report, err
	}
	defer s.stop()

	for i, c := range chapters {
		s.say("\n%d. %s", i+1, c.title)
		r, err := c.tell(s, ctx)
		if err != nil {
			return s.report, fmt.Errorf("chapter %q: %w", c.title, err)
		}
		r.Chapter = c.title
		s.report.Chapters = append(s.report.Chapters, r)
	}
	err = s.reckon(ctx, time.Since(began))
	return s.report, err
}

func (s *story) start(ctx context.Context, c Config) error {
	settings := topology.Scaled()
	// The visibility timeout is the shortest in whole seconds, because the story waits for it several times.
	settings.WorkerTimeout, settings.LaneVisibility = time.Second, 6*time.Second
	settings.StartMargin, settings.HandoverMargin = 750*time.Millisecond, 150*time.Millisecond
	settings.LeaseSkew = 100 * time.Millisecond
	settings.AttemptTime = settings.StartMargin - settings.HandoverMargin
	s.settings = settings
	logs := io.Writer(s.seen)
	if c.Logs != nil {
		logs = io.MultiWriter(s.seen, c.Logs)
	}
	env, err := local.Start(ctx, local.Config{
		Stack: stack, Settings: settings, Kinds: c.Functions.Kinds, WorkerBinary: c.Functions.Worker, Processes: 2,
		RedriveBinary: c.Functions.Redrive, Redrive: topology.ScaledRedrive(),
		Logs: logs, Grace: time.Second,
		// The provider can look a request up, but takes every request for another reminder.
		Provider: fakeprovider.Options{LooksUp: true},
		WorkerEndpoint: func(endpoint string) string {
			s.faults = faults.New(endpoint)
			return s.faults.URL()
		},
	})
	if err != nil {
		if s.faults != nil {
			s.faults.Close()
		}
		return fmt.Errorf("start the embedded AWS: %w", err)
	}
	s.env = env
	urls, names, cfg := env.QueueURLs(), env.Names(), env.AWSConfig()
	db := awsclient.DynamoDB(cfg)
	s.queues = lanes.New(awsclient.SQS(cfg), topology.QueueURLs{Source: urls.Source, Recovery: urls.Recovery, DLQ: urls.DLQ})
	s.ledger = dynamo.New(db, names.LedgerTable, dynamo.Options{})
	s.store = reservation.NewStore(db, names.Table, time.Now)
	s.desk = reservation.NewDesk(s.store, producer{acklast.NewClient(cfg, names.Stack), s})
	s.subscriptions = reminder.NewSubscriptions(db, names.Table("subscriptions"))

	s.say("The embedded AWS runs at %s: SQS, DynamoDB and Lambda, no account, no Docker.", env.Endpoint())
	s.say("Two processes of the compiled worker poll it (pids %v). Times are scaled down: a message", env.PIDs())
	s.say("that is not acknowledged comes back after %v, a job has %d attempts.",
		settings.LaneVisibility, settings.MaxAttempts)
	return s.store.CreateResource(ctx, room, capacity)
}

func (s *story) stop() {
	_ = s.env.Close() // the story is over, and the process ends soon
	s.faults.Close()
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// tell prints a line of a chapter.
func (s *story) tell(format string, args ...any) { s.say("   "+format, args...) }

// send sends a job to the source lane.
func (s *story) send(ctx context.Context, body string, notBefore time.Time) error {
	move := lanes.Move{Message: job.Message{Body: body}}
	if s.delay {
		move.Delay = time.Until(notBefore)
	}
	return s.queues.Send(ctx, job.Source, []lanes.Move{move})[0]
}

// producer is the stack's client, except that the story chooses the delay of its messages.
type producer struct {
	*acklast.Client
	story *story
}

func (p producer) Send(ctx context.Context, m acklast.Message) error {
	body, err := m.Body()
	if err != nil {
		return err
	}
	return p.story.send(ctx, body, m.NotBefore)
}

// hold holds units of the room for a while and expects its job to be done in the end.
func (s *story) hold(ctx context.Context, id string, units int64, lasting time.Duration) (reservation.Hold, string, error) {
	h := reservation.Hold{
		Payload:   reservation.Payload{ReservationID: id, CommandID: "hold-1", ResourceID: room, Units: units},
		ExpiresAt: time.Now().Add(lasting).Truncate(time.Millisecond),
	}
	key, err := h.Key()
	if err != nil {
		return h, "", err
	}
	s.jobs[key] = ledger.Done
	return h, key, s.desk.Hold(ctx, h)
}

// until waits for something to become true.
func (s *story) until(ctx context.Context, what string, happened func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := happened(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		} else if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: did not happen: %w", what, ctx.Err())
		}
	}
}

// isolatedJobs receives the whole DLQ, and counts its jobs, by the ids of their first messages, and the copies of them.
func (s *story) isolatedJobs(ctx context.Context) (jobs, copies int, err error) {
	ids, originals := map[string]bool{}, map[string]bool{}
	err = s.until(ctx, "every message of the DLQ is received", func() (bool, error) {
		depth, err := s.queues.Depth(ctx, job.DLQ)
		if err != nil || len(ids) >= depth.Total() {
			return err == nil, err
		}
		received, err := s.queues.Receive(ctx, job.DLQ, 10, 2*patience, 0)
		for _, m := range received {
			ids[m.ID], originals[job.Delivery{Message: m.Message}.OriginalID()] = true, true
		}
		return false, err
	})
	return len(originals), len(ids) - len(originals), err
}

// ended waits until the jobs' entries have the expected statuses.
func (s *story) ended(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		err := s.until(ctx, "job "+key+" is "+string(s.jobs[key]), func() (bool, error) {
			e, err := s.ledger.Get(ctx, key)
			return e.Status == s.jobs[key], err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// outcomes waits until n deliveries of the job were observed and returns their count by outcome.
func (s *story) outcomes(ctx context.Context, key string, n int) (map[string]int, error) {
	err := s.until(ctx, fmt.Sprintf("%d deliveries of %s", n, key), func() (bool, error) {
		return s.seen.Total(key) >= n, nil
	})
	return s.seen.Of(key), err
}

// reckon waits until the queues are empty, prints the outcome of everything, and checks it.
func (s *story) reckon(ctx context.Context, took time.Duration) error {
	var idle string
	if err := s.until(ctx, "the lanes run dry", func() (ok bool, err error) {
		idle, ok, err = s.dry(ctx)
		return ok, err
	}); err != nil {
		s.say("   %s", idle)
		return err
	}
	s.report.Seconds = took.Seconds()
	s.say("\nWhat was sent, and what became of it (%.0f s):\n", took.Seconds())
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "   chapter\tmessages\tbecame")
	for _, r := range s.report.Chapters {
		fmt.Fprintf(table, "   %s\t%d\t%s\n", r.Chapter, r.Sent, r.Became)
	}
	if err := table.Flush(); err != nil {
		return err
	}

	s.say("\nChecks:\n")
	failed := false
	check := func(name string, ok bool, detail string) {
		mark := "ok  "
		if !ok {
			mark, failed = "FAIL", true
		}
		s.say("   %s  %s: %s", mark, name, detail)
		s.report.Checks = append(s.report.Checks, Check{name, ok, detail})
	}
	balances, err := s.store.Balances(ctx)
	if err != nil {
		return err
	}
	b := balances[room]
	check("capacity adds up", b.AddsUp(), fmt.Sprintf("%d available + %d held + %d confirmed = %d",
		b.Available, b.Held, b.Confirmed, b.Capacity))

	var twice, lost []string
	effects := 0
	for key, end := range s.jobs {
		e, err := s.ledger.Get(ctx, key)
		if err != nil {
			return err
		}
		if e.Status != end {
			lost = append(lost, fmt.Sprintf("%s is %q, not %q", key, e.Status, end))
		}
		if !end.Final() {
			continue
		}
		effects++
		// Every write of an entry raises its version by one: one for each failed attempt and each reopening,
		// and one that made it final. Among the deliveries that lived to log their outcome, at most one took
		// effect. A reminder is also claimed and decided, so its provider's count is checked below.
		if e.ProviderKey == "" && e.Version != writes(e)+1 || s.seen.Effects(key) > 1 {
			twice = append(twice, fmt.Sprintf("%s: %d writes, %d effects logged", key, e.Version, s.seen.Effects(key)))
		}
	}
	check("one transition each", len(twice) == 0, describe(twice, fmt.Sprintf("%d jobs took effect, each by one write of its entry", effects)))

	var wrong []string
	for recipient, want := range s.accepted {
		if n := len(s.env.Provider().Accepted(recipient)); n != want {
			wrong = append(wrong, fmt.Sprintf("%s: %d, not %d", recipient, n, want))
		}
	}
	all := len(s.env.Provider().Accepted(""))
	check("one acceptance each", len(wrong) == 0, describe(wrong, fmt.Sprintf("the provider accepted %d messages for %d reminders", all, len(s.accepted))))

	on, copies, err := s.isolatedJobs(ctx)
	if err != nil {
		return err
	}
	if on != s.isolated {
		lost = append(lost, fmt.Sprintf("%d jobs on the DLQ, want %d", on, s.isolated))
	}
	also := ""
	if copies > 0 {
		also = fmt.Sprintf(" and %d copies of them", copies)
	}
	check("nothing lost", len(lost) == 0, describe(lost, fmt.Sprintf("every job is final or isolated, %d messages on the DLQ%s, none on the lanes", on, also)))
	if failed {
		return ErrChecks
	}
	return nil
}

// writes returns the number of writes in an entry's history. A last attempt and the isolation that follows from
// it are one.
func writes(e ledger.Entry) (n int64) {
	for i, ev := range e.History {
		if ev.What == ledger.EventIsolated && i > 0 && e.History[i-1].What == ledger.EventFailed && e.History[i-1].At.Equal(ev.At) {
			continue
		}
		n++
	}
	return n
}

func describe(wrong []string, right string) string {
	if len(wrong) == 0 {
		return right
	}
	return strings.Join(wrong, "; ")
}

// dry says whether no message is left on the lanes.
func (s *story) dry(ctx context.Context) (string, bool, error) {
	var left []string
	for _, q := range []job.Queue{job.Source, job.Recovery} {
		d, err := s.queues.Depth(ctx, q)
		if err != nil {
			return "", false, err
		}
		if d != (lanes.Depth{}) {
			left = append(left, fmt.Sprintf("%s: %+v", q, d))
		}
	}
	return strings.Join(left, ", "), len(left) == 0, nil
}
