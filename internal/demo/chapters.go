package demo

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
)

func (s *story) expire(ctx context.Context) (row, error) {
	var keys []string
	for i := range 5 {
		_, key, err := s.hold(ctx, fmt.Sprintf("normal-%d", i+1), 2, 1500*time.Millisecond)
		if err != nil {
			return row{}, err
		}
		keys = append(keys, key)
	}
	s.tell("5 holds of 2 units each; their jobs wait in SQS until the holds are stale.")
	if err := s.ended(ctx, keys...); err != nil {
		return row{}, err
	}
	s.tell("Each hold expired and its units went back, in one transaction with its ledger entry.")
	return row{Sent: 5, Became: "5 released"}, nil
}

func (s *story) duplicates(ctx context.Context) (row, error) {
	h, key, err := s.hold(ctx, "copied", 3, time.Second)
	if err != nil {
		return row{}, err
	}
	body, err := h.Job().Body()
	if err != nil {
		return row{}, err
	}
	moves := make([]lanes.Move, 19)
	for i := range moves {
		moves[i] = lanes.Move{Message: job.Message{Body: body}, Delay: time.Until(h.ExpiresAt)}
	}
	for _, err := range s.queues.Send(ctx, job.Source, moves) {
		if err != nil {
			return row{}, err
		}
	}
	s.tell("The producer's own message and 19 copies of it become due together.")
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	got, err := s.outcomes(ctx, key, 20)
	if err != nil {
		return row{}, err
	}
	s.tell("%d delivery released the units, %d found the entry final.", got[string(job.Acknowledged)], got[local.Duplicate])
	return row{Sent: 20, Became: fmt.Sprintf("%d released, %d duplicates", got[string(job.Acknowledged)], got[local.Duplicate])}, nil
}

func (s *story) confirm(ctx context.Context) (row, error) {
	h, key, err := s.hold(ctx, "paid", 4, 1500*time.Millisecond)
	if err != nil {
		return row{}, err
	}
	if err := s.desk.Confirm(ctx, h.ReservationID, h.CommandID); err != nil {
		return row{}, err
	}
	s.tell("Confirmed with %v to go. Its job still comes, because a sent message cannot be taken back.", time.Until(h.ExpiresAt).Round(100*time.Millisecond))
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	r, err := s.store.Get(ctx, h.ReservationID)
	if err != nil {
		return row{}, err
	}
	s.tell("The job found the reservation %s, recorded that it was superseded, and released nothing.", r.State)
	return row{Sent: 1, Became: "superseded, its units stay taken"}, nil
}

func (s *story) early(ctx context.Context) (row, error) {
	s.delay = false
	h, key, err := s.hold(ctx, "early", 1, 6*time.Second)
	s.delay = true
	if err != nil {
		return row{}, err
	}
	s.tell("Its message is visible at once, its hold has 6 s to go.")
	got, err := s.outcomes(ctx, key, 1)
	if err != nil {
		return row{}, err
	}
	s.tell("Deferred %d time(s): to the recovery lane with a delay, no attempt spent.", got[string(job.Deferred)])
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	e, err := s.ledger.Get(ctx, key)
	if err != nil {
		return row{}, err
	}
	s.tell("Released %v after it was due, not before.", e.FinalAt.Sub(h.ExpiresAt).Round(time.Millisecond))
	if e.FinalAt.Before(h.ExpiresAt) {
		return row{}, fmt.Errorf("released %v early", h.ExpiresAt.Sub(e.FinalAt))
	}
	hops := s.seen.Of(key)[string(job.Deferred)]
	return row{Sent: 1, Became: fmt.Sprintf("released when due, after %d deferral(s)", hops)}, nil
}

func (s *story) unreadable(ctx context.Context) (row, error) {
	bodies := []string{
		`{"kind":"reservation.expire","payload":{"reservationId":`,
		`null`,
		`{"kind":"reservation.expire","payload":{"reservationId":"r-1","commandId":"c-1","resourceId":"room-7","units":"one"}}`,
	}
	moves := make([]lanes.Move, len(bodies))
	for i, b := range bodies {
		moves[i].Message.Body = b
	}
	arrived, err := s.onDLQ(ctx, len(bodies))
	if err != nil {
		return row{}, err
	}
	for _, err := range s.queues.Send(ctx, job.Source, moves) {
		if err != nil {
			return row{}, err
		}
	}
	_, key, err := s.hold(ctx, "neighbour", 1, 500*time.Millisecond)
	if err != nil {
		return row{}, err
	}
	s.isolated += len(bodies)
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	if err := s.until(ctx, "the bodies are on the DLQ", arrived); err != nil {
		return row{}, err
	}
	s.tell("%d bodies went to the DLQ unchanged, each with its error; the job beside them was released.", len(bodies))
	return row{Sent: 4, Became: "3 isolated as invalid, 1 released"}, nil
}

// onDLQ returns a function that tells whether n messages or more came to the DLQ since onDLQ was called. On a busy machine a
// batch may outlive its visibility timeout, and then a second delivery brings a copy of an isolated job there.
func (s *story) onDLQ(ctx context.Context, n int) (func() (bool, error), error) {
	before, err := s.queues.Depth(ctx, job.DLQ)
	return func() (bool, error) {
		d, err := s.queues.Depth(ctx, job.DLQ)
		return d.Total() >= before.Total()+n, err
	}, err
}

func (s *story) outage(ctx context.Context) (row, error) {
	const lasting = 3 * time.Second
	s.tell("For %v DynamoDB answers every call of the worker with ThrottlingException.", lasting)
	remove := s.faults.Add(faults.Rule{
		Match: func(body []byte) bool { return !bytes.Contains(body, []byte("QueueUrl")) },
		Fault: faults.Error(400, "ThrottlingException", "Rate exceeded"),
	})
	defer remove()
	var keys []string
	for i := range 5 {
		_, key, err := s.hold(ctx, fmt.Sprintf("outage-%d", i+1), 1, 200*time.Millisecond)
		if err != nil {
			return row{}, err
		}
		keys = append(keys, key)
	}
	select {
	case <-time.After(lasting):
	case <-ctx.Done():
		return row{}, ctx.Err()
	}
	left := 0
	for _, key := range keys {
		left += s.seen.Of(key)[string(job.Left)]
	}
	s.tell("%d deliveries were left: no attempt spent, not acknowledged, backed off. DynamoDB recovers.", left)
	remove()
	if err := s.ended(ctx, keys...); err != nil {
		return row{}, err
	}
	spent := 0
	for _, key := range keys {
		e, err := s.ledger.Get(ctx, key)
		if err != nil {
			return row{}, err
		}
		spent += e.Attempts
	}
	s.tell("All 5 were released once, with %d attempts spent.", spent)
	return row{Sent: 5, Became: fmt.Sprintf("5 released after %d deliveries were left", left)}, nil
}

func (s *story) kill(ctx context.Context) (row, error) {
	var victim atomic.Int64
	s.env.OnResponse(func(inv local.Invocation) local.Action {
		for _, r := range inv.Records {
			if bytes.Contains([]byte(r.Body), []byte(`"killed"`)) && victim.CompareAndSwap(0, int64(inv.PID)) {
				return local.KillBeforeAck
			}
		}
		return local.Forward
	})
	defer s.env.OnResponse(nil)
	h, key, err := s.hold(ctx, "killed", 5, 500*time.Millisecond)
	if err != nil {
		return row{}, err
	}
	if err := s.until(ctx, "the worker is killed", func() (bool, error) { return victim.Load() != 0, nil }); err != nil {
		return row{}, err
	}
	r, err := s.store.Get(ctx, h.ReservationID)
	if err != nil {
		return row{}, err
	}
	s.tell("SIGKILL to pid %d after its commit: the hold is %s, its message not acknowledged.", victim.Load(), r.State)
	s.tell("SQS delivers it again when its visibility timeout ends ...")
	got, err := s.outcomes(ctx, key, 2)
	if err != nil {
		return row{}, err
	}
	s.tell("... and another process finds the entry final and acknowledges: %d commit, %d duplicate.",
		got[string(job.Acknowledged)], got[local.Duplicate])
	return row{Sent: 1, Became: "released once, the redelivery a duplicate"}, nil
}

func (s *story) fail(ctx context.Context) (row, error) {
	s.tell("Every transaction on one reservation is cancelled with ValidationError, as if the item were damaged.")
	remove := s.faults.Add(faults.Rule{
		Operation: "TransactWriteItems",
		Match:     func(body []byte) bool { return bytes.Contains(body, []byte(`"damaged"`)) },
		Fault:     faults.CancelTransaction("None", "None", "ValidationError"),
	})
	defer remove()
	h := reservation.Hold{
		Payload:   reservation.Payload{ReservationID: "damaged", CommandID: "hold-1", ResourceID: room, Units: 1},
		ExpiresAt: time.Now().Truncate(time.Millisecond),
	}
	body, err := h.Job().Body()
	if err != nil {
		return row{}, err
	}
	key, err := h.Key()
	if err != nil {
		return row{}, err
	}
	s.jobs[key] = ledger.Isolated
	s.isolated++
	arrived, err := s.onDLQ(ctx, 1)
	if err != nil {
		return row{}, err
	}
	if err := s.send(ctx, body, time.Time{}); err != nil {
		return row{}, err
	}
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	if err := s.until(ctx, "the job is on the DLQ", arrived); err != nil {
		return row{}, err
	}
	e, err := s.ledger.Get(ctx, key)
	if err != nil {
		return row{}, err
	}
	s.tell("Isolated as %q, cause %q. Its history in the ledger and in the DLQ message:", e.LastClass, e.Cause)
	for _, ev := range e.History {
		line := fmt.Sprintf("%s  %s", ev.At.Format("15:04:05.000"), ev.What)
		if ev.Attempt > 0 {
			line += fmt.Sprintf("  attempt %d  %s", ev.Attempt, ev.Class)
		}
		s.tell("  %s", line)
	}
	s.tell("  %s", e.LastError)
	return row{Sent: 1, Became: fmt.Sprintf("isolated after %d attempts", e.Attempts)}, nil
}

func (s *story) poison(ctx context.Context) (row, error) {
	s.env.Pause(job.Source)
	defer s.env.Resume(job.Source)
	var innocents []string
	for i := range 9 {
		_, key, err := s.hold(ctx, fmt.Sprintf("innocent-%d", i+1), 1, 0)
		if err != nil {
			return row{}, err
		}
		innocents = append(innocents, key)
	}
	_, key, err := s.hold(ctx, "poison", 1, 0)
	if err != nil {
		return row{}, err
	}
	s.jobs[key] = ledger.Isolated
	s.isolated++
	convicted, err := s.onDLQ(ctx, 1)
	if err != nil {
		return row{}, err
	}
	var deaths atomic.Int64
	remove := s.faults.Add(faults.Rule{
		Operation: "TransactWriteItems",
		Match: func(body []byte) bool {
			if !bytes.Contains(body, []byte(`"poison"`)) {
				return false
			}
			deaths.Add(1)
			go s.env.KillAll()
			return true
		},
		Fault: faults.Delay(patience), // the process dies before the answer
	})
	defer remove()
	s.tell("Ten jobs come in one batch. Whenever the worker is in the middle of one of them, it is killed.")
	s.env.Resume(job.Source)

	told := int64(0)
	err = s.until(ctx, "the poison is isolated", func() (bool, error) {
		for n := deaths.Load(); told < n; {
			told++
			switch told {
			case 1, 2:
				s.tell("Death %d. The whole batch comes back after its visibility timeout.", told)
			case 3:
				s.tell("Death 3. From the third receive on they run one by one, each after a strike. A finished one is deleted at once.")
			default:
				s.tell("Death %d, alone. Its second strike.", told)
			}
		}
		return convicted()
	})
	if err != nil {
		return row{}, err
	}
	if err := s.ended(ctx, innocents...); err != nil {
		return row{}, err
	}
	seen, err := s.ask(ctx, redrive.Request{Action: "inspect", Select: &redrive.Filter{Classes: []job.Class{job.Crashed}}})
	if err != nil {
		return row{}, err
	}
	if len(seen.Groups) != 1 || seen.Groups[0].Count != 1 {
		return row{}, fmt.Errorf("isolated as crashed are %+v, want one message", seen.Groups)
	}
	s.tell("Convicted, and not run again: class %q, %s. Its entry in the ledger says so too. The nine others were released once each.", job.Crashed, seen.Groups[0].Samples[0].Error)
	return row{Sent: 10, Became: fmt.Sprintf("9 released, 1 isolated as %s after %d deaths", job.Crashed, deaths.Load())}, nil
}
