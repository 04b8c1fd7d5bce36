package job

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The texts that replace a masked value and a whole payload in an error's text.
const (
	hiddenValue   = "(masked)"
	hiddenPayload = "(payload)"
)

// leastHidden is the length in bytes from which a masked value is hidden. A shorter one would match parts of
// ordinary words.
const leastHidden = 4

// hiddenError is an error whose text hides what must not be shown. The error itself stays as it is.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }

func (e *hiddenError) Unwrap() error { return e.err }

// Hide returns the error of a kind's code for a payload, fit to be logged and kept: its text has neither the
// values of the masked fields nor the whole payload. A dependency's error may quote them, as they are or escaped.
func (d Description) Hide(payload jsontext.Value, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := text
	for _, form := range forms(string(payload)) {
		clean = strings.ReplaceAll(clean, form, hiddenPayload)
	}
	for _, form := range d.maskedForms(payload) {
		clean = strings.ReplaceAll(clean, form, hiddenValue)
	}
	if clean == text {
		return err
	}
	return &hiddenError{clean, err}
}

// maskedForms returns the values of the masked fields in all forms, the longest first.
func (d Description) maskedForms(payload jsontext.Value) []string {
	if len(d.Masked) == 0 {
		return nil
	}
	var fields map[string]jsontext.Value
	if json.Unmarshal(payload, &fields) != nil {
		return nil
	}
	var all []string
	for _, name := range d.Masked {
		for _, value := range scalars(fields[name]) {
			all = append(all, forms(value)...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}

// scalars returns the texts and numbers in a value, without the names in it.
func scalars(v jsontext.Value) (all []string) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return all
		}
		kind, length := d.StackIndex(d.StackDepth())
		if kind == jsontext.KindBeginObject && length%2 == 1 {
			continue // a name
		}
		if t.Kind() == jsontext.KindString || t.Kind() == jsontext.KindNumber {
			all = append(all, t.String())
		}
	}
}

// forms returns a text as it is and in the escapes that errors and addresses use.
func forms(text string) []string {
	if len(text) < leastHidden {
		return nil
	}
	quoted := strconv.Quote(text)
	escaped, _ := jsontext.AppendQuote(nil, text)
	all := []string{
		text, strings.ToLower(text), quoted[1 : len(quoted)-1], string(escaped[1 : len(escaped)-1]), url.QueryEscape(text), url.PathEscape(text),
		base64.RawStdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)),
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return slices.Compact(all)
}

// place names the place of a value by the names that its Go type declares. Any other name is the sender's, such
// as a key of a map, so it is not shown.
func place(p jsontext.Pointer, t reflect.Type) string {
	var b strings.Builder
	for token := range p.Tokens() {
		name := "*"
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t == nil:
		case t.Kind() == reflect.Struct:
			if t = member(t, token); t != nil {
				name = token
			}
		case t.Kind() == reflect.Map:
			t = t.Elem()
		case (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem().Kind() != reflect.Uint8:
			name, t = token, t.Elem()
		default:
			t = nil
		}
		b.WriteString("/" + name)
	}
	return b.String()
}

// member returns the type of a struct's member, nil if the struct declares none of the name.
func member(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		declared, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && declared == "" && f.Type.Kind() == reflect.Struct {
			if inner := member(f.Type, name); inner != nil {
				return inner
			}
			continue
		}
		if f.IsExported() && declared != "-" && cmp.Or(declared, f.Name) == name {
			return f.Type
		}
	}
	return nil
}
