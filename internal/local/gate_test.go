package local

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestGateAdmitsInOrderUpToCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var mu sync.Mutex
		var order []int
		for n := range 5 {
			go func() {
				if err := g.acquire(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, n)
			}()
			synctest.Wait()
		}
		expect := func(want ...int) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(order, want) {
				t.Fatalf("admitted %v, want %v", order, want)
			}
		}
		expect()
		g.add(2)
		synctest.Wait()
		slices.Sort(order) // both may go at once
		expect(0, 1)
		g.release()
		expect(0, 1, 2)
		g.add(-1)
		g.release()
		expect(0, 1, 2) // one process left, one invocation in flight
		g.hold()
		g.release()
		expect(0, 1, 2)
		g.open()
		expect(0, 1, 2, 3)
		g.release()
		expect(0, 1, 2, 3, 4)
		g.release()
		if err := g.drained(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGateForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- g.acquire(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-gone; err == nil {
			t.Fatal("acquired nothing without an error")
		}
		g.add(1)
		if err := g.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.release()
		if err := g.drained(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
