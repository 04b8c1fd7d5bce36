// Command restore compares a restored copy of the ledger with the live ledger, and copies the entries that the live one
// lacks. It never changes an entry that is there. See docs/runbook.md, "The ledger was lost, or restored from a backup".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "restore:", err)
		os.Exit(1)
	}
}

const usage = `go run ./infra/restore [-write] RESTORED LIVE
such as: go run ./infra/restore acklast-ledger-restored acklast-ledger`

// tellEvery is how many pages of entries are between two lines about them.
const tellEvery = 100

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("restore", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	write := flags.Bool("write", false, "copy what the live ledger lacks")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w\nusage: %s", err, usage)
	}
	if flags.NArg() != 2 {
		return errors.New("want two tables\nusage: " + usage)
	}
	from, to := flags.Arg(0), flags.Arg(1)
	if from == to {
		return fmt.Errorf("%s is both tables: restore the backup beside the live ledger", from)
	}
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	pages := 0
	counts, err := dynamo.Restore(ctx, awsclient.DynamoDB(cfg), from, to, *write, time.Now(), func(c dynamo.Restored) {
		if pages++; pages%tellEvery == 0 {
			_, _ = fmt.Fprintf(out, "%d entries read, %d missing, %d copied\n", c.Read, c.Missing, c.Copied)
		}
	})
	if err != nil {
		return fmt.Errorf("%w\n%d entries were read and %d copied until then; run it again, it copies what is still missing", err, counts.Read, counts.Copied)
	}
	_, err = fmt.Fprintf(out, "%s has %d entries: %s has %d of them too, %d are past their retention, %d are missing.\n",
		from, counts.Read, to, counts.There, counts.Expired, counts.Missing)
	switch {
	case err != nil || counts.Missing == 0:
	case *write:
		_, err = fmt.Fprintf(out, "%d were copied to %s.\n", counts.Copied, to)
	default:
		_, err = fmt.Fprintf(out, "Nothing was written. To copy them: go run ./infra/restore -write %s %s\n", from, to)
	}
	return err
}
