package acklast

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"

	"acklast/internal/job"
)

var described = Define(Definition[struct{}]{
	Name: "test.kind", Key: func(struct{}) (string, []string) { return "s", nil },
	Tables: []Table{{Name: "tests", PartitionKey: "id"}},
}, func(context.Context, Services) (Runner[struct{}], error) { return nil, nil })

// A description needs no environment, and nothing is served.
func TestAFunctionDescribesItsKinds(t *testing.T) {
	var out bytes.Buffer
	p := process{out: &out}
	err := p.start([]string{"describe"}, []Kind{described}, func(context.Context, []Kind) error {
		t.Error("the function was started")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := job.DecodeDescriptions(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if want := Describe(described); !reflect.DeepEqual(got, want) {
		t.Errorf("described %+v, want %+v", got, want)
	}
}

func TestAFunctionStartsWithoutArguments(t *testing.T) {
	started := 0
	err := process{}.start(nil, []Kind{described}, func(_ context.Context, kinds []Kind) error {
		started += len(kinds)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if started != 1 {
		t.Errorf("started with %d kinds, want 1", started)
	}
}

func TestAFunctionRefusesOtherArguments(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"describe", "more"}} {
		err := process{}.start(args, nil, func(context.Context, []Kind) error { t.Error("the function was started"); return nil })
		if err == nil || !strings.Contains(err.Error(), "describe") {
			t.Errorf("%q: %v, want an error that names describe", args, err)
		}
	}
}
