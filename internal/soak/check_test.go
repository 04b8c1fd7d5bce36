package soak

import (
	"slices"
	"testing"
)

// good is a history that keeps every promise: one hold, one reminder, one job on the DLQ, one that is malformed,
// one that waits for its schedule, and one that was mended.
func good() History {
	content := func(mark, body string) Content {
		return Content{Body: body, Attributes: map[string]string{"mark": "String/" + mark}}
	}
	return History{
		Sent: []Sent{
			{Mark: "1", MessageID: "m1", At: 1, Content: content("1", "hold"), Key: "hold/1", Digest: "d1", Due: 1000},
			{Mark: "2", MessageID: "m2", At: 2, Content: content("2", "reminder"), Key: "reminder/2", Digest: "d2"},
			{Mark: "3", MessageID: "m3", At: 3, Content: content("3", "missing"), Key: "hold/3", Digest: "d3"},
			{Mark: "4", MessageID: "m4", At: 4, Content: content("4", "{")},
			{Mark: "5", MessageID: "m5", At: 5, Content: content("5", "far"), Key: "hold/5", Digest: "d5"},
			{Mark: "6", MessageID: "m6", At: 6, Content: content("6", "[")},
		},
		Mended: []Mended{{Sent: Sent{Mark: "6", At: 30, Content: content("6", "mended"), Key: "hold/6", Digest: "d6"}, Of: "["}},
		Writes: []Write{
			{Key: "hold/1", Began: 10, Ended: 11, At: 950, Request: "r1", Status: "done", Final: true, Attempts: -1},
			{Key: "reminder/2", Began: 12, Ended: 13, Request: "r2", Version: 1, Status: "running", Claims: "w1", Attempts: 0},
			{Key: "reminder/2", Began: 16, Ended: 17, Request: "r3", Version: 2, Claims: "w2", Attempts: 1},
			{Key: "reminder/2", Began: 18, Ended: 19, Request: "r4", Version: 3, Status: "done", Final: true, Completes: "w2", Attempts: -1},
			{Key: "hold/3", Began: 20, Ended: 21, Request: "r5", Version: 1, Status: "isolated", Attempts: 1},
			{Key: "hold/6", Began: 33, Ended: 34, At: 950, Request: "r6", Version: 1, Status: "done", Final: true, Attempts: -1},
		},
		Moves: []Move{
			{Mark: "3", Queue: "dlq", MessageID: "m13", Content: content("3", "missing"), Began: 22, Ended: 23},
			{Mark: "4", Queue: "dlq", MessageID: "m14", Content: content("4", "{"), Began: 22, Ended: 23},
			{Mark: "2", Queue: "recovery", MessageID: "m12", Content: content("2", "reminder"), Began: 4, Ended: 5, Redriven: true},
			{Mark: "6", Queue: "dlq", MessageID: "m26", Content: content("6", "["), Began: 22, Ended: 23},
			{Mark: "6", Queue: "recovery", MessageID: "m36", Content: content("6", "mended"), Began: 31, Ended: 32, Redriven: true},
		},
		Schedules: []Schedule{{Mark: "5", Began: 30, Ended: 31}},
		Deliveries: []Delivery{
			{Mark: "1", MessageID: "m1", Receipt: "h1", Content: content("1", "hold"), Answered: 12, Acknowledged: true},
			{Mark: "2", MessageID: "m2", Receipt: "h2", Content: content("2", "reminder"), Answered: 14},
			{Mark: "2", MessageID: "m2", Receipt: "h3", Content: content("2", "reminder"), Answered: 20, Acknowledged: true},
			{Mark: "3", MessageID: "m3", Receipt: "h4", Content: content("3", "missing"), Answered: 24, Acknowledged: true},
			{Mark: "4", MessageID: "m4", Receipt: "h5", Content: content("4", "{"), Answered: 24, Acknowledged: true},
			{Mark: "5", MessageID: "m5", Receipt: "h6", Content: content("5", "far"), Answered: 32, Acknowledged: true},
			{Mark: "6", MessageID: "m6", Receipt: "h7", Content: content("6", "["), Answered: 24, Acknowledged: true},
			{Mark: "6", MessageID: "m36", Receipt: "h10", Content: content("6", "mended"), Answered: 35, Acknowledged: true},
		},
		Accepted: map[string]int{"p2": 1},
		Entries: map[string]Entry{
			"hold/1":     {Status: "done", Final: true, Digest: "d1"},
			"reminder/2": {Status: "done", Outcome: "sent", Final: true, Digest: "d2", Attempts: 1, ProviderKey: "p2", Run: "run", Redrives: 1},
			"hold/3":     {Status: "isolated", Isolated: true, Digest: "d3", Attempts: 1, IsolatedFirstID: "m3"},
			"hold/5":     {Status: "pending", Digest: "d5", Scheduled: true},
			"hold/6":     {Status: "done", Final: true, Digest: "d6"},
		},
		DLQ: []OnDLQ{
			{Mark: "3", Content: content("3", "missing"), HasMemory: true, FirstID: "m3", Class: "rejected", Cause: "permanent"},
			{Mark: "4", Content: content("4", "{"), HasMemory: true, FirstID: "m4", Class: "invalid", Cause: "permanent"},
		},
		Waiting:   map[string]bool{"5": true},
		Balances:  map[string]Balance{"room": {Capacity: 10, Available: 7, Held: 2, Confirmed: 1}},
		Deletes:   []Delete{{Receipt: "h8", Mark: "1", MessageID: "m1", Began: 50}},
		Thrown:    []Window{{From: 60, Until: 70}},
		Skew:      50,
		Approvals: map[string][]string{"plan": {"bea", "bea"}},
		Runs:      []Run{{ID: "run", Succeeded: 1, Named: []string{"reminder/2"}, Done: true, Total: 1, Endings: 1}},
	}
}

func TestAGoodHistoryIsAccepted(t *testing.T) {
	t.Parallel()
	for _, v := range Check(good()) {
		t.Error(v)
	}
}

// People may end a job, and its request is accepted before their request is served. The entry says that people ended it,
// and nothing of the request.
func TestAJobThatPeopleEndWhileItsRequestTravels(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"discarded", "dropped, decided by hand"} {
		h := good()
		edit(&h, "reminder/2", func(e *Entry) { e.Status, e.Outcome = "terminal", outcome })
		if found := Check(h); len(found) != 1 || found[0].Rule != Once {
			t.Errorf("%s, and nobody asked for it: %v", outcome, found)
		}
		h.Unwanted = map[string]bool{"reminder/2": true}
		for _, v := range Check(h) {
			t.Errorf("%s: %v", outcome, v)
		}
		edit(&h, "reminder/2", func(e *Entry) { e.Outcome = "unsubscribed" })
		if found := Check(h); len(found) != 1 || found[0].Rule != Once {
			t.Errorf("%s, and it ended by itself: %v", outcome, found)
		}
	}
}

// A run removes the copies of a message, and somebody mends the last one: they end with it.
func TestACopyEndsWithTheMendedMessage(t *testing.T) {
	t.Parallel()
	h := good()
	for i := range h.Sent {
		if h.Sent[i].Mark == "6" {
			h.Sent[i].Key, h.Sent[i].Digest = "hold/6", "d0"
		}
	}
	h.Sent = append(h.Sent, Sent{Mark: "7", MessageID: "m7", At: 7, Content: Content{Body: "["}, Key: "hold/6", Digest: "d0"})
	for _, v := range Check(h) {
		t.Error(v)
	}
	h.Sent[len(h.Sent)-1].Digest = "d1"
	if found := Check(h); len(found) != 1 || found[0].Rule != OneEnd {
		t.Errorf("with another payload: %v", found)
	}
	h.Sent = append(h.Sent, Sent{Mark: "8", MessageID: "m8", At: 8, Content: Content{Body: "["}, Key: "hold/6", Digest: "d1"})
	h.DLQ = append(h.DLQ, OnDLQ{Mark: "8", Content: Content{Body: "["}, HasMemory: true, Class: "rejected", Cause: "conflict"})
	for _, v := range Check(h) {
		t.Errorf("with a copy on the DLQ: %v", v)
	}
}

func TestACommitThatAnotherDeliverySawIsACommit(t *testing.T) {
	t.Parallel()
	h := good()
	h.Deliveries[0].Answered = 11 // with the answer to the commit still under way
	if found := Check(h); len(found) != 1 || found[0].Rule != AckLast {
		t.Errorf("without a sight of the final entry: %v", found)
	}
	h.Seen = map[string]Moment{"hold/1": 10}
	for _, v := range Check(h) {
		t.Errorf("with a sight of the final entry: %v", v)
	}
}

func TestEachRuleCanBeBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule Rule
		harm func(*History)
	}{
		"a second commit": {Once, func(h *History) {
			h.Writes = append(h.Writes, Write{Key: "hold/1", Began: 40, Ended: 41, At: 1000, Request: "r9", Status: "done", Final: true, Attempts: -1})
		}},
		"a second acceptance":            {Once, func(h *History) { h.Accepted["p2"] = 2 }},
		"sent without an acceptance":     {Once, func(h *History) { h.Accepted["p2"] = 0 }},
		"an acceptance without an entry": {Once, func(h *History) { h.Accepted["p9"] = 1 }},
		"decided sent, not accepted": {Once, func(h *History) {
			h.Accepted["p2"] = 0
			edit(h, "reminder/2", func(e *Entry) { e.Outcome = "sent, decided by hand" })
		}},
		"expired after an acceptance":      {Once, func(h *History) { edit(h, "reminder/2", func(e *Entry) { e.Status, e.Outcome = "expired", "expired" }) }},
		"dropped after an acceptance":      {Once, func(h *History) { edit(h, "reminder/2", func(e *Entry) { e.Outcome = "unsubscribed" }) }},
		"a message that is nowhere":        {OneEnd, func(h *History) { h.Waiting = nil; delete(h.Entries, "hold/5") }},
		"a malformed message that is lost": {OneEnd, func(h *History) { h.DLQ = h.DLQ[:1] }},
		"a pending job without a message":  {OneEnd, func(h *History) { edit(h, "hold/1", func(e *Entry) { e.Final, e.Status = false, "pending" }) }},
		"another payload that is lost":     {OneEnd, func(h *History) { edit(h, "hold/1", func(e *Entry) { e.Digest = "other" }) }},
		"a message without an isolation":   {Joined, func(h *History) { edit(h, "hold/3", func(e *Entry) { e.Isolated, e.Status = false, "pending" }) }},
		"an isolation without a message":   {Joined, func(h *History) { edit(h, "hold/3", func(e *Entry) { e.IsolatedFirstID = "m99" }) }},
		"units that are gone":              {Units, func(h *History) { h.Balances["room"] = Balance{Capacity: 10, Available: 6, Held: 2, Confirmed: 1} }},
		"attempts that shrink":             {Attempts, func(h *History) { h.Writes[3].Attempts = 0 }},
		"attempts that are forgotten":      {Attempts, func(h *History) { edit(h, "hold/3", func(e *Entry) { e.Attempts = 0 }) }},
		"acknowledged before the commit":   {AckLast, func(h *History) { h.Deliveries[0].Answered = 10 }},
		"acknowledged before the send":     {AckLast, func(h *History) { h.Deliveries[3].Answered = 22 }},
		"deleted before the send":          {AckLast, func(h *History) { h.Deletes = []Delete{{Receipt: "h4", Began: 21}} }},
		"acknowledged without a hand-over": {AckLast, func(h *History) { h.Moves = h.Moves[:1] }},
		"a hand-over of an earlier life":   {AckLast, func(h *History) { h.Sent[2].At = 30; h.Deliveries[3].Answered = 40 }},
		"acknowledged before the schedule": {AckLast, func(h *History) { h.Deliveries[5].Answered = 30 }},
		"an expired owner completes":       {Fenced, func(h *History) { h.Writes[3].Completes = "w1" }},
		"two writes of one version":        {Fenced, func(h *History) { h.Writes[2].Version = 3 }},
		"a delivery with another body":     {Unchanged, func(h *History) { h.Deliveries[1].Body = "x" }},
		"a move that lost an attribute":    {Unchanged, func(h *History) { h.Moves[0].Attributes = nil }},
		"a DLQ message in another group":   {Unchanged, func(h *History) { h.DLQ[0].Group = "g" }},
		"a message that nobody sent":       {Unchanged, func(h *History) { h.DLQ[0].Mark = "9" }},
		"an innocent":                      {Innocent, func(h *History) { h.DLQ[0].Class = "crashed" }},
		"a run that counts too many":       {RunsSay, func(h *History) { h.Runs[0].Succeeded = 2 }},
		"a run that names another job":     {RunsSay, func(h *History) { h.Runs[0].Named = []string{"hold/3"} }},
		"a run without all endings":        {RunsSay, func(h *History) { h.Runs[0].Endings = 0 }},
		"dropped before its time":          {Early, func(h *History) { edit(h, "hold/1", func(e *Entry) { e.Status = "expired" }) }},
		"acknowledged before the sight":    {AckLast, func(h *History) { h.Deliveries[0].Answered = 10; h.Seen = map[string]Moment{"hold/1": 10} }},
		"ended before its time":            {Early, func(h *History) { h.Writes[0].At = 949 }},
		"a second approver":                {Approved, func(h *History) { h.Approvals["plan"] = []string{"bea", "cy"} }},
		"a redrive past the switch":        {Stopped, func(h *History) { h.Thrown = []Window{{From: 1, Until: 10}} }},
		"a message that is not gone":       {RunsSay, func(h *History) { h.Runs[0].Gone = []string{"hold/3"} }},
		"deleted before the commit by a process that died": {AckLast, func(h *History) {
			h.Deletes = []Delete{{Receipt: "h9", Mark: "1", MessageID: "m1", Began: 10}}
		}},
		"a mended body that nobody approved": {Unchanged, func(h *History) { h.Mended = nil }},
		"a mended body before its approval":  {Unchanged, func(h *History) { h.Mended[0].At = 33 }},
		"a mended job that is lost":          {OneEnd, func(h *History) { delete(h.Entries, "hold/6") }},
		"a mended job with another payload":  {OneEnd, func(h *History) { edit(h, "hold/6", func(e *Entry) { e.Digest = "d7" }) }},
		"a mended message that was not sent": {OneEnd, func(h *History) { h.Moves, h.Deliveries = h.Moves[:4], h.Deliveries[:7] }},
		"a mark that was used twice":         {Complete, func(h *History) { h.Sent = append(h.Sent, h.Sent[0]) }},
	} {
		h := good()
		c.harm(&h)
		if !slices.ContainsFunc(Check(h), func(v Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s: the rule %q was not found to be broken: %v", name, c.rule, Check(h))
		}
	}
}

func edit(h *History, key string, change func(*Entry)) {
	e := h.Entries[key]
	change(&e)
	h.Entries[key] = e
}
