package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

func TestMain(m *testing.M) {
	// This goroutine belongs to the engine and starts with its package.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/sivchari/kumo/internal/service/dynamodb.(*MemoryStorage).ttlReaper"))
}

var t0 = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// world is a stack on the embedded AWS behind a fault proxy, with its own clock.
type world struct {
	*testing.T
	faults  *faults.Proxy
	db      *dynamodb.Client
	names   topology.Names
	ledger  *dynamo.Store
	store   *reservation.Store
	desk    *reservation.Desk
	expirer *acklast.Starter

	mu   sync.Mutex
	now  time.Time
	sent []string
	send error // the error of sending a job
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, now: t0}
	stack := fmt.Sprintf("res-%d", rand.Uint64())
	aws, err := local.StartAWS(t.Context(), stack, topology.Scaled(), 0, acklast.Describe(reservation.Kind())[0].Tables...)
	if err != nil {
		t.Fatal(err)
	}
	w.faults = faults.New(aws.Endpoint())
	cfg := aws.AWSConfig()
	url := w.faults.URL()
	cfg.BaseEndpoint = &url
	db, names := awsclient.DynamoDB(cfg), topology.NamesOf(stack)
	w.db, w.names = db, names
	t.Cleanup(func() { w.faults.Close(); _ = aws.Close() })

	w.ledger = dynamo.New(db, names.LedgerTable, dynamo.Options{Now: w.clock})
	w.store = reservation.NewStore(db, names.Table, w.clock)
	client := acklast.NewClient(cfg, stack, func(o *acklast.ClientOptions) { o.Now = w.clock })
	w.desk = reservation.NewDesk(w.store, producer{client, w})
	services := acklast.NewServices(cfg, stack, w.clock)
	if w.expirer, err = reservation.Kind().Start(t.Context(), services); err != nil {
		t.Fatal(err)
	}
	if err := w.store.CreateResource(t.Context(), "room-7", 10); err != nil {
		t.Fatal(err)
	}
	return w
}

// producer is the stack's client, except that sending may fail.
type producer struct {
	*acklast.Client
	w *world
}

func (p producer) Send(_ context.Context, m acklast.Message) error {
	body, err := m.Body()
	if err != nil {
		return err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.send == nil {
		p.w.sent = append(p.w.sent, body)
	}
	return p.w.send
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) at(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

func hold(id string, units int64) reservation.Hold {
	return reservation.Hold{
		Payload:   reservation.Payload{ReservationID: id, CommandID: "hold-1", ResourceID: "room-7", Units: units},
		ExpiresAt: t0.Add(time.Minute), Deadline: t0.Add(15 * time.Minute),
	}
}

// due is a moment at which holds made by hold are stale.
var due = t0.Add(2 * time.Minute)

func (w *world) hold(h reservation.Hold) {
	w.Helper()
	if err := w.desk.Hold(w.Context(), h); err != nil {
		w.Fatalf("Hold(%s) = %v", h.ReservationID, err)
	}
}

// deliver runs one delivery of the hold's job.
func (w *world) deliver(h reservation.Hold) acklast.Tried {
	w.Helper()
	body, err := h.Job().Body()
	if err != nil {
		w.Fatal(err)
	}
	tried, err := w.expirer.Try(w.Context(), body)
	if err != nil {
		w.Fatal(err)
	}
	return tried
}

func (w *world) wantResult(got acklast.Tried, verdict acklast.Verdict, outcome string) {
	w.Helper()
	if got.Verdict != verdict || got.Outcome != outcome {
		w.Errorf("result = %+v, want verdict %v, outcome %q", got, verdict, outcome)
	}
}

func (w *world) wantState(id string, want reservation.State) {
	w.Helper()
	r, err := w.store.Get(w.Context(), id)
	if err != nil || r.State != want {
		w.Errorf("reservation %s is %q (%v), want %q", id, r.State, err, want)
	}
}

func (w *world) wantAvailable(want int64) {
	w.Helper()
	all, err := w.store.Balances(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	b := all["room-7"]
	if !b.AddsUp() {
		w.Errorf("capacity does not add up: %+v", b)
	}
	if b.Available != want {
		w.Errorf("%d units available, want %d", b.Available, want)
	}
}

func TestExpiryReturnsTheUnitsOnce(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	w.wantState("r-1", reservation.Held)
	w.wantAvailable(7)

	w.at(due)
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
	w.wantResult(w.deliver(h), acklast.Duplicate, reservation.Released)
	w.wantState("r-1", reservation.Expired)
	w.wantAvailable(10)

	e, err := w.ledger.Get(t.Context(), "reservation.expire/r-1/hold-1")
	if err != nil || e.Status != ledger.Done || e.Outcome != reservation.Released || e.Subject != "r-1" || !e.TTL.Equal(due.Add(topology.Default().LedgerRetention)) {
		t.Errorf("entry is %+v, %v", e, err)
	}
}

// One DynamoDB call for an expiry, one for a duplicate.
func TestExpiryIsOneCall(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	w.at(due)
	w.faults.Reset()
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
	calls := 0
	for _, n := range w.faults.Calls() {
		calls += n
	}
	if calls != 1 {
		t.Errorf("an expiry took the calls %v, want one", w.faults.Calls())
	}
}

func TestConcurrentDeliveriesReleaseOnce(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	w.at(due)
	verdicts := make(chan acklast.Verdict, 100)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { verdicts <- w.deliver(h).Verdict })
	}
	wg.Wait()
	close(verdicts)
	count := map[acklast.Verdict]int{}
	for v := range verdicts {
		count[v]++
	}
	if count[acklast.Committed] != 1 || count[acklast.Duplicate] != 99 {
		t.Errorf("verdicts are %v, want 1 committed and 99 duplicates", count)
	}
	w.wantAvailable(10)
}

func TestEarlyJobReleasesNothing(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	res := w.deliver(h)
	if res.Verdict != acklast.Waiting || !res.Until.Equal(h.ExpiresAt) {
		t.Errorf("result = %+v, want blocked until %v", res, h.ExpiresAt)
	}
	w.wantState("r-1", reservation.Held)
}

func TestConfirmedHoldIsSuperseded(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	for range 2 { // repeating a confirmation is safe
		if err := w.desk.Confirm(t.Context(), "r-1", "hold-1"); err != nil {
			t.Fatal(err)
		}
	}
	w.at(due)
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Superseded)
	w.wantResult(w.deliver(h), acklast.Duplicate, reservation.Superseded)
	w.wantState("r-1", reservation.Confirmed)
	w.wantAvailable(7)
}

func TestConfirmRacingExpiryHasOneWinner(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		h := hold(fmt.Sprintf("r-%d", i), 1)
		w.at(t0)
		w.hold(h)
		w.at(due)
		var confirmed error
		var res acklast.Tried
		var wg sync.WaitGroup
		wg.Go(func() { confirmed = w.desk.Confirm(t.Context(), h.ReservationID, h.CommandID) })
		wg.Go(func() { res = w.deliver(h) })
		wg.Wait()
		r, err := w.store.Get(t.Context(), h.ReservationID)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.State == reservation.Confirmed && confirmed == nil && res.Outcome == reservation.Superseded:
		case r.State == reservation.Expired && confirmed != nil && res.Outcome == reservation.Released:
		default:
			t.Errorf("%s is %s, Confirm = %v, expiry = %+v", h.ReservationID, r.State, confirmed, res)
		}
	}
	all, err := w.store.Balances(t.Context())
	if err != nil || !all["room-7"].AddsUp() {
		t.Errorf("balance %+v, %v", all["room-7"], err)
	}
}

func TestRejected(t *testing.T) {
	w := newWorld(t)
	w.hold(hold("r-1", 3))
	w.at(due)
	other := func(change func(*reservation.Hold)) reservation.Hold { h := hold("r-1", 3); change(&h); return h }
	for name, tt := range map[string]struct {
		hold reservation.Hold
		want string
	}{
		"missing reservation": {hold("r-2", 3), "reservation r-2 does not exist"},
		"other command":       {other(func(h *reservation.Hold) { h.CommandID = "hold-9" }), `is held by command "hold-1"`},
		"other units":         {other(func(h *reservation.Hold) { h.Units = 4 }), "for 3 units"},
		"other resource":      {other(func(h *reservation.Hold) { h.ResourceID = "room-8" }), `of "room-7"`},
	} {
		t.Run(name, func(t *testing.T) {
			res := w.deliver(tt.hold)
			if res.Verdict != acklast.Failed || job.AsFailure(res.Err).Class != job.Rejected || !strings.Contains(res.Err.Error(), tt.want) {
				t.Errorf("result = %+v, want rejected: %s", res, tt.want)
			}
		})
	}
	w.wantState("r-1", reservation.Held)
	w.wantAvailable(7)
}

func TestHoldRefuses(t *testing.T) {
	w := newWorld(t)
	w.hold(hold("r-1", 3))
	for name, tt := range map[string]struct {
		hold reservation.Hold
		want error
	}{
		"taken by another command": {func() reservation.Hold { h := hold("r-1", 3); h.CommandID = "hold-2"; return h }(), reservation.ErrTaken},
		"same command, other time": {func() reservation.Hold { h := hold("r-1", 3); h.ExpiresAt = due; return h }(), reservation.ErrTaken},
		"no capacity":              {hold("r-2", 8), reservation.ErrNoCapacity},
		"no resource":              {func() reservation.Hold { h := hold("r-3", 1); h.ResourceID = "room-9"; return h }(), reservation.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.desk.Hold(t.Context(), tt.hold); !errors.Is(err, tt.want) {
				t.Errorf("Hold() = %v, want %v", err, tt.want)
			}
		})
	}
	if err := w.desk.Hold(t.Context(), hold("r-4", 0)); job.AsFailure(err).Class != job.Invalid {
		t.Errorf("Hold of no units = %v, want invalid", err)
	}
	w.wantAvailable(7)
}

// A hold under a command whose expiry job is over could never expire.
func TestHoldRefusesAUsedCommand(t *testing.T) {
	w := newWorld(t)
	first := hold("r-1", 3)
	w.hold(first)
	w.at(due)
	w.wantResult(w.deliver(first), acklast.Committed, reservation.Released)

	second := hold("r-1", 2)
	second.CommandID, second.ExpiresAt = "hold-2", due.Add(time.Minute)
	w.hold(second)
	w.at(due.Add(2 * time.Minute))
	w.wantResult(w.deliver(second), acklast.Committed, reservation.Released)

	again := first
	again.ExpiresAt, again.Deadline = due.Add(time.Hour), due.Add(2*time.Hour)
	if err := w.desk.Hold(t.Context(), again); !errors.Is(err, reservation.ErrCommandUsed) {
		t.Errorf("Hold() = %v, want %v", err, reservation.ErrCommandUsed)
	}
	w.wantAvailable(10)
}

// A producer crashes after each step: no hold has no expiry, no units are lost, and nothing reaches the DLQ.
func TestCrashWhileProducingAHold(t *testing.T) {
	crash := errors.New("crash")
	t.Run("before sending the job", func(t *testing.T) {
		w := newWorld(t)
		w.send = crash
		if err := w.desk.Hold(t.Context(), hold("r-1", 3)); !errors.Is(err, crash) {
			t.Fatalf("Hold() = %v", err)
		}
		w.wantState("r-1", reservation.Placing)
		w.wantAvailable(10)
		w.send = nil
		w.hold(hold("r-1", 3)) // the producer's retry completes it
		w.wantState("r-1", reservation.Held)
		w.wantAvailable(7)
	})
	t.Run("before taking the units", func(t *testing.T) {
		w := newWorld(t)
		h := hold("r-1", 3)
		// Two transactions: the first places, the second takes the units and never arrives.
		remove := w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Match: func(body []byte) bool {
			return strings.Contains(string(body), "-resources")
		}, Fault: faults.Refuse()})
		if err := w.desk.Hold(t.Context(), h); !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatalf("Hold() = %v", err)
		}
		remove()
		if len(w.sent) != 1 {
			t.Fatalf("%d jobs sent", len(w.sent))
		}
		w.wantState("r-1", reservation.Placing)
		w.at(due)
		w.wantResult(w.deliver(h), acklast.Committed, reservation.Superseded)
		w.wantState("r-1", reservation.Abandoned)
		w.wantAvailable(10)
		// The producer goes on late: its commit must fail.
		var state *reservation.StateError
		if err := w.desk.Hold(t.Context(), h); !errors.As(err, &state) || state.Found.State != reservation.Abandoned {
			t.Errorf("late Hold() = %v, want abandoned", err)
		}
		w.wantAvailable(10)
	})
	t.Run("after taking the units, the answer lost", func(t *testing.T) {
		w := newWorld(t)
		h := hold("r-1", 3)
		w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Match: func(body []byte) bool {
			return strings.Contains(string(body), "-resources")
		}, Fault: faults.DropAnswer()})
		w.hold(h)
		w.wantState("r-1", reservation.Held)
		w.wantAvailable(7)
		w.at(due)
		w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
		w.wantAvailable(10)
	})
	t.Run("no capacity", func(t *testing.T) {
		w := newWorld(t)
		h := hold("r-1", 11)
		if err := w.desk.Hold(t.Context(), h); !errors.Is(err, reservation.ErrNoCapacity) {
			t.Fatalf("Hold() = %v", err)
		}
		w.at(due)
		w.wantResult(w.deliver(h), acklast.Committed, reservation.Superseded)
		w.wantState("r-1", reservation.Abandoned)
	})
}

// A producer takes the units while the due job abandons them: the first one wins, and no units are lost.
func TestTakingRacesAbandoning(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.at(t0)
		h := hold(fmt.Sprintf("r-%d", i), 1)
		w.send = errors.New("crash")
		_ = w.desk.Hold(t.Context(), h) // leaves it placing
		w.send = nil
		w.at(due)
		var held error
		var wg sync.WaitGroup
		wg.Go(func() { held = w.desk.Hold(t.Context(), h) })
		wg.Go(func() { w.deliver(h) })
		wg.Wait()
		// A job that was too early for the hold comes again, as its queue would have it.
		if res := w.deliver(h); res.Verdict != acklast.Committed && res.Verdict != acklast.Duplicate {
			t.Errorf("job of %s: %+v", h.ReservationID, res)
		}
		r, err := w.store.Get(t.Context(), h.ReservationID)
		if err != nil || r.State != reservation.Expired && r.State != reservation.Abandoned {
			t.Errorf("%s is %s (%v), Hold() = %v", h.ReservationID, r.State, err, held)
		}
	}
	w.wantAvailable(10)
}

// The due job finds the reservation placing and tries to abandon it, but the producer commits first. The job
// starts over and releases the units that were taken meanwhile.
func TestJobThatLosesTheRaceStartsOver(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.send = errors.New("crash")
	_ = w.desk.Hold(t.Context(), h) // leaves it placing
	w.send = nil
	w.at(due)
	var calls atomic.Int32
	w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Match: func([]byte) bool {
		if calls.Add(1) == 2 { // the job's second look; the hold makes calls of its own
			w.hold(h)
		}
		return false
	}})
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
	w.wantState("r-1", reservation.Expired)
	w.wantAvailable(10)
}

// A commit whose answer is lost belongs to this delivery, however often the SDK repeats it.
func TestCommitWithALostAnswerIsNoDuplicate(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	w.at(due)
	w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Fault: faults.DropAnswer()})
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
	w.wantAvailable(10)
}

func TestCancellationReasons(t *testing.T) {
	const none, failed, conflict = "None", "ConditionalCheckFailed", "TransactionConflict"
	tests := []struct {
		name    string
		reasons []string
		times   int
		verdict acklast.Verdict
	}{
		{"conflict once", []string{none, none, conflict}, 1, acklast.Committed},
		{"conflict every time", []string{conflict, none, none}, 3, acklast.Waiting},
		{"throttled", []string{none, "ThrottlingError", none}, 1, acklast.Unconfirmed},
		{"no reasons once", nil, 1, acklast.Committed},
		{"no reasons every time", nil, 3, acklast.Waiting},
		// The engine's own state contradicts these reasons: the read that follows decides.
		{"entry failed, but is absent", []string{failed, none, none}, 1, acklast.Waiting},
		{"reservation failed, but is held", []string{none, failed, none}, 1, acklast.Committed},
		{"both", []string{failed, failed, none}, 1, acklast.Waiting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			h := hold("r-1", 3)
			w.hold(h)
			w.at(due)
			w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: tt.times, Fault: faults.CancelTransaction(tt.reasons...)})
			if res := w.deliver(h); res.Verdict != tt.verdict {
				t.Errorf("result = %+v, want verdict %v", res, tt.verdict)
			}
		})
	}
}

func TestOutageLeavesTheJob(t *testing.T) {
	w := newWorld(t)
	h := hold("r-1", 3)
	w.hold(h)
	w.at(due)
	remove := w.faults.Add(faults.Rule{Fault: faults.Error(400, "ProvisionedThroughputExceededException", "slow down")})
	if res := w.deliver(h); res.Verdict != acklast.Unconfirmed {
		t.Errorf("result = %+v, want unconfirmed", res)
	}
	remove()
	w.wantResult(w.deliver(h), acklast.Committed, reservation.Released)
}

// Expiries of one resource take turns within a process and do not cancel each other.
func TestExpiriesOfOneResourceDoNotConflict(t *testing.T) {
	w := newWorld(t)
	var holds []reservation.Hold
	for i := range 10 {
		h := hold(fmt.Sprintf("r-%d", i), 1)
		w.hold(h)
		holds = append(holds, h)
	}
	w.at(due)
	var mu sync.Mutex
	inFlight, most := 0, 0
	w.faults.Add(faults.Rule{Operation: "TransactWriteItems", Match: func([]byte) bool {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		return true
	}, Fault: faults.Delay(5 * time.Millisecond)})
	var wg sync.WaitGroup
	for _, h := range holds {
		wg.Go(func() {
			res := w.deliver(h)
			mu.Lock()
			inFlight--
			mu.Unlock()
			if res.Verdict != acklast.Committed {
				w.Errorf("%s: %+v", h.ReservationID, res)
			}
		})
	}
	wg.Wait()
	// The next expiry may begin before the result of the last one has arrived.
	if most > 2 {
		t.Errorf("%d transactions on one resource at once", most)
	}
	w.wantAvailable(10)
}
