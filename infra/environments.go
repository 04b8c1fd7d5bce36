package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"acklast/internal/topology"
)

// environments holds one file of settings for each environment, so that every deployment of it has the
// same ones.
//
//go:embed environments/*.json
var environments embed.FS

const (
	// environmentKey is the CDK context that chooses an environment: -c env=prod.
	environmentKey     = "env"
	defaultEnvironment = "default"
	// smallAccount is a file to copy, like the default one.
	smallAccount = "small-account"
)

// withEnvironment returns the context with the settings of the environment that it chooses. A setting of
// the context itself wins; notes says so, because the next deployment may lack it.
func withEnvironment(files fs.FS, context map[string]any, notes io.Writer) (map[string]any, error) {
	name := defaultEnvironment
	named, given := context[environmentKey]
	if given {
		name = fmt.Sprint(named)
	}
	file := environmentFile(name)
	chosen, err := readEnvironment(files, name)
	if err != nil {
		return nil, err
	}
	if !given {
		if err := ofAnother(files, stackOf(chosen, context)); err != nil {
			return nil, err
		}
	}
	if err := checkKey(file, chosen, context); err != nil {
		return nil, err
	}
	all, known := maps.Clone(context), allSettings()
	for _, one := range slices.Sorted(maps.Keys(chosen)) {
		if !slices.ContainsFunc(known, func(s setting) bool { return s.name == one }) {
			return nil, fmt.Errorf("settings:\ninfra/%s has %q, which is not a setting; docs/deploy.md lists them", file, one)
		}
		if _, overridden := context[Prefix+one]; !overridden {
			all[Prefix+one] = chosen[one]
		}
	}
	for _, key := range slices.Sorted(maps.Keys(context)) {
		one, ours := strings.CutPrefix(key, Prefix)
		if !ours {
			continue
		}
		if in, also := chosen[one]; also {
			fmt.Fprintf(notes, "acklast: %s=%v overrides %v of infra/%s, for this deployment only\n", key, context[key], in, file)
		} else {
			fmt.Fprintf(notes, "acklast: %s=%v is not in infra/%s, so it is for this deployment only\n", key, context[key], file)
		}
	}
	return all, nil
}

func environmentFile(name string) string { return path.Join("environments", name+".json") }

// readEnvironment reads one file of settings.
func readEnvironment(files fs.FS, name string) (map[string]any, error) {
	file := environmentFile(name)
	raw, err := fs.ReadFile(files, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, fmt.Errorf("settings:\nenv is %q, but infra/environments has only %s", name, strings.Join(environmentNames(files), ", "))
	} else if err != nil {
		return nil, fmt.Errorf("settings:\nread infra/%s: %w", file, err)
	}
	// The decoder refuses a setting that is there twice.
	var chosen map[string]any
	if err := json.Unmarshal(raw, &chosen); err != nil {
		return nil, fmt.Errorf("settings:\ninfra/%s is not an object of settings: %w", file, err)
	}
	return chosen, nil
}

// stackOf is the stack that a file's settings mean, with those of the context over them.
func stackOf(file, context map[string]any) string {
	for _, v := range []any{context[Prefix+"stack"], file["stack"]} {
		if v != nil {
			return text(v)
		}
	}
	return topology.DefaultStack
}

// ofAnother refuses a stack whose settings lie in a file that was not named: the default ones would take their place.
func ofAnother(files fs.FS, stack string) error {
	for _, name := range environmentNames(files) {
		if name == defaultEnvironment || name == smallAccount {
			continue
		}
		other, err := readEnvironment(files, name)
		if err != nil {
			return err
		}
		if stackOf(other, nil) == stack {
			return fmt.Errorf("settings:\ninfra/%s has the settings of the stack %s: type -c env=%s, or -c env=%s if its default settings are meant",
				environmentFile(name), stack, name, defaultEnvironment)
		}
	}
	return nil
}

// checkKey refuses a choice of the customer key for one deployment only. The next one would take away the rights to a
// key under which messages wait. With destroyData nobody needs them.
func checkKey(file string, chosen, context map[string]any) error {
	const key = "customerKey"
	here, given := context[Prefix+key]
	in := chosen[key]
	if in == nil {
		in = "none"
	}
	if !given || text(here) == text(in) || text(context[Prefix+"destroyData"]) == "true" {
		return nil
	}
	return fmt.Errorf("settings:\n%s%s=%s is not in infra/%s: write it there. The rights to the key follow this setting, "+
		"and without them nobody can receive the messages that wait under it", Prefix, key, text(here), file)
}

func environmentNames(files fs.FS) []string {
	found, _ := fs.Glob(files, "environments/*.json") // The pattern is well-formed.
	for i := range found {
		found[i] = strings.TrimSuffix(path.Base(found[i]), ".json")
	}
	return found
}
