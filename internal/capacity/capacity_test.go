package capacity

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// usual is a stack with the default numbers.
func usual() Input {
	return Input{
		Arrivals: 40, Failing: 0.1, Retries: 9, P50: 100 * time.Millisecond, P95: 400 * time.Millisecond,
		Batch: 10, SourceCap: 50, RecoveryCap: 5, Backlog: 3000,
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*want {
		t.Errorf("%s is %.4g, want %.4g within %.0f %%", what, got, want, 100*within)
	}
}

func TestAttempts(t *testing.T) {
	for _, tt := range []struct {
		p     float64
		n     int
		want  float64
		bound float64
	}{
		{0, 9, 1, 10}, {0.5, 1, 1.5, 2}, {0.1, 2, 1.11, 3}, {1, 9, 10, 10}, {0.5, 0, 1, 1},
	} {
		in := usual()
		in.Failing, in.Retries = tt.p, tt.n
		p, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "attempts", p.AttemptsPerJob, tt.want, 1e-9)
		near(t, "the bound", p.AttemptsBound, tt.bound, 1e-9)
		near(t, "work", p.Work, in.Arrivals*tt.want, 1e-9)
	}
}

func TestAConstantTimeNeedsNoIntegral(t *testing.T) {
	in := usual()
	in.P95 = in.P50
	near(t, "batch time", in.batchTime(), 0.1, 1e-9)
	in.P95 = in.P50 + time.Microsecond
	near(t, "batch time", in.batchTime(), 0.1, 1e-3)
}

func TestTheSafeRateIsSafe(t *testing.T) {
	in := usual()
	p, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	offered := in.Arrivals*(p.AttemptsPerJob-1) + p.SafeRate*p.AttemptsPerJob
	near(t, "the recovery lane's utilisation", offered/p.Recovery.Capacity, Utilisation, 1e-9)
	near(t, "the time to drain", p.Drain.Seconds(), 3000/p.SafeRate, 1e-6)
	if len(p.Refused) != 0 {
		t.Errorf("refused: %q", p.Refused)
	}
	in.Quota = 60
	if p, err = New(in); err != nil {
		t.Fatal(err)
	}
	near(t, "the provider's utilisation", (p.Work+p.SafeRate*p.AttemptsPerJob)/in.Quota, Utilisation, 1e-9)
}

// An impossible plan says what would make it possible, and with that change it is.
func TestWhatAPlanNeedsMakesItPossible(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Input)
		says   string
		needs  string
		mend   func(*Input, Plan)
	}{
		"too slow for its deadline": {
			func(in *Input) { in.Within = 30 * time.Second }, "needs", "a recovery concurrency of at least",
			func(in *Input, p Plan) {
				work := in.Arrivals*(p.AttemptsPerJob-1) + 100*p.AttemptsPerJob // 3000 in 30 s
				in.RecoveryCap = in.concurrencyFor(work)
			},
		},
		"a rate that is not safe": {
			func(in *Input) { in.Rate = 1000 }, "above the largest safe rate", "or a rate of at most",
			func(in *Input, p Plan) { in.Rate = p.SafeRate },
		},
		"a rate below its deadline's": {
			func(in *Input) { in.Rate, in.Within = 1, time.Minute }, "needs 50m0s, but has 1m0s", "a rate of at least 50 jobs",
			func(in *Input, _ Plan) { in.Rate = 50 },
		},
		"a quota in the way": {
			func(in *Input) { in.Quota, in.Within = 60, time.Minute }, "needs", "a provider quota of at least",
			func(in *Input, p Plan) { in.Quota = (p.Work + 50*p.AttemptsPerJob) / Utilisation },
		},
		"nothing left": {
			func(in *Input) { in.Quota = 10 }, "nothing is left", "a provider quota of at least",
			func(in *Input, p Plan) { in.Quota = (p.Work + p.AttemptsPerJob) / Utilisation },
		},
		"more arrivals than the source lane does": {
			func(in *Input) { in.Arrivals, in.Failing, in.SourceCap = 100, 0, 2 }, "fresh jobs arrive at", "a source concurrency of at least",
			func(in *Input, _ Plan) { in.SourceCap = in.concurrencyFor(100) },
		},
		"more retries than the recovery lane does, without a backlog": {
			func(in *Input) { in.Backlog, in.Failing, in.RecoveryCap = 0, 0.9, 1 }, "retries of fresh jobs alone", "a recovery concurrency of at least",
			func(in *Input, p Plan) { in.RecoveryCap = in.concurrencyFor(p.Recovery.Offered) },
		},
		"more attempts than the provider allows, without a backlog": {
			func(in *Input) { in.Backlog, in.Quota = 0, 10 }, "the provider allows", "a provider quota of at least",
			func(in *Input, p Plan) { in.Quota = p.Work / Utilisation },
		},
	} {
		in := usual()
		tt.change(&in)
		p, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Refused, "; "); !strings.Contains(got, tt.says) {
			t.Errorf("%s: refused with %q, want %q", name, got, tt.says)
		}
		if got := strings.Join(p.Needs, "; "); !strings.Contains(got, tt.needs) {
			t.Errorf("%s: needs %q, want %q", name, got, tt.needs)
		}
		tt.mend(&in, p)
		if p, err = New(in); err != nil || len(p.Refused) != 0 {
			t.Errorf("%s: still refused: %q, %v", name, p.Refused, err)
		}
	}
}

// The curve begins with the backlog, is empty at the time that the plan tells, and keeps to the simulation between.
func TestTheCurveFollowsThePlan(t *testing.T) {
	in := usual()
	in.Within = 2 * time.Minute
	p, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	curve := p.Curve(120)
	near(t, "the backlog at the start", curve[0].Left, 3000, 1e-9)
	near(t, "the end of the curve", curve[120].At.Seconds(), 120, 1e-9)
	for _, point := range curve {
		if point.At >= p.Drain && point.Left > 1e-6 {
			t.Errorf("%v of the backlog is left after %v, but it drains in %v", point.Left, point.At, p.Drain)
		}
		if point.At < p.Drain && point.Left <= 0 {
			t.Errorf("nothing is left after %v, but it drains in %v", point.At, p.Drain)
		}
	}
	near(t, "the half of the deadline's line", curve[60].Needed, 1500, 1e-9)
}

func TestACurveOfAStandstillStaysLevel(t *testing.T) {
	in := usual()
	in.Quota = 10
	p, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range p.Curve(4) {
		near(t, "the backlog", point.Left, 3000, 1e-9)
	}
}

func TestInputIsChecked(t *testing.T) {
	for want, spoil := range map[string]func(*Input){
		"arrival rate":         func(in *Input) { in.Arrivals = math.NaN() },
		"failing fraction":     func(in *Input) { in.Failing = 1.5 },
		"retries":              func(in *Input) { in.Retries = -1 },
		"median":               func(in *Input) { in.P50 = 0 },
		"below the median":     func(in *Input) { in.P95 = time.Millisecond },
		"batch size":           func(in *Input) { in.Batch = 0 },
		"source lane's":        func(in *Input) { in.SourceCap = 0 },
		"recovery lane's":      func(in *Input) { in.RecoveryCap = 0 },
		"backlog is":           func(in *Input) { in.Backlog = -1 },
		"time for the backlog": func(in *Input) { in.Within = -1 },
		"provider's quota":     func(in *Input) { in.Quota = math.Inf(1) },
		"redrive's rate":       func(in *Input) { in.Rate = -1 },
	} {
		in := usual()
		spoil(&in)
		if _, err := New(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %q", err, want)
		}
	}
}

// A discrete simulation, event by event, agrees with the formulas: the capacity of a lane, the mean number
// of attempts and the time to drain a backlog at the safe rate.
func TestTheSimulationConfirmsTheFormulas(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"usual":             func(*Input) {},
		"half of all fail":  func(in *Input) { in.Failing, in.Arrivals = 0.5, 20 },
		"batches of one":    func(in *Input) { in.Batch, in.Arrivals, in.RecoveryCap = 1, 10, 20 },
		"constant times":    func(in *Input) { in.P95 = in.P50 },
		"a wide spread":     func(in *Input) { in.P95 = 2 * time.Second },
		"large batches":     func(in *Input) { in.Batch = 100 },
		"nothing else runs": func(in *Input) { in.Arrivals = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			in := usual()
			in.Backlog = 20_000 // so that the last jobs' own attempts weigh little
			change(&in)
			p, err := New(in)
			if err != nil {
				t.Fatal(err)
			}
			s := simulation{in: in, random: rand.New(rand.NewPCG(1, 2))}
			near(t, "the recovery lane's capacity", s.saturated(in.RecoveryCap, 20_000), p.Recovery.Capacity, 0.03)
			attempts, drained := s.redrive(p.Rate)
			near(t, "attempts per job", attempts, p.AttemptsPerJob, 0.03)
			near(t, "the time to drain", drained, p.Drain.Seconds(), 0.05)
		})
	}
}
