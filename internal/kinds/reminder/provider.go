package reminder

import (
	"context"
	"errors"
)

// Provider delivers messages to people. Send and Lookup keep the contract of acklast.Effect.
type Provider interface {
	Send(ctx context.Context, key string, p Payload) (requestID string, err error)
	Lookup(ctx context.Context, key string, p Payload) (requestID string, err error)
}

// ErrNotFound: there is no such subscription.
var ErrNotFound = errors.New("not found")
