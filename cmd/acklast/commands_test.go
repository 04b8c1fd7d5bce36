package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"acklast/internal/capacity"
	"acklast/internal/demo"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// described is a command as the tests and the reference know it.
type described struct {
	// args make it ask a stack.
	args []string
	// answer is its answer with --output json.
	answer any
	// alone says why the tests of all commands leave it out: it asks no stack.
	alone string
}

const (
	someID   = "5d1cf1a5-0000-4000-8000-000000000001"
	somePlan = "p-20261201-100000-1a2b3c4d"
	someRun  = "r-20261201-100000-1a2b3c4d"
	someJob  = "reminder.send/renewal-1042/email/v3"
)

// commands are all commands that do something. TestEveryCommandIsDescribed compares them with the program's.
var commands = map[string]described{
	"local":           {answer: localReport{}, alone: "it starts a stack: TestLocal runs it"},
	"demo":            {answer: demo.Report{}, alone: "it starts a stack: internal/demo's TestTheStoryAddsUp runs it"},
	"version":         {answer: versionReport{}, alone: "it makes no call: TestVersion runs it"},
	"capacity":        {answer: capacity.Plan{}, alone: "it makes no call: TestCapacityPlansWithoutAStack runs it"},
	"send":            {args: []string{expiry("r-1")}, answer: sendReport{}},
	"job":             {args: []string{someJob}, answer: jobReport{}},
	"status":          {answer: overview.Snapshot{}},
	"watch":           {args: []string{"--once"}, answer: overview.Snapshot{}},
	"smoke":           {args: []string{"--timeout", "1s"}, answer: smokeReport{}},
	"doctor":          {answer: doctorReport{}},
	"console":         {alone: "it serves a page: TestConsole runs it"},
	"pause":           {args: []string{"recovery"}, answer: laneReport{}},
	"resume":          {args: []string{"recovery"}, answer: laneReport{}},
	"dlq":             {answer: redrive.Response{}},
	"redrive plan":    {args: []string{"--all", "--reason", "why"}, answer: redrive.Response{}},
	"redrive mend":    {args: []string{someID}, answer: redrive.Response{}},
	"redrive resend":  {args: []string{"d-20261201-100000-1a2b3c4d", someID, "--reason", "why"}, answer: redrive.Response{}},
	"redrive approve": {args: []string{somePlan, "--yes", "--reason", "why"}, answer: redrive.Response{}},
	"redrive run":     {args: []string{someRun, "--yes"}, answer: redrive.Response{}},
	"redrive status":  {answer: redrive.Response{}},
	"redrive stop":    {args: []string{someRun}, answer: redrive.Response{}},
	"redrive resume":  {args: []string{"--reason", "why"}, answer: redrive.Response{}},
	"redrive revoke":  {args: []string{someRun, "--reason", "why"}, answer: redrive.Response{}},
	"cancel":          {args: []string{someJob, "--reason", "why"}, answer: cancelReport{}},
	"discard":         {args: []string{someID, "--reason", "why"}, answer: redrive.Response{}},
	"decide":          {args: []string{someJob, "--sent", "--reason", "why"}, answer: redrive.Response{}},
	"audit":           {args: []string{someRun}, answer: redrive.Response{}},
}

// leaves are the program's commands that do something, by their names.
func leaves(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	found := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" || cmd.Hidden {
			return // cobra's own
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasSubCommands() {
			found[strings.TrimPrefix(cmd.CommandPath(), "acklast ")] = cmd
		}
	}
	walk(newRoot(&app{getenv: func(string) string { return "" }}))
	return found
}

func TestEveryCommandIsDescribed(t *testing.T) {
	all := leaves(t)
	for name, cmd := range all {
		if _, ok := commands[name]; !ok {
			t.Errorf("acklast %s: add it to the table commands of this file, with arguments and the type of its JSON answer", name)
		}
		if cmd.Long == "" || cmd.Example == "" {
			t.Errorf("acklast %s has no long help with an example", name)
		}
	}
	for name := range commands {
		if all[name] == nil {
			t.Errorf("the table has a command that the program has not: %s", name)
		}
	}
}

// hostile is text of a sender that tries to control a terminal: a title, colours, the end of a string, C1's
// control sequence introducer, text that runs from right to left, a line of its own, a carriage return, a bell.
const hostile = "x\x1b]0;owned\x07\x1b[31m\u009b2J\u202e\u2066\r\nacklast: done\x7f\u200b"

// fill sets all strings of a value to hostile text, and all lists and maps to one such item. Numbers grow with
// every call, so that nothing waits for progress.
func fill(v reflect.Value, number int64, depth int) {
	switch {
	case depth > 8:
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{}`))
	case v.Kind() == reflect.String:
		v.SetString(hostile)
	case v.CanInt():
		v.SetInt(number)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), number, depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), number, depth+1)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), number, depth+1)
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, number, depth+1)
		fill(value, number, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

// answers are what the redrive function of a fake stack says, or how AWS refuses.
var answers = map[string]func(w http.ResponseWriter, number int64){
	"everything": func(w http.ResponseWriter, number int64) {
		var r redrive.Response
		fill(reflect.ValueOf(&r).Elem(), number, 0)
		r.Refused, r.Next, r.NextPage = "", "", 0
		_ = json.NewEncoder(w).Encode(r)
	},
	"plan without a run": func(w http.ResponseWriter, number int64) {
		var r redrive.Response
		fill(reflect.ValueOf(&r).Elem(), number, 0)
		r.Refused, r.Next, r.NextPage, r.Run, r.Switch = "", "", 0, nil, nil
		_ = json.NewEncoder(w).Encode(r)
	},
	"refused": func(w http.ResponseWriter, _ int64) {
		_ = json.NewEncoder(w).Encode(redrive.Response{Refused: hostile})
	},
	"function error": func(w http.ResponseWriter, _ int64) {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		_ = json.NewEncoder(w).Encode(map[string]string{"errorMessage": hostile})
	},
	"half an answer": func(w http.ResponseWriter, _ int64) { _, _ = io.WriteString(w, `{"action":"`+hostile) },
	"empty answer":   func(w http.ResponseWriter, _ int64) { _, _ = io.WriteString(w, `{}`) },
	"AWS refuses":    nil,
}

// fake is a stack whose redrive function gives one of the answers. Any other call is refused in hostile words.
func fake(t *testing.T, answer func(http.ResponseWriter, int64)) *cli {
	t.Helper()
	var number int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer != nil && strings.HasSuffix(r.URL.Path, "/invocations") {
			number++
			answer(w, number)
			return
		}
		w.Header().Set("X-Amzn-Errortype", "ValidationException")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "ValidationException", "message": hostile, "Message": hostile})
	}))
	t.Cleanup(server.Close)
	return &cli{t: t, stack: "fake", env: map[string]string{"AWS_ENDPOINT_URL": server.URL, envStack: "fake"}}
}

// uncontrolled reports characters of a text that could control a terminal.
func uncontrolled(t *testing.T, where, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%s has %U after %q", where, r, text[max(0, i-60):i])
			return
		}
	}
}

// No character of a sender reaches the terminal as a control character, whatever the command and its outcome.
func TestNoCommandLetsTextControlTheTerminal(t *testing.T) {
	for name, command := range commands {
		if command.alone != "" {
			continue
		}
		for said, answer := range answers {
			for _, output := range []string{"table", "json"} {
				t.Run(name+"/"+said+"/"+output, func(t *testing.T) {
					t.Parallel()
					args := slices.Concat(strings.Fields(name), command.args, []string{"--output", output})
					r := fake(t, answer).runUntilRepeating(args...)
					if name == "redrive mend" && output == "table" {
						r.stdout = "" // it is no terminal here, and the body is to be edited as it is
					}
					uncontrolled(t, "stdout", r.stdout)
					uncontrolled(t, "stderr", r.stderr)
					for line := range strings.Lines(r.stderr) {
						if strings.HasPrefix(line, "acklast: done") {
							t.Errorf("text of a sender looks like a line of the program:\n%s", r.stderr)
						}
					}
					if output == "json" && r.stdout != "" {
						d := json.NewDecoder(strings.NewReader(r.stdout))
						d.DisallowUnknownFields()
						if err := d.Decode(reflect.New(reflect.TypeOf(command.answer)).Interface()); err != nil {
							t.Errorf("the answer is not a %T: %v\n%s", command.answer, err, r.stdout)
						}
						if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
							t.Errorf("the answer is not one JSON document: %v", err)
						}
					}
				})
			}
		}
	}
}

// runUntilRepeating runs a command line, and interrupts it when it says that it tries again.
func (c *cli) runUntilRepeating(args ...string) result {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	return c.runContext(ctx, writerFunc(func(p []byte) {
		if strings.Contains(string(p), "again") {
			cancel()
		}
	}), args...)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestEscapedJSONReadsBack(t *testing.T) {
	text := hostile + "\U000e0001 ünïcode <&>"
	var out strings.Builder
	if err := writeJSON(&out, text, ""); err != nil {
		t.Fatal(err)
	}
	uncontrolled(t, "the JSON", out.String())
	var back string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back != text {
		t.Errorf("%q reads back as %q, %v", text, back, err)
	}
}
