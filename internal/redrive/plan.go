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
	"sync"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
)

// partSize is how many targets one document of a plan holds: below an item's 400 KB with the longest keys.
const partSize = 300

func (s *Service) plan(ctx context.Context, req Request) (Response, error) {
	if req.Select == nil {
		return Response{}, refuse(`the selection is empty: name classes, kinds, keys, subjects, messages, errors or ages, or say "all": true`)
	}
	if req.Count != 0 && !req.Open {
		return Response{}, refuse("count belongs to an open plan: a plan has the messages that it selects")
	}
	if req.Open {
		return s.planOpen(ctx, req)
	}
	p, items, sc, err := s.makePlan(ctx, req, *req.Select)
	if err != nil {
		return Response{Scan: &sc, Groups: groups(items)}, err
	}
	return Response{Scan: &sc, Groups: groups(items), Plan: &p}, nil
}

func (s *Service) makePlan(ctx context.Context, req Request, f Filter) (Plan, []item, Scan, error) {
	if err := f.check(); err != nil {
		return Plan{}, nil, Scan{}, err
	}
	if err := s.checkPace(req); err != nil {
		return Plan{}, nil, Scan{}, err
	}
	if err := s.free(ctx, ""); err != nil {
		return Plan{}, nil, Scan{}, err
	}
	items, sc, err := s.survey(ctx, f)
	if err != nil {
		return Plan{}, nil, sc, err
	}
	if len(items) == 0 {
		return Plan{}, nil, sc, refuse("nothing on the DLQ is selected by that; %s", sc.says())
	}
	p, err := s.freeze(ctx, req, s.name(req, Plan{Select: f, Partial: sc.Partial}), items)
	return p, items, sc, err
}

// checkPace checks how fast a plan's run is to go.
func (s *Service) checkPace(req Request) error {
	if req.RatePerSecond < -1 || req.RatePerSecond > s.numbers.MaxRate {
		return refuse("ratePerSecond is %d, want 1 to %d, 0 for the default of %d, or -1 for none", req.RatePerSecond, s.numbers.MaxRate, s.numbers.Rate)
	}
	if req.Canary < 0 || req.Canary > maxCanary {
		return refuse("canary is %d, want 1 to %d, or 0 for the default of %v", req.Canary, maxCanary, s.stages(Request{}))
	}
	return nil
}

// name gives a plan its ids, its times and its author's words.
func (s *Service) name(req Request, p Plan) Plan {
	now := s.now().UTC()
	id := now.Format("20060102-150405-") + short(s.newID())
	p.ID, p.Run, p.At, p.ExpiresAt = "p-"+id, "r-"+id, now, now.Add(s.numbers.PlanExpiry)
	p.By, p.Reason, p.Actions = req.By, req.Reason, map[Action]int{}
	p.RatePerSecond, p.Stages = cmp.Or(req.RatePerSecond, s.numbers.Rate), s.stages(req)
	return p
}

// freeze stores a plan of items, which has its ids already.
func (s *Service) freeze(ctx context.Context, req Request, p Plan, items []item) (Plan, error) {
	copies(items)
	targets := make([]target, 0, len(items))
	guards := s.tally(&p, items)
	for _, it := range items {
		targets = append(targets, it.target())
	}
	if n := p.Actions[Redrive]; n > s.numbers.ApprovalAbove {
		guards[fmt.Sprintf("%d jobs, more than %d", n, s.numbers.ApprovalAbove)] = true
	}
	if p.acting() == 0 {
		return Plan{}, refuse("of %d messages none would be redriven or removed: %s", len(items), p.reasons(items))
	}
	p.Approval = strings.Join(slices.Sorted(maps.Keys(guards)), "; ")
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.ID, b.ID) })
	var err error
	if p.Digest, err = digest(p, targets); err != nil {
		return Plan{}, err
	}
	// The plan itself comes last: one whose parts are not all there does not exist.
	for n := 0; n*partSize < len(targets); n++ {
		part := targets[n*partSize : min((n+1)*partSize, len(targets))]
		if err := s.create(ctx, pkPlan(p.ID), fmt.Sprintf("%s%04d", skPart, n), part); err != nil {
			return Plan{}, err
		}
	}
	return p, s.publish(ctx, req, p)
}

// tally counts items into a plan and returns what it needs an approval for.
func (s *Service) tally(p *Plan, items []item) map[string]bool {
	guards := map[string]bool{}
	p.Selected = len(items)
	for _, it := range items {
		p.Actions[it.action]++
		p.Bytes += it.size
		if it.action != Redrive {
			continue
		}
		p.People = p.People || it.key == ""
		if it.guard != "" {
			guards[it.guard] = true
		}
		if slices.Contains(s.guarded, it.class) {
			guards["jobs of class "+string(it.class)] = true
		}
	}
	p.Groups = groups(items)
	p.Groups = p.Groups[:min(len(p.Groups), maxGroups)]
	return guards
}

// publish stores a plan, lists it, and writes who made it.
func (s *Service) publish(ctx context.Context, req Request, p Plan) error {
	if err := s.create(ctx, pkPlan(p.ID), skPlan, p); err != nil {
		return err
	}
	if err := s.create(ctx, pkIndex, "run#"+p.Run, indexed{Run: p.Run, Plan: p.ID, At: p.At}); err != nil {
		return err
	}
	return s.record(ctx, []AuditRecord{s.deed(req, p.ID, auditPlanned)})
}

// digest is over everything that a plan's approval covers.
func digest(p Plan, targets []target) (string, error) {
	h := sha256.New()
	for _, v := range []any{p.Select, p.Replacement, p.Count, p.RatePerSecond} {
		if err := json.NewEncoder(h).Encode(v); err != nil {
			return "", err
		}
	}
	for _, t := range targets {
		fmt.Fprintf(h, "%s %d %s\n", t.ID, t.Generation, t.Action)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func short(id string) string {
	return strings.ReplaceAll(id, "-", "")[:min(8, len(strings.ReplaceAll(id, "-", "")))]
}

// maxGroups is how many groups a plan keeps to show.
const maxGroups = 15

// maxCanary bounds a canary: its jobs go unjudged, and all of them are kept in the run.
const maxCanary = 100

// stages are the sizes of what goes first: a canary of the size that was asked for, or the ramp.
func (s *Service) stages(req Request) []int {
	switch {
	case req.Canary > 0:
		return []int{req.Canary}
	case s.numbers.Ramp == 0:
		return []int{s.numbers.Canary}
	}
	return []int{1, 2, 5, 20}
}

// copies makes one decision of the messages of one job: of those with the same payload one acts, the message that was
// isolated or else the newest copy. The others are removed as copies. Messages with another payload under the same key
// conflict with each other.
func copies(items []item) {
	type job struct {
		digest   string
		conflict bool
	}
	jobs := map[string]*job{}
	for _, it := range items {
		if it.key == "" || it.action == Conflict {
			continue
		}
		if j := jobs[it.key]; j == nil {
			jobs[it.key] = &job{digest: it.digest}
		} else if j.digest != it.digest {
			j.conflict = true
		}
	}
	acting := map[string]*item{}
	for i := range items {
		it := &items[i]
		if first := acting[it.key]; it.action == Redrive && (first == nil || it.before(*first)) {
			acting[it.key] = it
		}
	}
	for i := range items {
		it := &items[i]
		j := jobs[it.key]
		switch {
		case it.key == "" || it.action != Redrive:
		case j.conflict:
			it.action, it.why = Conflict, "messages with different payloads have this key: discard the wrong ones by id"
		case acting[it.key] != it:
			it.action, it.why, it.guard = Copy, "another message of the same job goes first", ""
		}
	}
}

// before says whether it acts in place of other, a message of the same job.
func (it item) before(other item) bool {
	if it.copied != other.copied {
		return other.copied
	}
	return it.sentAt.After(other.sentAt)
}

// driftOf compares a plan with the ledger as it is now.
func (s *Service) driftOf(ctx context.Context, p Plan) (*Drifted, error) {
	list, err := s.targets(ctx, p)
	if err != nil {
		return nil, err
	}
	drift := &Drifted{Samples: []string{}}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, t := range list {
		if t.Key == "" || t.Action != Redrive {
			continue
		}
		group.Go(func() error {
			e, err := s.ledger.Get(ctx, t.Key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				drift.Unread++
			case e.Status.Final():
				drift.Final++
			case e.Version > 0 && e.Redrives != t.Generation:
				drift.Redriven++
			case e.Version > 0 && s.newlyGuarded(t, e.LastClass):
				drift.Guarded++
			default:
				return nil
			}
			if len(drift.Samples) < maxNames {
				drift.Samples = append(drift.Samples, t.Key)
			}
			return nil
		})
	}
	return drift, group.Wait()
}

// newlyGuarded says whether a job is of a class by now that an approval of its plan did not cover.
func (s *Service) newlyGuarded(t target, class job.Class) bool {
	return class != t.Class && slices.Contains(s.guarded, class)
}

// reasons says why nothing would be done, most frequent first.
func (p Plan) reasons(items []item) string {
	count := map[string]int{}
	for _, it := range items {
		count[string(it.action)+" ("+it.why+")"]++
	}
	list := slices.Sorted(maps.Keys(count))
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(count[b], count[a]) })
	var text []string
	for _, why := range list[:min(len(list), maxSamples)] {
		text = append(text, fmt.Sprintf("%d %s", count[why], why))
	}
	return strings.Join(text, "; ")
}

// targets reads a plan's parts and checks them against its digest.
func (s *Service) targets(ctx context.Context, p Plan) ([]target, error) {
	list := make([]target, 0, p.Selected)
	err := s.table.Query(ctx, pkPlan(p.ID), skPart, func(r Record) error {
		part, err := decode[[]target](r)
		list = append(list, part...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if got, err := digest(p, list); err != nil || got != p.Digest {
		return nil, fmt.Errorf("plan %s does not match its digest: it was changed", p.ID)
	}
	return list, nil
}

var errLost = errors.New("another invocation continues this run")
