//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// The commands against the redrive function that "acklast local" runs.
func TestRedriveCommands(t *testing.T) {
	r := startLocal(t, "--port", "0", "--scaled", "--processes", "1", "--output", "json")
	var report localReport
	if err := json.Unmarshal([]byte(r.stdout.String()), &report); err != nil {
		t.Fatal(err)
	}
	user := &cli{t: t, env: map[string]string{"AWS_ENDPOINT_URL": report.Endpoint, envStack: r.stack}}
	// A job whose record is missing, and a body nobody can read.
	user.must("send", `{"kind":"reservation.expire","payload":{"reservationId":"r-1","commandId":"h-1","resourceId":"room","units":1}}`)
	var seen redrive.Response
	eventually(t, 20e9, func() bool {
		seen = decode[redrive.Response](t, user.must("dlq", "--output", "json"))
		return len(seen.Groups) == 1
	}, func() string { return r.stderr.String() })
	id := seen.Groups[0].Samples[0].Message
	contains(t, user.must("dlq").stdout, "rejected", "reservation.expire/r-1/h-1", "redrive 1", "1 of about 1 messages seen", "Next: acklast redrive plan --class rejected")
	contains(t, user.must("dlq", "--list").stdout, id, "reservation.expire/r-1/h-1", "DELETED BY SQS")
	if listed := decode[redrive.Listed](t, user.must("dlq", "--list", "--payload", "reservationId=r-1", "--output", "json")); listed.Message != id {
		t.Errorf("listed %q, want %q", listed.Message, id)
	}
	shown := user.must("dlq", "--show", id)
	contains(t, shown.stdout, id, "reservation.expire/r-1/h-1")
	if strings.Contains(shown.stdout, `"commandId"`) {
		t.Error("the payload is shown without having been asked for")
	}
	contains(t, user.must("dlq", "--show", id, "--body").stdout, `"commandId":"h-1"`)

	user.refused(exitRefused, []string{"rum"}, "redrive", "rum")
	user.refused(exitRefused, []string{`there is no class "transent"`}, "redrive", "plan", "--class", "transent", "--reason", "x")
	user.refused(exitRefused, []string{"selection is empty"}, "redrive", "plan", "--reason", "x")
	user.refused(exitRefused, []string{"reason"}, "redrive", "plan", "--all")
	user.refused(exitRefused, []string{"--open and --count belong together"}, "redrive", "plan", "--all", "--open", "--reason", "x")
	open := user.must("redrive", "plan", "--all", "--open", "--count", "7", "--by", "ada", "--reason", "x")
	contains(t, open.stdout, "up to 7 messages", `{"all":true}`, "an open plan", "Next: acklast redrive approve p-")
	user.must("redrive", "revoke", decode[redrive.Response](t, user.must("redrive", "status", "--output", "json")).Runs[0].Plan, "--by", "ada", "--reason", "x")
	plan := decode[redrive.Response](t, user.must("redrive", "plan", "--all", "--by", "ada", "--reason", "x", "--output", "json")).Plan
	user.refused(exitRefused, []string{"somebody else has to approve"}, "redrive", "approve", plan.ID, "--yes", "--by", "ada", "--reason", "x")

	// Shown, then asked, then approved.
	user.refused(exitRefused, []string{plan.ID, "reservation.expire/r-1/h-1", "Approve this?", "not confirmed"}, "redrive", "approve", plan.ID, "--by", "grace", "--reason", "x")

	user.refused(exitRefused, []string{"PLAN", plan.ID, "not confirmed"}, "redrive", "run", "latest")
	// Against the switch nothing begins, by a plan or by a message, and no plan is made.
	user.must("redrive", "stop", "--by", "ada", "--reason", "incident")
	user.refused(exitRefused, []string{"the kill switch is on, by ada: incident", "acklast redrive resume"}, "redrive", "run", plan.ID, "--yes")
	user.refused(exitRefused, []string{"the kill switch is on, by ada: incident"}, "redrive", "run", "--only", id, "--reason", "x", "--yes")
	if runs := decode[redrive.Response](t, user.must("redrive", "status", "--output", "json")).Runs; len(runs) != 2 || runs[0].State != redrive.Planned {
		t.Errorf("after two refusals: %+v, want no plan more, and no run of the last one", runs)
	}
	user.must("redrive", "resume", "--by", "ada", "--reason", "over")
	// Not confirmed: nothing runs.
	user.refused(exitRefused, []string{"PLAN", plan.ID, "not confirmed"}, "redrive", "run", plan.ID)
	// Its record is still missing, so its canary fails: exit code 3, and the reason.
	failed := user.run("redrive", "run", plan.ID, "--yes")
	if failed.code != exitStopped {
		t.Fatalf("exit code %d\n%s%s", failed.code, failed.stdout, failed.stderr)
	}
	contains(t, failed.stdout, "halted canary", "the canary failed", "isolated again")
	// The live view has the run, its group and the outcomes, and opens the run.
	look := decode[overview.Snapshot](t, user.must("watch", "--once", "--output", "json"))
	if look.Run == nil || look.Run.ID != plan.Run || look.Run.Code != redrive.HaltCanary {
		t.Errorf("run is %+v, want %s, halted by its canary", look.Run, plan.Run)
	}
	if look.Isolated == nil || len(look.Isolated.Groups) != 1 || look.Isolated.Groups[0].Jobs[0] != "reservation.expire/r-1/h-1" {
		t.Errorf("isolated are %+v, want reservation.expire/r-1/h-1 alone", look.Isolated)
	} else if seen.Groups[0].Fingerprint != look.Isolated.Groups[0].Fingerprint {
		t.Errorf("fingerprint is %q, want the look's, %q", look.Isolated.Groups[0].Fingerprint, seen.Groups[0].Fingerprint)
	}
	// Two isolations: of its first delivery, and of the redriven one. Metric lines come after what they count.
	eventually(t, time.Minute, func() bool {
		look = decode[overview.Snapshot](t, user.must("watch", "--once", "--output", "json"))
		return look.Series.Total(overview.IsolatedNow) == 2 && look.Series.Total(overview.Redriven) == 1 && look.Series.Total(overview.Recovered) == 1
	}, func() string {
		return fmt.Sprintf("series are %+v, want two isolations, and one redriven job on the recovery lane", look.Series)
	})
	watcher := &app{stack: r.stack, endpoint: report.Endpoint, getenv: func(string) string { return "" }, now: time.Now}
	place, err := watcher.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := watcher.loadScreen(t.Context(), place, screen{page: pageRuns}, 80)
	if err != nil || len(runs.runs) != 2 {
		t.Errorf("runs are %+v, %v, want two", runs.runs, err)
	}
	opened, err := watcher.loadScreen(t.Context(), place, screen{page: pageRun, id: plan.ID}, 80)
	if err != nil || opened.run != plan.Run || opened.plan != plan.ID {
		t.Errorf("opened %q of plan %q, %v, want %q of %q", opened.run, opened.plan, err, plan.Run, plan.ID)
	}
	contains(t, strings.Join(opened.text, "\n"), "canary failed; window: 1 of 1 sent jobs ran, 0 well", "isolated again")

	if got := user.run("redrive", "status", plan.Run); got.code != exitStopped {
		t.Errorf("status: exit code %d", got.code)
	}

	contains(t, user.must("audit", plan.Run).stdout, "intent", "sent", "ran", "reservation.expire/r-1/h-1", id, "ENDING", "isolated again", "rejected, permanent: ", "The endings are as of ")
	only := user.must("audit", plan.Run, "--ending", "isolated again").stdout
	contains(t, only, "sent", "reservation.expire/r-1/h-1", id, "isolated again")
	if strings.Contains(only, "intent") {
		t.Errorf("the audit of one ending has other lines:\n%s", only)
	}
	contains(t, user.must("audit", plan.Run, "--ending", "gone").stderr, `No message of `+plan.Run+` ended as "gone"`)
	user.refused(exitRefused, []string{`there is no ending "failed", want one of "succeeded"`}, "audit", plan.Run, "--ending", "failed")
	user.refused(exitRefused, []string{"--ending selects from the audit of a run"}, "audit", plan.ID, "--ending", "gone")
	contains(t, user.must("audit", plan.ID).stdout, "planned", "ada", "ran")
	contains(t, user.must("audit", "reservation.expire/r-1/h-1").stdout, "sent", id)

	user.must("redrive", "stop", "--by", "ada", "--reason", "looks wrong")
	contains(t, user.must("redrive", "status").stdout, plan.Run, "halted canary", "The kill switch is on, by ada")
	user.must("redrive", "resume", "--by", "ada", "--reason", "go on")
	contains(t, user.must("redrive", "revoke", plan.Run, "--by", "ada", "--reason", "enough").stdout, "revoked")

	user.refused(exitRefused, []string{"is isolated with class", "only an isolated ambiguous job is decided"}, "decide", "reservation.expire/r-1/h-1", "--sent", "--by", "g", "--reason", "x")
	user.refused(exitRefused, []string{"sent"}, "decide", "reservation.expire/r-1/h-1", "--sent", "--not-sent", "--by", "g", "--reason", "x")

	// Its body is printed, edited, shown as a diff and approved by somebody else.
	id = decode[redrive.Response](t, user.must("dlq", "--output", "json")).Groups[0].Samples[0].Message
	body := filepath.Join(t.TempDir(), "body.json")
	original := user.must("redrive", "mend", id).stdout
	if err := os.WriteFile(body, []byte(strings.Replace(original, `"units":1`, `"units":2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	mended := user.must("redrive", "mend", id, "--file", body, "--by", "ada", "--reason", "two rooms")
	contains(t, mended.stdout, `-     "units": 1`, `+     "units": 2`, "needs approval  a mended body", "Next: acklast redrive approve p-")
	plan = decode[redrive.Response](t, user.must("redrive", "mend", id, "--file", body, "--by", "ada", "--reason", "two rooms", "--output", "json")).Plan
	user.refused(exitRefused, []string{`+     "units": 2`, "Approve this?"}, "redrive", "approve", plan.ID, "--by", "grace", "--reason", "x")
	contains(t, user.must("audit", plan.ID, "--body", id).stdout, `+     "units": 2`)

	contains(t, user.must("dlq", "--show", "reservation.expire/r-1/h-1").stdout, id)
	user.refused(exitRefused, []string{"name a job, or select jobs"}, "decide", "--class", "ambiguous", "--sent", "--reason", "x")
	user.refused(exitRefused, []string{"the selection selects 0 messages, and the request confirms 2"}, "decide", "--class", "ambiguous", "--count", "2", "--sent", "--reason", "x")
	user.refused(exitRefused, []string{`name a plan or a run, or say "latest"`}, "redrive", "run", "--yes")
	user.refused(exitRefused, []string{"--watch watches one run"}, "redrive", "status", "--watch")
	where := report.Endpoint
	if os.Getenv("ACKLAST_CALLS") != "" {
		where = "http://127.0.0.1:" // the recorder stands before it, on another port
	}
	contains(t, user.must("redrive", "status").stderr, "Stack "+r.stack+" at "+where)
	contains(t, user.must("discard", id, "--by", "grace", "--reason", "never existed").stdout, "discarded")
	contains(t, user.must("job", "r-1").stdout, "terminal", "discarded")
	var discard string
	for _, line := range decode[redrive.Response](t, user.must("audit", "reservation.expire/r-1/h-1", "--output", "json")).Audit {
		if line.What == "discarded" {
			discard = line.Run
		}
	}
	contains(t, user.must("redrive", "resend", discard, id, "--by", "ada", "--reason", "wanted").stdout, discard, `"reservationId": "r-1"`, "a job that was discarded")
	if got := user.run("discard", id, "--by", "grace", "--reason", "again"); got.code != exitRefused || !strings.Contains(got.stdout, "not-seen") {
		t.Errorf("again: exit code %d\n%s", got.code, got.stdout)
	}

	// A lane that is paused is named while the run waits for it.
	user.must("send", `{"kind":"reservation.expire","payload":{"reservationId":"r-2","commandId":"h-1","resourceId":"room","units":1}}`)
	eventually(t, 20e9, func() bool {
		seen = decode[redrive.Response](t, user.must("dlq", "--output", "json"))
		return len(seen.Groups) == 1
	}, func() string { return r.stderr.String() })
	user.must("pause", "recovery")
	said := new(buffer)
	ended := make(chan result, 1)
	go func() {
		ended <- user.runContext(t.Context(), said, "redrive", "run", "--only", "reservation.expire/r-2/h-1", "--reason", "x", "--yes")
	}()
	eventually(t, 20e9, func() bool { return strings.Contains(said.String(), "The recovery lane is paused") }, said.String)
	user.must("redrive", "stop", latest)
	if got := <-ended; got.code != exitStopped || !strings.Contains(got.stdout, "halted stopped") {
		t.Errorf("stopped: exit code %d\n%s", got.code, got.stdout)
	}
	user.must("resume", "recovery")
}

// While it waits, a run shows how far it is, how fast, and what became of the jobs it watches.
func TestProgressOfARun(t *testing.T) {
	var said bytes.Buffer
	a := &app{stderr: &said}
	run := &redrive.Run{
		State: redrive.Active, Total: 40, Canary: redrive.CanaryPassed,
		Endings: map[redrive.Ending]int{redrive.Succeeded: 2, redrive.Again: 1},
	}
	a.progress(run, 10, 9.5)
	contains(t, said.String(), "[#####....", "10 of 40", "9.5/s", "active", "canary passed", "isolated again 1, succeeded 2")
	said.Reset()
	run.State, run.Why = redrive.Halted, "the canary failed"
	a.progress(run, 3, 0)
	contains(t, said.String(), "halted", "the canary failed")
}

// Where a run does not name all, it says which command does.
func TestARunSaysWhereAllNamesAre(t *testing.T) {
	for names, want := range map[string]bool{"a b c": true, "a b c d": false} {
		var said strings.Builder
		printRun(&said, &redrive.Run{ID: "r-1", State: redrive.Done, Endings: map[redrive.Ending]int{redrive.Again: 4},
			Names: map[redrive.Ending][]string{redrive.Again: strings.Fields(names)}}, time.Now())
		if got := strings.Contains(said.String(), "acklast audit r-1"); got != want {
			t.Errorf("of 4 jobs it names %s: names the command %t, want %t:\n%s", names, got, want, said.String())
		}
	}
}

func TestExitCodesOfARun(t *testing.T) {
	ended := func(e redrive.Ending) redrive.Run {
		return redrive.Run{State: redrive.Done, Endings: map[redrive.Ending]int{redrive.Succeeded: 3, e: 1}}
	}
	for name, test := range map[string]struct {
		run  redrive.Run
		want int
	}{
		"all ended well":          {ended(redrive.Removed), exitOK},
		"copies were removed":     {ended(redrive.Copied), exitOK},
		"some are isolated again": {ended(redrive.Again), exitUnwell},
		"some expired":            {ended(redrive.TooLate), exitUnwell},
		"some are still retried":  {ended(redrive.Retrying), exitUnwell},
		"some were taken over":    {ended(redrive.TakenOver), exitUnwell},
		"some were skipped":       {ended(redrive.Skipped), exitUnwell},
		"some are gone":           {ended(redrive.Gone), exitUnwell},
		"some cannot be judged":   {ended(redrive.Unjudged), exitUnwell},
		"halted":                  {redrive.Run{State: redrive.Halted, Code: redrive.HaltNotSeen}, exitStopped},
		"interrupted":             {redrive.Run{State: redrive.Halted, Code: redrive.HaltInterrupted}, exitInterrupted},
		"revoked":                 {redrive.Run{State: redrive.Revoked}, exitFailed},
		"still active":            {redrive.Run{State: redrive.Active}, exitOK},
	} {
		if got := exitOf(&test.run); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}

// Whoever ends the watching is told that the run goes on, and how to stop it.
func TestEndingTheWatchingEndsNoRun(t *testing.T) {
	var said bytes.Buffer
	a := &app{stderr: &said}
	resp := redrive.Response{Run: &redrive.Run{ID: "r-1"}}
	if err := a.goesOn(context.Canceled, resp, redrive.Request{Plan: "p-1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	contains(t, said.String(), "The run goes on", "acklast redrive status r-1 --watch", "acklast redrive stop r-1")
}
