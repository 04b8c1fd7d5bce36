package retry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"acklast/internal/job"
)

var policy = Policy{Base: 5 * time.Second, Cap: 300 * time.Second, MaxAttempts: 10, AttemptTime: 10 * time.Second}

func TestBackoffDoublesUpToTheCapAndJittersToHalf(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		1: 5 * time.Second, 2: 10 * time.Second, 6: 160 * time.Second, 7: 300 * time.Second, 1000: 300 * time.Second,
	} {
		if got := policy.Backoff(attempt, 0, 0); got != want {
			t.Errorf("Backoff(%d) without jitter = %v, want %v", attempt, got, want)
		}
		if got := policy.Backoff(attempt, 0, 1); got != want/2 {
			t.Errorf("Backoff(%d) with all jitter = %v, want %v", attempt, got, want/2)
		}
	}
}

func TestNextSpendsBothBudgets(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	tests := []struct {
		name       string
		attempt    int
		deadline   time.Time
		retryAfter time.Duration
		delay      time.Duration
		cause      job.Cause
	}{
		{"first failure", 1, time.Time{}, 0, 5 * time.Second, ""},
		{"last but one", 9, time.Time{}, 0, 300 * time.Second, ""},
		{"last", 10, time.Time{}, 0, 0, job.CauseAttempts},
		{"beyond", 11, time.Time{}, 0, 0, job.CauseAttempts},
		{"room for the delay and one attempt", 1, now.Add(15 * time.Second), 0, 5 * time.Second, ""},
		{"no room for the attempt", 1, now.Add(15*time.Second - 1), 0, 0, job.CauseTime},
		{"past the deadline", 1, now.Add(-time.Hour), 0, 0, job.CauseTime},
		{"Retry-After above the backoff", 1, time.Time{}, time.Hour, time.Hour, ""},
		{"Retry-After below the backoff", 2, time.Time{}, time.Second, 10 * time.Second, ""},
		{"Retry-After beyond the deadline", 1, now.Add(time.Minute), time.Minute, 0, job.CauseTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			delay, cause := policy.Next(tt.attempt, now, tt.deadline, tt.retryAfter, 0)
			if delay != tt.delay || cause != tt.cause {
				t.Errorf("Next() = %v, %q, want %v, %q", delay, cause, tt.delay, tt.cause)
			}
		})
	}
}

// The ten attempts of the default policy last 10 to 20 minutes, which is what the documentation says.
func TestDefaultBudgetLastsTenToTwentyMinutes(t *testing.T) {
	total := func(random float64) (sum time.Duration) {
		for attempt := 1; attempt < policy.MaxAttempts; attempt++ {
			sum += policy.Backoff(attempt, 0, random)
		}
		return sum
	}
	if long, short := total(0), total(1); long > 21*time.Minute || short < 10*time.Minute {
		t.Errorf("delays add up to %v to %v", short, long)
	}
}

func TestBackoffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
		p := Policy{Base: base, Cap: base + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "more")), MaxAttempts: 10, AttemptTime: 1}
		after := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "retryAfter"))
		attempt := rapid.IntRange(-3, 5000).Draw(t, "attempt")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		got := p.Backoff(attempt, after, random)
		if got < after {
			t.Fatalf("%v is below Retry-After %v", got, after)
		}
		if got > max(p.Cap, after) || got < p.Base/2-1 {
			t.Fatalf("%v is outside [%v/2, max(%v, %v)]", got, p.Base, p.Cap, after)
		}
	})
}

func TestLeftDoublesFromTheFirstReceive(t *testing.T) {
	const base, ceiling = 30 * time.Second, 15 * time.Minute
	for receives, want := range map[int]time.Duration{0: base, 1: base, 2: 2 * base, 5: 16 * base, 6: ceiling, 1 << 30: ceiling} {
		if got := Left(base, ceiling, receives); got != want {
			t.Errorf("Left(%d) = %v, want %v", receives, got, want)
		}
	}
}

func TestWholeSecondsNeverShortensADelay(t *testing.T) {
	const most = 900 * time.Second
	for in, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Second, time.Second: time.Second, time.Second + 1: 2 * time.Second,
		most - 1: most, most: most, 24 * time.Hour: most,
	} {
		if got := WholeSeconds(in, most); got != want {
			t.Errorf("WholeSeconds(%v) = %v, want %v", in, got, want)
		}
	}
}

func TestPolicyOfAKind(t *testing.T) {
	t.Parallel()
	stack := Policy{Base: 5 * time.Second, Cap: time.Minute, MaxAttempts: 10, AttemptTime: 10 * time.Second}
	for name, c := range map[string]struct {
		kind job.Attempts
		want Policy
	}{
		"nothing of its own": {job.Attempts{}, stack},
		"everything": {
			job.Attempts{Most: 3, BackoffBase: time.Second, BackoffCap: 2 * time.Second, Time: 4 * time.Second},
			Policy{Base: time.Second, Cap: 2 * time.Second, MaxAttempts: 3, AttemptTime: 4 * time.Second},
		},
		"a base above the stack's cap": {
			job.Attempts{BackoffBase: time.Hour}, Policy{Base: time.Hour, Cap: time.Hour, MaxAttempts: 10, AttemptTime: 10 * time.Second},
		},
	} {
		if got := stack.For(c.kind); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
