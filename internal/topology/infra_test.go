package topology

import (
	"strings"
	"testing"
	"time"
)

func TestInfraDefaultsHold(t *testing.T) {
	for name, s := range map[string]Settings{"default": Default(), "scaled": Scaled()} {
		if err := DefaultInfra().Validate(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInfraInequalities(t *testing.T) {
	for want, set := range map[string]func(*Infra){
		"redrive timeout is 16m0s":                                                     func(i *Infra) { i.RedriveTimeout = 16 * time.Minute },
		"redrive timeout is 1.5s":                                                      func(i *Infra) { i.RedriveTimeout = 1500 * time.Millisecond },
		"redrive memory is 64 MB":                                                      func(i *Infra) { i.RedriveMemoryMB = 64 },
		"worker reserved concurrency is 54":                                            func(i *Infra) { i.WorkerReserved = 54 },
		"redrive reserved concurrency is 1":                                            func(i *Infra) { i.RedriveReserved = 1 },
		"worker reserved concurrency is 100000, above 2000":                            func(i *Infra) { i.WorkerReserved = 100_000 },
		"redrive reserved concurrency is 101, above 100":                               func(i *Infra) { i.RedriveReserved = 101 },
		"redrive memory is 10241 MB":                                                   func(i *Infra) { i.RedriveMemoryMB = 10_241 },
		"stalled limit is 48h0m0s, but a CloudWatch alarm":                             func(i *Infra) { i.Stalled = 48 * time.Hour },
		"log retention is 1h0m0s":                                                      func(i *Infra) { i.LogRetention = time.Hour },
		"near-deadline limit is 15m0s":                                                 func(i *Infra) { i.NearDeadline = i.ShortestBudget },
		"stalled limit is 30s":                                                         func(i *Infra) { i.Stalled = 30 * time.Second },
		"lane age limit is 96h0m0s":                                                    func(i *Infra) { i.LaneAge = 96 * time.Hour },
		"the caps of both lanes are 55 together, but the account's concurrency of 10 ": func(i *Infra) { i.AccountConcurrency = 10 },
		"reserved concurrency is 57, but of the account's 150 Lambda keeps 100":        func(i *Infra) { i.AccountConcurrency, i.WorkerReserved, i.RedriveReserved = 150, 55, 2 },
		"DLQ age limit is 289h0m0s, above ":                                            func(i *Infra) { i.DLQAge = 289 * time.Hour },
	} {
		i := DefaultInfra()
		set(&i)
		err := i.Validate(Default())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		} else if n := strings.Count(err.Error(), "\n"); n != 0 {
			t.Errorf("%q also reports others: %v", want, err)
		}
	}
}
