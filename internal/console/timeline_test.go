package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// Every kind of step of a job's life is in its way, in order, on its track.
func TestStepsOfAJob(t *testing.T) {
	e := ledger.Entry{
		Status: ledger.Running, FirstSent: at(-100), Due: at(-90), Deadline: at(60), LeaseUntil: at(1), CalledFrom: at(-1), Redrives: 2,
		ScheduledUntil: at(30), ScheduleName: "s-1",
		History: []ledger.Event{
			{At: at(-80), What: ledger.EventFailed, Attempt: 1, Class: job.Transient, Error: "timeout"},
			{At: at(-70), What: ledger.EventIsolated, Class: job.Transient, Cause: job.CauseAttempts},
			{At: at(-40), What: ledger.EventReopened},
			{At: at(-30), What: ledger.EventIsolated, Class: job.Ambiguous, Cause: job.CauseAmbiguous},
			{At: at(-10), What: ledger.EventReopened},
		},
		Evidence:  []ledger.Evidence{{At: at(-35), RequestID: "req-9"}},
		Decisions: []ledger.Decision{{At: at(-20), What: ledger.NotSent, By: "ada", Reason: "none there"}},
	}
	var got []string
	for _, s := range steps(e, noon) {
		ahead := ""
		if s.Ahead {
			ahead = ", ahead"
		}
		got = append(got, trackNames[s.Track]+": "+s.Title+ahead)
	}
	want := []string{
		"Lane: sent", "Lane: due", "Worker: attempt 1 failed", "DLQ: isolated", "Lane: redrive 1", "Provider: accepted", "DLQ: isolated",
		"People: decided not-sent", "Lane: redrive 2", "Provider: call, no outcome", "Worker: lease ends, ahead", "Lane: scheduled, ahead", "Lane: deadline, ahead",
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An entry keeps only its newest events: the redrives of dropped ones still count.
func TestARedrivesNumberCountsDroppedEvents(t *testing.T) {
	e := ledger.Entry{Status: ledger.Pending, Redrives: 3, History: []ledger.Event{{At: at(-5), What: ledger.EventReopened}}}
	if got := steps(e, noon); len(got) != 1 || got[0].Title != "redrive 3" {
		t.Errorf("steps are %+v, want redrive 3", got)
	}
}

func TestTheEndOfAJob(t *testing.T) {
	for status, want := range map[ledger.Status]string{ledger.Done: "good", ledger.Expired: "plain", ledger.Terminal: "plain"} {
		got := steps(ledger.Entry{Status: status, FinalAt: at(-1), Deadline: at(5), RetryAt: at(9)}, noon)
		if len(got) != 1 || got[0].Title != string(status) || got[0].Tone != want {
			t.Errorf("%s: steps are %+v", status, got)
		}
	}
}

// Points go from left to right, and a longer gap is never drawn shorter.
func TestThePicture(t *testing.T) {
	list := []step{{At: at(-600), Track: onLane}, {At: at(-599), Track: inWorker}, {At: at(-300), Track: onDLQ}, {At: at(10), Track: onLane, Ahead: true}}
	p := draw(list)
	if len(p.Points) != 4 || len(p.Rows) != 3 {
		t.Fatalf("%d points, %d rows", len(p.Points), len(p.Rows))
	}
	short, long := p.Points[1].X-p.Points[0].X, p.Points[2].X-p.Points[1].X
	if short <= 0 || long <= short {
		t.Errorf("a minute is %d wide, five hours %d", short, long)
	}
	if p.NowX <= p.Points[2].X || p.NowX >= p.Points[3].X {
		t.Errorf("now is at %d, between %d and %d", p.NowX, p.Points[2].X, p.Points[3].X)
	}
	if p.Ahead == "" || p.Points[1].Gap != "+60 s" {
		t.Errorf("ahead %q, gap %q", p.Ahead, p.Points[1].Gap)
	}
	if p.Width <= p.Points[3].X || p.Height <= p.Points[2].Y {
		t.Errorf("the picture of %d by %d is too small", p.Width, p.Height)
	}
}

// The titles of neighbours have room beside each other.
func TestTitlesDoNotOverlap(t *testing.T) {
	p := draw([]step{{At: at(-2), Title: "attempt 1 failed"}, {At: at(-2), Title: "attempt 2 failed"}})
	if room := p.Points[1].X - p.Points[0].X; room < letterWidth*len("attempt 1 failed") {
		t.Errorf("%d pixels for two titles", room)
	}
}

// A line that comes from above would cross a title above the point.
func TestATitleStandsWhereNoLineComes(t *testing.T) {
	p := draw([]step{{At: at(-3), Track: onLane}, {At: at(-2), Track: onDLQ}, {At: at(-1), Track: onDLQ}, {At: at(0), Track: onDLQ}, {At: at(1), Track: onLane}})
	for i, below := range []bool{false, true, false, true, false} {
		if pt := p.Points[i]; pt.TitleY > pt.Y != below {
			t.Errorf("title %d is at %d, its point at %d", i, pt.TitleY, pt.Y)
		}
	}
}
