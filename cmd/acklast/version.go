package main

import (
	"io"

	"github.com/spf13/cobra"

	"acklast/internal/version"
)

// versionReport is the answer of version.
type versionReport struct {
	Version string `json:"version"`
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of acklast",
		Long: `Print the version of acklast. It makes no call.

The functions write their version in the first line of their log. Commands that ask the redrive function
print a warning on standard error if its version differs.`,
		Example: `  acklast version`,
		Args:    noArgs,
		RunE: a.starting(func(*cobra.Command, []string) error {
			return a.answer(versionReport{version.Number}, func(w io.Writer) { row(w, "acklast "+version.Number) })
		}),
	}
}
