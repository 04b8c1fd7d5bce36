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
)

// withEnvironment returns the context with the settings of the environment that it chooses. A setting of
// the context itself wins; notes says so, because the next deployment may lack it.
func withEnvironment(files fs.FS, context map[string]any, notes io.Writer) (map[string]any, error) {
	name := defaultEnvironment
	if chosen, given := context[environmentKey]; given {
		name = fmt.Sprint(chosen)
	}
	file := path.Join("environments", name+".json")
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
	all := maps.Clone(context)
	for _, one := range slices.Sorted(maps.Keys(chosen)) {
		if !slices.ContainsFunc(allSettings(), func(s setting) bool { return s.name == one }) {
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

func environmentNames(files fs.FS) []string {
	found, _ := fs.Glob(files, "environments/*.json") // The pattern is well-formed.
	for i := range found {
		found[i] = strings.TrimSuffix(path.Base(found[i]), ".json")
	}
	return found
}
