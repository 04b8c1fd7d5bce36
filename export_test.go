package acklast

import (
	"context"

	"acklast/internal/job"
)

// Running is a kind as the worker runs it.
func Running(ctx context.Context, k Kind, s Services) (job.Kind, error) { return k.start(ctx, s) }
