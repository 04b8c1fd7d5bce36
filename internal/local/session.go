package local

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// session is one life of one process, from its start to its exit. Its path is part of the process's
// AWS_LAMBDA_RUNTIME_API, so a request of a dead process is never mistaken for one of its successor.
type session struct {
	api     *runtimeAPI
	path    string
	process int
	signal  func()           // kills the process
	work    chan *invocation // held until the invocation for the process is written out
	done    chan struct{}    // closed when the process has exited and its invocation has failed

	// api.mu guards the fields below.
	ended   bool
	asked   bool // has ever asked for work
	doomed  bool // about to be killed
	ready   bool // counted in the gate's capacity
	current *invocation
	timer   *time.Timer
	reason  string // why current is about to fail, if known
	pid     int
}

// open begins a session for a process that is about to start.
func (a *runtimeAPI) open(process int, signal func()) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lives++
	s := &session{api: a, path: strconv.Itoa(a.lives), process: process, signal: signal,
		work: make(chan *invocation, 1), done: make(chan struct{})}
	a.sessions[s.path] = s
	return s
}

// address is the value of AWS_LAMBDA_RUNTIME_API.
func (s *session) address() string { return s.api.address + "/" + s.path }

func (s *session) started(pid int) {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	s.pid = pid
}

// next waits for the next invocation and hands it to the process.
func (s *session) next(w http.ResponseWriter, r *http.Request) {
	a := s.api
	a.mu.Lock()
	if s.ended || s.doomed || s.current != nil || slices.Contains(a.waiting, s) {
		a.mu.Unlock()
		http.Error(w, "no work for a process that is dying or has not answered yet", http.StatusForbidden)
		return
	}
	if !s.ready {
		s.asked, s.ready = true, true
		a.gate.add(1)
	}
	a.waiting = append(a.waiting, s)
	a.handOut()
	a.mu.Unlock()

	var inv *invocation
	select {
	case inv = <-s.work:
	case <-s.done:
		return
	case <-a.ctx.Done():
		return
	case <-r.Context().Done(): // about to exit
		a.mu.Lock()
		a.waiting = without(a.waiting, s)
		a.mu.Unlock()
		return
	}
	a.mu.Lock()
	hook, pid := a.onEvent, s.pid
	a.mu.Unlock()
	if hook != nil {
		hook(Invocation{RequestID: inv.id, Process: s.process, PID: pid, Event: inv.payload})
	}
	for name, values := range inv.header {
		w.Header()[name] = values
	}
	w.Header().Set(headerDeadline, strconv.FormatInt(time.Now().Add(a.timeout).UnixMilli(), 10))
	_, _ = w.Write(inv.payload) // a process that cannot read it is dead, or its invocation will time out
}

// settle ends the current invocation, if id is the current one; it reports whether it was.
// The caller holds api.mu.
func (s *session) settle(id string) bool {
	if s.current == nil || s.current.id != id {
		return false
	}
	s.timer.Stop()
	s.current = nil
	return true
}

func (s *session) response(w http.ResponseWriter, r *http.Request) {
	a, id := s.api, r.PathValue("id")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the process died while it answered; its exit fails the invocation
	}
	a.mu.Lock()
	hook, current, pid := a.onResponse, s.current, s.pid
	a.mu.Unlock()
	if hook != nil && current != nil && current.id == id {
		if hook(Invocation{RequestID: id, Process: s.process, PID: pid, Event: current.payload, Response: body}) == KillBeforeAck {
			s.kill()
			<-s.done
			return
		}
	}
	s.answer(w, id, "response", body)
}

func (s *session) failure(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.answer(w, r.PathValue("id"), "error", body)
}

// answer passes a result on. A late result is ignored, as on AWS. The process gets no error and lives on.
func (s *session) answer(w http.ResponseWriter, id, result string, body []byte) {
	a := s.api
	a.mu.Lock()
	settled := s.settle(id)
	a.mu.Unlock()
	if settled {
		if err := a.post(id, result, body); err != nil {
			a.log.Error("pass on the worker's result", "request_id", id, "error", err)
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *session) initError(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	s.api.log.Error("the worker could not start", "process", s.process, "error", string(body))
	w.WriteHeader(http.StatusAccepted)
}

// kill kills the process, after making sure that it gets no more work.
func (s *session) kill() {
	a := s.api
	a.mu.Lock()
	s.doomed = true
	a.waiting = without(a.waiting, s)
	s.unready()
	a.mu.Unlock()
	s.signal()
}

// timedOut kills the process whose invocation exceeded the function's timeout. The exit of the process then
// fails the invocation. If KillOnTimeout is off, the process lives on and leaves the gate's capacity until it
// asks for work again.
func (s *session) timedOut(inv *invocation) {
	a := s.api
	reason := fmt.Sprintf("Task timed out after %.2f seconds", a.timeout.Seconds())
	a.mu.Lock()
	if s.current != inv {
		a.mu.Unlock()
		return
	}
	if !a.spare {
		s.reason = reason
		a.mu.Unlock()
		s.kill()
		return
	}
	s.settle(inv.id)
	s.unready()
	a.mu.Unlock()
	a.fail(inv.id, "Sandbox.Timedout", reason)
}

// end closes the session of a process that has exited and fails the invocation it had. It reports
// whether the process ever asked for work.
func (s *session) end(exit error) (asked bool) {
	a := s.api
	a.mu.Lock()
	s.ended = true
	delete(a.sessions, s.path)
	a.waiting = without(a.waiting, s)
	inv, reason, asked := s.current, s.reason, s.asked
	if inv != nil {
		s.settle(inv.id)
	}
	s.unready()
	a.mu.Unlock()
	defer close(s.done)
	switch {
	case inv == nil:
	case reason != "":
		a.fail(inv.id, "Sandbox.Timedout", reason)
	default:
		a.fail(inv.id, "Runtime.ExitError", "Runtime exited: "+exit.Error())
	}
	return asked
}

// unready takes the process out of the gate's capacity. The caller holds api.mu.
func (s *session) unready() {
	if s.ready {
		s.ready = false
		s.api.gate.add(-1)
	}
}

func without(list []*session, s *session) []*session {
	return slices.DeleteFunc(list, func(x *session) bool { return x == s })
}
