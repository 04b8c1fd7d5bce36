package stack

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"acklast/infra/cloudwatch"
)

// warm is how long the world is well before a scenario happens.
const warm = time.Hour

// observed is one scenario under one traffic: its metrics, and for how many minutes there are some.
type observed struct {
	metrics *cloudwatch.Metrics
	minutes int
}

func (sc scenario) play(t *testing.T, i int, rule, version string) observed {
	t.Helper()
	tr := traffics[i]
	if i == len(traffics)-1 && sc.thousand != nil {
		tr = *sc.thousand
	}
	var seen observed
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, tr.every, tr.weight)
		w.rule, w.version = rule, version
		if sc.prepare != nil {
			sc.prepare(w)
		}
		done := make(chan struct{})
		go w.live(done)
		// Between two seconds, so that the scenario and the world never act at once.
		time.Sleep(warm - time.Second/2)
		sc.happens(w)
		w.mu.Lock()
		w.stop = true
		w.mu.Unlock()
		<-done
		seen = observed{w.metrics, int(time.Since(w.began) / time.Minute)}
	})
	return seen
}

// rang is an alarm that was on since the scenario happened: first when, in minutes, and all the times.
type rang struct {
	name  string
	first int
	when  string
}

// on says when an alarm was on since the scenario happened; empty when it was not.
func (o observed) on(a cloudwatch.Alarm, m *cloudwatch.Metrics) rang {
	const from = int(warm / time.Minute)
	var since []cloudwatch.Span
	for _, s := range a.Spans(m, o.minutes) {
		if s.Off < 0 || s.Off > from {
			s.On = max(s.On, from) // or it was on before
			since = append(since, s)
		}
	}
	if len(since) == 0 {
		return rang{}
	}
	return rang{strings.TrimPrefix(a.Name, "acklast-"), since[0].On - from, cloudwatch.Describe(since, from)}
}

// deployedAlarms are the alarms as the template of a checked deployment has them, the name of the census's rule, and
// the worker's version.
func deployedAlarms(t *testing.T) (all []cloudwatch.Alarm, rule, version string) {
	t.Helper()
	tm := templateOf(t, checked())
	for _, id := range tm.of("AWS::CloudWatch::Alarm") {
		a, err := cloudwatch.ParseAlarm(tm.resolve(tm.Resources[id].Properties).(map[string]any))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	for _, id := range tm.of("AWS::Lambda::Alias") {
		if p := tm.Resources[id].Properties; p["Name"] == AliasLive {
			version = tm.text(p["FunctionVersion"])
		}
	}
	return all, tm.ref(tm.of("AWS::Events::Rule")[0]), version
}

// The alarms' definitions are the template's, the metrics are what the real worker and redrive function write in
// virtual time. The table in docs/deploy.md is what this test sees; write it anew with
// go test ./infra/stack -run AlarmTable -update
func TestAlarmTable(t *testing.T) {
	alarms, rule, version := deployedAlarms(t)
	var mu sync.Mutex
	// A metric is needed when some alarm would be on at other times without it.
	needed := map[string]bool{}
	everRang := map[string]bool{}
	cells := map[string]string{}
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios {
			for i, tr := range traffics {
				name := sc.name + ", " + tr.name
				t.Run(name, func(t *testing.T) {
					t.Parallel() // nothing in it reaches the CDK
					seen := sc.play(t, i, rule, version)
					mu.Lock()
					defer mu.Unlock()
					var all []rang
					for _, a := range alarms {
						r := seen.on(a, seen.metrics)
						if r.when != "" {
							all = append(all, r)
							everRang[r.name] = true
						}
						for _, s := range a.Series() {
							if by := fmt.Sprint(a.Name, " ", s); !needed[by] && seen.on(a, seen.metrics.Without(s)) != r {
								needed[by] = true
							}
						}
					}
					slices.SortStableFunc(all, func(a, b rang) int { return cmp.Compare(a.first, b.first) })
					sc.check(t, i, all)
					cells[name] = cell(all)
				})
			}
		}
	})
	var table strings.Builder
	table.WriteString("| what happens |")
	for _, tr := range traffics {
		table.WriteString(" " + tr.name + " |")
	}
	table.WriteString("\n| --- |" + strings.Repeat(" --- |", len(traffics)) + "\n")
	for _, sc := range scenarios {
		table.WriteString("| " + sc.name + " |")
		for _, tr := range traffics {
			table.WriteString(" " + cells[sc.name+", "+tr.name] + " |")
		}
		table.WriteString("\n")
	}
	for _, a := range alarms {
		if name := strings.TrimPrefix(a.Name, "acklast-"); !everRang[name] {
			t.Errorf("%s fires in no scenario", name)
		}
		for _, s := range a.Series() {
			if by := fmt.Sprint(a.Name, " ", s); !needed[by] {
				t.Errorf("%s: no scenario would notice that nobody writes %s", a.Name, s)
			}
		}
	}
	checkTable(t, table.String())
}

// check says which alarms should have been on, or off.
func (sc scenario) check(t *testing.T, i int, all []rang) {
	t.Helper()
	want := slices.Concat(sc.rings, sc.more[i])
	for _, r := range all {
		if !slices.Contains(want, r.name) {
			t.Errorf("%s should stay quiet, and is on at %s", r.name, r.when)
		}
		if len(sc.rings) > 0 && r.name == sc.rings[0] && r.first > sc.within {
			t.Errorf("%s fires after %d minutes, want at most %d", r.name, r.first, sc.within)
		}
	}
	for _, name := range want {
		if !slices.ContainsFunc(all, func(r rang) bool { return r.name == name }) {
			t.Errorf("%s does not fire", name)
		}
	}
}

func cell(all []rang) string {
	if len(all) == 0 {
		return "none"
	}
	var parts []string
	for _, r := range all {
		parts = append(parts, "`"+r.name+"` "+r.when)
	}
	return strings.Join(parts, "<br>")
}

// checkTable checks the table in the documentation, or writes it.
func checkTable(t *testing.T, table string) {
	t.Helper()
	checkBlock(t, "<!-- The table is made by TestAlarmTable. -->\n", "<!-- The table ends here. -->\n", table,
		"go test ./infra/stack -run AlarmTable -update")
}

// checkBlock checks what docs/deploy.md has between two lines, or writes it.
func checkBlock(t *testing.T, begin, end, block, command string) {
	t.Helper()
	const file = "../../docs/deploy.md"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(raw), begin)
	old, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place between %q and %q", file, begin, end)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+block+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != block {
		equal(t, file, strings.Split(block, "\n"), strings.Split(old, "\n"))
		t.Errorf("%s is not current; if the change is meant: %s", file, command)
	}
}
