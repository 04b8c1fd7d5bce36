package newkind_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"acklast"
	"acklast/docs/newkind"
	"acklast/internal/local"
	"acklast/internal/topology"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// service is the partners' service. It counts what it accepted.
type service struct {
	mu       sync.Mutex
	accepted map[string]string // ids by key
	drop     bool              // accept, and close the connection without an answer
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked struct{ Partner string }
	answer := func(status int, fields map[string]string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(fields)
	}
	if r.Method == http.MethodGet {
		if id := s.accepted[path.Base(r.URL.Path)]; id != "" {
			answer(http.StatusOK, map[string]string{"id": id})
			return
		}
		answer(http.StatusNotFound, map[string]string{"error": "no_such_notice"})
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Partner == "left" {
		answer(http.StatusGone, map[string]string{"error": "partner_left"})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.accepted[key] += "n" // "n" once, "nn" twice
	if s.drop {
		panic(http.ErrAbortHandler)
	}
	answer(http.StatusCreated, map[string]string{"id": s.accepted[key]})
}

func (s *service) dropping(drop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop = drop
}

// A notice reaches the partners' service once, also when the answer is lost.
func TestNoticesAreSentOnce(t *testing.T) {
	partners := &service{accepted: map[string]string{}}
	srv := httptest.NewServer(partners)
	t.Cleanup(srv.Close)
	env, err := local.StartAWS(t.Context(), "notify", topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	services := acklast.NewServices(env.AWSConfig(), "notify", func() time.Time { return now })
	services.Getenv = func(string) string { return srv.URL }
	kind, err := newkind.Notify().Start(t.Context(), services)
	if err != nil {
		t.Fatal(err)
	}
	try := func(order, partner string) acklast.Tried {
		t.Helper()
		body := `{"kind":"order.notify","payload":{"orderId":"` + order + `","partner":"` + partner + `","expiresAt":"2026-12-03T10:00:00Z"}}`
		got, err := kind.Try(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := func(name string, got acklast.Tried, verdict acklast.Verdict, outcome string) {
		t.Helper()
		if got.Verdict != verdict || got.Outcome != outcome {
			t.Errorf("%s: %+v, want %s %q", name, got, verdict, outcome)
		}
	}
	want("an order", try("o-1", "carrier"), acklast.Committed, acklast.Sent)
	want("a copy", try("o-1", "carrier"), acklast.Duplicate, acklast.Sent)
	want("a partner who left", try("o-2", "left"), acklast.Committed, "partner left")

	partners.dropping(true)
	want("a lost answer", try("o-3", "carrier"), acklast.Failed, "")
	partners.dropping(false)
	now = now.Add(10 * time.Minute) // the lease of the first attempt is over
	want("the next attempt", try("o-3", "carrier"), acklast.Committed, acklast.Sent)
	partners.mu.Lock()
	for key, id := range partners.accepted {
		if id != "n" {
			t.Errorf("accepted %d times under %s", len(id), key)
		}
	}
	if len(partners.accepted) != 2 {
		t.Errorf("%d notices accepted, want 2", len(partners.accepted))
	}
	partners.mu.Unlock()
	now = time.Date(2026, 12, 4, 10, 0, 0, 0, time.UTC)
	want("an expired notice", try("o-4", "carrier"), acklast.Committed, acklast.TooLate)
}

func TestNoticesNeedTheirAddress(t *testing.T) {
	services := acklast.NewServices(aws.Config{}, "notify", time.Now)
	services.Getenv = func(string) string { return "" }
	if _, err := newkind.Notify().Start(t.Context(), services); err == nil || !strings.Contains(err.Error(), newkind.EnvPartnerURL) {
		t.Errorf("Start() = %v, want an error that names %s", err, newkind.EnvPartnerURL)
	}
}
