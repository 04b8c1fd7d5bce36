// Command stubborn is a worker with kinds whose attempts do not end well.
package main

import (
	"context"
	"time"

	"acklast"
)

type payload struct {
	ID string `json:"id"`
}

func kind(name string, run func(ctx context.Context)) acklast.Kind {
	return acklast.Define(acklast.Definition[payload]{
		Name: name, Key: func(p payload) (string, []string) { return p.ID, nil },
		Samples: []acklast.Sample{{Name: name, Body: `{"kind":"` + name + `","payload":{"id":"1"}}`}},
	}, func(context.Context, acklast.Services) (acklast.Runner[payload], error) {
		return acklast.RunnerFunc[payload](func(ctx context.Context, j *acklast.Job[payload]) error {
			run(ctx)
			if err := ctx.Err(); err != nil {
				return err
			}
			return j.Commit(ctx, "ran")
		}), nil
	})
}

func main() {
	acklast.StartWorker(
		kind("test.hangs", func(ctx context.Context) { <-ctx.Done() }),
		kind("test.panics", func(context.Context) { panic("a bug") }),
		// It ignores the end of its attempt, as code does that calls a service without its context.
		kind("test.ignores", func(context.Context) { time.Sleep(time.Hour) }),
		kind("test.behaves", func(context.Context) {}),
	)
}
