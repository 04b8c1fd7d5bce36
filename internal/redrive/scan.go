package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
)

// item is what a scan keeps of one message: no body, so that a big queue fits.
type item struct {
	id, key, subject, kind string
	class                  job.Class
	cause                  job.Cause
	error, digest          string
	fingerprint            string
	sentAt, isolatedAt     time.Time
	firstSent              time.Time
	generation             int
	size                   int

	// copied says that the message is a copy, and not the one that was isolated.
	copied bool
	// fits says that the message has the attributes and the payload that were selected.
	fits       bool
	action     Action
	why, guard string
}

// Scan says what a scan saw.
type Scan struct {
	// Seen is how many different messages were seen, Holds how many the queue said it has.
	Seen  int `json:"seen"`
	Holds int `json:"holds"`
	// Partial says why not all was seen; empty when all was.
	Partial string `json:"partial,omitempty"`
	// Waiting messages are in flight: somebody received them, so that they are hidden from everybody.
	Waiting int `json:"waiting,omitempty"`
}

func (it item) target() target {
	return target{ID: it.id, Generation: it.generation, Action: it.action, Key: it.key, Class: it.class}
}

// says how much was seen, in words.
func (sc Scan) says() string {
	text := fmt.Sprintf("%d of about %d messages seen", sc.Seen, sc.Holds)
	if sc.Partial != "" {
		text += " (" + sc.Partial + ")"
	}
	return text
}

// maxLost is how many receives of one scan may fail.
const maxLost = 3

// releaseLimit is how long a release may take after its caller's time is over.
const releaseLimit = 20 * time.Second

// held are messages that were received and not moved. They stay hidden for a short time that is renewed,
// so that they come back soon when this process dies.
type held struct {
	queues Queues
	hide   time.Duration
	now    func() time.Time
	byID   map[string]handle
	log    func(error)
}

type handle struct {
	receipt string
	until   time.Time
}

func (h *held) keep(m job.Message) {
	h.byID[m.ID] = handle{m.ReceiptHandle, h.now().Add(h.hide)}
}
func (h *held) has(id string) bool { _, ok := h.byID[id]; return ok }
func (h *held) drop(id string)     { delete(h.byID, id) }

// renew keeps messages hidden that would soon be visible. If a call fails, its messages may be received a second time, which
// does no harm.
func (h *held) renew(ctx context.Context) {
	now := h.now()
	var soon []job.Message
	for id, m := range h.byID {
		if m.until.Sub(now) < h.hide/2 {
			soon = append(soon, job.Message{ID: id, ReceiptHandle: m.receipt})
			h.byID[id] = handle{m.receipt, now.Add(h.hide)}
		}
	}
	h.each(soon, func(list []job.Message) error { return h.queues.Hide(ctx, job.DLQ, list, h.hide) })
}

// release gives everything back, also when the caller's time is over. If a call fails, its messages become visible by themselves.
func (h *held) release(ctx context.Context) {
	h.releaseBut(ctx, func(string) bool { return false })
}

// releaseBut gives back everything but what is kept.
func (h *held) releaseBut(ctx context.Context, kept func(id string) bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	all := make([]job.Message, 0, len(h.byID))
	for id, m := range h.byID {
		if !kept(id) {
			all = append(all, job.Message{ID: id, ReceiptHandle: m.receipt})
			delete(h.byID, id)
		}
	}
	h.each(all, func(list []job.Message) error { return h.queues.Release(ctx, job.DLQ, list) })
}

// each makes calls for ten messages each, side by side. The same messages are always in the same calls, so that a
// simulation can be repeated.
func (h *held) each(all []job.Message, call func([]job.Message) error) {
	slices.SortFunc(all, func(a, b job.Message) int { return cmp.Compare(a.ID, b.ID) })
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for list := range slices.Chunk(all, batch) {
		group.Go(func() error {
			if err := call(list); err != nil {
				h.log(err)
			}
			return nil
		})
	}
	_ = group.Wait()
}

func (s *Service) hold() *held {
	return &held{queues: s.queues, hide: s.numbers.Hide, now: s.now, byID: map[string]handle{}, log: func(err error) {
		s.log.Warn("visibility not changed; the messages are visible again by themselves", telemetry.KeyError, job.SafeText(err.Error()))
	}}
}

// A bounded scan keeps something of each message, so it stops at a number of them. A whole scan goes over the whole DLQ, however
// many messages it has.
const (
	bounded = true
	whole   = false
)

// scan receives every message of the DLQ once, gives what each round of receives brought to see, and makes all of them
// visible again. It stops early when see returns false.
func (s *Service) scan(ctx context.Context, bound bool, see func([]lanes.Received) (more bool, err error)) (Scan, error) {
	mine := s.hold()
	defer mine.release(ctx)
	return s.scanInto(ctx, mine, bound, see)
}

// scanInto is scan for a caller that releases what it holds itself. If the DLQ has more messages than may be hidden at a time, a
// whole scan gives back what it saw before it goes on; hashes of the ids tell what it has not seen.
func (s *Service) scanInto(ctx context.Context, mine *held, bound bool, see func([]lanes.Received) (more bool, err error)) (Scan, error) {
	var sc Scan
	before, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return sc, err
	}
	sc.Holds = before.Total()
	met, gaveBack := newSightings(), false
	bytes, empty, known, lost := 0, 0, 0, 0
	end := s.now().Add(s.numbers.ScanTime)
	// A queue that SQS counts as empty is taken for that at the first empty answer.
	enough := s.numbers.EmptyReceives
	if sc.Holds == 0 {
		enough = 1
	}
	// Messages that were given back are received again, so no answer is empty. The scan ends when it has received as many known
	// messages in a row as may be hidden, or when it has seen as many as SQS counted and a receive brought nothing new.
	over := func() bool {
		return empty >= enough || gaveBack && (known >= s.numbers.MaxHidden || known > 0 && sc.Seen >= sc.Holds)
	}
	for !over() {
		switch {
		case bound && sc.Seen >= s.numbers.ScanMessages:
			sc.Partial = fmt.Sprintf("stopped at the limit of %d messages", s.numbers.ScanMessages)
		case bound && bytes >= s.numbers.ScanBytes:
			sc.Partial = fmt.Sprintf("stopped at the limit of %d bytes", s.numbers.ScanBytes)
		case s.now().After(end):
			sc.Partial = fmt.Sprintf("stopped at the limit of %v", s.numbers.ScanTime)
		}
		if sc.Partial != "" {
			return sc, nil
		}
		left := sc.Holds - sc.Seen
		if bound {
			left = min(left, s.numbers.ScanMessages-sc.Seen)
		}
		calls := callsFor(left, bytes, sc.Seen)
		if !bound && len(mine.byID)+calls*batch > s.numbers.MaxHidden {
			mine.release(ctx)
			gaveBack = true
		}
		received, err := s.receive(ctx, calls)
		if err != nil {
			// The messages of an answer that was lost are hidden for a while; the others can be seen.
			if lost++; lost > maxLost || ctx.Err() != nil {
				return sc, err
			}
			s.log.Warn("receive failed", telemetry.KeyError, job.SafeText(err.Error()))
		}
		if len(received) == 0 {
			if err == nil {
				empty++
			}
			continue
		}
		empty, enough = 0, s.numbers.EmptyReceives
		mine.renew(ctx)
		var fresh []lanes.Received
		for _, m := range received {
			mine.keep(m.Message) // its handle is newer
			if met.first(m.ID) {
				fresh = append(fresh, m)
				bytes += len(m.Body)
			}
		}
		sc.Seen += len(fresh)
		if known += len(received); len(fresh) == 0 {
			continue
		}
		known = 0
		if more, err := see(fresh); err != nil {
			return sc, err
		} else if !more {
			sc.Partial = "stopped when what was looked for was found"
			return sc, nil
		}
	}
	if sc.Seen < sc.Holds {
		sc.Waiting = max(before.InFlight, 0)
		sc.Partial = fmt.Sprintf("saw %d of about %d: others hold the rest, or they are gone", sc.Seen, sc.Holds)
		if gaveBack {
			sc.Partial += fmt.Sprintf(", or SQS did not give them: it has more than the %d that are hidden at a time", s.numbers.MaxHidden)
		}
	}
	return sc, nil
}

// scanBuffer bounds the bodies that the receives of a scan bring at a time, by the average of those that it has seen.
const scanBuffer = 16 << 20

// callsFor is how many receives a scan makes side by side while so many messages are left: one if they are few, so that few
// are in vain.
func callsFor(left, bytes, seen int) int {
	if seen == 0 || left < batch*sideBySide {
		return 1
	}
	return max(1, min(sideBySide, scanBuffer/(batch*max(1, bytes/seen))))
}

// receive makes receives of the DLQ side by side. Beside an error it returns what those brought that succeeded.
func (s *Service) receive(ctx context.Context, calls int) ([]lanes.Received, error) {
	answers, errs := make([][]lanes.Received, calls), make([]error, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			answer, err := s.queues.Receive(ctx, job.DLQ, batch, s.numbers.Hide, s.numbers.ReceiveWait)
			if errs[i] = err; err == nil {
				answers[i] = answer
			}
		})
	}
	group.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}

// find looks for one message of the DLQ, by its id or by its job's key.
func (s *Service) find(ctx context.Context, id, key string) (m lanes.Received, sc Scan, err error) {
	found := false
	sc, err = s.scan(ctx, whole, func(fresh []lanes.Received) (bool, error) {
		for _, seen := range fresh {
			if seen.ID == id || key != "" && s.readBody(ctx, seen).read.Key == key {
				m, found = seen, true
				break
			}
		}
		return !found, nil
	})
	if err == nil && !found {
		err = refuse("%s was not seen on the DLQ (%s); it may be in flight, or gone", cmp.Or(id, key), sc.says())
	}
	return m, sc, err
}

// survey scans and joins every message with its entry. The items are of messages seen once each.
func (s *Service) survey(ctx context.Context, f Filter) ([]item, Scan, error) {
	mine := s.hold()
	defer mine.release(ctx)
	var items []item
	sc, err := s.match(ctx, mine, bounded, f, func(it item, _ lanes.Received) error {
		items = append(items, it)
		return nil
	})
	return items, sc, err
}

// match scans, joins every message with its entry, and gives those that the filter selects to each, once each.
func (s *Service) match(ctx context.Context, mine *held, bound bool, f Filter, each func(item, lanes.Received) error) (Scan, error) {
	missing := len(f.Messages)
	sc, err := s.scanInto(ctx, mine, bound, func(fresh []lanes.Received) (bool, error) {
		if len(f.Messages) > 0 { // the others are neither read nor looked up
			fresh = slices.DeleteFunc(fresh, func(m lanes.Received) bool { return !slices.Contains(f.Messages, m.ID) })
			missing -= len(fresh)
		}
		found := make([]item, len(fresh))
		var group errgroup.Group
		group.SetLimit(sideBySide)
		for i, m := range fresh {
			group.Go(func() error { found[i] = s.look(ctx, m, f); return nil })
		}
		_ = group.Wait()
		for i, it := range found {
			if f.matches(it, s.now()) {
				if err := each(it, fresh[i]); err != nil {
					return false, err
				}
			}
		}
		return len(f.Messages) == 0 || missing > 0, nil
	})
	if len(f.Messages) > 0 && missing == 0 {
		sc.Partial = "" // all that was named was found
	}
	return sc, err
}

// joined reads a message and its entry. An entry that cannot be read makes this message alone unsure.
func (s *Service) joined(ctx context.Context, m lanes.Received) candidate {
	c := s.readBody(ctx, m)
	if c.read.Key == "" || c.lookErr != nil {
		return c
	}
	c.entry, c.lookErr = s.ledger.Get(ctx, c.read.Key)
	if c.memory.Class == job.Crashed && c.lookErr == nil {
		c = c.unread()
	}
	return c
}

// unread checks the key in a convicted job's message against the entry: it is trusted only if the job with that key was
// convicted. Subject and kind come from the entry, since the body is not read.
func (c candidate) unread() candidate {
	if c.entry.LastClass != job.Crashed {
		c.read, c.entry = job.Decoded{}, ledger.Entry{}
		return c
	}
	c.read.Subject, c.read.Kind.Name = c.entry.Subject, c.entry.Kind
	return c
}

// readBody reads a message's body. Those of convicted jobs are not decoded: they may kill the process that decodes them. A
// message that SQS moved by itself has no record of a conviction; its strikes show it.
func (s *Service) readBody(ctx context.Context, m lanes.Received) candidate {
	c := candidate{memory: m.Memory}
	if c.memory == (job.Memory{}) {
		strikes, err := s.ledger.ReadStrikes(ctx, m.ID)
		if err != nil {
			c.lookErr = fmt.Errorf("its strikes: %w", err)
			return c
		}
		if len(strikes.Ends) >= ledger.ConvictAt {
			c.memory = job.Memory{Class: job.Crashed, Cause: job.CauseCrash, Error: fmt.Sprintf("%d invocations died with this message", len(strikes.Ends))}
			c.read.Kind.Name = strikes.Kind
		}
		// The worker could not write why it isolated the message.
		c.noRoom = !lanes.Fits(job.Message{Body: m.Body, Attributes: m.Attributes, Memory: job.Memory{Class: job.Crashed, Cause: job.CauseCrash}})
	}
	if c.memory.Class == job.Crashed {
		c.readErr = errors.New("not decoded: it was convicted of killing the worker")
		c.read.Key = c.memory.Key
		return c
	}
	c.read, c.readErr = s.kinds.Read(m.Body)
	return c
}

func (s *Service) look(ctx context.Context, m lanes.Received, f Filter) item {
	c := s.joined(ctx, m)
	it := itemOf(c, m, f)
	it.action, it.why, it.guard = c.decide(f.named(m.ID, c.read.Key), s.rules.MaxRedrives, s.now())
	return it
}

func itemOf(c candidate, m lanes.Received, f Filter) item {
	it := item{
		id: m.ID, key: c.read.Key, subject: c.read.Subject, kind: c.read.Kind.Name,
		class: c.class(), cause: c.cause(), error: c.memory.Error, generation: c.generation(),
		sentAt: m.SentAt, isolatedAt: m.Memory.At, firstSent: m.Memory.FirstSent, size: len(m.Body), digest: c.digest(m.Body), fits: f.fits(m.Message, c),
	}
	it.copied = c.entry.IsCopy(delivery(m.Message, c, ""))
	if it.kind == "" {
		it.kind = "unknown"
	}
	if it.isolatedAt.IsZero() {
		if it.isolatedAt = c.entry.IsolatedAt; it.isolatedAt.IsZero() {
			it.isolatedAt = m.SentAt
		}
	}
	if it.error == "" {
		it.error = c.entry.LastError
	}
	it.fingerprint = cmp.Or(m.Memory.Fingerprint, c.entry.Fingerprint, job.Fingerprint(it.error))
	return it
}

// delivery is a message of the DLQ as the ledger's rules want it.
func delivery(m job.Message, c candidate, token string) job.Delivery {
	d := job.Delivery{Message: m, Lane: job.Recovery, Envelope: c.read.Envelope, Key: c.read.Key, Subject: c.read.Subject, Token: token}
	if c.readErr == nil {
		d.Digest = c.digest(m.Body)
	}
	return d
}
