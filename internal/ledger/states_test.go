package ledger

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
)

// change is a transition between two states of the diagram, by a method of Rules.
type change struct{ from, to, by string }

func (c change) String() string { return fmt.Sprintf("%s --> %s : %s", c.from, c.to, c.by) }

// state is an entry's state in the diagram: the final ones are one box.
func state(e Entry) string {
	switch {
	case e.Version == 0:
		return "[*]"
	case e.Status.Final():
		return "final"
	}
	return string(e.Status)
}

// transitions are all changes of an entry's state that the rules allow, found by trying every method on every kind
// of entry that these methods lead to, beginning with the absent one.
func transitions() map[change]bool {
	now := t0
	d := delivery("m1", t0)
	other := d
	other.Token = "token-m2"
	methods := map[string]func(Entry) []Entry{
		"Fail": func(e Entry) (got []Entry) {
			for _, class := range []job.Class{job.Transient, job.Throttled, job.ClassUnknown, job.Invalid, job.Rejected, job.Ambiguous} {
				for _, d := range []job.Delivery{d, other} {
					got = try(got, e)(rules.Fail(e, d, &job.Failure{Class: class, Err: boom.Err}, now, 0))
				}
			}
			return got
		},
		"Isolate": func(e Entry) []Entry { return try(nil, e)(rules.Isolate(e, d, job.Crashed, job.CauseCrash, "x", now)) },
		"Claim": func(e Entry) (got []Entry) {
			for _, until := range []time.Time{now.Add(time.Minute), now} { // the lease lives, or has ended
				got = try(got, e)(rules.Claim(e, d, Lease{Until: until, ProviderKey: "p"}, now))
			}
			return got
		},
		"Release": func(e Entry) []Entry { return try(nil, e)(rules.Release(e, d.Token)) },
		"Postpone": func(e Entry) []Entry {
			return try(nil, e)(rules.Postpone(e, d.Token, now.Add(time.Minute), "x", now))
		},
		"Complete": func(e Entry) (got []Entry) {
			if !e.Accepts(now) {
				return nil
			}
			return try(got, e)(rules.Complete(d, Done, "x", now).Entry, nil)
		},
		"CompleteClaim": func(e Entry) []Entry { return try(nil, e)(rules.CompleteClaim(e, d, Done, "x", "", now)) },
		"Finish":        func(e Entry) []Entry { return try(nil, e)(rules.Finish(e, d, Expired, "x", now)) },
		"Reopen":        func(e Entry) []Entry { return try(nil, e)(rules.Reopen(e, d, now)) },
		"Redrive": func(e Entry) []Entry {
			return try(nil, e)(rules.Redrive(e, d, Redriving{Run: "r", Generation: e.Redrives, Discarded: true}, now))
		},
		"Revoke": func(e Entry) []Entry { return try(nil, e)(rules.Revoke(e, d, "r", now)) },
		"Decide": func(e Entry) (got []Entry) {
			for _, what := range []DecisionKind{Sent, NotSent, Drop} {
				got = try(got, e)(rules.Decide(e, Decision{At: now, By: "ada", What: what, Reason: "x"}))
			}
			return got
		},
		"Discard": func(e Entry) []Entry {
			return try(nil, e)(rules.Discard(e, d, Decision{At: now, By: "ada", Reason: "x"}, now))
		},
		"Cancel": func(e Entry) []Entry {
			return try(nil, e)(rules.Cancel(e, d, Decision{At: now, By: "ada", Reason: "x"}))
		},
		"Schedule": func(e Entry) []Entry { return try(nil, e)(rules.Schedule(e, d, "s", now)) },
		"Contend":  func(e Entry) []Entry { return try(nil, e)(rules.Contend(e, d, now)) },
	}
	found, seen := map[change]bool{}, map[string]bool{}
	for queue := []Entry{{}}; len(queue) > 0; queue = queue[1:] {
		e := queue[0]
		for by, method := range methods {
			for _, after := range method(e) {
				if state(e) != state(after) {
					found[change{state(e), state(after), by}] = true
				}
				// What the rules look at; entries that are alike in it lead to the same changes.
				alike := fmt.Sprint(after.Status, after.LastClass, after.Decided, after.Unresolved, after.Owner, after.Free(now),
					after.Outcome, after.Run, min(after.Redrives, 3), after.RetryAt.After(now), min(after.Attempts-after.BudgetFrom, 3))
				if !seen[alike] {
					seen[alike] = true
					queue = append(queue, after)
				}
			}
		}
	}
	return found
}

// try adds a method's result to got, as a store would return it, if the method did not refuse.
func try(got []Entry, before Entry) func(Entry, error) []Entry {
	return func(after Entry, err error) []Entry {
		if err != nil {
			return got
		}
		after.Version = before.Version + 1
		return append(got, after)
	}
}

// ARCHITECTURE.md draws the states and every change between them.
func TestTheDiagramOfStatesIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, diagram, ok := strings.Cut(string(text), "```mermaid\nstateDiagram-v2\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no diagram of the states")
	}
	diagram, _, _ = strings.Cut(diagram, "```")
	arrow := regexp.MustCompile(`^ *(\S+) --> (\S+) : ([A-Za-z, ]+)$`)
	drawn, named := map[change]bool{}, map[string]bool{}
	for line := range strings.Lines(diagram) {
		line = strings.TrimSuffix(line, "\n")
		if m := regexp.MustCompile(`^ *state "(.*)" as final$`).FindStringSubmatch(line); m != nil {
			for _, s := range strings.Split(m[1], ", ") {
				if !Status(s).Final() {
					t.Errorf("the box of final states names %q, which is none", s)
				}
				named[s] = true
			}
			continue
		}
		m := arrow.FindStringSubmatch(line)
		if m == nil {
			if strings.Contains(line, "-->") {
				t.Errorf("an arrow without methods: %s", line)
			}
			continue
		}
		named[m[1]], named[m[2]] = true, true
		for by := range strings.SplitSeq(m[3], ", ") {
			drawn[change{m[1], m[2], by}] = true
		}
	}
	delete(named, "[*]")
	delete(named, "final")
	statuses := []string{string(Pending), string(Running), string(Isolated), string(Done), string(Expired), string(Terminal)}
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, slices.Sorted(slices.Values(statuses))) {
		t.Errorf("the diagram names the states %q, want %q", got, statuses)
	}
	allowed := transitions()
	for c := range allowed {
		if !drawn[c] {
			t.Errorf("the rules allow %s, which the diagram has not", c)
		}
	}
	for c := range drawn {
		if !allowed[c] {
			t.Errorf("the diagram has %s, which the rules do not allow", c)
		}
	}
}
