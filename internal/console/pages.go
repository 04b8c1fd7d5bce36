package console

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// jobData is what the page about a job shows.
type jobData struct {
	Asked string
	Jobs  []jobView
	Job   Job
	// Audit is what people did with the job, AuditNote why that is missing.
	Audit     []redrive.AuditRecord
	AuditNote string
	// Unseen is the key that was asked for, if no delivery of its job is known.
	Unseen string
}

type jobView struct {
	Entry   ledger.Entry
	Steps   []step
	Picture picture
	// Decidable: the job waits for a decision. Cancellable: it has not begun.
	Decidable, Cancellable bool
}

func (s *Server) jobs(w http.ResponseWriter, r *http.Request) error {
	d := jobData{Asked: strings.TrimSpace(r.URL.Query().Get("q"))}
	if len(d.Asked) > job.MaxKey {
		return badRequest("a key or a subject has at most %d bytes", job.MaxKey)
	}
	title := "Jobs"
	if d.Asked != "" {
		title = d.Asked
		var err error
		if d.Job, err = s.config.Stack.Job(r.Context(), d.Asked); err != nil {
			return err
		}
		for _, e := range d.Job.Entries {
			v := jobView{Entry: e, Steps: steps(e, s.config.Now()), Decidable: e.Status == ledger.Isolated && e.LastClass == job.Ambiguous && e.Decided == "",
				Cancellable: e.Status == ledger.Pending}
			v.Picture = draw(v.Steps)
			d.Jobs = append(d.Jobs, v)
		}
		if _, isKey := job.SubjectOf(d.Asked); isKey && len(d.Job.Entries) == 0 {
			d.Unseen = d.Asked
		}
		if len(d.Job.Entries) == 1 {
			req := redrive.Request{Action: "audit", Job: d.Job.Entries[0].Key}
			for more := true; more; more = req.Page > 0 {
				resp, err := s.config.Stack.Ask(r.Context(), req)
				if err != nil {
					d.AuditNote = err.Error()
				}
				d.Audit, req.Page = append(d.Audit, resp.Audit...), resp.NextPage
			}
			slices.SortStableFunc(d.Audit, func(a, b redrive.AuditRecord) int { return a.At.Compare(b.At) })
		}
	}
	s.show(w, r, http.StatusOK, "jobs", page{Title: title, Section: "jobs", Data: d})
	return nil
}

func (s *Server) runs(w http.ResponseWriter, r *http.Request) error {
	resp, err := s.config.Stack.Ask(r.Context(), redrive.Request{Action: "status"})
	if err := asked(resp, err); err != nil {
		return err
	}
	s.show(w, r, http.StatusOK, "runs", page{Title: "Redrives", Section: "runs", Data: resp})
	return nil
}

// planData is what the page of a plan shows.
type planData struct {
	Plan redrive.Plan
	Run  *redrive.Run
	// Takes is how long the plan's run takes at its rate, after the canary; 0 if it has no rate.
	Takes  time.Duration
	Switch *redrive.Switch
	// Selection is the frozen filter, as JSON.
	Selection string
	Expired   bool
}

func (s *Server) planOf(ctx context.Context, id string) (planData, error) {
	resp, err := s.config.Stack.Ask(ctx, redrive.Request{Action: "status", Plan: id})
	if err := asked(resp, err); err != nil {
		return planData{}, err
	}
	if resp.Plan == nil {
		return planData{}, problem{http.StatusNotFound, "There is no such plan", "The redrive function knows no plan " + id + ".", "See the list of redrives."}
	}
	d := planData{Plan: *resp.Plan, Run: resp.Run, Switch: resp.Switch, Expired: !resp.Plan.ExpiresAt.IsZero() && resp.Plan.ExpiresAt.Before(s.config.Now())}
	if rate := d.Plan.RatePerSecond; rate > 0 {
		d.Takes = time.Duration(d.Plan.Actions[redrive.Redrive]/rate+1) * time.Second
	}
	selected, _ := json.Marshal(d.Plan.Select)
	d.Selection = string(selected)
	return d, nil
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request) error {
	d, err := s.planOf(r.Context(), r.PathValue("plan"))
	if err != nil {
		return err
	}
	s.show(w, r, http.StatusOK, "plan", page{Title: "Plan " + d.Plan.ID, Section: "runs", Data: d})
	return nil
}

// runEvery is the pause between two questions about a run that is watched.
const runEvery = time.Second

// runData is what the page of a run shows.
type runData struct {
	Run       redrive.Run
	Switch    *redrive.Switch
	Endings   []count
	Steps     []count
	Canary    []redrive.Watched
	Window    []redrive.Watched
	Failed    int
	Done      int
	Over      bool
	EndedWell bool
}

func (s *Server) runOf(ctx context.Context, id string) (runData, error) {
	resp, err := s.config.Stack.Ask(ctx, redrive.Request{Action: "status", Run: id})
	if err := asked(resp, err); err != nil {
		return runData{}, err
	}
	if resp.Run == nil {
		return runData{}, problem{http.StatusNotFound, "There is no such run", "The redrive function knows no run " + id + ".", "See the list of redrives."}
	}
	run := *resp.Run
	d := runData{Run: run, Switch: resp.Switch, Endings: counts(run.Endings), Steps: counts(run.Counts), Done: settled(run),
		Over: run.State == redrive.Done || run.State == redrive.Revoked, EndedWell: run.EndedWell()}
	for _, watched := range run.Watched {
		if watched.Canary {
			d.Canary = append(d.Canary, watched)
		} else {
			d.Window = append(d.Window, watched)
		}
		if watched.Ending == redrive.Again || watched.Ending == redrive.Retrying || watched.Ending == redrive.TakenOver || watched.Ending == redrive.Unjudged {
			d.Failed++
		}
	}
	return d, nil
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	d, err := s.runOf(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	s.show(w, r, http.StatusOK, "run", page{Title: "Run " + d.Run.ID, Section: "runs", Data: d})
	return nil
}

func (s *Server) runLive(w http.ResponseWriter, r *http.Request) error {
	return s.stream(w, r, runEvery, func(ctx context.Context) (string, page, bool) {
		d, err := s.runOf(ctx, r.PathValue("run"))
		if err != nil {
			return "unanswered", page{Data: problemOf(err)}, false
		}
		return "run-body", page{Data: d}, d.Over
	})
}

// auditShown is how many lines of an audit one page shows at least, if there are as many.
const auditShown = 500

// auditData is what the page of the audit shows.
type auditData struct {
	Of      string
	Records []redrive.AuditRecord
	// EndingsAt is when the ledger was asked for the endings of a run's jobs.
	EndingsAt time.Time
	// Discarded are the messages that the discard took.
	Discarded []string
	// Rest says that more records follow, under Page and After.
	Page  int
	After string
	Rest  bool
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	d := auditData{Of: strings.TrimSpace(q.Get("of"))}
	if d.Of != "" {
		req := redrive.Request{Action: "audit", After: q.Get("after")}
		req.Page, _ = strconv.Atoi(q.Get("page"))
		switch {
		case strings.HasPrefix(d.Of, "p-"):
			req.Plan = d.Of
		case strings.HasPrefix(d.Of, "r-"), strings.HasPrefix(d.Of, "d-"):
			req.Run = d.Of
		default:
			req.Job = d.Of
		}
		// A run's audit is spread over pages, of which many may be empty.
		for more := true; more && len(d.Records) < auditShown; more = d.Page > 0 || d.After != "" {
			resp, err := s.config.Stack.Ask(r.Context(), req)
			if err := asked(resp, err); err != nil {
				return err
			}
			if d.EndingsAt.IsZero() {
				d.EndingsAt = resp.EndingsAt
			}
			d.Records, d.Page, d.After = append(d.Records, resp.Audit...), resp.NextPage, resp.Next
			req.Page, req.After = d.Page, d.After
		}
		slices.SortStableFunc(d.Records, func(a, b redrive.AuditRecord) int { return a.At.Compare(b.At) })
		d.Rest = d.Page > 0 || d.After != ""
		for _, record := range d.Records {
			// The discard itself has a line too, under its own id.
			if strings.HasPrefix(d.Of, "d-") && record.What == "discarded" && record.Message != d.Of {
				d.Discarded = append(d.Discarded, record.Message)
			}
		}
	}
	s.show(w, r, http.StatusOK, "audit", page{Title: "Audit", Section: "audit", Data: d})
	return nil
}
