package simulation_test

import (
	"encoding/json"
	"strings"
	"time"

	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/soak"
)

// judge completes the record and has it checked.
func (s *story) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.history
	if n := len(s.queues[job.Source]) + len(s.queues[job.Recovery]); n > 0 {
		s.breaks("%d messages still wander after %v", n, limit)
	}
	for i := range h.Mended {
		s.complete(&h.Mended[i].Sent)
	}
	for i := range h.Sent {
		s.complete(&h.Sent[i])
	}
	var account soak.Balance
	for _, j := range s.jobs {
		if j.kind != units {
			continue
		}
		key := j.kind + "/" + j.name // of a broken one, too, which somebody may have mended
		account.Capacity++
		if h.Entries[key].Status != string(ledger.Done) {
			account.Held++
		}
		if j.temper == killer && h.Entries[key].Status == string(ledger.Done) {
			s.breaks("%s took effect, and should have killed its process", key)
		}
	}
	for _, it := range s.db.Items(accounts) {
		account.Available = number(*it["available"].N, -1)
	}
	h.Balances["account"] = account
	onDLQ := map[string]bool{}
	for _, m := range s.queues[job.DLQ] {
		onDLQ[m.id] = true
		memory := m.memory() // a dead letter of Scheduler's has none
		h.DLQ = append(h.DLQ, soak.OnDLQ{
			Mark: m.mark(), Content: m.content(), HasMemory: memory.Class != "",
			FirstID: memory.MessageID, Class: string(memory.Class), Cause: string(memory.Cause), Copy: memory.Copy,
		})
	}
	s.audited(onDLQ)
	s.grown()
	for _, v := range soak.Check(*h) {
		s.breaks("%v", v)
	}
}

// complete completes the record of a message, and of its job's entry.
func (s *story) complete(sent *soak.Sent) {
	sent.Poison = s.poison(sent.Mark)
	sent.MayExpire = s.mayExpire(s.letters[sent.Mark].job)
	if _, known := s.history.Entries[sent.Key]; known || sent.Key == "" {
		return
	}
	e := s.entry(sent.Key)
	if e.Version == 0 {
		return
	}
	if digest := s.provider.digests[e.ProviderKey]; strings.HasPrefix(e.Outcome, effect.Sent) && e.Digest != digest {
		s.breaks("%s ended as %s with the payload %s, and the provider accepted %s", sent.Key, e.Outcome, e.Digest, digest)
	}
	s.history.Entries[sent.Key] = soak.Entry{
		Status: string(e.Status), Outcome: e.Outcome, Digest: e.Digest, Final: e.Status.Final(), Isolated: e.Status == ledger.Isolated,
		Attempts: e.Attempts, Redrives: e.Redrives, Run: e.Run, ProviderKey: e.ProviderKey, IsolatedFirstID: e.IsolatedFirstID,
		Unmarked: e.Unmarked, Decided: len(e.Decisions) > 0 || e.Outcome == ledger.OutcomeDiscarded,
	}
}

// mayExpire says whether a job may end because it is late.
func (s *story) mayExpire(j *simJob) bool {
	if j.kind == units {
		return s.unitsExpire && !j.deadline.IsZero()
	}
	return s.mailLate != sent && !j.deadline.IsZero()
}

// audited checks the audit's lines: a message that a run says has left the DLQ is not there.
func (s *story) audited(onDLQ map[string]bool) {
	for _, it := range s.db.Items(names.OperationsTable) {
		var line redrive.AuditRecord
		if err := json.Unmarshal([]byte(*it["doc"].S), &line); err != nil || !onDLQ[line.Message] {
			continue
		}
		switch line.What {
		case "sent", "removed", "copy", "gone", "discarded":
			s.breaks("the audit of %s says at %v that %s (%s) is %s, and it is on the DLQ", line.Run, line.At.Sub(bubbleStart).Round(time.Second), line.Message, line.Job, line.What)
		}
	}
}

// grown checks that no write counts more than one attempt, and no more than the budget since the last opening.
func (s *story) grown() {
	attempts, version := map[string]int{}, map[string]int{}
	for _, w := range s.history.Writes {
		if w.Version == 0 || w.Attempts < 0 || w.Version < version[w.Key] {
			continue
		}
		if w.Attempts > attempts[w.Key]+1 {
			s.breaks("%s goes from %d to %d attempts in one write", w.Key, attempts[w.Key], w.Attempts)
		}
		attempts[w.Key], version[w.Key] = w.Attempts, w.Version
	}
}
