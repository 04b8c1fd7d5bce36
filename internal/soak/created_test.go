package soak

import "testing"

// A hand-over counts for a message only if it began after the message came to be, also for one that people put back.
func TestAHandOverBeforeTheMessageIsAnothers(t *testing.T) {
	h := History{
		Sent:       []Sent{{Mark: "a", MessageID: "m1", At: 1}},
		Moves:      []Move{{Mark: "a", Queue: "dlq", MessageID: "m2", Began: 10, Ended: 11}},
		Deliveries: []Delivery{{Mark: "a", MessageID: "m3", Receipt: "r", Answered: 60, Acknowledged: true}},
		DLQ:        []OnDLQ{{Mark: "a"}},
	}
	if found := Check(h); len(found) > 0 {
		t.Errorf("without the time of the message: %v", found)
	}
	h.Created = map[string]Moment{"m3": 50}
	if found := Check(h); len(found) != 1 || found[0].Rule != AckLast {
		t.Errorf("with a message that is younger than the hand-over: %v", found)
	}
}

// Copies of a job meet one schedule, which has the first one's message: the second one ends with that message.
func TestACopyEndsWithTheScheduleThatItMet(t *testing.T) {
	h := History{
		Sent: []Sent{{Mark: "a", MessageID: "m1", At: 1, Key: "k", Digest: "d"}, {Mark: "b", MessageID: "m2", At: 2, Key: "k", Digest: "d"}},
		Deliveries: []Delivery{
			{Mark: "a", MessageID: "m1", Receipt: "r1", Answered: 20, Acknowledged: true},
			{Mark: "b", MessageID: "m2", Receipt: "r2", Answered: 21, Acknowledged: true},
		},
		Schedules: []Schedule{{Mark: "a", Began: 10, Ended: 11}},
		Entries:   map[string]Entry{"k": {Status: "pending", Digest: "d"}},
		DLQ:       []OnDLQ{{Mark: "a", HasMemory: true, Class: "transient", Cause: "schedule", Copy: true}},
	}
	if found := Check(h); len(found) > 0 {
		t.Errorf("broken: %v", found)
	}
	h.DLQ, h.Discarded = nil, []Form{{Mark: "a"}}
	if found := Check(h); len(found) > 0 {
		t.Errorf("broken, when people discarded that message: %v", found)
	}
	h.Sent[1].Digest = "another"
	if found := Check(h); len(found) == 0 {
		t.Error("a message with another payload is not in that schedule, and nothing is broken")
	}
}
