package redrive_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

var stacks atomic.Int64

// newTable is a table on an engine with real conditional writes, behind a proxy.
func newStore(t *testing.T) (*redrive.Store, *faults.Proxy) {
	t.Helper()
	env, err := local.StartAWS(t.Context(), fmt.Sprint("redrive-store-", stacks.Add(1)), topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	proxy := faults.New(env.Endpoint())
	t.Cleanup(proxy.Close)
	cfg := env.AWSConfig()
	url := proxy.URL()
	cfg.BaseEndpoint = &url
	return redrive.NewStore(awsclient.DynamoDB(cfg), env.Names().OperationsTable), proxy
}

func TestPutReplacesTheVersionItWasMadeFrom(t *testing.T) {
	store, _ := newStore(t)
	ctx := t.Context()
	absent, err := store.Get(ctx, "run#1", "run")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, absent.Version, 0, "the version of an absent document")
	equal(t, absent.PK, "run#1", "its key")
	if t.Failed() {
		t.FailNow()
	}
	absent.Doc, absent.TTL = []byte(`{"a":"ü\n"}`), time.Now().Add(time.Hour)
	first, err := store.Put(ctx, absent)
	if err != nil || first.Version != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	if found, err := store.Put(ctx, absent); !errors.Is(err, redrive.ErrChanged) || found.Version != 1 {
		t.Errorf("created twice: %+v, %v", found, err)
	}
	second := first
	second.Doc = []byte(`{"b":2}`)
	if second, err = store.Put(ctx, second); err != nil || second.Version != 2 {
		t.Errorf("%+v, %v", second, err)
	}
	if _, err := store.Put(ctx, first); !errors.Is(err, redrive.ErrChanged) {
		t.Errorf("a stale version was written: %v", err)
	}
	last, err := store.Get(ctx, "run#1", "run")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, string(last.Doc), `{"b":2}`, "the document")
	equal(t, last.Version, 2, "its version")
}

func TestOneOfManyTakesTheLock(t *testing.T) {
	store, _ := newStore(t)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 30 {
		group.Go(func() {
			_, err := store.Put(t.Context(), redrive.Record{PK: "lock", SK: "lock", Doc: []byte(fmt.Sprint(i))})
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, redrive.ErrChanged):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won", won.Load())
	}
}

// A write whose answer is lost is repeated by the SDK, and then meets itself.
func TestPutKnowsItsOwnWrite(t *testing.T) {
	store, proxy := newStore(t)
	proxy.Add(faults.Rule{Operation: "PutItem", Times: 1, Fault: faults.DropAnswer()})
	got, err := store.Put(t.Context(), redrive.Record{PK: "switch", SK: "switch", Doc: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got.Version, 1, "the version")
	equal(t, proxy.Calls()["PutItem"], 2, "the number of calls")
}

func TestAppendAndQuery(t *testing.T) {
	store, proxy := newStore(t)
	var records []redrive.Record
	for i := range 60 { // three batches
		records = append(records, redrive.Record{PK: "audit#r#1", SK: fmt.Sprintf("m-%03d#1", i), Doc: []byte(fmt.Sprint(i))})
	}
	records = append(records, redrive.Record{PK: "audit#r#2", SK: "m-x", Doc: []byte("other")})
	// A batch that is throttled is tried again by the SDK.
	proxy.Add(faults.Rule{Operation: "BatchWriteItem", Times: 1, Match: func(body []byte) bool { return strings.Contains(string(body), `"m-x"`) },
		Fault: faults.Error(400, "ThrottlingException", "slow down")})
	if err := store.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	var got []string
	each := func(r redrive.Record) error { got = append(got, r.SK+"="+string(r.Doc)); return nil }
	if err := store.Query(t.Context(), "audit#r#1", "", each); err != nil {
		t.Error(err)
	}
	if len(got) != 60 {
		t.Fatalf("%d records, want 60", len(got))
	}
	equal(t, got[0], "m-000#1=0", "the first record")
	equal(t, got[59], "m-059#1=59", "the last record")
	got = nil
	if err := store.QueryAfter(t.Context(), "audit#r#1", "m-056#1", each); err != nil {
		t.Error(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d records after m-056#1, want 3", len(got))
	}
	equal(t, got[0], "m-057#1=57", "the first record after m-056#1")
	got = nil
	if err := store.Query(t.Context(), "audit#r#1", "m-01", each); err != nil || len(got) != 10 {
		t.Errorf("%v, %v", got, err)
	}
	stop := errors.New("stop")
	if err := store.Query(t.Context(), "audit#r#1", "", func(redrive.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

// Thrown directly, the switch is on for the function, which alone releases it.
func TestThrowSwitch(t *testing.T) {
	store, _ := newStore(t)
	b := newBench(t)
	b.deps.Table = store
	for round := range 2 {
		if err := store.ThrowSwitch(t.Context(), redrive.Switch{By: "bob", Reason: "incident", At: time.Now()}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		b.refused(redrive.Request{Action: "run", Plan: "p"}, "the kill switch is on (bob: incident)")
		if got := b.must(redrive.Request{Action: "resume", By: "bob", Reason: "over"}).Switch; got == nil || got.On {
			t.Errorf("round %d: released: %+v", round, got)
		}
		b.refused(redrive.Request{Action: "run", Plan: "p"}, "there is no plan")
	}
}

// Who throws the switch directly writes the line too, as often as it is thrown, and needs a right on the switch's key alone.
func TestADirectStopIsALineOfTheAudit(t *testing.T) {
	store, proxy := newStore(t)
	b := newBench(t)
	b.deps.Table = store
	b.must(redrive.Request{Action: "resume", By: "ann", Reason: "none was on"})
	at := time.Now()
	for i, by := range []string{"bob", "eve"} {
		sw := redrive.Switch{By: by, Reason: "incident", At: at.Add(time.Duration(i+1) * time.Second)}
		if err := store.ThrowSwitch(t.Context(), sw, at.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		proxy.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
		if err := store.RecordThrow(t.Context(), sw, at.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	got := b.must(redrive.Request{Action: "audit", Job: redrive.SwitchKey})
	if want := []string{"released ann", "stopped bob", "stopped eve"}; !slices.Equal(steps(got.Audit), want) {
		t.Errorf("audit %q, want %q", steps(got.Audit), want)
	}
	if sw := got.Switch; sw == nil || !sw.On || sw.By != "eve" {
		t.Errorf("the switch as it is: %+v, want on by eve", sw)
	}
	b.must(redrive.Request{Action: "resume", By: "fay", Reason: "over"})
	for _, line := range b.must(redrive.Request{Action: "audit", Job: redrive.SwitchKey}).Audit {
		if line.By == "fay" && !strings.Contains(line.Why, "eve") {
			t.Errorf("the release says %q, want who had thrown it", line.Why)
		}
	}
}

// The producer writes the line itself, as often as it cancels the job.
func TestACancellationIsALineOfTheAudit(t *testing.T) {
	store, proxy := newStore(t)
	b := newBench(t)
	b.deps.Table = store
	at := time.Now()
	proxy.Add(faults.Rule{Operation: "UpdateItem", Times: 1, Fault: faults.DropAnswer()})
	for _, by := range []string{"ann", "bob"} { // the second one repeats the first, and changes nothing
		if err := store.RecordCancel(t.Context(), key("a"), ledger.Decision{At: at, By: by, Reason: "left"}, at.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	got := b.must(redrive.Request{Action: "audit", Job: key("a")}).Audit
	if len(got) != 1 {
		t.Fatalf("%d lines, want 1: %+v", len(got), got)
	}
	for what, pair := range map[string][2]any{
		"what": {got[0].What, redrive.Step("cancelled")}, "by": {got[0].By, "ann"}, "reason": {got[0].Reason, "left"}, "job": {got[0].Job, key("a")},
		"time": {got[0].At.UnixNano(), at.UnixNano()},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	if other := b.must(redrive.Request{Action: "audit", Job: key("b")}).Audit; len(other) != 0 {
		t.Errorf("another job has %+v", other)
	}
}
