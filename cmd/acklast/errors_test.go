package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/smithy-go/encoding/cbor"
)

// The files testdata/errors-*.txt have every message that TestMistakes provokes, for people to read. Write them anew
// with: go test ./cmd/acklast -run TestMistakes -update

// mistake is one way to use a command wrongly, or one way in which a place refuses it.
type mistake struct {
	name string
	// env is the environment of the command line, without the stack's name.
	env map[string]string
	// args follow the command's own arguments. alone replaces these.
	args  []string
	alone map[string][]string
	stdin string
	// only are the commands that make the mistake; nil is every command that asks a stack.
	only []string
	// code is the exit code, codes the exit code of those commands that have another.
	code  int
	codes map[string]int
	// wanted are parts of the message.
	wanted []string
}

// asking are the arguments that make each command ask a stack.
func asking() map[string][]string {
	all := map[string][]string{"capacity": {"--from-stack"}, "console": nil}
	for name, c := range commands {
		if c.alone == "" {
			all[name] = c.args
		}
	}
	return all
}

// reporting are the commands whose answer says what is wrong.
var reporting = map[string]bool{"doctor": true, "job": true, "discard": true}

// noise is what no message may have: the SDK's chains, Go's types and its decoders' words.
var noise = regexp.MustCompile(`operation error|https response error|StatusCode|RequestID|api error|retry quota|exceeded maximum|` +
	`(^|[^.\w])json: |Go (value|struct)|\*?\b[a-z]+\.[A-Z]\w+(Error|Exception)\b|panic|goroutine|failed to |invalid character|dial tcp|` +
	`: EOF|unexpected end|no such file|is a directory|identity-based policy allows.*identity-based policy allows|exit status|%!`)

// spoken is one message with the commands that say it.
type spoken struct {
	code int
	text string
}

// try runs every command line of the mistakes, checks each message, and returns all of them as one text.
func try(t *testing.T, mistakes []mistake, tried map[string]bool) string {
	t.Helper()
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	var golden strings.Builder
	places := make(chan struct{}, 4) // more at a time would run into the clients' time limits on a busy machine
	for _, m := range mistakes {
		all := asking()
		if m.alone != nil {
			all = m.alone
		}
		names := slices.Sorted(maps.Keys(all))
		if m.only != nil {
			names = m.only
		}
		said := make([]spoken, len(names))
		var wait sync.WaitGroup
		for i, name := range names {
			tried[name] = true
			wait.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				said[i] = m.run(t, name, all[name])
			})
		}
		wait.Wait()
		byText := map[spoken][]string{}
		for i, s := range said {
			byText[s] = append(byText[s], names[i])
		}
		fmt.Fprintf(&golden, "## %s\n", m.name)
		for _, s := range slices.SortedFunc(maps.Keys(byText), func(a, b spoken) int {
			return cmp.Or(cmp.Compare(byText[a][0], byText[b][0]), cmp.Compare(a.text, b.text))
		}) {
			fmt.Fprintf(&golden, "\n%s: exit code %d\n%s", strings.Join(byText[s], ", "), s.code, indented(s.text))
		}
		golden.WriteString("\n")
	}
	return golden.String()
}

func (m mistake) run(t *testing.T, name string, args []string) spoken {
	c := &cli{t: t, stack: "shop", env: map[string]string{envStack: "shop", "USER": "ann"}, stdin: strings.NewReader(m.stdin)}
	maps.Copy(c.env, m.env)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	until := func(p []byte) {
		if strings.Contains(string(p), "again:") || strings.Contains(string(p), "Open http") {
			cancel()
		}
	}
	r := c.runTo(ctx, writerFunc(until), writerFunc(until), slices.Concat(strings.Fields(name), args, m.args)...)
	where := fmt.Sprintf("%s: acklast %s", m.name, strings.Join(slices.Concat([]string{name}, args, m.args), " "))
	want := m.code
	if code, ok := m.codes[name]; ok {
		want = code
	}
	if r.code != want {
		t.Errorf("%s: exit code %d, want %d", where, r.code, want)
	}
	answers := r.stdout != "" && (reporting[name] || r.code == exitOK)
	if r.stdout != "" && !answers {
		t.Errorf("%s: answered %q", where, r.stdout)
	}
	text := r.stderr + r.stdout
	uncontrolled(t, where, text)
	if found := noise.FindString(text); found != "" {
		t.Errorf("%s: %q in:\n%s", where, found, text)
	}
	if name == "doctor" && r.stdout != "" {
		_, text, _ = strings.Cut(text, "\n\n") // without the table
	}
	for _, w := range m.wanted {
		if name != "doctor" && !strings.Contains(text, w) {
			t.Errorf("%s: %q is missing in:\n%s", where, w, text)
		}
	}
	if !answers {
		lines := 0
		for line := range strings.Lines(r.stderr) {
			if !strings.HasPrefix(line, "Writing to stack ") && !strings.HasPrefix(line, "Stack shop at ") {
				lines++
			}
		}
		if lines == 0 || lines > 2 && !strings.Contains(m.name, "control characters") {
			t.Errorf("%s: %d lines, want one or two:\n%s", where, lines, r.stderr)
		}
	}
	return spoken{r.code, m.steady(text)}
}

var port = regexp.MustCompile(`127\.0\.0\.1:[0-9]{2,}`)

// usage is the hint to a command's help, needs the policy for a command.
var (
	usage = regexp.MustCompile(`Run 'acklast [a-z ]+ --help'`)
	needs = regexp.MustCompile(`"acklast [a-z ]+" needs`)
	// account is unknown after some seconds, so a busy machine may not know it.
	account = regexp.MustCompile(`\(account .*\)`)
)

// steady replaces what differs from run to run.
func (m mistake) steady(text string) string {
	text = usage.ReplaceAllString(text, "Run 'acklast COMMAND --help'")
	text = account.ReplaceAllString(text, "(account)")
	text = needs.ReplaceAllString(text, `"acklast COMMAND" needs`)
	return strings.ReplaceAll(port.ReplaceAllString(text, "127.0.0.1:PORT"), tempDir(m.env), "DIR")
}

// tempDir is the folder of the input files, "none" if there is none.
func tempDir(env map[string]string) string { return cmp.Or(env["TEST_DIR"], "none") }

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteString("\n")
	}
	return b.String()
}

// refusing is an AWS that answers every call but the question for the caller's identity with an error. The fake
// speaks each service's documented protocol. code names the error for a service and an operation.
func refusing(t *testing.T, status int, refuse func(service, operation string) (code, message string)) map[string]string {
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		service, operation := called(r)
		if service == "sts" {
			_, _ = fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account>`+
				`<Arn>arn:aws:sts::123456789012:assumed-role/Oncall/ann</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
			return
		}
		code, message := refuse(service, operation)
		switch service {
		case "cloudwatch":
			w.Header().Set("Content-Type", "application/cbor")
			w.Header().Set("smithy-protocol", "rpc-v2-cbor")
			w.WriteHeader(status)
			_, _ = w.Write(cbor.Encode(cbor.Map{"__type": cbor.String(code), "message": cbor.String(message)}))
		case "iam", "sns":
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code, message)
		default:
			w.Header().Set("X-Amzn-Errortype", code)
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws." + service + "#" + code, "message": message, "Message": message})
		}
	})
}

// called tells the service and the operation of a request to AWS.
func called(r *http.Request) (service, operation string) {
	target := r.Header.Get("X-Amz-Target")
	switch {
	case strings.HasPrefix(target, "AmazonSQS."):
		return "sqs", strings.TrimPrefix(target, "AmazonSQS.")
	case strings.HasPrefix(target, "DynamoDB_"):
		return "dynamodb", target[strings.IndexByte(target, '.')+1:]
	case strings.Contains(r.URL.Path, "/operation/"):
		return "cloudwatch", filepath.Base(r.URL.Path)
	case strings.Contains(r.URL.Path, "/schedules"):
		return "scheduler", "ListSchedules"
	case strings.HasSuffix(r.URL.Path, "/invocations"):
		return "lambda", "InvokeFunction"
	case strings.Contains(r.URL.Path, "event-source-mappings"):
		return "lambda", "ListEventSourceMappings"
	case strings.HasPrefix(r.URL.Path, "/20"):
		return "lambda", "GetFunctionConfiguration"
	}
	if err := r.ParseForm(); err == nil {
		switch operation = r.PostForm.Get("Action"); operation {
		case "GetCallerIdentity":
			return "sts", operation
		case "ListSubscriptionsByTopic":
			return "sns", operation
		}
	}
	return "iam", operation
}

func serving(t *testing.T, handler http.HandlerFunc) map[string]string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return map[string]string{"AWS_ENDPOINT_URL": server.URL}
}

const caller = "arn:aws:sts::123456789012:assumed-role/Oncall/ann"

// webPage is what a proxy answers.
const webPage = "<!DOCTYPE html><html><body>Sign in to the network</body></html>"

// TestMistakes uses every command wrongly, in every way that applies to it. Each says what happened, to what, and what
// to do next.
func TestMistakes(t *testing.T) {
	tried, ran := map[string]bool{}, 0
	for _, part := range []struct {
		name    string
		provoke func(*testing.T, map[string]bool) string
	}{{"stack", stackMistakes}, {"ids", idMistakes}, {"files", fileMistakes}, {"start", startMistakes}} {
		t.Run(part.name, func(t *testing.T) { ran++; compareErrors(t, part.name, part.provoke(t, tried)) })
	}
	if ran < 4 { // -run chose a part
		return
	}
	for name := range leaves(t) {
		if !tried[name] {
			t.Errorf("acklast %s: nothing is tried wrongly with it: add it to the mistakes", name)
		}
	}
}

// stackMistakes are about the stack, its place or the credentials.
func stackMistakes(t *testing.T, tried map[string]bool) string {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := "http://" + closed.Addr().String()
	_ = closed.Close()
	always := func(code, message string) func(string, string) (string, string) {
		return func(string, string) (string, string) { return code, message }
	}
	missing := func(service, _ string) (string, string) {
		switch service {
		case "sqs":
			return "QueueDoesNotExist", "The specified queue does not exist."
		case "dynamodb":
			return "ResourceNotFoundException", "Requested resource not found"
		case "lambda":
			return "ResourceNotFoundException", "Function not found: arn:aws:lambda:eu-central-1:123456789012:function:shop-redrive:operate"
		case "cloudwatch":
			return "InternalServiceFault", "no"
		}
		return "ResourceNotFoundException", "not found"
	}
	page := func(status int) map[string]string {
		return serving(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(webPage))
		})
	}
	doctor := map[string]int{"doctor": exitUnsure}
	mistakes := []mistake{
		{name: "no stack of that name, or another region", env: refusing(t, 400, missing), code: exitFailed, codes: map[string]int{"doctor": exitFailed},
			wanted: []string{"shop"}},
		{name: "no region", env: nil, code: exitRefused, wanted: []string{"--region", "AWS_REGION"}},
		{name: "no credentials", env: map[string]string{"AWS_REGION": "eu-central-1"}, code: exitFailed, wanted: []string{"--profile"}},
		{name: "a profile that does not exist", args: []string{"--profile", "nobody"}, code: exitFailed, wanted: []string{"nobody"}},
		{name: "an endpoint that is no URL", args: []string{"--endpoint-url", "localhost:4566"}, code: exitRefused, wanted: []string{"localhost:4566", "http://127.0.0.1:4566"}},
		{name: "an empty stack", args: []string{"--stack", ""}, code: exitRefused, wanted: []string{"--stack"}},
		{name: "a stack with control characters", args: []string{"--stack", hostile}, code: exitRefused, wanted: []string{"--stack"}},
		{name: "an expired token", env: refusing(t, 400, always("ExpiredTokenException", "The security token included in the request is expired")),
			code: exitFailed, codes: doctor, wanted: []string{"expired", "sign in"}},
		{name: "credentials that AWS does not know", env: refusing(t, 400, always("UnrecognizedClientException", "The security token included in the request is invalid.")),
			code: exitFailed, codes: doctor, wanted: []string{"credentials"}},
		{name: "a clock that is wrong", env: refusing(t, 403, always("InvalidSignatureException", "Signature expired: 20261201T100000Z is now earlier than 20261201T110000Z (20261201T111500Z - 15 min.)")),
			code: exitFailed, codes: doctor, wanted: []string{"clock"}},
		{name: "access denied", env: refusing(t, 400, func(service, operation string) (string, string) {
			return "AccessDeniedException", "User: " + caller + " is not authorized to perform: " + service + ":" + operation +
				" on resource: arn:aws:" + service + ":eu-central-1:123456789012:shop because no identity-based policy allows the " + service + ":" + operation + " action"
		}), code: exitFailed, codes: doctor, wanted: []string{"Oncall/ann", "policy", "shop"}},
		{name: "throttled", env: refusing(t, 400, always("ThrottlingException", "Rate exceeded")), code: exitFailed, codes: doctor, wanted: []string{"Rate exceeded"}},
		{name: "an error of AWS", env: refusing(t, 500, always("InternalServerError", "The request failed because of an internal error.")), code: exitFailed, codes: doctor,
			wanted: []string{"internal error"}},
		{name: "a message of AWS with control characters", env: refusing(t, 400, always("ValidationException", hostile)), code: exitFailed, codes: doctor},
		{name: "a closed port", env: map[string]string{"AWS_ENDPOINT_URL": free}, code: exitFailed, codes: doctor, wanted: []string{"nothing answers at " + free}},
		{name: "a server that hangs up", env: serving(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), code: exitFailed, codes: doctor},
		{name: "a page of a proxy", env: page(200), code: exitFailed, codes: doctor, wanted: []string{"proxy"}},
		{name: "a page of a proxy that refuses", env: page(403), code: exitFailed, codes: doctor, wanted: []string{"proxy"}},
		{name: "a page of a proxy that has no upstream", env: page(502), code: exitFailed, codes: doctor, wanted: []string{"proxy"}},
	}
	return try(t, mistakes, tried)
}

// compareErrors compares one part of the file with what was said.
func compareErrors(t *testing.T, part, got string) {
	t.Helper()
	file := filepath.Join("testdata", "errors-"+part+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got)) {
		wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
		for i, line := range gotLines {
			if i >= len(wantLines) || wantLines[i] != line {
				t.Fatalf("%s differs from line %d: %q. Read it, and write it with: go test ./cmd/acklast -run TestMistakes -update", file, i+1, line)
			}
		}
		t.Fatalf("%s has lines that are no longer said", file)
	}
}
