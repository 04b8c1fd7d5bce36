package redrive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// The keys of the operations table's documents.
const (
	skPlan = "plan"
	skRun  = "run"
	skPart = "part#"

	pkIndex  = "index"
	pkSwitch = "switch"
	pkLock   = "lock"
)

func pkPlan(id string) string { return "plan#" + id }
func pkRun(id string) string  { return "run#" + id }

// partSize is how many targets one document of a plan holds: far below an item's 400 KB.
const partSize = 1000

// Group are messages of one class, cause and kind.
type Group struct {
	Class   job.Class      `json:"class"`
	Cause   job.Cause      `json:"cause"`
	Kind    string         `json:"kind"`
	Count   int            `json:"count"`
	Actions map[Action]int `json:"actions"`
	Oldest  time.Time      `json:"oldest"`
	Newest  time.Time      `json:"newest"`
	Samples []Sample       `json:"samples"`
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

// maxSamples is how many messages of a group are shown.
const maxSamples = 3

func groups(items []item) []Group {
	byName := map[string]*Group{}
	for _, it := range items {
		name := string(it.class) + "\x00" + string(it.cause) + "\x00" + it.kind
		g := byName[name]
		if g == nil {
			g = &Group{Class: it.class, Cause: it.cause, Kind: it.kind, Actions: map[Action]int{}, Oldest: it.isolatedAt, Newest: it.isolatedAt}
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
		if len(g.Samples) < maxSamples {
			g.Samples = append(g.Samples, Sample{Message: it.id, Job: it.key, Error: it.error, IsolatedAt: it.isolatedAt,
				Generation: it.generation, Action: it.action, Why: it.why})
		}
	}
	var list []Group
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
	if req.Message != "" {
		return s.show(ctx, req)
	}
	f := Filter{All: true}
	if req.Select != nil {
		f = *req.Select
	}
	if err := f.check(); err != nil {
		return Response{}, err
	}
	items, sc, err := s.survey(ctx, f)
	if err != nil {
		return Response{}, err
	}
	return Response{Scan: &sc, Groups: groups(items)}, nil
}

func (s *Service) show(ctx context.Context, req Request) (Response, error) {
	var view *MessageView
	sc, err := s.scan(ctx, func(m lanes.Received) (bool, error) {
		if m.ID != req.Message {
			return true, nil
		}
		c, err := s.joined(ctx, m)
		if err != nil {
			return false, err
		}
		view = &MessageView{
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
		if req.Payload {
			view.Body = m.Body
		}
		if c.entry.Version > 0 {
			view.Entry = &c.entry
		}
		view.Action, view.Why, _ = c.decide(false, s.Rules.MaxRedrives, s.Now())
		return false, nil
	})
	if err != nil {
		return Response{}, err
	}
	if view == nil {
		return Response{Scan: &sc}, refuse("message %s was not seen on the DLQ (%d of about %d messages seen); it may be in flight, or gone", req.Message, sc.Seen, sc.Holds)
	}
	return Response{Scan: &sc, Message: view}, nil
}

// Plan is a frozen selection. It becomes at most one run.
type Plan struct {
	ID string `json:"id"`
	// Run is the id of the run it becomes.
	Run       string    `json:"run"`
	At        time.Time `json:"at"`
	ExpiresAt time.Time `json:"expiresAt"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
	Select    Filter    `json:"select"`
	// Digest is over the selection and every message id and generation in it.
	Digest string `json:"digest"`
	// Selected counts the messages, Actions by what would happen to each, Bytes is their size.
	Selected int            `json:"selected"`
	Actions  map[Action]int `json:"actions"`
	Bytes    int            `json:"bytes"`
	Partial  string         `json:"partial,omitempty"`

	RatePerSecond int `json:"ratePerSecond"` // -1: no limit
	Canary        int `json:"canary"`
	// Crashed says that convicted jobs without a key are among them, whose canary people have to judge.
	Crashed bool `json:"crashed,omitempty"`

	// Approval says what it needs one for; empty when it needs none.
	Approval       string    `json:"approval,omitempty"`
	ApprovedBy     string    `json:"approvedBy,omitempty"`
	ApprovedAt     time.Time `json:"approvedAt,omitzero"`
	ApprovalReason string    `json:"approvalReason,omitempty"`
}

// target is one message of a plan.
type target struct {
	ID         string `json:"i"`
	Generation int    `json:"g,omitempty"`
	Action     Action `json:"a"`
}

// acts says whether a run does anything with a message of the action.
func (a Action) acts() bool { return a == Redrive || a == Remove }

func (s *Service) plan(ctx context.Context, req Request) (Response, error) {
	if req.Select == nil {
		return Response{}, refuse(`the selection is empty: name classes, causes, kinds, keys, subjects, messages or ages, or say "all": true`)
	}
	p, items, sc, err := s.makePlan(ctx, req, *req.Select)
	if err != nil {
		return Response{Scan: &sc}, err
	}
	return Response{Scan: &sc, Groups: groups(items), Plan: &p}, nil
}

func (s *Service) makePlan(ctx context.Context, req Request, f Filter) (Plan, []item, Scan, error) {
	if err := f.check(); err != nil {
		return Plan{}, nil, Scan{}, err
	}
	if req.RatePerSecond < -1 || req.RatePerSecond > s.Numbers.MaxRate {
		return Plan{}, nil, Scan{}, refuse("ratePerSecond is %d, want 1 to %d, 0 for the default of %d, or -1 for none", req.RatePerSecond, s.Numbers.MaxRate, s.Numbers.Rate)
	}
	if req.Canary < 0 {
		return Plan{}, nil, Scan{}, refuse("canary is %d, want at least 1, or 0 for the default of %d", req.Canary, s.Numbers.Canary)
	}
	items, sc, err := s.survey(ctx, f)
	if err != nil {
		return Plan{}, nil, sc, err
	}
	if len(items) == 0 {
		why := ""
		if sc.Partial != "" {
			why = " (" + sc.Partial + ")"
		}
		return Plan{}, nil, sc, refuse("nothing on the DLQ is selected by that; %d of about %d messages seen%s", sc.Seen, sc.Holds, why)
	}
	now := s.Now().UTC()
	id := now.Format("20060102-150405-") + short(s.ID())
	p := Plan{
		ID: "p-" + id, Run: "r-" + id, At: now, ExpiresAt: now.Add(s.Numbers.PlanExpiry),
		By: req.By, Reason: req.Reason, Select: f, Selected: len(items), Actions: map[Action]int{},
		Partial: sc.Partial, RatePerSecond: cmp.Or(req.RatePerSecond, s.Numbers.Rate), Canary: cmp.Or(req.Canary, s.Numbers.Canary),
	}
	targets := make([]target, 0, len(items))
	guards := map[string]bool{}
	for _, it := range items {
		p.Actions[it.action]++
		p.Bytes += it.size
		targets = append(targets, target{ID: it.id, Generation: it.generation, Action: it.action})
		if it.action != Redrive {
			continue
		}
		p.Crashed = p.Crashed || it.class == job.Crashed && it.key == ""
		if it.guard != "" {
			guards[it.guard] = true
		}
		if slices.Contains(s.Guarded, it.class) {
			guards["jobs of class "+string(it.class)] = true
		}
	}
	if n := p.Actions[Redrive]; n > s.Numbers.ApprovalAbove {
		guards[fmt.Sprintf("%d jobs, more than %d", n, s.Numbers.ApprovalAbove)] = true
	}
	p.Approval = strings.Join(slices.Sorted(maps.Keys(guards)), "; ")
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.ID, b.ID) })
	if p.Digest, err = digest(f, targets); err != nil {
		return Plan{}, nil, sc, err
	}
	// The plan itself comes last: one whose parts are not all there does not exist.
	for n := 0; n*partSize < len(targets); n++ {
		part := targets[n*partSize : min((n+1)*partSize, len(targets))]
		if err := s.create(ctx, pkPlan(p.ID), fmt.Sprintf("%s%04d", skPart, n), part); err != nil {
			return Plan{}, nil, sc, err
		}
	}
	if err := s.create(ctx, pkPlan(p.ID), skPlan, p); err != nil {
		return Plan{}, nil, sc, err
	}
	return p, items, sc, s.create(ctx, pkIndex, "run#"+p.Run, indexed{Run: p.Run, Plan: p.ID, At: p.At})
}

// indexed is a line of the index that list reads.
type indexed struct {
	Run  string    `json:"run"`
	Plan string    `json:"plan"`
	At   time.Time `json:"at"`
}

func digest(f Filter, targets []target) (string, error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(f); err != nil {
		return "", err
	}
	for _, t := range targets {
		fmt.Fprintf(h, "%s %d %s\n", t.ID, t.Generation, t.Action)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func short(id string) string {
	return strings.ReplaceAll(id, "-", "")[:min(8, len(strings.ReplaceAll(id, "-", "")))]
}

// targets reads a plan's parts and checks them against its digest.
func (s *Service) targets(ctx context.Context, p Plan) ([]target, error) {
	list := make([]target, 0, p.Selected)
	err := s.Table.Query(ctx, pkPlan(p.ID), skPart, func(r Record) error {
		part, err := decode[[]target](r)
		list = append(list, part...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if got, err := digest(p.Select, list); err != nil || got != p.Digest {
		return nil, fmt.Errorf("plan %s does not match its digest: it was changed", p.ID)
	}
	return list, nil
}

func (s *Service) approve(ctx context.Context, req Request) (Response, error) {
	p, rec, err := s.readPlan(ctx, req.Plan)
	if err != nil {
		return Response{}, err
	}
	switch {
	case sameName(p.By, req.By):
		return Response{Plan: &p}, refuse("%s made this plan: somebody else has to approve it", p.By)
	case p.ApprovedBy != "":
		return Response{Plan: &p}, nil
	case past(p.ExpiresAt, s.Now()):
		return Response{Plan: &p}, refuse("the plan expired at %s", stamp(p.ExpiresAt))
	}
	p.ApprovedBy, p.ApprovedAt, p.ApprovalReason = req.By, s.Now().UTC(), req.Reason
	if _, err := s.put(ctx, rec, p); err != nil {
		return Response{}, err
	}
	return Response{Plan: &p}, nil
}

// sameName compares names as far as names can tell.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

func (s *Service) readPlan(ctx context.Context, id string) (Plan, Record, error) {
	if id == "" {
		return Plan{}, Record{}, refuse("the plan is not named")
	}
	rec, err := s.Table.Get(ctx, pkPlan(id), skPlan)
	if err != nil {
		return Plan{}, rec, err
	}
	if rec.Version == 0 {
		return Plan{}, rec, refuse("there is no plan %s", id)
	}
	p, err := decode[Plan](rec)
	return p, rec, err
}

// create writes a new document. One that is there already is ErrChanged.
func (s *Service) create(ctx context.Context, pk, sk string, v any) error {
	_, err := s.put(ctx, Record{PK: pk, SK: sk}, v)
	return err
}

// put replaces a document by v, on condition that it is still as rec says.
func (s *Service) put(ctx context.Context, rec Record, v any) (Record, error) {
	var err error
	if rec.Doc, err = json.Marshal(v); err != nil {
		return rec, err
	}
	rec.TTL = s.Now().Add(s.Numbers.Retention)
	return s.Table.Put(ctx, rec)
}

func decode[T any](r Record) (v T, err error) {
	if err = json.Unmarshal(r.Doc, &v); err != nil {
		err = fmt.Errorf("read %s %s: %w", r.PK, r.SK, err)
	}
	return v, err
}

var errLost = errors.New("another invocation continues this run")
