package redrive

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// planOpen freezes a selection, a count and a rate instead of messages, for a DLQ that is too big for a list of targets. The plan
// shows the messages that a scan saw. The run joins each message with its entry, and decides, when it receives it.
func (s *Service) planOpen(ctx context.Context, req Request) (Response, error) {
	f := *req.Select
	if err := f.check(); err != nil {
		return Response{}, err
	}
	switch {
	case len(f.Messages) > 0:
		return Response{}, refuse("an open plan selects by conditions, not by messages")
	case req.Count < 1:
		return Response{}, refuse("an open plan needs a count: how many messages its run redrives or removes at most")
	}
	if err := s.checkPace(req); err != nil {
		return Response{}, err
	}
	if err := s.free(ctx, ""); err != nil {
		return Response{}, err
	}
	items, sc, err := s.survey(ctx, f)
	if err != nil {
		return Response{Scan: &sc}, err
	}
	p := s.name(req, Plan{Select: f, Open: true, Count: req.Count, Partial: sc.Partial})
	guards := s.tally(&p, items)
	if p.acting() == 0 && sc.Partial == "" {
		return Response{Scan: &sc, Groups: groups(items)}, refuse("of %d messages none would be redriven or removed: %s", len(items), p.reasons(items))
	}
	guards[fmt.Sprintf("an open plan: up to %d messages that its selection matches", p.Count)] = true
	p.Approval = strings.Join(slices.Sorted(maps.Keys(guards)), "; ")
	if p.Digest, err = digest(p, nil); err != nil {
		return Response{}, err
	}
	return Response{Scan: &sc, Groups: groups(items), Plan: &p}, s.publish(ctx, req, p)
}

// pass is one pass of an open plan's run over the DLQ.
//
// It is complete when it has seen as many messages as SQS counted at its start and a receive brought nothing new, or when for a while it
// received nothing new and the counts showed no message that it has not seen. Counts are approximate: so is "all seen".
type pass struct {
	began time.Time
	// holds is how many messages SQS counted at the start. old is how many the pass has seen that were there
	// then, and left how many of all that it has seen are still there.
	holds, old, left int
	seen             sightings
	// idle counts the receives in a row that brought nothing new; quiet says that the counts had nothing new for
	// a while, either.
	idle  int
	quiet bool
	// taken counts the messages that were redriven or removed, failed those of which nothing was confirmed.
	taken, failed int
	// unsure are the messages whose entries could not be read.
	unsure []unsure
}

// unsure is a message whose entry could not be read.
type unsure struct {
	id, key string
	err     error
}

// A run all of whose calls to the ledger fail is halted; one that cannot read some entries goes over the queue once more, and
// then says that it skipped them.
const (
	maxUnsure    = 1000
	unsurePasses = 2
)

// sightings are the messages that were seen, as hashes of their ids: ids themselves would not fit for a million.
type sightings struct {
	hashes map[uint64]struct{}
	seed   maphash.Seed
}

func newSightings() sightings { return sightings{map[uint64]struct{}{}, maphash.MakeSeed()} }

// first notes an id, and says whether it is seen for the first time.
func (s sightings) first(id string) bool {
	hash := maphash.String(s.seed, id)
	_, known := s.hashes[hash]
	s.hashes[hash] = struct{}{}
	return !known
}

// nextPass begins a pass, after it gave back the messages that the one before held.
func (d *drive) nextPass(ctx context.Context) error {
	d.queue = nil
	d.mine.release(ctx)
	depth, err := d.s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return err
	}
	d.pass = &pass{began: d.s.now(), holds: depth.Total(), seen: newSightings()}
	return nil
}

// over says whether the pass gives nothing more. A count that is reached is not believed while receives bring new messages:
// it may have been too small.
func (p *pass) over(most int) bool {
	return p.old >= p.holds && p.idle > 0 || p.idle >= most || p.quiet
}

// saw notes a message, and says whether the pass sees it for the first time.
func (p *pass) saw(m job.Message) bool {
	if !p.seen.first(m.ID) {
		return false
	}
	p.left++
	if m.SentAt.Before(p.began) {
		p.old++
	}
	return true
}

// room is how many more messages an open plan's run may begin with.
func (d *drive) room() int { return d.plan.Count - d.taken - len(d.begun) }

// exhausted says that the plan's count is reached and nothing that was begun is open.
func (d *drive) exhausted() bool { return d.room() <= 0 && len(d.begun)+len(d.sent) == 0 }

// pick takes up to n messages from the queue: those with which an earlier attempt began, and others while there is room.
func (d *drive) pick(n int) (cohort []lanes.Received) {
	room := d.room()
	var rest []lanes.Received
	for _, m := range d.queue {
		begun := d.begun[m.ID] || d.sent[m.ID]
		if len(cohort) == n || !begun && room <= 0 {
			rest = append(rest, m)
			continue
		}
		if !begun {
			room--
		}
		cohort = append(cohort, m)
	}
	d.queue = rest
	return cohort
}

// meet joins the messages that a pass sees for the first time, and queues those that the plan is about.
func (d *drive) meet(ctx context.Context, received []lanes.Received) error {
	var fresh []lanes.Received
	for _, m := range received {
		if d.pass.saw(m.Message) {
			fresh = append(fresh, m)
		}
	}
	if d.pass.idle++; len(fresh) > 0 {
		d.pass.idle = 0
	}
	targets, whys := make([]*target, len(fresh)), make([]*unsure, len(fresh))
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for i, m := range fresh {
		group.Go(func() error { targets[i], whys[i] = d.admit(ctx, m); return nil })
	}
	_ = group.Wait()
	failed := 0
	for i, m := range fresh {
		switch {
		case targets[i] != nil:
			d.targets[m.ID] = *targets[i]
			d.queue = append(d.queue, m)
		case whys[i] != nil:
			d.pass.unsure = append(d.pass.unsure, *whys[i])
			if !errors.Is(whys[i].err, ledger.ErrUndecodable) {
				failed++
			}
		}
	}
	if n := len(d.pass.unsure); n > maxUnsure || failed == len(fresh) && failed >= batch {
		return fmt.Errorf("%d entries could not be read, the last: %w", n, d.pass.unsure[n-1].err)
	}
	return nil
}

// admit decides whether an open plan covers a message: it matches, was isolated before the plan was made, would be
// redriven or removed, and needs no approval of its own, by its class or otherwise. If an earlier round began with a message, it
// is finished in any case.
func (d *drive) admit(ctx context.Context, m lanes.Received) (*target, *unsure) {
	c := d.s.joined(ctx, m)
	it := itemOf(c, m, d.plan.Select)
	switch begun := d.begun[m.ID] || d.sent[m.ID]; {
	case begun && errors.Is(c.lookErr, ledger.ErrUndecodable):
		t := d.targets[m.ID] // as it was begun
		return &t, nil
	case c.lookErr != nil && begun:
		return nil, nil // it stays open until another pass, or another round
	case c.lookErr != nil:
		return nil, &unsure{m.ID, c.read.Key, c.lookErr}
	case begun:
		it.action = Redrive
		t := it.target()
		return &t, nil
	}
	it.action, _, it.guard = c.decide(false, d.s.rules.MaxRedrives, d.s.now())
	since := m.SentAt
	if c.entry.Status == ledger.Isolated {
		since = c.entry.IsolatedAt
	}
	switch {
	case !d.plan.Select.matches(it, d.s.now()), !it.action.acts(), it.guard != "", !since.Before(d.plan.At):
		return nil, nil
	case c.entry.Run == d.run.ID && c.entry.Status == ledger.Isolated: // this run's own failure
		return nil, nil
	case it.action == Redrive && slices.Contains(d.s.guarded, it.class) && !slices.Contains(d.plan.Select.Classes, it.class):
		return nil, nil
	}
	t := it.target()
	return &t, nil
}

// advance is asked when a pass gives nothing more. It returns true when there is more to do: the search goes on, or
// another pass begins because this one took something. A run that did not see what SQS counts is halted.
func (d *drive) advance(ctx context.Context) (more bool, err error) {
	p := d.pass
	switch {
	case d.exhausted():
		return false, nil
	case p.old < p.holds && !p.quiet:
		return d.quiet(ctx)
	case p.taken > 0:
		return true, d.nextPass(ctx)
	case len(p.unsure) > 0 && d.unsurePasses < unsurePasses:
		d.unsurePasses++
		return true, d.nextPass(ctx)
	}
	return false, nil
}

// quiet looks for longer than SQS's counts may lag. It returns true when the pass goes on: something new was
// received, or the counts showed nothing that the pass has not seen.
func (d *drive) quiet(ctx context.Context) (more bool, err error) {
	began := d.s.now()
	clean, unseen := began, 0
	for {
		depth, err := d.s.queues.Depth(ctx, job.DLQ)
		if err != nil {
			return false, err
		}
		now := d.s.now()
		if n := depth.Total() - d.pass.left; n > 0 {
			clean, unseen = now, n
		}
		if now.Sub(clean) >= d.s.numbers.GoneAfter {
			d.pass.quiet, d.run.Why = true, ""
			return true, nil
		}
		if now.Sub(began) >= 2*d.s.numbers.GoneAfter {
			d.run.Unseen = unseen
			return false, halt(HaltNotSeen, "%d receives brought nothing new, and SQS counts about %d messages that were not seen: others hide them for now, or there are too many to hide; run it again later",
				d.pass.idle, unseen)
		}
		d.run.Why = fmt.Sprintf("waits: SQS counts about %d messages that were not seen yet", unseen)
		if err := d.rest(ctx); err != nil {
			return false, err
		}
		if err := d.receive(ctx, 1); err != nil {
			return false, err
		}
		if d.pass.idle == 0 {
			d.run.Why = ""
			return true, nil
		}
	}
}

// settleOpen ends an open plan's run. The entries tell what became of messages that were begun and not seen again; a last
// sweep over the audit counts the endings.
func (d *drive) settleOpen(ctx context.Context) error {
	var lost []target
	for id, t := range d.targets {
		switch {
		case !d.begun[id] && !d.sent[id]: // received, and beyond the count
		case d.mine.has(id) || d.pass.failed > 0:
			return halt(HaltUnsettled, "of some messages nothing was confirmed, such as %s: run it again", outcome{key: t.Key}.name(id))
		default:
			lost = append(lost, t)
		}
	}
	if err := d.settleLost(ctx, lost); err != nil {
		return err
	}
	var kept []AuditRecord
	for _, u := range d.pass.unsure {
		d.run.Counts[auditKept]++
		kept = append(kept, AuditRecord{Run: d.run.ID, Message: u.id, At: d.s.now().UTC(), What: auditKept, Job: u.key, Action: Unsure, Why: cannotRead + job.SafeText(u.err.Error())})
	}
	if len(kept) > 0 {
		if err := d.s.record(ctx, kept); err != nil {
			return err
		}
	}
	return d.sweep(ctx)
}

// sweepAt is how many jobs a sweep asks the ledger about before it looks at the switch and the clock.
const sweepAt = 1000

// sweep counts the endings of all messages from the audit and the ledger. Only jobs that are still open are kept.
func (d *drive) sweep(ctx context.Context) error {
	endings, names := map[Ending]int{}, map[Ending][]string{}
	tell := func(e Ending, name string) {
		endings[e]++
		if len(names[e]) < maxNames {
			names[e] = append(names[e], name)
		}
	}
	told := newSightings()
	var asking, open []*sentJob
	ask := func() error {
		if err := d.beat(ctx); err != nil {
			return err
		}
		if _, err := d.judge(ctx, asking); err != nil {
			return err
		}
		for _, j := range asking {
			if j.Ending.open() {
				open = append(open, j)
			} else {
				tell(j.Ending, j.Job)
			}
		}
		asking = nil
		return nil
	}
	d.run.Why = "counts the endings"
	var failed error
	err := d.s.lastLines(ctx, d.run.ID, func(line AuditRecord) {
		name := outcome{key: line.Job}.name(line.Message)
		switch {
		case failed != nil || !line.What.settles():
			return
		case !line.sends() || line.Job == "":
			tell(endingOf(line.What), name)
			return
		}
		if !told.first(line.Job) {
			tell(Copied, name)
			return
		}
		asking = append(asking, &sentJob{Watched: Watched{Job: line.Job, Generation: line.Generation}})
		if len(asking) == sweepAt {
			failed = ask()
		}
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		err = ask()
	}
	if err == nil {
		err = d.awaitEndings(ctx, open)
	}
	if err != nil {
		return err
	}
	for _, j := range open {
		tell(j.Ending, j.Job)
	}
	d.run.Endings, d.run.Names, d.run.Total, d.run.Why = endings, names, 0, ""
	for _, n := range endings {
		d.run.Total += n
	}
	return nil
}

// sentBefore reads the audit of a batch's messages without a key: of those, an intent is enough to never send them
// again.
func (d *drive) sentBefore(ctx context.Context, steps []*moved) error {
	if d.pass == nil {
		return nil
	}
	var group errgroup.Group
	for _, st := range steps {
		if st.key != "" || d.sent[st.ID] {
			continue
		}
		group.Go(func() error {
			lines, err := d.s.lines(ctx, d.run.ID, st.ID)
			if err != nil {
				return fmt.Errorf("read the audit of %s: %w", st.ID, err)
			}
			st.tried = len(lines) > 0
			return nil
		})
	}
	return group.Wait()
}
