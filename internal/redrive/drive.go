package redrive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/retry"
)

// drive is one invocation's work on a run.
type drive struct {
	s    *Service
	run  Run
	rec  Record
	plan Plan
	lock lock
	lrec Record
	mine *held

	limiter *rate.Limiter
	// body is what is sent in place of a message's own; nil for every plan but one of a mended or a discarded
	// message.
	body *archived
	// cohort is how many messages at most are sent between two looks at the switch.
	cohort int
	// targets are the messages that are still to be settled. sent are those of them of which only the
	// deletion is missing. settled is what was done with all others.
	targets map[string]target
	sent    map[string]bool
	// begun are those of which a step was begun, and perhaps done.
	begun   map[string]bool
	settled map[string]outcome
	order   []string
	// unseen is how many targets this round has not received.
	unseen int
	// jobs are all that this run sent, by key. window are those of this continuation, in order.
	jobs   map[string]*sentJob
	window []*sentJob
	// before are the run's counts when this round began. Messages found before are no reason to halt again.
	before map[Step]int

	// pass is that of an open plan over the DLQ, whose targets are found as it goes; nil for every other plan. taken
	// is how many messages its run redrove or removed, in all rounds; surprises how many jobs this round found final that
	// somebody else ended after the plan was made.
	pass             *pass
	taken, surprises int
	// unsurePasses counts the passes that were made because of entries that could not be read.
	unsurePasses int

	queue []lanes.Received
	// acting are the messages that a plan sends of its jobs, by their keys. waiting are copies of them that were received: they
	// are not queued before that message is sent, or settled otherwise.
	acting  map[string]string
	waiting []lanes.Received
	// empty counts the receives in a row that brought nothing, idle those that brought nothing new. met are the messages
	// that a plan's run has received in this round; an open plan's pass has its own. here is how many of them are still on the
	// DLQ, as far as this run knows. gaveBack says that there were more than may be hidden.
	empty, idle int
	met         sightings
	here        int
	gaveBack    bool

	judgedAt  time.Time
	backlogAt time.Time
}

// mended says that the run sends a message of the DLQ with another body, resends that it sends one that a discard
// took from there.
func (d *drive) mended() bool  { return d.plan.Replacement != nil && d.plan.Replacement.Discard == "" }
func (d *drive) resends() bool { return d.plan.Replacement != nil && d.plan.Replacement.Discard != "" }

// outcome is what was done with one message.
type outcome struct {
	step Step
	key  string
	why  string
}

// sentJob is one job that this run sent.
type sentJob struct {
	Watched
	digest string
	// throttled says that it ran, and is to run again because it was throttled.
	throttled bool
}

// work drives a run until it ends or is halted, and leaves everything in order.
func (d *drive) work(ctx context.Context) (*Run, error) {
	d.begin()
	err := d.save(ctx)
	if err == nil {
		err = d.loop(ctx)
	}
	// Received messages are given back also when everything else fails.
	d.mine.release(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	var e *ended
	switch {
	case errors.Is(err, errLost):
		run, _, err := d.s.readRun(ctx, d.run.ID)
		return &run, err // neither the run nor the lock is ours any more
	case errors.As(err, &e):
	default:
		errors.As(halt(HaltCall, "a call failed: %v", err), &e)
	}
	if e.state != Revoked { // the revocation wrote that already
		d.conclude(e)
		err := d.save(ctx)
		revoked := errors.As(err, &e) // during the last cohort
		if err != nil && !revoked && !errors.Is(err, errLost) {
			return &d.run, err
		}
	}
	if d.run.State == Revoked {
		if err := d.s.giveBack(ctx, &d.run); err != nil {
			return &d.run, err
		}
	}
	d.lock.Owner, d.lock.Until = "", time.Time{}
	if _, err := d.s.put(ctx, d.lrec, d.lock); err != nil && !errors.Is(err, ErrChanged) {
		return &d.run, fmt.Errorf("release lock: %w", err)
	}
	return &d.run, nil
}

// begin starts a round. A stage that is out is waited for, and after one that people judged the next one goes; every other
// continuation starts with a fresh first stage and an empty window.
func (d *drive) begin() {
	switch d.run.Canary {
	case CanarySent:
	case CanaryPeople:
		d.run.Watched = []Watched{}
		d.nextStage()
	default:
		d.run.Canary, d.run.Watched, d.run.Stage, d.run.Keyless = "", []Watched{}, 0, 0
	}
	d.run.State, d.run.Code, d.run.Why, d.run.Unseen = Active, "", "", 0
	d.run.Rounds++
}

// conclude writes into the run how its round ended.
func (d *drive) conclude(e *ended) {
	d.run.State, d.run.Code, d.run.Why = e.state, e.code, job.SafeText(e.why)
	if e.state != Halted {
		return
	}
	failed := []Watched{}
	for _, w := range d.run.Watched {
		if w.Ending.failed() && len(failed) < maxNames {
			failed = append(failed, w)
		}
	}
	d.run.Halts = append(d.run.Halts, Halt{At: d.s.now().UTC(), Code: e.code, Why: d.run.Why, Failed: failed})
	d.run.Halts = d.run.Halts[max(0, len(d.run.Halts)-maxHalts):]
	switch e.code {
	case HaltTime, HaltPeople: // its canary is waited for, or judged, by the next round
	default:
		d.run.Canary = ""
	}
	if e.code != HaltTime {
		d.s.progress.Redriven(0, 0, 1)
	}
}

// save writes the run, and tells a revocation and a new owner apart.
func (d *drive) save(ctx context.Context) error {
	d.run.UpdatedAt = d.s.now().UTC()
	rec, err := d.s.put(ctx, d.rec, d.run)
	if errors.Is(err, ErrChanged) {
		now, rec, err := d.s.readRun(ctx, d.run.ID)
		switch {
		case err != nil:
			return err
		case now.State == Revoked:
			d.run = now
			return &ended{state: Revoked, why: now.Why}
		case now.State == Halted && now.Code == HaltStopped && now.Rounds == d.run.Rounds:
			d.rec = rec
			return halt(HaltStopped, "%s", now.Why)
		}
		return errLost
	}
	if err == nil {
		d.rec = rec
	}
	return err
}

// beat comes before every cohort, and while waiting: it reads the kill switch, which counts as on when it
// cannot be read, notices a revocation and another owner, and keeps what is held.
func (d *drive) beat(ctx context.Context) error {
	var sw Switch
	var unread, lost error
	var both sync.WaitGroup
	both.Go(func() { sw, unread = d.s.readSwitch(ctx) })
	both.Go(func() { lost = d.save(ctx) })
	both.Wait()
	switch {
	case lost != nil:
		return lost
	case unread != nil:
		return halt(HaltSwitch, "the kill switch cannot be read, which counts as on: %v", unread)
	case sw.On:
		return halt(HaltSwitch, "the kill switch is on, by %s: %s", sw.By, sw.Reason)
	}
	if now := d.s.now(); d.lock.Until.Sub(now) < d.s.numbers.LockLease*2/3 {
		d.lock.Until = now.Add(d.s.numbers.LockLease)
		rec, err := d.s.put(ctx, d.lrec, d.lock)
		if errors.Is(err, ErrChanged) {
			return errLost
		} else if err != nil {
			return err
		}
		d.lrec = rec
	}
	d.mine.renew(ctx)
	return d.inTime(ctx, 0)
}

// inTime halts the run when less than the margin and what is about to come is left.
func (d *drive) inTime(ctx context.Context, coming time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(d.s.now()) < d.s.numbers.PauseMargin+coming {
		return halt(HaltTime, "the function's timeout is near: run it again to continue")
	}
	return nil
}

// rest is a beat and a pause, while waiting.
func (d *drive) rest(ctx context.Context) error {
	if err := d.beat(ctx); err != nil {
		return err
	}
	return retry.Sleep(ctx, d.s.numbers.PollEvery)
}

// prepare reads what there is to do, and from the audit what earlier rounds have done.
func (d *drive) prepare(ctx context.Context) error {
	list, err := d.s.targets(ctx, d.plan)
	if err != nil {
		return err
	}
	d.targets, d.sent = make(map[string]target, len(list)), map[string]bool{}
	d.begun, d.met = map[string]bool{}, newSightings()
	d.settled, d.jobs = map[string]outcome{}, map[string]*sentJob{}
	d.acting = map[string]string{}
	for _, t := range list {
		if t.Action.acts() {
			d.targets[t.ID] = t
		}
		if t.Action == Redrive && t.Key != "" {
			d.acting[t.Key] = t.ID
		}
	}
	if d.plan.Replacement != nil {
		m, err := d.s.bodyOf(ctx, d.plan)
		if err != nil {
			return err
		}
		d.body = &m
	}
	d.run.Counts = map[Step]int{}
	err = d.s.lastLines(ctx, d.run.ID, func(line AuditRecord) {
		if line.What != auditIntent {
			d.run.Counts[line.What]++
		}
		if line.What.takes() {
			d.taken++
		}
		if d.plan.Open && !line.What.settles() { // to be finished, whatever its entry says by now
			t := target{ID: line.Message, Generation: line.Generation, Action: Redrive, Key: line.Job}
			if line.sends() {
				t.Generation-- // the line has the generation after the reopening
			}
			d.targets[line.Message] = t
		}
		d.settle(line.Message, outcome{line.What, line.Job, line.Why})
		if line.sends() && line.Job != "" && !d.plan.Open {
			d.jobs[line.Job] = &sentJob{Watched: Watched{Job: line.Job, Generation: line.Generation}, digest: line.Digest}
		}
	})
	d.before = maps.Clone(d.run.Counts)
	for _, w := range d.run.Watched { // of a canary that is out
		j := d.jobs[w.Job]
		if d.plan.Open {
			j = &sentJob{Watched: Watched{Job: w.Job, Generation: w.Generation}}
			d.jobs[w.Job] = j
		}
		if j != nil {
			j.Canary = w.Canary
			d.window = append(d.window, j)
		}
	}
	d.unseen = len(d.targets)
	if d.unseen > 0 && d.resends() { // it is on no queue
		d.queue, d.unseen = []lanes.Received{d.body.message(d.plan.Replacement.Message)}, 0
	}
	d.limiter, d.cohort = rate.NewLimiter(rate.Inf, d.s.numbers.MaxRate), d.s.numbers.MaxRate/2
	if d.plan.RatePerSecond > 0 {
		d.setRate(d.plan.RatePerSecond)
	}
	switch {
	case err != nil:
		return err
	case !d.plan.Open && len(d.targets) > 0 && past(d.plan.ExpiresAt, d.s.now()):
		return halt(HaltExpired, "the plan expired at %s, with %d messages left: make a new plan for them", stamp(d.plan.ExpiresAt), len(d.targets))
	case !d.plan.Open:
		return nil
	}
	if err := d.nextPass(ctx); err != nil {
		return err
	}
	if past(d.plan.ExpiresAt, d.s.now()) && !d.exhausted() {
		if err := d.sweep(ctx); err != nil { // the endings of messages that were sent are still told
			return err
		}
		return halt(HaltExpired, "the plan expired at %s: make a new plan for what is left", stamp(d.plan.ExpiresAt))
	}
	return nil
}

// settle notes what was done with a message.
func (d *drive) settle(id string, o outcome) {
	switch {
	case o.step.settles():
		delete(d.targets, id)
		delete(d.sent, id)
		delete(d.begun, id)
		if d.pass == nil { // an open plan's are too many to keep
			d.settled[id] = o
			d.order = append(d.order, id)
		}
	case o.step == auditUndeleted:
		d.sent[id] = true
	default:
		d.begun[id] = true
	}
}

func (d *drive) loop(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	stage, sent := 0, 0 // of the stage that goes out
	for {
		if d.run.Canary == CanarySent {
			if err := d.awaitCanary(ctx); err != nil {
				return err
			}
			sent = 0
		}
		testing := d.run.Canary == ""
		n := d.cohort
		if testing {
			stage = d.plan.Stages[d.run.Stage]
			n = min(n, stage-sent)
		}
		cohort, err := d.next(ctx, n)
		if err != nil {
			return err
		}
		if len(cohort) == 0 {
			if testing && sent > 0 {
				d.seal()
				continue
			}
			if more, err := d.seek(ctx); err != nil {
				return err
			} else if more {
				continue
			}
			return d.finish(ctx)
		}
		if err := d.headroom(ctx); err != nil {
			return err
		}
		if err := d.pace(ctx, len(cohort)); err != nil {
			return err
		}
		if err := d.beat(ctx); err != nil {
			return err
		}
		redriven, err := d.move(ctx, cohort)
		if err != nil {
			return err
		}
		if testing {
			if sent += redriven; sent >= stage {
				d.seal()
			}
			continue
		}
		if err := d.judgeWindow(ctx); err != nil {
			return err
		}
	}
}
