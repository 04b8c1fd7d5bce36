package demo

import (
	"context"
	"errors"
	"net/http"
	"time"

	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/redrive"
)

// remind sends a reminder n times at once and expects its job to end in the given status, with the
// given number of messages accepted by the provider. change spoils the reminder or its subscription.
func (s *story) remind(ctx context.Context, name string, n int, end ledger.Status, accepted int,
	change func(*reminder.Payload, *reminder.Subscription),
) (reminder.Payload, string, error) {
	now := time.Now().Truncate(time.Millisecond)
	p := reminder.Payload{
		ReminderID: name, SubscriptionID: "sub-" + name, Channel: reminder.Email,
		Template: "renewal", TemplateVersion: "v3", Recipient: "customer-" + name, Plan: "pro",
		RenewsAt: now.Add(72 * time.Hour), ExpiresAt: now.Add(time.Hour),
	}
	sub := reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}
	if change != nil {
		change(&p, &sub)
	}
	body, err := p.Job(time.Time{})
	if err != nil {
		return p, "", err
	}
	key, err := p.Key()
	if err != nil {
		return p, "", err
	}
	s.jobs[key], s.accepted[p.Recipient] = end, accepted
	if err := s.subscriptions.Put(ctx, sub); err != nil {
		return p, "", err
	}
	moves := make([]lanes.Move, n)
	for i := range moves {
		moves[i].Message.Body = body
	}
	return p, key, errors.Join(s.queues.Send(ctx, job.Source, moves)...)
}

func (s *story) reminders(ctx context.Context) (row, error) {
	var keys []string
	send := func(name string, n int, end ledger.Status, accepted int, change func(*reminder.Payload, *reminder.Subscription)) error {
		_, key, err := s.remind(ctx, name, n, end, accepted, change)
		keys = append(keys, key)
		return err
	}
	err := errors.Join(
		send("first", 1, ledger.Done, 1, nil),
		send("second", 1, ledger.Done, 1, nil),
		send("copied", 5, ledger.Done, 1, nil),
		send("unsubscribed", 1, ledger.Terminal, 0, func(_ *reminder.Payload, sub *reminder.Subscription) {
			sub.Unsubscribed = []reminder.Channel{reminder.Email}
		}),
		send("late", 1, ledger.Expired, 0, func(p *reminder.Payload, _ *reminder.Subscription) {
			p.ExpiresAt = time.Now().Add(-time.Minute)
		}),
	)
	if err != nil {
		return row{}, err
	}
	s.tell("Two reminders, one more five times at once, one to somebody who unsubscribed, one past its expiry.")
	if err := s.ended(ctx, keys...); err != nil {
		return row{}, err
	}
	if _, err := s.outcomes(ctx, keys[2], 5); err != nil {
		return row{}, err
	}
	s.tell("The provider accepted %d messages, one for each reminder to send.", len(s.env.Provider().Accepted("")))
	return row{Sent: 9, Became: "3 sent once each, 1 unsubscribed, 1 expired"}, nil
}

func (s *story) killAfterAcceptance(ctx context.Context) (row, error) {
	killed := make(chan int, 1)
	defer s.env.Provider().Add(fakeprovider.Rule{Recipient: "customer-killed", Times: 1, Accepted: func() {
		for _, process := range s.env.Invoking() {
			killed <- s.env.PIDs()[process]
			s.env.Kill(process)
			break
		}
	}})()
	p, key, err := s.remind(ctx, "killed", 1, ledger.Done, 1, nil)
	if err != nil {
		return row{}, err
	}
	select {
	case pid := <-killed:
		s.tell("SIGKILL to pid %d right after the provider accepted: the acceptance is not recorded.", pid)
	case <-time.After(patience):
		return row{}, errors.New("the worker was not killed")
	case <-ctx.Done():
		return row{}, ctx.Err()
	}
	s.tell("The entry says that a call was begun. SQS delivers the job again when its visibility timeout ends ...")
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	e, err := s.ledger.Get(ctx, key)
	if err != nil {
		return row{}, err
	}
	requestID := "none"
	if len(e.Evidence) > 0 {
		requestID = e.Evidence[0].RequestID
	}
	s.tell("... and another process looks it up before anything else: accepted as %s. Not sent again: %d acceptance.",
		requestID, len(s.env.Provider().Accepted(p.Recipient)))
	return row{Sent: 1, Became: "sent once, found by look-up"}, nil
}

func (s *story) ambiguous(ctx context.Context) (row, error) {
	silence := make(chan struct{})
	defer close(silence)
	// The request arrives, and neither is accepted nor answered as long as the story lasts.
	defer s.env.Provider().Add(fakeprovider.Rule{Recipient: "customer-unclear", Times: 1,
		Arrived: func() { <-silence }, Do: fakeprovider.Fail(http.StatusServiceUnavailable)})()
	arrived, err := s.onDLQ(ctx, 1)
	if err != nil {
		return row{}, err
	}
	p, key, err := s.remind(ctx, "unclear", 1, ledger.Isolated, 1, nil)
	if err != nil {
		return row{}, err
	}
	s.tell("The provider does not answer. The retry looks the request up: not found, but it may still be on")
	s.tell("its way, and this provider would take a second one for a second reminder.")
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
	s.tell("Isolated as %q: a person decides. Ada asks the provider, which never received it.", e.LastClass)
	if _, err := s.ask(ctx, redrive.Request{Action: "decide", Job: key, Decision: ledger.NotSent,
		By: "ada", Reason: "support says they never got it"}); err != nil {
		return row{}, err
	}
	s.jobs[key] = ledger.Done
	planned, err := s.ask(ctx, redrive.Request{Action: "plan", Select: &redrive.Filter{Keys: []string{key}},
		By: "ada", Reason: "decided: not sent"})
	if err != nil {
		return row{}, err
	}
	if _, err := s.ask(ctx, redrive.Request{Action: "approve", Plan: planned.Plan.ID, By: "grace", Reason: "looked at the decision"}); err != nil {
		return row{}, err
	}
	if _, err := s.run(ctx, redrive.Request{Plan: planned.Plan.ID}, redrive.Done); err != nil {
		return row{}, err
	}
	if err := s.ended(ctx, key); err != nil {
		return row{}, err
	}
	s.tell("Decided \"not sent\" and redriven: sent, with %d acceptance. The decision counts for this one time.",
		len(s.env.Provider().Accepted(p.Recipient)))
	return row{Sent: 1, Became: "ambiguous, decided by hand, sent once"}, nil
}
