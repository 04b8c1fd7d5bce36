package redrive

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Operators reads what operators decided. It only reads documents, so it needs no right to invoke the function.
type Operators struct{ Table Table }

// Revoked says whether a run was revoked. A run that nobody knows was not.
func (r Operators) Revoked(ctx context.Context, id string) (bool, error) {
	if id == "" || len(id) > maxID {
		return false, nil // not one of ours: nothing is gained by naming it
	}
	rec, err := r.Table.Get(ctx, pkRun(id), skRun)
	if err != nil || rec.Version == 0 {
		return false, err
	}
	run, err := decode[Run](rec)
	return run.State == Revoked, err
}

// Paused returns the paused kinds.
func (r Operators) Paused(ctx context.Context) ([]string, error) {
	p, _, err := readPauses(ctx, r.Table)
	names := make([]string, 0, len(p.Kinds))
	for name := range p.Kinds {
		names = append(names, name)
	}
	return names, err
}

// Standing is what holds for the whole stack.
type Standing struct {
	// Switch is the kill switch.
	Switch Switch
	// Run is the run that an invocation works on, or the last one; nil if there was none.
	Run *Run
	// Paused are the paused kinds, by name.
	Paused []KindState
}

// Standing reads the kill switch, the latest run and the paused kinds: four documents at most.
func (r Operators) Standing(ctx context.Context, now time.Time) (Standing, error) {
	var st Standing
	var err error
	if st.Switch, err = readSwitch(ctx, r.Table); err != nil {
		return Standing{}, err
	}
	p, _, err := readPauses(ctx, r.Table)
	if err != nil {
		return Standing{}, err
	}
	for name, pause := range p.Kinds {
		st.Paused = append(st.Paused, KindState{Kind: name, Paused: &pause})
	}
	slices.SortFunc(st.Paused, func(a, b KindState) int { return cmp.Compare(a.Kind, b.Kind) })
	l, _, err := readLock(ctx, r.Table)
	if err != nil || l.Run == "" {
		return st, err
	}
	rec, err := r.Table.Get(ctx, pkRun(l.Run), skRun)
	if err != nil || rec.Version == 0 {
		return st, err
	}
	run, err := decodeRun(rec)
	if err != nil {
		return st, err
	}
	if !l.live(now) {
		run.interrupted()
	}
	st.Run = &run
	return st, nil
}
