//go:build browser

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"acklast/internal/awsclient"
	"acklast/internal/capacity"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/topology"
)

// The flag update writes the pictures of the documentation, too, into docs/images.
var shots = flag.String("shots", "", "folder that gets a picture of every page in every look")

// patience is how long the browser waits for something that has to happen.
const patience = 2 * time.Minute

// chrome is the browser: CHROME, or the one on PATH.
func chrome(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROME"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	const none = "There is no browser: set CHROME to a Chromium or Chrome, or put one on PATH."
	if os.Getenv("CI") != "" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

// outcomes counts deliveries by their outcome, from the worker's log lines and not from its metrics.
type outcomes struct {
	mu   sync.Mutex
	seen map[string]int
}

func (o *outcomes) Write(lines []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range bytes.Lines(lines) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) != nil {
			continue
		}
		if outcome, ok := fields["outcome"].(string); ok {
			o.seen[outcome]++
		}
	}
	return len(lines), nil
}

func (o *outcomes) all() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.seen)
}

// story is a stack on the embedded AWS with its console in a browser.
type story struct {
	*testing.T
	ctx      context.Context
	env      *local.Environment
	outcomes *outcomes
	console  string
	logs     *buffer
	axe      string
}

// newStory starts the stack, the console with the flags, and the browser, and opens the console's link.
func newStory(t *testing.T, flags ...string) *story {
	t.Helper()
	browser := chrome(t)
	functions := buildFunctions(t)
	axe, err := os.ReadFile("../../node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: npm ci installs it", err)
	}
	s := &story{T: t, outcomes: &outcomes{seen: map[string]int{}}, logs: new(buffer), axe: string(axe)}
	numbers := topology.ScaledRedrive()
	numbers.ApprovalAbove, numbers.Rate, numbers.Canary = 10, 4, 3
	const stack = "orders"
	s.env, err = local.Start(t.Context(), local.Config{
		Stack: stack, Settings: topology.Scaled(), Kinds: functions.Kinds, WorkerBinary: functions.Worker, RedriveBinary: functions.Redrive,
		Redrive: numbers, Logs: io.MultiWriter(s.outcomes, s.logs), Provider: fakeprovider.Options{Deduplicates: true, LooksUp: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.env.Close() })

	stdout, stderr := new(buffer), new(buffer)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	variables := map[string]string{"AWS_ENDPOINT_URL": s.env.Endpoint(), envStack: stack, "USER": "ada"}
	go func() {
		ended <- run(ctx, append([]string{"acklast", "console"}, flags...), strings.NewReader(""), stdout, stderr, func(name string) string { return variables[name] })
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("the console ended with %d: %s", code, stderr)
		}
	})
	eventually(t, time.Minute, func() bool { return strings.Contains(stdout.String(), "Open http://") }, func() string { return "no link: " + stderr.String() })
	link := strings.TrimSpace(strings.TrimPrefix(stdout.String(), "Open "))
	s.console, _, _ = strings.Cut(link, "/open?")

	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(browser), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chrome refuses to use its sandbox as root
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	s.ctx, stop = chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(s.ctx); err != nil { // without a limit: the browser lives as long as this context
		t.Fatal(err)
	}
	if err := chromedp.Listen(s.ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("a script failed: %+v", e.ExceptionDetails)
		}
	}); err != nil {
		t.Fatal(err)
	}
	s.do("open the link", chromedp.Navigate(link), isVisible("#isolated"))
	return s
}

type step = chromedp.Action[chromedp.Void]

func isVisible(selector string) step { return chromedp.WaitVisible(chromedp.CSS(selector)) }

func click(selector string) step { return chromedp.Click(chromedp.CSS(selector)) }

func enter(selector, value string) step { return chromedp.SetValue(chromedp.CSS(selector), value) }

func (s *story) do(what string, steps ...step) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		at, _ := chromedp.Run(s.ctx, chromedp.Location())
		text, _ := chromedp.Run(s.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		s.Fatalf("%s: %v\nat %s:\n%s", what, err, at, text)
	}
}

// value runs one action that has a value.
func value[T any](s *story, what string, action chromedp.Action[T]) (v T) {
	s.Helper()
	s.do(what, func(ctx context.Context, t *chromedp.Target) (_ chromedp.Void, err error) {
		v, err = action(ctx, t)
		return chromedp.Void{}, err
	})
	return v
}

// until waits until a JavaScript expression is true. It evaluates from outside: the page's policy forbids to evaluate
// texts in it.
func (s *story) until(what, expression string) {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if value(s, what, chromedp.Evaluate[bool]("Boolean("+expression+")")) {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: not within %v\n%s", what, patience, s.text("body"))
		}
	}
}

func (s *story) text(selector string) string {
	s.Helper()
	return value(s, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

func (s *story) open(path, selector string) {
	s.Helper()
	s.do("open "+path, chromedp.Navigate(s.console+path), isVisible(selector))
}

// remind sends a reminder and keeps nothing of it.
func (s *story) remind(name string) string {
	s.Helper()
	key, body := s.reminder(name, "renewal")
	queues := lanes.New(awsclient.SQS(s.env.AWSConfig()), s.env.QueueURLs())
	for _, err := range queues.Send(s.Context(), job.Source, []lanes.Move{{Message: job.Message{Body: body}}}) {
		if err != nil {
			s.Fatal(err)
		}
	}
	return key
}

// reminder is the key and the body of a reminder whose subscription is there.
func (s *story) reminder(name, template string) (key, body string) {
	s.Helper()
	now := time.Now().Truncate(time.Millisecond)
	p := reminder.Payload{ReminderID: name, SubscriptionID: "sub-" + name, Channel: reminder.Email, Template: template, TemplateVersion: "v3",
		Recipient: "customer-" + name, Plan: "pro", RenewsAt: now.Add(72 * time.Hour), ExpiresAt: now.Add(time.Hour)}
	names := s.env.Names()
	subscriptions := reminder.NewSubscriptions(awsclient.DynamoDB(s.env.AWSConfig()), names.Table("subscriptions"))
	if err := subscriptions.Put(s.Context(), reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}); err != nil {
		s.Fatal(err)
	}
	body, err := p.Job(time.Time{})
	if err != nil {
		s.Fatal(err)
	}
	if key, err = p.Key(); err != nil {
		s.Fatal(err)
	}
	return key, body
}

// plotted are the sums of the lines of a plot, as the chart library has them.
func (s *story) plotted(id string) map[string]int {
	s.Helper()
	return value(s, "read the plot "+id, chromedp.Evaluate[map[string]int](`(() => { const c = document.querySelector('[data-plot="`+id+`"]')?.chart; const sums = {};
		if (c) c.series.slice(1).forEach((line, i) => { sums[line.label] = c.data[i + 1].reduce((a, b) => a + b, 0); }); return sums; })()`))
}

// wantPlot waits until the plot's sums are the outcomes of the worker's log.
func (s *story) wantPlot(of string) {
	s.Helper()
	want := map[string]int{}
	deadline := time.Now().Add(patience)
	for {
		seen := s.outcomes.all()
		got := s.plotted("outcomes")
		for _, name := range []job.Outcome{job.Acknowledged, job.Retried, job.Isolated, job.Deferred, job.Left} {
			want[string(name)] = seen[string(name)]
		}
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("%s: the plot has %v, and the worker's log %v", of, got, want)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

type look struct {
	name, scheme  string
	width, height int64
}

var allLooks = []look{{"1280-light", "light", 1280, 900}, {"1280-dark", "dark", 1280, 900}, {"390", "light", 390, 844}, {"390-dark", "dark", 390, 844}}

// documented are the pictures of the documentation.
var documented = []string{"overview-1280-light", "overview-1280-dark", "overview-390", "dlq-1280-light", "job-1280-light", "run-1280-light", "run-390", "approve-1280-light", "capacity-1280-light"}

// check looks at the present page in every look: axe finds nothing to complain about, and nothing is wider than the
// window. It takes pictures if they are asked for.
func (s *story) check(name string) {
	s.Helper()
	s.checkAt(name, "body")
}

// checkAt is check with the picture from an element on.
func (s *story) checkAt(name, selector string) {
	s.Helper()
	for _, look := range allLooks {
		s.do("look at "+name+" "+look.name, chromedp.EmulateViewport(look.width, look.height),
			func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
				_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}})
				return chromedp.Void{}, err
			},
			chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).scrollIntoView(); undefined", selector)), chromedp.Evaluate[chromedp.Void](s.axe+"; undefined"))
		found := value(s, "axe on "+name, chromedp.Evaluate[string](`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " +
			v.nodes.map((n) => n.html + " (" + n.any.concat(n.all).map((a) => a.message).join(" ") + ")").join(" | ")).join("\n"))`, chromedp.EvalAwaitPromise))
		wide := value(s, "width of "+name, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth"))
		picture := value(s, "picture of "+name, chromedp.CaptureScreenshot())
		if found != "" {
			s.Errorf("%s, %s: %s", name, look.name, found)
		}
		if wide {
			s.Errorf("%s, %s: the page is wider than the window", name, look.name)
		}
		file := name + "-" + look.name
		if *shots != "" {
			s.keep(filepath.Join(*shots, file+".png"), picture)
		}
		if *update && slices.Contains(documented, file) {
			s.keep(filepath.Join("../../docs/images", "console-"+file+".png"), picture)
		}
	}
	s.do("the usual look", chromedp.EmulateViewport(1280, 900))
}

// keep writes a picture, compressed as well as PNG can.
func (s *story) keep(file string, picture []byte) {
	s.Helper()
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		s.Fatal(err)
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, paletted(decoded)); err != nil {
		s.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil { //nolint:gosec // a picture for everybody
		s.Fatal(err)
	}
}

// paletted is a picture with its 256 most frequent colours, which takes a third of the room. Every other colour, a shade
// at the edge of a letter, becomes the nearest of them.
func paletted(from image.Image) image.Image {
	bounds := from.Bounds()
	seen := map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] })
	to := image.NewPaletted(bounds, colours[:min(len(colours), 256)])
	index := map[color.Color]uint8{}
	for c := range seen {
		index[c] = uint8(to.Palette.Index(c)) //nolint:gosec // it is below 256
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, index[from.At(x, y)])
		}
	}
	return to
}

// TestBrowserStory plays an incident in a real browser: a dependency fails, the DLQ fills, the overview shows it, a
// person plans a redrive, another approves it, it runs with its canary, and the audit has everything.
func TestBrowserStory(t *testing.T) {
	s := newStory(t, "--write")
	const fine, failing = 14, 18
	for i := range fine {
		s.remind(fmt.Sprintf("renewal-10%02d", i))
	}
	s.until("the first reminders are plotted", fmt.Sprintf(`document.querySelector('[data-plot="outcomes"]')?.chart?.data[1].reduce((a, b) => a + b, 0) === %d`, fine))
	s.wantPlot("before the incident")
	if got := s.text("#isolated"); got != "0" {
		t.Errorf("isolated before the incident: %s", got)
	}

	// The dependency fails.
	mend := s.env.Provider().Add(fakeprovider.Rule{Do: fakeprovider.Fail(503)})
	var keys []string
	for i := range failing {
		keys = append(keys, s.remind(fmt.Sprintf("renewal-20%02d", i)))
	}
	s.until("the overview shows the DLQ", fmt.Sprintf(`document.querySelector("#isolated").textContent === "%d" && document.querySelector("table.groups td.n")?.textContent === "%[1]d"`, failing))
	s.wantPlot("in the incident")
	if got := s.plotted("outcomes")["isolated"]; got != failing {
		t.Errorf("plotted as isolated: %d, want %d", got, failing)
	}
	s.check("overview")
	mend()

	// The group, and one of its jobs.
	s.do("open the group", click("table.groups td.error a"), isVisible("main form button"))
	s.check("dlq")
	s.open("/jobs?q="+keys[0], "svg.way")
	s.check("job")
	s.open("/dlq?class=transient", "table.groups")
	s.do("look at the messages", click(`form[action="/looks"] button`), isVisible("section.card dl.facts"))
	s.check("look")
	s.do("look at one message", click("td.id a[href^='/messages/']"), isVisible("form[action^='/messages/'] button"))
	s.do("receive it", click("form[action^='/messages/'] button"), isVisible(`input[name="payload"] ~ p button`))
	if body := s.text("main"); strings.Contains(body, "customer-") {
		t.Error("a message shows its recipient before the payload was asked for")
	}
	s.do("show the payload", click(`input[name="payload"] ~ p button`), isVisible("pre"))
	payload := s.text("pre")
	if !strings.Contains(payload, `"recipient": "hidden"`) || strings.Contains(payload, "customer-") || !strings.Contains(payload, "renewal-20") {
		t.Errorf("the payload is shown as %s", payload)
	}
	s.check("message")

	// Ada plans.
	s.open("/dlq?class=transient", "table.groups")
	s.do("ask for a plan", click(`a[href^="/act/plan"]`), isVisible(".card.ask"))
	ask := s.text(".card.ask")
	for _, want := range []string{"orders", s.env.Endpoint(), "000000000000"} {
		if !strings.Contains(ask, want) {
			t.Errorf("the question does not name %q: %s", want, ask)
		}
	}
	s.do("make the plan", enter(`input[name="by"]`, "ada"), enter(`input[name="reason"]`, "the provider is back"),
		click("form.card button.primary"), isVisible("ol.stages"))
	s.check("plan")
	at := value(s, "the plan's address", chromedp.Location())
	_, plan, _ := strings.Cut(at, "/plans/")

	// Bob approves. The maker of a plan may not.
	approve := func(by string) {
		s.open("/act/approve?plan="+plan, ".card.ask")
		s.do(by+" approves", enter(`input[name="by"]`, by), enter(`input[name="reason"]`, "checked with the provider"))
	}
	approve("ada")
	s.do("ada is refused", click("form.card button.primary"), isVisible(".problem"))
	if got := s.text(".problem"); !strings.Contains(got, "somebody else has to approve it") {
		t.Errorf("ada is told %q", got)
	}
	approve("bob")
	s.check("approve")
	s.do("bob approves", click("form.card button.primary"), isVisible("ol.stages li.done + li.done"))

	// It runs: the canary first, then the rest, while the page follows.
	s.open("/act/run?plan="+plan, ".card.ask")
	s.do("run", enter(`input[name="by"]`, "ada"), enter(`input[name="reason"]`, "approved by bob"),
		click("form.card button.primary"), isVisible("#state"))
	at = value(s, "the run's address", chromedp.Location())
	_, runID, _ := strings.Cut(at, "/runs/")
	s.until("the canary passes while the page is open", `document.querySelector("#live").textContent.includes("passed")`)
	s.until("the window moves", `document.querySelectorAll("#live ul.judged li").length >= 8`)
	s.check("run")
	s.until("the run is done", `document.querySelector("#state").textContent.trim().startsWith("done")`)
	endings := s.text("#live")
	if want := fmt.Sprintf("%d succeeded", failing); !strings.Contains(endings, want) {
		t.Errorf("the run's page does not say %q: %s", want, endings)
	}
	s.check("run-done")

	s.open("/audit?of="+plan, "table")
	audit := s.text("table")
	for _, want := range []string{"planned", "approved", "ran", "ada", "bob", "checked with the provider"} {
		if !strings.Contains(audit, want) {
			t.Errorf("the plan's audit has no %q: %s", want, audit)
		}
	}
	s.open("/audit?of="+runID, "table")
	if got := strings.Count(s.text("table"), "sent"); got < failing {
		t.Errorf("the run's audit names %d sent messages, want %d", got, failing)
	}
	s.check("audit")
	s.open("/jobs?q="+keys[1], "svg.way")
	if got := s.text("ol.steps"); !strings.Contains(got, "Ended as done") || !strings.Contains(got, "Reopened") {
		t.Errorf("the job's way is %s", got)
	}
	s.check("job-done")
	s.open("/runs", "table")
	s.check("runs")
	// Everything ended: each reminder was sent once, and the plot has every delivery.
	s.open("/", "#isolated")
	s.until("the DLQ is empty", `document.querySelector("#isolated").textContent === "0"`)
	s.wantPlot("after the incident")
	got := s.plotted("outcomes")
	if got["acknowledged"] != fine+failing || got["isolated"] != failing {
		t.Errorf("the plot has %v, want %d acknowledged and %d isolated", got, fine+failing, failing)
	}
	if sent := len(s.env.Provider().Accepted("")); sent != fine+failing {
		t.Errorf("the provider accepted %d messages, want %d", sent, fine+failing)
	}
	s.check("overview-done")
}

// tab presses the tab key until the focus is on an element that matches the selector.
func (s *story) tab(selector string) {
	s.Helper()
	for range 200 {
		s.do("tab", chromedp.KeyEvent("\t"))
		if value(s, "focus", chromedp.Evaluate[bool](fmt.Sprintf("document.activeElement.matches(%q)", selector))) {
			return
		}
	}
	s.Fatalf("the tab key does not lead to %s:\n%s", selector, s.text("body"))
}

// press goes to an element by keyboard, presses enter, and waits for what the next page has.
func (s *story) press(selector, then string) {
	s.Helper()
	s.tab(selector)
	s.do("press "+selector, chromedp.KeyEvent("\r"), isVisible(then))
}

// fill goes to a field by keyboard and types into it, in place of what it has.
func (s *story) fill(selector, text string) {
	s.Helper()
	s.tab(selector)
	s.do("fill "+selector, chromedp.Evaluate[chromedp.Void]("document.activeElement.select(); undefined"), chromedp.KeyEvent(text))
}

// confirm gives a name and a reason by keyboard, and confirms the action that is shown.
func (s *story) confirm(by, then string) {
	s.Helper()
	s.fill(`input[name="by"]`, by)
	s.fill(`input[name="reason"]`, "as the runbook says")
	s.press("form.card button.primary", then)
}

// approveAndRun brings the plan that is shown to its end, by keyboard.
func (s *story) approveAndRun() {
	s.Helper()
	s.press(`a[href^="/act/approve"]`, ".card.ask")
	s.confirm("bob", "ol.stages li.done + li.done")
	s.press(`a[href^="/act/run"]`, ".card.ask")
	s.confirm("ada", "#state")
	s.until("the run is done", `document.querySelector("#state").textContent.trim().startsWith("done")`)
}

// TestBrowserActions does by keyboard alone what people on call do beside a redrive: pause a lane, mend a message,
// discard one and send it again, cancel a job, ask for an open plan, and throw the kill switch.
func TestBrowserActions(t *testing.T) {
	s := newStory(t, "--write")
	s.press(`a[href="/act/pause-lane?lane=source"]`, ".card.ask")
	s.check("pause-lane")
	s.press("form.card button.primary", "#isolated")
	s.until("the overview shows the pause", `document.querySelector("#lane-source .badge")?.textContent === "paused"`)
	s.press(`a[href="/act/resume-lane?lane=source"]`, ".card.ask")
	s.press("form.card button.primary", "#isolated")
	s.until("the overview shows its end", `document.querySelector("#lane-source") && !document.querySelector("#lane-source .badge")`)

	refusing := s.env.Provider().Add(fakeprovider.Rule{Do: fakeprovider.Refuse("unknown-recipient")})
	mended, discarded := s.remind("renewal-3001"), s.remind("renewal-3002")
	s.until("both are isolated", `document.querySelector("#isolated").textContent === "2" && document.querySelector("table.groups td.n")?.textContent === "2"`)
	refusing()

	// One is mended.
	s.open("/jobs?q="+mended, "svg.way")
	s.press(`a[href^="/act/mend"]`, ".card.ask")
	_, body := s.reminder("renewal-3001", "renewal-short")
	s.fill(`input[name="by"]`, "ada")
	s.fill(`input[name="reason"]`, "the template was wrong")
	s.fill(`textarea[name="body"]`, body)
	s.check("mend")
	s.press("form.card button.primary", "ol.stages")
	if text := s.text("main"); strings.Contains(text, "customer-") || !strings.Contains(text, "a mended body") {
		t.Errorf("the plan that mends shows the recipient, or not what it needs its approval for: %s", text)
	}
	s.approveAndRun()
	s.open("/jobs?q="+mended, "svg.way")
	if got := s.text("ol.steps"); !strings.Contains(got, "Ended as done") {
		t.Errorf("the mended job's way is %s", got)
	}

	// The other is discarded, and wanted after all.
	s.open("/jobs?q="+discarded, "svg.way")
	s.press(`a[href^="/act/discard"]`, ".card.ask")
	s.check("discard")
	s.confirm("ada", `a[href^="/act/resend"]`)
	s.check("audit-discard")
	s.press(`a[href^="/act/resend"]`, ".card.ask")
	s.confirm("ada", "ol.stages")
	s.approveAndRun()
	if sent := len(s.env.Provider().Accepted("")); sent != 2 {
		t.Errorf("the provider accepted %d messages, want 2", sent)
	}

	// A job that nobody has delivered yet is cancelled.
	later, _ := s.reminder("renewal-3003", "renewal")
	s.open("/jobs?q="+later, `a[href^="/act/cancel"]`)
	s.press(`a[href^="/act/cancel"]`, ".card.ask")
	s.check("cancel")
	s.confirm("ada", "svg.way")
	if got := s.text("main"); !strings.Contains(got, "cancelled") {
		t.Errorf("the cancelled job's page is %s", got)
	}

	// An open plan of an empty DLQ is refused, and the page says why.
	s.open("/runs", "table")
	s.press(`a[href="/act/plan"]`, ".card.ask")
	s.fill(`input[name="count"]`, "500")
	s.do("back to the beginning", chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(); scrollTo(0, 0)"))
	s.confirm("ada", ".problem")
	if got := s.text(".problem"); !strings.Contains(got, "of 0 messages none would be redriven") {
		t.Errorf("the open plan of nothing is told as %q", got)
	}

	// The kill switch.
	s.open("/runs", `a[href="/act/stop-all"]`)
	s.press(`a[href="/act/stop-all"]`, ".card.ask")
	s.confirm("ada", `a[href="/act/resume"]`)
	s.check("runs-stopped")
	s.press(`a[href="/act/resume"]`, ".card.ask")
	s.confirm("ada", `a[href="/act/stop-all"]`)
}

// TestBrowserCapacity computes a plan from numbers, whose plot has the computed values, and one from the stack.
func TestBrowserCapacity(t *testing.T) {
	s := newStory(t)
	s.open("/capacity", "main form")
	for name, v := range map[string]string{"arrivals": "40", "failing": "0.1", "p50": "100ms", "p95": "400ms", "backlog": "3000", "within": "10m", "quota": "60"} {
		s.do("fill "+name, enter(`input[name="`+name+`"]`, v))
	}
	s.press("form.card button.primary", ".plot .u-over")
	n := topology.Default()
	plan, err := capacity.New(capacity.Input{Arrivals: 40, Failing: 0.1, Retries: n.MaxAttempts - 1, P50: 100 * time.Millisecond, P95: 400 * time.Millisecond,
		Batch: n.BatchSize, SourceCap: n.SourceConcurrency, RecoveryCap: n.RecoveryConcurrency, Quota: 60, Backlog: 3000, Within: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	plotted := value(s, "read the plot", chromedp.Evaluate[[][]float64](`document.querySelector('[data-plot="backlog"]').chart.data.map((line) => [...line])`))
	want := make([][]float64, 3)
	for _, point := range plan.Curve(capacity.DrawnSteps) {
		for i, v := range []float64{point.At.Seconds(), math.Round(point.Left), math.Round(point.Needed)} {
			want[i] = append(want[i], v)
		}
	}
	for i, line := range want {
		if len(plotted) != len(want) || !slices.Equal(plotted[i], line) {
			t.Errorf("line %d of the plot is %v, want %v", i, plotted, line)
		}
	}
	s.checkAt("capacity", "#answer")
	s.press(`button[name="from"]`, "#sources")
	if got := s.text("#sources"); !strings.Contains(got, "Empty fields were read") {
		t.Errorf("the stack's numbers are %s", got)
	}
	s.open("/capacity?arrivals=&p50=100ms&p95=400ms&source-concurrency=50&recovery-concurrency=5&from=stack", "#sources")
	if got := s.text("#sources"); !strings.Contains(got, "messages on the DLQ") {
		t.Errorf("the stack's numbers are %s", got)
	}
	s.checkAt("capacity-stack", "#sources")
}

// TestBrowserReadOnly looks at the pages of a console that only reads, which show commands.
func TestBrowserReadOnly(t *testing.T) {
	s := newStory(t)
	if got := s.text("main"); !strings.Contains(got, "acklast --stack orders pause source") {
		t.Errorf("the overview shows no command: %s", got)
	}
	s.checkAt("overview-read-only", "#kinds")
	s.open("/runs", "h1")
	s.check("runs-read-only")
	s.open("/act/pause-lane?lane=source", ".problem")
	s.check("refused-read-only")
}

// TestBrowserKeyboard walks through the overview by keyboard alone.
func TestBrowserKeyboard(t *testing.T) {
	s := newStory(t)
	s.open("/capacity", "main form")
	var order []string
	for range 9 {
		s.do("tab", chromedp.KeyEvent("\t"))
		order = append(order, value(s, "focus", chromedp.Evaluate[string]("document.activeElement.textContent.trim() || document.activeElement.name")))
	}
	want := []string{"Skip to the content", "acklast", "Overview", "DLQ", "Jobs", "Redrives", "Audit", "Capacity", "arrivals"}
	if !slices.Equal(order, want) {
		t.Errorf("the focus goes %q, want %q", order, want)
	}
	s.open("/capacity", "main form")
	s.do("skip to the content", chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	if at := value(s, "focus", chromedp.Evaluate[string]("document.activeElement.id")); at != "main" {
		t.Errorf("the skip link leads to %q", at)
	}
}
