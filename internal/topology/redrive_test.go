package topology_test

import (
	"errors"
	"reflect"
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
		"approval above is -1": func(r *topology.Redrive) { r.ApprovalAbove = -1 },
		"backlog limit is 0":   func(r *topology.Redrive) { r.BacklogLimit = 0 },
		"canary wait is -5m":   func(r *topology.Redrive) { r.CanaryWait = -5 * time.Minute },
		"canary wait is 0s":    func(r *topology.Redrive) { r.CanaryWait = 0 },
		"in-flight limit":      func(r *topology.Redrive) { r.ScanMessages = topology.MaxInFlight + 1 },
		"receive wait is 21s":  func(r *topology.Redrive) { r.ReceiveWait = 21 * time.Second },
		"poll pause is 0s":     func(r *topology.Redrive) { r.PollEvery = 0 },
	} {
		r := topology.DefaultRedrive()
		breaks(&r)
		if err := r.Validate(topology.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// No number may be negative: a function refuses to start with one.
func TestNoNumberIsNegative(t *testing.T) {
	validate := func(s topology.Settings, i topology.Infra, r topology.Redrive) error {
		return errors.Join(s.Validate(), i.Validate(s), r.Validate(s))
	}
	s, i, r := topology.Default(), topology.DefaultInfra(), topology.DefaultRedrive()
	if err := validate(s, i, r); err != nil {
		t.Fatal(err)
	}
	for _, numbers := range []any{&s, &i, &r} {
		of := reflect.ValueOf(numbers).Elem()
		for n := range of.NumField() {
			before := of.Field(n).Int()
			of.Field(n).SetInt(-1)
			if err := validate(s, i, r); err == nil {
				t.Errorf("%s.%s may be -1", of.Type().Name(), of.Type().Field(n).Name)
			}
			of.Field(n).SetInt(before)
		}
	}
}
