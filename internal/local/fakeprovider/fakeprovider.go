// Package fakeprovider is a message provider for this machine. It speaks the protocol of the HTTP adapter,
// delivers nothing, and counts the messages that it accepted. It serves "acklast local", the demo and tests. On
// request it fails the way real providers do: it accepts and drops the answer, answers late, throttles,
// refuses, breaks, or forgets.
//
// Its count is the number of messages that people would have received. So tests of "sent once" check this count
// and no other.
package fakeprovider

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Options say what the provider can do.
type Options struct {
	// Deduplicates: a request under a known key gets the first request's answer and is not accepted again.
	Deduplicates bool
	// LooksUp: it answers GET /messages/{key}.
	LooksUp bool
	// KeyWindow is how long the provider remembers a key; 0 is for ever.
	KeyWindow time.Duration
	// SettleTime is the one that the worker is told: no request takes longer to be accepted. 0 is not known.
	SettleTime time.Duration
	// Token is the bearer token that it requires; "" accepts any.
	Token string
}

// Refusals are the error codes of the provider's own: it has not accepted a request that it answers with one of them. Its
// protocol has invalid_recipient and unsubscribed too, which refuse a message for good.
var Refusals = []string{"bad_request", "failed", "no_such_template", "rate_limited", "unauthorized", "unknown-recipient"}

// Acceptance is one message that was accepted.
type Acceptance struct {
	Key       string    `json:"key"`
	RequestID string    `json:"requestId"`
	Channel   string    `json:"channel"`
	Template  string    `json:"template"`
	Recipient string    `json:"recipient"`
	At        time.Time `json:"at"`
}

// Rule says how requests to send are answered. If several rules match, the one added first applies.
type Rule struct {
	// Recipient is the recipient of the message; "" matches any.
	Recipient string
	// Times is how many requests the rule applies to; 0 is every one until it is removed.
	Times int
	// Arrived and Accepted may be nil. Arrived is called when a request has been read, before it is handled.
	// Accepted is called after a message was accepted, before the answer. Both may block.
	Arrived, Accepted func()
	// Do is the behaviour; the zero Behaviour accepts.
	Do Behaviour
}

// Behaviour is how a request is answered.
type Behaviour struct {
	status     int // the status of the answer, unless 0
	code       string
	body       string // in place of the provider's own answer, if foreign is set
	foreign    bool
	accept     bool // the message is accepted although the answer says otherwise
	retryAfter string
	drop       bool
	late       time.Duration
}

// Drop accepts and closes the connection without an answer.
func Drop() Behaviour { return Behaviour{drop: true, accept: true} }

// HangUp closes the connection without an answer and accepts nothing.
func HangUp() Behaviour { return Behaviour{drop: true} }

// Late accepts and answers after a while.
func Late(d time.Duration) Behaviour { return Behaviour{late: d, accept: true} }

// Throttle answers 429 with a Retry-After header, unless it is "", and accepts nothing.
func Throttle(retryAfter string) Behaviour {
	return Behaviour{status: http.StatusTooManyRequests, code: "rate_limited", retryAfter: retryAfter}
}

// Refuse answers 422 with an error code: one of Refusals, "invalid_recipient" or "unsubscribed".
func Refuse(code string) Behaviour {
	return Behaviour{status: http.StatusUnprocessableEntity, code: code}
}

// Fail answers with a status and an error of the provider's own, and accepts nothing.
func Fail(status int) Behaviour { return Behaviour{status: status, code: "failed"} }

// Foreign answers with a status and a body of any form, as a proxy in front of the provider does. accepted says
// whether the request reached the provider.
func Foreign(status int, body string, accepted bool) Behaviour {
	return Behaviour{status: status, body: body, foreign: true, accept: accepted}
}

// After is the behaviour with a Retry-After header.
func (b Behaviour) After(retryAfter string) Behaviour {
	b.retryAfter = retryAfter
	return b
}

type rule struct {
	Rule
	left int
}

// Server is a running provider.
type Server struct {
	options Options
	url     string
	server  *http.Server
	serving sync.WaitGroup

	mu       sync.Mutex
	rules    []*rule
	accepted []Acceptance
	known    map[string]Acceptance // by key
	requests int
	lookups  int
}

// New starts a provider on 127.0.0.1. It panics if it cannot listen there, since no caller could repair that.
func New(o Options) *Server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("fakeprovider: listen: %v", err))
	}
	s := &Server{options: o, url: "http://" + l.Addr().String(), known: map[string]Acceptance{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /messages", s.send)
	mux.HandleFunc("GET /messages/{key}", s.lookUp)
	mux.HandleFunc("GET /messages", s.list)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.serving.Go(func() { _ = s.server.Serve(l) }) // always ErrServerClosed
	return s
}

// URL is the provider's base address.
func (s *Server) URL() string { return s.url }

// Close drops every connection.
func (s *Server) Close() {
	_ = s.server.Close()
	s.serving.Wait()
}

// Add puts a rule into force. The returned function removes it; calling it twice is safe.
func (s *Server) Add(r Rule) (remove func()) {
	added := &rule{Rule: r, left: r.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, added)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(added)
	}
}

func (s *Server) drop(r *rule) {
	s.rules = slices.DeleteFunc(s.rules, func(other *rule) bool { return other == r })
}

// Forget makes the provider forget every key, as if their window had passed. The count of accepted messages
// stays.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

// Accepted returns the messages that were accepted for a recipient, in order; "" means all recipients.
func (s *Server) Accepted(recipient string) []Acceptance {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Acceptance
	for _, a := range s.accepted {
		if recipient == "" || a.Recipient == recipient {
			list = append(list, a)
		}
	}
	return list
}

// Requests returns how many requests to send and how many look-ups came in.
func (s *Server) Requests() (sends, lookups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.lookups
}

func (s *Server) authorised(w http.ResponseWriter, r *http.Request) bool {
	if s.options.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.options.Token {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "unauthorized"})
		return false
	}
	return true
}

func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	var m struct{ Channel, Template, TemplateVersion, Recipient string }
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	s.mu.Lock()
	s.requests++
	s.mu.Unlock()
	if !s.authorised(w, r) {
		return
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Recipient == "" || m.Template == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": "bad_request"})
		return
	}
	rule := s.claim(m.Recipient)
	if rule.Arrived != nil {
		rule.Arrived()
	}
	do := rule.Do
	var a Acceptance
	if do.accept || do == (Behaviour{}) {
		a = s.accept(Acceptance{
			Key: r.Header.Get("Idempotency-Key"), Channel: m.Channel, Template: m.Template + "-" + m.TemplateVersion,
			Recipient: m.Recipient, At: time.Now().UTC(),
		})
		if rule.Accepted != nil {
			rule.Accepted()
		}
	}
	if do.drop {
		panic(http.ErrAbortHandler)
	}
	if do.late > 0 {
		t := time.NewTimer(do.late)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if do.retryAfter != "" {
		w.Header().Set("Retry-After", do.retryAfter)
	}
	switch {
	case do.foreign:
		w.WriteHeader(do.status)
		_, _ = io.WriteString(w, do.body)
	case do.status != 0:
		answer(w, do.status, map[string]string{"error": do.code})
	default:
		answer(w, http.StatusAccepted, a)
	}
}

// claim finds the rule for a request and counts one use of it.
func (s *Server) claim(recipient string) Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if r.Recipient != "" && r.Recipient != recipient {
			continue
		}
		if r.Times > 0 {
			if r.left--; r.left == 0 {
				s.drop(r)
			}
		}
		return r.Rule
	}
	return Rule{}
}

// accept counts a message, unless one was already accepted under its key.
func (s *Server) accept(a Acceptance) Acceptance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.find(a.Key); ok && s.options.Deduplicates {
		return first
	}
	a.RequestID = "req-" + strconv.Itoa(len(s.accepted)+1)
	s.accepted = append(s.accepted, a)
	if a.Key != "" {
		s.known[a.Key] = a
	}
	return a
}

// find returns the message that was accepted under a key, unless the key is forgotten. The caller holds mu.
func (s *Server) find(key string) (Acceptance, bool) {
	a, ok := s.known[key]
	if ok && s.options.KeyWindow > 0 && time.Since(a.At) > s.options.KeyWindow {
		return Acceptance{}, false
	}
	return a, ok
}

func (s *Server) lookUp(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.lookups++
	a, ok := s.find(r.PathValue("key"))
	s.mu.Unlock()
	switch {
	case !s.authorised(w, r):
	case !s.options.LooksUp:
		answer(w, http.StatusNotImplemented, map[string]string{"error": "no_lookup"})
	case !ok:
		answer(w, http.StatusNotFound, map[string]string{"error": "not_found"})
	default:
		answer(w, http.StatusOK, a)
	}
}

// list shows people which messages they would have received.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if s.authorised(w, r) {
		answer(w, http.StatusOK, append([]Acceptance{}, s.Accepted(r.URL.Query().Get("recipient"))...))
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // if the client has hung up, nobody reads the answer
}
