package ledger

import (
	"time"

	"acklast/internal/job"
)

// ConvictAt is how many counting strikes convict a delivery.
const ConvictAt = 2

// Strikes are the invocations that began to run a message's job and are not known to have ended. They are kept
// under the message's id, because the process may die before the job's key is known.
type Strikes struct {
	// Kind is the job's kind, if there was a strike.
	Kind string
	// Key, Subject and Digest are the job's own. They are empty if no delivery that was struck came so far that its
	// payload was read.
	Key, Subject, Digest string
	// Ends are the latest times at which those invocations end.
	Ends []time.Time
}

// Counting returns how many strikes count: those whose invocation cannot be running any more, if clocks differ
// by up to skew.
func (s Strikes) Counting(now time.Time, skew time.Duration) int {
	n := 0
	for _, end := range s.Ends {
		if end.Add(skew).Before(now) {
			n++
		}
	}
	return n
}

// Contend counts a deferral by conflicting writes if the message cannot carry the count itself. It changes no
// claim.
func (r Rules) Contend(e Entry, d job.Delivery, now time.Time) (Entry, error) {
	if err := e.Conflict(d.Digest); err != nil {
		return e, err
	}
	switch {
	case e.Status.Final():
		return e, ErrFinal
	case e.Status == Isolated:
		return e, ErrIsolated
	}
	e = e.Open(d)
	e.Contentions = max(e.Contentions, d.Memory.Contentions) + 1
	if e.ContendedFrom.IsZero() {
		e.ContendedFrom = now
	}
	return r.keep(e, now), nil
}
