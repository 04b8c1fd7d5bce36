// Command worker is the stack's worker with one more kind, whose jobs kill the process.
package main

import (
	"context"
	"os"

	"acklast"
	"acklast/internal/kinds"
)

type payload struct {
	ID string `json:"id"`
}

func main() {
	poison := acklast.Define(acklast.Definition[payload]{
		Name: "test.poison", Key: func(p payload) (string, []string) { return p.ID, nil },
	}, func(context.Context, acklast.Services) (acklast.Runner[payload], error) {
		return acklast.RunnerFunc[payload](func(context.Context, *acklast.Job[payload]) error {
			os.Exit(3)
			return nil
		}), nil
	})
	acklast.StartWorker(append(kinds.All(), poison)...)
}
