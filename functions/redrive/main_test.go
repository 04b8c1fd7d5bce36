package main

import (
	"context"
	"errors"
	"testing"
)

func TestEveryRequestIsToldThatNothingIsThere(t *testing.T) {
	for _, request := range []string{`{}`, `{"action":"plan"}`, `null`} {
		if answer, err := handle(context.Background(), []byte(request)); answer != nil || !errors.Is(err, ErrNotBuilt) {
			t.Errorf("%s: got %v, %v", request, answer, err)
		}
	}
}
