package cloudwatch

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// expression is a compiled piece of metric math: its value in one period, absent where CloudWatch has none.
type expression func(at func(id string, period int) (float64, bool), period int) (float64, bool)

// parser reads metric math: numbers, ids, + - * /, comparisons, AND, OR, and the functions IF, FILL and DIFF.
type parser struct {
	tokens []string
	used   map[string]bool
}

// parse compiles an expression and lists the ids that it uses.
func parse(text string) (e expression, used map[string]bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("expression %q: %v", text, p)
		}
	}()
	p := &parser{tokens: tokens(text), used: map[string]bool{}}
	e = p.binary(0)
	if len(p.tokens) > 0 {
		panic("what does " + p.tokens[0] + " mean here?")
	}
	return e, p.used, nil
}

func tokens(text string) []string {
	var all []string
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' }
	for len(text) > 0 {
		n := 1
		switch {
		case text[0] == ' ':
			text = text[1:]
			continue
		case word(rune(text[0])):
			if n = strings.IndexFunc(text, func(r rune) bool { return !word(r) }); n < 0 {
				n = len(text)
			}
		case strings.HasPrefix(text, ">="), strings.HasPrefix(text, "<="), strings.HasPrefix(text, "=="), strings.HasPrefix(text, "!="):
			n = 2
		}
		all, text = append(all, text[:n]), text[n:]
	}
	return all
}

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		panic("it ends too early")
	}
	token := p.tokens[0]
	p.tokens = p.tokens[1:]
	return token
}

func (p *parser) expect(token string) {
	if got := p.next(); got != token {
		panic("want " + token + ", got " + got)
	}
}

// operators are those of each level, the loosest first.
var operators = [][]string{{"OR"}, {"AND"}, {"==", "!=", ">=", "<=", ">", "<"}, {"+", "-"}, {"*", "/"}}

func (p *parser) binary(level int) expression {
	if level == len(operators) {
		return p.operand()
	}
	left := p.binary(level + 1)
	for len(p.tokens) > 0 && contains(operators[level], p.tokens[0]) {
		operator, first, second := p.next(), left, p.binary(level+1)
		left = func(at func(string, int) (float64, bool), period int) (float64, bool) {
			a, ok := first(at, period)
			b, also := second(at, period)
			if !ok || !also {
				return 0, false
			}
			return apply(operator, a, b)
		}
	}
	return left
}

func contains(all []string, one string) bool {
	for _, a := range all {
		if a == one {
			return true
		}
	}
	return false
}

// apply is one operation. A division by zero has no value.
func apply(operator string, a, b float64) (float64, bool) {
	truth := func(yes bool) (float64, bool) {
		if yes {
			return 1, true
		}
		return 0, true
	}
	switch operator {
	case "+":
		return a + b, true
	case "-":
		return a - b, true
	case "*":
		return a * b, true
	case "/":
		if b == 0 {
			return 0, false
		}
		return a / b, true
	case "==":
		return truth(a == b)
	case "!=":
		return truth(a != b)
	case ">=":
		return truth(a >= b)
	case "<=":
		return truth(a <= b)
	case ">":
		return truth(a > b)
	case "<":
		return truth(a < b)
	case "AND":
		return truth(a != 0 && b != 0)
	}
	return truth(a != 0 || b != 0)
}

func (p *parser) operand() expression {
	token := p.next()
	switch token {
	case "(":
		inside := p.binary(0)
		p.expect(")")
		return inside
	case "IF":
		args := p.arguments(3)
		return func(at func(string, int) (float64, bool), period int) (float64, bool) {
			condition, ok := args[0](at, period)
			switch {
			case !ok:
				return 0, false
			case condition != 0:
				return args[1](at, period)
			}
			return args[2](at, period)
		}
	case "FILL":
		// Assumed: a metric of which nothing was ever written is filled too.
		args := p.arguments(2)
		return func(at func(string, int) (float64, bool), period int) (float64, bool) {
			if v, ok := args[0](at, period); ok {
				return v, true
			}
			return args[1](at, period)
		}
	case "DIFF":
		args := p.arguments(1)
		return func(at func(string, int) (float64, bool), period int) (float64, bool) {
			now, ok := args[0](at, period)
			before, also := args[0](at, period-1)
			return now - before, ok && also
		}
	}
	if n, err := strconv.ParseFloat(token, 64); err == nil {
		return func(func(string, int) (float64, bool), int) (float64, bool) { return n, true }
	}
	if !unicode.IsLower(rune(token[0])) {
		panic(token + " is not modelled")
	}
	p.used[token] = true
	return func(at func(string, int) (float64, bool), period int) (float64, bool) { return at(token, period) }
}

func (p *parser) arguments(n int) []expression {
	p.expect("(")
	args := []expression{p.binary(0)}
	for len(args) < n {
		p.expect(",")
		args = append(args, p.binary(0))
	}
	p.expect(")")
	return args
}
