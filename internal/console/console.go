// Package console is the operator's web page: it shows a stack, its DLQ, jobs, redrives and audit, and asks the
// redrive function to act on them.
//
// It promises:
//   - It answers on one address of this machine, to the browser that opened a link which works once.
//   - A request from another site, or under another name of this machine, is refused before anything is read.
//   - It changes nothing unless it was started for writing. Then each change is shown first, with stack, place and
//     account, and needs a second request with the session's own token.
//   - It receives from the DLQ only when a person asks for that.
//   - Payloads are hidden until a person asks for one, and the fields that a kind masks stay hidden.
//   - Its pages load nothing from anywhere else, and no character of a sender can control them.
package console

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"acklast/internal/capacity"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// Stack is what the console shows and governs.
type Stack interface {
	// Place says where the stack is, and which identity the console has there.
	Place(ctx context.Context) Place
	// Ask makes a request of the redrive function. A refused request has Response.Refused set, with an error.
	Ask(ctx context.Context, r redrive.Request) (redrive.Response, error)
	// Run begins or continues a run and returns. The run then goes on without its caller.
	Run(ctx context.Context, r redrive.Request) (redrive.Response, error)
	// Stop throws the kill switch, directly if the function does not answer.
	Stop(ctx context.Context, by, reason string) (redrive.Response, error)
	// Cancel ends a job that has not run yet. If notBefore is not zero, the job stays cancelled until after that time.
	// A refused request has Response.Refused set, with an error.
	Cancel(ctx context.Context, key string, notBefore time.Time, by, reason string) (redrive.Response, error)
	// SetLane pauses a lane, or lets the worker receive from it again.
	SetLane(ctx context.Context, lane job.Queue, running bool) error
	// Measure reads what the stack tells about itself, with the rates of the window before now. It receives no message.
	Measure(ctx context.Context, window time.Duration) (capacity.Measured, error)
	// Job reports on the job of a key, or on all jobs of a subject. It receives no message.
	Job(ctx context.Context, asked string) (Job, error)
	// Standing says how the stack stands now. It receives no message.
	Standing(ctx context.Context) (Standing, error)
	// Isolated returns the isolated jobs, by the ledger's index, the newest first. more says that there are more. It
	// receives no message.
	Isolated(ctx context.Context) (jobs []ledger.IsolatedJob, more bool, err error)
}

// Place is where a stack is.
type Place struct {
	Stack string
	// At is the address or the region.
	At string
	// Account and Caller are those that AWS names. Otherwise Account is "unknown", and Caller the user of this machine.
	Account, Caller string
	// Skew says that the redrive function has another version; "" if it has the same, or has not answered yet.
	Skew string
}

// Job is what is known about a job or a subject.
type Job struct {
	Entries []ledger.Entry
	Records []redrive.Explanation
	// Meaning explains the entries, or their absence, in sentences.
	Meaning []string
	// Note says what could not be read.
	Note string
}

// Config is what a console needs.
type Config struct {
	Stack Stack
	// Write allows actions that change something.
	Write bool
	// Command writes the command line with the arguments, for the same stack and place. By default it joins them.
	Command func(args []string) string
	// Version is the command line's.
	Version string
	// Link is called with the link to open, and again with a new one whenever one was used.
	Link func(link string)
	Now  func() time.Time
}

//go:embed assets
var assets embed.FS

// Server serves the console of one stack.
type Server struct {
	*guard
	config Config
	looks  *looks
	pages  http.Handler
	// ends is closed when the server ends; streams end then.
	ends <-chan struct{}
}

// New returns the console for the address "127.0.0.1:port" under which a browser reaches it. Streams end with ctx.
func New(ctx context.Context, address string, c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Command == nil {
		c.Command = func(args []string) string { return strings.Join(append([]string{"acklast"}, args...), " ") }
	}
	s := &Server{config: c, guard: newGuard(address, c.Now, c.Link), looks: newLooks(), ends: ctx.Done()}
	s.failed = func(w http.ResponseWriter, r *http.Request, p problem) { s.problem(w, r, p) }
	mux := http.NewServeMux()
	embedded, _ := fs.Sub(assets, "assets")
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(embedded)))
	mux.HandleFunc("GET /open", s.open)
	private := http.NewServeMux()
	s.routes(private)
	mux.Handle("/", s.signedIn(private))
	s.pages = s.protected(mux)
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.pages.ServeHTTP(w, r) }

// routes are the pages that need a session.
func (s *Server) routes(mux *http.ServeMux) {
	for pattern, page := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":             s.overview,
		"GET /live":            s.overviewLive,
		"GET /dlq":             s.dlq,
		"POST /looks":          s.look,
		"GET /looks/{look}":    s.showLook,
		"GET /messages/{id}":   s.message,
		"POST /messages/{id}":  s.lookAtMessage,
		"GET /jobs":            s.jobs,
		"GET /runs":            s.runs,
		"GET /plans/{plan}":    s.plan,
		"GET /runs/{run}":      s.run,
		"GET /runs/{run}/live": s.runLive,
		"GET /audit":           s.audit,
		"GET /capacity":        s.capacity,
		"GET /act/{action}":    s.confirm,
		"POST /act/{action}":   s.act,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := page(w, r); err != nil {
				s.problem(w, r, problemOf(err))
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, problem{http.StatusNotFound, "There is no such page", "The console has no page at this address.", "Go on with the overview."})
	})
}

// Serve serves the console on the listener until ctx ends. The listener's address has to be of this machine.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return errors.Join(errors.New("the console listens on an address of this machine only, and not on "+l.Addr().String()), l.Close())
	}
	s := New(ctx, l.Addr().String(), c)
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	s.invite()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := server.Shutdown(ending); err != nil {
			return server.Close() // an open page must not keep the command running
		}
		return nil
	}
}
