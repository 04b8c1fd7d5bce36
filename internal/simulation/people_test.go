package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/soak"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// operate is what people do: two operators, and somebody who looks at the DLQ. When the calm comes they end what they
// began.
func (s *story) operate() {
	if s.people {
		var people sync.WaitGroup
		people.Go(func() { s.operator("ada") })
		people.Go(func() { s.operator("bob") })
		people.Go(s.looker)
		people.Wait()
	}
	for !s.isCalm() {
		s.rest(5*time.Minute, "operate")
	}
	s.rest(time.Hour, "operate") // whatever others hide is visible again
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.home = true
}

// looker hides messages of the DLQ for a while.
func (s *story) looker() {
	for !s.isCalm() {
		s.rest(time.Duration(s.number(15, "look"))*time.Minute, "look")
		d := time.Duration(s.number(300, "look for")) * time.Second
		n := 1 + s.number(10, "look at")
		s.mu.Lock()
		s.take(job.DLQ, n, d, func([]*message, *message) bool { return true })
		s.mu.Unlock()
	}
}

// operator does this and that.
func (s *story) operator(name string) {
	for !s.isCalm() {
		s.rest(time.Duration(3+s.number(40, name, "sleeps"))*time.Minute, name)
		if s.isCalm() {
			return
		}
		if s.mends && s.number(3, name, "has to mend") == 0 {
			s.mend(name)
			continue
		}
		if s.pauses && s.number(4, name, "new") == 0 {
			[]func(string){s.pause, s.discard}[s.number(2, name, "what new")](name)
			continue
		}
		switch s.number(8, name, "does") {
		case 0, 1:
			s.putBack(name)
		case 2, 3, 4:
			s.redrive(name)
		case 5:
			s.decide(name)
		case 6:
			s.interfere(name)
		case 7:
			s.ask(name, redrive.Request{Action: "inspect"})
		}
	}
}

// pause pauses a kind for a while.
func (s *story) pause(name string) {
	kind := []string{units, mail}[s.number(2, name, "pauses")]
	s.ask(name, redrive.Request{Action: "pause", Kind: kind})
	s.rest(time.Duration(s.number(60, name, "pauses for"))*time.Minute, name)
	s.ask(name, redrive.Request{Action: "unpause", Kind: kind})
}

// discard discards a job, which a plan may have. A job that the provider may have accepted is decided, not discarded. The
// provider may still accept it before the discard is made.
func (s *story) discard(name string) {
	if s.seed >= byMessage && s.number(2, name, "discards by message") == 0 {
		s.discardMessage(name)
		return
	}
	j := s.jobs[s.number(len(s.jobs), name, "discards")]
	s.mu.Lock()
	key := ""
	if j.key != "" {
		key = s.entry(j.key).ProviderKey
	}
	may := j.key != "" && s.provider.accepted[key] == 0 && s.provider.travelling[key] == 0
	if may {
		s.history.Unwanted[j.key] = true
	}
	s.mu.Unlock()
	if may {
		s.ask(name, redrive.Request{Action: "discard", Jobs: []string{j.key}})
	}
}

// discardMessage discards a message of the DLQ by its id, whatever it is: a job's own, a copy, another payload.
func (s *story) discardMessage(name string) {
	s.mu.Lock()
	id, may := "", true
	if on := s.queues[job.DLQ]; len(on) > 0 {
		m := on[s.number(len(on), name, "discards a message")]
		id = m.id
		if of := s.letterOf(m); of != nil && of.key != "" {
			key := s.entry(of.key).ProviderKey
			if may = s.provider.accepted[key] == 0 && s.provider.travelling[key] == 0; may {
				s.history.Unwanted[of.key] = true
			}
		}
	}
	s.mu.Unlock()
	if id != "" && may {
		s.ask(name, redrive.Request{Action: "discard", Messages: []string{id}})
	}
}

// putBack sends messages of the DLQ to the source lane by hand: a send, then a delete, which may fail.
func (s *story) putBack(name string) {
	s.mu.Lock()
	batch, _ := s.take(job.DLQ, 1+s.number(5, name+"how many"), 30*time.Second, func([]*message, *message) bool { return true })
	s.mu.Unlock()
	for _, m := range batch {
		s.rest(0, name, "puts back", m.id)
		s.mu.Lock()
		again := *m
		s.put(job.Source, &again, 0)
		if s.number(100, "undeleted"+m.id) >= s.fail+s.lose {
			for _, o := range slices.Clone(s.queues[job.DLQ]) {
				if o.id == m.id {
					s.remove(job.DLQ, o)
					s.history.Removed = append(s.history.Removed, o.mark())
				}
			}
		}
		s.mu.Unlock()
	}
}

// ask makes a request of the redrive function. It returns nil if there was no answer.
func (s *story) ask(name string, req redrive.Request) *redrive.Response {
	if req.By == "" && req.Action != "run" && req.Action != "inspect" && req.Action != "stop" {
		req.By, req.Reason = name, "because"
	}
	s.rest(0, name, "asks")
	process := fmt.Sprint("redrive-", name, "-", s.number(1_000_000, name))
	settings := topology.Default()
	numbers := topology.DefaultRedrive()
	numbers.PollEvery, numbers.Ramp, numbers.Canary, numbers.ReceiveWait = 20*time.Second, s.ramp, 2, time.Second
	env := redrive.LocalEnvironment(stack, topology.QueueURLs{Source: "source", Recovery: "recovery", DLQ: "dlq"}, settings, numbers)
	config, err := redrive.ParseConfig(func(name string) string { return env[name] })
	if err != nil {
		panic(err)
	}
	ctx, end := context.WithTimeout(context.Background(), numbers.Timeout)
	defer end()
	l, ctx := s.born(ctx, process, s.die/2, 60)
	l.discards, l.byKey = req.Action == "discard", len(req.Jobs) > 0
	l.stall(10*time.Second, "request")
	var ids sync.Mutex
	n := 0
	metrics := telemetry.NewRedriveRecorder(io.Discard, stack, l.clock)
	service := redrive.New(config, redrive.Dependencies{
		Ledger: l.store(), Index: l.store(), Queues: l.lanes(), Table: redrive.NewStore(s.client, names.OperationsTable),
		Schedules: schedule.New(clock{s}, schedule.Target{Group: names.ScheduleGroup}),
		Kinds:     l.kinds(), Start: func(context.Context, string) (job.Kind, error) { return job.Kind{}, nil },
		Log: telemetry.NewLogger(io.Discard, 100), Progress: metrics, Counts: metrics, Now: l.clock,
		ID: func() string {
			ids.Lock()
			defer ids.Unlock()
			n++
			return fmt.Sprint(process, "-", n)
		},
	})
	raw, err := json.Marshal(req)
	if err != nil {
		panic(err)
	}
	resp, err := service.Handle(ctx, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.dead || err != nil {
		s.tell("%s asks for %s: no answer (%v)", name, req.Action, err)
		return nil
	}
	told := ""
	if resp.Run != nil {
		told = fmt.Sprint(resp.Run.State, " ", resp.Run.Code, " ", resp.Run.Endings)
	}
	s.tell("%s asks for %s: %q %s", name, req.Action, resp.Refused, told)
	return &resp
}

// redrive plans, has the plan approved if it has to be, and works on its run for some rounds.
func (s *story) redrive(name string) {
	req := redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}
	switch s.number(4, name, "selects") {
	case 0:
		req.Select = &redrive.Filter{Kinds: []string{mail}}
	case 1:
		req.Open, req.Count = true, 100
	}
	resp := s.ask(name, req)
	if resp == nil || resp.Plan == nil || resp.Refused != "" {
		return
	}
	if resp.Plan.Approval != "" {
		s.ask(name+"s colleague", redrive.Request{Action: "approve", Plan: resp.Plan.ID})
	}
	s.work(name, resp.Plan.ID)
}

// work works on a plan's run for some rounds.
func (s *story) work(name, plan string) {
	s.mu.Lock()
	s.plans = append(s.plans, plan)
	s.mu.Unlock()
	for range 1 + s.number(4, name, "rounds") {
		resp := s.ask(name, redrive.Request{Action: "run", Plan: plan})
		if resp != nil && (resp.Refused != "" || resp.Run != nil && (resp.Run.State == redrive.Done || resp.Run.State == redrive.Revoked)) {
			return
		}
		s.rest(2*time.Minute, name)
	}
}

// interfere stops or revokes somebody's run, or throws the kill switch for some minutes.
func (s *story) interfere(name string) {
	s.mu.Lock()
	plans := slices.Clone(s.plans)
	s.mu.Unlock()
	if len(plans) == 0 {
		return
	}
	plan := plans[s.number(len(plans), name, "interferes with")]
	switch s.number(3, name, "interferes") {
	case 0:
		if resp := s.ask(name, redrive.Request{Action: "run", Plan: plan, Begin: true}); resp != nil && resp.Run != nil {
			s.ask(name, redrive.Request{Action: "stop", Run: resp.Run.ID})
		}
	case 1:
		s.ask(name, redrive.Request{Action: "revoke", Plan: plan})
	case 2:
		s.ask(name, redrive.Request{Action: "stop"})
		s.rest(time.Duration(s.number(20, name, "switch"))*time.Minute, name)
		s.ask(name, redrive.Request{Action: "resume"})
	}
}

// decide asks the provider's support about ambiguous jobs, and gets the truth. People wait until no request can be
// under way any more.
func (s *story) decide(name string) {
	for _, j := range s.jobs {
		if j.kind != mail {
			continue
		}
		s.mu.Lock()
		e := s.entry(j.key)
		what := ledger.NotSent
		if s.provider.accepted[e.ProviderKey] > 0 {
			what = ledger.Sent
		}
		open := e.Status == ledger.Isolated && e.LastClass == job.Ambiguous && e.Decided == "" && s.provider.travelling[e.ProviderKey] == 0
		s.mu.Unlock()
		if open {
			s.ask(name, redrive.Request{Action: "decide", Job: j.key, Decision: what})
		}
	}
}

// settle ends what people began, when nothing fails any more: every run comes to its end.
func (s *story) settle() {
	s.ask("ada", redrive.Request{Action: "resume"})
	if s.pauses {
		s.ask("ada", redrive.Request{Action: "unpause", Kind: units})
		s.ask("ada", redrive.Request{Action: "unpause", Kind: mail})
	}
	s.decide("ada")
	if s.number(2, "redrive at the end") == 0 {
		s.redrive("ada")
	}
	s.mu.Lock()
	plans := slices.Clone(s.plans)
	s.mu.Unlock()
	for _, plan := range plans {
		s.end(plan)
	}
}

// end works on a plan's run until it is over, and records what it says.
func (s *story) end(plan string) {
	var run *redrive.Run
	for range 15 {
		resp := s.ask("ada", redrive.Request{Action: "run", Plan: plan})
		switch {
		case resp == nil:
		case resp.Run == nil: // never begun, and it may not begin any more
			return
		default:
			run = resp.Run
		}
		if run != nil && (run.State == redrive.Done || run.State == redrive.Revoked || run.Code == redrive.HaltExpired || resp != nil && resp.Refused != "") {
			break
		}
		s.rest(2*time.Minute, "end")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case run == nil:
		s.breaks("the run of %s never answers", plan)
		return
	case run.State != redrive.Done && run.State != redrive.Revoked && run.Code != redrive.HaltExpired:
		s.breaks("the run of %s does not end: %s %s %s, %v", plan, run.State, run.Code, run.Why, run.Endings)
	}
	told := soak.Run{ID: run.ID, Succeeded: run.Endings[redrive.Succeeded], Named: run.Names[redrive.Succeeded], Done: run.State == redrive.Done, Total: run.Total}
	for _, n := range run.Endings {
		told.Endings += n
	}
	for _, name := range run.Names[redrive.Gone] { // a message without a key is named by its id
		if s.jobOf(name) != nil {
			told.Gone = append(told.Gone, name)
		}
	}
	s.history.Runs = append(s.history.Runs, told)
}
