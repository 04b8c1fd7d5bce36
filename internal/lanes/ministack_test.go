//go:build engines

package lanes_test

import "testing"

// MiniStack carries all parts of a message. `make test-engines` starts it.
func TestMiniStack(t *testing.T) {
	conformance(t, engine{url: started(t, "ACKLAST_MINISTACK_URL"), carriesGroup: true, staleIsAnError: true})
}
