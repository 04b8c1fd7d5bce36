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

// deaf is an effect outside the database whose call ignores its end, while the job is claimed.
func deaf(name string) acklast.Kind {
	return acklast.Define(acklast.Definition[payload]{
		Name: name, Key: func(p payload) (string, []string) { return p.ID, nil },
		Samples: []acklast.Sample{{Name: name, Body: `{"kind":"` + name + `","payload":{"id":"1"}}`}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[payload], error) {
		return acklast.NewEffect(s, acklast.Effect[payload]{
			Timeout: 300 * time.Millisecond,
			Send: func(context.Context, string, payload) (string, error) {
				s.Log.Info(name + " calls")
				time.Sleep(time.Hour)
				return "", nil
			},
		})
	})
}

func main() {
	acklast.StartWorker(
		kind("test.hangs", func(ctx context.Context) { <-ctx.Done() }),
		kind("test.panics", func(context.Context) { panic("a bug") }),
		// It ignores the end of its attempt, as code does that calls a service without its context.
		kind("test.ignores", func(context.Context) { time.Sleep(time.Hour) }),
		deaf("test.deaf"),
		kind("test.behaves", func(context.Context) {}),
	)
}
