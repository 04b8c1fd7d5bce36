package e2e_test

import (
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
	"acklast/internal/local"
)

// The calls of a batch: expiries of one resource share one transaction and need no other call, and isolated
// messages share one send.
func TestCallsOnTheWire(t *testing.T) {
	e := newEmbedded(t)
	var invocations atomic.Int32
	e.env.OnResponse(func(local.Invocation) local.Action { invocations.Add(1); return local.Forward })
	const n = 20
	var good, bad []reservation.Hold
	e.env.Pause(job.Source)
	for i := range n {
		good = append(good, e.place(e.hold(fmt.Sprint("good-", i), 1, 0)))
	}
	e.forgetCalls()
	invocations.Store(0)
	e.env.Resume(job.Source)
	for _, h := range good {
		e.ends(h, ledger.Done)
	}
	e.dry()
	batches := int(invocations.Load())
	if batches >= n {
		t.Errorf("%d expiries came in %d batches, so no batch had two to share", n, batches)
	}
	if got, want := e.calls(), map[string]int{"TransactWriteItems": batches}; !maps.Equal(got, want) {
		t.Errorf("%d expiries in %d batches made the calls %v, want %v", n, batches, got, want)
	}

	e.env.Pause(job.Source)
	for i := range n {
		h := e.hold(fmt.Sprint("bad-", i), 1, 0)
		bad = append(bad, h)
		e.send(e.body(h), nil)
	}
	e.forgetCalls()
	invocations.Store(0)
	e.env.Resume(job.Source)
	for _, h := range bad {
		e.ends(h, ledger.Isolated)
	}
	e.dry()
	if got := e.calls(); got["SendMessageBatch"] == 0 || got["SendMessageBatch"] > int(invocations.Load()) || got["DeleteMessageBatch"]+got["SendMessage"] > 0 {
		t.Errorf("%d isolations in %d batches made the calls %v", n, invocations.Load(), got)
	}
	if d := e.depth(job.DLQ); d.Visible != n {
		t.Errorf("the DLQ has %+v", d)
	}
}
