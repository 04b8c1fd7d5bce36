package effect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"

	"acklast/internal/job"
)

// HTTPClient makes requests, as *http.Client and the clients of SDKs do.
type HTTPClient interface {
	Do(req *http.Request) (*http.Response, error)
}

// OneRequest makes one request, exactly once. Its error is an *UnsentError when the request was certainly not
// written: it got no connection, because the name, the dial or the TLS handshake failed. Once there is a
// connection, a write may be under way, even if the request was cancelled.
func OneRequest(client HTTPClient, req *http.Request) (*http.Response, error) {
	var asked, connected atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}))
	// The transport repeats a POST that has an idempotency key by itself when a reused connection breaks,
	// and a client follows a redirect with the same body. Without GetBody neither can.
	req.GetBody = nil
	// A transport that reports nothing to the trace proves nothing. net/http's own transport reports every connection.
	reports := false
	if c, ok := client.(*http.Client); ok {
		once := *c
		once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = &once
		_, reports = c.Transport.(*http.Transport)
	}
	res, err := client.Do(req)
	if err == nil {
		return res, nil
	}
	// The URL error quotes the address, which may contain a credential.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if !quotesNothing(err) {
		err = &unreadable{err}
	}
	if !connected.Load() && (reports || asked.Load()) {
		return nil, &UnsentError{Err: &job.Failure{Class: job.Transient, Err: fmt.Errorf("no connection: %w", err)}}
	}
	return nil, &job.Failure{Class: job.Transient, Err: fmt.Errorf("no answer: %w", err)}
}

// unreadable is a transport's error whose text may quote what the other side sent. That may be the request itself,
// with its recipient and its secret.
type unreadable struct{ err error }

func (*unreadable) Error() string { return "the answer is no HTTP that can be read" }

func (e *unreadable) Unwrap() error { return e.err }

// quotesNothing says whether an error is of the network, of TLS, or of a context. Their texts name addresses,
// certificates and system errors only.
func quotesNothing(err error) bool {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	var network net.Error
	var number syscall.Errno
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	return errors.As(err, &network) || errors.As(err, &number) || errors.As(err, &certificate) || errors.As(err, &alert) || errors.As(err, &record)
}
