package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/capacity"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// The actions that are no request to the redrive function do what their page said.
func TestCancelAndLanes(t *testing.T) {
	b := filled(t, true)
	for _, test := range []struct {
		action string
		form   url.Values
		want   string
		next   string
	}{
		{"cancel", url.Values{"job": {reminder}, "by": {"bob"}, "reason": {"left"}}, "cancel " + reminder + " until 0001-01-01T00:00:00Z by bob: left", "/jobs?q=" + url.QueryEscape(reminder)},
		{"cancel", url.Values{"job": {reminder}, "by": {"bob"}, "reason": {"left"}, "not-before": {"2027-06-01T08:00:00Z"}}, "cancel " + reminder + " until 2027-06-01T08:00:00Z by bob: left", "/jobs?q=" + url.QueryEscape(reminder)},
		{"pause-lane", url.Values{"lane": {"source"}}, "source runs false", "/"},
		{"resume-lane", url.Values{"lane": {"recovery"}}, "recovery runs true", "/"},
	} {
		b.other = nil
		status, body, header := b.post("/act/"+test.action, test.form)
		if status != http.StatusSeeOther || header.Get("Location") != test.next {
			t.Errorf("%s: status %d, goes on at %q, want %q: %s", test.action, status, header.Get("Location"), test.next, body)
		}
		if !slices.Equal(b.other, []string{test.want}) {
			t.Errorf("%s did %q, want %q", test.action, b.other, test.want)
		}
	}
	b.other = nil
	for action, form := range map[string]url.Values{
		"pause-lane": {"lane": {"dlq"}},
		"cancel":     {"job": {reminder}, "by": {"bob"}, "reason": {"left"}, "not-before": {"tomorrow"}},
		"mend":       {"message": {"m-1"}, "by": {"bob"}, "reason": {"r"}, "body": {" "}},
		"discard":    {"class": {"invalid"}, "by": {"bob"}, "reason": {"r"}, "count": {"many"}},
	} {
		before := len(b.asked)
		status, _, _ := b.post("/act/"+action, form)
		b.wantStatus("a form of "+action+" that is not readable", status, http.StatusBadRequest)
		b.wantUntouched(before)
	}
	b.refused, b.fail = "a delivery holds it", errors.New("refused")
	form := url.Values{"csrf": {b.csrfWithout(t)}, "job": {reminder}, "by": {"bob"}, "reason": {"left"}}
	status, body, _ := b.do(b.request("/act/cancel", form))
	b.wantStatus("a refused cancel", status, http.StatusConflict)
	if !strings.Contains(body, "a delivery holds it") {
		t.Errorf("the page does not say why: %s", body)
	}
}

// Every action names the place before it does anything.
func TestEveryActionNamesThePlace(t *testing.T) {
	b := filled(t, true)
	for _, name := range allActions {
		page := b.page("/act/" + name + "?plan=p-1&lane=source&job=" + url.QueryEscape(reminder))
		for _, want := range []string{"orders", "AWS eu-central-1", "123456789012", "arn:aws:iam::123456789012:user/ada", `name="csrf"`} {
			if !strings.Contains(page, want) {
				t.Errorf("the question of %s does not say %q", name, want)
			}
		}
	}
}

// A console that only reads offers the commands in place of the actions.
func TestReadOnlyPagesShowCommands(t *testing.T) {
	b := filled(t, false)
	pending := b.job.Entries[0]
	pending.Status = ledger.Pending
	for path, wanted := range map[string][]string{
		"/":                                    {"acklast pause source", "acklast resume recovery", "acklast resume --kind reminder.send --reason WHY"},
		"/dlq?class=transient&older=2h":        {"acklast redrive plan --class transient --older-than 2h --reason WHY"},
		"/looks/1":                             {"acklast discard --class transient --kind reservation.expire --fingerprint"},
		"/messages/m-1":                        {"acklast discard m-1 --reason WHY"},
		"/jobs?q=" + url.QueryEscape(reminder): {"acklast redrive plan --job " + reminder + " --reason WHY"},
		"/plans/p-1":                           nil, // it has a run
		"/runs/r-1":                            {"acklast redrive stop r-1", "acklast redrive revoke r-1 --reason WHY"},
		"/runs":                                {"acklast redrive resume --reason WHY", "acklast redrive plan --all --reason WHY"},
	} {
		page := b.page(path)
		for _, want := range wanted {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not show %q", path, want)
			}
		}
		if link := regexp.MustCompile(`href="/act/[^"]*"`).FindString(page); link != "" {
			t.Errorf("%s has the link %s", path, link)
		}
	}
	b.job.Entries = []ledger.Entry{pending}
	if page := b.page("/jobs?q=x"); !strings.Contains(page, "acklast cancel "+reminder+" --reason WHY") {
		t.Error("a job that waits does not show how to cancel it")
	}
	b.job.Entries = nil
	if page := b.page("/jobs?q=" + url.QueryEscape(reminder)); !strings.Contains(page, "acklast cancel "+reminder+" --reason WHY") {
		t.Error("a job without an entry does not show how to cancel it")
	}
}

// Only an invalid or a rejected job can be mended, and only such a job offers that.
func TestMendIsOfferedWhereItIsPossible(t *testing.T) {
	b := filled(t, true)
	for class, want := range map[job.Class]bool{job.Ambiguous: false, job.Transient: false, job.Invalid: true, job.Rejected: true} {
		b.job.Entries[0].LastClass = class
		if got := strings.Contains(b.page("/jobs?q="+url.QueryEscape(reminder)), "/act/mend"); got != want {
			t.Errorf("a job of class %s offers to mend it: %t, want %t", class, got, want)
		}
	}
}

// The list of runs offers what the state allows.
func TestRunsOfferWhatTheirStateAllows(t *testing.T) {
	b := filled(t, true)
	for state, want := range map[redrive.State][]string{
		redrive.Planned: {"approve?plan=p-1", "run?plan=p-1", "revoke?plan=p-1"}, redrive.Active: {"stop?run=r-1", "revoke?run=r-1"},
		redrive.Halted: {"continue?run=r-1", "revoke?run=r-1"}, redrive.Done: nil,
	} {
		b.answer["status"] = redrive.Response{Runs: []redrive.Run{{ID: "r-1", Plan: "p-1", State: state}}}
		var got []string
		for _, found := range regexp.MustCompile(`href="/act/([a-z]+\?[^"]*)"`).FindAllStringSubmatch(b.page("/runs"), -1) {
			got = append(got, found[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("state %s offers %q, want %q", state, got, want)
		}
	}
}

// A discard's audit offers to send its messages again.
func TestADiscardCanBeSentAgain(t *testing.T) {
	b := filled(t, true)
	b.audit = []redrive.Response{{Audit: []redrive.AuditRecord{{Run: "d-1", Message: "m-7", What: "intent", At: start}, {Run: "d-1", Message: "m-7", What: "discarded", At: start}}}}
	if page := b.page("/audit?of=d-1"); strings.Count(page, `href="/act/resend?discard=d-1&amp;message=m-7"`) != 1 {
		t.Errorf("the audit does not offer to send m-7 again, once: %s", page)
	}
}

// Empty fields are filled in from the stack, given ones are kept, and the plot has the values of the plan.
func TestCapacityFromTheStack(t *testing.T) {
	b := newBrowser(t, false).open()
	b.measured = capacity.Measured{Source: "CloudWatch", From: start.Add(-time.Hour), To: start, Fresh: 72_000, Retried: 8_000, Ended: 72_000, CostUSD: 0.00003,
		P50: 100 * time.Millisecond, P95: 400 * time.Millisecond, Batch: 10, SourceCap: 50, RecoveryCap: 5, Backlog: 3000, Left: 12 * time.Hour}
	page := b.page("/capacity?arrivals=&failing=&backlog=600&rate=2&window=6h&from=stack")
	if b.window != 6*time.Hour {
		t.Errorf("the window is %v, want 6h", b.window)
	}
	for _, want := range []string{"20/s: messages that the source lane was done with", "0.1: attempts that were retried", "$0.00003", "600 jobs at 2 a second", "then SQS deletes"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "messages on the DLQ") {
		t.Error("the given backlog was replaced")
	}
	in := capacity.Input{Arrivals: 20, Failing: 0.1, Retries: 9, P50: 100 * time.Millisecond, P95: 400 * time.Millisecond, Batch: 10, SourceCap: 50, RecoveryCap: 5, Backlog: 600, Rate: 2, Within: 12 * time.Hour}
	plan, err := capacity.New(in)
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`data-seconds="([^"]+)">[^<]*</th><td>(\d+)</td><td>(\d+)</td>`).FindAllStringSubmatch(page, -1)
	curve := plan.Curve(capacity.DrawnSteps)
	if len(rows) != len(curve) {
		t.Fatalf("the plot has %d points, want %d", len(rows), len(curve))
	}
	for i, point := range curve {
		want := []string{fmt.Sprint(point.At.Seconds()), fmt.Sprintf("%.0f", point.Left), fmt.Sprintf("%.0f", point.Needed)}
		if !slices.Equal(rows[i][1:], want) {
			t.Errorf("point %d is %q, want %q", i, rows[i][1:], want)
		}
	}
	b.measured = capacity.Measured{NoHistory: "no history here", NoDuration: "CloudWatch on AWS only", NoMappings: "denied"}
	page = b.page("/capacity?arrivals=&from=stack")
	for _, want := range []string{"Fresh jobs a second is not known: no history here", "Median time of a record is not known: CloudWatch on AWS only", "Source concurrency is not known: Lambda does not tell it: denied"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "data-plot") {
		t.Error("there is a plot without a plan")
	}
	status, _, _ := b.get("/capacity?arrivals=&from=stack&window=soon")
	b.wantStatus("a window that is no time", status, http.StatusBadRequest)
}
