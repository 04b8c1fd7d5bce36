package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// seek looks for the messages of the plan that were not received. They are gone only if for a while, which is
// longer than SQS's counts may lag, nothing new was received, and the counts showed nothing that this run has not seen and
// nothing that others hide. It returns true when more was found.
func (d *drive) seek(ctx context.Context) (more bool, err error) {
	if d.pass != nil {
		return d.advance(ctx)
	}
	d.run.Unseen = d.unseen
	if d.run.Unseen == 0 {
		return false, nil
	}
	began := d.s.now()
	clean, others := began, 0
	for {
		depth, err := d.s.queues.Depth(ctx, job.DLQ)
		if err != nil {
			return false, err
		}
		now := d.s.now()
		if n := max(depth.Total()-d.here, depth.InFlight-len(d.mine.byID)); n > 0 {
			clean, others = now, n
		}
		if now.Sub(clean) >= d.s.numbers.GoneAfter {
			break
		}
		if now.Sub(began) >= 2*d.s.numbers.GoneAfter {
			cause := "others hide them for now"
			if d.gaveBack {
				cause = fmt.Sprintf("it has more messages than the %d that a run hides at a time, so they may be among those that this run gave back, or others hide them for now", d.s.numbers.MaxHidden)
			}
			return false, halt(HaltNotSeen, "%d messages of the plan were not seen on the DLQ, where SQS counts %d that this run has not seen or that others hide: %s; run it again later", d.run.Unseen, others, cause)
		}
		d.run.Why = fmt.Sprintf("waits: %d messages of the plan were not seen yet", d.run.Unseen)
		if err := d.rest(ctx); err != nil {
			return false, err
		}
		if err := d.receive(ctx, 1); err != nil {
			return false, err
		}
		if d.run.Unseen = d.unseen; len(d.queue) > 0 || d.unseen == 0 {
			d.run.Unseen, d.run.Why = 0, ""
			return len(d.queue) > 0, nil
		}
	}
	var lost []target
	for id, t := range d.targets {
		if !d.mine.has(id) {
			lost = append(lost, t)
		}
	}
	if again, err := d.resendMended(ctx, lost); again || err != nil {
		return again, err
	}
	if err := d.settleLost(ctx, lost); err != nil {
		return false, err
	}
	d.unseen = 0
	d.run.Unseen, d.run.Why = 0, ""
	d.enqueueWaiting() // the message that a copy waits for may be gone
	return len(d.queue) > 0, nil
}

// resendMended takes a mended message from the audit if it is on no queue, and this run opened its job and may not have
// sent it: nobody else has its body. If it was sent after all, the second copy does no harm.
func (d *drive) resendMended(ctx context.Context, lost []target) (again bool, err error) {
	if !d.mended() || len(lost) != 1 || !d.begun[lost[0].ID] || d.sent[lost[0].ID] {
		return false, nil
	}
	e, err := d.s.ledger.Get(ctx, lost[0].Key)
	if errors.Is(err, ledger.ErrUndecodable) || err == nil && (e.Run != d.run.ID || e.Status != ledger.Pending) {
		return false, nil
	}
	if err == nil {
		d.queue, d.unseen = []lanes.Received{d.body.message(lost[0].ID)}, 0
	}
	return err == nil, err
}

// settleLost settles messages that are not on the DLQ any more: this run took them, or somebody else did.
func (d *drive) settleLost(ctx context.Context, lost []target) error {
	var lines []AuditRecord
	for _, t := range lost {
		line := AuditRecord{Run: d.run.ID, Message: t.ID, At: d.s.now().UTC(), What: auditGone, Job: t.Key, Action: t.Action}
		took, generation, err := d.took(ctx, t)
		if err != nil {
			return err
		}
		if took {
			line.What, line.Generation, line.Why = auditSent, generation, "sent, and not confirmed"
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil
	}
	if err := d.s.record(ctx, lines); err != nil {
		return err
	}
	for _, line := range lines {
		d.settle(line.Message, outcome{step: line.What, key: line.Job})
		d.run.Counts[line.What]++
		if d.pass == nil && line.sends() && line.Job != "" && d.jobs[line.Job] == nil {
			d.jobs[line.Job] = &sentJob{Watched: Watched{Job: line.Job, Generation: line.Generation}}
		}
	}
	return nil
}

// took says whether it was this run that took an unseen message from the DLQ, in a step that was not confirmed, and
// the generation that it made of the job. An open plan has no generation to compare the entry
// with: an entry that has the run's id was opened by it.
func (d *drive) took(ctx context.Context, t target) (took bool, generation int, err error) {
	begun := d.begun[t.ID]
	if d.sent[t.ID] || begun && t.Key == "" {
		return true, t.Generation + 1, nil
	}
	if !begun {
		return false, 0, nil
	}
	e, err := d.s.ledger.Get(ctx, t.Key)
	if errors.Is(err, ledger.ErrUndecodable) { // so the step that was begun is all there is
		return true, t.Generation + 1, nil
	}
	return e.Run == d.run.ID && (d.pass != nil || e.Redrives > t.Generation), e.Redrives, err
}

// finish ends a run that has nothing left to receive, when every message has its ending.
func (d *drive) finish(ctx context.Context) error {
	if d.pass != nil {
		if err := d.settleOpen(ctx); err != nil {
			return err
		}
		return &ended{state: Done}
	}
	if n := len(d.targets); n > 0 {
		name := ""
		for id, t := range d.targets {
			name = max(name, outcome{key: t.Key}.name(id)) // any, but always the same
		}
		return halt(HaltUnsettled, "of %d messages nothing was confirmed, such as %s: run it again", n, name)
	}
	all := make([]*sentJob, 0, len(d.jobs))
	for _, j := range d.jobs {
		all = append(all, j)
	}
	if err := d.awaitEndings(ctx, all); err != nil {
		return err
	}
	return &ended{state: Done}
}

// name is what a person knows a message by.
func (o outcome) name(id string) string { return cmp.Or(o.key, id) }

// awaitEndings waits until every job of a list came to its end. Jobs that the worker still retries after a
// while end as that; jobs that have not run, or are still throttled, halt the run.
func (d *drive) awaitEndings(ctx context.Context, all []*sentJob) error {
	until := d.s.now().Add(d.s.numbers.CanaryWait)
	for {
		if _, err := d.judge(ctx, all); err != nil {
			return err
		}
		if err := d.judgeShare(); err != nil {
			return err
		}
		open, idle, throttled, name := 0, 0, 0, ""
		for _, j := range all {
			if j.Ending.open() {
				open++
			}
			switch {
			case j.Ending != "":
			case j.throttled:
				if throttled++; idle == 0 {
					name = j.Job
				}
			default:
				idle++
				name = j.Job
			}
		}
		switch {
		case open == 0:
			return nil
		case !past(until, d.s.now()):
		case idle > 0:
			return halt(HaltNotRun, "%d jobs were sent and have not run within %v, such as %s: is the recovery lane paused, or were they convicted again (class crashed on the DLQ)? Run it again to see what became of them", idle, d.s.numbers.CanaryWait, name)
		case throttled > 0:
			return halt(HaltThrottled, "%d jobs are still throttled after %v, such as %s: what they call lets too few through. Run it again to see what became of them", throttled, d.s.numbers.CanaryWait, name)
		default:
			return nil
		}
		d.run.Why = fmt.Sprintf("waits for the ends of %d jobs", open)
		if err := d.rest(ctx); err != nil {
			return err
		}
		if err := d.pause(ctx, (judgeEvery-1)*d.s.numbers.PollEvery); err != nil {
			return err
		}
	}
}

// count counts what became of every message, as far as it is known.
func (d *drive) count() {
	if d.pass != nil { // a sweep over the audit tells at the end
		return
	}
	d.run.Endings, d.run.Names = map[Ending]int{}, map[Ending][]string{}
	told := map[string]bool{}
	for _, id := range d.order {
		o := d.settled[id]
		var ending Ending
		switch o.step {
		case auditSent:
			if o.key == "" {
				ending = endingOf(o.step)
			} else if told[o.key] { // in a round that was interrupted, another message of the job was sent
				ending = Copied
			} else if j := d.jobs[o.key]; j != nil {
				ending = j.Ending
			}
		default:
			ending = endingOf(o.step)
		}
		told[o.key] = told[o.key] || o.step == auditSent
		if ending == "" {
			continue
		}
		d.run.Endings[ending]++
		if len(d.run.Names[ending]) < maxNames {
			d.run.Names[ending] = append(d.run.Names[ending], o.name(id))
		}
	}
}
