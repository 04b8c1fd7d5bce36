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
		Short: "Say which version of acklast this is",
		Long: `Say which version of acklast this is. It makes no call.

The functions write their version in the first line of their log. Commands that ask the redrive function
say on standard error when its version is another one.`,
		Example: `  acklast version`,
		Args:    cobra.NoArgs,
		RunE: a.starting(func(*cobra.Command, []string) error {
			return a.answer(versionReport{version.Number}, func(w io.Writer) { row(w, "acklast "+version.Number) })
		}),
	}
}
