package kinds_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"acklast"
	"acklast/internal/kinds"
)

var update = flag.Bool("update", false, "write the samples of events/ anew")

const events = "../../events"

// events/ has the samples of the sample kinds, ready to paste. A kind of yours brings its samples and needs no file there;
// if there is one of a sample's name, it is that sample.
func TestEventsHoldTheSamples(t *testing.T) {
	for _, kind := range acklast.Describe(kinds.All()...) {
		if len(kind.Samples) == 0 {
			t.Errorf("%s has no sample", kind.Name)
		}
		for _, sample := range kind.Samples {
			file := filepath.Join(events, sample.Name+".json")
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			if *update {
				text = []byte(sample.Body)
				if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // part of the repository
					t.Fatal(err)
				}
			}
			if got, want := parsed(t, text), parsed(t, []byte(sample.Body)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s holds %v, but the sample of %s is %v: go test ./internal/kinds -update writes it", file, got, kind.Name, want)
			}
		}
	}
}

// Each file of events/README.md is there.
func TestEventsHoldWhatTheirPageLists(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(events, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile("`([a-z0-9-]+\\.(?:json|txt))`").FindAllStringSubmatch(string(page), -1)
	if len(listed) < 2 {
		t.Fatalf("the page lists %d files", len(listed))
	}
	for _, one := range listed {
		if _, err := os.Stat(filepath.Join(events, one[1])); err != nil {
			t.Error(err)
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
