package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

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
	seedFlag     = flag.Uint64("soak.seed", 0, "the seed of the load and of the faults; 0 takes a new one")
	durationFlag = flag.Duration("soak.duration", 5*time.Second, "how long load and faults go on")
	oldFlag      = flag.String("soak.old", "", "the compiled worker of an earlier version, which then runs beside this one")
)

const (
	rooms    = 5
	capacity = 1_000_000
	// backlog is how many messages may wait on the lanes before the load pauses.
	backlog = 300
	// drainAtMost ends a run whose lanes never run dry.
	drainAtMost = 10 * time.Minute
)

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
	n         int
	injected  map[string]int
	plans     []string
	// rules remove what the provider does wrong.
	rules []func()
}

func TestSoak(t *testing.T) {
	seed := cmp.Or(*seedFlag, rand.Uint64())
	t.Logf("seed %d, %v: repeat with make soak SOAK_SEED=%d SOAK_DURATION=%v", seed, *durationFlag, seed, *durationFlag)
	r := start(t, seed)
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), *durationFlag)
	defer stop()
	var others sync.WaitGroup
	others.Go(func() { r.harm(ctx, rand.New(rand.NewPCG(seed, 1))) })
	if *durationFlag >= 20*time.Second { // a redrive's run takes longer than a short soak
		others.Go(func() { r.govern(ctx, rand.New(rand.NewPCG(seed, 2))) })
	}
	others.Go(func() { r.look(ctx) })
	r.load(ctx)
	others.Wait()
	r.mend()
	r.drain()
	h := r.finish()
	acknowledged := 0
	for _, d := range h.Deliveries {
		if d.Acknowledged {
			acknowledged++
		}
	}
	t.Logf("%v: %d messages sent, %d deliveries answered, %d acknowledged, %d moves, %d schedules, %d entry writes, %d entries, %d on the DLQ, %d runs, %d accepted; faults: %v",
		time.Since(began).Round(time.Second), len(h.Sent), len(h.Deliveries), acknowledged, len(h.Moves), len(h.Schedules), len(h.Writes), len(h.Entries), len(h.DLQ), len(h.Runs), len(h.Accepted), r.injected)
	if len(h.Deliveries) < len(h.Sent)/2 || len(h.Writes) == 0 || len(h.Accepted) == 0 {
		t.Error("the record is too small to prove anything")
	}
	if *durationFlag >= time.Minute && len(h.Schedules) == 0 {
		t.Error("no schedule was recorded")
	}
	for i, v := range Check(h) {
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
	r := &run{T: t, random: rand.New(rand.NewPCG(seed, 0)), settings: topology.Scaled(), injected: map[string]int{}}
	r.stack = fmt.Sprintf("soak-%08x", rand.Uint32())
	r.redriver = topology.NamesOf(r.stack).RedriveFunction
	r.record.ledgerTable = topology.NamesOf(r.stack).LedgerTable
	numbers := topology.ScaledRedrive()
	env, err := local.Start(t.Context(), local.Config{
		Kinds: acklast.Describe(kinds.All()...), Stack: r.stack, Settings: r.settings, Grace: time.Second, Processes: 3,
		WorkerBinary: workers(t),
		Provider:     fakeprovider.Options{LooksUp: true},
		WorkerEndpoint: func(endpoint string) string {
			r.faults = faults.New(endpoint)
			r.faults.Tap(r.record.tap())
			return r.faults.URL()
		},
		SchedulerEndpoint: func(endpoint string) string {
			r.scheduler = faults.New(endpoint)
			r.scheduler.Tap(r.record.tap())
			return r.scheduler.URL()
		},
		Functions: []local.Function{{
			Name: r.redriver, Binary: build(t, "./functions/redrive", "redrive"), Timeout: numbers.Timeout, MemoryMB: 256, Processes: 2,
			EnvFor: func(urls topology.QueueURLs) map[string]string {
				return redrive.LocalEnvironment(r.stack, urls, r.settings, numbers)
			},
			EndpointFor: func(endpoint string) string {
				r.between = faults.New(endpoint)
				r.between.Tap(r.record.tap())
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
	db := awsclient.DynamoDB(cfg)
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

// workers is the worker's binary. With an earlier version given, about every second process is of that version, and
// changes it when it is started again.
func workers(t *testing.T) string {
	t.Helper()
	binary := build(t, "./internal/soak/testdata/worker", "bootstrap")
	if *oldFlag == "" {
		return binary
	}
	old, err := filepath.Abs(*oldFlag)
	must(err)
	both := filepath.Join(t.TempDir(), "bootstrap")
	must(os.WriteFile(both, fmt.Appendf(nil, "#!/bin/sh\n[ $(($$ %% 2)) = 0 ] && exec %q\nexec %q\n", old, binary), 0o700))
	return both
}

func room(i int) string { return fmt.Sprintf("room-%d", i) }

// producer is the stack's client, except that the run marks and records its messages.
type producer struct {
	*acklast.Client
	r *run
}

func (p producer) Send(_ context.Context, m acklast.Message) error {
	body, err := m.Body()
	must(err)
	p.r.send(message{body: body, delay: time.Until(m.NotBefore)})
	return nil
}

type message struct {
	body, key string
	poison    bool
	delay     time.Duration
}

// send sends a message with a mark, and records it.
func (r *run) send(m message) {
	r.n++
	mark := "mark-" + strconv.Itoa(r.n)
	attributes := map[string]sqstypes.MessageAttributeValue{
		markName: {DataType: aws.String("String"), StringValue: &mark},
		"weight": {DataType: aws.String("Number.kg"), StringValue: aws.String("0.50")},
		"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255, 1}},
	}
	content := Content{Body: m.body, Attributes: map[string]string{markName: "String/" + mark, "weight": "Number.kg/0.50", "bytes": "Binary/AP8B"}}
	if m.delay > 30*time.Second { // what is scheduled cannot have binary attributes
		delete(attributes, "bytes")
		delete(content.Attributes, "bytes")
	}
	s := Sent{Mark: mark, Content: content, Key: m.key, Poison: m.poison}
	if e, err := job.Decode([]byte(m.body)); err == nil && !m.poison {
		s.Digest, err = job.Digest(e.Payload, nil)
		must(err)
		var p struct{ ReservationID, CommandID string }
		if s.Key == "" {
			must(json.Unmarshal(e.Payload, &p))
			if p.ReservationID != "" {
				s.Key = "reservation.expire/" + p.ReservationID + "/" + p.CommandID
			}
		}
	}
	delay := int32(0)
	if m.delay > 0 && r.random.IntN(2) == 0 { // the others arrive early
		delay = int32(min(m.delay.Seconds(), 900))
	}
	url := r.env.QueueURLs().Source
	out, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &m.body, MessageAttributes: attributes, DelaySeconds: delay})
	must(err)
	s.MessageID, s.At = *out.MessageId, 0
	r.record.mu.Lock()
	r.record.Sent = append(r.record.Sent, s)
	r.record.mu.Unlock()
}

// load sends jobs of all sorts until ctx ends.
func (r *run) load(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if i%20 == 0 {
			for ctx.Err() == nil && r.depth(job.Source)+r.depth(job.Recovery) > backlog {
				time.Sleep(20 * time.Millisecond)
			}
		}
		r.one(i)
	}
}

func (r *run) depth(q job.Queue) int {
	d, err := r.queues.Depth(r.Context(), q)
	must(err)
	return d.Total()
}

func (r *run) one(i int) {
	id := fmt.Sprintf("r-%d", i)
	hold := func(ahead time.Duration) reservation.Hold {
		return reservation.Hold{
			Payload:   reservation.Payload{ReservationID: id, CommandID: "c", ResourceID: room(r.random.IntN(rooms)), Units: int64(1 + r.random.IntN(3))},
			ExpiresAt: time.Now().Add(ahead).Truncate(time.Millisecond),
		}
	}
	place := func(h reservation.Hold) {
		// The job may be faster than its producer, and then takes the hold back.
		_ = r.desk.Hold(r.Context(), h)
	}
	switch kind := r.random.IntN(100); {
	case kind < 30:
		place(hold(0))
	case kind < 45:
		h := hold(0)
		place(h)
		body, err := h.Job().Body()
		must(err)
		for range 1 + r.random.IntN(19) {
			r.send(message{body: body})
		}
	case kind < 50:
		h := hold(2 * time.Second)
		place(h)
		_ = r.desk.Confirm(r.Context(), h.ReservationID, h.CommandID)
	case kind < 60:
		place(hold(time.Duration(500+r.random.IntN(4000)) * time.Millisecond))
	case kind < 61 && *durationFlag >= time.Minute: // they are scheduled, and a short run would wait for them
		place(hold(time.Duration(35+r.random.IntN(20)) * time.Second))
	case kind < 63:
		r.send(message{body: []string{"", "{", `{"kind":"reservation.expire","payload":{}}`, `{"kind":7}`, "\x1b[31m"}[1+r.random.IntN(4)], key: ""})
	case kind < 65:
		body, err := hold(0).Job().Body() // without its reservation
		must(err)
		r.send(message{body: body})
	case kind < 66 && *oldFlag == "" && r.random.IntN(10) == 0: // an earlier version does not know the kind
		r.send(message{body: `{"kind":"test.poison","payload":{"id":"` + id + `"}}`, key: "test.poison/" + id, poison: true})
	default:
		r.remind(id)
	}
}

func (r *run) remind(id string) {
	p := reminder.Payload{
		ReminderID: id, SubscriptionID: "s-" + id, Channel: reminder.Email, Template: "renewal", TemplateVersion: "v1",
		Recipient: "to-" + id, Plan: "pro", RenewsAt: time.Now().Add(72 * time.Hour).Truncate(time.Millisecond),
		ExpiresAt: time.Now().Add(time.Hour).Truncate(time.Millisecond),
	}
	s := reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}
	copies := 1
	switch kind := r.random.IntN(20); {
	case kind < 5:
		copies = 2 + r.random.IntN(4)
	case kind < 6:
		s.Plan = "basic"
	case kind < 7:
		p.ExpiresAt = time.Now().Add(-time.Second).Truncate(time.Millisecond)
	}
	must(r.subs.Put(r.Context(), s))
	key, err := p.Key()
	must(err)
	body, err := p.Job(time.Time{})
	must(err)
	for range copies {
		r.send(message{body: body, key: key})
	}
	if r.random.IntN(30) == 0 {
		p.Recipient = "another"
		body, err := p.Job(time.Time{})
		must(err)
		r.send(message{body: body, key: key})
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
	for _, plan := range r.plans {
		r.complete(plan)
	}
	r.drain()
	h.Accepted, h.Entries, h.Waiting, h.Balances = map[string]int{}, map[string]Entry{}, map[string]bool{}, map[string]Balance{}
	for _, a := range r.env.Provider().Accepted("") {
		h.Accepted[a.Key]++
	}
	for _, s := range h.Sent {
		if _, known := h.Entries[s.Key]; known || s.Key == "" {
			continue
		}
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
