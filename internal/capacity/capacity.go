// Package capacity plans a recovery before a setting is changed: how much work a stack has, how much it can do,
// how fast a backlog may be brought back, and whether that is fast enough.
//
// The model is a fluid one. A job fails each attempt with the same probability, independently. The first
// attempt of a fresh job runs on the source lane, every retry and every attempt of a redriven job on the
// recovery lane. An invocation takes one full batch, whose records run side by side, so it lasts as long as its
// slowest record. The times of records are log-normal, given by their median and their 95th percentile. Waiting
// between attempts moves work to a later time and adds none.
//
// Everything here is pure.
package capacity

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Input is the input of a plan. Rates are per second.
type Input struct {
	// Arrivals is the rate of fresh jobs.
	Arrivals float64 `json:"arrivalsPerSecond"`
	// Failing is the fraction of attempts that fail and are retried, 0 to 1.
	Failing float64 `json:"failing"`
	// Retries is the largest number of attempts after the first.
	Retries int `json:"retries"`
	// P50 and P95 are the median and the 95th percentile of one record's time in the worker.
	P50 time.Duration `json:"-"`
	P95 time.Duration `json:"-"`
	// Batch is the batch size of both lanes, SourceCap and RecoveryCap their maximum concurrency.
	Batch       int `json:"batch"`
	SourceCap   int `json:"sourceConcurrency"`
	RecoveryCap int `json:"recoveryConcurrency"`
	// Quota is the rate of attempts that the provider allows; 0 means that there is no limit.
	Quota float64 `json:"quotaPerSecond,omitzero"`
	// Backlog is the number of isolated jobs to bring back. Within is the time in which they have to be done; 0
	// means that they have no deadline.
	Backlog int           `json:"backlog"`
	Within  time.Duration `json:"-"`
	// Rate is the rate of the redrive; 0 means the largest safe one.
	Rate float64 `json:"ratePerSecond,omitzero"`
}

// MarshalJSON writes the durations as text, such as 100ms.
func (in Input) MarshalJSON() ([]byte, error) {
	type plain Input
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return json.Marshal(struct {
		plain
		P50    string `json:"p50"`
		P95    string `json:"p95"`
		Within string `json:"within,omitempty"`
	}{plain(in), in.P50.String(), in.P95.String(), text(in.Within)})
}

// Utilisation is the share of a capacity that a plan may use. A queue in front of a server that is busier
// than this grows long on every burst.
const Utilisation = 0.8

// Check returns everything that is wrong with the input, in one error.
func (in Input) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	number := func(name string, v float64) {
		must(v >= 0 && !math.IsInf(v, 0) && !math.IsNaN(v), "%s is %v, want a number of at least 0", name, v)
	}
	number("the arrival rate", in.Arrivals)
	number("the provider's quota", in.Quota)
	number("the redrive's rate", in.Rate)
	must(in.Failing >= 0 && in.Failing <= 1, "the failing fraction is %v, want 0 to 1", in.Failing)
	must(in.Retries >= 0, "the number of retries is %d, want at least 0", in.Retries)
	must(in.P50 > 0, "the median time of a record is %v, want more than 0", in.P50)
	must(in.P95 >= in.P50, "the 95th percentile is %v, below the median of %v", in.P95, in.P50)
	must(in.Batch >= 1, "the batch size is %d, want at least 1", in.Batch)
	must(in.SourceCap >= 1, "the source lane's concurrency is %d, want at least 1", in.SourceCap)
	must(in.RecoveryCap >= 1, "the recovery lane's concurrency is %d, want at least 1", in.RecoveryCap)
	must(in.Backlog >= 0, "the backlog is %d, want at least 0", in.Backlog)
	must(in.Within >= 0, "the time for the backlog is %v, want at least 0", in.Within)
	return errors.Join(errs...)
}

// Load compares the work that a part of the system is given with the work that it can do, in attempts per
// second.
type Load struct {
	Offered  float64 `json:"offeredPerSecond"`
	Capacity float64 `json:"capacityPerSecond"`
	// Utilisation is Offered over Capacity; above 1 a backlog grows without end.
	Utilisation float64 `json:"utilisation"`
}

func load(offered, capacity float64) Load {
	return Load{Offered: offered, Capacity: capacity, Utilisation: offered / capacity}
}

// Plan is the result for an input.
type Plan struct {
	Input Input `json:"input"`
	// AttemptsPerJob is the mean number of attempts of one job, (1-p^(n+1))/(1-p). AttemptsBound is 1+n, which
	// holds when every attempt fails.
	AttemptsPerJob float64 `json:"attemptsPerJob"`
	AttemptsBound  float64 `json:"attemptsBound"`
	// Work and WorkBound are the attempts per second that the arrivals cause.
	Work      float64 `json:"workPerSecond"`
	WorkBound float64 `json:"workBoundPerSecond"`
	// Source, Recovery and Provider are the loads without the redrive. Provider is absent without a quota.
	Source   Load  `json:"source"`
	Recovery Load  `json:"recovery"`
	Provider *Load `json:"provider,omitempty"`
	// SafeRate is the largest rate of a redrive that keeps recovery lane and provider below Utilisation.
	SafeRate float64 `json:"safeRatePerSecond"`
	// Rate is the rate that the plan uses. Drain is the time that the backlog needs at that rate.
	Rate  float64       `json:"ratePerSecond"`
	Drain time.Duration `json:"-"`
	// DrainSeconds is Drain in seconds.
	DrainSeconds float64 `json:"drainSeconds"`
	// Refused says why the plan is not possible, and Needs says what would make it possible. Both are empty for
	// a possible plan.
	Refused []string `json:"refused,omitempty"`
	Needs   []string `json:"needs,omitempty"`
}

// New makes a plan. The error is that of Check; a plan that is not possible is no error.
func New(in Input) (Plan, error) {
	if err := in.Check(); err != nil {
		return Plan{}, err
	}
	p := Plan{Input: in, AttemptsPerJob: meanAttempts(in.Failing, in.Retries), AttemptsBound: float64(in.Retries + 1)}
	p.Work, p.WorkBound = in.Arrivals*p.AttemptsPerJob, in.Arrivals*p.AttemptsBound
	retried := in.Arrivals * (p.AttemptsPerJob - 1)
	p.Source = load(in.Arrivals, in.laneCapacity(in.SourceCap))
	p.Recovery = load(retried, in.laneCapacity(in.RecoveryCap))
	spare := Utilisation*p.Recovery.Capacity - retried
	if in.Quota > 0 {
		provider := load(p.Work, in.Quota)
		p.Provider = &provider
		spare = min(spare, Utilisation*in.Quota-p.Work)
	}
	p.SafeRate = max(spare, 0) / p.AttemptsPerJob
	p.Rate = p.SafeRate
	if in.Rate > 0 {
		p.Rate = in.Rate
	}
	if in.Backlog > 0 && p.Rate > 0 {
		p.Drain = Drain(in.Backlog, p.Rate)
		p.DrainSeconds = p.Drain.Seconds()
	}
	p.judge()
	return p, nil
}

// Drain is the time that a backlog needs at a rate of jobs per second, which has to be above 0.
func Drain(backlog int, rate float64) time.Duration { return seconds(float64(backlog) / rate) }

// Point is the backlog at a time after the redrive's start.
type Point struct {
	At   time.Duration
	Left float64
	// Needed is the backlog of a redrive that ends at the deadline; it is 0 if there is no deadline.
	Needed float64
}

// DrawnSteps is how many steps of a curve a drawing has.
const DrawnSteps = 60

// idle is how long a curve is if nothing drains and nothing has a deadline.
const idle = time.Hour

// Curve returns the backlog over time in equal steps, until it is drained and past its deadline.
func (p Plan) Curve(steps int) []Point {
	in := p.Input
	end := max(p.Drain, in.Within)
	if end == 0 {
		end = idle
	}
	points := make([]Point, steps+1)
	for i := range points {
		at := time.Duration(float64(end) * float64(i) / float64(steps))
		points[i] = Point{At: at, Left: max(0, float64(in.Backlog)-p.Rate*at.Seconds())}
		if in.Within > 0 {
			points[i].Needed = max(0, float64(in.Backlog)*(1-at.Seconds()/in.Within.Seconds()))
		}
	}
	return points
}

// judge says why a plan is not possible, and what would make it possible.
func (p *Plan) judge() {
	in := p.Input
	refuse := func(format string, args ...any) { p.Refused = append(p.Refused, fmt.Sprintf(format, args...)) }
	need := func(format string, args ...any) { p.Needs = append(p.Needs, fmt.Sprintf(format, args...)) }

	if p.Source.Utilisation > 1 {
		refuse("fresh jobs arrive at %s a second, but the source lane does %s", Rate(p.Source.Offered), Rate(p.Source.Capacity))
		need("a source concurrency of at least %d", in.concurrencyFor(in.Arrivals))
	}
	if p.Recovery.Utilisation > 1 {
		refuse("retries of fresh jobs alone are %s a second, but the recovery lane does %s", Rate(p.Recovery.Offered), Rate(p.Recovery.Capacity))
	}
	if p.Provider != nil && p.Provider.Utilisation > 1 {
		refuse("fresh jobs alone make %s attempts a second, but the provider allows %s", Rate(p.Work), Rate(in.Quota))
	}
	if in.Backlog == 0 {
		if p.Recovery.Utilisation > 1 {
			need("a recovery concurrency of at least %d", in.concurrencyFor(p.Recovery.Offered))
		}
		if p.Provider != nil && p.Provider.Utilisation > 1 {
			need("a provider quota of at least %s attempts a second", Rate(p.Work/Utilisation))
		}
		return
	}
	// The wanted rate is the given one, or the rate that the backlog needs to meet its deadline.
	wanted := p.Rate
	if in.Within > 0 {
		wanted = max(wanted, float64(in.Backlog)/in.Within.Seconds())
	}
	switch {
	case p.Rate == 0:
		refuse("nothing is left for a redrive: the recovery lane or the provider is at %.0f %% or more", 100*Utilisation)
		wanted = max(wanted, 1)
	case p.Rate > p.SafeRate*(1+1e-9):
		refuse("a redrive of %s jobs a second is above the largest safe rate of %s", Rate(p.Rate), Rate(p.SafeRate))
	case in.Within > 0 && p.Drain > in.Within:
		refuse("the backlog of %d needs %v, but has %v", in.Backlog, p.Drain.Round(time.Second), in.Within)
	default:
		return
	}
	retried, redriven := in.Arrivals*(p.AttemptsPerJob-1), wanted*p.AttemptsPerJob
	if in.Rate > 0 && in.Rate < wanted {
		need("a rate of at least %s jobs a second", Rate(wanted))
	}
	if least := in.concurrencyFor(retried + redriven); least > in.RecoveryCap {
		need("a recovery concurrency of at least %d", least)
	}
	if least := (p.Work + redriven) / Utilisation; p.Provider != nil && least > in.Quota {
		need("a provider quota of at least %s attempts a second", Rate(least))
	}
	if p.Rate > p.SafeRate && p.SafeRate > 0 {
		need("or a rate of at most %s jobs a second", Rate(p.SafeRate))
	}
}

// meanAttempts is the mean number of attempts of a job that fails each with probability p and is
// retried up to n times.
func meanAttempts(p float64, n int) float64 {
	if p == 1 {
		return float64(n + 1)
	}
	return (1 - math.Pow(p, float64(n+1))) / (1 - p)
}

// laneCapacity is the number of records per second of a lane whose invocations all take full batches.
func (in Input) laneCapacity(concurrency int) float64 {
	return float64(concurrency*in.Batch) / in.batchTime()
}

// concurrencyFor is the least concurrency that does the work at Utilisation.
func (in Input) concurrencyFor(work float64) int {
	return int(math.Ceil(work / Utilisation * in.batchTime() / float64(in.Batch)))
}

// normal95 is the 95th percentile of the standard normal distribution.
const normal95 = 1.6448536269514722

// batchTime is the mean time of a full batch in seconds: the mean of the largest of Batch log-normal
// times, the integral of 1-F(x)^Batch. It is summed over the logarithm of x, where F is smooth.
func (in Input) batchTime() float64 {
	median := in.P50.Seconds()
	sigma := math.Log(in.P95.Seconds()/median) / normal95
	if sigma == 0 {
		return median
	}
	const width, steps = 9.0, 4000 // beyond nine standard deviations nothing is left
	h := 2 * width / steps
	low := median * math.Exp(-width*sigma)
	total := low // 1-F^Batch is 1 below
	for i := range steps {
		z := -width + (float64(i)+0.5)*h
		x := median * math.Exp(z*sigma)
		f := 0.5 * math.Erfc(-z/math.Sqrt2)
		total += (1 - math.Pow(f, float64(in.Batch))) * x * sigma * h
	}
	return total
}

func seconds(s float64) time.Duration {
	if s > float64(math.MaxInt64)/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}

// Rate writes a rate with as many digits as are meaningful.
func Rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
