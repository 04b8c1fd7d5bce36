package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
	"acklast/internal/version"
)

// governed is an embedded AWS whose redrive function runs in this process.
func governed(t *testing.T, change ...func(*redrive.Config)) (*cli, *local.AWS) {
	t.Helper()
	c, aws := embedded(t)
	urls := aws.QueueURLs()
	config, err := redrive.ParseConfig(func(name string) string {
		return redrive.LocalEnvironment(c.stack, topology.QueueURLs{Source: urls.Source, Recovery: urls.Recovery, DLQ: urls.DLQ},
			topology.Scaled(), topology.ScaledRedrive())[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&config)
	}
	cfg := aws.AWSConfig()
	db := awsclient.DynamoDB(cfg)
	store := dynamo.New(db, config.Names.LedgerTable, dynamo.Options{Now: time.Now})
	service := redrive.New(config, redrive.Dependencies{
		Ledger: store, Index: store, Schedules: schedule.New(awsclient.Scheduler(cfg), schedule.Target{Group: config.Names.ScheduleGroup}),
		Queues: lanes.New(awsclient.SQS(cfg), topology.QueueURLs{Source: urls.Source, Recovery: urls.Recovery, DLQ: urls.DLQ}),
		Table:  redrive.NewStore(db, config.Names.OperationsTable), Kinds: job.NewCatalogue(),
		Start: func(context.Context, string) (job.Kind, error) { return job.Kind{}, os.ErrNotExist },
		Log:   slog.New(slog.DiscardHandler), Progress: redrive.NoProgress, Counts: telemetry.NewRedriveRecorder(io.Discard, c.stack, time.Now),
		Now: time.Now, ID: uuid.NewString, Version: version.Number,
	})
	to, err := url.Parse(aws.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	c.env = serving(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/invocations") {
			proxy.ServeHTTP(w, r)
			return
		}
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			var resp redrive.Response
			if resp, err = service.Handle(r.Context(), raw); err == nil {
				err = json.NewEncoder(w).Encode(resp)
			}
		}
		if err != nil {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
			_ = json.NewEncoder(w).Encode(map[string]string{"errorMessage": err.Error()})
		}
	})
	c.env[envStack] = c.stack
	return c, aws
}

// auditID is the id of a discard that the test makes.
var auditID = regexp.MustCompile(`d-20[0-9]{6}-[0-9]{6}-[0-9a-f]{8}`)

// named are commands with one id as argument, and what else they need.
func named(id string) map[string][]string {
	return map[string][]string{
		"audit": {id}, "cancel": {id, "--reason", "why"}, "decide": {id, "--sent", "--reason", "why"},
		"discard": {id, "--reason", "why"}, "dlq": {"--show", id}, "job": {id},
		"pause": {id}, "resume": {id},
		"redrive approve": {id, "--yes", "--reason", "why"}, "redrive mend": {id}, "redrive resend": {id, id, "--reason", "why"},
		"redrive revoke": {id, "--reason", "why"}, "redrive run": {id, "--yes"}, "redrive status": {id}, "redrive stop": {id},
	}
}

// without leaves commands out.
func without(all map[string][]string, names ...string) map[string][]string {
	for _, name := range names {
		delete(all, name)
	}
	return all
}

// idMistakes are about ids, keys and selections.
func idMistakes(t *testing.T, tried map[string]bool) string {
	c, _ := governed(t)
	env := c.env
	const message = someID
	mistakes := []mistake{
		{name: "a job that nobody knows", alone: map[string][]string{
			"audit": {someJob}, "decide": {someJob, "--sent", "--reason", "why"}, "discard": {someJob, "--reason", "why"},
			"dlq": {"--show", someJob}, "job": {someJob}, "redrive mend": {someJob}, "redrive run": {"--only", someJob, "--reason", "why", "--yes"},
		}, codes: map[string]int{"job": exitFailed, "audit": exitOK}, code: exitRefused, wanted: []string{someJob}},
		{name: "a message that is not there", alone: map[string][]string{
			"discard": {message, "--reason", "why"}, "dlq": {"--show", message}, "redrive mend": {message},
			"redrive run": {"--only", message, "--reason", "why", "--yes"}, "redrive resend": {"d-1", message, "--reason", "why"},
		}, code: exitRefused},
		{name: "a plan that nobody knows", alone: map[string][]string{
			"audit": {somePlan}, "redrive approve": {somePlan, "--yes", "--reason", "why"}, "redrive revoke": {somePlan, "--reason", "why"},
			"redrive run": {somePlan, "--yes"}, "redrive status": {somePlan}, "redrive stop": {somePlan},
		}, code: exitRefused, wanted: []string{somePlan}},
		{name: "a run that nobody knows", alone: map[string][]string{
			"audit": {someRun}, "redrive approve": {someRun, "--yes", "--reason", "why"}, "redrive revoke": {someRun, "--reason", "why"},
			"redrive run": {someRun, "--yes"}, "redrive status": {someRun}, "redrive stop": {someRun},
		}, code: exitRefused, wanted: []string{someRun}},
		{name: "the latest of none", alone: map[string][]string{
			"redrive approve": {"latest", "--yes", "--reason", "why"}, "redrive revoke": {"latest", "--reason", "why"}, "redrive run": {"latest", "--yes"},
			"redrive status": {"latest"}, "redrive stop": {"latest"},
		}, code: exitRefused},
		{name: "an empty DLQ", alone: map[string][]string{
			"redrive plan": {"--all", "--reason", "why"}, "discard": {"--all", "--count", "3", "--reason", "why"},
			"decide": {"--all", "--count", "3", "--sent", "--reason", "why"},
		}, code: exitRefused},
		{name: "a selection that means nothing", alone: map[string][]string{"redrive plan": {"--class", "transitory", "--reason", "why"},
			"dlq": {"--older-than", "yesterday"}}, code: exitRefused, wanted: []string{"want"}},
		{name: "a kind that nobody knows", alone: map[string][]string{"pause": {"--kind", "remind.me", "--reason", "why"}, "resume": {"--kind", "remind.me", "--reason", "why"}},
			code: exitRefused, wanted: []string{"remind.me"}},
		{name: "an empty argument", alone: without(named(""), "dlq"), code: exitRefused},
		{name: "an argument with control characters", alone: named(hostile), code: exitRefused},
	}
	for i := range mistakes {
		mistakes[i].env = env
	}
	return strings.ReplaceAll(auditID.ReplaceAllString(try(t, mistakes, tried), "d-ID"), c.stack, "STACK")
}

// inputs are the contents of bad files by what is wrong with them.
func inputs(t *testing.T, dir string) []string {
	t.Helper()
	good := expiry("r-1")
	units := utf16.Encode([]rune("\ufeff" + good))
	little, big := make([]byte, 2*len(units)), make([]byte, 2*len(units))
	for i, u := range units {
		binary.LittleEndian.PutUint16(little[2*i:], u)
		binary.BigEndian.PutUint16(big[2*i:], u)
	}
	files := map[string][]byte{
		"half.json": []byte(good[:len(good)/2]), "mark.json": []byte("\ufeff" + good), "utf16le.json": little, "utf16be.json": big,
		"empty.json": nil, "blank.json": []byte(" \n\n"), "binary.json": {0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0}, "latin1.json": []byte(strings.Replace(good, "room", "z\xfcri", 1)),
		"large.json": []byte(`{"kind":"` + strings.Repeat("x", 2<<20) + `"}`), "types.json": []byte(`{"kind":1,"payload":[],"batchSize":"x"}`),
		"list.json": []byte(`[` + good + `]`), "control.json": []byte("{\"kind\":\"a\u001b[31m\",\"payload\":{},\"batchSize\":\"\u009b\u202e\"}"),
	}
	var names []string
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return append(names, "half.json", "mark.json", "utf16le.json", "utf16be.json", "empty.json", "blank.json", "binary.json", "latin1.json",
		"large.json", "types.json", "list.json", "control.json", "missing.json", ".")
}

// fileMistakes are about files. Each is told before any stack is asked.
func fileMistakes(t *testing.T, tried map[string]bool) string {
	dir := t.TempDir()
	env := map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "TEST_DIR": dir}
	var mistakes []mistake
	for _, name := range inputs(t, dir) {
		file := filepath.Join(dir, name)
		all := map[string][]string{
			"send": {"--file", file}, "doctor": {"--settings", file}, "redrive mend": {someID, "--file", file, "--reason", "why"},
		}
		switch name {
		case "half.json", "types.json", "list.json", "control.json": // the redrive function decides about a body
			delete(all, "redrive mend")
		}
		m := mistake{name: "the file " + name, env: env, alone: all, code: exitRefused}
		if name == "empty.json" || name == "blank.json" {
			delete(all, "send") // no job is no mistake: TestSendMany
		}
		mistakes = append(mistakes, m)
	}
	return try(t, mistakes, tried)
}

// startMistakes are about what a command starts, and about its flags and the number of its arguments.
func startMistakes(t *testing.T, tried map[string]bool) string {
	dir := t.TempDir()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	_, taken, _ := net.SplitHostPort(busy.Addr().String())
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	exits := script("exits", "#!/bin/sh\necho sorry >&2\nexit 3\n")
	silent := script("silent", "#!/bin/sh\nexit 0\n")
	garbage := script("garbage", "\x7fELF no program")
	module := filepath.Join(dir, "module")
	for _, folder := range []string{"functions/worker", "functions/redrive"} {
		if err := os.MkdirAll(filepath.Join(module, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte("module m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := governed(t)
	env := map[string]string{"TEST_DIR": dir}
	stack := map[string]string{"TEST_DIR": dir, "AWS_ENDPOINT_URL": c.env["AWS_ENDPOINT_URL"], envStack: c.stack}
	local := func(name string, wanted string, code int, args ...string) mistake {
		return mistake{name: name, env: env, alone: map[string][]string{"local": args}, code: code, wanted: []string{wanted}}
	}
	mistakes := []mistake{
		local("local: a port that is taken", "port "+taken+" is taken", exitFailed, "--port", taken),
		local("local: no port", "65535", exitRefused, "--port", "70000"),
		local("local: no processes", "at least 1", exitRefused, "--processes", "0"),
		local("local: an unknown lane", "middle", exitRefused, "--pause", "middle"),
		local("local: a worker that is missing", "go build", exitRefused, "--port", "0", "--worker-binary", filepath.Join(dir, "nothing")),
		local("local: a worker that is a folder", "not a file", exitRefused, "--port", "0", "--worker-binary", dir),
		local("local: a worker that ends at once", "sorry", exitFailed, "--port", "0", "--worker-binary", exits),
		local("local: a worker that says nothing", "go build", exitFailed, "--port", "0", "--worker-binary", silent),
		local("local: a worker that is no program", "go build", exitFailed, "--port", "0", "--worker-binary", garbage),
		local("local: a redrive function alone", "--worker-binary", exitRefused, "--port", "0", "--redrive-binary", exits),
		{name: "not in a checkout", env: env, alone: map[string][]string{"local": {"--port", "0", "--module", dir}, "demo": {"--module", dir}},
			code: exitRefused, wanted: []string{"go.mod", "--module"}},
		{name: "a module that has no demo", env: env, alone: map[string][]string{"demo": {"--module", module}}, code: exitRefused, wanted: []string{"clone"}},
		{name: "console: a port that is taken", env: stack, alone: map[string][]string{"console": {"--port", taken}}, code: exitFailed, wanted: []string{"port " + taken}},
		{name: "console: no port", env: stack, alone: map[string][]string{"console": {"--port", "-1"}}, code: exitRefused, wanted: []string{"65535"}},
		{name: "watch: no interval", env: stack, alone: map[string][]string{"watch": {"--every", "1ms"}}, code: exitRefused, wanted: []string{"1s"}},
		{name: "smoke: no time", env: stack, alone: map[string][]string{"smoke": {"--timeout", "0s"}}, code: exitRefused, wanted: []string{"more than 0"}},
		{name: "no numbers", env: env, alone: map[string][]string{"capacity": nil}, code: exitRefused, wanted: []string{"--arrivals"}},
		{name: "numbers that are none", env: env, alone: map[string][]string{"capacity": {"--arrivals", "x"}}, code: exitRefused, wanted: []string{"--arrivals"}},
		{name: "a drawing in a folder that is missing", env: env, alone: map[string][]string{"capacity": {"--arrivals", "1", "--p50", "1ms", "--p95", "2ms",
			"--plot", filepath.Join(dir, "nothing", "a.svg")}}, code: exitRefused, wanted: []string{"nothing"}},
		{name: "not a terminal", env: stack, alone: map[string][]string{"redrive approve": {"--reason", "why"}, "redrive run": nil}, code: exitRefused, wanted: []string{"latest"}},
		{name: "an argument too many", env: env, alone: map[string][]string{"version": {"2"}, "status": {"2"}, "demo": {"2"}, "local": {"2"}, "watch": {"2"},
			"doctor": {"2"}, "capacity": {"2"}, "console": {"2"}, "smoke": {"2"}, "dlq": {"2"}, "redrive plan": {"2", "--reason", "why"}, "redrive resume": {"2", "--reason", "why"}},
			code: exitRefused, wanted: []string{"2"}},
		{name: "no argument", env: stack, alone: map[string][]string{"job": nil, "audit": nil, "cancel": {"--reason", "why"}, "send": nil, "pause": nil, "resume": nil,
			"redrive mend": nil, "redrive resend": {"--reason", "why"}, "discard": {"--reason", "why"}, "decide": {"--sent", "--reason", "why"}, "redrive revoke": {"--reason", "why"}},
			code: exitRefused},
		{name: "no reason", env: env, alone: map[string][]string{"cancel": {someJob}, "discard": {someID}, "decide": {someJob, "--sent"}, "redrive plan": {"--all"},
			"redrive approve": {somePlan}, "redrive resend": {"d-1", someID}, "redrive revoke": {someRun}, "redrive resume": nil, "pause": {"--kind", "a"}},
			code: exitRefused, wanted: []string{"reason"}},
	}
	got := try(t, mistakes, tried)
	t.Setenv("PATH", dir)
	got += try(t, []mistake{{name: "no Go toolchain", env: env, alone: map[string][]string{"local": {"--port", "0", "--module", module}, "demo": {"--module", "."}},
		code: exitFailed, wanted: []string{"https://go.dev/dl"}}}, tried)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(c.stack, "STACK", "port "+taken, "port PORT", root, "CLONE").Replace(got)
}
