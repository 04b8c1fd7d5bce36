package ledger

import (
	"time"

	"acklast/internal/job"
)

// ConvictAt is how many counting strikes convict a delivery.
const ConvictAt = 2

// Strikes are the invocations that began with a message and did not come back, as far as anybody
// knows. They are kept under the message's id, since what kills a process may do so before there is a
// key.
type Strikes struct {
	MessageID string
	// Ends are the times at which those invocations end at the latest.
	Ends []time.Time
	// Key, Subject and Kind are the job's, once a delivery got so far as to read them.
	Key, Subject, Kind string
	// Version counts the writes.
	Version int64
}

// Counting returns how many strikes count: those whose invocation cannot be running any more, with
// clocks that differ by up to skew.
func (s Strikes) Counting(now time.Time, skew time.Duration) int {
	n := 0
	for _, end := range s.Ends {
		if end.Add(skew).Before(now) {
			n++
		}
	}
	return n
}

// Convict isolates a job whose deliveries kill the process. The claim of a process that died goes with
// it, and its unresolved mark stays. While a lease lives, or a final or isolated entry says otherwise,
// its errors are those of Claim.
func (r Rules) Convict(e Entry, d job.Delivery, reason string, now time.Time) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Isolated:
		return e, ErrIsolated
	case e.Status == Running && !e.Free(now):
		return e, &NotYetError{Until: e.LeaseUntil}
	}
	e = e.Open(d).release()
	e.LastClass, e.LastError = job.Crashed, job.SafeText(reason)
	return e.isolate(d, job.CauseCrash, now), nil
}

// Hop counts a deferral whose message cannot carry the count itself. It touches nobody's claim.
func (r Rules) Hop(e Entry, d job.Delivery) (Entry, error) {
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Isolated:
		return e, ErrIsolated
	}
	e = e.Open(d)
	e.Hops = max(e.Hops, d.Memory.Hops) + 1
	return e, nil
}
