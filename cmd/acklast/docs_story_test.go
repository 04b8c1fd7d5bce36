//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// documentedStep is a command of the docs, as a person runs it in the story.
type documentedStep struct {
	line string
	// before prepares what the command is about.
	before func(*documentedStack)
	// code is the exit code, and says is part of the answer.
	code int
	says string
	// by is added as --by: all people of this test have the same credentials, and nobody may approve their own plan.
	by string
	// job is decided in place of the reminder that the docs name, which has its decision already.
	job string
	// stdin is what is typed; "" types yes, for the commands that ask.
	stdin string
	// endless commands are ended, like by Ctrl-C, as soon as they have said it.
	endless bool
}

// documentedStack is a stack, and what its story knows of ids.
type documentedStack struct {
	*cli
	env  *local.Environment
	mend []func()
	// ended gets the result of the run that waits.
	ended chan result
	ids   map[string]string
}

// documentedStory is one long incident with every command of the docs that can run on an embedded AWS.
var documentedStory = []documentedStep{
	{line: "acklast version", says: "acklast"},
	{line: "acklast capacity --arrivals 40 --failing 0.2 --p50 100ms --p95 400ms --quota 80 --backlog 9000 --within 1h", says: "largest safe redrive"},
	{line: "acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000", says: "done in"},
	{line: "acklast capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000 --within 30m --quota 60", says: "done in"},
	{line: "acklast status", says: "recovery"},
	{line: "acklast status --stack orders --output json", says: `"isolated": 0`},
	{line: "acklast smoke", says: "works"},
	{line: "acklast smoke --stack orders --timeout 5m --output json", says: `"ok": true`},
	{line: "acklast watch", says: "source", endless: true},
	{line: "acklast watch --every 1m", says: "source", endless: true},
	{line: "acklast watch --once --output json", says: `"lanes"`},
	{line: "acklast pause recovery", says: "recovery"},
	{line: "acklast resume recovery", says: "recovery"},
	{line: "acklast pause --kind reminder.send --reason 'the template is wrong'", says: "reminder.send"},
	{line: "acklast resume --kind reminder.send --reason 'the template is wrong'", says: "reminder.send"},
	// Jobs without their record: rejected.
	{line: `acklast send '{"kind":"reservation.expire","payload":{"reservationId":"r-1","commandId":"hold-1","resourceId":"room-7","units":1}}'`, says: "reservation.expire"},
	{line: "acklast send --file jobs.ndjson", says: "2"},
	{line: "acklast send --file jobs.ndjson --from-line 1204", says: "orders-source", before: func(s *documentedStack) {
		s.write("jobs.ndjson", strings.Repeat("\n", 1203)+expiry("r-4")+"\n")
	}},
	{line: "acklast send - --attribute tenant=t-7 --group t-7", stdin: expiry("r-5") + "\n", says: "orders-source"},
	{line: "acklast send --file events/reservation-expire.json", says: "reservation.expire"},
	{line: "acklast job r-1", before: func(s *documentedStack) { s.isolated(6) }, says: "isolated"},
	{line: "acklast job reservation.expire/r-1042/hold-3", says: "isolated"},
	{line: "acklast job r-1042", says: "reservation.expire/r-1042/hold-3"},
	{line: "acklast job r-1042 --output json", says: `"status": "isolated"`},
	{line: "acklast dlq", says: "rejected"},
	{line: "acklast dlq --show 5d1cf1a5-0000-4000-8000-000000000001 --body", before: func(s *documentedStack) { s.pick("r-1") }, says: `"commandId"`},
	{line: "acklast redrive mend 5d1cf1a5-0000-4000-8000-000000000001", says: `"units":1`},
	{line: "acklast redrive mend ID", says: `"units":1`, before: func(s *documentedStack) {
		s.write("body.json", strings.Replace(expiry("r-1"), `"units":1`, `"units":2`, 1))
	}},
	{line: "acklast redrive mend 5d1cf1a5-0000-4000-8000-000000000001 --file body.json --reason 'the units were missing'", by: "ada", says: `+     "units": 2`},
	{line: `acklast redrive mend ID --file body.json --reason "the units were missing"`, by: "ada", says: `+     "units": 2`},
	{line: `acklast redrive approve PLAN --reason "checked against the order"`, by: "bob", before: (*documentedStack).newest, says: "Approved"},
	// Its record is still missing.
	{line: "acklast redrive run PLAN", code: exitStopped, says: "halted canary"},
	{line: "acklast redrive run --only 5d1cf1a5-0000-4000-8000-000000000001 --reason 'its record is there now'", code: exitStopped,
		before: func(s *documentedStack) { s.isolated(6); s.pick("r-2") }, says: "halted canary"},
	{line: `acklast redrive run --only ID --reason "its record is there"`, code: exitStopped,
		before: func(s *documentedStack) { s.isolated(6); s.pick("r-3") }, says: "halted canary"},
	{line: "acklast redrive status", before: (*documentedStack).newest, says: "halted canary"},
	{line: "acklast redrive status latest --watch", code: exitStopped, says: "halted canary"},
	{line: "acklast redrive status r-20261201-100000-1a2b3c4d --output json", code: exitStopped, says: `"halted"`},
	{line: "acklast audit r-20261201-100000-1a2b3c4d", says: "sent"},
	{line: "acklast audit r-20261201-100000-1a2b3c4d --ending 'isolated again'", says: "isolated again"},
	{line: "acklast redrive stop", says: "on"},
	{line: `acklast redrive resume --reason "false alarm"`, says: "off"},
	{line: "acklast redrive resume --reason 'the provider is back'", says: "off"},
	{line: "acklast redrive stop r-20261201-100000-1a2b3c4d --reason 'the provider answers 500 again'", says: "halted stopped",
		before: func(s *documentedStack) { s.waits("r-2") }},
	{line: `acklast redrive stop RUN --reason "wrong jobs"`, code: exitRefused, says: "is halted already", before: (*documentedStack).ends},
	{line: "acklast redrive revoke r-20261201-100000-1a2b3c4d --reason 'the wrong jobs were selected'", says: "revoked"},
	// A discarded job comes back, out of the audit.
	{line: "acklast discard 5d1cf1a5-0000-4000-8000-000000000001 --reason 'malformed by a producer that is mended'",
		before: func(s *documentedStack) { s.isolated(6); s.pick("r-4") }, says: "discarded"},
	{line: "acklast audit d-20261201-100000-1a2b3c4d --body 5d1cf1a5-0000-4000-8000-000000000001", before: (*documentedStack).discarded, says: "r-4"},
	{line: "acklast redrive resend d-20261201-100000-1a2b3c4d 5d1cf1a5-0000-4000-8000-000000000001 --reason 'it was wanted after all'", says: "a job that was discarded"},
	{line: `acklast discard ID --reason "a test"`, before: func(s *documentedStack) { s.pick("r-5") }, says: "discarded"},
	{line: "acklast discard --class invalid --error 'not valid JSON' --count 12 --reason 'malformed by a producer that is mended'", before: func(s *documentedStack) {
		for i := range 12 {
			s.sendBody(fmt.Sprintf("{ no JSON %d", i))
		}
		s.isolated(4 + 12)
	}, says: "12"},
	// A provider that is down.
	{line: "acklast dlq --class transient --older-than 1h", before: func(s *documentedStack) {
		for i := range 3 {
			s.remind(fmt.Sprintf("renewal-%d", i), fakeprovider.Fail(503))
		}
		s.isolated(4 + 3)
	}},
	{line: "acklast redrive plan --class transient --older-than 5m --reason 'the provider is back'", code: exitRefused, says: "nothing"},
	{line: `acklast redrive plan --class transient --older-than 5m --reason "the provider is back since 10:40"`, code: exitRefused, says: "nothing"},
	{line: "acklast redrive plan --help", says: "Usage:"},
	{line: `acklast redrive plan --open --count 500000 --class transient --rate 100 --reason "the provider is back since 10:40"`, by: "ada", says: "an open plan"},
	{line: `acklast redrive approve PLAN --reason "looked at the groups"`, by: "bob", before: (*documentedStack).newest, says: "Approved"},
	{line: "acklast redrive approve latest --reason 'checked with the provider'", by: "bob", before: (*documentedStack).opens, says: "Approved"},
	{line: `acklast redrive approve PLAN --reason "looked at the samples"`, by: "bob", before: (*documentedStack).opens, says: "Approved"},
	{line: "acklast redrive approve p-20261201-100000-1a2b3c4d --reason 'checked with the provider'", by: "bob", before: (*documentedStack).opens, says: "Approved"},
	{line: `acklast redrive plan --class transient --reason "the provider is back"`, by: "ada", before: (*documentedStack).mended, says: "Next: acklast redrive"},
	{line: "acklast redrive run p-20261201-100000-1a2b3c4d", before: (*documentedStack).newest, says: "succeeded"},
	// A provider whose answers are lost.
	{line: "acklast decide --class ambiguous --error 'earlier request is unknown' --count 12 --not-sent --reason 'the provider was down all the time'", says: "12", before: func(s *documentedStack) {
		for i := range 12 {
			s.remind(fmt.Sprintf("lost-%d", i), fakeprovider.HangUp())
		}
		s.isolated(4 + 12)
	}},
	{line: "acklast job renewal-1042", before: func(s *documentedStack) {
		s.remind("other", fakeprovider.HangUp())
		s.remind("renewal-1042", fakeprovider.HangUp())
		s.isolated(4 + 14)
	}, says: "is ambiguous"},
	{line: "acklast decide reminder.send/renewal-1042/email/v3 --not-sent --reason 'the provider finds no such request'",
		job: "reminder.send/other/email/v3", says: "not-sent"},
	{line: `acklast decide reminder.send/renewal-1042/email/v3 --not-sent --by ada --reason "support says it never arrived"`, says: "not-sent"},
	{line: "acklast audit reminder.send/renewal-1042/email/v3", says: "ada"},
	{line: "acklast cancel reminder.send/renewal-1042/email/v3 --reason 'the customer left'", says: "cancelled"},
	{line: "acklast cancel reminder.send/renewal-1042/email/v3 --not-before 2027-06-01T08:00:00Z --reason 'the customer left'", says: "cancelled"},
	// The stack of this story has shortened times, which the doctor has to find.
	{line: "acklast doctor --settings infra/environments/default.json", code: exitFailed, says: `ACKLAST_MAX_ATTEMPTS is "2", not "10"`},
	{line: "acklast doctor --commands status,job --output json", code: exitFailed, says: `"checks"`},
	{line: "acklast capacity --from-stack --within 2h --plot backlog.svg", code: exitRefused, says: "CloudWatch on AWS only"},
}

// shellPlaces are the words in the docs that stand for an id.
var shellPlaces = map[string]string{
	"ID": "message", someID: "message", "PLAN": "plan", somePlan: "plan", "RUN": "run", someRun: "run", "d-20261201-100000-1a2b3c4d": "discard",
}

func (s *documentedStack) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *documentedStack) sendBody(body string) {
	s.t.Helper()
	queues := lanes.New(awsclient.SQS(s.env.AWSConfig()), s.env.QueueURLs())
	for _, err := range queues.Send(s.t.Context(), job.Source, []lanes.Move{{Message: job.Message{Body: body}}}) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// remind sends a reminder to a recipient for whom the provider behaves badly.
func (s *documentedStack) remind(name string, do fakeprovider.Behaviour) {
	s.t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	p := reminder.Payload{ReminderID: name, SubscriptionID: "sub-" + name, Channel: reminder.Email, Template: "renewal", TemplateVersion: "v3",
		Recipient: "customer-" + name, Plan: "pro", RenewsAt: now.Add(72 * time.Hour), ExpiresAt: now.Add(48 * time.Hour)}
	subscriptions := reminder.NewSubscriptions(awsclient.DynamoDB(s.env.AWSConfig()), s.env.Names().Table("subscriptions"))
	if err := subscriptions.Put(s.t.Context(), reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}); err != nil {
		s.t.Fatal(err)
	}
	s.mend = append(s.mend, s.env.Provider().Add(fakeprovider.Rule{Recipient: p.Recipient, Do: do}))
	body, err := p.Job(time.Time{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.sendBody(body)
}

// mended lets the provider behave again.
func (s *documentedStack) mended() {
	for _, mend := range s.mend {
		mend()
	}
	s.mend = nil
}

// isolated waits until the DLQ shows so many messages.
func (s *documentedStack) isolated(want int) {
	s.t.Helper()
	var got int
	eventually(s.t, 2*time.Minute, func() bool {
		got = 0
		for _, group := range decode[redrive.Response](s.t, s.must("dlq", "--output", "json")).Groups {
			got += group.Count
		}
		return got == want
	}, func() string { return fmt.Sprintf("%d messages are on the DLQ, want %d", got, want) })
}

// pick finds the message of a subject on the DLQ.
func (s *documentedStack) pick(subject string) {
	s.t.Helper()
	groups := decode[redrive.Response](s.t, s.must("dlq", "--subject", subject, "--output", "json")).Groups
	if len(groups) == 0 || len(groups[0].Samples) == 0 {
		s.t.Fatalf("%s is not on the DLQ", subject)
	}
	s.ids["message"] = groups[0].Samples[0].Message
}

// waits begins to redrive a subject's job, which waits because the recovery lane is paused, and finds the run.
func (s *documentedStack) waits(subject string) {
	s.t.Helper()
	s.must("pause", "recovery")
	said := new(buffer)
	s.ended = make(chan result, 1)
	go func() {
		s.ended <- s.runContext(s.t.Context(), said, "redrive", "run", "--only", "reservation.expire/"+subject+"/hold-1", "--reason", "x", "--yes")
	}()
	eventually(s.t, 2*time.Minute, func() bool { return strings.Contains(said.String(), "The recovery lane is paused") }, said.String)
	s.newest()
}

// ends waits for the end of the run that waited.
func (s *documentedStack) ends() {
	s.t.Helper()
	if got := <-s.ended; got.code != exitStopped {
		s.t.Errorf("a stopped run ends with exit code %d, want %d", got.code, exitStopped)
	}
	s.must("resume", "recovery")
}

// opens makes a plan that somebody else has to approve.
func (s *documentedStack) opens() {
	s.t.Helper()
	s.must("redrive", "plan", "--open", "--count", "5", "--class", "transient", "--by", "ada", "--reason", "the provider is back")
	s.newest()
}

// newest finds the newest plan and its run.
func (s *documentedStack) newest() {
	s.t.Helper()
	runs := decode[redrive.Response](s.t, s.must("redrive", "status", "--output", "json")).Runs
	if len(runs) == 0 {
		s.t.Fatal("there is no plan")
	}
	s.ids["plan"], s.ids["run"] = runs[0].Plan, runs[0].ID
}

// discarded finds the audit's id of the last discard.
func (s *documentedStack) discarded() {
	s.t.Helper()
	for _, line := range decode[redrive.Response](s.t, s.must("audit", "reservation.expire/r-4/hold-1", "--output", "json")).Audit {
		if line.What == "discarded" {
			s.ids["discard"] = line.Run
		}
	}
}

// newDocumentedStack starts the stack orders, and a folder in which the commands are typed.
func newDocumentedStack(t *testing.T) *documentedStack {
	t.Helper()
	functions := buildFunctions(t)
	needSamples(t, functions)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	settings := topology.Scaled()
	settings.MaxAttempts = 2
	env, err := local.Start(t.Context(), local.Config{
		Stack: "orders", Settings: settings, Kinds: functions.Kinds, WorkerBinary: functions.Worker, RedriveBinary: functions.Redrive,
		Redrive: topology.ScaledRedrive(), Logs: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	t.Chdir(t.TempDir())
	for _, name := range []string{"events", "infra"} {
		if err := os.Symlink(filepath.Join(root, name), name); err != nil {
			t.Fatal(err)
		}
	}
	s := &documentedStack{ids: map[string]string{}, env: env,
		cli: &cli{t: t, stack: "orders", env: map[string]string{"AWS_ENDPOINT_URL": env.Endpoint(), envStack: "orders", "USER": "ada"}}}
	s.write("jobs.ndjson", expiry("r-2")+"\n"+expiry("r-3")+"\n")
	return s
}

// TestTypedAsDocumented runs the commands of the docs, and then the samples of requests, on one stack.
func TestTypedAsDocumented(t *testing.T) {
	found, samples := commandsInDocs(t), samplesOfRequests(t)
	s := newDocumentedStack(t)
	t.Run("commands", func(t *testing.T) { s.t = t; s.commands(found) })
	t.Run("samples of requests", func(t *testing.T) { s.t = t; s.requests(samples) })
}

// commands runs the commands, one after the other.
func (s *documentedStack) commands(found map[string]*shown) {
	t := s.t
	for _, step := range documentedStory {
		if found[step.line] == nil {
			continue // TestEveryDocumentedCommandIsRunOrListed tells
		}
		if step.before != nil {
			step.before(s)
		}
		var args []string
		for _, word := range found[step.line].words[1:] {
			if place, ok := shellPlaces[word]; ok {
				if word = s.ids[place]; word == "" {
					t.Fatalf("%s: the story knows no %s yet", step.line, place)
				}
			}
			if step.job != "" && word == someJob {
				word = step.job
			}
			args = append(args, word)
		}
		if step.by != "" {
			args = append(args, "--by", step.by)
		}
		s.stdin = strings.NewReader("yes\n")
		if step.stdin != "" {
			s.stdin = strings.NewReader(step.stdin)
		}
		r := s.runAsTyped(step, args)
		if r.code != step.code {
			t.Fatalf("%s (%q): exit code %d, want %d\n%s%s", step.line, args, r.code, step.code, r.stdout, r.stderr)
		}
		if !strings.Contains(r.stdout+r.stderr, step.says) {
			t.Errorf("%s does not say %q:\n%s%s", step.line, step.says, r.stdout, r.stderr)
		}
	}
}

// runAsTyped runs a command line. It ends an endless one as soon as that has said what it should.
func (s *documentedStack) runAsTyped(step documentedStep, args []string) result {
	if !step.endless {
		return s.run(args...)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	return s.runTo(ctx, writerFunc(func(p []byte) {
		if strings.Contains(string(p), step.says) {
			cancel()
		}
	}), io.Discard, args...)
}

// samplesOfRequests are the requests in events/redrive, by their files.
func samplesOfRequests(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../events/redrive/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	samples := map[string][]byte{}
	for _, file := range files {
		if samples[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return samples
}

// requests makes the samples' requests as they are typed with the AWS CLI, which names function and alias in one and
// escapes the colon.
func (s *documentedStack) requests(samples map[string][]byte) {
	t := s.t
	for file, sample := range samples {
		var want struct{ Action string }
		if err := json.Unmarshal(sample, &want); err != nil {
			t.Fatal(err)
		}
		alias := "operate"
		if slices.Contains([]string{"approve", "discard", "decide"}, want.Action) {
			alias = "approve"
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			s.env.Endpoint()+"/2015-03-31/functions/orders-redrive%3A"+alias+"/invocations", bytes.NewReader(sample))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=local/20261201/eu-central-1/lambda/aws4_request, SignedHeaders=host, Signature=0")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var got redrive.Response
		err = json.NewDecoder(answer.Body).Decode(&got)
		_ = answer.Body.Close()
		switch {
		case err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("X-Amz-Function-Error") != "":
			t.Errorf("%s: status %d, function error %q, %v", file, answer.StatusCode, answer.Header.Get("X-Amz-Function-Error"), err)
		case got.Action != want.Action:
			t.Errorf("%s: answered as %q, refused %q", file, got.Action, got.Refused)
		case strings.Contains(got.Refused, "does nothing with"), strings.Contains(got.Refused, "not readable"), strings.Contains(got.Refused, "needs a name"):
			t.Errorf("%s: refused as a request: %s", file, got.Refused)
		}
	}
}
