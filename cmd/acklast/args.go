package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noArgs is for commands that take flags only.
func noArgs(cmd *cobra.Command, args []string) error { return between(cmd, args, 0, 0) }

// someArgs is for commands that take from least to most arguments.
func someArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return between(cmd, args, least, most) }
}

func between(cmd *cobra.Command, args []string, least, most int) error {
	_, wanted, _ := strings.Cut(cmd.Use, " ")
	switch {
	case len(args) < least:
		return refuse("an argument is missing, want %s", wanted)
	case most == 0 && len(args) > 0:
		return refuse("%q is too much: %s takes flags only", args[0], cmd.CommandPath())
	case len(args) > most:
		return refuse("%q is too much, want %s", args[most], wanted)
	}
	return nil
}

// checkID refuses arguments that cannot be an id or a key: an empty one, which mostly comes from an unset variable of the
// shell, and one with control characters.
func checkID(args ...string) error {
	for _, arg := range args {
		switch {
		case arg == "":
			return refuse("an argument is empty: is a variable of your shell not set?")
		case strings.ContainsFunc(arg, unicode.IsControl):
			return refuse("the argument %q has control characters, which no id and no key has", arg)
		}
	}
	return nil
}

// badFlag puts an error of the flags' parser into words.
func badFlag(_ *cobra.Command, err error) error {
	invalid, ok := err.(*pflag.InvalidValueError) //nolint:errorlint // the parser returns it unwrapped
	if !ok {
		return err
	}
	f := invalid.GetFlag()
	want := map[string]string{"int": "a whole number", "float64": "a number", "duration": "a duration such as 30s or 5m", "bool": "true or false",
		"stringToString": "name=value"}[f.Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s is %q, want %s", f.Name, invalid.GetValue(), want)
}
