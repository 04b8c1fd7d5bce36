package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// State is where a run stands.
type State string

// The states. A paused or stopped run can be continued; nothing continues the others.
const (
	Planned State = "planned" // no run yet
	Active  State = "active"
	Paused  State = "paused"
	// Stopped by a condition or by the kill switch.
	Stopped State = "stopped"
	Done    State = "done"
	// Aborted: it may not send at all.
	Aborted State = "aborted"
	Revoked State = "revoked"
)

// The states of a canary.
const (
	canarySent   = "sent"
	canaryPassed = "passed"
	canaryPeople = "for people to judge"
)

// Watched is a redriven job whose outcome a run looks at.
type Watched struct {
	Job        string `json:"job"`
	Generation int    `json:"generation"`
	Canary     bool   `json:"canary,omitempty"`
	// Verdict is empty until there is one, then succeeded or failed; Why is what the ledger said.
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Run is what is stored of a run. Every write is conditional on the version that was read, so that of
// two owners one finds out at its next cohort.
type Run struct {
	ID     string `json:"id"`
	Plan   string `json:"plan"`
	State  State  `json:"state"`
	Why    string `json:"why,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Source and Destination are the queues.
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	StartedAt   time.Time `json:"startedAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	// Total is how many messages there are to move or remove; Counts is what became of them.
	Total  int            `json:"total"`
	Counts map[string]int `json:"counts"`
	// Waiting messages were not seen while others hold messages of the DLQ.
	Waiting       int       `json:"waiting,omitempty"`
	RatePerSecond int       `json:"ratePerSecond"`
	Canary        string    `json:"canary,omitempty"`
	CanaryUntil   time.Time `json:"canaryUntil,omitzero"`
	Watched       []Watched `json:"watched,omitempty"`
	// Fence is the number of the lock it was last continued under.
	Fence     int64     `json:"fence"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// RunView is a run as it is answered.
type RunView struct {
	Run
	// OwnerGone says that the run is active and nobody works on it: run it again.
	OwnerGone bool `json:"ownerGone,omitempty"`
}

// gone is the count of messages that were planned and are not on the DLQ any more.
const countGone = "gone"

// ended is how a run's loop ends. It is an error so that every step may end it.
type ended struct {
	state State
	why   string
}

func (e *ended) Error() string { return string(e.state) + ": " + e.why }

func end(state State, format string, args ...any) error {
	return &ended{state, fmt.Sprintf(format, args...)}
}

func (s *Service) run(ctx context.Context, req Request) (Response, error) {
	var response Response
	if req.Message != "" {
		if req.By == "" || req.Reason == "" {
			return Response{}, refuse("run with a message makes a plan, and needs a name (by) and a reason")
		}
		p, _, sc, err := s.makePlan(ctx, req, Filter{Messages: []string{req.Message}})
		if err != nil {
			return Response{Scan: &sc}, err
		}
		req.Plan, response.Plan = p.ID, &p
	}
	if req.Run == "" {
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return Response{}, err
		}
		existing, err := s.Table.Get(ctx, pkRun(p.Run), skRun)
		if err != nil {
			return Response{}, err
		}
		if existing.Version > 0 { // a client that tries again, or another invocation was first
			return s.statusOf(ctx, p.Run, response)
		}
		response.Plan = &p
		switch {
		case past(p.ExpiresAt, s.Now()):
			return response, refuse("the plan expired at %s: make a new one", stamp(p.ExpiresAt))
		case p.Approval != "" && p.ApprovedBy == "":
			return response, refuse("plan %s needs an approval: %s", p.ID, p.Approval)
		}
		if err := s.free(ctx, p.Run); err != nil {
			return response, err
		}
		run := Run{
			ID: p.Run, Plan: p.ID, State: Paused, Why: "not begun", By: cmp.Or(req.By, p.By), Reason: cmp.Or(req.Reason, p.Reason),
			Source: s.Names.DLQ, Destination: s.Names.RecoveryQueue, StartedAt: s.Now().UTC(),
			Total: p.Actions[Redrive] + p.Actions[Remove], Counts: map[string]int{}, RatePerSecond: p.RatePerSecond,
		}
		if err := s.create(ctx, pkRun(run.ID), skRun, run); errors.Is(err, ErrChanged) {
			return s.statusOf(ctx, run.ID, response)
		} else if err != nil {
			return response, err
		}
		req.Run = run.ID
	}
	view, err := s.proceed(ctx, req.Run)
	response.Run = view
	return response, err
}

func (s *Service) readRun(ctx context.Context, id string) (Run, Record, error) {
	if id == "" {
		return Run{}, Record{}, refuse("the run is not named")
	}
	rec, err := s.Table.Get(ctx, pkRun(id), skRun)
	if err != nil {
		return Run{}, rec, err
	}
	if rec.Version == 0 {
		return Run{}, rec, refuse("there is no run %s", id)
	}
	run, err := decode[Run](rec)
	if run.Counts == nil {
		run.Counts = map[string]int{}
	}
	return run, rec, err
}

// lock is the document that one run at a time holds.
type lock struct {
	Run   string    `json:"run"`
	Owner string    `json:"owner"`
	Fence int64     `json:"fence"`
	Until time.Time `json:"until"`
}

func (l lock) live(now time.Time) bool { return l.Owner != "" && now.Before(l.Until) }

func (s *Service) readLock(ctx context.Context) (lock, Record, error) {
	rec, err := s.Table.Get(ctx, pkLock, pkLock)
	if err != nil || rec.Version == 0 {
		return lock{}, rec, err
	}
	l, err := decode[lock](rec)
	return l, rec, err
}

// free refuses while another run is going on.
func (s *Service) free(ctx context.Context, run string) error {
	l, _, err := s.readLock(ctx)
	if err == nil && l.live(s.Now()) && l.Run != run {
		err = refuse("run %s is going on: one run at a time", l.Run)
	}
	return err
}

// proceed takes the lock and works on a run until it ends or pauses. A run that somebody works on is
// only told.
func (s *Service) proceed(ctx context.Context, id string) (*RunView, error) {
	run, rec, err := s.readRun(ctx, id)
	if err != nil {
		return nil, err
	}
	switch run.State {
	case Done, Revoked, Aborted:
		return &RunView{Run: run}, nil
	}
	if err := s.free(ctx, id); err != nil {
		return &RunView{Run: run}, err
	}
	l, lrec, err := s.readLock(ctx)
	if err != nil {
		return nil, err
	}
	if l.live(s.Now()) {
		return &RunView{Run: run}, nil
	}
	// Refused before anything is taken: a run against the switch would only stop at once.
	if sw, err := s.readSwitch(ctx); err != nil {
		return &RunView{Run: run}, refuse("the kill switch cannot be read, which counts as stopped: %v", err)
	} else if sw.On {
		return &RunView{Run: run}, refuse("the kill switch is on (%s: %s): resume first", sw.By, sw.Reason)
	}
	p, _, err := s.readPlan(ctx, run.Plan)
	if err != nil {
		return nil, err
	}
	d := &drive{Service: s, run: run, rec: rec, plan: p, mine: s.hold()}
	d.lock = lock{Run: id, Owner: s.ID(), Fence: l.Fence + 1, Until: s.Now().Add(s.Numbers.LockLease)}
	if d.lrec, err = s.put(ctx, lrec, d.lock); errors.Is(err, ErrChanged) {
		return &RunView{Run: run}, nil // somebody else was first
	} else if err != nil {
		return nil, err
	}
	return d.work(ctx)
}

// drive is one invocation's work on a run.
type drive struct {
	*Service
	run  Run
	rec  Record
	plan Plan
	lock lock
	lrec Record
	mine *held

	limiter *rate.Limiter
	burst   int
	// targets are what is still to be done; sent are those of which only the deletion is.
	targets map[string]target
	sent    map[string]bool
	queue   []lanes.Received
	empty   int
	judged  time.Time
	backlog time.Time
}

func (d *drive) work(ctx context.Context) (*RunView, error) {
	d.run.State, d.run.Why, d.run.Fence, d.run.Waiting = Active, "", d.lock.Fence, 0
	err := d.save(ctx)
	if err == nil {
		err = d.loop(ctx)
	}
	// What was received is given back also when everything else fails.
	d.mine.release(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	var e *ended
	switch {
	case errors.Is(err, errLost):
		run, _, err := d.readRun(ctx, d.run.ID)
		return &RunView{Run: run}, err // neither the run nor the lock is ours any more
	case errors.As(err, &e):
		d.run.State, d.run.Why = e.state, e.why
	case err != nil:
		d.run.State, d.run.Why = Paused, "a call failed: "+job.SafeText(err.Error())
	}
	if d.run.State == Stopped {
		d.Progress.Redriven(0, 0, 1)
		if d.run.Canary == canarySent {
			d.run.Canary = "" // continued, it begins with a new one
		}
	}
	view := &RunView{Run: d.run}
	if e == nil || e.state != Revoked { // which is written already, by who revoked it
		if err := d.save(ctx); err != nil && !errors.Is(err, errLost) {
			return view, err
		}
	}
	d.lock.Owner, d.lock.Until = "", time.Time{}
	if _, err := d.put(ctx, d.lrec, d.lock); err != nil && !errors.Is(err, ErrChanged) {
		return view, fmt.Errorf("release lock: %w", err)
	}
	return view, nil
}

// save writes the run, and tells a revocation and a new owner apart.
func (d *drive) save(ctx context.Context) error {
	d.run.UpdatedAt = d.Now().UTC()
	rec, err := d.put(ctx, d.rec, d.run)
	if errors.Is(err, ErrChanged) {
		if now, _, err := d.readRun(ctx, d.run.ID); err != nil {
			return err
		} else if now.State == Revoked {
			d.run.State, d.run.RevokedBy, d.run.RevokedAt = Revoked, now.RevokedBy, now.RevokedAt
			return end(Revoked, "revoked by %s", now.RevokedBy)
		}
		return errLost
	}
	if err == nil {
		d.rec = rec
	}
	return err
}

// beat comes before every cohort, and while waiting: the kill switch, which fails closed; the run,
// which somebody may have revoked; the lock, which somebody may have taken.
func (d *drive) beat(ctx context.Context) error {
	sw, err := d.readSwitch(ctx)
	switch {
	case err != nil:
		return end(Stopped, "the kill switch cannot be read, which counts as stopped: %v", err)
	case sw.On:
		return end(Stopped, "kill switch, by %s: %s", sw.By, sw.Reason)
	}
	if err := d.save(ctx); err != nil {
		return err
	}
	if now := d.Now(); d.lock.Until.Sub(now) < d.Numbers.LockLease*2/3 {
		d.lock.Until = now.Add(d.Numbers.LockLease)
		rec, err := d.put(ctx, d.lrec, d.lock)
		if errors.Is(err, ErrChanged) {
			return errLost
		} else if err != nil {
			return err
		}
		d.lrec = rec
	}
	return d.inTime(ctx, 0)
}

// inTime pauses the run when less than the margin and what is about to come is left.
func (d *drive) inTime(ctx context.Context, coming time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(d.Now()) < d.Numbers.PauseMargin+coming {
		return end(Paused, "near the function's timeout: run it again to continue")
	}
	return nil
}

func (d *drive) sleep(ctx context.Context) error {
	t := time.NewTimer(d.Numbers.PollEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare reads what there is to do, and from the audit what was done by earlier invocations.
func (d *drive) prepare(ctx context.Context) error {
	list, err := d.Service.targets(ctx, d.plan)
	if err != nil {
		return err
	}
	d.targets, d.sent = make(map[string]target, len(list)), map[string]bool{}
	for _, t := range list {
		if t.Action.acts() {
			d.targets[t.ID] = t
		}
	}
	counts := map[string]int{}
	err = d.lastLines(ctx, d.run.ID, func(line AuditRecord) {
		if line.What != auditIntent {
			counts[line.What]++
		}
		if line.settles() {
			delete(d.targets, line.Message)
		} else if line.What == auditUndeleted {
			d.sent[line.Message] = true
		}
	})
	d.run.Counts = counts
	d.burst = 10
	d.limiter = rate.NewLimiter(rate.Inf, d.burst)
	if r := d.plan.RatePerSecond; r > 0 {
		d.burst = min(10, max(1, r))
		d.limiter = rate.NewLimiter(rate.Limit(r), d.burst)
	}
	return err
}

func (d *drive) loop(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if d.run.Canary == canaryPeople { // somebody looked, and ran it again
		d.run.Canary = canaryPassed
	}
	left := 0 // of the canary
	if d.run.Canary == "" {
		left = d.plan.Canary
		d.run.Watched = nil
	}
	for {
		if d.run.Canary == canarySent {
			if err := d.awaitCanary(ctx); err != nil {
				return err
			}
			left = 0
		}
		n := d.burst
		if d.run.Canary == "" {
			n = min(n, left)
		}
		cohort, err := d.next(ctx, n)
		if err != nil {
			return err
		}
		if len(cohort) == 0 {
			if d.run.Canary == "" && len(d.run.Watched) > 0 {
				if err := d.sealCanary(); err != nil {
					return err
				}
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
		redriven, err := d.move(ctx, cohort, d.run.Canary == "")
		if err != nil {
			return err
		}
		if d.run.Canary == "" {
			if left -= redriven; left <= 0 {
				if err := d.sealCanary(); err != nil {
					return err
				}
			}
		} else if err := d.judgeSamples(ctx); err != nil {
			return err
		}
	}
}

// sealCanary ends the sending of the canary and begins the wait for its outcome.
func (d *drive) sealCanary() error {
	if d.plan.Crashed {
		d.run.Canary = canaryPeople
		return end(Paused, "the canary of convicted jobs is sent, and the ledger cannot judge it: look at the worker's errors and the DLQ, then run it again")
	}
	d.run.Canary, d.run.CanaryUntil = canarySent, d.Now().Add(d.Numbers.CanaryWait).UTC()
	return nil
}

// pace waits for the rate.
func (d *drive) pace(ctx context.Context, n int) error {
	now := time.Now()
	r := d.limiter.ReserveN(now, n)
	wait := r.DelayFrom(now)
	if err := d.inTime(ctx, wait); err != nil {
		r.Cancel()
		return err
	}
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// headroom waits while the lanes have too much work. It asks at most once per poll.
func (d *drive) headroom(ctx context.Context) error {
	if d.Now().Sub(d.backlog) < d.Numbers.PollEvery && !d.backlog.IsZero() {
		return nil
	}
	for {
		work := 0
		for _, q := range []lanes.Queue{lanes.ToSource, lanes.ToRecovery} {
			depth, err := d.Queues.Depth(ctx, q)
			if err != nil {
				return err
			}
			work += depth.Visible + depth.InFlight
		}
		d.backlog = d.Now()
		if work < d.Numbers.BacklogLimit {
			d.run.Why = ""
			return nil
		}
		d.run.Why = fmt.Sprintf("waits: %d messages on the lanes, the limit is %d", work, d.Numbers.BacklogLimit)
		if err := d.beat(ctx); err != nil {
			return err
		}
		if err := d.sleep(ctx); err != nil {
			return err
		}
	}
}

// next returns up to n messages of the plan that are still to be moved, receiving as few as it can.
// It returns none when the plan is worked off or the queue shows nothing any more.
func (d *drive) next(ctx context.Context, n int) ([]lanes.Received, error) {
	for len(d.queue) == 0 && len(d.targets) > 0 && d.empty < d.Numbers.EmptyReceives {
		if err := d.inTime(ctx, 0); err != nil {
			return nil, err
		}
		received, err := d.Queues.Receive(ctx, lanes.ToDLQ, 10, d.visibility(ctx), d.Numbers.ReceiveWait)
		if err != nil {
			return nil, err
		}
		if len(received) == 0 {
			d.empty++
			continue
		}
		d.empty = 0
		for _, m := range received {
			known := d.mine.has(m.ID)
			d.mine.keep(m.Message)
			if _, ours := d.targets[m.ID]; ours && !known {
				d.queue = append(d.queue, m)
			}
		}
		// A long scan for few messages must not lose the lock, nor outrun a stop.
		if d.lock.Until.Sub(d.Now()) < d.Numbers.LockLease*2/3 {
			if err := d.beat(ctx); err != nil {
				return nil, err
			}
		}
	}
	n = min(n, len(d.queue))
	cohort := d.queue[:n:n]
	d.queue = d.queue[n:]
	return cohort, nil
}

// finish ends a run that has nothing left to receive.
func (d *drive) finish(ctx context.Context) error {
	if len(d.targets) == 0 {
		return end(Done, "")
	}
	depth, err := d.Queues.Depth(ctx, lanes.ToDLQ)
	if err != nil {
		return err
	}
	if others := depth.InFlight - len(d.mine.byID); others > 0 {
		d.run.Waiting = len(d.targets)
		return end(Paused, "%d planned messages were not seen, and %d on the DLQ are in flight: run it again when they are visible", len(d.targets), others)
	}
	open := 0
	for id := range d.targets {
		if d.mine.has(id) {
			open++ // seen, and not settled
		}
	}
	d.run.Counts[countGone] = len(d.targets) - open
	if open > 0 {
		return end(Paused, "%d messages are not settled: run it again", open)
	}
	return end(Done, "")
}

// moved is one message of a cohort.
type moved struct {
	lanes.Received
	target target
	key    string
	entry  ledger.Entry
	memory job.Memory
	action Action
	why    string
	what   string
	err    error
}

// move takes one cohort out of the DLQ: audit, reopen, send, delete what was sent, audit. It returns
// how many it sent.
func (d *drive) move(ctx context.Context, cohort []lanes.Received, canary bool) (sent int, err error) {
	steps := make([]*moved, len(cohort))
	intents := make([]AuditRecord, len(cohort))
	for i, m := range cohort {
		steps[i] = &moved{Received: m, target: d.targets[m.ID]}
		intents[i] = d.line(steps[i], auditIntent)
	}
	if err := d.record(ctx, intents); err != nil {
		return 0, err
	}

	var group errgroup.Group
	for _, st := range steps {
		group.Go(func() error { d.open(ctx, st); return nil })
	}
	_ = group.Wait() // what went wrong stands in each step

	var going []*moved
	var moves []lanes.Move
	for _, st := range steps {
		if st.err == nil && st.action == Redrive && !d.sent[st.ID] {
			message := st.Message
			message.Memory = st.memory
			going, moves = append(going, st), append(moves, lanes.Move{Message: message})
		}
	}
	var fatal error
	if len(moves) > 0 {
		for i, err := range d.Queues.Send(ctx, lanes.ToRecovery, moves) {
			if err != nil {
				going[i].what, going[i].err, going[i].why = auditUnsent, err, job.SafeText(err.Error())
				fatal = cmp.Or(fatal, forbidden(err, d.Names.RecoveryQueue))
			}
		}
	}

	var leaving []*moved
	var deletes []job.Message
	for _, st := range steps {
		if st.err == nil && st.action.acts() {
			leaving, deletes = append(leaving, st), append(deletes, st.Message)
		}
	}
	if len(deletes) > 0 {
		for i, err := range d.Queues.Delete(ctx, lanes.ToDLQ, deletes) {
			st := leaving[i]
			switch {
			case st.action == Remove && err == nil:
				st.what = auditRemoved
			case st.action == Remove:
				st.what, st.why = auditFinal, job.SafeText(err.Error())
			case err == nil:
				st.what = auditSent
			default:
				st.what, st.why = auditUndeleted, job.SafeText(err.Error())
			}
		}
	}

	results := make([]AuditRecord, len(steps))
	failures, unsure := 0, error(nil)
	for i, st := range steps {
		if st.what == "" {
			st.what = auditKept
			if st.err != nil {
				st.what = auditUnsure
			}
		}
		results[i] = d.line(st, st.what)
		d.run.Counts[st.what]++
		switch st.what {
		case auditSent, auditUndeleted:
			sent++
			d.mine.drop(st.ID)
			d.sent[st.ID] = true
			if st.what == auditSent {
				delete(d.targets, st.ID)
			}
			d.watch(st, canary, i == 0)
		case auditRemoved:
			d.mine.drop(st.ID)
			delete(d.targets, st.ID)
		case auditKept:
			delete(d.targets, st.ID)
		case auditUnsent, auditUnsure:
			failures++
			unsure = st.err
		}
	}
	d.Progress.Redriven(sent, failures, 0)
	if err := d.record(ctx, results); err != nil {
		return sent, err
	}
	if fatal != nil {
		return sent, end(Aborted, "%v", fatal)
	}
	if failures == len(steps) {
		return sent, end(Paused, "nothing of a cohort was confirmed: %v", unsure)
	}
	return sent, nil
}

func (d *drive) line(st *moved, what string) AuditRecord {
	line := AuditRecord{
		Run: d.run.ID, Message: st.ID, At: d.Now().UTC(), What: what, Job: st.key, Action: st.action, Why: st.why,
		From: d.run.Source, To: d.run.Destination, Bytes: len(st.Body), Status: st.entry.Status, Generation: st.entry.Redrives,
	}
	if what == auditIntent {
		line.Action, line.Generation = st.target.Action, st.target.Generation
	}
	return line
}

// open decides once more, by the entry as it is now, and opens it.
func (d *drive) open(ctx context.Context, st *moved) {
	c := d.readBody(st.Received)
	named := d.plan.Select.named(st.ID)
	override := named && d.plan.ApprovedBy != ""
	st.key = c.read.Key
	st.memory = st.Memory
	if st.memory.MessageID == "" {
		st.memory.MessageID = st.ID
	}
	dl := delivery(st.Message, c, d.lock.Owner)
	st.memory.FirstSent, st.memory.Hops, st.memory.Run = dl.FirstSent(), 0, d.run.ID
	st.memory.Class, st.memory.Cause, st.memory.Error, st.memory.At = "", "", "", time.Time{}
	if st.key == "" {
		st.action, st.why, _ = c.decide(override, d.Rules.MaxRedrives, d.Now())
		st.memory.Redrives = st.target.Generation + 1
		return
	}
	e, err := d.Ledger.Update(ctx, st.key, d.ID(), func(e ledger.Entry) (ledger.Entry, error) {
		c.entry = e
		if d.sent[st.ID] { // only its deletion is missing
			st.action, st.why = Redrive, "sent before"
			return e, ledger.ErrOpened
		}
		ours := e.Run == d.run.ID && e.Status != ledger.Isolated && !e.Status.Final()
		st.action, st.why, _ = c.decide(override, d.Rules.MaxRedrives, d.Now())
		if st.action != Redrive && !ours {
			return e, errKept
		}
		return d.Rules.Redrive(e, dl, ledger.Redriving{Run: d.run.ID, Generation: st.target.Generation, Override: override}, d.Now())
	})
	st.entry = e
	var notYet *ledger.NotYetError
	switch {
	case err == nil, errors.Is(err, ledger.ErrOpened):
		st.action = Redrive
	case errors.Is(err, errKept):
	case errors.Is(err, ledger.ErrFinal):
		st.action = Remove
	case errors.As(err, &notYet):
		st.action, st.why = InProgress, err.Error()
	case errors.Is(err, ledger.ErrDrift):
		st.action, st.why = Drift, err.Error()
	default:
		st.err, st.why = err, job.SafeText(err.Error())
	}
	st.memory.Attempt, st.memory.Redrives = e.Attempts, e.Redrives
}

// Drift: the entry is not as the plan saw it, and not for the run to judge.
const Drift Action = "drift"

var errKept = errors.New("kept")

// forbidden says what is missing when SQS will not take any message at all.
func forbidden(err error, queue string) error {
	var e *lanes.Error
	if !errors.As(err, &e) {
		return nil
	}
	code := strings.ToLower(e.Code)
	switch {
	case strings.Contains(code, "kms"):
		return fmt.Errorf("%s is encrypted with a key that may not be used: allow kms:GenerateDataKey and kms:Decrypt on it (%s)", queue, e.Code)
	case strings.Contains(code, "accessdenied"):
		return fmt.Errorf("not allowed to send: allow sqs:SendMessage on %s (%s)", queue, e.Code)
	case strings.Contains(code, "nonexistentqueue"), strings.Contains(code, "queuedoesnotexist"), code == "invalidaddress":
		return fmt.Errorf("there is no queue %s to send to (%s)", queue, e.Code)
	}
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
	if canary || first && samples < d.Numbers.Samples {
		d.run.Watched = append(d.run.Watched, Watched{Job: st.key, Generation: st.entry.Redrives, Canary: canary})
	}
}

// judgeAll asks the ledger about every watched job that has no verdict yet.
func (d *drive) judgeAll(ctx context.Context) error {
	d.judged = d.Now()
	for i := range d.run.Watched {
		w := &d.run.Watched[i]
		if w.Verdict != "" {
			continue
		}
		e, err := d.Ledger.Get(ctx, w.Job)
		if err != nil {
			return err
		}
		switch v, why := judge(e, w.Generation); v {
		case succeeded:
			w.Verdict, w.Why = "succeeded", why
		case failed:
			w.Verdict, w.Why = "failed", why
		}
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
			case w.Verdict == "failed":
				return end(Stopped, "the canary failed: %s: %s", w.Job, w.Why)
			case w.Verdict == "":
				open = w.Job
			}
		}
		if open == "" {
			d.run.Canary = canaryPassed
			return d.save(ctx)
		}
		if past(d.run.CanaryUntil, d.Now()) {
			return end(Stopped, "the canary did not end within %v: %s", d.Numbers.CanaryWait, open)
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
	if d.Now().Sub(d.judged) >= judgeEvery*d.Numbers.PollEvery {
		if err := d.judgeAll(ctx); err != nil {
			return err
		}
	}
	judged, bad, why := 0, 0, ""
	for _, w := range d.run.Watched {
		if w.Verdict != "" {
			judged++
		}
		if w.Verdict == "failed" {
			bad++
			why = w.Job + ": " + w.Why
		}
	}
	n := d.Numbers
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
