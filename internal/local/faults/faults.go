// Package faults is an HTTP proxy that makes an AWS-like endpoint fail on purpose.
//
// It stands between a client and the endpoint. So tests and the demo use the real SDK and the real binaries,
// and the code under test needs no hook for failing. The package promises three things. A request that matches
// no rule passes unchanged. A rule takes effect on exactly as many requests as it says, also when they come at
// once. Close leaves nothing running.
//
//	proxy := faults.New(endpoint)
//	defer proxy.Close()
//	proxy.Add(faults.Rule{Operation: "TransactWriteItems", Times: 1, Fault: faults.DropAnswer()})
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Proxy forwards every request to its target, except those that match a rule.
type Proxy struct {
	target    *url.URL
	url       string
	server    *http.Server
	transport *http.Transport

	listening sync.WaitGroup

	mu     sync.Mutex
	rules  []*rule
	calls  map[string]int
	active int
	// observe sees every request. It may be nil.
	observe func(r *http.Request, body []byte)
	// tap sees every request that reaches the target, and its answer. It may be nil.
	tap  Tap
	idle sync.Cond
}

// Tap is called when a request is about to reach the target. The function that it returns is called with the
// target's answer, before the client can see the answer. status is 0 if the target gave none, so that nobody
// knows whether the request took effect. Several goroutines may call a Tap at once.
type Tap func(r *http.Request, body []byte) (answered func(status int, answer []byte))

// Tap records what reaches the target from now on. A request then reaches it also if its client is gone
// meanwhile, so that the record knows the answer.
func (p *Proxy) Tap(t Tap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tap = t
}

// Rule says which requests fail, and how. If several rules match, the one added first applies.
type Rule struct {
	// Operation is the operation's name in the SDK, such as "TransactWriteItems"; "" is any.
	Operation string
	// Match looks at the request's body; nil matches all. It may be called concurrently.
	Match func(body []byte) bool
	// Times is how many requests the rule applies to; 0 is every one until the rule is removed.
	Times int
	// Fault is what happens to the request.
	Fault Fault
}

type rule struct {
	Rule
	left int
}

// New starts a proxy in front of the endpoint target, such as "http://127.0.0.1:4566". It panics if target is
// no absolute URL, or if it cannot listen on 127.0.0.1, since no caller could repair either.
func New(target string) *Proxy {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		panic(fmt.Sprintf("faults: target %q is not an absolute URL", target))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("faults: listen: %v", err))
	}
	p := &Proxy{
		target: u,
		url:    "http://" + l.Addr().String(),
		// Client and target agree on the compression; the proxy passes the answer on byte by byte.
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		calls:     map[string]int{},
	}
	p.idle.L = &p.mu
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	p.listening.Go(func() { _ = p.server.Serve(l) }) // always ends with ErrServerClosed
	return p
}

// URL is the proxy's own address, to be used as the client's endpoint.
func (p *Proxy) URL() string { return p.url }

// Close drops every connection, ends requests in flight and waits until they have ended.
func (p *Proxy) Close() {
	// This also ends the contexts of requests in flight. Its error needs no action.
	_ = p.server.Close()
	p.listening.Wait()
	p.mu.Lock()
	for p.active > 0 {
		p.idle.Wait()
	}
	p.mu.Unlock()
	p.transport.CloseIdleConnections()
}

// Add puts a rule into force. The returned function removes it; calling it twice is safe.
func (p *Proxy) Add(r Rule) (remove func()) {
	added := &rule{Rule: r, left: r.Times}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, added)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(added)
	}
}

// Calls returns how many requests came in for each operation, forwarded and failed ones alike.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// Reset removes every rule and forgets the counts.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	clear(p.calls)
}

// ServeHTTP applies the first rule that matches, or forwards the request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.Header.Get("X-Amz-Target")
	operation := target[strings.LastIndexByte(target, '.')+1:]

	p.mu.Lock()
	p.calls[operation]++
	p.active++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.active--; p.active == 0 {
			p.idle.Broadcast()
		}
	}()

	// Read the whole body before answering. Otherwise net/http drops the connection after the answer, and the
	// SDK takes that for one more fault.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	p.mu.Lock()
	observe := p.observe
	p.mu.Unlock()
	if observe != nil {
		observe(r, body)
	}
	x := &exchange{proxy: p, ctx: r.Context(), w: w, r: r, body: body}
	if f, ok := p.claim(operation, body); ok {
		f.apply(x)
		return
	}
	x.answer(x.forward()) //nolint:bodyclose // answer closes it
}

// claim finds the rule for a request and counts one use of it. It calls Match without the lock, since Match is
// the caller's code. So the uses of a matching rule may have run out meanwhile; then claim tries the next rule.
func (p *Proxy) claim(operation string, body []byte) (Fault, bool) {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, r := range rules {
		if r.Operation != "" && r.Operation != operation || r.Match != nil && !r.Match(body) {
			continue
		}
		p.mu.Lock()
		ok := slices.Contains(p.rules, r)
		if ok && r.Times > 0 {
			if r.left--; r.left == 0 {
				p.drop(r)
			}
		}
		p.mu.Unlock()
		if ok {
			return r.Fault, true
		}
	}
	return Fault{}, false
}

func (p *Proxy) drop(r *rule) {
	p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
}

// Fault is what happens to a request that matches a rule. The zero Fault forwards the request: use it to let a
// few requests pass before the next rule applies.
type Fault struct{ do func(*exchange) }

func (f Fault) apply(x *exchange) {
	if f.do == nil {
		x.answer(x.forward()) //nolint:bodyclose // answer closes it
		return
	}
	f.do(x)
}

// Error answers with an AWS JSON error, such as 400 and "ThrottlingException". The target never sees
// the request.
func Error(status int, code, message string) Fault {
	return Reply(status, mustJSON(map[string]string{"__type": code, "message": message}))
}

// Reply answers with the given status and JSON body. The target never sees the request.
func Reply(status int, body string) Fault {
	return Fault{func(x *exchange) {
		x.w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		x.w.WriteHeader(status)
		_, _ = io.WriteString(x.w, body)
	}}
}

// CancelTransaction answers a TransactWriteItems call with a TransactionCanceledException. Its reasons have
// these codes, one for each item of the transaction, in its order. "None" means that the item was no reason.
// Without codes the list is empty.
func CancelTransaction(codes ...string) Fault {
	type reason struct{ Code string }
	reasons := make([]reason, 0, len(codes))
	for _, c := range codes {
		reasons = append(reasons, reason{c})
	}
	return Reply(http.StatusBadRequest, mustJSON(map[string]any{
		"__type":              "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
		"Message":             "Transaction cancelled, please refer cancellation reasons for specific reasons",
		"CancellationReasons": reasons,
	}))
}

// DropAnswer forwards the request, waits for the whole answer and closes the connection instead of passing the
// answer on. The write is then committed, but the client cannot know that.
func DropAnswer() Fault {
	return Fault{func(x *exchange) {
		if res, err := x.forward(); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		panic(http.ErrAbortHandler)
	}}
}

// HoldAnswer forwards the request, waits for the whole answer, calls held, and then keeps the client waiting
// until it is gone. Use it to kill a client whose write is committed.
func HoldAnswer(held func()) Fault {
	return Fault{func(x *exchange) {
		if res, err := x.forward(); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		held()
		<-x.ctx.Done()
		panic(http.ErrAbortHandler)
	}}
}

// Refuse resets the connection. The target never sees the request.
func Refuse() Fault {
	return Fault{func(x *exchange) {
		if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
			// Without lingering, closing sends a reset and not an orderly end.
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
			return
		}
		panic(http.ErrAbortHandler)
	}}
}

// Delay waits before it forwards the request. If the client gives up meanwhile, the request is not forwarded.
func Delay(d time.Duration) Fault {
	return Fault{func(x *exchange) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			x.answer(x.forward()) //nolint:bodyclose // answer closes it
		case <-x.ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}}
}

// HalfBatch forwards the first half of a batch request, such as SendMessageBatch, and answers that the other half
// failed by the service's fault. A batch of one entry fails as a whole.
func HalfBatch() Fault {
	return Fault{func(x *exchange) {
		var in map[string]json.RawMessage
		var entries []json.RawMessage
		if json.Unmarshal(x.body, &in) != nil || json.Unmarshal(in["Entries"], &entries) != nil {
			x.answer(x.forward()) //nolint:bodyclose // answer closes it
			return
		}
		out := map[string]json.RawMessage{"Successful": json.RawMessage("[]")}
		if half := entries[:len(entries)/2]; len(half) > 0 {
			in["Entries"] = json.RawMessage(mustJSON(half))
			x.body = []byte(mustJSON(in))
			x.r.Header.Del("Content-Length")
			res, err := x.forward()
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			defer func() { _ = res.Body.Close() }()
			if res.StatusCode != http.StatusOK || json.NewDecoder(res.Body).Decode(&out) != nil {
				panic(http.ErrAbortHandler)
			}
		}
		var failed []map[string]any
		for _, raw := range entries[len(entries)/2:] {
			var e struct {
				ID string `json:"Id"`
			}
			_ = json.Unmarshal(raw, &e) // without an id the failure names nothing, as the entry does
			failed = append(failed, map[string]any{"Id": e.ID, "Code": "InternalError", "SenderFault": false, "Message": "half of the batch failed"})
		}
		out["Failed"] = json.RawMessage(mustJSON(failed))
		x.w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(x.w, mustJSON(out))
	}}
}

// exchange is one request and the way to answer it.
type exchange struct {
	proxy *Proxy
	ctx   context.Context
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
}

// forward sends the request to the target unchanged. Its Host is kept too, since that is signed.
func (x *exchange) forward() (*http.Response, error) {
	u := *x.proxy.target
	u.Path, u.RawPath = x.r.URL.Path, x.r.URL.RawPath
	if base := strings.TrimSuffix(x.proxy.target.Path, "/"); base != "" {
		u.Path, u.RawPath = base+u.Path, ""
	}
	u.RawQuery = x.r.URL.RawQuery
	x.proxy.mu.Lock()
	tap := x.proxy.tap
	x.proxy.mu.Unlock()
	ctx := x.ctx
	if tap != nil {
		ctx = context.WithoutCancel(ctx)
	}
	out, err := http.NewRequestWithContext(ctx, x.r.Method, u.String(), bytes.NewReader(x.body))
	if err != nil {
		return nil, err
	}
	out.Header = x.r.Header.Clone()
	out.Header.Del("Connection")
	out.Host = x.r.Host
	if tap == nil {
		return x.proxy.transport.RoundTrip(out)
	}
	answered := tap(x.r, x.body)
	res, err := x.proxy.transport.RoundTrip(out)
	if err != nil {
		answered(0, nil)
		return nil, err
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		answered(0, nil)
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	answered(res.StatusCode, answer)
	return res, nil
}

// answer passes the target's answer on. If the target cannot be reached or the answer breaks off, the
// connection ends, as it would without the proxy.
func (x *exchange) answer(res *http.Response, err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = res.Body.Close() }()
	maps.Copy(x.w.Header(), res.Header)
	x.w.Header().Del("Connection")
	x.w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(x.w, res.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and lists of strings always encode
	}
	return string(b)
}
