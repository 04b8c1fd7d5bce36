package job

import (
	"testing"
	"time"
)

func TestClockOfAReopenedJob(t *testing.T) {
	sent := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	ahead := sent.Add(time.Hour)
	for name, c := range map[string]struct {
		d             Delivery
		due, deadline time.Time
	}{
		"never reopened": {
			Delivery{Message: Message{SentAt: sent}, Envelope: Envelope{Deadline: ahead}}, sent, ahead,
		},
		"reopened a day later": {
			Delivery{Message: Message{SentAt: sent, Memory: Memory{Redrives: 1, Opened: sent.AddDate(0, 0, 1)}}, Envelope: Envelope{Deadline: ahead}},
			sent.AddDate(0, 0, 1), ahead.AddDate(0, 0, 1),
		},
		"without a deadline": {
			Delivery{Message: Message{SentAt: sent, Memory: Memory{Redrives: 1, Opened: ahead}}}, ahead, time.Time{},
		},
		"reopened before it is due": {
			Delivery{Message: Message{SentAt: sent, Memory: Memory{Redrives: 1, Opened: sent.Add(time.Minute)}}, Envelope: Envelope{NotBefore: ahead}},
			ahead, time.Time{},
		},
		"by a version that does not say when": {
			Delivery{Message: Message{SentAt: sent, Memory: Memory{Redrives: 1}}, Envelope: Envelope{Deadline: ahead}}, sent, ahead,
		},
	} {
		due, deadline := c.d.Clock()
		if !due.Equal(c.due) {
			t.Errorf("%s: due %v, want %v", name, due, c.due)
		}
		if !deadline.Equal(c.deadline) {
			t.Errorf("%s: deadline %v, want %v", name, deadline, c.deadline)
		}
	}
}
