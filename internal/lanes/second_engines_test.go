//go:build engines

package lanes_test

import (
	"os"
	"testing"
)

// `make test-engines` starts these.

func TestFauxqs(t *testing.T) {
	conformance(t, engine{url: started(t, "ACKLAST_FAUXQS_URL")})
}

func TestMoto(t *testing.T) {
	conformance(t, engine{url: started(t, "ACKLAST_MOTO_URL"), carriesGroup: true, staleIsAnError: true})
}

func started(t *testing.T, variable string) func() string {
	url := os.Getenv(variable)
	if url == "" {
		t.Fatalf("%s is not set: run make test-engines", variable)
	}
	return func() string { return url }
}
