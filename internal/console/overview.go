package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
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
	At          time.Time
	Source      Lane
	Recovery    Lane
	Isolated    int
	DLQInFlight int
	// Deleted is when SQS deletes the oldest message of the DLQ; zero if that is not known.
	Deleted         time.Time
	InScheduler     int
	MoreInScheduler bool
	Kinds           []redrive.KindState
	// Groups are the isolated jobs by class, cause, kind and error, the largest group first.
	Groups []Group
	// Run is the run that is active or the last one, Switch the kill switch; nil if there is none or it is not known.
	Run     *redrive.Run
	Switch  *redrive.Switch
	History History
	// Notes say what could not be read.
	Notes []string
}

// Group are isolated jobs of one class, cause and kind whose errors have one fingerprint, by the ledger's index.
type Group struct {
	Class, Cause, Kind, Fingerprint string
	Count                           int
	Oldest, Newest                  time.Time
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
	// liveEvery is the pause between two looks of an open overview at the stack.
	liveEvery = 5 * time.Second
	// groupsShown is how many groups of isolated jobs the overview shows.
	groupsShown = 8
)

// overviewData is what the overview shows.
type overviewData struct {
	Standing
	// More counts the groups that are not shown, Classes all classes.
	More, Classes int
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

func (s *Server) standing(ctx context.Context) (overviewData, error) {
	st, err := s.config.Stack.Standing(ctx)
	if err != nil {
		return overviewData{}, err
	}
	d := overviewData{Standing: st}
	classes := map[string]bool{}
	for _, g := range st.Groups {
		classes[g.Class] = true
	}
	d.Classes = len(classes)
	if d.More = max(0, len(st.Groups)-groupsShown); d.More > 0 {
		d.Groups = st.Groups[:groupsShown]
	}
	if st.Run != nil && st.Run.State != redrive.Active && st.Run.State != redrive.Halted {
		d.Run = nil // it is over
	}
	return d, nil
}

// groupsOf groups jobs, the largest group first.
func groupsOf(jobs []ledger.IsolatedJob) []Group {
	at := map[Group]int{}
	var list []Group
	for _, j := range jobs {
		name := Group{Class: string(j.Class), Cause: string(j.Cause), Kind: j.Kind, Fingerprint: j.Fingerprint}
		i, ok := at[name]
		if !ok {
			i = len(list)
			at[name] = i
			name.Oldest, name.Newest = j.At, j.At
			list = append(list, name)
		}
		g := &list[i]
		g.Count++
		if j.At.Before(g.Oldest) {
			g.Oldest = j.At
		}
		if j.At.After(g.Newest) {
			g.Newest = j.At
		}
	}
	slices.SortStableFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Class+a.Kind+a.Fingerprint, b.Class+b.Kind+b.Fingerprint))
	})
	return list
}
