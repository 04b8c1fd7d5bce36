// Package simulation_test plays the whole system in virtual time: the worker, the ledger's and the redrive's stores
// on a DynamoDB in memory, queues with SQS's rules, EventBridge Scheduler, a provider, and people.
//
// One seed is one story. Every call of the system may fail before it is made, succeed without an answer, be made
// twice, take long, or end the process. After some hours nothing fails any more, and everything is drained. Then the
// checker of the soak judges the whole record. No case is excused.
//
// A seed has to give the same story each time, so no call's fate may depend on the order of calls that run side by
// side. It is a hash of the seed, of the call and of its time. How long a call takes is such a hash too, so that no two
// calls end in the same nanosecond, unless they are the same call: those have one fate.
package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/memdb"
	"acklast/internal/soak"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

const (
	storm   = 2 * time.Hour // in which calls fail
	limit   = 4 * 24 * time.Hour
	maxSkew = 5 * time.Second // of a process's clock
	// longestCall is longer than any call takes.
	longestCall = 2 * time.Minute
	// longestStall is longer than any lease.
	longestStall = 8 * time.Minute
	crowd        = 250 // messages; with more, the calm begins early
	stack        = "sim"
	// newer is the first seed of the stories in which also processes stand still, kinds are paused and jobs discarded. Older seeds
	// keep their stories, which draw no number for that.
	newer = 10_000
	// byMessage is the first seed of the stories in which people also discard messages by their ids.
	byMessage = 50_000
	// newest is the first seed of the stories in which a process may stand still until another delivery claims its job, in
	// which people mend bodies, in which a kind may have the other late policy, and in which a newer worker may not
	// survive reading a payload.
	newest = 100_000
)

// story is one run of the simulation.
type story struct {
	seed uint64
	draw *rand.Rand // only before the story begins
	jobs []*simJob
	// Of a hundred: calls that fail before they are made, calls without an answer, calls made twice, slow calls,
	// invocations that die, messages that are delivered again at once, transactions that conflict.
	fail, lose, twice, slow, die, again, conflict int
	processes                                     int
	people                                        bool
	stalls                                        int  // of a hundred invocations
	freezes                                       int  // of a hundred claims, and as many calls under a claim
	pauses                                        bool // and discards
	mends                                         bool
	unitsExpire                                   bool // a late job of the kind units expires; otherwise it runs late
	mailLate                                      late
	outages                                       []outage
	lag                                           time.Duration // of counts
	inFlight                                      int           // the in-flight limit of the DLQ; 0 is none
	provider                                      provider
	config                                        worker.Config
	ramp                                          int

	began time.Time
	later sync.WaitGroup // calls under way whose caller gave up, and schedules

	mu        sync.Mutex
	told      []string
	serial    int
	stopped   bool // the calm has begun
	home      bool // people have gone home
	db        *memdb.DB
	client    *client
	queues    map[job.Queue][]*message
	counts    map[job.Queue][]count
	received  map[job.Queue]soak.Moment // the last receive by a process of the redrive
	schedules map[string]*alarm
	firing    int
	plans     []string
	deaths    map[string]int      // invocations that died with an open strike, by message
	ids       map[string][]string // of the messages with a mark
	letters   map[string]*letter  // by mark
	mended    []*mended
	handed    map[string][]handed
	history   soak.History
	delivered map[string]int // indexes in history.Deliveries, by receipt handle
	wrong     []string
	frozen    map[string][]frozen // processes that stand still until another delivery claims the job, by its key
}

type outage struct {
	of         string
	from, till time.Duration
}

// service names, for outages.
const (
	ofDynamoDB  = "DynamoDB"
	ofSQS       = "SQS"
	ofScheduler = "Scheduler"
	ofProvider  = "provider"
	ofLambda    = "Lambda"
)

// newStory draws a story from its seed.
func newStory(seed uint64) *story {
	r := rand.New(rand.NewPCG(seed, 15))
	often := func(most int) int { // mostly seldom: with every fault at once, messages multiply and hide everything else
		return []int{0, r.IntN(3), r.IntN(3), r.IntN(most)}[r.IntN(4)]
	}
	s := &story{
		seed: seed, draw: r, fail: often(20), lose: often(10), twice: often(8), slow: often(7), die: often(30), again: often(15), conflict: often(20),
		processes: 1 + r.IntN(3), people: r.IntN(4) > 0, ramp: r.IntN(2),
	}
	if r.IntN(2) == 0 {
		s.lag = time.Duration(r.IntN(60)) * time.Second
	}
	if r.IntN(4) == 0 {
		s.inFlight = 3 + r.IntN(8)
	}
	for range r.IntN(3) {
		from := time.Duration(r.IntN(90)) * time.Minute
		s.outages = append(s.outages, outage{
			[]string{ofDynamoDB, ofSQS, ofScheduler, ofProvider}[r.IntN(4)], from, from + time.Duration(1+r.IntN(1200))*time.Second,
		})
	}
	s.provider = newProvider(r, seed)
	s.config = s.workerConfig(1 + 9*r.IntN(2))
	s.clear()
	s.drawJobs()
	if seed >= newer {
		r := rand.New(rand.NewPCG(seed, 16))
		s.stalls, s.pauses = []int{0, 10, 40}[r.IntN(3)], r.IntN(2) == 0
	}
	if seed >= newest {
		r := rand.New(rand.NewPCG(seed, 17))
		if s.freezes = []int{0, 10, 40}[r.IntN(3)]; s.freezes > 0 {
			s.processes = max(s.processes, 2) // while one stands still, another has to claim
		}
		s.mends, s.unitsExpire, s.mailLate = r.IntN(2) == 0, r.IntN(2) == 0, late(r.IntN(3))
		// Nobody knows the run of a message without room for our attribute, so a run of such a job would not end.
		if j := s.jobs[r.IntN(len(s.jobs))]; r.IntN(4) == 0 && !j.full {
			j.deadly = bubbleStart.Add(time.Duration(r.IntN(90)) * time.Minute)
		}
	}
	return s
}

func (s *story) workerConfig(concurrency int) worker.Config {
	settings := topology.Default()
	settings.ScheduleFrom = 30 * time.Minute
	settings.BatchSize = concurrency
	env := worker.Environment(stack, topology.QueueURLs{Source: "source", Recovery: "recovery", DLQ: "dlq"}, settings)
	for name, value := range worker.ScheduleEnvironment("arn:aws:iam::1:role/sim", "arn:aws:sqs:us-east-1:1:sim-dlq") {
		env[name] = value
	}
	c, err := worker.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		panic(err)
	}
	return c
}

func (s *story) clear() {
	s.queues, s.counts = map[job.Queue][]*message{}, map[job.Queue][]count{}
	s.ids, s.letters = map[string][]string{}, map[string]*letter{}
	s.schedules, s.deaths, s.handed, s.delivered = map[string]*alarm{}, map[string]int{}, map[string][]handed{}, map[string]int{}
	s.received, s.frozen = map[job.Queue]soak.Moment{}, map[string][]frozen{}
	s.provider.clear()
}

// play runs the story in a bubble of virtual time, and returns the broken promises.
func (s *story) play() []string {
	s.began = time.Now()
	s.openTables()
	s.history = soak.History{Accepted: s.provider.accepted, Unwanted: map[string]bool{}, Created: map[string]soak.Moment{}, Entries: map[string]soak.Entry{}, Waiting: map[string]bool{}, Balances: map[string]soak.Balance{}}
	s.sendJobs()
	var running sync.WaitGroup
	for n := range s.processes {
		running.Go(func() { s.process(n) })
	}
	running.Go(s.operate)
	running.Wait()
	s.later.Wait()
	s.judge()
	return s.wrong
}

// now is the moment of the record: the virtual time. No two calls end at the same one.
func (s *story) now() soak.Moment { return soak.Moment(time.Since(s.began)) + 1 }

// number draws a number from 0 to n-1 for a question that is asked now.
func (s *story) number(n int, about ...string) int {
	x := uint64(14695981039346656037) // FNV-1a
	mix := func(c byte) { x = (x ^ uint64(c)) * 1099511628211 }
	for i, at := 0, uint64(time.Since(s.began)); i < 64; i += 8 {
		mix(byte(s.seed >> i))
		mix(byte(at >> i))
	}
	for _, part := range about {
		for i := range len(part) {
			mix(part[i])
		}
		mix(0)
	}
	// FNV leaves the high bits of short texts alike.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % uint64(n))
}

// calm says whether nothing fails from here on. The caller holds the lock.
func (s *story) calm() bool {
	s.stopped = s.stopped || time.Since(s.began) >= storm || s.serial > crowd
	return s.stopped
}

func (s *story) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm()
}

// tell adds a line to the story. The caller holds the lock.
func (s *story) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%16v  ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

// breaks records a broken promise. The caller holds the lock.
func (s *story) breaks(format string, args ...any) {
	s.tell("WRONG: "+format, args...)
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// rest sleeps for a time that nobody else sleeps for.
func (s *story) rest(d time.Duration, about ...string) {
	time.Sleep(d + time.Millisecond + time.Duration(s.number(20_000_000, append(about, "rest")...)))
}

// life is a process. It may end at any of its calls, before the call or after it.
type life struct {
	*story
	name  string
	skew  time.Duration
	left  int // calls until death; -1 is none
	after bool
	dead  bool
	end   context.CancelFunc
	open  map[string]bool // messages whose strike is not cleared
	// The process stands still from stops until goes: see stall. invoked is when its invocation began. It stands still as
	// well until ice is closed: see freeze.
	stops, goes, invoked time.Time
	ice                  chan struct{}
	gone                 bool // Lambda has given up on it
	discards             bool // a discard's process, which may delete what has not ended
	byKey                bool // it discards a job by its key, with every message of it
}

type lifeKey struct{}

// born returns a process. share is the share of them, in a hundred, that die within the first calls.
func (s *story) born(ctx context.Context, name string, share, calls int) (*life, context.Context) {
	l := &life{story: s, name: name, left: -1, open: map[string]bool{}}
	l.skew = time.Duration(s.number(int(2*maxSkew), name, "skew")) - maxSkew
	ctx, l.end = context.WithCancel(context.WithValue(ctx, lifeKey{}, l))
	l.risk(share, calls)
	return l, ctx
}

// risk decides at which of the next calls the process dies.
func (l *life) risk(share, calls int) {
	l.left = -1
	if l.number(100, l.name, "death") < share && !l.isCalm() {
		l.left, l.after = l.number(calls, l.name, "death at"), l.number(2, l.name, "death after") == 1
	}
}

func (l *life) clock() time.Time { return time.Now().Add(l.skew) }

// die ends the process. The caller holds the lock.
func (l *life) die(at string) {
	if l.dead {
		return
	}
	l.dead = true
	l.tell("%s dies at %s", l.name, at)
	for id := range l.open {
		l.deaths[id]++
	}
	l.end()
}

// stall decides whether the process stands still soon, as after SIGSTOP, often for longer than a lease. It is a time, and
// no property of a call, because calls that begin at one instant have no order.
func (l *life) stall(soon time.Duration, about string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.goes) || l.calm() || l.number(100, l.name, about, "stall") >= l.stalls {
		return
	}
	l.stops = now.Add(time.Duration(l.number(int(soon), l.name, about, "stops")))
	l.goes = l.stops.Add(time.Duration(l.number(int(longestStall), l.name, about, "goes")))
	l.tell("%s stands still from %v until %v", l.name, l.stops.Sub(l.began), l.goes.Sub(l.began))
}

// frozen is a process that stands still until ice is closed.
type frozen struct {
	*life
	ice chan struct{}
}

// freeze decides by a share of a hundred whether the process, which holds the claim of a job, stands still from now on until
// another delivery claims that job. So it goes on while its claim belongs to the other one. The caller holds the lock.
func (l *life) freeze(key, about string, share int) {
	now := time.Now()
	if now.Before(l.goes) || l.dead || l.calm() || l.number(100, l.name, about, "freezes") >= share {
		return
	}
	ice := make(chan struct{})
	l.ice, l.stops, l.goes = ice, now, now.Add(longestStall)
	l.frozen[key] = append(l.frozen[key], frozen{l, ice})
	l.tell("%s stands still until another delivery claims %s", l.name, key)
	time.AfterFunc(longestStall, func() { // unless nobody does
		l.mu.Lock()
		defer l.mu.Unlock()
		l.thaw(ice)
	})
}

// thaw ends what freeze began. The caller holds the lock.
func (l *life) thaw(ice chan struct{}) {
	if l.ice != ice {
		return // it goes on already
	}
	l.ice, l.goes = nil, time.Now()
	close(ice)
	l.tell("%s goes on", l.name)
}

// claimed lets the processes go on that wait for a claim of this job by another one: at once, or after a time in which the new
// lease may end as well. The one that claims often stands still in its turn, so that it holds the job then. The caller holds
// the lock.
func (l *life) claimed(key, token string) {
	share := l.freezes
	for _, other := range l.frozen[key] {
		if other.life != l {
			share = 60
			after := time.Duration(l.number(2, other.name, token, "waits") * l.number(int(3*time.Minute), other.name, token, "waits for"))
			if after == 0 {
				other.thaw(other.ice)
				continue
			}
			time.AfterFunc(after, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				other.thaw(other.ice)
			})
		}
	}
	delete(l.frozen, key)
	l.freeze(key, "claim "+token, share)
}

// still waits while the process stands still.
func (l *life) still(before string) {
	l.mu.Lock()
	ice, stops, goes := l.ice, l.stops, l.goes
	l.mu.Unlock()
	switch now := time.Now(); {
	case ice != nil:
		<-ice
		// At a time of its own: the other delivery goes on with its claim just now.
		time.Sleep(time.Duration(1 + l.number(int(2*time.Millisecond), l.name, before, "goes on")))
	case !now.Before(stops) && now.Before(goes):
		time.Sleep(goes.Sub(now))
	}
}

// watch is Lambda, which gives up on an invocation after its time. For Lambda the process has died, but if it only stood
// still, it goes on with its calls.
func (l *life) watch(until time.Time, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-time.After(time.Until(until) + time.Duration(1+l.number(int(time.Millisecond), l.name, "watch"))):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.goes.Before(l.invoked) || l.dead { // it never stood still, or died
		return
	}
	l.givenUp()
}

// givenUp records that Lambda has given up on the invocation. The caller holds the lock.
func (l *life) givenUp() {
	if l.gone || l.dead {
		return
	}
	l.gone = true
	l.tell("Lambda gives up on %s", l.name)
	for id := range l.open {
		l.deaths[id]++
	}
	clear(l.open)
}

// noAnswer: the caller got no answer, or a refusal to serve.
type noAnswer struct{ what string }

func (e *noAnswer) Error() string { return e.what + ": no answer" }

// call makes a call to a service. apply does what the service does; it runs under the lock, at one instant. heard says
// that the caller gets its answer.
func (l *life) call(ctx context.Context, service, what string, apply func(heard bool)) error {
	l.still(what)
	defer l.still(what)
	if ctx.Err() != nil {
		return &noAnswer{what}
	}
	name := l.name + "\x00" + service + "\x00" + what
	wait := time.Millisecond + time.Duration(l.number(20_000_000, name, "takes"))
	f := l.number(100, name, "fate")
	slow := l.number(100, name, "slow")
	calm := l.isCalm()
	if slow < l.slow && !calm {
		wait += time.Duration(slow*slow+1) * time.Second
	}
	// A process may stop after it has looked at its context, and before it has sent the request. A request to the provider
	// is sent at once: no more than longestCall passes until it is there or lost.
	l.mu.Lock()
	stops, goes := l.stops, l.goes
	l.mu.Unlock()
	if now := time.Now(); service != ofProvider && now.Before(stops) && !now.Add(wait).Before(stops) && now.Before(goes) && f%2 == 0 {
		time.Sleep(goes.Sub(now))
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	began := time.Now()
	select {
	case <-timer.C:
	case <-ctx.Done():
		if f%2 == 0 && !calm { // the request is under way, and arrives
			rest := wait - time.Since(began)
			l.later.Go(func() {
				time.Sleep(rest)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.tell("%s: %s %s arrives late", l.name, service, what)
				apply(false)
			})
		}
		return &noAnswer{what}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
		return &noAnswer{what}
	case l.left == 0:
		if l.after {
			apply(false)
		}
		l.die(service + " " + what)
		return &noAnswer{what}
	}
	l.left--
	calm = l.calm()
	switch {
	case calm:
	case l.out(service) || f < l.fail:
		l.tell("%s: %s %s fails", l.name, service, what)
		return &noAnswer{what}
	case f < l.fail+l.lose:
		l.tell("%s: %s %s has no answer", l.name, service, what)
		apply(false)
		return &noAnswer{what}
	case service != ofProvider && service != ofLambda && f < l.fail+l.lose+l.twice:
		l.tell("%s: %s %s is made twice", l.name, service, what)
		apply(false) // the SDK repeats a call without an answer
	}
	apply(true)
	return nil
}

func (s *story) out(service string) bool {
	at := time.Since(s.began)
	for _, o := range s.outages {
		if o.of == service && at >= o.from && at < o.till {
			return true
		}
	}
	return false
}

// struck and cleared follow a message's strikes. The caller holds the lock.
func (l *life) struck(id string, end int64) {
	if end == 0 {
		delete(l.open, id)
		return
	}
	if l.dead || l.gone {
		l.deaths[id]++ // at this very call
	}
	l.open[id] = true
}

// killed says whether so many invocations died with one message of this mark that it may be convicted.
func (s *story) killed(mark string) bool {
	return slices.ContainsFunc(s.ids[mark], func(id string) bool { return s.deaths[id] >= ledger.ConvictAt })
}

// poison says whether so many invocations died with one message of this mark's job that it may be convicted. The job's
// other messages then find it isolated as crashed. A message with another payload is none of the job's.
func (s *story) poison(mark string) bool {
	of := s.letters[mark]
	for other, letter := range s.letters {
		same := of != nil && of.key != "" && of.key == letter.key && of.digest == letter.digest
		if (other == mark || same) && s.killed(other) {
			return true
		}
	}
	return false
}

// crashed says whether the entry of this mark's job is or was isolated as crashed. The caller holds the lock.
func (s *story) crashed(mark string) bool {
	of := s.letters[mark]
	if of == nil || of.key == "" {
		return false
	}
	e := s.entry(of.key)
	return e.LastClass == job.Crashed || slices.ContainsFunc(e.History, func(ev ledger.Event) bool { return ev.Class == job.Crashed })
}
