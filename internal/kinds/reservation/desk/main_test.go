package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

var stacks atomic.Int64

// desk is the command in front of an embedded AWS without a worker.
type desk struct {
	t     *testing.T
	stack string
	aws   *local.AWS
}

// embedded starts the AWS. It sets variables of the process, so its tests do not run in parallel.
func embedded(t *testing.T) *desk {
	t.Helper()
	stack := fmt.Sprintf("desk%d-%d", os.Getpid(), stacks.Add(1))
	aws, err := local.StartAWS(t.Context(), stack, topology.Scaled(), 0, acklast.Describe(reservation.Kind())[0].Tables...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = aws.Close() })
	d := &desk{t: t, stack: stack, aws: aws}
	settings(t, aws.Endpoint())
	return d
}

// settings sets the variables of AWS itself, as "acklast local" prints them.
func settings(t *testing.T, endpoint string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": local.Region,
		"AWS_ACCESS_KEY_ID": local.Credential, "AWS_SECRET_ACCESS_KEY": local.Credential,
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
}

type result struct {
	code           int
	stdout, stderr string
}

func (d *desk) run(args ...string) result {
	// This file gets every AWS call of a command, for the check of the policies: see scripts/iam.
	if file := os.Getenv("ACKLAST_CALLS"); file != "" && d.aws != nil {
		endpoint := os.Getenv("AWS_ENDPOINT_URL")
		p := faults.New(endpoint)
		defer p.Close()
		p.Record(file, "desk "+args[0], d.stack)
		d.t.Setenv("AWS_ENDPOINT_URL", p.URL())
		defer d.t.Setenv("AWS_ENDPOINT_URL", endpoint)
	}
	var out, errs bytes.Buffer
	code := run(d.t.Context(), args, &out, &errs, func(name string) string { return map[string]string{"ACKLAST_STACK": d.stack}[name] })
	return result{code, out.String(), errs.String()}
}

// must runs a command line that has to succeed, and decodes its answer into T.
func must[T any](d *desk, args ...string) (answer T) {
	d.t.Helper()
	r := d.run(args...)
	if r.code != exitOK {
		d.t.Fatalf("desk %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		d.t.Fatalf("%v in:\n%s", err, r.stdout)
	}
	return answer
}

// fails runs a command line that has to end with the code. Its error has to contain all of wanted, and it has
// to print no answer.
func (d *desk) fails(code int, wanted []string, args ...string) result {
	d.t.Helper()
	r := d.run(args...)
	if r.code != code {
		d.t.Errorf("desk %s: exit code %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.stderr)
	}
	contains(d.t, r.stderr, wanted...)
	if r.stdout != "" {
		d.t.Errorf("desk %s answered: %s", strings.Join(args, " "), r.stdout)
	}
	return r
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func hold(more string) []string {
	return strings.Fields("hold --reservation r-1 --command hold-1 --resource room-7 --units 2 " + more)
}

// sent takes the jobs that are ready on the source lane.
func (d *desk) sent() (bodies []string) {
	d.t.Helper()
	got, err := lanes.New(awsclient.SQS(d.aws.AWSConfig()), d.aws.QueueURLs()).Receive(d.t.Context(), job.Source, 10, time.Minute, time.Second)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range got {
		bodies = append(bodies, m.Body)
	}
	return bodies
}

func TestHold(t *testing.T) {
	d := embedded(t)
	until := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	want := holdReport{
		ReservationID: "r-1", CommandID: "hold-1", State: reservation.Held, ResourceID: "room-7", Units: 2,
		ExpiresAt: until, Deadline: until.Add(15 * time.Minute), Key: "reservation.expire/r-1/hold-1",
	}
	for _, time := range []string{"first", "second"} {
		if got := must[holdReport](d, hold("--capacity 5 --until "+stamp(until))...); got != want {
			t.Errorf("%s hold: %+v, want %+v", time, got, want)
		}
	}
}

// An expiry without a deadline is sent, and carries none.
func TestHoldWithoutADeadline(t *testing.T) {
	d := embedded(t)
	got := must[holdReport](d, hold("--for 1ms --deadline-after 0 --capacity 5")...)
	if !got.Deadline.IsZero() {
		t.Errorf("the deadline is %v", got.Deadline)
	}
	// The queue delays by whole seconds, so a delay of 1 ms is none.
	var bodies []string
	for end := time.Now().Add(10 * time.Second); len(bodies) == 0 && time.Now().Before(end); {
		bodies = d.sent()
	}
	if len(bodies) != 1 || strings.Contains(bodies[0], "deadline") {
		t.Errorf("the source lane holds %q, want one job without a deadline", bodies)
	}
}

func TestConfirm(t *testing.T) {
	d := embedded(t)
	must[holdReport](d, hold("--for 1m --capacity 5")...)
	want := confirmReport{ReservationID: "r-1", CommandID: "hold-1", State: reservation.Confirmed}
	for _, time := range []string{"first", "second"} {
		if got := must[confirmReport](d, "confirm", "--reservation", "r-1", "--command", "hold-1"); got != want {
			t.Errorf("%s confirmation: %+v, want %+v", time, got, want)
		}
	}
}

func TestHoldIsRefused(t *testing.T) {
	d := embedded(t)
	r := d.fails(exitRefused, []string{"resource room-7 does not exist", "--capacity UNITS", "--until "}, hold("--for 1m")...)
	_, until, _ := strings.Cut(r.stderr, "--until ")
	until, _, _ = strings.Cut(until, " ")
	must[holdReport](d, hold("--capacity 3 --until "+until)...) // as it said

	d.fails(exitRefused, []string{"under the same command", "--until " + until, "a new --command"}, hold("--for 2m")...)
	d.fails(exitRefused, []string{"held by command hold-1 until " + until},
		"hold", "--reservation", "r-1", "--command", "hold-2", "--resource", "room-7", "--for", "1m")
	d.fails(exitRefused, []string{"fewer than 2 units available", "--until "},
		"hold", "--reservation", "r-2", "--command", "hold-1", "--resource", "room-7", "--units", "2", "--for", "1m")
	d.fails(exitRefused, []string{"not held yet", "repeat the hold"}, "confirm", "--reservation", "r-2", "--command", "hold-1")
	d.fails(exitRefused, []string{"held by command hold-1, not by other"}, "confirm", "--reservation", "r-1", "--command", "other")
	d.fails(exitRefused, []string{"no reservation r-9"}, "confirm", "--reservation", "r-9", "--command", "hold-1")
	must[confirmReport](d, "confirm", "--reservation", "r-1", "--command", "hold-1")
	d.fails(exitRefused, []string{"confirmed already"}, hold("--until "+until)...)
}

// Only a worker brings about these states.
func TestErrorsAreSentences(t *testing.T) {
	until := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	h := reservation.Hold{Payload: reservation.Payload{ReservationID: "r-1", CommandID: "c", ResourceID: "x", Units: 1}, ExpiresAt: until}
	state := func(s reservation.State) error {
		return &reservation.StateError{Found: reservation.Reservation{Payload: h.Payload, State: s, ExpiresAt: until, UpdatedAt: until}}
	}
	contains(t, holdError(h, state(reservation.Abandoned)).Error(), "r-1 is abandoned", "a new --command")
	contains(t, holdError(h, reservation.ErrCommandUsed).Error(), "command c of reservation r-1 was used before", "a new --command")
	contains(t, holdError(h, acklast.ErrContended).Error(), "repeat this hold with --until 2026-12-01T10:00:00Z")
	contains(t, holdError(h, errors.New("down")).Error(), "may be half done", "--until 2026-12-01T10:00:00Z")
	contains(t, confirmError("r-1", "c", state(reservation.Expired)).Error(), "r-1 is expired since 2026-12-01T10:00:00Z", "a new --command")
}

// A bad command line is refused before any call.
func TestBadCommandLines(t *testing.T) {
	d := &desk{t: t, stack: "none"}
	settings(t, "http://127.0.0.1:1")
	for line, wanted := range map[string]string{
		"":                                          "hold or confirm",
		"nonsense":                                  `"nonsense" is none of the commands`,
		"hold --nope":                               "flag provided but not defined: -nope",
		"hold more":                                 `"more" is more than desk hold takes`,
		"hold --reservation r --command c":          "--for or --until",
		"confirm --reservation r":                   "--command is missing",
		"confirm --reservation= --command c":        "--reservation is missing",
		hold2("--for 1m --until 2026-12-01"):        "--for or --until",
		hold2("--for 9601h"):                        "more than 9600h0m0s ahead",
		hold2("--for -1m"):                          "want a positive duration",
		hold2("--until tomorrow"):                   "want a time with a zone",
		hold2("--until 2026-12-01T10:00:00"):        "want a time with a zone",
		hold2("--for 1m --deadline-after -1s"):      "--deadline-after is -1s",
		hold2("--for 1m --capacity -1"):             "--capacity is -1",
		hold2("--for 1m --units 0"):                 "units is 0",
		hold2("--for 1m --reservation="):            "reservationId is missing",
		hold2("--for 1m --command a\x07b"):          "commandId has a control character",
		hold2("--for 1m --units 90071992547409920"): "units is 90071992547409920",
	} {
		d.fails(exitRefused, []string{wanted}, strings.Fields(line)...)
	}
}

func hold2(more string) string { return strings.Join(hold(more), " ") }

func TestHelp(t *testing.T) {
	d := &desk{t: t, stack: "none"}
	for line, wanted := range map[string][]string{
		"--help":         {"desk hold", "desk confirm", "AWS_ENDPOINT_URL"},
		"hold --help":    {"-capacity", "-deadline-after", "ACKLAST_STACK"},
		"confirm --help": {"-reservation", "-command"},
	} {
		r := d.run(strings.Fields(line)...)
		if r.code != exitOK {
			t.Errorf("desk %s: exit code %d", line, r.code)
		}
		contains(t, r.stdout+r.stderr, wanted...)
	}
}

func TestWithoutARegion(t *testing.T) {
	d := &desk{t: t, stack: "none"}
	settings(t, "http://127.0.0.1:1")
	t.Setenv("AWS_REGION", "")
	d.fails(exitRefused, []string{"AWS_REGION", "acklast local"}, hold("--for 1m")...)
}

// After an outage in the middle, the error says how to complete the hold, and that completes it.
func TestHoldHalfDone(t *testing.T) {
	d := embedded(t)
	proxy := faults.New(d.aws.Endpoint())
	t.Cleanup(proxy.Close)
	proxy.Add(faults.Rule{Operation: "SendMessageBatch", Fault: faults.Error(403, "AccessDenied", "no")})
	t.Setenv("AWS_ENDPOINT_URL", proxy.URL())
	r := d.fails(exitFailed, []string{"may be half done", "--until "}, hold("--for 1m --capacity 5")...)
	_, until, _ := strings.Cut(r.stderr, "--until ")
	until, _, _ = strings.Cut(until, " ")
	t.Setenv("AWS_ENDPOINT_URL", d.aws.Endpoint())
	must[holdReport](d, hold("--until "+until)...)
}
