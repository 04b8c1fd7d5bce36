// Package internal_test checks who may import whom.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayUse lists the packages that only some packages may import, and those packages. An entry ending in "/"
// stands for all packages below it; "." is the package at the module's root. Names without a dot in their first
// part are the module's own.
var mayUse = map[string][]string{
	"github.com/aws/aws-sdk-go-v2": {".", "infra/stack/stacktest", "internal/awsclient", "internal/doctor", "internal/dynamo", "internal/lanes", "internal/memdb", "internal/schedule", "internal/redrive", "internal/overview", "internal/local", "internal/kinds/", "cmd/", "docs/newkind"},
	// Only the doctor asks who is told of alarms, and what the caller may do.
	"github.com/aws/aws-sdk-go-v2/service/sns": {"internal/doctor", "cmd/"},
	"github.com/aws/aws-sdk-go-v2/service/iam": {"internal/doctor", "cmd/"},
	"internal/doctor":                          {"cmd/"},
	// Scheduler's client belongs to the package that creates schedules; awsclient builds it.
	"github.com/aws/aws-sdk-go-v2/service/scheduler": {"internal/awsclient", "internal/schedule"},
	"github.com/aws/smithy-go":                       {"internal/awsclient", "internal/dynamo", "internal/lanes", "internal/local", "internal/memdb", "internal/kinds/"},
	"github.com/sivchari/kumo":                       {"internal/local"},
	"github.com/spf13/cobra":                         {"cmd/"},
	"github.com/go-analyze/charts":                   {"cmd/"},
	"github.com/chromedp":                            {}, // for tests only
	"charm.land":                                     {"cmd/"},
	"github.com/aws/aws-cdk-go":                      {"infra", "infra/"},
	"functions":                                      {},
	"infra":                                          {"infra", "infra/"},
	"cmd":                                            {"cmd/"},
	"internal/demo":                                  {"internal/demo/"},
	"internal/local":                                 {"internal/local/", "internal/demo", "internal/demo/", "cmd/", "infra/stack/stacktest"},
	"internal/local/faults":                          {"internal/demo"},
	"internal/local/fakeprovider":                    {"internal/demo", "internal/local", "cmd/"},
	"internal/dynamo":                                {".", "internal/redrive", "internal/local", "internal/demo", "cmd/", "infra/restore", "infra/stack/stacktest"},
	"internal/lanes":                                 {".", "internal/worker", "internal/redrive", "internal/overview", "internal/demo", "cmd/"},
	"internal/schedule":                              {".", "internal/worker", "internal/redrive", "cmd/", "infra/teardown"},
	"internal/telemetry":                             {".", "internal/worker", "internal/redrive", "internal/overview", "internal/local", "internal/demo", "cmd/", "infra/"},
	"internal/worker":                                {".", "internal/local", "internal/demo", "cmd/", "infra/"},
	"internal/redrive":                               {".", "internal/console", "internal/overview", "internal/local", "internal/demo", "cmd/", "infra/"},
	"internal/console":                               {"cmd/"},
	"internal/overview":                              {"cmd/"},
	"internal/effect":                                {"."},
	"internal/memdb":                                 {"."},
	"internal/marks":                                 {}, // for tests only
	"internal/kinds":                                 {"internal/kinds", "functions/", "internal/demo", "infra"},
	"internal/kinds/reservation":                     {"internal/kinds", "internal/kinds/reservation/desk", "internal/demo"},
}

// mayNeed lists, for some packages, all packages of the module that they may import.
var mayNeed = map[string][]string{
	"internal/topology":           {},
	"internal/job":                {},
	"internal/env":                {},
	"internal/version":            {},
	"internal/memdb":              {},
	"internal/marks":              {},
	"internal/capacity":           {},
	"internal/doctor":             {"internal/awsclient", "internal/topology"},
	"internal/retry":              {"internal/job"},
	"internal/ledger":             {"internal/job", "internal/retry"},
	"internal/telemetry":          {"internal/job"},
	"internal/local/faults":       {},
	"internal/local/fakeprovider": {},
	"internal/awsclient":          {},
	"internal/lanes":              {"internal/job", "internal/retry", "internal/topology"},
	"internal/schedule":           {"internal/job", "internal/topology"},
	"internal/dynamo":             {"internal/job", "internal/ledger", "internal/retry", "internal/topology"},
	"internal/console":            {"internal/capacity", "internal/job", "internal/ledger", "internal/redrive", "internal/topology"},
	"internal/overview":           {"internal/job", "internal/lanes", "internal/ledger", "internal/redrive", "internal/telemetry", "internal/topology"},
	"functions/worker":            {".", "internal/kinds"},
	"functions/redrive":           {".", "internal/kinds"},
}

func TestImports(t *testing.T) {
	var errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Module", "./...")
	cmd.Dir, cmd.Stderr = "..", &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errOut.String())
	}
	seen := 0
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Module     struct{ Path string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		// own is a package's name in this module, whatever the module is called; "." is its root.
		own := func(path string) (string, bool) {
			if path == p.Module.Path {
				return ".", true
			}
			return strings.CutPrefix(path, p.Module.Path+"/")
		}
		name, _ := own(p.ImportPath)
		needs, pure := mayNeed[name]
		for _, imported := range p.Imports {
			ours, ok := own(imported)
			if !ok {
				ours = imported
			}
			if ok && pure && !slices.Contains(needs, ours) {
				t.Errorf("%s imports %s, but may need only %q", name, ours, needs)
			}
			// The longest matching name decides.
			rule := ""
			for what := range mayUse {
				if within(ours, what) && len(what) > len(rule) {
					rule = what
				}
			}
			if rule != "" && !allowed(mayUse[rule], name) {
				t.Errorf("%s imports %s, which only %q may", name, ours, mayUse[rule])
			}
		}
		if name == "internal/topology" {
			for _, imported := range p.Imports {
				if strings.Contains(imported, ".") {
					t.Errorf("%s imports %s, but is for the standard library only", name, imported)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d packages seen", seen)
	}
}

func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func allowed(users []string, name string) bool {
	return slices.ContainsFunc(users, func(u string) bool {
		return u == name || strings.HasSuffix(u, "/") && strings.HasPrefix(name, u)
	})
}

// reaches lists, for the main parts of an adopter's binaries, the clients of AWS services that they may import,
// directly or not.
var reaches = map[string][]string{
	"internal/worker":  {"scheduler", "sqs"},
	"internal/redrive": {"dynamodb", "sqs"},
	// It reads the queues by lanes, and the ledger by interfaces.
	"internal/overview": {"cloudwatch", "dynamodb", "lambda", "sqs"},
	// The last three sign in to AWS.
	"cmd/acklast": {"cloudwatch", "dynamodb", "iam", "lambda", "scheduler", "sns", "sqs", "sts", "signin", "sso", "ssooidc"},
}

// The engine and the command line tool import no kind, and only the clients that they use.
func TestTheEngineAndTheToolReachNoKind(t *testing.T) {
	for name, clients := range reaches {
		var errOut bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+name)
		cmd.Dir, cmd.Stderr = "..", &errOut
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, errOut.String())
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			if strings.Contains(dep, "/internal/kinds") {
				t.Errorf("%s reaches the kind %s", name, dep)
			}
			client, ok := strings.CutPrefix(dep, "github.com/aws/aws-sdk-go-v2/service/")
			if ok && !strings.Contains(client, "/") && !slices.Contains(clients, client) {
				t.Errorf("%s reaches the client of %s, but may reach only %q", name, client, clients)
			}
		}
	}
}

// In the redrive, only the documents' store uses an SDK.
func TestOfTheRedriveTheStoreAloneUsesAnSDK(t *testing.T) {
	files, err := filepath.Glob("redrive/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "store.go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, "aws-sdk-go-v2") {
				t.Errorf("%s imports %s, which is for store.go alone", file, i.Path.Value)
			}
		}
	}
}
