package memdb

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// The grammar of DynamoDB's expressions, read by recursive descent. Keywords may be in any case, names of
// functions are in lower case.
//
//	condition := and { OR and }
//	and       := not { AND not }
//	not       := NOT not | "(" condition ")" | function | operand comparison
//	update    := { SET path = value {, …} | REMOVE path {, …} | ADD path :v {, …} | DELETE path :v {, …} }
//	value     := operand [ (+|-) operand ]
//	operand   := path | :v | size(path) | if_not_exists(path, value) | list_append(value, value) | "(" … ")"
//	path      := name { .name | [index] }

// names and values are the placeholders of one request. All its expressions share them. A placeholder that no
// expression uses is refused, as in DynamoDB.
type placeholders struct {
	names  map[string]string
	values map[string]Value
	used   map[string]bool
}

func (p *placeholders) check() error {
	for n := range p.names {
		if !p.used[n] {
			return invalid("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", n)
		}
	}
	for n := range p.values {
		if !p.used[n] {
			return invalid("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", n)
		}
	}
	return nil
}

// predicate is a condition on an item. An absent item is nil.
type predicate func(it Item) bool

// operand is a value that an item gives, ok if it does.
type operand func(it Item) (v Value, ok bool)

// step is one step of a path: a name, or an index when the name is empty.
type step struct {
	name  string
	index int
}

type path []step

func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.name == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

func (p path) get(it Item) (Value, bool) {
	v, ok := it[p[0].name]
	for _, s := range p[1:] {
		if !ok {
			return Value{}, false
		}
		switch {
		case s.name != "" && v.M != nil:
			v, ok = (*v.M)[s.name]
		case s.name == "" && v.L != nil && s.index < len(*v.L):
			v = (*v.L)[s.index]
		default:
			return Value{}, false
		}
	}
	return v, ok
}

// parser reads one expression. It keeps the first error.
type parser struct {
	what   string
	tokens []string
	at     int
	*placeholders
	err error
}

func newParser(what, text string, p *placeholders) *parser {
	ps := &parser{what: what, placeholders: p}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		n := 1
		switch c := text[0]; {
		case wordByte(c) || c == '#' || c == ':':
			for n < len(text) && wordByte(text[n]) {
				n++
			}
		case strings.HasPrefix(text, "<>"), strings.HasPrefix(text, "<="), strings.HasPrefix(text, ">="):
			n = 2
		case !strings.ContainsRune("()[],.=<>+-", rune(c)):
			ps.fail("token %q", text[:1])
			return ps
		}
		ps.tokens = append(ps.tokens, text[:n])
		text = text[n:]
	}
	return ps
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid("Invalid %s: Syntax error; %s", p.what, fmt.Sprintf(format, args...))
	}
}

func (p *parser) peek() string {
	if p.err != nil || p.at >= len(p.tokens) {
		return ""
	}
	return p.tokens[p.at]
}

func (p *parser) next() string {
	t := p.peek()
	p.at++
	return t
}

func (p *parser) accept(word string) bool {
	if strings.EqualFold(p.peek(), word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(token string) {
	if got := p.next(); got != token {
		p.fail("%q where %q is expected", got, token)
	}
}

func (p *parser) end() error {
	if p.err == nil && p.at < len(p.tokens) {
		p.fail("%q where the end is expected", p.tokens[p.at])
	}
	return p.err
}

// condition reads a whole condition; an empty one is always true.
func condition(what string, text *string, ph *placeholders) (predicate, error) {
	if text == nil {
		return func(Item) bool { return true }, nil
	}
	p := newParser(what, *text, ph)
	c := p.or()
	return c, p.end()
}

func (p *parser) or() predicate {
	left := p.and()
	for p.accept("OR") {
		a, b := left, p.and()
		left = func(it Item) bool { return a(it) || b(it) }
	}
	return left
}

func (p *parser) and() predicate {
	left := p.not()
	for p.accept("AND") {
		a, b := left, p.not()
		left = func(it Item) bool { return a(it) && b(it) }
	}
	return left
}

func (p *parser) not() predicate {
	if p.accept("NOT") {
		c := p.not()
		return func(it Item) bool { return !c(it) }
	}
	if p.peek() == "(" {
		// A bracket opens an operand if a comparison follows it, and otherwise a condition.
		start := p.at
		p.next()
		c := p.or()
		p.expect(")")
		if p.err == nil && !comparator(p.peek()) {
			return c
		}
		p.at, p.err = start, nil
	}
	switch name := p.peek(); name {
	case "attribute_exists", "attribute_not_exists":
		p.next()
		p.expect("(")
		at := p.path()
		p.expect(")")
		return func(it Item) bool {
			_, ok := at.get(it)
			return ok == (name == "attribute_exists")
		}
	case "attribute_type", "begins_with", "contains":
		p.next()
		p.expect("(")
		a := p.operand()
		p.expect(",")
		b := p.operand()
		p.expect(")")
		return binary(name, a, b)
	}
	return p.comparison()
}

func comparator(token string) bool {
	return slices.Contains([]string{"=", "<>", "<", "<=", ">", ">="}, token) ||
		strings.EqualFold(token, "BETWEEN") || strings.EqualFold(token, "IN")
}

// binary is a function of two operands.
func binary(name string, a, b operand) predicate {
	return func(it Item) bool {
		x, okX := a(it)
		y, okY := b(it)
		if !okX || !okY {
			return false
		}
		switch name {
		case "attribute_type":
			return y.S != nil && x.kind() == *y.S
		case "begins_with":
			return x.S != nil && y.S != nil && strings.HasPrefix(*x.S, *y.S)
		}
		switch x.kind() {
		case "S":
			return y.S != nil && strings.Contains(*x.S, *y.S)
		case "SS":
			return y.S != nil && slices.Contains(x.SS, *y.S)
		case "NS":
			return y.N != nil && slices.Contains(x.NS, *y.N)
		case "L":
			return slices.ContainsFunc(*x.L, func(v Value) bool { return equal(v, y) })
		}
		return false
	}
}

func (p *parser) comparison() predicate {
	a := p.operand()
	if p.accept("BETWEEN") {
		low := p.operand()
		if !p.accept("AND") {
			p.fail("BETWEEN without AND")
		}
		high := p.operand()
		return func(it Item) bool { return holds(">=", a, low, it) && holds("<=", a, high, it) }
	}
	if p.accept("IN") {
		p.expect("(")
		list := []operand{p.operand()}
		for p.accept(",") {
			list = append(list, p.operand())
		}
		p.expect(")")
		return func(it Item) bool {
			return slices.ContainsFunc(list, func(b operand) bool { return holds("=", a, b, it) })
		}
	}
	op := p.next()
	if !comparator(op) {
		p.fail("%q where a comparison is expected", op)
	}
	b := p.operand()
	return func(it Item) bool { return holds(op, a, b, it) }
}

// holds compares. A comparison with an attribute that is missing is false.
func holds(op string, a, b operand, it Item) bool {
	x, okX := a(it)
	y, okY := b(it)
	if !okX || !okY {
		return false
	}
	switch op {
	case "=":
		return equal(x, y)
	case "<>":
		return !equal(x, y)
	}
	c, ok := compare(x, y)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// operand reads a path, a value or a function that gives a value.
func (p *parser) operand() operand {
	switch t := p.peek(); {
	case t == "(":
		p.next()
		o := p.operand()
		p.expect(")")
		return o
	case strings.HasPrefix(t, ":"):
		v := p.value()
		return func(Item) (Value, bool) { return v, true }
	case p.at+1 < len(p.tokens) && p.tokens[p.at+1] == "(":
		p.next()
		p.next()
		return p.function(t)
	}
	at := p.path()
	return at.get
}

func (p *parser) function(name string) operand {
	switch name {
	case "size":
		a := p.operand()
		p.expect(")")
		return func(it Item) (Value, bool) {
			v, ok := a(it)
			return numberValue(big.NewRat(int64(size(v)), 1)), ok
		}
	case "if_not_exists":
		at := p.path()
		p.expect(",")
		otherwise := p.operand()
		p.expect(")")
		return func(it Item) (Value, bool) {
			if v, ok := at.get(it); ok {
				return v, true
			}
			return otherwise(it)
		}
	case "list_append":
		a := p.operand()
		p.expect(",")
		b := p.operand()
		p.expect(")")
		return func(it Item) (Value, bool) {
			x, okX := a(it)
			y, okY := b(it)
			if !okX || !okY || x.L == nil || y.L == nil {
				return Value{}, false
			}
			all := slices.Concat(*x.L, *y.L)
			return Value{L: &all}, true
		}
	}
	p.fail("unknown function %q", name)
	return nil
}

func size(v Value) int {
	switch v.kind() {
	case "S":
		return len(*v.S)
	case "B":
		return len(v.B)
	case "M":
		return len(*v.M)
	case "L":
		return len(*v.L)
	}
	return len(v.SS) + len(v.NS) + len(v.BS)
}

func (p *parser) value() Value {
	t := p.next()
	v, ok := p.values[t]
	if !ok {
		p.fail("value %s is not defined", t)
	}
	p.used[t] = true
	return v
}

func (p *parser) path() path {
	all := path{{name: p.name()}}
	for {
		switch {
		case p.accept("."):
			all = append(all, step{name: p.name()})
		case p.accept("["):
			i, err := strconv.Atoi(p.next())
			if err != nil {
				p.fail("an index that is no number")
			}
			p.expect("]")
			all = append(all, step{index: i})
		default:
			return all
		}
	}
}

func (p *parser) name() string {
	t := p.next()
	if strings.HasPrefix(t, "#") {
		name, ok := p.names[t]
		if !ok {
			p.fail("name %s is not defined", t)
		}
		p.used[t] = true
		return name
	}
	if t == "" || !wordByte(t[0]) || t[0] >= '0' && t[0] <= '9' {
		p.fail("%q where an attribute is expected", t)
	}
	return t
}
