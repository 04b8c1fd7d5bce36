package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// mood is how a line looks. Colour alone never carries a meaning: the words say the same.
type mood int

const (
	usual mood = iota
	heading
	warning
	chosen
	faint
)

var looks = map[mood]lipgloss.Style{
	usual:   lipgloss.NewStyle(),
	heading: lipgloss.NewStyle().Bold(true),
	warning: lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red),
	chosen:  lipgloss.NewStyle().Reverse(true),
	faint:   lipgloss.NewStyle().Faint(true),
}

// line is one line of the view.
type line struct {
	text string
	mood mood
}

func linef(mood mood, format string, args ...any) line {
	return line{fmt.Sprintf(format, args...), mood}
}

// View implements tea.Model.
func (m *watchModel) View() tea.View {
	var b strings.Builder
	for i, l := range m.lines() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(looks[l.mood].Render(cut(plain(l.text), m.width)))
	}
	v := tea.NewView(b.String())
	v.AltScreen, v.WindowTitle = true, "acklast watch"
	return v
}

// cut cuts a text off at a width in cells, of which some characters take two.
func cut(text string, width int) string {
	if lipgloss.Width(text) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && lipgloss.Width(string(runes)) > width-1 {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// lines are exactly the lines of the screen.
func (m *watchModel) lines() []line {
	lines := m.header()
	if !m.ready && m.top().page == pageStack {
		lines = append(lines, linef(usual, "Reading the stack..."))
	} else {
		lines = append(lines, m.body()...)
	}
	footer := m.footer()
	for len(lines) < m.height-len(footer) {
		lines = append(lines, line{})
	}
	return append(lines[:max(0, m.height-len(footer))], footer...)
}

func (m *watchModel) header() []line {
	s := m.snapshot
	if !m.ready {
		s.Stack = "?"
	}
	left, right := "acklast "+s.Stack+" · "+s.Place, s.At.UTC().Format("2006-01-02 15:04:05Z")
	if !m.ready {
		left, right = "acklast watch", ""
	}
	left = cut(plain(left), m.width-len(right)-1)
	lines := []line{{left + strings.Repeat(" ", max(1, m.width-lipgloss.Width(left)-len(right))) + right, heading}}
	if m.failed != "" {
		lines = append(lines, linef(warning, "NOT READ, the figures are old: %s", m.failed))
	}
	return lines
}

// keyLines name the most useful keys of each page.
var keyLines = map[page]string{
	pageStack: "↑↓ choose  enter open  p plan  j job  r runs  S stop redrives  ? keys  q quit",
	pageGroup: "↑↓ choose  enter open job  p plan  d messages  x discard  ? keys  q back",
	pageJob:   "↑↓ scroll  o redrive  c cancel  x discard  d message  ? keys  q back",
	pageRuns:  "↑↓ choose  enter open  ? keys  q back",
	pageRun:   "↑↓ scroll  a approve  R run  S stop  v revoke  u audit  ? keys  q back",
	pageHelp:  "↑↓ scroll  q back",
}

// footer is the key line, and above it the typed text or a note.
func (m *watchModel) footer() []line {
	above := line{}
	switch {
	case m.typing != nil:
		above = linef(heading, "Job's key, or subject: %s_", *m.typing)
		return []line{above, linef(faint, "enter open  esc cancel")}
	case m.noted != "":
		above = linef(warning, "%s", m.noted)
	}
	return []line{above, linef(faint, "%s", keyLines[m.top().page])}
}

// bodyHeight is how many lines are between the header and the footer, and textHeight how many of them a text has.
func (m *watchModel) bodyHeight() int { return max(1, m.height-len(m.header())-2) }
func (m *watchModel) textHeight() int { return max(1, m.bodyHeight()-2) }

func (m *watchModel) body() []line {
	s := m.top()
	switch s.page {
	case pageStack:
		return m.stack()
	case pageGroup:
		return m.group()
	case pageRuns:
		return m.runList()
	case pageJob:
		return m.text("JOB " + s.id)
	case pageRun:
		return m.text("")
	}
	return m.text("KEYS")
}

// text is a screen that scrolls.
func (m *watchModel) text(title string) []line {
	s := m.top()
	lines := []line{{title, heading}, {}}
	if title == "" {
		lines = lines[:1]
	}
	switch {
	case s.failed != "":
		return append(lines, linef(warning, "Not read: %s", s.failed))
	case s.text == nil:
		return append(lines, linef(usual, "Reading..."))
	}
	end := min(len(s.text), s.top+m.textHeight())
	for _, text := range s.text[s.top:end] {
		lines = append(lines, line{text, usual})
	}
	if more := len(s.text) - end; more > 0 {
		lines[len(lines)-1] = linef(faint, "%d more lines: ↓", more+1)
	}
	return lines
}

// list shows rows around the cursor, as many as fit.
func (m *watchModel) list(rows, height int, row func(i int) string) []line {
	cursor := m.top().cursor
	height = max(1, height)
	first := max(0, min(cursor-height/2, rows-height))
	var lines []line
	for i := first; i < min(rows, first+height); i++ {
		if i == cursor {
			lines = append(lines, line{">" + row(i), chosen})
		} else {
			lines = append(lines, line{" " + row(i), usual})
		}
	}
	if below := rows - first - height; below > 0 && height > 1 && cursor != first+height-1 {
		lines[len(lines)-1] = linef(faint, " %6d  more groups or rows: ↓", below+1)
	}
	return lines
}

// short writes an age in a few characters.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// helpText are all keys.
func helpText() []string {
	text := []string{
		"Everywhere", "  ↑ ↓           choose, or scroll; page up and page down too", "  enter         open what is chosen",
		"  j             open a job by its key, or a subject", "  r             plans and runs", "  q, esc        back; q on the first screen quits", "  ctrl+c        quit",
	}
	titles := map[page]string{pageStack: "On the first screen", pageGroup: "On a group", pageJob: "On a job", pageRun: "On a plan or a run"}
	last := page(-1)
	for _, b := range actions {
		if b.page != last {
			text = append(text, "", titles[b.page])
			last = b.page
		}
		text = append(text, fmt.Sprintf("  %-13s %s", b.key, b.what))
	}
	return append(text, "", "A key that starts a command shows the command line first,", "and asks what the command asks.")
}
