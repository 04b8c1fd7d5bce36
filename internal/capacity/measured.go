package capacity

import (
	"fmt"
	"time"
)

// Measured is what a stack tells about itself. A reason that is not empty says why the numbers beside it are missing.
type Measured struct {
	// Fresh, Retried and Ended count the deliveries from From to To: fresh jobs that the source lane was done with,
	// attempts that are retried, and attempts that were the last of their job. Source says where the counts are from.
	Fresh, Retried, Ended float64
	From, To              time.Time
	Source, NoHistory     string
	// CostUSD is what the reading of the counts cost.
	CostUSD float64
	// P50 and P95 are the worker's durations.
	P50, P95   time.Duration
	NoDuration string
	// Batch is the lanes' batch size, SourceCap and RecoveryCap are their caps.
	Batch, SourceCap, RecoveryCap int
	NoMappings                    string
	// Backlog is the DLQ's depth, Left the time until SQS deletes its oldest message; 0 if that is not known.
	Backlog int
	Left    time.Duration
}

// Missing is a number that a plan needs and that nobody gave. Name is the number's flag.
type Missing struct{ Name, Why string }

// Fill fills in the numbers of a plan that were not given. It returns where each is from, by the number's flag, and
// what is still missing.
func (m Measured) Fill(in *Input, given func(flag string) bool) (sources map[string]string, missing []Missing) {
	sources = map[string]string{}
	lack := func(flag, why string) { missing = append(missing, Missing{flag, why}) }
	seconds := m.To.Sub(m.From).Seconds()
	if !given("arrivals") {
		if m.NoHistory != "" || seconds <= 0 {
			lack("arrivals", m.NoHistory)
		} else {
			in.Arrivals = m.Fresh / seconds
			sources["arrivals"] = fmt.Sprintf("%s/s: messages that the source lane was done with since %s, %s", Rate(in.Arrivals), m.From.UTC().Format(time.RFC3339), m.Source)
		}
	}
	if !given("failing") {
		switch {
		case m.NoHistory != "":
			lack("failing", m.NoHistory)
		case m.Retried+m.Ended == 0:
			lack("failing", "no attempt was made in the window")
		default:
			in.Failing = m.Retried / (m.Retried + m.Ended)
			sources["failing"] = fmt.Sprintf("%.3g: attempts that were retried, of those that were retried or acknowledged", in.Failing)
		}
	}
	for _, d := range []struct {
		flag string
		to   *time.Duration
		from time.Duration
	}{{"p50", &in.P50, m.P50}, {"p95", &in.P95, m.P95}} {
		switch {
		case given(d.flag):
		case m.NoDuration != "":
			lack(d.flag, m.NoDuration)
		default:
			*d.to = d.from
			sources[d.flag] = fmt.Sprintf("%v: of whole invocations, so at least that of a record", d.from.Round(time.Millisecond))
		}
	}
	for _, n := range []struct {
		flag string
		to   *int
		from int
	}{{"batch", &in.Batch, m.Batch}, {"source-concurrency", &in.SourceCap, m.SourceCap}, {"recovery-concurrency", &in.RecoveryCap, m.RecoveryCap}} {
		switch {
		case given(n.flag):
		case m.NoMappings != "":
			lack(n.flag, "Lambda does not tell it: "+m.NoMappings)
		case n.from == 0:
			lack(n.flag, "the lane's mapping has none")
		default:
			*n.to = n.from
			sources[n.flag] = fmt.Sprintf("%d: the lane's mapping", n.from)
		}
	}
	if !given("backlog") {
		in.Backlog = m.Backlog
		sources["backlog"] = fmt.Sprintf("%d: messages on the DLQ", m.Backlog)
	}
	if !given("within") && in.Backlog > 0 && m.Left > 0 {
		in.Within = m.Left
		sources["within"] = fmt.Sprintf("%v: then SQS deletes the DLQ's oldest message", m.Left.Round(time.Second))
	}
	return sources, missing
}
