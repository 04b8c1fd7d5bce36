package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// Lane is how much work a queue holds. SQS's counts are approximate.
type Lane struct {
	Name                       string
	Scheduled, Ready, InFlight int
	// Oldest is the age of the oldest message, 0 if nobody tells it.
	Oldest time.Duration
	// Paused says that nothing is received from it.
	Paused bool
}

// Standing is how a stack stands now.
type Standing struct {
	At              time.Time
	Source          Lane
	Recovery        Lane
	Isolated        int
	DLQInFlight     int
	DLQOldest       time.Duration
	DLQRetention    time.Duration
	InScheduler     int
	MoreInScheduler bool
	Kinds           []redrive.KindState
	// Notes say what could not be read.
	Notes []string
}

// History are series of a stack's figures.
type History struct {
	// Source says where they come from, Cost what reading them costs.
	Source, Cost string
	// None says why there is no history; empty if there is one.
	None  string
	Plots []Plot
}

// Plot is one or more lines over the same times.
type Plot struct {
	ID, Title, Unit string
	Times           []time.Time
	Lines           []Line
}

// Line is one line of a plot, with a value for each time.
type Line struct {
	Name   string
	Values []float64
}

// Empty says whether a plot has nothing to show.
func (p Plot) Empty() bool { return len(p.Times) == 0 }

// Newest returns a plot's rows, the newest first.
func (p Plot) Newest() []PlotRow {
	rows := make([]PlotRow, len(p.Times))
	for i, at := range p.Times {
		row := PlotRow{At: at}
		for _, l := range p.Lines {
			row.Values = append(row.Values, l.Values[i])
		}
		rows[len(rows)-1-i] = row
	}
	return rows
}

// PlotRow is what a plot shows for one time.
type PlotRow struct {
	At     time.Time
	Values []float64
}

const (
	// liveEvery is the pause between two looks of an open overview at the stack. Each asks SQS three times and the
	// ledger's index once.
	liveEvery = 5 * time.Second
	// classesShown is how many groups of the DLQ the overview shows.
	classesShown = 8
)

// overviewData is what the overview shows.
type overviewData struct {
	Standing Standing
	History  History
	Groups   []indexGroup
	More     int
	Run      *redrive.Run
	Switch   *redrive.Switch
	Notes    []string
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) error {
	d, err := s.standing(r.Context())
	if err != nil {
		return err
	}
	s.show(w, r, http.StatusOK, "overview", page{Title: "Overview", Section: "overview", Data: d})
	return nil
}

// overviewLive streams the overview's content while its page is open.
func (s *Server) overviewLive(w http.ResponseWriter, r *http.Request) error {
	return s.stream(w, r, liveEvery, func(ctx context.Context) (string, page, bool) {
		d, err := s.standing(ctx)
		if err != nil {
			return "unanswered", page{Data: problemOf(err)}, false
		}
		return "overview-body", page{Data: d}, false
	})
}

// standing reads everything that the overview shows. It receives no message. What cannot be read is said in a note,
// except the queues: without them there is no stack.
func (s *Server) standing(ctx context.Context) (overviewData, error) {
	var d overviewData
	var failed, unlisted, unasked, untold error
	var jobs []ledger.IsolatedJob
	var status redrive.Response
	var wait sync.WaitGroup
	wait.Go(func() { d.Standing, failed = s.Stack.Standing(ctx) })
	wait.Go(func() { jobs, unlisted = s.Stack.Isolated(ctx) })
	wait.Go(func() { status, unasked = s.Stack.Ask(ctx, redrive.Request{Action: "status"}) })
	wait.Go(func() { d.History, untold = s.Stack.History(ctx) })
	wait.Wait()
	if failed != nil {
		return d, failed
	}
	d.Notes = d.Standing.Notes
	for what, err := range map[string]error{"The classes on the DLQ are missing": unlisted, "Runs and the kill switch are missing": unasked} {
		if err != nil {
			d.Notes = append(d.Notes, what+": "+err.Error())
		}
	}
	slices.Sort(d.Notes)
	if untold != nil {
		d.History = History{None: untold.Error()}
	}
	d.Groups = groupsOf(jobs)
	if d.More = len(d.Groups) - classesShown; d.More > 0 {
		d.Groups = d.Groups[:classesShown]
	}
	d.Switch = status.Switch
	for _, run := range status.Runs {
		if run.State == redrive.Active || run.State == redrive.Halted {
			d.Run = &run
			break
		}
	}
	return d, nil
}

// indexGroup are isolated jobs of one class, cause and kind whose errors have one fingerprint, by the ledger's index.
type indexGroup struct {
	Class, Cause, Kind, Fingerprint string
	Count                           int
	Oldest, Newest                  time.Time
	Redriven                        int
}

func groupOf(j ledger.IsolatedJob) indexGroup {
	return indexGroup{Class: string(j.Class), Cause: string(j.Cause), Kind: j.Kind, Fingerprint: j.Fingerprint}
}

// groupsOf groups jobs, the largest group first.
func groupsOf(jobs []ledger.IsolatedJob) []indexGroup {
	at := map[indexGroup]int{}
	var list []indexGroup
	for _, j := range jobs {
		name := groupOf(j)
		i, ok := at[name]
		if !ok {
			i = len(list)
			at[name] = i
			name.Oldest, name.Newest = j.At, j.At
			list = append(list, name)
		}
		g := &list[i]
		g.Count++
		if j.Redrives > 0 {
			g.Redriven++
		}
		if j.At.Before(g.Oldest) {
			g.Oldest = j.At
		}
		if j.At.After(g.Newest) {
			g.Newest = j.At
		}
	}
	slices.SortStableFunc(list, func(a, b indexGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Class+a.Kind+a.Fingerprint, b.Class+b.Kind+b.Fingerprint))
	})
	return list
}
