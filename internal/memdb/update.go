package memdb

import (
	"math/big"
	"slices"
	"strings"
)

// change is one clause of an update expression. It reads from the item as it was before the update and writes
// to the new one.
type change struct {
	at    path
	apply func(before, after Item) error
	// relative says that the new value depends on the old one.
	relative bool
}

// update reads a whole update expression.
func update(text string, ph *placeholders) ([]change, error) {
	p := newParser("UpdateExpression", text, ph)
	var changes []change
	seen := map[string]bool{}
	for p.err == nil && p.at < len(p.tokens) {
		clause := strings.ToUpper(p.next())
		if seen[clause] {
			p.fail("the clause %s stands twice", clause)
		}
		seen[clause] = true
		for more := true; more && p.err == nil; more = p.accept(",") {
			changes = append(changes, p.change(clause))
		}
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return nil, invalid("Invalid UpdateExpression: The expression can not be empty;")
	}
	for i, a := range changes {
		for _, b := range changes[:i] {
			if overlap(a.at, b.at) {
				return nil, invalid("Invalid UpdateExpression: Two document paths overlap with each other; %s and %s", b.at, a.at)
			}
		}
	}
	// Remove elements of a list from its end, so that the other indexes keep their meaning.
	slices.SortStableFunc(changes, func(a, b change) int { return b.at[len(b.at)-1].index - a.at[len(a.at)-1].index })
	return changes, nil
}

func overlap(a, b path) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

func (p *parser) change(clause string) change {
	at := p.path()
	switch clause {
	case "SET":
		p.expect("=")
		start := p.at
		v := p.sum()
		return change{at: at, relative: p.mentions(start, at), apply: func(before, after Item) error {
			value, err := v(before)
			if err != nil {
				return err
			}
			return put(after, at, value)
		}}
	case "REMOVE":
		return change{at: at, apply: func(_, after Item) error { return remove(after, at) }}
	case "ADD", "DELETE":
		v := p.value()
		return change{at: at, relative: true, apply: func(before, after Item) error {
			old, ok := at.get(before)
			value, err := combine(clause, old, ok, v)
			if err != nil {
				return err
			}
			if value == nil {
				return remove(after, at)
			}
			return put(after, at, *value)
		}}
	}
	p.fail("%q where SET, REMOVE, ADD or DELETE is expected", clause)
	return change{at: at}
}

// mentions says whether one of the tokens since start is the name of the path's first attribute.
func (p *parser) mentions(start int, at path) bool {
	for _, t := range p.tokens[start:min(p.at, len(p.tokens))] {
		if t == at[0].name || p.names[t] == at[0].name {
			return true
		}
	}
	return false
}

var errMissing = invalid("The provided expression refers to an attribute that does not exist in the item")

// sum reads the right side of a SET.
func (p *parser) sum() func(Item) (Value, error) {
	a := p.operand()
	op := p.peek()
	if op != "+" && op != "-" {
		return func(it Item) (Value, error) {
			v, ok := a(it)
			if !ok {
				return Value{}, errMissing
			}
			return v, nil
		}
	}
	p.next()
	b := p.operand()
	return func(it Item) (Value, error) {
		x, okX := a(it)
		y, okY := b(it)
		if !okX || !okY {
			return Value{}, errMissing
		}
		return add(x, y, op == "-")
	}
}

func add(x, y Value, subtract bool) (Value, error) {
	if x.N == nil || y.N == nil {
		return Value{}, invalid("An operand in the update expression has an incorrect data type")
	}
	a, err := number(*x.N)
	if err != nil {
		return Value{}, err
	}
	b, err := number(*y.N)
	if err != nil {
		return Value{}, err
	}
	if subtract {
		b.Neg(b)
	}
	return numberValue(new(big.Rat).Add(a, b)).check()
}

// combine applies ADD and DELETE. It returns nil if a set becomes empty.
func combine(clause string, old Value, exists bool, v Value) (*Value, error) {
	switch {
	case clause == "ADD" && v.N != nil:
		if !exists {
			return &v, nil
		}
		sum, err := add(old, v, false)
		return &sum, err
	case v.SS == nil && v.NS == nil, exists && old.kind() != v.kind():
		return nil, invalid("An operand in the update expression has an incorrect data type")
	}
	set := func(old, operand []string) []string {
		if clause == "ADD" {
			return slices.Compact(slices.Sorted(slices.Values(slices.Concat(old, operand))))
		}
		return slices.DeleteFunc(slices.Clone(old), func(s string) bool { return slices.Contains(operand, s) })
	}
	result := Value{}
	if v.SS != nil {
		result.SS = set(old.SS, v.SS)
	} else {
		result.NS = set(old.NS, v.NS)
	}
	if len(result.SS)+len(result.NS) == 0 {
		return nil, nil
	}
	return &result, nil
}

var errPath = invalid("The document path provided in the update expression is invalid for update")

// parent returns the map or the list that holds the path's last step.
func parent(it Item, at path) (Value, error) {
	if len(at) == 1 {
		return Value{M: &it}, nil
	}
	v, ok := at[:len(at)-1].get(it)
	if !ok || v.M == nil && v.L == nil {
		return Value{}, errPath
	}
	return v, nil
}

func put(it Item, at path, v Value) error {
	in, err := parent(it, at)
	if err != nil {
		return err
	}
	last := at[len(at)-1]
	v = copyValue(v)
	switch {
	case last.name != "" && in.M != nil:
		(*in.M)[last.name] = v
	case last.name == "" && in.L != nil && last.index < len(*in.L):
		(*in.L)[last.index] = v
	case last.name == "" && in.L != nil:
		*in.L = append(*in.L, v)
	default:
		return errPath
	}
	return nil
}

func remove(it Item, at path) error {
	in, err := parent(it, at)
	if err != nil {
		return err
	}
	last := at[len(at)-1]
	switch {
	case last.name != "" && in.M != nil:
		delete(*in.M, last.name)
	case last.name == "" && in.L != nil:
		if last.index < len(*in.L) {
			*in.L = slices.Delete(*in.L, last.index, last.index+1)
		}
	default:
		return errPath
	}
	return nil
}
