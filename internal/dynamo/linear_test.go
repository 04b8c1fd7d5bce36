package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"acklast/internal/dynamo"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
)

// The operations of one entry, and how they ended.
const (
	opClaim, opComplete, opRelease, opCommit, opGet = "claim", "complete", "release", "commit", "get"

	okay, isFinal, lost, refused, unknown = "ok", "final", "lease lost", "refused", "unknown"
)

// An operation with a short lease finds every other claim free, since every lease has ended at once. With a long
// lease no claim is ever free.
type linearInput struct {
	op, token    string
	short, lossy bool
}

type linearOutput struct {
	result string
	read   linearState // of a get
}

// linearState is an entry as the model knows it.
type linearState struct {
	status   ledger.Status
	owner    string
	attempts int
}

// step is the specification: what an operation does to an entry, and how it ends.
func (s linearState) step(in linearInput) (linearState, string) {
	final := s.status.Final()
	switch in.op {
	case opClaim:
		if final || s.status == ledger.Running && !in.short {
			return s, refused
		}
		if s.status == ledger.Running {
			s.attempts++
		}
		s.status, s.owner = ledger.Running, in.token
	case opComplete, opRelease:
		if final {
			return s, isFinal
		}
		if s.status != ledger.Running || s.owner != in.token {
			return s, lost
		}
		s.status, s.owner = ledger.Pending, in.token
		if in.op == opComplete {
			s.status = ledger.Done
		}
	case opCommit:
		if s.status != "" && s.status != ledger.Pending {
			return s, refused
		}
		s.status, s.owner = ledger.Done, in.token
	}
	return s, okay
}

var linearModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{linearState{}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(linearState), input.(linearInput), output.(linearOutput)
		next, result := s.step(in)
		switch {
		case in.op == opGet && (out.result == unknown || out.read == s):
			return []any{s}
		case in.op == opGet:
			return nil
		case out.result == unknown:
			return []any{s, next} // it took effect, or it did not
		case out.result == result:
			return []any{next}
		case in.lossy && result == okay && (out.result == lost || out.result == isFinal):
			// It was written, and its answer was lost. Before the store looked again, another delivery went on
			// from there. So the store cannot tell its own write from a lost lease.
			return []any{next}
		}
		return nil
	},
}).ToModel()

// unconditional is a client that forgets the conditions of single writes.
type unconditional struct{ dynamo.API }

func (u unconditional) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ConditionExpression = nil
	return u.API.UpdateItem(ctx, in, o...)
}

// leases says what the claims of a history are like, and whether answers get lost.
type leases struct{ short, lossy bool }

// history lets several workers use one entry at once, while answers get lost, and returns what they saw.
func (b *bench) history(store *dynamo.Store, key string, seed uint64, l leases) []porcupine.Operation {
	var clock atomic.Int64
	var mu sync.Mutex
	var all []porcupine.Operation
	var workers sync.WaitGroup
	for w := range 5 {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			token := ""
			for i := range 5 {
				in := linearInput{op: []string{opClaim, opClaim, opComplete, opRelease, opGet, opCommit}[random.IntN(6)], token: token, short: l.short, lossy: l.lossy}
				if in.op == opClaim || in.op == opCommit || token == "" {
					in.token = fmt.Sprintf("w%d-%d", w, i)
					token = in.token
				}
				if in.op == opCommit && random.IntN(3) > 0 {
					in.op = opGet // most histories should be longer than one commit
				}
				called := clock.Add(1)
				out := operate(b.Context(), store, key, in)
				returned := clock.Add(1)
				if out.result == unknown {
					returned = math.MaxInt64 // it may take effect at any later time
				}
				mu.Lock()
				all = append(all, porcupine.Operation{ClientId: len(all), Input: in, Call: called, Output: out, Return: returned})
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all
}

func operate(ctx context.Context, store *dynamo.Store, key string, in linearInput) linearOutput {
	patient := rules
	patient.Retry.MaxAttempts = 1000
	d := delivery(in.token)
	d.Key = key
	until := now.Add(time.Hour)
	if in.short {
		until = now.Add(-time.Second)
	}
	var err error
	switch in.op {
	case opClaim:
		_, err = store.Claim(ctx, patient, d, ledger.Lease{Until: until, ProviderKey: "p"})
	case opComplete:
		_, err = store.Update(ctx, key, in.token, func(e ledger.Entry) (ledger.Entry, error) {
			return patient.CompleteClaim(e, d, ledger.Done, "sent", "", now)
		})
	case opRelease:
		_, err = store.Update(ctx, key, in.token, func(e ledger.Entry) (ledger.Entry, error) { return patient.Release(e, in.token) })
	case opCommit:
		err = store.Commit(ctx, patient.Complete(d, ledger.Done, "released", now))
	case opGet:
		e, err := store.Get(ctx, key)
		if err != nil {
			return linearOutput{result: unknown}
		}
		return linearOutput{result: okay, read: linearState{e.Status, e.Owner, e.Attempts}}
	}
	var refusal *ledger.RefusedError
	switch {
	case err == nil:
		return linearOutput{result: okay}
	case errors.Is(err, ledger.ErrUnavailable), errors.Is(err, ledger.ErrContended):
		return linearOutput{result: unknown}
	case errors.As(err, &refusal):
		return linearOutput{result: refused}
	case errors.Is(err, ledger.ErrFinal):
		return linearOutput{result: isFinal}
	case errors.Is(err, ledger.ErrLeaseLost):
		return linearOutput{result: lost}
	}
	return linearOutput{result: err.Error()}
}

func newLinearBench(t *testing.T, lossy bool) *bench {
	t.Helper()
	srv := newKumo(t)
	b := newBench(t, engine{url: func(*testing.T) string { return srv.URL }, transacts: true, allReasons: true, hasTTL: true, removes: true, indexesUpdates: true})
	if lossy {
		b.proxy.Add(faults.Rule{Match: func([]byte) bool { return rand.IntN(3) == 0 }, Fault: faults.DropAnswer()})
	}
	return b
}

// The entry behaves as if its operations happened one after the other, also if their answers are lost. A lease that
// ends within a call, whose answer is lost too, is left out: the repeated call then claims again and counts the first
// claim as a failed attempt, so that a claim is no single step.
func TestOperationsOfOneEntryAreLinearizable(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]leases{
		"no lease ends":                   {},
		"no lease ends, answers get lost": {lossy: true},
		"every lease ends at once":        {short: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLinearBench(t, l.lossy)
			results := map[string]int{}
			for i := range 25 {
				seed := rand.Uint64()
				h := b.history(b.store, fmt.Sprintf("reservation.expire/r-%d/c", i), seed, l)
				for _, op := range h {
					results[op.Output.(linearOutput).result]++
				}
				if verdict := porcupine.CheckOperationsTimeout(linearModel, h, time.Minute); verdict != porcupine.Ok {
					t.Errorf("the history of seed %d is %s:", seed, verdict)
					for _, op := range h {
						t.Logf("%d to %d: %+v %+v", op.Call, op.Return, op.Input, op.Output)
					}
					return
				}
			}
			want := []string{okay, isFinal, lost, refused}
			if l.lossy {
				want = append(want, unknown)
			}
			for _, w := range want {
				if results[w] == 0 {
					t.Errorf("no operation ended as %q: %v", w, results)
				}
			}
		})
	}
}

// Without the conditions the histories are not linearizable, so the check above can fail.
func TestWithoutConditionsAHistoryIsNotLinearizable(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]leases{"no lease ends": {}, "every lease ends at once": {short: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLinearBench(t, l.lossy)
			loose := dynamo.New(unconditional{b.client}, b.names.LedgerTable, dynamo.Options{
				Now: func() time.Time { return now }, Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
			})
			for i := range 500 {
				h := b.history(loose, fmt.Sprintf("reservation.expire/r-%d/c", i), uint64(i), l)
				if porcupine.CheckOperationsTimeout(linearModel, h, time.Minute) == porcupine.Illegal {
					return
				}
			}
			t.Error("500 histories without conditions were all found to be linearizable")
		})
	}
}
