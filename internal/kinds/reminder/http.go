package reminder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
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

// HTTP is a provider that takes JSON over HTTP:
//
//	POST {url}/messages         Idempotency-Key: acklast-…        ─▶ 2xx {"requestId": "…"}
//	GET  {url}/messages/{key}                                     ─▶ 200 the same, 404 {"error": "not_found"}
//
// docs/reminders.md says what each answer means.
type HTTP struct {
	url      string
	declared Declared
	secret   Secret
	client   *http.Client
	now      func() time.Time
	// stale says that the provider refused the secret; the next call reads it again.
	stale atomic.Bool
}

// Declared is what a provider's operator says about its answers. Without a declaration an answer proves nothing.
type Declared struct {
	// BareYes are the statuses with which an empty or null body is an acceptance.
	BareYes []int
	// Refusals are the error codes by which the provider itself says that it has not accepted a request.
	Refusals []string
}

// Secret returns the secret that authorises requests, "" for none. With fresh it reads the secret again.
type Secret func(ctx context.Context, fresh bool) (string, error)

// NewHTTP returns a provider at a base URL. It keeps one client, whose connections are reused.
func NewHTTP(baseURL string, declared Declared, secret Secret, now func() time.Time) *HTTP {
	return &HTTP{
		url: strings.TrimSuffix(baseURL, "/"), declared: declared, secret: secret, now: now,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
				TLSHandshakeTimeout: 2 * time.Second,
				MaxIdleConnsPerHost: 16,
				// This is shorter than servers keep a connection. A request on a connection that the server has
				// closed fails after it was written, so its outcome is unknown. The time also counts while the
				// process is frozen.
				IdleConnTimeout:   4 * time.Second,
				ForceAttemptHTTP2: true,
				// A declared length shows that a body is cut off.
				DisableCompression: true,
			},
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
	switch id, failed := a.named(key); {
	case a.success() && id != "" && !failed:
		return id, nil
	case a.success() && a.bare && slices.Contains(h.declared.BareYes, a.status):
		return "", nil
	case a.success():
		return "", acklast.Transient(fmt.Errorf("provider answered %d with a body that names no request", a.status))
	}
	return "", a.refusal(h.declared.Refusals, h.now())
}

// Lookup asks for the request under the key. Only an answer that names the request proves that it was accepted.
func (h *HTTP) Lookup(ctx context.Context, key string, _ Payload) (string, error) {
	a, err := h.do(ctx, http.MethodGet, "/messages/"+url.PathEscape(key), "", nil)
	if err != nil {
		return "", err
	}
	id, failed := a.named(key)
	switch {
	case a.status == http.StatusOK && id != "" && !failed:
		return id, nil
	case a.declined() != "" && id != "":
		return "", acklast.Declined(a.declined())
	case a.status == http.StatusNotFound && a.code() == codeNotFound:
		return "", acklast.ErrNoRequest
	case a.status == http.StatusNotFound:
		// The answer is not in the provider's own shape. Otherwise a wrong address would count as "never sent".
		return "", acklast.Transient(fmt.Errorf("look-up answered 404 without the error %q: is the URL right?", codeNotFound))
	case a.status == http.StatusTooManyRequests:
		return "", acklast.Throttled(errors.New("look-up answered 429"), retryAfter(a.header.Get("Retry-After"), h.now()))
	}
	return "", acklast.Transient(fmt.Errorf("look-up answered %d and names no request", a.status))
}

// do makes one request. Its error says whether the request was written.
func (h *HTTP) do(ctx context.Context, method, path, key string, body []byte) (answer, error) {
	secret, err := h.secret(ctx, h.stale.Load())
	if err != nil {
		return answer{}, acklast.Unsent(acklast.Transient(fmt.Errorf("read the provider's secret: %w", err)))
	}
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, acklast.Unsent(acklast.Rejected("the provider's address is wrong"))
	}
	if body != nil {
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
	res, err := acklast.OneRequest(h.client, req)
	if err != nil {
		return answer{}, fmt.Errorf("provider: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	a := readAnswer(res)
	h.stale.Store(a.status == http.StatusUnauthorized || a.status == http.StatusForbidden)
	return a, nil
}

// StaticSecret returns a Secret that is always s.
func StaticSecret(s string) Secret {
	return func(context.Context, bool) (string, error) { return s, nil }
}

var errNoSecret = errors.New("secret has no text")
