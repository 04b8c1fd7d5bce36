package worker_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/worker"
)

// invocation runs a batch in an invocation of the deployed length, inside a bubble. It returns how long the
// handler took.
func (b *bench) invocation(records ...events.SQSMessage) (failed []string, took time.Duration) {
	b.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	response, _ := b.Handle(ctx, events.SQSEvent{Records: records})
	for _, f := range response.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	return failed, time.Since(began)
}

// timed runs a test in a bubble, with the bubble's clock.
func timed(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Now, b.now = time.Now, time.Now()
		test(b)
	})
}

func hangs(ctx context.Context, _ job.Delivery) job.Result {
	<-ctx.Done()
	return job.Result{Err: ctx.Err()}
}

func TestAHungDependencyIsAFailedAttempt(t *testing.T) {
	timed(t, func(b *bench) {
		b.run = hangs
		failed, took := b.invocation(b.record("m1", body("1")), b.record("m2", body("2")))
		if len(failed) != 0 {
			t.Errorf("failed %v, want none left", failed)
		}
		if took < b.Rules.Retry.AttemptTime || took > b.Rules.Retry.AttemptTime+time.Second {
			t.Errorf("it took %v, want the attempt's %v", took, b.Rules.Retry.AttemptTime)
		}
		equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
		equal(b, b.ledger.entries["test/1"].LastClass, job.Transient, "the entry's last class")
		contains(b, b.ledger.entries["test/1"].LastError, "all of its time", "the entry's last error")
	})
}

func TestAKindsOwnAttemptTime(t *testing.T) {
	timed(t, func(b *bench) {
		k := b.kind("test", job.RunLate)
		k.Attempts.Time = time.Second
		b.Kinds = job.NewCatalogue(k)
		b.run = hangs
		if _, took := b.invocation(b.record("m1", body("1"))); took > 2*time.Second {
			t.Errorf("it took %v, want the kind's second", took)
		}
	})
	if err := newBench(t).CheckKind(job.Description{Name: "k", Attempts: job.Attempts{Time: 6*time.Second + 1}}); err == nil {
		t.Error("an attempt time that reaches into the hand-over was accepted")
	}
	if err := newBench(t).CheckKind(job.Description{Name: "k", Attempts: job.Attempts{Time: 6 * time.Second}}); err != nil {
		t.Error(err)
	}
}

// Without an end to its attempts, a hung job would spend twenty receives and four hours and leave no entry.
func TestAHungJobSpendsItsBudget(t *testing.T) {
	timed(t, func(b *bench) {
		b.run = hangs
		r := b.record("m0", body("1"))
		for n := 1; n < b.Rules.Retry.MaxAttempts; n++ {
			b.invocation(r)
			m := b.last(job.Recovery, n)
			time.Sleep(m.Delay)
			b.now = time.Now()
			r = b.back("m1", m)
		}
		b.invocation(r)
		equal(b, b.last(job.DLQ, 1).Message.Memory.Cause, job.CauseAttempts, "the memory's cause")
		equal(b, b.last(job.DLQ, 1).Message.Memory.Attempt, b.Rules.Retry.MaxAttempts, "the memory's attempt")
	})
}

// claims is a run that claims and then ignores its context until the channel is closed.
func (b *bench) claims(until <-chan struct{}) func(context.Context, job.Delivery) job.Result {
	return func(_ context.Context, d job.Delivery) job.Result {
		_, err := b.ledger.Update(context.Background(), d.Key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
			return b.Rules.Claim(e, d, ledger.Lease{Until: time.Now().Add(90 * time.Second), ProviderKey: "p"}, time.Now())
		})
		<-until
		return job.Result{Err: err}
	}
}

func TestCodeThatIgnoresItsContextAndHoldsAClaim(t *testing.T) {
	timed(t, func(b *bench) {
		release := make(chan struct{})
		defer close(release)
		b.run = b.claims(release)
		failed, took := b.invocation(b.record("m1", body("1")))
		equal(b, len(failed), 0, "the number of failures")
		if took > 8*time.Second {
			t.Errorf("it took %v, want at most 8 s", took)
		}
		e := b.ledger.entries["test/1"]
		equal(b, e.Status, ledger.Running, "the entry's status")
		equal(b, e.Attempts, 0, "the entry's number of attempts")
		equal(b, e.Unresolved, true, "the entry's mark unresolved")
		m := b.last(job.Recovery, 1)
		if left := time.Until(e.LeaseUntil); m.Delay < left || m.Delay > left+time.Second {
			t.Errorf("delay %v, want the lease's rest of %v", m.Delay, left)
		}
	})
}

func TestCodeThatIgnoresItsContextWithoutAClaim(t *testing.T) {
	timed(t, func(b *bench) {
		release := make(chan struct{})
		defer close(release)
		b.run = func(context.Context, job.Delivery) job.Result {
			<-release
			return job.Result{Verdict: job.Committed}
		}
		b.invocation(b.record("m1", body("1")))
		equal(b, b.ledger.entries["test/1"].Status, ledger.Pending, "the entry's status")
		equal(b, b.ledger.entries["test/1"].Attempts, 1, "the entry's number of attempts")
		equal(b, b.ledger.entries["test/1"].LastClass, job.Transient, "the entry's last class")
	})
}

// The process ends after its response was sent, and not before. So no code is frozen and goes on in a later
// invocation.
func TestTheProcessEndsAfterItsResponse(t *testing.T) {
	for name, stuck := range map[string]bool{"stuck": true, "well": false} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(b *bench) {
				exited := false
				b.Exit = func() { exited = true }
				release := make(chan struct{})
				defer close(release)
				if stuck {
					b.run = b.claims(release)
				}
				ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
				defer cancel()
				response, err := worker.New(b.Config, b.Dependencies).Invoke(ctx, events.SQSEvent{Records: []events.SQSMessage{b.record("m1", body("1"))}})
				if err != nil {
					t.Fatal(err)
				}
				if exited {
					t.Error("it ended before its response was sent")
				}
				closer, ends := response.(io.Closer)
				if ends != stuck {
					t.Fatalf("the response ends the process: %v, want %v", ends, stuck)
				}
				if !stuck {
					return
				}
				var parsed events.SQSEventResponse
				equal(t, json.NewDecoder(response.(io.Reader)).Decode(&parsed), nil, "the error of the response")
				equal(t, len(parsed.BatchItemFailures), 0, "the number of failures")
				_ = closer.Close()
				if !exited {
					t.Error("it went on")
				}
			})
		})
	}
}

// A hung suspect costs one attempt. The suspects behind it run, and it comes back with a new id, so it is no
// suspect any more.
func TestAHungSuspectDoesNotStarveTheOthers(t *testing.T) {
	timed(t, func(b *bench) {
		b.run = func(ctx context.Context, d job.Delivery) job.Result {
			if d.Subject == "hung" {
				return hangs(ctx, d)
			}
			return b.ledger.commit(d, b.Rules, time.Now())
		}
		records := []events.SQSMessage{again(b.record("m0", body("hung")), 3)}
		for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			records = append(records, again(b.record("m"+id, body(id)), 3))
		}
		if failed, _ := b.invocation(records...); len(failed) != 0 {
			t.Errorf("failed %v", failed)
		}
		done := 0
		for _, e := range b.ledger.entries {
			if e.Status == ledger.Done {
				done++
			}
		}
		if done != 9 {
			t.Errorf("%d of the 9 behind it are done", done)
		}
	})
}

// Code that did not return may still end the process, so no other suspect starts beside it.
func TestNoSuspectStartsBesideStuckCode(t *testing.T) {
	timed(t, func(b *bench) {
		release := make(chan struct{})
		defer close(release)
		b.run = b.claims(release)
		b.invocation(again(b.record("m1", body("1")), 3), again(b.record("m2", body("2")), 3))
		if b.ran.Load() != 1 {
			t.Errorf("%d ran, want the first alone", b.ran.Load())
		}
		if got := len(b.wires.sent[job.Recovery]); got != 2 {
			t.Errorf("%d moves, want both handed over", got)
		}
	})
}

// hungWires accept a call and never answer.
type hungWires struct{ *wires }

func (hungWires) Send(ctx context.Context, _ job.Queue, moves []lanes.Move) []error {
	<-ctx.Done()
	errs := make([]error, len(moves))
	for i := range errs {
		errs[i] = lanes.ErrUnsent
	}
	return errs
}

func (hungWires) Backoff(ctx context.Context, _ job.Queue, _ []lanes.Backoff) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hungWires) Delete(ctx context.Context, _ job.Queue, messages []job.Message) []error {
	<-ctx.Done()
	errs := make([]error, len(messages))
	for i := range errs {
		errs[i] = lanes.ErrUndeleted
	}
	return errs
}

// hungLedger does the same.
type hungLedger struct{ *memory }

func (hungLedger) ReadStrikes(ctx context.Context, _ string) (ledger.Strikes, error) {
	<-ctx.Done()
	return ledger.Strikes{}, ledger.ErrUnavailable
}

func (hungLedger) Update(ctx context.Context, _, _ string, _ func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	<-ctx.Done()
	return ledger.Entry{}, ledger.ErrUnavailable
}

func TestTheHandlerAnswersInTimeWhateverHangs(t *testing.T) {
	for name, prepare := range map[string]func(b *bench){
		"queues": func(b *bench) { b.Lanes = hungWires{b.wires} },
		"ledger": func(b *bench) { b.Ledger = hungLedger{b.ledger} },
		"both":   func(b *bench) { b.Lanes, b.Ledger = hungWires{b.wires}, hungLedger{b.ledger} },
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(b *bench) {
				prepare(b)
				b.run = fails(job.Transient, 0)
				if _, took := b.invocation(b.record("m1", body("1")), again(b.record("m2", body("2")), 3)); took >= 30*time.Second {
					t.Errorf("it answered after %v, when the invocation was over", took)
				}
			})
		})
	}
}

// The attempt starts at the last moment of an invocation: its failure is still written and handed over.
func TestAnAttemptThatStartsAtTheLastMoment(t *testing.T) {
	timed(t, func(b *bench) {
		b.run = hangs
		ctx, cancel := context.WithTimeout(b.Context(), b.StartMargin)
		defer cancel()
		response, err := b.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{b.record("m1", body("1"))}})
		equal(b, err, nil, "the error")
		equal(b, len(response.BatchItemFailures), 0, "the number of failures")
		if e := b.ledger.entries["test/1"]; e.Attempts != 1 {
			t.Errorf("%d attempts, want 1", e.Attempts)
		}
	})
}
