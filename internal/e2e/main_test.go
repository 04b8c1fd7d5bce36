// Package e2e_test runs the whole system: the compiled worker, real processes, real queues.
//
// The tests in blackbox_test.go need only an endpoint and a stack. They run on the embedded AWS. With
// AWS_ENDPOINT_URL (or ACKLAST_E2E=aws) they run on the stack ACKLAST_STACK that is deployed there.
// ACKLAST_E2E=localstack allows for an engine that rewrites bodies. All other tests break things, which only
// the embedded AWS lets them do.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/marks"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// bootstrap is the compiled worker. scratch is the folder of all binaries that are compiled for the tests.
var bootstrap, scratch string

// sideBySide is how many tests run at once unless -parallel says otherwise. They mostly wait for visibility
// timeouts and delays, so the number of processors, the default, would leave the machine idle.
const sideBySide = "8"

func TestMain(m *testing.M) {
	os.Exit(func() int {
		flag.Parse()
		chosen := false
		flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
		if !chosen {
			if err := flag.Set("test.parallel", sideBySide); err != nil {
				panic(err)
			}
		}
		dir, err := os.MkdirTemp("", "acklast-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		scratch = dir
		if !deployed() {
			root, ok := local.FindModule(".")
			if !ok {
				panic("not in a checkout")
			}
			bootstrap = filepath.Join(dir, "bootstrap")
			if err := local.Build(context.Background(), root, "./functions/worker", bootstrap, os.Stderr); err != nil {
				panic(err)
			}
		}
		if !deployed() && !kinds.Registered("reservation.expire", "reminder.send") {
			fmt.Println("skipped: these tests play with the sample kinds, and internal/kinds has them no more")
			return 0
		}
		code := m.Run()
		if code != 0 && shared.env != nil {
			fmt.Fprintf(os.Stderr, "the log of the functions of the black-box tests:\n%s", shared.logs.String())
		}
		if shared.env != nil {
			_ = shared.env.Close()
			for _, found := range secrets(shared.logs.String()) {
				fmt.Fprintf(os.Stderr, "the log of the functions of the black-box tests %s\n", found)
				code = max(code, 1)
			}
		}
		if shared.recorder != nil {
			shared.recorder.Close()
		}
		// These goroutines belong to the engine. The first runs from the start of its package. The others wait
		// for asynchronous invocations of a function from its first one on. Nothing ends them.
		const engine = "github.com/sivchari/kumo/internal/service/"
		if err := goleak.Find(
			goleak.IgnoreTopFunction(engine+"dynamodb.(*MemoryStorage).ttlReaper"),
			goleak.IgnoreTopFunction(engine+"lambda.(*asyncDispatcher).drain"),
			goleak.IgnoreTopFunction(engine+"lambda.(*asyncDispatcher).drain.func1"),
		); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// deployed says whether the black-box tests run against a deployed stack.
func deployed() bool { return os.Getenv("AWS_ENDPOINT_URL") != "" || os.Getenv("ACKLAST_E2E") == "aws" }

// unkept is an HTTP client that closes each connection after its call. A deployed stack does not end
// connections with the tests, and the leak check would count every open one.
func unkept() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) { tr.DisableKeepAlives = true })
}

// envCalls names a file that gets every AWS call of the functions and of the command line, for the check of
// the policies: see scripts/iam.
const envCalls = "ACKLAST_CALLS"

// record makes the proxy record its calls as the principal's, if ACKLAST_CALLS is set.
func record(p *faults.Proxy, principal, stack string) {
	if file := os.Getenv(envCalls); file != "" {
		p.Record(file, principal, stack)
	}
}

// needsEmbedded skips a test that breaks things on purpose, unless the tests run on the embedded AWS. If all
// subtests of a test need it, the test calls it before them: a test without any run subtest is reported as
// skipped.
func needsEmbedded(t *testing.T) {
	t.Helper()
	if deployed() || os.Getenv(envData) != "" {
		t.Skip("breaks things on purpose, which only the embedded AWS allows")
	}
}

// system is a stack as its users see it.
type system struct {
	*testing.T
	names    topology.Names
	db       *dynamodb.Client
	queues   *lanes.Client
	ledger   *dynamo.Store
	store    *reservation.Store
	desk     *reservation.Desk
	settings topology.Settings
	// searching is held while a test searches the stack's DLQ for a message.
	searching *sync.Mutex
	// undelayed makes send ignore SQS's delay, so that jobs arrive before they are due.
	undelayed bool
	// id is different in every test and run, because a deployed stack keeps the jobs of earlier ones.
	id string
}

func newSystem(t *testing.T, cfg aws.Config, names topology.Names, urls topology.QueueURLs, settings topology.Settings) *system {
	s := &system{T: t, searching: &sync.Mutex{}, names: names, db: awsclient.DynamoDB(cfg), settings: settings, id: fmt.Sprintf("%08x", rand.Uint32())}
	s.queues = lanes.New(awsclient.SQS(cfg), urls)
	s.ledger = dynamo.New(s.db, names.LedgerTable, dynamo.Options{})
	s.store = reservation.NewStore(s.db, names.Table, time.Now)
	s.desk = reservation.NewDesk(s.store, producer{acklast.NewClient(cfg, names.Stack), s})
	if err := s.store.CreateResource(t.Context(), s.room(), 100); err != nil {
		t.Fatal(err)
	}
	return s
}

// producer is the stack's client, except that the test chooses the delay of its messages.
type producer struct {
	*acklast.Client
	s *system
}

func (p producer) Send(ctx context.Context, m acklast.Message) error {
	if !p.s.undelayed {
		return p.Client.Send(ctx, m)
	}
	body, err := m.Body()
	if err != nil {
		return err
	}
	return p.s.queues.Send(ctx, job.Source, []lanes.Move{{Message: job.Message{Body: body}}})[0]
}

// shared is the one environment of all black-box tests.
var shared struct {
	sync.Once
	settings topology.Settings
	env      *local.Environment
	err      error
	// logs are those of the functions.
	logs lockedBuffer
	// recorder records the calls of the redrive function, if ACKLAST_CALLS is set.
	recorder *faults.Proxy
	// searching is held while a test searches the shared DLQ for a message.
	searching sync.Mutex
}

// envData names an endpoint that serves queues and tables in the black-box tests, while functions stay
// embedded.
const envData = "ACKLAST_DATA_ENDPOINT"

// unhurried gives enough time to an engine whose calls take a hundred times as long.
func unhurried(s topology.Settings) topology.Settings {
	s.WorkerTimeout, s.LaneVisibility = 20*time.Second, 120*time.Second
	s.StartMargin, s.HandoverMargin, s.AttemptTime = 15*time.Second, 3*time.Second, 10*time.Second
	return s
}

// pollFor is how long a search of the DLQ lets SQS wait for a message. An engine that serves one request at a
// time would keep everybody waiting.
func pollFor() time.Duration {
	if os.Getenv(envData) != "" {
		return 0
	}
	return time.Second
}

// blackBox returns the stack of the black-box tests, which use it at the same time.
func blackBox(t *testing.T) *system {
	t.Helper()
	t.Parallel()
	return blackBoxAlone(t)
}

// blackBoxAlone is blackBox for a test that runs alone: parallel tests wait for its end.
func blackBoxAlone(t *testing.T) *system {
	t.Helper()
	if deployed() {
		stack := os.Getenv("ACKLAST_STACK")
		if stack == "" {
			stack = topology.DefaultStack
		}
		cfg, err := awsclient.Load(t.Context(), config.WithHTTPClient(unkept()))
		if err != nil {
			t.Fatal(err)
		}
		names := topology.NamesOf(stack)
		url := func(queue string) string {
			out, err := awsclient.SQS(cfg).GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
			if err != nil {
				t.Fatalf("queue %s: %v", queue, err)
			}
			return *out.QueueUrl
		}
		urls := topology.QueueURLs{Source: url(names.SourceQueue), Recovery: url(names.RecoveryQueue), DLQ: url(names.DLQ)}
		s := newSystem(t, cfg, names, urls, topology.Default())
		s.searching = &shared.searching
		return s
	}
	shared.Do(func() {
		c := local.Config{Kinds: acklast.Describe(kinds.All()...), Stack: "e2e-shared", Settings: topology.Scaled(), WorkerBinary: bootstrap, Grace: time.Second, Logs: &shared.logs}
		if other := os.Getenv(envData); other != "" {
			c.DataEndpoint = other
			c.Stack = fmt.Sprintf("e2e-%08x", rand.Uint32()) // it outlives this test
			c.Settings = unhurried(c.Settings)
		}
		shared.settings = c.Settings
		binary, err := redriver()
		if err != nil {
			shared.err = err
			return
		}
		numbers := topology.ScaledRedrive()
		c.Functions = []local.Function{{
			Name: topology.NamesOf(c.Stack).RedriveFunction, Binary: binary, Timeout: numbers.Timeout, MemoryMB: 256, Processes: 2,
			EnvFor: func(urls topology.QueueURLs) map[string]string {
				return redrive.LocalEnvironment(c.Stack, urls, c.Settings, numbers)
			},
			EndpointFor: func(endpoint string) string {
				if os.Getenv(envCalls) == "" {
					return endpoint
				}
				shared.recorder = faults.New(endpoint)
				record(shared.recorder, "redrive", c.Stack)
				return shared.recorder.URL()
			},
		}}
		shared.env, shared.err = local.Start(context.Background(), c)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	urls := shared.env.QueueURLs()
	s := newSystem(t, shared.env.AWSConfig(), shared.env.Names(), urls, shared.settings)
	s.searching = &shared.searching
	return s
}

// embedded is a stack of this test's own on the embedded AWS, with faults for its worker.
type embedded struct {
	*system
	env    *local.Environment
	faults *faults.Proxy // between the worker and AWS
	tally  *local.Tally
	logs   *lockedBuffer
	// pauseReads counts the worker's reads of paused kinds: one in 15 s for each process.
	pauseReads atomic.Int64
}

// calls are the worker's calls by operation, without its reads of paused kinds, whose times do not depend on
// the jobs.
func (e *embedded) calls() map[string]int {
	calls := e.faults.Calls()
	if calls["GetItem"] -= int(e.pauseReads.Load()); calls["GetItem"] == 0 {
		delete(calls, "GetItem")
	}
	return calls
}

// forgetCalls forgets the calls and every rule.
func (e *embedded) forgetCalls() {
	e.faults.Reset()
	e.pauseReads.Store(0)
	e.countPauseReads(e.names.Stack)
}

func (e *embedded) countPauseReads(stack string) {
	table := []byte(topology.NamesOf(stack).OperationsTable)
	e.faults.Add(faults.Rule{Operation: "GetItem", Match: func(body []byte) bool {
		if bytes.Contains(body, table) && bytes.Contains(body, []byte(`"pauses"`)) {
			e.pauseReads.Add(1)
		}
		return false
	}})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newEmbedded(t *testing.T, options ...func(*local.Config)) *embedded {
	t.Helper()
	return newEmbeddedWith(t, topology.Scaled(), local.DefaultProcesses, options...)
}

func newEmbeddedWith(t *testing.T, settings topology.Settings, processes int, options ...func(*local.Config)) *embedded {
	t.Helper()
	needsEmbedded(t)
	t.Parallel()
	e := &embedded{tally: local.NewTally(), logs: &lockedBuffer{}}
	stack := fmt.Sprintf("e2e-%08x", rand.Uint32())
	config := local.Config{Kinds: acklast.Describe(kinds.All()...),
		Stack: stack, Settings: settings, WorkerBinary: bootstrap, Grace: time.Second,
		Processes: processes,
		Logs:      multi{e.tally, e.logs},
		WorkerEndpoint: func(endpoint string) string {
			e.faults = faults.New(endpoint)
			record(e.faults, "worker", stack)
			e.countPauseReads(stack)
			t.Cleanup(e.faults.Close)
			return e.faults.URL()
		},
	}
	for _, o := range options {
		o(&config)
	}
	env, err := local.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	e.env = env
	t.Cleanup(func() {
		_ = env.Close()
		for _, found := range secrets(e.logs.String()) {
			t.Errorf("the worker's log %s", found)
		}
		if t.Failed() {
			t.Logf("the worker's log:\n%s", e.logs)
		}
	})
	e.system = newSystem(t, env.AWSConfig(), env.Names(), env.QueueURLs(), config.Settings)
	return e
}

// secrets says what a log has that no log may have: a recipient, or the text of a job's body, in any escape.
func secrets(log string) (found []string) {
	if form := marks.In(log, recipientMark); form != "" {
		found = append(found, "has a recipient, "+form)
	}
	bare := strings.ReplaceAll(log, `\`, "")
	for _, part := range []string{`"payload":{`, `"commandId":"`, `"reminderId":"`} {
		if at := strings.Index(bare, part); at >= 0 {
			found = append(found, fmt.Sprintf("has a body: %.200s", bare[max(0, at-100):]))
		}
	}
	return found
}

type multi [2]interface{ Write([]byte) (int, error) }

func (m multi) Write(p []byte) (int, error) {
	for _, w := range m {
		if n, err := w.Write(p); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (s *system) room() string { return "room-" + s.id }

// hold describes a hold of this test.
func (s *system) hold(name string, units int64, lasting time.Duration) reservation.Hold {
	return reservation.Hold{
		Payload: reservation.Payload{
			ReservationID: name + "-" + s.id, CommandID: "hold-1", ResourceID: s.room(), Units: units,
		},
		ExpiresAt: time.Now().Add(lasting).Truncate(time.Millisecond),
	}
}

// place holds. A hold that is due at once may be abandoned by its own job before its units are taken, which is right.
// Then another command holds the reservation anew.
func (s *system) place(h reservation.Hold) reservation.Hold {
	s.Helper()
	for n := 2; ; n++ {
		err := s.desk.Hold(s.Context(), h)
		var found *reservation.StateError
		switch {
		case err == nil:
			return h
		case !errors.As(err, &found) || found.Found.State != reservation.Abandoned:
			s.Fatalf("hold %s: %v", h.ReservationID, err)
		}
		h.CommandID = fmt.Sprint("hold-", n)
	}
}

// send sends a message to the source lane.
func (s *system) send(body string, attributes map[string]job.Attribute) {
	s.Helper()
	err := s.queues.Send(s.Context(), job.Source, []lanes.Move{{Message: job.Message{Body: body, Attributes: attributes}}})[0]
	if err != nil {
		s.Fatal(err)
	}
}

func (s *system) body(h reservation.Hold) string {
	s.Helper()
	body, err := h.Job().Body()
	if err != nil {
		s.Fatal(err)
	}
	return body
}

func (s *system) key(h reservation.Hold) string {
	s.Helper()
	key, err := h.Key()
	if err != nil {
		s.Fatal(err)
	}
	return key
}

// hanging is the time after which a wait is given up. It ends only tests whose event never comes: no test fails
// because the machine is slow.
const hanging = 5 * time.Minute

// until waits for something to become true.
func (s *system) until(what string, happened func() bool) {
	s.Helper()
	deadline := time.Now().Add(hanging)
	for !happened() {
		if time.Now().After(deadline) {
			s.Fatalf("did not happen: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *system) entry(key string) ledger.Entry {
	s.Helper()
	e, err := s.ledger.Get(s.Context(), key)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// ends waits until the job's entry has the status and returns it.
func (s *system) ends(h reservation.Hold, status ledger.Status) (e ledger.Entry) {
	s.Helper()
	key := s.key(h)
	s.until(fmt.Sprintf("%s is %s", key, status), func() bool { e = s.entry(key); return e.Status == status })
	return e
}

func (s *system) state(h reservation.Hold) reservation.State {
	s.Helper()
	r, err := s.store.Get(s.Context(), h.ReservationID)
	if err != nil {
		s.Fatal(err)
	}
	return r.State
}

func (s *system) wantState(h reservation.Hold, want reservation.State) {
	s.Helper()
	if got := s.state(h); got != want {
		s.Errorf("reservation %s is %s, want %s", h.ReservationID, got, want)
	}
}

func (s *system) wantAvailable(want int64) {
	s.Helper()
	all, err := s.store.Balances(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if b := all[s.room()]; b.Available != want || !b.AddsUp() {
		s.Errorf("balance %+v, want %d available and the sum to be right", b, want)
	}
}

func (s *system) depth(q job.Queue) lanes.Depth {
	s.Helper()
	d, err := s.queues.Depth(s.Context(), q)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// fromDLQ waits for the message with the body on the DLQ and returns it, invisible for a few seconds.
func (s *system) fromDLQ(body string) lanes.Received {
	s.Helper()
	return s.allFromDLQ(body)[body]
}

// allFromDLQ is fromDLQ for several bodies, which one search finds sooner than one search each. Other
// messages become visible again when it ends.
func (s *system) allFromDLQ(bodies ...string) map[string]lanes.Received {
	s.Helper()
	// Two searches of one queue at the same time hide each other's messages.
	s.searching.Lock()
	defer s.searching.Unlock()
	found := map[string]lanes.Received{}
	var others []job.Message
	s.until("the messages are on the DLQ", func() bool {
		received, err := s.queues.Receive(s.Context(), job.DLQ, 10, 5*time.Second, pollFor())
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range received {
			i := slices.IndexFunc(bodies, func(body string) bool { return sameBody(m.Body, body) })
			if i >= 0 {
				found[bodies[i]] = m
			} else {
				others = append(others, m.Message)
			}
		}
		return len(found) == len(bodies)
	})
	if len(others) > 0 {
		// This is best effort: if it fails, the messages come back after the visibility timeout.
		_ = s.queues.Release(s.Context(), job.DLQ, others)
	}
	return found
}

// rewritesBodies says that the engine's event source mapping decodes JSON bodies and encodes them again, as
// LocalStack's does.
func rewritesBodies() bool { return os.Getenv("ACKLAST_E2E") == "localstack" }

// sameBody compares two bodies: by their bytes if the engine keeps them, else by their JSON values.
func sameBody(got, want string) bool {
	if got == want || !rewritesBodies() {
		return got == want
	}
	var a, b any
	return json.Unmarshal([]byte(got), &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}

// takeFromDLQ is fromDLQ that removes the message too, because operators would find a message that a test
// leaves on a deployed stack's DLQ. A test that fails earlier leaves its message, which helps to find out why.
func (s *system) takeFromDLQ(body string) lanes.Received {
	s.Helper()
	return s.takeAllFromDLQ(body)[body]
}

// takeAllFromDLQ is takeFromDLQ for several bodies.
func (s *system) takeAllFromDLQ(bodies ...string) map[string]lanes.Received {
	s.Helper()
	taken := s.allFromDLQ(bodies...)
	for _, m := range taken {
		if err := s.queues.Delete(s.Context(), job.DLQ, []job.Message{m.Message})[0]; err != nil {
			s.Fatal(err)
		}
	}
	return taken
}

// dry waits until no message is left on the lanes.
func (e *embedded) dry() {
	e.Helper()
	e.until("the lanes run dry", func() bool {
		return e.depth(job.Source) == lanes.Depth{} && e.depth(job.Recovery) == lanes.Depth{}
	})
}

func (e *embedded) wantDLQ(want int) {
	e.Helper()
	if d := e.depth(job.DLQ); d.Visible+d.InFlight+d.Delayed != want {
		e.Errorf("the DLQ has %+v, want %d messages", d, want)
	}
}
