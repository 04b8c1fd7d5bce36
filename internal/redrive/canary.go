package redrive

import (
	"context"
)

// sealCanary ends the sending of the canary and begins the wait for its outcome.
func (d *drive) sealCanary() error {
	if d.plan.Crashed {
		d.run.Canary = CanaryPeople
		return end(Paused, "the canary of convicted jobs is sent, and the ledger cannot judge it: look at the worker's errors and the DLQ, then run it again")
	}
	d.run.Canary, d.run.CanaryUntil = CanarySent, d.s.now().Add(d.s.numbers.CanaryWait).UTC()
	return nil
}

// watch puts a sent job among those whose outcome is looked at.
func (d *drive) watch(st *moved, canary, first bool) {
	if st.key == "" {
		return // the ledger cannot tell
	}
	samples := 0
	for _, w := range d.run.Watched {
		if w.Job == st.key {
			return
		}
		if !w.Canary {
			samples++
		}
	}
	if canary || first && samples < d.s.numbers.Samples {
		d.run.Watched = append(d.run.Watched, Watched{Job: st.key, Generation: st.entry.Redrives, Canary: canary})
	}
}

// judgeAll asks the ledger about every watched job that has no verdict yet.
func (d *drive) judgeAll(ctx context.Context) error {
	d.judged = d.s.now()
	for i := range d.run.Watched {
		w := &d.run.Watched[i]
		if w.Verdict != "" {
			continue
		}
		e, err := d.s.ledger.Get(ctx, w.Job)
		if err != nil {
			return err
		}
		w.Verdict, w.Why = judge(e, w.Generation)
	}
	return nil
}

// awaitCanary waits until every job of the canary came to its end. One that did not succeed stops the
// run, as does one that does not end in time.
func (d *drive) awaitCanary(ctx context.Context) error {
	for {
		if err := d.judgeAll(ctx); err != nil {
			return err
		}
		open := ""
		for _, w := range d.run.Watched {
			switch {
			case !w.Canary:
			case w.Verdict == Failed:
				return end(Stopped, "the canary failed: %s: %s", w.Job, w.Why)
			case w.Verdict == "":
				open = w.Job
			}
		}
		if open == "" {
			d.run.Canary = CanaryPassed
			return d.save(ctx)
		}
		if past(d.run.CanaryUntil, d.s.now()) {
			return end(Stopped, "the canary did not end within %v: %s", d.s.numbers.CanaryWait, open)
		}
		if err := d.beat(ctx); err != nil {
			return err
		}
		if err := d.sleep(ctx); err != nil {
			return err
		}
	}
}

// judgeEvery is how many polls lie between two looks at the samples.
const judgeEvery = 3

// judgeSamples stops the run when too many jobs do not succeed, or were final already.
func (d *drive) judgeSamples(ctx context.Context) error {
	if d.s.now().Sub(d.judged) >= judgeEvery*d.s.numbers.PollEvery {
		if err := d.judgeAll(ctx); err != nil {
			return err
		}
	}
	judged, bad, why := 0, 0, ""
	for _, w := range d.run.Watched {
		if w.Verdict != "" {
			judged++
		}
		if w.Verdict == Failed {
			bad++
			why = w.Job + ": " + w.Why
		}
	}
	n := d.s.numbers
	if judged >= n.MinSample && bad*100 > n.MaxFailedPercent*judged {
		return end(Stopped, "%d of %d watched jobs did not succeed, more than %d %%: %s", bad, judged, n.MaxFailedPercent, why)
	}
	// Removed by plan is not a surprise; removed beyond it is a job that somebody else ran.
	final := d.run.Counts[auditRemoved] + d.run.Counts[auditFinal] - d.plan.Actions[Remove]
	all := final + d.run.Counts[auditSent] + d.run.Counts[auditUndeleted]
	if final >= n.MinSample && final*100 > n.MaxDuplicatePercent*all {
		return end(Stopped, "%d of %d jobs were final already, more than %d %%: somebody else brings them back", final, all, n.MaxDuplicatePercent)
	}
	return nil
}
