package ledger

import (
	"testing"
	"time"

	"acklast/internal/job"
)

func TestArrive(t *testing.T) {
	t.Parallel()
	isolated := stored(Entry{
		Key: "k/1", Status: Isolated, LastClass: job.Transient, Cause: job.CauseAttempts, Digest: "1:aa",
		IsolatedMessageID: "m1", IsolatedFirstID: "m0", IsolatedAt: t0,
	})
	with := func(change func(*Entry)) Entry { e := isolated; change(&e); return e }
	unmarked := with(func(e *Entry) { e.Unmarked = true })
	back := job.Memory{MessageID: "m0", Cause: job.CauseAttempts, At: t0}
	mem := func(change func(*job.Memory)) job.Memory { m := back; change(&m); return m }
	for name, c := range map[string]struct {
		entry  Entry
		id     string
		after  time.Duration
		memory job.Memory
		digest string
		want   Arrival
	}{
		"the message that isolated it":          {isolated, "m1", -time.Minute, job.Memory{}, "", Handover},
		"a copy sent before":                    {isolated, "m2", -time.Millisecond, back, "", Stray},
		"a copy sent in the same millisecond":   {isolated, "m2", 0, back, "", Stray},
		"deferred before, sent after":           {isolated, "m2", time.Second, job.Memory{MessageID: "m0", Contentions: 1}, "", Stray},
		"put back":                              {isolated, "m2", time.Millisecond, back, "", PutBack},
		"put back, its time cut to the ms":      {with(func(e *Entry) { e.IsolatedAt = t0.Add(999) }), "m2", time.Second, back, "", PutBack},
		"a fresh copy":                          {isolated, "m2", time.Second, job.Memory{}, "1:aa", Copy},
		"of an older isolation":                 {isolated, "m2", time.Second, mem(func(m *job.Memory) { m.At = t0.Add(-time.Hour) }), "", Copy},
		"with another message's id":             {isolated, "m2", time.Second, mem(func(m *job.Memory) { m.MessageID = "m9" }), "", Copy},
		"marked as a copy":                      {isolated, "m2", time.Second, mem(func(m *job.Memory) { m.Copy = true }), "", Copy},
		"without room, equal":                   {unmarked, "m2", time.Second, job.Memory{}, "1:aa", PutBack},
		"without room, another payload":         {unmarked, "m2", time.Second, job.Memory{}, "1:bb", Copy},
		"without room, no digest":               {unmarked, "m2", time.Second, job.Memory{}, "", Copy},
		"without room, sent before":             {unmarked, "m2", -time.Second, job.Memory{}, "1:aa", Stray},
		"without room, crashed":                 {with(func(e *Entry) { e.Unmarked, e.LastClass = true, job.Crashed }), "m2", time.Second, job.Memory{}, "1:aa", Copy},
		"ambiguous":                             {with(func(e *Entry) { e.LastClass = job.Ambiguous }), "m2", time.Hour, back, "", Undecided},
		"ambiguous and decided":                 {with(func(e *Entry) { e.LastClass, e.Decided = job.Ambiguous, NotSent }), "m2", time.Hour, back, "", PutBack},
		"a fresh copy of an ambiguous, decided": {with(func(e *Entry) { e.LastClass, e.Decided = job.Ambiguous, NotSent }), "m2", time.Hour, job.Memory{}, "", Copy},
		"last generation":                       {with(func(e *Entry) { e.Redrives = 1 }), "m2", time.Hour, back, "", PutBack},
		"past the generation limit":             {with(func(e *Entry) { e.Redrives = 2 }), "m2", time.Hour, back, "", Exhausted},
	} {
		d := delivery(c.id, t0.Add(c.after))
		d.Memory, d.Digest = c.memory, c.digest
		if got := rules.Arrive(c.entry, d); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
