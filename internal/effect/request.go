package effect

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"acklast/internal/job"
)

// Trace notes whether a request got a connection. net/http reports both to the trace of the request's
// context, whatever client makes the request.
type Trace struct{ asked, connected atomic.Bool }

// Client is the trace for httptrace.WithClientTrace.
func (t *Trace) Client() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { t.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) },
	}
}

// NothingWritten says of a request that has failed whether it was certainly not written: it asked for a
// connection and got none, because the name, the dial or the TLS handshake failed. From the moment of the
// connection a write may be under way, also after the request was cancelled. A transport that reports
// nothing says nothing.
func (t *Trace) NothingWritten() bool { return t.asked.Load() && !t.connected.Load() }

// OneRequest makes one request, exactly once. Its error is an *UnsentError when nothing was written.
func OneRequest(client *http.Client, req *http.Request) (*http.Response, error) {
	var trace Trace
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace.Client()))
	// The transport repeats a POST that has an idempotency key by itself when a reused connection breaks.
	// Without GetBody it cannot.
	req.GetBody = nil
	once := *client
	// A redirect could repeat the request somewhere else.
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := once.Do(req)
	if err == nil {
		return res, nil
	}
	// The URL error itself quotes an address that may carry a credential.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if trace.NothingWritten() {
		return nil, &UnsentError{Err: &job.Failure{Class: job.Transient, Err: fmt.Errorf("no connection: %w", err)}}
	}
	return nil, &job.Failure{Class: job.Transient, Err: fmt.Errorf("no answer: %w", err)}
}
