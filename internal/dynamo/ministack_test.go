//go:build engines

package dynamo_test

import (
	"os"
	"testing"
)

// MiniStack supports all that the suite needs of DynamoDB. `make test-engines` starts it.
func TestMiniStack(t *testing.T) {
	url := os.Getenv("ACKLAST_MINISTACK_URL")
	if url == "" {
		t.Fatal("ACKLAST_MINISTACK_URL is not set: run make test-engines")
	}
	conformance(t, engine{url: func(*testing.T) string { return url }, returnsItems: true, transacts: true, hasTTL: true, removes: true, indexesUpdates: true, allReasons: true})
}
