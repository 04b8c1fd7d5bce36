package console_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/capacity"
	"acklast/internal/console"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

var start = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// hostile is text as a sender may put it anywhere: HTML, a terminal's control sequence, and a change of direction.
const hostile = "<script>alert(1)</script>\x1b[31mred\u202egnp\u0000\"'&"

// fake is a stack that answers from fixtures and keeps what it was asked.
type fake struct {
	asked []redrive.Request
	ran   []redrive.Request
	// other are the calls of Cancel and SetLane, in words.
	other []string
	// measured is what Measure tells, window what it was last asked for.
	measured capacity.Measured
	window   time.Duration
	refused  string
	stops    int
	// answer is by action.
	answer map[string]redrive.Response
	// audit are the answers about the audit, one after another.
	audit    []redrive.Response
	fail     error
	isolated []ledger.IsolatedJob
	job      console.Job
	standing console.Standing
}

func (f *fake) Place(context.Context) console.Place {
	return console.Place{Stack: "orders", At: "AWS eu-central-1", Account: "123456789012", Caller: "arn:aws:iam::123456789012:user/ada"}
}

func (f *fake) Ask(_ context.Context, r redrive.Request) (redrive.Response, error) {
	f.asked = append(f.asked, r)
	if r.Action == "audit" && len(f.audit) > 0 {
		resp := f.audit[0]
		f.audit = f.audit[1:]
		return resp, f.fail
	}
	return f.answer[r.Action], f.fail
}

func (f *fake) Run(_ context.Context, r redrive.Request) (redrive.Response, error) {
	f.ran = append(f.ran, r)
	return f.answer["run"], f.fail
}

func (f *fake) Stop(context.Context, string, string) (redrive.Response, error) {
	f.stops++
	return redrive.Response{Switch: &redrive.Switch{On: true}}, f.fail
}

func (f *fake) Cancel(_ context.Context, key string, notBefore time.Time, by, reason string) (redrive.Response, error) {
	f.other = append(f.other, fmt.Sprintf("cancel %s until %s by %s: %s", key, notBefore.Format(time.RFC3339), by, reason))
	return redrive.Response{Refused: f.refused}, f.fail
}

func (f *fake) SetLane(_ context.Context, lane job.Queue, running bool) error {
	f.other = append(f.other, fmt.Sprintf("%s runs %t", lane, running))
	return f.fail
}

func (f *fake) Measure(_ context.Context, window time.Duration) (capacity.Measured, error) {
	f.window = window
	return f.measured, f.fail
}

func (f *fake) Job(context.Context, string) (console.Job, error) { return f.job, f.fail }
func (f *fake) Isolated(context.Context) ([]ledger.IsolatedJob, bool, error) {
	return f.isolated, false, f.fail
}
func (f *fake) Standing(context.Context) (console.Standing, error) { return f.standing, f.fail }
func (f *fake) actions() (names []string) {
	for _, r := range f.asked {
		names = append(names, r.Action)
	}
	return names
}

// browser is a person's browser in front of a console.
type browser struct {
	*testing.T
	*fake
	http  *http.Client
	url   string
	links []string
}

func newBrowser(t *testing.T, write bool) *browser {
	t.Helper()
	b := &browser{T: t, fake: &fake{answer: map[string]redrive.Response{}}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = "http://" + l.Addr().String()
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	links := make(chan string, 100)
	go func() {
		ended <- console.Serve(ctx, l, console.Config{Stack: b.fake, Write: write, Version: "1.2.3", Now: func() time.Time { return start },
			Link: func(link string) {
				links <- link
				if len(links) == 1 {
					select {
					case <-ready:
					default:
						close(ready)
					}
				}
			}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the console ended with %v", err)
		}
	})
	<-ready
	b.links = append(b.links, <-links)
	jar, _ := cookiejar.New(nil)
	b.http = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(b.http.CloseIdleConnections)
	return b
}

// open opens the newest link.
func (b *browser) open() *browser {
	b.Helper()
	if status, _, _ := b.get(strings.TrimPrefix(b.links[len(b.links)-1], b.url)); status != http.StatusOK {
		b.Fatalf("the link answers %d", status)
	}
	return b
}

func (b *browser) do(r *http.Request) (status int, body string, header http.Header) {
	b.Helper()
	resp, err := b.http.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

func (b *browser) get(path string) (int, string, http.Header) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	return b.do(r)
}

// page gets a page that has to be there.
func (b *browser) page(path string) string {
	b.Helper()
	status, body, _ := b.get(path)
	if status != http.StatusOK {
		b.Fatalf("%s answers %d: %s", path, status, body)
	}
	return body
}

var csrfInput = regexp.MustCompile(`name="csrf" value="([A-Z0-9]+)"`)

// csrf is the token in the forms of the pages.
func (b *browser) csrf() string {
	b.Helper()
	found := csrfInput.FindStringSubmatch(b.page("/dlq"))
	if found == nil {
		b.Fatal("no form has a token")
	}
	return found[1]
}

// request is a form as the browser sends it from the console's own page.
func (b *browser) request(path string, form url.Values) *http.Request {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.url)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func (b *browser) post(path string, form url.Values) (int, string, http.Header) {
	b.Helper()
	form.Set("csrf", b.csrf())
	return b.do(b.request(path, form))
}

func (b *browser) wantStatus(what string, got, want int) {
	b.Helper()
	if got != want {
		b.Errorf("%s: status %d, want %d", what, got, want)
	}
}

func TestALinkOpensOnce(t *testing.T) {
	b := newBrowser(t, false)
	status, body, _ := b.get("/")
	b.wantStatus("without a session", status, http.StatusForbidden)
	if strings.Contains(body, "orders") || strings.Contains(body, "123456789012") {
		t.Errorf("a page without a session names the stack: %s", body)
	}
	status, _, _ = b.get("/open?token=WRONG")
	b.wantStatus("a wrong token", status, http.StatusForbidden)
	status, _, _ = b.get("/open")
	b.wantStatus("no token", status, http.StatusForbidden)

	status, _, header := b.get(strings.TrimPrefix(b.links[0], b.url))
	b.wantStatus("the link", status, http.StatusOK)
	cookie := header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie is %q, without %s", cookie, want)
		}
	}
	b.page("/")

	other := *b
	jar, _ := cookiejar.New(nil)
	other.http = &http.Client{Jar: jar}
	t.Cleanup(other.http.CloseIdleConnections)
	status, _, _ = other.get(strings.TrimPrefix(b.links[0], b.url))
	b.wantStatus("the used link", status, http.StatusForbidden)
	status, _, _ = other.get("/")
	b.wantStatus("after the used link", status, http.StatusForbidden)
}

// Of many requests with one link, one opens a session.
func TestALinkOpensOnceAlsoAtOnce(t *testing.T) {
	b := newBrowser(t, false)
	opened := make(chan bool, 8)
	for range cap(opened) {
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, b.links[0], nil)
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			opened <- err == nil && resp.StatusCode == http.StatusOK
		}()
	}
	n := 0
	for range cap(opened) {
		if <-opened {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the link opened %d times", n)
	}
}

func TestAForeignRequestIsRefused(t *testing.T) {
	b := newBrowser(t, true).open()
	b.answer["inspect"] = redrive.Response{Scan: &redrive.Scan{}}
	token := b.csrf()
	for name, change := range map[string]func(*http.Request){
		"another host name":            func(r *http.Request) { r.Host = "rebound.example:" + r.URL.Port() },
		"localhost":                    func(r *http.Request) { r.Host = "localhost:" + r.URL.Port() },
		"another port":                 func(r *http.Request) { r.Host = "127.0.0.1:1" },
		"a foreign origin":             func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"an opaque origin":             func(r *http.Request) { r.Header.Set("Origin", "null") },
		"no origin":                    func(r *http.Request) { r.Header.Del("Origin") },
		"another port of this machine": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another site, by the browser": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a navigation from another site": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := len(b.asked)
			r := b.request("/looks", url.Values{"csrf": {token}})
			change(r)
			status, body, _ := b.do(r)
			if status != http.StatusForbidden && status != http.StatusMisdirectedRequest {
				t.Errorf("status %d, want a refusal", status)
			}
			if len(b.asked) != asked {
				t.Errorf("the stack was asked %q", b.actions()[asked:])
			}
			if strings.Contains(body, "123456789012") {
				t.Errorf("the refusal tells the account: %s", body)
			}
		})
	}
	status, _, _ := b.do(b.request("/looks", url.Values{"csrf": {token}}))
	b.wantStatus("its own form", status, http.StatusSeeOther)
}

// Another page may not read from here, but a link may lead here.
func TestAForeignPageReadsNothing(t *testing.T) {
	b := newBrowser(t, false).open()
	for _, path := range []string{"/", "/live", "/dlq"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		r.Header.Set("Sec-Fetch-Site", "same-site")
		r.Header.Set("Sec-Fetch-Mode", "no-cors")
		status, _, _ := b.do(r)
		b.wantStatus(path+" as a part of another page", status, http.StatusForbidden)
		r.Header.Set("Sec-Fetch-Mode", "cors")
		r.Header.Set("Origin", "http://127.0.0.1:1")
		status, _, _ = b.do(r)
		b.wantStatus(path+" by a script of another page", status, http.StatusForbidden)
	}
}

// allActions are the names of everything that the console can change.
var allActions = []string{"plan", "approve", "run", "continue", "stop", "revoke", "stop-all", "resume", "discard", "resend", "mend", "cancel",
	"decide-sent", "decide-not-sent", "pause", "unpause", "pause-lane", "resume-lane"}

// anyForm has every field that some action needs.
func anyForm() url.Values {
	return url.Values{"by": {"bob"}, "reason": {"r"}, "plan": {"p-1"}, "run": {"r-1"}, "discard": {"d-1"}, "message": {"m"}, "job": {"k/s/r"}, "kind": {"k"},
		"lane": {"source"}, "body": {"{}"}}
}

// wantUntouched says that nothing was asked of the stack since it had been asked that often.
func (b *browser) wantUntouched(asked int) {
	b.Helper()
	if len(b.asked) != asked || len(b.ran) > 0 || b.stops > 0 || len(b.other) > 0 {
		b.Errorf("the stack was asked %q, ran %d, stopped %d, and %q", b.actions()[asked:], len(b.ran), b.stops, b.other)
	}
}

// Another site's form does nothing, whatever it is for.
func TestAForeignActionIsRefused(t *testing.T) {
	b := newBrowser(t, true).open()
	asked, token := len(b.asked), b.csrf()
	for _, name := range allActions {
		form := anyForm()
		form.Set("csrf", token)
		r := b.request("/act/"+name, form)
		r.Header.Set("Origin", "https://evil.example")
		status, _, _ := b.do(r)
		b.wantStatus(name, status, http.StatusForbidden)
	}
	b.wantUntouched(asked)
}

func TestAChangeNeedsTheSessionsToken(t *testing.T) {
	b := newBrowser(t, true).open()
	asked := len(b.asked)
	good := anyForm()
	for name, token := range map[string][]string{"no token": nil, "an empty token": {""}, "a wrong token": {strings.Repeat("A", 26)}} {
		form := url.Values{"csrf": token}
		for k, v := range good {
			form[k] = v
		}
		paths := []string{"/looks", "/messages/m-1"}
		for _, name := range allActions {
			paths = append(paths, "/act/"+name)
		}
		for _, path := range paths {
			status, _, _ := b.do(b.request(path, form))
			b.wantStatus(path+" with "+name, status, http.StatusForbidden)
		}
	}
	b.wantUntouched(asked)
}

func TestWithoutWriteNothingIsChanged(t *testing.T) {
	b := newBrowser(t, false).open()
	asked := len(b.asked)
	for _, name := range allActions {
		status, body, _ := b.get("/act/" + name + "?lane=source")
		b.wantStatus(name, status, http.StatusForbidden)
		for _, want := range []string{"--write", "acklast "} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page does not say %q: %s", name, want, body)
			}
		}
		status, _, _ = b.post("/act/"+name, anyForm())
		b.wantStatus("the form of "+name, status, http.StatusForbidden)
	}
	b.wantUntouched(asked)
}

func TestHeaders(t *testing.T) {
	b := newBrowser(t, false).open()
	for _, path := range []string{"/", "/dlq", "/nowhere", "/open", "/assets/console.js", "/assets/uplot/uPlot.iife.min.js"} {
		_, _, h := b.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Cache-Control":           "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// No page names another place, or has a script or a style in it.
func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	b := filled(t, true)
	for _, path := range pages(b) {
		body := b.page(path)
		if found := regexp.MustCompile(`(?i)(src|href|action|content)="[^"]*(https?:)?//[^"]*"`).FindString(body); found != "" {
			t.Errorf("%s names another place: %s", path, found)
		}
		if found := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script>|javascript:`).FindString(body); found != "" {
			t.Errorf("%s has a part that the policy forbids: %s", path, found)
		}
	}
}

func TestServesThisMachineOnly(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := console.Serve(t.Context(), l, console.Config{Stack: &fake{}}); err == nil || !strings.Contains(err.Error(), "this machine only") {
		t.Errorf("it serves %s: %v", l.Addr(), err)
	}
}

// Only what a person asks for receives from the DLQ.
func TestReadingReceivesNothing(t *testing.T) {
	b := filled(t, true)
	before := len(b.asked)
	for _, path := range pages(b) {
		b.page(path)
	}
	for _, action := range b.actions()[before:] {
		if !slices.Contains([]string{"status", "audit", "kinds"}, action) {
			t.Errorf("a page asked for %q", action)
		}
	}
	b.answer["inspect"] = redrive.Response{Scan: &redrive.Scan{Seen: 1, Holds: 1}}
	before = len(b.asked)
	status, _, header := b.post("/looks", url.Values{"class": {"transient"}, "attribute": {"tenant=blue"}, "older": {"30m"}})
	b.wantStatus("the button", status, http.StatusSeeOther)
	want := redrive.Filter{Classes: []job.Class{job.Transient}, Attributes: map[string]string{"tenant": "blue"}, OlderThan: "30m"}
	if got := b.asked[before:]; len(got) != 1 || got[0].Action != "inspect" || !got[0].List || got[0].Select.OlderThan != want.OlderThan || got[0].Select.Attributes["tenant"] != "blue" || got[0].Select.All {
		t.Errorf("the button asked %+v, want a look at %+v", got, want)
	}
	// Loading the answer again asks nothing.
	before = len(b.asked)
	b.page(header.Get("Location"))
	b.page(header.Get("Location"))
	if len(b.asked) != before {
		t.Errorf("loading the look again asked %q", b.actions()[before:])
	}
}

func TestServerAnswersPlainRequests(t *testing.T) {
	s := console.New(t.Context(), "127.0.0.1:80", console.Config{Stack: &fake{}})
	for _, field := range reflect.VisibleFields(reflect.TypeOf(*s)) {
		if field.IsExported() {
			t.Errorf("%s can be changed after New, beside the requests", field.Name)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:80/", nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d", w.Code)
	}
}
