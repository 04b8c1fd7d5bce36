package console

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"acklast/internal/redrive"
)

// action is something that the console can change.
type action struct {
	// Title names it, Button confirms it.
	Title, Button string
	// does says in sentences what will happen, and to what.
	does func(form url.Values) []string
	// request makes the request to the redrive function. An action that needs more than one request, or another service,
	// has do instead.
	request func(form url.Values) (redrive.Request, error)
	do      func(ctx context.Context, stack Stack, form url.Values, by, reason string) (redrive.Response, error)
	// command has the arguments of the command that does the same.
	command func(form url.Values) []string
	// Takes are the fields that identify its object; Asks are fields that a person fills in.
	Takes []string
	Asks  []field
	// Plan says that the person has to see the plan before.
	Plan bool
	// Unrecorded says that no audit keeps it. Then a person gives no name and no reason.
	Unrecorded bool
	// next is the page that shows the result.
	next func(form url.Values, resp redrive.Response) string
}

// field is an input of an action.
type field struct {
	Name, Label, Hint string
	// Text says that it takes a text of several lines, and is required.
	Text bool
}

// confirmData is what is shown before an action.
type confirmData struct {
	Name   string
	Action action
	Does   []string
	// Given are the fields that say what the action is for.
	Given []given
	Asks  []field
	By    string
	Plan  *planData
}

type given struct{ Name, Value string }

// offer is an action as a page offers it: a link if the console writes, and else the command that does the same.
type offer struct {
	Write                       bool
	Label, Class, Href, Command string
}

// offered makes an offer of an action. Its object is a form, or names and values.
func offered(p page, name, label, class string, object ...any) (offer, error) {
	a, ok := actions[name]
	if !ok {
		return offer{}, fmt.Errorf("there is no action %s", name)
	}
	form := url.Values{}
	if len(object) == 1 {
		form, ok = object[0].(url.Values)
	} else if ok = len(object)%2 == 0; ok {
		for i := 0; i < len(object); i += 2 {
			if v := fmt.Sprint(object[i+1]); v != "" {
				form.Set(fmt.Sprint(object[i]), v)
			}
		}
	}
	if !ok {
		return offer{}, fmt.Errorf("the object of action %s is neither a form nor names and values", name)
	}
	o := offer{Write: p.Write, Label: label, Class: class, Href: "/act/" + name}
	if q := form.Encode(); q != "" {
		o.Href += "?" + q
	}
	if !p.Write {
		o.Label, o.Command = strings.TrimSuffix(label, "…"), p.command(a.command(form))
	}
	return o, nil
}

// Listed writes a value for a flag that takes a list separated by commas.
func Listed(value string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{value}) // a Builder takes everything
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

func (s *Server) actionOf(r *http.Request, form url.Values) (string, action, error) {
	name := r.PathValue("action")
	a, ok := actions[name]
	switch {
	case !ok:
		return "", a, problem{http.StatusNotFound, "There is no such action", "The console cannot do " + name + ".", "See \"acklast --help\" for what the command line can do."}
	case !s.config.Write:
		return "", a, problem{http.StatusForbidden, "This console only reads", "It was started without --write, so it changes nothing.",
			"Start it with \"acklast console --write\", or run: " + s.config.Command(a.command(form))}
	}
	return name, a, nil
}

// confirm shows what an action will do, and asks.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	name, a, err := s.actionOf(r, q)
	if err != nil {
		return err
	}
	d := confirmData{Name: name, Action: a, Does: a.does(q), By: s.config.Stack.Place(r.Context()).Caller, Asks: a.Asks}
	for _, field := range a.Takes {
		for _, v := range words(q[field]) {
			d.Given = append(d.Given, given{field, v})
		}
	}
	if a.Plan {
		p, err := s.planOf(r.Context(), q.Get("plan"))
		if err != nil {
			return err
		}
		d.Plan = &p
	}
	s.show(w, r, http.StatusOK, "confirm", page{Title: a.Title, Section: "runs", Data: d})
	return nil
}

// act does what was confirmed.
func (s *Server) act(w http.ResponseWriter, r *http.Request) error {
	form := r.PostForm
	_, a, err := s.actionOf(r, form)
	if err != nil {
		return err
	}
	by, reason := strings.TrimSpace(form.Get("by")), strings.TrimSpace(form.Get("reason"))
	if !a.Unrecorded && (by == "" || reason == "") {
		return badRequest("it needs your name and a reason: the audit keeps both")
	}
	resp, err := a.run(r.Context(), s.config.Stack, form, by, reason)
	if err := asked(resp, err); err != nil {
		return err
	}
	if err := undone(resp.Results); err != nil {
		return err
	}
	http.Redirect(w, r, a.next(form, resp), http.StatusSeeOther)
	return nil
}

func (a action) run(ctx context.Context, stack Stack, form url.Values, by, reason string) (redrive.Response, error) {
	if a.do != nil {
		return a.do(ctx, stack, form, by, reason)
	}
	req, err := a.request(form)
	if err != nil {
		return redrive.Response{}, err
	}
	req.By, req.Reason = by, reason
	return stack.Ask(ctx, req)
}

// undone returns a problem if some objects were left as they were. It names the first one, and why.
func undone(results []redrive.Result) error {
	var first redrive.Result
	n := 0
	for _, r := range results {
		if r.Why != "" {
			if n == 0 {
				first = r
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return problem{http.StatusConflict, fmt.Sprintf("%d of %d messages: not done", n, len(results)),
		fmt.Sprintf("%s: %s. %s", strings.TrimSpace(first.Message+" "+first.Job), first.Result, first.Why), "See the job's page for how it stands."}
}
