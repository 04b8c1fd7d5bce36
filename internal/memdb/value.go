package memdb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Item is an item, or a map within one.
type Item map[string]Value

// Value is an attribute's value in the form of DynamoDB's protocol. Exactly one field is set.
type Value struct {
	S    *string  `json:"S,omitempty"`
	N    *string  `json:"N,omitempty"`
	B    []byte   `json:"B,omitempty"`
	BOOL *bool    `json:"BOOL,omitempty"`
	NULL *bool    `json:"NULL,omitempty"`
	M    *Item    `json:"M,omitempty"`
	L    *[]Value `json:"L,omitempty"`
	SS   []string `json:"SS,omitempty"`
	NS   []string `json:"NS,omitempty"`
	BS   [][]byte `json:"BS,omitempty"`
}

// kind is the name of the value's type in the protocol.
func (v Value) kind() string {
	switch {
	case v.S != nil:
		return "S"
	case v.N != nil:
		return "N"
	case v.BOOL != nil:
		return "BOOL"
	case v.NULL != nil:
		return "NULL"
	case v.M != nil:
		return "M"
	case v.L != nil:
		return "L"
	case v.SS != nil:
		return "SS"
	case v.NS != nil:
		return "NS"
	case v.BS != nil:
		return "BS"
	}
	return "B"
}

// check refuses values that DynamoDB would not store, and gives numbers one form.
func (v Value) check() (Value, error) {
	switch v.kind() {
	case "N":
		if _, ok := integer(*v.N); ok {
			return v, nil
		}
		n, err := number(*v.N)
		if err != nil {
			return v, err
		}
		return numberValue(n), nil
	case "NS":
		all := make([]string, len(v.NS))
		for i, s := range v.NS {
			n, err := number(s)
			if err != nil {
				return v, err
			}
			all[i] = decimal(n)
		}
		v.NS = all
		return v, distinct(all)
	case "SS":
		return v, distinct(v.SS)
	case "M":
		m, err := v.M.check()
		return Value{M: &m}, err
	case "L":
		all := make([]Value, len(*v.L))
		for i, e := range *v.L {
			var err error
			if all[i], err = e.check(); err != nil {
				return v, err
			}
		}
		return Value{L: &all}, nil
	}
	return v, nil
}

func distinct(all []string) error {
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		return invalid("Input collection contains duplicates")
	}
	return nil
}

func (it Item) check() (Item, error) {
	out := make(Item, len(it))
	for name, v := range it {
		checked, err := v.check()
		if err != nil {
			return nil, err
		}
		out[name] = checked
	}
	return out, nil
}

// longest is no less than the length of the item's JSON.
func (it Item) longest() int {
	n := 2
	for name, v := range it {
		n += 6*len(name) + 4 + v.longest() // a character of a name takes up to six, as in \u003c
	}
	return n
}

func (v Value) longest() int {
	n := 16
	switch v.kind() {
	case "S":
		n += 6 * len(*v.S)
	case "N":
		n += len(*v.N)
	case "B":
		n += 2 * len(v.B)
	case "M":
		n += v.M.longest()
	case "L":
		for _, e := range *v.L {
			n += 1 + e.longest()
		}
	}
	for _, s := range slices.Concat(v.SS, v.NS) {
		n += 6*len(s) + 3
	}
	for _, b := range v.BS {
		n += 2*len(b) + 8
	}
	return n
}

// copyItem returns a copy that shares nothing with the item.
func copyItem(it Item) Item {
	if it == nil {
		return nil
	}
	out := make(Item, len(it))
	for name, v := range it {
		out[name] = copyValue(v)
	}
	return out
}

func copyValue(v Value) Value {
	if v.M != nil {
		m := copyItem(*v.M)
		return Value{M: &m}
	}
	if v.L != nil {
		l := make([]Value, len(*v.L))
		for i, e := range *v.L {
			l[i] = copyValue(e)
		}
		return Value{L: &l}
	}
	return v // scalars and sets are never written into
}

// maxDigits is the precision of DynamoDB's numbers.
const maxDigits = 38

// number reads a decimal number exactly.
func number(s string) (*big.Rat, error) {
	n, ok := new(big.Rat).SetString(s)
	if !ok || strings.ContainsAny(s, "/_xXpP") {
		return nil, invalid("The parameter cannot be converted to a numeric value: %s", s)
	}
	if digits := strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(decimal(n)), "0"); len(digits) > maxDigits {
		return nil, invalid("Attempting to store more than %d significant digits in a Number", maxDigits)
	}
	return n, nil
}

// integer reads a number that is a short integer in the one form that numbers have here. Most are, and big.Rat is slow.
func integer(s string) (int64, bool) {
	digits := strings.TrimPrefix(s, "-")
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && s != "0" {
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

func decimal(n *big.Rat) string {
	precision, _ := n.FloatPrec() // exact: every number here was read as a decimal, or is a sum of such numbers
	return n.FloatString(precision)
}

func numberValue(n *big.Rat) Value {
	s := decimal(n)
	return Value{N: &s}
}

// equal says whether two values are the same. Sets have no order.
func equal(a, b Value) bool {
	if a.kind() != b.kind() {
		return false
	}
	switch a.kind() {
	case "SS":
		return slices.Equal(slices.Sorted(slices.Values(a.SS)), slices.Sorted(slices.Values(b.SS)))
	case "NS":
		return slices.Equal(slices.Sorted(slices.Values(a.NS)), slices.Sorted(slices.Values(b.NS)))
	case "BS":
		return slices.EqualFunc(slices.SortedFunc(slices.Values(a.BS), bytes.Compare), slices.SortedFunc(slices.Values(b.BS), bytes.Compare), bytes.Equal)
	case "N", "S", "B":
		c, ok := compare(a, b)
		return ok && c == 0
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y) // the numbers in both are in one form
}

// compare orders two values of one type. Values of other types have no order.
func compare(a, b Value) (order int, ok bool) {
	if a.kind() != b.kind() {
		return 0, false
	}
	switch a.kind() {
	case "S":
		return cmp.Compare(*a.S, *b.S), true
	case "N":
		if x, ok := integer(*a.N); ok {
			if y, ok := integer(*b.N); ok {
				return cmp.Compare(x, y), true
			}
		}
		x, errX := number(*a.N)
		y, errY := number(*b.N)
		if errX != nil || errY != nil {
			return 0, false
		}
		return x.Cmp(y), true
	case "B":
		return bytes.Compare(a.B, b.B), true
	}
	return 0, false
}

// text is the value of a key's part.
func text(v Value) (string, error) {
	if v.S == nil || *v.S == "" {
		return "", invalid("One or more parameter values were invalid: a key's part is a string that is not empty")
	}
	return *v.S, nil
}

// fault is an error in the form of the protocol.
type fault struct {
	code, message string
	item          Item
	reasons       []reason
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func invalid(format string, args ...any) error {
	return &fault{code: "ValidationException", message: fmt.Sprintf(format, args...)}
}
