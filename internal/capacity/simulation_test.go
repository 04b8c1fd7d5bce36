package capacity

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// simulation runs jobs through a recovery lane, event by event. It shares only the distribution of a record's
// time with the formulas.
type simulation struct {
	in     Input
	random *rand.Rand
}

// record draws the time of one record, in seconds.
func (s *simulation) record() float64 {
	sigma := math.Log(s.in.P95.Seconds()/s.in.P50.Seconds()) / normal95
	return s.in.P50.Seconds() * math.Exp(sigma*s.random.NormFloat64())
}

// batch draws the time of an invocation of n records, which run side by side.
func (s *simulation) batch(n int) float64 {
	longest := 0.0
	for range n {
		longest = max(longest, s.record())
	}
	return longest
}

// saturated returns the records per second of a lane that never lacks work.
func (s *simulation) saturated(concurrency, batches int) float64 {
	free := make([]float64, concurrency) // when each invocation ends
	for range batches {
		first := 0
		for i := range free {
			if free[i] < free[first] {
				first = i
			}
		}
		free[first] += s.batch(s.in.Batch)
	}
	end := 0.0
	for _, t := range free {
		end = max(end, t)
	}
	return float64(batches*s.in.Batch) / end
}

type event struct {
	at   float64
	what func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// redrive sends the backlog at a rate to the recovery lane, where the retries of fresh jobs run too. It returns
// the number of attempts per redriven job and the time at which the last one ended.
func (s *simulation) redrive(rate float64) (attempts, drained float64) {
	type task struct {
		left     int // retries
		redriven bool
	}
	var (
		now     float64
		queue   []task
		agenda  events
		busy    int
		open    = s.in.Backlog
		made    int
		start   func()
		arrival func()
	)
	at := func(t float64, what func()) { heap.Push(&agenda, event{t, what}) }
	start = func() {
		for busy < s.in.RecoveryCap && len(queue) > 0 {
			batch := queue[:min(s.in.Batch, len(queue))]
			queue = queue[len(batch):]
			busy++
			at(now+s.batch(len(batch)), func() {
				busy--
				for _, t := range batch {
					if t.redriven {
						made++
					}
					if t.left > 0 && s.random.Float64() < s.in.Failing {
						t.left--
						queue = append(queue, t)
					} else if t.redriven {
						open--
					}
				}
				start()
			})
		}
	}
	for i := range s.in.Backlog {
		at(float64(i+1)/rate, func() { queue = append(queue, task{s.in.Retries, true}); start() })
	}
	// A fresh job's first attempt runs on the source lane; its retries come here.
	arrival = func() {
		if s.random.Float64() < s.in.Failing && s.in.Retries > 0 {
			queue = append(queue, task{s.in.Retries - 1, false})
			start()
		}
		at(now+s.random.ExpFloat64()/s.in.Arrivals, arrival)
	}
	if s.in.Arrivals > 0 {
		at(0, arrival)
	}
	for open > 0 {
		e := heap.Pop(&agenda).(event)
		now = e.at
		e.what()
	}
	return float64(made) / float64(s.in.Backlog), now
}
