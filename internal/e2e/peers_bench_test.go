//go:build bench && linux

package e2e_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/local"
	"acklast/internal/local/faults"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// peers says that the peer's packages are installed; make bench-peers sets it.
var peers = flag.Bool("peers", false, "compare with Powertools for TypeScript (needs Node.js and scripts/peers/node_modules)")

// buildPeer makes a bootstrap that runs the peer's handler in Node.js.
func buildPeer(t *testing.T) string {
	t.Helper()
	if !*peers {
		t.Skip("make bench-peers runs it")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	root, _ := local.FindModule(".")
	runtime, err := filepath.Abs(filepath.Join(root, "scripts/peers/runtime.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	peer := filepath.Join(t.TempDir(), "peer")
	if err := os.WriteFile(peer, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' '%s'\n", node, runtime), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return peer
}

// TestPeers gives the same jobs to acklast, to a bare Go worker and to Powertools for TypeScript, each in its own
// process, in front of tables in memory. Only the ratios of one round have a meaning.
func TestPeers(t *testing.T) {
	peer, bare := buildPeer(t), buildBare(t)
	const jobs, rounds = 5000, 3
	for _, tt := range []struct {
		name string
		load load
	}{
		{"distinct", load{jobs: jobs, resources: jobs, evaluates: true}},
		{"shared", load{jobs: jobs, resources: 10, evaluates: true}},
		{"duplicates", load{jobs: jobs, resources: jobs, copies: jobs, evaluates: true}},
	} {
		for range rounds {
			base := feed(t, bare, tt.load)
			for _, w := range []struct{ name, binary string }{{"acklast", bootstrap}, {"powertools", peer}} {
				got := feed(t, w.binary, tt.load)
				report(fmt.Sprintf("Peers/%s/%s", tt.name, w.name), got.rate, "jobs/s", got.rate/base.rate, "x-bare-jobs/s",
					got.cpu/base.cpu, "x-bare-cpu", got.rss/1024, "MiB", got.calls, "calls/job", got.start*1000, "ms-start")
			}
			report(fmt.Sprintf("Peers/%s/bare", tt.name), base.rate, "jobs/s", base.rss/1024, "MiB", base.calls, "calls/job", base.start*1000, "ms-start")
		}
	}
}

// TestPeersUnderFaults shows what three faults do to one job. The figures are counts, and do not depend on the
// machine. Powertools runs twice: with a condition on the reservation's state in the effect, and without one.
func TestPeersUnderFaults(t *testing.T) {
	peer, bare := buildPeer(t), buildBare(t)
	for _, w := range []struct {
		name   string
		change func(*local.Config)
		// before is the call in which the worker is stopped: the last one before the effect. A worker that claims and
		// commits in one call is stopped in that one.
		before string
		cancel faults.Fault
	}{
		{"acklast", func(*local.Config) {}, "TransactWriteItems", faults.CancelTransaction("None", "None", "ValidationError")},
		{"bare", func(c *local.Config) { c.WorkerBinary = bare }, "TransactWriteItems", faults.CancelTransaction("None", "None", "ValidationError")},
		{"powertools, guarded effect", func(c *local.Config) { c.WorkerBinary = peer }, "PutItem", faults.CancelTransaction("None", "ValidationError")},
		{"powertools, unguarded effect", func(c *local.Config) {
			c.WorkerBinary, c.Environment = peer, map[string]string{"PEERS_UNGUARDED": "1"}
		}, "PutItem", faults.CancelTransaction("None", "ValidationError")},
	} {
		begin := func(t *testing.T) (*embedded, *counter) {
			batches := &counter{}
			e := newEmbedded(t, w.change, func(c *local.Config) {
				c.Log = slog.New(batches)
				c.Settings.MaxReceiveCount = 5
			})
			e.env.OnResponse(func(inv local.Invocation) local.Action {
				batches.answered(inv)
				return local.Forward
			})
			e.createIdempotencyTable()
			return e, batches
		}
		tell := func(e *embedded, batches *counter, fault string, more ...any) {
			all, err := e.store.Balances(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			batches.mu.Lock()
			defer batches.mu.Unlock()
			report(fmt.Sprintf("PeersUnderFaults/%s/%s", fault, strings.ReplaceAll(w.name, " ", "-")),
				append([]any{float64(all[e.room()].Available-95) / 5, "effects", float64(batches.deliveries), "deliveries"}, more...)...)
		}
		t.Run(w.name+"/crash", func(t *testing.T) {
			e, batches := begin(t)
			e.faults.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Fault: faults.HoldAnswer(e.env.KillAll)})
			h := e.place(e.hold("crash", 5, 0))
			e.until("the units are back", func() bool { return e.state(h) == reservation.Expired })
			e.dry()
			tell(e, batches, "crash")
		})
		t.Run(w.name+"/lease", func(t *testing.T) {
			e, batches := begin(t)
			e.env.KillOnTimeout(false)
			stopped := make(chan int, 1)
			var once sync.Once
			e.faults.Add(faults.Rule{Operation: w.before, Match: func([]byte) bool {
				once.Do(func() { // the request is forwarded and answered, but nobody reads the answer
					process := e.busy()
					e.env.Suspend(process)
					stopped <- process
				})
				return false
			}})
			h := e.place(e.hold("lease", 5, 0))
			process := <-stopped
			e.until("the units are back", func() bool { return e.state(h) == reservation.Expired })
			e.dry()
			e.env.Continue(process)
			if w.before == "PutItem" {
				e.until("the process that was stopped goes on", func() bool { return e.faults.Calls()["TransactWriteItems"] == 2 })
				e.until("its call is answered", func() bool { return e.faults.Calls()["UpdateItem"] == 2 })
			}
			tell(e, batches, "lease")
		})
		t.Run(w.name+"/permanent", func(t *testing.T) {
			e, batches := begin(t)
			e.faults.Add(faults.Rule{Operation: "TransactWriteItems", Fault: w.cancel})
			h := e.place(e.hold("permanent", 5, 0))
			start := time.Now()
			e.until("the message is on the DLQ", func() bool { return e.depth(job.DLQ).Visible == 1 })
			took, says := time.Since(start), 0.0
			if m := e.fromDLQ(e.body(h)); m.Memory.Error != "" {
				says = 1
			}
			tell(e, batches, "permanent", took.Seconds(), "s-until-DLQ", says, "says-why")
		})
	}
}

// createIdempotencyTable creates the table of Powertools, by the names that its documentation gives.
func (e *embedded) createIdempotencyTable() {
	e.Helper()
	if _, err := e.db.CreateTable(e.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(e.names.Stack + "-idempotency"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		e.Fatal(err)
	}
}
