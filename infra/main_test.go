package main

import (
	"strings"
	"testing"
)

func TestMissingBinaryIsNamed(t *testing.T) {
	if err := checkDist(t.TempDir()); err == nil || !strings.Contains(err.Error(), "the worker function is not built, run scripts/build-dist.sh") {
		t.Errorf("got %v", err)
	}
}
