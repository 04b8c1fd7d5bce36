package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"acklast/internal/topology"
)

const (
	// sessionLife is how long a browser stays signed in.
	sessionLife = 12 * time.Hour
	// maxForm bounds a form, in bytes: the largest body of a message, each byte of which may need three in a form.
	maxForm = 3*topology.MaxMessageBytes + 64<<10
	// csrfField is the field of a form that has the session's token.
	csrfField = "csrf"
)

// policy is the content security policy. A page may load scripts, styles, pictures and streams of this server, send
// forms to it, and nothing else. A script or a style in the page itself does not count.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard decides which requests are answered.
type guard struct {
	address string // host:port
	cookie  string
	now     func() time.Time
	link    func(string)
	failed  func(http.ResponseWriter, *http.Request, problem)

	mu sync.Mutex
	// token opens a session once.
	token    string
	sessions map[string]session
}

// session is one browser that opened a link.
type session struct {
	csrf  string
	until time.Time
}

func newGuard(address string, now func() time.Time, link func(string)) *guard {
	// Browsers keep cookies by host and not by port: the name keeps two consoles apart.
	_, port, _ := strings.Cut(address, ":")
	return &guard{address: address, cookie: "acklast_console_" + port, now: now, link: link, token: rand.Text(), sessions: map[string]session{}}
}

// invite tells the link of the present token.
func (g *guard) invite() {
	g.mu.Lock()
	link := "http://" + g.address + "/open?token=" + url.QueryEscape(g.token)
	g.mu.Unlock()
	if g.link != nil {
		g.link(link)
	}
}

// protected sets the headers of every answer, and refuses requests that another site made the browser send.
func (g *guard) protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		// Without a referrer to ourselves, browsers send "Origin: null" with our own forms.
		h.Set("Referrer-Policy", "same-origin")
		if p, refused := g.foreign(r); refused {
			g.failed(w, r, p)
			return
		}
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says whether a request is for another server, or comes from pages of another one.
func (g *guard) foreign(r *http.Request) (problem, bool) {
	if r.Host != g.address {
		// Another site's name may resolve to this address, so that the browser takes that site's pages for ours.
		return problem{http.StatusMisdirectedRequest, "This is another address", "The console answers at http://" + g.address + " only.",
			"Open that address. Through SSH, forward the same port: ssh -L " + g.port() + ":" + g.address + " HOST."}, true
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	origin := r.Header.Get("Origin")
	if origin != "" && origin != "http://"+g.address || origin == "" && !reads {
		return problem{http.StatusForbidden, "Refused: another site sent this", fmt.Sprintf("The request names the origin %q.", origin),
			"Nothing was done. Use the console's own pages."}, true
	}
	// Another site's page may link to this one, such as a page that shows the terminal. It may not read from here.
	site := r.Header.Get("Sec-Fetch-Site")
	if own := site == "" || site == "same-origin" || site == "none"; !own && (!reads || r.Header.Get("Sec-Fetch-Mode") != "navigate") {
		return problem{http.StatusForbidden, "Refused: another site sent this", fmt.Sprintf("The browser says that a %s page asks.", site),
			"Nothing was done. Use the console's own pages."}, true
	}
	return problem{}, false
}

func (g *guard) port() string {
	_, port, _ := strings.Cut(g.address, ":")
	return port
}

// open exchanges a link's token for a session.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	id, ok := s.exchange(r.URL.Query().Get("token"))
	if !ok {
		s.problem(w, r, problem{http.StatusForbidden, "This link does not work any more", "A link opens the console once, and this one was used or replaced.",
			"Open the newest link in the terminal where \"acklast console\" runs."})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(sessionLife / time.Second)})
	s.invite()
	// A page and not a redirect: if another site led here, the browser sends the cookie only from our own page.
	s.show(w, r, http.StatusOK, "opened", page{Title: "Opened"})
}

func (g *guard) exchange(token string) (id string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 {
		return "", false
	}
	g.token = rand.Text() // in the same step, so that of two requests at once one opens a session
	id = rand.Text()
	g.sessions[id] = session{csrf: rand.Text(), until: g.now().Add(sessionLife)}
	return id, true
}

type sessionKey struct{}

// sessionOf is the session of a request that signedIn let through.
func sessionOf(r *http.Request) session {
	found, _ := r.Context().Value(sessionKey{}).(session)
	return found
}

// signedIn refuses requests without a session, and changes without the session's token.
func (g *guard) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, ok := g.find(r)
		if !ok {
			g.failed(w, r, problem{http.StatusForbidden, "Not signed in", "This browser has not opened the console's link, or did so more than 12 hours ago.",
				"Open the newest link in the terminal where \"acklast console\" runs."})
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, found))
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := r.ParseForm(); err != nil {
				g.failed(w, r, problem{http.StatusBadRequest, "The form is not readable", err.Error(), "Nothing was done. Go back and send it again."})
				return
			}
			if subtle.ConstantTimeCompare([]byte(r.PostForm.Get(csrfField)), []byte(found.csrf)) != 1 {
				g.failed(w, r, problem{http.StatusForbidden, "Refused: the form is not of this session", "The form has no token, or that of another session.",
					"Nothing was done. Load the page again and send its form."})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) find(r *http.Request) (session, bool) {
	cookies := r.CookiesNamed(g.cookie)
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.IndexFunc(cookies, func(c *http.Cookie) bool { return g.sessions[c.Value].until.After(g.now()) })
	if at < 0 {
		return session{}, false
	}
	return g.sessions[cookies[at].Value], true
}
