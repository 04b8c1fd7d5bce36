package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"acklast/internal/console"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

const reminder = "reminder.send/renewal-1/email/v3"

// filled is a browser in front of a stack in which every text of a sender is hostile.
func filled(t *testing.T, write bool) *browser {
	t.Helper()
	b := newBrowser(t, write).open()
	b.isolated = []ledger.IsolatedJob{
		{Key: reminder, Subject: "renewal-1", Kind: "reminder.send", Class: job.Ambiguous, Cause: job.CauseAmbiguous, Fingerprint: hostile, At: start.Add(-time.Hour), MessageID: "m-1"},
		{Key: "reservation.expire/r-1/hold", Kind: "reservation.expire", Class: job.Transient, Cause: job.CauseAttempts, Fingerprint: "timeout after #", At: start.Add(-48 * time.Hour), MessageID: "m-2", Redrives: 1},
		{Key: "reservation.expire/r-2/hold", Kind: "reservation.expire", Class: job.Transient, Cause: job.CauseAttempts, Fingerprint: "timeout after #", At: start.Add(-time.Minute), MessageID: "m-3"},
	}
	entry := ledger.Entry{
		Key: reminder, Subject: "renewal-1", Kind: "reminder.send", Status: ledger.Isolated, Attempts: 2, Redrives: 1, FirstSent: start.Add(-3 * time.Hour),
		LastClass: job.Ambiguous, LastError: hostile, Cause: job.CauseAmbiguous, Unresolved: true, ProviderKey: "pk-1", Run: "r-1", Version: 3,
		History: []ledger.Event{
			{At: start.Add(-2 * time.Hour), What: ledger.EventFailed, Attempt: 1, Class: job.Transient, Error: hostile},
			{At: start.Add(-90 * time.Minute), What: ledger.EventIsolated, Class: job.Transient, Cause: job.CauseAttempts},
			{At: start.Add(-80 * time.Minute), What: ledger.EventReopened},
			{At: start.Add(-time.Hour), What: ledger.EventIsolated, Class: job.Ambiguous, Cause: job.CauseAmbiguous},
		},
		CalledFrom: start.Add(-70 * time.Minute), Evidence: []ledger.Evidence{{At: start.Add(-65 * time.Minute), RequestID: "req-" + hostile, Note: "looked up"}},
		Decisions:  []ledger.Decision{{At: start.Add(-30 * time.Minute), What: ledger.NotSent, By: "ada", Reason: hostile}},
		IsolatedAt: start.Add(-time.Hour), IsolatedMessageID: "m-1",
	}
	b.job = console.Job{Entries: []ledger.Entry{entry}, Meaning: []string{"It is ambiguous."}, Records: []redrive.Explanation{{Kind: "reminder.send", Facts: []job.Fact{{Name: "state", Value: hostile}}}}}
	b.standing = console.Standing{Source: console.Lane{Name: "source", Ready: 7}, Recovery: console.Lane{Name: "recovery", InFlight: 3, Paused: true}, Isolated: 3, Deleted: start.Add(13 * 24 * time.Hour),
		Groups: []console.Group{{Class: "ambiguous", Kind: "reminder.send", Fingerprint: hostile, Count: 3, Oldest: start, Newest: start}}, Notes: []string{hostile},
		Kinds: []redrive.KindState{{Kind: "reminder.send", Masked: []string{"recipient"}, Paused: &redrive.Pause{By: "ada", Reason: hostile, At: start}}, {Kind: "reservation.expire", Masked: []string{}}}}
	b.standing.History = console.History{Source: "the tally of acklast local.", Plots: []console.Plot{
		{ID: "outcomes", Title: "Deliveries", Unit: "a minute", Times: []time.Time{start.Add(-time.Minute), start}, Lines: []console.Line{{Name: "acknowledged", Values: []float64{3, 41}}}},
		{ID: "empty", Title: "Nothing"},
	}}
	plan := redrive.Plan{ID: "p-1", Run: "r-1", By: "ada", Reason: hostile, At: start, ExpiresAt: start.Add(time.Hour), Selected: 3, Actions: map[redrive.Action]int{redrive.Redrive: 3}, RatePerSecond: 1, Stages: []int{1, 2},
		Approval: "3 jobs", Groups: []redrive.Group{{Class: job.Transient, Kind: "reservation.expire", Fingerprint: hostile, Count: 3, Samples: []redrive.Sample{{Message: "m-1", Job: reminder, Error: hostile, Why: hostile}}}},
		Replacement: &redrive.Replacement{Message: "m-1", Diff: "+ \"recipient\": \"ada@example.com\""}}
	run := redrive.Run{ID: "r-1", Plan: "p-1", State: redrive.Active, By: "ada", Why: hostile, Total: 10, Counts: map[redrive.Step]int{"sent": 4}, Endings: map[redrive.Ending]int{redrive.Succeeded: 3}, Canary: redrive.CanaryPassed,
		Watched: []redrive.Watched{{Job: "a", Canary: true, Ending: redrive.Succeeded}, {Job: hostile, Ending: redrive.Again, Why: hostile}, {Job: "c"}}, Halts: []redrive.Halt{{At: start, Code: redrive.HaltCanary, Why: hostile, Failed: []redrive.Watched{{Job: "x", Why: hostile}}}}}
	b.standing.Run, b.standing.Switch = &run, &redrive.Switch{On: true, By: "bob", Reason: hostile}
	b.answer["status"] = redrive.Response{Plan: &plan, Run: &run, Runs: []redrive.Run{run}, Switch: &redrive.Switch{On: true, By: "bob", Reason: hostile}}
	b.answer["audit"] = redrive.Response{Audit: []redrive.AuditRecord{{Run: "r-1", Message: "m-1", At: start, What: "sent", Job: reminder, By: "ada", Reason: hostile}}}
	b.answer["kinds"] = redrive.Response{Kinds: b.standing.Kinds}
	b.answer["inspect"] = redrive.Response{Scan: &redrive.Scan{Seen: 3, Holds: 3}, Groups: plan.Groups, Messages: []redrive.Listed{{Message: "m-1", Job: reminder, Class: job.Ambiguous, Error: hostile, Why: hostile, IsolatedAt: start, DeletedAt: start.Add(time.Hour), Action: redrive.NeedsDecision}},
		Message: &redrive.MessageView{ID: "m-1", Job: reminder, Class: job.Ambiguous, Memory: job.Memory{Error: hostile, At: start}, Attributes: map[string]string{hostile: "String"}, Entry: &entry, Bytes: 20, Why: hostile}}
	if status, body, _ := b.post("/looks", url.Values{}); status != http.StatusSeeOther {
		t.Fatalf("look: %d %s", status, body)
	}
	if status, body, _ := b.post("/messages/m-1", url.Values{}); status != http.StatusSeeOther {
		t.Fatalf("message: %d %s", status, body)
	}
	return b
}

// pages are all pages of a filled console.
func pages(b *browser) []string {
	list := []string{"/", "/dlq", "/dlq?class=transient&error=TIMEOUT", "/looks/1", "/messages/m-1", "/messages/m-2", "/jobs", "/jobs?q=" + url.QueryEscape(reminder), "/runs", "/plans/p-1", "/runs/r-1",
		"/audit", "/audit?of=r-1", "/capacity", "/capacity?arrivals=40&p50=100ms&p95=400ms&backlog=3000&failing=0.1&quota=50", "/capacity?arrivals=&from=stack", "/audit?of=d-1"}
	if b != nil {
		list = append(list, "/act/plan?class=transient", "/act/plan", "/act/approve?plan=p-1", "/act/run?plan=p-1", "/act/discard?message=m-1", "/act/decide-sent?job="+url.QueryEscape(reminder), "/act/pause?kind=reminder.send", "/act/stop-all",
			"/act/mend?message=m-1", "/act/cancel?job="+url.QueryEscape(reminder), "/act/resend?discard=d-1&message=m-1", "/act/pause-lane?lane=source", "/act/discard?class=transient&count=2")
	}
	return list
}

func TestHostileTextIsHarmless(t *testing.T) {
	b := filled(t, true)
	for _, path := range append(pages(b), "/act/mend?message="+url.QueryEscape(hostile), "/act/cancel?job="+url.QueryEscape(hostile), "/act/resend?discard=d-1&message="+url.QueryEscape(hostile), "/jobs?q="+url.QueryEscape(hostile), "/dlq?error="+url.QueryEscape(hostile), "/audit?of="+url.QueryEscape(hostile), "/act/plan?fingerprint="+url.QueryEscape(hostile)) {
		body := b.page(path)
		if strings.Contains(body, "<script>alert") {
			t.Errorf("%s has a sender's script", path)
		}
		for i, r := range body {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s has the control character %U: %q", path, r, body[max(0, i-40):min(len(body), i+20)])
				break
			}
		}
	}
}

// A look while a run goes on says that the run holds the messages, and not that there are none.
func TestALookDuringARunNamesTheRun(t *testing.T) {
	b := filled(t, true)
	run := "r-20261201-100000-1a2b3c4d"
	b.answer["inspect"] = redrive.Response{Run: &redrive.Run{ID: run, State: redrive.Active}, Scan: &redrive.Scan{Partial: "the run answers"}}
	for _, path := range []string{"/looks", "/messages/m-9"} {
		status, body, _ := b.post(path, url.Values{})
		if status != http.StatusConflict || !strings.Contains(body, run) || !strings.Contains(body, "after the run") {
			t.Errorf("%s answers %d, want that run %s holds the messages, and when to look again: %s", path, status, run, body)
		}
	}
}

// A look with more messages than one answer holds says that it does not show all.
func TestALookOfSeveralPagesSaysSo(t *testing.T) {
	b := filled(t, false)
	const note = "acklast dlq --list"
	if page := b.page("/looks/1"); strings.Contains(page, note) {
		t.Errorf("a look that shows all messages says that there are others:\n%s", page)
	}
	seen := b.answer["inspect"]
	seen.Next = "a-list/"
	b.answer["inspect"] = seen
	b.post("/looks", url.Values{})
	if page := b.page("/looks/2"); !strings.Contains(page, note) {
		t.Errorf("the page does not say that there are more messages:\n%s", page)
	}
}

func TestPayloadsAreHiddenUntilAskedFor(t *testing.T) {
	const body = `{"kind":"reminder.send","payload":{"reminderId":"renewal-1","recipient":"ada@example.com","Recipient":"eve@example.com","plan":"pro"}}`
	b := filled(t, false)
	seen := b.answer["inspect"]
	page := b.page("/messages/m-1")
	if !strings.Contains(page, "Show the payload") {
		t.Error("the page does not offer the payload")
	}
	shown := *seen.Message
	shown.Body = body
	seen.Message = &shown
	b.answer["inspect"] = seen
	before := len(b.asked)
	b.post("/messages/m-1", url.Values{"payload": {"yes"}})
	if got := b.asked[before]; got.Action != "inspect" || got.Message != "m-1" || !got.WithBody {
		t.Errorf("the button asked %+v", got)
	}
	page = b.page("/messages/m-1")
	if !strings.Contains(page, "renewal-1") || !strings.Contains(page, "pro") {
		t.Errorf("the payload is not shown: %s", page)
	}
	if strings.Contains(page, "ada@example.com") || strings.Contains(page, "eve@example.com") {
		t.Errorf("the recipient is shown: %s", page)
	}
	// Nobody who could say what is masked: nothing is shown.
	for name, kinds := range map[string][]redrive.KindState{"an unknown kind": nil, "an older function": {{Kind: "reminder.send"}}} {
		b.answer["kinds"] = redrive.Response{Kinds: kinds}
		if page := b.page("/messages/m-1"); strings.Contains(page, "example.com") || strings.Contains(page, "&#34;pro&#34;") {
			t.Errorf("%s: the payload is shown", name)
		}
	}
	shown.Body = "not a job of ada@example.com"
	b.answer["kinds"] = redrive.Response{Kinds: b.standing.Kinds}
	b.post("/messages/m-1", url.Values{"payload": {"yes"}})
	if page := b.page("/messages/m-1"); strings.Contains(page, "example.com") {
		t.Error("a body that is no job is shown")
	}
}

// A plan that mends a message has a payload in its difference.
func TestAPlanShowsNoPayload(t *testing.T) {
	b := filled(t, true)
	for _, path := range []string{"/plans/p-1", "/act/approve?plan=p-1"} {
		if strings.Contains(b.page(path), "ada@example.com") {
			t.Errorf("%s shows a payload", path)
		}
	}
}

// Each action is shown with its place before it is done, and does what was shown.
func TestAnActionAsksFirst(t *testing.T) {
	b := filled(t, true)
	b.answer["approve"] = redrive.Response{Plan: b.answer["status"].Plan}
	b.answer["run"] = redrive.Response{Run: b.answer["status"].Run}
	before := len(b.asked)
	page := b.page("/act/approve?plan=p-1")
	for _, want := range []string{"orders", "AWS eu-central-1", "123456789012", "Plan p-1 may then run", "arn:aws:iam::123456789012:user/ada"} {
		if !strings.Contains(page, want) {
			t.Errorf("the question does not say %q", want)
		}
	}
	for _, action := range b.actions()[before:] {
		if action != "status" {
			t.Errorf("the question asked for %q", action)
		}
	}
	status, _, header := b.post("/act/approve", url.Values{"plan": {"p-1"}, "by": {"bob"}, "reason": {"seen"}})
	b.wantStatus("approve", status, http.StatusSeeOther)
	if got := b.asked[len(b.asked)-1]; got.Action != "approve" || got.Plan != "p-1" || got.By != "bob" || got.Reason != "seen" {
		t.Errorf("approved %+v", got)
	}
	if got := header.Get("Location"); got != "/plans/p-1" {
		t.Errorf("goes on at %s", got)
	}
	status, _, header = b.post("/act/run", url.Values{"plan": {"p-1"}, "by": {"bob"}, "reason": {"seen"}})
	b.wantStatus("run", status, http.StatusSeeOther)
	if len(b.ran) != 1 || b.ran[0].Plan != "p-1" || header.Get("Location") != "/runs/r-1" {
		t.Errorf("ran %+v, goes on at %s", b.ran, header.Get("Location"))
	}
	status, _, _ = b.post("/act/stop-all", url.Values{"by": {"bob"}, "reason": {"500 again"}})
	b.wantStatus("the kill switch", status, http.StatusSeeOther)
	if b.stops != 1 {
		t.Errorf("the switch was thrown %d times", b.stops)
	}
	// Without a name or a reason nothing is asked.
	before = len(b.asked)
	for _, form := range []url.Values{{"plan": {"p-1"}, "by": {"bob"}}, {"plan": {"p-1"}, "reason": {"r"}, "by": {" "}}} {
		b.csrf()
		status, _, _ = b.post("/act/approve", form)
		b.wantStatus("without name or reason", status, http.StatusBadRequest)
	}
	for _, r := range b.asked[before:] {
		t.Errorf("asked %+v", r)
	}
}

func TestARefusalIsTold(t *testing.T) {
	b := filled(t, true)
	b.answer["approve"] = redrive.Response{Refused: "ada made this plan: somebody else has to approve it"}
	b.fail = errors.New("refused")
	token := b.csrfWithout(t)
	status, body, _ := b.do(b.request("/act/approve", url.Values{"csrf": {token}, "plan": {"p-1"}, "by": {"ada"}, "reason": {"r"}}))
	b.wantStatus("refused", status, http.StatusConflict)
	if !strings.Contains(body, "somebody else has to approve it") {
		t.Errorf("the page does not say why: %s", body)
	}
}

// csrfWithout reads the token while the stack fails.
func (b *browser) csrfWithout(t *testing.T) string {
	t.Helper()
	failing := b.fail
	b.fail = nil
	defer func() { b.fail = failing }()
	return b.csrf()
}

// A job whose entry a newer version wrote is named, and is no row whose facts could be misread.
func TestTheDLQNamesNewerEntries(t *testing.T) {
	b := newBrowser(t, false).open()
	b.isolated = []ledger.IsolatedJob{
		{Key: "k/1/a", Kind: "k", Class: job.Transient, At: start, MessageID: "m-1"},
		{Key: "k/2/a", Subject: "2", At: start, Newer: 2},
	}
	page := b.page("/dlq")
	if want := "1 of 2 isolated jobs are left out: the entry of k/2/a has format 2, but this acklast reads up to 1. Update this acklast."; !strings.Contains(page, want) {
		t.Errorf("the page does not say %q: %s", want, page)
	}
	if !strings.Contains(page, `q=k%2F1%2Fa`) {
		t.Errorf("the other job is missing: %s", page)
	}
	if strings.Contains(page, `q=k%2F2%2Fa`) {
		t.Errorf("the newer entry is a row: %s", page)
	}
	b.isolated = b.isolated[:1]
	if strings.Contains(b.page("/dlq"), "left out") {
		t.Error("jobs are left out without a newer entry")
	}
}

func TestFiltersOfTheIndex(t *testing.T) {
	b := filled(t, false)
	for query, want := range map[string][]string{
		"":                                      {reminder, "reservation.expire/r-1/hold", "reservation.expire/r-2/hold"},
		"class=transient":                       {"reservation.expire/r-1/hold", "reservation.expire/r-2/hold"},
		"kind=reminder.send":                    {reminder},
		"error=TimeOut":                         {"reservation.expire/r-1/hold", "reservation.expire/r-2/hold"},
		"older=1d":                              {"reservation.expire/r-1/hold"},
		"younger=30m":                           {"reservation.expire/r-2/hold"},
		"class=transient&older=30m&younger=30d": {"reservation.expire/r-1/hold"},
		"class=crashed":                         nil,
	} {
		page := b.page("/dlq?" + query)
		for _, j := range b.isolated {
			wanted := false
			for _, k := range want {
				wanted = wanted || k == j.Key
			}
			if got := strings.Contains(page, ">"+j.Key+"</a>"); got != wanted {
				t.Errorf("?%s: shows %s: %t, want %t", query, j.Key, got, wanted)
			}
		}
	}
	for _, bad := range []string{"class=typo", "older=yesterday", "attribute=tenant"} {
		status, _, _ := b.get("/dlq?" + bad)
		b.wantStatus(bad, status, http.StatusBadRequest)
	}
}

// A plot has its values as a table, and a plot without values says so.
func TestHistory(t *testing.T) {
	b := filled(t, false)
	page := b.page("/")
	for _, want := range []string{`id="values-outcomes"`, "<td>41</td>", "No history here yet.", "the tally of acklast local"} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview has no %q", want)
		}
	}
	b.standing.History = console.History{None: "the place keeps no figures"}
	if page := b.page("/"); !strings.Contains(page, "No history here: the place keeps no figures") || strings.Contains(page, "data-plot") {
		t.Error("a place without history has a plot, or does not say why")
	}
}

// The stream sends a run's page until the run is over.
func TestARunIsFollowed(t *testing.T) {
	b := filled(t, false)
	done := *b.answer["status"].Run
	done.State, done.Why = redrive.Done, ""
	b.answer["status"] = redrive.Response{Run: &done}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/runs/r-1/live", nil)
	status, body, header := b.do(r) // it ends by itself
	b.wantStatus("stream", status, http.StatusOK)
	if got := header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("content type %q", got)
	}
	if strings.Count(body, "event: content\n") != 1 || !strings.HasSuffix(body, "event: end\ndata:\n\n") {
		t.Errorf("the stream is %q", body)
	}
}

func TestCapacityRefusesWhatIsNotReadable(t *testing.T) {
	b := newBrowser(t, false).open()
	if page := b.page("/capacity?arrivals=forty&p50=100ms&p95=400ms"); !strings.Contains(page, "Fresh jobs a second: &#34;forty&#34; is not readable") {
		t.Errorf("it does not say what is wrong: %s", page)
	}
	if page := b.page("/capacity?arrivals=40&p50=100ms&p95=50ms"); !strings.Contains(page, "below the median") {
		t.Errorf("it does not say what is wrong: %s", page)
	}
	if page := b.page("/capacity?arrivals=40&failing=0.1&p50=100ms&p95=400ms&backlog=3000"); !strings.Contains(page, "done in") {
		t.Errorf("no answer: %s", page)
	}
}

// A run's audit is spread over pages, some of them empty: one page of the console joins them, in order.
func TestTheAuditIsJoined(t *testing.T) {
	b := newBrowser(t, false).open()
	b.audit = []redrive.Response{
		{NextPage: 1},
		{Audit: []redrive.AuditRecord{{At: start.Add(time.Second), What: "sent", Message: "second"}}, Next: "x", NextPage: 1},
		{Audit: []redrive.AuditRecord{{At: start, What: "intent", Message: "first"}}},
	}
	page := b.page("/audit?of=r-1")
	if one, two := strings.Index(page, "first"), strings.Index(page, "second"); one < 0 || two < one {
		t.Errorf("first at %d, second at %d", one, two)
	}
	if strings.Contains(page, "The next part") {
		t.Error("it offers a part that there is not")
	}
	var pages []int
	for _, r := range b.asked {
		pages = append(pages, r.Page)
	}
	if len(pages) != 3 || pages[1] != 1 || b.asked[2].After != "x" {
		t.Errorf("asked for %+v", b.asked)
	}
}

// Each action asks the redrive function for exactly what its page said.
func TestEachActionsRequest(t *testing.T) {
	b := filled(t, true)
	b.answer["run"] = redrive.Response{Run: b.answer["status"].Run}
	who := redrive.Request{By: "bob", Reason: "why"}
	for _, test := range []struct {
		action string
		form   url.Values
		want   redrive.Request
		next   string
	}{
		{"plan", url.Values{"class": {"transient"}, "fingerprint": {"f"}, "rate": {"7"}, "canary": {"2"}}, redrive.Request{Action: "plan", RatePerSecond: 7, Canary: 2,
			Select: &redrive.Filter{Classes: []job.Class{job.Transient}, Fingerprints: []string{"f"}}}, "/plans/p-1"},
		{"plan", nil, redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}, "/plans/p-1"},
		{"stop", url.Values{"run": {"r-1"}}, redrive.Request{Action: "stop", Run: "r-1"}, "/runs"},
		{"revoke", url.Values{"plan": {"p-1"}}, redrive.Request{Action: "revoke", Plan: "p-1"}, "/runs"},
		{"resume", nil, redrive.Request{Action: "resume"}, "/runs"},
		{"discard", url.Values{"message": {"m-1"}}, redrive.Request{Action: "discard", Messages: []string{"m-1"}}, "/audit?of=d-1"},
		{"decide-sent", url.Values{"job": {reminder}}, redrive.Request{Action: "decide", Job: reminder, Decision: ledger.Sent}, "/jobs?q=" + url.QueryEscape(reminder)},
		{"decide-not-sent", url.Values{"job": {reminder}}, redrive.Request{Action: "decide", Job: reminder, Decision: ledger.NotSent}, "/jobs?q=" + url.QueryEscape(reminder)},
		{"plan", url.Values{"count": {"500"}}, redrive.Request{Action: "plan", Open: true, Count: 500, Select: &redrive.Filter{All: true}}, "/plans/p-1"},
		{"discard", url.Values{"class": {"invalid"}, "count": {"12"}}, redrive.Request{Action: "discard", Count: 12, Select: &redrive.Filter{Classes: []job.Class{job.Invalid}}}, "/audit?of=d-1"},
		{"decide-sent", url.Values{"class": {"ambiguous"}, "count": {"3"}}, redrive.Request{Action: "decide", Count: 3, Decision: ledger.Sent, Select: &redrive.Filter{Classes: []job.Class{job.Ambiguous}}}, "/dlq"},
		{"mend", url.Values{"message": {"m-1"}, "body": {"{\r\n}\r\n"}}, redrive.Request{Action: "mend", Message: "m-1", Body: "{\n}"}, "/plans/p-1"},
		{"resend", url.Values{"discard": {"d-1"}, "message": {"m-1"}}, redrive.Request{Action: "resend", Run: "d-1", Message: "m-1"}, "/plans/p-1"},
		{"pause", url.Values{"kind": {"k"}}, redrive.Request{Action: "pause", Kind: "k"}, "/"},
		{"unpause", url.Values{"kind": {"k"}}, redrive.Request{Action: "unpause", Kind: "k"}, "/"},
	} {
		b.answer["plan"] = redrive.Response{Plan: &redrive.Plan{ID: "p-1"}}
		b.answer["mend"], b.answer["resend"] = b.answer["plan"], b.answer["plan"]
		b.answer["discard"] = redrive.Response{Discard: "d-1"}
		form := url.Values{"by": {who.By}, "reason": {who.Reason}}
		for name, values := range test.form {
			form[name] = values
		}
		status, body, header := b.post("/act/"+test.action, form)
		if status != http.StatusSeeOther || header.Get("Location") != test.next {
			t.Errorf("%s: status %d, goes on at %q, want %q: %s", test.action, status, header.Get("Location"), test.next, body)
			continue
		}
		test.want.By, test.want.Reason = who.By, who.Reason
		if got := b.asked[len(b.asked)-1]; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s asked %+v, want %+v", test.action, got, test.want)
		}
	}
	status, _, header := b.post("/act/continue", url.Values{"run": {"r-1"}, "by": {"bob"}, "reason": {"why"}})
	if status != http.StatusSeeOther || header.Get("Location") != "/runs/r-1" || len(b.ran) != 1 || b.ran[0].Run != "r-1" {
		t.Errorf("continue: status %d, ran %+v", status, b.ran)
	}
	status, _, _ = b.post("/act/plan", url.Values{"rate": {"fast"}, "by": {"bob"}, "reason": {"why"}})
	b.wantStatus("a rate that is no number", status, http.StatusBadRequest)
	// What was not done is told.
	b.answer["discard"] = redrive.Response{Results: []redrive.Result{{Message: "m-1", Result: "refused", Why: "a delivery holds it"}}}
	status, body, _ := b.post("/act/discard", url.Values{"message": {"m-1"}, "by": {"bob"}, "reason": {"why"}})
	if status != http.StatusConflict || !strings.Contains(body, "a delivery holds it") {
		t.Errorf("a refused discard: status %d: %s", status, body)
	}
}

// A job's page has all of its audit, which may come in several answers.
func TestAJobsPageHasAllOfItsAudit(t *testing.T) {
	b := filled(t, false)
	line := func(by string, at time.Time) redrive.Response {
		return redrive.Response{Audit: []redrive.AuditRecord{{Run: "deeds", Message: reminder, At: at, What: "decided", Job: reminder, By: by}}}
	}
	first, second := line("the newer one", start), line("the older one", start.Add(-time.Hour))
	first.NextPage = 1
	b.audit = []redrive.Response{first, second}
	before := len(b.asked)
	page := b.page("/jobs?q=" + url.QueryEscape(reminder))
	newer, older := strings.Index(page, "the newer one"), strings.Index(page, "the older one")
	if newer < 0 || older < 0 || newer < older {
		t.Errorf("the older line is at %d and the newer one at %d, want both, in order", older, newer)
	}
	for _, r := range b.asked[before:] {
		if r.Action == "audit" && r.Page > 1 {
			t.Errorf("asked for page %d, after the last one", r.Page)
		}
	}
}
