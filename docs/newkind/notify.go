package newkind

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"acklast"
)

// Notice is the payload of a job that tells a shop's partner about an order.
type Notice struct {
	OrderID   string    `json:"orderId"`
	Partner   string    `json:"partner"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// EnvPartnerURL is the variable that holds the base address of the partners' service.
const EnvPartnerURL = "SHOP_PARTNER_URL"

//go:embed notify.json
var noticeSample string

// Notify tells a partner about an order, once. The partner's service is outside DynamoDB, so the runner
// is an effect.
func Notify() acklast.Kind {
	return acklast.Define(acklast.Definition[Notice]{
		Name:        "order.notify",
		Key:         func(n Notice) (string, []string) { return n.OrderID, []string{n.Partner} },
		ExpiresAt:   func(n Notice) time.Time { return n.ExpiresAt },
		Environment: []acklast.Variable{{Name: EnvPartnerURL, Help: "the base address of the partners' service"}},
		Samples:     []acklast.Sample{{Name: "order-notify", Body: noticeSample}},
	}, func(_ context.Context, s acklast.Services) (acklast.Runner[Notice], error) {
		base, err := url.Parse(s.Getenv(EnvPartnerURL))
		if err != nil || base.Host == "" {
			return nil, fmt.Errorf("%s is not the URL of a service", EnvPartnerURL)
		}
		p := partners{base: base, client: http.DefaultClient}
		return acklast.NewEffect(s, acklast.Effect[Notice]{
			Send: p.send, Lookup: p.lookup, Timeout: 5 * time.Second,
			// The service documents that it keeps a key for a day. It does not promise to deduplicate.
			// It does not say how long a request may be under way, so there is no SettleTime.
			Abilities: acklast.Abilities{LooksUp: true, KeyWindow: 24 * time.Hour},
		})
	})
}

// partners is the client of the partners' service.
type partners struct {
	base   *url.URL
	client *http.Client
}

// notice is the service's answer: the id of an accepted notice, or an error.
type notice struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// send makes one request. Only an answer of the service itself proves whether it was accepted.
func (p partners) send(ctx context.Context, key string, n Notice) (string, error) {
	body, err := json.Marshal(map[string]string{"order": n.OrderID, "partner": n.Partner})
	if err != nil {
		return "", acklast.Unsent(err)
	}
	status, got, err := p.do(ctx, http.MethodPost, "notices", key, body)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusCreated && got.ID != "":
		return got.ID, nil
	case status == http.StatusGone && got.Error == "partner_left":
		return "", acklast.Declined("partner left")
	case status == http.StatusTooManyRequests && got.Error == "rate_limited":
		return "", acklast.Unsent(acklast.Throttled(errors.New("partners' service: too many notices"), 0))
	case status == http.StatusUnprocessableEntity && got.Error == "unknown_partner":
		return "", acklast.Unsent(acklast.Rejected("partners' service: unknown partner"))
	}
	return "", acklast.Transient(fmt.Errorf("partners' service answered %d", status))
}

// lookup asks for the notice under the key.
func (p partners) lookup(ctx context.Context, key string, _ Notice) (string, error) {
	status, got, err := p.do(ctx, http.MethodGet, "notices/"+key, key, nil)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusOK:
		return got.ID, nil
	case status == http.StatusNotFound && got.Error == "no_such_notice":
		return "", acklast.ErrNoRequest
	}
	return "", acklast.Transient(fmt.Errorf("partners' service answered %d", status))
}

func (p partners) do(ctx context.Context, method, path, key string, body []byte) (status int, got notice, err error) {
	req, err := http.NewRequestWithContext(ctx, method, p.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return 0, got, acklast.Unsent(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := acklast.OneRequest(p.client, req)
	if err != nil {
		return 0, got, err
	}
	defer func() { _ = res.Body.Close() }()
	if answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<16)); err == nil {
		_ = json.Unmarshal(answer, &got) // an answer from anything else names no notice
	}
	return res.StatusCode, got, nil
}
