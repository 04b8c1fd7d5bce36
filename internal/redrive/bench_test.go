package redrive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
	"acklast/internal/topology"

	"github.com/google/uuid"
)

var benches atomic.Int64

// onAWS is a service on the embedded AWS whose DLQ holds n isolated jobs. There is no worker: what is
// measured is the redrive. counted puts a proxy that counts calls in between.
func onAWS(b testing.TB, n int, counted bool, change ...func(*redrive.Config)) (*onEngine, *lanes.Client, *faults.Proxy) {
	b.Helper()
	stack := fmt.Sprint("redrive-bench-", benches.Add(1))
	env, err := local.StartAWS(b.Context(), stack, topology.Default(), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = env.Close() })
	cfg, urls := env.AWSConfig(), env.QueueURLs()
	direct := lanes.New(awsclient.SQS(cfg), urls)
	var moves []lanes.Move
	for i := range n {
		moves = append(moves, lanes.Move{Message: job.Message{Body: body(fmt.Sprint("j", i)),
			Memory: job.Memory{Class: job.Transient, Cause: job.CauseAttempts, Error: "down", At: time.Now().UTC()}}})
	}
	for _, err := range direct.Send(b.Context(), job.DLQ, moves) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var proxy *faults.Proxy
	if counted {
		proxy = faults.New(env.Endpoint())
		b.Cleanup(proxy.Close)
		url := proxy.URL()
		cfg.BaseEndpoint = &url
	}
	c := redrive.Config{Names: env.Names(), Numbers: topology.DefaultRedrive(), Unqualified: true,
		Rules: ledger.Rules{MaxRedrives: 3, Retention: time.Hour}}
	c.Numbers.ReceiveWait, c.Numbers.Ramp, c.Numbers.BacklogLimit, c.Numbers.ApprovalAbove = 0, 0, 1<<30, 1<<30
	db := awsclient.DynamoDB(cfg)
	for _, f := range change {
		f(&c)
	}
	d := redrive.Dependencies{
		Ledger: dynamo.New(db, env.Names().LedgerTable, dynamo.Options{}), Queues: lanes.New(awsclient.SQS(cfg), urls),
		Table: redrive.NewStore(db, env.Names().OperationsTable), Kinds: job.NewCatalogue(testKind("test", job.RunLate)),
		Log: slog.New(slog.DiscardHandler), Progress: redrive.NoProgress, Now: time.Now, ID: uuid.NewString,
	}
	return &onEngine{redrive.New(c, d), c, d}, direct, proxy
}

// onEngine is a service with what it works on.
type onEngine struct {
	*redrive.Service
	config redrive.Config
	deps   redrive.Dependencies
}

type handler interface {
	Handle(context.Context, json.RawMessage) (redrive.Response, error)
}

// request makes one request of a service.
func request(tb testing.TB, s handler, r redrive.Request) redrive.Response {
	tb.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := s.Handle(context.Background(), raw)
	if err != nil || resp.Refused != "" {
		tb.Fatalf("%s: %v %s", r.Action, err, resp.Refused)
	}
	return resp
}

// finisher makes entries final as a worker would, of the first so many jobs on the recovery lane.
func finisher(b testing.TB, d redrive.Dependencies, jobs int) (stop func()) {
	const sideBySide = 4
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var done atomic.Int64
	for range sideBySide {
		group.Go(func() {
			for ctx.Err() == nil && int(done.Load()) < jobs {
				received, err := d.Queues.Receive(ctx, job.Recovery, 10, time.Hour, 0)
				if err != nil {
					return
				}
				if len(received) == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				var messages []job.Message
				for _, m := range received {
					read, err := d.Kinds.Read(m.Body)
					if err != nil {
						return
					}
					_, err = d.Ledger.Update(ctx, read.Key, "finisher", func(e ledger.Entry) (ledger.Entry, error) {
						return ledger.Rules{Retention: time.Hour}.Finish(e, job.Delivery{Key: read.Key}, ledger.Done, "ran", time.Now())
					})
					if err == nil {
						done.Add(1)
						messages = append(messages, m.Message)
					}
				}
				if len(messages) > 0 {
					d.Queues.Delete(ctx, job.Recovery, messages)
				}
			}
		})
	}
	stop = func() { cancel(); group.Wait() }
	b.Cleanup(stop) // also if the benchmark fails: the next one measures memory
	return stop
}

// sent counts what a run sends, and calls full when it is so many.
type sent struct {
	n, most int
	full    func()
}

func (s *sent) Redriven(moved, _, _ int) {
	if s.n += moved; s.n == s.most {
		s.full()
	}
}

// Messages per second with the limit off, beside a bare loop of receive, send and delete on the same
// engine. The goal is 500.
func BenchmarkThroughput(b *testing.B) {
	const n = 5000
	for range b.N {
		s, _, _ := onAWS(b, n, false)
		plan := request(b, s, redrive.Request{Action: "plan", Select: all, By: "a", Reason: "b", RatePerSecond: -1, Canary: 1}).Plan
		stop := finisher(b, s.deps, 1)
		// The run ends when its jobs have; measured is how fast it sends.
		ctx, cancel := context.WithCancel(b.Context())
		s.deps.Progress = &sent{most: n, full: cancel}
		s.Service = redrive.New(s.config, s.deps)
		raw, err := json.Marshal(redrive.Request{Action: "run", Plan: plan.ID})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		resp, err := s.Handle(ctx, raw)
		took := time.Since(began)
		stop()
		if err != nil || ctx.Err() == nil {
			b.Fatalf("not everything was sent: %+v, %v", resp.Run, err)
		}

		_, direct, _ := onAWS(b, n, false)
		began = time.Now()
		moved := 0
		for moved < n {
			received, err := direct.Receive(b.Context(), job.DLQ, 10, time.Hour, 0)
			if err != nil || len(received) == 0 {
				b.Fatalf("%d moved, %v", moved, err)
			}
			var moves []lanes.Move
			var messages []job.Message
			for _, m := range received {
				moves, messages = append(moves, lanes.Move{Message: m.Message}), append(messages, m.Message)
			}
			direct.Send(b.Context(), job.Recovery, moves)
			direct.Delete(b.Context(), job.DLQ, messages)
			moved += len(received)
		}
		bare := float64(n) / time.Since(began).Seconds()
		rate := float64(n) / took.Seconds()
		b.ReportMetric(rate, "msg/s")
		b.ReportMetric(bare, "bare-msg/s")
		b.ReportMetric(rate/bare, "of-bare")
		if rate < 500 {
			b.Errorf("%.0f messages a second, want at least 500", rate)
		}
	}
}

// AWS calls per 1,000 messages of a run, by operation.
func BenchmarkCalls(b *testing.B) {
	const n = 1000
	for range b.N {
		s, _, proxy := onAWS(b, n, true)
		plan := request(b, s, redrive.Request{Action: "plan", Select: all, By: "a", Reason: "b", RatePerSecond: -1, Canary: 1}).Plan
		planning := proxy.Calls()
		proxy.Reset()
		stop := finisher(b, s.deps, n)
		request(b, s, redrive.Request{Action: "run", Plan: plan.ID})
		stop()
		b.Logf("plan: %v", planning)
		b.Logf("run, with what the stand-in for the worker adds: %v", proxy.Calls())
		for operation, calls := range proxy.Calls() {
			b.ReportMetric(float64(calls), operation+"/1000msg")
		}
	}
}

// Memory of a plan and a run, as the highest live heap seen less the heap before: at most 2 KiB per
// selected message beyond what a small plan needs. The fakes' own store is in it, their queues are not.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		var base float64
		for _, n := range []int{100, 100_000} {
			peak := memoryOf(b, n)
			if n == 100 {
				base = peak
				continue
			}
			each := (peak - base) / float64(n)
			b.ReportMetric(each, "B/message")
			b.ReportMetric(base, "base-B")
			if each > 2048 {
				b.Errorf("%.0f bytes a message, want at most 2048", each)
			}
		}
	}
}

// memoryOf plans n messages on an endless supply and holds them all, which is the most a scan keeps.
func memoryOf(b *testing.B, n int) float64 {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	w := newWorld()
	for i := range n {
		w.put(job.DLQ, job.Message{Body: body(fmt.Sprint("j", i)), Memory: job.Memory{Class: job.Transient, Cause: job.CauseAttempts, At: time.Now()}})
	}
	c := redrive.Config{Names: topology.NamesOf("test"), Numbers: topology.DefaultRedrive(), Unqualified: true, Rules: ledger.Rules{MaxRedrives: 3, Retention: time.Hour}}
	c.Numbers.ReceiveWait, c.Numbers.ScanMessages, c.Numbers.ApprovalAbove, c.Numbers.EmptyReceives = 0, n+1, n+1, 2
	s := redrive.New(c, redrive.Dependencies{Ledger: w, Queues: &cursor{queues: queues{w}}, Table: table{w}, Kinds: job.NewCatalogue(testKind("test", job.RunLate)),
		Log: slog.New(slog.DiscardHandler), Progress: redrive.NoProgress, Now: time.Now, ID: uuid.NewString})
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
		}
	}()
	plan := request(b, s, planOf(all)).Plan
	cancel()
	<-ended
	if plan.Selected != n {
		b.Fatalf("plan %+v", plan)
	}
	return float64(peak.Load()) - float64(before.HeapAlloc)
}

// cursor receives each message once without looking through those before it, and releases nothing: the
// fake's own way takes a time that grows with the square of the queue.
type cursor struct {
	queues
	at int
}

func (c *cursor) Receive(_ context.Context, from job.Queue, most int, _, _ time.Duration) ([]lanes.Received, error) {
	all := c.queues.queues[from]
	var list []lanes.Received
	for ; c.at < len(all) && len(list) < most; c.at++ {
		m := all[c.at].Message
		m.ReceiptHandle = fmt.Sprintf("%0350d", c.at) // as long as AWS's
		list = append(list, lanes.Received{Message: m})
	}
	return list, nil
}

func (c *cursor) Release(context.Context, job.Queue, []job.Message) error { return nil }

// An open plan over 20,000 messages on the embedded AWS, with a stand-in for the worker: each job is sent once and told.
// With 100,000 a Query of the embedded engine takes longer than the client waits, each time: it reads the whole table. The
// plan of a million messages, on a fake, shows what does not depend on the engine.
func BenchmarkOpenPlanOnAWS(b *testing.B) {
	const n = 20_000
	for range b.N {
		s, _, _ := onAWS(b, n, false, func(c *redrive.Config) { c.Numbers.ScanMessages = 1000 })
		plan := request(b, s, redrive.Request{Action: "plan", Open: true, Select: all, Count: n, By: "a", Reason: "b", RatePerSecond: -1}).Plan
		request(b, s, redrive.Request{Action: "approve", Plan: plan.ID, By: "c", Reason: "d"})
		stop := finisher(b, s.deps, n)
		began := time.Now()
		run := request(b, s, redrive.Request{Action: "run", Plan: plan.ID}).Run
		for round := 0; run.State == redrive.Halted && run.Code == redrive.HaltCall && round < 20; round++ { // a busy engine times out
			b.Logf("continued: %s", run.Why)
			run = request(b, s, redrive.Request{Action: "run", Run: run.ID}).Run
		}
		took := time.Since(began)
		stop()
		if run.State != redrive.Done || run.Endings[redrive.Succeeded] != n || run.Total != n {
			b.Errorf("%s %s: %s, endings %v of %d, want %d succeeded", run.State, run.Code, run.Why, run.Endings, run.Total, n)
		}
		b.ReportMetric(n/took.Seconds(), "msg/s")
	}
}
