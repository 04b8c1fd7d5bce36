package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"acklast/internal/overview"
	"acklast/internal/redrive"
)

// page is the kind of a screen.
type page int

const (
	pageStack page = iota // the whole stack, with the groups of isolated jobs
	pageGroup             // one group, with some of its jobs
	pageJob
	pageRuns // plans and runs
	pageRun  // a plan, or a run
	pageHelp
)

// screen is one page that is open. The pages before it are below it.
type screen struct {
	page page
	// id is a job's key or a subject, or the id of a plan or a run.
	id    string
	group overview.Group
	runs  []redrive.Run
	// run and plan are the ids of what pageRun shows, as far as they exist.
	run, plan string
	// text is the page's text, without control characters. failed says why it could not be read.
	text   []string
	failed string
	// cursor is the chosen row of a list, and top the first line that is shown.
	cursor, top int
}

// watchModel is the state of the live view. It changes only in Update; everything that takes time is a command.
type watchModel struct {
	width, height int
	every         time.Duration
	// read reads a snapshot, and load the text of a screen that is no list of the snapshot.
	read func() (overview.Snapshot, error)
	load func(s screen, width int) (screen, error)
	// start starts an action on the terminal.
	start func(action) tea.Cmd

	snapshot overview.Snapshot
	ready    bool   // there is a snapshot
	failed   string // why the last look failed
	open     []screen
	// typing is the text of a job's key that is being typed; nil while none is.
	typing *string
	// noted says what the last key did not do.
	noted string
}

// The messages of the view.
type (
	lookMsg struct {
		snapshot overview.Snapshot
		err      error
		// extra says that the look was not one of those at every interval.
		extra bool
	}
	// loadedMsg has the screen that was asked for, with its text.
	loadedMsg struct {
		screen screen
		err    error
	}
	tickMsg struct{}
	// actedMsg says that an action has ended.
	actedMsg struct{}
)

// watchModel returns the view of a target.
func (a *app) watchModel(ctx context.Context, t *target, reader *overview.Reader, every time.Duration) *watchModel {
	return &watchModel{
		width: defaultColumns, height: 24, every: every, open: []screen{{page: pageStack}},
		read: func() (overview.Snapshot, error) {
			s, err := reader.Read(ctx)
			if err != nil {
				err = errors.New(reason(t.explain(err)))
			}
			return s, err
		},
		load:  func(s screen, width int) (screen, error) { return a.loadScreen(ctx, t, s, width) },
		start: func(act action) tea.Cmd { return a.startAction(ctx, act) },
	}
}

// Init implements tea.Model.
func (m *watchModel) Init() tea.Cmd { return m.look(false) }

func (m *watchModel) look(extra bool) tea.Cmd {
	return func() tea.Msg {
		s, err := m.read()
		return lookMsg{s, err, extra}
	}
}

// Update implements tea.Model.
func (m *watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m, m.reload()
	case lookMsg:
		if m.failed = ""; msg.err != nil {
			m.failed = plain(msg.err.Error())
		} else {
			m.snapshot, m.ready = msg.snapshot, true
		}
		m.followGroup()
		if msg.extra {
			return m, nil
		}
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return tickMsg{} })
	case tickMsg:
		if m.top().page == pageJob { // it asks the redrive function for more than a watch needs
			return m, m.look(false)
		}
		return m, tea.Batch(m.look(false), m.reload())
	case loadedMsg:
		m.loaded(msg)
	case actedMsg:
		return m, tea.Batch(m.look(true), m.reload())
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

// top is the screen that is shown.
func (m *watchModel) top() *screen { return &m.open[len(m.open)-1] }

// reload reads the shown screen again, if it is not a part of the snapshot.
func (m *watchModel) reload() tea.Cmd {
	s, width := *m.top(), m.width
	if s.page != pageJob && s.page != pageRuns && s.page != pageRun {
		return nil
	}
	return func() tea.Msg {
		got, err := m.load(s, width)
		return loadedMsg{got, err}
	}
}

// loaded shows what was read, unless another screen is open by now.
func (m *watchModel) loaded(msg loadedMsg) {
	s := m.top()
	if s.page != msg.screen.page || s.id != msg.screen.id {
		return
	}
	if s.failed = ""; msg.err != nil {
		s.failed = plain(reason(msg.err))
		return
	}
	s.text, s.runs, s.run, s.plan = msg.screen.text, msg.screen.runs, msg.screen.run, msg.screen.plan
	m.move(0)
}

// followGroup gives an open group its latest figures.
func (m *watchModel) followGroup() {
	m.move(0)
	s := m.top()
	if s.page != pageGroup || m.snapshot.Isolated == nil {
		return
	}
	for _, g := range m.snapshot.Isolated.Groups {
		if g.Class == s.group.Class && g.Kind == s.group.Kind && g.Cause == s.group.Cause && g.Fingerprint == s.group.Fingerprint {
			s.group = g
			m.move(0)
			return
		}
	}
	s.group.Count, s.group.Undecided, s.group.Jobs = 0, 0, nil
	m.move(0)
}

func (m *watchModel) groups() []overview.Group {
	if m.snapshot.Isolated == nil {
		return nil
	}
	return m.snapshot.Isolated.Groups
}

// rows is how many rows the shown screen's list has; 0 if it is a text.
func (m *watchModel) rows() int {
	switch s := m.top(); s.page {
	case pageStack:
		return len(m.groups())
	case pageGroup:
		return len(s.group.Jobs)
	case pageRuns:
		return len(s.runs)
	}
	return 0
}

// move moves the cursor of a list, or scrolls a text.
func (m *watchModel) move(by int) {
	s := m.top()
	if s.page == pageStack || s.page == pageGroup || s.page == pageRuns {
		s.cursor = max(0, min(s.cursor+by, m.rows()-1))
		return
	}
	s.top = max(0, min(s.top+by, len(s.text)-m.textHeight()))
}

// show opens a screen above the others.
func (m *watchModel) show(s screen) tea.Cmd {
	m.open = append(m.open, s)
	return m.reload()
}

// press does what a key does.
func (m *watchModel) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	m.noted = ""
	if key.String() == "ctrl+c" {
		return m, tea.Quit
	}
	if m.typing != nil {
		return m, m.typed(key)
	}
	switch key.String() {
	case "q", "esc", "left", "backspace":
		if len(m.open) > 1 {
			m.open = m.open[:len(m.open)-1]
			return m, m.reload()
		}
		if key.String() == "q" {
			return m, tea.Quit
		}
	case "up", "k":
		m.move(-1)
	case "down":
		m.move(1)
	case "pgup":
		m.move(-m.textHeight())
	case "pgdown", "space":
		m.move(m.textHeight())
	case "enter", "right":
		return m, m.enter()
	case "j":
		m.typing = new(string)
	case "r":
		return m, m.show(screen{page: pageRuns})
	case "?":
		return m, m.show(screen{page: pageHelp, text: helpText()})
	default:
		return m, m.actOn(key.String())
	}
	return m, nil
}

// typed takes a key while a job's key is being typed.
func (m *watchModel) typed(key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "esc":
		m.typing = nil
	case "enter":
		id := strings.TrimSpace(*m.typing)
		m.typing = nil
		if id != "" {
			return m.show(screen{page: pageJob, id: id})
		}
	case "backspace":
		if runes := []rune(*m.typing); len(runes) > 0 {
			*m.typing = string(runes[:len(runes)-1])
		}
	default:
		*m.typing += plain(key.Text)
	}
	return nil
}

// enter opens what the cursor is on.
func (m *watchModel) enter() tea.Cmd {
	s := m.top()
	if s.cursor >= m.rows() {
		return nil
	}
	switch s.page {
	case pageStack:
		return m.show(screen{page: pageGroup, group: m.groups()[s.cursor]})
	case pageGroup:
		return m.show(screen{page: pageJob, id: s.group.Jobs[s.cursor]})
	case pageRuns:
		r := s.runs[s.cursor]
		if r.State == redrive.Planned {
			return m.show(screen{page: pageRun, id: r.Plan})
		}
		return m.show(screen{page: pageRun, id: r.ID})
	}
	return nil
}

// actOn starts the action of a key on the shown screen.
func (m *watchModel) actOn(key string) tea.Cmd {
	i := slices.IndexFunc(actions, func(b binding) bool { return b.key == key && b.page == m.top().page })
	if i < 0 {
		m.noted = fmt.Sprintf("%q does nothing here; ? lists the keys", plain(key))
		return nil
	}
	act, why := actions[i].make(m)
	if why != "" {
		m.noted = why
		return nil
	}
	return m.start(act)
}
