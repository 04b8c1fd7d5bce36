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
	// Waiting messages are in flight: hidden from everybody by whoever received them.
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

// renew keeps hidden what would soon be visible. What fails may be received a second time, which does no
// harm.
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

// release gives everything back, also when the caller's time is over. What fails comes back by itself.
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

// scan receives every message of the DLQ once, gives each to see, and makes all of them visible again.
// It stops early when see returns false.
func (s *Service) scan(ctx context.Context, see func(lanes.Received) (more bool, err error)) (Scan, error) {
	var sc Scan
	before, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return sc, err
	}
	sc.Holds = before.Total()
	mine := s.hold()
	defer mine.release(ctx)
	bytes, empty, lost := 0, 0, 0
	end := s.now().Add(s.numbers.ScanTime)
	// A queue that SQS counts as empty is taken for that at the first empty answer.
	enough := s.numbers.EmptyReceives
	if sc.Holds == 0 {
		enough = 1
	}
	for empty < enough {
		switch {
		case sc.Seen >= s.numbers.ScanMessages:
			sc.Partial = fmt.Sprintf("stopped at the limit of %d messages", s.numbers.ScanMessages)
		case bytes >= s.numbers.ScanBytes:
			sc.Partial = fmt.Sprintf("stopped at the limit of %d bytes", s.numbers.ScanBytes)
		case s.now().After(end):
			sc.Partial = fmt.Sprintf("stopped at the limit of %v", s.numbers.ScanTime)
		}
		if sc.Partial != "" {
			return sc, nil
		}
		received, err := s.queues.Receive(ctx, job.DLQ, 10, s.numbers.Hide, s.numbers.ReceiveWait)
		if err != nil {
			// What an answer held that was lost on its way is hidden for a while; the rest can be seen.
			if lost++; lost > maxLost || ctx.Err() != nil {
				return sc, err
			}
			s.log.Warn("receive failed", telemetry.KeyError, job.SafeText(err.Error()))
			continue
		}
		if len(received) == 0 {
			empty++
			continue
		}
		empty, enough = 0, s.numbers.EmptyReceives
		mine.renew(ctx)
		more := true
		for _, m := range received {
			known := mine.has(m.ID)
			mine.keep(m.Message)
			if known {
				continue // its handle is newer; it was seen already
			}
			sc.Seen++
			bytes += len(m.Body)
			if more {
				if more, err = see(m); err != nil {
					return sc, err
				}
			}
		}
		if !more {
			sc.Partial = "stopped when what was looked for was found"
			return sc, nil
		}
	}
	if sc.Seen < sc.Holds {
		sc.Waiting = max(before.InFlight, 0)
		sc.Partial = fmt.Sprintf("saw %d of about %d: others hold the rest, or they are gone", sc.Seen, sc.Holds)
	}
	return sc, nil
}

// find looks for one message of the DLQ, by its id or by its job's key.
func (s *Service) find(ctx context.Context, id, key string) (m lanes.Received, sc Scan, err error) {
	found := false
	sc, err = s.scan(ctx, func(seen lanes.Received) (bool, error) {
		if seen.ID == id || key != "" && s.readBody(ctx, seen).read.Key == key {
			m, found = seen, true
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
	var items []item
	joining := make([]lanes.Received, 0, batch)
	flush := func() {
		found := make([]item, len(joining))
		var group sync.WaitGroup
		for i, m := range joining {
			group.Go(func() { found[i] = s.look(ctx, m, f) })
		}
		group.Wait()
		for _, it := range found {
			if f.matches(it, s.now()) {
				items = append(items, it)
			}
		}
		joining = joining[:0]
	}
	missing := len(f.Messages)
	sc, err := s.scan(ctx, func(m lanes.Received) (bool, error) {
		if len(f.Messages) > 0 {
			if !slices.Contains(f.Messages, m.ID) {
				return true, nil // neither read nor looked up
			}
			missing--
		}
		joining = append(joining, m)
		if len(joining) == cap(joining) || len(f.Messages) > 0 {
			flush()
		}
		return len(f.Messages) == 0 || missing > 0, nil
	})
	flush()
	if len(f.Messages) > 0 && missing == 0 {
		sc.Partial = "" // all that was named was found
	}
	return items, sc, err
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

// unread holds a convict's key, which is only its message's word, against the entry: no other job was
// convicted under it. What the body would have told comes from there.
func (c candidate) unread() candidate {
	if c.entry.LastClass != job.Crashed {
		c.read, c.entry = job.Decoded{}, ledger.Entry{}
		return c
	}
	c.read.Subject, c.read.Kind.Name = c.entry.Subject, c.entry.Kind
	return c
}

// readBody reads a message's body. Those of convicted jobs are not decoded: they may kill the process that decodes them. What
// SQS moved by itself carries no memory of a conviction; its strikes tell it.
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
		// Whatever isolated it could not write why.
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
