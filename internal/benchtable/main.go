// Command benchtable reads what the benchmarks printed and prints their figures as one table: the median of each,
// with its unit and its aim. It writes the same to a file as JSON. "make bench" runs it at its end. With a second file's
// name it draws the comparison of "make bench-peers" there, as an SVG.
//
// A figure that misses its aim is marked and fails nothing: other work on the machine can cause it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

// figure is one figure of one benchmark.
type figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Value is the median of Runs measurements.
	Value float64 `json:"value"`
	Runs  int     `json:"runs"`
	// Aim is empty if there is none; Met says whether the value meets it.
	Aim string `json:"aim,omitzero"`
	Met *bool  `json:"met,omitzero"`

	values []float64
}

// aim is what a figure should be: at most or at least a bound.
type aim struct {
	name, unit string
	atLeast    bool
	bound      float64
}

func (a aim) String() string {
	sign := "≤ "
	if a.atLeast {
		sign = "≥ "
	}
	return sign + short(a.bound)
}

func (a aim) met(value float64) bool { return value == a.bound || value > a.bound == a.atLeast }

// aims are what docs/benchmarks.md calls an aim, or what a test requires.
var aims = []aim{
	{"OverheadPerRecord", "ns/record", false, 20_000},
	{"FiftyThousandAgainstASmallQuota/RetryAfter=0s", "calls/send", false, 5},
	{"FiftyThousandAgainstASmallQuota/RetryAfter=1s", "calls/send", false, 5},
	{"BesideABareWorker/distinct", "x-jobs/s", true, 0.9},
	{"BesideABareWorker/shared", "x-jobs/s", true, 1},
	{"BesideABareWorker/accepting", "x-jobs/s", true, 0.9},
	{"BesideABareWorker/distinct", "cpu-s/1000jobs", false, 0.35},
	{"BesideABareWorker/distinct", "MiB", false, 22},
	{"ColdStart", "x-next", false, 1.15},
	{"WorkerMemory", "x-growth", false, 1.3},
	{"RedriveMemory", "B/message", false, 2048},
	{"Throughput", "msg/s", true, 500},
	{"OpenPlanOfAMillion", "B/message", false, 100},
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("want the JSON file's name, and the plot's if one is wanted, got %d arguments", len(args))
	}
	figures := read(in)
	if len(figures) == 0 {
		return fmt.Errorf("no benchmark printed a figure")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tUNIT\tVALUE\tRUNS\tAIM\t")
	for _, f := range figures {
		mark := ""
		if f.Met != nil && !*f.Met {
			mark = "missed"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", f.Name, f.Unit, short(f.Value), f.Runs, f.Aim, mark)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(figures, "", " ")
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if err := os.WriteFile(args[1], []byte(plot(figures)), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(args[0], append(encoded, '\n'), 0o644)
}

// processors ends the name that Go gives a benchmark.
var processors = regexp.MustCompile(`-\d+$`)

// read collects the figures in the order of their first line.
func read(in io.Reader) []*figure {
	var all []*figure
	byName := map[[2]string]*figure{}
	for lines := benchfmt.NewReader(in, "the benchmarks"); lines.Scan(); {
		result, ok := lines.Result().(*benchfmt.Result)
		if !ok {
			continue // tests print lines of other forms, too
		}
		name := processors.ReplaceAllString(string(result.Name), "")
		for _, v := range result.Values {
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" {
				value, unit = v.OrigValue, v.OrigUnit
			}
			f := byName[[2]string{name, unit}]
			if f == nil {
				f = &figure{Name: name, Unit: unit}
				byName[[2]string{name, unit}], all = f, append(all, f)
			}
			f.values = append(f.values, value)
		}
	}
	for _, f := range all {
		f.Value, f.Runs = median(f.values), len(f.values)
		for _, a := range aims {
			if a.name == f.Name && a.unit == f.Unit {
				met := a.met(f.Value)
				f.Aim, f.Met = a.String(), &met
			}
		}
	}
	return all
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// short writes a value with four digits, or as a whole number.
func short(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
