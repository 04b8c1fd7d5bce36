package reminder_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"acklast"
	"acklast/internal/effect"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/local/fakeprovider"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// kumo starts these goroutines once for the process and cannot end them.
		goleak.IgnoreAnyFunction("github.com/sivchari/kumo/internal/service/dynamodb.(*MemoryStorage).ttlReaper"),
	)
}

var t0 = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

func payload() reminder.Payload {
	return reminder.Payload{
		ReminderID: "renewal-1042", SubscriptionID: "sub-7", Channel: reminder.Email,
		Template: "renewal", TemplateVersion: "v3", Recipient: "customer-77", Plan: "pro",
		RenewsAt: t0.Add(72 * time.Hour), ExpiresAt: t0.Add(48 * time.Hour),
	}
}

// provider is an HTTP adapter on a server.
func provider(t *testing.T, url, secret string) *reminder.HTTP {
	t.Helper()
	p := reminder.NewHTTP(url, reminder.Declared{Refusals: fakeprovider.Refusals}, reminder.StaticSecret(secret), func() time.Time { return t0 })
	t.Cleanup(p.Close)
	return p
}

func box(t *testing.T, o fakeprovider.Options) *fakeprovider.Server {
	t.Helper()
	b := fakeprovider.New(o)
	t.Cleanup(b.Close)
	return b
}

// failed is an error's class and whether the request may have been accepted.
func failed(t *testing.T, err error) (job.Class, bool) {
	t.Helper()
	if err == nil {
		t.Fatal("no error, want a failure")
	}
	var unsent *effect.UnsentError
	return job.AsFailure(err).Class, !errors.As(err, &unsent)
}

func TestHTTPSendsOnceAndLooksUp(t *testing.T) {
	b := box(t, fakeprovider.Options{Deduplicates: true, LooksUp: true, Token: "s3cret"})
	p := provider(t, b.URL(), "s3cret")
	if _, err := p.Lookup(t.Context(), "k1", payload()); !errors.Is(err, acklast.ErrNoRequest) {
		t.Errorf("look-up before: %v", err)
	}
	first, err := p.Send(t.Context(), "k1", payload())
	if err != nil || first == "" {
		t.Fatalf("Send() = %q, %v", first, err)
	}
	again, err := p.Send(t.Context(), "k1", payload())
	if err != nil || again != first {
		t.Errorf("the same key: %q, %v, want %q", again, err, first)
	}
	if got := b.Accepted("customer-77"); len(got) != 1 || got[0].Key != "k1" || got[0].Template != "renewal-v3" || got[0].Channel != "email" {
		t.Errorf("accepted %+v", got)
	}
	if found, err := p.Lookup(t.Context(), "k1", payload()); err != nil || found != first {
		t.Errorf("Lookup() = %q, %v", found, err)
	}
	b.Forget()
	if _, err := p.Lookup(t.Context(), "k1", payload()); !errors.Is(err, acklast.ErrNoRequest) {
		t.Errorf("look-up of a key that was forgotten: %v", err)
	}
	if _, err := p.Send(t.Context(), "k1", payload()); err != nil || len(b.Accepted("")) != 2 {
		t.Errorf("a forgotten key is accepted anew: %v, %d", err, len(b.Accepted("")))
	}

	// Another secret is refused, and no error quotes it.
	wrong := provider(t, b.URL(), "wr0ng")
	_, err = wrong.Send(t.Context(), "k2", payload())
	if class, unresolved := failed(t, err); class != job.Transient || unresolved || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("wrong secret: %v", err)
	}
}

func TestHTTPAnswers(t *testing.T) {
	in := func(d time.Duration) string { return t0.Add(d).Format(http.TimeFormat) }
	for name, tt := range map[string]struct {
		do         fakeprovider.Behaviour
		class      job.Class
		unresolved bool
		after      time.Duration
	}{
		"429 with seconds":     {fakeprovider.Throttle("7"), job.Throttled, false, 7 * time.Second},
		"429 with a date":      {fakeprovider.Throttle(in(time.Minute)), job.Throttled, false, time.Minute},
		"429 with a past date": {fakeprovider.Throttle(in(-time.Minute)), job.Throttled, false, 0},
		"429 with nonsense":    {fakeprovider.Throttle("soon"), job.Throttled, false, 0},
		"429 without":          {fakeprovider.Throttle(""), job.Throttled, false, 0},
		"429 for ages":         {fakeprovider.Throttle("99999999999"), job.Throttled, false, 24 * time.Hour},
		"503":                  {fakeprovider.Fail(503), job.Transient, false, 0},
		"500":                  {fakeprovider.Fail(500), job.Transient, true, 0},
		"502":                  {fakeprovider.Fail(502), job.Transient, true, 0},
		"504":                  {fakeprovider.Fail(504), job.Transient, true, 0},
		"409":                  {fakeprovider.Fail(409), job.Transient, true, 0},
		"403":                  {fakeprovider.Fail(403), job.Transient, false, 0},
		"400":                  {fakeprovider.Fail(400), job.Rejected, false, 0},
		"404":                  {fakeprovider.Fail(404), job.Rejected, false, 0},
		"302":                  {fakeprovider.Fail(302), job.Transient, true, 0},
		"408":                  {fakeprovider.Fail(408), job.Transient, true, 0},
		"503 with seconds":     {fakeprovider.Fail(503).After("7"), job.Throttled, false, 7 * time.Second},
		"500 with a code":      {fakeprovider.Fail(500), job.Transient, true, 0},
		"another refusal":      {fakeprovider.Refuse("no_such_template"), job.Rejected, false, 0},
		"answer dropped":       {fakeprovider.Drop(), job.Transient, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := box(t, fakeprovider.Options{})
			b.Add(fakeprovider.Rule{Do: tt.do})
			_, err := provider(t, b.URL(), "").Send(t.Context(), "k1", payload())
			class, unresolved := failed(t, err)
			f := job.AsFailure(err)
			if class != tt.class || unresolved != tt.unresolved || f.RetryAfter != tt.after {
				t.Errorf("got %s, unresolved %v, after %v: %v", class, unresolved, f.RetryAfter, err)
			}
			if sends, _ := b.Requests(); sends != 1 {
				t.Errorf("%d requests on the wire", sends)
			}
			if strings.Contains(err.Error(), "customer-77") {
				t.Errorf("names the recipient: %v", err)
			}
		})
	}
	for code, outcome := range map[string]string{"invalid_recipient": reminder.InvalidRecipient, "unsubscribed": reminder.Unsubscribed} {
		b := box(t, fakeprovider.Options{})
		b.Add(fakeprovider.Rule{Do: fakeprovider.Refuse(code)})
		_, err := provider(t, b.URL(), "").Send(t.Context(), "k1", payload())
		var declined *effect.DeclinedError
		if !errors.As(err, &declined) || declined.Outcome != outcome {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestHTTPTimeouts(t *testing.T) {
	b := box(t, fakeprovider.Options{})
	b.Add(fakeprovider.Rule{Do: fakeprovider.Late(time.Minute)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := provider(t, b.URL(), "").Send(ctx, "k1", payload())
	if class, unresolved := failed(t, err); class != job.Transient || !unresolved || len(b.Accepted("")) != 1 {
		t.Errorf("answer too late: %v, accepted %d", err, len(b.Accepted("")))
	}
	// No server listens, so the provider cannot have received the request.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	_, err = provider(t, "http://user:pa55@"+l.Addr().String(), "").Send(t.Context(), "k1", payload())
	if class, unresolved := failed(t, err); class != job.Transient || unresolved || strings.Contains(err.Error(), "pa55") {
		t.Errorf("connection refused: %v", err)
	}
}

func TestHTTPLookupIsNotFooled(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"another server's 404": func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
		"a page":               func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>hello") },
		"500":                  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		srv := httptest.NewServer(handler)
		_, err := provider(t, srv.URL, "").Lookup(t.Context(), "k1", payload())
		if errors.Is(err, acklast.ErrNoRequest) || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		failed(t, err)
		srv.Close()
	}
}

// net/http repeats a request with an idempotency key by itself if it was written to a reused connection that
// breaks. The server here serves the first request of a connection, reads the second completely and hangs up.
func TestHTTPMakesOneRequestOnAReusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var requests, connections atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for n := 1; ; n++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					body := make([]byte, req.ContentLength)
					if _, err := r.Read(body); err != nil {
						return
					}
					requests.Add(1)
					if n == 2 {
						return
					}
					_, _ = fmt.Fprint(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\n{\"id\":\"a\"}")
				}
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = l.Close() })
	p := provider(t, "http://"+l.Addr().String(), "")
	if _, err := p.Send(t.Context(), "k1", payload()); err != nil {
		t.Fatal(err)
	}
	_, err = p.Send(t.Context(), "k2", payload())
	if class, unresolved := failed(t, err); class != job.Transient || !unresolved {
		t.Errorf("connection closed after the request: %v", err)
	}
	if requests.Load() != 2 || connections.Load() != 1 {
		t.Errorf("%d requests on %d connections, want 2 on 1", requests.Load(), connections.Load())
	}
}

// A rotated secret is read again after the provider has refused the old one.
func TestHTTPReadsARotatedSecret(t *testing.T) {
	b := box(t, fakeprovider.Options{Token: "new"})
	reads := 0
	p := reminder.NewHTTP(b.URL(), reminder.Declared{}, func(_ context.Context, fresh bool) (string, error) {
		if fresh {
			reads++
			return "new", nil
		}
		return "old", nil
	}, time.Now)
	t.Cleanup(p.Close)
	if _, err := p.Send(t.Context(), "k1", payload()); err == nil {
		t.Fatal("the old secret was taken")
	}
	if _, err := p.Send(t.Context(), "k1", payload()); err != nil || reads != 1 {
		t.Errorf("after the refusal: %v, %d reads", err, reads)
	}
	broken := reminder.NewHTTP(b.URL(), reminder.Declared{}, func(context.Context, bool) (string, error) {
		return "", errors.New("denied")
	}, time.Now)
	_, err := broken.Send(t.Context(), "k2", payload())
	if class, unresolved := failed(t, err); class != job.Transient || unresolved {
		t.Errorf("no secret: %v", err)
	}
}

// serve is a server that answers every request in the same way.
func serve(t *testing.T, answer func(http.ResponseWriter)) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	t.Cleanup(srv.Close)
	return srv
}

// A body that is cut off proves nothing, even if the part that arrived would.
func TestHTTPACutBodyIsUnknown(t *testing.T) {
	for name, sent := range map[string]string{
		"an empty body without a length": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
		"an empty body with a length":    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
		"null with a longer length":      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nnull",
		"an id with a longer length":     "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"requestId\":\"r-1\"}",
		"a chunk without an end":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnull\r\n",
		"headers without an end":         "HTTP/1.1 200 OK\r\nContent-Len",
	} {
		srv := serve(t, func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte(sent))
			_ = conn.Close()
		})
		p := reminder.NewHTTP(srv.URL, reminder.Declared{BareYes: []int{200}}, reminder.StaticSecret(""), time.Now)
		t.Cleanup(p.Close)
		id, err := p.Send(t.Context(), "k1", payload())
		if id != "" {
			t.Errorf("%s: id %q", name, id)
		}
		if class, unresolved := failed(t, err); class != job.Transient || !unresolved {
			t.Errorf("%s: %s, unresolved %v: %v", name, class, unresolved, err)
		}
	}
}
