package simulation_test

import (
	"fmt"

	"acklast/internal/job"
	"acklast/internal/redrive"
	"acklast/internal/soak"
)

// mended is a body with which somebody wants a message of the DLQ to be sent.
type mended struct {
	letter
	message  string // its id on the DLQ
	body     string
	approved bool // or will be: somebody else is asked for it
}

// letterOf is the message as its sender made it, or as it was mended; nil for a message of nobody's.
func (s *story) letterOf(m *message) *letter {
	mark, body := m.mark(), m.sender().body
	for _, x := range s.mended {
		if x.mark == mark && x.body == body {
			return &x.letter
		}
	}
	return s.letters[mark]
}

// mend mends a message of the DLQ, has its body approved or not, and works on the plan's run for some rounds. Somebody
// else may mend the same message meanwhile: no two bodies are the same.
func (s *story) mend(name string) {
	s.mu.Lock()
	var on []*message
	for _, m := range s.queues[job.DLQ] {
		if class := m.memory().Class; class == job.Invalid || class == job.Rejected {
			on = append(on, m)
		}
	}
	if len(on) == 0 {
		s.mu.Unlock()
		return
	}
	m := on[s.number(len(on), name, "mends")]
	j := s.letterOf(m).job
	x := &mended{message: m.id, letter: letter{mark: m.mark(), key: j.kind + "/" + j.name, job: j}}
	x.body = j.body(fmt.Sprint("mended by ", name, " ", len(s.mended)))
	x.digest = digest(x.body)
	s.mended = append(s.mended, x)
	s.mu.Unlock()
	resp := s.ask(name, redrive.Request{Action: "mend", Message: x.message, Body: x.body})
	if resp == nil || resp.Plan == nil || resp.Refused != "" {
		return
	}
	plan := resp.Plan.ID
	if s.number(4, name, "mends unapproved") > 0 {
		s.mu.Lock()
		x.approved = true
		sent := soak.Sent{Mark: x.mark, At: s.now(), Content: m.content(), Key: x.key, Digest: x.digest}
		sent.Body = x.body
		s.history.Mended = append(s.history.Mended, soak.Mended{Sent: sent, Of: m.sender().body})
		s.mu.Unlock()
		s.ask(name+"s colleague", redrive.Request{Action: "approve", Plan: plan})
	}
	s.work(name, plan)
}

// runs checks a job whose attempt begins: a mended body runs only if somebody approved it.
func (s *story) runs(d job.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.mendOf(d.Digest); x != nil && !x.approved {
		s.breaks("%s runs with a body that nobody approved: %s", d.Key, d.Body)
	}
}

// mendOf is the mended body with a digest, if there is one. The caller holds the lock.
func (s *story) mendOf(digest string) *mended {
	for _, x := range s.mended {
		if x.digest == digest {
			return x
		}
	}
	return nil
}

func (s *story) isMended(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mendOf(digest) != nil
}
