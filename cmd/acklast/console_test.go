package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/console"
	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/version"
)

// reading is a person who reads the pages of an "acklast console".
type reading struct {
	t    *testing.T
	http *http.Client
	url  string
	// link is the first link.
	link string
	end  func() result
}

// read starts the console and opens its link.
func (c *cli) read(args ...string) *reading {
	c.t.Helper()
	stdout := &buffer{}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan result, 1)
	go func() { ended <- c.runTo(ctx, stdout, io.Discard, append([]string{"console"}, args...)...) }()
	r := &reading{t: c.t, end: func() result { cancel(); got := <-ended; ended <- got; return got }}
	c.t.Cleanup(func() { r.end() })
	eventually(c.t, time.Minute, func() bool {
		select {
		case got := <-ended:
			ended <- got
			c.t.Fatalf("the console ended with %d: %s", got.code, got.stderr)
		default:
		}
		return strings.HasSuffix(stdout.String(), "\n")
	}, func() string { return "no link" })
	r.link = strings.TrimPrefix(strings.TrimSpace(stdout.String()), "Open ")
	r.url, _, _ = strings.Cut(r.link, "/open?")
	jar, _ := cookiejar.New(nil)
	r.http = &http.Client{Jar: jar}
	c.t.Cleanup(r.http.CloseIdleConnections)
	if status, body := r.get(strings.TrimPrefix(r.link, r.url)); status != http.StatusOK {
		c.t.Fatalf("the link answers %d: %s", status, body)
	}
	return r
}

func (r *reading) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The pages show the stack, and reading them receives no message from any queue. There is no redrive function: what it
// would say is missing, with the reason.
func TestConsole(t *testing.T) {
	c, aws := embedded(t)
	urls := aws.QueueURLs()
	if _, err := sqsClient(aws).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &urls.DLQ, MessageBody: new(expiry("r-1"))}); err != nil {
		t.Fatal(err)
	}
	r := c.read()
	for range 3 {
		for _, path := range []string{"/", "/dlq", "/dlq?class=transient", "/jobs?q=r-1", "/messages/m-1", "/capacity"} {
			status, body := r.get(path)
			if status != http.StatusOK {
				t.Errorf("%s answers %d: %s", path, status, body)
			}
			if !strings.Contains(body, c.stack) || !strings.Contains(body, "read-only") {
				t.Errorf("%s does not name the stack, or that it only reads", path)
			}
		}
	}
	_, body := r.get("/")
	for _, want := range []string{`<dd id="isolated">1</dd>`, "The redrive function did not tell"} {
		if !strings.Contains(body, want) {
			t.Errorf("the overview has no %q: %s", want, body)
		}
	}
	if status, body := r.get("/runs"); status == http.StatusOK {
		t.Errorf("the runs are shown without the redrive function: %s", body)
	}
	got := r.end()
	if got.code != exitOK {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	contains(t, got.stderr, "Stack "+c.stack+" at http://127.0.0.1:")
	// Reading received nothing: the message is received for the first time now.
	messages := received(t, aws, job.DLQ)
	if len(messages) != 1 || messages[0].ReceiveCount != 1 {
		t.Errorf("the DLQ's messages are %+v, want one that was received once", messages)
	}
}

// The pages name another version of the redrive function, as the commands do, as soon as it has answered.
func TestTheConsoleNamesTheSkew(t *testing.T) {
	c, aws := embedded(t)
	answer := `{"action":"status","version":"0.1.7"}`
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/invocations") {
			_, _ = io.WriteString(w, answer)
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: strings.TrimPrefix(aws.Endpoint(), "http://")})
		}}).ServeHTTP(w, r)
	}))
	t.Cleanup(function.Close)
	c.env["AWS_ENDPOINT_URL"] = function.URL
	r := c.read()
	const says = "Note: the redrive function is acklast 0.1.7, and this is acklast " + version.Number
	if _, body := r.get("/runs"); !strings.Contains(body, says) {
		t.Errorf("the page does not say %q: %s", says, body)
	}
	answer = fmt.Sprintf(`{"action":"status","version":%q}`, version.Number)
	if _, body := r.get("/runs"); strings.Contains(body, "Note: the redrive function") {
		t.Errorf("a skew is named after the deployment of this version: %s", body)
	}
}

// A console that writes says where before it serves.
func TestConsoleThatWrites(t *testing.T) {
	c, _ := embedded(t)
	r := c.read("--write")
	if _, body := r.get("/"); !strings.Contains(body, "writes, asks first") {
		t.Errorf("the overview does not say that it writes: %s", body)
	}
	contains(t, r.end().stderr, "Writing to stack "+c.stack)
}

func TestConsoleRefusesBadFlags(t *testing.T) {
	c := offline(t)
	c.refused(exitRefused, []string{"--port is 70000"}, "console", "--port", "70000")
	c.refused(exitFailed, []string{"none"}, "console") // it fails at once, and not only when its page is opened
}

// Periods before anything was counted are left out, except the last ten. Without counts there is no plot.
func TestHistoryOfTheConsole(t *testing.T) {
	from := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	series := overview.Series{Source: "CloudWatch", From: from, To: from.Add(29*time.Minute + time.Second), PeriodSeconds: 60, CostUSD: 0.00009, Counts: map[overview.Name][]float64{}}
	for _, name := range overview.Names {
		series.Counts[name] = make([]float64, 30)
	}
	values := func(h console.History, line string) (times []time.Time, values []float64) {
		for _, p := range h.Plots {
			for _, l := range p.Lines {
				if l.Name == line {
					return p.Times, l.Values
				}
			}
		}
		return nil, nil
	}
	if h := historyOf(series); h.None != "" || !h.Plots[0].Empty() {
		t.Errorf("without counts the history is %+v", h)
	}
	series.Counts[overview.Retried][5], series.Counts[overview.Retried][29] = 7, 2
	times, retried := values(historyOf(series), "retried")
	if len(times) != 26 || !times[0].Equal(from.Add(4*time.Minute)) || len(retried) != 26 || retried[1] != 7 || retried[25] != 2 {
		t.Errorf("retried is %v at %v", retried, times)
	}
	series.Counts[overview.Retried][5] = 0
	if times, retried = values(historyOf(series), "retried"); len(times) != leastPeriods || retried[leastPeriods-1] != 2 {
		t.Errorf("retried is %v at %v", retried, times)
	}
	if h := historyOf(series); !strings.Contains(h.Cost, "$0.00009") {
		t.Errorf("the cost is %q", h.Cost)
	}
	series.NoHistory = "no history here: neither CloudWatch nor acklast local records it"
	if h := historyOf(series); h.None != "neither CloudWatch nor acklast local records it." {
		t.Errorf("no history is told as %q", h.None)
	}
}

// The command that stands for an action is one that this tool has, with flags and arguments that it takes.
func TestTheConsolesCommandsExist(t *testing.T) {
	c, _ := embedded(t)
	r := c.read()
	shown := regexp.MustCompile(`or run: (acklast [^<]*)</p>`)
	for path, want := range map[string]string{
		"plan?class=transient&fingerprint=a,b&older=2h&error=it+is": "redrive plan --class transient --fingerprint '\"a,b\"' --error 'it is' --older-than 2h --reason WHY",
		"plan":                                "redrive plan --all --reason WHY",
		"approve?plan=p-1":                    "redrive approve p-1 --reason WHY",
		"run?plan=p-1":                        "redrive run p-1",
		"continue?run=r-1":                    "redrive run r-1",
		"stop?run=r-1":                        "redrive stop r-1",
		"revoke?plan=p-1":                     "redrive revoke p-1 --reason WHY",
		"stop-all":                            "redrive stop",
		"resume":                              "redrive resume --reason WHY",
		"discard?message=m-1":                 "discard m-1 --reason WHY",
		"discard?kind=k&count=3":              "discard --kind k --count 3 --reason WHY",
		"resend?discard=d-1&message=m-1":      "redrive resend d-1 m-1 --reason WHY",
		"mend?message=m-1":                    "redrive mend m-1 --file body.json --reason WHY",
		"cancel?job=k/s/r":                    "cancel k/s/r --reason WHY",
		"decide-sent?job=k/s/r":               "decide --sent k/s/r --reason WHY",
		"decide-not-sent?kind=k&count=3":      "decide --not-sent --kind k --count 3 --reason WHY",
		"pause?kind=reminder.send":            "pause --kind reminder.send --reason WHY",
		"unpause?kind=reminder.send":          "resume --kind reminder.send --reason WHY",
		"pause-lane?lane=source":              "pause source",
		"resume-lane?lane=recovery":           "resume recovery",
		"discard?message=it's+%24%28rm%29%3B": `discard 'it'\''s $(rm);' --reason WHY`,
	} {
		status, body := r.get("/act/" + path)
		if status != http.StatusForbidden {
			t.Errorf("%s answers %d without --write", path, status)
		}
		found := shown.FindStringSubmatch(body)
		if found == nil {
			t.Errorf("%s shows no command: %s", path, body)
			continue
		}
		if got := html.UnescapeString(found[1]); got != "acklast --stack "+c.stack+" "+want {
			t.Errorf("%s shows %q, want %q", path, got, want)
			continue
		}
		command, args, err := newRoot(&app{getenv: func(string) string { return "" }}).Find(strings.Fields(want))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if strings.ContainsAny(want, "'") {
			continue // its words are the shell's to take apart
		}
		if err := command.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if err := command.ValidateArgs(command.Flags().Args()); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if err := command.ValidateRequiredFlags(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A job is cancelled on a page as by the command: its entry ends, its schedule goes, and the audit has one line.
func TestTheConsoleCancels(t *testing.T) {
	c, aws := embedded(t)
	d, _, schedules := scheduled(t, aws)
	r := c.read("--write")
	_, page := r.get("/act/cancel?job=" + url.QueryEscape(d.Key))
	token := regexp.MustCompile(`name="csrf" value="([A-Z0-9]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form: %s", page)
	}
	send := func(key string) (int, string) {
		t.Helper()
		form := url.Values{"csrf": {token[1]}, "job": {key}, "by": {"ann"}, "reason": {"the customer left"}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/act/cancel", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", r.url)
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, body := send(d.Key); status != http.StatusOK || !strings.Contains(body, "cancelled") {
		t.Errorf("the job's page answers %d: %s", status, body)
	}
	if _, found, err := schedules.At(t.Context(), "name-"+aws.Names().Stack); found || err != nil {
		t.Errorf("the schedule is still there: %v, %v", found, err)
	}
	if lines := cancels(t, aws, d.Key); len(lines) != 1 || !strings.Contains(lines[0], `"by":"ann"`) || !strings.Contains(lines[0], `"reason":"the customer left"`) {
		t.Errorf("the audit has %q, want one line of ann's", lines)
	}
	if status, body := send("r-1"); status != http.StatusConflict || !strings.Contains(body, "is no job&#39;s key") {
		t.Errorf("a key that is none answers %d: %s", status, body)
	}
}
