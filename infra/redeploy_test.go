package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"

	"acklast"
	"acklast/internal/kinds"
	"acklast/internal/topology"
)

// A new stack takes over what an earlier one left behind. cdk import deploys only what the mapping names, so
// nothing in that may refer to anything else.
func TestWhatAStackLeavesBehindCanBeImported(t *testing.T) {
	names := topology.NamesOf(topology.DefaultStack)
	for name, key := range map[string]string{"under SQS's and DynamoDB's own keys": "", "under a key of its own": "1234abcd-12ab-34cd-56ef-1234567890ab"} {
		s := DefaultSettings()
		s.CustomerKey = key != ""
		template := *assertions.Template_FromStack(place(t, s), nil).ToJSON()
		file := filepath.Join(t.TempDir(), "acklast.template.json")
		raw, err := json.Marshal(template)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", "run", "./importmap", "-account", "123456789012", "-region", "eu-central-1", "-key", key, file)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr.String())
		}
		var mapping map[string]map[string]string
		if err := json.Unmarshal(out, &mapping); err != nil {
			t.Fatal(err)
		}
		resources := template["Resources"].(map[string]any)
		var named []string
		for id, r := range resources {
			resource := r.(map[string]any)
			identifier, imported := mapping[id]
			if kept := resource["DeletionPolicy"] == "RetainExceptOnCreate"; kept != imported {
				t.Errorf("%s: %s outlives its stack: %v, and is imported: %v", name, id, kept, imported)
			}
			if !imported {
				continue
			}
			for _, value := range identifier {
				named = append(named, value)
			}
			for _, other := range references(resource["Properties"]) {
				if _, ok := mapping[other]; !ok && resources[other] != nil {
					t.Errorf("%s: %s refers to %s, which is not imported with it", name, id, other)
				}
			}
		}
		wanted := []string{"https://sqs.eu-central-1.amazonaws.com/123456789012/" + names.DLQ, names.LedgerTable}
		for _, kind := range acklast.Describe(kinds.All()...) {
			for _, own := range kind.Tables {
				wanted = append(wanted, names.Table(own.Name))
			}
		}
		for _, want := range wanted {
			if !slices.Contains(named, want) {
				t.Errorf("%s: %s is not imported: %v", name, want, named)
			}
		}
		if key != "" && !slices.Contains(named, key) {
			t.Errorf("%s: the key is not imported: %v", name, named)
		}
	}
}

// references are the logical ids that a value refers to.
func references(v any) []string {
	var all []string
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			all = append(all, references(one)...)
		}
	case map[string]any:
		for key, value := range v {
			if key == "Ref" {
				all = append(all, fmt.Sprint(value))
			}
			if parts, ok := value.([]any); ok && key == "Fn::GetAtt" {
				all = append(all, fmt.Sprint(parts[0]))
			}
			all = append(all, references(value)...)
		}
	}
	return all
}
