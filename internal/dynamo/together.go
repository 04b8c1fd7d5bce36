package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/ledger"
)

// maxItems is DynamoDB's limit of one transaction.
const maxItems = 100

// A group is tried more often in place than a single job: deferred, its jobs would come back at different
// times and conflict one by one. All its pauses together are a second or two.
const (
	groupTries  = 10
	groupPauses = 4 // the pause doubles so often
)

// Part is one job of a transaction that completes several: its completion and its own items.
type Part struct {
	Completion ledger.Completion
	Own        []types.TransactWriteItem
}

// CommitTogether makes the entries of several jobs final in one transaction, together with the jobs' own items
// and with items that they share. A job that is refused is taken out, and the others commit without it. So
// shared is a function: it returns the shared items for the jobs that take part, given by their places among
// the parts.
//
// It returns one error for each part: the error that Commit would return for it, with the shared items counted
// after the part's own. No two parts may have a key or an item in common. Parts that do not fit into one
// transaction commit in several.
//
//	all ─▶ one transaction ─▶ committed
//	              │ refused: entries, own items          ─▶ these are out, the others again
//	              │ refused: a shared item, nothing else ─▶ all are refused
//	              │ conflict, ten times                  ─▶ all are contended
//	              └ no reasons, or a request that DynamoDB does not take ─▶ one by one
func (s *Store) CommitTogether(ctx context.Context, parts []Part, shared func(active []int) []types.TransactWriteItem) []error {
	g := &group{store: s, parts: slices.Clone(parts), shared: shared, errs: make([]error, len(parts))}
	var active []int
	size := 0
	flush := func() {
		if len(active) > 0 {
			g.commit(ctx, active)
		}
		active, size = nil, 0
	}
	for i, p := range parts {
		if err := p.check(); err != nil {
			g.errs[i] = fmt.Errorf("commit entry: %w", err)
			continue
		}
		own := 1 + len(p.Own)
		if size+own+len(shared([]int{i})) > maxItems {
			flush()
		}
		active, size = append(active, i), size+own
	}
	flush()
	return g.errs
}

func (p Part) check() error { return checkCompletion(p.Completion) }

// group is the state of one CommitTogether.
type group struct {
	store  *Store
	parts  []Part
	shared func(active []int) []types.TransactWriteItem
	errs   []error
}

// commit tries the active parts together until each has its end.
func (g *group) commit(ctx context.Context, active []int) {
	s := g.store
	for try := 1; len(active) > 0; {
		if len(active) == 1 {
			g.alone(ctx, active[0])
			return
		}
		var items []types.TransactWriteItem
		for _, i := range active {
			items = append(items, returning(types.TransactWriteItem{Update: s.completion(g.parts[i].Completion)}))
			for _, own := range g.parts[i].Own {
				items = append(items, returning(own))
			}
		}
		for _, it := range g.shared(active) {
			items = append(items, returning(it))
		}
		_, err := s.api.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
		err = Translate(err)
		var cancelled *cancelledError
		switch {
		case err == nil:
			return
		case errors.As(err, &cancelled) && len(cancelled.reasons) == len(items):
			rest, refused := g.refusals(ctx, active, cancelled)
			if refused {
				active = rest
				continue
			}
			err = cancelled.verdict(len(items))
		case errors.Is(err, ledger.ErrUnavailable):
			g.fill(active, err)
			return
		}
		if !errors.Is(err, ledger.ErrContended) || cancelled != nil && len(cancelled.reasons) != len(items) {
			// The reasons have no positions. Run alone, each job learns its own reason.
			for _, i := range active {
				g.alone(ctx, i)
			}
			return
		}
		s.opts.OnConflict()
		if try == groupTries {
			g.fill(active, err)
			return
		}
		if err := s.wait(ctx, min(try, groupPauses)); err != nil {
			g.fill(active, err)
			return
		}
		try++
	}
}

func (g *group) fill(active []int, err error) {
	for _, i := range active {
		g.errs[i] = fmt.Errorf("commit entry: %w", err)
	}
}

func (g *group) alone(ctx context.Context, i int) {
	own := append(append([]types.TransactWriteItem{}, g.parts[i].Own...), g.shared([]int{i})...)
	g.errs[i] = g.store.Commit(ctx, g.parts[i].Completion, own...)
}

// refusals takes out every part whose entry or own item refused. If only a shared item refused, it takes out
// all parts. It returns the remaining parts, and whether there was a refusal.
func (g *group) refusals(ctx context.Context, active []int, cancelled *cancelledError) (rest []int, refused bool) {
	failed := func(at int) bool { return aws.ToString(cancelled.reasons[at].Code) == "ConditionalCheckFailed" }
	at := 0
	for _, i := range active {
		p := g.parts[i]
		var err error
		if failed(at) { // a refusal of the entry explains one of its items, and not the other way round
			err = g.store.refusedBy(ctx, p.Completion, cancelled.reasons[at].Item)
			refused = true
			var short *shortError
			if errors.As(err, &short) { // it takes part again, with a later TTL
				g.parts[i].Completion = short.kept
				rest = append(rest, i)
				at += 1 + len(p.Own)
				continue
			}
		}
		out := failed(at)
		for k := range p.Own {
			if !out && failed(at+1+k) {
				err = &ItemError{Index: k, Item: noEmpty(cancelled.reasons[at+1+k].Item)}
				out, refused = true, true
			}
		}
		at += 1 + len(p.Own)
		if !out {
			rest = append(rest, i)
		} else if err != nil {
			g.errs[i] = fmt.Errorf("commit entry: %w", err)
		}
	}
	if refused {
		return rest, true
	}
	for k := range g.shared(active) {
		if failed(at + k) {
			for _, i := range active {
				g.errs[i] = fmt.Errorf("commit entry: %w",
					&ItemError{Index: len(g.parts[i].Own) + k, Item: noEmpty(cancelled.reasons[at+k].Item)})
			}
			return nil, true
		}
	}
	return active, false
}
