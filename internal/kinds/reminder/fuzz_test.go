package reminder

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"acklast/internal/effect"
)

// An answer proves that nothing was sent only if the provider itself refused: with a code that is declared or the
// protocol's own, and with a status that says so.
func FuzzAnswer(f *testing.F) {
	for status, body := range map[int]string{200: `{"requestId":"r"}`, 202: ``, 408: `{"error":"x"}`, 409: `{"error":"x"}`, 422: `{"error":"invalid_recipient"}`,
		429: `{"error":"rate_limited"}`, 500: `{"error":"failed"}`, 502: `<html>`, 503: `{"error":"busy"}`, 301: `null`} {
		f.Add(status, body, "1")
	}
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		a := readAnswer(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))})
		if d := retryAfter(after, now); d < 0 || d > maxRetryAfter {
			t.Fatalf("Retry-After %q is %v", after, d)
		}
		err := a.refusal([]string{"busy", "x"}, now)
		if err == nil {
			t.Fatalf("%d %q is no refusal", status, body)
		}
		var unsent *effect.UnsentError
		var declined *effect.DeclinedError
		if !errors.As(err, &unsent) && !errors.As(err, &declined) {
			return
		}
		refuses := status >= 400 && status < 500 && status != 408 && status != 409 || status == 503
		var said struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Fatalf("%d %q counts as not sent, and is not the provider's: %v", status, body, err)
		}
		if !refuses || !slices.Contains([]string{"busy", "x", "invalid_recipient", "unsubscribed"}, strings.TrimSpace(said.Error)) {
			t.Fatalf("%d %q counts as not sent: %v", status, body, err)
		}
	})
}
