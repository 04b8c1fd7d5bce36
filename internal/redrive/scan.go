package redrive

import (
	"context"
	"errors"
	"fmt"
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
	error                  string
	sentAt, isolatedAt     time.Time
	firstSent              time.Time
	generation             int
	size                   int

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

// maxLost is how many receives of one scan may fail.
const maxLost = 3

// releaseLimit is how long a release may take after its caller's time is over.
const releaseLimit = 20 * time.Second

// held are messages that were received and not moved: their handles by id.
type held struct {
	queues Queues
	byID   map[string]string
	log    func(error)
}

func (h *held) keep(m job.Message) { h.byID[m.ID] = m.ReceiptHandle }

func (h *held) has(id string) bool { _, ok := h.byID[id]; return ok }

func (h *held) drop(id string) { delete(h.byID, id) }

// release gives everything back, also when the caller's time is over. What fails comes back by itself.
func (h *held) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	batch := make([]job.Message, 0, 10)
	flush := func() {
		if len(batch) > 0 {
			if err := h.queues.Release(ctx, job.DLQ, batch); err != nil {
				h.log(err)
			}
			batch = batch[:0]
		}
	}
	for id, handle := range h.byID {
		if batch = append(batch, job.Message{ID: id, ReceiptHandle: handle}); len(batch) == cap(batch) {
			flush()
		}
	}
	flush()
	clear(h.byID)
}

func (s *Service) hold() *held {
	return &held{queues: s.queues, byID: map[string]string{}, log: func(err error) {
		s.log.Warn("not released; visible again by itself", "error", job.SafeText(err.Error()))
	}}
}

// visibility is how long a received message stays hidden: longer than this invocation can last.
func (s *Service) visibility(ctx context.Context) time.Duration {
	left := s.numbers.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = deadline.Sub(s.now())
	}
	return max(left, time.Second) + s.numbers.PauseMargin
}

// scan receives every message of the DLQ once, gives each to see, and makes all of them visible again.
// It stops early when see returns false.
func (s *Service) scan(ctx context.Context, see func(lanes.Received) (more bool, err error)) (Scan, error) {
	var sc Scan
	before, err := s.queues.Depth(ctx, job.DLQ)
	if err != nil {
		return sc, err
	}
	sc.Holds = before.Visible + before.InFlight + before.Delayed
	mine := s.hold()
	defer mine.release(ctx)
	bytes, empty, lost := 0, 0, 0
	end := s.now().Add(s.numbers.ScanTime)
	for empty < s.numbers.EmptyReceives {
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
		received, err := s.queues.Receive(ctx, job.DLQ, 10, s.visibility(ctx), s.numbers.ReceiveWait)
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
		empty = 0
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

// survey scans and joins every message with its entry. The items are of messages seen once each.
func (s *Service) survey(ctx context.Context, f Filter) ([]item, Scan, error) {
	var items []item
	var batch []lanes.Received
	flush := func() error {
		found := make([]item, len(batch))
		var group errgroup.Group
		for i, m := range batch {
			group.Go(func() (err error) {
				found[i], err = s.look(ctx, m, f)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, it := range found {
			if f.matches(it, s.now()) {
				items = append(items, it)
			}
		}
		batch = batch[:0]
		return nil
	}
	missing := len(f.Messages)
	sc, err := s.scan(ctx, func(m lanes.Received) (bool, error) {
		if len(f.Messages) > 0 {
			if !f.named(m.ID) {
				return true, nil // neither read nor looked up
			}
			missing--
		}
		batch = append(batch, m)
		if len(batch) == 10 || len(f.Messages) > 0 {
			if err := flush(); err != nil {
				return false, err
			}
		}
		return len(f.Messages) == 0 || missing > 0, nil
	})
	if err == nil {
		err = flush()
	}
	if len(f.Messages) > 0 && missing == 0 {
		sc.Partial = "" // all that was named was found
	}
	return items, sc, err
}

// joined reads a message and its entry. Bodies of convicted jobs are not decoded: they may kill who
// decodes them.
func (s *Service) joined(ctx context.Context, m lanes.Received) (candidate, error) {
	c := s.readBody(m)
	if c.read.Key == "" {
		return c, nil
	}
	var err error
	c.entry, err = s.ledger.Get(ctx, c.read.Key)
	if m.Memory.Class == job.Crashed {
		c = c.unread()
	}
	return c, err
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

func (s *Service) readBody(m lanes.Received) candidate {
	c := candidate{memory: m.Memory}
	if m.Memory.Class == job.Crashed {
		c.readErr = errors.New("not decoded: it was convicted of killing the worker")
		c.read.Key = m.Memory.Key
		return c
	}
	c.read, c.readErr = s.kinds.Read(m.Body)
	return c
}

func (s *Service) look(ctx context.Context, m lanes.Received, f Filter) (item, error) {
	c, err := s.joined(ctx, m)
	if err != nil {
		return item{}, err
	}
	it := item{
		id: m.ID, key: c.read.Key, subject: c.read.Subject, kind: c.read.Kind.Name,
		class: c.class(), cause: c.cause(), error: m.Memory.Error, generation: c.generation(),
		sentAt: m.SentAt, isolatedAt: m.Memory.At, firstSent: m.Memory.FirstSent, size: len(m.Body),
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
	it.action, it.why, it.guard = c.decide(f.named(m.ID), s.rules.MaxRedrives, s.now())
	return it, nil
}

// delivery is a message of the DLQ as the ledger's rules want it.
func delivery(m job.Message, c candidate, token string) job.Delivery {
	return job.Delivery{Message: m, Lane: job.Recovery, Envelope: c.read.Envelope, Key: c.read.Key, Subject: c.read.Subject, Token: token}
}
