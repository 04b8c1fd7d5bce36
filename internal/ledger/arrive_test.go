package ledger

import (
	"testing"
	"time"

	"acklast/internal/job"
)

// A copy may have decided to be retried or deferred before the isolation, and be sent after it. Whoever
// puts a job back takes it from the DLQ, where our memory tells a cause.
func TestACopyThatWasOvertakenByTheIsolationIsNotPutBack(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	e := Entry{Key: "k", Version: 2, Status: Isolated, LastClass: job.Transient, Cause: job.CauseAttempts, IsolatedMessageID: "m1", IsolatedAt: at}
	for name, tt := range map[string]struct {
		memory job.Memory
		want   Arrival
	}{
		"deferred meanwhile":       {job.Memory{MessageID: "m0", Hops: 1}, Stray},
		"from the DLQ":             {job.Memory{MessageID: "m0", Cause: job.CauseAttempts}, PutBack},
		"from the DLQ, without it": {job.Memory{}, PutBack},
	} {
		d := job.Delivery{Message: job.Message{ID: "m2", SentAt: at.Add(time.Second), Memory: tt.memory}}
		if got := (Rules{MaxRedrives: 3}).Arrive(e, d); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
