package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"acklast/internal/job"
	"acklast/internal/overview"
	"acklast/internal/redrive"
)

var watchedAt = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// busy is a stack in trouble: a paused lane, the kill switch, a run, groups.
func busy() overview.Snapshot {
	counts := map[overview.Name][]float64{}
	for i, name := range overview.Names {
		counts[name] = []float64{0, float64(i), 2 * float64(i), 16}
	}
	return overview.Snapshot{
		Stack: "orders", Place: "AWS eu-central-1", At: watchedAt,
		Lanes: []overview.Lane{
			{Lane: job.Source, Scheduled: 1, Ready: 22, InFlight: 333, Oldest: &overview.Oldest{AgeSeconds: 90}, RetentionSeconds: 345600},
			{Lane: job.Recovery, Ready: 4444, Mapping: "Disabled", Paused: true, RetentionSeconds: 345600},
		},
		DLQ: overview.DLQ{Isolated: 121, InFlight: 3, RetentionSeconds: 14 * 86400},
		Isolated: &overview.Isolated{Jobs: 120, OldestAt: watchedAt.Add(-3 * time.Hour), Groups: []overview.Group{
			{Class: job.Transient, Cause: job.CauseAttempts, Kind: "reminder.send", Fingerprint: "provider answered #", Count: 100,
				OldestAt: watchedAt.Add(-3 * time.Hour), NewestAt: watchedAt.Add(-time.Minute), Jobs: []string{"reminder.send/r-1/email/v1", "reminder.send/r-2/email/v1"}},
			{Class: job.Ambiguous, Cause: "ambiguous", Kind: "reminder.send", Count: 20, Undecided: 20, OldestAt: watchedAt.Add(-50 * time.Hour), Jobs: []string{"reminder.send/r-9/email/v1"}},
		}},
		InScheduler: 7,
		Kinds:       []redrive.KindState{{Kind: "reminder.send", Paused: &redrive.Pause{By: "grace", Reason: "a wrong template"}}},
		Switch:      &redrive.Switch{On: true, By: "ada", Reason: "the provider answers 500"},
		Run: &redrive.Run{ID: "r-20261201-095500-1a2b3c4d", State: redrive.Active, Total: 100, Counts: map[redrive.Step]int{"sent": 40}, Canary: redrive.CanaryPassed,
			Watched: []redrive.Watched{{Ending: redrive.Succeeded}, {Ending: redrive.Again}, {}}},
		Series: &overview.Series{Source: "CloudWatch", From: watchedAt.Add(-15 * time.Minute), To: watchedAt, PeriodSeconds: 60, Counts: counts},
	}
}

// viewed is a view of a snapshot, which records what it starts and loads.
type viewed struct {
	*watchModel
	t       *testing.T
	started [][]string
	loaded  []string
}

func view(t *testing.T, s overview.Snapshot) *viewed {
	v := &viewed{t: t}
	v.watchModel = &watchModel{
		width: 80, height: 24, every: time.Second, open: []screen{{page: pageStack}},
		read: func() (overview.Snapshot, error) { return s, nil },
		load: func(s screen, _ int) (screen, error) {
			v.loaded = append(v.loaded, s.id)
			s.text, s.runs = []string{"text of " + s.id}, []redrive.Run{{ID: "r-1", Plan: "p-1", State: redrive.Active, Total: 3}, {Plan: "p-2", State: redrive.Planned}}
			if s.page == pageRun {
				s.plan = "p-1"
				if strings.HasPrefix(s.id, "r-") {
					s.run = s.id
				}
			}
			return s, nil
		},
		start: func(act action) tea.Cmd {
			asked := act.args
			for _, q := range act.questions {
				asked = append(slices.Clone(asked), q.flag, "?")
			}
			if act.confirm {
				asked = append(slices.Clone(asked), "confirm")
			}
			v.started = append(v.started, asked)
			return nil
		},
	}
	v.Update(lookMsg{snapshot: s})
	return v
}

// keys presses keys and does what they ask for, except waiting.
func (v *viewed) keys(names ...string) *viewed {
	v.t.Helper()
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "backspace": tea.KeyBackspace,
		"pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp}
	for _, name := range names {
		key := tea.KeyPressMsg{Text: name, Code: []rune(name)[0]}
		if code, ok := special[name]; ok {
			key = tea.KeyPressMsg{Code: code}
		}
		if name == "ctrl+c" {
			key = tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
		}
		_, cmd := v.Update(key)
		if cmd == nil {
			continue
		}
		if msg := cmd(); msg != nil {
			v.Update(msg)
		}
	}
	return v
}

// text is the view without styles.
func (v *viewed) text() string {
	var lines []string
	for line := range strings.SplitSeq(ansi.Strip(v.View().Content), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

func (v *viewed) wants(wanted ...string) {
	v.t.Helper()
	contains(v.t, v.text(), wanted...)
}

func (v *viewed) starts(wanted string) {
	v.t.Helper()
	got := ""
	if len(v.started) > 0 {
		got = strings.Join(v.started[len(v.started)-1], " ")
	}
	if got != wanted {
		v.t.Errorf("started %q, want %q; noted %q", got, wanted, v.noted)
	}
	v.started = nil
}

func TestWatchShowsAStackIn80x24(t *testing.T) {
	want := `acklast orders · AWS eu-central-1                           2026-12-01 10:00:00Z
LANE      SCHEDULED    READY  IN FLIGHT   ISOLATED   OLDEST
source            1       22        333          -   1m30s, 3 days left
recovery          0     4444          0          -   PAUSED  -
dlq               -        -          3        121   3h0m, 13 days left
In EventBridge Scheduler: 7
KILL SWITCH ON by ada: the provider answers 500
kind reminder.send PAUSED by grace: a wrong template

OUTCOMES A MINUTE (15 min, CloudWatch): fresh work 2.5, recovery lane 2.7
acknowledged     1.1 ▁▁▁█    retried          1.3 ▁▂▂█
deferred         1.5 ▁▂▃█    isolated         1.7 ▁▂▄█
left             1.9 ▁▃▅█    redriven         2.3 ▁▄▆█

REDRIVE r-20261201-095500-1a2b3c4d  ACTIVE
[####........] 40 of 100; canary passed; window: 2 of 3 sent jobs ran, 1 well

ISOLATED  120 jobs by the ledger; and 1 messages without an entry, see d
  COUNT  CLASS      CAUSE      KIND                 OLDEST   ERROR
>   100  transient  attempts   reminder.send        3h       provider answered #
     20  ambiguous  ambiguous  reminder.send        2d       -

` + "\n" + `↑↓ choose  enter open  p plan  j job  r runs  S stop redrives  ? keys  q quit`
	v := view(t, busy())
	if got := v.text(); got != want {
		t.Errorf("view is:\n%s\nwant:\n%s", got, want)
	}
}

// No line is wider than the terminal, and there are never more lines than it has.
func TestWatchFitsTheTerminal(t *testing.T) {
	s := busy()
	s.Place = strings.Repeat("far away ", 20)
	s.Switch.Reason = strings.Repeat("停", 100) // two cells each
	for range 50 {
		s.Isolated.Groups = append(s.Isolated.Groups, overview.Group{Class: "rejected", Kind: strings.Repeat("k", 50), Fingerprint: strings.Repeat("停", 100), Count: 1, OldestAt: watchedAt})
	}
	for _, size := range [][2]int{{80, 24}, {80, 10}, {40, 24}, {200, 60}} {
		for _, keys := range [][]string{{}, {"down", "down", "down"}, {"enter"}, {"?"}, {"r"}, {"j"}, {"j", "a", "enter"}} {
			v := view(t, s)
			v.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			lines := strings.Split(v.keys(keys...).View().Content, "\n")
			if len(lines) != size[1] {
				t.Errorf("%v after %q: %d lines", size, keys, len(lines))
			}
			for i, line := range lines {
				if lipgloss.Width(line) > size[0] {
					t.Errorf("%v after %q: line %d has %d cells: %s", size, keys, i, lipgloss.Width(line), line)
				}
			}
		}
	}
}

// The chosen row is always shown.
func TestWatchFollowsTheCursor(t *testing.T) {
	s := busy()
	for i := range 50 {
		s.Isolated.Groups = append(s.Isolated.Groups, overview.Group{Kind: fmt.Sprint("kind-", i), OldestAt: watchedAt})
	}
	v := view(t, s)
	for i := range 60 {
		chosen := fmt.Sprint("kind-", min(i, 51)-2)
		if i >= 2 && !strings.Contains(v.text(), chosen) {
			t.Fatalf("after %d keys %s is not shown:\n%s", i, chosen, v.text())
		}
		v.keys("down")
	}
	v.keys("pgup", "pgup", "pgup", "pgup", "pgup").wants(">   100  transient")
}

func TestWatchKeys(t *testing.T) {
	quiet := busy()
	quiet.Kinds, quiet.Lanes[1].Paused = nil, false
	several := busy()
	several.Kinds = append(several.Kinds, redrive.KindState{Kind: "other", Paused: &redrive.Pause{}})
	odd := busy()
	odd.Isolated.Groups[0].Fingerprint = `a "b", c`
	empty := overview.Snapshot{Isolated: &overview.Isolated{}}
	const group = "--class transient --kind reminder.send --fingerprint provider answered #"
	const reminder = "reminder.send/r-1/email/v1"
	for _, c := range []struct {
		s     overview.Snapshot
		keys  string
		start string // what is started
		shown string // what is shown then
	}{
		{busy(), "1", "pause source confirm", ""},
		{busy(), "2", "resume recovery confirm", ""},
		{quiet, "2", "pause recovery confirm", ""},
		{overview.Snapshot{LanesNotTold: "denied", Lanes: busy().Lanes}, "1", "", "it is not known whether the lane is paused"},
		{busy(), "K", "resume --kind reminder.send --reason ?", ""},
		{quiet, "K", "pause --kind reminder.send --reason ?", ""},
		{several, "K", "", "several kinds are paused"},
		{empty, "K", "", "no group is chosen"},
		{busy(), "S", "redrive stop confirm", ""},
		{busy(), "U", "redrive resume --reason ?", ""},
		{busy(), "d", "dlq", ""},
		{busy(), "p", "redrive plan " + group + " --reason ?", ""},
		{busy(), "O", "redrive plan " + group + " --open --count ? --reason ?", ""},
		{empty, "O", "", "nothing is isolated with an entry"},
		{busy(), "enter O", "redrive plan " + group + " --open --count ? --reason ?", ""},
		{odd, "p", `redrive plan --class transient --kind reminder.send --fingerprint "a ""b"", c" --reason ?`, ""},
		{busy(), "down p", "redrive plan --class ambiguous --kind reminder.send --reason ?", ""},
		{empty, "p", "", "nothing is isolated with an entry"},
		{empty, "enter", "", "ISOLATED  0 jobs"},
		{busy(), "z", "", `"z" does nothing here`},

		{busy(), "enter", "", "oldest   isolated 3h ago, deleted by SQS in 13 days"},
		{busy(), "down enter", "", "20 wait for a decision"},
		{busy(), "enter p", "redrive plan " + group + " --reason ?", ""},
		{busy(), "enter d", "dlq " + group, ""},
		{busy(), "enter x", "discard " + group + " --count 100 --reason ?", ""},
		{busy(), "down enter Y", "decide --sent --class ambiguous --kind reminder.send --count 20 --reason ?", ""},
		{busy(), "down enter N", "decide --not-sent --class ambiguous --kind reminder.send --count 20 --reason ?", ""},
		{busy(), "enter S", "", `"S" does nothing here`},
		{busy(), "enter q", "", "LANE"},
		{busy(), "enter esc", "", "LANE"},

		{busy(), "enter enter", "", "text of " + reminder},
		{busy(), "enter down enter", "", "text of reminder.send/r-2/email/v1"},
		{busy(), "enter enter o", "redrive run --only " + reminder + " --reason ?", ""},
		{busy(), "enter enter c", "cancel " + reminder + " --reason ?", ""},
		{busy(), "enter enter x", "discard " + reminder + " --reason ?", ""},
		{busy(), "enter enter Y", "decide " + reminder + " --sent --reason ?", ""},
		{busy(), "enter enter N", "decide " + reminder + " --not-sent --reason ?", ""},
		{busy(), "enter enter b", "redrive mend " + reminder, ""},
		{busy(), "enter enter m", "redrive mend " + reminder + " --file ? --reason ?", ""},
		{busy(), "enter enter d", "dlq --show " + reminder, ""},
		{busy(), "enter enter u", "audit " + reminder, ""},

		{busy(), "j", "", "Job's key, or subject: _"},
		{busy(), "j r - 8 backspace 7 enter", "", "text of r-7"},
		{busy(), "j r enter x", "", "this is a subject"},
		{busy(), "j r esc", "", "LANE"},
		{busy(), "j enter", "", "LANE"},

		{busy(), "r", "", "PLANS AND RUNS"},
		{busy(), "r enter", "", "text of r-1"},
		{busy(), "r down enter", "", "text of p-2"},
		{busy(), "r enter a", "redrive approve p-1 --reason ?", ""},
		{busy(), "r enter R", "redrive run r-1", ""},
		{busy(), "r down enter R", "redrive run p-2", ""},
		{busy(), "r enter S", "redrive stop r-1 confirm", ""},
		{busy(), "r down enter S", "", "there is no run yet"},
		{busy(), "r enter v", "redrive revoke r-1 --reason ?", ""},
		{busy(), "r enter u", "audit r-1", ""},
		{busy(), "r enter q", "", "PLANS AND RUNS"},

		{busy(), "?", "", "pause or resume the source lane"},
		{busy(), "? pgdown pgdown", "", "and asks what the command asks."},
		{busy(), "? pgdown pgdown pgup pgup", "", "Everywhere"},
	} {
		t.Run(c.keys, func(t *testing.T) {
			v := view(t, c.s).keys(strings.Fields(c.keys)...)
			v.starts(c.start)
			v.wants(c.shown)
		})
	}
}

// Every key that starts a command is in the help, and the key lines fit the terminal.
func TestWatchHelpNamesEveryKey(t *testing.T) {
	text := strings.Join(helpText(), "\n")
	for page, keys := range keyLines {
		if n := lipgloss.Width(keys); n > 80 {
			t.Errorf("the key line of page %d has %d cells: %s", page, n, keys)
		}
	}
	for _, b := range actions {
		contains(t, text, fmt.Sprintf("  %-13s %s", b.key, b.what))
	}
}

func TestWatchQuits(t *testing.T) {
	for _, c := range []struct {
		keys  []string
		quits string
	}{{nil, "q"}, {nil, "ctrl+c"}, {[]string{"enter"}, "ctrl+c"}, {[]string{"j"}, "ctrl+c"}} {
		v := view(t, busy()).keys(c.keys...)
		key := tea.KeyPressMsg{Text: "q", Code: 'q'}
		if c.quits == "ctrl+c" {
			key = tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
		}
		_, cmd := v.Update(key)
		if cmd == nil {
			t.Fatalf("%s after %q does not quit", c.quits, c.keys)
		}
		if _, quits := cmd().(tea.QuitMsg); !quits {
			t.Errorf("%s after %q does not quit", c.quits, c.keys)
		}
	}
}

// A look that failed keeps the figures and says that they are old. The next one takes that away.
func TestWatchOutlivesAnOutage(t *testing.T) {
	v := view(t, busy())
	v.Update(lookMsg{err: errors.New("no route\x1b[2J")})
	v.wants("NOT READ, the figures are old: no route", "source            1")
	v.Update(lookMsg{snapshot: busy()})
	if strings.Contains(v.text(), "NOT READ") {
		t.Errorf("still:\n%s", v.text())
	}
	v.load = func(s screen, _ int) (screen, error) { return s, errors.New("denied") }
	v.keys("r").wants("Not read: denied")
}

// The words say everything: with NO_COLOR the terminal gets no colour. The program ends with its keys.
func TestWatchWithoutColour(t *testing.T) {
	shown := func(env ...string) string {
		t.Helper()
		v := view(t, busy())
		var out buffer
		input, keys := io.Pipe()
		defer func() { _ = keys.Close() }()
		p := tea.NewProgram(v.watchModel, tea.WithInput(input), tea.WithOutput(&out), tea.WithWindowSize(80, 24),
			tea.WithEnvironment(append(env, "TERM=xterm-256color", "TTY_FORCE=1")), tea.WithoutSignalHandler())
		ended := make(chan error, 1)
		go func() { _, err := p.Run(); ended <- err }()
		eventually(t, time.Minute, func() bool { return strings.Contains(out.String(), "KILL SWITCH ON") }, out.String)
		if _, err := keys.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	colour := regexp.MustCompile(`\x1b\[[0-9;]*(3[0-7]|9[0-7]|38)[;m]`)
	if !colour.MatchString(shown()) {
		t.Error("no colour at all")
	}
	if got := colour.FindString(shown("NO_COLOR=1")); got != "" {
		t.Errorf("NO_COLOR, and yet %q", got)
	}
}

// After a command, the view looks again at once, and goes on in its own time.
func TestWatchLooksAgainAfterACommand(t *testing.T) {
	v := view(t, busy())
	_, cmd := v.Update(actedMsg{})
	messages, isBatch := cmd().(tea.BatchMsg)
	if !isBatch {
		messages = tea.BatchMsg{cmd}
	}
	looks := 0
	for _, one := range messages {
		if one == nil {
			continue
		}
		msg, isLook := one().(lookMsg)
		if !isLook {
			continue
		}
		looks++
		if _, next := v.Update(msg); next != nil {
			t.Error("a look after a command starts another interval")
		}
	}
	if looks != 1 {
		t.Errorf("%d looks, want 1", looks)
	}
}

// What is missing says why. There is no row of zeros for a history that nobody has.
func TestWatchSaysWhatIsMissing(t *testing.T) {
	s := busy()
	s.Series = &overview.Series{NoHistory: "no history here"}
	s.Isolated, s.IsolatedNotTold = nil, "the ledger did not tell"
	s.Switch, s.Run, s.Kinds, s.RedriveNotTold = nil, nil, nil, "the operations table did not tell"
	s.LanesNotTold, s.SchedulerNotTold = "Lambda did not tell", "denied"
	v := view(t, s)
	v.wants("no history here", "the ledger did not tell", "the operations table did not tell", "Lambda did not tell", "In EventBridge Scheduler: not told")
	if strings.Contains(v.text(), "acknowledged") {
		t.Errorf("outcomes are shown:\n%s", v.text())
	}
}

// What a newer version wrote is named above the groups of the others.
func TestWatchNamesNewerEntries(t *testing.T) {
	s := busy()
	s.IsolatedNotTold = "2 of 9 isolated jobs are in no group"
	v := view(t, s)
	v.wants(s.IsolatedNotTold, "COUNT")
}

// A group that is empty meanwhile says so; its figures follow the snapshot.
func TestWatchFollowsAGroup(t *testing.T) {
	v := view(t, busy()).keys("enter")
	s := busy()
	s.Isolated.Groups[0].Count = 77
	v.Update(lookMsg{snapshot: s})
	v.wants("count    77")
	s.Isolated.Groups = s.Isolated.Groups[1:]
	v.Update(lookMsg{snapshot: s})
	v.wants("None is isolated any more.")
	v.keys("x").starts("")
	v.wants("none of the group is isolated any more")
	v.keys("enter").starts("")
}

// Whatever senders and people wrote, no control character reaches the terminal.
func TestWatchShowsNoControlCharacter(t *testing.T) {
	const evil = "x\x1b]0;owned\x07\x9b2J\r\n\u202e"
	s := busy()
	s.Stack, s.Place, s.Switch.Reason, s.Switch.By = evil, evil, evil, evil
	s.Kinds[0].Kind, s.Kinds[0].Paused.Reason = evil, evil
	s.Run.ID, s.Run.Why, s.LanesNotTold = evil, evil, evil
	for i := range s.Isolated.Groups {
		g := &s.Isolated.Groups[i]
		g.Kind, g.Fingerprint, g.Jobs, g.Cause = evil, evil, []string{evil}, evil
	}
	clean := func(what, text string) {
		t.Helper()
		for _, r := range strings.ReplaceAll(ansi.Strip(text), "\n", "") {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("%s: %q in %q", what, r, text)
				return
			}
		}
	}
	for _, keys := range [][]string{{}, {"enter"}, {"enter", "enter"}, {"r"}, {"j", evil}} {
		v := view(t, s)
		content := v.keys(keys...).View().Content
		// Styles are the only sequences.
		for _, part := range strings.Split(content, "\x1b")[1:] {
			if !strings.HasPrefix(part, "[") || strings.IndexByte(part, 'm') < 0 || strings.Trim(part[1:strings.IndexByte(part, 'm')], "0123456789;") != "" {
				t.Errorf("%q: a sequence that is no style: %q", keys, part)
			}
		}
		clean(fmt.Sprint(keys), content)
	}
	clean("a line", watchLine(s))
	if strings.Contains(watchLine(s), "\n") {
		t.Errorf("a line has several: %q", watchLine(s))
	}
}
