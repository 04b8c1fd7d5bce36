//go:build engines

package dynamo_test

import (
	"os"
	"testing"
)

// dynalite is the strictest engine about expressions, numbers, keys and sizes. `make test-engines` starts it.
func TestDynalite(t *testing.T) {
	url := os.Getenv("ACKLAST_DYNALITE_URL")
	if url == "" {
		t.Fatal("ACKLAST_DYNALITE_URL is not set: run make test-engines")
	}
	conformance(t, engine{url: func(*testing.T) string { return url }, removes: true, indexesUpdates: true})
}
