package dynamo_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/topology"
)

// entries makes entries with every field of the type, so that the tests find a new field that is not stored.
var entries = func() *rapid.Generator[ledger.Entry] {
	times := rapid.Custom(func(t *rapid.T) any {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(-1, 253402300799999).Draw(t, "ms")).UTC()
	})
	counts := rapid.IntRange(0, 1<<40)
	cfg := rapid.MakeConfig{
		Types: map[reflect.Type]*rapid.Generator[any]{reflect.TypeFor[time.Time](): times},
		Kinds: map[reflect.Kind]*rapid.Generator[any]{reflect.Int: counts.AsAny()},
		Fields: map[reflect.Type]map[string]*rapid.Generator[any]{reflect.TypeFor[ledger.Entry](): {
			"Version": rapid.Int64Range(1, 1<<53).AsAny(),
			"TTL": rapid.Custom(func(t *rapid.T) any { // DynamoDB reads it as seconds
				return times.Draw(t, "ttl").(time.Time).Truncate(time.Second)
			}),
			"TimeBudget": rapid.Custom(func(t *rapid.T) any { // in milliseconds
				return time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "budget")) * time.Millisecond
			}),
			"History":   lists[ledger.Event](times, counts),
			"Evidence":  lists[ledger.Evidence](times, counts),
			"Decisions": lists[ledger.Decision](times, counts),
		}},
	}
	return rapid.Map(rapid.MakeCustom[ledger.Entry](cfg), func(e ledger.Entry) ledger.Entry {
		key, err := job.Key("kind", e.Key+"1", e.Subject)
		if err != nil {
			key = "kind/1"
		}
		e.Key = key
		e.Subject, _ = job.SubjectOf(key)
		return e
	})
}()

// lists makes lists of elements with every field of their type. No list is empty and not nil.
func lists[T any](times *rapid.Generator[any], counts *rapid.Generator[int]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		l := rapid.SliceOfN(rapid.MakeCustom[T](rapid.MakeConfig{
			Types: map[reflect.Type]*rapid.Generator[any]{reflect.TypeFor[time.Time](): times},
			Kinds: map[reflect.Kind]*rapid.Generator[any]{reflect.Int: counts.AsAny()},
		}), 0, ledger.MaxHistory).Draw(t, "list")
		if len(l) == 0 {
			return []T(nil)
		}
		return l
	})
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := entries.Draw(t, "entry")
		got, err := dynamo.Unmarshal(dynamo.Marshal(e))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("got  %+v\nwant %+v", got, e)
		}
		for name, v := range dynamo.Marshal(e) {
			if s, ok := v.(*types.AttributeValueMemberS); ok && s.Value == "" && name != "key" {
				t.Fatalf("attribute %s is an empty string", name)
			}
		}
	})
}

// full is an entry with every field set.
func full() ledger.Entry {
	var e ledger.Entry
	fill(reflect.ValueOf(&e).Elem())
	return e
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x/y")
	case reflect.Int64:
		v.SetInt(3e6) // milliseconds, where it is a duration
	case reflect.Int:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	e := full()
	e.Status = ledger.Isolated
	it := dynamo.Marshal(e)
	// The format, and the two keys of the index.
	if got, want := len(it), reflect.TypeFor[ledger.Entry]().NumField()+3; got != want {
		t.Errorf("an entry has %d attributes, want %d", got, want)
	}
	index := topology.NamesOf("x").Tables()[0].Index
	for _, name := range append([]string{index.PartitionKey, index.SortKey}, index.Include...) {
		if it[name] == nil {
			t.Errorf("the index has attribute %s, which no entry has", name)
		}
	}
	history := it["history"].(*types.AttributeValueMemberL).Value[0].(*types.AttributeValueMemberM).Value
	if got, want := len(history), reflect.TypeFor[ledger.Event]().NumField(); got != want {
		t.Errorf("an event of %d fields has %d attributes", want, got)
	}
	for a := range it {
		for b := range it {
			if a != b && strings.HasPrefix(b, a) {
				t.Errorf("attribute %s is a prefix of %s: an engine that replaces placeholders as text mixes them up", a, b)
			}
		}
	}
	if ttl := it["ttl"].(*types.AttributeValueMemberN).Value; ttl != "1796119200" {
		t.Errorf("ttl is %s, want seconds", ttl)
	}
}

func TestTimesAreCutToMilliseconds(t *testing.T) {
	t.Parallel()
	e := ledger.Entry{Key: "k/1", Version: 1, Due: now.Add(999 * time.Microsecond).In(time.FixedZone("", 3600))}
	if got := dynamo.Stored(e).Due; got != now {
		t.Errorf("got %v, want %v", got, now)
	}
}

func TestUnmarshalRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	event := func(v types.AttributeValue) types.AttributeValue {
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{v}}
	}
	for name, v := range map[string]types.AttributeValue{
		"status":      num("1"),
		"attempts":    num("1.5"),
		"contentions": text("1"),
		"due":         text("2026-12-01"),
		"ttl":         text("x"),
		"history":     text("x"),
		"version":     num("0"),
		"owner":       event(num("1")),
	} {
		it := dynamo.Marshal(full())
		it[name] = v
		if _, err := dynamo.Unmarshal(it); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
	for _, v := range []types.AttributeValue{text("x"), &types.AttributeValueMemberM{Value: item{"at": text("x")}}} {
		it := dynamo.Marshal(full())
		it["history"] = event(v)
		if _, err := dynamo.Unmarshal(it); err == nil {
			t.Errorf("history of %v was read", v)
		}
	}
	it := dynamo.Marshal(full())
	delete(it, "version")
	if _, err := dynamo.Unmarshal(it); err == nil {
		t.Error("an item without a version was read as an entry")
	}
	it = dynamo.Marshal(full())
	it["novel"] = num("1")
	if _, err := dynamo.Unmarshal(it); err != nil {
		t.Errorf("an attribute of a newer version: %v", err)
	}
}
