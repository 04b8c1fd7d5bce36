package soak

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"acklast/internal/job"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// operations are those that the worker's calls may fail in.
var operations = []string{"TransactWriteItems", "UpdateItem", "GetItem", "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"}

// scaledMinute is to the scaled numbers what a minute is to the default ones: so old may SQS's counts be.
var scaledMinute = topology.ScaledRedrive().GoneAfter / 2

// harm injects one fault after another until ctx ends.
func (r *run) harm(ctx context.Context, random *rand.Rand) {
	// The worker answers in several goroutines, so a counter decides which answers are lost, and not the generator.
	var answers atomic.Int64
	every := r.size.killEvery + random.Int64N(r.size.killEvery)
	r.env.KillOnTimeout(false)
	r.env.OnEvent(r.record.got)
	r.between.Add(faults.Rule{Operation: "GetQueueAttributes", Fault: faults.Lag(scaledMinute)})
	r.env.OnResponse(func(inv local.Invocation) local.Action {
		kill := ctx.Err() == nil && answers.Add(1)%every == 0
		r.record.answered(inv, kill)
		if kill {
			return local.KillBeforeAck
		}
		return local.Forward
	})
	operation := func() string { return operations[random.IntN(len(operations))] }
	process := func() int { return random.IntN(len(r.env.PIDs())) }
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	outage := time.Now()
	type fault struct {
		name string
		do   func()
	}
	all := []fault{
		{"kill", func() { r.env.Kill(process()) }},
		{"stop beyond the lease", func() {
			p := process()
			r.env.Suspend(p)
			pause(r.settings.WorkerTimeout + r.settings.LeaseSkew + time.Second)
			r.env.Continue(p)
		}},
		{"throttle", func() {
			r.faults.Add(faults.Rule{Operation: operation(), Times: 1 + random.IntN(20), Fault: faults.Error(http.StatusBadRequest, "ThrottlingException", "slow down")})
		}},
		{"lost answer", func() {
			r.faults.Add(faults.Rule{Operation: operation(), Times: 1 + random.IntN(5), Fault: faults.DropAnswer()})
		}},
		{"half-failed batch", func() {
			r.faults.Add(faults.Rule{Operation: operations[3+random.IntN(3)], Times: 1 + random.IntN(10), Fault: faults.HalfBatch()})
		}},
		{"schedule's answer lost", func() { r.scheduler.Add(faults.Rule{Times: 1 + random.IntN(3), Fault: faults.DropAnswer()}) }},
		{"schedules refused", func() { r.scheduler.Add(faults.Rule{Times: 1 + random.IntN(5), Fault: faults.Refuse()}) }},
		{"refuse", func() {
			r.faults.Add(faults.Rule{Operation: operation(), Times: 1 + random.IntN(20), Fault: faults.Refuse()})
		}},
		{"delay", func() {
			r.faults.Add(faults.Rule{Operation: operation(), Times: 1 + random.IntN(10), Fault: faults.Delay(time.Duration(random.IntN(900)) * time.Millisecond)})
		}},
		{"outage", func() {
			mend := r.faults.Add(faults.Rule{Fault: faults.Error(http.StatusInternalServerError, "InternalServerError", "outage")})
			pause(time.Duration(500+random.IntN(3000)) * time.Millisecond)
			mend()
		}},
		{"long outage", func() {
			if time.Since(outage) < 8*r.size.outage {
				return
			}
			mend := r.faults.Add(faults.Rule{Fault: faults.Error(http.StatusInternalServerError, "InternalServerError", "outage")})
			pause(r.size.outage*4/5 + time.Duration(random.Int64N(int64(r.size.outage/5))))
			mend()
			outage = time.Now()
		}},
		{"clock step", func() {
			// Two clocks then differ by less than the skew that leases tolerate.
			most := int(r.settings.LeaseSkew.Milliseconds()) * 9 / 20
			r.step(r.env.PIDs()[process()], time.Duration(random.IntN(2*most)-most)*time.Millisecond)
		}},
		{"restart", func() { r.env.KillAll() }},
		{"provider drops the answer", func() { r.provider(fakeprovider.Rule{Times: 1 + random.IntN(5), Do: fakeprovider.Drop()}) }},
		{"provider hangs up", func() { r.provider(fakeprovider.Rule{Times: 1 + random.IntN(5), Do: fakeprovider.HangUp()}) }},
		{"provider throttles", func() { r.provider(fakeprovider.Rule{Times: 1 + random.IntN(10), Do: fakeprovider.Throttle("1")}) }},
		{"provider fails", func() { r.provider(fakeprovider.Rule{Times: 1 + random.IntN(5), Do: fakeprovider.Fail(500)}) }},
		{"provider's proxy fails", func() {
			r.provider(fakeprovider.Rule{Times: 1 + random.IntN(5), Do: fakeprovider.Foreign(503, "<html>", random.IntN(2) == 0)})
		}},
		{"provider is late", func() {
			r.provider(fakeprovider.Rule{Times: 1 + random.IntN(3), Do: fakeprovider.Late(3 * time.Second)})
		}},
		{"redrive dies", func() { r.env.KillFunction(r.redriver) }},
		{"redrive loses an answer", func() {
			r.between.Add(faults.Rule{Operation: []string{"UpdateItem", "SendMessageBatch", "DeleteMessageBatch"}[random.IntN(3)], Times: 1, Fault: faults.DropAnswer()})
		}},
	}
	for ctx.Err() == nil {
		f := all[random.IntN(len(all))]
		began := time.Now()
		f.do()
		if f.name != "long outage" || outage.After(began) {
			r.injected[f.name]++
		}
		pause(time.Duration(random.Int64N(int64(r.size.pause))))
	}
}

func (r *run) provider(rule fakeprovider.Rule) {
	r.rules = append(r.rules, r.env.Provider().Add(rule))
}

// mend ends every fault.
func (r *run) mend() {
	r.faults.Reset()
	r.between.Reset()
	r.scheduler.Reset()
	r.unstep()
	for p := range r.env.PIDs() {
		r.env.Continue(p)
	}
	for _, remove := range r.rules {
		remove()
	}
}

// look receives from the DLQ as people do, and deletes nothing.
func (r *run) look(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = r.queues.Receive(r.Context(), job.DLQ, 5, time.Second, 0)
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
