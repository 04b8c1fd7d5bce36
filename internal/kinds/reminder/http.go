package reminder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"acklast"
)

// The headers and errors of the HTTP provider's protocol, see docs/reminders.md.
const (
	headerKey = "Idempotency-Key"

	codeInvalidRecipient = "invalid_recipient"
	codeUnsubscribed     = "unsubscribed"
	codeNotFound         = "not_found"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// HTTP is a provider that takes JSON over HTTP:
//
//	POST {url}/messages         Idempotency-Key: acklast-…        ─▶ 2xx {"requestId": "…"}
//	GET  {url}/messages/{key}                                     ─▶ 200 the same, 404 {"error": "not_found"}
type HTTP struct {
	url    string
	secret Secret
	client *http.Client
	now    func() time.Time
	// stale says that the provider did not take the secret; the next call reads it anew.
	stale atomic.Bool
}

// Secret returns the secret that authorises requests, "" for none; fresh asks for it to be read anew.
type Secret func(ctx context.Context, fresh bool) (string, error)

// NewHTTP returns a provider at a base URL. It keeps one client, whose connections are reused.
func NewHTTP(baseURL string, secret Secret, now func() time.Time) *HTTP {
	return &HTTP{
		url: strings.TrimSuffix(baseURL, "/"), secret: secret, now: now,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
				TLSHandshakeTimeout: 2 * time.Second,
				MaxIdleConnsPerHost: 16,
				IdleConnTimeout:     30 * time.Second,
				ForceAttemptHTTP2:   true,
			},
			// A redirect could repeat the request somewhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Send posts the message, in exactly one request.
func (h *HTTP) Send(ctx context.Context, key string, p Payload) (string, error) {
	body, err := json.Marshal(struct {
		Channel         Channel   `json:"channel"`
		Template        string    `json:"template"`
		TemplateVersion string    `json:"templateVersion"`
		Recipient       string    `json:"recipient"`
		SubscriptionID  string    `json:"subscriptionId"`
		Plan            string    `json:"plan"`
		RenewsAt        time.Time `json:"renewsAt"`
	}{p.Channel, p.Template, p.TemplateVersion, p.Recipient, p.SubscriptionID, p.Plan, p.RenewsAt})
	if err != nil {
		return "", acklast.Unsent(fmt.Errorf("encode message: %w", err))
	}
	a, err := h.do(ctx, http.MethodPost, "/messages", key, body)
	if err != nil {
		return "", err
	}
	if a.status >= 200 && a.status < 300 {
		return a.RequestID, nil // accepted is accepted, with an id or without
	}
	return "", a.failure(h.now())
}

// Lookup asks for the request under the key.
func (h *HTTP) Lookup(ctx context.Context, key string, _ Payload) (string, error) {
	a, err := h.do(ctx, http.MethodGet, "/messages/"+url.PathEscape(key), "", nil)
	switch {
	case err != nil:
		return "", err
	case a.status == http.StatusOK && a.readable:
		return a.RequestID, nil
	case a.status == http.StatusOK:
		return "", acklast.Transient(errors.New("look-up answered what nobody can read"))
	case a.status == http.StatusNotFound && a.Error == codeNotFound:
		return "", acklast.ErrNoRequest
	case a.status == http.StatusNotFound:
		// Not the provider's own words: a wrong address would otherwise pass for "never sent".
		return "", fmt.Errorf("look-up answered 404 without the error %q: is the URL right?", codeNotFound)
	}
	return "", a.failure(h.now())
}

// answer is what came back.
type answer struct {
	status   int
	header   http.Header
	readable bool

	RequestID string `json:"requestId"`
	Error     string `json:"error"`
}

func (a answer) failure(now time.Time) error {
	if a.status < 500 {
		switch a.Error {
		case codeInvalidRecipient:
			return acklast.Declined(InvalidRecipient)
		case codeUnsubscribed:
			return acklast.Declined(Unsubscribed)
		}
	}
	return failureOf(a.status, a.header, now)
}

// do makes one request. Its error says whether the provider can have seen it.
func (h *HTTP) do(ctx context.Context, method, path, key string, body []byte) (answer, error) {
	secret, err := h.secret(ctx, h.stale.Load())
	if err != nil {
		return answer{}, acklast.Unsent(acklast.Transient(fmt.Errorf("read the provider's secret: %w", err)))
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, nil)
	if err != nil {
		return answer{}, acklast.Unsent(acklast.Rejected("the provider's address is wrong"))
	}
	if body != nil {
		// The transport repeats a POST on its own when a reused connection breaks and the request has an
		// idempotency key; without GetBody it cannot.
		req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set(headerKey, key)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "acklast")

	res, err := h.client.Do(req)
	if err != nil {
		// Not the URL error itself: it quotes an address that may carry a credential.
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if !connected.Load() {
			return answer{}, acklast.Unsent(acklast.Transient(fmt.Errorf("no connection to the provider: %w", err)))
		}
		return answer{}, acklast.Transient(fmt.Errorf("no answer from the provider: %w", err))
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{status: res.StatusCode, header: res.Header}
	h.stale.Store(a.status == http.StatusUnauthorized || a.status == http.StatusForbidden)
	read, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil {
		a.readable = json.Unmarshal(read, &a) == nil
	}
	return a, nil
}

// StaticSecret returns a secret that is given.
func StaticSecret(s string) Secret {
	return func(context.Context, bool) (string, error) { return s, nil }
}

var errNoSecret = errors.New("secret has no text")
