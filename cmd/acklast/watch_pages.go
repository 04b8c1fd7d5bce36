package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// groupsShown is how many groups have room at least. A low screen has no empty lines for that.
const groupsShown = 4

// stack is the first screen: lanes, what holds work back, outcomes, the run, and the groups of isolated jobs.
func (m *watchModel) stack() []line {
	parts := slices.Concat(m.lanes(), m.held(), m.outcomes(), m.run())
	if m.bodyHeight()-len(parts) < 2+min(groupsShown, len(m.groups())) {
		parts = slices.DeleteFunc(parts, func(l line) bool { return l.text == "" })
	}
	return append(parts, m.isolated(m.bodyHeight()-len(parts))...)
}

func (m *watchModel) lanes() []line {
	const form = "%-9s%10s%9s%11s%11s   %s"
	s := m.snapshot
	lines := []line{linef(heading, form, "LANE", "SCHEDULED", "READY", "IN FLIGHT", "ISOLATED", "OLDEST")}
	left := func(age time.Duration, retention int64) string {
		return fmt.Sprintf("%s, %s left", rough(age), rough(time.Duration(retention)*time.Second-age))
	}
	for _, l := range s.Lanes {
		oldest, how := "-", usual
		if l.Oldest != nil {
			oldest = left(time.Duration(l.Oldest.AgeSeconds)*time.Second, l.RetentionSeconds)
		}
		if l.Paused {
			oldest, how = "PAUSED  "+oldest, warning
		}
		lines = append(lines, linef(how, form, l.Lane, number(l.Scheduled), number(l.Ready), number(l.InFlight), "-", oldest))
	}
	oldest := "-"
	switch {
	case s.Isolated != nil && s.Isolated.Jobs > 0:
		oldest = left(s.At.Sub(s.Isolated.OldestAt), s.DLQ.RetentionSeconds)
	case s.DLQ.Oldest != nil:
		oldest = left(time.Duration(s.DLQ.Oldest.AgeSeconds)*time.Second, s.DLQ.RetentionSeconds)
	}
	return append(lines, linef(usual, form, job.DLQ, "-", "-", number(s.DLQ.InFlight), number(s.DLQ.Isolated), oldest))
}

func number(n int) string { return fmt.Sprint(n) }

// held says what waits elsewhere and what holds work back.
func (m *watchModel) held() []line {
	s := m.snapshot
	waiting := fmt.Sprintf("%d", s.InScheduler)
	switch {
	case s.SchedulerNotTold != "":
		waiting = "not told"
	case s.MoreInScheduler:
		waiting = "more than " + waiting
	}
	status := "kill switch off, no kind paused"
	if s.RedriveNotTold != "" {
		status = s.RedriveNotTold
	} else if len(heldWords(s)) > 0 {
		status = ""
	}
	lines := []line{{strings.TrimRight("In EventBridge Scheduler: "+waiting+"   "+status, " "), usual}}
	for _, words := range heldWords(s) {
		lines = append(lines, line{words, warning})
	}
	for _, why := range []string{s.LanesNotTold, s.KindsNotTold} {
		if why != "" && why != s.RedriveNotTold {
			lines = append(lines, line{why, faint})
		}
	}
	return append(lines, line{})
}

// outcomes are the deliveries by outcome, in two columns of a mean and the last minutes.
func (m *watchModel) outcomes() []line {
	series := m.snapshot.Series
	if series == nil {
		return nil
	}
	if series.NoHistory != "" {
		return []line{{"OUTCOMES", heading}, {series.NoHistory, usual}, {}}
	}
	fresh, _ := series.PerMinute(overview.Fresh)
	again, _ := series.PerMinute(overview.Recovered)
	lines := []line{linef(heading, "OUTCOMES A MINUTE (%d min, %s): fresh work %.1f, recovery lane %.1f",
		int(series.To.Sub(series.From).Minutes()), series.Source, fresh, again)}
	for i := 0; i+1 < len(shownSeries); i += 2 {
		var cells []string
		for _, name := range shownSeries[i : i+2] {
			rate, _ := series.PerMinute(name)
			cells = append(cells, fmt.Sprintf("%-13s%7.1f %s", name, rate, sparks(series.Counts[name])))
		}
		lines = append(lines, line{strings.TrimRight(strings.Join(cells, "    "), " "), usual})
	}
	return append(lines, line{})
}

// sparks draws counts as bars, the highest of them full. A count of zero has the lowest bar.
func sparks(counts []float64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	most := 0.0
	for _, n := range counts {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range counts {
		i := 0
		if most > 0 && n > 0 {
			i = max(1, int(n/most*float64(len(bars)-1)+0.5))
		}
		b.WriteRune(bars[i])
	}
	return b.String()
}

// run is the run that is active, or that was halted last.
func (m *watchModel) run() []line {
	r := m.snapshot.Run
	if r == nil || r.State != redrive.Active && r.State != redrive.Halted {
		return nil
	}
	const width = 12
	full := 0
	if r.Total > 0 {
		full = min(width, width*settledOf(r)/r.Total)
	}
	how := heading
	if r.State == redrive.Halted {
		how = warning
	}
	lines := []line{
		linef(how, "REDRIVE %s  %s", r.ID, strings.ToUpper(strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)))),
		linef(usual, "[%s%s] %d of %d; %s", strings.Repeat("#", full), strings.Repeat(".", width-full), settledOf(r), r.Total, canaryWords(r)),
	}
	if r.Why != "" {
		lines = append(lines, line{r.Why, usual})
	}
	return append(lines, line{})
}

// isolated are the groups of isolated jobs, as far as they fit.
func (m *watchModel) isolated(height int) []line {
	s := m.snapshot
	if s.Isolated == nil {
		return []line{{"ISOLATED", heading}, {s.IsolatedNotTold, usual}}
	}
	more := ""
	if s.Isolated.More {
		more = "more than "
	}
	unknown := ""
	if n := s.DLQ.Isolated - s.Isolated.Jobs; n > 0 && !s.Isolated.More {
		unknown = fmt.Sprintf("; and %d messages without an entry, see d", n)
	}
	lines := []line{linef(heading, "ISOLATED  %s%d jobs by the ledger%s", more, s.Isolated.Jobs, unknown)}
	if s.IsolatedNotTold != "" {
		lines = append(lines, line{s.IsolatedNotTold, warning})
	}
	if len(s.Isolated.Groups) == 0 {
		return lines
	}
	const form = "%s%6s  %-10s %-10s %-20s %-8s %s"
	lines = append(lines, linef(heading, form, " ", "COUNT", "CLASS", "CAUSE", "KIND", "OLDEST", "ERROR"))
	return append(lines, m.list(len(s.Isolated.Groups), height-len(lines), func(i int) string {
		g := s.Isolated.Groups[i]
		return fmt.Sprintf("%6d  %-10s %-10s %-20s %-8s %s", g.Count, g.Class, cut(string(g.Cause), 10), cut(plain(g.Kind), 20),
			short(s.At.Sub(g.OldestAt)), cmp.Or(g.Fingerprint, "-"))
	})...)
}

// group is one group of isolated jobs.
func (m *watchModel) group() []line {
	g, s := m.top().group, m.snapshot
	lines := []line{
		{"GROUP OF ISOLATED JOBS", heading},
		linef(usual, "class    %s", g.Class),
		linef(usual, "cause    %s", g.Cause),
		linef(usual, "kind     %s", g.Kind),
	}
	for text := range strings.Lines(wrap("error    "+cmp.Or(plain(g.Fingerprint), "-"), m.width, "         ")) {
		lines = append(lines, line{strings.TrimSuffix(text, "\n"), usual})
	}
	if g.Count == 0 {
		return append(lines, line{}, line{"None is isolated any more.", usual})
	}
	deleted := g.OldestAt.Add(time.Duration(s.DLQ.RetentionSeconds) * time.Second)
	lines = append(lines,
		linef(usual, "count    %d", g.Count),
		linef(usual, "oldest   isolated %s ago, deleted by SQS in %s", short(s.At.Sub(g.OldestAt)), rough(deleted.Sub(s.At))),
		linef(usual, "newest   isolated %s ago", short(s.At.Sub(g.NewestAt))))
	if g.Undecided > 0 {
		lines = append(lines, linef(warning, "%d wait for a decision: Y or N, here or on a job", g.Undecided))
	}
	lines = append(lines, line{}, linef(heading, "JOBS, the oldest %d", len(g.Jobs)))
	return append(lines, m.list(len(g.Jobs), m.bodyHeight()-len(lines), func(i int) string { return " " + g.Jobs[i] })...)
}

// runList are the plans and the runs, newest first.
func (m *watchModel) runList() []line {
	s := m.top()
	lines := []line{{"PLANS AND RUNS", heading}, {}}
	switch {
	case s.failed != "":
		return append(lines, linef(warning, "Not read: %s", s.failed))
	case s.text == nil && s.runs == nil:
		return append(lines, linef(usual, "Reading..."))
	case len(s.runs) == 0:
		return append(lines, linef(usual, "There is none: plan a redrive with p on a group."))
	}
	lines = append(lines, linef(heading, "  %-30s %-22s %11s  %s", "RUN OR PLAN", "STATE", "SENT", "BEGUN"))
	return append(lines, m.list(len(s.runs), m.bodyHeight()-len(lines), func(i int) string {
		r := s.runs[i]
		id := r.ID
		if r.State == redrive.Planned {
			id = r.Plan
		}
		return fmt.Sprintf(" %-30s %-22s %11s  %s", id, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Code)),
			fmt.Sprintf("%d of %d", r.Counts["sent"], r.Total), short(m.snapshot.At.Sub(r.StartedAt))+" ago")
	})...)
}
