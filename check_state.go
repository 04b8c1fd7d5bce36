package acklast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/job"
	"acklast/internal/memdb"
)

// state is the contents of the kind's own tables, by table and key.
type state map[string]map[string]memdb.Item

func (w *world) state() state {
	all := state{}
	for _, t := range w.tables {
		items := map[string]memdb.Item{}
		for _, it := range w.db.Items(w.services.Table(t.Name)) {
			id := *it[t.PartitionKey].S
			if t.SortKey != "" {
				id += " " + *it[t.SortKey].S
			}
			items[id] = it
		}
		all[t.Name] = items
	}
	return all
}

// differences reports how got differs from s. It leaves out the values that differ between s and again, which
// are from two runs in the same situation.
func (s state) differences(again, got state) []string {
	var all []string
	for _, table := range slices.Sorted(maps.Keys(s)) {
		want, twin, items := s[table], again[table], got[table]
		if len(items) != len(want) {
			all = append(all, fmt.Sprintf("table %s has %d items, want %d as after one delivery", table, len(items), len(want)))
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(want)) {
			same, exists := twin[id]
			if !exists {
				continue // a key made of a random id
			}
			if _, exists := items[id]; !exists {
				all = append(all, fmt.Sprintf("table %s has no item %q, which one delivery leaves there", table, id))
				continue
			}
			names := maps.Clone(want[id])
			maps.Copy(names, items[id])
			for _, name := range slices.Sorted(maps.Keys(names)) {
				value := want[id][name]
				if reflect.DeepEqual(value, same[name]) && !reflect.DeepEqual(value, items[id][name]) {
					all = append(all, fmt.Sprintf("%s of %s %q is %s, want %s as after one delivery",
						name, table, id, shown(items[id][name]), shown(value)))
				}
			}
		}
	}
	return all
}

func shown(v memdb.Value) string {
	b, err := json.Marshal(v)
	if err != nil || string(b) == "{}" {
		return "missing"
	}
	return string(b)
}

// variation is a payload in which one field has another value.
type variation struct {
	field   string
	payload jsontext.Value
}

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members reads an object's members in their order.
func members(object jsontext.Value) []member {
	var all []member
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil
		}
		all = append(all, member{name.String(), values[name.String()]})
		if err := d.SkipValue(); err != nil {
			return nil
		}
	}
	return all
}

// object writes an object of members in the given order.
func object(all []member) jsontext.Value {
	b := []byte("{")
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(m.name)
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}')
}

// variations returns payloads that differ in one top-level field each: another string, number or boolean, or
// the field left out if it is of another type.
func variations(payload jsontext.Value) []variation {
	var all []variation
	fields := members(payload)
	for i, f := range fields {
		changed := slices.Clone(fields)
		var v any
		if err := json.Unmarshal(f.value, &v); err != nil {
			continue
		}
		switch v := v.(type) {
		case string:
			changed[i].value, _ = json.Marshal(v + "x")
		case float64:
			changed[i].value, _ = json.Marshal(int64(v) + 1)
		case bool:
			changed[i].value, _ = json.Marshal(!v)
		default:
			changed = slices.Delete(changed, i, i+1)
		}
		all = append(all, variation{f.name, object(changed)})
	}
	return all
}

// withPayload writes a body. Encoding cannot fail, since the parts were decoded before.
func withPayload(e job.Envelope, payload jsontext.Value) string {
	e.Payload = payload
	body, err := e.Encode()
	if err != nil {
		panic(err)
	}
	return string(body)
}

// keys checks the key's stability.
func (c *check) keys() (stable bool) {
	c.t.Helper()
	stable = true
	catalogue := job.NewCatalogue(c.kind)
	same := func(how, body string) {
		c.t.Helper()
		d, err := catalogue.Read(body)
		switch {
		case err != nil:
			c.errorf("%s, it is not readable: %v", how, err)
			stable = false
		case d.Key != c.decoded.Key:
			stable = false
			c.errorf("%s, its key is %q and not %q: a key is made of business fields alone", how, d.Key, c.decoded.Key)
		}
	}
	same("read again", c.sample.Body)
	fields := members(c.decoded.Envelope.Payload)
	slices.Reverse(fields)
	same("with its fields in another order", withPayload(c.decoded.Envelope, object(fields)))
	same("with a field that nobody knows", withPayload(c.decoded.Envelope, object(append(slices.Clone(fields), member{"acklastUnknown", []byte("1")}))))

	depends := false
	for _, v := range variations(c.decoded.Envelope.Payload) {
		d, err := catalogue.Read(withPayload(c.decoded.Envelope, v.payload))
		volatile := slices.Contains(c.kind.Volatile, v.field)
		switch {
		case volatile && err != nil:
			c.errorf("with another value of its volatile field %s, it is not readable: %v", v.field, err)
		case volatile && d.Key != c.decoded.Key:
			c.errorf("its key depends on %s, which the Definition calls volatile", v.field)
		case err == nil && d.Key != c.decoded.Key:
			depends = true
		}
	}
	if !depends {
		c.errorf("no field changes its key %q, so all jobs of the kind would be one: make the key of ids", c.decoded.Key)
	}
	for _, list := range [][]string{c.kind.Volatile, c.kind.Masked} {
		for _, name := range list {
			if !slices.ContainsFunc(fields, func(m member) bool { return m.name == name }) && !c.elsewhere(name) {
				c.errorf("no sample has the field %s, which the Definition calls volatile or masked", name)
			}
		}
	}
	return stable
}

// elsewhere says whether another sample has the field.
func (c *check) elsewhere(name string) bool {
	for _, s := range slices.Concat(c.kind.Samples, c.options.Samples) {
		e, err := job.Decode([]byte(s.Body))
		if err == nil && slices.ContainsFunc(members(e.Payload), func(m member) bool { return m.name == name }) {
			return true
		}
	}
	return false
}
