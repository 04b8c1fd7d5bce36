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
	// opTry is one write of a claim, which may have taken effect although the claim went on.
	opTry = "try"

	okay, isFinal, lost, refused, unknown = "ok", "final", "lease lost", "refused", "unknown"
)

// An operation with a short lease finds every other claim free, since every lease has ended at once. With a long
// lease no claim is ever free.
type linearInput struct {
	op, token    string
	short, lossy bool
	careless     bool // the worker does not ask whose claim it ends
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
	case opClaim, opTry:
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
		case out.result == unknown, in.op == opTry:
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

// leases says what the claims of a history are like, whether answers get lost, and whether workers ask whose claim they
// end.
type leases struct{ short, lossy, careless bool }

// tracer records when each write of an operation was made.
type tracer struct {
	dynamo.API
	clock  *atomic.Int64
	writes []span
}

type span struct{ called, returned int64 }

func (t *tracer) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	called := t.clock.Add(1)
	out, err := t.API.UpdateItem(ctx, in, o...)
	t.writes = append(t.writes, span{called, t.clock.Add(1)})
	return out, err
}

// operations are the steps of one call. A claim whose answer is lost may not be one step: if its lease has ended, another
// delivery goes on from there, and the store claims again. So each write of such a claim is a step of its own, which took
// effect or did not, and the claim's result is that of its last write.
func operations(in linearInput, out linearOutput, whole span, writes []span) []porcupine.Operation {
	if out.result == unknown {
		whole.returned = math.MaxInt64 // it may take effect at any later time
	}
	step := func(in linearInput, at span) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: at.called, Output: out, Return: at.returned}
	}
	if in.op != opClaim || !in.lossy || len(writes) == 0 {
		return []porcupine.Operation{step(in, whole)}
	}
	try := in
	try.op = opTry
	before, last := writes[:len(writes)-1], writes[len(writes)-1]
	var all []porcupine.Operation
	for _, w := range before {
		all = append(all, step(try, w))
	}
	switch out.result {
	case okay:
		return append(all, step(in, last))
	case unknown:
		return append(all, step(try, span{last.called, whole.returned}))
	}
	return append(all, step(try, last), step(in, span{last.called, whole.returned}))
}

// history lets several workers use one entry at once, while answers get lost, and returns what they saw. open opens a
// store on a client.
func (b *bench) history(open func(dynamo.API) *dynamo.Store, key string, seed uint64, l leases) []porcupine.Operation {
	var clock atomic.Int64
	var mu sync.Mutex
	var all []porcupine.Operation
	var workers sync.WaitGroup
	for w := range 5 {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			token := ""
			for i := range 5 {
				in := linearInput{op: []string{opClaim, opClaim, opComplete, opRelease, opGet, opCommit}[random.IntN(6)], token: token, short: l.short, lossy: l.lossy, careless: l.careless}
				if in.op == opClaim || in.op == opCommit || token == "" {
					in.token = fmt.Sprintf("w%d-%d", w, i)
					token = in.token
				}
				if in.op == opCommit && random.IntN(3) > 0 {
					in.op = opGet // most histories should be longer than one commit
				}
				trace := &tracer{API: b.client, clock: &clock}
				whole := span{called: clock.Add(1)}
				out := operate(b.Context(), open(trace), key, in)
				whole.returned = clock.Add(1)
				mu.Lock()
				for _, op := range operations(in, out, whole, trace.writes) {
					op.ClientId = len(all)
					all = append(all, op)
				}
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
			if in.careless {
				d.Token = e.Owner
			}
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

// conditional opens the ledger as it is, loose one whose writes have no condition.
func (b *bench) conditional(api dynamo.API) *dynamo.Store {
	return dynamo.New(api, b.names.LedgerTable, dynamo.Options{
		Now: func() time.Time { return now }, Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
}

func (b *bench) loose(api dynamo.API) *dynamo.Store { return b.conditional(unconditional{api}) }

// The entry behaves as if its operations happened one after the other, also if their answers are lost and leases end
// meanwhile.
func TestOperationsOfOneEntryAreLinearizable(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]leases{
		"no lease ends":                   {},
		"no lease ends, answers get lost": {lossy: true},
		"every lease ends at once":        {short: true},

		"every lease ends at once, answers get lost": {short: true, lossy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLinearBench(t, l.lossy)
			tries := 0
			results := map[string]int{}
			for i := range 20 {
				seed := rand.Uint64()
				h := b.history(b.conditional, fmt.Sprintf("reservation.expire/r-%d/c", i), seed, l)
				for _, op := range h {
					if op.Input.(linearInput).op == opTry {
						tries++
						continue
					}
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
			if l.lossy && tries == 0 {
				t.Error("no claim needed a second write")
			}
			for _, w := range want {
				if results[w] == 0 {
					t.Errorf("no operation ended as %q: %v", w, results)
				}
			}
		})
	}
}

// A ledger that is broken on purpose has histories that are not linearizable, so the check above can fail: without the
// conditions of writes, and without the question whose claim is completed.
func TestWithoutConditionsAHistoryIsNotLinearizable(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]leases{
		"no lease ends":                              {},
		"every lease ends at once":                   {short: true},
		"every lease ends at once, answers get lost": {short: true, lossy: true},
		"a claim is completed by anybody":            {short: true, lossy: true, careless: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLinearBench(t, l.lossy)
			open := b.loose
			if l.careless {
				open = b.conditional
			}
			for i := range 500 {
				h := b.history(open, fmt.Sprintf("reservation.expire/r-%d/c", i), uint64(i), l)
				if porcupine.CheckOperationsTimeout(linearModel, h, time.Minute) == porcupine.Illegal {
					return
				}
			}
			t.Error("500 histories of a broken ledger were all found to be linearizable")
		})
	}
}
