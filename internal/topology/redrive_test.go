package topology_test

import (
	"strings"
	"testing"
	"time"

	"acklast/internal/topology"
)

func TestRedriveNumbers(t *testing.T) {
	for name, r := range map[string]topology.Redrive{"default": topology.DefaultRedrive(), "scaled": topology.ScaledRedrive()} {
		if err := r.Validate(topology.Default()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if topology.DefaultRedrive().Timeout != topology.DefaultInfra().RedriveTimeout {
		t.Error("the function and its numbers have different timeouts")
	}
	for want, breaks := range map[string]func(*topology.Redrive){
		"pause margin":         func(r *topology.Redrive) { r.PauseMargin = r.Timeout },
		"scan time":            func(r *topology.Redrive) { r.ScanTime = r.Timeout },
		"could not see one":    func(r *topology.Redrive) { r.ScanMessages = 0 },
		"empty receives":       func(r *topology.Redrive) { r.EmptyReceives = 1 },
		"hidden messages":      func(r *topology.Redrive) { r.MaxHidden = 120_001 },
		"idle receives":        func(r *topology.Redrive) { r.IdleReceives = 1 },
		"plan expiry":          func(r *topology.Redrive) { r.PlanExpiry = 30 * 24 * time.Hour },
		"rate is":              func(r *topology.Redrive) { r.Rate = r.MaxRate + 1 },
		"canary is":            func(r *topology.Redrive) { r.Canary = 0 },
		"never stop a run":     func(r *topology.Redrive) { r.MaxFailedPercent = 100 },
		"lock lease":           func(r *topology.Redrive) { r.LockLease = 2 * r.PollEvery },
		"operations retention": func(r *topology.Redrive) { r.Retention = time.Hour },
	} {
		r := topology.DefaultRedrive()
		breaks(&r)
		if err := r.Validate(topology.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
