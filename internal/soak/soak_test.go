package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

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
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

var (
	seedFlag       = flag.Uint64("soak.seed", 0, "the seed of the load and of the faults; 0 takes a new one")
	durationFlag   = flag.Duration("soak.duration", 5*time.Second, "how long load and faults go on")
	deliveriesFlag = flag.Int64("soak.deliveries", 0, "if set, load and faults go on until so many deliveries were answered")
	oldFlag        = flag.String("soak.old", "", "the compiled worker of an earlier version, which then runs beside this one")
)

const (
	rooms    = 5
	capacity = 1_000_000
	// drainAtMost ends a run whose lanes never run dry.
	drainAtMost = 10 * time.Minute
)

// size is what a run's length decides.
type size struct {
	// processes is how many run the worker, backlog how many messages may wait on the lanes before the load pauses.
	processes, backlog int
	// pause is the longest time between two faults, planning that between two plans, and outage the longest outage.
	pause, planning, outage time.Duration
	// killEvery is the least number of answers between two that are lost together with their process.
	killEvery int64
	// redrives and schedules say that the run has them: each takes longer than a short run does.
	redrives, schedules bool
	// copies says that most jobs are sent many times, and few can never succeed, so that the DLQ stays small.
	copies bool
}

func sized() size {
	s := size{processes: 3, backlog: 300, pause: 600 * time.Millisecond, planning: 3 * time.Second, outage: 3500 * time.Millisecond, killEvery: 20}
	s.redrives, s.schedules = *durationFlag >= 20*time.Second, *durationFlag >= time.Minute
	if *durationFlag >= 10*time.Minute || *deliveriesFlag > 0 {
		s.outage = 75 * time.Second
	}
	if *deliveriesFlag > 0 {
		s.processes, s.backlog, s.pause, s.planning, s.killEvery = 6, 2000, 4*time.Second, 30*time.Second, 200
		s.redrives, s.schedules, s.copies = true, true, true
	}
	return s
}

// run is one soak: a stack, its load, its faults and its record.
type run struct {
	*testing.T
	record  recorder
	random  *rand.Rand // of the load alone
	env     *local.Environment
	faults  *faults.Proxy
	between *faults.Proxy // between the redrive function and AWS
	// scheduler stands between the worker and EventBridge Scheduler.
	scheduler *faults.Proxy
	queues    *lanes.Client
	api       *sqs.Client
	ledger    *dynamo.Store
	store     *reservation.Store
	desk      *reservation.Desk
	subs      *reminder.Subscriptions
	settings  topology.Settings
	redriver  string
	stack     string
	size      size
	n         int
	// clocks is the folder of the files that step clocks.
	clocks string
	// pending are messages of the sender that wait for their batch.
	pending  []sending
	injected map[string]int
	governance
	// rules remove what the provider does wrong.
	rules []func()
}

func TestSoak(t *testing.T) {
	if !kinds.Registered(reservation.KindName, reminder.KindName) {
		t.Skip("it plays with the sample kinds, and internal/kinds has them no more")
	}
	seed := cmp.Or(*seedFlag, rand.Uint64())
	again := fmt.Sprintf("SOAK_DURATION=%v", *durationFlag)
	if *deliveriesFlag > 0 {
		again = fmt.Sprintf("SOAK_DELIVERIES=%d", *deliveriesFlag)
	}
	t.Logf("seed %d: repeat with make soak SOAK_SEED=%d %s", seed, seed, again)
	r := start(t, seed)
	// An interrupt ends the load, and what was recorded until then is checked.
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	if *deliveriesFlag == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *durationFlag)
		defer cancel()
	}
	began := time.Now()
	var others sync.WaitGroup
	others.Go(func() { r.harm(ctx, rand.New(rand.NewPCG(seed, 1))) })
	if r.size.redrives {
		others.Go(func() { r.govern(ctx, rand.New(rand.NewPCG(seed, 2)), "ada", "bea", "cy") })
		others.Go(func() { r.govern(ctx, rand.New(rand.NewPCG(seed, 3)), "bea", "cy", "ada") })
	}
	others.Go(func() { r.look(ctx) })
	others.Go(func() { r.progress(ctx, stop) })
	r.load(ctx)
	others.Wait()
	t.Logf("%v: load and faults end after %d deliveries", time.Since(began).Round(time.Second), r.record.count.Load())
	r.mend()
	r.drain()
	h := r.finish()
	acknowledged := 0
	for _, d := range h.Deliveries {
		if d.Acknowledged {
			acknowledged++
		}
	}
	t.Logf("%v until everything was read: %d messages sent, %d deliveries answered, %d acknowledged, %d moves, %d schedules, %d entry writes, %d entries, %d on the DLQ, %d runs, %d accepted, %d deleted by workers, switch thrown %d times, %d plans approved; faults: %v",
		time.Since(began).Round(time.Second), len(h.Sent), len(h.Deliveries), acknowledged, len(h.Moves), len(h.Schedules), len(h.Writes), len(h.Entries), len(h.DLQ), len(h.Runs), len(h.Accepted), len(h.Deletes), len(h.Thrown), len(h.Approvals), r.injected)
	if len(h.Deliveries) < len(h.Sent)/2 || len(h.Writes) == 0 || len(h.Accepted) == 0 {
		t.Error("the record is too small to prove anything")
	}
	if steps := r.injected["clock step"]; steps >= 20 && *oldFlag == "" && r.record.ahead < 20 {
		t.Errorf("clocks were stepped %d times, and the furthest that a write was ahead is %d ms", steps, r.record.ahead)
	}
	if r.size.schedules && len(h.Schedules) == 0 {
		t.Error("no schedule was recorded")
	}
	checking := time.Now()
	found := Check(h)
	t.Logf("checked in %v", time.Since(checking).Round(time.Millisecond))
	for i, v := range found {
		if i == 20 {
			t.Error("and more")
			break
		}
		t.Error(v)
	}
}

func build(t *testing.T, pkg, name string) string {
	t.Helper()
	root, ok := local.FindModule(".")
	if !ok {
		t.Fatal("not in a checkout")
	}
	out := filepath.Join(t.TempDir(), name)
	if err := local.Build(t.Context(), root, pkg, out, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return out
}

func start(t *testing.T, seed uint64) *run {
	t.Helper()
	r := &run{T: t, random: rand.New(rand.NewPCG(seed, 0)), settings: topology.Scaled(), injected: map[string]int{}, size: sized()}
	r.stack = fmt.Sprintf("soak-%08x", rand.Uint32())
	r.redriver = topology.NamesOf(r.stack).RedriveFunction
	r.record.sent, r.record.receipts, r.record.Approvals = map[string]Content{}, map[string]Delete{}, map[string][]string{}
	r.record.onDLQ, r.record.Seen = map[string]string{}, map[string]Moment{}
	r.record.ledgerTable = topology.NamesOf(r.stack).LedgerTable
	numbers := topology.ScaledRedrive()
	env, err := local.Start(t.Context(), local.Config{
		Kinds: acklast.Describe(kinds.All()...), Stack: r.stack, Settings: r.settings, Grace: time.Second, Processes: r.size.processes,
		WorkerBinary: r.workers(),
		Provider:     fakeprovider.Options{LooksUp: true},
		WorkerEndpoint: func(endpoint string) string {
			r.faults = faults.New(endpoint)
			r.faults.Tap(r.record.tap(false))
			return r.faults.URL()
		},
		SchedulerEndpoint: func(endpoint string) string {
			r.scheduler = faults.New(endpoint)
			r.scheduler.Tap(r.record.tap(false))
			return r.scheduler.URL()
		},
		Functions: []local.Function{{
			Name: r.redriver, Binary: build(t, "./functions/redrive", "redrive"), Timeout: numbers.Timeout, MemoryMB: 256, Processes: 2,
			EnvFor: func(urls topology.QueueURLs) map[string]string {
				return redrive.LocalEnvironment(r.stack, urls, r.settings, numbers)
			},
			EndpointFor: func(endpoint string) string {
				r.between = faults.New(endpoint)
				r.between.Tap(r.record.tap(true))
				return r.between.URL()
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.env = env
	t.Cleanup(func() {
		_ = env.Close()
		r.faults.Close()
		r.between.Close()
		r.scheduler.Close()
	})
	cfg := env.AWSConfig()
	db := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { // with the time that reading a big table takes
		o.DisableValidateResponseChecksum = true // the embedded engine sends none
	})
	r.api = awsclient.SQS(cfg)
	r.queues = lanes.New(r.api, env.QueueURLs())
	r.ledger = dynamo.New(db, env.Names().LedgerTable, dynamo.Options{})
	r.store = reservation.NewStore(db, env.Names().Table, time.Now)
	r.desk = reservation.NewDesk(r.store, producer{acklast.NewClient(cfg, r.stack), r})
	r.subs = reminder.NewSubscriptions(db, env.Names().Table("subscriptions"))
	for i := range rooms {
		must(r.store.CreateResource(t.Context(), room(i), capacity))
	}
	return r
}

func room(i int) string { return fmt.Sprintf("room-%d", i) }

// progress says now and then how far the run is, and ends a run that has enough deliveries.
func (r *run) progress(ctx context.Context, enough func()) {
	said := time.Now()
	for ctx.Err() == nil {
		n := r.record.count.Load()
		if *deliveriesFlag > 0 && n >= *deliveriesFlag {
			enough()
			return
		}
		if time.Since(said) > time.Minute {
			r.Logf("%s: %d deliveries, %d on the DLQ", time.Now().Format(time.TimeOnly), n, r.depth(job.DLQ))
			said = time.Now()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// drain waits until every lane is empty and nothing is at work.
func (r *run) drain() {
	deadline := time.Now().Add(drainAtMost)
	for quiet := 0; quiet < 5; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("the lanes do not run dry: source %d, recovery %d", r.depth(job.Source), r.depth(job.Recovery))
		}
		if quiet++; r.depth(job.Source)+r.depth(job.Recovery)+len(r.env.Invoking()) > 0 {
			quiet = 0
		}
	}
}

// finish adds the final state to the record.
func (r *run) finish() History {
	ctx := r.Context()
	h := &r.record.History
	r.settle()
	r.drain()
	h.Skew = r.mostOff().Milliseconds()
	h.Accepted, h.Entries, h.Waiting, h.Balances = map[string]int{}, map[string]Entry{}, map[string]bool{}, map[string]Balance{}
	for _, a := range r.env.Provider().Accepted("") {
		h.Accepted[a.Key]++
	}
	read := map[string]bool{"": true}
	for _, s := range h.Sent {
		if read[s.Key] {
			continue
		}
		read[s.Key] = true
		e, err := r.ledger.Get(ctx, s.Key)
		must(err)
		if e.Version > 0 {
			h.Entries[s.Key] = Entry{
				Status: string(e.Status), Outcome: e.Outcome, Digest: e.Digest, Final: e.Status.Final(), Isolated: e.Status == ledger.Isolated,
				Attempts: e.Attempts, Redrives: e.Redrives, Run: e.Run, ProviderKey: e.ProviderKey, IsolatedFirstID: e.IsolatedFirstID,
				Scheduled: e.ScheduledUntil.After(time.Now()),
			}
		}
	}
	balances, err := r.store.Balances(ctx)
	must(err)
	for id, b := range balances {
		h.Balances[id] = Balance{Capacity: b.Capacity, Available: b.Available, Held: b.Held, Confirmed: b.Confirmed}
	}
	for seen := map[string]bool{}; len(seen) < r.depth(job.DLQ); {
		received, err := r.queues.Receive(ctx, job.DLQ, 10, 10*time.Minute, time.Second)
		must(err)
		for _, m := range received {
			if !seen[m.ID] {
				seen[m.ID] = true
				h.DLQ = append(h.DLQ, onDLQ(m))
			}
		}
	}
	return *h
}

func onDLQ(m lanes.Received) OnDLQ {
	d := OnDLQ{
		Content: Content{Body: m.Body, Attributes: map[string]string{}, Group: m.Group}, HasMemory: m.Memory.Class != "",
		FirstID: m.Memory.MessageID, Class: string(m.Memory.Class), Cause: string(m.Memory.Cause), Copy: m.Memory.Copy,
	}
	attributes := map[string]value{}
	for name, a := range m.Attributes {
		v := value{DataType: a.Type, StringValue: a.String}
		if a.Binary != nil {
			b, err := json.Marshal(a.Binary)
			must(err)
			v.BinaryValue = string(b[1 : len(b)-1])
		}
		attributes[name] = v
	}
	d.Content, d.Mark = contentOf(m.Body, m.Group, attributes)
	return d
}
