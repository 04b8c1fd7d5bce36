package reminder

import (
	"context"

	"acklast/internal/job"
)

// Run is a sender's run.
func Run(x *Sender) func(context.Context, job.Delivery) job.Result { return x.run }
