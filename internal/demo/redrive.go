package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
)

// governed is how many jobs the redrive chapter brings back, perSecond how fast.
const (
	governed  = 40
	perSecond = 10
)

// ask makes a request of the redrive function.
func (s *story) ask(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	var resp redrive.Response
	r.Format = redrive.Format
	raw, err := json.Marshal(r)
	if err != nil {
		return resp, err
	}
	out, err := s.env.Invoke(ctx, s.env.Names().RedriveFunction, raw)
	if err != nil {
		return resp, err
	}
	if err := json.Unmarshal(out, &resp); err != nil {
		return resp, err
	}
	if resp.Refused != "" {
		return resp, errors.New("refused: " + resp.Refused)
	}
	return resp, nil
}

// run asks for a run and expects it to end in the given state.
func (s *story) run(ctx context.Context, r redrive.Request, want redrive.State) (redrive.Run, error) {
	r.Action = "run"
	resp, err := s.ask(ctx, r)
	if err != nil {
		return redrive.Run{}, err
	}
	if resp.Run == nil || resp.Run.State != want {
		return redrive.Run{}, fmt.Errorf("the run is %+v, not %s", resp.Run, want)
	}
	return *resp.Run, nil
}

func (s *story) redrive(ctx context.Context) (row, error) {
	began := time.Now()
	before, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return row{}, err
	}
	arrived, err := s.onDLQ(ctx, governed+1)
	if err != nil {
		return row{}, err
	}
	down := func() func() {
		return s.faults.Add(faults.Rule{
			Operation: "TransactWriteItems",
			Match:     func(body []byte) bool { return bytes.Contains(body, []byte(`"outage-`)) },
			Fault:     faults.CancelTransaction("None", "None", "ValidationError"),
		})
	}
	mend := down()
	defer func() { mend() }()
	var keys []string
	for i := range governed {
		_, key, err := s.hold(ctx, fmt.Sprintf("outage-%02d", i+1), 1, 0)
		if err != nil {
			return row{}, err
		}
		keys = append(keys, key)
		s.jobs[key] = ledger.Isolated // until the redrive
	}
	if err := s.send(ctx, `{"kind":"reservation.expire","payload":{"reservationId":`, time.Time{}); err != nil {
		return row{}, err
	}
	s.tell("A dependency of %d jobs is down, so each fails %d times. One more body is cut off in the middle.", governed, s.settings.MaxAttempts)
	s.isolated += governed + 1
	if err := s.ended(ctx, keys...); err != nil {
		return row{}, err
	}
	if err := s.until(ctx, "all are on the DLQ", arrived); err != nil {
		return row{}, err
	}

	mine := &redrive.Filter{YoungerThan: time.Since(began).Round(time.Millisecond).String()}
	seen, err := s.ask(ctx, redrive.Request{Action: "inspect", Select: mine})
	if err != nil {
		return row{}, err
	}
	s.tell("The operator looks, without consuming anything:")
	for _, g := range seen.Groups {
		s.tell("  %3d × %s, cause %s: %s", g.Count, g.Class, g.Cause, strings.SplitN(g.Samples[0].Error, "\n", 2)[0])
	}
	planned, err := s.ask(ctx, redrive.Request{
		Action: "plan", Select: mine, By: "ada", Reason: "the dependency is back", RatePerSecond: perSecond, Canary: 3,
	})
	if err != nil {
		return row{}, err
	}
	p := planned.Plan
	s.tell("Plan %s freezes %d messages: %d to redrive, %d never (malformed). Canary %d, then %d a second.",
		p.ID, p.Selected, p.Actions[redrive.Redrive], p.Actions[redrive.Never], p.Stages[0], p.RatePerSecond)

	s.tell("The run begins, but the fix is wrong ...")
	run, err := s.run(ctx, redrive.Request{Plan: p.ID}, redrive.Halted)
	if err != nil {
		return row{}, err
	}
	s.tell("... and it stops itself after %d of %d: %s.", run.Counts["sent"], run.Total, run.Why)
	failed := run.Counts["sent"]

	mend()
	s.tell("Now the fix is made, and the same run goes on with a fresh canary.")
	for _, key := range keys {
		s.jobs[key] = ledger.Done
	}
	resumed := time.Now()
	if run, err = s.run(ctx, redrive.Request{Run: run.ID}, redrive.Done); err != nil {
		return row{}, err
	}
	took := time.Since(resumed)
	s.tell("The canary passed; the rest followed: %d sent in all, %.1f s at most %d a second.", run.Counts["sent"], took.Seconds(), perSecond)
	if least := time.Duration(governed-failed-3-perSecond) * time.Second / perSecond; took < least {
		return row{}, fmt.Errorf("%d jobs in %v are faster than the rate", governed-failed, took)
	}
	// The jobs of the failed canary came back under new ids, which are not in this plan. They need another
	// plan.
	again := &redrive.Filter{Keys: keys}
	second, err := s.ask(ctx, redrive.Request{Action: "plan", Select: again, By: "ada", Reason: "the canary of " + run.ID})
	if err != nil {
		return row{}, err
	}
	if _, err := s.run(ctx, redrive.Request{Plan: second.Plan.ID}, redrive.Done); err != nil {
		return row{}, err
	}
	s.tell("The %d jobs of the failed canary were isolated again under new ids. They follow in another plan.", failed)
	if err := s.ended(ctx, keys...); err != nil {
		return row{}, err
	}
	s.isolated -= governed
	if err := s.until(ctx, "one is left", func() (bool, error) {
		d, err := s.queues.Depth(ctx, job.DLQ)
		return d.Total() == before.Total()+1, err // the run removes copies
	}); err != nil {
		return row{}, err
	}
	status, err := s.ask(ctx, redrive.Request{Action: "status", Run: run.ID})
	if err != nil {
		return row{}, err
	}
	s.tell("The audit of run %s, by %s because %q:", run.ID, status.Run.By, status.Run.Reason)
	for _, what := range slices.Sorted(maps.Keys(status.Run.Counts)) {
		s.tell("  %3d × %s from %s to %s", status.Run.Counts[what], what, status.Run.Source, status.Run.Destination)
	}
	d, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return row{}, err
	}
	s.tell("The malformed one stays on the DLQ, with %d of the earlier chapters, until it is discarded.", d.Visible+d.InFlight-1)
	return row{Sent: governed + 1, Became: fmt.Sprintf("%d released by two runs, the malformed one isolated", governed)}, nil
}
