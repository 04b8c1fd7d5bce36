// Package internal_test holds the rules about who may import whom.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "acklast"

// mayUse lists, for what only some packages may import, who they are. An entry ending in "/" stands
// for all below it.
var mayUse = map[string][]string{
	"github.com/aws/aws-sdk-go-v2":  {"internal/awsclient", "internal/dynamo", "internal/lanes", "internal/reservation", "internal/operations", "internal/local", "functions/", "cmd/", "internal/reminder", "docs/newkind"},
	"github.com/aws/smithy-go":      {"internal/awsclient", "internal/dynamo", "internal/lanes", "internal/local", "cmd/", "internal/reminder"},
	"github.com/sivchari/kumo":      {"internal/local"},
	"github.com/spf13/cobra":        {"cmd/"},
	module + "/functions":           {},
	module + "/infra":               {},
	module + "/cmd":                 {"cmd/"},
	module + "/internal/demo":       {"cmd/"},
	module + "/internal/local":      {"internal/demo", "cmd/"},
	module + "/internal/faults":     {"internal/demo"},
	module + "/internal/dynamo":     {"internal/reservation", "internal/operations", "internal/local", "internal/demo", "functions/", "cmd/", "internal/reminder", "docs/newkind"},
	module + "/internal/lanes":      {"internal/worker", "internal/redrive", "internal/demo", "functions/", "cmd/"},
	module + "/internal/telemetry":  {"internal/worker", "internal/redrive", "internal/demo", "functions/", "cmd/", "infra"},
	module + "/internal/worker":     {"internal/local", "internal/demo", "functions/", "cmd/", "infra"},
	module + "/internal/redrive":    {"internal/operations", "internal/demo", "functions/", "cmd/", "infra"},
	module + "/internal/operations": {"functions/"},
	module + "/internal/postbox":    {"internal/demo", "internal/local", "cmd/"},
}

// mayNeed lists, for the pure packages, all of the module that they may import.
var mayNeed = map[string][]string{
	"internal/topology":  {},
	"internal/job":       {},
	"internal/retry":     {"internal/job"},
	"internal/ledger":    {"internal/job", "internal/retry"},
	"internal/telemetry": {"internal/job"},
	"internal/faults":    {},
	"internal/postbox":   {},
	"internal/awsclient": {},
	"internal/lanes":     {"internal/job", "internal/retry", "internal/topology"},
	"internal/dynamo":    {"internal/job", "internal/ledger", "internal/topology"},
}

func TestImports(t *testing.T) {
	var errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
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
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		needs, pure := mayNeed[name]
		for _, imported := range p.Imports {
			for what, users := range mayUse {
				if within(imported, what) && !allowed(users, name) {
					t.Errorf("%s imports %s, which only %q may", name, imported, users)
				}
			}
			if own, ok := strings.CutPrefix(imported, module+"/"); ok && pure && !slices.Contains(needs, own) {
				t.Errorf("%s imports %s, but may need only %q", name, own, needs)
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
