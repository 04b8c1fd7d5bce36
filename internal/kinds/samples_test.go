package kinds_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"acklast"
	"acklast/internal/kinds"
)

var update = flag.Bool("update", false, "write the kinds' samples into events/")

// A kind brings its samples. The files in events/ are the same, ready to paste.
func TestEventsHoldTheSamplesOfEveryKind(t *testing.T) {
	for _, kind := range acklast.Describe(kinds.All()...) {
		if len(kind.Samples) == 0 {
			t.Errorf("%s has no sample", kind.Name)
		}
		for _, sample := range kind.Samples {
			file := filepath.Join("..", "..", "events", sample.Name+".json")
			if *update {
				if err := os.WriteFile(file, []byte(sample.Body), 0o644); err != nil { //nolint:gosec // part of the repository
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: sample %s has no file %s: go test ./internal/kinds -update writes it", kind.Name, sample.Name, file)
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			if got, want := parsed(t, text), parsed(t, []byte(sample.Body)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s holds %v, but the sample of %s is %v: go test ./internal/kinds -update writes it", file, got, kind.Name, want)
			}
		}
	}
}

// A sample that its own kind cannot read has no key.
func TestEverySampleCanBeRead(t *testing.T) {
	for _, kind := range acklast.Describe(kinds.All()...) {
		for _, sample := range kind.Samples {
			if sample.Key == "" {
				t.Errorf("%s cannot read its sample %s", kind.Name, sample.Name)
			}
		}
	}
}

func parsed(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
