package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// action is something that the console can change.
type action struct {
	// Title names it, Button confirms it.
	Title, Button string
	// does says in sentences what will happen, and to what.
	does func(form url.Values) []string
	// request is what the redrive function is asked.
	request func(form url.Values) (redrive.Request, error)
	// Takes are the fields that identify its object; Asks are fields that a person fills in.
	Takes []string
	Asks  []field
	// Plan says that the person has to see the plan before.
	Plan bool
	// next is the page that shows the result.
	next func(form url.Values, resp redrive.Response) string
}

// field is an input of an action.
type field struct {
	Name, Label, Hint, Value string
}

func toRun(_ url.Values, resp redrive.Response) string {
	if resp.Run == nil {
		return "/runs"
	}
	return "/runs/" + url.PathEscape(resp.Run.ID)
}

func toPlan(form url.Values, resp redrive.Response) string {
	id := form.Get("plan")
	if resp.Plan != nil {
		id = resp.Plan.ID
	}
	return "/plans/" + url.PathEscape(id)
}

func toRuns(url.Values, redrive.Response) string { return "/runs" }

// selectionFields are the fields of a form that select messages.
var selectionFields = []string{"class", "kind", "job", "subject", "message", "fingerprint", "error", "attribute", "older", "younger"}

// actions are everything that the console can change. The command line can do the same, and more.
var actions = map[string]action{
	"plan": {
		Title: "Plan a redrive", Button: "Make the plan", Takes: selectionFields,
		Asks: []field{
			{Name: "rate", Label: "Messages per second", Hint: "Empty is the stack's default. -1 is no limit."},
			{Name: "canary", Label: "Jobs in the canary", Hint: "They go first and are judged. Empty is the stack's default."},
		},
		does: func(url.Values) []string {
			return []string{
				"The redrive function receives the messages of the DLQ, joins each with its ledger entry and freezes those that match. They are hidden for a moment, and their receive counts grow.",
				"Nothing is moved. The plan says what would become of each message, and whether somebody else has to approve it.",
			}
		},
		request: func(form url.Values) (redrive.Request, error) {
			f, err := filterOf(form)
			if err != nil {
				return redrive.Request{}, err
			}
			r := redrive.Request{Action: "plan", Select: selection(f)}
			for name, to := range map[string]*int{"rate": &r.RatePerSecond, "canary": &r.Canary} {
				if text := strings.TrimSpace(form.Get(name)); text != "" {
					if *to, err = strconv.Atoi(text); err != nil {
						return r, badRequest("%s is %q, want a whole number", name, text)
					}
				}
			}
			return r, nil
		},
		next: toPlan,
	},
	"approve": {
		Title: "Approve a plan", Button: "Approve the plan", Takes: []string{"plan"}, Plan: true,
		does: func(form url.Values) []string {
			return []string{"Plan " + form.Get("plan") + " may then run. Nothing is moved yet.",
				"Whoever made the plan cannot approve it. The approval is recorded with your name and reason."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "approve", Plan: form.Get("plan")}, nil
		},
		next: toPlan,
	},
	"run": {
		Title: "Run a plan", Button: "Start the run", Takes: []string{"plan"}, Plan: true,
		does: func(form url.Values) []string {
			return []string{"The messages of plan " + form.Get("plan") + " move from the DLQ to the recovery lane: a canary first, which the ledger judges, then the rest at the plan's rate.",
				"Their jobs run again. The run stops itself when too many of them fail, and you can stop it at any time."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "run", Plan: form.Get("plan")}, nil
		},
		next: toRun,
	},
	"continue": {
		Title: "Continue a run", Button: "Continue the run", Takes: []string{"run"},
		does: func(form url.Values) []string {
			return []string{"Run " + form.Get("run") + " goes on where it halted, with a fresh canary."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "run", Run: form.Get("run")}, nil
		},
		next: toRun,
	},
	"stop": {
		Title: "Stop a run", Button: "Stop the run", Takes: []string{"run"},
		does: func(form url.Values) []string {
			return []string{"Run " + form.Get("run") + " stops before its next cohort. What it has sent goes on. It can be continued."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "stop", Run: form.Get("run")}, nil
		},
		next: toRun,
	},
	"revoke": {
		Title: "Revoke a plan or a run", Button: "Revoke it for good", Takes: []string{"plan", "run"},
		does: func(form url.Values) []string {
			return []string{"Plan or run " + form.Get("plan") + form.Get("run") + " ends for good.",
				"Jobs of it that still wait go back to the DLQ when they are delivered. A job that has begun goes on."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "revoke", Plan: form.Get("plan"), Run: form.Get("run")}, nil
		},
		next: toRun,
	},
	"stop-all": {
		Title: "Throw the kill switch", Button: "Stop every redrive",
		does: func(url.Values) []string {
			return []string{"Every redrive of the stack stops before its next cohort, and none starts until the switch is released."}
		},
		request: func(url.Values) (redrive.Request, error) { return redrive.Request{Action: "stop"}, nil },
		next:    toRuns,
	},
	"resume": {
		Title: "Release the kill switch", Button: "Release the switch",
		does: func(url.Values) []string {
			return []string{"Redrives may run again. None continues by itself."}
		},
		request: func(url.Values) (redrive.Request, error) { return redrive.Request{Action: "resume"}, nil },
		next:    toRuns,
	},
	"discard": {
		Title: "Discard a message", Button: "Discard it", Takes: []string{"message", "job"},
		does: func(form url.Values) []string {
			return []string{"The message of " + form.Get("message") + form.Get("job") + " goes into the audit, its job ends for good, and the message is deleted. No copy of the job runs.",
				"\"acklast redrive resend\" undoes it."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "discard", Messages: words(form["message"]), Jobs: words(form["job"])}, nil
		},
		next: func(_ url.Values, resp redrive.Response) string { return "/audit?of=" + url.QueryEscape(resp.Discard) },
	},
	"decide-sent":     decide(ledger.Sent, "The effect happened", "The job becomes final. It does not run again."),
	"decide-not-sent": decide(ledger.NotSent, "The effect did not happen", "The job may be redriven once, and is then sent without a look-up. If the effect did happen, it happens twice."),
	"pause": {
		Title: "Pause a kind", Button: "Pause the kind", Takes: []string{"kind"},
		does: func(form url.Values) []string {
			return []string{"No attempt at a job of the kind " + form.Get("kind") + " starts, within half a minute. Its jobs wait on the recovery lane, without an attempt. Their deadlines go on."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "pause", Kind: form.Get("kind")}, nil
		},
		next: func(url.Values, redrive.Response) string { return "/" },
	},
	"unpause": {
		Title: "Let a kind run again", Button: "End the pause", Takes: []string{"kind"},
		does: func(form url.Values) []string {
			return []string{"Jobs of the kind " + form.Get("kind") + " run when they look again, within five minutes."}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "unpause", Kind: form.Get("kind")}, nil
		},
		next: func(url.Values, redrive.Response) string { return "/" },
	},
}

func decide(what ledger.DecisionKind, title, means string) action {
	return action{
		Title: "Decide: " + title, Button: "Record the decision", Takes: []string{"job"},
		does: func(form url.Values) []string {
			return []string{"The ambiguous job " + form.Get("job") + " is decided as " + string(what) + ".", means}
		},
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "decide", Job: form.Get("job"), Decision: what}, nil
		},
		next: func(form url.Values, _ redrive.Response) string { return "/jobs?q=" + url.QueryEscape(form.Get("job")) },
	}
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

func (s *Server) actionOf(r *http.Request) (string, action, error) {
	name := r.PathValue("action")
	a, ok := actions[name]
	switch {
	case !ok:
		return "", a, problem{http.StatusNotFound, "There is no such action", "The console cannot do " + name + ".", "See \"acklast --help\" for what the command line can do."}
	case !s.Write:
		return "", a, problem{http.StatusForbidden, "This console only reads", "It was started without --write, so it changes nothing.",
			"Start it with \"acklast console --write\", or use the command line."}
	}
	return name, a, nil
}

// confirm shows what an action will do, and asks.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) error {
	name, a, err := s.actionOf(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	d := confirmData{Name: name, Action: a, Does: a.does(q), By: s.Stack.Place(r.Context()).Caller, Asks: a.Asks}
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
	name, a, err := s.actionOf(r)
	if err != nil {
		return err
	}
	form := r.PostForm
	req, err := a.request(form)
	if err != nil {
		return err
	}
	req.By, req.Reason = strings.TrimSpace(form.Get("by")), strings.TrimSpace(form.Get("reason"))
	if req.By == "" || req.Reason == "" {
		return badRequest("it needs your name and a reason: the audit keeps both")
	}
	resp, err := s.do(r.Context(), name, req)
	if err := asked(resp, err); err != nil {
		return err
	}
	for _, result := range resp.Results {
		if result.Why != "" {
			return problem{http.StatusConflict, fmt.Sprintf("%s: %s", result.Message+" "+result.Job, result.Result), result.Why, "See the job's page for how it stands."}
		}
	}
	http.Redirect(w, r, a.next(form, resp), http.StatusSeeOther)
	return nil
}

func (s *Server) do(ctx context.Context, name string, req redrive.Request) (redrive.Response, error) {
	switch name {
	case "run", "continue":
		return s.Stack.Run(ctx, req)
	case "stop-all":
		return s.Stack.Stop(ctx, req.By, req.Reason)
	}
	return s.Stack.Ask(ctx, req)
}
