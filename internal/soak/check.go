package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Violation is one broken promise.
type Violation struct {
	Rule Rule
	// What names the job, the message or the run, and says what was seen.
	What string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.What }

// Rule names a promise.
type Rule string

// The rules.
const (
	Once      Rule = "each effect happens once"
	OneEnd    Rule = "each job is final, on the DLQ, or waits"
	Joined    Rule = "entries and the DLQ agree"
	Units     Rule = "units add up"
	Attempts  Rule = "attempts only grow"
	AckLast   Rule = "nothing is acknowledged before its commit or its hand-over"
	Fenced    Rule = "only the owner completes"
	Unchanged Rule = "no body and no attribute changes"
	Innocent  Rule = "no innocent job is convicted"
	RunsSay   Rule = "a run says what is there"
	Early     Rule = "no job ends before its time"
	Approved  Rule = "a plan has one approver"
	Stopped   Rule = "the kill switch stops every run"
	Complete  Rule = "the record is complete"
)

// Check returns every broken promise that the history shows.
func Check(h History) []Violation {
	c := &checker{History: h, sent: map[string]Sent{}, mended: map[Form]Sent{}, writes: map[string][]Write{}, moves: map[string][]Move{}, due: map[string]int64{}}
	for _, s := range h.Sent {
		if _, twice := c.sent[s.Mark]; twice || s.Mark == "" {
			c.broken(Complete, "two messages were sent as %q", s.Mark)
		}
		c.sent[s.Mark] = s
		if s.Due > 0 && s.Digest == h.Entries[s.Key].Digest {
			c.due[s.Key] = s.Due
		}
	}
	for _, w := range h.Writes {
		c.writes[w.Key] = append(c.writes[w.Key], w)
	}
	for _, m := range h.Moves {
		c.moves[m.Mark] = append(c.moves[m.Mark], m)
	}
	for _, m := range h.Mended {
		c.mended[m.form()] = m.Sent
	}
	c.unchanged()
	c.acknowledged()
	for _, key := range slices.Sorted(maps.Keys(c.writes)) {
		c.entry(key, c.writes[key])
	}
	for _, key := range slices.Sorted(maps.Keys(h.Accepted)) {
		if n := h.Accepted[key]; n > 1 {
			c.broken(Once, "the provider accepted %d messages under the key %s", n, key)
		}
	}
	c.provider()
	c.ends()
	c.joined()
	for _, id := range slices.Sorted(maps.Keys(h.Balances)) {
		if b := h.Balances[id]; b.Available+b.Held+b.Confirmed != b.Capacity {
			c.broken(Units, "resource %s: %+v", id, b)
		}
	}
	c.runs()
	return c.found
}

type checker struct {
	History
	sent   map[string]Sent
	mended map[Form]Sent
	writes map[string][]Write
	moves  map[string][]Move
	// due has the due times by key.
	due   map[string]int64
	found []Violation
}

func (s Sent) form() Form { return Form{s.Mark, s.Body} }

// of is the message with this mark and body: as it was mended, or else as it was sent.
func (c *checker) of(mark, body string) Sent {
	if s, ok := c.mended[Form{mark, body}]; ok {
		return s
	}
	return c.sent[mark]
}

func (c *checker) broken(r Rule, format string, args ...any) {
	c.found = append(c.found, Violation{r, fmt.Sprintf(format, args...)})
}

// unchanged compares every sight of a message with what was sent under its mark, or mended with an approval.
func (c *checker) unchanged() {
	same := func(where, mark string, got Content) {
		s := c.of(mark, got.Body)
		switch {
		case s.Mark == "":
			c.broken(Unchanged, "%s: nobody sent the message %q", where, mark)
		case got.Body != s.Body:
			c.broken(Unchanged, "%s: the body of %s is %q, but %q was sent", where, mark, got.Body, s.Body)
		case !maps.Equal(got.Attributes, s.Attributes):
			c.broken(Unchanged, "%s: the attributes of %s are %v, but %v were sent", where, mark, got.Attributes, s.Attributes)
		case got.Group != s.Group:
			c.broken(Unchanged, "%s: the group of %s is %q, but %q was sent", where, mark, got.Group, s.Group)
		}
	}
	for _, d := range c.Deliveries {
		same("a delivery", d.Mark, d.Content)
	}
	for _, m := range c.Moves {
		same("a move to "+m.Queue, m.Mark, m.Content)
		if s, ok := c.mended[Form{m.Mark, m.Body}]; ok && m.Ended < s.At {
			c.broken(Unchanged, "a move to %s: the body of %s is %q at %d, but its approval was asked for at %d", m.Queue, m.Mark, m.Body, m.Ended, s.At)
		}
	}
	for _, m := range c.DLQ {
		same("the DLQ", m.Mark, m.Content)
	}
}

// acknowledged checks that each acknowledgement follows the commit of the job, or the confirmed hand-over of that
// message. A hand-over before the message existed was another message's. The commit of another delivery is confirmed
// also by an answer that shows the entry as final.
func (c *checker) acknowledged() {
	created := maps.Clone(c.Created)
	if created == nil {
		created = map[string]Moment{}
	}
	for _, s := range c.Sent {
		created[s.MessageID] = s.At
	}
	for _, m := range c.Moves {
		created[m.MessageID] = m.Ended
	}
	deleted, answered := map[string]Moment{}, map[string]bool{}
	for _, d := range c.Deletes {
		if at, ok := deleted[d.Receipt]; !ok || d.Began < at {
			deleted[d.Receipt] = d.Began
		}
	}
	deliveries := c.Deliveries
	for _, d := range deliveries {
		answered[d.Receipt] = true
	}
	for _, d := range c.Deletes { // a worker may delete a message and die before its answer
		if !answered[d.Receipt] {
			deliveries = append(deliveries, Delivery{Mark: d.Mark, MessageID: d.MessageID, Receipt: d.Receipt, Content: Content{Body: c.sent[d.Mark].Body}})
		}
	}
	scheduled := c.scheduled()
	for _, d := range deliveries {
		at, early := deleted[d.Receipt]
		if !early {
			if !d.Acknowledged {
				continue
			}
			at = d.Answered
		}
		s := c.of(d.Mark, d.Body)
		between := func(began, ended Moment) bool { return began >= created[d.MessageID] && ended < at }
		if slices.ContainsFunc(c.moves[d.Mark], func(m Move) bool { return m.Body == d.Body && between(m.Began, m.Ended) }) ||
			slices.ContainsFunc(scheduled[s.job()], func(s Schedule) bool { return between(s.Began, s.Ended) }) {
			continue
		}
		seen, ok := c.Seen[s.Key]
		committed := ok && seen < at || slices.ContainsFunc(c.writes[s.Key], func(w Write) bool { return w.Final && w.Ended < at })
		if committed && s.Digest == c.Entries[s.Key].Digest {
			continue
		}
		c.broken(AckLast, "message %s of %s (%s) was acknowledged at %d without a commit and without a hand-over", d.MessageID, d.Mark, s.Key, at)
	}
}

// jobOf is a job with a payload. Copies of it meet one schedule, which has the message of the first.
type jobOf struct{ key, digest string }

func (s Sent) job() jobOf { return jobOf{s.Key, s.Digest} }

// scheduled returns the schedules of each job.
func (c *checker) scheduled() map[jobOf][]Schedule {
	of := map[jobOf][]Schedule{}
	for _, s := range c.Schedules {
		of[c.of(s.Mark, s.Body).job()] = append(of[c.of(s.Mark, s.Body).job()], s)
	}
	return of
}

// entry checks the writes of one entry.
func (c *checker) entry(key string, writes []Write) {
	finals := map[string]bool{}
	for _, w := range writes {
		if w.Final {
			finals[w.Request] = true
			if due := c.due[key]; w.At+c.Skew < due {
				c.broken(Early, "%s was ended %d ms before its time", key, due-w.At)
			}
		}
	}
	if len(finals) > 1 {
		c.broken(Once, "%s was ended by %d writes", key, len(finals))
	}
	inOrder := slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return w.Version == 0 })
	slices.SortStableFunc(inOrder, func(a, b Write) int { return cmp.Compare(a.Version, b.Version) })
	attempts, owner := 0, ""
	for i, w := range inOrder {
		if i > 0 && w.Version == inOrder[i-1].Version && w.Request != inOrder[i-1].Request {
			c.broken(Fenced, "%s: two writes made version %d", key, w.Version)
		}
		if w.Attempts >= 0 {
			if w.Attempts < attempts {
				c.broken(Attempts, "%s: from %d to %d at version %d", key, attempts, w.Attempts, w.Version)
			}
			attempts = w.Attempts
		}
		if w.Claims != "" {
			owner = w.Claims
		}
		if w.Completes != "" && w.Completes != owner {
			c.broken(Fenced, "%s: %s completed version %d, but %s owned it", key, w.Completes, w.Version, owner)
		}
	}
	if e, ok := c.Entries[key]; ok && e.Attempts < attempts {
		c.broken(Attempts, "%s: the entry has %d, but %d were written", key, e.Attempts, attempts)
	}
}

// provider checks that the entries of effects say what the provider has.
func (c *checker) provider() {
	keys := map[string]bool{}
	for key, e := range c.Entries {
		if e.ProviderKey == "" {
			continue
		}
		keys[e.ProviderKey] = true
		switch n := c.Accepted[e.ProviderKey]; {
		case e.Final && strings.HasPrefix(e.Outcome, "sent") && n != 1: // also if people decided that: they say the truth
			c.broken(Once, "%s is %s, but the provider accepted %d", key, e.Outcome, n)
		case c.Unwanted[key] && (e.Outcome == "discarded" || e.Outcome == "dropped, decided by hand"):
			// The request was accepted after people had asked, and these outcomes say nothing about it.
		case e.Final && !strings.HasPrefix(e.Outcome, "sent") && n > 0:
			c.broken(Once, "%s ended as %s, but the provider accepted %d", key, e.Outcome, n)
		}
	}
	for key := range c.Accepted {
		if !keys[key] {
			c.broken(Once, "the provider accepted a message under %s, which no entry has", key)
		}
	}
}

// ends checks that every message led somewhere. A message that was sent on with a mended body led to that one, and so did its
// copies. If another message of the job was mended, a run may have removed copies before, and one of them is on the DLQ.
func (c *checker) ends() {
	scheduled := c.scheduled()
	seen, onDLQ, replaced, copied := map[Form]bool{}, map[Form]bool{}, map[Form]bool{}, map[jobOf]bool{}
	for _, d := range c.Deliveries {
		seen[Form{d.Mark, d.Body}] = true
	}
	for _, m := range c.Moves {
		seen[Form{m.Mark, m.Body}] = true
	}
	jobs, renewed := map[jobOf]bool{}, map[string]bool{}
	for _, m := range c.DLQ {
		onDLQ[Form{m.Mark, m.Body}] = true
		jobs[c.of(m.Mark, m.Body).job()] = true
	}
	all := slices.Clone(c.Sent)
	for _, m := range c.Mended {
		if seen[m.form()] {
			all = append(all, m.Sent)
			replaced[Form{m.Mark, m.Of}] = true
			renewed[m.Key] = true
			copied[c.of(m.Mark, m.Of).job()] = true
		}
	}
	for _, s := range all {
		e, ok := c.Entries[s.Key]
		// A copy that met a schedule ends with the schedule's message.
		ended := func(with func(Form) bool) bool {
			return with(s.form()) || s.Key != "" && slices.ContainsFunc(scheduled[s.job()], func(met Schedule) bool { return with(c.of(met.Mark, met.Body).form()) })
		}
		switch {
		case ended(func(f Form) bool { return onDLQ[f] }):
		case ended(func(f Form) bool { return slices.Contains(c.Discarded, f) }): // as people wanted
		case replaced[s.form()], s.Key != "" && copied[s.job()]:
		case renewed[s.Key] && jobs[s.job()]:
		case c.Waiting[s.Mark] && !e.Final:
		case s.Key == "" || !ok:
			c.broken(OneEnd, "message %s (%q) is nowhere", s.Mark, s.Key)
		case e.Digest != "" && s.Digest != e.Digest:
			c.broken(OneEnd, "message %s has another payload than %s and is not on the DLQ", s.Mark, s.Key)
		case e.Status == "expired" && !s.MayExpire:
			c.broken(Early, "%s of message %s ended as expired", s.Key, s.Mark)
		case e.Final, e.Isolated, e.Scheduled:
		default:
			c.broken(OneEnd, "message %s is gone, and %s is %s", s.Mark, s.Key, e.Status)
		}
	}
}

// joined checks the DLQ against the entries, and the entries against the DLQ.
func (c *checker) joined() {
	isolations := map[string]bool{}
	for _, m := range c.DLQ {
		s := c.of(m.Mark, m.Body)
		if m.Class == "crashed" && !s.Poison {
			c.broken(Innocent, "message %s of %s is on the DLQ as crashed", m.Mark, s.Key)
		}
		e, ok := c.Entries[s.Key]
		if ok && (m.FirstID == e.IsolatedFirstID || !m.HasMemory && e.Unmarked) {
			isolations[s.Key] = true
		}
		ofItsOwn := s.Key == "" || m.Cause == "conflict" || m.Class == "crashed" || !m.HasMemory || m.Copy
		if !ofItsOwn && !e.Isolated && e.Redrives == 0 && !e.Decided {
			c.broken(Joined, "message %s is on the DLQ (%s, %s), but %s is %q", m.Mark, m.Class, m.Cause, s.Key, e.Status)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Entries)) {
		if c.Entries[key].Isolated && !isolations[key] {
			c.broken(Joined, "%s is isolated, but its message is not on the DLQ", key)
		}
	}
}

func (c *checker) runs() {
	for _, plan := range slices.Sorted(maps.Keys(c.Approvals)) {
		if names := slices.Compact(slices.Sorted(slices.Values(c.Approvals[plan]))); len(names) > 1 {
			c.broken(Approved, "plan %s has %v", plan, names)
		}
	}
	removed := map[string]bool{}
	for _, mark := range c.Removed {
		removed[c.sent[mark].Key] = true
		for form, s := range c.mended {
			removed[s.Key] = removed[s.Key] || form.Mark == mark
		}
	}
	for _, m := range c.Moves {
		if !m.Redriven {
			continue
		}
		for _, w := range c.Thrown {
			if m.Began > w.From && m.Began < w.Until {
				c.broken(Stopped, "message %s was redriven at %d, and the switch was on from %d to %d", m.Mark, m.Began, w.From, w.Until)
			}
		}
	}
	final := map[string]int{}
	for _, e := range c.Entries {
		if e.Run != "" && e.Final {
			final[e.Run]++
		}
	}
	for _, r := range c.Runs {
		if r.Succeeded > final[r.ID] {
			c.broken(RunsSay, "run %s says that %d succeeded, but %d jobs of it are final", r.ID, r.Succeeded, final[r.ID])
		}
		if r.Done && r.Endings != r.Total {
			c.broken(RunsSay, "run %s is done with %d endings of %d", r.ID, r.Endings, r.Total)
		}
		for _, key := range r.Gone {
			if !removed[key] {
				c.broken(RunsSay, "run %s says that the message of %s is gone, and nothing took it from the DLQ", r.ID, key)
			}
		}
		for _, key := range r.Named {
			if e := c.Entries[key]; !e.Final {
				c.broken(RunsSay, "run %s says that %s succeeded, but it is %q", r.ID, key, e.Status)
			}
		}
	}
}
