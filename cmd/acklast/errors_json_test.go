package main

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// With --output json, standard output is empty or has whole JSON documents, whatever goes wrong. The error is on
// standard error.
func TestErrorsLeaveStdoutToJSON(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	denying := refusing(t, 400, func(service, operation string) (string, string) {
		return "AccessDeniedException", "User: " + caller + " is not authorized to perform: " + service + ":" + operation
	})
	all := asking()
	all["send"] = []string{"--file", "-"} // whose second line is no job
	for _, place := range []struct {
		name string
		env  map[string]string
		args []string
	}{
		{"access denied", denying, nil},
		{"no region", nil, nil},
		{"an unknown flag", denying, []string{"--nope"}},
	} {
		for name, args := range all {
			c := &cli{t: t, stack: "shop", env: map[string]string{envStack: "shop", "USER": "ann"}, stdin: strings.NewReader(expiry("r-1") + "\nnothing\n")}
			for variable, value := range place.env {
				c.env[variable] = value
			}
			r := c.runTo(t.Context(), io.Discard, io.Discard, slices.Concat(strings.Fields(name), args, []string{"--output", "json"}, place.args)...)
			if r.code == exitOK {
				t.Errorf("%s: acklast %s: exit code 0", place.name, name)
			}
			// What doctor finds stands in its answer.
			if r.stderr == "" && name != "doctor" {
				t.Errorf("%s: acklast %s: nothing on standard error", place.name, name)
			}
			if name == "doctor" && place.name == "access denied" && r.stdout == "" {
				t.Errorf("%s: acklast %s: no answer", place.name, name)
			}
			for d := json.NewDecoder(strings.NewReader(r.stdout)); ; {
				var document any
				err := d.Decode(&document)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Errorf("%s: acklast %s: standard output is no JSON: %q", place.name, name, r.stdout)
					break
				}
			}
		}
	}
}
