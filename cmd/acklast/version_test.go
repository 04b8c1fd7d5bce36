package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"acklast/internal/version"
)

func TestVersion(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"acklast", "version"}, nil, &out, &errOut, func(string) string { return "" })
	if code != exitOK {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	if got, want := out.String(), "acklast "+version.Number+"\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

// The CLI reports once that the redrive function has another version, and then does its work.
func TestASkewIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		want   int
	}{
		"same":  {fmt.Sprintf(`{"action":"switch","version":%q}`, version.Number), 0},
		"other": {`{"action":"switch","version":"0.1.7"}`, 1},
		"none":  {`{"action":"switch"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.answer) }))
			defer server.Close()
			var out, errOut bytes.Buffer
			code := run(t.Context(), []string{"acklast", "redrive", "status", "--endpoint-url", server.URL}, nil, &out, &errOut, func(string) string { return "" })
			if code != exitOK {
				t.Errorf("exit code %d: %s", code, errOut.String())
			}
			if got := strings.Count(errOut.String(), "Note: the redrive function"); got != tt.want {
				t.Errorf("the skew is named %d times, want %d: %s", got, tt.want, errOut.String())
			}
		})
	}
}

// Every request says which format it has, so that a later redrive function does not take it for one of its own.
func TestARequestCarriesItsFormat(t *testing.T) {
	var wire []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"action":"status"}`)
	}))
	defer server.Close()
	code := run(t.Context(), []string{"acklast", "redrive", "status", "--endpoint-url", server.URL}, nil, io.Discard, io.Discard, func(string) string { return "" })
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if got, want := string(wire), `{"action":"status","format":1}`; got != want {
		t.Errorf("the request is %s, want %s", got, want)
	}
}
