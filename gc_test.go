package acklast

import (
	"runtime/debug"
	"testing"
)

func TestCollectLess(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) }()
	for name, c := range map[string]struct {
		env     map[string]string
		percent int
		limit   int64
	}{
		"on Lambda":       {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256"}, gcPercent, 192 << 20},
		"elsewhere":       {nil, gcPercent, limit},
		"set by somebody": {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256", "GOGC": "50", "GOMEMLIMIT": "100MiB"}, 100, limit},
		"no number":       {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "much"}, gcPercent, limit},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(limit)
		getenv := func(name string) string { return c.env[name] }
		collectLess(getenv)
		limitMemory(getenv)
		if got := debug.SetMemoryLimit(-1); got != c.limit {
			t.Errorf("%s: memory limit %d, want %d", name, got, c.limit)
		}
		if got := debug.SetGCPercent(100); got != c.percent {
			t.Errorf("%s: GC percent %d, want %d", name, got, c.percent)
		}
	}
}
