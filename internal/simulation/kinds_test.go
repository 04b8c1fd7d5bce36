package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/dynamo"
	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/soak"
)

// temper says how a job's attempts go.
type temper int

const (
	good      temper = iota
	shaky            // fails at times, until the calm
	hopeless         // fails always
	forbidden        // is rejected
	panicky          // panics at times, until the calm
	hanging          // takes all the time there is, at times, until the calm
	deaf             // ignores the end of its context, at times, until the calm
	killer           // kills the process, for ever
	healing          // kills the process until the calm
	broken           // has an unreadable body
	tempers
)

// The two kinds: units gives a unit back to an account, in one transaction with its entry. mail asks a provider.
const (
	units = "units"
	mail  = "mail"
)

// late says what becomes of a late job of the kind mail.
type late int

const (
	expires late = iota // the worker ends it, and so does the effect
	unsent              // the worker runs it, and the effect ends it, as the public face wants it
	sent                // it is sent
)

// simJob is one job.
type simJob struct {
	name, kind, key string // no key for a broken one
	temper          temper
	due, deadline   time.Time
	unwanted        time.Time // from which its plan drops it; zero is never
	bodies          []string  // one for each message that its sender sends
	times           string    // the part of a body that has due and deadline
	full            bool      // its messages have no room for our attribute
	refused         bool      // the provider refuses it for good
	deadly          time.Time // from which reading its payload kills the worker, as a newer version may, until the calm; zero is never
}

// letter is a message of a sender, by its mark.
type letter struct {
	mark, key, digest string
	job               *simJob
}

type payload struct{ ID, Note string }

func (s *story) drawJobs() {
	r := s.draw
	for i := range 3 + r.IntN(5) {
		j := &simJob{name: fmt.Sprint("job-", i), kind: units, temper: temper(r.IntN(int(tempers))), full: r.IntN(12) == 0, refused: r.IntN(12) == 0}
		if r.IntN(2) == 0 {
			j.temper = []temper{good, shaky}[r.IntN(2)]
		}
		if j.temper != broken && r.IntN(2) == 0 {
			j.kind = mail
		}
		j.key = j.kind + "/" + j.name
		due := bubbleStart
		if r.IntN(2) == 0 {
			due = due.Add(time.Duration(r.IntN(100)) * time.Minute)
			j.due = due
			j.times = fmt.Sprintf(`,"notBefore":"%s"`, due.Format(time.RFC3339))
		}
		if allowed := []int{0, 0, 1, 30}[r.IntN(4)]; allowed > 0 {
			j.deadline = due.Add(time.Duration(allowed) * time.Minute)
			j.times += fmt.Sprintf(`,"deadline":"%s"`, j.deadline.Format(time.RFC3339))
		}
		if r.IntN(6) == 0 {
			j.unwanted = bubbleStart.Add(time.Duration(r.IntN(120)) * time.Minute)
		}
		for range 1 + r.IntN(3)*r.IntN(2) {
			note := ""
			if len(j.bodies) > 0 && r.IntN(4) == 0 {
				note = "another payload"
			}
			body := j.body(note)
			if j.temper == broken {
				body = body[:len(body)-1]
			}
			j.bodies = append(j.bodies, body)
		}
		if j.temper == broken {
			j.key = ""
		}
		s.jobs = append(s.jobs, j)
	}
}

// body is a body that can be read.
func (j *simJob) body(note string) string {
	return fmt.Sprintf(`{"kind":%q,"payload":{"ID":%q,"Note":%q}%s}`, j.kind, j.name, note, j.times)
}

// digest is that of a body's payload, empty if it cannot be read.
func digest(body string) string {
	e, err := job.Decode([]byte(body))
	if err != nil {
		return ""
	}
	digest, err := job.Digest(e.Payload, nil)
	if err != nil {
		panic(err)
	}
	return digest
}

// bubbleStart is when time begins in a bubble.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// sendJobs is what the senders do.
func (s *story) sendJobs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		for i, body := range j.bodies {
			mark := fmt.Sprint(j.name, "-", i)
			m := &message{body: body, group: j.name, attributes: map[string]sqstypes.MessageAttributeValue{
				markName: text(mark), "tenant": text(j.name),
				"blob": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, byte(i)}},
			}}
			if j.full { // every other job can be scheduled, which takes no binary attribute
				for n := range 7 {
					m.attributes[fmt.Sprint("filler-", n)] = text("x")
				}
			} else {
				delete(m.attributes, "blob")
			}
			of := &letter{mark: mark, key: j.key, digest: digest(body), job: j}
			s.letters[mark] = of
			s.put(job.Source, m, 0)
			s.history.Sent = append(s.history.Sent, soak.Sent{Mark: mark, MessageID: m.id, At: s.now(), Content: m.content(), Key: j.key, Digest: of.digest})
		}
	}
}

// kinds are the kinds of a process.
func (l *life) kinds() job.Catalogue {
	byID := func(p payload) (string, []string) { return p.ID, nil }
	policy := map[bool]job.LatePolicy{false: job.RunLate, true: job.ExpireLate}
	reads := func(kind string) func(payload) error {
		return func(p payload) error { return l.reads(l.jobOf(kind + "/" + p.ID)) }
	}
	u := job.Define(job.Definition[payload]{Name: units, Key: byID, Check: reads(units), Late: policy[l.unitsExpire]})
	definition := job.Definition[payload]{Name: mail, Key: byID, Check: reads(mail), Late: policy[l.mailLate == expires]}
	if l.mailLate == unsent {
		definition.ExpiresAt = func(p payload) time.Time { return l.jobOf(mail + "/" + p.ID).deadline }
	}
	m := job.Define(definition)
	store := l.store()
	u.Run = func(ctx context.Context, d job.Delivery) job.Result {
		if res, over := l.temper(ctx, d); over {
			return res
		}
		return l.committed(d, store.Commit(ctx, l.config.Rules.Complete(d, ledger.Done, "returned", l.clock()), returns(1)))
	}
	u.Together = func(d job.Delivery) string {
		if j := l.jobOf(d.Key); j.temper == good {
			return "account"
		}
		return ""
	}
	u.RunBatch = func(ctx context.Context, ds []job.Delivery) []job.Result {
		parts := make([]dynamo.Part, len(ds))
		for i, d := range ds {
			parts[i].Completion = l.config.Rules.Complete(d, ledger.Done, "returned", l.clock())
		}
		results := make([]job.Result, len(ds))
		for i, err := range store.CommitTogether(ctx, parts, func(active []int) []types.TransactWriteItem {
			return []types.TransactWriteItem{returns(len(active))}
		}) {
			results[i] = l.committed(ds[i], err)
		}
		return results
	}
	runner, err := effect.New(effect.Options{
		Stack: stack, Ledger: store, Rules: l.config.Rules, Abilities: l.provider.can, Timeout: callTimeout,
		AttemptLeft: l.config.AttemptLeft(), LeaseSkew: l.config.LeaseSkew, Now: l.clock,
		Random: func() float64 { return float64(l.number(1000, l.name, "lease")) / 1000 },
	})
	if err != nil {
		panic(err)
	}
	m.Run = func(ctx context.Context, d job.Delivery) job.Result {
		if res, over := l.temper(ctx, d); over {
			return res
		}
		j := l.jobOf(d.Key)
		expiry := j.deadline
		if l.mailLate == sent {
			expiry = time.Time{}
		}
		return runner.Run(ctx, d, effect.Call{
			ExpiresAt: expiry,
			Plan: func(context.Context) (string, error) {
				if !j.unwanted.IsZero() && !l.clock().Before(j.unwanted) {
					return "unsubscribed", nil
				}
				return "", nil
			},
			Send:   func(ctx context.Context, key string) (string, error) { return l.sends(ctx, d, key) },
			Lookup: func(ctx context.Context, key string) (string, error) { return l.looksUp(ctx, d, key) },
		})
	}
	return job.NewCatalogue(u, m)
}

// reads is the worker's reading of a job's payload.
func (l *life) reads(j *simJob) error {
	if l.redrives() || j.deadly.IsZero() || time.Now().Before(j.deadly) || l.isCalm() {
		return nil
	}
	l.rest(0, l.name, "reads", j.name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.die("reading " + j.name)
	return errDependency
}

// returns gives n units back. It has no condition, so that the entry's condition alone makes it happen once.
func returns(n int) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(accounts), Key: map[string]types.AttributeValue{"id": dynamo.Text("account")},
		UpdateExpression: aws.String("SET #n = if_not_exists(#n, :zero) + :n"), ExpressionAttributeNames: map[string]string{"#n": "available"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": dynamo.Number(n), ":zero": dynamo.Number(0)},
	}}
}

func (l *life) committed(d job.Delivery, err error) job.Result {
	if err == nil {
		return job.Result{Verdict: job.Committed, Detail: "returned"}
	}
	return ledger.ResultOf(err, d.Token, l.clock())
}

var errDependency = errors.New("dependency down")

// temper is what an attempt does before its effect. over says that it does not come to its effect.
func (l *life) temper(ctx context.Context, d job.Delivery) (res job.Result, over bool) {
	mood := l.number(100, l.name, "mood", d.ReceiptHandle, d.Token)
	calm := l.isCalm()
	angry := mood < 60 && !calm
	l.runs(d)
	t := l.jobOf(d.Key).temper
	if mended := l.isMended(d.Digest); mended && (t == forbidden || t == broken) {
		t = good // that is what it was mended for
	}
	switch {
	case t == killer, t == healing && !calm:
		l.rest(0, l.name, "kills", d.Token) // at a time of its own: others must not begin a call just then
		l.mu.Lock()
		defer l.mu.Unlock()
		l.die(d.Key)
		return job.Result{Err: errDependency}, true
	case t == hopeless, t == shaky && angry:
		class := []job.Class{job.Transient, job.Throttled, job.ClassUnknown}[mood%3]
		return job.Result{Err: &job.Failure{Class: class, RetryAfter: time.Duration(mood) * time.Second, Err: errDependency}}, true
	case t == forbidden:
		return job.Result{Err: &job.Failure{Class: job.Rejected, Err: errDependency}}, true
	case t == panicky && angry:
		panic("panicky")
	case t == hanging && angry:
		<-ctx.Done()
		return job.Result{Err: ctx.Err()}, true
	case t == deaf && angry:
		time.Sleep(time.Duration(mood+1)*time.Second + time.Duration(mood)) // and then it goes on
	}
	return job.Result{}, false
}

const callTimeout = 4 * time.Second

// provider accepts messages under a key.
type provider struct {
	can        effect.Abilities
	accepted   map[string]int
	digests    map[string]string // of the payload of the first request, by key
	last       map[string]time.Time
	travelling map[string]int // requests under way, by key
}

// newProvider draws a provider. Half of those that look up know their settle time. That is drawn from the seed alone, so
// that the rest of a seed's story is the one that it was.
func newProvider(r *rand.Rand, seed uint64) provider {
	p := provider{can: effect.Abilities{Deduplicates: r.IntN(2) == 0, LooksUp: r.IntN(2) == 0}}
	if p.can.Deduplicates || p.can.LooksUp {
		p.can.KeyWindow = []time.Duration{20 * time.Minute, 24 * time.Hour}[r.IntN(2)]
	}
	if p.can.LooksUp && rand.New(rand.NewPCG(seed, 16)).IntN(2) == 0 {
		p.can.SettleTime = longestCall
	}
	return p
}

func (p *provider) clear() {
	p.accepted, p.digests, p.last, p.travelling = map[string]int{}, map[string]string{}, map[string]time.Time{}, map[string]int{}
}

func (p *provider) remembers(key string) bool {
	return p.accepted[key] > 0 && time.Now().Before(p.last[key].Add(p.can.KeyWindow))
}

// accept is called for each request that reaches the provider. The caller holds the lock.
func (s *story) accept(key, digest string) {
	p := &s.provider
	if p.can.Deduplicates && p.remembers(key) {
		s.tell("the provider recognises %s", key)
		return
	}
	if p.accepted[key]++; p.accepted[key] == 1 {
		p.digests[key] = digest
	}
	p.last[key] = time.Now()
	s.tell("the provider accepts %s, %d", key, p.accepted[key])
}

var errLost = &job.Failure{Class: job.Transient, Err: errors.New("no answer")}

// sends makes one request.
func (l *life) sends(ctx context.Context, d job.Delivery, key string) (string, error) {
	what := "send " + d.Token
	l.stall(30*time.Millisecond, what) // also between the claim and its completion
	refused := l.jobOf(d.Key).refused
	l.mu.Lock()
	l.provider.travelling[key]++
	fate := l.number(100, l.name+what+"provider")
	calm := l.calm()
	l.mu.Unlock()
	landed := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.provider.travelling[key]--
	}
	travels := false
	defer func() {
		if !travels {
			landed()
		}
	}()
	switch {
	case calm || fate < 50:
	case fate < 58: // over its limit
		l.rest(0, l.name, what)
		return "", &effect.UnsentError{Err: &job.Failure{Class: job.Throttled, RetryAfter: time.Minute, Err: errors.New("429")}}
	case fate < 66: // a proxy answers for it, which may have passed the request on
		return "", errors.Join(l.request(ctx, what, key, d.Digest, fate%2 == 0 && !refused), errLost)
	case fate < 74: // it hangs
		<-ctx.Done()
		fallthrough
	case fate < 82: // the request arrives when nobody waits for it any more
		travels = true
		l.later.Go(func() {
			defer landed()
			longest := 40
			if settle := l.provider.can.SettleTime; settle > 0 {
				longest = int(settle / time.Second)
			}
			l.rest(time.Duration(l.number(longest, l.name, what, "travels"))*time.Second, l.name, what, "travels")
			l.mu.Lock()
			defer l.mu.Unlock()
			if !refused {
				l.accept(key, d.Digest)
			}
		})
		return "", errLost
	}
	if err := l.request(ctx, what, key, d.Digest, !refused); err != nil {
		return "", errLost
	}
	l.answered(d.Key, what)
	if refused {
		return "", &effect.DeclinedError{Outcome: "refused"}
	}
	return "req-" + key, nil
}

// request is a call that the process may not outlive. If its caller gives up, the request may still be on its way.
func (l *life) request(ctx context.Context, what, key, digest string, arrives bool) error {
	err := l.call(ctx, ofProvider, what, func(bool) {
		if arrives {
			l.accept(key, digest)
		}
	})
	if err != nil {
		l.mu.Lock()
		l.provider.travelling[key]++
		l.mu.Unlock()
		l.later.Go(func() {
			time.Sleep(longestCall)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.provider.travelling[key]--
		})
	}
	return err
}

// answered is when the provider has answered, and its answer is not written yet.
func (l *life) answered(key, what string) {
	l.mu.Lock()
	l.freeze(key, what, l.freezes)
	l.mu.Unlock()
	l.still(what)
}

func (l *life) looksUp(ctx context.Context, d job.Delivery, key string) (string, error) {
	known := false
	if err := l.call(ctx, ofProvider, "look up "+d.Token, func(bool) { known = l.provider.remembers(key) }); err != nil {
		return "", errLost
	}
	l.answered(d.Key, "look up "+d.Token)
	if !known {
		return "", effect.ErrNoRequest
	}
	return "req-" + key, nil
}
