package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"acklast/internal/local/faults"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target counts the requests that reach it and answers with their bodies.
type target struct {
	*httptest.Server
	hits atomic.Int64
}

func newTarget(t *testing.T) *target {
	tg := &target{}
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.hits.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+r.Host+" "+r.Header.Get("X-Amz-Target"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(body)
	}))
	t.Cleanup(tg.Close)
	return tg
}

type client struct {
	t    *testing.T
	http *http.Client
	url  string
}

func newClient(t *testing.T, url string) client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return client{t, &http.Client{Transport: tr}, url}
}

type answer struct {
	status int
	body   string
	header http.Header
}

func (c client) post(ctx context.Context, operation, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/path?x=1", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if operation != "" {
		req.Header.Set("X-Amz-Target", operation)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(b), res.Header}, err
}

func (c client) mustPost(operation, body string) answer {
	c.t.Helper()
	a, err := c.post(c.t.Context(), operation, body)
	if err != nil {
		c.t.Fatalf("%s: %v", operation, err)
	}
	return a
}

const (
	write   = "DynamoDB_20120810.TransactWriteItems"
	receive = "AmazonSQS.ReceiveMessage"
)

func setup(t *testing.T) (*faults.Proxy, *target, client) {
	tg := newTarget(t)
	p := faults.New(tg.URL)
	t.Cleanup(p.Close)
	return p, tg, newClient(t, p.URL())
}

func TestForwardsUnchanged(t *testing.T) {
	_, _, c := setup(t)
	a := c.mustPost(write, "a body")
	host := strings.TrimPrefix(c.url, "http://")
	if want := "POST /path?x=1 " + host + " " + write; a.status != 202 || a.body != "a body" || a.header.Get("X-Seen") != want {
		t.Errorf("got %d %q %q, want 202, the body, and %q", a.status, a.body, a.header.Get("X-Seen"), want)
	}
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		fault   faults.Fault
		reaches int64
		status  int    // 0: the connection ends
		want    string // in the body, or in the error
	}{
		{"error", faults.Error(400, "ThrottlingException", "slow down"), 0, 400, `"__type":"ThrottlingException"`},
		{"server error", faults.Error(500, "InternalServerError", ""), 0, 500, "InternalServerError"},
		{"reply", faults.Reply(200, `{"Failed":[]}`), 0, 200, `{"Failed":[]}`},
		{"cancel", faults.CancelTransaction("None", "TransactionConflict"), 0, 400, `"CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict"}]`},
		{"cancel without reasons", faults.CancelTransaction(), 0, 400, `"CancellationReasons":[]`},
		{"drop the answer", faults.DropAnswer(), 1, 0, "EOF"},
		{"refuse", faults.Refuse(), 0, 0, "reset"},
		{"delay", faults.Delay(time.Millisecond), 1, 202, "a body"},
		{"pass", faults.Fault{}, 1, 202, "a body"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, tg, c := setup(t)
			p.Add(faults.Rule{Fault: tt.fault})
			a, err := c.post(t.Context(), write, "a body")
			switch {
			case tt.status == 0 && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			case tt.status != 0 && (err != nil || a.status != tt.status || !strings.Contains(a.body, tt.want)):
				t.Errorf("got %d %q, %v, want %d with %q", a.status, a.body, err, tt.status, tt.want)
			}
			if tg.hits.Load() != tt.reaches {
				t.Errorf("the target saw %d requests, want %d", tg.hits.Load(), tt.reaches)
			}
		})
	}
}

func TestRefuseIsAReset(t *testing.T) {
	p, _, c := setup(t)
	p.Add(faults.Rule{Fault: faults.Refuse()})
	if _, err := c.post(t.Context(), write, ""); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a connection reset", err)
	}
}

func TestRuleMatchesOperationAndBody(t *testing.T) {
	p, tg, c := setup(t)
	p.Add(faults.Rule{
		Operation: "TransactWriteItems",
		Match:     func(body []byte) bool { return bytes.Contains(body, []byte("r-1")) },
		Fault:     faults.Error(400, "ThrottlingException", ""),
	})
	for _, tt := range []struct {
		operation, body string
		status          int
	}{{write, "r-1", 400}, {write, "r-2", 202}, {receive, "r-1", 202}, {"", "r-1", 202}, {"TransactWriteItems", "r-1", 400}} {
		if a := c.mustPost(tt.operation, tt.body); a.status != tt.status {
			t.Errorf("%q %q: got %d, want %d", tt.operation, tt.body, a.status, tt.status)
		}
	}
	if got, want := fmt.Sprint(p.Calls()), "map[:1 ReceiveMessage:1 TransactWriteItems:3]"; got != want {
		t.Errorf("calls are %s, want %s", got, want)
	}
	if tg.hits.Load() != 3 {
		t.Errorf("the target saw %d requests, want 3", tg.hits.Load())
	}
}

func TestTimesOrderRemoveReset(t *testing.T) {
	p, _, c := setup(t)
	status := func() int { return c.mustPost(write, "").status }
	p.Add(faults.Rule{Times: 2, Fault: faults.Error(400, "First", "")})
	remove := p.Add(faults.Rule{Fault: faults.Error(503, "Second", "")})
	if got := fmt.Sprint(status(), status(), status(), status()); got != "400 400 503 503" {
		t.Errorf("got %s, want the first rule twice, then the second", got)
	}
	remove()
	remove()
	if got := status(); got != 202 {
		t.Errorf("a removed rule answered %d", got)
	}
	p.Add(faults.Rule{Fault: faults.Error(503, "Third", "")})
	p.Reset()
	if got := status(); got != 202 {
		t.Errorf("after Reset a rule answered %d", got)
	}
	if got := p.Calls()["TransactWriteItems"]; got != 1 {
		t.Errorf("%d calls since Reset, want 1", got)
	}
}

func TestTimesIsExactUnderConcurrency(t *testing.T) {
	p, tg, c := setup(t)
	const n = 40
	var matching sync.WaitGroup
	matching.Add(n)
	p.Add(faults.Rule{Times: 7, Fault: faults.Error(400, "X", ""), Match: func([]byte) bool {
		matching.Done()
		matching.Wait() // all have matched before the first one takes effect
		return true
	}})
	var failed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if a, err := c.post(t.Context(), write, ""); err != nil {
				t.Error(err)
			} else if a.status == 400 {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() != 7 || tg.hits.Load() != 33 || p.Calls()["TransactWriteItems"] != 40 {
		t.Errorf("%d failed, %d forwarded, %v counted; want 7, 33 and 40", failed.Load(), tg.hits.Load(), p.Calls())
	}
}

func TestDelayEndsWithTheClient(t *testing.T) {
	p, tg, c := setup(t)
	p.Add(faults.Rule{Fault: faults.Delay(time.Hour)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.post(ctx, write, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the client's own timeout", err)
	}
	p.Close() // waits for the delayed request
	if tg.hits.Load() != 0 {
		t.Error("a request that its client gave up was forwarded")
	}
}

func TestHoldAnswerHoldsWhatIsDone(t *testing.T) {
	p, tg, c := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	p.Add(faults.Rule{Fault: faults.HoldAnswer(func() { close(held) })})
	ended := make(chan error)
	go func() {
		_, err := c.post(ctx, write, "a body")
		ended <- err
	}()
	<-held
	if tg.hits.Load() != 1 {
		t.Errorf("the target saw %d requests", tg.hits.Load())
	}
	select {
	case err := <-ended:
		t.Errorf("answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("got an answer")
	}
}

func TestCloseEndsRequestsInFlight(t *testing.T) {
	p, _, c := setup(t)
	p.Add(faults.Rule{Fault: faults.Delay(time.Hour)})
	ended := make(chan error, 1)
	go func() {
		_, err := c.post(context.Background(), write, "")
		ended <- err
	}()
	for p.Calls()["TransactWriteItems"] == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	if err := <-ended; err == nil {
		t.Error("a delayed request was answered")
	}
}

func TestTargetOutOfReachEndsTheConnection(t *testing.T) {
	p := faults.New("http://127.0.0.1:1")
	t.Cleanup(p.Close)
	if _, err := newClient(t, p.URL()).post(t.Context(), write, ""); err == nil {
		t.Error("got an answer from a target that is not there")
	}
}

func TestNewPanicsOnATargetThatIsNoURL(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a target without a host was taken")
		}
	}()
	faults.New("localhost")
}

// The record has the answer although the client never gets it.
func TestATapSeesWhatReachedTheTarget(t *testing.T) {
	tg := newTarget(t)
	p := faults.New(tg.URL)
	t.Cleanup(p.Close)
	var seen []string
	p.Tap(func(_ *http.Request, body []byte) func(int, []byte) {
		return func(status int, answer []byte) {
			seen = append(seen, fmt.Sprint(string(body), " ", status, " ", string(answer)))
		}
	})
	p.Add(faults.Rule{Times: 1, Fault: faults.DropAnswer()})
	p.Add(faults.Rule{Times: 1, Fault: faults.Refuse()})
	for range 3 {
		if res, err := http.Post(p.URL(), "text/plain", strings.NewReader("x")); err == nil {
			_ = res.Body.Close()
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if got, want := fmt.Sprint(seen), "[x 202 x x 202 x]"; got != want {
		t.Errorf("the tap saw %s, want %s", got, want)
	}
}

func TestHalfOfABatchFails(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		_, _ = io.WriteString(w, `{"Successful":[{"Id":"0"}]}`)
	}))
	t.Cleanup(srv.Close)
	p := faults.New(srv.URL)
	t.Cleanup(p.Close)
	p.Add(faults.Rule{Fault: faults.HalfBatch()})
	res, err := http.Post(p.URL(), "application/x-amz-json-1.0", strings.NewReader(`{"Entries":[{"Id":"0"},{"Id":"1"}],"QueueUrl":"q"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if want := `{"Entries":[{"Id":"0"}],"QueueUrl":"q"}`; got != want {
		t.Errorf("the target got %s, want %s", got, want)
	}
	want := `{"Failed":[{"Code":"InternalError","Id":"1","Message":"half of the batch failed","SenderFault":false}],"Successful":[{"Id":"0"}]}`
	if string(answer) != want {
		t.Errorf("the client got %s, want %s", answer, want)
	}
}
