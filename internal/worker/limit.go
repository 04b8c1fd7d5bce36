package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
)

// The numbers of a pace. A throttled attempt halves it, and an accepted one raises it by a twentieth. So at the
// limit about one attempt in fifteen is refused.
const (
	slowedBy      = 0.5
	raisedBy      = 0.05
	raisedAtLeast = 0.05 // attempts a second: a slow pace must rise again
	// slowedAtMost is the least time between two halvings: attempts that run at the same time fail together.
	slowedAtMost = time.Second
	// firstPace is the least pace after the first throttled attempt.
	firstPace = 1.0
	// slowestPace still allows one attempt a minute, to find out when the dependency works again.
	slowestPace = 1.0 / 60
	// forgottenAfter is how long after the last throttled attempt the pace is unbounded again.
	forgottenAfter = 10 * time.Minute
	// paceWindow is the time over which accepted attempts are counted before the first throttled one.
	paceWindow = 10 * time.Second
)

// pace bounds how often this process starts an attempt of one kind. It has no bound until a dependency
// throttles the kind. Each job that may not start is deferred to a later time than the one before, so that the
// jobs come back about as fast as the dependency accepts them.
type pace struct {
	limit float64 // the kind's own bound, attempts a second; infinite if it has none

	rate      float64   // the bound learnt from the dependency's answers; infinite while it throttles nothing
	tokens    float64   // attempts that may start at counted
	counted   time.Time // tokens are counted up to this time, and nothing starts before it
	throttled time.Time // the time of the last throttled attempt
	slowed    time.Time // when the rate was last lowered
	tail      time.Time // when the last deferred job comes back

	accepted int // since begun
	begun    time.Time
}

func newPace(limit float64, now time.Time) *pace {
	if limit <= 0 {
		limit = math.Inf(1)
	}
	return &pace{limit: limit, rate: math.Inf(1), tokens: 1, counted: now, begun: now}
}

// slow says whether a dependency throttles the kind.
func (p *pace) slow() bool { return !math.IsInf(p.rate, 1) }

func (p *pace) bound() float64 { return min(p.rate, p.limit) }

// take starts an attempt, or returns how long its job must wait.
func (p *pace) take(now time.Time, random func() float64) (wait time.Duration, ok bool) {
	if p.slow() && now.Sub(p.throttled) > forgottenAfter && now.Sub(p.counted) > 0 {
		p.rate, p.tail = math.Inf(1), time.Time{}
	}
	bound := p.bound()
	if math.IsInf(bound, 1) {
		return 0, true
	}
	if since := now.Sub(p.counted); since >= 0 {
		p.tokens, p.counted = min(p.tokens+since.Seconds()*bound, max(bound, 1)), now
		if p.tokens >= 1 {
			p.tokens--
			return 0, true
		}
	}
	from := now
	for _, t := range []time.Time{p.counted, p.tail} {
		if t.After(from) {
			from = t
		}
	}
	next := from.Add(time.Duration(float64(time.Second) / bound))
	if wait = next.Sub(now); wait <= retry.ThrottledCap {
		p.tail = next
		return wait, false
	}
	// More jobs wait than one hop can space out. They come back spread over its second half, and are checked
	// again.
	return retry.ThrottledCap - time.Duration(random()*float64(retry.ThrottledCap)/2), false
}

// refuse updates the pace after an attempt that was throttled. Nothing starts during the time that the
// dependency asked for, up to one hop. The first attempt after it shows whether the dependency works again.
func (p *pace) refuse(now time.Time, retryAfter time.Duration) {
	p.throttled = now
	switch {
	case !p.slow():
		p.rate = max(float64(p.accepted)/max(now.Sub(p.begun).Seconds(), 1)*slowedBy, firstPace)
	case now.Sub(p.slowed) < slowedAtMost:
		return
	default:
		p.rate = max(p.rate*slowedBy, slowestPace)
	}
	p.slowed = now
	pause := max(time.Duration(float64(time.Second)/p.bound()), retryAfter)
	p.tokens, p.counted = 1, now.Add(min(pause, retry.ThrottledCap))
}

// accept updates the pace after an attempt that succeeded.
func (p *pace) accept(now time.Time) {
	if p.slow() {
		p.rate += max(p.rate*raisedBy, raisedAtLeast)
		return
	}
	if now.Sub(p.begun) > paceWindow {
		p.accepted, p.begun = 0, now
	}
	p.accepted++
}

// limits decides which kinds' attempts may start in this process.
type limits struct {
	processes int
	mu        sync.Mutex
	paces     map[string]*pace

	operators Operators
	paused    []string
	asked     time.Time
}

const (
	// pausesKept is how long a process uses its list of paused kinds before it reads it again.
	pausesKept = 15 * time.Second
	// pausesTime bounds the reading of the list.
	pausesTime = time.Second
	// pausedDelay is how long a job of a paused kind waits before the pause is checked again.
	pausedDelay = 5 * time.Minute
)

var (
	errPaused = errors.New("its kind is paused")
	errSlowed = errors.New("its kind is throttled, or has a rate of its own")
)

func newLimits(processes int, operators Operators) *limits {
	return &limits{processes: max(processes, 1), paces: map[string]*pace{}, operators: operators}
}

func (l *limits) pace(k job.Kind, now time.Time) *pace {
	p := l.paces[k.Name]
	if p == nil {
		p = newPace(k.PerSecond/float64(l.processes), now)
		l.paces[k.Name] = p
	}
	return p
}

// isPaused says whether operators have paused the kind. If the list cannot be read, nothing is paused: a pause
// spares one dependency, and must not stop other kinds.
func (h *Handler) isPaused(ctx context.Context, kind string) bool {
	l := h.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := h.now(); l.asked.IsZero() || now.Sub(l.asked) >= pausesKept {
		h.readPauses(ctx)
		l.asked = now
	}
	return slices.Contains(l.paused, kind)
}

// readPauses reads the list of paused kinds and says whether that succeeded. The caller holds the lock.
func (h *Handler) readPauses(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pausesTime) // the whole batch waits
	defer cancel()
	paused, err := h.limits.operators.Paused(ctx)
	if err != nil {
		h.log.Warn("paused kinds not read", telemetry.KeyError, err.Error())
		paused = nil
	}
	h.limits.paused = paused
	return err == nil
}

// Prepare makes the first call to DynamoDB, before the first message is there. The first message then finds
// credentials and a connection. The call reads the paused kinds, which the worker needs anyway. It takes a second at
// most; if it fails, the first message makes it again.
func (h *Handler) Prepare(ctx context.Context) {
	l := h.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.readPauses(ctx) {
		l.asked = h.now()
	}
}

// admit says whether an attempt at the job may start now. Otherwise it defers the job: no attempt is spent.
func (h *Handler) admit(ctx context.Context, s *step) bool {
	if h.isPaused(ctx, s.read.Kind.Name) {
		s.paused = true
		h.defers(s, s.memory(), pausedDelay-time.Duration(h.random()*float64(pausedDelay)/5), errPaused)
		return false
	}
	l := h.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pace(s.read.Kind, h.now())
	wait, ok := p.take(h.now(), h.random)
	if ok && p.slow() && s.slots != nil && !s.slots.take(s.read.Kind.Name) {
		p.tokens++ // another batch may use it
		wait, ok = time.Second, false
	}
	if !ok {
		h.defers(s, s.memory(), wait, fmt.Errorf("not started: %w", errSlowed))
	}
	return ok
}

// learn updates the kind's pace with the result of an attempt.
func (h *Handler) learn(s *step, r job.Result) {
	l := h.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pace(s.read.Kind, h.now())
	if r.Verdict == job.Committed {
		p.accept(h.now())
		return
	}
	if r.Verdict != job.Failed || r.Err == nil {
		return
	}
	if f := job.AsFailure(r.Err); f.Class == job.Throttled {
		p.refuse(h.now(), f.RetryAfter)
	}
}

// slots bounds how many attempts at jobs of a throttled kind one batch makes. Half of its records may be such
// jobs, so that slow refusals do not delay the other kinds.
type slots struct {
	most int
	mu   sync.Mutex
	used map[string]int
}

func newSlots(records int) *slots { return &slots{most: max(records/2, 1), used: map[string]int{}} }

func (s *slots) take(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[kind] >= s.most {
		return false
	}
	s.used[kind]++
	return true
}
