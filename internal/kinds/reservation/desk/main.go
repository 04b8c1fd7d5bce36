// Command desk is the producer of reservation.expire: it holds units of a resource for a while, and makes a
// hold permanent. It uses only what any producer has, an acklast.Client and the kind's own tables.
//
// It needs the AWS settings of its environment, sqs:GetQueueUrl and sqs:SendMessage on the source queue,
// dynamodb:ConditionCheckItem on the ledger's table, and dynamodb:GetItem, PutItem and UpdateItem on the
// kind's tables.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"acklast"
	"acklast/internal/kinds/reservation"
)

// The exit codes.
const (
	exitOK = iota
	// exitFailed: the command did not do its work, or not all of it.
	exitFailed
	// exitRefused: the command line is wrong, or the present state does not allow the command.
	exitRefused
)

const usage = `Hold units of a resource for a while, and make a hold permanent.

  desk hold    --reservation ID --command ID --resource ID --for 10s
  desk confirm --reservation ID --command ID

"desk hold --help" and "desk confirm --help" list the flags. It works where AWS's own settings point it:
AWS_ENDPOINT_URL for the address that "acklast local" prints, else AWS with your profile and region.
Repeating a command is safe.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	c := command{stderr: stderr, getenv: getenv, now: time.Now}
	var report any
	err := error(refusal("name a command, hold or confirm"))
	if len(args) > 0 {
		switch args[0] {
		case "hold":
			report, err = c.hold(ctx, args[1:])
		case "confirm":
			report, err = c.confirm(ctx, args[1:])
		case "help", "-h", "-help", "--help":
			_, _ = io.WriteString(stdout, usage)
			return exitOK
		default:
			err = refusal(fmt.Sprintf("%q is none of the commands, hold and confirm", args[0]))
		}
	}
	var refused refusal
	switch {
	case err == nil:
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err = e.Encode(report); err == nil {
			return exitOK
		}
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errTold):
		return exitRefused
	case errors.As(err, &refused):
		_, _ = fmt.Fprintf(stderr, "desk: %v\n", err)
		return exitRefused
	}
	_, _ = fmt.Fprintf(stderr, "desk: %v\n", err)
	return exitFailed
}

// errTold: the flag set has already printed the error and the usage.
var errTold = errors.New("the command line is wrong")

// refusal is an error in the command line.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

type command struct {
	stderr io.Writer
	getenv func(string) string
	now    func() time.Time
	stack  string
}

// flags returns a flag set with the flags of both commands. id and hold name the hold.
func (c *command) flags(name string, id, hold *string) *flag.FlagSet {
	f := flag.NewFlagSet("desk "+name, flag.ContinueOnError)
	f.SetOutput(c.stderr)
	f.StringVar(id, "reservation", "", "reservation id")
	f.StringVar(hold, "command", "", "command id: names the hold, so that it can be repeated")
	f.StringVar(&c.stack, "stack", cmp.Or(c.getenv("ACKLAST_STACK"), "acklast"), "name of the stack, also ACKLAST_STACK")
	return f
}

// parse reads the command line. Its error is a refusal, errTold or flag.ErrHelp.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return errTold
	}
	if f.NArg() > 0 {
		return refuse("%q is more than %s takes", f.Arg(0), f.Name())
	}
	return nil
}

// connect builds the parts that a producer needs. It makes no call.
func (c *command) connect(ctx context.Context) (*reservation.Store, *acklast.Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, nil, refuse("no AWS region is set: use AWS_REGION, or copy the exports that acklast local prints")
	}
	place := "AWS " + cfg.Region
	if cfg.BaseEndpoint != nil {
		place = aws.ToString(cfg.BaseEndpoint)
	}
	_, _ = fmt.Fprintf(c.stderr, "Writing to stack %s at %s\n", c.stack, place)
	client := acklast.NewClient(cfg, c.stack)
	return reservation.NewStore(client.DynamoDB(), client.Table, c.now), client, nil
}

// holdReport is the answer of hold.
type holdReport struct {
	ReservationID string            `json:"reservationId"`
	CommandID     string            `json:"commandId"`
	ResourceID    string            `json:"resourceId"`
	Units         int64             `json:"units"`
	State         reservation.State `json:"state"`
	ExpiresAt     time.Time         `json:"expiresAt"`
	// Deadline is the time by which the hold should have been released; absent when there is none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Key is the key of the job that expires the hold.
	Key string `json:"key"`
}

func (c *command) hold(ctx context.Context, args []string) (any, error) {
	var h reservation.Hold
	f := c.flags("hold", &h.ReservationID, &h.CommandID)
	f.StringVar(&h.ResourceID, "resource", "", "resource id")
	f.Int64Var(&h.Units, "units", 1, "units to hold")
	lasts := f.Duration("for", 0, "how long to hold, such as 5m; at most 24h")
	until := f.String("until", "", "until when to hold, in RFC 3339, in place of --for")
	after := f.Duration("deadline-after", 15*time.Minute, "how long after that the units must be back at the latest; 0 means no deadline")
	capacity := f.Int64("capacity", 0, "create the resource with this many units if it is missing; 0 creates none")
	if err := parse(f, args); err != nil {
		return nil, err
	}
	switch {
	case (*lasts != 0) == (*until != ""):
		return nil, refuse("give either --for or --until")
	case *until != "":
		t, err := time.Parse(time.RFC3339, *until)
		if err != nil {
			return nil, refuse("--until is %q, want a time with a zone such as 2026-12-01T10:00:00Z", *until)
		}
		h.ExpiresAt = t
	case *lasts < 0:
		return nil, refuse("--for is %v, want a positive duration such as 5m", *lasts)
	default:
		h.ExpiresAt = c.now().Add(*lasts)
	}
	h.ExpiresAt = h.ExpiresAt.UTC().Truncate(time.Millisecond)
	switch {
	case *after < 0:
		return nil, refuse("--deadline-after is %v, want 0 or more", *after)
	case *after > 0:
		h.Deadline = h.ExpiresAt.Add(*after)
	}
	if *capacity < 0 {
		return nil, refuse("--capacity is %d, want 0 or more", *capacity)
	}
	if err := h.Check(); err != nil {
		return nil, refusal(err.Error())
	}
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	store, client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := client.Check(h.Job()); err != nil { // before anything is written
		return nil, refusal(err.Error())
	}
	if *capacity > 0 {
		if err := store.CreateResource(ctx, h.ResourceID, *capacity); err != nil {
			return nil, err
		}
	}
	if err := reservation.NewDesk(store, client).Hold(ctx, h); err != nil {
		return nil, holdError(h, err)
	}
	return holdReport{
		ReservationID: h.ReservationID, CommandID: h.CommandID, ResourceID: h.ResourceID, Units: h.Units,
		State: reservation.Held, ExpiresAt: h.ExpiresAt, Deadline: h.Deadline, Key: key,
	}, nil
}

// confirmReport is the answer of confirm.
type confirmReport struct {
	ReservationID string            `json:"reservationId"`
	CommandID     string            `json:"commandId"`
	State         reservation.State `json:"state"`
}

func (c *command) confirm(ctx context.Context, args []string) (any, error) {
	var id, hold string
	if err := parse(c.flags("confirm", &id, &hold), args); err != nil {
		return nil, err
	}
	if err := errors.Join(acklast.CheckID("--reservation", id), acklast.CheckID("--command", hold)); err != nil {
		return nil, refusal(err.Error())
	}
	store, client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := reservation.NewDesk(store, client).Confirm(ctx, id, hold); err != nil {
		return nil, confirmError(id, hold, err)
	}
	return confirmReport{ReservationID: id, CommandID: hold, State: reservation.Confirmed}, nil
}
