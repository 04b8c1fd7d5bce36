//go:build bench && linux

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// TestErrors lets a part of the jobs fail at their first attempt, by a dependency's error, and measures three workers:
// a bare one that fails the whole batch, a bare one that reports the failed messages, and acklast. All jobs succeed in
// the end. How much less Lambda polls after errors is not part of the embedded poller: only an account shows it.
func TestErrors(t *testing.T) {
	const jobs = 1000
	bare := buildBare(t)
	chosen := rand.New(rand.NewPCG(1, 2)).Perm(jobs) // the same jobs fail for all three
	for _, percent := range []int{0, 1, 5, 10} {
		for _, w := range []struct {
			name   string
			change func(*local.Config)
		}{
			{"throws", func(c *local.Config) { c.WorkerBinary, c.Environment = bare, map[string]string{"BARE_THROWS": "1"} }},
			{"reports", func(c *local.Config) { c.WorkerBinary = bare }},
			{"acklast", func(*local.Config) {}},
		} {
			t.Run(fmt.Sprintf("%d%%/%s", percent, w.name), func(t *testing.T) {
				var batches counter
				e := newEmbeddedWith(t, topology.Scaled(), local.DefaultProcesses, w.change, func(c *local.Config) { c.Log = slog.New(&batches) })
				e.env.OnResponse(func(inv local.Invocation) local.Action {
					batches.answered(inv)
					return local.Forward
				})
				e.env.Pause(job.Source)
				holds := make([]reservation.Hold, jobs)
				var placing sync.WaitGroup
				for part := range 4 {
					placing.Go(func() {
						for i := part; i < jobs; i += 4 {
							name := fmt.Sprint("good-", i)
							if chosen[i] < jobs*percent/100 {
								name = fmt.Sprint("flaky-", i)
							}
							h := e.hold(name, 1, 0)
							h.ResourceID = fmt.Sprint(h.ResourceID, "-", i)
							if err := e.store.CreateResource(t.Context(), h.ResourceID, 1); err != nil {
								t.Error(err)
							}
							holds[i] = e.place(h)
						}
					})
				}
				placing.Wait()
				e.forgetCalls()
				e.firstAttemptsFail()
				start := time.Now()
				e.env.Resume(job.Source)
				e.dry()
				took := time.Since(start)
				for _, h := range holds {
					e.wantState(h, reservation.Expired)
				}
				e.wantDLQ(0)
				calls := e.calls()
				own := calls["SendMessageBatch"] + calls["SendMessage"] + calls["DeleteMessageBatch"] + calls["ChangeMessageVisibilityBatch"]
				report(fmt.Sprintf("Errors/failing=%d%%/%s", percent, w.name),
					jobs/took.Seconds(), "jobs/s", float64(batches.deliveries)/jobs, "deliveries/job",
					float64(own+batches.receives+batches.deletes)/jobs*1000, "sqs-calls/1000jobs", float64(calls["TransactWriteItems"])/jobs, "transactions/job")
			})
		}
	}
}

// firstAttemptsFail makes the first transaction of each flaky reservation fail.
func (e *embedded) firstAttemptsFail() {
	var mu sync.Mutex
	seen := map[string]bool{}
	e.faults.Add(faults.Rule{Operation: "TransactWriteItems", Fault: faults.CancelTransaction("None", "None", "ValidationError"), Match: func(body []byte) bool {
		at := bytes.Index(body, []byte(`"flaky-`))
		if at < 0 {
			return false
		}
		name, _, _ := bytes.Cut(body[at+1:], []byte(`"`))
		mu.Lock()
		defer mu.Unlock()
		first := !seen[string(name)]
		seen[string(name)] = true
		return first
	}})
}

// counter counts the poller's batches. It is the poller's log, by which it learns of the batches that failed.
type counter struct {
	mu                            sync.Mutex
	deliveries, receives, deletes int
}

func (c *counter) answered(inv local.Invocation) {
	ids := make([]string, len(inv.Records))
	for i, r := range inv.Records {
		ids[i] = r.MessageId
	}
	confirmed, err := local.Confirmed(ids, inv.Response)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries += len(ids)
	c.receives++
	if err == nil && len(confirmed) > 0 {
		c.deletes++
	}
}

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "batch failed" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receives++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "messages" {
			c.deliveries += int(a.Value.Int64())
		}
		return true
	})
	return nil
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *counter) WithGroup(string) slog.Handler            { return c }
