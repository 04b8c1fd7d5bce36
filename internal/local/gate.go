package local

import (
	"context"
	"slices"
	"sync"
)

// gate admits invocations in the order in which they ask, and never more at once than there are worker
// processes in working order. So neither lane can overtake the other.
//
// Each of the two numbers has one owner. The supervisor owns capacity: a process counts from its first request
// for work until it exits or is given up. The pollers own inFlight.
type gate struct {
	mu       sync.Mutex
	capacity int
	inFlight int
	held     bool
	waiting  []chan struct{}
	changed  chan struct{} // closed and replaced at every change
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// acquire waits until the gate admits the caller. Every successful acquire needs one release.
func (g *gate) acquire(ctx context.Context) error {
	turn := make(chan struct{})
	g.mu.Lock()
	g.waiting = append(g.waiting, turn)
	g.settle()
	g.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, turn); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	} else { // admitted while giving up
		g.inFlight--
	}
	g.settle()
	return ctx.Err()
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.settle()
}

// add changes the number of processes in working order.
func (g *gate) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.capacity += n
	g.settle()
}

// hold stops admissions until open is called.
func (g *gate) hold() { g.setHeld(true) }
func (g *gate) open() { g.setHeld(false) }

func (g *gate) setHeld(held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = held
	g.settle()
}

// drained waits until nothing is in flight, ready until n processes are in working order.
func (g *gate) drained(ctx context.Context) error {
	return g.await(ctx, func() bool { return g.inFlight == 0 })
}

func (g *gate) ready(ctx context.Context, n int) error {
	return g.await(ctx, func() bool { return g.capacity >= n })
}

func (g *gate) await(ctx context.Context, condition func() bool) error {
	for {
		g.mu.Lock()
		ok, changed := condition(), g.changed
		g.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle admits as many waiting callers as capacity allows. The caller holds mu.
func (g *gate) settle() {
	for !g.held && g.inFlight < g.capacity && len(g.waiting) > 0 {
		g.inFlight++
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
	}
	close(g.changed)
	g.changed = make(chan struct{})
}
