package acklast

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

const smokeBody = `{"kind":"acklast.smoke","payload":{"id":"s-1"}}`

// smokeWorld is a worker in memory whose metrics are kept.
func smokeWorld(t *testing.T) (*world, *strings.Builder) {
	t.Helper()
	w, err := newWorld(t.Context(), smoke, CheckOptions{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	w.at(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	var metrics strings.Builder
	environment := worker.Environment(checkStack, topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	config, err := worker.ParseConfig(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
	}
	w.handler = worker.New(config, worker.Dependencies{
		Ledger: w.services.core.store, Lanes: w.queue, Operators: noOperators{}, Kinds: job.NewCatalogue(w.kind),
		Metrics: telemetry.NewRecorder(&metrics, checkStack, w.clock), Log: w.services.Log, Now: w.clock,
		Random: func() float64 { return 0 }, Token: func() func() string {
			var mu sync.Mutex
			n := 0
			return func() string { mu.Lock(); defer mu.Unlock(); n++; return fmt.Sprint("token-", n) }
		}(), Exit: func() {},
	})
	return w, &metrics
}

func (w *world) smoke(t *testing.T) (dynamo.SmokeCounter, time.Time) {
	t.Helper()
	c, err := w.services.core.store.ReadSmoke(t.Context(), "s-1")
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.services.core.store.Get(t.Context(), "acklast.smoke/s-1")
	if err != nil {
		t.Fatal(err)
	}
	return c, e.TTL
}

func TestASmokeJobTakesEffectOnceHoweverOftenItIsSent(t *testing.T) {
	w, metrics := smokeWorld(t)
	for range 2 {
		if _, err := w.settle(t.Context(), w.message(smokeBody), w.message(smokeBody)); err != nil {
			t.Fatal(err)
		}
	}
	c, ttl := w.smoke(t)
	if c.Effects != 1 {
		t.Errorf("%d effects, want 1", c.Effects)
	}
	if c.Done != 4 {
		t.Errorf("%d messages are recorded as done, want 4", c.Done)
	}
	hour := w.clock().Add(time.Hour)
	if c.TTL.After(hour) || c.TTL.Before(w.clock()) {
		t.Errorf("the counter's TTL is %v, want one within the hour", c.TTL)
	}
	if ttl.After(hour) || ttl.Before(w.clock()) {
		t.Errorf("the entry's TTL is %v, want one within the hour", ttl)
	}
	if metrics.Len() > 0 {
		t.Errorf("a smoke job is in the metrics:\n%s", metrics)
	}
}

// A message that comes again is one message.
func TestARepeatedDeliveryOfASmokeJobCountsOnce(t *testing.T) {
	w, _ := smokeWorld(t)
	m := w.message(smokeBody)
	for range 2 {
		if _, err := w.settle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if c, _ := w.smoke(t); c.Done != 1 {
		t.Errorf("%d messages are recorded as done, want 1", c.Done)
	}
}

func TestBothFunctionsKnowTheSmokeKind(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	for function, start := range map[string]func(process) error{
		"worker":  func(p process) error { return p.worker(t.Context(), nil) },
		"redrive": func(p process) error { return p.redrive(t.Context(), nil) },
	} {
		env := workerEnvironment()
		for name, value := range redriveEnvironment {
			env[name] = value
		}
		var out strings.Builder
		p := inProcess(env, func(any) {})
		p.out = &out
		if err := start(p); err != nil {
			t.Errorf("%s: %v", function, err)
		}
		if !strings.Contains(out.String(), job.SmokeKind) {
			t.Errorf("the %s does not know %s: %s", function, job.SmokeKind, out.String())
		}
	}
}
