package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"acklast/internal/retry"
)

const (
	runtimeVersion  = "/2018-06-01/runtime"
	headerRequestID = "Lambda-Runtime-Aws-Request-Id"
	headerDeadline  = "Lambda-Runtime-Deadline-Ms"
)

// runtimeAPI is the Lambda Runtime API that the worker's processes talk to. It stands between them and the
// engine's own Runtime API, which notices neither a process's death nor its silence:
//
//	engine ─next─▶ pull ─hand out─▶ session (one life of one process) ─▶ process
//	engine ◀─response or error─ session ◀─ process, or its exit, or the function's timeout
//
// A request for work to the engine outlives the process for which it was made. If the engine answers it after
// that process has died, the next process that asks gets the invocation. So no invocation is lost.
type runtimeAPI struct {
	upstream string // the engine's Runtime API of this function
	timeout  time.Duration
	gate     *gate
	log      *slog.Logger
	client   *http.Client
	server   *http.Server
	address  string

	ctx    context.Context // ends when the API closes
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu         sync.Mutex
	sessions   map[string]*session
	lives      int           // sessions ever opened
	waiting    []*session    // processes that asked for work, longest wait first
	pulling    int           // requests for work at the engine
	orphans    []*invocation // the engine handed them out when no process was waiting
	onEvent    func(Invocation)
	onResponse func(Invocation) Action
	spare      bool // let a process live past the function's timeout
}

// invocation is one request that the engine handed out.
type invocation struct {
	id      string
	header  http.Header
	payload []byte
	pulled  time.Time
}

func newRuntimeAPI(engine, function string, timeout time.Duration, processes int, g *gate, log *slog.Logger) (*runtimeAPI, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the Runtime API: %w", err)
	}
	a := &runtimeAPI{
		upstream: engine + "/_runtime/" + function + runtimeVersion,
		timeout:  timeout,
		gate:     g,
		log:      log,
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * processes}},
		address:  listener.Addr().String(),
		sessions: make(map[string]*session),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.server = &http.Server{Handler: a.routes(), ErrorLog: discardLog(), ReadHeaderTimeout: time.Minute}
	a.tasks.Go(func() { _ = a.server.Serve(listener) }) // always ErrServerClosed
	// The engine refuses to invoke a function until a request to its Runtime API has come in.
	if err := a.post("none", "response", nil); err != nil {
		a.close()
		return nil, fmt.Errorf("register function %s: %w", function, err)
	}
	return a, nil
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

func (a *runtimeAPI) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*session, http.ResponseWriter, *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a.mu.Lock()
			s := a.sessions[r.PathValue("life")]
			a.mu.Unlock()
			if s == nil {
				http.Error(w, "no such process", http.StatusGone)
				return
			}
			h(s, w, r)
		})
	}
	handle("GET /{life}"+runtimeVersion+"/invocation/next", (*session).next)
	handle("POST /{life}"+runtimeVersion+"/invocation/{id}/response", (*session).response)
	handle("POST /{life}"+runtimeVersion+"/invocation/{id}/error", (*session).failure)
	handle("POST /{life}"+runtimeVersion+"/init/error", (*session).initError)
	return mux
}

// close ends every request. Later requests of a process fail.
func (a *runtimeAPI) close() {
	a.mu.Lock() // handOut starts nothing more
	a.cancel()
	a.mu.Unlock()
	_ = a.server.Close()
	a.tasks.Wait()
	for _, inv := range a.orphans {
		a.fail(inv.id, "Sandbox.Closed", "the environment was closed")
	}
	a.client.CloseIdleConnections()
}

// handOut gives the available invocations to waiting processes, and asks the engine for as many more as the
// remaining processes need. After that, an invocation is answered by its process, by the exit of the process,
// or by the timeout, whichever comes first. The caller holds mu.
func (a *runtimeAPI) handOut() {
	if a.ctx.Err() != nil {
		return
	}
	for len(a.orphans) > 0 && len(a.waiting) > 0 {
		inv := a.orphans[0]
		a.orphans = a.orphans[1:]
		if time.Since(inv.pulled) > a.timeout { // the engine has given up the invocation, or is about to
			a.tasks.Go(func() { a.fail(inv.id, "Sandbox.Timedout", "no process took the invocation in time") })
			continue
		}
		s := a.waiting[0]
		a.waiting = a.waiting[1:]
		s.current, s.reason = inv, ""
		s.timer = time.AfterFunc(a.timeout, func() { s.timedOut(inv) })
		s.work <- inv // has room: a process asks again only when it has read what it was given
	}
	for ; a.pulling < len(a.waiting); a.pulling++ {
		a.tasks.Go(func() {
			inv := a.pull()
			a.mu.Lock()
			defer a.mu.Unlock()
			a.pulling--
			if inv != nil {
				a.orphans = append(a.orphans, inv)
				a.handOut()
			}
		})
	}
}

func (a *runtimeAPI) fail(id, kind, message string) {
	body, err := json.Marshal(map[string]string{"errorType": kind, "errorMessage": message})
	if err == nil {
		err = a.post(id, "error", body)
	}
	if err != nil {
		a.log.Error("fail an invocation", "request_id", id, "error", err)
	}
}

// pull waits until the engine hands out an invocation. It returns nil when the API closes.
func (a *runtimeAPI) pull() *invocation {
	for a.ctx.Err() == nil {
		inv, err := a.pullOnce()
		if err == nil {
			return inv
		}
		if a.ctx.Err() == nil {
			a.log.Warn("ask the engine for an invocation", "error", err)
			_ = retry.Sleep(a.ctx, 100*time.Millisecond)
		}
	}
	return nil
}

func (a *runtimeAPI) pullOnce() (*invocation, error) {
	req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, a.upstream+"/invocation/next", nil)
	if err != nil {
		return nil, err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	payload, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	id := res.Header.Get(headerRequestID)
	if res.StatusCode != http.StatusOK || id == "" {
		return nil, fmt.Errorf("status %s", res.Status)
	}
	header := http.Header{}
	for name, values := range res.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "Lambda-") {
			header[name] = values
		}
	}
	return &invocation{id: id, header: header, payload: payload, pulled: time.Now()}, nil
}

// post sends a result to the engine, and repeats it after an error: an invocation without a result would last
// until the engine's own timeout. The engine ignores the second copy of a result.
func (a *runtimeAPI) post(id, result string, body []byte) (err error) {
	for range 3 {
		if err = a.postOnce(id, result, body); err == nil {
			break
		}
	}
	return err
}

func (a *runtimeAPI) postOnce(id, result string, body []byte) error {
	res, err := a.client.Post(a.upstream+"/invocation/"+id+"/"+result, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, copyErr := io.Copy(io.Discard, res.Body)
	if err := cmp.Or(copyErr, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}
