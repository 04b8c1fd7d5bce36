package console

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"acklast/internal/capacity"
	"acklast/internal/topology"
)

// number is a field of the form for capacity. Its name is the command's flag.
type number struct {
	Name, Label string
	// Hint is an example, or the value for which an empty field stands.
	Hint string
	// Needed says that there is no plan without it.
	Needed bool
	Value  string
	// From says where the number was read, if it was read from the stack.
	From string
	set  func(*capacity.Input, string) error
}

func float(to func(*capacity.Input) *float64) func(*capacity.Input, string) error {
	return func(in *capacity.Input, text string) (err error) {
		*to(in), err = strconv.ParseFloat(text, 64)
		return err
	}
}

func whole(to func(*capacity.Input) *int) func(*capacity.Input, string) error {
	return func(in *capacity.Input, text string) (err error) { *to(in), err = strconv.Atoi(text); return err }
}

func length(to func(*capacity.Input) *time.Duration) func(*capacity.Input, string) error {
	return func(in *capacity.Input, text string) (err error) { *to(in), err = time.ParseDuration(text); return err }
}

// usual are the numbers of a plan for the fields that are empty.
func usual() capacity.Input {
	n := topology.Default()
	return capacity.Input{Retries: n.MaxAttempts - 1, Batch: n.BatchSize, SourceCap: n.SourceConcurrency, RecoveryCap: n.RecoveryConcurrency}
}

// numbers are the fields of the form, empty.
func numbers() []number {
	def := usual()
	return []number{
		{Name: "arrivals", Label: "Fresh jobs a second", Hint: "40", Needed: true, set: float(func(in *capacity.Input) *float64 { return &in.Arrivals })},
		{Name: "failing", Label: "Fraction of attempts that fail", Hint: "0", set: float(func(in *capacity.Input) *float64 { return &in.Failing })},
		{Name: "retries", Label: "Attempts after the first, at most", Hint: strconv.Itoa(def.Retries), set: whole(func(in *capacity.Input) *int { return &in.Retries })},
		{Name: "p50", Label: "Median time of a record", Hint: "100ms", Needed: true, set: length(func(in *capacity.Input) *time.Duration { return &in.P50 })},
		{Name: "p95", Label: "95th percentile of it", Hint: "400ms", Needed: true, set: length(func(in *capacity.Input) *time.Duration { return &in.P95 })},
		{Name: "batch", Label: "Batch size", Hint: strconv.Itoa(def.Batch), set: whole(func(in *capacity.Input) *int { return &in.Batch })},
		{Name: "source-concurrency", Label: "Source concurrency", Hint: strconv.Itoa(def.SourceCap), set: whole(func(in *capacity.Input) *int { return &in.SourceCap })},
		{Name: "recovery-concurrency", Label: "Recovery concurrency", Hint: strconv.Itoa(def.RecoveryCap), set: whole(func(in *capacity.Input) *int { return &in.RecoveryCap })},
		{Name: "quota", Label: "Provider's quota a second", Hint: "no limit", set: float(func(in *capacity.Input) *float64 { return &in.Quota })},
		{Name: "backlog", Label: "Backlog, jobs", Hint: "0", set: whole(func(in *capacity.Input) *int { return &in.Backlog })},
		{Name: "within", Label: "Backlog done within", Hint: "no deadline", set: length(func(in *capacity.Input) *time.Duration { return &in.Within })},
		{Name: "rate", Label: "Redriven jobs a second", Hint: "the largest safe rate", set: float(func(in *capacity.Input) *float64 { return &in.Rate })},
	}
}

// windows are the times before now whose rates may be read from the stack.
var windows = []string{"15m", "1h", "6h", "24h"}

// capacityData is what the page about capacity shows.
type capacityData struct {
	Numbers []number
	Plan    *capacity.Plan
	// Wrong says what is wrong with the numbers, or missing.
	Wrong []string
	// Read says that the stack was read, and Cost what that cost.
	Read, Cost string
	Windows    []string
	Window     string
	Backlog    Drawing
}

// Drawing is lines over the time since a beginning.
type Drawing struct {
	Names []string
	Rows  []DrawingRow
}

// DrawingRow has the values of a drawing's lines at one time.
type DrawingRow struct {
	At      time.Duration
	Seconds float64
	Values  []float64
}

func (s *Server) capacity(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	d := capacityData{Numbers: numbers(), Windows: windows, Window: "1h"}
	if v := q.Get("window"); v != "" {
		d.Window = v
	}
	if _, asked := q["arrivals"]; asked {
		if err := s.compute(r, &d, q); err != nil {
			return err
		}
	}
	s.show(w, r, http.StatusOK, "capacity", page{Title: "Capacity", Section: "capacity", Data: d})
	return nil
}

// compute makes the plan of a form, with numbers of the stack in its empty fields if the form asks for that.
func (s *Server) compute(r *http.Request, d *capacityData, q url.Values) error {
	in, given := usual(), map[string]bool{}
	for i := range d.Numbers {
		n := &d.Numbers[i]
		if n.Value = strings.TrimSpace(q.Get(n.Name)); n.Value == "" {
			continue
		}
		given[n.Name] = true
		if err := n.set(&in, n.Value); err != nil {
			d.Wrong = append(d.Wrong, fmt.Sprintf("%s: %q is not readable", n.Label, n.Value))
		}
	}
	if q.Get("from") == "stack" {
		window, err := time.ParseDuration(d.Window)
		if err != nil || window < time.Minute {
			return badRequest("the window is %q, want a time of at least a minute, such as 1h", d.Window)
		}
		m, err := s.config.Stack.Measure(r.Context(), window)
		if err != nil {
			return err
		}
		sources, missing := m.Fill(&in, func(name string) bool { return given[name] })
		for i := range d.Numbers {
			d.Numbers[i].From = sources[d.Numbers[i].Name]
		}
		for _, l := range missing {
			d.Wrong = append(d.Wrong, fmt.Sprintf("%s is not known: %s", labelOf(d.Numbers, l.Name), l.Why))
		}
		d.Read = "Empty fields were read from CloudWatch, SQS and Lambda."
		if m.CostUSD > 0 {
			d.Cost = fmt.Sprintf("Reading the counts cost $%.5f.", m.CostUSD)
		}
	} else {
		for _, n := range d.Numbers {
			if n.Needed && n.Value == "" {
				d.Wrong = append(d.Wrong, n.Label+" is not given")
			}
		}
	}
	if len(d.Wrong) > 0 {
		return nil
	}
	p, err := capacity.New(in)
	if err != nil {
		d.Wrong = strings.Split(err.Error(), "\n")
		return nil
	}
	d.Plan = &p
	if in.Backlog > 0 {
		d.Backlog = drawingOf(p)
	}
	return nil
}

func labelOf(list []number, name string) string {
	for _, n := range list {
		if n.Name == name {
			return n.Label
		}
	}
	return name
}

// drawingOf is a plan's backlog over time, in whole jobs.
func drawingOf(p capacity.Plan) Drawing {
	d := Drawing{Names: []string{"isolated jobs"}}
	if p.Input.Within > 0 {
		d.Names = append(d.Names, "needed to meet the deadline")
	}
	for _, point := range p.Curve(capacity.DrawnSteps) {
		row := DrawingRow{At: point.At, Seconds: point.At.Seconds(), Values: []float64{math.Round(point.Left)}}
		if p.Input.Within > 0 {
			row.Values = append(row.Values, math.Round(point.Needed))
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}
