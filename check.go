package acklast

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/memdb"
	"acklast/internal/topology"
)

// T is the part of a *testing.T that CheckKind uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckOptions are the conditions under which CheckKind runs a kind's jobs. All fields may be left zero.
type CheckOptions struct {
	// Seed writes the records that the samples need, such as a hold that is due. It is called many times, each
	// time on empty tables; use s.DynamoDB, s.Table and s.Now. It must also reset a fake provider.
	Seed func(ctx context.Context, s Services) error
	// Now is the time of the deliveries. By default it is a time at which the sample may run: its notBefore,
	// or a minute before its deadline, or an hour before its payload's expiry, or else the time of the test.
	Now time.Time
	// Getenv gives the kind its environment. By default every variable is empty.
	Getenv func(string) string
	// Effects counts the effects outside the database so far, such as the requests that a fake provider
	// accepted. Nil means that the kind has none.
	Effects func() int
	// Overwrites names the kind's own tables in which a commit may overwrite an attribute without a
	// condition, for instance a time of the last change.
	Overwrites []string
	// Samples are jobs beside the kind's own samples.
	Samples []Sample
}

// CheckKind tests a kind's promises to the worker, in memory: a real worker runs the kind's samples on a
// DynamoDB that needs no port and no other process. Call it from a test of your own:
//
//	func TestKind(t *testing.T) { acklast.CheckKind(t, shop.Kind(), acklast.CheckOptions{Seed: seed}) }
//
// It checks for every sample that
//
//   - it is readable. Its key is the same each time, whatever the order of its fields and the values of its
//     volatile ones, and depends on at least one field;
//   - one delivery commits it, and a Run that returns nil has committed;
//   - the tables and the effects outside are the same as after one delivery if it is delivered twice, or many
//     times at once, or if an answer to any of its calls is lost, or a table throttles any of its calls;
//   - delivered in one batch with the other samples, the tables are the same as after separate deliveries;
//   - a copy with a changed payload, but the same key, changes nothing after the job has ended;
//   - past its deadline it follows the kind's late policy;
//   - no commit overwrites an attribute without a condition, and nothing is written outside a commit after the
//     job has ended;
//   - the kind's grants allow every call to its own tables.
//
// A value that differs between two runs in the same situation, such as a random id or the time of a change, is
// not compared. CheckKind cannot know what your effect should be: test that with Kind.Start and Try.
func CheckKind(t T, k Kind, o CheckOptions) {
	t.Helper()
	if k.start == nil {
		t.Errorf("%v", errNotDefined)
		return
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	if o.Effects == nil {
		o.Effects = func() int { return 0 }
	}
	samples := slices.Concat(k.kind.Samples, o.Samples)
	if len(samples) == 0 {
		t.Errorf("kind %s has no sample: CheckKind delivers samples, give its Definition one", k.kind.Name)
		return
	}
	ctx := context.Background()
	w, err := newWorld(ctx, k, o)
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	var checks []*check
	for _, s := range samples {
		c := &check{t: t, kind: k.kind, options: o, world: w, sample: s}
		t.Helper()
		if !c.read() {
			continue
		}
		if !c.keys() {
			continue // the later checks would only report the same mistake again
		}
		if c.deliveries(ctx) {
			checks = append(checks, c)
		}
		c.keys() // time has passed
	}
	inOneBatch(ctx, checks)
}

// inOneBatch delivers all samples in one batch. The tables have to be the same as after separate deliveries.
func inOneBatch(ctx context.Context, checks []*check) {
	if len(checks) < 2 {
		return
	}
	c := *checks[0]
	c.t.Helper()
	c.sample.Name = "of all in one batch"
	c.effects = 0
	var now time.Time
	for _, other := range checks {
		c.effects += other.effects
		if other.now.After(now) {
			now = other.now
		}
	}
	run := func(now time.Time, deliver func() error) bool {
		c.t.Helper()
		if !c.begin(ctx, now) {
			return false
		}
		if err := deliver(); err != nil {
			c.errorf("%v", err)
			return false
		}
		return true
	}
	oneByOne := func() error {
		for _, other := range checks {
			if _, err := c.world.settle(ctx, c.world.message(other.body)); err != nil {
				return err
			}
		}
		return nil
	}
	if !run(now.Add(time.Second), oneByOne) {
		return
	}
	c.again = c.world.state()
	if !run(now, oneByOne) {
		return
	}
	c.first = c.world.state()
	if run(now, func() error {
		bodies := make([]string, len(checks))
		messages := make([]job.Message, len(checks))
		for i, other := range checks {
			bodies[i], messages[i] = other.body, c.world.message(other.body)
		}
		if err := c.world.runBatches(ctx, bodies); err != nil {
			return err
		}
		_, err := c.world.settle(ctx, messages...) // for every job that has not ended yet
		return err
	}) {
		c.asOnce("delivered together", true)
	}
}

// check is CheckKind for one sample.
type check struct {
	t       T
	kind    job.Kind
	options CheckOptions
	world   *world
	sample  Sample

	decoded job.Decoded
	// body is the sample's body without a deadline, now the time of its delivery, first the tables after one
	// delivery.
	body  string
	now   time.Time
	first state
	// again is the same as first, from a second run. Values that differ between the two are not compared.
	again state
	// calls is the number of calls of one delivery, effects the number of its effects outside.
	calls, effects int
	// effects0 is the number of effects before the present deliveries.
	effects0 int
}

func (c *check) errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("kind %s, sample %s: %s", c.kind.Name, c.sample.Name, fmt.Sprintf(format, args...))
}

// read reads the sample and chooses the time of its deliveries.
func (c *check) read() bool {
	c.t.Helper()
	decoded, err := job.NewCatalogue(c.kind).Read(c.sample.Body)
	if err != nil {
		c.errorf("it is not readable: %v", err)
		return false
	}
	c.decoded = decoded
	switch e := decoded.Envelope; {
	case !c.options.Now.IsZero():
		c.now = c.options.Now
	case !e.NotBefore.IsZero():
		c.now = e.NotBefore
	case !e.Deadline.IsZero():
		c.now = e.Deadline.Add(-time.Minute)
	case !decoded.ExpiresAt.IsZero():
		c.now = decoded.ExpiresAt.Add(-time.Hour)
	default:
		c.now = time.Now()
	}
	c.now = c.now.UTC().Truncate(time.Millisecond)
	// Faults take time, so a deadline could pass during them. A later check delivers the job past its deadline.
	undated := decoded.Envelope
	undated.Deadline = time.Time{}
	c.body = withPayload(undated, undated.Payload)
	return true
}

// deliveries runs the sample in every way. It returns false when not even one delivery went well.
func (c *check) deliveries(ctx context.Context) (ok bool) {
	c.t.Helper()
	// The second run is a second later, so that times differ between the two and are not compared.
	if c.again, ok = c.once(ctx, c.now.Add(time.Second)); !ok {
		return false
	}
	if c.first, ok = c.once(ctx, c.now); !ok {
		return false
	}
	c.twice(ctx)
	c.changed(ctx)
	c.atOnce(ctx)
	c.late(ctx)
	for call := range c.calls {
		number := call + 1
		c.faulted(ctx, fmt.Sprintf("the answer to its call %d is lost once", number), func(n int) lineFault {
			if n == call {
				return loseAnswer
			}
			return noFault
		})
		c.faulted(ctx, fmt.Sprintf("every answer is lost from its call %d on", number), func(n int) lineFault {
			if n >= call {
				return loseAnswer
			}
			return noFault
		})
		c.faulted(ctx, fmt.Sprintf("the tables throttle its call %d", number), func(n int) lineFault {
			if n >= call && n < call+sdkAttempts {
				return throttle
			}
			return noFault
		})
		c.faulted(ctx, fmt.Sprintf("the tables throttle from its call %d on", number), func(n int) lineFault {
			if n >= call {
				return throttle
			}
			return noFault
		})
	}
	return true
}

// begin resets and seeds the tables.
func (c *check) begin(ctx context.Context, now time.Time) (ok bool) {
	c.t.Helper()
	if err := c.world.reset(ctx, now, c.options.Seed); err != nil {
		c.errorf("%v", err)
		return false
	}
	c.effects0 = c.options.Effects()
	return true
}

// once delivers the job once and returns the tables afterwards.
func (c *check) once(ctx context.Context, now time.Time) (state, bool) {
	c.t.Helper()
	if !c.begin(ctx, now) {
		return nil, false
	}
	c.world.line.set(nil)
	d := c.world.deliver(ctx, c.world.message(c.body))[0]
	c.calls, c.effects = c.world.line.made(), c.options.Effects()-c.effects0
	if d.outcome != job.Acknowledged {
		c.errorf("one delivery is %s and not acknowledged: %s. Seed the records that the job needs, or mend Run", d.outcome, d.err)
		return nil, false
	}
	if d.duplicate {
		c.errorf("the first delivery finds the job ended: does Seed write into the ledger?")
		return nil, false
	}
	if c.effects > 1 {
		c.errorf("one delivery has %d effects outside the database", c.effects)
	}
	c.granted(c.world.db.Calls())
	return c.world.state(), true
}

// twice delivers the job again after it has ended.
func (c *check) twice(ctx context.Context) {
	c.t.Helper()
	d := c.world.deliver(ctx, c.world.message(c.body))[0]
	if d.outcome != job.Acknowledged || !d.duplicate {
		c.errorf("the second delivery is %s, want acknowledged as a duplicate: %s", d.outcome, d.err)
	}
	c.untouched("a second delivery")
}

// changed delivers copies with another payload, and the key of a job that has ended.
func (c *check) changed(ctx context.Context) {
	c.t.Helper()
	for _, v := range variations(c.decoded.Envelope.Payload) {
		body := withPayload(c.decoded.Envelope, v.payload)
		if d, err := job.NewCatalogue(c.kind).Read(body); err == nil && d.Key == c.decoded.Key {
			c.world.deliver(ctx, c.world.message(body))
			c.untouched("a copy with another " + v.field)
		}
	}
}

// untouched checks that the last delivery, of a job that had ended, had no effect.
func (c *check) untouched(what string) {
	c.t.Helper()
	for _, call := range c.world.db.Calls() {
		if call.Wrote && c.own(call.Table) {
			c.errorf("%s writes %s %q with %s, although the job has ended: write only in Commit", what, call.Table, call.Key, call.Action)
		}
	}
	if n := c.options.Effects() - c.effects0; n != c.effects {
		c.errorf("after %s there are %d effects outside the database, want %d: run them as an Effect", what, n, c.effects)
		c.effects0 += n - c.effects // report it once
	}
}

// many is how many deliveries are made at once; one batch of SQS has as many.
const many = 10

// atOnce delivers the job many times at once.
func (c *check) atOnce(ctx context.Context) {
	c.t.Helper()
	if !c.begin(ctx, c.now) {
		return
	}
	messages := make([]job.Message, many)
	for i := range messages {
		messages[i] = c.world.message(c.body)
	}
	all, err := c.world.settle(ctx, messages...)
	if err != nil {
		c.errorf("delivered %d times at once, %v", many, err)
	}
	committed := 0
	for _, d := range all {
		if d.outcome == job.Acknowledged && !d.duplicate {
			committed++
		}
	}
	if committed != 1 {
		c.errorf("delivered %d times at once, it is committed %d times, want once", many, committed)
	}
	c.asOnce(fmt.Sprintf("delivered %d times at once", many), true)
}

// faulted delivers the job while a fault is active, and again until the job has ended.
func (c *check) faulted(ctx context.Context, what string, fault func(call int) lineFault) {
	c.t.Helper()
	if !c.begin(ctx, c.now) {
		return
	}
	c.world.line.set(fault)
	all, err := c.world.settle(ctx, c.world.message(c.body))
	if err != nil {
		c.errorf("when %s, %v", what, err)
		return
	}
	if slices.ContainsFunc(all, func(d delivered) bool { return strings.Contains(d.err, errNoCommit.Error()) }) {
		c.errorf("when %s, %v: return the error of Commit", what, errNoCommit)
	}
	e, err := c.world.entry(ctx, c.decoded.Key)
	switch {
	case err != nil:
		c.errorf("when %s, its entry is not readable: %v", what, err)
	case e.LastClass == job.Ambiguous:
		// A person decides. The effect must not have happened twice.
		c.asOnce("when "+what, false)
	case !e.Status.Final():
		c.errorf("when %s, it ends as %s: %s. Return the errors of Commit and of the tables as they are", what, e.Status, all[len(all)-1].err)
	default:
		c.asOnce("when "+what, true)
	}
}

// asOnce checks that the tables and the effects outside are the same as after one delivery. Unless known is
// set, the effect outside may be missing.
func (c *check) asOnce(what string, known bool) {
	c.t.Helper()
	for _, d := range c.first.differences(c.again, c.world.state()) {
		c.errorf("%s, %s", what, d)
	}
	if n := c.options.Effects() - c.effects0; n > c.effects || known && n != c.effects {
		c.errorf("%s, it has %d effects outside the database, want %d: run them as an Effect", what, n, c.effects)
	}
	c.granted(c.world.db.Calls())
}

// late delivers the job past its deadline.
func (c *check) late(ctx context.Context) {
	c.t.Helper()
	e := c.decoded.Envelope
	e.Deadline = c.now
	if e.NotBefore.After(e.Deadline) {
		e.NotBefore = e.Deadline
	}
	if !c.begin(ctx, c.now) {
		return
	}
	before := c.world.state()
	c.world.at(c.now.Add(time.Second))
	if _, err := c.world.settle(ctx, c.world.message(withPayload(e, e.Payload))); err != nil {
		c.errorf("past its deadline, %v", err)
		return
	}
	entry, err := c.world.entry(ctx, c.decoded.Key)
	switch {
	case err != nil:
		c.errorf("past its deadline, its entry is not readable: %v", err)
	case c.kind.Late == ExpireLate && entry.Status != ledger.Expired:
		c.errorf("past its deadline it is %s, although its late policy is ExpireLate", entry.Status)
	case c.kind.Late == ExpireLate:
		if !reflect.DeepEqual(before, c.world.state()) || c.options.Effects() != c.effects0 {
			c.errorf("past its deadline it has an effect, although its late policy is ExpireLate")
		}
	case !entry.Status.Final():
		c.errorf("past its deadline it is %s, although its late policy is RunLate: %s", entry.Status, entry.LastError)
	case c.decoded.ExpiresAt.IsZero():
		c.asOnce("past its deadline, although its late policy is RunLate", true)
	}
}

// own says whether a table belongs to the kind.
func (c *check) own(physical string) bool {
	return slices.ContainsFunc(c.kind.Tables, func(t Table) bool { return c.world.services.Table(t.Name) == physical })
}

// granted checks the calls to the kind's own tables against its grants and its permissions to overwrite.
func (c *check) granted(calls []memdb.Call) {
	c.t.Helper()
	var grants []Grant
	if c.kind.Grants != nil {
		var err error
		if grants, err = c.kind.Grants(c.options.Getenv); err != nil {
			c.errorf("its grants: %v", err)
			return
		}
	}
	told := map[string]bool{}
	for _, call := range calls {
		if !c.own(call.Table) {
			continue
		}
		name := strings.TrimPrefix(call.Table, topology.NamesOf(checkStack).Table(""))
		if !grantedBy(grants, name, call.Action) && !told[name+call.Action] {
			told[name+call.Action] = true
			c.errorf("it calls %s on table %s, which its grants do not allow", call.Action, name)
		}
		if call.Overwrote && !slices.Contains(c.options.Overwrites, name) && !told[name] {
			told[name] = true
			c.errorf("it overwrites %s %q with %s on no condition: what others changed meanwhile is lost. Add a condition, or name the table in Overwrites",
				name, call.Key, call.Action)
		}
	}
}

func grantedBy(grants []Grant, table, action string) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool {
		return g.Table == table && slices.ContainsFunc(g.Actions, func(pattern string) bool {
			ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(action))
			return ok && err == nil
		})
	})
}
