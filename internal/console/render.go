package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"acklast/internal/capacity"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

//go:embed templates
var templateFiles embed.FS

// page is what every page shows.
type page struct {
	// Title is the page's; Section is its entry in the navigation.
	Title, Section string
	Data           any
	// The rest is filled in by show.
	Place   Place
	Write   bool
	CSRF    string
	Version string
	Now     time.Time
	// command writes a command line.
	command func(args []string) string
}

// problem is what a page says when something did not work.
type problem struct {
	Status int
	// What happened, why, and what to do next.
	What, Why, Next string
}

func (p problem) Error() string { return p.What + ": " + p.Why }

// problemOf turns an error into what the page says.
func problemOf(err error) problem {
	var p problem
	if errors.As(err, &p) {
		return p
	}
	return problem{http.StatusBadGateway, "The stack did not answer", err.Error(), "Load the page again. If it stays so, \"acklast status\" may say more."}
}

// asked returns a problem if the redrive function refused the request, and otherwise err.
func asked(resp redrive.Response, err error) error {
	if err != nil && resp.Refused != "" {
		return problem{http.StatusConflict, "It was refused", resp.Refused, "Nothing was changed."}
	}
	return err
}

// looked is asked for an answer to inspect: a run that goes on answers for the DLQ.
func looked(resp redrive.Response, err error) error {
	if err == nil && resp.Run != nil && resp.Message == nil {
		return problem{http.StatusConflict, "A run holds the DLQ", "Run " + resp.Run.ID + " is going on and holds the messages, so nothing was received.",
			"Watch or stop it on its page, under Redrives. Look again after the run."}
	}
	return asked(resp, err)
}

func badRequest(format string, args ...any) error {
	return problem{http.StatusBadRequest, "The form cannot be used", fmt.Sprintf(format, args...), "Nothing was done. Go back and change it."}
}

// functions are those of the templates. now is the time of the page.
func functions(now time.Time) template.FuncMap {
	return template.FuncMap{
		"ago":      func(t time.Time) string { return distance(t, now) },
		"stamp":    stamp,
		"duration": rough,
		"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"actions":  actionsOf,
		"act":      offered,
		"lane": func(p page, l Lane) any {
			return struct {
				Page page
				Lane Lane
			}{p, l}
		},
		"dash": func(v any) string {
			if s := strings.TrimSpace(fmt.Sprint(v)); s != "" {
				return s
			}
			return "–"
		},
		"join": strings.Join,
		"query": func(pairs ...any) (template.URL, error) {
			if len(pairs)%2 != 0 {
				return "", errors.New("query takes names and values")
			}
			q := url.Values{}
			for i := 0; i < len(pairs); i += 2 {
				if v := fmt.Sprint(pairs[i+1]); v != "" {
					q.Set(fmt.Sprint(pairs[i]), v)
				}
			}
			return template.URL(q.Encode()), nil //nolint:gosec // it is encoded
		},
		"settled": settled,
		"rate":    capacity.Rate,
		"share":   func(v float64) string { return capacity.Rate(100*v) + " %" },
		"tone":    tone,
		"requests": func(e ledger.Entry) string {
			var ids []string
			for _, ev := range e.Evidence {
				if ev.RequestID != "" && !slices.Contains(ids, ev.RequestID) {
					ids = append(ids, ev.RequestID)
				}
			}
			return strings.Join(ids, ", ")
		},
	}
}

// tone is the colour of a word that says how something stands.
func tone(v any) string {
	switch fmt.Sprint(v) {
	case "done", "succeeded", "removed", "removed as a copy", "passed", "acknowledged":
		return "good"
	case "active", "running", "planned", "sent", "pending":
		return "busy"
	case "halted", "isolated", "isolated again", "expired", "still retrying", "revoked", "crashed", "ambiguous":
		return "bad"
	}
	return "plain"
}

// count is a number with its name.
type count struct {
	Name string
	N    int
}

func counts[K ~string](m map[K]int) []count {
	var list []count
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, count{string(name), m[name]})
	}
	return list
}

func actionsOf(m map[redrive.Action]int) string {
	var list []string
	for _, c := range counts(m) {
		list = append(list, fmt.Sprintf("%s %d", c.Name, c.N))
	}
	return strings.Join(list, ", ")
}

// settled counts the messages of a run that are done with.
func settled(run redrive.Run) (n int) {
	for what, count := range run.Counts {
		if what != "unsent" && what != "unsure" {
			n += count
		}
	}
	return n
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999 UTC") }

// distance is how far a time is from now, in words.
func distance(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "–"
	case d >= 0 && d < time.Second:
		return "just now"
	case d < 0:
		return "in " + rough(-d)
	default:
		return rough(d) + " ago"
	}
}

// rough writes a duration to about two digits.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", d/day)
}

// parsed are the templates, without the functions of a request.
var parsed = template.Must(template.New("").Funcs(functions(time.Time{})).ParseFS(templateFiles, "templates/*.html"))

// render executes a template. Every character that could control a terminal, a reader's direction of text or the
// page is replaced, wherever it came from: html/template makes text harmless as HTML, and this as text.
func render(name string, p page) ([]byte, error) {
	t, err := parsed.Clone()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Funcs(functions(p.Now)).ExecuteTemplate(&out, name, p); err != nil {
		return nil, err
	}
	return bytes.Map(printable, out.Bytes()), nil
}

func printable(r rune) rune {
	switch {
	case r == '\n':
		return r
	case r == '\t' || r == '\r':
		return ' '
	case !unicode.IsPrint(r):
		return utf8.RuneError
	}
	return r
}

func (s *Server) fill(r *http.Request, p page) page {
	p.Place, p.Write, p.Version, p.Now, p.CSRF = s.config.Stack.Place(r.Context()), s.config.Write, s.config.Version, s.config.Now(), sessionOf(r).csrf
	p.command = s.config.Command
	return p
}

// show answers with a page.
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if sessionOf(r).csrf != "" { // without a session, no page tells anything about the stack
		p = s.fill(r, p)
	}
	body, err := render(name, p)
	if err != nil {
		http.Error(w, "The page cannot be written: "+strings.Map(printable, err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (s *Server) problem(w http.ResponseWriter, r *http.Request, p problem) {
	s.show(w, r, p.Status, "problem", page{Title: p.What, Data: p})
}
