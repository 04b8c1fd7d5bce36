package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/local/faults"
	"acklast/internal/overview"
	"acklast/internal/topology"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bodies returns the bodies of messages, in order.
func bodies(messages []job.Message) []string {
	var list []string
	for _, m := range messages {
		list = append(list, m.Body)
	}
	slices.Sort(list)
	return list
}

func TestSendOne(t *testing.T) {
	c, aws := embedded(t)
	body := `{ "kind":"reservation.expire", "more":1e400, "payload":{"reservationId":"r-é/1","commandId":"c","resourceId":"x","units":1}}`
	r := c.must("send", body, "--attribute", "tenant=t=7", "--attribute", "path=/a")
	contains(t, r.stdout, "KIND", "reservation.expire", "at once", c.stack+"-source")

	got := received(t, aws, job.Source)
	if len(got) != 1 || got[0].Body != body {
		t.Fatalf("queue holds %q, want the body unchanged", bodies(got))
	}
	if a := got[0].Attributes; len(a) != 2 || a["tenant"].String != "t=7" || a["tenant"].Type != "String" || a["path"].String != "/a" {
		t.Errorf("attributes are %v", a)
	}
	if got[0].Memory != (job.Memory{}) {
		t.Errorf("a fresh job carries a memory: %+v", got[0].Memory)
	}

	due := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	later := strings.Replace(body, `{ "kind"`, fmt.Sprintf(`{"notBefore":%q,"kind"`, due.Format(time.RFC3339)), 1)
	report := decode[sendReport](t, c.must("send", later, "--output", "json"))
	if report.Sent != 1 || report.Failed != 0 || report.Queue != c.stack+"-source" || report.Job == nil ||
		report.Job.Kind != "reservation.expire" || !report.Job.NotBefore.Equal(due) {
		t.Errorf("report is %+v, job %+v", report, report.Job)
	}
	if status := decode[overview.Snapshot](t, c.must("status", "--output", "json")); status.Lanes[0].Scheduled != 1 {
		t.Errorf("a job due in an hour is not scheduled: %+v", status.Lanes[0])
	}
}

func TestMove(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	c := &checker{group: "g", attributes: map[string]job.Attribute{"a": {Type: "String", String: "b"}}}
	for notBefore, want := range map[time.Time]time.Duration{
		{}: 0, now.Add(-time.Hour): 0, now.Add(1500 * time.Millisecond): 1500 * time.Millisecond,
		now.Add(time.Hour): topology.MaxDelay,
	} {
		m := c.move("x", notBefore, now)
		if m.Delay != want || m.Message.Group != "g" || m.Message.Body != "x" || len(m.Message.Attributes) != 1 {
			t.Errorf("move for %v is %+v, want a delay of %v", notBefore, m, want)
		}
	}
}

// The command works with any stack: only the worker checks whether a kind is known and its payload is valid.
func TestSendKnowsNoKind(t *testing.T) {
	c, aws := embedded(t)
	body := `{"kind":"nobody.knows","payload":{"any":"thing"}}`
	c.must("send", body)
	if got := bodies(received(t, aws, job.Source)); !slices.Equal(got, []string{body}) {
		t.Errorf("queue holds %q", got)
	}
}

// The same jobs arrive from a file, from a redirected file and from a pipe, with every kind of line end.
func TestSendMany(t *testing.T) {
	var want []string
	text := "\n"
	for i := range 25 {
		want = append(want, expiry(fmt.Sprintf("r-%02d", i)))
		text += want[i] + []string{"\n", "\r\n", "\n  \n"}[i%3]
	}
	text = strings.TrimRight(text, "\n")
	open, err := os.Open(file(t, text))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	for name, try := range map[string]func(c *cli) result{
		"file":       func(c *cli) result { return c.must("send", "--file", file(t, text), "--output", "json") },
		"redirected": func(c *cli) result { c.stdin = open; return c.must("send", "-", "--output", "json") },
		"pipe": func(c *cli) result {
			c.stdin = iotest.OneByteReader(strings.NewReader(text))
			return c.must("send", "--file", "-", "--output", "json")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, aws := embedded(t)
			if r := decode[sendReport](t, try(c)); r.Sent != 25 || r.Failed != 0 || r.NextLine != 0 || r.Job != nil {
				t.Errorf("report is %+v", r)
			}
			if got := bodies(received(t, aws, job.Source)); !slices.Equal(got, want) {
				t.Errorf("queue holds %q", got)
			}
		})
	}
	t.Run("table", func(t *testing.T) {
		c, _ := embedded(t)
		contains(t, strings.Join(strings.Fields(c.must("send", "--file", file(t, text)).stdout), " "), "QUEUE SENT NOT CONFIRMED "+c.stack+"-source 25 0")
	})
	t.Run("from a line on", func(t *testing.T) {
		c, aws := embedded(t)
		bad := "what was sent before is not looked at\n" + want[1] + "\n" + want[2] + "\n"
		c.must("send", "--file", file(t, bad), "--from-line", "2")
		if got := bodies(received(t, aws, job.Source)); !slices.Equal(got, want[1:3]) {
			t.Errorf("queue holds %q", got)
		}
	})
	t.Run("one document over several lines", func(t *testing.T) {
		c, aws := embedded(t)
		pretty := "{\n  \"kind\": \"reservation.expire\",\n  \"payload\": {\"reservationId\": \"r\", \"commandId\": \"c\", \"resourceId\": \"x\", \"units\": 1}\n}"
		c.must("send", "--file", file(t, "\n"+pretty+"\n"))
		if got := bodies(received(t, aws, job.Source)); !slices.Equal(got, []string{pretty}) {
			t.Errorf("queue holds %q", got)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		c, _ := embedded(t)
		if r := decode[sendReport](t, c.must("send", "--file", file(t, "\n\n"), "--output", "json")); r.Sent != 0 {
			t.Errorf("report is %+v", r)
		}
	})
}

// Each job that cannot be sent is reported by its line with the reason, and no job is sent.
func TestSendRefusesBadLines(t *testing.T) {
	good := expiry("good")
	far := time.Now().Add(401 * 24 * time.Hour).Format(time.RFC3339)
	ahead := strings.Replace(good, `{"kind"`, fmt.Sprintf(`{"notBefore":%q,"kind"`, far), 1)
	padded := func(size int) string {
		return strings.Replace(good, `{"kind"`, `{"pad":"`+strings.Repeat("x", size-len(good)-len(`"pad":"",`))+`","kind"`, 1)
	}
	if n := len(padded(topology.MaxMessageBytes)); n != topology.MaxMessageBytes {
		t.Fatalf("a padded job has %d bytes", n)
	}
	for name, test := range map[string]struct {
		bad    string
		wanted []string
		args   []string
	}{
		"broken":        {`{"a":`, []string{"line 2: body: not valid JSON"}, nil},
		"no kind":       {`{"payload":{}}`, []string{"line 2: kind is missing"}, nil},
		"no payload":    {`{"kind":"x.y"}`, []string{"line 2: payload"}, nil},
		"bell":          {strings.Replace(good, "good", "go\x07d", 1), []string{"line 2: body: character U+0007"}, nil},
		"noncharacter":  {strings.Replace(good, "good", "go\uFFFEd", 1), []string{"line 2: body: character U+FFFE"}, nil},
		"not UTF-8":     {strings.Replace(good, "good", "go\xffd", 1), []string{"line 2: body: not UTF-8"}, nil},
		"too far ahead": {ahead, []string{"line 2: notBefore", "more than 9600h0m0s ahead"}, nil},
		"too long":      {padded(topology.MaxMessageBytes + 1), []string{"line 2: the message has 1048577 bytes"}, nil},
		"far too long":  {padded(3 * topology.MaxMessageBytes), []string{"line 2: longer than SQS's 1048576 bytes"}, nil},
		"with attribute": {padded(topology.MaxMessageBytes - 5), []string{"line 2: the message has 1048579 bytes with its attributes"},
			[]string{"--attribute", "a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := good + "\n" + test.bad + "\n" + good + "\n"
			for _, stdin := range []bool{false, true} {
				c := offline(t) // so that a send would fail with another error
				args := []string{"send", "--file", file(t, text)}
				if stdin {
					c.stdin, args = strings.NewReader(text), []string{"send", "-"}
				}
				c.refused(exitRefused, append(test.wanted, "nothing was sent: 1 of 3 jobs"), append(args, test.args...)...)
			}
		})
	}
	t.Run("argument", func(t *testing.T) {
		r := offline(t).refused(exitRefused, []string{"nothing was sent: body: not valid JSON"}, "send", `{"a":`)
		if strings.Contains(r.stderr, "line") {
			t.Errorf("an argument has no lines: %s", r.stderr)
		}
	})
	t.Run("many", func(t *testing.T) {
		offline(t).refused(exitRefused, []string{"26 of 27 jobs", "line 1: ", "line 10: ", "and 16 more"},
			"send", "--file", file(t, strings.Repeat("{}\n", 26)+good))
	})
	t.Run("the largest goes through", func(t *testing.T) {
		c, _ := embedded(t)
		c.must("send", "--file", file(t, good+"\n"+padded(topology.MaxMessageBytes)+"\r\n"+good))
	})
}

func TestSendRefusesBadFlags(t *testing.T) {
	good := expiry("good")
	for _, test := range []struct {
		wanted string
		args   []string
	}{
		{"give a job, --file FILE, or -", nil},
		{"give either a job or --file", []string{good, "--file", "x"}},
		{"no-such-file", []string{"--file", "/no-such-file"}},
		{"--from-line is 0", []string{good, "--from-line", "0"}},
		{"not name=value", []string{good, "--attribute", "a"}},
		{"it has no value", []string{good, "--attribute", "a="}},
		{"given twice", []string{good, "--attribute", "a=1", "--attribute", "a=2"}},
		{"reserved for acklast itself", []string{good, "--attribute", "acklast={}"}},
		{"begin with AWS.", []string{good, "--attribute", "AWS.x=1"}},
		{"letters, digits", []string{good, "--attribute", "a b=1"}},
		{"neither begins nor ends", []string{good, "--attribute", "a.=1"}},
		{"1 to 256", []string{good, "--attribute", "=1"}},
		{"character U+0007", []string{good, "--attribute", "a=\x07"}},
		{"11 attributes", append([]string{good}, strings.Fields(strings.Repeat("--attribute a=1 ", 11))...)},
		{"--group", []string{good, "--group", "a b"}},
	} {
		t.Run(test.wanted, func(t *testing.T) {
			offline(t).refused(exitRefused, []string{test.wanted}, append([]string{"send"}, test.args...)...)
		})
	}
}

// lines is an NDJSON input of n jobs.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(expiry(fmt.Sprintf("r-%04d", i)) + "\n")
	}
	return b.String()
}

// An interruption lets the calls in flight finish and prints the command that continues. That command sends the
// rest, and then all jobs have arrived.
func TestSendInterrupted(t *testing.T) {
	const total = 400
	for _, output := range []string{"table", "json"} {
		t.Run(output, func(t *testing.T) {
			c, aws := embedded(t)
			direct := c.env["AWS_ENDPOINT_URL"]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := make(chan struct{}, total)
			c.faulty().Add(faults.Rule{Operation: "SendMessageBatch", Match: func([]byte) bool {
				if calls <- struct{}{}; len(calls) == 10 { // in the second window
					cancel()
				}
				return false
			}})
			path := file(t, "\n"+lines(total)) // the first job is in line 2
			r := c.runContext(ctx, io.Discard, "send", "--file", path, "--from-line=1", "--output", output)
			if r.code != exitFailed {
				t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			next := "acklast send --file " + path + " --output " + output + " --from-line 162"
			contains(t, r.stderr, "interrupted", "SQS has confirmed 160 jobs", "in line 162 or later", next)
			if output == "json" {
				if report := decode[sendReport](t, r); report.Sent != 160 || report.NextLine != 162 || report.Failed != 0 {
					t.Errorf("report is %+v", report)
				}
			}
			c.env["AWS_ENDPOINT_URL"] = direct
			c.must(strings.Fields(next)[1:]...)
			if got := bodies(received(t, aws, job.Source)); len(slices.Compact(slices.Clone(got))) != total || len(got) != total {
				t.Errorf("queue holds %d jobs", len(got))
			}
		})
	}
	t.Run("while reading", func(t *testing.T) {
		c := offline(t)
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		defer func() { _ = w.Close() }()
		c.stdin = r
		go func() {
			_, _ = w.Write([]byte(expiry("r-1") + "\n"))
			cancel()
		}()
		got := c.runContext(ctx, io.Discard, "send", "-")
		if got.code != exitFailed || got.stdout != "" {
			t.Errorf("exit code %d, answer %q", got.code, got.stdout)
		}
		contains(t, got.stderr, "interrupted, nothing was sent")
	})
}

// fakeLane answers every move with the result of decide.
type fakeLane struct {
	decide func(ctx context.Context, body string) error
}

func (f fakeLane) Send(ctx context.Context, _ job.Queue, moves []lanes.Move) []error {
	errs := make([]error, len(moves))
	for i, m := range moves {
		errs[i] = f.decide(ctx, m.Message.Body)
	}
	return errs
}

func sendingTo(t *testing.T, stderr io.Writer, text string, decide func(ctx context.Context, body string) error) (*sending, *source) {
	t.Helper()
	c := &checker{maxAhead: time.Hour, now: time.Now}
	jobs, err := c.checked(t.Context(), strings.NewReader(text), 1, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return &sending{explain: new(target).explain, api: fakeLane{decide}, checker: c, stderr: stderr, total: jobs.total}, jobs
}

// Calls that an interruption cuts off count as not confirmed, and sending continues before them.
func TestSendCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, jobs := sendingTo(t, io.Discard, lines(100), func(call context.Context, body string) error {
		if !strings.Contains(body, "r-0085") {
			return nil
		}
		cancel()
		<-call.Done()
		return call.Err()
	})
	start := time.Now()
	err := s.run(ctx, jobs.next)
	if err == nil || s.report.Sent != 99 || s.report.NextLine != 86 || s.report.Failed != 0 {
		t.Errorf("run = %v, report %+v", err, s.report)
	}
	if took := time.Since(start); took < finishGrace {
		t.Errorf("calls in flight had %v, want %v", took, finishGrace)
	}
}

func TestSendFailures(t *testing.T) {
	full := errors.New("queue is full")
	t.Run("some lines", func(t *testing.T) {
		var stderr strings.Builder
		s, jobs := sendingTo(t, &stderr, lines(200), func(_ context.Context, body string) error {
			if strings.Contains(body, "r-0007") || strings.Contains(body, "r-0150") {
				return full
			}
			return nil
		})
		if err := s.run(t.Context(), jobs.next); err != nil {
			t.Fatal(err)
		}
		want := []sendFailure{{8, "queue is full"}, {151, "queue is full"}}
		if s.report.Sent != 198 || s.report.Failed != 2 || !slices.Equal(s.report.Failures, want) || s.report.NextLine != 0 {
			t.Errorf("report is %+v", s.report)
		}
		contains(t, stderr.String(), "line 8: queue is full", "line 151: queue is full")
	})
	t.Run("everything from a line on", func(t *testing.T) {
		sent := 0
		s, jobs := sendingTo(t, io.Discard, lines(2000), func(_ context.Context, body string) error {
			if body > expiry("r-0159") {
				return full
			}
			sent++
			return nil
		})
		s.api = serial{s.api}
		err := s.run(t.Context(), jobs.next)
		if !errors.Is(err, full) || s.report.Sent != 160 || s.report.NextLine != 161 {
			t.Errorf("run = %v, report %+v", err, s.report)
		}
	})
	t.Run("a call, end to end", func(t *testing.T) {
		c, aws := embedded(t)
		c.faulty().Add(faults.Rule{Operation: "SendMessageBatch", Times: 1, Fault: faults.Error(400, "com.amazonaws.sqs#UnsupportedOperation", "not today")})
		r := c.run("send", "--file", file(t, lines(30)), "--output", "json")
		report := decode[sendReport](t, r)
		if r.code != exitFailed || report.Sent != 20 || report.Failed != 10 || len(report.Failures) != 10 || report.NextLine != 0 {
			t.Errorf("exit code %d, report %+v", r.code, report)
		}
		contains(t, r.stderr, fmt.Sprintf("line %d: not confirmed as sent", report.Failures[0].Line), "not today", "10 of 30 jobs are not confirmed")
		if got := received(t, aws, job.Source); len(got) != 20 {
			t.Errorf("queue holds %d jobs", len(got))
		}
	})
	t.Run("the only job", func(t *testing.T) {
		c, _ := embedded(t)
		c.faulty().Add(faults.Rule{Operation: "SendMessageBatch", Fault: faults.Error(403, "AccessDenied", "no")})
		r := c.run("send", expiry("r-1"))
		if r.code != exitFailed {
			t.Errorf("exit code %d", r.code)
		}
		contains(t, r.stderr, "1 of 1 jobs are not confirmed")
	})
}

// serial makes calls one at a time, for fakes that count.
type serial struct {
	api interface {
		Send(context.Context, job.Queue, []lanes.Move) []error
	}
}

var serialTurn = make(chan struct{}, 1)

func (s serial) Send(ctx context.Context, q job.Queue, moves []lanes.Move) []error {
	serialTurn <- struct{}{}
	defer func() { <-serialTurn }()
	return s.api.Send(ctx, q, moves)
}

// A stream that is larger than a chunk is checked chunk by chunk. The chunks before a bad one are sent, no job
// of the bad one is, and continuing begins there.
func TestSendStreamInChunks(t *testing.T) {
	pad := `{"pad":"` + strings.Repeat("x", 900<<10) + `","kind"`
	big := strings.Replace(expiry("big"), `{"kind"`, pad, 1)
	n := chunkBytes/len(big) + 1
	text := strings.Repeat(big+"\n", n) + expiry("small") + "\n{}\n"
	c := &checker{maxAhead: time.Hour, now: time.Now}
	notes := 0
	jobs, err := c.checked(t.Context(), strings.NewReader(text), 1, func(string) { notes++ })
	if err != nil {
		t.Fatal(err)
	}
	s := &sending{explain: new(target).explain, api: fakeLane{func(_ context.Context, body string) error {
		if len(body) < 1000 {
			t.Errorf("sent %s", body)
		}
		return nil
	}}, checker: c, stderr: io.Discard, total: jobs.total}
	err = s.run(t.Context(), jobs.next)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d: kind is missing", n+2)) {
		t.Errorf("run = %v", err)
	}
	if s.report.Sent != n || s.report.NextLine != n+1 || notes != 1 {
		t.Errorf("report is %+v after %d notes, want %d sent", s.report, notes, n)
	}
	// A file of the same jobs is checked completely first.
	offline(t).refused(exitRefused, []string{fmt.Sprintf("nothing was sent: 1 of %d jobs", n+2), fmt.Sprintf("line %d: kind is missing", n+2)},
		"send", "--file", file(t, text))
}

func TestProgress(t *testing.T) {
	var stderr strings.Builder
	s, jobs := sendingTo(t, &stderr, lines(100), func(context.Context, string) error { return nil })
	s.terminal = true
	if err := s.run(t.Context(), jobs.next); err != nil {
		t.Fatal(err)
	}
	s.progress(true)
	if got := stderr.String(); got != "\r80 of 100 jobs sent\r\x1b[K" {
		t.Errorf("stderr is %q", got)
	}
}
