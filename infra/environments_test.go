package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"acklast/internal/topology"
)

func files(content map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range content {
		all["environments/"+name+".json"] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestEnvironmentFilesAreRead(t *testing.T) {
	all := files(map[string]string{
		"default": `{}`, "prod": `{"stack": "own", "batchSize": 20, "batchWindow": "5s", "laneVisibility": "4m", "deletionProtection": true}`,
	})
	for env, want := range map[any]string{nil: topology.DefaultStack, "default": topology.DefaultStack, "prod": "own"} {
		context := map[string]any{}
		if env != nil {
			context["env"] = env
		}
		var notes bytes.Buffer
		merged, err := withEnvironment(all, context, &notes)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSettings(merged)
		if err != nil {
			t.Fatal(err)
		}
		if s.Stack != want {
			t.Errorf("%v: stack is %q, want %q", env, s.Stack, want)
		}
		if protected := want == "own"; s.DeletionProtection != protected || (s.Numbers.BatchSize == 20) != protected {
			t.Errorf("%v: the file is not read: %+v", env, s)
		}
		if notes.Len() != 0 {
			t.Errorf("%v: %s", env, notes.String())
		}
	}
}

func TestTheCommandLineOverridesAndSaysSo(t *testing.T) {
	all := files(map[string]string{"prod": `{"stack": "orders", "maxAttempts": 7}`})
	context := map[string]any{"env": "prod", "acklast:maxAttempts": "3", "acklast:logLevel": "DEBUG", "@aws-cdk/core:x": true}
	var notes bytes.Buffer
	merged, err := withEnvironment(all, context, &notes)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSettings(merged)
	if err != nil {
		t.Fatal(err)
	}
	if s.Numbers.MaxAttempts != 3 {
		t.Errorf("maxAttempts is %d, want 3", s.Numbers.MaxAttempts)
	}
	if s.Stack != "orders" {
		t.Errorf("stack is %q, want that of the file", s.Stack)
	}
	want := "acklast: acklast:logLevel=DEBUG is not in infra/environments/prod.json, so it is for this deployment only\n" +
		"acklast: acklast:maxAttempts=3 overrides 7 of infra/environments/prod.json, for this deployment only\n"
	if notes.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", notes.String(), want)
	}
}

func TestEnvironmentFilesAreChecked(t *testing.T) {
	for want, c := range map[string]struct{ env, text string }{
		`env is "stage", but infra/environments has only default, prod`:                                   {"stage", `{}`},
		`env is "../prod", but infra/environments has only default, prod`:                                 {"../prod", `{}`},
		`infra/environments/prod.json has "batchsize", which is not a setting; docs/deploy.md lists them`: {"prod", `{"batchsize": 5}`},
		`infra/environments/prod.json has "acklast:batchSize", which is not a setting`:                    {"prod", `{"acklast:batchSize": 5}`},
		`infra/environments/prod.json is not an object of settings: `:                                     {"prod", `{"batchSize": 5, "batchSize": 6}`},
	} {
		_, err := withEnvironment(files(map[string]string{"default": `{}`, "prod": c.text}), map[string]any{"env": c.env}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Every file that is committed holds.
func TestCommittedEnvironmentsHold(t *testing.T) {
	names := environmentNames(environments)
	for _, name := range names {
		merged, err := withEnvironment(environments, map[string]any{"env": name}, &bytes.Buffer{})
		if err == nil {
			_, err = ParseSettings(merged)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(names) == 0 || !strings.Contains(strings.Join(names, " "), defaultEnvironment) {
		t.Errorf("the environments are %q, without a default", names)
	}
}
