package version_test

import (
	"regexp"
	"strings"
	"testing"

	"acklast/internal/version"
)

func TestNumberIsASemanticVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9a-z.]+)?$`).MatchString(version.Number) {
		t.Errorf("Number = %q", version.Number)
	}
}

func TestSkewNamesBothVersions(t *testing.T) {
	if got := version.Skew("redrive", version.Number); got != "" {
		t.Errorf("the same version: %q, want nothing", got)
	}
	for _, other := range []string{"", "0.1.0", "9.0.0"} {
		got := version.Skew("redrive", other)
		for _, want := range []string{"redrive", other, version.Number} {
			if !strings.Contains(got, want) {
				t.Errorf("Skew(%q) = %q, which does not name %q", other, got, want)
			}
		}
	}
}
