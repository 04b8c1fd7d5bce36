package redrive

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// Group are messages of one class, cause and kind whose errors have one fingerprint.
type Group struct {
	Class job.Class `json:"class"`
	Cause job.Cause `json:"cause"`
	Kind  string    `json:"kind"`
	// Fingerprint is the error without what differs from job to job.
	Fingerprint string         `json:"fingerprint,omitempty"`
	Count       int            `json:"count"`
	Actions     map[Action]int `json:"actions"`
	Oldest      time.Time      `json:"oldest"`
	Newest      time.Time      `json:"newest"`
	Samples     []Sample       `json:"samples"`
}

// Sample is one message of a group.
type Sample struct {
	Message    string    `json:"message"`
	Job        string    `json:"job,omitempty"`
	Error      string    `json:"error,omitempty"`
	IsolatedAt time.Time `json:"isolatedAt"`
	Generation int       `json:"generation"`
	Action     Action    `json:"action"`
	Why        string    `json:"why"`
}

// maxSamples is how many messages of a group are shown, of each action.
const maxSamples = 3

func groups(items []item) []Group {
	g := grouping{}
	for _, it := range items {
		g.add(it)
	}
	return g.list()
}

// grouping collects groups, by their names.
type grouping map[string]*Group

func (byName grouping) add(it item) {
	name := string(it.class) + "\x00" + string(it.cause) + "\x00" + it.kind + "\x00" + it.fingerprint
	g := byName[name]
	if g == nil {
		g = &Group{Class: it.class, Cause: it.cause, Kind: it.kind, Fingerprint: it.fingerprint, Actions: map[Action]int{}, Oldest: it.isolatedAt, Newest: it.isolatedAt}
		byName[name] = g
	}
	g.Count++
	g.Actions[it.action]++
	if it.isolatedAt.Before(g.Oldest) {
		g.Oldest = it.isolatedAt
	}
	if it.isolatedAt.After(g.Newest) {
		g.Newest = it.isolatedAt
	}
	if g.Actions[it.action] <= maxSamples { // so that no action is without a name
		g.Samples = append(g.Samples, Sample{Message: it.id, Job: it.key, Error: it.error, IsolatedAt: it.isolatedAt,
			Generation: it.generation, Action: it.action, Why: it.why})
	}
}

func (byName grouping) list() []Group {
	list := []Group{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, *byName[name])
	}
	slices.SortStableFunc(list, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// MessageView is one message, whole.
type MessageView struct {
	ID           string            `json:"id"`
	SentAt       time.Time         `json:"sentAt"`
	ReceiveCount int               `json:"receiveCount"`
	Group        string            `json:"group,omitempty"`
	TraceHeader  string            `json:"traceHeader,omitempty"`
	Attributes   map[string]string `json:"attributes,omitempty"` // name to type; values are the sender's
	Memory       job.Memory        `json:"memory"`
	Bytes        int               `json:"bytes"`
	// Body is only there when the request asked for the payload.
	Body       string        `json:"body,omitempty"`
	Job        string        `json:"job,omitempty"`
	Unreadable string        `json:"unreadable,omitempty"`
	Class      job.Class     `json:"class"`
	Cause      job.Cause     `json:"cause"`
	Action     Action        `json:"action"`
	Why        string        `json:"why"`
	Entry      *ledger.Entry `json:"entry,omitempty"`
}

func (s *Service) inspect(ctx context.Context, req Request) (Response, error) {
	if req.After != "" {
		return s.nextPage(ctx, req)
	}
	// A look would hide messages from a run: while one is going on, it answers.
	l, _, err := s.readLock(ctx)
	if err != nil {
		return Response{}, err
	}
	if l.live(s.now()) {
		sc := Scan{Partial: "run " + l.Run + " is going on and answers for the DLQ; nothing was received"}
		return s.statusOf(ctx, l.Run, Response{Scan: &sc})
	}
	one := req.Message != "" || req.Job != ""
	switch {
	case req.WithBody && !one:
		return Response{}, refuse("list names every message, withBody shows one: name it by message or job")
	case one && (req.Select != nil || req.List):
		return Response{}, refuse("inspect shows one message, and takes no selection beside it")
	}
	if one {
		return s.show(ctx, req)
	}
	f := Filter{All: true}
	if req.Select != nil {
		f = *req.Select
	}
	if err := f.check(); err != nil {
		return Response{}, err
	}
	if req.List {
		return s.listMessages(ctx, f)
	}
	items, sc, err := s.survey(ctx, f)
	if err != nil {
		return Response{}, err
	}
	return Response{Scan: &sc, Groups: groups(items)}, nil
}

func (s *Service) show(ctx context.Context, req Request) (Response, error) {
	m, sc, err := s.find(ctx, req.Message, req.Job)
	if err != nil {
		return Response{Scan: &sc}, err
	}
	c := s.joined(ctx, m)
	view := &MessageView{
		ID: m.ID, SentAt: m.SentAt, ReceiveCount: m.ReceiveCount, Group: m.Group, TraceHeader: m.TraceHeader,
		Memory: m.Memory, Bytes: len(m.Body), Job: c.read.Key, Class: c.class(), Cause: c.cause(),
		Attributes: map[string]string{},
	}
	for name, a := range m.Attributes {
		view.Attributes[name] = a.Type
	}
	if c.readErr != nil {
		view.Unreadable = job.SafeText(c.readErr.Error())
	}
	if req.WithBody {
		view.Body = m.Body
	}
	if c.entry.Version > 0 {
		view.Entry = &c.entry
	}
	view.Action, view.Why, _ = c.decide(false, s.rules.MaxRedrives, s.now())
	return Response{Scan: &sc, Message: view}, nil
}
