package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"acklast/internal/ledger"
)

// track is where a step of a job happened.
type track int

// The tracks of the picture, from the top.
const (
	onLane track = iota
	inWorker
	atProvider
	onDLQ
	byPeople
)

var trackNames = []string{"Lane", "Worker", "Provider", "DLQ", "People"}

// step is one thing that happened to a job, or will.
type step struct {
	At    time.Time
	Track track
	// Title is short enough for the picture, Detail is for the list.
	Title, Detail string
	Tone          string
	// Ahead says that it lies in the future.
	Ahead bool
}

// steps are what an entry says of a job's way, in order.
func steps(e ledger.Entry, now time.Time) []step {
	var list []step
	add := func(at time.Time, where track, tone, title, detail string) {
		if !at.IsZero() {
			list = append(list, step{At: at, Track: where, Tone: tone, Title: title, Detail: detail, Ahead: at.After(now)})
		}
	}
	add(e.FirstSent, onLane, "busy", "sent", "The job was first sent.")
	if e.Due.After(e.FirstSent) {
		add(e.Due, onLane, "busy", "due", "The job was first meant to take effect at this time.")
	}
	if e.ScheduledUntil.After(now) {
		add(e.ScheduledUntil, onLane, "busy", "scheduled", "EventBridge Scheduler sends the job at about this time, by schedule "+e.ScheduleName+".")
	}
	redrives := e.Redrives
	for _, ev := range e.History {
		if ev.What == ledger.EventReopened {
			redrives--
		}
	}
	for _, ev := range e.History {
		switch ev.What {
		case ledger.EventFailed:
			add(ev.At, inWorker, "bad", fmt.Sprintf("attempt %d failed", ev.Attempt), fmt.Sprintf("Attempt %d failed, class %s: %s", ev.Attempt, ev.Class, ev.Error))
		case ledger.EventIsolated:
			add(ev.At, onDLQ, "bad", "isolated", fmt.Sprintf("Isolated, class %s, cause %s: %s", ev.Class, ev.Cause, ev.Error))
		case ledger.EventReopened:
			redrives++
			add(ev.At, onLane, "busy", fmt.Sprintf("redrive %d", max(1, redrives)), "Reopened: redriven, or put back by hand. The budgets start again.")
		default:
			add(ev.At, inWorker, "plain", string(ev.What), ev.Error)
		}
	}
	for _, ev := range e.Evidence {
		title, detail := "call", "The provider was asked"
		if ev.RequestID != "" {
			title, detail = "accepted", "The provider accepted request "+ev.RequestID
		}
		if ev.Note != "" {
			detail += ": " + ev.Note
		}
		add(ev.At, atProvider, "good", title, detail+".")
	}
	if !e.CalledFrom.IsZero() {
		add(e.CalledFrom, atProvider, "bad", "call, no outcome", "A call was made, or begun, and its outcome is not known.")
	}
	for _, d := range e.Decisions {
		add(d.At, byPeople, "busy", "decided "+string(d.What), fmt.Sprintf("%s decided %q: %s", d.By, d.What, d.Reason))
	}
	switch {
	case e.Status.Final():
		toned := "good"
		if e.Status != ledger.Done {
			toned = "plain"
		}
		add(e.FinalAt, inWorker, toned, string(e.Status), fmt.Sprintf("Ended as %s, outcome %q.", e.Status, e.Outcome))
	case e.Status == ledger.Running:
		add(e.LeaseUntil, inWorker, "busy", "lease ends", "A delivery has claimed the job until this time.")
	case e.Status == ledger.Pending && e.RetryAt.After(now):
		add(e.RetryAt, inWorker, "busy", "next attempt", "The next attempt is not before this time.")
	}
	if e.Deadline.After(now) && (e.Status == ledger.Pending || e.Status == ledger.Running) {
		add(e.Deadline, onLane, "plain", "deadline", "No attempt starts that cannot end before this time.")
	}
	slices.SortStableFunc(list, func(a, b step) int { return cmp.Compare(a.At.UnixMilli(), b.At.UnixMilli()) })
	return list
}

// picture is a job's way drawn from left to right: one row for each track, one point for each step.
type picture struct {
	Width, Height int
	Rows          []pictureRow
	Points        []point
	// Path joins the points, Ahead the part that lies in the future.
	Path, Ahead string
	// NowX is where now lies, 0 if no step lies ahead.
	NowX int
}

type pictureRow struct {
	Name string
	Y    int
}

type point struct {
	step
	X, Y int
	// TitleY is the title's line.
	TitleY int
	// Gap is the time since the step before, in words; GapX where it is written.
	Gap  string
	GapX int
}

const (
	rowHeight  = 62
	leftMargin = 96
	topMargin  = 34
	// letterWidth is the width of a title's letter, at most.
	letterWidth = 8
)

// draw lays out the steps. Gaps are drawn by the logarithm of their length, because a retry takes seconds and an
// isolation may last days; each gap has its length written below it.
func draw(list []step) picture {
	var used []track
	for t := range track(len(trackNames)) {
		if slices.ContainsFunc(list, func(s step) bool { return s.Track == t }) {
			used = append(used, t)
		}
	}
	p := picture{Height: topMargin + rowHeight*max(0, len(used)-1) + 60}
	for i, t := range used {
		p.Rows = append(p.Rows, pictureRow{trackNames[t], topMargin + i*rowHeight})
	}
	x := leftMargin + 40
	for i, s := range list {
		pt := point{step: s}
		if i > 0 {
			gap := s.At.Sub(list[i-1].At)
			titles := letterWidth * (utf8.RuneCountInString(s.Title) + utf8.RuneCountInString(list[i-1].Title)) / 2
			width := max(titles+14, 70) + min(90, int(16*math.Log10(1+gap.Seconds())))
			pt.Gap, pt.GapX = "+"+rough(gap), x+width/2
			x += width
		}
		pt.X, pt.Y = x, topMargin+slices.Index(used, s.Track)*rowHeight
		// A title stands on the side from which no line comes.
		above := func(j int) bool { return j >= 0 && j < len(list) && list[j].Track < s.Track }
		if pt.TitleY = pt.Y - 13; above(i-1) || above(i+1) {
			pt.TitleY = pt.Y + 23
		}
		if i > 0 {
			before := p.Points[i-1]
			middle := (before.X + x) / 2
			leg := fmt.Sprintf("M%d %dC%d %d %d %d %d %d", before.X, before.Y, middle, before.Y, middle, pt.Y, x, pt.Y)
			if s.Ahead {
				p.Ahead += leg
			} else {
				p.Path += leg
			}
			if s.Ahead && !before.Ahead {
				p.NowX = middle
			}
		}
		p.Points = append(p.Points, pt)
	}
	p.Width = x + 70
	return p
}
