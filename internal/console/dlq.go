package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// jobsShown is how many jobs of the index one page lists.
const jobsShown = 100

// dlqData is what the page about the DLQ shows, by the ledger's index.
type dlqData struct {
	Filter redrive.Filter
	Form   url.Values
	Groups []Group
	Jobs   []ledger.IsolatedJob
	// Matching counts the jobs that match, of which Jobs are the newest.
	Matching, All int
	// More says that the index has more jobs than were read.
	More bool
	// Newer says which jobs are left out: a newer version wrote their entries.
	Newer string
	// Unindexed says which conditions the index cannot check.
	Unindexed bool
	Classes   []string
}

var classes = []string{"transient", "throttled", "unknown", "invalid", "rejected", "ambiguous", "crashed"}

func (s *Server) dlq(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	jobs, more, err := s.config.Stack.Isolated(r.Context())
	if err != nil {
		return err
	}
	d := dlqData{Filter: f, Form: q, All: len(jobs), More: more, Classes: classes, Unindexed: len(f.Attributes)+len(f.Payload) > 0}
	d.Newer = newerOf(jobs)
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j ledger.IsolatedJob) bool { return j.Newer > 0 || !indexed(f, j, s.config.Now()) })
	d.Matching, d.Groups, d.Jobs = len(jobs), groupsOf(jobs), jobs[:min(len(jobs), jobsShown)]
	s.show(w, r, http.StatusOK, "dlq", page{Title: "Dead-letter queue", Section: "dlq", Data: d})
	return nil
}

// newerOf says which jobs have an entry that a newer version wrote; "" without any.
func newerOf(jobs []ledger.IsolatedJob) string {
	var newer []ledger.IsolatedJob
	for _, j := range jobs {
		if j.Newer > 0 {
			newer = append(newer, j)
		}
	}
	if len(newer) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d isolated jobs are left out: the entry of %s has format %d, but this acklast reads up to %d. Update this acklast.",
		len(newer), len(jobs), newer[0].Key, newer[0].Newer, ledger.Format)
}

// indexed says whether a job matches those conditions that the index can check. The index keeps an error's
// fingerprint instead of its text, so the text is searched there.
func indexed(f redrive.Filter, j ledger.IsolatedJob, now time.Time) bool {
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	age := now.Sub(j.At)
	older, younger := ageOf(f.OlderThan), ageOf(f.YoungerThan)
	return (len(f.Classes) == 0 || slices.Contains(f.Classes, j.Class)) && in(f.Kinds, j.Kind) && in(f.Fingerprints, j.Fingerprint) &&
		in(f.Keys, j.Key) && in(f.Subjects, j.Subject) && in(f.Messages, j.MessageID) &&
		strings.Contains(strings.ToLower(j.Fingerprint), strings.ToLower(f.ErrorText)) &&
		(older == 0 || age > older) && (younger == 0 || age < younger)
}

// filterOf reads a selection from a form. An empty form gives a filter without conditions.
func filterOf(q url.Values) (redrive.Filter, error) {
	f := redrive.Filter{Kinds: words(q["kind"]), Keys: words(q["job"]), Subjects: words(q["subject"]), Messages: words(q["message"]), Fingerprints: words(q["fingerprint"]),
		ErrorText: strings.TrimSpace(q.Get("error")), OlderThan: strings.TrimSpace(q.Get("older")), YoungerThan: strings.TrimSpace(q.Get("younger"))}
	for _, c := range words(q["class"]) {
		if !slices.Contains(classes, c) {
			return f, badRequest("%q is no class", c)
		}
		f.Classes = append(f.Classes, job.Class(c))
	}
	for _, a := range words(q["attribute"]) {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return f, badRequest("the attribute is %q, want NAME=VALUE", a)
		}
		if f.Attributes == nil {
			f.Attributes = map[string]string{}
		}
		f.Attributes[name] = value
	}
	for name, text := range map[string]string{"older than": f.OlderThan, "younger than": f.YoungerThan} {
		if text != "" && ageOf(text) == 0 {
			return f, badRequest("%s is %q, want an age such as 30m or 7d", name, text)
		}
	}
	return f, nil
}

// selection is a filter for a request: without conditions it says that everything is meant.
func selection(f redrive.Filter) *redrive.Filter {
	if b, err := json.Marshal(f); err == nil && string(b) == "{}" {
		f.All = true
	}
	return &f
}

func words(list []string) (kept []string) {
	for _, v := range list {
		if v = strings.TrimSpace(v); v != "" {
			kept = append(kept, v)
		}
	}
	return kept
}

// ageOf reads an age such as 30m or 7d; 0 if it is none. The redrive function reads it again, by its own rule.
func ageOf(text string) time.Duration {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 10_000 {
			return 0
		}
		return time.Duration(n) * 24 * time.Hour
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// look receives from the DLQ because a person asked for it, and keeps the answer.
func (s *Server) look(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r.PostForm)
	if err != nil {
		return err
	}
	resp, err := s.config.Stack.Ask(r.Context(), redrive.Request{Action: "inspect", Select: selection(f), List: true})
	if err := looked(resp, err); err != nil {
		return err
	}
	http.Redirect(w, r, "/looks/"+s.looks.add(s.config.Now(), f, resp), http.StatusSeeOther)
	return nil
}

func (s *Server) showLook(w http.ResponseWriter, r *http.Request) error {
	l, ok := s.looks.get(r.PathValue("look"))
	if !ok {
		return problem{http.StatusNotFound, "This look is not kept any more", "The console keeps the newest 20.", "Look again, on the page of the DLQ."}
	}
	s.show(w, r, http.StatusOK, "look", page{Title: "Messages on the DLQ", Section: "dlq", Data: l})
	return nil
}

// messageData is what the page of one message shows.
type messageData struct {
	ID   string
	Seen bool
	At   time.Time
	View *redrive.MessageView
	// Payload is the job as it was sent, with masked fields hidden; Asked says that a person asked for it.
	Payload string
	Masked  []string
	Note    string
	Asked   bool
	Picture *picture
	Steps   []step
}

func (s *Server) message(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	d := messageData{ID: id}
	if l, ok := s.looks.seen(id); ok {
		d.Seen, d.At, d.View = true, l.At, l.Resp.Message
	}
	if d.View != nil && d.View.Body != "" {
		d.Asked = true
		d.Payload, d.Masked, d.Note = s.payload(r.Context(), d.View.Body)
	}
	if d.View != nil && d.View.Entry != nil {
		d.Steps = steps(*d.View.Entry, s.config.Now())
		drawn := draw(d.Steps)
		d.Picture = &drawn
	}
	s.show(w, r, http.StatusOK, "message", page{Title: "Message", Section: "dlq", Data: d})
	return nil
}

func (s *Server) lookAtMessage(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	resp, err := s.config.Stack.Ask(r.Context(), redrive.Request{Action: "inspect", Message: id, WithBody: r.PostForm.Get("payload") == "yes"})
	if err := looked(resp, err); err != nil {
		return err
	}
	if resp.Message == nil {
		why := "The redrive function did not find it on the DLQ."
		if resp.Scan != nil && resp.Scan.Partial != "" {
			why = resp.Scan.Partial
		}
		return problem{http.StatusNotFound, "The message was not seen", why, "Look at the DLQ again: a message has a new id after each isolation."}
	}
	s.looks.see(id, s.config.Now(), resp)
	http.Redirect(w, r, "/messages/"+url.PathEscape(id), http.StatusSeeOther)
	return nil
}

// hidden stands for a value that is never shown.
const hidden = "hidden"

// payload is a body for a page: the job in it, with the fields hidden that its kind masks. If it is not known which
// fields the kind masks, the payload stays hidden.
func (s *Server) payload(ctx context.Context, body string) (shown string, masked []string, note string) {
	e, err := job.Decode([]byte(body))
	if err != nil {
		return "", nil, "The body is not a job, so nobody can say which part of it may be shown. \"acklast dlq --show MESSAGE --body\" prints it as it is."
	}
	resp, err := s.config.Stack.Ask(ctx, redrive.Request{Action: "kinds"})
	at := slices.IndexFunc(resp.Kinds, func(k redrive.KindState) bool { return k.Kind == e.Kind && k.Masked != nil })
	if err != nil || at < 0 {
		return "", nil, "The redrive function does not know which fields of this kind may be shown. \"acklast dlq --show MESSAGE --body\" prints the body as it is."
	}
	masked = resp.Kinds[at].Masked
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(e.Payload, &fields); err != nil {
		return "", masked, "The payload is not an object, so no field of it can be hidden. \"acklast dlq --show MESSAGE --body\" prints it as it is."
	}
	for name := range fields {
		// The decoder takes a field by its exact name; a sender's other spelling is hidden too.
		if slices.ContainsFunc(masked, func(m string) bool { return strings.EqualFold(m, name) }) {
			fields[name], _ = json.Marshal(hidden)
		}
	}
	job := struct {
		Kind      string                     `json:"kind"`
		NotBefore time.Time                  `json:"notBefore,omitzero"`
		Deadline  time.Time                  `json:"deadline,omitzero"`
		Payload   map[string]json.RawMessage `json:"payload"`
	}{e.Kind, e.NotBefore, e.Deadline, fields}
	text, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return "", masked, err.Error()
	}
	return string(text), masked, ""
}
