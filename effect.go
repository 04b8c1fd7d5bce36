package acklast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"acklast/internal/effect"
	"acklast/internal/job"
)

// Abilities say what a provider can do. The zero Abilities are the safe ones: a lost answer makes the job
// ambiguous, and a person decides. Leave a field false unless you are sure: a missing ability makes more jobs
// ambiguous, a wrong one may have the effect twice.
type Abilities struct {
	// Deduplicates: of several requests under one key the provider takes the first, and answers the others with
	// the first one's result, also if that is a refusal for good.
	Deduplicates bool
	// LooksUp: the provider can tell by the key whether it accepted a request.
	LooksUp bool
	// KeyWindow is how long the provider remembers a key after a request. Required with either ability.
	KeyWindow time.Duration
	// SettleTime is the longest time from the end of a call, as its caller saw it, until the provider has accepted
	// its request and a Lookup finds it, if it ever does. It covers what is on its way in networks, proxies and the
	// provider's own queue. Before it is over, ErrNoRequest proves nothing: an effect that is not wanted any more
	// waits, and is looked up again. Afterwards the job goes on as if the earlier calls had not been made, and may send
	// again. Zero: not known, and then ErrNoRequest never proves anything. Only for a provider that LooksUp.
	SettleTime time.Duration
}

// Outcomes of an effect's job, beside the kind's own.
const (
	// Sent: the provider accepted the request.
	Sent = effect.Sent
	// TooLate: the time of the Definition's ExpiresAt passed before anything was sent.
	TooLate = effect.TooLate
)

// Effect is an effect outside DynamoDB, such as an e-mail that a provider sends. Send and Timeout are
// required. The functions may be called concurrently.
type Effect[P any] struct {
	// Plan says right before the call whether the effect is still wanted. It returns "" to send, or the outcome
	// with which the job ends without a call, such as "cancelled". It only reads. A nil Plan always sends. The
	// Definition's ExpiresAt needs no Plan.
	Plan func(ctx context.Context, payload P) (drop string, err error)
	// Send makes exactly one request under the idempotency key, which is the same for every request of one job.
	// Turn the client's own retries off. Once the provider has accepted the request, Send returns the
	// provider's id of it, or "" if there is none. Its error is one of
	//
	//	Unsent(err)        the request was certainly not accepted
	//	Declined(outcome)  the provider said no for good; the job ends with the outcome
	//	any other error    the request may have been accepted or not
	//
	// The class of the error, inside Unsent too, is that of Transient, Throttled or Rejected.
	Send func(ctx context.Context, key string, payload P) (requestID string, err error)
	// Lookup asks the provider for the request under the key. If the request was accepted, it returns the
	// provider's id of it, or the key itself if the provider has no id. Its error is ErrNoRequest when the
	// provider says that it received no such request, and Declined when it said no for good. Every other answer
	// proves nothing, nor does an empty id. Required if the provider LooksUp.
	Lookup func(ctx context.Context, key string, payload P) (requestID string, err error)
	// Abilities say what the provider can do.
	Abilities Abilities
	// Timeout is the longest time of one Send or Lookup. It has to fit into an attempt.
	Timeout time.Duration
}

// ErrNoRequest is the error of a Lookup: the provider says that it has received no request under the key by now. Do
// not return it for an answer that may come from something else, such as a proxy's 404.
var ErrNoRequest = effect.ErrNoRequest

// Unsent returns the error of a request that was certainly not accepted: nothing was written, or the provider
// itself refused it. A time-out, a closed connection or a proxy's answer does not prove that.
func Unsent(err error) error {
	return &effect.UnsentError{Err: stated(err)}
}

// Declined returns the error of a request that the provider refused for good, such as because of its recipient.
// This is an answer and not a failure: the job ends with the outcome.
func Declined(outcome string) error {
	return &effect.DeclinedError{Outcome: cmp.Or(outcome, "declined")}
}

// NewEffect returns the runner of an effect. It claims the job and stores the key before the call, and finds
// out about an earlier call of unknown outcome before it makes another one. Return it from the constructor that
// Define takes. The error says what is missing.
func NewEffect[P any](s Services, e Effect[P]) (Runner[P], error) {
	switch {
	case e.Send == nil:
		return nil, errors.New("an effect needs Send")
	case e.Abilities.LooksUp && e.Lookup == nil:
		return nil, errors.New("an effect whose provider looks up needs Lookup")
	case s.late == ExpireLate:
		// The worker would expire a job even if an earlier call has an unknown outcome.
		return nil, errors.New("an effect's kind cannot have Late: ExpireLate; give its Definition ExpiresAt")
	}
	left := s.core.attemptLeft
	if own := s.core.rules.For(s.attempts).Retry.AttemptTime; own > 0 {
		left = min(left, own)
	}
	runner, err := effect.New(effect.Options{
		Stack: s.Stack, Ledger: s.core.store, Rules: s.core.rules, Abilities: effect.Abilities(e.Abilities),
		Timeout: e.Timeout, AttemptLeft: left, LeaseSkew: s.core.leaseSkew,
		Now: s.Now, Random: rand.Float64,
	})
	if err != nil {
		return nil, err
	}
	return RunnerFunc[P](func(ctx context.Context, j *Job[P]) error {
		call := effect.Call{ExpiresAt: j.ExpiresAt}
		if e.Plan != nil {
			call.Plan = func(ctx context.Context) (string, error) { return e.Plan(ctx, j.Payload) }
		}
		call.Send = func(ctx context.Context, key string) (string, error) { return e.Send(ctx, key, j.Payload) }
		call.Lookup = func(ctx context.Context, key string) (string, error) { return e.Lookup(ctx, key, j.Payload) }
		return j.attempt.end(runner.Run(ctx, j.attempt.delivery, call))
	}), nil
}

// end records the result of an effect's run. The result stays, whatever the runner returns.
func (a *attempt) end(res job.Result) error {
	a.ended = &res
	if res.Err == nil && res.Verdict != job.Committed && res.Verdict != job.Duplicate {
		return fmt.Errorf("the attempt ended with verdict %d", res.Verdict)
	}
	return res.Err
}

// HTTPClient makes requests, as *http.Client and the clients of SDKs do.
type HTTPClient interface {
	Do(req *http.Request) (*http.Response, error)
}

// OneRequest makes one HTTP request for a Send or a Lookup, exactly once: it follows no redirect, and it keeps
// net/http from repeating the request. Its error is Unsent when nothing was written, because the name, the
// connection or the TLS handshake failed. With every other error the outcome is unknown. The caller interprets
// the answer: trust only the service's own answers, since a proxy answers too.
func OneRequest(client HTTPClient, req *http.Request) (*http.Response, error) {
	return effect.OneRequest(client, req)
}
