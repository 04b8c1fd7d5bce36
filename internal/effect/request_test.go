package effect_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"acklast/internal/effect"
)

// listener is an address at which accept handles the connections.
func listener(t *testing.T, accept func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accept(conn)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// A request is unsent only if it got no connection.
func TestWhatIsUnsent(t *testing.T) {
	free := listener(t, func(net.Conn) {})
	hangUp := listener(t, func(c net.Conn) { _ = c.Close() })
	plain := listener(t, func(c net.Conn) { _, _ = c.Write([]byte("no TLS here\n")); _ = c.Close() })
	foreign := httptest.NewUnstartedServer(http.NotFoundHandler()) // its certificate is not trusted
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	foreign.StartTLS()
	t.Cleanup(foreign.Close)
	nameless := &http.Transport{DialContext: (&net.Dialer{Resolver: &net.Resolver{
		PreferGo: true,
		Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") },
	}}).DialContext}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	reset := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(reset.Close)
	for name, tt := range map[string]struct {
		url    string
		client http.RoundTripper
		unsent bool
	}{
		"a name that nobody has":       {"http://provider.example/", nameless, true},
		"nobody listens":               {"http://" + closed.Addr().String(), &http.Transport{}, true},
		"TLS with a foreign server":    {foreign.URL, &http.Transport{}, true},
		"TLS with a server without it": {"https://" + plain, &http.Transport{}, true},
		"TLS that never answers":       {"https://" + free, &http.Transport{TLSHandshakeTimeout: 50 * time.Millisecond}, true},
		"a connection that is closed":  {"http://" + hangUp, &http.Transport{}, false},
		"a reset after the request":    {reset.URL, &http.Transport{}, false},
		"a transport without a trace":  {reset.URL, noTrace{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tt.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = effect.OneRequest(&http.Client{Transport: tt.client}, req)
			if err == nil {
				t.Fatal("no error")
			}
			var unsent *effect.UnsentError
			if errors.As(err, &unsent) != tt.unsent {
				t.Errorf("unsent is %v, want %v: %v", !tt.unsent, tt.unsent, err)
			}
		})
	}
}

// noTrace is a transport that may do anything and then fails, without a report to the trace.
type noTrace struct{}

func (noTrace) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }

// A redirect is the answer, also one that would change the method.
func TestOneRequestFollowsNoRedirect(t *testing.T) {
	for _, status := range []int{http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect} {
		requests := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			http.Redirect(w, r, "/elsewhere", status)
		}))
		t.Cleanup(srv.Close)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := effect.OneRequest(srv.Client(), req)
		if err != nil {
			t.Errorf("%d: %v", status, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != status || requests != 1 {
			t.Errorf("status %d after %d requests, want %d after 1", res.StatusCode, requests, status)
		}
	}
}
