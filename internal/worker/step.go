package worker

import (
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// step is the state of one record, and in the end its one outcome.
type step struct {
	job.Delivery
	read job.Decoded
	runs *runs
	// over says that the step ended in begin, admitted that its attempt may start.
	over, admitted bool
	// shares names the thing that the job shares with others of its kind; empty if there is none.
	shares string
	// gather lets the step's first attempt meet those of others; nil if it runs alone. arrived says that the
	// others no longer wait for the step.
	gather  *gather
	arrived bool
	// slots are shared by the steps of a batch; nil for a suspect.
	slots *slots

	outcome   job.Outcome
	duplicate bool
	probe     bool // the message is a service's test message
	detail    string
	class     job.Class
	cause     job.Cause
	err       error
	// outage: the message is handed back because of the ledger's trouble. expired: the job ended without
	// running. copied: the message is a copy, and not the message that was isolated. paused: it waits because
	// its kind is paused. scheduled: a schedule brings the job back.
	outage, expired, copied, paused, scheduled bool

	// to and move are a move to another queue. The outcome counts once the move is confirmed.
	to    job.Queue
	move  lanes.Move
	moves bool

	// settled says that the step is finished: its move, if any, was sent or refused.
	settled bool
	// strikes are those of earlier invocations; examined says that they were read. struck says that this
	// invocation may have added its own, deleted that SQS confirmed the message's deletion.
	strikes         ledger.Strikes
	examined        bool
	struck, deleted bool

	// newer says that our own attribute has a format of a newer version.
	newer *job.NewerError
}

// The ends of a step. The outcome of a move counts only once handOver has confirmed it.

func (s *step) acknowledge(detail string, duplicate bool) {
	s.outcome, s.detail, s.duplicate, s.err = job.Acknowledged, detail, duplicate, nil
}

func (s *step) leave(err error) {
	s.outcome, s.err, s.moves = job.Left, err, false
}

func (s *step) hand(to job.Queue, outcome job.Outcome, memory job.Memory, delay time.Duration) {
	s.outcome, s.to, s.moves, s.settled = outcome, to, true, false
	s.move = lanes.Move{Message: withMemory(s.Message, memory), Delay: delay}
}

// hold ends a step whose message a schedule brings back: nothing is to be moved.
func (s *step) hold() {
	s.outcome, s.detail, s.moves, s.class, s.err = job.Deferred, "scheduled", false, "", nil
	s.scheduled = true
}

func withMemory(m job.Message, memory job.Memory) job.Message {
	m.Memory = memory
	return m
}

// carried returns the memory that every copy of the message carries. It keeps the cause and the error of an
// earlier isolation, because they have not been compared with the entry yet.
func (s *step) carried() job.Memory {
	m := s.Memory
	m.FirstSent, m.MessageID = s.FirstSent(), s.OriginalID()
	return m
}

// memory returns the memory for a move of a job whose entry was read, or did not have to be. It drops the fields of an
// earlier isolation, and ends the count of an outage. OutageFrom stays: the job may expire later because of that outage.
func (s *step) memory() job.Memory {
	m := s.carried().Cleared()
	m.Outages = 0
	return m
}

// opened takes the counts of an open entry, in place of those of an earlier opening.
func (s *step) opened(e ledger.Entry) {
	s.Memory.Attempt, s.Memory.Redrives = e.Attempts, e.Redrives
	s.Memory.Contentions, s.Memory.ContendedFrom = e.Contentions, e.ContendedFrom
	s.Memory = s.Memory.Cleared()
}
