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

// A plain deployment would give the default settings to a stack whose own settings lie in another file.
func TestAStackIsNotDeployedWithAnotherFilesSettings(t *testing.T) {
	same, other := files(map[string]string{"default": `{}`, "small-account": `{}`, "prod": `{"alarmEmail": "ops@example.com"}`}),
		files(map[string]string{"default": `{"stack": "trial"}`, "small-account": `{}`, "prod": `{"stack": "orders"}`, "stage": `{"stack": "orders-stage"}`})
	for _, c := range []struct {
		files   fstest.MapFS
		context map[string]any
		want    string
	}{
		{same, map[string]any{}, "infra/environments/prod.json has the settings of the stack " + DefaultSettings().Stack + ": type -c env=prod, or -c env=default if its default settings are meant"},
		{same, map[string]any{"env": "prod"}, ""},
		{same, map[string]any{"env": "default"}, ""},
		{same, map[string]any{"acklast:stack": "mine"}, ""},
		{other, map[string]any{}, ""},
		{other, map[string]any{"acklast:stack": "orders"}, "infra/environments/prod.json has the settings of the stack orders: type -c env=prod"},
		{files(map[string]string{"default": `{}`, "prod": `{"stack": `}), map[string]any{}, "infra/environments/prod.json is not an object of settings"},
		{files(map[string]string{"default": `{}`, "small-account": `{}`}), map[string]any{}, ""},
	} {
		_, err := withEnvironment(c.files, c.context, &bytes.Buffer{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.context, err, c.want)
		}
	}
}

// Messages that wait under a key are out of reach without the rights to it, which a deployment without the setting
// takes away. So the file says it, and not the command line of one deployment.
func TestTheCustomerKeyIsASettingOfTheFile(t *testing.T) {
	for _, c := range []struct {
		file    string
		context map[string]any
		want    string
	}{
		{`{}`, map[string]any{"acklast:customerKey": "true"}, "acklast:customerKey=true is not in infra/environments/prod.json"},
		{`{}`, map[string]any{"acklast:customerKey": true}, "acklast:customerKey=true is not in infra/environments/prod.json"},
		{`{"customerKey": true}`, map[string]any{"acklast:customerKey": "none"}, "acklast:customerKey=none is not in infra/environments/prod.json"},
		{`{"customerKey": true}`, map[string]any{"acklast:customerKey": "true"}, ""},
		{`{"customerKey": "true"}`, map[string]any{}, ""},
		{`{}`, map[string]any{"acklast:customerKey": "true", "acklast:destroyData": "true"}, ""},
	} {
		c.context["env"] = "prod"
		_, err := withEnvironment(files(map[string]string{"prod": c.file}), c.context, &bytes.Buffer{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s and %v: got %v, want %q", c.file, c.context, err, c.want)
		}
	}
}

// Every file that is committed holds.
func TestCommittedEnvironmentsHold(t *testing.T) {
	names := environmentNames(environments)
	for _, name := range names {
		merged, err := withEnvironment(environments, map[string]any{"env": name}, &bytes.Buffer{})
		var s Settings
		if err == nil {
			s, err = ParseSettings(merged)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// A version that cannot start gets no job. A small account has no room for the hook.
		if want, told := map[string]bool{defaultEnvironment: true, smallAccount: false}[name]; told && s.CheckedDeployment != want {
			t.Errorf("%s: deployments are checked: %v, want %v", name, s.CheckedDeployment, want)
		}
	}
	if len(names) == 0 || !strings.Contains(strings.Join(names, " "), defaultEnvironment) {
		t.Errorf("the environments are %q, without a default", names)
	}
}
